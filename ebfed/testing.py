"""Contracts: what every likelihood, prior, channel and estimator must obey, shipped to users.

Each `check_*` takes an instance (and data to try it on) and raises AssertionError with a sentence
if a contract is broken. The package runs them over everything it registers; run them on your own
prior or channel before you trust it. Checks that draw random numbers use a fixed seed and bounds
of five standard errors, a false alarm rate below 1e-6 for each figure checked.
"""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from ebfed.channels import Channel
from ebfed.clients import Summary
from ebfed.engines import Local
from ebfed.estimators.base import LocationEstimator
from ebfed.likelihoods import Likelihood
from ebfed.priors import IdentificationWarning, Posterior, Prior

__all__ = ["check_channel", "check_estimator_contract", "check_likelihood", "check_prior"]

SEED = 20230723


def check_likelihood(likelihood: Likelihood) -> None:
    """Check that a likelihood is consistent with itself.

    Parameters
    ----------
    likelihood : Likelihood of at least two clients, at least one of which has something to say

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> check_likelihood(Gaussian(np.array([[0.0], [1.0]]), np.array([[1.0], [2.0]])))
    """
    n, d = len(likelihood), likelihood.n_features
    low, high = likelihood.support
    if d == 1:
        nodes = likelihood.nodes(50)
        assert nodes.ndim == 1, "nodes must be one-dimensional"
        assert len(nodes) >= 50, "nodes must give at least as many as asked for"
        assert np.all(np.diff(nodes) > 0), "nodes must increase"
        assert low <= nodes[0] <= nodes[-1] <= high, "nodes must lie in the support"
    local = likelihood.local
    assert local.shape == (n, d), "local must have shape (n, d)"
    told = np.isfinite(local).all(axis=1)
    inside = np.clip(local[told], *_inner(low, high))
    theta = inside[: min(5, len(inside))]
    values = likelihood.logpdf(theta)
    assert values.shape == (n, len(theta)), "logpdf must have shape (n, k)"
    assert not np.isnan(values).any(), "logpdf must never be NaN"
    assert np.all(values[~told] == 0), "a client that says nothing has logpdf 0"

    mine = np.array(
        [likelihood.take(slice(i, i + 1)).logpdf(inside)[0] for i in range(len(inside))]
    )
    if told.all():
        best = np.diag(mine)
        np.testing.assert_allclose(likelihood.log_peak(), best, rtol=1e-6, atol=1e-6)
        assert np.all(mine <= best[:, None] + 1e-9 * (1 + np.abs(best[:, None]))), (
            "a client's local estimate must maximise its likelihood"
        )
    parts = np.concatenate([block.logpdf(theta) for block in likelihood.split(3)])
    np.testing.assert_array_equal(parts, values, "blocks must give the same log-likelihood")

    rows, counts = likelihood.compress()
    exact = likelihood.exact
    free = told if exact is None else told & np.isnan(exact).all(axis=1)
    assert counts.sum() == free.sum(), "compress must count every client that says something"
    # merging may move a message by a hundredth of its standard error
    np.testing.assert_allclose(
        counts @ rows.logpdf(theta),
        likelihood.take(free).logpdf(theta).sum(axis=0),
        rtol=1e-3,
        err_msg="compress must keep the total log-likelihood",
    )
    _check_combine(rows, counts)


def _inner(low: float, high: float) -> tuple[float, float]:
    return (low + 1e-9 if np.isfinite(low) else low, high - 1e-9 if np.isfinite(high) else high)


def _check_combine(rows: Likelihood, counts: NDArray) -> None:
    rng = np.random.default_rng(SEED)
    weights = counts[:, None] * rng.random((len(rows), 3))
    best = np.clip(rows.combine(weights), *_inner(*rows.support))
    assert best.shape == (3, rows.n_features), "combine must have shape (k, d)"
    top = np.diag(weights.T @ rows.logpdf(best))
    for shift in (-1e-3, 1e-3):
        moved = np.clip(best + shift * (1 + np.abs(best)), *_inner(*rows.support))
        assert np.all(np.diag(weights.T @ rows.logpdf(moved)) <= top + 1e-9 * (1 + np.abs(top))), (
            "combine must maximise the weighted log-likelihood"
        )


