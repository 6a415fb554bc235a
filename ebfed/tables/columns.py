"""Columns of a data frame of any library, each read once, as arrays."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from numbers import Integral, Real
from operator import or_
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.frames import backend_of, beside, series_of
from ebfed.tables.values import (
    dates_of_objects,
    missing_in,
    numbers,
    of_batch,
    of_categories,
    plain,
)

__all__ = [
    "Columns",
    "check_na_action",
    "columns_apart",
    "days_of",
    "numeric_columns",
    "value_columns",
    "without_values",
]


# What becomes of rows that lack a value.
NA_ACTIONS = ("raise", "drop", "exclude")
# Engines have decimals of 38 digits.
MOST_OF_DECIMALS = Decimal("1e38")
NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"


class Columns:
    """Columns of a frame in memory; each is read when it is first used.

    Parameters
    ----------
    table : data frame of narwhals
    names : list of str, optional
        Its columns, where they are known.

    Attributes
    ----------
    computed : dict of ndarray of shape (n_rows,)
        Values of expressions of columns, by their text.

    Examples
    --------
    >>> import pandas as pd
    >>> kinds = pd.Categorical(["b", None], ["b", "a"])
    >>> columns = Columns.of(pd.DataFrame({"x": [1.0, None], "kind": kinds}))
    >>> columns.values("x"), columns.levels("kind"), columns.levels("x")
    (array([ 1., nan]), ['b', 'a'], None)
    >>> columns.known("kind"), columns.complete(["x"], "drop")
    (array([ True, False]), array([ True, False]))
    >>> columns.take(np.array([False, True]), ["kind"]).names
    ['kind']
    """

    def __init__(self, table: Any, names: list[str] | None = None):
        self._table, self.names = table, table.columns if names is None else names
        self._new: dict[str, NDArray] = {}  # columns that are not in the table yet
        self._series: dict[str, Any] = {}
        self._values: dict[str, NDArray] = {}
        self.computed: dict[str, NDArray] = {}

    @classmethod
    def of(cls, data: Any, also: str = "") -> Self:
        """Read a frame; names of columns that are no text, such as 0 and 1, are made text.

        Raises
        ------
        TypeError
            If it is no frame in memory; `also` says what else may be given.
        ValueError
            If two columns have one name.
        """
        import narwhals as nw
        import pandas as pd

        if isinstance(data, cls):
            return data
        names = None
        if isinstance(data, pd.DataFrame):
            names = data.columns.tolist()
            if not all(isinstance(name, str) for name in names):
                data = data.rename(columns=str)
                names = data.columns.tolist()
            if not data.columns.is_unique:
                twice = min(data.columns[data.columns.duplicated()])
                raise ValueError(f"data has more than one column {twice!r}.")
        try:
            return cls(nw.from_native(of_batch(data), eager_only=True), names)
        except TypeError:
            raise TypeError(
                f"data must be a frame in memory, of pandas, polars or Arrow{also}; "
                f"got {type(data).__name__}."
            ) from None

    @classmethod
    def of_rows(cls, data: Any) -> Self:
        """Read rows: a frame, a mapping of columns or values, or one row as a series.

        Raises
        ------
        TypeError
            If it is something else.

        Examples
        --------
        >>> Columns.of_rows({"x": [1.0, 2.0], "kind": "a"}).native
             x kind
        0  1.0    a
        1  2.0    a
        """
        import pandas as pd

        if isinstance(data, pd.Series) and data.index.inferred_type == "string":
            data = data.to_frame().T.infer_objects()
        elif isinstance(data, Mapping):
            single = all(isinstance(x, str) or np.ndim(x) == 0 for x in data.values())
            data = pd.DataFrame(dict(data), index=[0] if single else None)
        return cls.of(data, ", a mapping of columns, or one row as a series of pandas")

    @property
    def table(self) -> Any:
        """The frame, of narwhals."""
        import narwhals as nw

        if self._new:
            native = beside(self._table.to_native(), self._new)
            self._table, self._new = nw.from_native(native, eager_only=True), {}
        return self._table

    @property
    def backend(self) -> str:
        """Name of the frame's library."""
        return backend_of(self._table)

    @property
    def native(self) -> Any:
        """The frame, of its own library."""
        return self.table.to_native()

    def __len__(self) -> int:
        return self._table.shape[0]

    def __getstate__(self) -> Any:
        return self.native

    def __setstate__(self, native: Any) -> None:
        import narwhals as nw

        self.__init__(nw.from_native(native, eager_only=True))  # type: ignore[misc]

    def forget(self) -> None:
        """Drop arrays of columns, which the frame has."""
        self._series.clear()
        self._values.clear()
        self.computed.clear()

    def series(self, name: str) -> Any:
        """Return a column as a series of narwhals."""
        if name not in self._series:
            new = self._new.get(name)
            self._series[name] = (
                self._table.get_column(name) if new is None else series_of(name, new, self.backend)
            )
        return self._series[name]

    def values(self, name: str) -> NDArray:
        """Return the values of a column as an array of a plain type."""
        if name not in self._values:
            values = self.series(name).to_numpy()
            if values.ndim != 1:
                kind = self.series(name).dtype
                raise ValueError(
                    f"column {name!r} has several values in each row ({kind}); give each a column."
                )
            self._values[name] = plain(values)
        return self._values[name]

    def levels(self, name: str) -> list | None:
        """Return the ordered levels of a pandas category or a polars enumeration, else None."""
        import narwhals as nw

        column = self.series(name)
        if column.implementation.is_pandas_like():
            categories = getattr(column.to_native().dtype, "categories", None)
            return None if categories is None else list(categories)
        return list(column.dtype.categories) if isinstance(column.dtype, nw.Enum) else None

    def is_category(self, name: str) -> bool:
        """Tell whether a column holds categories, be they of text or of numbers."""
        import narwhals as nw

        return self.series(name).dtype in (nw.Categorical, nw.Enum)

    def known(self, name: str) -> NDArray[np.bool_]:
        """Return a mask of the rows whose value in a column is not missing."""
        import narwhals as nw

        column = self.series(name)
        # the dtype of pandas is asked first: that of narwhals is slow to find
        kind = getattr(getattr(column.to_native(), "dtype", None), "kind", "O")
        holds_numbers = kind in "iuf" or column.dtype.is_numeric() or column.dtype == nw.Object
        if holds_numbers:
            values = self.values(name)
            if values.dtype.kind in "iuf":
                return ~np.isnan(values)
        return ~missing_in(column)

    def lacking(self, names: Sequence[str]) -> tuple[NDArray[np.bool_], str]:
        """Return which rows have all of these columns, and what the others lack, if any do."""
        complete, parts = np.ones(len(self), bool), []
        for name in names:
            known = self.known(name)
            complete &= known
            if not known.all():
                lost, first = int((~known).sum()), int(np.argmin(known))
                parts.append(f"column {name!r} has {lost} missing values, the first in row {first}")
        lost = int((~complete).sum())
        text = f"{lost:,} of {len(self):,} rows are incomplete ({'; '.join(parts)})"
        return complete, text if parts else ""

    def complete(self, names: Sequence[str], na_action: str) -> NDArray[np.bool_]:
        """Return a mask of the rows that have all of these columns.

        Parameters
        ----------
        names : sequence of str
        na_action : {"raise", "drop", "exclude"}
            Whether other rows are refused.

        Raises
        ------
        ValueError
            If a row is refused, no row is complete, or there is no such action.
        """
        check_na_action(na_action)
        kept, text = self.lacking(names)
        if text and na_action == "raise":
            raise ValueError(f"{text}; drop those rows, for example with na_action='drop'.")
        if not len(self):
            raise ValueError("data has no rows.")
        if not kept.any():
            raise ValueError("there is no row without missing values.")
        return kept

    def replacing(self, columns: Mapping[str, NDArray]) -> Columns:
        """Return the frame with other values of some columns, or with more of them.

        The frame itself is made when it is first asked for.

        Examples
        --------
        >>> import pandas as pd
        >>> new = Columns.of(pd.DataFrame({"x": [1.0, 2.0]})).replacing({"x": np.array([3.0, 4.0])})
        >>> new.values("x"), new.native["x"].tolist()
        (array([3., 4.]), [3.0, 4.0])
        """
        found = Columns(self._table, [*self.names, *(x for x in columns if x not in self.names)])
        found._new = {**self._new, **columns}
        found._series = {name: x for name, x in self._series.items() if name not in columns}
        found._values = {name: x for name, x in self._values.items() if name not in columns}
        found._values |= {name: plain(values) for name, values in columns.items()}
        return found

    def take(self, rows: NDArray[np.bool_] | None, names: Sequence[str]) -> Columns:
        """Return a copy of these rows, all if None, and columns."""
        import narwhals as nw

        names, every = list(names), rows is None or bool(rows.all())
        if names == self.names:
            table = self.table.clone() if every else self.table
        elif self.table.implementation.is_pandas():  # by place: names take five times as long
            places = [self.names.index(name) for name in names]
            table = nw.from_native(self.native.take(places, axis=1), eager_only=True)
        else:
            table = self.table.select(*names)
        return Columns(table if rows is None or every else table.filter(rows.tolist()), names)


