"""Atoms that stand for outliers of the error, against those that stand for parameters."""

import numpy as np
import pytest

from ebfed.likelihoods import Gaussian, StudentT
from ebfed.priors import Discrete
from ebfed.priors.npmle import npmle
from ebfed.priors.outlying_atoms import LEVEL, without_outlying

N = 2000


def estimates(df, extra=(), n=N, theta=0.0):
    """Estimates of equal errors around theta, and more at given places."""
    rng = np.random.default_rng(0)
    x = np.append(theta + rng.standard_t(df, n), extra)[:, None]
    return StudentT(x, np.ones_like(x), np.full(len(x), float(df)))


def places(messages):
    return Discrete().fit(messages).atoms_[:, 0]


@pytest.mark.parametrize("df", [2, 3, 5])
def test_outliers_of_errors_have_no_atoms(df):
    messages = estimates(df)
    found = npmle(*messages.distinct(), 400, 1e-6)
    furthest = np.abs(messages.values).max()
    assert np.abs(found.atoms).max() > 0.8 * furthest
    assert np.abs(places(messages)).max() < 1.0


def test_some_groups_that_are_far_keep_theirs():
    """Twenty estimates near 30 errors: a single error of two degrees is as large in 1 of 900."""
    at = places(estimates(2, np.linspace(28, 32, 20)))
    assert np.abs(at - 30).min() < 1


def test_an_estimate_too_far_for_an_error_keeps_its_atom():
    assert places(estimates(3, [1e5])).max() == pytest.approx(1e5, rel=1e-3)
    assert places(estimates(3, [30.0])).max() < 1.0


def test_the_likelihood_that_is_given_up_is_told():
    messages = estimates(3)
    first = npmle(*messages.distinct(), 400, 1e-8 * N)
    prior = Discrete().fit(messages)
    best = np.log(messages.relative(first.atoms[:, None]) @ first.weights).sum()
    reached = np.log(messages.relative(prior.atoms_) @ prior.weights_).sum()
    assert best - reached > 0.1
    assert prior.duality_gap_ == pytest.approx(best - reached + first.gap, rel=1e-6)
    assert prior.log_marginal(messages).sum() == pytest.approx(
        reached + messages.log_peak().sum(), rel=1e-10
    )


def test_weights_of_what_is_left_are_the_likeliest():
    messages = estimates(4, theta=np.where(np.arange(N) % 3, 0.0, 6.0))
    prior = Discrete().fit(messages)
    likelihoods = messages.relative(prior.atoms_)
    rises = (1 / (likelihoods @ prior.weights_)) @ likelihoods - N
    assert np.abs(rises).max() < 1e-3


def test_normal_errors_are_as_they_were():
    """No normal error is far; of very many degrees of freedom neither."""
    normal = Gaussian(estimates(100).values, np.ones((N, 1)))
    assert normal.outlier_gain(np.ones(N), LEVEL) == 0.0
    messages = StudentT(normal.values, normal.variances, np.full(N, 1e6))
    expected, found = Discrete().fit(normal), Discrete().fit(messages)
    np.testing.assert_allclose(
        found.posterior(messages).mean, expected.posterior(normal).mean, atol=0.02
    )


def test_nothing_is_dropped_without_a_price():
    messages, ones = estimates(3), np.ones(N)
    found = npmle(messages, ones, 400, 1e-6)
    left = without_outlying(messages, ones, found.atoms, found.weights, 0.0, 1e-6)
    np.testing.assert_array_equal(left.atoms, found.atoms)
    assert left.loss == 0.0


def test_one_atom_is_left():
    messages, ones = estimates(3), np.ones(N)
    found = npmle(messages, ones, 400, 1e-6)
    left = without_outlying(messages, ones, found.atoms, found.weights, 1e9, 1e-6)
    assert len(left.atoms) == 1
    np.testing.assert_allclose(left.weights, 1.0)
