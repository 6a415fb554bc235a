"""The likelihood of levels of noise: against dense matrices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import ebfed as eb

RNG = np.random.default_rng(3)
GROUPS = np.repeat(np.arange(20), 6)
LEVELS = np.array(["a", "b", "c"])[RNG.integers(0, 3, 120)]
SDS = np.array([0.5, 1.0, 2.0])[np.searchsorted(["a", "b", "c"], LEVELS)]
X = RNG.normal(size=(120, 1))
Y = 1 + 2 * X[:, 0] + RNG.normal(size=20)[GROUPS] + SDS * RNG.normal(size=120)
Z = (GROUPS[:, None] == np.arange(20)).astype(float)


def deviance(logs, restricted):
    """-2 log-likelihood by the covariance matrix of all rows; logs are of standard deviations."""
    noise = np.exp(2 * logs[np.searchsorted(["a", "b", "c"], LEVELS)])
    V = np.exp(2 * logs[3]) * Z @ Z.T + np.diag(noise)
    design = np.column_stack([np.ones(120), X])
    H = design.T @ np.linalg.solve(V, design)
    left = Y - design @ np.linalg.solve(H, design.T @ np.linalg.solve(V, Y))
    value = np.linalg.slogdet(V)[1] + left @ np.linalg.solve(V, left)
    value += (120 - 2 * restricted) * np.log(2 * np.pi)
    return value + np.linalg.slogdet(H)[1] if restricted else value


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_optimum_is_that_of_dense_matrices(method):
    fit = eb.LinearEB(varying=["intercept"], method=method)
    fit.fit(X, Y, groups=GROUPS, dispersion=LEVELS)
    found = np.log([*fit.noise_variances_.values(), fit.covariance_[0, 0]]) / 2
    restricted = method == "reml"
    assert fit.criterion_ == pytest.approx(deviance(found, restricted), rel=1e-10)
    best = minimize(deviance, found, args=(restricted,), method="BFGS", options={"gtol": 1e-6})
    assert fit.criterion_ == pytest.approx(best.fun, abs=1e-6)
    assert_allclose(np.exp(found), np.exp(best.x), rtol=1e-3)
    assert fit.converged_


def test_weights_that_are_the_ratios_leave_one_noise():
    """Rows over their fitted ratios, as weights, have the fit of one noise."""
    fit = eb.LinearEB("full", method="ml").fit(X, Y, groups=GROUPS, dispersion=LEVELS)
    ratio = np.array([fit.noise_variances_[x] for x in LEVELS]) / fit.noise_variance_
    weighed = eb.LinearEB("full", method="ml").fit(X, Y, groups=GROUPS, sample_weight=1 / ratio)
    assert fit.criterion_ == pytest.approx(weighed.criterion_, abs=1e-7)
    assert_allclose(fit.posterior().mean, weighed.posterior().mean, rtol=1e-6, atol=1e-9)
    assert_allclose(fit.posterior().sd, weighed.posterior().sd, rtol=1e-6)
