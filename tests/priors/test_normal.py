"""Normal populations fitted to noisy reports: which of them are plausible."""

import copy
import pickle

import numpy as np
import pytest

from ebfed import likelihoods
from ebfed.channels import OneBit, TwoBit
from ebfed.families import Gaussian
from ebfed.priors import Normal, dependence, normal
from ebfed.tables.clients import Summary


def reported(channel, values, error=0.5, seed=0):
    m = len(values)
    summary = Summary(np.arange(m), np.full(m, 4), values[:, None], np.zeros((m, 1)))
    family = Gaussian(4 * error**2)
    return channel.likelihood(channel.encode(summary, seed), family)


@pytest.fixture
def bits():
    values = np.random.default_rng(0).normal(0.3, 0.6, 100)
    return reported(OneBit(2.0, range=(-2.0, 2.0)), values)


def test_a_known_spread_has_plausible_means(bits):
    prior = Normal(variance=0.11).fit(bits)
    populations, _weights = prior.populations()
    assert len(populations) > 5
    assert {one.variance_[0] for one in populations} == {0.11}
    lower, upper = prior.mean_interval()
    # bits of slope .76 over a half-width of 2: a standard error of 2 / (.76 * 10) = .26
    assert lower < 0.3 < upper
    assert 0.8 < upper[0] - lower[0] < 1.3


def test_a_mean_that_is_known_beside_its_spread_is_one():
    """A standard error of 2 / (.9 * 45) = .05 is below a tenth of a standard deviation of 1."""
    values = np.random.default_rng(0).normal(0.3, 1.0, 2000)
    bits = reported(OneBit(3.0, range=(-2.0, 2.0)), values)
    assert Normal(variance=1.0).fit(bits).plausible_ is None


def test_both_known_leave_nothing_open(bits):
    assert Normal(mean=0.0, variance=0.11).fit(bits).plausible_ is None


@pytest.mark.parametrize("channel", [OneBit, TwoBit])
def test_reference_prior_lies_within_the_range(channel):
    """Reports of epsilon 1e-4 say nothing: half of all means lie in the middle half.

    A flat prior out to a whole range beyond either end had a sixth there.
    """
    reports = reported(channel(1e-4, range=(-2.0, 2.0)), np.linspace(-1, 1, 20))
    prior = Normal(variance=0.11 if channel is OneBit else None).fit(reports)
    weights, means = prior.plausible_["weights"][:, 0], prior.plausible_["mean_"][:, 0]
    nodes = reports.nodes(100)
    inside = weights[np.abs(means) < (nodes[-1] - nodes[0]) / 4].sum()
    assert 0.4 < inside < 0.7  # lattices of few points are coarse


def test_moments_and_notes_are_those_of_the_fit_when_they_are_asked_for(monkeypatch):
    """A fit computes neither, and both are of its own figures, whatever is set afterwards."""
    rng = np.random.default_rng(0)
    error = np.exp(rng.normal(size=400))
    messages = likelihoods.Gaussian(
        (2 * np.log(error) + error * rng.normal(size=400))[:, None], error[:, None] ** 2
    )
    at_once = Normal().fit(messages)
    known = at_once.second_moment_, at_once.kurtosis_, at_once.notes_
    assert any("precision of the estimates" in note for note in known[2])
    with monkeypatch.context() as held:
        for module, name in ((normal, "moments_around"), (dependence, "dependence_tests")):
            held.setattr(module, name, None)  # which cannot be called
        later = Normal().fit(messages)
    copied = copy.copy(later)
    later.variance_ = later.variance_ * 4
    later._add_note("few groups")
    for found in (later, copied, pickle.loads(pickle.dumps(copied))):
        np.testing.assert_array_equal(found.second_moment_, known[0])
        np.testing.assert_array_equal(found.kurtosis_, known[1])
    assert later.notes_ == [*known[2], "few groups"]


@pytest.mark.parametrize("m", [5, 30])
def test_the_interval_of_the_mean_is_that_of_a_quadrature(m):
    """Of the stated prior, over a fine lattice; a thousandth of the probability is left out."""
    rng = np.random.default_rng(m)
    noise = rng.uniform(0.5, 2, m)
    x = rng.normal(0, np.sqrt(1 + noise))
    mean, log_spread = np.linspace(-12, 12, 1201)[:, None], np.linspace(-9, 4, 400)
    variance = np.exp(2 * log_spread)
    logs = log_spread + 0.2 * np.log(variance / (variance + np.median(noise)))
    for value, error in zip(x, noise, strict=True):
        logs = logs - 0.5 * (np.log(variance + error) + (value - mean) ** 2 / (variance + error))
    masses = np.exp(logs - logs.max()).sum(axis=1)
    below = (np.cumsum(masses) - masses / 2) / masses.sum()
    expected = np.interp([0.025, 0.975], below, mean[:, 0])
    prior = Normal().fit(likelihoods.Gaussian(x[:, None], noise[:, None]))
    np.testing.assert_allclose(np.ravel(prior.mean_interval()), expected, atol=0.02)
