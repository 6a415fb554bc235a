"""Contracts of priors and of posteriors."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
from sklearn.exceptions import NotFittedError

from ebfed.likelihoods import Likelihood
from ebfed.priors import Posterior, Prior
from ebfed.testing.seed import SEED

__all__ = ["check_posterior", "check_prior"]


def check_prior(prior: Prior, likelihood: Likelihood) -> None:
    """Check a prior on a likelihood that it accepts.

    The fit does not depend on the order of clients. Draws have the fitted mean and variance. EM
    never loses likelihood. A closed form equals quadrature.

    Parameters
    ----------
    prior : Prior, not fitted
    likelihood : Likelihood of at least twenty clients

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> from ebfed.priors import Normal
    >>> rng = np.random.default_rng(0)
    >>> check_prior(Normal(), Gaussian(rng.normal(size=(50, 1)), np.full((50, 1), 0.5)))
    """
    d = likelihood.n_features
    try:
        prior.unfitted().posterior(likelihood)
    except NotFittedError:
        pass
    else:
        raise AssertionError("posterior before fit must raise NotFittedError")
    fitted = prior.unfitted()
    assert fitted.fit(likelihood) is fitted, "fit must return self"
    assert fitted.mean_.shape == fitted.variance_.shape == (d,), "moments must have shape (d,)"
    assert np.all(fitted.variance_ >= 0), "variance_ must not be negative"
    assert all(isinstance(note, str) for note in fitted.notes_), "notes_ must be sentences"
    assert pickle.loads(pickle.dumps(fitted)).mean_.tolist() == fitted.mean_.tolist()

    shuffled = np.random.default_rng(SEED).permutation(len(likelihood))
    again = prior.unfitted().fit(likelihood.take(shuffled))
    tolerance = 1e-3 * (1 + np.sqrt(fitted.variance_))  # random starts differ
    assert np.all(np.abs(again.mean_ - fitted.mean_) < tolerance), "order must not matter"

    _check_draws(fitted)
    _check_posterior(fitted, likelihood)
    if d == 1 and type(prior)._fit is not Prior._fit:
        _check_em(prior, likelihood)


def _check_draws(prior: Prior) -> None:
    size = 20_000
    draws = prior.sample(size, SEED)
    assert draws.shape == (size, len(prior.mean_)), "sample must have shape (size, d)"
    np.testing.assert_array_equal(draws, prior.sample(size, SEED), "a seed must fix the draws")
    assert np.all((draws >= prior.support[0]) & (draws <= prior.support[1])), "draws in the support"
    error = np.sqrt(prior.variance_ / size)
    off = np.abs(draws.mean(axis=0) - prior.mean_)
    assert np.all(off <= 5 * error + 1e-6), "draws must have the fitted mean"
    fourth = ((draws - draws.mean(axis=0)) ** 4).mean(axis=0)
    spread = np.sqrt(np.maximum(fourth - prior.variance_**2, 0) / size)
    off = np.abs(draws.var(axis=0) - prior.variance_)
    assert np.all(off <= 5 * spread + 1e-6 * (1 + prior.variance_)), (
        "draws must have the fitted variance"
    )


def _check_posterior(prior: Prior, likelihood: Likelihood) -> None:
    posterior = prior.posterior(likelihood)
    check_posterior(posterior, likelihood)
    marginal = prior.log_marginal(likelihood)
    assert marginal.shape == (len(likelihood),), "log_marginal must have shape (n,)"
    assert not np.isnan(marginal).any(), "log_marginal must never be NaN"
    if likelihood.n_features > 1 or not np.all(prior.variance_ > 0):
        return
    known = prior.without_doubt()  # as quadrature takes it
    closed, numeric = known._posterior(likelihood), Prior._posterior(known, likelihood)
    scale = np.sqrt(prior.variance_)
    # quadrature on some 400 nodes; 1e-4 of the prior's standard deviation
    np.testing.assert_allclose(closed.mean, numeric.mean, rtol=0, atol=1e-4 * scale[0])
    np.testing.assert_allclose(closed.sd, numeric.sd, rtol=0, atol=1e-3 * scale[0])
    np.testing.assert_allclose(marginal, Prior.log_marginal(known, likelihood), rtol=0, atol=1e-4)


def check_posterior(posterior: Posterior, likelihood: Likelihood) -> None:
    """Check that the figures of a posterior are consistent."""
    shape = (len(likelihood), likelihood.n_features)
    assert posterior.mean.shape == posterior.sd.shape == shape, "mean and sd must be (n, d)"
    for name, values in (("mean", posterior.mean), ("sd", posterior.sd)):
        assert np.isfinite(values).all(), f"{name} must be finite"
    low, high = posterior.interval(0.9)
    wide = posterior.interval(0.99)
    assert np.all(wide[0] <= low), "a higher level gives a wider interval"
    assert np.all(low <= high), "an interval has its lower end first"
    assert np.all(high <= wide[1]), "a higher level gives a wider interval"
    middle = posterior.quantile(0.5)
    below = np.stack([posterior.prob_below(value)[i] for i, value in enumerate(middle[:5, 0])])[
        :, 0
    ]
    assert np.all(below >= 0.5 - 1e-6), "at least half lies at or below the median"
    both = posterior.prob_below(middle) + posterior.prob_above(middle)
    np.testing.assert_allclose(both, 1.0, rtol=0, atol=1e-9, err_msg="probabilities sum to 1")
    draws = posterior.sample(4000, SEED)
    assert draws.shape == (4000, *shape), "sample must have shape (size, n, d)"
    centre = posterior.expectation
    off = np.abs(draws.mean(axis=0) - centre)
    assert np.all(off <= 6 * posterior.sd / np.sqrt(4000) + 1e-9 * (1 + np.abs(centre))), (
        "draws must have the posterior mean"
    )
    frame = posterior.to_frame()
    assert len(frame) == posterior.mean.size, "one row per client and coordinate"


def _check_em(prior: Prior, likelihood: Likelihood) -> None:
    """Check that EM on a grid never loses likelihood and reaches the closed form."""
    params = prior.get_params()
    if "method" not in params or not prior.unfitted().fit(likelihood).n_parameters_:
        return
    closed = prior.unfitted().set_params(method="ml").fit(likelihood)
    climbing = prior.unfitted().set_params(method="ml")
    climbing.notes_, climbing.noise_variance_ = [], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # slow to converge is not wrong
        Prior._fit(climbing, likelihood)
    steps = np.diff(climbing.path_)
    assert np.all(steps >= -1e-7 * (1 + np.abs(climbing.path_[1:]))), (
        "EM must never lose likelihood"
    )
    best = closed.log_marginal(likelihood).sum()
    reached = climbing.log_marginal(likelihood).sum()
    assert reached <= best + 1e-3, "the closed form must find the maximum"
    assert reached >= best - 0.05, "EM must come near the maximum"
