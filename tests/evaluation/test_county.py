"""The county study against figures measured independently, and against its own definitions."""

import json

import numpy as np
import pandas as pd
import pytest

from ebfed.datasets import load_county_outcomes, load_county_patterns_2024
from ebfed.evaluation import county
from ebfed.likelihoods import Binomial
from ebfed.priors import Beta, Discrete
from ebfed.tables.clients import Summary


@pytest.fixture(scope="module")
def study():
    return county.run()


@pytest.fixture(scope="module")
def table(study):
    return study.table.set_index("method")


def of(study, method, column):
    return study.folds.loc[study.folds["method"] == method, column].to_numpy()


def test_sizes(study):
    assert study.n_counties == 3111
    assert study.folds.groupby("method").size().eq(6).all()
    assert study.folds["year"].unique().tolist() == [2000, 2004, 2008, 2012, 2016, 2020]


def test_local(study, table):
    # the three other polls too are means of five outcomes: nothing is fitted
    assert table.loc["local", "mse"] == pytest.approx(0.0616, abs=5e-5)
    assert table.loc["local", "mse_pm"] == pytest.approx(0.0175, abs=5e-5)
    assert table.loc["local", ["gain", "gain_pm"]].tolist() == [0, 0]
    assert np.isnan(table.loc[["local", "pooled"], "implied"]).all()


def test_measured_figures(study, table):
    gains = of(study, "eq. (6)", "gain")
    np.testing.assert_allclose(gains, [2.4, 1.8, -1.4, -4.2, 4.1, 3.4], atol=0.05)
    for method, column, mean, spread in [
        ("eq. (6)", "gain", 1.0, 2.9),
        ("eq. (6)", "implied", 6.3, 0.5),
        ("moments", "implied", 8.4, 0.7),
    ]:
        assert table.loc[method, column] == pytest.approx(mean, abs=0.05)
        assert table.loc[method, f"{column}_pm"] == pytest.approx(spread, abs=0.05)


def test_the_election_of_2024(study):
    """Gains measured independently, and the errors of own and mean rates from the counts."""
    later = study.later.set_index("method")
    known = {"eq. (6)": 4.2, "moments": 5.1, "ML": 4.9, "NPMLE": 6.2}
    for method, gain in known.items():
        assert later.loc[method, "gain"] == pytest.approx(gain, abs=0.05)
    counted = load_county_patterns_2024()
    rate = counted["pattern"].str.count("R") / 6
    won = counted["republican_2024"]
    total = won * (rate - 1) ** 2 + (counted["n_counties"] - won) * rate**2
    assert later.loc["local", "mse"] == pytest.approx(total.sum() / 3103)
    mean = np.average(rate, weights=counted["n_counties"])
    pooled = won.sum() * (mean - 1) ** 2 + (3103 - won.sum()) * mean**2
    assert later.loc["pooled", "mse"] == pytest.approx(pooled / 3103)
    # ten seeds of reports, whose gains have a standard deviation of 0.8
    assert later.loc["ML, TwoBit", "gain"] == pytest.approx(later.loc["ML", "gain"], abs=1.0)
    assert 0.3 < later.loc["ML, TwoBit", "gain_pm"] < 1.5


def test_the_standard_error_of_a_gain_is_that_of_states(study):
    """Beside a bootstrap of the states, for ML."""
    counted = load_county_patterns_2024()
    rng = np.random.default_rng(0)
    fit = (
        study.fits["ML"]
        .__class__()
        .fit(
            Summary.from_counts(
                counted["pattern"].str.count("R").repeat(counted["n_counties"]).to_numpy(),
                np.full(3103, 6),
            )
        )
    )
    estimate = fit.posterior().mean[counted["n_counties"].cumsum().to_numpy() - 1, 0]
    own = counted["pattern"].str.count("R").to_numpy() / 6
    won, lost = counted["republican_2024"], counted["n_counties"] - counted["republican_2024"]
    errors = pd.DataFrame(
        {name: won * (x - 1) ** 2 + lost * x**2 for name, x in (("ML", estimate), ("own", own))}
    )
    states = errors.groupby(counted["state"]).sum().to_numpy()
    drawn = states[rng.integers(len(states), size=(4000, len(states)))].sum(axis=1)
    gains = 100 * (1 - drawn[:, 0] / drawn[:, 1])
    stated = study.later.set_index("method").loc["ML", "gain_se"]
    # jackknife and bootstrap differ by second-order terms
    assert stated == pytest.approx(gains.std(), rel=0.15)


def test_beta_shrinks_by_concentration(study):
    """The exact sum over outcomes is the closed form M / (M + n)."""
    for method in ("eq. (6)", "moments", "ML"):
        concentration = of(study, method, "alpha") + of(study, method, "beta")
        implied = 100 * concentration / (concentration + 5)
        np.testing.assert_allclose(of(study, method, "implied"), implied, rtol=1e-8)
        np.testing.assert_allclose(of(study, method, "expected"), implied / 6, rtol=1e-8)


def test_estimates_are_those_of_eq_6(study):
    """Mean and variance of the other counties' proportions, written out for one fold."""
    outcomes = load_county_outcomes().pivot(index="county", columns="year", values="republican")
    local = outcomes.drop(columns=2020).mean(axis=1).to_numpy()
    errors = []
    for share in np.unique(local):
        others = np.delete(local, np.argmax(local == share))
        mean, variance = others.mean(), others.var(ddof=1)
        a = 5 / (mean * (1 - mean) / variance - 1 + 5)
        truth = outcomes.loc[local == share, 2020].to_numpy()
        errors.append((a * share + (1 - a) * mean - truth) ** 2)
    assert of(study, "eq. (6)", "mse")[-1] == pytest.approx(np.concatenate(errors).mean())


