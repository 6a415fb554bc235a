"""Negative binomial sums, against scipy."""

import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from ebfed import channels, families
from ebfed.likelihoods import NegativeBinomial, Poisson, ReportedOverdispersed

COUNTS, EXPOSURE = np.array([[3], [0], [12], [0]]), np.array([1.5, 2.0, 4.0, 0.0])
SIZES = np.array([[2.0], [1.0], [6.0], [0.0]])
EVENTS = NegativeBinomial(COUNTS, EXPOSURE, SIZES)


def test_log_probabilities():
    for rate in (0.01, 1.0, 7.0):
        found = EVENTS.logpdf(np.array([[rate]]))[:3, 0]
        chance = SIZES[:3, 0] / (SIZES[:3, 0] + EXPOSURE[:3] * rate)
        expected = stats.nbinom.logpmf(COUNTS[:3, 0], SIZES[:3, 0], chance)
        np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert EVENTS.logpdf(np.array([[1.0]]))[3, 0] == 0


def test_large_sizes_are_poisson():
    poisson = Poisson(COUNTS, EXPOSURE)
    near = NegativeBinomial(COUNTS, EXPOSURE, np.full((4, 1), np.inf))
    theta = np.array([[0.5], [3.0]])
    np.testing.assert_allclose(near.logpdf(theta), poisson.logpdf(theta), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("mean", "shape"), [(2.0, 4.0), (0.3, 0.5)])
def test_marginal_by_quadrature(mean, shape):
    """On 1,600 cells against adaptive quadrature, within 1e-3 (shape .5 rises without end at 0)."""
    law = stats.gamma(shape, scale=mean / shape)
    found = EVENTS.marginal(np.array([mean]), np.array([mean**2 / shape]))
    for i in range(3):
        one = EVENTS.take([i])

        def density(rate, one=one):
            return np.exp(one.logpdf(np.array([[rate]]))[0, 0]) * law.pdf(rate)

        ends = [0, 0.01, 0.1, 1, 3, 10, 60]
        total = sum(
            integrate.quad(density, *pair, limit=200)[0] for pair in itertools.pairwise(ends)
        )
        assert found[i] == pytest.approx(np.log(total), abs=1e-3)


def test_draws_have_the_stated_variance():
    """Five standard errors of a variance of 40,000 draws: 5 %."""
    many = NegativeBinomial(
        np.zeros((40_000, 1), int), np.full(40_000, 3.0), np.full((40_000, 1), 5.0)
    )
    draws = many.resampled(np.full((40_000, 1), 2.0), np.random.default_rng(0)).local
    assert draws.var() == pytest.approx(many.sampling_variance(2.0, 0.0)[0], rel=0.05)
    assert draws.mean() == pytest.approx(2.0, abs=0.03)


# Reports ------------------------------------------------------------------------------------------

N_ROWS = np.array([3, 1, 4, 2])
REPORTS = np.array([[1.2], [-0.3], [2.9], [3.4]])


CHANNEL = channels.Laplace(2.0, (0.0, 2.5))


def reported(dispersion):
    message = {"n": N_ROWS, "weight": 1.5 * N_ROWS, "report": (REPORTS - 1.25) / 1.25}
    return CHANNEL.likelihood(message, families.NegativeBinomial(dispersion))


def by_hand(theta, dispersion):
    """The sum over all counts: clipped to the range, noise of scale 2.5 / 2 added."""
    counts, size, exposure = np.arange(3000), N_ROWS / dispersion, 1.5 * N_ROWS
    found = []
    for r, e, report in zip(size, exposure, REPORTS[:, 0], strict=True):
        masses = stats.nbinom.pmf(counts, r, r / (r + e * theta))
        noise = stats.laplace.pdf(report, np.clip(counts / e, 0, 2.5), 1.25)
        found.append(masses @ noise * 1.25)  # in units of half the range
    return np.array(found)


@pytest.mark.parametrize("dispersion", [0.5, 3.0])
def test_reports_by_brute_force(dispersion):
    said = reported(dispersion)
    assert isinstance(said, ReportedOverdispersed)
    theta = np.array([0.2, 1.0, 6.0])
    expected = np.stack([by_hand(each, dispersion) for each in theta], axis=1)
    np.testing.assert_allclose(np.exp(said.logpdf(theta[:, None])), expected, rtol=1e-9)


@pytest.mark.parametrize(("mean", "shape"), [(1.0, 4.0), (3.0, 0.8)])
def test_marginal_of_reports_by_quadrature(mean, shape):
    said, law = reported(0.5), stats.gamma(shape, scale=mean / shape)
    found = np.exp(said.marginal(np.array([mean]), np.array([mean**2 / shape])))
    places = (np.arange(20_000) + 0.5) / 20_000
    expected = np.exp(said.logpdf(law.ppf(places)[:, None])).mean(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_reports_without_dispersion_are_of_poisson_counts():
    message = {"n": N_ROWS, "weight": 1.5 * N_ROWS, "report": (REPORTS - 1.25) / 1.25}
    theta = np.array([[0.2], [1.0], [6.0]])
    poisson = CHANNEL.likelihood(message, families.Poisson())
    said = reported(1e-12)
    np.testing.assert_allclose(said.logpdf(theta), poisson.logpdf(theta), rtol=1e-7)
    moments = np.array([1.0]), np.array([0.4])
    np.testing.assert_allclose(said.marginal(*moments), poisson.marginal(*moments), rtol=1e-4)
