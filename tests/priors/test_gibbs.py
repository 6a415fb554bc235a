"""Draws of places and weights of atoms, against what is known of them exactly."""

import numpy as np
import pytest
from scipy import stats

import ebfed as eb
from ebfed.likelihoods import Binomial, Gaussian, Poisson
from ebfed.priors import Discrete, GaussianMixture
from ebfed.priors.gibbs import atom_draws

SIZE = 2000
# Relative error of a standard deviation from 2000 draws is .016; nodes add some.
CLOSE = 0.08


def draws(rows, atoms, counts=None):
    counts = np.ones(len(rows)) if counts is None else counts
    weights = np.full(len(atoms), 1 / len(atoms))
    return atom_draws(rows, counts, atoms, weights, SIZE)


@pytest.mark.parametrize("error", [1.0, 1e-3])
def test_one_atom_is_the_mean_of_normal_estimates(error):
    """Also where its distribution is narrower than nodes are apart."""
    x = 3 + error * np.random.default_rng(0).normal(size=(60, 1))
    x[0] += 50 * error  # makes the range wide
    places, weights = draws(Gaussian(x, np.full(x.shape, error**2)), x.mean(axis=0)[None])
    sd = error / np.sqrt(60)
    assert places.mean() == pytest.approx(x.mean(), abs=5 * sd / np.sqrt(SIZE) + 0.05 * sd)
    assert places.std() == pytest.approx(sd, rel=CLOSE)
    np.testing.assert_allclose(weights, 1, rtol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_clients_without_data_say_nothing_and_shifts_move_draws(shift):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(30, 2)), np.full((5, 2), 1e3)])
    variances = np.repeat([[1.0], [np.inf]], [30, 5], axis=0)
    atoms = np.array([[-1.0, 0.0], [1.0, 0.0]])
    places, weights = draws(Gaussian(x + shift, variances), atoms + shift)
    alone = draws(Gaussian(x[:30], variances[:30]), atoms)[0]
    assert np.isfinite(places).all()
    assert np.isfinite(weights).all()
    close = 5 * alone.std(axis=0) / np.sqrt(SIZE / 10)  # draws are correlated
    assert (np.abs(places.mean(axis=0) - shift - alone.mean(axis=0)) < close).all()


def test_many_columns_take_no_table_of_nodes():
    x = np.random.default_rng(0).normal(size=(400, 60))
    places, _ = draws(Gaussian(x, np.full((400, 1), 1e-6)), x[:3])
    assert places.shape == (SIZE, 3, 60)


def test_one_rate_has_a_beta_distribution_even_where_nothing_happened():
    rows = Binomial(np.zeros((30, 1), int), np.full(30, 10))
    places, _ = draws(rows, np.array([[1e-12]]))
    exact = stats.beta(1, 301)
    for q in (0.5, 0.975):
        assert np.quantile(places, q) == pytest.approx(exact.ppf(q), rel=0.15)


def test_weights_of_atoms_far_apart_have_a_beta_distribution():
    rows = Poisson(np.repeat([[0], [400]], [30, 10], axis=0), np.ones(40))
    _, weights = draws(rows, np.array([[0.01], [400.0]]))
    exact = stats.beta(11, 31)
    # up to 1e-170 of a client
    assert weights[:, 1].mean() == pytest.approx(exact.mean(), abs=5 * exact.std() / np.sqrt(SIZE))
    assert weights[:, 1].std() == pytest.approx(exact.std(), rel=CLOSE)


def test_counts_are_repeated_rows():
    x = np.array([[-4.0], [4.0]])
    rows, atoms = Gaussian(x, np.ones((2, 1))), x.copy()
    some = draws(rows, atoms, np.array([20.0, 30.0]))[0].std(axis=0)
    all_ = draws(Gaussian(np.repeat(x, [20, 30], axis=0), np.ones((50, 1))), atoms)[0].std(axis=0)
    np.testing.assert_allclose(some, all_, rtol=2 * CLOSE)


def test_no_interval_of_a_discrete_population_has_no_width():
    rng = np.random.default_rng(0)
    x = rng.choice([0.0, 6.0], (40, 1)) + rng.normal(size=(40, 1))
    messages = Gaussian(x, np.ones((40, 1)))
    prior = Discrete(2, random_state=0).fit(messages)
    lower, upper = prior.posterior(messages).interval()
    assert (upper - lower > 0.5).all()
    known = prior.posterior(messages, integrate=False)
    np.testing.assert_array_equal(known.mean, prior.posterior(messages).mean)
    assert (np.subtract(*known.interval()[::-1]) < 1e-9).any()


def test_vectors_have_one_population_for_all_coordinates():
    rng = np.random.default_rng(1)
    theta = rng.choice([0.0, 5.0], (50, 1)) * np.array([1.0, -1.0])
    messages = Gaussian(theta + rng.normal(size=(50, 2)), np.ones((50, 2)))
    posterior = Discrete(2, random_state=0).fit(messages).posterior(messages)
    sample = posterior.sample(500, 0)
    assert np.isfinite(sample).all()
    # draws of both coordinates are of one atom
    near = np.abs(sample - np.array([0.0, 0.0])).max(axis=2) < 1.5
    far = np.abs(sample - np.array([5.0, -5.0])).max(axis=2) < 1.5
    assert (near | far).mean() > 0.99


@pytest.mark.parametrize(
    "prior", [Discrete(2, random_state=0), GaussianMixture(2, random_state=0)], ids=str
)
def test_draws_are_continuous_in_the_data(prior):
    # means that tie are one row, unless rounding tells them apart
    rng = np.random.default_rng(0)
    x = rng.normal(np.where(rng.random(60) < 0.5, -1, 1), 0.5).round(1)
    moved = x.astype(np.float32) + 1e-9 * rng.standard_normal(60)
    assert len(np.unique(x)) < len(np.unique(moved))
    one, other = (eb.posterior_from(each, 0.5, prior=prior) for each in (x, moved))
    # the data differ by 1e-7; draws of other random numbers moved an sd by .02
    np.testing.assert_allclose(one.sd, other.sd, rtol=0, atol=1e-5)
    np.testing.assert_allclose(one.interval(), other.interval(), rtol=0, atol=1e-5)


def test_rows_in_single_precision_have_the_same_deviations():
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(60), 5)
    X = rng.normal(np.where(rng.random(60) < 0.5, -1, 1)[groups], 1.0).round(1)
    fit = [eb.MixtureEB(2, random_state=0).fit(each, groups=groups) for each in (X, np.float32(X))]
    one, other = (each.posterior() for each in fit)
    np.testing.assert_allclose(one.sd, other.sd, rtol=0, atol=1e-5)


def test_few_clients_have_so_many_draws_that_their_errors_do_not_show():
    """Of mirrored messages; with 50 draws in a chain a deviation was .33 for .64, or .80."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random(25) < 0.4, 2.0, 0.0)[:, None] + 0.75 * rng.normal(size=(25, 1))
    found = []
    for sign in (1, -1):
        rows = Gaussian(sign * values, np.full((25, 1), 0.75**2))
        found.append(Discrete(2, random_state=0).fit(rows).posterior(rows).sd)
    np.testing.assert_allclose(*found, atol=0.06)
