"""Fits through a channel reach the Cramér–Rao bound of its messages.

For every pair of a channel and a model that identifies the population, the sampling variance of the
fitted mean and variance over repeated samples of 10,000 clients is compared with the inverse of the
Fisher information of the messages, computed from their exact law.

A sample variance of R repetitions has a relative error of sqrt(2 / R), 6 % here: too much to see
10 %. So each estimate is split into its efficient part, inverse information times the score at the
truth, whose variance is the bound itself, and a remainder, which is small and whose variance and
covariance are estimated. What is asserted is that sum; the raw ratio is held to the bound plus four
of its standard errors, a false alarm rate below 1e-4 for each figure.
"""

import numpy as np
import pytest

import ebfed as eb
from ebfed import channels as ch
from ebfed.channels.design import fisher_information
from ebfed.priors import Normal

M, REPETITIONS = 10_000, 500
NOISE, TRIALS = 0.04, 14
RANGE = (-1.3, 1.7)
MEAN, VARIANCE = 0.2, 0.09
RATE, SPREAD = 0.4, 0.0218  # Beta(4, 6)

# Budgets at which 10,000 clients know the spread to a fifth of its size or better: with less, the
# estimate is often zero and has no normal law to compare.
MEANS = [
    ch.Exact(),
    ch.Clip((-0.3, 0.8)),
    ch.Quantizer(2, RANGE),
    ch.Quantizer(5, RANGE),
    ch.Gaussian(12, 1e-4, RANGE),
    ch.Laplace(4, RANGE),
    ch.DiscreteGaussian(12, 1e-4, RANGE),
    ch.Piecewise(3, RANGE),
    ch.Hybrid(2, RANGE),
    ch.TwoBit(2, 0.4, RANGE, location=0.1, spread=(0.3, 0.3)),
    ch.RandomizedResponse(4, RANGE, levels=8),
    ch.UnaryEncoding(4, RANGE, levels=8),
]
COUNTS = [
    ch.Exact(),
    ch.Clip((0, 1)),
    ch.Quantizer(2, (0, 1)),
    ch.Quantizer(5, (0, 1)),
    ch.Gaussian(12, 1e-4, (0, 1)),
    ch.Laplace(4, (0, 1)),
    ch.DiscreteGaussian(12, 1e-4, (0, 1)),
    ch.Piecewise(3, (0, 1)),
    ch.Hybrid(2, (0, 1)),
    ch.TwoBit(1, 0.4, (-0.2, 1.0), location=0.01, spread=(0.4, 0.45)),
    ch.RandomizedResponse(2, (0, 1)),
    ch.UnaryEncoding(1, (0, 1)),
]


def compare(estimator, channel, one, draw, truth, known_spread=False):
    """Ratios of sampling variance to bound, (sharp, raw), each for mean and variance."""
    free = 1 if known_spread else 2
    if isinstance(channel, ch.Exact):
        information = exact_information(one, *truth)
    else:
        information, _ = fisher_information(channel, one, *truth)
    bound = np.linalg.inv(M * information[:free, :free])
    rng = np.random.default_rng(20260715)
    efficient, fitted = [], []
    units = 1e-3 * np.eye(2)[:free] / np.sqrt(np.diag(information)[:free, None])
    for repetition in range(REPETITIONS):
        summary = draw(rng)
        fit = estimator.set_params(random_state=repetition).fit(summary)
        fitted.append([fit.prior_.mean_[0], fit.prior_.variance_[0]][:free])
        message = channel.encode(summary, repetition)
        rows, counts = channel.likelihood(message, fit.protocol().family).compress()
        score = []
        for unit in units:
            ahead, behind = np.add(truth, unit), np.subtract(truth, unit)
            gain = rows.marginal(ahead[:1], ahead[1:]) - rows.marginal(behind[:1], behind[1:])
            score.append(counts @ gain / (2 * unit.sum()))
        efficient.append(bound @ score)
    error = np.array(fitted) - truth[:free]
    rest = error - efficient
    rest = rest - rest.mean(axis=0)
    cross = (rest * (efficient - np.mean(efficient, axis=0))).mean(axis=0)
    sharp = 1 + (rest.var(axis=0, ddof=1) + 2 * cross) / np.diag(bound)
    raw = error.var(axis=0, ddof=1) / np.diag(bound)
    for name, s, r in zip(("mean", "variance"), sharp, raw, strict=False):
        print(f"{channel!r:.60} {type(one).__name__} {name}: {s:.3f} (raw {r:.3f})")
    assert np.all(np.abs(sharp - 1) < 0.10)
    assert np.all(np.abs(raw - 1) < 0.10 + 4 * np.sqrt(2 / REPETITIONS))


def exact_information(one, mean, variance):
    """Fisher information of an exact message about mean and variance of the population."""
    if not one.counts_rows:
        total = variance + one.variances[0, 0]
        return np.diag([1 / total, 1 / (2 * total**2)])
    from ebfed.likelihoods.binomial import beta_binomial_masses

    steps = 1e-4 * np.array([1.0, variance])
    base = beta_binomial_masses(TRIALS, mean, variance)
    slopes = [
        (
            beta_binomial_masses(TRIALS, mean + a, variance + b)
            - beta_binomial_masses(TRIALS, mean - a, variance - b)
        )
        / (2 * (a + b))
        for a, b in ((steps[0], 0.0), (0.0, steps[1]))
    ]
    return np.array([[(x * y / base).sum() for y in slopes] for x in slopes])


def means(rng):
    x = rng.normal(MEAN, np.sqrt(VARIANCE + NOISE), M)
    return eb.Summary(np.arange(M), np.full(M, 5), x[:, None], np.zeros((M, 1)))


def counts(rng):
    total = RATE * (1 - RATE) / SPREAD - 1
    p = rng.beta(RATE * total, (1 - RATE) * total, M)
    return eb.Summary.from_counts(rng.binomial(TRIALS, p), np.full(M, TRIALS))


@pytest.mark.slow
@pytest.mark.parametrize("channel", MEANS, ids=lambda c: f"{c!r:.40}")
def test_means_through_a_channel(channel):
    one = eb.likelihoods.Gaussian(np.zeros((1, 1)), np.full((1, 1), NOISE))
    estimator = eb.GaussianEB(5 * NOISE, channel=channel)
    compare(estimator, channel, one, means, (MEAN, VARIANCE))


@pytest.mark.slow
@pytest.mark.parametrize("channel", [ch.OneBit(1, RANGE), ch.Quantizer(1, RANGE)], ids=repr)
def test_one_bit_reaches_the_bound_of_the_mean(channel):
    one = eb.likelihoods.Gaussian(np.zeros((1, 1)), np.full((1, 1), NOISE))
    estimator = eb.GaussianEB(5 * NOISE, prior=Normal(variance=VARIANCE), channel=channel)
    compare(estimator, channel, one, means, (MEAN, VARIANCE), known_spread=True)


@pytest.mark.slow
@pytest.mark.parametrize("channel", COUNTS, ids=lambda c: f"{c!r:.40}")
def test_counts_through_a_channel(channel):
    one = eb.likelihoods.Binomial(np.zeros((1, 1), np.int64), np.array([TRIALS]))
    compare(eb.BernoulliEB(channel=channel), channel, one, counts, (RATE, SPREAD))
