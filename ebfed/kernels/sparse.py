"""Symmetric positive definite matrices with few entries: triangular factors and what they give.

The entries of a factor L are known before any number is: eliminating a column connects all rows
that it has below its diagonal. Column j of L has the rows ``rows[starts[j]:starts[j + 1]]``, in
ascending order, of which the first is j. The matrix itself, whose entries are among those of L, its
factor, and the entries of its inverse at these places are arrays of values in this order.
"""

import math

import numpy as np

from ebfed.kernels._jit import jit


@jit
def count_fill(ends, columns, order, most):
    """Count the entries of each column of the factor of a symmetric matrix in some order.

    Parameters
    ----------
    ends, columns : integer ndarray
        Places of entries of the matrix, by row; both triangles.
    order : int64 ndarray of shape (n,)
        Row of the matrix that is eliminated at each step.
    most : float
        Sum of squared counts at which the count ends.

    Returns
    -------
    counts : int64 ndarray of shape (n,)
        Empty if there are more.
    parent : int64 ndarray of shape (n,)
        First row below the diagonal of each column; -1 if the column ends there.
    """
    n = len(order)
    step, counts = np.empty(n, np.int64), np.ones(n, np.int64)
    parent, seen = np.full(n, -1, np.int64), np.empty(n, np.int64)
    step[order] = np.arange(n)
    total = float(n)
    for i in range(n):
        seen[i] = i
        for e in range(ends[order[i]], ends[order[i] + 1]):
            j = step[columns[e]]
            while j < i and seen[j] != i:  # row i of L has column j, and those that follow from it
                total += 2 * counts[j] + 1
                counts[j] += 1
                seen[j] = i
                if parent[j] < 0:
                    parent[j] = i
                j = parent[j]
        if total > most:
            return np.empty(0, np.int64), parent
    return counts, parent


@jit
def fill_rows(ends, columns, order, counts, parent):
    """Find the rows of the entries of each column of the factor.

    Parameters
    ----------
    ends, columns, order : as in `count_fill`
    counts, parent : as `count_fill` returns them

    Returns
    -------
    starts : int64 ndarray of shape (n + 1,)
    rows : int64 ndarray of shape (n_entries,)
    """
    n = len(order)
    step, seen = np.empty(n, np.int64), np.empty(n, np.int64)
    step[order] = np.arange(n)
    starts = np.zeros(n + 1, np.int64)
    starts[1:] = np.cumsum(counts)
    place, rows = starts[:-1].copy(), np.empty(starts[-1], np.int64)
    for i in range(n):
        seen[i] = i
        rows[place[i]] = i
        place[i] += 1
        for e in range(ends[order[i]], ends[order[i] + 1]):
            j = step[columns[e]]
            while j < i and seen[j] != i:
                rows[place[j]] = i
                place[j] += 1
                seen[j] = i
                j = parent[j]
    return starts, rows


@jit
def entry_places(starts, rows, one, other):
    """Find the entries of pairs of rows and columns, in either order; -1 where L has no entry.

    Parameters
    ----------
    starts, rows : int64 ndarray
        Entries of L.
    one, other : int64 ndarray of shape (m,)

    Returns
    -------
    int64 ndarray of shape (m,)
    """
    found = np.empty(len(one), np.int64)
    for m in range(len(one)):
        found[m] = _place(starts, rows, one[m], other[m])
    return found


