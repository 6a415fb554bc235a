"""Columns of a data frame of any library, as arrays and lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.numbers import check_numeric

__all__ = [
    "column_of",
    "columns_apart",
    "complete",
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
    """Return the values of a column as an array.

    Examples
    --------
    >>> import pandas as pd
    >>> values_of(pd.DataFrame({"x": [1.0]}), "x")
    array([1.])
    """
    import narwhals as nw

    return nw.from_native(X, eager_only=True)[name].to_numpy()


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
