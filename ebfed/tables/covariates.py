"""Covariates of groups; the mean of the prior depends on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.alignment import aligned, index_of, labels_groups
from ebfed.tables.clients import LARGEST
from ebfed.tables.columns import numeric_columns
from ebfed.tables.labels import number_labels, one_of_each
from ebfed.tables.lazy import column_names
from ebfed.tables.levels import number_levels
from ebfed.tables.values import NotNumericError, is_frame, numbers, read_labels

__all__ = ["columns_of_units", "named_columns", "read_covariates"]


def named_columns(covariates: Any) -> list[str]:
    """Return `covariates` as names of columns, or an empty list if they are something else.

    Examples
    --------
    >>> named_columns(["uranium"]), named_columns("uranium"), named_columns([0.2, 0.7])
    (['uranium'], ['uranium'], [])
    """
    names = [covariates] if isinstance(covariates, str) else covariates
    named = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return list(names) if named else []


def read_covariates(
    covariates: Any,
    X: Any,
    labels: NDArray | None,
    ids: NDArray,
    group: str | Sequence[str] = "group",
    names: Sequence[str] | None = None,
) -> tuple[NDArray, list[str]]:
    """Read covariates as an array with one row per group.

    Parameters
    ----------
    covariates : list of str, data frame or array-like, or None
        Names of columns of `X` that are constant within groups. Or a frame with one row per group,
        in any order, and the labels in the column `group` (in pandas also in an index of that
        name). Or numbers of shape (n_groups, k) or (n_groups,), in the order of sorted labels. A
        pandas series is read by the labels in its index. It is read in the order of sorted labels
        if its index only counts rows (0, 1, …) and is not the labels. If each row of `X` is a
        group, it is paired with the rows (`ebfed.tables.alignment`).
    X : data frame of rows
        Rows; needed for names of columns only.
    labels : ndarray of shape (n_rows,) or None
        Group of each row; None if each row is a group.
    ids : ndarray of shape (n_groups,)
        Sorted labels.
    group : str or sequence of str
        Name of the column of labels; of groups within groups, of those of all levels.
    names : sequence of k str, optional
        Names in an earlier fit; columns of frames are read in this order.

    Returns
    -------
    covariates : ndarray of shape (n_groups, k)
    names : list of k str
        Names of the columns; ``w0``, ``w1``, … if they have none.

    Raises
    ------
    ValueError
        If a column or group is missing, a value is missing or infinite, a covariate varies within
        a group, a group has two rows, or numbers have another shape.
    TypeError
        If a covariate is not numeric.

    Examples
    --------
    >>> import pandas as pd
    >>> counties = pd.DataFrame({"county": ["b", "c", "a"], "uranium": [0.7, 0.1, 0.2]})
    >>> read_covariates(counties, None, None, np.array(["a", "b"], object), "county")
    (array([[0.2],
           [0.7]]), ['uranium'])
    """
    if covariates is None:
        return np.empty((len(ids), 0)), []
    named = named_columns(covariates)
    index = index_of(covariates)
    keys = [group] if isinstance(group, str) else list(group)
    named_index = index is not None and is_frame(covariates) and list(index.names) == keys
    if named_index and not set(keys) & set(column_names(covariates)):
        covariates = covariates.reset_index()
    if named:
        if not is_frame(X):
            raise ValueError(
                f"covariates={covariates!r} names columns, but X is not a data frame; pass a frame "
                "or an array with a row for each group."
            )
        named = _in_order(named, names)
        values = _by_row(numeric_columns(X, named, "covariates"), named, labels, ids)
    elif is_frame(covariates):
        there = [name for name in column_names(covariates) if name not in keys]
        named = _in_order(there, names)
        values = _by_group(covariates, named, ids, keys)
    else:
        if X is not None and labels is None:  # each row is a group
            covariates = aligned({"X": X, "covariates": covariates})["covariates"]
        elif labels_groups(covariates, ids):
            place = _rows_of(read_labels(index.to_series(), "index of covariates"), ids)
            covariates = numbers(covariates, "covariates", booleans=True)[place]
        values, named = _numbers(covariates, len(ids), names)
    _check_known(values, named, "covariates", lambda i: f"for group {ids.tolist()[i]!r}")
    return values, named


def columns_of_units(
    given: Any, name: str, n: int | None = None, names: Sequence[str] | None = None
) -> tuple[NDArray, list[str]]:
    """Read columns of units, such as studies, that are in the order of these already.

    Parameters
    ----------
    given : data frame or array-like of shape (n, k) or (n,)
    name : str
        Name of the argument.
    n : int, optional
        Number of units; any if None.
    names : sequence of k str, optional
        Names in an earlier fit; columns of frames are read in this order.

    Returns
    -------
    columns : ndarray of shape (n, k)
    names : list of k str
        Names of the columns, or of the series; ``w0``, ``w1``, … for columns without names.

    Raises
    ------
    ValueError, TypeError
        As of `read_covariates`.

    Examples
    --------
    >>> columns_of_units([0.2, 0.7], "mean", 2)[1]
    ['w0']
    """
    if is_frame(given):
        named = _in_order(column_names(given), names)
        values = numeric_columns(given, named, name)
    else:
        values = numbers(given, name, booleans=True)
        values = values[:, None] if values.ndim == 1 else values
        own = getattr(given, "name", None)
        named = [f"w{j}" for j in range(values.shape[-1] if values.ndim else 0)]
        named = [own] if isinstance(own, str) and own and len(named) == 1 else named
        named = _as_many(named, names)
    n = len(values) if n is None and values.ndim else n
    if values.ndim != 2 or len(values) != n or not values.shape[1]:
        raise ValueError(
            f"{name} must have a row for each of {n} estimates; it has shape {values.shape}."
        )
    _check_known(values, named, name, lambda i: f"of estimate {i}")
    return values, named


def _as_many(named: list[str], names: Sequence[str] | None) -> list[str]:
    """Return the names of columns of numbers: those of the fit, if there are as many."""
    if names is None:
        return named
    if len(named) != len(names):
        raise ValueError(
            f"covariates have {len(named)} columns; the fit had {len(names)}: "
            f"{', '.join(map(repr, names))}."
        )
    return list(names)


def _check_known(
    values: NDArray, named: Sequence[str], name: str, where: Callable[[int], str]
) -> None:
    unknown = ~(np.abs(values) < LARGEST)
    if unknown.any():
        i, j = np.argwhere(unknown)[0].tolist()
        raise ValueError(
            f"{name} must be finite numbers; got {int(unknown.sum())} missing, infinite or huge "
            f"values, the first in column {named[j]!r} {where(i)}."
        )


def _in_order(named: list[str], names: Sequence[str] | None) -> list[str]:
    """Return the columns in the order of the fit."""
    if not named:
        raise ValueError("covariates have no column but the labels.")
    if names is None:
        return named
    missing = [name for name in names if name not in named]
    if missing:
        raise ValueError(f"covariates lack the column {missing[0]!r}, which the fit had.")
    return list(names)


def _by_row(values: NDArray, named: list[str], labels: NDArray | None, ids: NDArray) -> NDArray:
    """Return covariates of groups from those of their rows."""
    if labels is None:
        if len(values) != len(ids):
            raise ValueError(f"covariates have {len(values)} rows for {len(ids)} groups.")
        return values
    owner = number_labels(labels)[1]
    covariates = values[one_of_each(owner)]
    # a value that is missing in all rows of a group does not vary
    same = (values == covariates[owner]) | (np.isnan(values) & np.isnan(covariates[owner]))
    if not same.all():
        i = int(owner[~same.all(axis=1)].min())
        j = int(np.argmin(same[owner == i].all(axis=0)))
        raise ValueError(
            f"covariates column {named[j]!r} must be constant within groups; it varies in "
            f"{ids.tolist()[i]!r}."
        )
    return covariates


def _by_group(covariates: Any, named: list[str], ids: NDArray, keys: list[str]) -> NDArray:
    """Return rows of a frame in the order of labels."""
    if missing := [key for key in keys if key not in column_names(covariates)]:
        raise ValueError(
            f"covariates must have the column {missing[0]!r} of labels; it has "
            f"{', '.join(map(repr, column_names(covariates)))}."
        )
    labels = [read_labels(covariates[key], f"covariates[{key!r}]") for key in keys]
    known, codes = number_levels(labels)
    place = _rows_of(known[codes], ids)
    return numeric_columns(covariates, named, "covariates")[place]


def _rows_of(labels: NDArray, ids: NDArray) -> NDArray:
    """Return the row of each group."""
    import pandas as pd

    known, owner = number_labels(labels)
    if len(known) < len(owner):
        twice = known.tolist()[int(np.argmax(np.bincount(owner) > 1))]
        raise ValueError(f"covariates must have one row for each group; {twice!r} has two.")
    place = pd.Index(known).get_indexer(pd.Index(ids))
    if np.any(place < 0):
        missing = [each for each, at in zip(ids.tolist(), place, strict=True) if at < 0]
        raise ValueError(
            f"covariates are missing for {len(missing)} groups, the first {missing[0]!r}."
        )
    return np.argsort(owner)[place]


def _numbers(
    covariates: Any, n_groups: int, names: Sequence[str] | None
) -> tuple[NDArray, list[str]]:
    """Return numbers with a row for each group, and names of their columns."""
    try:
        values = numbers(covariates, "covariates", booleans=True)
    except NotNumericError as error:
        raise NotNumericError(
            "covariates must be names of columns, a data frame, or numbers with a row for each "
            f"group: {error}"
        ) from None
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != n_groups or not values.shape[1]:
        raise ValueError(
            f"covariates must have a row for each of the {n_groups} groups, in the order of their "
            f"sorted labels; it has shape {values.shape}."
        )
    return values, _as_many([f"w{j}" for j in range(values.shape[1])], names)
