"""Small areas: figures of R's sae, closed forms, and simulated areas."""

import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
from ebfed.likelihoods import Gaussian
from ebfed.location.small_areas import prasad_rao, shrinkage_of
from ebfed.priors import Normal
from ebfed.priors.normal import NormalPosterior
from ebfed.priors.regression import Design, RandomEffects

REFERENCE = Path(__file__).parents[1] / "reference"
METHODS = ["reml", "ml", "fh"]
# sums in another order
ROUNDING = 1e-9

MILK = pd.read_csv(REFERENCE / "milk.csv")
SAE = pd.read_csv(REFERENCE / "sae.csv")
MAJOR = pd.get_dummies(MILK["major_area"], prefix="major_area", drop_first=True)


def milk(**arguments):
    return eb.fay_herriot(
        MILK["direct"], MILK["std_error"], MAJOR, labels=MILK["area"], **arguments
    )


RNG = np.random.default_rng(4)
M = 20
S = np.sqrt(np.linspace(0.3, 2.0, M))
W = RNG.normal(size=M)
X = 1 + W + RNG.standard_normal(M) + S * RNG.standard_normal(M)


# --- figures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_figures_of_sae(method):
    """sae stops where the variance changes by less than 1e-4 of itself, nearer than its digits."""
    fit = milk(method=method)
    # the last of its seven digits, and what its variance may be off
    np.testing.assert_allclose(fit.estimates, SAE[f"eblup_{method}"], atol=2e-6)
    np.testing.assert_allclose(fit.mse, SAE[f"mse_{method}"], rtol=1e-5)
    if method != "fh":
        fixed = pd.read_csv(REFERENCE / "sae_fixed.csv").query("method == @method")
        assert fit.terms == list(fixed["term"])
        np.testing.assert_allclose(fit.coefficients, fixed["estimate"], atol=2e-7)
        np.testing.assert_allclose(fit.coefficient_errors, fixed["std_error"], atol=2e-7)


@pytest.mark.parametrize("covariates", [None, W])
def test_estimate_and_error_are_those_of_the_normal_posterior(covariates):
    """By REML, Prasad and Rao's formula is the variance of a posterior given the fit."""
    fit = eb.fay_herriot(X, S, covariates)
    posterior = eb.posterior_from(X, S, mean=covariates)
    prior = posterior.prior if covariates is None else posterior.prior.at(W[:, None])
    given = NormalPosterior(prior, Gaussian(X[:, None], S[:, None] ** 2))
    np.testing.assert_allclose(fit.estimates, given.mean[:, 0], rtol=ROUNDING)
    np.testing.assert_allclose(fit.mse, given.sd[:, 0] ** 2, rtol=ROUNDING)
    np.testing.assert_allclose(fit.shrinkage, 1 - given.weight[:, 0], rtol=ROUNDING)
    lower, upper = posterior.interval()
    np.testing.assert_allclose(fit.interval(), [lower[:, 0], upper[:, 0]], rtol=ROUNDING)
    assert fit.variance > 0
    shrunk = (1 - fit.shrinkage) * X + fit.shrinkage * fit.synthetic
    np.testing.assert_allclose(fit.estimates, shrunk, rtol=ROUNDING)


def test_equal_errors_have_closed_forms():
    """With one mean and one error, Prasad and Rao's parts are written out."""
    x, s2 = X, 0.4
    fit = eb.fay_herriot(x, np.full(M, np.sqrt(s2)))
    t = x.var(ddof=1) - s2
    away = s2 / (t + s2)
    expected = t * away + away**2 * (t + s2) / M + 2 * away**2 * 2 * (t + s2) / M
    np.testing.assert_allclose(fit.mse, expected, rtol=ROUNDING)
    # James and Stein's estimate, but for m - 3
    np.testing.assert_allclose(fit.estimates, x.mean() + (1 - away) * (x - x.mean()), rtol=ROUNDING)


