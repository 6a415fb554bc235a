"""Log-probabilities of large counts, against whole numbers and Bessel functions."""

import math

import numpy as np
import pytest
from scipy import special, stats

from ebfed.likelihoods import NegativeBinomial, Poisson
from ebfed.likelihoods.counting import POISSON, log_masses, log_ways

LARGE = [10**6, 10**9, 10**12, 10**14, 2**53]


@pytest.mark.parametrize("y", LARGE)
def test_ways_by_whole_numbers(y):
    """``C(y + s - 1, y)`` of a whole size s."""
    for size in (1, 4, 40):
        expected = math.log(math.comb(y + size - 1, size - 1))
        found = log_ways(np.array([y]), np.array([float(size)]))
        assert found[0] == pytest.approx(expected, rel=1e-14, abs=1e-9)


@pytest.mark.parametrize("y", LARGE)
def test_masses_by_whole_numbers(y):
    size, means = 4, y * np.array([1e-3, 0.5, 1.0, 3.0, 1e3])
    ways = math.log(math.comb(y + size - 1, size - 1))
    expected = ways - y * np.log1p(size / means) - size * np.log1p(means / size)
    found = log_masses(np.array([y]), np.array([float(size)]), means[None])
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)


@pytest.mark.parametrize("size", [0.3, 8.0, 200.0, POISSON])
def test_masses_of_small_counts(size):
    y, means = np.arange(60), np.array([0.0, 0.01, 0.3, 7.0, 500.0])
    found = log_masses(y, np.full(60, size), np.tile(means, (60, 1)))
    law = stats.poisson(means) if size == POISSON else stats.nbinom(size, size / (size + means))
    np.testing.assert_allclose(found, law.logpmf(y[:, None]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("y", LARGE)
def test_poisson_masses_by_their_saddle_point(y):
    """One over ``sqrt(2 pi y)`` at the peak, and less by half a square at an error away."""
    rates = y + np.array([0.0, 1.0, -2.0]) * math.sqrt(y)
    found = Poisson(np.array([[y]]), np.ones(1)).logpdf(rates[:, None])[0]
    expected = -0.5 * math.log(2 * math.pi * y) - np.array([0.0, 0.5, 2.0])
    # third derivatives, and a rounding error of the count
    np.testing.assert_allclose(found, expected, atol=4 / math.sqrt(y) + 2e-16 * y)


@pytest.mark.parametrize("y", LARGE)
@pytest.mark.parametrize("shape", [0.05, 3.0])
def test_marginals_of_gamma_rates_by_bessel_functions(y, shape):
    """Of large counts, a negative binomial is a gamma, and a product of two has a known density."""
    size, mean = 2.5, 0.3 * y
    z = shape * size * y / mean
    log_bessel = np.log(special.kve(shape - size, 2 * np.sqrt(z))) - 2 * np.sqrt(z)
    expected = np.log(2 / y) + (size + shape) / 2 * np.log(z) + log_bessel
    expected -= special.gammaln(size) + special.gammaln(shape)
    rows = NegativeBinomial(np.array([[y]]), np.ones(1), np.array([[size]]))
    found = rows.marginal(np.array([mean]), np.array([mean**2 / shape]))
    assert found[0] == pytest.approx(expected, abs=1e-9 + 30 / y)


def test_nodes_are_fine_for_groups_of_few_events_beside_one_of_many():
    counts = np.array([[6]] * 30 + [[10**12]])
    for size in (4.0, np.inf):  # one of many is known to a quarter, or sharply
        rows = NegativeBinomial(counts, np.ones(31), np.full((31, 1), size))
        roots = np.sqrt(rows.nodes(1600))
        assert len(roots) < 10_000
        for y in (6, 10**12):
            error = 0.5 * np.sqrt(1 + y / size)
            near = (roots > np.sqrt(y) - 2 * error) & (roots < np.sqrt(y) + 2 * error)
            assert near.sum() >= 7
