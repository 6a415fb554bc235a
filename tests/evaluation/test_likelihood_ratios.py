"""Tests by likelihood ratio, beside lme4's and by simulation."""

import numpy as np
import pandas as pd
import pytest
from r_fits import data_of, stored
from scipy.stats import binom, chi2

import ebfed as eb
from ebfed.report.view import view_of

SLEEP = data_of("sleepstudy")
DAYS = "Reaction ~ Days + "


def test_figures_are_those_of_lme4():
    """Both optimisers stop within 1e-6 of the maximum, which the differences show twofold."""
    alone, slopes, bent = (
        eb.from_formula(DAYS + x, SLEEP)
        for x in ("(1 | Subject)", "(Days | Subject)", "I(Days**2) + (Days | Subject)")
    )
    pairs = {"slopes": (slopes, alone), "curve": (bent, slopes), "both": (alone, bent)}
    told = stored("ratios")
    for case, pair in pairs.items():
        found = eb.anova(*pair, boundary=False)
        expected = told[told["case"] == case]
        for name in ("npar", "df"):
            np.testing.assert_array_equal(found[name], expected[name])
        for name in ("AIC", "BIC", "logLik", "deviance", "statistic"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
        np.testing.assert_allclose(found["p.value"], expected["p_value"], rtol=1e-4)
        assert found["reference"].tolist() == ["", "chi2"]


def test_one_variance_more_lies_on_the_boundary():
    fits = [eb.from_formula(DAYS + x, SLEEP) for x in ("(1 | Subject)", "(Days | Subject)")]
    found = eb.anova(*fits).iloc[1]
    expected = (chi2.sf(found["statistic"], 1) + chi2.sf(found["statistic"], 2)) / 2
    assert found["p.value"] == pytest.approx(expected, rel=1e-12)
    assert found["reference"] == "mixture"


def test_restricted_likelihoods_are_kept_on_request():
    fits = [eb.from_formula(DAYS + x, SLEEP) for x in ("(1 | Subject)", "(Days | Subject)")]
    found = eb.anova(*fits, refit=False)["deviance"]
    np.testing.assert_allclose(found, [-2 * fit.log_likelihood_ for fit in fits], rtol=1e-12)


def test_more_variances_are_conservative():
    rows = data_of("oats").assign(x=np.random.default_rng(0).normal(size=72))
    small = eb.from_formula("yield_ ~ nitro + x + (1 | block)", rows)
    large = eb.from_formula("yield_ ~ nitro + x + (nitro + x | block)", rows)
    assert eb.anova(small, large)["reference"].tolist() == ["", "chi2 (conservative)"]


def test_levels_are_tested():
    rows = data_of("oats")
    small = eb.from_formula("yield_ ~ nitro + (1 | block)", rows)
    large = eb.from_formula("yield_ ~ nitro + (1 | block / variety)", rows)
    found = eb.anova(one=small, two=large)
    assert found["fit"].tolist() == ["one", "two"]
    assert found["reference"].tolist() == ["", "mixture"]
    assert found["p.value"].iloc[1] == pytest.approx(chi2.sf(found["statistic"].iloc[1], 1) / 2)


def test_rejects_as_often_as_it_says():
    """200 tests at 5 % without slopes: false alarm 1 in 1,000 on each side."""
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(60), 6), np.tile(np.linspace(-1, 1, 6), 60)
    rejected = 0
    for _ in range(200):
        rows = pd.DataFrame({"g": groups, "x": x})
        rows["y"] = rng.normal(size=60)[groups] + rng.normal(size=360)
        small = eb.from_formula("y ~ x + (1 | g)", rows)
        large = eb.from_formula("y ~ x + (x | g)", rows)
        rejected += eb.anova(small, large)["p.value"].iloc[1] < 0.05
    assert binom.ppf(0.001, 200, 0.05) <= rejected <= binom.ppf(0.999, 200, 0.05)


