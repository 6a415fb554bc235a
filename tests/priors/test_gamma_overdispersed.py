"""Mean and dispersion behind negative binomial counts, against searches without derivatives."""

import numpy as np
import pytest
from scipy import optimize

from ebfed.likelihoods import NegativeBinomial, Poisson
from ebfed.priors import negative_binomial
from ebfed.priors.gamma import (
    Gamma,
    _derivatives,
    _without_spread,
    log_likelihood_of_overdispersed,
    maximise_overdispersed,
)


def rows(n, shape, size=4.0):
    rng = np.random.default_rng(n)
    exposure = rng.uniform(0.5, 8, n)
    sizes = np.full(n, size) * rng.integers(1, 5, n)
    mean = rng.gamma(sizes, exposure * rng.gamma(shape, 3 / shape, n) / sizes)
    return NegativeBinomial(rng.poisson(mean)[:, None], exposure, sizes[:, None])


def by_scipy(table, times):
    def loss(logs):
        return -float(times @ table.gamma_marginal(*np.exp(logs)))

    starts = [[0.5, -2.0], [1.0, 0.5]]
    found = [optimize.minimize(loss, x, method="Nelder-Mead", tol=1e-10) for x in starts]
    return np.exp(min(found, key=lambda each: each.fun).x)


@pytest.mark.parametrize("shape", [0.3, 2.0, 20.0])
def test_maximum(shape):
    table = rows(150, shape)
    times = np.random.default_rng(0).integers(1, 4, 150).astype(float)
    point, covariance = maximise_overdispersed(table, times)
    # the search without derivatives ends where values differ by rounding
    np.testing.assert_allclose(point, by_scipy(table, times), rtol=1e-4)
    errors = np.sqrt(np.diag(covariance)) / point
    assert np.all((errors > 0.005) & (errors < 0.5))


@pytest.mark.parametrize("dispersion", [1e-3, 0.3, 5.0])
def test_derivatives(dispersion):
    table, times, mean = rows(60, 1.0), np.linspace(1, 3, 60), 2.0

    def at(*point):
        return _derivatives(times @ table.gamma_integrals(*point), times.sum(), *point)

    def height(*point):
        return times @ table.gamma_marginal(*point)

    slope, second = at(mean, dispersion)
    for j, unit in enumerate(np.diag([1e-4 * mean, 1e-3 * dispersion])):
        ends = [np.array([mean, dispersion]) + side * unit for side in (1, -1)]
        width = 2 * unit[j]
        assert slope[j] == pytest.approx((height(*ends[0]) - height(*ends[1])) / width, rel=1e-4)
        steep = (at(*ends[0])[0] - at(*ends[1])[0]) / width
        np.testing.assert_allclose(second[j], steep, rtol=1e-3)


def test_rows_without_dispersion_are_poisson():
    table = rows(300, 2.0)
    poisson = NegativeBinomial(table.counts, table.exposure, np.full((300, 1), 1e12))
    expected = negative_binomial.maximise(Poisson(table.counts, table.exposure), np.ones(300))
    np.testing.assert_allclose(
        maximise_overdispersed(poisson, np.ones(300))[0], expected, rtol=1e-6
    )


def test_counts_that_scatter_less_have_no_spread():
    even = NegativeBinomial(np.full((50, 1), 6), np.full(50, 3.0), np.full((50, 1), 5.0))
    assert maximise_overdispersed(even, np.ones(50))[0] == pytest.approx((2.0, 0.0), abs=1e-6)


def test_derivatives_without_spread():
    """They go on from those at small dispersions."""
    table, times, mean = rows(60, 1.0), np.linspace(1, 3, 60), 2.0

    def at(dispersion):
        found = times @ table.gamma_integrals(mean, dispersion)
        return _derivatives(found, times.sum(), mean, dispersion)

    for found, one, two in zip(
        _without_spread(table, times, mean), at(1e-4), at(2e-4), strict=True
    ):
        np.testing.assert_allclose(found, 2 * one - two, rtol=1e-4)


@pytest.mark.parametrize(("n", "count"), [(1, 10_000), (20, 5_000), (400, 5_000)])
def test_likelihood_of_groups_that_differ_by_less_than_their_noise(n, count):
    """At no dispersion curvatures say nothing of those that are plausible, up to 10 for one group.

    Intervals of 20 groups were three times too wide, and that of one group ended at 27 times its
    mean.
    """
    counts = count + np.arange(n) % 3 - 1
    table = NegativeBinomial(counts[:, None], np.full(n, 5.0), np.full((n, 1), 1e9))
    (mean, dispersion), _ = maximise_overdispersed(table, np.ones(n))
    assert dispersion == 0
    dispersions = np.array([1e-7, 1e-6, 1e-5, 1e-4, 1e-3])
    means = mean * np.array([1.0, 0.99, 1.001, 1.005, 1.0])
    found = log_likelihood_of_overdispersed(table, np.ones(n))(means, dispersions)
    expected = [table.gamma_marginal(*each).sum() for each in zip(means, dispersions, strict=True)]
    plausible = np.array(expected) > max(expected) - 12
    np.testing.assert_allclose(found[plausible], np.array(expected)[plausible], rtol=0, atol=0.02)
    assert np.all(found[~plausible] < max(found) - 11)
    posterior = Gamma().fit(table).posterior(table)
    alone = np.sqrt(count) / 5
    assert np.all(posterior.sd < (1.02 if n == 1 else 0.4) * alone)
    assert np.all(posterior.interval()[1] < mean + 3 * alone)


def test_likelihood_around_a_mean_that_is_known_well():
    """Polynomials of the dispersion, and two derivatives in the mean, against all integrals."""
    table = rows(20_000, 1e9)
    table, times = table.compress()
    point, covariance = maximise_overdispersed(table, times)
    errors = np.sqrt(np.diag(covariance))
    means, dispersions = (point + errors * [[0, 0.5], [2, 1], [-2, 1], [-1, 3]]).T
    found = log_likelihood_of_overdispersed(table, times)(means, dispersions)
    expected = [
        times @ table.gamma_marginal(*each) for each in zip(means, dispersions, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.02)
    far = log_likelihood_of_overdispersed(table, times)(means, dispersions + 100 * errors[1])
    assert np.all(far < found - 50)
