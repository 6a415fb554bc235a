"""Distinct messages among those of many clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import number_below, order_distinct
from ebfed.tables.labels import number_integers

__all__ = ["distinct_in_order", "number_rows", "repeats", "two_of_each_cell", "words"]

# Products of more possible values may not fit into 64 bits.
MOST = 2**62
# Rows of a bucket that are ordered one by one.
FULL = 64
# Numbers that are looked at to find out whether any are equal.
SOME = 2000


def number_rows(columns: Sequence[NDArray]) -> tuple[NDArray, NDArray, NDArray]:
    """Number the distinct rows of a table, in order of first appearance.

    Numbers that span a range not much longer than the table are looked up in one of all possible
    rows; others are hashed.

    Parameters
    ----------
    columns : sequence of ndarrays of shape (n,)
        At least one; integers, booleans or floats.

    Returns
    -------
    codes : int64 ndarray of shape (n,)
        Number of each row.
    first : int64 ndarray of shape (k,)
        Where each number first appears.
    counts : int64 ndarray of shape (k,)
        How often.

    Examples
    --------
    >>> number_rows([np.array([3, 1, 3, 3]), np.array([0.5, 0.5, 0.5, 2.0])])
    (array([0, 1, 0, 2]), array([0, 1, 3]), array([2, 1, 1]))
    """
    n = len(columns[0])
    key, size = np.zeros(n, np.int64), 1
    for column in columns:
        values = words(column)
        low, span = _range(values)
        if size * span > MOST:
            (key, first), (values, also) = number_integers(key), number_integers(values)
            low, size, span = 0, len(first), len(also)
        if size > 1:
            key *= span  # in place: memory for a large table costs more than arithmetic
        key += values
        key -= low
        size *= span
    if size <= 4 * n + 4096:
        return number_below(key, size)
    codes, first = number_integers(key)
    return codes, first, np.bincount(codes, minlength=len(first))


def distinct_in_order(columns: Sequence[NDArray]) -> tuple[NDArray[np.int64], NDArray]:
    """Find the distinct rows of a table, ordered by the first column, then by the next.

    Parameters
    ----------
    columns : sequence of ndarrays of shape (n,)
        At least one; integers or floats. Non-negative numbers of which hardly two are equal are
        ordered by buckets of similar ones; others are numbered first, and then sorted.

    Returns
    -------
    first : int64 ndarray of shape (k,)
        Where each distinct row first appears, in the order of these rows.
    counts : float ndarray of shape (k,)
        How often.

    Examples
    --------
    >>> distinct_in_order([np.array([0.5, 0.1, 0.5, 0.5]), np.array([3, 1, 2, 3])])
    (array([1, 2, 0]), array([1., 1., 2.]))
    """
    if not repeats(columns[0]):
        keys, *others = (words(column) for column in columns)
        low, span = _range(keys)
        if low >= 0 and all(_range(column)[0] >= 0 for column in others):
            shift = max(span.bit_length() - len(keys).bit_length() - 1, 0)
            table = np.array(others, np.int64).reshape(len(others), len(keys)).T
            first, counts = order_distinct(
                keys, np.ascontiguousarray(table), low, shift, ((span - 1) >> shift) + 1, FULL
            )
            if len(first):
                return first, counts.astype(float)
    _, first, counts = number_rows(columns)
    order = np.lexsort([column[first] for column in columns[::-1]])
    return first[order], counts[order].astype(float)


def repeats(values: NDArray) -> bool:
    """Return whether many of some numbers are equal, as far as the first of them show.

    Examples
    --------
    >>> repeats(np.array([0.5, 0.5, 0.5])), repeats(np.array([0.5, 0.1, 0.3]))
    (True, False)
    """
    some = values[:SOME]
    return 2 * len(np.unique(some)) <= len(some)


def two_of_each_cell(
    values: NDArray, variances: NDArray, counts: NDArray, *others: NDArray
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Two messages that stand for all within half an error, with errors within 5 %.

    Number, mean and spread of the values and the mean variance are kept, so that likelihoods
    differ by terms of third order.

    Parameters
    ----------
    values, variances : ndarray of shape (n, 1)
        Variances positive and finite.
    counts : ndarray of shape (n,)
        How many clients each message stands for.
    *others : ndarrays of shape (n,)
        Positive numbers that are within 10 % in a cell.

    Returns
    -------
    values, variances : ndarray of shape (2 k, 1)
    counts : ndarray of shape (2 k,)
    cells : int64 ndarray of shape (n,)
        The cell of each message; its two are in rows ``cells`` and ``cells + k``.

    Examples
    --------
    >>> x, one = np.array([[0.1], [0.3], [5.0]]), np.ones((3, 1))
    >>> two_of_each_cell(x, one, np.ones(3))[0].ravel()
    array([0.1, 5. , 0.3, 5. ])
    """
    values, variances = values[:, 0], variances[:, 0]
    level = np.floor(np.log(variances / variances.min()) / 0.1)
    width = 0.5 * np.sqrt(variances.min()) * np.exp(0.05 * level)
    cell = np.floor((values - values.min()) / width)
    cells, _, _ = number_rows([cell, level, *(np.floor(np.log(each) / 0.1) for each in others)])
    times = np.bincount(cells, counts)
    centre = np.bincount(cells, counts * values) / times
    away = values - centre[cells]
    centre += np.bincount(cells, counts * away) / times
    spread = np.sqrt(np.bincount(cells, counts * (values - centre[cells]) ** 2) / times)
    variance = np.tile(np.bincount(cells, counts * variances) / times, 2)
    twice = np.concatenate((centre - spread, centre + spread))
    return twice[:, None], variance[:, None], np.tile(times / 2, 2), cells


def _range(values: NDArray[np.int64]) -> tuple[int, int]:
    """Least of some integers, and how many there are from it to the largest."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    return low, high - low + 1


def words(values: NDArray) -> NDArray[np.int64]:
    """Numbers as integers that are equal where the numbers are."""
    if values.dtype.kind == "f":
        return np.ascontiguousarray(values + 0.0, np.float64).view(np.int64)  # -0 is 0
    return np.ascontiguousarray(values, np.int64)
