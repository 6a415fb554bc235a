"""Covariances at which a quadratic is least."""

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.small import _cholesky, _invert, _solve_lower

# By what a step shrinks X S, and how far towards the boundary it goes.
_CENTRE, _INSIDE = 0.1, 0.95
# Of what a quadratic falls, the share at which its least is near enough.
_NEAR = 1e-9
# Share of products of eigenvalues and slopes that is rounding.
_ROUNDING = 1e-15


@jit
def least_covariance(here, slope, bends, steepest, size, enough, rows, columns, q):
    """Find the matrix without negative eigenvalues where a quadratic is least, and its slope there.

    With d the way from `here`, it is ``slope'd + d' bends d / 2``; X is the matrix, and S its slope
    there. On the way X S is mu times the identity, with mu ever smaller: the primal-dual
    interior-point method of Helmberg, Rendl, Vanderbei and Wolkowicz (1996).

    Parameters
    ----------
    here, slope : ndarrays of shape (k,)
        Entries of a matrix without negative eigenvalues, and the slope there.
    bends : ndarray of shape (k, k)
        Symmetric and positive definite.
    steepest : float
        Its largest eigenvalue.
    size : float
        Of eigenvalues of matrices that are looked at.
    enough : float
        Stop where a thousandth of this is left to fall, or a small share of the fall from there.
    rows, columns : int64 ndarrays of shape (k,)
        Places of the entries; others are zero.
    q : int

    Returns
    -------
    X, S : ndarrays of shape (q, q)
    """
    k = len(here)
    X = size * np.eye(q)
    S = steepest * X
    x, s, inner, both = np.empty(k), np.empty(k), np.empty(k), np.empty((k, k))
    for _ in range(100):
        inverse = X.copy()
        if not _cholesky(inverse):  # rounding is all that is left
            break
        _invert(inverse)
        for i in range(q):
            inverse[i, i:] = inverse[i:, i]
        for i in range(k):
            x[i], s[i] = X[rows[i], columns[i]], S[rows[i], columns[i]]
            inner[i] = inverse[rows[i], columns[i]]
        d = x - here
        away, left = slope + bends @ d - s, np.sum(X * S)
        rounding = _ROUNDING * size * (np.linalg.norm(slope) + steepest * np.linalg.norm(d))
        near = max(-_NEAR * np.dot(slope, d), 1e-3 * enough, rounding)
        if max(left, abs(np.dot(away, d))) < near:
            break
        for i in range(k):  # bends D + X^-1 D S
            for j in range(k):
                product = inverse[rows[i], rows[j]] * S[columns[i], columns[j]]
                both[i, j] = bends[i, j] + product
        step = np.linalg.solve(both, _CENTRE * left / q * inner - s - away)
        D = _symmetric(step, rows, columns, q)
        E = _symmetric(bends @ step + away, rows, columns, q)
        length = min(_INSIDE * min(_room(X, D), _room(S, E)), 1.0)
        if not length > 0:  # rounding is all that is left
            break
        X, S = X + length * D, S + length * E
    return X, S


@jit
def _symmetric(entries, rows, columns, q):
    """Return the matrix of these entries."""
    matrix = np.zeros((q, q))
    for i in range(len(entries)):
        matrix[rows[i], columns[i]] += entries[i] / 2
        matrix[columns[i], rows[i]] += entries[i] / 2
    return matrix


@jit
def _room(matrix, step):
    """How many steps may be added until a matrix is not positive definite; 0 if it is none now."""
    L, half = matrix.copy(), np.eye(len(matrix))
    if not _cholesky(L):
        return 0.0
    for j in range(len(L)):  # the inverse of L
        _solve_lower(L, half[:, j])
    least = np.linalg.eigvalsh(half @ step @ half.T)[0]
    return np.inf if least >= 0 else -1 / least
