"""Rows of regressions: read with what goes with them, as clients or with factors; and predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.arguments import check_choice, check_level
from ebfed.engines.supervised import check_size
from ebfed.regression.families.base import ResponseFamily, Responses, counts_rows, responses_of
from ebfed.tables.clients import Clients, order_of_rows
from ebfed.tables.features import check_finite
from ebfed.tables.labels import number_labels
from ebfed.tables.levels import split_levels
from ebfed.tables.of_rows import are_shares, check_whole, wants_rate
from ebfed.tables.roles import NEEDED
from ebfed.tables.rows import Rows
from ebfed.tables.unseen import warn_of_mistyped

__all__ = [
    "OF_WEIGHT_ONE",
    "CrossedRows",
    "IntervalKind",
    "as_read",
    "check_interval",
    "counted_alike",
    "fit_with_block",
    "known_of_rows",
    "of_weights",
    "offset_of",
    "posterior_of_rows",
    "predicted_numbers",
    "repeated",
    "responding_clients",
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
    return estimator._fit(estimator._joined(block), {})


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
        `sample_weight`, `dispersion` and `offset`, as in `fit`; returned in the order of the
        clients' rows.

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
    found = {name: values[order] for name, values in found.items()}
    if "offset" in found:  # of numbers, what is left is regressed
        clients = replace(clients, y=np.asarray(clients.y) - found["offset"])
    return clients, codes, found


def known_of_rows(estimator: Any, X: Any, reset: bool, **beside: Any) -> dict[str, Any]:
    """Return what goes with rows of a generalized linear model, and columns that it had in the fit.

    Raises
    ------
    ValueError
        If offsets are missing, and rows of the fit had some.
    """
    given = estimator._known_beside(X, beside, reset)
    if "offset" not in given and not (reset or isinstance(X, Clients)) and estimator._has_offset:
        raise ValueError(
            "offset= must give the offset of each row, as in the fit (0 for the response at an "
            "exposure of 1)."
        )
    return given


def offset_of(estimator: Any, X: Any, groups: Any, offset: Any) -> NDArray[np.float64]:
    """Return the offset of each row, or one for all, to predict; see `known_of_rows`."""
    given = known_of_rows(estimator, X, False, offset=offset)
    if "offset" not in given:
        return np.zeros(1)
    return estimator._rows(X, None, groups, beside={"offset": given["offset"]}).beside["offset"]


def responding_clients(
    estimator: Any, X: Any, y: Any, groups: Any, reset: bool, *, keep: bool = False, **beside: Any
) -> tuple[Clients, NDArray | None]:
    """Read rows as clients, whose `y` has the columns of `Responses`.

    Rows of weight 0 are left out, unless `keep`.

    Returns
    -------
    Clients
    codes : int64 ndarray of shape (n_rows,) or None
        Number of each row's group.

    Raises
    ------
    ValueError, TypeError
        If responses cannot be of the family, or what goes with rows does not fit them.
    """
    given = known_of_rows(estimator, X, reset, **beside)
    if given and isinstance(X, Clients):
        raise ValueError(f"{min(given)} must be None: clients have rows without it.")
    clients, codes, found = estimator._read(X, y, groups, reset, beside=given)
    order = order_of_rows(codes)
    response = np.empty(len(clients.X))  # in the order of X
    response[order] = np.asarray(clients.y, float)
    read = responses_of(response, found, estimator._family).take(order)
    if not keep and "sample_weight" in found and counts_rows(read, found, estimator._family):
        once = replace(read, weight=np.ones(len(read.y)))
        return replace(clients, y=np.column_stack(once.columns)).weighted(read.weight), codes
    whole = replace(clients, y=np.column_stack(read.columns))
    if keep or read.weight.all():
        return whole, codes
    return whole.of_rows(read.weight > 0), codes  # a client without others has no rows


def counted_alike(clients: Clients, family: ResponseFamily) -> Clients:
    """Make weights of joined blocks multipliers in all rows, unless all are numbers of rows.

    `responding_clients` decides by the rows of one block what its weights are.
    """
    if clients.weight is None:
        return clients
    rows = Responses.of(clients)
    if family.counts_rows(rows):
        return clients
    return replace(clients, y=np.column_stack(rows.columns), weight=None)


@dataclass(frozen=True)
class CrossedRows(Rows):
    """Rows, with the label of each of several crossed factors as a level."""

    @classmethod
    def of(
        cls, X: Any, y: Any, groups: Any, beside: Mapping[str, Any], aside: Sequence[str] = ()
    ) -> Self:
        """Read rows; columns `aside` of a frame are no features.

        Raises
        ------
        ValueError, TypeError
        """
        factors = [] if groups is None else split_levels(groups, X)
        if len(factors) == 1:
            raise ValueError(
                "groups must be of two factors or more, such as ['student', 'lecturer']; LinearEB "
                "fits one."
            )
        given = {name: value for name, value in beside.items() if value is not None}
        if isinstance(X, Rows):
            own = Rows.read(X, beside=given, numeric=True)
            return cls(own.X, own.columns, own.levels, own.style, own.y, own.beside)
        rows = cls.read(X, groups, y=y, beside=given, aside=aside, numeric=True)
        upper = [
            each if isinstance(own, str) or isinstance(getattr(own, "name", None), str)
            else replace(each, group=f"group{j}")
            for j, (each, own) in enumerate(zip(rows.styles, factors, strict=False), 1)
        ]  # fmt: skip
        *above, style = upper or [rows.style]
        return replace(rows, style=replace(style, above=tuple(above)))

    @property
    def offset(self) -> NDArray[np.float64]:
        """Offset of each row."""
        return self.beside.get("offset", np.zeros(len(self)))

    def responses(self, family: ResponseFamily | None) -> Responses:
        """Return the responses of rows, those of weight 0 too.

        Raises
        ------
        ValueError, TypeError
            If they are missing, infinite, no number for each row, or cannot be of the family.
        """
        if self.y is None:
            raise ValueError("y must be given, or be the name of a column of X.")
        values = self.y.ravel() if self.y.shape == (len(self), 1) else self.y
        if values.shape != (len(self),):
            raise ValueError(f"y must be one number for each of {len(self)} rows.")
        check_finite(values, "y")
        check_size(values, "y")
        return responses_of(values, self.beside, family)

    def numbers_of(self, keep: NDArray[np.bool_]) -> list[tuple[NDArray, NDArray[np.int64]]]:
        """Number the labels of each factor by their sorted order, of the rows that are kept."""
        pairs = zip(self.styles, self.levels, strict=True)
        return [number_labels(own[keep], f"groups {style.group!r}") for style, own in pairs]

    def codes_among(self, known: Sequence[NDArray], order: Sequence[int]) -> NDArray[np.int64]:
        """Place of each label among those of the fit, shape (n_rows, n_factors); -1 where not."""
        codes = np.empty((len(self), len(order)), np.int64)
        for j, (ids, number) in enumerate(zip(known, order, strict=True)):
            asked, own = number_labels(self.levels[number], "groups")
            warn_of_mistyped(asked, ids)
            index = pd.Index(ids, tupleize_cols=False)
            codes[:, j] = index.get_indexer(pd.Index(asked, tupleize_cols=False))[own]
        return codes


OF_WEIGHT_ONE = (
    "rows of the fit had weights, and these have none: intervals are those of rows of weight 1."
)


def of_weights(noise: NDArray | float, weight: NDArray | None) -> NDArray | float:
    """Noise variances of rows of these weights, which is infinite at a weight of 0."""
    if weight is None:
        return noise
    with np.errstate(divide="ignore"):
        return noise / weight


def check_interval(level: float, kind: str, has_rates: bool, rows: str) -> bool:
    """Tell whether an interval is of rates; raise a ValueError if there is no such interval."""
    check_choice("kind", kind, get_args(IntervalKind))
    check_level(level)
    return kind == "rate" and wants_rate("rate", has_rates, rows)
