"""Tables larger than memory: the engine of the table summarises its groups.

The tables are DuckDB relations, polars LazyFrames, Dask and Spark frames, and others that narwhals
calls lazy. The engine adds up the values of each group and their products, and only these sums are
read. Frames in memory give the same numbers.

Sums of squares lose the digits of a small spread around a large mean. The loss has a bound for any
order of addition: it depends on the number of rows and on the ratio of the sums around 0 and around
the mean. If the bound is too large for a group, the engine adds up once more, around the means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from importlib.util import find_spec
from itertools import combinations_with_replacement
from operator import and_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.clients import LARGEST, Summary
from ebfed.tables.columns import value_columns
from ebfed.tables.frames import Style, style_for, style_of
from ebfed.tables.labels import number_labels
from ebfed.tables.of_rows import NOTHING
from ebfed.tables.scans import column_in, in_memory
from ebfed.tables.values import PLAIN, not_numeric, read_labels, wrapped

__all__ = [
    "COUNTED",
    "Statistics",
    "Summarised",
    "added_up",
    "column_names",
    "columns_beside",
    "counted",
    "is_lazy",
    "statistics",
    "summarise",
]

# Largest relative error of a scatter by rounding.
TOLERANCE = 1e-10
ROUNDING = 2.0**-53
# Names of the columns of weights in queries, and of numbers of equal rows.
WEIGHT, COUNTED = "ebfed_weight", "ebfed_counted"
# Rows that say which values there are, and most of these of which rows are counted each by a sum.
HEAD, FEW_KINDS = 500, 4
# From a column of values, what goes with rows, and a function that makes a column of what engines
# are to compute once, all as expressions: figures of rows that are added up, by name, and by the
# text of an error what must hold of each row.
Figures = Callable[
    [Any, Mapping[str, Any], Callable[[Any], Any]], tuple[Mapping[str, Any], Mapping[str, Any]]
]
# Columns by name: the column of a number, None for 1, times the weights of levels of factors.
Cells = Mapping[str, tuple[str | None, Mapping[str, Mapping[Any, float]]]]


class Statistics(NamedTuple):
    """Statistics of groups, computed by an engine.

    Attributes
    ----------
    keys : data frame
        Groups in any order, in pandas or polars like the table, else in pyarrow.
    n : int64 ndarray of shape (n_groups,)
    mean : ndarray of shape (n_groups, d)
    scatter : ndarray of shape (n_groups, d) or (n_groups, d, d)
        Sums of squares, or of all products, of deviations from the group's mean.
    weight : ndarray of shape (n_groups,) or None
        Sums of the weights of rows, where these have some.
    sums : mapping of str to ndarray of shape (n_groups, d)
        Further sums, such as ``log_weight`` of the logarithms of weights.
    """

    keys: Any
    n: NDArray[np.int64]
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]
    weight: NDArray[np.float64] | None = None
    sums: Mapping[str, NDArray[np.float64]] = NOTHING


class Summarised(NamedTuple):
    """A table of which only the summary is in memory.

    Attributes
    ----------
    summary : Summary
        Sorted by label.
    style : Style
    columns : list of str
        Names of the values.
    consent : ndarray of shape (n_groups,) or None
        Class that each group chose.
    """

    summary: Summary
    style: Style
    columns: list[str]
    consent: NDArray | None = None


def is_lazy(X: Any) -> bool:
    """Return whether `X` is a table whose rows are not in memory.

    Examples
    --------
    >>> import pandas as pd
    >>> is_lazy(pd.DataFrame({"x": [1.0]})), is_lazy([1.0])
    (False, False)
    """
    if isinstance(X, PLAIN):
        return False
    import narwhals as nw
    import pandas as pd

    return not isinstance(X, pd.DataFrame) and isinstance(wrapped(X), nw.LazyFrame)


def column_names(X: Any) -> list[str]:
    """Return the names of the columns of any table; none of anything else.

    Examples
    --------
    >>> import pandas as pd
    >>> column_names(pd.DataFrame({"x": [1.0]})), column_names([1.0])
    (['x'], [])
    """
    if isinstance(X, PLAIN):
        return []
    import narwhals as nw
    import pandas as pd

    if isinstance(X, pd.DataFrame):  # asked so often that the time to find the types of all counts
        return list(X.columns)
    table = wrapped(X)
    return list(table.collect_schema()) if isinstance(table, nw.DataFrame | nw.LazyFrame) else []


def columns_beside(X: Any, named: Mapping[str, Any]) -> list[str]:
    """Return the columns of a table whose rows are not in memory but for those that are named.

    Parameters
    ----------
    X : table that narwhals knows
    named : mapping of str to str or list of str
        Columns, by the argument that names them.

    Raises
    ------
    ValueError
        If an argument names no column.

    Examples
    --------
    >>> import polars as pl
    >>> columns_beside(pl.LazyFrame({"g": [1], "y": [2.0]}), {"groups": "g"})
    ['y']
    """
    columns: dict[str, str] = {}
    for argument, name in named.items():
        names = [*name] if isinstance(name, list | tuple) else [name]
        if not all(isinstance(each, str) for each in names):
            raise ValueError(
                f"{argument} must name a column of X, the rows of which are not in memory; "
                f"got {type(name).__name__}."
            )
        columns |= {argument + f" of level {j}" * (j > 0): each for j, each in enumerate(names)}
    return value_columns(column_names(X), columns)


def summarise(
    X: Any,
    groups: Any,
    consent: Any = None,
    cross: bool = False,
    of_rows: Mapping[str, Any] = NOTHING,
    figures: Figures | None = None,
    cells: Cells | None = None,
) -> Summarised:
    """Summarise the groups of a table with its own engine.

    Reports of such a fit are polars frames for a polars table. They are pandas frames if the engine
    has no frames in memory, like DuckDB.

    Parameters
    ----------
    X : table that narwhals knows
    groups : str
        Column of labels. All others except `consent` and those of `of_rows` hold values.
    consent : str, optional
        Column of the class that each group chose.
    cross : bool
        Whether to add up products of different columns too. Then `scatter` of the summary has
        shape (n_groups, d, d).
    of_rows : mapping of str to str
        Columns of what goes with rows; sums are weighted by ``sample_weight``.
    figures : callable, optional
        What is added up, if that is not values and their products; see `added_up`.
    cells : mapping, optional
        Columns that are asked for: numbers times weights of levels of factors. The engine adds up
        the numbers by group and levels, which are other columns of the table.

    Raises
    ------
    ValueError
        If a column does not exist, a label or value is missing or infinite, a value is too large to
        be squared, a group chose two classes, or there are no rows.
    TypeError
        If a column of values is not numeric.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"county": ["b", "a", "b"], "rate": [1.0, 5.0, 3.0]})
    >>> summary, style, columns, consent = summarise(rows, "county")
    >>> summary.ids.tolist(), summary.n.tolist(), summary.mean.ravel().tolist(), columns
    (['a', 'b'], [1, 2], [5.0, 2.0], ['rate'])
    """
    import narwhals as nw

    keys = {"groups": groups} if consent is None else {"groups": groups, "consent": consent}
    named = keys | dict(of_rows)
    table = nw.from_native(X)
    schema = table.collect_schema()
    factors = list(dict.fromkeys(x for _, own in (cells or {}).values() for x in own))
    columns = [name for name in columns_beside(X, named) if name not in factors]
    if not columns:
        shown = ", ".join(map(repr, named.values()))
        raise ValueError(f"X has no column but the labels {shown}; nothing to estimate.")
    for name in columns:
        if not (schema[name].is_numeric() or schema[name] == nw.Boolean):
            raise not_numeric(name, "X", schema[name])
    by = list(dict.fromkeys([*keys.values(), *factors]))
    if figures is None:
        found = statistics(X, by, columns, cross, of_rows.get("sample_weight"))
    else:
        found = added_up(X, by, columns, of_rows, figures)
    labels = nw.from_native(found.keys, eager_only=True)
    ids, codes = number_labels(read_labels(labels[groups], groups), groups)
    if cells is not None:
        found = _of_cells(found, labels, columns, codes, cells)
        columns, codes = [*cells], np.arange(len(ids))
    elif len(ids) < len(codes):
        label = ids.tolist()[np.argmax(np.bincount(codes) > 1)]
        raise ValueError(f"consent must be the same in all rows of a group; {label!r} has two.")
    order = np.argsort(codes)
    style = style_of(labels[groups], style_for(labels))
    if isinstance(table, nw.LazyFrame) and table.implementation != nw.Implementation.POLARS:
        style = style.using("pandas")
    weight = None if found.weight is None else found.weight[order]
    sums = {name: each[order] for name, each in found.sums.items()}
    moments = found.n[order], found.mean[order], found.scatter[order]
    return Summarised(
        Summary(ids, *moments, weight=weight, sums=sums),
        style,
        columns,
        None if consent is None else read_labels(labels[consent].to_native(), consent)[order],
    )


def _of_cells(
    found: Statistics, labels: Any, numbers: Sequence[str], codes: NDArray[np.int64], cells: Cells
) -> Statistics:
    """Add up numbers of cells, times weights of their levels, for each group."""
    import pandas as pd

    from ebfed.kernels import add_cells

    place = np.array([numbers.index(x) if x is not None else -1 for x, _ in cells.values()])
    coefficients = np.ones((len(codes), len(cells)))
    places = {
        (name, known): pd.Index(known).get_indexer(pd.Index(labels[name].to_numpy()))
        for name, known in {(x, tuple(y)) for _, own in cells.values() for x, y in own.items()}
    }
    for j, (_, levels) in enumerate(cells.values()):
        for name, own in levels.items():
            coefficients[:, j] *= np.append([*own.values()], 0.0)[places[name, tuple(own)]]
    size = (found.n if found.weight is None else found.weight).astype(float)
    m, d = int(codes.max()) + 1, len(cells)
    weight, mean, scatter = np.zeros(m), np.zeros((m, d)), np.zeros((m, d, d))
    cell = codes, size, found.mean, found.scatter, coefficients, place
    add_cells(*cell, weight, mean, scatter)
    sums = {
        name: np.bincount(codes, each[:, 0], m)[:, None].astype(float)
        for name, each in found.sums.items()
    }
    n = np.bincount(codes, found.n, m).astype(np.int64)
    weighed = None if found.weight is None else weight
    return Statistics(None, n, mean, scatter, weighed, sums)


def statistics(
    X: Any,
    keys: Sequence[str],
    columns: Sequence[str],
    cross: bool = False,
    weight: str | None = None,
) -> Statistics:
    """Compute the counts, means and scatters of each group with the table's own engine.

    Parameters
    ----------
    X : table that narwhals knows
    keys : sequence of str
        Columns that together define the groups.
    columns : sequence of str
        Columns of numbers.
    cross : bool
        Whether to add up products of different columns too, for a regression: sums of products
        around 0 are ``scatter + n * outer(mean, mean)``.
    weight : str, optional
        Column of the weights of rows. Then rows of positive weight are counted, and the sums are
        weighted, of products around 0 ``scatter + weight * outer(mean, mean)``.

    Raises
    ------
    ValueError
        If a key, value or weight is missing or infinite, a weight is negative, a value is too large
        to be squared, or there are no rows.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"g": [1, 1, 2], "x": [1.0, 3.0, 5.0], "y": [2.0, 0.0, 1.0]})
    >>> found = statistics(rows, ["g"], ["x", "y"], cross=True)
    >>> found.n.tolist(), found.mean.tolist(), found.scatter[0].tolist()
    ([2, 1], [[2.0, 1.0], [5.0, 1.0]], [[2.0, -2.0], [-2.0, 2.0]])
    """
    import narwhals as nw

    given = nw.from_native(X)
    names = [f"ebfed_{j}" for j in range(len(columns))]
    numbers = [
        column_in(given, column).cast(nw.Float64).alias(name)
        for column, name in zip(columns, names, strict=True)
    ]
    if weight is not None:
        numbers.append(column_in(given, weight).cast(nw.Float64).alias(WEIGHT))
    table = given.select(*keys, *numbers)
    index = range(len(names))
    pairs = list(combinations_with_replacement(index, 2)) if cross else [(j, j) for j in index]
    left, right = np.array(pairs).T
    sums = _add_up(table, keys, names, pairs, weight is not None)
    _check_keys(sums, keys)
    if weight is not None:
        _check_weights(sums, weight)
    n, total, mean, products = _centre(sums, names, left, right)
    scatter = products[:, left == right]
    if not ((np.abs(mean) < LARGEST).all() and (scatter < LARGEST**2).all()):
        raise _invalid_values(table, names, columns)
    types = given.collect_schema()
    whole = [types[name].is_integer() or types[name] == nw.Boolean for name in columns]
    if weight is not None and not types[weight].is_integer():
        whole = [False] * len(whole)
    if cross:  # a column of whole numbers may have inexact products with others
        whole = [all(whole)] * len(whole)
    if _is_inexact(n, total, scatter + total * mean**2, scatter, np.array(whole)):
        around = _around_means(table, keys, names, weight is not None)
        sums = _add_up(around, keys, names, pairs, weight is not None, around=True)
        n, total, rest, products = _centre(sums, names, left, right)
        low, high, centre = (_array(sums, names, what) for what in ("low", "high", "centre"))
        same = low == high
        mean = centre + np.where(same, low, rest)
        products[same[:, left] | same[:, right]] = 0.0
    # rounding may make a sum of squares negative
    products[:, left == right] = np.maximum(products[:, left == right], 0.0)
    scatter = products
    if cross:
        scatter = np.empty((len(n), len(names), len(names)))
        scatter[:, left, right] = scatter[:, right, left] = products
    labels, rows = sums.select(*keys).to_native(), n[:, 0].astype(np.int64)
    if weight is None:
        return Statistics(labels, rows, mean, scatter)
    rows = sums[f"{WEIGHT}_rows"].to_numpy().astype(np.int64)
    scatter[rows < 2], mean[rows == 0] = 0.0, 0.0
    logs = np.broadcast_to(_array(sums, [WEIGHT], "log"), mean.shape)
    return Statistics(labels, rows, mean, scatter, total[:, 0], {"log_weight": logs})


def added_up(
    X: Any,
    keys: Sequence[str],
    columns: Sequence[str],
    of_rows: Mapping[str, str],
    figures: Figures,
) -> Statistics:
    """Add up figures of the rows of each group, such as events and exposures.

    Parameters
    ----------
    X : table that narwhals knows
    keys : sequence of str
        Columns that together define the groups.
    columns : sequence of str
        Columns of values.
    of_rows : mapping of str to str
        Columns of what goes with rows. A row is counted ``sample_weight`` times.
    figures : callable
        Figures of rows: ``events`` and ``exposure``, of which the mean is the ratio, and others;
        or ``events`` and their ``squares``, of which numbers of rows are the weights.

    Raises
    ------
    ValueError
        If a key or value is missing or infinite, or something does not hold of a row.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"g": [1, 1, 2], "y": [1, 3, 5], "years": [2.0, 2.0, 4.0]})
    >>> def figures(y, beside, once):
    ...     return {"events": y, "exposure": beside["exposure"]}, {"y is 0 or more": y >= 0}
    >>> added_up(rows, ["g"], ["y"], {"exposure": "years"}, figures).mean.ravel()
    array([1.  , 1.25])
    """
    import narwhals as nw

    given = nw.from_native(X)
    own = {name: f"ebfed_{j}" for j, name in enumerate([*columns, *of_rows.values()])}
    numbers = [column_in(given, name).cast(nw.Float64).alias(alias) for name, alias in own.items()]
    table = given.select(*keys, *numbers)
    beside = {what: nw.col(own[name]) for what, name in of_rows.items()}
    times, new = beside.get("sample_weight"), {}
    rules: list[tuple[str, Any]] = []
    if times is not None:
        text = "sample_weight must be whole numbers, the rows that a row stands for"
        rules.append((text, (times >= 0) & (times == times.floor()) & (times <= 2**53)))
        new["times"] = times
    kept: list[Any] = []

    def once(expression: Any) -> Any:
        kept.append(expression.alias(f"ebfed_once_{len(kept)}"))
        return nw.col(f"ebfed_once_{len(kept) - 1}")

    names: list[str] = []
    for name in columns:
        added, own_rules = figures(nw.col(own[name]), beside, once)
        rules += own_rules.items()
        names = [what for what, each in added.items() if each is not None]
        for what in names:
            new[f"{own[name]}_{what}"] = added[what] if times is None else times * added[what]
    holds = reduce(and_, (each for _, each in rules))
    for name in columns:  # a sum that is not finite is that of rows of which a rule does not hold
        summed = f"{own[name]}_events"
        new[summed] = nw.when(holds).then(new[summed]).otherwise(np.inf)
    found = _collect(
        (table.with_columns(*kept) if kept else table)
        .with_columns(*(each.alias(alias) for alias, each in new.items()))
        .group_by(*keys)
        .agg(nw.len().alias("ebfed_n"), *(nw.col(alias).sum() for alias in new))
    )
    _check_keys(found, keys)
    n, aliases = found["ebfed_n"].to_numpy(), [own[name] for name in columns]
    if not np.isfinite(_array(found, aliases, "events")).all():
        raise _broken_rule(table, own, rules)
    n = n if times is None else found["times"].to_numpy()
    sums = {what: _array(found, aliases, what) for what in names}
    events = sums.pop("events")
    weight = sums.pop("exposure")[:, 0] if "exposure" in sums else n.astype(np.float64)
    mean = events / np.where(weight > 0, weight, 1.0)[:, None]
    labels, n = found.select(*keys).to_native(), n.astype(np.int64)
    if "squares" in sums:
        return Statistics(labels, n, mean, sums["squares"] - n[:, None] * mean**2)
    return Statistics(labels, n, mean, np.zeros_like(mean), weight, sums)


def counted(X: Any, columns: Sequence[str], weight: str | None = None) -> Any:
    """Count equal rows of a table with its own engine.

    Parameters
    ----------
    X : table that narwhals knows
    columns : sequence of str
        Columns in which rows may differ.
    weight : str, optional
        Column of the number of rows that a row stands for.

    Returns
    -------
    frame
        The different rows, in memory and sorted, and their numbers in a column `COUNTED`.

    Raises
    ------
    ValueError
        If there are no rows.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.LazyFrame({"g": ["a", "a", "b"], "y": [1, 1, 0], "x": [1, 2, 3]})
    >>> counted(rows, ["g", "y"]).rows()
    [('a', 1, 2), ('b', 0, 1)]
    """
    import narwhals as nw

    keys = list(dict.fromkeys([*columns, *([] if weight is None else [weight])]))
    given = nw.from_native(X)
    own = [column_in(given, name).alias(name) for name in keys]
    table = given.select(*own)
    found = _of_few_kinds(table, keys)
    if found is None:
        groups = table.group_by(*keys).agg(nw.len().alias(COUNTED))
        found = nw.from_native(in_memory(groups), eager_only=True)
    if not len(found):
        raise ValueError("X has no rows.")
    found = found.select(*keys, COUNTED).sort(*keys)  # engines have no order
    if weight is not None:
        found = found.with_columns(nw.col(COUNTED) * nw.col(weight)).drop(weight)
    return found.to_native()


def _of_few_kinds(table: Any, keys: Sequence[str]) -> Any:
    """Count rows by sums for each value of the first key, which takes less time than more keys.

    None if the first rows have too many values of the other keys, or others have more.
    """
    import narwhals as nw

    first, *others = keys
    head = nw.from_native(in_memory(table.select(*others).head(HEAD)), eager_only=True)
    kinds = head.unique(maintain_order=True)
    if not 0 < len(kinds) <= FEW_KINDS or any(kinds[x].is_null().any() for x in others):
        return None
    names = [f"ebfed_{j}" for j in range(len(kinds))]
    flags = [
        reduce(and_, (nw.col(x) == value for x, value in row.items())).cast(nw.Float64).alias(name)
        for name, row in zip(names, kinds.iter_rows(named=True), strict=True)
    ]
    sums = nw.len().alias(COUNTED), *(nw.col(name).sum() for name in names)
    groups = table.with_columns(*flags).group_by(first).agg(*sums)
    found = nw.from_native(in_memory(groups), eager_only=True)
    total = found.select(nw.sum_horizontal(*names) == nw.col(COUNTED))
    if not total.to_numpy().all():
        return None
    parts = [
        found.filter(nw.col(name) > 0)
        .select(first, nw.col(name).cast(nw.Int64).alias(COUNTED))
        .join(kinds[j : j + 1], how="cross")
        for j, name in enumerate(names)
    ]
    return nw.concat(parts)


def _add_up(
    table: Any,
    keys: Sequence[str],
    names: list[str],
    pairs: list,
    weighed: bool,
    around: bool = False,
) -> Any:
    """Let the engine count rows and values, and add up values and their products."""
    import narwhals as nw

    # arithmetic first, then plain sums, which are fast in every engine
    squares = {(i, j): nw.col(names[i]) * nw.col(names[j]) for i, j in pairs}
    if weighed:
        squares = {pair: nw.col(WEIGHT) * square for pair, square in squares.items()}
    products = [square.alias(f"ebfed_{i}_{j}") for (i, j), square in squares.items()]
    sums = [nw.len().alias("ebfed_n")]
    sums += [nw.col(f"ebfed_{i}_{j}").sum() for i, j in pairs]
    if weighed:
        counted = nw.col(WEIGHT) > 0
        products += [
            counted.cast(nw.Int64).alias(f"{WEIGHT}_rows"),
            nw.when(counted).then(nw.col(WEIGHT)).otherwise(1.0).log().alias(f"{WEIGHT}_log"),
        ]
        sums += [nw.col(f"{WEIGHT}_{what}").sum() for what in ("rows", "log")]
        sums += [
            nw.col(WEIGHT).sum().alias(f"{WEIGHT}_sum"),
            nw.col(WEIGHT).count().alias(f"{WEIGHT}_count"),
            nw.col(WEIGHT).min().alias(f"{WEIGHT}_low"),
        ]
    for name in names:
        values = nw.col(name)
        # sums leave out what is missing, but not an infinity; counts would take longer
        if weighed:  # whatever the weight, a value is a number that can be squared
            small = values.abs() < LARGEST
            summed = nw.when(small).then(nw.col(WEIGHT) * values).otherwise(np.inf)
        else:
            summed = values
        summed = summed.fill_null(np.inf)
        products.append(summed.alias(f"{name}_sum"))
        sums.append(nw.col(f"{name}_sum").sum())
        if around:
            sums += [values.min().alias(f"{name}_low"), values.max().alias(f"{name}_high")]
            sums += [nw.col(f"{name}_centre").min()]
    return _collect(table.with_columns(*products).group_by(*keys).agg(*sums))


def _around_means(table: Any, keys: Sequence[str], names: list[str], weighed: bool) -> Any:
    """Subtract the means of the groups from all values; the means are further columns.

    They are without weights, but of rows whose weight is not 0.
    """
    import narwhals as nw

    counted = table.filter(nw.col(WEIGHT) > 0) if weighed else table
    means = counted.group_by(*keys).agg(
        *(nw.col(name).mean().alias(f"{name}_centre") for name in names)
    )
    # Dask has no .over()
    return table.join(means, on=list(keys), how="left" if weighed else "inner").with_columns(
        *((nw.col(name) - nw.col(f"{name}_centre")).alias(name) for name in names)
    )


def _collect(table: Any) -> Any:
    """Collect a small result, in the library of the table if that has frames in memory."""
    import narwhals as nw

    if isinstance(table, nw.DataFrame):
        return table
    if table.implementation.is_polars():
        return table.collect(engine="streaming")
    if find_spec("pyarrow") is None:
        raise ImportError(
            'results of other engines are read with pyarrow: pip install "ebfed[parquet]"'
        )
    return table.collect("pyarrow")


def _array(sums: Any, names: list[str], what: str) -> NDArray[np.float64]:
    columns = [sums[f"{name}_{what}"].to_numpy() for name in names]
    return np.column_stack(columns).astype(np.float64)


def _centre(
    sums: Any, names: list[str], left: NDArray, right: NDArray
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Return numbers of rows, their weights, means, and products around the means."""
    n = weight = over = sums["ebfed_n"].to_numpy().astype(np.float64)[:, None]
    if f"{WEIGHT}_sum" in sums.columns:
        weight = _array(sums, [WEIGHT], "sum")
        over = np.where(weight > 0, weight, 1.0)
    total = _array(sums, names, "sum")
    products = np.column_stack(
        [sums[f"ebfed_{i}_{j}"].to_numpy() for i, j in zip(left, right, strict=True)]
    ).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # invalid values give invalid sums
        # this order keeps whole numbers exact until the division
        around = (over * products - total[:, left] * total[:, right]) / over
        return n, weight, total / over, around


