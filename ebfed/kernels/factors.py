"""Regressions of many clients: compression by Householder reflections, and whitening.

Small matrices, one for each client, lie side by side: the client is the last axis, and innermost
loops run over a batch of clients, so that one instruction works on several of them.
"""

import numpy as np

from ebfed.kernels._jit import jit

BATCH = 16  # clients that `whiten` and others work on together
_NOTHING = 1e-28  # what rounding leaves of the square of a column
_LANES, _STEP = 64, 32  # most clients and rows that `triangular_factors` works on together
_LARGE = 1024  # number of rows from which clients are not sorted by it
_AT_HAND = 1 << 17  # most numbers of them, unless clients are few


@jit
def with_column(X, y):
    """Put a column after those of X: NumPy copies rows of a few numbers at a tenth of the speed.

    Parameters
    ----------
    X : ndarray of shape (n_rows, p)
    y : ndarray of shape (n_rows,)

    Returns
    -------
    ndarray of shape (n_rows, p + 1)
    """
    n_rows, p = X.shape
    both = np.empty((n_rows, p + 1))
    for i in range(n_rows):
        for j in range(p):
            both[i, j] = X[i, j]
        both[i, p] = y[i]
    return both


@jit
def triangular_factors(rows, indptr, size):
    """Compress each client's rows A to an upper triangle R with ``R'R = A'A``.

    Rows are turned by Householder reflections until all below the diagonal is zero. No more of them
    are left than there were, even if columns are collinear, or so far from zero that their
    differences are little more than rounding.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, p)
        Client after client; of sizes whose squares are within the range of float64.
    indptr : int64 ndarray of shape (n_clients + 1,)
        Client i owns rows ``indptr[i]:indptr[i + 1]``.
    size : int
        p, or the largest number of rows of a client if that is less.

    Returns
    -------
    ndarray of shape (n_clients, size, p)
    """
    p = rows.shape[1]
    n_clients = len(indptr) - 1
    out = np.zeros((n_clients, size, p))
    counts = indptr[1:] - indptr[:-1]
    order = _by_size(counts)  # clients of a batch are about as long
    lanes = min(_LANES, n_clients, max(32, _AT_HAND // ((p + _STEP) * p)))
    lanes = min(lanes, max(16, n_clients // 4))  # few clients differ more in their numbers of rows
    A = np.empty((p + _STEP, p, lanes))
    brings = np.empty(lanes, np.bool_)  # whether a client has more rows
    short, moved = np.zeros(lanes, np.bool_), np.empty(lanes, np.int64)
    space = np.empty((4, lanes))
    for first in range(0, n_clients, max(lanes, 1)):
        batch = order[first : first + lanes]
        shortest, longest = counts[batch].min(), counts[batch].max()
        if len(batch) < lanes:
            shortest = 0
        A[:p] = 0.0
        for start in range(0, longest, _STEP):  # the triangle so far, and more rows
            most = min(_STEP, longest - start)
            A[p + min(most, max(shortest - start, 0)) : p + most] = 0.0
            brings[:], moved[:] = False, 0
            for c in range(len(batch)):
                begin = indptr[batch[c]] + start
                more = min(most, indptr[batch[c] + 1] - begin)
                brings[c], short[c] = more > 0, counts[batch[c]] < p
                for i in range(more):
                    for j in range(p):
                        A[p + i, j, c] = rows[begin + i, j]
            for j in range(p):
                _reflect(A[: p + most], j, brings, short, moved, space)
                if j + 1 >= most and _all_done(A[: p + most], j + 1, brings):
                    break
        for c in range(len(batch)):
            row = 0
            for i in range(p):
                # a column that the ones before it explain leaves its row empty: later rows move up
                if row < size and A[i, i, c] != 0.0:
                    for j in range(i, p):
                        out[batch[c], row, j] = A[i, j, c]
                    row += 1
    return out


@jit
def _by_size(counts):
    """Sort clients by their numbers of rows; large ones, of which there are few, are left alike."""
    starts = np.zeros(_LARGE + 2, np.int64)
    for count in counts:
        starts[min(count, _LARGE) + 1] += 1
    starts = np.cumsum(starts)
    order = np.empty(len(counts), np.int64)
    for i in range(len(counts)):
        size = min(counts[i], _LARGE)
        order[starts[size]] = i
        starts[size] += 1
    return order


@jit
def _reflect(A, j, brings, short, moved, space):
    """Turn column j of A to zero below its diagonal, and all later columns with it.

    Rows j + 1 to p - 1 of that column are zero already. A client that brings no rows stays as it
    is, whatever its neighbours need. One that is short of rows moves one of them to an empty place
    of the triangle, so that it has as many as it had: turned into that place, rows would be one
    more, and the last be made of rounding.
    """
    n, p, lanes = A.shape
    norm, shrink, product, above = space[0], space[1], space[2], space[3]
    first = n  # row that some client has not moved
    for c in range(lanes):
        if brings[c] and p + moved[c] < first:
            first = p + moved[c]
    above[:] = 0.0
    for i in range(j):
        for c in range(lanes):
            above[c] += A[i, j, c] ** 2
    for c in range(lanes):
        product[c] = A[j, j, c] ** 2
    for i in range(first, n):
        for c in range(lanes):
            product[c] += A[i, j, c] ** 2
    for c in range(lanes):
        if not brings[c]:
            norm[c], shrink[c] = A[j, j, c], 0.0
            continue
        if A[j, j, c] == 0.0 and product[c] <= _NOTHING * above[c]:
            product[c] = 0.0  # the columns before it explain it, up to rounding
        elif short[c] and A[j, j, c] == 0.0:
            for k in range(j, p):
                A[j, k, c], A[p + moved[c], k, c] = A[p + moved[c], k, c], 0.0
            moved[c] += 1
        norm[c] = -np.sqrt(product[c]) if A[j, j, c] > 0 else np.sqrt(product[c])
        # the reflection is I + v v' / (norm * v_j), v = column - norm * e_j
        A[j, j, c] -= norm[c]
        shrink[c] = norm[c] * A[j, j, c]
        shrink[c] = 1.0 / shrink[c] if shrink[c] != 0 else 0.0
    for k in range(j + 1, p):
        for c in range(lanes):
            product[c] = A[j, j, c] * A[j, k, c]
        for i in range(first, n):
            for c in range(lanes):
                product[c] += A[i, j, c] * A[i, k, c]
        for c in range(lanes):
            product[c] *= shrink[c]
            A[j, k, c] += product[c] * A[j, j, c]
        for i in range(first, n):
            for c in range(lanes):
                A[i, k, c] += product[c] * A[i, j, c]
    for c in range(lanes):
        A[j, j, c] = norm[c]
    for i in range(first, n):
        for c in range(lanes):
            A[i, j, c] = 0.0


@jit
def _all_done(A, first, brings):
    """Whether reflections of columns from `first` on would find nothing to turn."""
    n, p, lanes = A.shape
    for k in range(first, p):
        for c in range(lanes):
            above = left = 0.0
            for i in range(k):
                above += A[i, k, c] ** 2
            for i in range(p, n):
                left += A[i, k, c] ** 2
            if brings[c] and not (A[k, k, c] == 0.0 and left <= _NOTHING * above):
                return False
    return True


@jit
def whiten(factors, effects, columns, root, out):
    """Divide each client's rows by the factor U of ``V = I + (Z root)(Z root)' = U U'``.

    The rows are an upper triangle, and with U upper triangular ``U^-1 rows`` is one too.

    Parameters
    ----------
    factors : ndarray of shape (p, r, n_clients)
        Rows of each client, along the second axis; n_clients is a multiple of `BATCH`.
    effects : ndarray of shape (q, r, n_clients)
        Z, likewise.
    columns : int64 ndarray of shape (q,)
        Rows of Z beyond which its columns are zero.
    root : ndarray of shape (q, q)
    out : ndarray of shape (p, r, n_clients)
        ``U^-1 factors``. Written to, above and on the diagonal.

    Returns
    -------
    float
        Sum over clients of ``log det V``.
    """
    p, r, n_clients = factors.shape
    q = len(columns)
    spread = np.empty((q, r, BATCH))
    last = np.full(q, -1)  # row of Z root beyond which column k is zero
    for k in range(q):
        for other in range(q):
            if root[other, k] != 0.0:
                last[k] = max(last[k], min(columns[other], r - 1))
    U = np.empty((r, r, BATCH))  # its diagonal holds reciprocals
    value, size = np.empty(BATCH), np.ones(BATCH)
    total, held = 0.0, 0
    for first in range(0, n_clients, BATCH):
        for k in range(q):
            spread[k] = 0.0
            for other in range(q):
                factor = root[other, k]
                if factor != 0.0:
                    for i in range(min(columns[other], r - 1) + 1):
                        for c in range(BATCH):
                            spread[k, i, c] += factor * effects[other, i, first + c]
        for j in range(r - 1, -1, -1):
            for i in range(j, -1, -1):
                value[:] = 1.0 if i == j else 0.0
                for k in range(q):
                    if last[k] >= j:
                        for c in range(BATCH):
                            value[c] += spread[k, i, c] * spread[k, j, c]
                for k in range(j + 1, r):
                    for c in range(BATCH):
                        value[c] -= U[i, k, c] * U[j, k, c]
                if i == j:
                    for c in range(BATCH):
                        size[c] *= value[c]
                        U[i, i, c] = 1.0 / np.sqrt(value[c])
                else:
                    for c in range(BATCH):
                        U[i, j, c] = value[c] * U[j, j, c]
            held += 1
            if held == 8:  # before the product could overflow
                for c in range(BATCH):
                    total += np.log(size[c])
                size[:], held = 1.0, 0
        for a in range(p):
            for i in range(min(a, r - 1), -1, -1):
                for c in range(BATCH):
                    value[c] = factors[a, i, first + c]
                for j in range(i + 1, min(a, r - 1) + 1):
                    for c in range(BATCH):
                        value[c] -= U[i, j, c] * out[a, j, first + c]
                for c in range(BATCH):
                    out[a, i, first + c] = value[c] * U[i, i, c]
    return total + np.log(size).sum()
