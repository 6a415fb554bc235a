"""Sums over the levels of a factor that is eliminated from the equations of crossed effects."""

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.responses import POISSON, _row


@jit
def subtract_products(indptr, columns, values, share, matrix):
    """Subtract the weighed products of the sparse rows of a table with themselves from a matrix.

    ``sum_i share_i v_i v_i'``, on and below the diagonal.

    Parameters
    ----------
    indptr : integer ndarray of shape (n + 1,)
        Row i has the entries ``indptr[i]:indptr[i + 1]``.
    columns : integer ndarray of shape (n_entries,)
        Column of each entry, in ascending order within rows.
    values : ndarray of shape (n_entries,)
    share : ndarray of shape (n,)
    matrix : ndarray of shape (size, size)
        Its first columns are those of the table.
    """
    for i in range(len(share)):
        for a in range(indptr[i], indptr[i + 1]):
            weighed, row = share[i] * values[a], matrix[columns[a]]
            for b in range(indptr[i], a + 1):
                row[columns[b]] -= weighed * values[b]


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
def combination_variances(rows, own, others, dense, inverse, pivots, scale, table, outer):
    """Quadratic forms of combinations of effects in the inverse of their equations.

    The combination r is ``own_r`` times the effect of level i of the eliminated factor, and the
    entries ``others[r]`` and ``dense[r]`` of the other coefficients. Its form is

        own_r**2 / pivots_i + h' inverse h,   h = others_r - own_r scale_i t_i,

    with t_i the row of the level in the table of the factor and the others.

    Parameters
    ----------
    rows : integer ndarray of shape (n,)
        Level i of each combination; -1 where it has none.
    own : ndarray of shape (n,)
    others : tuple of arrays: (columns, values), each of shape (n, k)
        Column -1 is none.
    dense : ndarray of shape (n, p)
        Entries of the last p coefficients.
    inverse : ndarray of shape (q + p, q + p)
        Symmetric.
    pivots, scale : ndarray of shape (n_levels,)
    table : tuple of arrays: (indptr, columns, values)
        Its first q columns, sparse.
    outer : ndarray of shape (n_levels, p)
        Its last p columns.

    Returns
    -------
    ndarray of shape (n,)
    """
    places, entries = others
    indptr, columns, values = table
    p, q = dense.shape[1], len(inverse) - dense.shape[1]
    forms = np.zeros(len(rows))
    longest = 0
    for i in range(len(pivots)):
        longest = max(longest, indptr[i + 1] - indptr[i])
    place = np.zeros(longest + places.shape[1] + p, np.int64)
    entry = np.zeros(len(place))
    for r in range(len(rows)):
        i, size, form = rows[r], 0, 0.0
        for k in range(places.shape[1]):
            if places[r, k] >= 0:
                place[size], entry[size] = places[r, k], entries[r, k]
                size += 1
        for j in range(p):
            place[size + j], entry[size + j] = q + j, dense[r, j]
        if i >= 0:
            form = own[r] ** 2 / pivots[i]
            factor = own[r] * scale[i]
            for j in range(p):
                entry[size + j] -= factor * outer[i, j]
        size += p
        if i >= 0:
            for a in range(indptr[i], indptr[i + 1]):
                place[size], entry[size] = columns[a], -factor * values[a]
                size += 1
        for a in range(size):
            along = 0.5 * entry[a] * inverse[place[a], place[a]]
            for b in range(a):
                along += entry[b] * inverse[place[a], place[b]]
            form += 2.0 * entry[a] * along
        forms[r] = form
    return forms


@jit
def canonical_rows(kind, y, weight, predictor, found):
    """Log-likelihood of binomial or Poisson rows, and derivatives in their linear predictors.

    Parameters
    ----------
    kind : int
        Number of the family, see `ebfed.kernels.responses`.
    y, weight, predictor : ndarray of shape (n_rows,)
    found : ndarray of shape (3, n_rows)
        Filled with slopes, minus second derivatives, and minus third derivatives.

    Returns
    -------
    float
        Sum over rows, but for what does not depend on the predictor.
    """
    total, shapes = 0.0, np.zeros(0)
    for i in range(len(y)):
        value, slope, bend = _row(kind, y[i], weight[i], predictor[i], shapes)
        total += value
        found[0, i], found[1, i], found[2, i] = slope, bend, bend
        if kind != POISSON:
            # the slope is weight * (y - p), and that of p (1 - p) is p (1 - p) (1 - 2 p)
            found[2, i] = bend * (1 - 2 * y[i] + 2 * slope / weight[i])
    return total
