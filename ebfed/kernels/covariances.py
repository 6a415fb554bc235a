"""Covariances at which a quadratic is least, and steps of a search for them."""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.small import (
    _applied,
    _cholesky,
    _eliminate,
    _inner,
    _invert,
    _product,
    _solve_lower,
    _solve_upper,
)

# Curvatures of T below this share of the largest are raised to it; all those of its axes, by that.
_FLAT, _FLAT_AXES = 1e-6, 1e-10

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
        d, left = x - here, 0.0
        away = slope + _applied(bends, d) - s
        for i in range(q):
            left += _inner(X[i], S[i])
        length = math.sqrt(_inner(slope, slope)) + steepest * math.sqrt(_inner(d, d))
        rounding = _ROUNDING * size * length
        near = max(-_NEAR * _inner(slope, d), 1e-3 * enough, rounding)
        if max(left, abs(_inner(away, d))) < near:
            break
        for i in range(k):  # bends D + X^-1 D S
            for j in range(k):
                product = inverse[rows[i], rows[j]] * S[columns[i], columns[j]]
                both[i, j] = bends[i, j] + product
        step = _CENTRE * left / q * inner - s - away
        _eliminate(both, step)
        D = _symmetric(step, rows, columns, q)
        E = _symmetric(_applied(bends, step) + away, rows, columns, q)
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
    least = np.linalg.eigh(_product(_product(half, step), half.T))[0][0]
    return np.inf if least >= 0 else -1 / least


@jit
def scoring_step(root, slope, last_root, last_slope, memory, slow, expected, places, ends):
    """Find where a quadratic in a covariance T is least, whatever its eigenvalues are there.

    Parameters
    ----------
    root, slope : ndarrays of shape (q, q)
        ``T = root root'``, and the slope of the criterion in T.
    last_root, last_slope : ndarrays of shape (q, q)
        Those before the last step; the same before the first.
    memory : ndarray of shape (2, m, k)
        Ways of the last steps, and how the slope turned along them. The last step is added.
    slow : bool
        Whether the expected curvature has led nowhere: then all of these steps correct it, however
        far they are from it. Otherwise the last two do, within a factor of two.
    expected : ndarray of shape (k, k)
        Expected curvature of the criterion in the k entries of T.
    places : int64 ndarray of shape (2, k)
        Rows and columns of the entries, block by block.
    ends : int64 ndarray of shape (n_blocks + 1,)
        Where blocks begin, and the last ends.

    Returns
    -------
    inverse : ndarray of shape (q, q)
        Its transpose takes roots in the coordinates of what follows to those of T.
    here, sloping, bends : ndarrays of shape (k,), (k,) and (k, k)
        Entries of T, the slope, and the curvature.
    ahead : ndarray of shape (q, q)
        Root of the covariance where the quadratic is least, a lower triangle; empty if the least
        has a negative eigenvalue, or the curvature is all but singular: see `bounded_entries`.
    """
    rows, columns, k = places[0], places[1], places.shape[1]
    now, last, bends = _entries(root, places), _entries(last_root, places), expected.copy()
    flat, change, across = np.empty(k), np.empty((k, k)), np.empty((k, k))
    for i in range(k):
        flat[i] = slope[rows[i], columns[i]]
        for m in range(memory.shape[1] - 1):
            memory[0, m, i], memory[1, m, i] = memory[0, m + 1, i], memory[1, m + 1, i]
        memory[0, -1, i] = now[i] - last[i]
        memory[1, -1, i] = flat[i] - last_slope[rows[i], columns[i]]
    for m in range(0 if slow else memory.shape[1] - 2, memory.shape[1]):
        _correct(bends, memory[0, m], memory[1, m], 100.0 if slow else 2.0)
    axes, inverse = _axes(bends, ends)
    for i in range(k):
        for j in range(k):
            change[i, j] = inverse[rows[i], rows[j]] * inverse[columns[i], columns[j]]
            across[j, i] = change[i, j]
    here, sloping = _entries(_product(axes, root), places), _applied(change, flat)
    bends = _product(_product(change, bends), across)
    return inverse, here, sloping, bends, _root_ahead(here, sloping, bends, places, ends)


