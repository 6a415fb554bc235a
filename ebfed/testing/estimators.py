"""Contracts of estimators of one round, of regressions, and of pickles: they have no rows."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from ebfed.engines import Local
from ebfed.location.base import LocationEstimator
from ebfed.priors import IdentificationWarning
from ebfed.privacy.ledger import is_private
from ebfed.regression.base import RegressionEstimator
from ebfed.report.view import view_of
from ebfed.tables.unseen import UnseenGroupWarning
from ebfed.testing.nodes import fit_on_two_nodes
from ebfed.testing.seed import SEED

__all__ = ["check_estimator_contract", "check_pickle", "check_regression_contract", "found_in"]


def check_estimator_contract(
    estimator: LocationEstimator, X: Any, groups: NDArray, tolerance: float = 1e-6
) -> None:
    """Check an estimator on rows of at least three groups.

    Estimates do not depend on the blocks of the engine, the order of rows or the names of groups.
    They are the same when two nodes hold the rows and exchange only packed bytes with a server.
    With one channel, `partial_fit` on pieces equals `fit` on all rows. Known, new and empty groups
    get finite estimates. Reports are frames, and fitted estimators can be pickled, private ones
    without rows.

    Parameters
    ----------
    estimator : LocationEstimator, not fitted
    X : array-like of shape (n_rows, d) or (n_rows,)
    groups : int ndarray of shape (n_rows,)
    tolerance : float
        Largest change of an estimate with the order of summation, relative to its size. An
        iterative fit needs more than the default.

    Examples
    --------
    >>> from ebfed.location import GaussianEB
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

    apart = np.concatenate([node.predict() for node in fit_on_two_nodes(estimator, X, groups)])
    np.testing.assert_array_equal(apart, estimates, "nodes must not matter")

    scale = tolerance * (1 + np.abs(estimates).max())
    order = np.random.default_rng(SEED).permutation(len(X))
    shuffled = clone(estimator).fit(X[order], groups=groups[order])
    np.testing.assert_allclose(shuffled.predict(), estimates, atol=scale, rtol=0)
    named = clone(estimator).fit(X, groups=np.array([f"g{g:09d}" for g in groups]))
    np.testing.assert_allclose(named.predict(), estimates, atol=scale, rtol=0)
    if not isinstance(estimator.channel, Mapping):
        pieces = clone(estimator)
        with warnings.catch_warnings():  # the first pieces alone may not identify the prior
            warnings.simplefilter("ignore", IdentificationWarning)
            for part in np.array_split(np.arange(len(X)), 3):
                pieces.partial_fit(X[part], groups=groups[part])
        np.testing.assert_allclose(pieces.predict(), estimates, atol=scale, rtol=0)

    rows = np.asarray(fitted.transform(X, groups=groups))
    assert len(rows) == len(X), "transform(X) has one entry per row"
    np.testing.assert_allclose(
        rows, estimates.reshape(len(estimates), -1)[np.unique(groups, return_inverse=True)[1]]
    )
    shown = fitted.augment(X, groups=groups).filter(like=".fitted").to_numpy()
    np.testing.assert_allclose(
        fitted.predict(X, groups=groups).reshape(shown.shape), shown, err_msg="of one meaning"
    )
    unknown = groups.max() + 7
    empty = _posterior_of_unseen(fitted, unknown)
    fixed = fitted.augment(X[:1], groups=[unknown]).filter(like=".fixed").to_numpy()
    np.testing.assert_allclose(empty.mean[0], fixed[0], rtol=1e-9, atol=1e-12)
    assert np.isfinite(fitted.predict(X[:1], groups=[unknown])).all(), "new groups are estimated"
    assert np.isfinite(fitted.score(X, groups=groups)), "score must be finite"

    assert len(fitted.tidy()) >= 1
    assert len(fitted.glance()) == 1
    assert len(fitted.augment(X, groups=groups)) == len(X)
    assert type(estimator).__name__ in str(fitted.summary())
    check_pickle(fitted, lambda copy: copy.predict(), [X, fitted.summaries_.mean])