@pytest.mark.parametrize(
    "prior", [Beta(0.4, 0.1), Discrete([[0.1], [0.5], [1.0]], [0.2, 0.3, 0.5])]
)
def test_expected_risks_by_simulation(prior):
    prior.fit(Binomial(np.array([[1]]), np.array([5])))
    rng = np.random.default_rng(0)
    p = prior.sample(200_000, rng)
    counts = Binomial(rng.binomial(5, p), np.full(len(p), 5))
    bayes = np.mean((prior.posterior(counts).mean - p) ** 2)
    local = np.mean((counts.local - p) ** 2)
    assert county.expected_risks(prior, 5) == pytest.approx((local, bayes), rel=0.02)


def test_exchangeable_elections_gain_what_the_model_expects():
    """The control: with each county's elections shuffled, gains neither swing nor disappoint."""
    outcomes = load_county_outcomes()
    winners = outcomes["republican"].to_numpy().reshape(-1, 6)
    shuffled = np.random.default_rng(0).permuted(winners, axis=1).ravel()
    table = county.run(outcomes.assign(republican=shuffled)).table.set_index("method")
    assert table.loc["eq. (6)", "gain"] == pytest.approx(1.3, abs=0.05)
    assert table.loc["eq. (6)", "gain_pm"] < 0.5
    assert table.loc["eq. (6)", "gain"] == pytest.approx(table.loc["eq. (6)", "expected"], abs=0.3)
    assert table.loc["ML", "gain"] == pytest.approx(table.loc["ML", "expected"], abs=0.1)
    assert table.loc["NPMLE", "gain"] > 1.5


def test_npmle_is_the_same_everywhere(study):
    """Four folds have several maximisers; the centre of them is known to more digits than shown.

    Figures are those of a gap of 1e-12 per client. At 1e-8, the default, digits are right to about
    the root of the gap.
    """
    assert of(study, "NPMLE", "saturated").tolist() == [True, True, False, False, True, True]
    implied = [26.8011700, 12.6742820, 34.3691508, 34.1229327, 9.4079773, 9.3227245]
    np.testing.assert_allclose(of(study, "NPMLE", "implied"), implied, rtol=1e-5)
    gains = [4.1136625, 4.2094603, -9.1349435, -21.3565609, 6.5600674, 4.9239196]
    np.testing.assert_allclose(of(study, "NPMLE", "gain"), gains, rtol=1e-5)


def test_text_says_which_gain_is_which(study, table):
    lines = study.to_text().splitlines()
    assert max(map(len, lines)) <= 96
    heads = ["left-out election", "held-out", "model expects", "model-implied"]
    (head,) = [line for line in lines if line.startswith("method")]
    lines = lines[lines.index(head) :]
    ends = [head.index(name) + len(name) for name in heads]
    assert ends == sorted(ends)
    shown = {"mse": 4, "gain": 1, "expected": 1, "implied": 1}
    for method, row in table.iterrows():
        line = next(line for line in lines if line.startswith(method))
        starts = [12, *ends[:-1]]
        for (name, digits), start, end in zip(shown.items(), starts, ends, strict=True):
            pair = row[name], row[f"{name}_pm"]
            figure = "–" if np.isnan(row[name]) else " ± ".join(f"{x:.{digits}f}" for x in pair)
            assert line[start:end].strip() == figure


def test_notes_say_why_gains_differ(study):
    text = study.to_text()
    assert "Held-out" in text
    assert "Model-implied" in text
    assert "not exchangeable" in text
    assert "In 4 of 6 folds the NPMLE" in text


def test_dict_is_json(study):
    plain = json.loads(json.dumps(study.to_dict(), allow_nan=False))
    assert plain["table"][0]["implied"] is None
    assert [row["method"] for row in plain["table"]] == study.table["method"].tolist()
    assert [row["method"] for row in plain["later"]] == study.later["method"].tolist()
    assert plain["folds"][2]["gain"] == pytest.approx(study.folds["gain"][2], rel=1e-12)


def test_save(study, tmp_path):
    paths = study.save(tmp_path / "a" / "b")
    assert {path.name for path in paths} == {
        "county.txt",
        "county_table.csv",
        "county_folds.csv",
        "county_later.csv",
        "county_shrinkage.png",
        "county_populations.png",
        "county_gains.png",
    }
    assert all(path.stat().st_size > 500 for path in paths)
    pd.testing.assert_frame_equal(pd.read_csv(paths[0]), study.table)
    pd.testing.assert_frame_equal(pd.read_csv(paths[1]), study.folds)


def test_a_state_without_any_change(study):
    """All outcomes alike: every method is right, and no gain can be stated."""
    outcomes = load_county_outcomes()
    hawaii = outcomes[(outcomes["state"] == "HI")]
    with pytest.warns(UserWarning, match="Every outcome is 0"):
        result = county.run(hawaii)
    np.testing.assert_allclose(result.table["mse"], 0, atol=1e-12)
    assert result.table["gain"].isna().all()
    assert "–" in result.to_text()
    assert result.later is None
    assert "2024" not in result.to_text()
