"""Residuals and checks: distributions where the model is right, and power where it is not."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ebfed as eb
from ebfed.report.diagnostics import diagnostics_of


def rows(seed, m=40, n=12):
    rng = np.random.default_rng(seed)
    groups, x = np.repeat(np.arange(m), n), rng.normal(size=m * n)
    z = 0.5 + 0.4 * x + rng.normal(0, 0.6, m)[groups]
    return rng, pd.DataFrame({"g": groups, "x": x}), z


def fitted(frame, family):
    if family == "binomial":
        model, options = "cbind(y, trials=n) ~ x + (1 | g)", {"estimator": eb.GeneralizedEB(family)}
    else:
        model, options = "y ~ x + (1 | g)", {"family": family}
    return eb.from_formula(model, frame, **options)


def drawn(family, seed):
    rng, frame, z = rows(seed)
    mean = np.exp(z)
    if family == "poisson":
        frame["y"] = rng.poisson(mean)
    elif family == "negative_binomial":
        frame["y"] = rng.poisson(mean * rng.gamma(2.0, 0.5, len(z)))
    elif family == "gamma":
        frame["y"] = mean * rng.gamma(3.0, 1 / 3, len(z))
    elif family == "gaussian":
        frame["y"] = z + rng.normal(size=len(z))
    elif family == "ordinal":
        noise = rng.logistic(size=len(z))
        frame["y"] = 1 + (z + noise > 0) + (z + noise > 1.5)
    else:
        frame["n"] = rng.integers(1, 8, len(z))
        frame["y"] = rng.binomial(frame["n"], 1 / (1 + np.exp(-z)))
    return frame


FAMILIES = ["poisson", "negative_binomial", "gamma", "binomial", "ordinal", "gaussian"]


@pytest.mark.parametrize("family", FAMILIES)
def test_quantile_residuals_are_standard_normal(family):
    # 480 residuals: a test at 0.001, of 12 that are made here, fails by chance in 1.2 % of seeds
    fit = fitted(drawn(family, 3), family)
    for conditional in (True, False):
        found = fit.residuals(kind="quantile", conditional=conditional)
        assert stats.kstest(found, "norm").pvalue > 0.001
    again = fit.residuals(kind="quantile")
    np.testing.assert_array_equal(again, fit.residuals(kind="quantile", random_state=0))
    assert (again != fit.residuals(kind="quantile", random_state=1)).all()


def test_conditional_residuals_do_not_differ_between_groups():
    # F of 39 and 440 degrees; fails by chance once in 1,000
    frame = drawn("poisson", 5)
    found = fitted(frame, "poisson").residuals(kind="quantile")
    groups = [found[frame["g"] == g] for g in range(40)]
    assert stats.f_oneway(*groups).pvalue > 0.001


def test_pearson_residuals_of_rows_that_are_certain():
    # all responses are equal: the fit leaves no noise
    frame = pd.DataFrame({"y": 2.5, "x": np.arange(12.0), "g": np.repeat(list("abc"), 4)})
    fit = eb.from_formula("y ~ x + (1 | g)", frame)
    np.testing.assert_array_equal(fit.residuals(kind="pearson"), np.zeros(12))


def test_pearson_and_deviance_residuals_are_their_formulas():
    frame = drawn("poisson", 1)
    fit = fitted(frame, "poisson")
    y, mean = frame["y"].to_numpy(), fit.predict()
    np.testing.assert_allclose(fit.residuals(), y - mean)
    np.testing.assert_allclose(fit.residuals(kind="pearson"), (y - mean) / np.sqrt(mean))
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.where(y > 0, y * np.log(y / mean), 0) - y + mean
    expected = np.sign(y - mean) * np.sqrt(2 * np.maximum(lost, 0))
    np.testing.assert_allclose(fit.residuals(kind="deviance"), expected, atol=1e-6)


@pytest.mark.parametrize("family", ["poisson", "binomial", "gamma", "gaussian"])
def test_marginal_pearson_residuals_have_variance_one(family):
    # of 40 groups the mean square has a standard error of some 0.15
    found = fitted(drawn(family, 2), family).residuals(kind="pearson", conditional=False)
    assert 0.5 < np.mean(found**2) < 1.6


def test_excess_is_found():
    rng, frame, z = rows(7)
    mean = np.exp(z)
    frame["y"] = rng.poisson(mean * rng.gamma(1.5, 1 / 1.5, len(z)))
    found = fitted(frame, "poisson").diagnostics().overdispersion(n_simulations=99)
    assert found.p_value == 0.01
    assert found.ratio > 1.5
    frame["y"] = np.where(rng.random(len(z)) < 0.2, 0, rng.poisson(mean))
    check = fitted(frame, "poisson").diagnostics().zero_inflation(n_simulations=99)
    assert check.p_value == 0.01
    assert check.observed == (frame["y"] == 0).sum()
    assert str(check).startswith(f"zeros: observed {check.observed:.6g}")


@pytest.mark.slow
def test_false_alarms_of_checks():
    # 100 data sets at 5 %: 13 alarms or more have a chance of 0.15 %
    alarms = {"overdispersion": 0, "zero_inflation": 0}
    for seed in range(100):
        rng, frame, z = rows(seed, 20, 8)
        frame["y"] = rng.poisson(np.exp(z))
        found = fitted(frame, "poisson").diagnostics()
        for name in alarms:
            p = getattr(found, name)(n_simulations=99, random_state=seed).p_value
            alarms[name] += p <= 0.05
    assert max(alarms.values()) < 13, alarms


def test_what_cannot_be_had_is_refused():
    frame = drawn("gamma", 1)
    found = fitted(frame, "gamma").diagnostics()
    with pytest.raises(ValueError, match="kind must be one of"):
        found.residuals("raw")
    with pytest.raises(ValueError, match="standardized residuals"):
        found.residuals("standardized")
    with pytest.raises(ValueError, match="zeros are checked of counts"):
        found.zero_inflation()
    with pytest.raises(ValueError, match="overdispersion is checked"):
        found.overdispersion()
    found = fitted(drawn("poisson", 1), "poisson").diagnostics()
    with pytest.raises(ValueError, match="at least 20; got 3"):
        found.overdispersion(n_simulations=3)
    with pytest.raises(ValueError, match="got 'more'"):
        found.overdispersion(alternative="more")
    with pytest.raises(TypeError, match="fit must be a fitted formula"):
        diagnostics_of(eb.LinearEB())
    assert diagnostics_of(found) is found