def check_regression_contract(
    estimator: RegressionEstimator,
    X: NDArray,
    y: NDArray,
    groups: NDArray,
    tolerance: float = 1e-6,
) -> None:
    """Check a regression on rows of at least six groups.

    Estimates are the same to the last bit for all blocks of the engine, and when two nodes hold the
    rows and exchange only packed bytes with a server. The order of rows and the names of groups
    change estimates by at most `tolerance`. `partial_fit` on pieces equals `fit` on all rows.
    Known, new and empty groups get finite answers. Frames keep their names, reports are frames,
    and fitted estimators can be pickled, private ones without rows.

    Parameters
    ----------
    estimator : RegressionEstimator, not fitted
    X : ndarray of shape (n_rows, d)
    y : ndarray of shape (n_rows,)
    groups : int ndarray of shape (n_rows,)
    tolerance : float
        Largest change of a coefficient with the order of summation, relative to its size. Infinite
        where draws depend on the order of groups.

    Examples
    --------
    >>> from ebfed.regression import LinearEB
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(120, 2)), rng.normal(size=120)
    >>> check_regression_contract(LinearEB(), X, y, np.arange(120) % 20)
    """
    import pandas as pd

    fitted = clone(estimator).fit(X, y, groups=groups)
    ids = np.unique(groups)
    estimates = fitted.posterior().mean
    assert estimates.shape == (len(ids), len(fitted.terms_)), "one row per group, one per term"
    assert np.isfinite(estimates).all(), "estimates must be finite"

    blocks = clone(estimator).set_params(engine=Local(13)).fit(X, y, groups=groups)
    np.testing.assert_array_equal(blocks.posterior().mean, estimates, "blocks must not matter")
    threads = clone(estimator).set_params(engine=Local(5, threads=2)).fit(X, y, groups=groups)
    np.testing.assert_array_equal(threads.posterior().mean, estimates, "threads must not matter")
    nodes = fit_on_two_nodes(estimator, X, groups, y)
    apart = np.concatenate([node.posterior().mean for node in nodes])
    np.testing.assert_array_equal(apart, estimates, "nodes must not matter")

    scale = tolerance * (1 + np.abs(estimates).max())
    order = np.random.default_rng(SEED).permutation(len(X))
    shuffled = clone(estimator).fit(X[order], y[order], groups=groups[order])
    np.testing.assert_allclose(shuffled.posterior().mean, estimates, atol=scale, rtol=0)
    named = clone(estimator).fit(X, y, groups=np.array([f"g{g:09d}" for g in groups]))
    np.testing.assert_allclose(named.posterior().mean, estimates, atol=scale, rtol=0)
    pieces = clone(estimator)
    with warnings.catch_warnings():  # the first pieces alone may not identify the prior
        warnings.simplefilter("ignore")
        for part in np.array_split(np.arange(len(X)), 3):
            pieces.partial_fit(X[part], y[part], groups=groups[part])
    np.testing.assert_allclose(pieces.posterior().mean, estimates, atol=scale, rtol=0)

    rows = fitted.predict(X, groups=groups)
    assert rows.shape == (len(X),), "predict(X) has one entry per row"
    unknown = np.full(len(X), ids.max() + 7)
    new, whole = fitted.predict(X, groups=unknown), fitted.predict(X)
    if new.dtype.kind == "f":
        new, whole = new.round(9), whole.round(9)
    assert np.mean(new == whole) > 0.99, "new groups get the population"
    empty = _posterior_of_unseen(fitted, ids.max() + 7)
    np.testing.assert_allclose(empty.mean[0], fitted.mean_, rtol=1e-9, atol=1e-12)
    again = fitted.posterior(X, y, groups=groups)
    np.testing.assert_allclose(again.mean, estimates, atol=scale, rtol=0)
    assert np.isfinite(fitted.score(X, y, groups=groups)), "score must be finite"
    low, high = fitted.posterior().interval(0.9)
    assert np.all((low <= estimates) & (estimates <= high)), "intervals hold the estimates"

    names = [f"x{j}" for j in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names).assign(y=y, g=groups)
    framed = clone(estimator).fit(table, "y", groups="g")
    np.testing.assert_array_equal(framed.posterior().mean, estimates, "frames must not matter")
    np.testing.assert_array_equal(framed.predict(table), rows)
    shown = framed.posterior().to_frame()
    assert list(shown.columns[:3]) == ["g", "term", "n"], "a frame leads with group and term"

    assert len(fitted.tidy()) == len(fitted.__ebfed_view__().parameters())
    assert len(fitted.glance()) == 1
    assert len(fitted.history_) >= 1
    assert len(fitted.privacy_) >= 1
    assert len(fitted.augment(X, y, groups=groups)) == len(X)
    assert type(estimator).__name__ in str(fitted.summary())
    check_pickle(fitted, lambda copy: copy.predict(X, groups=groups), [X, y])


def _posterior_of_unseen(fitted: Any, label: Any) -> Any:
    """Posterior of a group that was not in the fit, which is meant here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenGroupWarning)
        return fitted.posterior(groups=[label])


def check_pickle(fitted: Any, answer: Callable[[Any], NDArray], secrets: Iterable[Any]) -> None:
    """Check that a fitted estimator can be pickled, and what its pickle holds.

    That of a private fit holds nothing that did not leave the clients, unless `keep_rows` is set.
    What is published has the same ledger and a summary.

    Parameters
    ----------
    fitted : Estimator
    answer : callable
        Returns numbers for a copy of the fit, which must be those of the fit.
    secrets : iterable of arrays
        Rows, and what clients have of them.
    """
    if is_private(view_of(fitted).ledger):
        public = pickle.loads(pickle.dumps(fitted))
        for part in secrets:
            assert not found_in(pickle.dumps(fitted), part), "a private fit's pickle has no rows"
            assert not found_in(pickle.dumps(fitted.published()), part)
        assert view_of(public).is_server, "what is published is a server's copy"
        assert str(public.summary()), "what is published has a summary"
        both = zip(view_of(public).ledger, view_of(fitted).ledger, strict=True)
        for row, own in both:  # a server does not count in how many rounds a client answered
            assert row["epsilon"] >= own["epsilon"], "what is published costs as much"
            assert row["assumptions"] == own["assumptions"]
        fitted.keep_rows = True
    copy = pickle.loads(pickle.dumps(fitted))
    fitted.__dict__.pop("keep_rows", None)
    np.testing.assert_array_equal(answer(copy), answer(fitted), "pickling must not matter")


def found_in(content: bytes, values: ArrayLike) -> list[float]:
    """Return which numbers are in some bytes as they are; round ones, as 0.5, do not count.

    Examples
    --------
    >>> found_in(pickle.dumps(np.array([0.1, 0.7])), [0.1, 0.2])
    [0.1]
    """
    plain = np.asarray(values)
    if plain.dtype.kind == "f":
        plain = plain[np.isfinite(plain) & (plain * 2.0**20 % 1 != 0)]
    elif plain.dtype != np.uint64:
        return []
    both = ((x, x.tobytes()) for x in plain.ravel())
    return [x.item() for x, own in both if own in content or own[::-1] in content]
