"""Sums over the levels of a factor that is eliminated from the equations of crossed effects."""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.responses import _row, _row_by_shape, _twist
from ebfed.kernels.small import _cholesky, _invert


@jit
def level_inverses(blocks, root, inverses):
    """Invert ``I + R' S_i R``, for products S_i of the columns of each level.

    Parameters
    ----------
    blocks : ndarray of shape (n, p, p)
        S_i.
    root : ndarray of shape (p, p)
        R.
    inverses : ndarray of shape (n, p, p)
        Filled.

    Returns
    -------
    float
        Sum of the logarithms of the determinants; NaN if one is not positive definite.
    """
    p, total = len(root), 0.0
    half, own = np.empty((p, p)), np.empty((p, p))
    for i in range(len(blocks)):
        for a in range(p):
            for b in range(p):
                half[a, b] = 0.0
                for c in range(p):
                    half[a, b] += blocks[i, a, c] * root[c, b]
        for a in range(p):
            for b in range(a + 1):
                own[a, b] = 1.0 if a == b else 0.0
                for c in range(p):
                    own[a, b] += root[c, a] * half[c, b]
        if not _cholesky(own):
            return np.nan
        for a in range(p):
            total += 2 * math.log(own[a, a])
        _invert(own)
        for a in range(p):
            for b in range(a + 1):
                inverses[i, a, b] = inverses[i, b, a] = own[a, b]
    return total


@jit
def table_times(ends, columns, values, matrix):
    """Product of a sparse table and a matrix of shape (q, m)."""
    found = np.zeros((len(ends) - 1, matrix.shape[1]))
    for i in range(len(ends) - 1):
        for e in range(ends[i], ends[i + 1]):
            for m in range(matrix.shape[1]):
                found[i, m] += values[e] * matrix[columns[e], m]
    return found


@jit
def table_totals(ends, columns, values, matrix, size):
    """Product of the transpose of a sparse table of `size` columns and a matrix (n, m)."""
    found = np.zeros((size, matrix.shape[1]))
    for i in range(len(ends) - 1):
        for e in range(ends[i], ends[i + 1]):
            for m in range(matrix.shape[1]):
                found[columns[e], m] += values[e] * matrix[i, m]
    return found


@jit
def subtract_products(indptr, columns, values, shares, matrix):
    """Subtract products of the sparse rows of a table from a matrix, on and below the diagonal.

    ``sum_i V_i' A_i V_i``, where V_i are the p rows of level i.

    Parameters
    ----------
    indptr : integer ndarray of shape (n * p + 1,)
        Row r has the entries ``indptr[r]:indptr[r + 1]``.
    columns : integer ndarray of shape (n_entries,)
        Column of each entry, in ascending order within rows; those of a level have the same.
    values : ndarray of shape (n_entries,)
    shares : ndarray of shape (n, p, p)
        A_i, symmetric.
    matrix : ndarray of shape (size, size)
        Its first columns are those of the table.
    """
    p = shares.shape[1]
    for i in range(len(shares)):
        first = indptr[i * p]
        length = indptr[i * p + 1] - first
        for e in range(length):
            row = matrix[columns[first + e]]
            for a in range(p):
                weighed = 0.0
                for b in range(p):
                    weighed += shares[i, a, b] * values[first + b * length + e]
                for f in range(e + 1):
                    row[columns[first + f]] -= weighed * values[first + a * length + f]


@jit
def row_products(indptr, columns, values, matrix):
    """Products ``M v_i`` of a matrix and the sparse rows of a table, at the entries of the rows.

    Parameters
    ----------
    indptr : integer ndarray of shape (n + 1,)
    columns : integer ndarray of shape (n_entries,)
        In ascending order within rows.
    values : ndarray of shape (n_entries,)
    matrix : ndarray of shape (size, size)
        Symmetric; read on and below the diagonal.

    Returns
    -------
    ndarray of shape (n_entries,)
    """
    products = np.zeros(len(values))
    for i in range(len(indptr) - 1):
        for a in range(indptr[i], indptr[i + 1]):
            row, own = matrix[columns[a]], values[a]
            along = own * row[columns[a]]
            for b in range(indptr[i], a):
                entry = row[columns[b]]
                along += values[b] * entry
                products[b] += own * entry
            products[a] += along
    return products


@jit
def block_products(lower, values, start, found):
    """Add diagonal blocks of the product of two symmetric matrices.

    Parameters
    ----------
    lower : ndarray of shape (size, size)
        Read on and below the diagonal.
    values : ndarray of shape (size, size)
    start : int
        First row of the first block.
    found : ndarray of shape (n, p, p)
        Blocks; added to.
    """
    n, p = found.shape[0], found.shape[1]
    end = start + n * p
    for row in range(start, len(lower)):
        i, a = (row - start) // p, (row - start) % p
        below = row >= end
        for column in range(start if below else 0, min(row, end)):
            entry = lower[row, column]
            if not below:
                for b in range(p):
                    found[i, a, b] += entry * values[start + i * p + b, column]
            if column >= start:
                j, c = (column - start) // p, (column - start) % p
                for b in range(p):
                    found[j, c, b] += entry * values[row, start + j * p + b]
        if not below:
            for b in range(p):
                found[i, a, b] += lower[row, row] * values[row, start + i * p + b]


@jit
def predictor_rows(kind, y, weight, predictor, shapes, found):
    """Log-likelihood of rows, and derivatives in their linear predictors.

    Parameters
    ----------
    kind : int
        Number of the family, see `ebfed.kernels.responses`.
    y, weight, predictor : ndarray of shape (n_rows,)
    shapes : ndarray of shape (t,)
    found : ndarray of shape (2, n_rows)
        Filled with slopes, and minus second derivatives.

    Returns
    -------
    float
        Sum over rows, but for what does not depend on the predictor.
    """
    total = 0.0
    for i in range(len(y)):
        value, slope, bend = _row(kind, y[i], weight[i], predictor[i], shapes)
        total += value
        found[0, i], found[1, i] = slope, bend
    return total


@jit
def twist_rows(kind, y, weight, predictor, shapes, bends):
    """Minus third derivatives of log-likelihoods of rows in their linear predictors.

    Parameters
    ----------
    kind, y, weight, predictor, shapes : as in `predictor_rows`
    bends : ndarray of shape (n_rows,)
        Minus second derivatives.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    found = np.empty(len(y))
    for i in range(len(y)):
        found[i] = _twist(kind, y[i], weight[i], predictor[i], shapes, bends[i])
    return found


@jit
def shape_rows(kind, y, weight, predictor, shapes, found):
    """Slopes in shapes of log-likelihoods of rows, of their slopes, and of minus the second ones.

    Parameters
    ----------
    kind, y, weight, predictor, shapes : as in `predictor_rows`
    found : ndarray of shape (3, n_rows, t)
        Filled.
    """
    for i in range(len(y)):
        for t in range(found.shape[2]):
            moved = _row_by_shape(kind, y[i], weight[i], predictor[i], shapes, t)
            found[0, i, t], found[1, i, t], found[2, i, t] = moved
