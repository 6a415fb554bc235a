"""Labels of groups, numbered by their sorted order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.tables.values import check_labels

__all__ = [
    "label_range",
    "number_integers",
    "number_keys",
    "number_labels",
    "number_parents",
    "number_tuples",
    "numbered_rows",
    "one_of_each",
    "parents_among",
    "row_numbers",
]

# Up to so many keys are sorted, which needs no compiled code.
SHORT = 4096
# Longer texts are compared as objects: padded to the longest, they would take much memory.
LONGEST = 64


def number_labels(labels: ArrayLike, name: str = "groups") -> tuple[NDArray, NDArray[np.int64]]:
    """Number group labels by their sorted order.

    Parameters
    ----------
    labels : array-like of shape (n_rows,)
        Integers, strings, dates, booleans or finite floats. None is missing.
    name : str
        Name of the labels in errors.

    Returns
    -------
    ids : ndarray of shape (n_groups,)
        The distinct labels, sorted.
    codes : int64 ndarray of shape (n_rows,)
        ``ids[codes]`` are the labels.

    Raises
    ------
    ValueError
        If a label is missing, masked or infinite, or `labels` is not one-dimensional.
    TypeError
        If labels cannot be compared with one another.

    Examples
    --------
    >>> ids, codes = number_labels(["b", "a", "b"])
    >>> ids.tolist(), codes.tolist()
    (['a', 'b'], [1, 0, 1])
    """
    labels = check_labels(labels, name)
    if labels.size == 0:
        return labels, np.empty(0, np.int64)
    if labels.dtype == np.int64 or labels.dtype.kind in "Mm":
        offset, size = label_range(labels)
        if size:
            present, places = np.zeros(size, bool), labels - offset
            present[places] = True
            ids = np.flatnonzero(present)
            rank = np.cumsum(present) - 1
            return (ids + offset).astype(labels.dtype), rank[places]
        keys = np.ascontiguousarray(labels).view(np.int64)
        if not np.any(keys[1:] < keys[:-1]):  # rows are sorted by their groups, as in many tables
            starts = np.append(True, keys[1:] != keys[:-1])
            return labels[starts], np.cumsum(starts) - 1
        codes, first = number_integers(keys)
        return _sorted(labels[first], codes)
    if labels.dtype.kind in "OU":
        import pandas as pd

        codes, ids = pd.factorize(labels.astype(object, copy=False))
        try:
            return _sorted(np.asarray(ids, dtype=labels.dtype), codes)
        except TypeError:
            kinds = sorted({type(label).__name__ for label in ids})
            raise TypeError(
                f"{name} mixes labels that cannot be sorted together ({', '.join(kinds)}); "
                "convert them to one type, for example to str."
            ) from None
    ids, codes = np.unique(labels, return_inverse=True)
    return ids, codes.astype(np.int64, copy=False)


def number_tuples(columns: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Number rows of several columns by their sorted order.

    Parameters
    ----------
    columns : sequence of int64 ndarrays of shape (n_rows,)
        Each numbers its own values by their sorted order, from 0; there may be gaps.

    Examples
    --------
    >>> number_tuples([np.array([1, 1, 0]), np.array([1, 0, 0])])
    array([2, 1, 0])
    """
    codes, *others = columns
    for own in others:  # numbered anew after each, so that they stay small
        codes = number_labels(codes * (own.max(initial=0) + 1) + own)[1]
    return codes


