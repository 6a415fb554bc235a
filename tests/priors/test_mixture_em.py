"""EM for Gaussian mixtures: sums against densities row by row, and extrapolated steps."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from ebfed.likelihoods import Gaussian
from ebfed.priors import GaussianMixture, mixture_em
from ebfed.priors.mixture_em import Mixture, SortedMessages, climb, levels, start

RNG = np.random.default_rng(7)
NOISE = {
    "one level": np.full((300, 3), 0.5),
    "levels": RNG.choice([0.2, 0.5, 2.0], (300, 1)) * np.ones(3),
    "levels by column": RNG.choice([0.2, 0.5], (300, 1)) * [1.0, 2.0, 3.0],
    "a level for each": RNG.uniform(0.1, 1, (300, 3)),
    "none": np.zeros((300, 3)),
}


def overlapping(m=300, d=3, gap=1.5):
    return RNG.normal(gap * RNG.integers(0, 2, m)[:, None], 1.0, (m, d))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_sums_are_those_of_the_densities(noise, shared, monkeypatch):
    monkeypatch.setattr(mixture_em, "BLOCK", 64)
    values, counts = overlapping(), RNG.integers(1, 4, 300).astype(float)
    table = SortedMessages.of(values, noise, counts, shared)
    variances = np.tile(RNG.uniform(0.5, 2, (2, 1)), 3) * (1 if shared else [1.0, 0.5, 2.0])
    mixture = Mixture(np.array([0.3, 0.7]), RNG.normal(size=(2, 3)), variances)
    evidence, sums = mixture_em._expected(table, mixture)

    spread = np.sqrt(variances + noise[:, None])
    joint = norm.logpdf(values[:, None], mixture.means, spread).sum(axis=2) + np.log([0.3, 0.7])
    total = logsumexp(joint, axis=1)
    assert evidence == pytest.approx(counts @ total, rel=1e-12)
    shares = counts[:, None] * np.exp(joint - total[:, None])
    squares = values**2
    if table.n_squares == 1:
        squares = squares.sum(axis=1, keepdims=True)
    whole = shares.T @ np.hstack([values, squares, np.ones((300, 1))])
    np.testing.assert_allclose(sums.sum(axis=1), whole, rtol=1e-10)
    np.testing.assert_allclose(sums[:, :, -1].sum(axis=0), _totals(noise, counts), rtol=1e-12)


def _totals(noise, counts):
    return np.bincount(levels(noise)[1], counts)


def test_levels_are_distinct_rows():
    variances = np.array([[1.0, 2.0], [1.0, 3.0], [0.5, 2.0], [1.0, 2.0]])
    noise, level = levels(variances)
    assert len(noise) == 3
    np.testing.assert_array_equal(noise[level], variances)
    noise, level = levels(variances[:, :1])
    np.testing.assert_array_equal(noise, [[0.5], [1.0]])
    np.testing.assert_array_equal(noise[level], variances[:, :1])


def test_some_messages_of_a_table():
    table = SortedMessages.of(overlapping(), NOISE["levels"], np.ones(300), True)
    some = table.take(np.arange(0, 300, 7))
    assert some.ends[-1] == len(some.values) == len(some.counts) == len(some.level)
    for level, (begin, end) in enumerate(zip(some.ends, some.ends[1:], strict=False)):
        assert (some.level[begin:end] == level).all()


@pytest.mark.parametrize("shared", [True, False])
def test_extrapolation_reaches_what_em_creeps_to(shared):
    table = SortedMessages.of(overlapping(2000), np.full((2000, 3), 1.0), np.ones(2000), shared)
    least = np.zeros(3)
    begin = start(table, 2, shared, least, np.random.RandomState(0))
    mixture, path = climb(table, begin, shared, least, 1e-12, 5000)
    assert (np.diff(path) >= -1e-12 * np.abs(path[-1])).all()  # but for rounding

    plain, slow = begin, []
    while len(slow) < 2 or slow[-1] - slow[-2] > 1e-12 * abs(slow[-1]):
        evidence, sums = mixture_em._expected(table, plain)
        slow.append(evidence)
        plain = mixture_em._maximised(table, plain, sums, shared, least)
    assert path[-1] >= slow[-1] - 1e-7
    assert len(path) < len(slow) / 2
    np.testing.assert_allclose(mixture.means, plain.means, atol=1e-2)


def test_start_from_some_of_many_messages(monkeypatch):
    """Starts are found from a sample, and climbed from all."""
    values = overlapping(4000, gap=4.0)
    messages = Gaussian(values, np.full((4000, 3), 0.5))
    whole = GaussianMixture(2, random_state=0).fit(messages)
    monkeypatch.setattr("ebfed.priors.gaussian_mixture.MOST_OF_START", 100)
    sampled = GaussianMixture(2, random_state=0).fit(messages)
    np.testing.assert_allclose(sampled.means_, whole.means_, atol=1e-4)
    assert sampled.path_[-1] == pytest.approx(whole.path_[-1], abs=1e-3)


def test_order_of_messages_does_not_matter():
    messages = Gaussian(overlapping(), NOISE["levels"])
    order = RNG.permutation(300)
    one = GaussianMixture(2, random_state=0).fit(messages)
    other = GaussianMixture(2, random_state=0).fit(messages.take(order))
    np.testing.assert_array_equal(one.means_, other.means_)


def test_equal_messages_are_one_that_counts_twice():
    messages = Gaussian(overlapping(), NOISE["levels"])
    twice = messages.take(np.tile(np.arange(300), 2))
    one = GaussianMixture(2, random_state=0).fit(messages)
    two = GaussianMixture(2, random_state=0).fit(twice)
    np.testing.assert_allclose(one.means_, two.means_, atol=2e-3)
    assert two.path_[-1] == pytest.approx(2 * one.path_[-1], rel=1e-8)