def check_na_action(na_action: Any, known: Sequence[str] = NA_ACTIONS) -> None:
    """Refuse what is no action on rows that lack a value.

    Examples
    --------
    >>> check_na_action("drop")
    """
    if na_action not in known:
        *others, last = map(repr, known)
        raise ValueError(f"na_action must be {', '.join(others)} or {last}; got {na_action!r}.")


def without_values(table: Any, na_values: Sequence[Any]) -> Any:
    """Return a frame of narwhals whose cells with one of these values are missing.

    Numbers are compared as numbers, so that "-99" is -99.0 too.

    Parameters
    ----------
    table : data frame or lazy table of narwhals
    na_values : sequence or set of str and numbers, or one of these

    Raises
    ------
    TypeError
        If it is a mapping.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"x": [1, -99], "kind": ["NA", "a"]})
    >>> without_values(Columns.of(rows).table, ["NA", -99]).to_native().isna().to_numpy()
    array([[False,  True],
           [ True, False]])
    """
    import narwhals as nw

    if isinstance(na_values, Mapping):
        raise TypeError("na_values must be values that are missing in every column; got a mapping.")
    single = isinstance(na_values, str) or not np.iterable(na_values)  # as of R
    words = [str(each) for each in ([na_values] if single else na_values)]
    figures = [Decimal(each) for each in words if re.fullmatch(NUMBER, each)]
    columns = []
    if isinstance(table, nw.LazyFrame):
        for name, kind in table.collect_schema().items():
            column = nw.col(name)
            if (absent := _among(column, kind, figures, words)) is not None:
                columns.append(nw.when(~absent).then(column).alias(name))
        return table.with_columns(*columns)
    for column in table.iter_columns():
        absent = _among_values(column, figures, words)
        if absent is not None and absent.any():
            columns.append(nw.when(~absent).then(_nullable(column)).alias(column.name))
    return table.with_columns(*columns) if columns else table


