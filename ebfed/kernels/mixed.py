"""The linear mixed model at a covariance of effects: criterion, slope and curvature.

As in `ebfed.kernels.factors`, the client is the last axis, and innermost loops run over a batch.
"""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.factors import BATCH, whiten
from ebfed.kernels.small import _cholesky, _solve_lower


@jit
def whitened_products(factors, effects, columns, root, out):
    """Whiten each client's rows, as `whiten` does, and add up products of their columns.

    Parameters
    ----------
    factors, effects, columns, root, out : ndarrays
        As in `whiten`.

    Returns
    -------
    log_det : float
        Sum over clients of ``log det V``.
    products : ndarray of shape (p, p)
    """
    p, r, n_clients = factors.shape
    log_det = whiten(factors, effects, columns, root, out)
    sums, products = np.zeros((p, p, BATCH)), np.empty((p, p))
    for first in range(0, n_clients, BATCH):
        for a in range(p):
            for b in range(a + 1):
                for i in range(min(b + 1, r)):
                    for c in range(BATCH):
                        sums[a, b, c] += out[a, i, first + c] * out[b, i, first + c]
    for a in range(p):
        for b in range(a + 1):
            products[a, b] = products[b, a] = sums[a, b].sum()
    return log_det, products


@jit
def least_squares(products, basis):
    """Regress the last column on the others, along directions that these identify.

    Parameters
    ----------
    products : ndarray of shape (p + 1, p + 1)
        Products of the columns of ``[X y]``.
    basis : ndarray of shape (p, rank)
        Directions of coefficients; the identity if there are p.

    Returns
    -------
    half : ndarray of shape (rank, p)
        ``(X'X)^-1 = half' half``.
    beta : ndarray of shape (p,)
    quadratic : float
        Sum of squares of the residuals.
    log_det : float
        ``log det X'X``; NaN if that is not positive definite, and the rest is not known.
    """
    p, rank = basis.shape
    inner, half = np.zeros((rank, rank)), np.zeros((rank, p))
    for j in range(rank):
        for k in range(j + 1):
            for a in range(p if rank < p else 0):
                for b in range(p):
                    inner[j, k] += basis[a, j] * products[a, b] * basis[b, k]
            if rank == p:
                inner[j, k] = products[j, k]
    if not _cholesky(inner):
        return half, np.zeros(p), 0.0, np.nan
    beta, log_det, quadratic = np.zeros(p), 0.0, products[p, p]
    for a in range(p):
        for j in range(rank):
            half[j, a] = basis[a, j]
        _solve_lower(inner, half[:, a])
    for j in range(rank):
        log_det += 2 * math.log(inner[j, j])
        right = 0.0
        for a in range(p):
            right += half[j, a] * products[a, p]
        quadratic -= right * right
        for a in range(p):
            beta[a] += half[j, a] * right
    return half, beta, quadratic, log_det


@jit
def _take_effects(white, first, columns, share, shift, Z):
    """Put Z of a batch of clients, from its columns of their whitened rows, in Z."""
    for a in range(len(columns)):
        for i in range(min(columns[a] + 1, white.shape[1])):
            for c in range(BATCH):
                Z[a, i, c] = share[a] * white[columns[a], i, first + c]
        for c in range(BATCH if shift[a] != 0.0 else 0):
            Z[a, 0, c] += shift[a] * white[0, 0, first + c]


@jit
def _multiply(Z, columns, K):
    """Put products of the columns of each client's Z, of the lower half, in K."""
    q, r = Z.shape[:2]
    for a in range(q):
        for d in range(a + 1):
            K[a, d] = 0.0
            for i in range(min(columns[a] + 1, columns[d] + 1, r)):
                for c in range(BATCH):
                    K[a, d, c] += Z[a, i, c] * Z[d, i, c]


