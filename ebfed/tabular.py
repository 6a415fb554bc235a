"""Frames in, frames out: any eager data frame becomes arrays, and results go back in kind.

Everything that knows narwhals is here. `read` takes arrays or a pandas, polars or Arrow frame and
returns plain arrays plus a `Style`: what the frame called its columns, of what type its group
labels were, and which library made it. `frame` builds a result in that style, so that labels come
back exactly as they went in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.clients import check_labels

__all__ = ["Style", "Table", "frame", "read"]


@dataclass(frozen=True)
class Style:
    """How results are to look: the library of the frames, the group column's name and type."""

    backend: Any = "pandas"
    group: str = "group"
    dtype: Any = None

    def using(self, backend: str) -> Style:
        """Same names, another library."""
        return replace(self, backend=backend)


@dataclass(frozen=True)
class Table:
    """Rows ready for summarising.

    Attributes
    ----------
    X : the values as they came (array or frame), without the group column
    labels : ndarray of shape (n_rows,) or None
    style : Style
    """

    X: Any
    labels: NDArray | None
    style: Style = field(default_factory=Style)


def read(X: Any, groups: Any = None) -> Table:
    """Separate group labels from values.

    Parameters
    ----------
    X : array-like or data frame of shape (n_rows, d), or series
    groups : array-like or series of shape (n_rows,), or the name of a column of `X`, or None

    Raises
    ------
    ValueError
        If the named column is not in `X`, or a label is missing.
    TypeError
        If a column of values is not numeric.

    Examples
    --------
    >>> import pandas as pd
    >>> table = read(pd.DataFrame({"county": ["a", "b"], "rate": [0.5, 0.7]}), "county")
    >>> table.labels.tolist(), list(table.X.columns), table.style.group
    (['a', 'b'], ['rate'], 'county')
    """
    import narwhals as nw

    values = nw.from_native(X, eager_only=True, allow_series=True, pass_through=True)
    style = Style()
    if isinstance(values, nw.Series):
        style = style.using(_backend(values))
        X = values.to_numpy()
    elif isinstance(values, nw.DataFrame):
        style = style.using(_backend(values))
        if isinstance(groups, str):
            if groups not in values.columns:
                raise ValueError(
                    f"groups={groups!r} is not a column of X, which has "
                    f"{', '.join(map(repr, values.columns))}."
                )
            groups, values = values[groups], values.drop(groups)
        for name, dtype in values.schema.items():
            if not (dtype.is_numeric() or dtype == nw.Boolean):
                raise TypeError(
                    f"column {name!r} of X is {dtype}, not numeric; select the columns to "
                    "estimate, or name the column of labels in groups=."
                )
        X = values.to_native() if values.implementation.is_pandas_like() else values.to_pandas()
    elif isinstance(groups, str):
        raise ValueError(
            f"groups={groups!r} names a column, but X is not a data frame; pass the labels."
        )
    if groups is None:
        return Table(X, None, style)
    labels = nw.from_native(groups, series_only=True, pass_through=True)
    if not isinstance(labels, nw.Series):
        return Table(X, check_labels(labels), style)
    name = labels.name if isinstance(labels.name, str) and labels.name else style.group
    if style.backend == "pandas":
        style = style.using(_backend(labels))
    style = replace(style, group=name, dtype=labels.dtype)
    return Table(X, check_labels(_label_array(labels, name), name), style)


def _backend(native: Any) -> str:
    return str(native.implementation).removeprefix("Implementation.").lower()


def _label_array(labels: Any, name: str) -> NDArray:
    """Labels as NumPy: numbers and dates as they are, everything else as strings."""
    import narwhals as nw

    missing = labels.is_null()
    if missing.any():
        raise ValueError(
            f"{name} has {int(missing.sum())} missing labels, the first in row "
            f"{int(missing.arg_true()[0])}; drop those rows or give them a label."
        )
    dtype = labels.dtype
    if dtype == nw.Datetime and dtype.time_zone is not None:
        labels = labels.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    elif dtype == nw.Date:
        labels = labels.cast(nw.Datetime("ms"))
    elif dtype in (nw.Categorical, nw.Enum):
        labels = labels.cast(nw.String)
    if labels.dtype == nw.String:
        return np.asarray(labels.to_list(), dtype=object)
    return labels.to_numpy()


def frame(columns: Mapping[str, ArrayLike], style: Style | None = None) -> Any:
    """Build a frame in `style`; the column called like the group gets the labels' own type.

    Examples
    --------
    >>> frame({"group": ["a", "b"], "estimate": [0.5, 0.7]})
      group  estimate
    0     a       0.5
    1     b       0.7
    """
    import narwhals as nw

    style = style or Style()
    series = []
    for name, values in columns.items():
        array = np.asarray(values)
        wanted = style.dtype if name == style.group else None
        column = nw.new_series(
            name, array.tolist() if array.dtype.kind in "OU" else array, backend=style.backend
        )
        series.append(column if wanted is None else _restore(column, wanted))
    # not nw.from_dict: with pandas it loses categories and time zones
    return nw.concat([column.to_frame() for column in series], how="horizontal").to_native()


def _restore(column: Any, dtype: Any) -> Any:
    import narwhals as nw

    if column.dtype == dtype:
        return column
    if dtype == nw.Datetime and dtype.time_zone is not None:
        column = column.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone)
    elif dtype == nw.Enum and not dtype.categories:
        dtype = nw.Categorical()
    return column.cast(dtype)
