"""Scale and dispersion of sums of squares."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln

from ebfed.likelihoods import LogVariance
from ebfed.priors.negative_binomial import log_rising, maximise_squares, moments_of_squares


def log_likelihood(eta, dispersion, messages):
    shape, half = 1 / dispersion, messages.degrees / 2
    x = dispersion * np.exp(eta) * messages.squares[:, 0] / 2
    terms = gammaln(shape + half) - gammaln(shape) - (shape + half) * np.log1p(x)
    return (terms + half * (eta + np.log(dispersion))).sum()


@pytest.mark.parametrize("dispersion", [1e-7, 1e-4, 0.03, 2.0])
def test_rising(dispersion):
    """Value and slope across the border between the series and the closed form."""
    y = np.array([0.0, 0.5, 1.0, 3.5, 40.0])
    log, slope = log_rising(y, dispersion)
    step = 1e-4 * dispersion
    ahead, behind = (log_rising(y, dispersion + s)[0] for s in (step, -step))
    # differences lose some eight of sixteen digits beside the sizes of the logarithms
    scale = 1e-8 * (1 + np.abs(slope)) + 1e-11 / step
    assert np.all(np.abs((ahead - behind) / (2 * step) - slope) < scale)
    whole = [np.log1p(dispersion * np.arange(int(k))).sum() for k in (1, 40)]
    np.testing.assert_allclose(log[[2, 4]], whole, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("n", [40, 3000])
def test_maximum(n):
    rng = np.random.default_rng(n)
    degrees = rng.integers(1, 9, n)
    variances = 5 / rng.gamma(2.0, 1.0, n)
    messages = LogVariance((variances * rng.chisquare(degrees))[:, None], degrees)
    eta, dispersion = maximise_squares(messages, np.ones(n))
    found = minimize(
        lambda x: -log_likelihood(x[0], np.exp(x[1]), messages),
        [0.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-10},
    )
    np.testing.assert_allclose([eta, np.log(dispersion)], found.x, atol=1e-5)


def test_no_dispersion():
    """Sample variances that differ less than chance makes them differ."""
    messages = LogVariance(np.linspace(4.0, 6.0, 30)[:, None], np.full(30, 5))
    eta, dispersion = maximise_squares(messages, np.ones(30))
    assert dispersion == 0
    np.testing.assert_allclose(np.exp(-eta), 1.0, rtol=1e-9)
    assert moments_of_squares(messages, np.ones(30))[1] == 0