@jit
def _root_ahead(here, slope, bends, places, ends):
    """Root of the matrix where a quadratic is least; empty if it has no such place, or no root."""
    L, entries = bends.copy(), slope.copy()
    if not (_cholesky(L) and _is_sound(L, _FLAT)):
        return np.empty((0, 0))
    _solve_lower(L, entries)
    _solve_upper(L, entries)
    for i in range(len(here)):
        entries[i] = here[i] - entries[i]
    root = _symmetric(entries, places[0], places[1], ends[-1])
    if not _cholesky(root):
        return np.empty((0, 0))
    for i in range(len(root)):
        for j in range(i + 1, len(root)):
            root[i, j] = 0.0
    return root


@jit
def covariance_root(entries, places, ends):
    """Root of the nearest matrix without negative eigenvalues.

    Parameters
    ----------
    entries : ndarray of shape (k,)
    places, ends : int64 ndarrays
        As in `scoring_step`.

    Returns
    -------
    ndarray of shape (q, q)
    """
    matrix = _symmetric(entries, places[0], places[1], ends[-1])
    root = np.zeros(matrix.shape)
    for block in range(len(ends) - 1):
        first, q = ends[block], ends[block + 1] - ends[block]
        own = np.empty((q, q))
        for a in range(q):
            for b in range(q):
                own[a, b] = matrix[first + a, first + b]
        values, vectors = np.linalg.eigh(own)
        for b in range(q):
            for a in range(q):
                root[first + a, first + b] = vectors[a, b] * math.sqrt(max(values[b], 0.0))
    return root


@jit
def _entries(root, places):
    """Entries of a matrix, from its root."""
    entries = np.zeros(places.shape[1])
    for i in range(len(entries)):
        for j in range(root.shape[1]):
            entries[i] += root[places[0, i], j] * root[places[1, i], j]
    return entries


@jit
def _correct(bends, moved, turned, trust):
    """Correct the curvature along a step by how the slope turned (Broyden 1970).

    With few groups, expected and true curvature differ, and the last steps would be many. Far from
    the minimum they differ more, and what is learned there is soon wrong. Where coefficients that
    differ between groups have no mean, or a vague one, they differ at the minimum too, for the
    fixed coefficients move with the covariances.
    """
    along, found = _applied(bends, moved), _inner(moved, turned)
    expected = _inner(moved, along)
    if expected / trust < found < trust * expected:
        for i in range(len(moved)):
            for j in range(len(moved)):
                bends[i, j] += turned[i] * turned[j] / found - along[i] * along[j] / expected


@jit
def _axes(bends, ends):
    """Transpose of coordinates C in which ``C' T C`` bends about alike; inverse of C.

    The curvature is about the sum of products of ``K_i = Z_i' V_i^-1 Z_i`` with itself; C C' is the
    sum of the K_i, weighted by their traces: its Cholesky factor, for eigenvectors take long to
    load.
    """
    size, at = ends[-1], 0
    axes, inverse = np.zeros((size, size)), np.zeros((size, size))
    for block in range(len(ends) - 1):
        first, q = ends[block], ends[block + 1] - ends[block]
        own = np.zeros((q, q))
        for a in range(q):
            for b in range(q):
                for d in range(q):
                    own[a, b] += bends[at + a * q + d, at + b * q + d]
        for a in range(q):
            own[a, a] += _FLAT_AXES * own[a, a] + 1e-300
        if not _cholesky(own):  # of a curvature that is no sum of squares
            own = np.eye(q)
        for a in range(q):
            for b in range(a + 1):
                axes[first + b, first + a] = own[a, b]
            inverse[first + a, first + a] = 1.0
            _solve_lower(own, inverse[first : first + q, first + a])
        at += q * q
    return axes, inverse


