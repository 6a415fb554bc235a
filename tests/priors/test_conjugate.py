"""Conjugate populations: kinds of distributions, and what clients share in draws."""

import numpy as np
import pytest
from scipy.integrate import quad

from ebfed.likelihoods import Binomial, LogVariance, Poisson
from ebfed.priors import Beta, Gamma, InverseGamma
from ebfed.priors.two_moments import (
    BetaDistribution,
    GammaDistribution,
    LogGammaDistribution,
)

KINDS = {
    "beta": (BetaDistribution, 0.3, 0.02),
    "gamma": (GammaDistribution, 2.5, 1.7),
    "log-gamma": (LogGammaDistribution, -0.4, 0.8),
}


@pytest.mark.parametrize("kind", KINDS)
def test_moments_and_tails_are_those_of_the_density(kind):
    family, mean, variance = KINDS[kind]
    each = family.of(np.array(mean), np.array(variance))
    low, high = np.clip(family.support, mean - 40 * variance, mean + 60 * variance)
    powers = [
        quad(lambda x, k=k: x**k * np.exp(each.logpdf(x)), low, high, limit=200)[0]
        for k in range(3)
    ]
    assert powers[0] == pytest.approx(1, abs=1e-8)
    assert powers[1] == pytest.approx(mean, rel=1e-7)
    assert powers[2] - powers[1] ** 2 == pytest.approx(variance, rel=1e-6)
    at = float(each.quantile(0.9))
    assert float(each.below(at)) == pytest.approx(0.9, rel=1e-9)
    assert float(each.above(at)) == pytest.approx(0.1, rel=1e-9)
    share = variance / family.variance_of(mean)[0]
    assert family.share_of(family.dispersion_of(share)) == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_densities_on_the_line_and_slopes_of_means(kind):
    family, mean, variance = KINDS[kind]
    each, step = family.of(np.array(mean), np.array(variance)), 1e-5
    u = family.to_line(mean) + 0.3
    heights, slope = each.on_line(u)
    x = family.from_line(u)
    assert heights == pytest.approx(np.exp(each.logpdf(x)) * family.steepness(x), rel=1e-9)
    sides = [each.on_line(u + side)[0] for side in (-step, step)]
    assert slope == pytest.approx((sides[1] - sides[0]) / (2 * step), rel=1e-5)
    ends = [family.variance_of(mean + side)[0] for side in (-step, step)]
    assert family.variance_of(mean)[1] == pytest.approx((ends[1] - ends[0]) / (2 * step), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_masses_of_cells_add_up_where_the_density_is_infinite(kind):
    family, mean, _ = KINDS[kind]
    at = family.from_line(np.linspace(-6, 6, 50))
    masses = np.exp(family.at(np.array([mean]), np.array([4.0])).log_masses(at, mean))
    assert masses.sum() == pytest.approx(1, rel=1e-9)


def test_log_variances_share_the_error_of_their_mean():
    """As rates do: their differences are known better than they are."""
    rng = np.random.default_rng(0)
    degrees = np.full(10, 3.0)
    squares = np.exp(rng.normal(0, 0.5, 10)) * rng.chisquare(3, 10)
    messages = LogVariance(squares[:, None], degrees)
    prior = InverseGamma().fit(messages)
    posterior = prior._posterior(messages)
    size = 40_000
    draws = posterior.sample(size, 0)[:, :, 0]
    # of 40,000 draws a standard deviation has an error of some 0.5 %, a correlation one of 0.005
    np.testing.assert_allclose(draws.mean(axis=0), posterior.mean[:, 0], atol=0.03)
    np.testing.assert_allclose(draws.std(axis=0), posterior.sd[:, 0], rtol=0.03)
    share = np.sqrt(posterior._common[:, 0]) / posterior.sd[:, 0]
    found = np.corrcoef(draws.T)
    expected = np.outer(share, share)
    off = ~np.eye(10, dtype=bool)
    np.testing.assert_allclose(found[off], expected[off], atol=0.03)
    assert expected[off].max() > 0.05


CASES = {
    "beta": (Beta, Binomial(np.array([[1], [4], [9], [5]]), np.full(4, 10))),
    "gamma": (Gamma, Poisson(np.array([[1], [4], [9], [5]]), np.full(4, 2.0))),
    "variance": (InverseGamma, LogVariance(np.array([[2.0], [5], [11], [3]]), np.full(4, 4.0))),
}


@pytest.mark.parametrize("case", CASES)
def test_a_known_population_is_that_of_its_arguments(case):
    of, messages = CASES[case]
    given = of(3.0, 2.0).fit(messages)
    known = of.known(given.mean_, float(given.dispersion_[0]))
    for prior in (given, known):
        assert prior.variance_ == pytest.approx(given.variance_)
    np.testing.assert_allclose(
        known.posterior(messages).interval(), given.posterior(messages).interval(), rtol=1e-9
    )
    np.testing.assert_allclose(known.log_marginal(messages), given.log_marginal(messages))
