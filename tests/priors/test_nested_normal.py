"""Normal populations of parents: posteriors, errors and draws are those of the joint normal."""

import numpy as np
import pytest

from ebfed.likelihoods import Binomial, Gaussian
from ebfed.priors import IdentificationWarning, Normal
from ebfed.priors.base import OwnReports
from ebfed.priors.nested import NestedNormal, within


@pytest.fixture(scope="module")
def messages():
    rng = np.random.default_rng(0)
    parents = np.repeat(np.arange(12.0), rng.integers(2, 9, 12))
    n = rng.integers(1, 6, len(parents))
    values = rng.normal(0, 2, 12)[parents.astype(int)] + rng.normal(0, 1, len(n))
    values += rng.normal(0, 1 / np.sqrt(n))
    return Gaussian(values[:, None], 1 / n[:, None]), parents[:, None]


@pytest.fixture(scope="module")
def prior(messages):
    return NestedNormal(["state"]).fit(*messages)


@pytest.fixture(scope="module")
def dense(messages, prior):
    """Mean and covariance of all parameters given all messages, with a flat mean."""
    likelihood, parents = messages
    between = prior.variance_[0] * np.eye(len(parents))
    between += prior.above_[0, 0] * (parents == parents.T)
    precision = np.linalg.inv(between + np.diag(likelihood.variances[:, 0]))
    weight = precision.sum()
    mean = precision.sum(axis=0) @ likelihood.values[:, 0] / weight
    rest = 1 - between @ precision.sum(axis=1)
    estimates = mean + between @ precision @ (likelihood.values[:, 0] - mean)
    known = between - between @ precision @ between
    return estimates, known, known + np.outer(rest, rest) / weight


def members(prior, messages):
    """Posterior of the groups of the fit, with variances as fitted."""
    likelihood, parents = messages
    one = prior.at(parents)._like({})
    one.variance_variance_ = np.zeros(1)
    own = OwnReports(np.zeros(likelihood.values.shape), None, likelihood.values)
    return one.posterior_of_members(likelihood, own)


def test_estimates_are_the_best_linear_ones(prior, messages, dense):
    posterior = members(prior, messages)
    np.testing.assert_allclose(posterior.mean[:, 0], dense[0], rtol=1e-10)
    np.testing.assert_allclose(posterior.sd[:, 0] ** 2, np.diag(dense[2]), rtol=1e-10)


def test_without_doubt_the_mean_of_all_is_known(prior, messages, dense):
    posterior = members(prior.without_doubt(), messages)
    np.testing.assert_allclose(posterior.sd[:, 0] ** 2, np.diag(dense[1]), rtol=1e-10)


def test_draws_have_the_joint_covariance(prior, messages, dense):
    draws = members(prior, messages).sample(20_000, 1)[:, :, 0]
    # four standard errors of a covariance of 20,000 draws
    limit = 4 * 1.5 * np.diag(dense[2]).max() / np.sqrt(20_000)
    assert np.abs(np.cov(draws.T) - dense[2]).max() < limit


def test_new_groups_have_what_is_known_of_their_parent(prior, messages):
    """A group without data that is in the fit says what a new one is."""
    likelihood, parents = messages
    more = Gaussian(
        np.append(likelihood.values, [[0.0]], axis=0),
        np.append(likelihood.variances, [[np.inf]], axis=0),
    )
    keys = np.append(parents, [[3.0]], axis=0)
    again = NestedNormal(["state"]).fit(more, keys)
    silent = members(again, (more, keys))
    empty = Gaussian(np.zeros((2, 1)), np.full((2, 1), np.inf))
    there = prior.at(np.array([[3.0], [99.0]]))
    new = there.posterior(empty, integrate=False)
    one = members(again.without_doubt(), (more, keys))
    np.testing.assert_allclose(new.mean[0], silent.mean[-1], rtol=1e-8)
    np.testing.assert_allclose(new.sd[0], one.sd[-1], rtol=1e-8)
    np.testing.assert_allclose(new.mean[1], prior.centre_)
    np.testing.assert_allclose(new.sd[1] ** 2, prior.variance_ + prior.above_[0])


