"""Posteriors of few or many events: their intervals come near to those of normal errors."""

import numpy as np
import pytest
from scipy import stats

from ebfed.likelihoods import Binomial, Gaussian, Poisson
from ebfed.priors import Beta, Gamma, Normal
from ebfed.priors.beta_binomial import tally
from ebfed.priors.two_moments import gamma_height


@pytest.mark.parametrize("largest", [1e4, 1e7, 1e9, 1e12, 1e15])
def test_one_group_of_many_events_among_groups_of_few(largest):
    counts = np.append(int(largest), np.random.default_rng(0).poisson(30, 19))
    rows = Poisson(counts[:, None], np.ones(20))
    posterior = Gamma().fit(rows).posterior(rows)
    ends = [each[0, 0] for each in posterior.interval()]
    expected = stats.norm.ppf([0.025, 0.975], largest, np.sqrt(largest))
    np.testing.assert_allclose((ends - expected) / np.sqrt(largest), 0, atol=0.05)


@pytest.mark.parametrize("n", [1e5, 1e6, 5e6])
@pytest.mark.parametrize("spread", [0.3, 5.0])
def test_large_groups_have_intervals_of_normal_errors(n, spread):
    """The prior of the population's spread differs a little, and reaches down to no spread."""
    rng = np.random.default_rng(0)
    error = np.sqrt(0.3 * 0.7 / n)
    rates = 0.3 + error * np.hypot(1, spread) * rng.normal(size=(20, 1))
    successes = np.rint(n * rates).astype(int)
    trials = Binomial(successes, np.full(20, int(n)))
    events = Poisson(successes, np.full(20, n))
    for prior, rows, noise in (
        (Beta(), trials, error),
        (Gamma(), events, np.sqrt(0.3 / n)),
    ):
        normal = Gaussian(successes / n, np.full((20, 1), noise**2))
        length, expected = (
            np.subtract(*each.fit(one).posterior(one).interval()).mean()
            for each, one in ((prior, rows), (Normal(), normal))
        )
        assert length == pytest.approx(expected, rel=0.12)


def test_equal_large_counts_cost_no_more_than_few():
    exceeded, large, times = tally(np.full(20, 10**7), np.ones(20))
    assert len(exceeded) == 64
    assert (large.tolist(), times.tolist()) == ([10**7], [20.0])


def test_heights_of_gammas_of_any_shape():
    for shape in (0.3, 5.0, 1e4, 2e5, 1e7):
        away = np.array([-2.0, 0.0, 1.5]) / np.sqrt(shape)
        expected = stats.gamma.pdf(shape * np.exp(away), shape) * shape * np.exp(away)
        np.testing.assert_allclose(gamma_height(np.full(3, shape), away), expected, rtol=1e-7)
