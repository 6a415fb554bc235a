"""Rates of groups within parents: the likelihood, estimates and their errors."""

from functools import partial

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta, betabinom, gamma, nbinom

from ebfed.likelihoods import Binomial, Poisson
from ebfed.priors import Beta, Gamma
from ebfed.priors.base import OwnReports
from ebfed.priors.nested import NestedBeta, NestedGamma, within

STATES = np.repeat(np.arange(8.0), 10)[:, None]


def parents(n=8, seed=0):
    rng = np.random.default_rng(seed)
    return rng, rng.beta(3, 2, n)[np.repeat(np.arange(n), 10)]


@pytest.fixture(scope="module")
def binomial():
    rng, mean = parents()
    trials = rng.integers(2, 10, 80)
    return Binomial(rng.binomial(trials, rng.beta(6 * mean, 6 * (1 - mean)))[:, None], trials)


@pytest.fixture(scope="module")
def poisson():
    rng, mean = parents(seed=1)
    exposure = rng.uniform(1, 6, 80)
    return Poisson(rng.poisson(exposure * rng.gamma(6, mean / 6))[:, None], exposure)


KINDS = {"beta": (NestedBeta, Beta), "gamma": (NestedGamma, Gamma)}


def densities(kind, likelihood, point):
    """Density of a parent's mean, and the probability of its groups, by scipy."""
    mean, above, own = point
    if kind == "beta":
        z, n = likelihood.successes[:, 0], likelihood.trials
        return (
            lambda m: beta(mean / above, (1 - mean) / above).pdf(m),
            lambda m, some: betabinom(n[some], m / own, (1 - m) / own).pmf(z[some]).prod(),
            1.0,
        )
    z, e = likelihood.counts[:, 0], likelihood.exposure
    return (
        lambda m: gamma(1 / above, scale=mean * above).pdf(m),
        lambda m, some: nbinom(1 / own, 1 / (1 + own * m * e[some])).pmf(z[some]).prod(),
        10.0,
    )


def log_likelihood(kind, likelihood, point):
    """Sum over states of the log of an integral over the state's mean."""
    density, chance, end = densities(kind, likelihood, point)
    total = 0.0
    for state in range(8):
        some = STATES[:, 0] == state
        peak = max(np.linspace(0.01, end * 0.99, 100), key=lambda m: density(m) * chance(m, some))
        ends = [max(peak - end / 10, 0), min(peak + end / 10, end)]
        product = partial(lambda some, m: density(m) * chance(m, some), some)
        whole = quad(product, 0, end, points=[*ends, peak], limit=200, epsrel=1e-7)
        total += np.log(whole[0])
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_maximise_the_integrated_likelihood(kind, request):
    likelihood = request.getfixturevalue({"beta": "binomial", "gamma": "poisson"}[kind])
    prior = KINDS[kind][0](["state"]).fit(likelihood, STATES)
    point = np.array([prior.mean_[0], prior.dispersion_above_, prior.dispersion_])
    best = log_likelihood(kind, likelihood, point)
    # up to factors that the parameters are not in
    z = likelihood.successes[:, 0] if kind == "beta" else likelihood.counts[:, 0]
    single = KINDS[kind][1]().fit(likelihood)
    rest = single.log_marginal(likelihood).sum()
    plain = (
        betabinom(likelihood.trials, single.alpha_, single.beta_).logpmf(z)
        if kind == "beta"
        else nbinom(
            single.shape_, single.shape_ / (single.shape_ + single.mean_ * likelihood.exposure)
        ).logpmf(z)
    )
    # the grid's error
    assert prior.joint_log_marginal_ - rest == pytest.approx(best - plain.sum(), abs=1e-2)
    for j in range(3):
        for factor in (0.93, 1.07):
            other = point.copy()
            other[j] *= factor
            assert log_likelihood(kind, likelihood, other) < best + 1e-4


def test_a_state_is_between_its_own_rate_and_that_of_all(binomial):
    prior = NestedBeta(["state"]).fit(binomial, STATES)
    rates = binomial.successes[:, 0].reshape(8, 10).sum(axis=1) / binomial.trials.reshape(
        8, 10
    ).sum(axis=1)
    means = prior.at(np.arange(8.0)[:, None]).mean_[:, 0]
    assert np.all(np.abs(means - prior.mean_) < np.abs(rates - prior.mean_) + 0.03)
    assert np.corrcoef(means, rates)[0, 1] > 0.98


@pytest.mark.parametrize("kind", KINDS)
def test_posterior_is_that_of_quadrature(kind, request):
    """Mean of a county, integrated over the state's mean and the county's own rate."""
    likelihood = request.getfixturevalue({"beta": "binomial", "gamma": "poisson"}[kind])
    prior = KINDS[kind][0](["state"]).fit(likelihood, STATES).without_doubt()
    point = (prior.mean_[0], prior.dispersion_above_, prior.dispersion_)
    density, chance, end = densities(kind, likelihood, point)
    some, own = STATES[:, 0] == 0, prior.dispersion_
    means = np.linspace(1e-4, end - 1e-4, 1500)
    weights = np.array([density(m) * chance(m, some) for m in means])
    if kind == "beta":
        each = (means / own + likelihood.successes[0, 0]) / (1 / own + likelihood.trials[0])
    else:
        shape = 1 / own
        each = (shape + likelihood.counts[0, 0]) / (shape / means + likelihood.exposure[0])
    expected = weights @ each / weights.sum()
    found = prior.at(STATES).posterior(likelihood).mean[0, 0]
    assert found == pytest.approx(expected, abs=2e-3)  # nodes are joined


