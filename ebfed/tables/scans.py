"""Rows of tables larger than memory: read in blocks, or given figures of their groups in place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.blocks import memory

__all__ = ["FITTED", "collected", "in_blocks", "in_memory", "with_figures"]

# Rows that are in memory at a time.
ROWS = 1_000_000
# Name of the column of predictions.
FITTED = ".fitted"


def in_blocks(X: Any, size: int = ROWS) -> Iterator[Any]:
    """Read the rows of a lazy table, in any order, as frames in memory.

    Parameters
    ----------
    X : table that narwhals calls lazy
    size : int
        Most rows of a block. Dask reads a partition at a time, and DuckDB a batch; other engines
        send all rows at once, of which blocks are cut.

    Yields
    ------
    frame
        Of polars or pandas like the table, else of pyarrow.

    Raises
    ------
    ValueError
        If there are no rows.

    Examples
    --------
    >>> import polars as pl
    >>> [len(rows) for rows in in_blocks(pl.LazyFrame({"x": range(5)}), 2)]
    [2, 2, 1]
    """
    import narwhals as nw

    table = nw.from_native(X)
    kind = table.implementation
    parts: Iterator[Any]
    if kind.is_duckdb():
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_stream(table.to_native())
        parts = (pa.Table.from_batches([batch], reader.schema) for batch in reader)
    elif kind.is_dask():
        parts = (part.compute() for part in table.to_native().partitions)
    else:
        parts = iter([table.collect("polars" if kind.is_polars() else "pyarrow").to_native()])
    is_empty = True
    for part in parts:
        rows = nw.from_native(part, eager_only=True)
        for start in range(0, len(rows), size):
            is_empty = False
            yield rows[start : start + size].to_native()
    if is_empty:
        raise ValueError("X has no rows.")


def collected(X: Any, texts: Sequence[str], max_memory: float | None = None) -> Any:
    """Read the columns of a lazy table that are named in texts, such as those of a formula.

    Parameters
    ----------
    X : table that narwhals calls lazy
    texts : sequence of str
        Expressions of columns; a ``.`` that stands alone means all columns.
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
    >>> rows = pl.LazyFrame({"y": [1.0], "x": [2.0], "xy": [3.0]})
    >>> collected(rows, ["y ~ log(x)"]).columns
    ['y', 'x']
    """
    import narwhals as nw

    table = nw.from_native(X)
    there = list(table.collect_schema())
    has_dot = any(re.search(r"(?<![\w.)])\.(?![\w.(])", text) for text in texts)
    words = {name: rf"(?<!\w){re.escape(name)}(?!\w)" for name in there}
    used = [x for x in there if has_dot or any(re.search(words[x], text) for text in texts)]
    rows = int(nw.from_native(in_memory(table.select(n=nw.len())), eager_only=True)["n"][0])
    most = memory() / 2 if max_memory is None else max_memory * 2**30
    if (needed := 4 * 8 * rows * len(used)) > most:
        raise MemoryError(
            f"a fit of {rows:,} rows of {', '.join(map(repr, used))} needs about "
            f"{needed / 2**30:.3g} GiB of memory, and max_memory is {most / 2**30:.3g}; estimators "
            "of one column, and LinearEB of columns as they are, need sums only."
        )
    return in_memory(table.select(used))


def in_memory(table: Any) -> Any:
    """Read all rows of a lazy table of narwhals: a frame of polars, if it is of that, or pandas."""
    if table.implementation.is_polars():
        return table.collect(engine="streaming").to_native()
    return table.collect("pyarrow").to_pandas()


def with_figures(
    X: Any,
    groups: str,
    ids: NDArray,
    figures: NDArray[np.float64],
    others: ArrayLike,
    factors: Sequence[Any],
) -> Any:
    """Add a column of predictions to a lazy table: sums of figures of groups times columns.

    Parameters
    ----------
    X : table that narwhals calls lazy
    groups : str
        Column of labels.
    ids : ndarray of shape (n_groups,)
    figures : ndarray of shape (n_groups, k)
    others : array-like of shape (k,)
        Figures of labels that are not among these.
    factors : list of k str, Expr or None
        Columns, or expressions of them, by which figures are multiplied; None stands for 1.

    Returns
    -------
    lazy table of the same engine
        With a column ``".fitted"``; rows without a label have those of `others`.

    Raises
    ------
    ValueError
        If the table has a column of that name, or lacks one of the others.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.LazyFrame({"g": ["a", "b"], "x": [2.0, 3.0]})
    >>> with_figures(rows, "g", np.array(["a"]), np.array([[5.0]]), [1.0], ["x"]).collect()
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
    import narwhals as nw

    table = nw.from_native(X)
    there = list(table.collect_schema())
    if missing := {groups, *(each for each in factors if isinstance(each, str))} - {*there}:
        raise ValueError(f"X has no column {', '.join(map(repr, sorted(missing)))}.")
    if FITTED in there:
        raise ValueError(f"X has a column {FITTED!r}, the name of predictions; rename it.")
    key, names = "ebfed_label", [f"ebfed_figure_{j}" for j in range(len(factors))]
    small = {key: ids} | {name: figures[:, j] for j, name in enumerate(names)}
    joined = _joined(table, small, groups, key)
    terms = [
        nw.when(nw.col(name).is_null()).then(float(other)).otherwise(nw.col(name))
        * (1.0 if factor is None else nw.col(factor) if isinstance(factor, str) else factor)
        for name, other, factor in zip(names, np.asarray(others).ravel(), factors, strict=True)
    ]
    fitted = sum(terms[1:], start=terms[0])
    return joined.select(*there, fitted.alias(FITTED)).to_native()


def _joined(table: Any, columns: Mapping[str, NDArray], left: str, right: str) -> Any:
    """Put the columns of a small table beside a lazy one, in its own engine."""
    import narwhals as nw

    kind, native = table.implementation, table.to_native()
    if kind.is_polars():
        import polars as pl

        options: Any = {"how": "left", "left_on": left, "right_on": right}
        other = pl.LazyFrame(dict(columns))
        return nw.from_native(native.join(other, **options, maintain_order="left"))
    import pandas as pd

    small = pd.DataFrame(dict(columns))
    if kind.is_duckdb():
        # a query of the relation finds the frame by its name, in the relation's own connection
        there = native.query("ebfed_rows", "SELECT * FROM small")
    elif kind.is_dask():
        import dask.dataframe as dd

        small[right] = small[right].astype(native.dtypes[left])
        there = dd.from_pandas(small, npartitions=1)
    elif kind.is_pyspark():
        there = native.sparkSession.createDataFrame(small)
    else:
        raise ValueError(f"predictions beside rows are not made in {kind.value}; collect the rows.")
    return table.join(nw.from_native(there), how="left", left_on=left, right_on=right)
