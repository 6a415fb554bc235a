"""Rows of tables larger than memory: a few, or columns, in memory, and predictions in place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.blocks import memory
from ebfed.tables.columns import Columns, check_na_action, without_values

__all__ = [
    "FITTED",
    "Beside",
    "Lookup",
    "NotPushedError",
    "Scan",
    "blanked",
    "collected",
    "column_in",
    "columns_of_classes",
    "has_rows",
    "in_memory",
    "lacking",
    "named_in",
    "repeated_rows",
    "where",
    "with_codes",
]

# Name of the column of predictions.
FITTED = ".fitted"
# Rows in memory of a scan, and most levels of a factor.
SAMPLE, LEVELS = 500, 100


class Lookup(NamedTuple):
    """Numbers of categories.

    Attributes
    ----------
    labels : mapping of str to ndarray of shape (m,)
        By column, the categories; of several columns, their combinations.
    codes : mapping of str to ndarray of shape (m,)
        Numbers of these, by the name that they will have.
    others : sequence of float
        Numbers of others.
    above : sequence of str
        Or the names of numbers that others have, of an earlier lookup.
    """

    labels: Mapping[str, NDArray]
    codes: Mapping[str, NDArray[np.float64]]
    others: Sequence[float]
    above: Sequence[str] = ()


class NotPushedError(Exception):
    """What only rows in memory can have."""


@dataclass(frozen=True)
class Scan:
    """A lazy table, of which a few rows are in memory, and expressions of its columns.

    Attributes
    ----------
    whole, table : lazy tables of narwhals
        All rows, and those in use: the complete ones, if others are left out.
    used : list of str
        Columns in use.
    sample : Columns
        A few complete rows in memory, with all levels of factors.
    """

    whole: Any
    table: Any
    used: list[str]
    sample: Columns

    @classmethod
    def of(
        cls,
        data: Any,
        used: Sequence[str],
        columns: Sequence[str],
        labels: Sequence[str],
        na_action: str,
    ) -> Self:
        """Read a few rows of a table.

        Parameters
        ----------
        data : lazy table
        used : sequence of str
            Columns in use.
        columns : sequence of str
            Columns of which the levels are read, if they are not numbers.
        labels : sequence of str
            Columns of which the levels are read, whatever they are.
        na_action : {"raise", "drop", "exclude"}
            Treatment of rows that lack a value: if they are not left out, `lacking` says which
            columns have them, once sums are not finite.

        Raises
        ------
        ValueError
            If no row is complete, or there is no such action.
        NotPushedError
            If a column has too many levels.

        Examples
        --------
        >>> import polars as pl
        >>> rows = pl.LazyFrame({"x": [1.0, 2.0, None], "kind": ["a", "b", "b"]})
        >>> scan = Scan.of(rows, ["x", "kind"], ["x", "kind"], [], "drop")
        >>> scan.dropped(), scan.in_sample({"b": scan.is_level("kind", "b")}).mean()
        (1, np.float64(0.5))
        """
        import narwhals as nw

        check_na_action(na_action)
        table = nw.from_native(data)
        absent = _missing(table, used)
        complete = table.filter(~nw.any_horizontal(*absent.values(), ignore_nulls=True))
        complete = complete.select(*used)
        head = nw.from_native(in_memory(complete.head(SAMPLE)), eager_only=True)
        if not len(head):
            raise ValueError("there is no row without missing values.")
        schema, levels = complete.collect_schema(), {}
        of_text = [x for x in columns if x in schema and not _is_number(schema[x])]
        for name in {*of_text, *labels} & {*schema}:
            # rows that lack other values are refused later, or left out
            there = table.filter(~absent[name]) if na_action == "raise" else complete
            own = there.select(name).group_by(name).agg(nw.len().alias("ebfed_n"))
            found = in_memory(own.select(name).head(LEVELS + 1))
            levels[name] = nw.from_native(found, eager_only=True)[name]
            if len(levels[name]) > LEVELS:
                raise NotPushedError(name)
        rows = np.arange(max(len(head), *map(len, levels.values()), 0))
        every = {name: levels.get(name, head[name]) for name in used}
        sample = {
            name: each[(rows % len(each)).tolist()].to_native() for name, each in every.items()
        }
        native = nw.from_dict(sample, backend=head.implementation).to_native()
        kept = table if na_action == "raise" else complete
        return cls(table, kept, list(used), Columns.of(native))

    @classmethod
    def few(cls, data: Any, used: Sequence[str]) -> Self:
        """Read the first rows of a table, complete or not.

        Parameters
        ----------
        data : lazy table
        used : sequence of str
            Columns in use.

        Examples
        --------
        >>> import polars as pl
        >>> Scan.few(pl.LazyFrame({"x": [1.0, None], "z": [1, 2]}), ["x"]).sample.names
        ['x']
        """
        import narwhals as nw

        table = nw.from_native(data)
        head = in_memory(table.select(*_columns_in(table, used)).head(SAMPLE))
        return cls(table, table, list(used), Columns.of(head))

    def dropped(self) -> int:
        """Return how many rows are left out."""
        if self.table is self.whole:
            return 0
        return _n_rows(self.whole) - _n_rows(self.table)

    def value(self, name: str) -> Any:
        """Return a column as an expression: a number, or what it is."""
        import narwhals as nw

        kind = self.table.collect_schema().get(name)
        if kind is None or kind.is_temporal():
            raise NotPushedError(name)
        column = column_in(self.table, name)
        return column.cast(nw.Float64) if _is_number(kind) else column

    def number(self, name: str) -> Any:
        """Return a column as an expression that is a number."""
        if not _is_number(self.table.collect_schema()[name]):
            raise NotPushedError(name)
        return self.value(name)

    def factor(self, name: str) -> Any:
        """Return a column as an expression of its levels: numbers or text."""
        import narwhals as nw

        column, kind = column_in(self.table, name), self.table.collect_schema()[name]
        if kind in (nw.Categorical, nw.Enum):
            column = column.cast(nw.String)
        elif kind != nw.String and not _is_number(kind):
            raise NotPushedError(name)
        return column

    def compared(self, name: str) -> tuple[Any, str]:
        """Return a column that engines compare as NumPy does: "number", "text" or "truth".

        Raises
        ------
        NotPushedError
            If it is of another kind.
        """
        import narwhals as nw

        column, kind = column_in(self.table, name), self.table.collect_schema()[name]
        if kind in (nw.String, nw.Categorical, nw.Enum):
            return self.factor(name), "text"
        if kind == nw.Boolean:
            return column, "truth"
        if not kind.is_integer() and kind != nw.Float64:
            raise NotPushedError(name)
        return column, "number"

    def filtered(self, chosen: Any) -> Any:
        """Return the lazy table of the rows for which an expression is true."""
        return self.table.filter(chosen).to_native()

    def is_missing(self, name: str) -> Any:
        """Return whether rows lack a value of a column, as an expression."""
        return _missing(self.table, [name])[name]

    def is_level(self, name: str, level: Any) -> Any:
        """Return whether a column has a level, as a number."""
        return self.as_number(self.factor(name) == level)

    @staticmethod
    def as_number(condition: Any) -> Any:
        """Return a condition as a number, 0 or 1."""
        import narwhals as nw

        return condition.cast(nw.Float64)

    @staticmethod
    def constant(value: float) -> Any:
        """Return a number as an expression."""
        import narwhals as nw

        return nw.lit(float(value))

    def in_sample(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        """Compute expressions of the rows in memory, shape (n_rows, k)."""
        named = [each.alias(name) for name, each in columns.items()]
        return self.sample.table.with_columns(*named).select(*columns).to_numpy().astype(float)

    def select(self, keys: Sequence[str], columns: Mapping[str, Any]) -> Any:
        """Return a lazy table of columns as they are, and of expressions."""
        named = [each.alias(name) for name, each in columns.items()]
        return self.table.select(*dict.fromkeys(keys), *named).to_native()


def lacking(X: Any, names: Sequence[str]) -> ValueError | None:
    """Return the error of the first of some columns that lacks values, if one does."""
    import narwhals as nw

    table = nw.from_native(X, pass_through=False)
    missing = _missing(table, names)
    counts = [each.cast(nw.Int64).sum().alias(name) for name, each in missing.items()]
    found = in_memory(table.select(*counts))
    for name in missing:
        if count := int(found[name][0] or 0):
            return ValueError(
                f"column {name!r} has {count} missing values; drop those rows, for example "
                "with na_action='drop'."
            )
    return None


def column_in(table: Any, name: str) -> Any:
    """Return a column of a table of narwhals; Spark and older DuckDB split names at points.

    Examples
    --------
    >>> import narwhals as nw, polars as pl
    >>> rows = nw.from_native(pl.DataFrame({"a.b": [1, 2]}))
    >>> rows.select(column_in(rows, "a.b").sum()).rows()
    [(3,)]
    """
    import narwhals as nw

    quote = ""
    if "." in name and table.implementation.is_pyspark():
        quote = "`"
    elif "." in name and table.implementation.is_duckdb():
        quote = '"' if int(version("duckdb").split(".")[0]) < 2 else ""
    return nw.col(f"{quote}{name}{quote}")


def _columns_in(table: Any, names: Sequence[str]) -> list[Any]:
    """Columns of a table of narwhals, by their names."""
    return [column_in(table, name).alias(name) if "." in name else name for name in names]


def _check_new(names: Iterable[str], there: Sequence[str]) -> None:
    """Refuse predictions of the names of columns that a table has."""
    for name in names:
        if name in there:
            raise ValueError(f"X has a column {name!r}, the name of predictions; rename it.")


def _missing(table: Any, names: Sequence[str]) -> dict[str, Any]:
    """Whether rows lack a value, by column."""
    schema = table.collect_schema()
    return {
        name: column_in(table, name).is_null() | column_in(table, name).is_nan()
        if schema[name].is_float()
        else column_in(table, name).is_null()
        for name in names
    }


def _is_number(kind: Any) -> bool:
    import narwhals as nw

    return kind.is_numeric() or kind == nw.Boolean


def _n_rows(table: Any) -> int:
    import narwhals as nw

    return int(in_memory(table.select(n=nw.len()))["n"][0])


def blanked(X: Any, na_values: Any) -> Any:
    """Return a lazy table whose cells with one of some values are missing; see `without_values`.

    Examples
    --------
    >>> import polars as pl
    >>> blanked(pl.LazyFrame({"x": [1, -99], "kind": ["NA", "a"]}), ["NA", -99]).collect().rows()
    [(1, None), (None, 'a')]
    """
    import narwhals as nw

    return without_values(nw.from_native(X), na_values).to_native()


def has_rows(X: Any) -> bool:
    """Whether a lazy table has a row.

    Examples
    --------
    >>> import polars as pl
    >>> has_rows(pl.LazyFrame({"x": []}))
    False
    """
    import narwhals as nw

    return _n_rows(nw.from_native(X)) > 0


def named_in(X: Any, texts: Sequence[str]) -> list[str]:
    """Return the columns of a lazy table that are named in texts, such as those of a formula.

    Examples
    --------
    >>> import polars as pl
    >>> named_in(pl.LazyFrame({"y": [1.0], "x": [2.0], "xy": [3.0]}), ["y ~ log(x)"])
    ['y', 'x']
    """
    import narwhals as nw

    there = list(nw.from_native(X).collect_schema())
    words = {name: rf"(?<!\w){re.escape(name)}(?!\w)" for name in there}
    return [name for name in there if any(re.search(words[name], text) for text in texts)]


def repeated_rows(X: Any, names: Sequence[str], group: str) -> bool:
    """Whether rows of a lazy table are mostly equal to others of their group.

    The first rows say so if they take few values; otherwise all rows of few groups do.

    Parameters
    ----------
    X : table that narwhals calls lazy
    names : sequence of str
        Columns, among them `group`.
    group : str
        Column of labels.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.LazyFrame({"g": [1] * 4, "x": [1.0, 2.0, 3.0, 4.0], "y": [0, 0, 0, 1]})
    >>> repeated_rows(rows, ["g", "y"], "g"), repeated_rows(rows, ["g", "x"], "g")
    (True, False)
    """
    import narwhals as nw

    table = nw.from_native(X).select(*_columns_in(nw.from_native(X), names))
    few = nw.from_native(in_memory(table.head(SAMPLE)), eager_only=True)
    others = [name for name in names if name != group]
    if len(few.select(others).unique()) <= len(few) / 10:
        return True
    labels = few[group].unique().head(5).to_list()
    some = table.filter(column_in(table, group).is_in(labels)).head(100 * SAMPLE)
    rows = nw.from_native(in_memory(some), eager_only=True)
    return len(rows.unique()) <= len(rows) / 2


def collected(X: Any, names: Sequence[str], max_memory: float | None = None) -> Any:
    """Read some columns of a lazy table.

    Parameters
    ----------
    X : table that narwhals calls lazy
    names : sequence of str
    max_memory : float, optional
        Most gibibytes that a fit of the columns may need, about four times what they have; half the
        memory of the machine if None.

    Returns
    -------
    frame
        Of polars, if the table is one of polars, else of pandas.

    Raises
    ------
    MemoryError
        If the fit would need more.

    Examples
    --------
    >>> import polars as pl
    >>> collected(pl.LazyFrame({"y": [1.0], "x": [2.0]}), ["x"]).columns
    ['x']
    """
    import narwhals as nw

    table = nw.from_native(X)
    rows = _n_rows(table)
    most = memory() / 2 if max_memory is None else max_memory * 2**30
    if (needed := 4 * 8 * rows * len(names)) > most:
        raise MemoryError(
            f"a fit of {rows:,} rows of {', '.join(map(repr, names))} needs about "
            f"{needed / 2**30:.3g} GiB of memory, and max_memory is {most / 2**30:.3g}; estimators "
            "of one column, and LinearEB of columns as they are, need sums only."
        )
    return in_memory(table.select(*_columns_in(table, names)))


def in_memory(table: Any) -> Any:
    """Read all rows of a lazy table of narwhals: a frame of polars, if it is of that, or pandas."""
    if table.implementation.is_polars():
        return table.collect(engine="streaming").to_native()
    import pandas as pd
    import pyarrow as pa

    read = table.collect("pyarrow").to_native()
    # pandas has times alone: a label that is a day stays one as Arrow's
    days = {pa.date32(): pd.ArrowDtype(pa.date32())}
    found = read.to_pandas(types_mapper=days.get)
    for name, column in zip(read.column_names, read.columns, strict=True):
        kind = column.type
        if column.null_count and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            # as numbers they would lose digits, and labels would be others
            found[name] = column.to_pandas(types_mapper=pd.ArrowDtype)
    return found


@dataclass(frozen=True)
class Beside:
    """A lazy table with figures of the group of each row beside it, in its own engine.

    Attributes
    ----------
    table : lazy table of narwhals
    there : list of str
        Columns that it had.
    figures : list of k Expr
        Figures of the group of each row.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.LazyFrame({"g": ["a", "b"], "x": [2.0, 3.0]})
    >>> beside = Beside.of(rows, "g", np.array(["a"]), np.array([[5.0]]), [1.0])
    >>> beside.fitted({FITTED: beside.total(["x"])}).collect()
    shape: (2, 3)
    ┌─────┬─────┬─────────┐
    │ g   ┆ x   ┆ .fitted │
    │ --- ┆ --- ┆ ---     │
    │ str ┆ f64 ┆ f64     │
    ╞═════╪═════╪═════════╡
    │ a   ┆ 2.0 ┆ 10.0    │
    │ b   ┆ 3.0 ┆ 3.0     │
    └─────┴─────┴─────────┘
    """

    table: Any
    there: list[str]
    figures: list[Any]

    @classmethod
    def of(
        cls,
        X: Any,
        groups: str,
        ids: NDArray,
        figures: NDArray[np.float64],
        others: ArrayLike,
    ) -> Self:
        """Join a lazy table with figures of groups.

        Parameters
        ----------
        X : table that narwhals calls lazy
        groups : str
            Column of labels.
        ids : ndarray of shape (n_groups,)
        figures : ndarray of shape (n_groups, k)
        others : array-like of shape (k,)
            Figures of labels that are not among these, and of rows without a label.

        Raises
        ------
        ValueError
            If the table has no such column, or one of the name of predictions, or its engine joins
            no small table.
        """
        import narwhals as nw

        table = nw.from_native(X)
        there = list(table.collect_schema())
        if groups not in there:
            raise ValueError(f"X has no column {groups!r}.")
        _check_new([FITTED], there)  # before the join: Spark's loses columns with points
        names = [f"ebfed_figure_{j}" for j in range(figures.shape[1])]
        joined = _joined(table, dict(zip(names, figures.T, strict=True)), {groups: ids})
        filled = [
            where(nw.col(name).is_null(), other, nw.col(name))
            for name, other in zip(names, np.asarray(others, float).ravel().tolist(), strict=True)
        ]
        return cls(joined, there, filled)

    def column(self, factor: Any) -> Any:
        """Return a column by its name, an expression as it is, and None as 1.

        Raises
        ------
        ValueError
            If the table has no such column.
        """
        if not isinstance(factor, str):
            return 1.0 if factor is None else factor
        if factor not in self.there:
            raise ValueError(f"X has no column {factor!r}.")
        return column_in(self.table, factor)

    def total(self, factors: Sequence[Any], first: int = 0) -> Any:
        """Return the sum of figures from the first, each times a factor as `column` takes it."""
        own = self.figures[first : first + len(factors)]
        terms = [x * self.column(each) for x, each in zip(own, factors, strict=True)]
        return sum(terms[1:], start=terms[0])

    def computed(self, columns: Mapping[str, Any]) -> tuple[Self, list[Any]]:
        """Let the engine compute expressions once; returns them as columns."""
        import narwhals as nw

        names = {name: f"ebfed_{name}" for name in columns}
        new = [each.alias(names[name]) for name, each in columns.items()]
        table = self.table.with_columns(*new)
        return replace(self, table=table), [nw.col(name) for name in names.values()]

    def largest(self, values: Any) -> float:
        """Return the largest number that an expression has in any row; 0 without rows."""
        import narwhals as nw

        found = in_memory(
            self.table.select(values.alias("ebfed_n")).select(nw.col("ebfed_n").max())
        )
        return float(np.nan_to_num(np.asarray(found["ebfed_n"], float)[0]))

    def fitted(self, new: Mapping[str, Any]) -> Any:
        """Return the table that was given, with new columns.

        Raises
        ------
        ValueError
            If it has a column of such a name.
        """
        _check_new(new, self.there)
        named = [each.alias(name) for name, each in new.items()]
        return self.table.select(*_columns_in(self.table, self.there), *named).to_native()


def columns_of_classes(classes: Sequence[Any], chances: Sequence[Any]) -> dict[str, Any]:
    """Name the probabilities of classes as columns, of classes without labels by number.

    Examples
    --------
    >>> columns_of_classes(["no", "yes"], [0.25, 0.75])
    {'.fitted_no': 0.25, '.fitted_yes': 0.75}
    """
    names = classes or range(1, len(chances) + 1)
    return {f"{FITTED}_{name}": each for name, each in zip(names, chances, strict=True)}


def where(condition: Any, one: Any, other: Any) -> Any:
    """Choose between two expressions, or values, by a condition, as `numpy.where`.

    Examples
    --------
    >>> import narwhals as nw, polars as pl
    >>> rows = nw.from_native(pl.DataFrame({"x": [1, 2]}))
    >>> rows.select(where(nw.col("x") > 1, "yes", "no").alias("is")).rows()
    [('no',), ('yes',)]
    """
    import narwhals as nw

    one, other = (each if isinstance(each, nw.Expr) else nw.lit(each) for each in (one, other))
    return nw.when(condition).then(one).otherwise(other)


def with_codes(X: Any, lookups: Sequence[Lookup]) -> Any:
    """Put numbers beside the categories of a lazy table.

    Parameters
    ----------
    X : table that narwhals calls lazy
    lookups : sequence of Lookup
        A later one may refer to the numbers of those before.

    Returns
    -------
    lazy table of the same engine
        The numbers are its last columns, in place of columns of their names.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.LazyFrame({"g": ["a", "b"], "x": [2, 3]})
    >>> with_codes(rows, [Lookup({"g": np.array(["a"])}, {"g": np.array([5.0])}, [1.0])]).collect()
    shape: (2, 2)
    ┌─────┬─────┐
    │ x   ┆ g   │
    │ --- ┆ --- │
    │ i64 ┆ f64 │
    ╞═════╪═════╡
    │ 2   ┆ 5.0 │
    │ 3   ┆ 1.0 │
    └─────┴─────┘
    """
    import narwhals as nw

    table = nw.from_native(X)
    there = list(table.collect_schema())
    replaced = {column for lookup in lookups for column in lookup.labels}
    if missing := replaced - {*there}:
        raise ValueError(f"X has no column {', '.join(map(repr, sorted(missing)))}.")
    found: dict[str, str] = {}
    for lookup in lookups:
        own = {name: f"ebfed_code_{len(found) + j}" for j, name in enumerate(lookup.codes)}
        small = {own[name]: codes for name, codes in lookup.codes.items()}
        table = _joined(table, small, lookup.labels)
        for j, alias in enumerate(own.values()):
            other = nw.lit(float(lookup.others[j]))
            if lookup.above:
                other = nw.col(found[lookup.above[j]])
            column = nw.when(nw.col(alias).is_null()).then(other).otherwise(nw.col(alias))
            table = table.with_columns(column.alias(alias))
        found |= own
    kept = [name for name in there if name not in replaced]
    codes = (nw.col(x).alias(name) for name, x in found.items())
    return table.select(*_columns_in(table, kept), *codes).to_native()


def _joined(table: Any, columns: Mapping[str, NDArray], labels: Mapping[str, NDArray]) -> Any:
    """Put the columns of a small table beside a lazy one, by labels, in its own engine."""
    import narwhals as nw

    kind, native, there = table.implementation, table.to_native(), list(table.collect_schema())
    on = {name: f"ebfed_label_{j}" for j, name in enumerate(labels)}
    both = {on[name]: each for name, each in labels.items()} | dict(columns)
    if kind.is_polars():
        import polars as pl

        schema = native.collect_schema()
        # of labels that are Python objects, such as decimals, polars finds the type in lists
        both = {x: each.tolist() if each.dtype == object else each for x, each in both.items()}
        other = pl.LazyFrame(both).cast({on[name]: schema[name] for name in on})
        options: Any = {"left_on": list(on), "right_on": list(on.values())}
        joined = native.join(other, how="left", maintain_order="left", **options)
        return nw.from_native(joined).select(*there, *columns)
    import pandas as pd

    small = pd.DataFrame(both)
    if kind.is_duckdb():
        # a query of the relation finds the frame by its name, in the relation's own connection
        right = native.query("ebfed_rows", "SELECT * FROM small")
    elif kind.is_dask():
        import dask.dataframe as dd

        small = small.astype({on[name]: native.dtypes[name] for name in on})
        right = dd.from_pandas(small, npartitions=1)
    elif kind.is_pyspark():
        right = native.sparkSession.createDataFrame(small)
    else:
        raise ValueError(f"predictions beside rows are not made in {kind.value}; collect the rows.")
    sides: Any = {"left_on": list(on), "right_on": list(on.values())}
    joined = table.join(nw.from_native(right), how="left", **sides)
    return joined.select(*_columns_in(joined, there), *columns)
