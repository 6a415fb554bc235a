"""Rows of regressions: read with their weights, and predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.tables.clients import Clients, order_of_rows
from ebfed.tables.labels import number_labels
from ebfed.tables.of_rows import NEEDED, NOTHING, are_shares, check_whole, wants_rate
from ebfed.tables.scans import with_figures

__all__ = [
    "IntervalKind",
    "as_read",
    "check_interval",
    "fit_with_block",
    "posterior_of_rows",
    "predicted_beside",
    "predicted_numbers",
    "repeated",
    "weighed_clients",
]

# What an interval of a row is to hold: a new response, its mean, or that at an exposure of 1.
IntervalKind = Literal["row", "mean", "rate"]


def posterior_of_rows(
    estimator: Any, X: Any, groups: Any, covariates: Any = None, *, given_spread: bool = False
) -> tuple[NDArray, NDArray[np.int64], Any]:
    """Return rows, the place of each row's group, and the posterior of the groups.

    Parameters
    ----------
    estimator : RegressionEstimator
    X, groups, covariates : as in `predict`
    given_spread : bool
        Whether the spread of the population is taken to be as fitted.
    """
    rows, labels = estimator._read_design(X, groups, covariates)
    population = estimator._population()
    posterior = population.posterior_given_spread if given_spread else population.posterior
    if labels is None:
        ids, codes = np.zeros(1, np.int64), np.zeros(len(rows), np.int64)
        return rows, codes, posterior(estimator._rows_of(ids, known=False))
    ids, codes = number_labels(labels)
    return rows, codes, posterior(estimator._rows_of(ids))


def predicted_numbers(estimator: Any, X: Any, groups: Any, covariates: Any = None) -> NDArray:
    """Linear predictor at the posterior mean of each row's group, shape (n_rows,)."""
    rows, labels = estimator._read_design(X, groups, covariates)
    population = estimator._population()
    if labels is None:
        return rows @ population.centre
    ids, codes = number_labels(labels)
    mean = population.posterior_given_spread(estimator._rows_of(ids)).mean
    return np.einsum("np,np->n", rows, mean[codes])


def predicted_beside(
    estimator: Any, X: Any, groups: str, columns: Mapping[str, Any] = NOTHING
) -> Any:
    """Return a lazy table with the linear predictor of its rows as a column.

    Parameters
    ----------
    estimator : RegressionEstimator
    X : lazy table
    groups : str
        Column of labels.
    columns : mapping of str to Expr
        Columns of the design, by name, that are not columns of `X`.
    """
    check_is_fitted(estimator, "mean_")
    population, ids = estimator._population(), estimator.groups_
    known = population.posterior_given_spread(estimator._rows_of(ids)).mean
    constant = estimator.fit_intercept
    factors = [None] * constant + [columns.get(x, x) for x in estimator.terms_[constant:]]
    return with_figures(X, groups, ids, known, population.centre, factors)


def as_read(block: Any) -> Any:
    """Return rows of clients as they were read."""
    return block


def fit_with_block(estimator: Any, block: Any, codes: NDArray | None) -> Any:
    """Fit the rows of a block together with those fitted before.

    Raises
    ------
    ValueError
        If they have no labels, where rows had some before.
    """
    if codes is None:
        if estimator.groups_.dtype.kind != "i":
            raise ValueError("groups must label the rows, as they did before.")
        block = replace(block, ids=block.ids + estimator.groups_[-1] + 1)
    return estimator._fit(estimator.clients_.merge(block), {})


def repeated(clients: Clients, weight: NDArray[np.float64]) -> Clients:
    """Repeat each row as often as its weight says, a whole number.

    Raises
    ------
    ValueError
        If a weight is not a whole number.

    Examples
    --------
    >>> clients = Clients.from_rows([1.0, 2.0, 3.0], ["a", "a", "b"], [0, 1, 1])
    >>> twice = repeated(clients, np.array([2.0, 0.0, 1.0]))
    >>> twice.X.ravel(), twice.n
    (array([1., 1., 3.]), array([2, 1]))
    """
    check_whole(weight, "binomial")
    times = weight.astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(times)))[clients.indptr]
    rows = np.repeat(np.arange(len(times)), times)
    y = None if clients.y is None else clients.y[rows]
    return Clients(clients.ids, ends, clients.X[rows], y)


def weighed_clients(
    estimator: Any,
    X: Any,
    y: Any,
    groups: Any,
    reset: bool,
    covariates: Any = None,
    **beside: Any,
) -> tuple[Clients, NDArray | None, dict[str, NDArray]]:
    """Read rows in memory; returns clients, numbers of rows' groups, and what goes with rows.

    Parameters
    ----------
    estimator : RegressionEstimator
    X, y, groups, covariates
        As in `fit`.
    reset : bool
        Whether this is the fit.
    **beside
        `sample_weight` and `dispersion`, as in `fit`; returned in the order of the clients' rows.

    Raises
    ------
    ValueError, TypeError
        If weights are not one number for each row, negative, infinite, or all zero.
    """
    given = estimator._known_beside(X, beside, reset)
    if "sample_weight" not in given:
        fitted = None if reset else getattr(estimator.clients_, "log_weight", None)
        if fitted is not None and not isinstance(X, Clients):
            raise ValueError(NEEDED["sample_weight"])
    elif isinstance(X, Clients):
        raise ValueError("sample_weight must be None: clients have rows without weights.")
    elif not estimator._numeric and not isinstance(y, str) and are_shares(np.asarray(y)):
        raise ValueError(
            f"Unknown label type: y has shares, and {type(estimator).__name__} takes labels. "
            "GeneralizedEB('binomial') takes shares, with sample_weight= the numbers of trials."
        )
    clients, codes, found = estimator._read(X, y, groups, reset, covariates, given)
    order = order_of_rows(codes)
    return clients, codes, {name: values[order] for name, values in found.items()}


def check_interval(level: float, kind: str, has_rates: bool, rows: str) -> bool:
    """Tell whether an interval is of rates; raise a ValueError if there is no such interval."""
    if kind not in ("mean", "row", "rate"):
        raise ValueError(f"kind must be 'mean', 'row' or 'rate'; got {kind!r}.")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1; got {level!r}.")
    return kind == "rate" and wants_rate("rate", has_rates, rows)
