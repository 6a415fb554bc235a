"""Ranges of channels: in two stages, reports reach the least variance of a normal mean."""

import numpy as np
import pytest

import ebfed as eb
from ebfed import theory
from ebfed.channels import Guess, Hybrid, OneBit, Piecewise, TwoBit
from ebfed.channels.design import fisher_information
from ebfed.likelihoods import Gaussian
from ebfed.priors import Normal

ONE = Gaussian(np.zeros((1, 1)), np.full((1, 1), 0.5))
SPREAD = 0.5  # with the variance of ONE, a local mean has a variance of 1


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_no_report_tells_more_of_a_mean_than_the_randomised_sign(epsilon):
    """Kalinin and Steinberger (2024); the sign is the limit of one bit on a narrow range."""
    least = 1 / (2 * theory.private_mean_bound(0.5, 1, 2, epsilon, SPREAD))
    sign = fisher_information(OneBit(epsilon, range=(-1e-3, 1e-3)), ONE, 0.0, SPREAD)[0][0, 0]
    assert sign == pytest.approx(least, rel=1e-4)
    for half in (0.1, 0.5, 1.0, 2.0, 4.0):
        for kind in (OneBit, Piecewise, Hybrid):
            channel = kind(epsilon, range=(-half, half))
            assert fisher_information(channel, ONE, 0.0, SPREAD)[0][0, 0] < sign * (1 + 1e-4)
        two = TwoBit(epsilon, 0.9, (-half, half), location=0.01)
        assert fisher_information(two, ONE, 0.0, SPREAD)[0][0, 0] < 0.91 * sign


def fitted(channel, m, seed):
    """Stated variance of the mean over the least, and the error in standard errors."""
    rng = np.random.default_rng(seed)
    mu = rng.uniform(-5, 5)
    means = rng.normal(mu, 1.0, (m, 1))
    summary = eb.Summary(np.arange(m), np.ones(m, int), means, np.zeros((m, 1)))
    guess, prior = Guess(mean=(-5, 5), spread=0.7), Normal(variance=SPREAD)
    fit = eb.GaussianEB(0.5, prior=prior, channel=channel, guess=guess, random_state=seed)
    population = fit.fit(summary).prior_
    variance = population.mean_variance_[0]
    return variance, (population.mean_[0] - mu) / np.sqrt(variance)


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_two_stages_reach_the_bound(epsilon):
    """One bit around what the first clients said; others stay above it, as they must."""
    bound = theory.private_mean_bound(0.5, 1, 10_000, epsilon, SPREAD)
    one, piece, two = (
        np.median([fitted(kind(epsilon, range="private"), 10_000, seed)[0] for seed in range(3)])
        for kind in (OneBit, Piecewise, TwoBit)
    )
    assert 1 < one / bound < 1.2
    assert one < piece < two


def test_errors_of_two_stages_are_those_stated():
    """Mean square of 60 errors, which has a standard error of .18: within 3 of these."""
    errors = [fitted(OneBit(1.0, range="private"), 2000, seed)[1] for seed in range(60)]
    assert np.mean(np.square(errors)) == pytest.approx(1, abs=0.55)
