"""Mixtures of logistic regressions."""

import numpy as np
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import ebfed as eb
from ebfed.testing import check_regression_contract


def clusters(m=400, n=15, p=2, spread=0.4, share=0.3, seed=0):
    """0/1 rows of m clients of two components on opposite sides of zero."""
    rng = np.random.default_rng(seed)
    centre = np.array([1.5, -1.0, 1.0])[:p]
    label = rng.random(m) < share
    theta = np.where(label, -1, 1)[:, None] * centre + spread * rng.normal(size=(m, p))
    groups = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, p))
    y = (rng.random(m * n) < expit((X * theta[groups]).sum(axis=1))).astype(int)
    return X, y, groups, theta, label


@pytest.mark.parametrize(
    "estimator",
    [
        eb.AdaMixClassifier(2, n_init=2, random_state=0),
        eb.AdaMixClassifier(2, covariance="diag", n_init=1, fit_intercept=False, random_state=0),
    ],
    ids=repr,
)
def test_contract(estimator):
    X, y, groups, *_ = clusters(60, 10)
    check_regression_contract(estimator, X, y, groups, tolerance=1e-2)


@pytest.mark.parametrize("estimator", [eb.AdaMixClassifier(2, random_state=0)], ids=repr)
# Its data have no groups, so that every row is one, whose spread nothing identifies.
@pytest.mark.filterwarnings("ignore::ebfed.priors.base.IdentificationWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn(estimator):
    check_estimator(estimator)


def test_one_component_is_the_logistic_mixed_model():
    X, y, groups, *_ = clusters(150)
    one = eb.AdaMixClassifier(1).fit(X, y, groups=groups)
    normal = eb.LogisticEB("spherical").fit(X, y, groups=groups)
    assert one.log_likelihood_ == pytest.approx(normal.log_likelihood_, abs=0.02)
    np.testing.assert_allclose(one.mean_, normal.mean_, atol=0.01)
    np.testing.assert_allclose(one.variances_[0], np.diag(normal.covariance_), rtol=0.02)


def test_population_is_found():
    """Within 5 standard errors or so; far better than one normal population."""
    X, y, groups, theta, label = clusters(1000)
    est = eb.AdaMixClassifier(2, fit_intercept=False, random_state=0).fit(X, y, groups=groups)
    np.testing.assert_allclose(est.weights_, [0.3, 0.7], atol=0.06)
    np.testing.assert_allclose(est.means_, [[-1.5, 1.0], [1.5, -1.0]], atol=0.2)
    np.testing.assert_allclose(np.sqrt(est.variances_), 0.4, atol=0.15)
    found = est.responsibilities()["component_0"].to_numpy() > 0.5
    assert np.mean(found == label) > 0.97
    low, high = est.posterior().interval()
    assert 0.93 < np.mean((low <= theta) & (theta <= high)) < 0.97
    normal = eb.LogisticEB(fit_intercept=False).fit(X, y, groups=groups)
    errors = [np.mean((each.posterior().mean - theta) ** 2) for each in (est, normal)]
    assert errors[0] < 0.6 * errors[1]


def test_posterior_and_probabilities_are_those_of_quadrature():
    X, y, groups, *_ = clusters(600, 20, p=1, spread=0.6)
    est = eb.AdaMixClassifier(2, fit_intercept=False, random_state=0).fit(X, y, groups=groups)
    est.means_covariance_ = np.zeros_like(est.means_covariance_)  # population as known
    line = np.linspace(-8, 8, 4001)
    prior = logsumexp(
        np.log(est.weights_) + norm.logpdf(line[:, None], est.means_.T, np.sqrt(est.variances_.T)),
        axis=1,
    )
    posterior = est.posterior()
    for g in (0, 50, 120):
        own = groups == g
        sign = np.where(y[own] == 1, 1, -1)
        log = prior - np.logaddexp(0, -sign * X[own, 0] * line[:, None]).sum(axis=1)
        mass = np.exp(log - log.max())
        mass /= mass.sum()
        assert posterior.mean[g, 0] == pytest.approx(mass @ line, abs=0.01)
        assert posterior.sd[g, 0] == pytest.approx(
            np.sqrt(mass @ line**2 - (mass @ line) ** 2), abs=0.01
        )
        told = est.predict_proba(np.array([[0.7]]), groups=[g])[0, 1]
        assert told == pytest.approx(mass @ expit(0.7 * line), abs=0.003)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components must be a whole number"),
        ({"covariance": "full"}, "covariance must be"),
        ({"n_rounds": 0}, "n_rounds must be a whole number"),
    ],
)
def test_bad_arguments(arguments, message):
    X, y, groups, *_ = clusters(10)
    with pytest.raises(ValueError, match=message):
        clone(eb.AdaMixClassifier(**arguments)).fit(X, y, groups=groups)