@jit
def slope_in_covariance(white, columns, share, shift, half, beta, weight):
    """Slope of the criterion in T: ``sum of Z' (I - X half' half X' - weight e e') Z``.

    Parameters
    ----------
    white : ndarray of shape (p + 1, r, n_clients)
        Whitened columns of ``[X y]``, an upper triangle for each client; n_clients is a multiple of
        `BATCH`.
    columns : int64 ndarray of shape (q,)
        Column k of Z is `share` of this column of white, plus `shift` of the first.
    share, shift : ndarrays of shape (q,)
    half : ndarray of shape (k, p)
    beta : ndarray of shape (p,)
        Coefficients of the residuals ``e = y - X beta``.
    weight : float

    Returns
    -------
    ndarray of shape (q, q)
    """
    width, r, n_clients = white.shape
    q, k = len(columns), len(half)
    maps = np.zeros((k + 1, width))
    maps[k, width - 1] = 1.0
    for a in range(width - 1):
        maps[k, a] = -beta[a]
        for b in range(k):
            maps[b, a] = half[b, a]
    Z, left, K = np.empty((q, r, BATCH)), np.empty((q, q, BATCH)), np.empty((q, BATCH))
    row, sums, slope = np.empty((r, BATCH)), np.zeros((q, q, BATCH)), np.empty((q, q))
    for first in range(0, n_clients, BATCH):
        _take_effects(white, first, columns, share, shift, Z)
        _multiply(Z, columns, left)
        for b in range(k + 1):
            row[:] = 0.0
            for a in range(width):
                if maps[b, a] != 0.0:
                    for i in range(min(a + 1, r)):
                        for c in range(BATCH):
                            row[i, c] += maps[b, a] * white[a, i, first + c]
            K[:] = 0.0
            factor = weight if b == k else 1.0
            for a in range(q):
                for i in range(min(columns[a] + 1, r)):
                    for c in range(BATCH):
                        K[a, c] += Z[a, i, c] * row[i, c]
                for d in range(a + 1):
                    for c in range(BATCH):
                        left[a, d, c] -= factor * K[a, c] * K[d, c]
        for a in range(q):
            for d in range(a + 1):
                for c in range(BATCH):
                    sums[a, d, c] += left[a, d, c]
    for a in range(q):
        for d in range(a + 1):
            slope[a, d] = slope[d, a] = sums[a, d].sum()
    return slope


@jit
def curvature_in_covariance(white, columns, share, shift, n_rows, whole):
    """Expected curvature of the criterion in T, the noise profiled out.

    With ``K = Z'Z`` of a client, it is the sum of ``K_ab K_cd`` in entries (a, d) and (b, c), less
    the product of the sums of K_ad and K_bc over n_rows.

    Parameters
    ----------
    white, columns, share, shift
        As in `slope_in_covariance`.
    n_rows : int
    whole : bool
        Whether it is wanted in all entries, row by row, or in those of the diagonal.

    Returns
    -------
    ndarray of shape (q * q, q * q), or (q, q)
    """
    (r, n_clients), q = white.shape[1:], len(columns)
    Z, K = np.empty((q, r, BATCH)), np.empty((q, q, BATCH))
    size = q * (q + 1) // 2
    shared, sums = np.zeros(size), np.zeros((size, size if whole else 1, BATCH))
    for first in range(0, n_clients, BATCH):
        _take_effects(white, first, columns, share, shift, Z)
        _multiply(Z, columns, K)
        u = 0
        for a in range(q):
            for b in range(a + 1):
                shared[u] += K[a, b].sum()
                v = 0
                for d in range(a + 1):
                    for e in range(d + 1 if whole else 0):
                        for c in range(BATCH):
                            sums[u, v, c] += K[a, b, c] * K[d, e, c]
                        v += 1
                for c in range(0 if whole else BATCH):
                    sums[u, 0, c] += K[a, b, c] ** 2
                u += 1
    if not whole:
        return _diagonal_curvature(sums, shared, q, n_rows)
    curvature = np.empty((q * q, q * q))
    for a in range(q):
        for d in range(q):
            for b in range(q):
                for e in range(q):
                    u, v = _place(a, b), _place(d, e)
                    found = sums[max(u, v), min(u, v)].sum()
                    found -= shared[_place(a, d)] * shared[_place(b, e)] / n_rows
                    curvature[a * q + d, b * q + e] = found
    return curvature


@jit
def _diagonal_curvature(sums, shared, q, n_rows):
    """Curvature in the diagonal of T."""
    curvature = np.empty((q, q))
    for a in range(q):
        for b in range(q):
            u = _place(a, b)
            curvature[a, b] = sums[u, 0].sum()
            curvature[a, b] -= shared[_place(a, a)] * shared[_place(b, b)] / n_rows
    return curvature


@jit
def _place(a, b):
    """Place of an entry of a symmetric matrix, of its lower half row by row."""
    return max(a, b) * (max(a, b) + 1) // 2 + min(a, b)
