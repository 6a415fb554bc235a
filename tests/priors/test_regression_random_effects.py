"""Random effects of areas and studies, against dense matrices and a plain search."""

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import binom

import ebfed as eb
from ebfed.priors import Normal
from ebfed.priors.regression import Design, RandomEffects

# sums in another order
ROUNDING = 1e-9

RNG = np.random.default_rng(5)
M = 30
VARIANCES = RNG.uniform(0.2, 2.0, M).round(1)  # some are equal: those are merged
W = np.column_stack([RNG.normal(50, 3, M), RNG.random(M) < 0.4])
X = 1 + 0.2 * W[:, 0] + RNG.standard_normal(M) + np.sqrt(VARIANCES) * RNG.standard_normal(M)
METHODS = ["reml", "ml", "moments", "paule_mandel"]


def fitted(method="reml", k=2, x=X, variances=VARIANCES):
    covariates = W[:, :k] if k else None
    return RandomEffects.fit(x, variances, Design.of(covariates, variances < np.inf), method)


def dense(t, k):
    """Design, projection P, and covariance of the coefficients at t, in full matrices."""
    A = np.column_stack([np.ones(M), W[:, :k]])
    inverse = np.diag(1 / (VARIANCES + t))
    covariance = np.linalg.inv(A.T @ inverse @ A)
    return A, inverse - inverse @ A @ covariance @ A.T @ inverse, covariance


def log_likelihood(beta, t, A, restricted):
    """Write the log-likelihood out, less a constant."""
    v = VARIANCES + t
    value = -0.5 * (np.log(v) + (X - A @ beta) ** 2 / v).sum()
    return value - restricted * 0.5 * np.linalg.slogdet(A.T @ (A / v[:, None]))[1]


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("k", [0, 2])
def test_the_fit_is_the_maximum_of_the_likelihood_written_out(method, k):
    fit = fitted(method, k)
    A = dense(0.0, k)[0]
    # columns of one size, or the simplex is long and thin
    Q, R = np.linalg.qr(A)

    def loss(point):
        return -log_likelihood(np.linalg.solve(R, point[1:]), np.exp(point[0]), A, method == "reml")

    start = np.concatenate([[0.0], Q.T @ X])
    best = minimize(
        loss, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13, "maxfev": 20000}
    )
    # a search by values alone finds a maximum to the root of rounding
    assert fit.variance == pytest.approx(np.exp(best.x[0]), rel=1e-5)
    np.testing.assert_allclose(R @ fit.coefficients, best.x[1:], rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [0, 1, 2])
def test_figures_are_those_of_full_matrices(method, k):
    fit = fitted(method, k)
    t, p = fit.variance, k + 1
    A, P, covariance = dense(t, k)
    np.testing.assert_allclose(fit.covariance, covariance, rtol=1e-7)
    np.testing.assert_allclose(fit.coefficients, covariance @ A.T @ (X / (VARIANCES + t)))
    centre, variance = fit.predict()
    np.testing.assert_allclose(centre, A @ fit.coefficients, rtol=ROUNDING)
    np.testing.assert_allclose(variance, np.einsum("ni,ij,nj->n", A, covariance, A), rtol=1e-7)
    if k:
        again = fit.predict(W[:4, :k])
        np.testing.assert_allclose(again, (centre[:4], variance[:4]), rtol=ROUNDING)
    P0 = dense(0.0, k)[1]
    assert fit.q == pytest.approx(X @ P0 @ X, rel=1e-7)
    assert fit.typical_variance == pytest.approx((M - p) / np.trace(P0), rel=ROUNDING)
    assert (fit.size, fit.degrees) == (M, M - p)
    v = VARIANCES + t
    V2 = A.T @ (A / v[:, None] ** 2)
    # the matrices round, those of covariates far from zero most
    one, two = (np.trace(P0), np.trace(P0 @ P0)) if method == "moments" else (np.trace(P), 0)
    error = {
        "reml": 2 / np.trace(P @ P),
        "ml": 2 / (v**-2.0).sum(),
        "moments": (2 * (M - p) + 4 * t * one + 2 * t**2 * two) / one**2,
        "paule_mandel": 2 * (M - p) / one**2,
    }[method]
    assert fit.variance_error == pytest.approx(np.sqrt(error), rel=1e-7)
    if method == "reml":
        assert fit.variance_bias == 0
    elif method == "ml":
        expected = -np.trace(covariance @ V2) / (v**-2.0).sum()
        assert fit.variance_bias == pytest.approx(expected, rel=1e-7)
    elif method == "paule_mandel":
        one, two = (1 / v).sum(), (v**-2.0).sum()
        assert fit.variance_bias == pytest.approx(2 * (M * two - one**2) / one**3, rel=ROUNDING)
        assert fit.sampling_variance == pytest.approx(2 * M / one**2, rel=ROUNDING)
    elif method == "moments":
        assert fit.sampling_variance == pytest.approx(error, rel=1e-7)
    if method in ("reml", "ml"):
        assert fit.sampling_variance == pytest.approx(2 / (v**-2.0).sum(), rel=ROUNDING)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [0, 2])
