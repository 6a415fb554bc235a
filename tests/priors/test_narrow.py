"""Messages sharper than the cells of a population's grid: all likelihoods, against closed forms."""

import numpy as np
import pytest
from scipy import stats

from ebfed.likelihoods import Binomial, Gaussian, LogVariance, Poisson, StudentT, join
from ebfed.priors import LogSpline
from ebfed.priors.narrow import Around, NarrowPosterior, error_of

NOTHING = np.zeros(2)
KINDS = ["student_t", "poisson", "binomial", "log_variance", "joined"]


def flat(likelihood, ends=(-np.inf, np.inf)):
    return NarrowPosterior(likelihood, Around(NOTHING, NOTHING, error_of(likelihood), ends))


def drawn(kind, m, seed=0):
    """Parameters of m clients, and messages with errors of about a thousandth of their spread."""
    rng = np.random.default_rng(seed)
    if kind == "poisson":
        rate = rng.gamma(3, 1, m)
        return rate, Poisson(rng.poisson(1e7 * rate)[:, None], np.full(m, 1e7))
    if kind == "binomial":
        rate = rng.beta(3, 2, m)
        return rate, Binomial(rng.binomial(5_000_000, rate)[:, None], np.full(m, 5_000_000))
    theta = rng.normal(0, 1, m)
    if kind == "log_variance":
        squares = np.exp(theta) * rng.chisquare(1e6, m)
        return theta, LogVariance(squares[:, None], np.full(m, 1e6))
    size = np.full((m, 1), 1e-6)
    x = StudentT(theta[:, None] + 1e-3 * rng.standard_t(5, (m, 1)), size, np.full(m, 5.0))
    if kind == "joined":
        own = Gaussian(theta[::2, None] + 1e-3 * rng.normal(size=(len(theta[::2]), 1)), size[::2])
        return np.append(theta[::2], theta[1::2]), join([own, x.take(slice(1, None, 2))])
    return theta, x


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold_their_level(kind):
    """Of 600 counts, intervals held .77; by chance it is under .92 once in 500 times."""
    theta, messages = drawn(kind, 600)
    prior = LogSpline().fit(messages)
    found = prior.posterior(messages)
    lower, upper = (end[:, 0] for end in found.interval())
    assert 0.92 < np.mean((lower <= theta) & (theta <= upper)) < 0.98
    assert 0.8 < np.mean(((found.mean[:, 0] - theta) / found.sd[:, 0]) ** 2) < 1.3
    draws = found.sample(100, random_state=0)[:, :, 0]
    assert np.median(draws.std(axis=0) / found.sd[:, 0]) == pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose(found.prob_below(found.quantile(0.3)), 0.3, atol=1e-6)


def test_a_flat_population_gives_the_likelihood_itself():
    laws = [
        (Gaussian(np.array([[1.0], [2.0]]), np.full((2, 1), 0.04)), stats.norm([1, 2], 0.2)),
        (
            StudentT(np.array([[1.0], [2.0]]), np.full((2, 1), 0.04), np.array([3.0, 4.0])),
            stats.t([3, 4], [1, 2], 0.2),
        ),
        (Poisson(np.array([[20], [900]]), np.full(2, 10.0)), stats.gamma([21, 901], scale=0.1)),
        (Binomial(np.array([[70], [20]]), np.full(2, 90)), stats.beta([71, 21], [21, 71])),
    ]
    for likelihood, law in laws:
        found = flat(likelihood, likelihood.support)
        np.testing.assert_allclose(found.mean[:, 0], law.mean(), rtol=1e-6)
        for q in (1e-3, 0.025, 0.5, 0.9):
            np.testing.assert_allclose(law.cdf(found.quantile(q)[:, 0]), q, atol=2e-5)
            at = law.ppf(q)[:, None]
            np.testing.assert_allclose(found.prob_below(at), q, atol=2e-5)
            np.testing.assert_allclose(found.prob_above(at), 1 - q, atol=2e-5)
        at = np.stack([law.ppf(np.array([[q], [q]])[:, 0]) for q in (0.1, 0.6)])[:, :, None]
        own = likelihood.logpdf(at.swapaxes(0, 1))
        each = [likelihood.take(np.array([i])).logpdf(at[:, i]) for i in range(2)]
        np.testing.assert_allclose(own, np.concatenate(each), rtol=1e-12)
    gaussian = laws[0][0]
    np.testing.assert_allclose(flat(gaussian).log_integral(), 0.0, atol=1e-9)


def test_an_end_cuts_the_posterior():
    likelihood = Gaussian(np.array([[0.1], [0.05]]), np.full((2, 1), 0.01))
    found = flat(likelihood, (0.0, 5.0))
    law = stats.truncnorm([-1, -0.5], 49, [0.1, 0.05], 0.1)
    np.testing.assert_allclose(found.mean[:, 0], law.mean(), atol=2e-3 * 0.1)
    np.testing.assert_allclose(found.quantile(0.5)[:, 0], law.median(), atol=5e-3 * 0.1)


def test_likelihoods_of_few_and_of_many_are_one_law():
    """Counts of 1e9 are normal: the log-likelihood was 3,000 below."""
    rng = np.random.default_rng(2)
    rate = rng.normal(10, 1, 400)
    counts = Poisson(rng.poisson(1e8 * rate)[:, None], np.full(400, 1e8))
    errors = Gaussian(counts.local, counts.local / 1e8)
    prior = LogSpline(range=(5, 15)).fit(counts)
    jacobian = 400 * np.log(1e8)  # of a count, the rate times the exposure
    other = LogSpline(range=(5, 15)).fit(errors).log_marginal(errors).sum() - jacobian
    assert prior.log_marginal(counts).sum() == pytest.approx(other, abs=1.0)
