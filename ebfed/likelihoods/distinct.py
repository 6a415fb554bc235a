"""Distinct messages among those of many clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import number_below
from ebfed.tables.labels import number_integers

__all__ = ["number_rows", "order_of", "words"]

# Products of more possible values may not fit into 64 bits.
MOST = 2**62


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


def order_of(columns: Sequence[NDArray]) -> NDArray[np.int64]:
    """Order rows of a table by the first column, and by the next where that is equal.

    Of equal rows, any may be first.

    Examples
    --------
    >>> order_of([np.array([0.5, 0.1, 0.5]), np.array([3, 1, 2])])
    array([1, 2, 0])
    """
    order = np.argsort(columns[0])  # much faster than several columns together
    sorted_ = columns[0][order]
    if np.any(sorted_[1:] == sorted_[:-1]):
        return np.lexsort(tuple(columns[::-1]))
    return order


def _range(values: NDArray[np.int64]) -> tuple[int, int]:
    """Least of some integers, and how many there are from it to the largest."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    return low, high - low + 1


def words(values: NDArray) -> NDArray[np.int64]:
    """Numbers as integers that are equal where the numbers are."""
    if values.dtype.kind == "f":
        return np.ascontiguousarray(values + 0.0, np.float64).view(np.int64)  # -0 is 0
    return np.ascontiguousarray(values, np.int64)
