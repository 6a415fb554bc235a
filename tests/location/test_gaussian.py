"""The one-way model where groups are few or agree: one answer with the linear mixed model."""

import warnings

import numpy as np
import pandas as pd
import pytest

import ebfed as eb


def of_means(fit):
    prior = fit.prior_
    spreads = [*(prior.spreads_above_ or {}).values(), np.sqrt(prior.variance_)]
    intercept, error = prior.mean_[0], np.sqrt(prior.mean_variance_[0])
    if prior.slopes_ is not None:
        intercept, error = prior.coefficients_[0, 0], prior.coefficient_errors_[0, 0]
    sd, sigma = np.concatenate(spreads), np.sqrt(fit.noise_variance_[0])
    return np.array([*sd, sigma, error, intercept, fit.log_likelihood_])


def of_regression(fit):
    covariances = [*fit._result.get("above", ()), fit._result["covariance"]]
    sd, error = [np.sqrt(G[0, 0]) for G in covariances], np.sqrt(fit.mean_covariance_[0, 0])
    return np.array([*sd, np.sqrt(fit.noise_variance_), error, fit.mean_[0], fit.log_likelihood_])


def agreeing(rng, groups):
    """Whole numbers whose means are 5 in every group."""
    y = rng.integers(-3, 4, len(groups)).astype(float)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        y[rows[-1]] -= y[rows].sum()
    return y + 5


def test_reml_where_group_means_are_equal():
    """Values are those of `lm(y ~ 1)`: without a variance between groups it is the same model."""
    y, g = np.array([1.0, 2.0, 3.0, 2.0]), np.array(list("abac"))
    fit = eb.from_formula("y | g", pd.DataFrame({"y": y, "g": g}))
    alone = 4 * np.log(2 * np.pi) / 2 + 1.5 * np.log(2 / 3) + 1.5 + np.log(4) / 2
    alone -= np.log(2 * np.pi) / 2
    expected = [0.0, np.sqrt(2 / 3), np.sqrt(1 / 6), 2.0, -alone]
    np.testing.assert_allclose(of_means(fit), expected, rtol=1e-9)


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("weighted", [False, True])
def test_means_are_the_regression_on_a_constant(method, weighted):
    """Few groups, one, groups that agree exactly: the search of `LinearEB` is another one."""
    rng = np.random.default_rng(4)
    for m in [1, 2, 3, 4] * 5:
        groups = np.repeat(np.arange(m), rng.integers(1, 4, m))
        groups = np.append(groups, groups[-1])
        weight = rng.choice([0.5, 1.0, 3.0], len(groups)) if weighted else None
        for y in (agreeing(rng, groups), rng.normal(size=len(groups))):
            if np.ptp(y) == 0:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", eb.priors.IdentificationWarning)
                means = eb.GaussianEB(method=method).fit(y, groups=groups, sample_weight=weight)
                regression = eb.LinearEB(fit_intercept=False, method=method)
                regression.fit(np.ones((len(y), 1)), y, groups=groups, sample_weight=weight)
            found, expected = of_means(means), of_regression(regression)
            # a spread is found to the root of the precision of its variance
            np.testing.assert_allclose(found, expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("levels", [["g"], ["s", "g"]])
def test_one_row(levels):
    """It has no noise, no spread and no density; nested, the fit was a ZeroDivisionError."""
    frame = pd.DataFrame({"y": [1.5], "s": [0], "g": [0]})
    with pytest.warns(eb.priors.IdentificationWarning, match="Only one group"):
        fit = eb.GaussianEB().fit(frame[["y", *levels]], groups=levels)
    np.testing.assert_array_equal(of_means(fit), [*[0.0] * (len(levels) + 2), 1.5, np.nan])
    assert any("intervals have no length" in note for note in fit.notes_)


def test_the_name_of_a_column_as_y():
    """It was ignored: the first column of the frame was fitted."""
    frame = pd.DataFrame({"age": [40.0, 50, 60], "deaths": [1, 2, 0], "g": list("aab")})
    for fit in (eb.GaussianEB(), eb.PoissonEB()):
        with pytest.raises(ValueError, match="y='deaths' names a column"):
            fit.fit(frame, "deaths", groups="g")


@pytest.mark.parametrize("nested", [False, True])
def test_rounding_of_a_weighted_mean_is_no_noise(nested):
    """All rows are 1000; their weighted mean may miss it in the last digit."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        g = np.repeat(np.arange(4), 3)
        frame = pd.DataFrame({"y": 1000.0, "s": g // 2, "g": g})
        levels = ["s", "g"] if nested else ["g"]
        weight = rng.uniform(0.1, 3, 12)
        fit = eb.GaussianEB().fit(frame[["y", *levels]], groups=levels, sample_weight=weight)
        assert fit.noise_variance_[0] == 0
        assert fit.prior_.variance_[0] < 1e-20


def test_covariates_of_equal_rows():
    """Rows that are all alike leave no doubt about coefficients: errors were up to 0.84."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(5), 3)
    fit = eb.GaussianEB().fit(np.full(15, 2.0), groups=groups, covariates=rng.normal(size=5))
    np.testing.assert_array_equal(fit.prior_.coefficient_errors_.ravel(), [0.0, 0.0])


def test_intervals_that_there_are_not():
    """Methods of other fits were a TypeError."""
    fit = eb.GaussianEB().fit([1.0, 2.0, 6.0, 7.0], groups=list("aabb"))
    assert len(fit.confint(method="wald", ddf="asymptotic")) == 1
    others = {"method": "bootstrap", "n_boot": 3}, {"method": "profile", "progress": True}
    for wrong in (*others, {"ddf": "kenward-roger"}):
        with pytest.raises(ValueError, match="are of method='wald'"):
            fit.confint(**wrong)


def test_rows_that_agree_exactly_have_no_likelihood_and_a_note():
    groups = np.repeat(np.arange(6), 3)
    weight = np.linspace(0.3, 4.0, 18)
    fit = eb.GaussianEB().fit(np.full(18, 1.790017), groups=groups, sample_weight=weight)
    assert np.isnan(eb.report.glance(fit)["BIC"][0])
    assert any("agree exactly" in note for note in fit.notes_)
    noisy = eb.GaussianEB().fit(np.linspace(0.0, 1.0, 18) ** 2, groups=groups)
    assert not any("agree exactly" in note for note in noisy.notes_)
