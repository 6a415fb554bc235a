"""Modes of the posteriors of clients' generalized linear models."""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.responses import _is_binary, _row
from ebfed.kernels.small import _cholesky, _invert, _solve_lower, _solve_upper

TINY = 1e-20  # change of a log-posterior
FAR = 10.0  # gain of a first step that is far from the mode


@jit
def laplace(X, offset, y, weight, indptr, kind, shapes, tolerance, max_steps, mean, cov, evidence):
    """Mode and inverse curvature of posteriors, by Newton's method with halved steps.

    Parameters
    ----------
    X : float64 ndarray of shape (n_rows, d)
    offset, y, weight : float64 ndarrays of shape (n_rows,)
        The linear predictor is ``offset + x' eta``, with a standard normal prior of eta.
    indptr : int64 ndarray of shape (n_clients + 1,)
    kind : int
    shapes : float64 ndarray of shape (n_shapes,)
        Family of the rows; see `ebfed.kernels.responses`.
    tolerance : float
        Share of the prior's part of the log-posterior; a client is done when a step is expected to
        gain less.
    max_steps : int
    mean : float64 ndarray of shape (n_clients, d)
        Start of the search, or zero where that is better; is overwritten with the mode.
    cov : float64 ndarray of shape (n_clients, d, d)
        Is overwritten with the inverse of minus the second derivative there.
    evidence : float64 ndarray of shape (n_clients,)
        Is overwritten with Laplace's approximation to the log marginal likelihood.

    Returns
    -------
    int
        Number of clients that were not done in `max_steps`.
    """
    d = X.shape[1]
    start, gradient, step = np.empty(d), np.empty(d), np.empty(d)
    unfinished = 0
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        m, H = mean[i], cov[i]
        height = _bend(X, offset, y, weight, kind, shapes, first, last, m, H, gradient)
        _cholesky(H)
        gain, enough = np.inf, 0.0
        for turn in range(max_steps):
            step[:] = gradient
            _solve_lower(H, step)
            gain, enough = 0.0, TINY
            for j in range(d):
                gain += 0.5 * step[j] * step[j]
                enough += 0.5 * tolerance * m[j] * m[j]
            start[:] = m
            if turn == 0 and not gain < FAR:  # zero may be nearer
                m[:] = 0.0
                new = _bend(X, offset, y, weight, kind, shapes, first, last, m, H, gradient)
                if not new <= height:
                    height = new
                    _cholesky(H)
                    continue
                m[:] = start
                _bend(X, offset, y, weight, kind, shapes, first, last, m, H, gradient)
                _cholesky(H)
            if not gain > enough:
                break
            _solve_upper(H, step)
            share, new = 1.0, -np.inf
            while not new >= height and share > 1e-9:
                for j in range(d):
                    m[j] = start[j] + share * step[j]
                new = _bend(X, offset, y, weight, kind, shapes, first, last, m, H, gradient)
                share *= 0.5
            if not new >= height:  # rounding is all that is left
                m[:] = start
                new = _bend(X, offset, y, weight, kind, shapes, first, last, m, H, gradient)
                share = 0.0
            height = new
            _cholesky(H)
            if share == 0.0:
                break
        unfinished += gain > enough
        for j in range(d):
            height -= math.log(H[j, j])
        evidence[i] = height
        _invert(H)
        for j in range(d):
            for k in range(j):
                H[k, j] = H[j, k]
    return unfinished


@jit
def _bend(X, offset, y, weight, kind, shapes, first, last, m, H, gradient):
    """Log-posterior; write its slope, and the lower half of minus its second derivative."""
    d = len(m)
    total, product = 0.0, 1.0
    for j in range(d):
        total -= 0.5 * m[j] * m[j]
        gradient[j] = -m[j]
        for k in range(j):
            H[j, k] = 0.0
        H[j, j] = 1.0
    for row in range(first, last):
        z = offset[row]
        for j in range(d):
            z += X[row, j] * m[j]
        sign = 1.0 if y[row] == 1.0 else -1.0
        if _is_binary(kind, y[row], weight[row]):
            z *= sign
            e = math.exp(-abs(z))
            one = 1 / (1 + e)
            total += min(z, 0.0)
            product *= 1 + e
            if product > 1e300:
                total -= math.log(product)
                product = 1.0
            push = sign * (one if z < 0 else e * one)
            bent = e * one * one
        else:
            value, push, bent = _row(kind, y[row], weight[row], z, shapes)
            total += value
        for j in range(d):
            gradient[j] += push * X[row, j]
            part = bent * X[row, j]
            for k in range(j + 1):
                H[j, k] += part * X[row, k]
    return total - math.log(product)
