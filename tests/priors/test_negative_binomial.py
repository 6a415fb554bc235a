"""Mean and overdispersion of counts of events, against maximum likelihood by scipy."""

import numpy as np
import pytest
from scipy import optimize, stats

from ebfed.likelihoods import Poisson
from ebfed.priors import negative_binomial
from ebfed.priors.negative_binomial import maximise


def events(n, shape, unequal=True):
    rng = np.random.default_rng(n)
    exposure = rng.uniform(0.1, 20, n) if unequal else rng.choice([1.0, 5.0], n)
    return Poisson(rng.poisson(exposure * rng.gamma(shape, 1.5 / shape, n))[:, None], exposure)


def by_scipy(rows, times):
    def loss(logs):
        mean, dispersion = np.exp(logs)
        share = 1 / (1 + dispersion * mean * rows.exposure)
        return -(times @ stats.nbinom.logpmf(rows.counts[:, 0], 1 / dispersion, share))

    return np.exp(optimize.minimize(loss, [0.0, -1.0], method="Nelder-Mead", tol=1e-10).x)


@pytest.mark.parametrize("unequal", [True, False])
@pytest.mark.parametrize("n", [4, 50, 3000])
def test_maximum(n, unequal):
    rows, times = events(n, 2.0, unequal).compress()
    np.testing.assert_allclose(maximise(rows, times), by_scipy(rows, times), rtol=1e-5)


@pytest.mark.parametrize("shape", [0.1, 3.0, 1e6])
def test_fewer_exposures_in_place_of_many_change_nothing(shape, monkeypatch):
    table = events(2500, shape).compress()
    found = maximise(*table)
    monkeypatch.setattr(negative_binomial, "MOST", 10**9)
    np.testing.assert_allclose(found, maximise(*table), rtol=1e-9, atol=1e-12)


def test_units_of_exposures_do_not_matter():
    rows, times = events(200, 1.0).compress()
    mean, dispersion = maximise(rows, times)
    for unit in (1e-250, 1e250):
        found = maximise(Poisson(rows.counts, rows.exposure * unit), times)
        np.testing.assert_allclose(found, (mean / unit, dispersion), rtol=1e-9)


def test_no_spread():
    one = Poisson(np.array([[7]]), np.array([2.0]))
    assert maximise(one, np.ones(1)) == pytest.approx((3.5, 0.0))
    nothing = Poisson(np.zeros((5, 1), np.int64), np.arange(1.0, 6))
    assert maximise(nothing, np.ones(5)) == (0.0, 0.0)
    even = Poisson(np.full((4, 1), 6), np.full(4, 3.0))
    assert maximise(even, np.ones(4)) == pytest.approx((2.0, 0.0))
