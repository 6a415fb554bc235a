"""Events as they are and through channels: against SciPy, and against sums written out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from ebfed import channels, families
from ebfed.likelihoods import Poisson, ReportedEvents
from ebfed.likelihoods.poisson import negative_binomial_masses

RNG = np.random.default_rng(2)
EXPOSURE = np.array([0.5, 1.0, 1.0, 3.5, 8.0, 20.0])
COUNTS = RNG.poisson(EXPOSURE * 0.8)[:, None]
EVENTS = Poisson(COUNTS, EXPOSURE)
RANGE = (0.0, 1.5)
CHANNELS = [
    channels.Gaussian(2.0, 1e-5, RANGE),
    channels.Laplace(2.0, RANGE),
    channels.Piecewise(2.0, RANGE),
    channels.OneBit(2.0, RANGE),
    channels.TwoBit(2.0, 0.4, RANGE),
    channels.Quantizer(3, RANGE),
    channels.DiscreteGaussian(2.0, 1e-5, RANGE),
    channels.UnaryEncoding(2.0, RANGE, levels=6),
    channels.Clip(RANGE),
]


def message_of(channel):
    blank = families.Poisson().blank(np.full(len(EXPOSURE), 2), 1, EXPOSURE)
    return channel.encode(replace(blank, mean=COUNTS / EXPOSURE[:, None]), 1)


def test_log_probabilities_are_those_of_scipy():
    theta = np.array([[0.0], [0.2], [1.3]])
    expected = stats.poisson.logpmf(COUNTS, EXPOSURE[:, None] * theta.T)
    np.testing.assert_allclose(EVENTS.logpdf(theta), expected, rtol=1e-12)
    own = stats.poisson.logpmf(COUNTS[:, 0], COUNTS[:, 0])
    np.testing.assert_allclose(EVENTS.log_peak(), own, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("variance", [0.0, 1e-13, 1e-9, 1e-3, 0.4, 30.0])
def test_gamma_mixtures_are_negative_binomial(variance):
    y, mean = np.arange(40), 0.7
    found = negative_binomial_masses(y, np.full(40, 4.0), mean, variance)
    if variance > 1e-6:
        shape = mean**2 / variance
        expected = stats.nbinom.pmf(y, shape, shape / (shape + 4.0 * mean))
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    else:  # as good as one rate
        expected = stats.poisson.pmf(y, 4.0 * mean)
        np.testing.assert_allclose(found, expected, rtol=1e5 * variance + 1e-8)


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_reports_are_summed_over_counts(channel):
    """``sum_y p(report | y / E) Poisson(y; E theta)``, client by client, counts beyond the range
    clipped like any other."""
    message = message_of(channel)
    likelihood = channel.likelihood(message, families.Poisson())
    assert isinstance(likelihood, ReportedEvents)
    theta = np.array([0.05, 0.6, 1.4, 3.0])
    found = likelihood.logpdf(theta[:, None])
    mixed = likelihood.marginal(np.array([0.8]), np.array([0.3]))
    law, y = channel._law(1), np.arange(1000)
    for i, exposure in enumerate(EXPOSURE):
        u = np.clip((y / exposure - 0.75) / 0.75, -1, 1)
        density = law.density(message["report"][[i], 0], u, np.zeros(1, int))[0]
        masses = stats.poisson.pmf(y[:, None], exposure * theta)
        np.testing.assert_allclose(np.exp(found[i]), density @ masses, rtol=1e-9)
        shape = 0.8**2 / 0.3
        masses = stats.nbinom.pmf(y, shape, shape / (shape + exposure * 0.8))
        assert np.exp(mixed[i]) == pytest.approx(density @ masses, rel=1e-9)


def test_the_order_of_clients_does_not_matter():
    channel = channels.Laplace(2.0, RANGE)
    whole = channel.likelihood(message_of(channel), families.Poisson())
    order = np.array([3, 0, 5, 1, 4, 2])
    theta = np.array([[0.3], [1.1]])
    np.testing.assert_allclose(whole.take(order).logpdf(theta), whole.logpdf(theta)[order])


def test_clients_without_exposure_say_nothing():
    rows = Poisson(np.array([[0], [2]]), np.array([0.0, 1.0]))
    theta = np.array([[0.5], [2.0]])
    np.testing.assert_array_equal(rows.logpdf(theta)[0], 0.0)
    assert np.isnan(rows.local[0, 0])
    table, times = rows.compress()
    assert len(table) == times.sum() == 1
