"""Counts of several categories, against scipy."""

import numpy as np
import pytest
from scipy import stats

from ebfed.likelihoods import Multinomial

COUNTS = np.array([[2, 1, 0], [0, 0, 0], [3, 3, 1], [0, 5, 2], [2, 1, 0]])
VOTES = Multinomial(COUNTS)


def test_log_probabilities():
    shares = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    expected = [stats.multinomial.logpmf(COUNTS, COUNTS.sum(axis=1), theta) for theta in shares]
    np.testing.assert_allclose(VOTES.logpdf(shares), np.transpose(expected), rtol=1e-12)
    np.testing.assert_allclose(VOTES.logpdf(7 * shares), VOTES.logpdf(shares), rtol=1e-12)


@pytest.mark.parametrize("concentration", [0.3, 4.0, 1e5])
def test_marginal_is_dirichlet_multinomial(concentration):
    """Moments of a Dirichlet give its own marginal; 1e-8 as log-gammas of 1e5 cancel."""
    mean = np.array([0.2, 0.5, 0.3])
    variance = mean * (1 - mean) / (1 + concentration)
    trials = COUNTS.sum(axis=1)
    expected, some = np.zeros(len(COUNTS)), trials > 0  # older versions of SciPy refuse none
    expected[some] = stats.dirichlet_multinomial.logpmf(
        COUNTS[some], mean * concentration, trials[some]
    )
    np.testing.assert_allclose(VOTES.marginal(mean, variance), expected, rtol=1e-8, atol=1e-8)


def test_marginal_without_spread():
    mean = np.array([0.2, 0.5, 0.3])
    np.testing.assert_allclose(
        VOTES.marginal(mean, np.zeros(3)), VOTES.logpdf(mean[None])[:, 0], rtol=1e-12, atol=1e-12
    )


def test_distinct_rows():
    rows, counts = VOTES.compress()
    assert sorted(map(tuple, rows.counts.tolist())) == [(0, 5, 2), (2, 1, 0), (3, 3, 1)]
    assert counts.sum() == 4
    some, codes = VOTES.numbered()
    np.testing.assert_array_equal(some.counts[codes], COUNTS)
    np.testing.assert_array_equal(VOTES.column(1).successes.ravel(), COUNTS[:, 1])
