"""Intervals of discrete populations by a parametric bootstrap."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.likelihoods import Binomial, Gaussian, Poisson
from ebfed.priors import Discrete

RNG = np.random.default_rng(5)
THETA = RNG.normal(size=(60, 1))
LIKELIHOODS = {
    "gaussian": Gaussian(THETA + RNG.normal(size=(60, 1)), np.ones((60, 1))),
    "binomial": Binomial(RNG.binomial(10, 1 / (1 + np.exp(-THETA))), np.full(60, 10)),
    "poisson": Poisson(RNG.poisson(np.exp(THETA)), np.ones(60)),
}
PRIORS = {"npmle": "npmle", "two": 2, "bic": "bic", "places": [0.1, 0.4, 0.9]}


@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
def test_new_messages_have_the_mean_of_their_parameters(likelihood):
    """Means of 4,000 messages are within five standard errors: false alarms below 1 in 10,000."""
    theta = np.full((60, 1), 0.3)
    rng = np.random.default_rng(1)
    draws = np.array([likelihood.resampled(theta, rng).local for _ in range(4000)])
    error = draws.std() / np.sqrt(draws.size)
    assert draws.mean() == pytest.approx(0.3, abs=5 * error)


def test_a_common_factor_of_the_variances_is_settled():
    messages = Gaussian(np.zeros((3, 1)), np.ones((3, 1)), np.array([40.0]), 10)
    assert np.all(messages.resampled(THETA[:3], RNG).variances == 4.0)


@pytest.mark.parametrize("atoms", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
def test_populations_are_fits_to_new_messages(likelihood, atoms):
    arguments = {"max_atoms": 3, "n_init": 1, "random_state": 0}
    prior = Discrete(atoms, uncertainty="bootstrap", **arguments).fit(likelihood)
    fitted = Discrete(atoms, **arguments).fit(likelihood)
    assert np.array_equal(prior.atoms_, fitted.atoms_)
    populations, weights = prior.populations()
    assert len(populations) == 50
    assert weights == pytest.approx(np.full((50, 1), 1 / 50))
    means = np.array([one.mean_[0] for one in populations])
    assert all(one.weights_.sum() == pytest.approx(1) for one in populations)
    assert 0 < means.std()
    assert abs(means.mean() - fitted.mean_[0]) < 3 * means.std()
    assert not np.array_equal(prior.plausible_["weights_"], fitted.plausible_["weights_"])


def test_the_mean_is_as_uncertain_as_by_theory():
    """The variance of the mean is (V + 1) / m; the sd of 50 fits has an error of 10 %."""
    likelihood = LIKELIHOODS["gaussian"]
    prior = Discrete("npmle", uncertainty="bootstrap").fit(likelihood)
    theory = np.sqrt((prior.variance_ + 1) / 60)
    assert prior.mean_error() == pytest.approx(theory, rel=0.4)


def test_a_fit_is_repeated_exactly():
    fits = [
        Discrete("npmle", uncertainty="bootstrap").fit(LIKELIHOODS["binomial"]) for _ in range(2)
    ]
    assert np.array_equal(*(fit.plausible_["atoms_"] for fit in fits))


def test_point_estimates_are_those_of_the_fit():
    estimates, errors = LIKELIHOODS["gaussian"].values[:, 0], np.ones(60)
    fits = [
        eb.posterior_from(estimates, errors, prior=Discrete("npmle", uncertainty=kind))
        for kind in ("bootstrap", "draws")
    ]
    assert np.array_equal(fits[0].mean, fits[1].mean)
    for fit in fits:
        lower, upper = fit.interval()
        assert np.all(lower < upper)


@pytest.mark.parametrize("weights", [None, [0.5, 0.5]])
def test_few_clients(weights):
    """One client, or a population that is known: nothing fails."""
    prior = Discrete([-1.0, 1.0], weights, uncertainty="bootstrap")
    prior.fit(LIKELIHOODS["gaussian"].take(slice(1)))
    assert (prior.plausible_ is None) == (weights is not None)


def test_no_client_has_data():
    empty = Gaussian(np.zeros((2, 1)), np.full((2, 1), np.inf))
    with pytest.warns(eb.priors.IdentificationWarning, match="No client has data"):
        prior = Discrete("npmle", uncertainty="bootstrap").fit(empty)
    assert prior.plausible_ is None


def test_refusals():
    with pytest.raises(ValueError, match="uncertainty must be 'draws' or 'bootstrap'; got 'jack'"):
        Discrete("npmle", uncertainty="jack").fit(LIKELIHOODS["gaussian"])
    est = eb.BernoulliEB(
        channel=eb.channels.TwoBit(1.0),
        prior=Discrete("npmle", uncertainty="bootstrap"),
        random_state=0,
    )
    with pytest.raises(TypeError, match="exact or have plain Gaussian noise"):
        est.fit(RNG.integers(0, 2, 80), groups=np.repeat(np.arange(20), 4))