@jit
def _place(starts, rows, one, other):
    row, column = max(one, other), min(one, other)
    low, high = starts[column], starts[column + 1]
    while low < high:
        middle = (low + high) // 2
        if rows[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low if low < starts[column + 1] and rows[low] == row else -1


@jit
def factor_entries(starts, rows, values):
    """Replace a matrix by its triangular factor.

    Parameters
    ----------
    starts, rows : int64 ndarray
    values : ndarray of shape (n_entries,)

    Returns
    -------
    float
        Logarithm of the determinant; NaN if the matrix is not positive definite.
    """
    total = 0.0
    for j in range(len(starts) - 1):
        first, end = starts[j], starts[j + 1]
        if not values[first] > 0.0:
            return np.nan
        total += math.log(values[first])
        values[first] = math.sqrt(values[first])
        for a in range(first + 1, end):
            values[a] /= values[first]
        for a in range(first + 1, end):
            own, place = values[a], starts[rows[a]]
            for b in range(a, end):
                while rows[place] < rows[b]:
                    place += 1
                values[place] -= own * values[b]
    return total


@jit
def solve_forward(starts, rows, values, right):
    """Solve ``L X = B`` in place; B has the shape (n, m)."""
    for j in range(len(starts) - 1):
        first = starts[j]
        for m in range(right.shape[1]):
            right[j, m] /= values[first]
        for a in range(first + 1, starts[j + 1]):
            for m in range(right.shape[1]):
                right[rows[a], m] -= values[a] * right[j, m]


@jit
def solve_backward(starts, rows, values, right):
    """Solve ``L' X = B`` in place; B has the shape (n, m)."""
    for j in range(len(starts) - 2, -1, -1):
        first = starts[j]
        for a in range(first + 1, starts[j + 1]):
            for m in range(right.shape[1]):
                right[j, m] -= values[a] * right[rows[a], m]
        for m in range(right.shape[1]):
            right[j, m] /= values[first]


@jit
def inverse_entries(starts, rows, values):
    """Entries of the inverse of ``L L'`` at the places of those of L (Takahashi et al. 1973).

    Parameters
    ----------
    starts, rows : int64 ndarray
    values : ndarray of shape (n_entries,)
        L.

    Returns
    -------
    ndarray of shape (n_entries,)
    """
    found = np.zeros(len(values))
    for j in range(len(starts) - 2, -1, -1):
        first, end = starts[j], starts[j + 1]
        for a in range(first + 1, end):
            place = starts[rows[a]]
            found[a] -= found[place] * values[a]
            for b in range(a + 1, end):
                while rows[place] < rows[b]:
                    place += 1
                found[a] -= found[place] * values[b]
                found[b] -= found[place] * values[a]
        found[first] = 1.0 / values[first]
        for a in range(first + 1, end):
            found[a] /= values[first]
            found[first] -= values[a] * found[a]
        found[first] /= values[first]
    return found


@jit
def multiply_entries(starts, rows, values, matrix):
    """Product of a symmetric matrix, by its entries in the lower triangle, and one (n, m)."""
    found = np.zeros_like(matrix)
    for j in range(len(starts) - 1):
        for m in range(matrix.shape[1]):
            found[j, m] += values[starts[j]] * matrix[j, m]
        for a in range(starts[j] + 1, starts[j + 1]):
            for m in range(matrix.shape[1]):
                found[rows[a], m] += values[a] * matrix[j, m]
                found[j, m] += values[a] * matrix[rows[a], m]
    return found


@jit
def subtract_among(table, shares, starts, rows, values):
    """Subtract products of the rows of a table, as `subtract_products` does.

    Parameters
    ----------
    table : tuple of (indptr, columns, values)
        Columns are numbered in the order of elimination.
    shares : ndarray of shape (n, p, p)
    starts, rows, values
        Entries of the matrix.
    """
    indptr, columns, own = table
    p = shares.shape[1]
    for i in range(len(shares)):
        first = indptr[i * p]
        length = indptr[i * p + 1] - first
        for e in range(length):
            for a in range(p):
                weighed = 0.0
                for b in range(p):
                    weighed += shares[i, a, b] * own[first + b * length + e]
                for f in range(e + 1):
                    place = _place(starts, rows, columns[first + e], columns[first + f])
                    values[place] -= weighed * own[first + a * length + f]


@jit
def products_among(table, starts, rows, values):
    """Products of a matrix and the rows of a table, at the entries of these.

    Parameters
    ----------
    table : tuple of (indptr, columns, values)
        Columns are numbered in the order of elimination.
    starts, rows, values
        Entries of the matrix.

    Returns
    -------
    ndarray
        NaN where the product needs others.
    """
    indptr, columns, own = table
    products = np.zeros(len(own))
    for i in range(len(indptr) - 1):
        for a in range(indptr[i], indptr[i + 1]):
            for b in range(indptr[i], a + 1):
                place = _place(starts, rows, columns[a], columns[b])
                entry = values[place] if place >= 0 else np.nan
                products[a] += entry * own[b]
                if b < a:
                    products[b] += entry * own[a]
    return products