def check_prior(prior: Prior, likelihood: Likelihood) -> None:
    """Check a prior on a likelihood that it accepts.

    The fit does not depend on the order of clients; densities integrate to one; draws have the
    fitted mean and variance; EM never loses likelihood; a closed form equals quadrature; a client
    that says nothing gets the population.

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
        clone(prior).posterior(likelihood)
    except NotFittedError:
        pass
    else:
        raise AssertionError("posterior before fit must raise NotFittedError")
    fitted = clone(prior)
    assert fitted.fit(likelihood) is fitted, "fit must return self"
    assert fitted.mean_.shape == fitted.variance_.shape == (d,), "moments must have shape (d,)"
    assert np.all(fitted.variance_ >= 0), "variance_ must not be negative"
    assert all(isinstance(note, str) for note in fitted.notes_), "notes_ must be sentences"
    assert pickle.loads(pickle.dumps(fitted)).mean_.tolist() == fitted.mean_.tolist()

    shuffled = np.random.default_rng(SEED).permutation(len(likelihood))
    again = clone(prior).fit(likelihood.take(shuffled))
    tolerance = 1e-3 * (1 + np.sqrt(fitted.variance_))  # of a prior found by random starts
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
    plain = clone(prior)
    plain.__dict__.update(prior.__dict__)
    for name in ("mean_variance_", "variance_variance_"):
        if hasattr(plain, name):  # quadrature takes the population as known
            setattr(plain, name, np.zeros_like(prior.mean_))
    closed, numeric = plain.posterior(likelihood), Prior.posterior(plain, likelihood)
    scale = np.sqrt(prior.variance_)
    # quadrature on some 400 nodes; 1e-4 of the spread of the population
    np.testing.assert_allclose(closed.mean, numeric.mean, rtol=0, atol=1e-4 * scale[0])
    np.testing.assert_allclose(closed.sd, numeric.sd, rtol=0, atol=1e-3 * scale[0])
    np.testing.assert_allclose(marginal, Prior.log_marginal(plain, likelihood), rtol=0, atol=1e-4)


def check_posterior(posterior: Posterior, likelihood: Likelihood) -> None:
    """Check that the figures of a posterior agree with one another."""
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
    draws = posterior.sample(4000, SEED)
    assert draws.shape == (4000, *shape), "sample must have shape (size, n, d)"
    off = np.abs(draws.mean(axis=0) - posterior.mean)
    assert np.all(off <= 6 * posterior.sd / np.sqrt(4000) + 1e-9 * (1 + np.abs(posterior.mean))), (
        "draws must have the posterior mean"
    )
    frame = posterior.to_frame()
    assert len(frame) == posterior.mean.size, "one row per client and coordinate"


def _check_em(prior: Prior, likelihood: Likelihood) -> None:
    """EM on a grid climbs, and reaches what the closed form finds."""
    params = prior.get_params()
    if "method" not in params or not clone(prior).fit(likelihood).n_parameters_:
        return
    closed = clone(prior).set_params(method="ml").fit(likelihood)
    climbing = clone(prior).set_params(method="ml")
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


def check_channel(channel: Channel, summary: Summary) -> None:
    """Check that a channel is unbiased, works block by block and sends plain arrays.

    Parameters
    ----------
    channel : Channel
    summary : Summary of at least two clients

    Examples
    --------
    >>> from ebfed.channels import Exact
    >>> check_channel(Exact(), Summary.from_rows([1.0, 2.0, 4.0], [0, 0, 1]))
    """
    rng = np.random.default_rng(SEED)
    message = channel.encode(summary, rng)
    assert isinstance(message, dict), "a message is a dict"
    for name, values in message.items():
        assert isinstance(values, np.ndarray), f"{name} must be an array"
        assert values.dtype != object, f"{name} must be plain numbers"
        assert len(values) == len(summary), f"{name} must have one entry per client"
    repeats = np.stack([channel.decode(channel.encode(summary, rng)) for _ in range(2000)])
    error = repeats.std(axis=0) / np.sqrt(len(repeats))
    off = np.abs(repeats.mean(axis=0) - summary.mean)
    assert np.all(off <= 5 * error + 1e-12 * (1 + np.abs(summary.mean))), "decode must be unbiased"
    assert clone(channel).get_params() == channel.get_params(), "a channel can be cloned"
    pickle.loads(pickle.dumps(channel)).encode(summary, rng)


def check_estimator_contract(
    estimator: LocationEstimator, X: Any, groups: NDArray, tolerance: float = 1e-6
) -> None:
    """Check an estimator on rows of at least three groups.

    Blocks, the order of rows and the names of groups do not matter; `partial_fit` on pieces is
    `fit` on the whole; known, new and empty groups all get finite estimates; reports come as
    frames; fitted estimators pickle.

    Parameters
    ----------
    estimator : LocationEstimator, not fitted
    X : array-like of shape (n_rows, d) or (n_rows,)
    groups : int ndarray of shape (n_rows,)
    tolerance : float
        How far estimates may move with the order of summation, relative to their size; an
        iterative fit needs more than the default.

    Examples
    --------
    >>> from ebfed.estimators import GaussianEB
    >>> rng = np.random.default_rng(0)
    >>> check_estimator_contract(GaussianEB(), rng.normal(size=60), np.arange(60) % 20)
    """
    X, groups = np.asarray(X, float), np.asarray(groups)
    fitted = clone(estimator).fit(X, groups=groups)
    estimates = fitted.predict()
    assert len(estimates) == len(np.unique(groups)), "predict() has one entry per group"
    np.testing.assert_array_equal(estimates, np.squeeze(fitted.posterior().mean))

    blocks = clone(estimator).set_params(engine=Local(13)).fit(X, groups=groups)
    np.testing.assert_array_equal(blocks.predict(), estimates, "blocks must not matter")

    scale = tolerance * (1 + np.abs(estimates).max())
    order = np.random.default_rng(SEED).permutation(len(X))
    shuffled = clone(estimator).fit(X[order], groups=groups[order])
    np.testing.assert_allclose(shuffled.predict(), estimates, atol=scale, rtol=0)
    named = clone(estimator).fit(X, groups=np.array([f"g{g:09d}" for g in groups]))
    np.testing.assert_allclose(named.predict(), estimates, atol=scale, rtol=0)
    pieces = clone(estimator)
    with warnings.catch_warnings():  # of what the first pieces cannot tell alone
        warnings.simplefilter("ignore", IdentificationWarning)
        for part in np.array_split(np.arange(len(X)), 3):
            pieces.partial_fit(X[part], groups=groups[part])
    np.testing.assert_allclose(pieces.predict(), estimates, atol=scale, rtol=0)

    rows = fitted.predict(X, groups=groups)
    assert len(rows) == len(X), "predict(X) has one entry per row"
    np.testing.assert_allclose(rows, estimates[np.unique(groups, return_inverse=True)[1]])
    strange = groups.max() + 7
    empty = fitted.posterior(groups=[strange])
    np.testing.assert_allclose(empty.mean[0], fitted.prior_.mean_, rtol=1e-9, atol=1e-12)
    assert np.isfinite(fitted.predict(X[:1], groups=[strange])).all(), "new groups are estimated"
    assert np.isfinite(fitted.score(X, groups=groups)), "score must be finite"

    assert len(fitted.tidy()) >= 1
    assert len(fitted.glance()) == 1
    assert len(fitted.augment(X, groups=groups)) == len(X)
    assert type(estimator).__name__ in str(fitted.summary())
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict(), estimates)
