"""A fitted population is a value: it is used as it is, wherever a prior is an argument."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed.loading import load_fit
from ebfed.priors import Discrete, IdentificationWarning, Normal

RNG = np.random.default_rng(48)
M = 60
LABELS = np.repeat(np.arange(M), 6)
MEANS = RNG.normal(1.0, 0.4, M)
ESTIMATES = RNG.normal(MEANS, 0.5)
# one row for each of a few groups that were not in the fit, and more of one
NEW = np.array([900, 900, 901, 902])


def rows_of(name, labels):
    """Draw rows of groups for an estimator of this name."""
    rng = np.random.default_rng(len(labels))
    theta = np.exp(rng.normal(0.3, 0.5, labels.max() + 1))[labels]
    draws = {
        "GaussianEB": lambda: rng.normal(theta, 0.7),
        "BernoulliEB": lambda: (rng.random(len(labels)) < theta / (1 + theta)).astype(float),
        "PoissonEB": lambda: rng.poisson(theta).astype(float),
        "NegativeBinomialEB": lambda: rng.negative_binomial(4, 4 / (4 + theta)).astype(float),
        "VarianceEB": lambda: rng.normal(0, np.sqrt(theta)),
        "DurationEB": lambda: rng.exponential(1 / theta),
        "CategoricalEB": lambda: np.array(list("abc"))[rng.integers(0, 3, len(labels))],
    }
    return draws[name]()


POPULATIONS = [
    ("GaussianEB", "normal"),
    ("GaussianEB", "point_laplace"),
    ("GaussianEB", "scale_mixture"),
    ("GaussianEB", "log_spline"),
    ("GaussianEB", "npmle"),
    ("BernoulliEB", "beta"),
    ("BernoulliEB", "npmle"),
    ("PoissonEB", "gamma"),
    ("PoissonEB", "log_spline"),
    ("NegativeBinomialEB", "gamma"),
    ("VarianceEB", "inverse_gamma"),
    ("DurationEB", "gamma"),
    ("CategoricalEB", "dirichlet"),
]


@pytest.mark.parametrize(("name", "prior"), POPULATIONS)
def test_a_fitted_population_is_used_as_it_is(name, prior):
    # same model, three doors: the past fit, its population as an argument, and from a clone
    past = getattr(eb, name)(prior=prior).fit(rows_of(name, LABELS), groups=LABELS)
    X = rows_of(name, NEW)[: len(NEW)]
    expected = past.posterior(X, groups=NEW)
    estimator = clone(getattr(eb, name)(prior=past.prior_))
    with warnings.catch_warnings():
        warnings.simplefilter("error", IdentificationWarning)  # nothing is to be identified
        found = estimator.fit(X, groups=NEW).posterior()
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.sd, expected.sd, rtol=1e-12)
    np.testing.assert_allclose(found.interval(), expected.interval(), rtol=1e-9)
    assert estimator.n_parameters_ == 0
    assert any("earlier fit" in note for note in estimator.notes_)
    assert not any("earlier fit" in note for note in past.notes_), "the argument is not changed"


@pytest.mark.parametrize("prior", ["normal", "laplace", "scale_mixture", "log_spline", "npmle"])
@pytest.mark.parametrize("df", [None, 4.0])
def test_new_estimates_are_shrunk_to_the_past(prior, df):
    past = eb.posterior_from(ESTIMATES, 0.5, prior=prior, df=df)
    new = eb.posterior_from([3.0], [0.5], prior=past.prior, df=df)
    by_hand = past.prior.posterior_of_others(new_message(3.0, 0.5, df))
    np.testing.assert_allclose(new.mean, by_hand.mean, rtol=1e-12)
    assert new.mean[0, 0] < 2.6  # 3.0 where the population was fitted to that estimate
    again = eb.posterior_from([3.0], [0.5], prior=new.prior, df=df)
    np.testing.assert_array_equal(again.interval(), new.interval())


def new_message(value, error, df):
    from ebfed.likelihoods import Gaussian, StudentT

    value, variance = np.array([[value]]), np.array([[error**2]])
    return Gaussian(value, variance) if df is None else StudentT(value, variance, np.array([df]))


def test_fit_prior_fits_anew():
    past = eb.posterior_from(ESTIMATES, 0.5)
    with pytest.warns(IdentificationWarning, match="Only one group"):
        alone = eb.posterior_from([3.0], [0.5], prior=past.prior, fit_prior=True)
    assert alone.mean[0, 0] == 3.0
    assert not past.prior.unfitted().is_fitted
    changed = clone(past.prior).set_params(method="ml")
    assert not changed.is_fitted
    assert past.prior.is_fitted
    assert clone(Normal()).is_fitted is False


def test_correlated_estimates_are_shrunk_to_the_past():
    past = eb.posterior_from(ESTIMATES, 0.5)
    x, errors = [0.0, 3.0], [0.5, 0.8]
    known = {"prior": past.prior, "integrate": False}
    apart = eb.posterior_from(x, errors, **known)
    jointly = eb.posterior_from(x, np.diag(np.square(errors)), **known)
    np.testing.assert_allclose(jointly.mean, apart.mean, rtol=1e-12)
    np.testing.assert_allclose(jointly.sd, apart.sd, rtol=1e-12)
    v = np.array([[0.25, 0.2], [0.2, 0.64]])
    correlated = eb.posterior_from(x, v, prior=past.prior)
    # Bayes: the mean of the population has an error that both share
    of_both = past.prior.variance_[0] * np.eye(2) + past.prior.mean_variance_[0]
    away = np.array(x) - past.prior.mean_[0]
    bayes = past.prior.mean_[0] + of_both @ np.linalg.solve(of_both + v, away)
    np.testing.assert_allclose(correlated.mean[:, 0], bayes, rtol=1e-12)


def test_covariates_are_those_of_the_fit():
    w = RNG.normal(size=M)
    past = eb.posterior_from(ESTIMATES + 2 * w, 0.5, mean=w)
    new = eb.posterior_from([5.0], [0.5], prior=past.prior, mean=[[2.0]])
    assert abs(new.mean[0, 0] - 5.0) < 0.5
    with pytest.raises(ValueError, match="fitted with 1 covariates, and is used as it is; got 0"):
        eb.posterior_from([5.0], [0.5], prior=past.prior)
    with pytest.raises(ValueError, match="fitted with 1 columns, and is used as it is; got 2"):
        eb.GaussianEB(prior=eb.posterior_from(ESTIMATES, 0.5).prior).fit(
            np.zeros((4, 2)), groups=[0, 0, 1, 1]
        )


def test_levels_are_those_of_the_fit():
    county = np.arange(M).repeat(6)
    state = county // 10
    X = RNG.normal(state + MEANS[county], 0.5)
    past = eb.GaussianEB().fit(X, groups=[state, county])
    new, unseen = [np.array([3, 3, 7]), np.array([900, 900, 901])], np.array([3.0, 3.5, 4.0])
    expected = past.posterior(unseen, groups=new)
    found = eb.GaussianEB(prior=past.prior_).fit(unseen, groups=new).posterior()
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.sd, expected.sd, rtol=1e-12)
    with pytest.raises(ValueError, match="no population of groups of no parent"):
        eb.GaussianEB(prior=past.prior_).fit(unseen, groups=new[1])


def test_a_fitted_population_is_written_to_files(tmp_path):
    past = eb.GaussianEB(prior="laplace").fit(rows_of("GaussianEB", LABELS), groups=LABELS)
    fit = eb.GaussianEB(prior=past.prior_).fit(np.ones(4), groups=NEW)
    fit.save(tmp_path / "fit.json")
    read = load_fit(tmp_path / "fit.json")
    assert read.prior.is_fitted
    again = clone(read).fit(np.ones(4), groups=NEW)
    np.testing.assert_array_equal(again.posterior().interval(), fit.posterior().interval())


def test_one_bit_reports_serve_where_nothing_is_to_be_fitted():
    # they carry nothing about a spread, which the population of the past has
    past = eb.BernoulliEB().fit(rows_of("BernoulliEB", LABELS), groups=LABELS)
    channel = eb.channels.OneBit(epsilon=1.0, range=(0, 1))
    rates = eb.BernoulliEB(prior=past.prior_, channel=channel, random_state=0)
    rates.fit(rows_of("BernoulliEB", LABELS), groups=LABELS)
    np.testing.assert_array_equal(rates.prior_.mean_, past.prior_.mean_)


def test_formulas_take_a_fitted_population():
    frame = pd.DataFrame({"y": rows_of("PoissonEB", LABELS), "g": LABELS})
    past = eb.from_formula("y ~ 1 + (1 | g)", frame, family="poisson", prior="gamma")
    new = pd.DataFrame({"y": [9.0], "g": [900]})
    prior = past.estimator_.prior_
    fit = eb.from_formula("y ~ 1 + (1 | g)", new, family="poisson", prior=prior)
    expected = past.posterior(new)
    np.testing.assert_allclose(fit.posterior().mean, expected.mean, rtol=1e-12)


def test_a_known_population_is_one_that_was_fitted():
    atoms, weights = np.array([[0.0], [4.0]]), np.array([0.25, 0.75])
    found = eb.posterior_from([2.0], [1.0], prior=Discrete.known(atoms, weights))
    np.testing.assert_allclose(found.mean, [[3.0]], rtol=1e-12)


def _searches(monkeypatch):
    """Count the searches for plausible populations."""
    from ebfed.priors import beta_binomial, gamma, normal

    calls = []
    for module, name in (
        (beta_binomial, "plausible"),
        (gamma, "_plausible"),
        (normal, "plausible_components"),
    ):
        own = getattr(module, name)

        def counted(*args, own=own):
            calls.append(own)
            return own(*args)

        monkeypatch.setattr(module, name, counted)
    return calls


@pytest.mark.parametrize("estimator", [eb.GaussianEB(), eb.BernoulliEB(), eb.PoissonEB()])
def test_plausible_populations_are_searched_when_they_are_asked_for(monkeypatch, estimator):
    calls = _searches(monkeypatch)
    rng = np.random.default_rng(3)
    rates = rng.beta(8, 8, 30)
    rows = (rng.random((30, 6)) < rates[:, None]).astype(float).ravel()
    fit = clone(estimator).fit(rows, groups=np.repeat(np.arange(30), 6))
    other = clone(fit.prior_)  # a copy has the same
    assert not calls
    _ = fit.posterior().mean
    assert not calls
    fit.posterior().interval(0.9)
    assert len(calls) == 1
    _ = fit.posterior().sd
    found = fit.prior_.plausible_
    assert len(calls) == 1
    again = pickle.loads(pickle.dumps(other))
    for name, values in found.items():
        np.testing.assert_array_equal(again.plausible_[name], values)
    assert other.set_params(**other.get_params()).plausible_ is None
