"""Populations of rates fitted to noisy reports: how far they may move estimates."""

import numpy as np
import pytest
from scipy.special import expit

from ebfed.channels import Gaussian, TwoBit, UnaryEncoding
from ebfed.families import Binomial as Rates
from ebfed.likelihoods import Binomial
from ebfed.priors import Beta
from ebfed.priors.integrated import IntegratedPosterior
from ebfed.tables.clients import Summary

ZEROS_AND_FEW = np.array([0, 0, 0, 1, 0, 2, 0, 0, 5, 0, 1, 0])


def fitted(channel, z, n, seed=0):
    """Population learned from reports, and the clients' own counts."""
    summary = Summary.from_counts(z, np.full(len(z), n))
    likelihood = channel.likelihood(channel.encode(summary, seed), Rates())
    return Beta().fit(likelihood), Binomial(z[:, None], np.full(len(z), n))


def test_reports_that_say_nothing_leave_local_estimates():
    """The reference prior alone would move rare events by up to a half of an event."""
    prior, own = fitted(Gaussian(0.01, 1e-6, range=(0.0, 1.0)), ZEROS_AND_FEW, 40)
    posterior = prior.posterior(own)
    moved = 40 * np.abs([posterior.mean, posterior.expectation] - own.local)
    assert np.all(moved[0] < 0.05)
    assert np.all(moved[1] > 0.1)
    assert np.all(posterior.sd > 0.005)


def test_reports_that_say_much_leave_nothing_to_local_estimates():
    rng = np.random.default_rng(0)
    z = rng.binomial(3, rng.beta(2, 5, 2000))
    prior, own = fitted(TwoBit(2.0, range=(0.0, 1.0)), z, 3)
    posterior = prior.posterior(own)
    assert isinstance(posterior, IntegratedPosterior)
    np.testing.assert_array_equal(posterior.mean, posterior.expectation)


def test_clients_without_data_have_no_local_estimate():
    prior, _own = fitted(TwoBit(0.5, range=(0.0, 1.0)), ZEROS_AND_FEW, 40)
    nobody = Binomial(np.array([[0]]), np.array([0]))
    posterior = prior.posterior(nobody)
    assert posterior.mean == pytest.approx(posterior.expectation)
    assert 0 < posterior.mean[0, 0] < 1


def test_reports_themselves_are_no_local_estimates():
    """The likeliest rate of one noisy report is 0 or 1: it has no share in an estimate."""
    channel = TwoBit(0.5, range=(0.0, 1.0))
    summary = Summary.from_counts(ZEROS_AND_FEW, np.full(12, 40))
    likelihood = channel.likelihood(channel.encode(summary, 0), Rates())
    posterior = Beta().fit(likelihood).posterior(likelihood)
    np.testing.assert_array_equal(posterior.mean, posterior.expectation)


def test_reports_that_contradict_every_beta_are_fitted_without_one():
    """Two rates of which betas know nothing: the likeliest beta has half the mean (.105 of .2)."""
    rng = np.random.default_rng(10)
    rates = np.where(rng.random(5000) < 0.8, 0.1, 0.6)
    z = rng.binomial(40, rates)
    prior, counts = fitted(UnaryEncoding(0.7, levels=8, range=(0.0, 1.0)), z, np.full(5000, 40))
    assert any("contradict every beta" in note for note in prior.notes_)
    risk = ((prior.posterior(counts).mean[:, 0] - rates) ** 2).mean()
    local = ((z / 40 - rates) ** 2).mean()
    assert risk < local
    known = ((prior.posterior(counts, integrate=False).mean[:, 0] - rates) ** 2).mean()
    assert known > 2 * local  # what the likeliest beta does


def test_reports_of_a_beta_do_not_contradict_it():
    """A false alarm has probability below 1/70 by 72 simulated fits."""
    rates = np.random.default_rng(0).beta(2, 5, 5000)
    z = np.random.default_rng(1).binomial(40, rates)
    prior, _ = fitted(UnaryEncoding(0.7, levels=8, range=(0.0, 1.0)), z, np.full(5000, 40))
    assert not any("contradict" in note for note in prior.notes_)


@pytest.mark.filterwarnings("ignore:Every outcome is 0")
@pytest.mark.parametrize(
    ("successes", "trials"),
    [([0] * 4, [10] * 4), ([0] * 20, [5] * 20), ([0, 0, 0], [3, 8, 20]), ([0, 3, 1, 0], [10] * 4)],
)
def test_the_interval_of_the_mean_is_that_of_a_quadrature(successes, trials):
    """Of the stated prior, over a fine lattice of both parameters.

    Ends near 0 differ by 2 %, for a thousandth of the probability is left out in the tails.
    """
    logit_mean, log_phi = np.linspace(-25, 25, 501)[:, None], np.linspace(-25, 25, 401)
    mean, rest, phi = expit(logit_mean), expit(-logit_mean), np.exp(log_phi)
    # flat in the mean; flat in the root of the correlation, times its fifth root
    logs = np.log(mean * rest) - 0.7 * np.log1p(1 / phi) - np.log1p(phi)
    for z, n in zip(successes, trials, strict=True):
        logs += sum(np.log(mean + j * phi) for j in range(z))
        logs += sum(np.log(rest + j * phi) for j in range(n - z))
        logs -= sum(np.log1p(j * phi) for j in range(n))
    masses = np.exp(logs - logs.max()).sum(axis=1)
    below = (np.cumsum(masses) - masses / 2) / masses.sum()
    expected = np.interp([0.025, 0.975], below, mean[:, 0])
    prior = Beta().fit(Binomial(np.array(successes)[:, None], np.array(trials)))
    np.testing.assert_allclose(np.ravel(prior.mean_interval()), expected, rtol=0.025)
