"""Searches over a grid, and those that begin near the optimum of similar data."""

import numpy as np
import pytest

from ebfed.likelihoods import Binomial, Poisson
from ebfed.priors import beta_binomial, negative_binomial
from ebfed.priors.search import minimise, minimum_near


@pytest.mark.parametrize("takes_arrays", [True, False])
def test_a_minimum_nearby_is_found(takes_arrays):
    def criterion(t):
        return (np.log(t) - 1) ** 2, 2 * (np.log(t) - 1) / t

    found = minimum_near(criterion, 3.0, takes_arrays)
    assert found == pytest.approx(np.e, rel=1e-6)
    assert minimum_near(criterion, 30.0, takes_arrays) is None
    assert minimum_near(criterion, 0.0, takes_arrays) is None
    assert minimum_near(criterion, None, takes_arrays) is None


def test_fits_of_counts_may_begin_near():
    rng = np.random.default_rng(0)
    n = rng.integers(2, 30, 400)
    rates = Binomial(rng.binomial(n, rng.beta(2, 3, 400))[:, None], n).compress()
    events = rng.poisson(n * rng.gamma(2, 0.5, 400))
    counts = Poisson(events[:, None], n.astype(float)).compress()
    for maximise, table in ((beta_binomial.maximise, rates), (negative_binomial.maximise, counts)):
        mean, spread = maximise(*table)
        for near in (0.8 * spread, 0.0, 100 * spread):
            np.testing.assert_allclose(maximise(*table, near), (mean, spread), rtol=1e-6)


GRID = np.concatenate(([0.0], np.geomspace(1e-6, 1e6, 61)))


def of_a_variance(t, least):
    """Minus twice the log-likelihood of a variance beside one of 1, and its slope."""
    return np.log(1 + t) + (1 + least) / (1 + t), (t - least) / (1 + t) ** 2


def with_an_edge(t, least):
    return np.abs(t - least), np.sign(t - least)


@pytest.mark.parametrize("least", [3e-7, 0.0123, 4.0, 3e5])
@pytest.mark.parametrize("function", [of_a_variance, with_an_edge])
def test_a_criterion_of_arrays_is_solved_in_few_calls(function, least):
    calls = []

    def criterion(t):
        calls.append(t)
        return function(t, least)

    found = minimise(criterion, GRID, criterion)
    assert found == pytest.approx(least, rel=1e-13)  # rounding of the slopes
    if function is of_a_variance:  # the scan, and some points around its best, ever closer
        assert len(calls) <= 4


def test_a_slope_may_be_zero_where_it_is_evaluated():
    def criterion(t):
        return (t - 2.0) ** 2, 2 * (t - 2.0)

    found = minimise(criterion, np.array([0.0, 1.0, 2.5, 3.0, 9.0]), criterion)
    assert found == 2.0  # of the points between 1 and 3, one is there