@jit
def _raise(values, least):
    """Raise sorted eigenvalues to a share of the largest."""
    for i in range(len(values)):
        values[i] = max(values[i], least * values[-1], 1e-300)


@jit
def bounded_entries(here, slope, bends, places, ends, enough):
    """Entries of a matrix without negative eigenvalues where a quadratic is least.

    It is known to a small share of what the quadratic falls, or of what is `enough`.

    Parameters
    ----------
    here, slope, bends, places, ends : ndarrays
        As `scoring_step` takes and returns them; small eigenvalues of the curvature are raised.
    enough : float
        What is little for the criterion to fall.

    Returns
    -------
    ndarray of shape (k,)
    """
    bends, found = _raised_curvature(bends, slope)
    found = here - found
    axes = np.linalg.eigh(_symmetric(found, places[0], places[1], ends[-1]))[0]
    if axes[0] >= 0:
        return found
    size, steepest = max(-axes[0], axes[-1]), np.linalg.eigh(bends)[0][-1]
    for i in range(len(here)):
        size = max(size, abs(here[i]))
    given = (steepest, size, enough, places[0], places[1], ends[-1])
    X, S = least_covariance(here, slope, bends, *given)
    for i in range(len(here)):  # one step along the slope: small eigenvalues become zero
        u, v = places[0, i], places[1, i]
        found[i] = X[u, v] - S[u, v] / steepest
    return _entries(covariance_root(found, places, ends), places)


@jit
def _raised_curvature(bends, slope):
    """Curvature with small eigenvalues raised, and the product of its inverse with the slope."""
    values, vectors = np.linalg.eigh(bends)
    _raise(values, _FLAT)
    raised, toward = np.zeros(bends.shape), np.zeros(len(slope))
    for m in range(len(slope)):
        share = _inner(vectors[:, m], slope) / values[m]
        for i in range(len(slope)):
            toward[i] += vectors[i, m] * share
            for j in range(len(slope)):
                raised[i, j] += values[m] * vectors[i, m] * vectors[j, m]
    return raised, toward


@jit
def _is_sound(L, least):
    """Whether no eigenvalue of L L' is below a share of the largest; if unsure it is False.

    With a trace t, the smallest of n is no less than the determinant times
    ``((n - 1) / t)**(n - 1)``.
    """
    trace, smallest, others = 0.0, 0.0, len(L) - 1
    for i in range(len(L)):
        smallest += 2 * math.log(L[i, i])
        for j in range(i + 1):
            trace += L[i, j] ** 2
    if not 0 < trace < np.inf:
        return False
    smallest += others * (math.log(max(others, 1)) - math.log(trace))
    return smallest > math.log(least) + math.log(trace)


@jit
def quasi_newton_step(inverse, moved, turned, slope):
    """Learn from the last step how a function bends, and find the next (Broyden and others 1970).

    Parameters
    ----------
    inverse : ndarray of shape (k, k)
        About the inverse of the second derivatives. What the last step shows is added.
    moved, turned : ndarrays of shape (k,)
        The last step, and how the slope turned along it; zeros before the first.
    slope : ndarray of shape (k,)

    Returns
    -------
    step : ndarray of shape (k,)
    fall : float
        Twice what the quadratic has left to fall.
    """
    k = len(slope)
    along = _inner(moved, turned)
    if along > 1e-12 * math.sqrt(_inner(moved, moved) * _inner(turned, turned)):
        # the products with ``I - moved turned' / along`` from the left, and from the right
        for j in range(k):
            share = _inner(turned, inverse[:, j]) / along
            for i in range(k):
                inverse[i, j] -= moved[i] * share
        for i in range(k):
            share = (_inner(turned, inverse[i]) - moved[i]) / along
            for j in range(k):
                inverse[i, j] -= share * moved[j]
    step = np.zeros(k)
    for i in range(k):
        step[i] = -_inner(inverse[i], slope)
    return step, -_inner(slope, step)
