"""Steps in the entries of covariances, to where a quadratic is least."""

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.small import _cholesky, _invert, _solve_lower

# Curvatures of T below this share of the largest are raised to it; in axes of T, below the second.
_FLAT, _FLATTEST = 1e-6, 1e-10
# By what a step shrinks X S, and how far towards the boundary it goes.
_CENTRE, _INSIDE = 0.1, 0.95
# Of what a quadratic falls, the share at which its least is near enough.
_NEAR = 1e-9
# Share of products of eigenvalues and slopes that is rounding.
_ROUNDING = 1e-15


@jit
def covariance_step(root, slope, bends, turns, enough, rows, columns, ends):
    """Find the step of a covariance T to where a quadratic is least, without negative eigenvalues.

    It is taken in coordinates C in which ``C' T C`` bends about alike in all directions: the
    curvature is about the sum of products of ``K_i = Z_i' V_i^-1 Z_i`` with itself, and C C' is the
    sum of the K_i, weighted by their traces.

    Parameters
    ----------
    root : ndarray of shape (q, q)
        Root of T.
    slope : ndarray of shape (q, q)
    bends : ndarray of shape (k, k)
        Expected second derivatives in the entries of T.
    turns : ndarray of shape (n, 2, q, q)
        By how much T moved in earlier steps, and how the slope turned.
    enough : float
        As in `least_covariance`.
    rows, columns : int64 ndarrays of shape (k,)
        Places of the entries: those of the blocks of T, one after another, row by row.
    ends : int64 ndarray
        Ends of the blocks of T.

    Returns
    -------
    here, step : ndarrays of shape (k,)
        Entries of ``C' T C``, and what is to be added.
    inverse : ndarray of shape (q, q)
        Inverse of C.
    fall : float
        What the slope promises of a whole step.
    """
    k, q = len(rows), len(root)
    for turn in turns:
        bends = _corrected(bends, turn[0], turn[1], rows, columns)
    axes, inverse = _axes(bends, ends, q)
    change, here, sloping = np.empty((k, k)), np.empty(k), np.zeros(k)
    turned = axes.T @ root
    inner = turned @ turned.T
    for i in range(k):
        here[i] = inner[rows[i], columns[i]]
        for j in range(k):
            change[i, j] = inverse[rows[i], rows[j]] * inverse[columns[i], columns[j]]
            sloping[i] += change[i, j] * slope[rows[j], columns[j]]
    bent = change @ bends @ change.T
    step = _least(here, sloping, bent, enough, rows, columns, ends, q) - here
    return here, step, inverse, -np.dot(sloping, step)


@jit
def _corrected(bends, moved, turned, rows, columns):
    """Correct the curvature along a step by how the slope turned (Broyden 1970).

    With few groups, expected and true curvature differ, and the last steps would be many. Far from
    the minimum they differ more, and what is learned there is soon wrong.
    """
    step, turn = np.empty(len(rows)), np.empty(len(rows))
    for i in range(len(rows)):
        step[i], turn[i] = moved[rows[i], columns[i]], turned[rows[i], columns[i]]
    along, found = bends @ step, np.dot(step, turn)
    expected = np.dot(step, along)
    if not (expected / 2 < found and found < 2 * expected):
        return bends
    return bends + np.outer(turn, turn) / found - np.outer(along, along) / expected


@jit
def root_within(entries, inverse, limit, rows, columns, ends):
    """Take the root of the nearest matrix back from coordinates C, and keep it within a limit.

    Parameters
    ----------
    entries : ndarray of shape (k,)
        Entries of ``C' T C``.
    inverse : ndarray of shape (q, q)
        Inverse of C.
    limit : float
        Largest distance of an entry of the root from zero.
    rows, columns, ends
        As in `covariance_step`.

    Returns
    -------
    ndarray of shape (q, q)
        Root of T.
    """
    root = inverse.T @ nearest_root(entries, rows, columns, ends, len(inverse))
    return root * (limit / max(np.abs(root).max(), limit))


@jit
def nearest_root(entries, rows, columns, ends, q):
    """Return the root of the nearest matrix without negative eigenvalues, block by block."""
    matrix, root, first = _symmetric(entries, rows, columns, q), np.zeros((q, q)), 0
    for end in ends:
        values, vectors = np.linalg.eigh(matrix[first:end, first:end].copy())
        root[first:end, first:end] = vectors * np.sqrt(np.maximum(values, 0.0))
        first = end
    return root


@jit
def _axes(bends, ends, q):
    """Coordinates C of `covariance_step`, and their inverse."""
    axes, inverse, first, at = np.zeros((q, q)), np.zeros((q, q)), 0, 0
    for end in ends:
        size = end - first
        sums = np.zeros((size, size))
        for a in range(size):
            for b in range(size):
                for d in range(size):
                    sums[a, b] += bends[at + a * size + d, at + b * size + d]
        values, vectors = np.linalg.eigh(sums)
        sizes = np.sqrt(_raised(values, _FLATTEST))
        axes[first:end, first:end] = vectors * sizes
        inverse[first:end, first:end] = (vectors / sizes).T
        first, at = end, at + size * size
    return axes, inverse


@jit
def _raised(values, least):
    """Raise small eigenvalues, in rising order, to a share of the largest."""
    largest = max(values[-1], 1e-300) if len(values) else 1.0
    return np.maximum(values, least * largest)


@jit
def _least(here, slope, bends, enough, rows, columns, ends, q):
    """Entries of a matrix without negative eigenvalues where a quadratic is least.

    It is known to a small share of what the quadratic falls, or of what is `enough`.
    """
    values, vectors = np.linalg.eigh(bends)
    values = _raised(values, _FLAT)
    free = here - vectors @ ((vectors.T @ slope) / values)
    axes = np.linalg.eigvalsh(_symmetric(free, rows, columns, q))
    if axes[0] >= 0:
        return free
    bends, steepest = (vectors * values) @ vectors.T, values[-1]
    size = max(np.abs(axes).max(), np.abs(here).max())
    X, S = least_covariance(here, slope, bends, steepest, size, enough, rows, columns, q)
    # one step along the slope, by which small eigenvalues become zero
    entries = np.empty(len(here))
    for i in range(len(here)):
        entries[i] = X[rows[i], columns[i]] - S[rows[i], columns[i]] / steepest
    root = nearest_root(entries, rows, columns, ends, q)
    nearest = root @ root.T
    for i in range(len(here)):
        entries[i] = nearest[rows[i], columns[i]]
    return entries


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