def test_order_and_numbers_of_states_do_not_matter(binomial):
    prior = NestedBeta(["state"]).fit(binomial, STATES)
    order = np.random.default_rng(2).permutation(80)
    again = NestedBeta(["state"]).fit(binomial.take(order), 50 - 3 * STATES[order])
    assert again.dispersion_ == pytest.approx(prior.dispersion_, rel=1e-4)
    assert again.joint_log_marginal_ == pytest.approx(prior.joint_log_marginal_, rel=1e-9)


def test_states_that_are_alike_have_no_spread():
    rng = np.random.default_rng(3)
    trials = np.full(400, 10)
    likelihood = Binomial(rng.binomial(trials, rng.beta(5, 5, 400))[:, None], trials)
    states = np.repeat(np.arange(20.0), 20)[:, None]
    prior = NestedBeta(["state"]).fit(likelihood, states)
    single = Beta().fit(likelihood)
    assert prior.spreads_above_["state"][0] < 0.05
    assert 1 / prior.dispersion_ == pytest.approx(single.concentration_[0], rel=0.2)
    found = prior.at(states).posterior(likelihood).mean
    assert np.abs(found - single.posterior(likelihood).mean).max() < 0.03


def test_one_state_is_one_level(binomial):
    prior = NestedBeta(["state"]).fit(binomial, np.zeros((80, 1)))
    single = Beta().fit(binomial)
    found = prior.at(np.zeros((80, 1))).posterior(binomial).mean
    assert np.abs(found - single.posterior(binomial).mean).max() < 0.02


def test_outcomes_that_are_all_alike():
    likelihood = Binomial(np.zeros((80, 1), int), np.full(80, 5))
    with pytest.warns(UserWarning, match="Every outcome is 0"):
        prior = NestedBeta(["state"]).fit(likelihood, STATES)
    np.testing.assert_allclose(prior.at(STATES).posterior(likelihood).mean, 0.0, atol=1e-12)
    assert any("Every outcome is 0" in note for note in prior.notes_)


def test_rows_of_new_counties_tell_of_new_states(binomial):
    prior = NestedBeta(["state"]).fit(binomial, STATES)
    own = Binomial(np.array([[20]]), np.array([20]))
    there = prior.at(np.array([[99.0]]))
    member = there.posterior(own).mean[0, 0]
    silent = OwnReports(np.full((1, 1), np.inf), None, np.full((1, 1), np.nan))
    new = there.posterior_of_members(own, silent).mean[0, 0]
    assert prior.mean_[0] < member < new < 1


def test_draws_of_counties_of_a_state_go_together(binomial):
    """New counties share what is not known of their state; those of two states nothing."""
    prior = NestedBeta(["state"]).fit(binomial, STATES)
    empty = Binomial(np.zeros((3, 1), int), np.zeros(3, int))
    posterior = prior.at(np.array([[2.0], [2.0], [5.0]])).posterior(empty)
    draws = posterior.sample(20_000, 0)[:, :, 0]
    np.testing.assert_allclose(draws.mean(axis=0), posterior.mean[:, 0], atol=0.01)
    np.testing.assert_allclose(draws.std(axis=0), posterior.sd[:, 0], atol=0.01)
    between = np.corrcoef(draws.T)
    assert between[0, 1] > 0.05 > 0.03 > abs(between[0, 2])  # 0.007 is its standard error


def test_draws_follow_the_population(binomial):
    prior = NestedBeta(["state"]).fit(binomial, STATES)
    draws = prior.sample(20_000, 0)[:, 0]
    assert draws.mean() == pytest.approx(prior.nodes_ @ prior.population_shares_, abs=0.01)
    edges = np.linspace(0.05, 0.95, 10)
    shares = np.histogram(draws, edges)[0] / 20_000
    at = (edges[1:] + edges[:-1]) / 2
    np.testing.assert_allclose(np.exp(prior.logpdf(at[:, None])) * 0.1, shares, atol=0.01)


def test_wrong_arguments_are_refused(binomial):
    with pytest.raises(ValueError, match="parents of groups must be given"):
        NestedBeta().fit(binomial)
    with pytest.raises(ValueError, match="has one level above the groups"):
        NestedBeta(["country", "state"]).fit(binomial, np.zeros((80, 2)))
    with pytest.raises(ValueError, match="fitted by maximum likelihood"):
        within(Beta(method="moments"), ["state"])
    with pytest.raises(ValueError, match="fitted by maximum likelihood"):
        within(Gamma(1.0, 2.0), ["state"])