def _nullable(column: Any) -> Any:
    """Return a series of which whole numbers stay what they are beside missing ones."""
    import narwhals as nw

    if not (column.dtype.is_integer() and column.implementation.is_pandas()):
        return column
    whole = column.to_native().convert_dtypes()
    return nw.from_native(whole, series_only=True)


def _among(column: Any, kind: Any, figures: list[Decimal], words: list[str]) -> Any:
    """Whether a column has one of some numbers, or words; None if it has neither."""
    import narwhals as nw

    if kind.is_integer():  # as floats, large ones would be equal to others
        least, most = (0, 2**64) if kind.is_unsigned_integer() else (-(2**63), 2**63)
        some = [x for x in figures if least <= x < most and x == x.to_integral_value()]
        return _is_one(column, [int(x) for x in some])
    if kind == nw.Decimal:
        return _is_one(column, [x for x in figures if abs(x) < MOST_OF_DECIMALS])
    if kind.is_numeric():
        rounded = np.float32 if kind == nw.Float32 else np.float64
        with np.errstate(over="ignore"):
            return column.cast(nw.Float64).is_in([float(rounded(float(x))) for x in figures])
    if kind in (nw.String, nw.Categorical, nw.Enum):
        return column.cast(nw.String).is_in(words)
    return None


