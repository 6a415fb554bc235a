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


def weight(prior, low, high):
    """Share of parameters between these."""
    at = prior.atoms_[:, 0]
    return prior.weights_[(at > low) & (at < high)].sum()


def reduced(messages, price):
    """NPMLE, and what is left of it at a price."""
    ones, nodes = np.ones(len(messages)), messages.nodes(400)
    found = npmle(messages, ones, 400, 1e-6)
    return found, without_outlying(messages, ones, found.atoms, found.weights, nodes, price, 1e-6)


@pytest.mark.parametrize("df", [2, 3, 5])
def test_outliers_of_errors_have_no_atoms(df):
    messages = estimates(df)
    found = npmle(*messages.distinct(), 400, 1e-6)
    furthest = np.abs(messages.values).argmax()
    assert np.abs(found.atoms).max() > 0.8 * np.abs(messages.values[furthest, 0])
    prior = Discrete().fit(messages)
    assert weight(prior, -1, 1) > 0.99
    assert np.abs(prior.posterior(messages).mean[furthest, 0]) < 0.3


@pytest.mark.parametrize("df", [2, 4])
@pytest.mark.parametrize("shape", ["normal", "laplace", "t"])
def test_a_smooth_population_is_found(shape, df):
    """Quartiles of the posterior means are those under the true population."""
    rng = np.random.default_rng(1)
    draw = {
        "normal": rng.standard_normal,
        "laplace": lambda n: rng.laplace(size=n),
        "t": lambda n: rng.standard_t(3, n),
    }
    messages = estimates(df, theta=2 + 2 * draw[shape](N))
    prior = Discrete().fit(messages)
    true = Discrete.known(2 + 2 * draw[shape](4000)[:, None], np.full(4000, 1 / 4000))
    found, expected = (each.posterior(messages).mean[:, 0] for each in (prior, true))
    np.testing.assert_allclose(
        np.quantile(found, [0.25, 0.5, 0.75]), np.quantile(expected, [0.25, 0.5, 0.75]), atol=0.25
    )
    assert prior.n_parameters_ < 12


def test_a_spike_beside_a_smooth_part_is_found():
    rng = np.random.default_rng(2)
    messages = estimates(
        4, n=4 * N, theta=np.where(rng.random(4 * N) < 0.5, 0, rng.normal(0, 5, 4 * N))
    )
    prior = Discrete().fit(messages)
    at = prior.weights_.argmax()
    assert prior.atoms_[at, 0] == pytest.approx(0, abs=0.3)
    assert prior.weights_[at] == pytest.approx(0.5, abs=0.08)
    assert prior.variance_[0] == pytest.approx(12.5, rel=0.1)


def test_some_groups_that_are_far_keep_theirs():
    """Twenty estimates near 30 errors: a single error of two degrees is as large in 1 of 900."""
    prior = Discrete().fit(estimates(2, np.linspace(28, 32, 20)))
    assert weight(prior, 28, 32) == pytest.approx(20 / (N + 20), rel=0.2)


def test_an_estimate_too_far_for_an_error_keeps_its_atom():
    far, near = (Discrete().fit(estimates(3, [place])) for place in (1e5, 30.0))
    assert far.atoms_.max() == pytest.approx(1e5, rel=1e-3)
    assert weight(near, 3, np.inf) < 1e-4


def test_the_likelihood_that_is_given_up_is_told():
    messages = estimates(3)
    first = npmle(*messages.distinct(), 400, 1e-8 * N)
    prior = Discrete().fit(messages)
    best = np.log(messages.relative(first.atoms[:, None]) @ first.weights).sum()
    reached = np.log(messages.relative(prior.atoms_) @ prior.weights_).sum()
    assert best - reached > 0.1
    assert prior.duality_gap_ == pytest.approx(best - reached + first.gap, rel=1e-3)
    assert prior.log_marginal(messages).sum() == pytest.approx(
        reached + messages.log_peak().sum(), rel=1e-10
    )


def test_weights_of_what_is_left_are_the_likeliest():
    """Of two clusters, which no smooth part can stand for."""
    messages = estimates(4, theta=np.where(np.arange(N) % 3, 0.0, 60.0))
    prior = Discrete().fit(messages)
    likelihoods = messages.relative(prior.atoms_)
    rises = (1 / (likelihoods @ prior.weights_)) @ likelihoods - N
    assert len(prior.atoms_) < 5
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
    found, left = reduced(estimates(3), 0.0)
    np.testing.assert_array_equal(left.atoms, found.atoms)
    assert left.loss == pytest.approx(0.0, abs=1e-6)


def test_one_part_is_left_at_a_high_price():
    _, left = reduced(estimates(3), 1e9)
    assert left.n_free in (1, 2)
    assert left.weights.sum() == pytest.approx(1, abs=0.01)


def test_sparse_estimates_keep_their_atoms():
    """Where the population is much wider than errors and estimates are few, no node is near."""
    x = np.random.default_rng(3).normal(0, 1e6, 100)
    messages = StudentT(x[:, None], np.ones((100, 1)), np.full(100, 3.0))
    np.testing.assert_allclose(Discrete().fit(messages).posterior(messages).mean[:, 0], x, atol=1)


def test_an_estimate_that_no_smooth_part_reaches_keeps_its_atom():
    """With 200 degrees of freedom its likelihood is zero at all others."""
    prior = Discrete().fit(estimates(200, [1e7]))
    assert prior.atoms_.max() == pytest.approx(1e7, rel=1e-6)
