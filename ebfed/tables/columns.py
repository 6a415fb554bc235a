"""Columns of a data frame of any library, as arrays and lists."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.numbers import check_numeric, lacks_integer, plain

__all__ = [
    "as_frame",
    "as_rows",
    "column_of",
    "columns_apart",
    "complete",
    "days_of",
    "first_row",
    "levels_of",
    "matrix_of",
    "take",
    "values_of",
]


def column_of(X: Any, name: str) -> Any:
    """Return a column of a frame as a series with a name, also for Arrow.

    Examples
    --------
    >>> import pandas as pd
    >>> column_of(pd.DataFrame({"x": [1.0]}), "x").name
    'x'
    """
    import narwhals as nw

    return nw.from_native(X, eager_only=True)[name]


def values_of(X: Any, name: str) -> NDArray:
    """Return the values of a column as an array of a plain type.

    Examples
    --------
    >>> import pandas as pd
    >>> values_of(pd.DataFrame({"x": [1.0]}), "x")
    array([1.])
    """
    import narwhals as nw

    return plain(nw.from_native(X, eager_only=True)[name].to_numpy())


def days_of(values: NDArray) -> NDArray:
    """Return dates as days since 1970-01-01, time spans as days, and other values as they are.

    Dates with a time zone are of UTC, and periods are their first moment.

    Examples
    --------
    >>> days_of(np.array(["1970-01-02T12", "2000-01-01"], "M8[h]"))
    array([1.50000e+00, 1.09570e+04])
    """
    import pandas as pd

    if values.dtype.kind == "O" and len(values):
        if isinstance(values[0], datetime.date):  # as datetime.datetime is
            values = pd.to_datetime(pd.Series(values), utc=True).dt.tz_localize(None).to_numpy()
        elif isinstance(values[0], pd.Period):
            values = pd.PeriodIndex(values).to_timestamp().to_numpy()
        elif isinstance(values[0], datetime.timedelta):
            values = pd.to_timedelta(pd.Series(values)).to_numpy()
    if values.dtype.kind == "M":
        values = values - np.datetime64("1970-01-01")
    return values / np.timedelta64(1, "D") if values.dtype.kind == "m" else values


def as_frame(data: Any, also: str = "") -> Any:
    """Return a frame; names of columns that are no text, such as 0 and 1, are made text.

    Raises
    ------
    TypeError
        If it is no frame in memory; `also` says what else may be given.

    Examples
    --------
    >>> import pandas as pd
    >>> as_frame(pd.DataFrame([[1.0, 2.0]])).columns.tolist()
    ['0', '1']
    """
    import narwhals as nw
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        named = all(isinstance(name, str) for name in data.columns)
        return data if named else data.rename(columns=str)
    try:
        nw.from_native(data, eager_only=True)
    except TypeError:
        raise TypeError(
            f"data must be a frame in memory, of pandas, polars or Arrow{also}; "
            f"got {type(data).__name__}."
        ) from None
    return data


def as_rows(data: Any) -> Any:
    """Return rows as a frame: a frame, a mapping of columns or values, or one row as a series.

    Raises
    ------
    TypeError
        If it is something else.

    Examples
    --------
    >>> as_rows({"x": [1.0, 2.0], "kind": "a"})
         x kind
    0  1.0    a
    1  2.0    a
    """
    import pandas as pd

    if isinstance(data, pd.Series) and data.index.inferred_type == "string":
        return data.to_frame().T.infer_objects()
    if isinstance(data, Mapping):
        single = all(isinstance(x, str) or np.ndim(x) == 0 for x in data.values())
        return pd.DataFrame(dict(data), index=[0] if single else None)
    return as_frame(data, ", a mapping of columns, or one row as a series of pandas")


def columns_apart(X: Any) -> list[Any]:
    """Return every column of a frame: series of pandas as they are, arrays of other libraries.

    Examples
    --------
    >>> import polars as pl
    >>> [x.tolist() for x in columns_apart(pl.DataFrame({"x": [1, None], "y": ["a", "b"]}))]
    [[1.0, nan], ['a', 'b']]
    """
    import narwhals as nw

    table = nw.from_native(X, eager_only=True)
    if table.implementation.is_pandas():
        return [X.iloc[:, j] for j in range(table.shape[1])]
    return [
        (column.cast(nw.String) if column.dtype in (nw.Categorical, nw.Enum) else column).to_numpy()
        for column in table.iter_columns()
    ]


def levels_of(X: Any, name: str) -> list | None:
    """Return the ordered levels of a pandas category or a polars enumeration, else None.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"x": pd.Categorical(["b", "a"], ["b", "a"]), "y": [1, 2]})
    >>> levels_of(frame, "x"), levels_of(frame, "y")
    (['b', 'a'], None)
    """
    import narwhals as nw

    column = nw.from_native(X, eager_only=True)[name]
    if column.implementation.is_pandas_like():
        categories = getattr(column.to_native().dtype, "categories", None)
        return None if categories is None else list(categories)
    return list(column.dtype.categories) if isinstance(column.dtype, nw.Enum) else None


def first_row(X: Any) -> dict[str, Any]:
    """Return the first row of a frame as a dict.

    Examples
    --------
    >>> import pandas as pd
    >>> first_row(pd.DataFrame({"x": [1, 2]}))
    {'x': 1}
    """
    import narwhals as nw

    table = nw.from_native(X, eager_only=True)
    return {name: table[name].head(1).to_list()[0] for name in table.columns}


def matrix_of(X: Any) -> NDArray[np.float64]:
    """Return a frame of numbers as a matrix.

    Examples
    --------
    >>> import pandas as pd
    >>> matrix_of(pd.DataFrame({"x": [1, 2]}))
    array([[1.],
           [2.]])
    """
    import narwhals as nw

    matrix = nw.from_native(X, eager_only=True).to_numpy()
    check_numeric(matrix, "columns of a formula")
    return np.asarray(matrix, float)


def complete(X: Any, names: Sequence[str], insist: bool) -> NDArray[np.bool_]:
    """Return a mask of the rows that have all of these columns.

    Parameters
    ----------
    X : data frame
    names : sequence of str
    insist : bool
        Whether every row must be complete.

    Raises
    ------
    ValueError
        If `insist` and a value is missing, or no row is complete.

    Examples
    --------
    >>> import pandas as pd
    >>> complete(pd.DataFrame({"x": [1.0, None], "y": ["a", "b"]}), ["x", "y"], False)
    array([ True, False])
    """
    import narwhals as nw

    table = nw.from_native(X, eager_only=True)
    kept = np.ones(len(table), bool)
    for name in names:
        missing = ~has_value(X, name)
        if missing.any() and insist:
            raise ValueError(
                f"column {name!r} has {int(missing.sum())} missing values, the first in row "
                f"{int(np.argmax(missing))}; drop those rows, for example with na_action='drop'."
            )
        kept &= ~missing
    if not kept.any():
        raise ValueError("there is no row without missing values.")
    return kept


def has_value(X: Any, name: str) -> NDArray[np.bool_]:
    """Return a mask of the rows whose value in a column is not missing.

    Examples
    --------
    >>> import pandas as pd
    >>> has_value(pd.DataFrame({"x": [1.0, None]}), "x")
    array([ True, False])
    """
    import narwhals as nw

    column = nw.from_native(X, eager_only=True)[name]
    missing = np.asarray(column.is_null().to_numpy(), bool)
    if column.dtype.is_float():
        missing = missing | np.isnan(column.to_numpy().astype(float))
    elif column.dtype == nw.Int32:
        missing = missing | lacks_integer(column.to_numpy())
    return ~missing


def take(X: Any, rows: NDArray[np.bool_], names: Sequence[str]) -> Any:
    """Return a copy of these rows and columns of a frame.

    Examples
    --------
    >>> import pandas as pd
    >>> take(pd.DataFrame({"x": [1, 2], "y": [3, 4]}), np.array([False, True]), ["y"])
       y
    1  4
    """
    import narwhals as nw

    table = nw.from_native(X, eager_only=True).select(*names)
    return (table.clone() if rows.all() else table.filter(rows.tolist())).to_native()