def _is_inexact(
    n: NDArray, weight: NDArray, squares: NDArray, scatter: NDArray, whole: NDArray
) -> bool:
    """Return whether adding up around means may give a scatter with less rounding error.

    Sums of `n` terms are rounded `n` times, for the squares and for the square of the sum. Sums of
    whole numbers that are not too large are exact.
    """
    bound = 3 * (n + 2) * ROUNDING
    exact = (n == 1) | (whole & (weight * squares < 2.0**52))
    # around the mean the error is the bound itself: a smaller gain does not justify a scan
    return bool((~exact & (bound * squares > np.maximum(TOLERANCE, 4 * bound) * scatter)).any())


def _check_weights(sums: Any, column: str) -> None:
    """Check the weights of rows by their sums."""
    total, count, low = (_array(sums, [WEIGHT], what)[:, 0] for what in ("sum", "count", "low"))
    complete = (count == sums["ebfed_n"].to_numpy()).all()
    if not (complete and ((low >= 0) & (total < LARGEST)).all()):
        raise ValueError(
            f"sample_weight must be finite, and 0 or more, in every row; column {column!r} has "
            "others."
        )
    if not total.any():
        raise ValueError("sample_weight must not be zero in every row.")


def _check_keys(sums: Any, keys: Sequence[str]) -> None:
    """Check that a table has rows and that keys are neither missing nor infinite."""
    import narwhals as nw

    if not len(sums):
        raise ValueError("X has no rows.")
    for key in keys:
        missing = sums[key].is_null().to_numpy()
        if sums[key].dtype.is_float():
            missing = missing | ~np.isfinite(sums[key].cast(nw.Float64).to_numpy())
        if missing.any():
            rows = int(sums["ebfed_n"].to_numpy()[missing].sum())
            raise ValueError(
                f"{key} has {rows} missing or infinite labels; drop those rows or give them a "
                "label."
            )


