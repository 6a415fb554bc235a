"""Diagnostics of estimators: rows in their order, exact distributions, and figures of lme4."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ebfed as eb

REFERENCE = Path(__file__).parents[1] / "reference"
SLEEP = pd.read_csv(REFERENCE / "sleepstudy.csv")


def test_leverages_and_distances_of_rows_are_those_of_lme4():
    # hatvalues, cooks.distance and residuals / sigma / sqrt(1 - h) of the first rows, lme4 1.1.31
    fit = eb.from_formula("Reaction ~ Days + (Days | Subject)", SLEEP)
    found = fit.augment()
    np.testing.assert_allclose(found[".hat"][:3], [0.2293040, 0.1697300, 0.1268237], rtol=1e-4)
    expected = [0.004963133, 0.040206202, 0.226099185]
    np.testing.assert_allclose(found[".cooksd"][:3], expected, rtol=1e-4)
    expected = [-0.1826538, -0.6271796, -1.7644739]
    np.testing.assert_allclose(fit.residuals(kind="standardized")[:3], expected, rtol=1e-4)
    assert ".hat" not in fit.augment(SLEEP)


def test_estimators_and_formulas_agree_in_any_order():
    fit = eb.from_formula("Reaction ~ Days + (1 | Subject)", SLEEP)
    est = eb.LinearEB(varying=["intercept"]).fit(
        SLEEP[["Days", "Reaction", "Subject"]], "Reaction", groups="Subject"
    )
    mixed = SLEEP.sample(frac=1, random_state=0)
    for kind in ("response", "pearson", "standardized"):
        here = est.residuals(mixed[["Days"]], mixed["Reaction"], groups=mixed["Subject"], kind=kind)
        expected = fit.residuals(kind=kind)[mixed.index]
        np.testing.assert_allclose(here, expected, atol=1e-6, rtol=1e-6)
    augmented = est.augment(mixed[["Days"]], mixed["Reaction"], groups=mixed["Subject"])
    here = est.residuals(mixed[["Days"]], mixed["Reaction"], groups=mixed["Subject"])
    np.testing.assert_allclose(here, augmented[".resid"], atol=1e-9)


def test_rows_of_counts_keep_their_order():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 15, 200)
    x = rng.normal(size=(200, 1))
    offset = rng.normal(size=200)
    y = rng.poisson(np.exp(0.3 * x[:, 0] + offset))
    est = eb.GeneralizedEB("poisson", varying=["intercept"])
    est.fit(x, y, groups=groups, offset=offset)
    found = est.diagnostics(x, y, groups=groups, offset=offset)
    np.testing.assert_array_equal(found.response, y)
    np.testing.assert_allclose(found.fitted, est.predict(x, groups=groups, offset=offset))
    # the same rows smoothed again are those of the fit
    mean, _ = found.smoothed(y.astype(float))
    np.testing.assert_allclose(mean, found.predictor, atol=1e-8)
    one = est.residuals(x, y, groups=groups, offset=offset, kind="pearson")
    weighed = {"sample_weight": np.full(200, 2.0), "offset": offset, "groups": groups}
    two = est.residuals(x, y, kind="pearson", **weighed)
    np.testing.assert_allclose(two, np.sqrt(2) * one)
    with pytest.raises(ValueError, match="repeat a row"):
        est.residuals(x, y, kind="quantile", **weighed)


@pytest.mark.parametrize("crossed", [False, True])
def test_conditional_quantile_residuals_of_normal_rows_are_exact(crossed):
    # Their covariance over draws is that of the noise, less what the fit leaves of it: with the
    # posterior's covariance added, 1 for each row. 400 draws of 120 rows: the mean square has a
    # standard error below 0.02, and 0.1 is five of them.
    rng = np.random.default_rng(1)
    a, b = np.repeat(np.arange(12), 10), np.tile(np.arange(10), 12)
    frame = pd.DataFrame({"a": a, "b": b, "x": rng.normal(size=120)})
    frame["y"] = rng.normal(size=12)[a] + rng.normal(size=10)[b] + rng.normal(size=120)
    if not crossed:
        frame["y"] -= rng.normal(size=10)[b]
    bars = "(1 | a) + (1 | b)" if crossed else "(1 | a)"
    fit = eb.from_formula(f"y ~ x + {bars}", frame)
    found = fit.diagnostics()
    generator = np.random.default_rng(2)
    draws = np.array([found.drawn(generator) for _ in range(400)])
    np.testing.assert_allclose(draws.mean(axis=0), found.fitted, atol=0.2)
    leverage = draws.var(axis=0) / fit.noise_variance_
    np.testing.assert_allclose(leverage.mean(), found.leverage().mean(), rtol=0.1)
    renewed = np.array([found.renewed(generator) for _ in range(400)])
    np.testing.assert_allclose(renewed.var(axis=0).mean(), found.unknown[1].mean(), rtol=0.2)


def test_levels_have_new_effects_of_their_own():
    oats = pd.read_csv(REFERENCE / "oats.csv")
    fit = eb.from_formula("yield ~ nitro + (1 | block/variety)", oats)
    found = fit.diagnostics()
    rng = np.random.default_rng(0)
    away = np.array([found.renewed(rng) - found.expected for _ in range(2000)])
    block = oats["block"] == oats["block"][0]
    plot = block & (oats["variety"] == oats["variety"][0])
    i, j = np.flatnonzero(plot)[:2]
    k = np.flatnonzero(block & ~plot)[0]
    np.testing.assert_allclose(away[:, i], away[:, j])
    above = fit.covariance_above_["block"][0, 0]
    # 2,000 draws: a covariance has a standard error of some 3 % of the variances
    np.testing.assert_allclose(np.cov(away[:, i], away[:, k])[0, 1], above, rtol=0.25)
    with pytest.raises(ValueError, match="groups"):
        fit.estimator_.diagnostics(np.ones((3, 1)), np.ones(3), groups=[1, 2])
