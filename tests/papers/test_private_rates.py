"""The study of private rates: its oracle, and the gains it is to reach."""

import numpy as np
import pytest

from ebfed.datasets import make_bernoulli_groups
from ozkara2023 import private_rates as pr


@pytest.fixture(scope="module")
def study(quick_studies):
    return quick_studies["private-rates"]


def test_table(study):
    table = study.table
    assert table["method"].unique().tolist() == ["non-private", "oracle", *pr.METHODS]
    assert len(table) == 2 + 2 * len(pr.METHODS)
    row = table[table["method"] == "oracle"].iloc[0]
    some = study.runs[study.runs["method"] == "oracle"]
    assert row["gain"] == pytest.approx(some["gain"].mean())
    assert row["gain_sd"] == pytest.approx(some["gain"].std())


def test_gains(study):
    gains = study.table.set_index(["method", "epsilon"])["gain"]
    top = study.table.loc[study.table["method"] == "oracle", "gain"].item()
    assert gains["two bits", 1.0] > 35
    assert gains["one bit, Theorem 4", 1.0] == pytest.approx(2.95, abs=0.3)
    assert (study.table["gain"] < top + 0.3).all()


@pytest.mark.parametrize("name", list(pr.POPULATIONS))
def test_nodes_have_the_moments_of_the_draws(name):
    population = pr.POPULATIONS[name]
    rates, weights = population.nodes()
    *_, drawn = make_bernoulli_groups(200_000, 1, population=population.draw, random_state=0)
    for power in (1, 2, 3):
        error = (drawn**power).std() / np.sqrt(len(drawn))
        assert weights @ rates**power == pytest.approx((drawn**power).mean(), abs=4 * error)


def test_oracle():
    a = pr.oracle(pr.POPULATIONS["skewed"], 14)
    np.testing.assert_allclose(a, (2 + np.arange(15)) / (2 + 5 + 14), rtol=1e-9)
    b = pr.oracle(pr.POPULATIONS["spikes"], 14)
    assert b[0] == pytest.approx(0.25, abs=0.01)
    assert b[7] == pytest.approx(0.5, abs=1e-9)


@pytest.fixture(scope="module")
def gains():
    table = pr.PrivateRatesStudy.run().table
    return table.set_index(["population", "method", "epsilon"]).sort_index()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("population", "epsilon", "target"),
    [("normal", 0.5, 40.8), ("normal", 1.0, 41.6), ("uniform", 0.5, 11.9), ("skewed", 0.5, 31.0)],
)
def test_a_channel_of_ours_reaches(gains, population, epsilon, target):
    """The best of the means of ten runs."""
    ours = [gains.loc[(population, method, epsilon), "gain"] for method in list(pr.METHODS)[1:]]
    assert max(ours) >= target


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "gain"), [(0.5, 0.85), (1.0, 2.95), (2.0, 7.6), (4.0, 11.6)])
def test_the_papers_protocol(gains, epsilon, gain):
    row = gains.loc[("normal", "one bit, Theorem 4", epsilon)]
    assert row["gain"] == pytest.approx(gain, abs=3 * row["gain_se"] + 0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("population", "fitted", "best"),
    [
        ("normal", 41.9, 42.1),
        ("uniform", 12.4, 12.4),
        ("spikes", 26.2, 32.6),
        ("beta", 36.4, 36.4),
    ],
)
def test_without_privacy(gains, population, fitted, best):
    """Against means of ten runs of an independent program, with standard errors like these."""
    for method, gain in (("non-private", fitted), ("oracle", best)):
        row = gains.xs((population, method)).iloc[0]
        assert row["gain"] == pytest.approx(gain, abs=3 * np.sqrt(2) * row["gain_se"] + 0.05)