def _broken_rule(table: Any, own: Mapping[str, str], rules: Sequence[tuple]) -> ValueError:
    """Return the error for rows of which a rule does not hold, or that lack a value."""
    import narwhals as nw

    aliases = list(own.values())
    wrong = {alias: nw.col(alias).is_null() for alias in aliases}
    wrong |= {f"wrong_{j}": ~holds for j, (_, holds) in enumerate(rules)}
    flags = table.select(*(each.cast(nw.Int64).alias(name) for name, each in wrong.items()))
    found = _collect(flags.select(*(nw.col(name).sum() for name in wrong)))
    if any(found[alias][0] for alias in aliases):
        return _invalid_values(table, aliases, list(own))
    j = next(j for j in range(len(rules)) if found[f"wrong_{j}"][0])
    return ValueError(f"{rules[j][0]}; {int(found[f'wrong_{j}'][0])} rows have others.")


def _invalid_values(table: Any, names: list[str], columns: Sequence[str]) -> ValueError:
    """Return the error for values whose sums are not finite."""
    import narwhals as nw

    values = [nw.col(name) for name in names]
    rows = [f"rows of {name}" for name in names]
    unknown = [
        (each.is_null() | ~each.is_finite()).cast(nw.Int64).alias(name)
        for name, each in zip(rows, values, strict=True)
    ]
    found = _collect(
        table.select(*unknown, *(each.abs() for each in values)).select(
            *(nw.col(name).sum() for name in rows), *(nw.col(name).max() for name in names)
        )
    )
    for column, name in zip(columns, rows, strict=True):
        if number := int(found[name][0]):
            return ValueError(
                f"X contains NaN or infinity in {number} rows of column {column!r}; drop them or "
                "fill them in."
            )
    largest = max(found[name][0] for name in names)
    return ValueError(
        f"Input X holds a value too large for float64 arithmetic (up to {largest:.3g}): its square "
        "overflows. Rescale the data."
    )
