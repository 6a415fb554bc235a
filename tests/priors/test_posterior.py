"""Probabilities of a posterior on both sides of a threshold."""

import numpy as np
import pytest
from scipy import stats

import ebfed as eb
from ebfed.priors import Beta, Gamma, Normal

RNG = np.random.default_rng(4)
VALUES, ERRORS = RNG.normal(0, 1.5, 9), RNG.uniform(0.5, 1.5, 9)
WON, TRIALS = np.array([1, 7, 20, 39, 40]), np.full(5, 40)
COUNTS = np.array([[0], [2], [5], [30]])

POSTERIORS = {
    "normal": lambda: eb.posterior_from(VALUES, ERRORS),
    "normal, known": lambda: eb.posterior_from(VALUES, ERRORS, Normal(0.0, 1.0)),
    "point": lambda: eb.posterior_from(VALUES, ERRORS, "point_normal", integrate=False),
    "atoms": lambda: eb.posterior_from(VALUES, ERRORS, "npmle"),
    "Laplace": lambda: eb.posterior_from(VALUES, ERRORS, "laplace", integrate=False),
    "beta": lambda: eb.BernoulliEB().fit(eb.Summary.from_counts(WON, TRIALS)).posterior(),
    "gamma": lambda: eb.PoissonEB().fit(COUNTS).posterior(),
}


@pytest.mark.parametrize("name", POSTERIORS)
def test_probabilities_above_and_below_sum_to_one(name):
    posterior = POSTERIORS[name]()
    each = posterior.mean + np.linspace(-1, 1, len(posterior))[:, None]
    for threshold in (0.3, posterior.quantile(0.5)[2, 0], each):
        both = posterior.prob_above(threshold) + posterior.prob_below(threshold)
        np.testing.assert_allclose(both, 1.0, rtol=0, atol=1e-12)
    # one threshold for each client is that client's entry of a common one
    several = posterior.prob_above(each)
    single = [posterior.prob_above(float(at))[i, 0] for i, at in enumerate(each[:, 0])]
    np.testing.assert_allclose(several[:, 0], single, rtol=1e-12, atol=1e-15)


def test_an_atom_at_the_threshold_is_not_above_it():
    exact = eb.posterior_from([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
    assert exact.prob_above(2.0).ravel().tolist() == [0.0, 0.0, 1.0]
    assert exact.prob_below(2.0).ravel().tolist() == [1.0, 1.0, 0.0]


def test_small_probabilities_keep_their_digits():
    """Where one less the probability below is rounding error alone."""
    normal = eb.posterior_from([0.0], [1.0], Normal(0.0, 1.0), integrate=False)
    expected = stats.norm(scale=np.sqrt(0.5)).sf(9.0)
    np.testing.assert_allclose(normal.prob_above(9.0), expected, rtol=1e-10)
    counts = eb.Summary.from_counts([1], [40])
    rates = eb.BernoulliEB(prior=Beta(1.0, 1.0)).fit(counts)
    expected = stats.beta(2, 40).sf(0.9)
    assert 0 < expected < 1e-30
    np.testing.assert_allclose(rates.posterior().prob_above(0.9), expected, rtol=1e-9)
    events = eb.PoissonEB(prior=Gamma(mean=1.0, shape=2.0)).fit([3])
    expected = stats.gamma(5, scale=1 / 3).sf(40.0)
    assert 0 < expected < 1e-40
    np.testing.assert_allclose(events.posterior().prob_above(40.0), expected, rtol=1e-9)


@pytest.mark.parametrize("prior", ["normal", "point_normal", "laplace", "log_spline", "npmle"])
@pytest.mark.parametrize("integrate", [True, False])
def test_a_threshold_for_each_client(prior, integrate):
    """One of shape (n,) was an error of NumPy's, or a table of all clients at all thresholds."""
    x = np.array([0.1, 0.5, -0.3, 1.0, 2.0, 4.0])
    posterior = eb.posterior_from(x, np.full(6, 0.4), prior=prior, integrate=integrate)
    for ask in (posterior.prob_below, posterior.prob_above):
        each = np.array([ask(value)[i] for i, value in enumerate(x)])
        np.testing.assert_allclose(ask(x), each, atol=1e-12)
        np.testing.assert_allclose(ask(list(x)), ask(x[:, None]), atol=0)
        for wrong in (x[:3], np.zeros((6, 2)), np.zeros((2, 6, 1)), np.nan, "a", None):
            with pytest.raises(ValueError, match=r"threshold must be a number"):
                ask(wrong)


def test_arguments_that_are_no_numbers_are_refused_in_words():
    posterior = eb.posterior_from([0.1, 0.5, 4.0], [0.4] * 3, prior="point_normal")
    for q in ([0.1, 0.9], "a", None, np.nan):
        with pytest.raises(ValueError, match="q must lie between 0 and 1"):
            posterior.quantile(q)
    for null in ("a", None, np.nan):
        with pytest.raises(ValueError, match="null must be a finite number"):
            posterior.lfdr(null)
