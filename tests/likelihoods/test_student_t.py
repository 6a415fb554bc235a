"""Messages with t errors: against SciPy, and their merging."""

import numpy as np
import pytest
from scipy import stats

from ebfed.likelihoods import Gaussian, StudentT

RNG = np.random.default_rng(3)
VALUES, SCALES = RNG.normal(0, 3, (40, 1)), RNG.uniform(0.5, 2, (40, 1))
DEGREES = RNG.uniform(1, 30, 40)
MESSAGES = StudentT(VALUES, SCALES**2, DEGREES)


def test_log_densities_are_those_of_scipy():
    theta = np.array([[-40.0], [0.2], [1.3]])
    expected = stats.t.logpdf(VALUES, DEGREES[:, None], theta.T, SCALES)
    np.testing.assert_allclose(MESSAGES.logpdf(theta), expected, rtol=1e-12)
    expected = stats.t.logpdf(0, DEGREES, 0, SCALES[:, 0])
    np.testing.assert_allclose(MESSAGES.log_peak(), expected, rtol=1e-12)


def test_infinite_degrees_are_gaussian():
    normal, same = Gaussian(VALUES, SCALES**2), StudentT(VALUES, SCALES**2, np.full(40, np.inf))
    theta = np.linspace(-3, 3, 5)[:, None]
    np.testing.assert_allclose(same.logpdf(theta), normal.logpdf(theta), rtol=1e-12)
    mean, variance = np.array([0.3]), np.array([2.0])
    np.testing.assert_allclose(
        same.marginal(mean, variance), normal.marginal(mean, variance), rtol=1e-12
    )
    np.testing.assert_array_equal(same.sampling_variance(0, 1), SCALES[:, 0] ** 2)


def test_merging():
    """Equal messages become one; close ones of many do, with little change in the likelihood."""
    twice = StudentT.concatenated([MESSAGES, MESSAGES])
    rows, counts = twice.distinct()
    assert len(rows) == 40
    assert (counts == 2).all()
    n = 30_000
    degrees = RNG.choice([3.0, 8.0, np.inf], n)
    many = StudentT(RNG.normal(size=(n, 1)), RNG.uniform(0.5, 2, (n, 1)), degrees)
    rows, counts = many.compress()
    assert len(rows) < 0.8 * n
    assert counts.sum() == n
    assert set(np.unique(rows.degrees)) == {3.0, 8.0, np.inf}
    theta = np.linspace(-2, 2, 5)[:, None]
    total = counts @ rows.logpdf(theta)
    np.testing.assert_allclose(total, many.logpdf(theta).sum(axis=0), rtol=1e-4)


def test_draws_have_the_law():
    many = StudentT(np.zeros((20_000, 1)), np.full((20_000, 1), 4.0), np.full(20_000, 3.0))
    drawn = many.resampled(np.ones((20_000, 1)), np.random.default_rng(0)).values[:, 0]
    assert stats.kstest((drawn - 1) / 2, stats.t(3).cdf).pvalue > 0.01


def test_nodes_reach_over_gaps():
    """Posteriors of an outlier have mass between it and the others."""
    far = StudentT(np.array([[0.0], [1e3]]), np.ones((2, 1)), np.full(2, 3.0))
    nodes = far.nodes(100)
    assert np.diff(nodes).max() < 0.02 * (nodes[-1] - nodes[0])
    assert ((nodes > 300) & (nodes < 700)).sum() > 20


@pytest.mark.parametrize("s2", [0.0, np.inf])
def test_marginals_without_noise_or_message(s2):
    one = StudentT(np.array([[0.5]]), np.array([[s2]]), np.array([4.0]))
    expected = 0.0 if np.isinf(s2) else stats.norm.logpdf(0.5, 0.0, 2.0)
    assert one.marginal(np.zeros(1), np.full(1, 4.0))[0] == pytest.approx(expected, abs=1e-14)


def test_condensing_keeps_gradients():
    """Rows that stand for many have nearly their likelihood, and its slopes at every theta."""
    rng, n = np.random.default_rng(5), 30_000
    degrees = rng.choice([3.0, 8.0, np.inf], n)
    many = StudentT(rng.normal(0, 2, (n, 1)), rng.uniform(0.5, 2, (n, 1)), degrees)
    few, times = many.condensed(np.ones(n))
    assert len(few) < n / 10
    assert times.sum() == pytest.approx(n)
    assert {3.0, 8.0, np.inf} == set(np.unique(few.degrees.round(9)))
    theta = np.linspace(-8, 8, 33)
    expected = many.tally(np.ones(n), theta)
    # third order of half an error: a Gaussian of the same cells is as near
    np.testing.assert_allclose(few.tally(times, theta), expected, rtol=2e-3)
