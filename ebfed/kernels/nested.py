"""Regressions of groups within groups: up the levels, and down again.

Small matrices, one for each group, lie side by side: the group is the last axis; see `factors`.
"""

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.factors import BATCH, triangular_factors


@jit
def stacked_factors(white, order, ends):
    """Compress the whitened rows of each parent's groups to an upper triangle.

    Parameters
    ----------
    white : ndarray of shape (p, r, m)
        Rows of each group, along the second axis.
    order : int64 ndarray of shape (n_rows,)
        Places of rows, parent after parent, where the last two axes are one.
    ends : int64 ndarray of shape (n_parents + 1,)
        Parent g owns ``order[ends[g]:ends[g + 1]]``.

    Returns
    -------
    ndarray of shape (p, p, M)
        M is n_parents, or more: a multiple of `BATCH`. Zero rows fill up. There are p rows even if
        parents have fewer: centred columns may be collinear but for rounding, which needs a row.
    """
    p, r, m = white.shape
    flat = white.reshape(p, r * m)
    rows = np.empty((ends[-1], p))
    for place in range(len(rows)):
        for j in range(p):
            rows[place, j] = flat[j, order[place]]
    factors = triangular_factors(rows, ends, p)
    n_parents = len(factors)
    out = np.zeros((p, p, -(-n_parents // BATCH) * BATCH))
    for g in range(n_parents):
        for i in range(p):
            for j in range(p):
                out[j, i, g] = factors[g, i, j]
    return out


@jit
def nested_products(effects, white, owner, middle, right):
    """Add up products of ``B = effects' white`` of groups with figures of what they belong to.

    Parameters
    ----------
    effects : ndarray of shape (q, r, m)
        Z of each group, divided by the factor of V; m is a multiple of `BATCH`.
    white : ndarray of shape (p, r, m)
        Rows of each group, likewise.
    owner : int64 ndarray of shape (n_groups,)
        What each group belongs to.
    middle : ndarray of shape (n_owners, p, p)
        M, symmetric.
    right : ndarray of shape (n_owners, p, 1 + k)
        A column n, then N.

    Returns
    -------
    left : ndarray of shape (q, q)
        Sum of ``effects' effects - B M B'``.
    squares : ndarray of shape (q, q)
        Sum of the squares of the entries of each group's.
    scores : ndarray of shape (q, q)
        Sum of ``B n n' B'``.
    crossed : ndarray of shape (q, k)
        Sum of the squares of the entries of ``B N``.
    """
    q, r, _ = effects.shape
    p, k = white.shape[0], right.shape[2] - 1
    B, K = np.empty((q, p, BATCH)), np.empty((q, q, BATCH))
    left, squares, scores = np.zeros((q, q)), np.zeros((q, q)), np.zeros((q, q))
    crossed, half, score = np.zeros((q, k)), np.empty(p), np.empty(q)
    for first in range(0, len(owner), BATCH):
        for a in range(q):
            for b in range(p):
                B[a, b] = 0.0
                for i in range(r):
                    for c in range(BATCH):
                        B[a, b, c] += effects[a, i, first + c] * white[b, i, first + c]
            for b in range(a + 1):
                K[a, b] = 0.0
                for i in range(r):
                    for c in range(BATCH):
                        K[a, b, c] += effects[a, i, first + c] * effects[b, i, first + c]
        for c in range(min(BATCH, len(owner) - first)):
            M, N = middle[owner[first + c]], right[owner[first + c]]
            for a in range(q):
                score[a] = 0.0
                for d in range(p):
                    score[a] += B[a, d, c] * N[d, 0]
                for b in range(k):
                    value = 0.0
                    for d in range(p):
                        value += B[a, d, c] * N[d, 1 + b]
                    crossed[a, b] += value**2
                for b in range(p):
                    value = 0.0
                    for d in range(p):
                        value += B[a, d, c] * M[d, b]
                    half[b] = value
                for b in range(a + 1):
                    value = K[a, b, c]
                    for d in range(p):
                        value -= half[d] * B[b, d, c]
                    left[a, b] += value
                    squares[a, b] += value**2
                    scores[a, b] += score[a] * score[b]
    for a in range(q):
        for b in range(a):
            left[b, a], squares[b, a], scores[b, a] = left[a, b], squares[a, b], scores[a, b]
    return left, squares, scores, crossed


@jit
def below(effects, white, owner, maps, covariance, middle, right):
    """Turn figures of what groups belong to into those within the groups.

    With B and K the products of a group's effects with its rows and themselves, S `maps` and T
    `covariance`, it is ``E M E' + S (T - T K T) S'`` and ``E N``, with ``E = I - S T B``.

    Parameters
    ----------
    effects, white, owner, middle, right
        As in `nested_products`.
    maps : ndarray of shape (p, q)
        S: effects are rows times it.
    covariance : ndarray of shape (q, q)
        T.

    Returns
    -------
    middle : ndarray of shape (n_groups, p, p)
    right : ndarray of shape (n_groups, p, k)
    """
    q, r, _ = effects.shape
    p, k = white.shape[0], right.shape[2]
    n = len(owner)
    A = np.zeros((p, q))  # S T
    for j in range(p):
        for a in range(q):
            for b in range(q):
                A[j, a] += maps[j, b] * covariance[b, a]
    known = np.zeros((p, p))  # S T S'
    for i in range(p):
        for j in range(p):
            for a in range(q):
                known[i, j] += A[i, a] * maps[j, a]
    B, K = np.empty((q, p)), np.empty((q, q))
    half, row, moved = np.empty((q, p)), np.empty(p), np.empty(q)
    M, N = np.empty((n, p, p)), np.empty((n, p, k))
    for g in range(n):
        outer, beyond = middle[owner[g]], right[owner[g]]
        for a in range(q):
            for b in range(p):
                value = 0.0
                for i in range(r):
                    value += effects[a, i, g] * white[b, i, g]
                B[a, b] = value
            for b in range(q):
                value = 0.0
                for i in range(r):
                    value += effects[a, i, g] * effects[b, i, g]
                K[a, b] = value
            for j in range(p):
                value = 0.0
                for b in range(p):
                    value += B[a, b] * outer[b, j]
                half[a, j] = value
        for i in range(p):
            for j in range(p):  # from the left: M - A (B M)
                row[j] = outer[i, j]
                for a in range(q):
                    row[j] -= A[i, a] * half[a, j]
            for a in range(q):  # from the right, and what the group's rows leave of T
                moved[a] = 0.0
                for b in range(p):
                    moved[a] += row[b] * B[a, b]
                for b in range(q):
                    moved[a] += A[i, b] * K[b, a]
            for j in range(p):
                value = row[j] + known[i, j]
                for a in range(q):
                    value -= moved[a] * A[j, a]
                M[g, i, j] = value
        for j in range(k):  # N - A (B N)
            for i in range(p):
                N[g, i, j] = beyond[i, j]
            for a in range(q):
                value = 0.0
                for b in range(p):
                    value += B[a, b] * beyond[b, j]
                for i in range(p):
                    N[g, i, j] -= A[i, a] * value
    return M, N