def one_of_each(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of one row of each number 0, 1, …, where rows with one are alike.

    Examples
    --------
    >>> one_of_each(np.array([1, 0, 1]))
    array([1, 2])
    """
    row = np.empty(codes.max(initial=-1) + 1, np.int64)
    row[codes] = np.arange(len(codes))
    return row


def row_numbers(
    labels: NDArray | None, name: str = "groups"
) -> tuple[NDArray | None, NDArray[np.int64] | None]:
    """Number labels, unless they are integers that serve as row numbers of a table themselves.

    Parameters
    ----------
    labels : ndarray of shape (n_rows,) or None
        As `check_labels` returns them; None if there are none.
    name : str
        Name of the labels in errors.

    Returns
    -------
    ids : ndarray of shape (n_groups,) or None
        The distinct labels, sorted; None of integers in a narrow range.
    codes : int64 ndarray of shape (n_rows,) or None
        The number of each label, or the labels.

    Examples
    --------
    >>> row_numbers(np.array([7, 5, 7]))
    (None, array([7, 5, 7]))
    """
    if labels is None or (labels.dtype == np.int64 and label_range(labels)[1]):
        return None, labels
    return number_labels(labels, name)


def numbered_rows(labels: NDArray | None, n_rows: int) -> tuple[NDArray, NDArray[np.int64]]:
    """Labels of the groups that there may be, and the place of each row's among them.

    Parameters
    ----------
    labels : ndarray of shape (n_rows,) or None
        As `check_labels` returns them; each row is a group of its own if None.
    n_rows : int

    Returns
    -------
    ids : ndarray of shape (m,)
        Sorted. Of integers in a narrow range, all of the range.
    codes : int64 ndarray of shape (n_rows,)

    Examples
    --------
    >>> numbered_rows(np.array([7, 5, 7]), 3)
    (array([5, 6, 7]), array([2, 0, 2]))
    """
    if labels is None:
        return np.arange(n_rows), np.arange(n_rows)
    ids, codes = row_numbers(labels)
    if ids is not None and codes is not None:
        return ids, codes
    first, size = label_range(labels)
    return np.arange(first, first + size), labels - first if first else labels


def number_integers(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number distinct integers 0, 1, … in order of first appearance.

    Parameters
    ----------
    keys : contiguous int64 ndarray of shape (n,)

    Returns
    -------
    codes : int64 ndarray of shape (n,)
    first : int64 ndarray of shape (n_distinct,)
        Position where each number first appears.

    Examples
    --------
    >>> number_integers(np.array([7, 5, 7]))
    (array([0, 1, 0]), array([0, 1]))
    """
    if len(keys) > SHORT:
        from ebfed.kernels import number_more

        return number_more(np.zeros((1 << 10, 2), np.int64), 0, keys)[1:]
    _, first, codes = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[codes], first[order]


def label_range(labels: NDArray) -> tuple[int, int]:
    """Return the smallest label and the width of the range, 0 if that is too wide for a table."""
    if labels.dtype.kind in "Mm":
        return 0, 0
    if not len(labels):
        return 0, 0
    low, high = int(labels.min()), int(labels.max())
    size = high - low + 1
    return low, size if size <= 4 * len(labels) + 1024 else 0


def _sorted(ids: NDArray, codes: NDArray) -> tuple[NDArray, NDArray[np.int64]]:
    order = _order(ids)
    rank = np.empty(len(ids), np.int64)
    rank[order] = np.arange(len(ids))
    return ids[order], rank[codes]


def _order(ids: NDArray) -> NDArray[np.int64]:
    """Return the order of labels that are all different.

    Text is sorted by integers of eight bytes of its UTF-8, whose order is that of code points and
    so that of Python: ten times as fast as a comparison of objects. Lengths tell the zeros at the
    end of a text from those that fill it up.
    """
    import pandas as pd

    if ids.dtype.kind == "U" or pd.api.types.infer_dtype(ids, skipna=False) == "string":
        texts = [label.encode("utf-8", "surrogatepass") for label in ids.tolist()]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        width = -(-int(lengths.max()) // 8) or 1
        if 8 * width <= LONGEST:
            words = np.array(texts, f"S{8 * width}").view(">u8").reshape(len(ids), width)
            return np.lexsort((lengths, *words.T[::-1].astype(np.uint64)))
    return np.argsort(ids, kind="stable")


def parents_among(ids: NDArray) -> int:
    """Return the number of levels above groups with these labels.

    Examples
    --------
    >>> parents_among(np.array(["a", "b"])), parents_among(np.fromiter([("s", 1)], object))
    (0, 1)
    """
    first = ids[0] if len(ids) else None
    return len(first) - 1 if isinstance(first, tuple) else 0


def number_parents(keys: NDArray) -> tuple[NDArray, list[NDArray[np.int64]]]:
    """Number the parents of groups, level by level.

    Parameters
    ----------
    keys : ndarray of shape (n, n_above)
        A number for each group's parents, from the top.

    Returns
    -------
    nodes : ndarray of shape (n_nodes, n_above)
        The keys of each parent, those of the top level first; NaN below its own level.
    parents : list of n_above int64 ndarrays
        From the second level: the place of each node's parent in the level above; at last, that of
        each group's.

    Examples
    --------
    >>> nodes, parents = number_parents(np.array([[7.0, 1.0], [7.0, 2.0], [5.0, 1.0]]))
    >>> nodes.tolist()
    [[5.0, nan], [7.0, nan], [5.0, 1.0], [7.0, 1.0], [7.0, 2.0]]
    >>> parents
    [array([0, 1, 1]), array([1, 2, 0])]
    """
    nodes, parents = [], []
    above = np.zeros(len(keys), np.int64)
    for level in range(1, keys.shape[1] + 1):
        codes = number_keys(keys[:, :level])
        first = one_of_each(codes)  # all groups of a parent have its keys
        of_level = np.full((len(first), keys.shape[1]), np.nan)
        of_level[:, :level] = keys[first, :level]
        nodes.append(of_level)
        if level > 1:
            parents.append(above[first])
        above = codes
    return np.vstack(nodes), [*parents, above]


def number_keys(keys: NDArray) -> NDArray[np.int64]:
    """Number rows by their sorted order.

    Examples
    --------
    >>> number_keys(np.array([[7.0, 1.0], [5.0, 3.0], [5.0, 1.0]]))
    array([2, 1, 0])
    """
    columns = []
    for column in keys.T:
        starts = np.append(True, column[1:] != column[:-1])  # groups of a parent are together
        codes = np.unique(column[starts], return_inverse=True)[1].ravel()
        columns.append(codes[np.cumsum(starts) - 1])
    return number_tuples(columns)
