"""The study of opting out: its formulas, its comparisons, and that simulations reach them."""

import json

import numpy as np
import pytest

from aldaghri2021 import opt_out as oo
from ebfed.theory import opt_out as theory


@pytest.fixture(scope="module")
def study(quick_studies):
    return quick_studies["opt-out"]


def test_opting_out_keeps_what_it_says():
    for setting, _ in oo.FAMILIES.values():
        total, gamma2 = (oo.opt_out(setting, kept) for kept in ("sum", "gamma2"))
        noise = setting.n_private * setting.channel_variance
        assert total.n_private * total.channel_variance == pytest.approx(noise)
        mean = setting.channel_variance / setting.n_private
        assert gamma2.channel_variance / gamma2.n_private == pytest.approx(mean)
        for out in (total, gamma2):
            assert (out.n_private, out.n_open) == (setting.n_private - 1, setting.n_open + 1)


def test_published_percentages():
    """They are printed to two digits."""
    points = [oo._points(figure) for figure in oo.FAMILIES]
    for part in points:
        told = oo._gains(part).dropna(subset="published")
        assert len(told) == 3
        np.testing.assert_allclose(told["formula"], told["published"], rtol=0.005)


def test_incentive_at_equal_privacy():
    gains = oo._gains(oo._points("incentive")).set_index(["panel", "method"])["formula"]
    gains = gains.sort_index()
    np.testing.assert_allclose(gains[oo.FEDAVG, oo.OUT_SUM], 0, atol=1e-9)
    assert gains[oo.OPTIMAL, oo.OUT_SUM].between(-1e-9, 0.2).all()
    assert (gains[oo.BAYES, oo.OUT_SUM] < 0).all()
    for panel in (oo.FEDAVG, oo.OPTIMAL, oo.BAYES):
        assert (gains[panel, oo.OUT_GAMMA2] > 0).all()


@pytest.mark.parametrize("figure", oo.FIGURES)
def test_best_points_are_the_least_of_their_curves(figure):
    fine = oo._points(figure, fine=True)
    for _, curve in fine.groupby(["panel", "method"]):
        if figure != "incentive" and curve["best"].any():
            (best,) = curve.loc[curve["best"], "formula"]
            assert best == pytest.approx(curve["formula"].min(), rel=1e-12)
    coarse = oo._points(figure)
    assert set(coarse["method"]) == set(fine["method"])
    assert not coarse.duplicated(oo.KEYS).any()


def test_bayes_penalty_reaches_bayes():
    for setting, _ in oo.FAMILIES.values():
        for private in (True, False):
            t, v, n, q, n_private, n_open = setting
            penalty = oo._best_penalty(oo.BAYES, setting, private)
            others = theory.server_variance(t, v, n, q, n_private - private, n_open - (not private))
            a = 1 / (1 + penalty)
            risk = a**2 * v / n + (1 - a) ** 2 * (t + others)
            assert risk == pytest.approx(theory.bayes_risk(*setting, private), rel=1e-12)


def test_figure_four_without_opting_out():
    points = oo._points("4").set_index(["method", "x"])["formula"]
    assert points[:, 0.0].nunique() == 1
    fedavg = points["FedAvg, total noise kept"]
    np.testing.assert_allclose(fedavg, fedavg.iloc[0], rtol=1e-12)  # nobody's gain


def test_table(study):
    table, runs = study.table, study.runs
    assert table["figure"].unique().tolist() == list(oo.FIGURES)
    assert len(runs) == len(table) * 2 * oo.TENTHS
    row = table.iloc[40]
    some = runs[(runs[oo.KEYS] == row[oo.KEYS]).all(axis=1)]["mse"]
    assert row["mse"] == pytest.approx(some.mean())
    assert row["mse_se"] == pytest.approx(some.std() / np.sqrt(len(some)))
    assert row["apart"] == pytest.approx((row["mse"] - row["formula"]) / row["mse_se"])


def test_simulations_are_near_the_formulas(study):
    """Within five standard errors, from 20 runs: one false alarm in 60, were seeds not fixed."""
    assert study.table["apart"].abs().max() < 5
    assert study.gains["apart"].abs().max() < 5


def test_gains_are_paired(study):
    gains = study.gains
    one = gains[(gains["figure"] == "2") & (gains["method"] == oo.OUT_SUM)].iloc[0]
    alone = study.table.query("figure == '2' and best")
    unpaired = 100 * (alone["mse_se"] / alone["mse"]).mean() * np.sqrt(2)
    assert one["gain_se"] < unpaired / 2


def test_page(study):
    text = study.to_text()
    assert max(map(len, text.splitlines())) <= 96
    for said in ("17", "18", "2.4", "2.5", "1.2"):
        assert f" {said} " in text
    assert "γ² kept" in text
    assert "total noise kept" in text


def test_files(study, tmp_path):
    names = [path.name for path in study.save(tmp_path)]
    assert names == [
        "opt_out_table.csv",
        "opt_out_runs.csv",
        "opt_out_gains.csv",
        "opt_out.txt",
        "opt_out.png",
    ]
    results = json.loads(json.dumps(study.to_dict()))
    assert len(results["gains"]) == len(study.gains)
    assert results["gains"][0]["published"] == 2.4


def test_figure(study):
    axes = study.figure().axes
    assert len(axes) == 8
    assert all(ax.get_legend() is not None for ax in axes)


@pytest.mark.slow
def test_simulations_reach_the_formulas():
    """No place of a few hundred, which share their draws, 4 standard errors off."""
    study = oo.OptOutStudy.run()
    assert study.table["apart"].abs().max() < 4
    assert study.gains["apart"].abs().max() < 4