def test_the_population_of_a_posterior_is_the_same(method, k):
    fit = fitted(method, k)
    covariates = W[:, :k] if k else None
    prior = eb.posterior_from(X, np.sqrt(VARIANCES), Normal(method=method), covariates).prior
    assert prior.variance_[0] == pytest.approx(fit.variance, rel=ROUNDING)
    assert prior.variance_variance_[0] == pytest.approx(fit.sampling_variance, rel=ROUNDING)
    coefficients = prior.coefficients_[:, 0] if k else prior.mean_
    np.testing.assert_allclose(coefficients, fit.coefficients, rtol=ROUNDING)


def test_the_bias_of_a_variance_is_that_of_many_fits():
    """The mean of 1000 fits is within 4 standard errors: one false alarm in 15,000 for each."""
    rng = np.random.default_rng(0)
    t, n = 1.5, 1000
    noise = rng.standard_normal((n, M)) * np.sqrt(t + VARIANCES)
    for method in ("reml", "ml", "paule_mandel"):
        fits = [fitted(method, 2, x) for x in noise]
        found = np.array([fit.variance for fit in fits])
        # of the next order, t / M**2, and of the cut at zero, which is rare here
        order = 2 * t / M**2 + t * (found == 0).mean()
        biases = np.mean([fit.variance_bias for fit in fits])
        assert abs(found.mean() - t - biases) < order + 4 * found.std() / np.sqrt(n), method


def test_the_interval_of_the_variance_is_exact():
    """Of 500 intervals at 90 %, the number of misses has one false alarm in 10,000."""
    rng = np.random.default_rng(1)
    t, n = 0.4, 500
    missed = 0
    for _ in range(n):
        x = rng.standard_normal(M) * np.sqrt(t + VARIANCES)
        lower, upper = fitted("moments", 2, x).variance_interval(0.9)
        assert 0 <= lower <= upper
        missed += not lower <= t <= upper
    low, high = binom.ppf([5e-5, 1 - 5e-5], n, 0.1)
    assert low <= missed <= high


def test_interval_and_estimate_in_closed_form():
    x = np.array([0.0, 2.0, 4.0, 7.0])
    fit = RandomEffects.fit(x, np.full(4, 0.5), Design.of(None, x >= 0))
    assert fit.variance == pytest.approx(x.var(ddof=1) - 0.5, rel=ROUNDING)
    lower, upper = fit.variance_interval()
    squares = ((x - x.mean()) ** 2).sum()
    # quantiles of chi-squared with 3 degrees of freedom, from tables
    assert lower == pytest.approx(squares / 9.348404 - 0.5, rel=1e-6)
    assert upper == pytest.approx(squares / 0.2157953 - 0.5, rel=1e-6)


def test_units_without_an_estimate_are_predicted_and_change_nothing():
    gap = np.arange(M) % 5 == 0
    some = np.where(gap, np.inf, VARIANCES)
    fit = fitted(x=np.where(gap, 0.0, X), variances=some)
    alone = RandomEffects.fit(X[~gap], VARIANCES[~gap], Design.of(W[~gap], ~gap[~gap]))
    assert fit.variance == pytest.approx(alone.variance, rel=ROUNDING)
    np.testing.assert_allclose(fit.predict()[0][gap], alone.predict(W[gap])[0], rtol=ROUNDING)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("unit", [1e-30, 1e5, 1e60])
def test_units_of_measure_do_not_matter(method, unit):
    fit, scaled = fitted(method), fitted(method, 2, unit * X, unit**2 * VARIANCES)
    for name in ("variance", "variance_bias", "variance_error", "sampling_variance"):
        power = 4 if name == "sampling_variance" else 2
        expected = unit**power * getattr(fit, name)
        assert getattr(scaled, name) == pytest.approx(expected, rel=ROUNDING, abs=0), name
    ends = unit**2 * np.array(fit.variance_interval())
    np.testing.assert_allclose(scaled.variance_interval(), ends, rtol=ROUNDING)
    np.testing.assert_allclose(scaled.coefficients, unit * fit.coefficients, rtol=ROUNDING)


def test_the_restricted_maximum_of_one_mean():
    fit = fitted("reml", 0)
    best = minimize_scalar(
        lambda t: (
            -log_likelihood(
                np.array([np.average(X, weights=1 / (VARIANCES + t))]), t, np.ones((M, 1)), True
            )
        ),
        (0, 1, 5),
        options={"xtol": 1e-10},
    )
    assert fit.variance == pytest.approx(best.x, rel=1e-5)
