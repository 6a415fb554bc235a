"""Populations that few groups do not tell from the fitted one."""

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp, roots_hermitenorm
from scipy.stats import chi2

import ebfed as eb
from ebfed.regression.numerics.spread_doubt import MANY, variance_nodes


def draw(m, seed, spread=0.6, n=6):
    rng = np.random.default_rng(seed)
    groups, x = np.repeat(np.arange(m), n), rng.normal(size=m * n)
    between = rng.normal(size=m)[groups]
    z = 0.5 + 0.3 * x + 0.2 * between + rng.normal(0, spread, m)[groups]
    return np.column_stack([x, between]), rng.poisson(np.exp(z)), groups


@pytest.mark.parametrize(("n", "lost"), [(8, 1), (20, 3), (500, 2)])
def test_without_noise_the_variance_is_scaled_inverse_chi_squared(n, lost):
    """Sums of squares ``n T`` over chi-squared numbers of n - k degrees of freedom."""
    values, weights = variance_nodes(0.0, 0.7, n, lost)
    p = (np.arange(20_000) + 0.5) / 20_000
    u = np.log(n * 0.7 / chi2(n - lost).ppf(p))
    assert abs(weights.sum() - 1) < 1e-12
    for power in (1, 2, 3):
        exact = np.mean((u - u.mean()) ** power)
        ours = weights @ (np.log(values) - weights @ np.log(values)) ** power
        # of 20,000 points, tails are cut
        assert abs(ours - exact) < 0.02 * np.std(u) ** power
    assert abs(weights @ np.log(values) - u.mean()) < 1e-3


def test_no_variance_is_negative():
    for noise in (0.1, 1.0, 10.0):
        values, weights = variance_nodes(noise, 0.3, 8, 2)
        assert (values >= 0).all()
        assert (weights > 0).all()


def test_estimates_stay_and_intervals_widen():
    X, y, groups = draw(8, 0)
    fit = eb.GeneralizedEB("poisson", varying=["intercept"]).fit(X, y, groups=groups)
    known = fit._population().posterior_given_spread(fit.clients_)
    found = fit.posterior()
    np.testing.assert_array_equal(found.mean, known.mean)
    assert (found.sd[:, 0] > known.sd[:, 0]).all()
    # that of a column of groups is less known at a larger spread, too
    assert (found.sd[:, 1:] >= (1 - 1e-9) * known.sd[:, 1:]).all()
    again = eb.LogisticEB(varying=["intercept"]).fit(X, y > 1, groups=groups)
    known = again._population().posterior_given_spread(again.clients_)
    assert (again.posterior().sd[:, 0] > known.sd[:, 0]).all()


def test_posterior_is_that_of_a_prior_of_the_spread():
    """Mean square error about the estimate, by integrating over mean and spread on a grid.

    Of 10 groups; the density of the spread is flat in ``log(v + d)``, d the sampling variance of
    the log of a typical rate.
    """
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(10), 3)
    y = rng.poisson(np.exp(1.0 + rng.normal(0, 0.6, 10))[groups])
    fit = eb.GeneralizedEB("poisson", fit_intercept=False).fit(np.ones((30, 1)), y, groups=groups)
    total = np.bincount(groups, y)
    noise = 1 / (3 * np.exp(fit.mean_[0] + fit.covariance_[0, 0] / 2))
    t, w = roots_hermitenorm(61)
    log_w = np.log(w / w.sum())
    mass, first, second = [], [], []
    for mean in np.linspace(-0.5, 2.5, 61):
        for u in np.linspace(np.log(noise), np.log(12.0), 120)[1:]:
            z = mean + np.sqrt(np.exp(u) - noise) * t
            of_groups = total[:, None] * z - 3 * np.exp(z) + log_w
            evidence = logsumexp(of_groups, axis=1)
            share = np.exp(of_groups - evidence[:, None])
            mass.append(evidence.sum() - gammaln(total + 1.0).sum())
            first.append(share @ z)
            second.append(share @ z**2)
    mass = np.exp(np.array(mass) - max(mass))
    mass /= mass.sum()
    centre = fit.posterior().mean[:, 0]
    error = mass @ (np.array(second) - 2 * np.array(first) * centre + centre**2)
    np.testing.assert_allclose(fit.posterior().sd[:, 0], np.sqrt(error), rtol=0.08)
    known = fit._population().posterior_given_population(fit.clients_).sd[:, 0]
    assert (known < np.sqrt(error)).all()


@pytest.mark.filterwarnings("ignore:Columns of X are collinear")
def test_sums_have_the_same_populations():
    X, y, groups = draw(9, 3)
    X = np.column_stack([X, np.ones(len(y)), X[:, 1] ** 2])
    fits = [
        eb.GeneralizedEB("poisson", varying=["intercept"], share=share).fit(X, y, groups=groups)
        for share in ("groups", "sums")
    ]
    for name in ("node_weights", "node_means"):
        ours, theirs = (fit._result[name] for fit in fits)
        assert len(ours) == 3
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("covariance", ["diag", "full", "spherical"])
def test_every_parameter_of_the_spread_has_its_own(covariance):
    X, y, groups = draw(12, 4, n=12)
    fit = eb.GeneralizedEB("poisson", covariance, varying=["intercept", 0]).fit(X, y, groups=groups)
    assert len(fit._result["node_weights"]) == {"diag": 6, "full": 8, "spherical": 3}[covariance]
    known = fit._population().posterior_given_spread(fit.clients_)
    assert (np.linalg.eigvalsh(fit.posterior().covariance) > -1e-9).all()
    # a root of a full covariance has columns that trade places: a group may lose a little
    assert (fit.posterior().sd >= known.sd * (0.95 if covariance == "full" else 1 - 1e-9)).all()


def test_the_spread_is_unknown_where_it_is_estimated_as_zero():
    X, y, groups = draw(8, 1, spread=0.0)
    fit = eb.GeneralizedEB("poisson", varying=["intercept"]).fit(X, y, groups=groups)
    assert fit.covariance_[0, 0] == 0
    known = fit._population().posterior_given_spread(fit.clients_)
    assert (fit.posterior().sd[:, 0] > known.sd[:, 0]).all()
    np.testing.assert_array_equal(fit.posterior().mean, known.mean)


def test_of_many_groups_the_spread_is_known():
    rng = np.random.default_rng(0)
    y = rng.poisson(np.exp(rng.normal(0, 0.5, MANY)))
    fit = eb.GeneralizedEB("poisson", fit_intercept=False)
    fit = fit.fit(np.ones((MANY, 1)), y, groups=np.arange(MANY))
    assert not len(fit._result["node_weights"])