def test_likelihood_is_that_of_the_joint_normal(prior, messages):
    from scipy.stats import multivariate_normal

    likelihood, parents = messages
    covariance = np.diag(likelihood.variances[:, 0]) + prior.above_[0, 0] * (parents == parents.T)
    covariance += prior.variance_[0] * np.eye(len(parents))
    mean = np.full(len(parents), prior.centre_[0])
    expected = multivariate_normal(mean, covariance).logpdf(likelihood.values[:, 0])
    assert prior.joint_log_marginal_ == pytest.approx(expected, rel=1e-10)


def test_plausible_variances_surround_the_fit(prior):
    """Twelve states: their variance is hardly known, and larger ones are plausible."""
    above, weights = prior.plausible_["above_"][:, 0, 0], prior.plausible_["weights"][:, 0]
    assert weights.sum() == pytest.approx(1)
    assert above.min() < 0.6 * prior.above_[0, 0] < 1.5 * prior.above_[0, 0] < above.max()
    assert weights @ above > prior.above_[0, 0]


def test_well_known_variances_need_no_sum():
    rng = np.random.default_rng(3)
    parents = np.repeat(np.arange(1500.0), 4)[:, None]
    values = np.repeat(rng.normal(0, 1, 1500), 4) + rng.normal(0, 1, 6000)
    noise = np.full((6000, 1), 0.04)
    prior = NestedNormal(["state"]).fit(Gaussian(values[:, None], noise), parents)
    assert prior.plausible_ is None
    assert prior.variance_variance_[0] == pytest.approx(2 / 4500, rel=0.1)  # of 4500 differences


def test_of_three_levels_the_lowest_known_counts():
    rng = np.random.default_rng(4)
    top, middle = np.repeat(np.arange(6.0), 20), np.tile(np.repeat(np.arange(5.0), 4), 6)
    values = rng.normal(0, 2, 6)[top.astype(int)] + rng.normal(0, 0.5, 120)
    keys = np.column_stack([top, middle])
    prior = NestedNormal(["country", "state"]).fit(
        Gaussian(values[:, None], np.full((120, 1), 0.1)), keys
    )
    there = prior.at(np.array([[2.0, 3.0], [2.0, 9.0], [9.0, 3.0]]))
    place = np.flatnonzero((prior.node_keys_ == [2.0, 3.0]).all(axis=1))
    country = np.flatnonzero((prior.node_keys_[:, 0] == 2) & np.isnan(prior.node_keys_[:, 1]))
    np.testing.assert_allclose(there.mean_[0], prior.node_means_[place[0]])
    np.testing.assert_allclose(there.mean_[1], prior.node_means_[country[0]])
    np.testing.assert_allclose(there.mean_[2], prior.centre_)
    assert np.all(np.diff(there.mean_variance_[:, 0]) > 0)


def test_what_is_not_identified_is_said(messages):
    likelihood, parents = messages
    one = NestedNormal(["state"]).fit(likelihood, np.zeros_like(parents))
    assert "No parent has two groups of level 'state'" in one.notes_[0]
    alone = NestedNormal(["state"]).fit(likelihood, np.arange(len(parents))[:, None])
    assert any("Every state has one group" in note for note in alone.notes_)
    two = NestedNormal(["state"]).fit(likelihood, (parents > 5).astype(float))
    assert any("Level 'state' has 2 groups" in note for note in two.notes_)
    with pytest.warns(IdentificationWarning, match="Only one group"):
        NestedNormal(["state"]).fit(likelihood.take(slice(1)), parents[:1])


def test_wrong_arguments_are_refused(messages):
    likelihood, parents = messages
    with pytest.raises(ValueError, match="parents of groups must be given"):
        NestedNormal().fit(likelihood)
    with pytest.raises(ValueError, match=r"must have shape \(n, 2\)"):
        NestedNormal(["country", "state"]).fit(likelihood, parents)
    with pytest.raises(ValueError, match="method must be 'reml' or 'ml' with levels"):
        NestedNormal(method="moments").fit(likelihood, parents)
    with pytest.raises(ValueError, match="each column with its own"):
        within(Normal(covariance="spherical"), ["state"])
    counts = Binomial(np.array([[1]]), np.array([3]))
    with pytest.raises(TypeError, match="lives on"):
        NestedNormal().fit(counts, np.zeros((1, 1)))