# --- simulated areas ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["reml", "ml", "paule_mandel"])
def test_the_formula_is_the_error_in_simulated_areas(method):
    """The mean of the formula over 600 surveys is the mean squared error of their estimates.

    Within 4 standard errors, one false alarm in 15,000 for each method, and terms of the next
    order, ``t / m**2`` per area. Without the terms for estimating t it fails by far.
    """
    rng = np.random.default_rng(7)
    n, m, t = 600, 25, 1.0
    variances, w = np.linspace(0.3, 2.0, m), np.linspace(-1, 1, m) ** 3
    design = Design.of(w[:, None], variances > 0)
    away = shrinkage_of(t, variances)
    differences = np.zeros((2, n))
    for k in range(n):
        centre = 1 + w
        theta = centre + np.sqrt(t) * rng.standard_normal(m)
        x = theta + np.sqrt(variances) * rng.standard_normal(m)
        fit = RandomEffects.fit(x, variances, design, method)
        (synthetic, uncertain), share = fit.predict(), shrinkage_of(fit.variance, variances)
        found = x + share * (synthetic - x)
        # the best predictor's error is t B, and is not correlated with what is beyond it
        error = t * away + (found - (x + away * (centre - x))) ** 2
        naive = fit.variance * share + share**2 * uncertain
        formula = prasad_rao(fit, variances, uncertain)
        differences[:, k] = (formula - error).mean(), (naive - error).mean()
    mean, deviation = differences.mean(axis=1), differences.std(axis=1) / np.sqrt(n)
    order = 4 * t / m**2
    assert abs(mean[0]) < 4 * deviation[0] + order
    assert mean[1] < -(4 * deviation[1] + order)


def test_the_bootstrap_agrees_with_the_formula(capsys):
    quiet = partial(eb.fay_herriot, X, S, W, mse="bootstrap", n_bootstrap=150)
    fit, formula = quiet(random_state=1), eb.fay_herriot(X, S, W)
    assert capsys.readouterr().err == ""
    # 150 draws leave about 15 % of the part that is simulated, which is a third of the whole
    np.testing.assert_allclose(fit.mse, formula.mse, rtol=0.25)
    np.testing.assert_array_equal(fit.mse, quiet(random_state=1, verbose=1).mse)
    assert "bootstrap" in capsys.readouterr().err
    assert not np.array_equal(fit.mse, quiet(random_state=2).mse)
    assert "parametric bootstrap" in fit.summary()


def test_intervals_hold_the_truth_where_the_formula_is_too_short():
    """Of 15 areas in 200 surveys; a false alarm in 15,000 beside one point for the next order."""
    rng = np.random.default_rng(3)
    n, m, t = 200, 15, 1.0
    s, w = np.sqrt(np.linspace(0.3, 3.0, m)), rng.normal(size=m)
    inside = np.zeros((2, n))
    for k in range(n):
        theta = 1 + w + np.sqrt(t) * rng.standard_normal(m)
        fit = eb.fay_herriot(theta + s * rng.standard_normal(m), s, w)
        lower, upper = fit.interval()
        inside[0, k] = ((lower <= theta) & (theta <= upper)).mean()
        inside[1, k] = (np.abs(fit.estimates - theta) <= 1.96 * np.sqrt(fit.mse)).mean()
    error = inside.std(axis=1) / np.sqrt(n)
    assert abs(inside[0].mean() - 0.95) < 4 * error[0] + 0.01
    difference = inside[0] - inside[1]
    assert difference.mean() > 4 * difference.std() / np.sqrt(n)


# --- areas without a direct estimate, and known exactly -----------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_areas_without_a_direct_estimate(method):
    gap = np.arange(M) % 4 == 0
    x, s = np.where(gap, np.nan, X), np.where(gap, np.nan, S)
    fit = eb.fay_herriot(x, s, W, method=method)
    alone = eb.fay_herriot(X[~gap], S[~gap], W[~gap], method=method)
    np.testing.assert_allclose(fit.estimates[~gap], alone.estimates, rtol=ROUNDING)
    np.testing.assert_allclose(fit.mse[~gap], alone.mse, rtol=ROUNDING)
    A = np.column_stack([np.ones(gap.sum()), W[gap]])
    np.testing.assert_allclose(fit.estimates[gap], A @ alone.coefficients, rtol=ROUNDING)
    uncertain = np.einsum("ni,ij,nj->n", A, alone.random_effects.covariance, A)
    expected = alone.variance - alone.random_effects.variance_bias + uncertain
    np.testing.assert_allclose(fit.mse[gap], expected, rtol=1e-7)
    assert (fit.shrinkage[gap] == 1).all()
    later = alone.predict(W[gap], labels=[f"new {k}" for k in range(gap.sum())])
    table = fit.to_frame()[gap]
    shown = ["estimate", "mse", "cv", "lower", "upper", "shrinkage"]
    np.testing.assert_allclose(later[shown], table[shown], rtol=1e-7)
    assert later["area"][0] == "new 0"
    assert later["direct"].isna().all()
    assert fit.glance().iloc[0][["nobs", "n_areas"]].tolist() == [(~gap).sum(), M]


