"""Rows in memory, read once: every role as an array of a plain type, in one order.

Whatever the caller has (arrays, series and frames of any library), `Rows.read` pairs it by label,
takes named columns out of the frame, and checks what each holds. All below it works with arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.alignment import aligned, index_of, labels_of
from ebfed.tables.columns import columns_apart, value_columns
from ebfed.tables.frames import Style, style_for, style_of, style_of_levels, style_of_rows, titles
from ebfed.tables.levels import number_levels, split_levels
from ebfed.tables.of_rows import NOTHING, of_rows
from ebfed.tables.values import (
    Read,
    is_frame,
    is_series,
    numbers,
    read_labels,
    read_response,
    wrapped,
)

__all__ = ["Rows"]


@dataclass(frozen=True)
class Rows(Read):
    """Rows of a table, with what goes with them.

    Attributes
    ----------
    X : float64 ndarray of shape (n_rows, d) or (n_rows,)
        Values, without the columns of other roles.
    columns : list or None
        Names of the columns of values, if they have names.
    levels : tuple of ndarray of shape (n_rows,)
        Labels of each level of groups, from the outermost; none without groups.
    style : Style
    y : ndarray of shape (n_rows,) or None
        Response: numbers, or labels of classes.
    beside : mapping of str to ndarray of shape (n_rows,)
        Weights, exposures, choices and the like; see `ebfed.tables.of_rows`.
    tables : mapping of str to object
        What was paired with the rows and is read by others, such as columns of a formula.
    times : ndarray of shape (n_rows,) or None
        How many equal rows each one stands for; None: one.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = Rows.read(pd.DataFrame({"county": ["a", "b"], "rate": [0.5, 0.7]}), "county")
    >>> rows.labels.tolist(), rows.columns, rows.style.group
    (['a', 'b'], ['rate'], 'county')
    """

    X: NDArray[np.float64]
    columns: list[Any] | None
    levels: tuple[NDArray, ...]
    style: Style = field(default_factory=Style)
    y: NDArray | None = None
    beside: Mapping[str, NDArray] = field(default_factory=dict)
    tables: Mapping[str, Any] = field(default_factory=dict)
    times: NDArray[np.float64] | None = None

    @classmethod
    def read(
        cls,
        X: Any,
        groups: Any = None,
        y: Any = None,
        *,
        beside: Mapping[str, Any] = NOTHING,
        aside: Sequence[str] = (),
        numeric: bool = False,
        several: bool = True,
        tuples: bool = False,
        values: Literal["numbers", "labels", "columns"] = "numbers",
    ) -> Self:
        """Read rows; each argument is an array-like or series, or names a column of the frame `X`.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, d), or series
            Or rows that were read, which have their groups and response.
        groups : one or several of these, see `split_levels`; or None
        y : one of these
        beside : mapping
            What goes with rows, by the name of its argument.
        aside : sequence of str
            Columns of the frame that are no values, and are not read.
        numeric : bool
            Whether the response is numbers, rather than labels of classes.
        several : bool
            Whether groups may be of several levels.
        tuples : bool
            Whether a tuple is the labels of all levels.
        values : {"numbers", "labels", "columns"}
            What `X` is: numbers; or where it has one column labels, of shape (n_rows,); or
            anything, which is not read: columns of a frame, one by one, or an array are in `tables`
            with `y`.

        Raises
        ------
        ValueError
            If a named column is not in `X`, a label is missing, an entry is masked, lengths differ,
            or indexes of pandas have different labels.
        NotNumericError
            If values are no numbers.
        """
        if isinstance(X, cls):
            return X.with_beside(beside, numeric) if beside or X.y is not None else X
        parts = split_levels(groups, X, tuples)
        if len(parts) > 1 and not several:
            parts = [groups]
        names = [f"groups of level {level}" for level in range(1, len(parts))] + ["groups"]
        roles = dict(zip(names, parts, strict=True)) | {"y": y} | dict(beside)
        paired = aligned({"X": X} | roles)
        table = wrapped(X, eager_only=True, allow_series=True)
        of_frame, style = is_frame(table), style_for(table)
        columns = [table.name] if is_series(table) and _is_name(table.name) else None
        keys = {name: each for name, each in roles.items() if isinstance(each, str)}
        if of_frame:
            columns = value_columns(table.columns, keys, aside)
            paired |= {name: table[column] for name, column in keys.items()}
            X = table.select(*columns) if 0 < len(columns) < len(table.columns) else table
        elif keys:
            name = next(iter(keys))
            raise ValueError(
                f"{name}={keys[name]!r} names a column, but X is not a data frame; pass an array."
            )
        tables: dict[str, Any] = {}
        if values == "columns":
            tables = {"X": columns_apart(X) if of_frame else X, "y": paired.pop("y")}
            columns = columns if of_frame else None
            whole = np.empty((len(table), 0) if of_frame else ())
        elif values == "labels" and (own := _only_column(X, table, columns)) is not None:
            whole = read_labels(own, "X")
        else:
            whole = np.empty((len(table), 0)) if columns == [] else numbers(X, "X", booleans=True)
            whole = whole[:, None] if columns is not None and whole.ndim == 1 else whole
        if (offset := paired.get("offset")) is not None and np.ndim(offset) == 0:
            paired["offset"] = np.full(len(whole), offset)  # that of all rows
        found = {name: of_rows(paired[name], name) for name in beside}
        levels: tuple[NDArray, ...] = ()
        if groups is None:
            style = style_of_rows(paired["X"], style)
        else:
            style = style_of_levels([paired[name] for name in names], style)
            shown = [keys.get(*each) for each in zip(names, titles(style), strict=True)]
            given = (paired[name] for name in names)
            levels = tuple(read_labels(*each) for each in zip(given, shown, strict=True))
        for name, entries in [*(("groups", each) for each in levels), *found.items()]:
            if whole.ndim and not isinstance(entries, Mapping) and len(entries) != len(whole):
                raise ValueError(
                    f"{name} has {len(entries)} entries for the {len(whole)} rows of X."
                )
        if (y := paired.get("y")) is not None:
            y = numbers(y, "y", booleans=True) if numeric else read_response(y, "y")
        return cls(whole, columns, levels, style, y, found, tables)

    @classmethod
    def of_units(
        cls,
        given: Mapping[str, Any],
        figures: Sequence[str],
        unit: str = "group",
        *,
        covariance: str | None = None,
        fill: bool = False,
    ) -> Self:
        """Read figures of units, each of which is a row of its own: estimates, studies, areas.

        Parameters
        ----------
        given : mapping
            Figures, by argument; ``labels`` that name the units, else the index of the first of the
            figures does; and what is of the same rows, which is returned in `tables`.
        figures : sequence of str
            Which are figures. Of the first, `X`, each unit has a number; of the others, too, or one
            number is that of all. Others that are None are not among the results.
        unit : str
            Name of the column of labels, if the labels are without a name.
        covariance : str, optional
            Figure that may be of shape (n, n), of each pair of units.
        fill : bool
            Whether a masked figure is missing, rather than an error.

        Raises
        ------
        ValueError
            If lengths differ, indexes of pandas have different labels, or a label is missing.
        NotNumericError
            If figures are no numbers.

        Examples
        --------
        >>> given = {"estimates": [0.5, 0.7], "df": 4, "labels": ["b", "a"]}
        >>> rows = Rows.of_units(given, ["estimates", "df"], "study")
        >>> rows.labels.tolist(), rows.beside["df"].tolist(), rows.style.group
        (['b', 'a'], [4.0, 4.0], 'study')
        """
        paired, first = aligned(given, rows=False), figures[0]
        square = paired.get(str(covariance))
        if square is not None and index_of(square) is not None and np.ndim(square) == 2:
            turned = {f"rows of {covariance}": square, f"columns of {covariance}": square.T}
            # labels, and so names of columns, may be repeated
            paired |= {str(covariance): [*aligned(turned, rows=False).values()][1].T.to_numpy()}
        found = {
            name: numbers(paired[name], name, booleans=name == "estimates", fill=fill)
            for name in figures
            if name in (first, covariance) or paired[name] is not None
        }
        n = found[first].size
        for name, values in found.items():
            if values.shape == (n, 1) and (name != covariance or n > 1):
                found[name] = values[:, 0]
            elif values.ndim == 0 and name != first and np.isfinite(values):
                found[name] = np.full(n, values)
        shapes = {name: values.shape for name, values in found.items()}
        own = {} if covariance is None or not n else {covariance: (n, n)}
        if any(shape not in ((n,), own.get(name)) for name, shape in shapes.items()):
            *names, last = shapes
            also = "" if covariance is None else f", or {covariance} a covariance of shape (n, n)"
            raise ValueError(
                f"{', '.join(names)}{' and ' * bool(names)}{last} must be one-dimensional and of "
                f"one length{also}; they have shapes {' and '.join(map(str, shapes.values()))}."
            )
        labels = labels_of(paired[first], paired.get("labels"))
        style = style_of(labels, style_for(paired[first]))
        style = replace(style, group=unit) if style.group == Style().group else style
        levels: tuple[NDArray, ...] = () if labels is None else (read_labels(labels, "labels"),)
        if levels and len(levels[0]) != n:
            raise ValueError(f"labels has {len(levels[0])} entries for {n} {first}.")
        tables = {name: each for name, each in paired.items() if name not in (*figures, "labels")}
        return cls(found.pop(first), None, levels, style, None, found, tables)

    def with_beside(self, beside: Mapping[str, Any], numeric: bool) -> Self:
        """Return rows that were read, with what goes with them beside them; see `read`."""
        given = dict(beside)
        if np.ndim(offset := given.get("offset", ())) == 0:
            given["offset"] = np.full(len(self), offset)  # that of all rows
        found = {name: of_rows(each, name) for name, each in given.items()}
        y = self.y
        if y is not None:
            y = numbers(y, "y", booleans=True) if numeric else read_response(y, "y")
        return replace(self, y=y, beside={**self.beside, **found})

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.X)

    @cached_property
    def numbered(self) -> tuple[NDArray, NDArray[np.int64]]:
        """The labels of the groups, sorted, and the number of each row's."""
        return number_levels(self.levels, titles(self.style))

    @property
    def styles(self) -> list[Style]:
        """Name and type of the labels of each level; none without groups."""
        return [*self.style.above, replace(self.style, above=())] if self.levels else []

    @property
    def labels(self) -> NDArray | None:
        """Label of each row's group, a tuple of those of several levels; None without groups."""
        if len(self.levels) < 2:
            return self.levels[0] if self.levels else None
        ids, codes = self.numbered
        return ids[codes]


def _only_column(X: Any, table: Any, columns: Sequence[str] | None) -> Any:
    """Return the column of values, if there is one only; else None."""
    if is_frame(table):
        return table[columns[0]] if columns and len(columns) == 1 else None
    try:
        array = X if isinstance(X, np.ndarray) else np.asarray(X)
    except ValueError:
        raise ValueError("X must have rows of one length.") from None
    if array.ndim < 2:
        return X
    return array[:, 0] if array.shape[1:] == (1,) else None


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(name)
