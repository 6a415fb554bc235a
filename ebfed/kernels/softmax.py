"""Laplace's approximation to the posteriors of clients' multinomial logistic regressions.

The coefficients eta of a client have a standard normal prior; with ``theta = centre + root * eta``
the logit of class c against class 0 is ``x' theta_c``, and that of class 0 is zero.
"""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.small import _cholesky, _invert

TINY = 1e-20  # change of a log-posterior
ROUNDING = 1e-13  # share of a log-posterior that is no change


@jit
def laplace_softmax(
    X, codes, indptr, centre, root, tolerance, max_steps, mode, cov, shift, evidence
):
    """Mode and inverse curvature of posteriors, by Newton's method with halved steps.

    Parameters
    ----------
    X : float64 ndarray of shape (n_rows, p)
    codes : int64 ndarray of shape (n_rows,)
        Class of each row, from 0 to c.
    indptr : int64 ndarray of shape (n_clients + 1,)
    centre, root : float64 ndarrays of shape (c, p)
    tolerance : float
        Share of the prior's part of the log-posterior; a client is done when a step is expected to
        gain less.
    max_steps : int
    mode : float64 ndarray of shape (n_clients, c * p)
        Start of the search; is overwritten with the mode of eta.
    cov : float64 ndarray of shape (n_clients, c * p, c * p)
        Is overwritten with V, the inverse of minus the second derivative there.
    shift : float64 ndarray of shape (n_clients, c * p)
        Is overwritten with V times the slope of ``log(det(V)) / 2`` in eta: what the skewness of
        the posterior adds to its mean, to first order.
    evidence : float64 ndarray of shape (n_clients,)
        Is overwritten with Laplace's approximation to the log marginal likelihood.

    Returns
    -------
    int
        Number of clients that were not done in `max_steps`.
    """
    c, p = centre.shape
    q = c * p
    theta, share = np.empty((c, p)), np.empty(c)
    gradient, step = np.empty(q), np.empty(q)
    unfinished = 0
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        m, V = mode[i], cov[i]
        height = _log_posterior(X, codes, first, last, centre, root, m, theta, share)
        gain, enough, volume = np.inf, 0.0, 0.0
        for _ in range(max_steps):
            volume = _curvature(X, codes, first, last, centre, root, m, theta, share, V, gradient)
            gain, enough = 0.0, TINY
            for j in range(q):
                step[j] = 0.0
                for k in range(q):
                    step[j] += V[j, k] * gradient[k]
                gain += 0.5 * step[j] * gradient[j]
                enough += 0.5 * tolerance * m[j] * m[j]
            if gain <= enough:
                break
            part = 1.0
            while part > 1e-9:
                for j in range(q):
                    m[j] += part * step[j]
                new = _log_posterior(X, codes, first, last, centre, root, m, theta, share)
                if new >= height - ROUNDING * abs(height):
                    height = new
                    break
                for j in range(q):
                    m[j] -= part * step[j]
                part *= 0.5
        unfinished += gain > enough
        evidence[i] = height + 0.5 * volume
        _skew(X, first, last, centre, root, m, theta, share, V, gradient)
        for j in range(q):
            shift[i, j] = 0.0
            for k in range(q):
                shift[i, j] += V[j, k] * gradient[k]
    return unfinished


@jit
def softmax_normal(mean, root, points, out):
    """Average class probabilities over normals of the logits, at given points.

    Parameters
    ----------
    mean : float64 ndarray of shape (n, c)
        Mean of the logits of classes 1 to c against class 0.
    root : float64 ndarray of shape (n, c, c)
        Root of their covariance, ``root root'``.
    points : float64 ndarray of shape (n_points, c)
        Points that stand for draws from the standard normal.
    out : float64 ndarray of shape (n, c + 1)
        Is overwritten.
    """
    c = mean.shape[1]
    share = np.empty(c)
    for i in range(len(mean)):
        out[i] = 0.0
        for point in points:
            for a in range(c):
                share[a] = mean[i, a]
                for b in range(c):
                    share[a] += root[i, a, b] * point[b]
            out[i, 0] += math.exp(-_normalise(share))
            for a in range(c):
                out[i, a + 1] += share[a]
        for a in range(c + 1):
            out[i, a] /= len(points)


@jit
def _normalise(share):
    """Replace logits against a class by probabilities; minus the log-probability of that class."""
    top, total = 0.0, 0.0
    for z in share:
        top = max(top, z)
    for a in range(len(share)):
        share[a] = math.exp(share[a] - top)
        total += share[a]
    total += math.exp(-top)
    for a in range(len(share)):
        share[a] /= total
    return top + math.log(total)


@jit
def _locate(centre, root, m, theta):
    c, p = centre.shape
    for a in range(c):
        for j in range(p):
            theta[a, j] = centre[a, j] + root[a, j] * m[a * p + j]


@jit
def _log_posterior(X, codes, first, last, centre, root, m, theta, share):
    _locate(centre, root, m, theta)
    total = 0.0
    for j in range(len(m)):
        total -= 0.5 * m[j] * m[j]
    for row in range(first, last):
        _logits(X[row], theta, share)
        if codes[row] > 0:
            total += share[codes[row] - 1]
        total -= _normalise(share)
    return total


@jit
def _logits(x, theta, share):
    for a in range(len(share)):
        share[a] = 0.0
        for j in range(len(x)):
            share[a] += x[j] * theta[a, j]


@jit
def _curvature(X, codes, first, last, centre, root, m, theta, share, V, gradient):
    """Inverse of minus the second derivative of the log-posterior, and its log-determinant."""
    c, p = centre.shape
    _locate(centre, root, m, theta)
    V[:] = 0.0
    for j in range(c * p):
        gradient[j] = -m[j]
        V[j, j] = 1.0
    for row in range(first, last):
        x = X[row]
        _logits(x, theta, share)
        _normalise(share)
        for a in range(c):
            away = (codes[row] == a + 1) - share[a]
            for j in range(p):
                here = x[j] * root[a, j]
                gradient[a * p + j] += away * here
                for b in range(a + 1):
                    weight = here * share[a] * ((a == b) - share[b])
                    for k in range(p if b < a else j + 1):
                        V[a * p + j, b * p + k] += weight * x[k] * root[b, k]
    _cholesky(V)
    volume = 0.0
    for j in range(c * p):
        volume -= 2 * math.log(V[j, j])
    _invert(V)
    for j in range(c * p):
        for k in range(j):
            V[k, j] = V[j, k]
    return volume


@jit
def _skew(X, first, last, centre, root, m, theta, share, V, slope):
    """Slope of half the log-determinant of V in eta.

    A row's third derivatives are cumulants of its class: with v the posterior covariance of its
    logits and ``u_k = v_kk - 2 sum_b v_kb p_b``, the slope in logit a is ``-p_a (u_a - sum_k p_k
    u_k) / 2``.
    """
    c, p = centre.shape
    _locate(centre, root, m, theta)
    u = np.empty(c)
    slope[:] = 0.0
    for row in range(first, last):
        x = X[row]
        _logits(x, theta, share)
        _normalise(share)
        average = 0.0
        for a in range(c):
            u[a] = 0.0
            for b in range(c):
                both = 0.0
                for j in range(p):
                    for k in range(p):
                        both += x[j] * root[a, j] * V[a * p + j, b * p + k] * x[k] * root[b, k]
                u[a] += both * ((a == b) - 2 * share[b])
            average += share[a] * u[a]
        for a in range(c):
            by_logit = -0.5 * share[a] * (u[a] - average)
            for j in range(p):
                slope[a * p + j] += by_logit * x[j] * root[a, j]