def test_simulated_errors_of_areas_without_a_direct_estimate():
    gap = np.arange(M) < 3
    x, s = np.where(gap, np.nan, X), np.where(gap, np.nan, S)
    formula = eb.fay_herriot(x, s, W)
    fit = eb.fay_herriot(x, s, W, mse="bootstrap", n_bootstrap=150)
    np.testing.assert_allclose(fit.mse[gap], formula.mse[gap], rtol=0.1)


def test_an_area_that_is_known_exactly():
    s = np.where(np.arange(M) == 3, 0.0, S)
    for mse in ("prasad_rao", "bootstrap"):
        fit = eb.fay_herriot(X, s, W, mse=mse, n_bootstrap=3)
        assert (fit.estimates[3], fit.mse[3], fit.shrinkage[3]) == (X[3], 0, 0)
    others = np.arange(M) != 3
    assert fit.variance == pytest.approx(eb.fay_herriot(X[others], S[others], W[others]).variance)


@pytest.mark.parametrize("method", METHODS)
def test_a_variance_of_zero_gives_synthetic_estimates(method):
    x = 1 + W + 0.3 * S * np.cos(np.arange(M))
    fit = eb.fay_herriot(x, S, W, method=method)
    assert fit.variance == 0
    np.testing.assert_allclose(fit.estimates, fit.synthetic, rtol=ROUNDING)
    assert (fit.mse > 0).all()
    assert "is estimated as zero" in fit.summary()
    # a correction for bias beyond the variance itself is cut
    one_small = np.where(np.arange(M) == 0, 1e-3, S)
    assert (eb.fay_herriot(x, one_small, W, method=method).mse > 0).all()


# --- benchmarking -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ratio", "difference"])
def test_benchmarked_estimates_have_the_total(method):
    fit = milk()
    weights = MILK["n"] / MILK["n"].sum()
    table = fit.benchmark(weights.to_numpy(), 1.02, method=method)
    assert weights @ table["benchmarked"] == pytest.approx(1.02, rel=1e-12)
    shift = table["benchmarked"] - fit.estimates
    np.testing.assert_allclose(table["shift"], shift, atol=1e-15)
    np.testing.assert_allclose(table["mse"], fit.mse + shift**2, rtol=1e-12)
    parts = shift / fit.estimates if method == "ratio" else shift
    np.testing.assert_allclose(parts, parts[0], rtol=1e-9)
    # weights with an index are read by the names of areas
    named = pd.Series(weights.to_numpy(), index=MILK["area"])[::-1]
    pd.testing.assert_frame_equal(fit.benchmark(named, 1.02, method=method), table)


@pytest.mark.parametrize(
    ("weights", "total", "method", "message"),
    [
        ([1, 1, 1], 5.0, "raking", "method must be 'ratio' or 'difference'; got 'raking'"),
        ([1, 1], 5.0, "ratio", "weights must be one for each of 3 areas"),
        ([1, np.nan, 1], 5.0, "ratio", "weights must lie between 0 and 1e"),
        ([1, -1, 1], 5.0, "ratio", "weights must lie between 0 and 1e"),
        ([0, 0, 0], 5.0, "ratio", "not all be 0"),
        ([1, 1, 1], np.inf, "ratio", "total must be a finite number; got inf"),
        ([1, 1, 1], -5.0, "ratio", "use method='difference'"),
        ([1, 1, 1], 1e308, "difference", "total is too far from the sum of the estimates"),
        ([1e308, 1e308, 0], 1e308, "ratio", "weights must lie between 0 and 1e"),
    ],
)
def test_bad_benchmarks_are_refused(weights, total, method, message):
    fit = eb.fay_herriot([1.0, 2.0, 4.0], [0.5, 0.5, 0.5])
    with pytest.raises(ValueError, match=message):
        fit.benchmark(weights, total, method=method)


