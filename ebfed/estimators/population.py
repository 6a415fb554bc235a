"""Covariates of groups, on which the mean of the population depends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.clients import LARGEST, number_labels
from ebfed.pushdown import column_names
from ebfed.tabular import is_frame, numeric_columns, read_labels

__all__ = ["named_columns", "read_population"]


def named_columns(population: Any) -> list[str]:
    """Return the names of columns that `population` is, none if it is something else.

    Examples
    --------
    >>> named_columns(["uranium"]), named_columns("uranium"), named_columns([0.2, 0.7])
    (['uranium'], ['uranium'], [])
    """
    names = [population] if isinstance(population, str) else population
    named = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return list(names) if named else []


def read_population(
    population: Any,
    X: Any,
    labels: NDArray | None,
    ids: NDArray,
    group: str = "group",
    names: Sequence[str] | None = None,
) -> tuple[NDArray, list[str]]:
    """Bring covariates into a row for each group.

    Parameters
    ----------
    population : list of str, data frame or array-like, or None
        Columns of `X` that are constant within groups; a frame with a row for each group and the
        column `group` of labels (in pandas, or an index of that name), in any order; or numbers of
        shape (n_groups, k) or (n_groups,), in the order of sorted labels. A pandas series is taken
        by the labels in its index; in the order of sorted labels if that only counts its rows
        (0, 1, …) and these are not the labels, or if each row of `X` is a group.
    X : data frame of rows
        Needed for names of columns only.
    labels : ndarray of shape (n_rows,) or None
        The group of each row; None if each row is one.
    ids : ndarray of shape (n_groups,)
        Sorted labels.
    group : str
        Name of the column of labels.
    names : sequence of k str, optional
        What an earlier fit had; columns of frames are taken in this order.

    Returns
    -------
    covariates : ndarray of shape (n_groups, k)
    names : list of k str
        Of the columns; ``w0``, ``w1``, … where they have none.

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
    >>> read_population(counties, None, None, np.array(["a", "b"], object), "county")
    (array([[0.2],
           [0.7]]), ['uranium'])
    """
    if population is None:
        return np.empty((len(ids), 0)), []
    named = named_columns(population)
    index = _index(population)
    named_index = index is not None and is_frame(population) and index.name == group
    if named_index and group not in column_names(population):
        population = population.reset_index()
    if named:
        if not is_frame(X):
            raise ValueError(
                f"population={population!r} names columns, but X is not a data frame; pass a frame "
                "or an array with a row for each group."
            )
        named = _in_order(named, names)
        covariates = _by_row(numeric_columns(X, named, "population"), named, labels, ids)
    elif is_frame(population):
        named = [name for name in column_names(population) if name != group]
        named = _in_order(named, names)
        covariates = _by_group(population, named, ids, group)
    else:
        each_row = X is not None and labels is None
        if index is not None and not each_row and _labels_groups(index, ids):
            place = _rows_of(read_labels(index.to_series(), "population's index"), ids)
            population = population.to_numpy()[place]
        covariates = _numbers(population, len(ids))
        named = [f"w{j}" for j in range(covariates.shape[1])] if names is None else list(names)
        if covariates.shape[1] != len(named):
            raise ValueError(
                f"population has {covariates.shape[1]} columns; the fit had {len(named)}: "
                f"{', '.join(map(repr, named))}."
            )
    strange = ~(np.abs(covariates) < LARGEST)
    if strange.any():
        i, j = np.argwhere(strange)[0]
        raise ValueError(
            f"population has {int(strange.sum())} missing, infinite or huge values, the first in "
            f"column {named[j]!r} for group {ids.tolist()[i]!r}."
        )
    return covariates, named


def _in_order(named: list[str], names: Sequence[str] | None) -> list[str]:
    """Columns as the fit had them."""
    if not named:
        raise ValueError("population has no column but the labels.")
    if names is None:
        return named
    missing = [name for name in names if name not in named]
    if missing:
        raise ValueError(f"population lacks the column {missing[0]!r}, which the fit had.")
    return list(names)


def _by_row(values: NDArray, named: list[str], labels: NDArray | None, ids: NDArray) -> NDArray:
    """Covariates of groups from those of their rows."""
    if labels is None:
        if len(values) != len(ids):
            raise ValueError(f"population has {len(values)} rows for {len(ids)} groups.")
        return values
    owner = number_labels(labels)[1]
    first = np.empty(len(ids), np.int64)
    first[owner[::-1]] = np.arange(len(owner))[::-1]
    covariates = values[first]
    # what is missing in all rows of a group is no variation
    same = (values == covariates[owner]) | (np.isnan(values) & np.isnan(covariates[owner]))
    if not same.all():
        i = int(owner[~same.all(axis=1)].min())
        j = int(np.argmin(same[owner == i].all(axis=0)))
        raise ValueError(
            f"population column {named[j]!r} must be constant within groups; it varies in "
            f"{ids.tolist()[i]!r}."
        )
    return covariates


def _by_group(population: Any, named: list[str], ids: NDArray, group: str) -> NDArray:
    """Rows of a frame in the order of labels."""
    if group not in column_names(population):
        raise ValueError(
            f"population must have the column {group!r} of labels; it has "
            f"{', '.join(map(repr, column_names(population)))}."
        )
    place = _rows_of(read_labels(population[group], f"population[{group!r}]"), ids)
    return numeric_columns(population, named, "population")[place]


def _index(population: Any) -> Any:
    """Return the labels of the rows of a pandas frame or series; None of anything else."""
    import pandas as pd

    return population.index if isinstance(population, pd.DataFrame | pd.Series) else None


def _labels_groups(index: Any, ids: NDArray) -> bool:
    """Whether an index holds labels: any but one that only counts rows which others label."""
    import pandas as pd

    counts = isinstance(index, pd.RangeIndex) and index.equals(pd.RangeIndex(len(index)))
    return not counts or bool(np.all(index.get_indexer(pd.Index(ids)) >= 0))


def _rows_of(labels: NDArray, ids: NDArray) -> NDArray:
    """Where the one row of each group is."""
    import pandas as pd

    known, owner = number_labels(labels)
    if len(known) < len(owner):
        twice = known.tolist()[int(np.argmax(np.bincount(owner) > 1))]
        raise ValueError(f"population must have one row for each group; {twice!r} has two.")
    place = pd.Index(known).get_indexer(pd.Index(ids))
    if np.any(place < 0):
        missing = [each for each, at in zip(ids.tolist(), place, strict=True) if at < 0]
        raise ValueError(
            f"population says nothing of {len(missing)} groups, the first {missing[0]!r}."
        )
    return np.argsort(owner)[place]


def _numbers(population: Any, n_groups: int) -> NDArray:
    try:
        covariates = np.asarray(population, float)
    except (TypeError, ValueError):
        raise TypeError(
            "population must be names of columns, a data frame, or numbers with a row for each "
            f"group; {type(population).__name__} of something else came."
        ) from None
    covariates = covariates[:, None] if covariates.ndim == 1 else covariates
    if covariates.ndim != 2 or len(covariates) != n_groups or not covariates.shape[1]:
        raise ValueError(
            f"population must have a row for each of the {n_groups} groups, in the order of their "
            f"sorted labels; it has shape {covariates.shape}."
        )
    return covariates
