"""Groups within groups: counties of states. The label of a group is that of all its levels.

Labels of counties need not differ between states: a county is the pair of both, a tuple, and frames
show a column for each level. For the population, a parent is a number that follows from its label
alone, so that all nodes of a federation give it the same one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from decimal import Decimal
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.alignment import index_of
from ebfed.tables.columns import Columns
from ebfed.tables.frames import Style
from ebfed.tables.labels import number_labels, number_tuples, numbered_rows, one_of_each
from ebfed.tables.lazy import column_names
from ebfed.tables.values import check_labels, is_frame, is_series

__all__ = [
    "check_depth",
    "keys_of_parents",
    "label_text",
    "named_parents",
    "names_of_levels",
    "names_of_parents",
    "number_levels",
    "only_level",
    "parents_of",
    "split_levels",
]

# How a fit names, among what clients state, that groups belong to parents: as lme4 does.
PARENT = "(1 | {})"
EMPTY = blake2b(digest_size=8)  # copied for each label, which takes less time than a new one


def split_levels(groups: Any, X: Any = None, tuples: bool = False) -> list[Any]:
    """Return the labels of each level, from the outermost; a list of one where there is one.

    Parameters
    ----------
    groups : array-like, or a list of columns
        Levels are names of columns of the frame `X`, one or several; several label arrays, lists or
        series; or a frame with a column for each.
    X : data frame, optional
    tuples : bool
        Whether a tuple is the labels of all levels, as where groups of a fit with levels are asked
        for; else it is one label.

    Raises
    ------
    ValueError
        If a column does not exist, or levels have different lengths.

    Examples
    --------
    >>> split_levels(["b", "a"]), split_levels([("s", 1), ("s", 2)], tuples=True)
    ([['b', 'a']], [['s', 's'], [1, 2]])
    """
    if is_frame(groups):
        names = column_names(groups)
        of_pandas = index_of(groups) is not None  # series that keep its index
        own = [groups[name] if of_pandas else Columns.of(groups).series(name) for name in names]
        return own if len(own) > 1 else [groups]
    if tuples and (columns := _of_tuples(groups)):
        return columns
    if not isinstance(groups, list | tuple) or not groups:
        return [groups]
    if all(isinstance(each, str) for each in groups):
        return list(groups) if _are_columns(groups, X) else [groups]
    if len(groups) < 2:
        return [groups]
    several = all(isinstance(each, list) or _is_column(each) for each in groups)
    rows = all(isinstance(each, list) and len(each) == 1 for each in groups)  # one label each
    if not several or rows:
        return [groups]
    lengths = [len(each) for each in groups]
    if len(set(lengths)) > 1:
        raise ValueError(f"levels of groups must have one length; they have {lengths}.")
    return list(groups)


def _is_column(values: Any) -> bool:
    """Tell whether values are an array, or a series of any library."""
    return is_series(values) or (hasattr(values, "dtype") and np.ndim(values) > 0)


def only_level(groups: Any, X: Any) -> Any:
    """Return the labels of groups of a table whose rows are not in memory, which are of one level.

    Raises
    ------
    ValueError
        If there are several levels, or a column does not exist.

    Examples
    --------
    >>> import polars as pl
    >>> only_level(["county"], pl.LazyFrame({"county": [1], "y": [2.0]}))
    'county'
    """
    levels = split_levels(groups, X)
    if len(levels) > 1 or isinstance(levels[0], list | tuple):
        raise ValueError("levels of groups need the rows of X in memory; collect them.")
    return levels[0]


def _are_columns(texts: Sequence[str], X: Any) -> bool:
    """Tell whether texts are names of columns of a frame, rather than labels of rows."""
    if not (there := column_names(X)):
        return False
    absent = [name for name in texts if name not in there]
    if absent and not (is_frame(X) and len(texts) == len(X)):
        shown = ", ".join(map(repr, there))
        raise ValueError(f"groups names {absent[0]!r}, and X has the columns {shown}.")
    return not absent


def _of_tuples(labels: Any) -> list[Any]:
    """Columns of labels that are a tuple for each row; none if they are not."""
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype == object:
        labels = labels.tolist()
    if not isinstance(labels, list) or not labels:
        return []
    if not all(isinstance(each, tuple) for each in labels):
        return []
    lengths = {len(each) for each in labels}
    if lengths != {len(labels[0])} or len(labels[0]) < 2:
        raise ValueError(
            f"labels of groups that are tuples must have one length, 2 or more; got {lengths}."
        )
    return [list(column) for column in zip(*labels, strict=True)]


def names_of_levels(style: Style) -> tuple[str, ...]:
    """Return the names of all levels, from the outermost; none where there is one.

    Examples
    --------
    >>> names_of_levels(Style(group="county", above=(Style(group="state"),)))
    ('state', 'county')
    """
    return (*(each.group for each in style.above), style.group) if style.above else ()


def check_depth(names: Sequence[str] | None, levels: Sequence[Any]) -> None:
    """Refuse labels of other levels than those of a fit.

    Parameters
    ----------
    names : sequence of str or None
        Names of the levels of the fit, none where there is one; None before it.
    levels : sequence
        As `split_levels` returns them.

    Raises
    ------
    ValueError
    """
    if names is None or not levels or levels[-1] is None:
        return
    if len(levels) != (known := len(names) or 1):
        given = "1 level" if len(levels) == 1 else f"{len(levels)} levels"
        raise ValueError(f"groups has {given}; the fit had {known}.")


def number_levels(
    columns: Sequence[NDArray], names: Sequence[str] = ()
) -> tuple[NDArray, NDArray[np.int64]]:
    """Number groups by their sorted order; see `labels.number_labels`.

    The label of a group is a tuple, where there are several levels. Errors have their `names`.

    Raises
    ------
    ValueError
        If levels have different lengths.

    Examples
    --------
    >>> ids, codes = number_levels([np.array(["s", "r", "s"]), np.array([1, 1, 1])])
    >>> ids.tolist(), codes.tolist()
    ([('r', 1), ('s', 1)], [1, 0, 1])
    """
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise ValueError(f"levels of groups must have one length; they have {lengths}.")
    if len(columns) == 1:
        return number_labels(columns[0], *names)
    first, repeats = _runs(columns)
    runs = [_as_python(column[first]) for column in columns]
    numbers = [numbered_rows(labels, len(labels)) for labels in runs]
    codes = number_tuples([own for _, own in numbers])
    row = one_of_each(codes)  # its group's rows have the same labels
    parts = [labels[own[row]].tolist() for labels, own in numbers]
    ids = np.fromiter(zip(*parts, strict=True), object, len(row))
    return ids, codes if repeats is None else np.repeat(codes, repeats)


def _runs(columns: Sequence[NDArray]) -> tuple[NDArray | slice, NDArray | None]:
    """Where runs of rows with the same labels begin, and how long they are.

    It is all rows, and None, if runs are short, or if it takes long to tell.
    """
    if any(column.dtype.kind == "O" for column in columns):
        return slice(None), None
    begins = np.zeros(len(columns[0]), bool)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    if 2 * np.count_nonzero(begins) > len(begins):
        return slice(None), None
    first = np.flatnonzero(begins)
    return first, np.append(first[1:], len(begins)) - first


def _as_python(labels: NDArray) -> NDArray:
    """Dates in nanoseconds, which Python has not, in microseconds; other labels as they are."""
    if labels.dtype.kind not in "mM" or np.datetime_data(labels.dtype)[0] != "ns":
        return labels
    dates = labels.astype(f"{labels.dtype.kind}8[us]")
    if (dates != labels).any():
        raise ValueError("dates that label levels of groups must be whole microseconds.")
    return dates


def parents_of(ids: NDArray) -> tuple[NDArray, NDArray[np.int64]]:
    """Return the labels of the parents of groups, sorted, and the place of each group's.

    Examples
    --------
    >>> labels, places = parents_of(np.fromiter([("s", 1), ("s", 2), ("r", 1)], object))
    >>> labels.tolist(), places.tolist()
    (['r', 's'], [1, 1, 0])
    """
    columns = [check_labels(list(part)) for part in zip(*ids.tolist(), strict=True)]
    return number_levels(columns[:-1]) if len(columns) > 2 else number_labels(columns[0])


def keys_of_parents(ids: NDArray, n_above: int) -> NDArray[np.float64]:
    """Return the number of each group's parents, shape (n, n_above); NaN without labels.

    It follows from the label of the parent alone: the first 53 bits of a digest. Labels that are
    written alike, as numbers or days and their text, have one.

    Examples
    --------
    >>> keys = keys_of_parents(np.fromiter([("s", 1), ("s", 2), ("r", 1)], object), 1)
    >>> bool(keys[0, 0] == keys[1, 0] != keys[2, 0])
    True
    """
    keys = np.full((len(ids), n_above), np.nan)
    labels = ids.tolist()
    if not labels or not isinstance(labels[0], tuple):
        return keys
    for level in range(n_above):
        # groups of one parent lie side by side, where labels are sorted
        runs = groupby(map(itemgetter(level), labels))
        distinct, counts = zip(*((label, len(list(run))) for label, run in runs), strict=True)
        digests = np.frombuffer(b"".join(map(_digest, distinct)), ">u8")
        keys[:, level] = np.repeat((digests >> 11).astype(float), counts)
    return keys


def _digest(label: Any) -> bytes:
    if isinstance(label, float | Decimal):
        label = int(label) if label % 1 == 0 else float(label)
    elif isinstance(label, dt.datetime) and label == dt.datetime.combine(label, dt.time()):
        label = label.date()
    digest = EMPTY.copy()
    digest.update(str(label).encode())
    return digest.digest()


def named_parents(names: Iterable[str]) -> list[str]:
    """Name levels among what clients state.

    Examples
    --------
    >>> named_parents(["state"]), names_of_parents(["(1 | state)"]), names_of_parents(["uranium"])
    (['(1 | state)'], ['state'], [])
    """
    return [PARENT.format(name) for name in names]


def names_of_parents(names: Iterable[str]) -> list[str]:
    """Return the names of the levels among the names of what clients state."""
    before, after = PARENT.split("{}")
    return [
        name.removeprefix(before).removesuffix(after)
        for name in names
        if name.startswith(before) and name.endswith(after)
    ]


def label_text(label: Any) -> str:
    """Return a label as text; of several levels, one after the other.

    Examples
    --------
    >>> label_text(("Ohio", "Adams")), label_text(7)
    ('Ohio / Adams', '7')
    """
    return " / ".join(map(str, label)) if isinstance(label, tuple) else str(label)