# --- frames and arguments -----------------------------------------------------------------------


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_in_frames_out(library):
    frame = library.DataFrame({"town": [f"t{k}" for k in range(M)], "x": X, "s": S, "w": W})
    fit = eb.fay_herriot(frame["x"], frame["s"], frame[["w"]], labels=frame["town"])
    benchmarked = fit.benchmark(np.ones(M), 20.0)
    for table in (fit.to_frame(), fit.tidy(), fit.glance(), benchmarked, fit.predict([[0.5]])):
        assert isinstance(table, library.DataFrame)
    assert list(fit.to_frame().columns) == [
        "town", "direct", "std_error", "estimate", "mse", "cv", "lower", "upper", "shrinkage",
    ]  # fmt: skip
    assert list(fit.to_frame()["town"]) == list(frame["town"])
    assert list(fit.tidy()["term"]) == ["intercept", "w", "variance"]
    assert fit.tidy()["estimate"][2] == fit.variance
    row = fit.glance()
    assert row["AIC"][0] == pytest.approx(6 - 2 * row["logLik"][0])


def test_results_are_printed_and_pickled():
    fit = milk(method="ml")
    assert "major_area_2" in repr(fit)
    assert "direct 14.0%" in fit.summary()
    assert "<table>" in fit._repr_html_()
    again = pickle.loads(pickle.dumps(fit))
    pd.testing.assert_frame_equal(again.to_frame(), fit.to_frame())
    assert Normal(method="ml").get_params() == fit.posterior.prior.get_params()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "pr"}, "method must be one of 'reml', 'ml', 'fh'; got 'pr'"),
        ({"mse": "jackknife"}, "mse must be one of 'prasad_rao', 'bootstrap'; got 'jackknife'"),
        ({"n_bootstrap": 1}, "n_bootstrap must be a whole number from 2; got 1"),
        ({"n_bootstrap": 2.5}, "n_bootstrap must be a whole number"),
        ({"level": 1.0}, "level must lie between 0 and 1"),
        ({"std_errors": [0.0, 0.0, 0.0, 0.0]}, "std_errors must be positive for some areas"),
        ({"std_errors": [0.1, -0.1, 0.1, 0.1]}, "std_errors must not be negative"),
        ({"std_errors": np.eye(4)}, "std_errors must be one-dimensional: areas are independent"),
        ({"std_errors": [0.1, np.nan, np.nan, np.nan]}, "at least two areas"),
        ({"estimates": [1.0, np.nan, 2.0, 3.0]}, "estimates must be finite wherever"),
        ({"covariates": [1.0, 2.0, np.nan, 3.0]}, "missing, infinite or huge"),
        ({"covariates": [1.0, 1.0, 1.0, 1.0]}, "constant columns"),
        ({"covariates": np.eye(4)[:, :3]}, "at least 5 groups"),
        ({"labels": ["a"]}, "labels has 1 entries for 4 estimates"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    given = {"estimates": [1.0, 2.0, 2.5, 3.0], "std_errors": [0.1, 0.1, 0.2, 0.2]}
    with pytest.raises(ValueError, match=message):
        eb.fay_herriot(**given | arguments)


def test_predictions_need_the_covariates_of_the_fit():
    with pytest.raises(ValueError, match="covariates must be None"):
        eb.fay_herriot(X, S).predict([1.0])
    with pytest.raises(ValueError, match="labels has 1 entries for 2 areas"):
        eb.fay_herriot(X, S, W).predict([1.0, 2.0], labels=["a"])
    with pytest.raises(ValueError, match="lack the column 'major_area_3'"):
        milk().predict(MAJOR[["major_area_2"]])


def test_an_area_that_is_nearly_known_has_an_error():
    """The variance of its synthetic estimate is less than the rounding of others'."""
    rng = np.random.default_rng(3)
    w, errors = rng.normal(size=(20, 1)), rng.uniform(0.2, 1, 20)
    x = 3 + w[:, 0] + rng.normal(0, 1, 20) + errors * rng.normal(size=20)
    errors[0] = 1e-10
    found = eb.fay_herriot(x, errors, w, method="ml")
    assert (found.random_effects.predict()[1] >= 0).all()
    assert found.to_frame()["cv"][0] < 1e-9
