"""Gamma populations: against R, against quadrature, at the edges, and draws of many clients."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import psi

import ebfed as eb
from ebfed.likelihoods import Poisson
from ebfed.priors import Gamma, IdentificationWarning, negative_binomial
from ebfed.priors.discrete_posterior import DiscretePosterior

REFERENCE = Path(__file__).parents[1] / "reference"
MMMEC = pd.read_csv(REFERENCE / "mmmec.csv")
FITS = pd.read_csv(REFERENCE / "glm_nb.csv")
COUNTS = Poisson(MMMEC[["deaths"]].to_numpy(), MMMEC["expected"].to_numpy())
# glm.nb stops at a relative change of 1e-14 of its deviance, ours at a step of 1e-10 of a logarithm
STORED = 1e-8

RNG = np.random.default_rng(11)
EXPOSURE = RNG.uniform(0.5, 6.0, 60)
SOME = Poisson(RNG.poisson(EXPOSURE * RNG.gamma(2.0, 0.7, 60))[:, None], EXPOSURE)


def test_against_glm_nb():
    prior, expected = Gamma().fit(COUNTS), FITS.iloc[0]
    assert np.log(prior.mean_.item()) == pytest.approx(expected["intercept"], rel=STORED)
    assert prior.shape_.item() == pytest.approx(expected["shape"], rel=STORED)
    assert prior.log_marginal(COUNTS).sum() == pytest.approx(expected["loglik"], rel=STORED)
    assert prior.posterior(COUNTS).mean[0, 0] == pytest.approx(expected["first"], rel=STORED)


def test_against_glm_nb_with_a_covariate():
    covariates, expected = MMMEC[["uvb"]].to_numpy(), FITS.iloc[1]
    prior = Gamma().fit(COUNTS, covariates)
    np.testing.assert_allclose(
        prior.coefficients_[:, 0], expected[["intercept", "slope"]].astype(float), rtol=STORED
    )
    assert prior.shape_.item() == pytest.approx(expected["shape"], rel=STORED)
    there = prior.at(covariates)
    assert there.log_marginal(COUNTS).sum() == pytest.approx(expected["loglik"], rel=STORED)
    assert there.posterior(COUNTS).mean[0, 0] == pytest.approx(expected["first"], rel=STORED)


def test_the_maximum_is_one():
    """The log-likelihood falls in every direction, and its slope there is zero."""
    prior = Gamma().fit(SOME)
    at = np.log([prior.mean_.item(), prior.shape_.item()])

    def value(point):
        mean, shape = np.exp(point)
        variance = np.array([mean**2 / shape])
        return SOME.marginal(np.array([mean]), variance).sum()

    best = value(at)
    assert best == pytest.approx(prior.log_marginal(SOME).sum(), rel=1e-12)
    for unit in 1e-3 * np.eye(2):
        ahead, back = value(at + unit), value(at - unit)
        assert max(ahead, back) < best
        assert abs(ahead - back) < 1e-2 * (2 * best - ahead - back)


def test_the_conjugate_posterior_is_that_of_quadrature():
    prior = Gamma(mean=1.3, shape=1.8).fit(SOME)
    found, grid = prior.posterior(SOME), DiscretePosterior(*prior._grid(SOME), SOME)
    np.testing.assert_allclose(found.mean, grid.mean, rtol=5e-4)
    np.testing.assert_allclose(found.sd, grid.sd, rtol=1e-3)
    exact = stats.gamma(1.8 + SOME.counts, scale=1 / (1.8 / 1.3 + EXPOSURE[:, None]))
    np.testing.assert_allclose(found.mean, exact.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.sd, exact.std(), rtol=1e-12)
    np.testing.assert_allclose(found.quantile(0.1), exact.ppf(0.1), rtol=1e-9)
    np.testing.assert_allclose(found.prob_below(1.0), exact.cdf(1.0), rtol=1e-9)


def test_groups_that_differ_by_chance_alone():
    counts = Poisson(np.full((40, 1), 6), np.full(40, 3.0))
    prior = Gamma().fit(counts)
    assert np.isinf(prior.shape_).all()
    assert prior.variance_.item() == 0
    assert "overdispersion is zero" in prior.notes_[0]
    np.testing.assert_allclose(prior.posterior(counts).mean, 2.0)


def test_no_events_at_all():
    counts = Poisson(np.zeros((30, 1), int), np.full(30, 3.0))
    with pytest.warns(IdentificationWarning, match="no events"):
        prior = Gamma().fit(counts)
    posterior = prior.posterior(counts)
    assert np.isfinite(posterior.mean).all()
    assert np.isfinite(posterior.sd).all()
    assert prior.log_marginal(counts).sum() == 0


def test_one_group_and_none():
    with pytest.warns(IdentificationWarning, match="Only one group"):
        prior = Gamma().fit(Poisson(np.array([[4]]), np.array([2.0])))
    assert prior.mean_.item() == pytest.approx(2.0)
    with pytest.warns(IdentificationWarning, match="No client has data"):
        Gamma().fit(Poisson(np.zeros((2, 1), int), np.zeros(2)))


def test_a_group_without_exposure_has_the_population():
    prior = Gamma().fit(SOME)
    nothing = prior.posterior(Poisson(np.zeros((1, 1), int), np.zeros(1)))
    assert nothing.mean.item() == pytest.approx(prior.mean_.item())
    assert nothing.sd.item() >= np.sqrt(prior.variance_.item())


def test_the_unit_of_exposure_does_not_matter():
    prior, other = Gamma().fit(SOME), Gamma().fit(Poisson(SOME.counts, 1000 * EXPOSURE))
    np.testing.assert_allclose(other.mean_, prior.mean_ / 1000, rtol=1e-9)
    np.testing.assert_allclose(other.shape_, prior.shape_, rtol=1e-8)


def test_coverage_of_intervals():
    """90 % intervals of 20,000 groups whose population is fitted: within 1 %, 4 sd of chance."""
    rng = np.random.default_rng(5)
    exposure = rng.uniform(1, 10, 20_000)
    theta = rng.gamma(3.0, 0.4, 20_000)
    counts = Poisson(rng.poisson(exposure * theta)[:, None], exposure)
    lower, upper = Gamma().fit(counts).posterior(counts).interval(0.9)
    held = (lower[:, 0] <= theta) & (theta <= upper[:, 0])
    assert held.mean() == pytest.approx(0.9, abs=0.01)


def test_draws_have_the_moments_of_the_posterior():
    """5,000 draws: means within 5 standard errors of chance, standard deviations within 10 %."""
    posterior = Gamma().fit(SOME).posterior(SOME)
    draws = posterior.sample(5000, 0)
    away = np.abs(draws.mean(axis=0) - posterior.mean) / (posterior.sd / np.sqrt(5000))
    assert away.max() < 5
    np.testing.assert_allclose(draws.std(axis=0), posterior.sd, rtol=0.1)


@pytest.mark.parametrize("arguments", [{"mean": 1.0}, {"mean": -1.0, "shape": 1.0}])
def test_bad_arguments(arguments):
    with pytest.raises(ValueError, match="mean and shape"):
        Gamma(**arguments).fit(SOME)


@pytest.mark.parametrize("size", [1e7, 1e9, 1e12, 1e15])
def test_large_counts_have_the_shape_of_their_rates(size):
    # a sum over the numbers that counts exceed leaves no digits of the shape
    rates = np.random.default_rng(3).gamma(10, 0.1, 200)
    fit = eb.PoissonEB().fit(np.rint(size * rates))
    expected = gamma_shape_of(rates)
    # noise of counts is 1 / size of the variance of rates
    np.testing.assert_allclose(fit.prior_.shape_, expected, rtol=1e-9 + 20 / size)
    np.testing.assert_allclose(fit.prior_.mean_, size * rates.mean(), rtol=1e-12 + 1 / size)
    counts = np.rint(size * rates)
    lower, upper = fit.posterior().interval()
    np.testing.assert_allclose((upper - lower)[:, 0], 3.92 * np.sqrt(counts), rtol=0.01)


def gamma_shape_of(rates):
    """Shape of greatest likelihood of rates that are seen themselves."""
    gap = np.log(rates.mean()) - np.log(rates).mean()
    return brentq(lambda a: np.log(a) - psi(a) - gap, 0.1, 1e3, xtol=1e-13)


def test_large_and_small_counts_have_one_likelihood():
    # both ways to compute it, where both have their digits
    rng = np.random.default_rng(4)
    exposure = rng.uniform(0.5, 2, 100)
    rows = Poisson(rng.poisson(1e5 * exposure * rng.gamma(5, 0.2, 100))[:, None], exposure)
    once = np.ones(100)
    small = negative_binomial.maximise(rows, once)
    large = negative_binomial._maximise_large(rows, once)
    np.testing.assert_allclose(large, small, rtol=1e-7)
