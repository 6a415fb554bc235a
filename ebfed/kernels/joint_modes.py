"""Laplace's approximation of clients' generalized linear models, and its exact slopes.

A client has D coefficients e, standard normal, of which each row has k: ``z = offset + x' e[slot]``
(see `ebfed.kernels.responses`). With the mode, and H the curvature there of minus the
log-posterior, the approximation is the log-posterior less half of ``log det H``. Its slopes hold
the movement of the mode: with W minus the second derivative of a row, W' its slope in z, ``s = x'
H^-1 x`` and ``c = H^-1 sum x W' s``, it rises in z of a row by ``l' - W' s / 2 + W x' c / 2``.
"""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.responses import (
    FARTHEST,
    GAMMA,
    NEGATIVE_BINOMIAL,
    ORDINAL,
    POISSON,
    _ends,
    _row,
)
from ebfed.kernels.small import _cholesky, _invert, _solve_lower, _solve_upper

# Squared length of Newton's last step, in standard deviations: slopes err by its root.
CLOSE = 1e-20


@jit
def joint_modes(
    X, slot, offset, y, weight, indptr, starts, squares, kind, shapes, max_steps, mode, evidence,
    push, pull, bend, spread,
):  # fmt: skip
    """Modes of clients' coefficients, Laplace's approximation, and its slopes by rows.

    Parameters
    ----------
    X : float64 ndarray of shape (n_rows, k)
    slot : int64 ndarray of shape (n_rows, k)
        Which coefficients of its client a row has.
    offset, y, weight : float64 ndarrays of shape (n_rows,)
    indptr, starts, squares : int64 ndarrays of shape (n_clients + 1,)
        Ends of clients in rows, in coefficients, and in squares of numbers of coefficients.
    kind : int
    shapes : float64 ndarray of shape (n_shapes,)
        Family of the rows; see `ebfed.kernels.responses`.
    max_steps : int
    mode : float64 ndarray of shape (n_coefficients,)
        Start of the search; is overwritten with the modes.
    evidence : float64 ndarray of shape (n_clients,)
        Is overwritten with the approximation.
    push : float64 ndarray of shape (n_rows,)
        Is overwritten with its slopes in the predictors of rows, as by columns that do not vary.
    pull : float64 ndarray of shape (n_rows, k)
        Is overwritten with what the entry of a root, column j, changes it by for each unit that
        the row has of that: slopes in the entries of X.
    bend : float64 ndarray of shape (n_rows,)
        Is overwritten with minus the second derivative of each row at the mode.
    spread : float64 ndarray of shape (n_squares,)
        Is overwritten with the inverse curvature of each client, row by row.

    Returns
    -------
    int
        Number of clients that were not done in `max_steps`.
    """
    k = X.shape[1]
    most = 0
    for i in range(len(starts) - 1):
        most = max(most, starts[i + 1] - starts[i])
    gradient_, step_, before_ = np.empty(most), np.empty(most), np.empty(most)
    unfinished = 0
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        d = starts[i + 1] - starts[i]
        m = mode[starts[i] : starts[i + 1]]
        H = spread[squares[i] : squares[i + 1]].reshape(d, d)
        gradient, step, before = gradient_[:d], step_[:d], before_[:d]
        height = _posterior(
            X, slot, offset, y, weight, kind, shapes, first, last, m, H, gradient, push, bend
        )
        _cholesky(H)
        done = False
        for _ in range(max_steps):
            step[:] = gradient
            _solve_lower(H, step)
            gain = 0.0
            for j in range(d):
                gain += step[j] * step[j]
            _solve_upper(H, step)
            before[:] = m
            share, new = 1.0, -np.inf
            while not new >= height - 1e-12 * abs(height) and share > 1e-9:
                for j in range(d):
                    m[j] = before[j] + share * step[j]
                new = _posterior(
                    X, slot, offset, y, weight, kind, shapes, first, last, m, H, gradient, push,
                    bend,
                )  # fmt: skip
                share *= 0.5
            height = new
            _cholesky(H)
            if gain < CLOSE:
                done = True
                break
        unfinished += not done
        for j in range(d):
            height -= math.log(H[j, j])
        evidence[i] = height
        _invert(H)
        for j in range(d):
            for h in range(j):
                H[h, j] = H[j, h]
        # c, in place of the gradient
        gradient[:] = 0.0
        for row in range(first, last):
            tilt = 0.0
            for j in range(k):
                for h in range(k):
                    tilt += X[row, j] * X[row, h] * H[slot[row, j], slot[row, h]]
            z = offset[row]
            for j in range(k):
                z += X[row, j] * m[slot[row, j]]
            tilt *= _twist(kind, y[row], weight[row], z, shapes, bend[row])
            for j in range(k):
                gradient[slot[row, j]] += tilt * X[row, j]
            pull[row, 0] = tilt
        for j in range(d):
            step[j] = 0.0
            for h in range(d):
                step[j] += H[j, h] * gradient[h]
        for row in range(first, last):
            tilt, slope, along = pull[row, 0], push[row], 0.0
            for j in range(k):
                along += X[row, j] * step[slot[row, j]]
            push[row] = slope - 0.5 * tilt + 0.5 * bend[row] * along
            for j in range(k):
                own = slot[row, j]
                wide = 0.0
                for h in range(k):
                    wide += H[own, slot[row, h]] * X[row, h]
                pull[row, j] = m[own] * push[row] - 0.5 * step[own] * slope - bend[row] * wide
    return unfinished


@jit
def _posterior(
    X, slot, offset, y, weight, kind, shapes, first, last, m, H, gradient, push, bend
):  # fmt: skip
    """Log-posterior; write its slope, minus its second derivative, and those of rows."""
    d, k = len(m), X.shape[1]
    total = 0.0
    H[:] = 0.0
    for j in range(d):
        total -= 0.5 * m[j] * m[j]
        gradient[j] = -m[j]
        H[j, j] = 1.0
    for row in range(first, last):
        z = offset[row]
        for j in range(k):
            z += X[row, j] * m[slot[row, j]]
        value, slope, bent = _row(kind, y[row], weight[row], z, shapes)
        total += value
        push[row], bend[row] = slope, bent
        for j in range(k):
            own = slot[row, j]
            gradient[own] += slope * X[row, j]
            part = bent * X[row, j]
            for h in range(k):
                if slot[row, h] <= own:
                    H[own, slot[row, h]] += part * X[row, h]
    return total


@jit
def _twist(kind, y, weight, z, shapes, bend):
    """Slope in z of minus the second derivative of a row."""
    if kind == POISSON:
        return bend
    if kind == GAMMA:
        return -bend
    e = math.exp(min(max(-z if kind == ORDINAL else z, -FARTHEST), FARTHEST))
    if kind == ORDINAL:
        above, below = _ends(y, shapes)
        p, q = above * e / (1 + above * e), below * e / (1 + below * e)
        return -weight * (p * (1 - p) * (1 - 2 * p) + q * (1 - q) * (1 - 2 * q))
    if kind == NEGATIVE_BINOMIAL:
        return bend * (1 - 2 * e / (shapes[0] + e))
    return bend * (1 - 2 * e / (1 + e))