def test_counts_are_tested():
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"g": np.repeat(np.arange(40), 5), "x": rng.normal(size=200)})
    rows["z"] = rng.normal(size=200)
    rate = np.exp(0.8 * rows["x"] + rng.normal(0, 0.5, 40)[rows["g"]])
    rows["y"] = rng.poisson(rate)
    small = eb.from_formula("y ~ z + (1 | g)", rows, family="poisson")
    large = eb.from_formula("y ~ z + x + (1 | g)", rows, family="poisson")
    found = eb.anova(small, large).iloc[1]
    assert found["df"] == 1
    assert found["reference"] == "chi2"
    assert found["p.value"] < 1e-10


def test_scatter_of_counts_lies_on_the_boundary():
    rng = np.random.default_rng(2)
    rows = pd.DataFrame({"g": np.repeat(np.arange(40), 5), "x": rng.normal(size=200)})
    rows["y"] = rng.negative_binomial(2, 0.5, 200)
    fits = [
        eb.from_formula("y ~ x + (1 | g)", rows, family=family)
        for family in ("poisson", "negative_binomial")
    ]
    assert eb.anova(*fits)["reference"].tolist() == ["", "mixture"]


def test_fits_that_do_not_compare_are_refused():
    fit = eb.from_formula(DAYS + "(1 | Subject)", SLEEP)
    with pytest.raises(ValueError, match="two fits; got one"):
        eb.anova(fit)
    fewer = eb.from_formula(DAYS + "(Days | Subject)", SLEEP.head(100))
    with pytest.raises(ValueError, match="fits must be of the same rows"):
        eb.anova(fit, fewer)
    means = eb.GaussianEB(prior="npmle").fit(SLEEP[["Reaction"]], groups=SLEEP["Subject"])
    with pytest.raises(ValueError, match="normal populations; that of 'x' is Discrete"):
        eb.anova(fit, x=means)
    with pytest.raises(TypeError, match="no fitted estimator"):
        eb.anova(fit, 3)


def test_a_larger_model_with_a_smaller_likelihood_warns():
    rng = np.random.default_rng(3)
    rows = SLEEP.assign(noise=rng.normal(size=len(SLEEP)), more=rng.normal(size=len(SLEEP)))
    days = eb.from_formula(DAYS + "(1 | Subject)", rows)
    other = eb.from_formula("Reaction ~ noise + more + (1 | Subject)", rows)
    with pytest.warns(UserWarning, match="they are not nested"):
        found = eb.anova(days, other)
    assert found["p.value"].iloc[1] == 1


def test_crossed_factors_are_tested():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.integers(0, 12, 300), "b": rng.integers(0, 7, 300)})
    rows["x"], rows["w"] = rng.normal(size=300), rng.uniform(0.5, 2, 300)
    rows["y"] = rng.normal(size=12)[rows["a"]] * (1 + rows["x"]) + rng.normal(size=7)[rows["b"]]
    rows["y"] += rng.normal(size=300)
    models = ["y ~ x + (1 | a)", "y ~ x + (1 | a) + (1 | b)", "y ~ x + (1 + x | a) + (1 | b)"]
    models.append("y ~ x + (1 + x | a) + (0 + x | b)")

    def fitted(method):
        return [eb.from_formula(model, rows, weights="w", method=method) for model in models]

    restricted, exact = eb.anova(*fitted("reml")[:3]), eb.anova(*fitted("ml")[:3])
    np.testing.assert_allclose(restricted["logLik"], exact["logLik"], atol=1e-6)
    assert restricted["reference"].tolist() == ["", "mixture", "mixture"]
    assert restricted["df"].tolist()[1:] == [1, 2]
    for one, other in zip(fitted("reml")[1:], fitted("ml")[1:], strict=True):
        assert view_of(one.estimator_).maximum() == pytest.approx(other.estimator_.log_likelihood_)