def _is_one(column: Any, values: Sequence[Any]) -> Any:
    """Tell where a column has one of the values; None without values, as in `_among`.

    `is_in` takes whole numbers as floats in polars 1.30, and no decimals with other digits.
    """
    return reduce(or_, [column == each for each in values]) if values else None


def _among_values(column: Any, figures: list[Decimal], words: list[str]) -> Any:
    """Whether a series has one of some numbers, or words, as `_among`; also of objects."""
    import narwhals as nw

    values = of_categories(column)
    if values.dtype != nw.Object:
        return _among(values, values.dtype, figures, words)
    floats = {float(x) for x in figures}

    def hit(each: Any) -> bool:
        if isinstance(each, bool) or not isinstance(each, Real | Decimal):
            return str(each) in words
        if isinstance(each, Integral | Decimal):
            return (each if isinstance(each, Decimal) else int(each)) in figures
        return float(each) in floats

    if values.implementation.is_pandas():  # with its index
        return nw.from_native(values.to_native().map(hit).astype(bool), series_only=True)
    return series_of(column.name, np.array([*map(hit, values)], bool), backend_of(column))


def days_of(values: NDArray) -> NDArray:
    """Return dates as days since 1970-01-01, time spans as days, and other values as they are.

    Dates with a time zone are of UTC, and periods are their first moment.

    Examples
    --------
    >>> days_of(np.array(["1970-01-02T12", "2000-01-01"], "M8[h]"))
    array([1.50000e+00, 1.09570e+04])
    """
    if values.dtype.kind == "O":
        values = dates_of_objects(values, skipna=True)
    if values.dtype.kind == "M":
        values = values - np.datetime64("1970-01-01")
    return values / np.timedelta64(1, "D") if values.dtype.kind == "m" else values


def columns_apart(X: Any) -> list[Any]:
    """Return every column of a frame: series of pandas as they are, arrays of other libraries.

    Examples
    --------
    >>> import polars as pl
    >>> [x.tolist() for x in columns_apart(pl.DataFrame({"x": [1, None], "y": ["a", "b"]}))]
    [[1.0, nan], ['a', 'b']]
    """
    import narwhals as nw

    table = nw.from_native(of_batch(X), eager_only=True)
    if table.implementation.is_pandas():
        return [table.to_native().iloc[:, j] for j in range(table.shape[1])]
    return [
        (column.cast(nw.String) if column.dtype in (nw.Categorical, nw.Enum) else column).to_numpy()
        for column in table.iter_columns()
    ]


def numeric_columns(X: Any, names: Sequence[str], argument: str) -> NDArray[np.float64]:
    """Return columns of a frame as numbers, NaN where missing, shape (n_rows, k).

    Parameters
    ----------
    X : data frame
    names : sequence of k str
    argument : str
        Argument that has the names, for errors.

    Raises
    ------
    ValueError
        If a column does not exist.
    TypeError
        If a column is not numeric.

    Examples
    --------
    >>> import pandas as pd
    >>> numeric_columns(pd.DataFrame({"x": [1, 2], "open": [True, False]}), ["open"], "population")
    array([[1.],
           [0.]])
    """
    import narwhals as nw

    table: Any = nw.from_native(of_batch(X), eager_only=True)
    if missing := [name for name in names if name not in table.columns]:
        shown = ", ".join(map(repr, table.columns))
        raise ValueError(
            f"{argument} names {missing[0]!r}, which is not among the columns {shown}."
        )
    return numbers(table.select(*names).to_native(), argument, booleans=True)


def value_columns(
    there: Iterable[str], keys: Mapping[str, str], aside: Container[str] = ()
) -> list[str]:
    """Return the columns of values, after checks.

    Parameters
    ----------
    there : iterable of str
        All columns.
    keys : mapping from argument to column
        Columns of labels and of the response, by argument.
    aside : container of str
        Columns that are no values either, where they are there.

    Raises
    ------
    ValueError
        If a named column does not exist.

    Examples
    --------
    >>> value_columns(["county", "rate"], {"groups": "county"})
    ['rate']
    """
    there = list(there)
    for key, name in keys.items():
        if name not in there:
            raise ValueError(
                f"{key}={name!r} is not a column of X, which has {', '.join(map(repr, there))}."
            )
    return [name for name in there if name not in keys.values() and name not in aside]
