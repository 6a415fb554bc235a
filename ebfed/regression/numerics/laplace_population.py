"""Rows of clients against components of Laplace's distribution, by expectation propagation.

In component l the coefficients of a client are independent, ``theta_ij ~ Laplace(mu_lj, b_lj)``, of
variance ``2 b_lj**2``. Of ``d = theta - mu`` the rows have a normal likelihood, with precision A;
each factor of the population is stood in for by a normal one, ``exp(nu d - tau d**2 / 2)``, whose
moments in turn are made those of the product with the true factor (Minka 2001; Seeger 2008, for
this population). Factors are log-concave, so that tau is never negative. At the fixed point the
slopes of the approximate evidence are expectations: in the mean that of the likelihood under the
normal approximation, in a variance that of the factor under the product with it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.numerics.evidence import Evidence, MixturePopulation, RotatedRows

__all__ = ["Approximation", "approximate", "weigh_laplace"]

# Standard deviation, in units of b, that a coefficient has at most, by what stands in for its own
# factor or by what others know of it; more is as good as infinite.
WIDEST = 1e5
# Standard deviations from the bulk at which moments of the tail of a normal distribution are by
# their series, which then has all digits; those by the normal distribution function lose them.
FAR, TERMS = 20.0, 6
MOST_STEPS, TOLERANCE = 200, 1e-10


class Approximation(NamedTuple):
    """Normal approximation of the coefficients of n clients, less the mean of the component.

    Attributes
    ----------
    log : ndarray of shape (n,)
        Log evidence.
    mean : ndarray of shape (n, p)
    covariance : ndarray of shape (n, p, p)
    precision : ndarray of shape (n, p)
        tau, of the factors that stand for the population.
    distance : ndarray of shape (n, p)
        Expected distance from the mean of the component.
    """

    log: NDArray
    mean: NDArray
    covariance: NDArray
    precision: NDArray
    distance: NDArray


def approximate(rows: RotatedRows, mean: NDArray, scale: NDArray, noise: float) -> Approximation:
    """Approximate coefficients ``theta_j ~ Laplace(mean_j, scale_j)`` given clients' rows.

    Parameters
    ----------
    rows : RotatedRows of n clients
    mean, scale : ndarray of shape (p,)
    noise : float
    """
    p, least = len(mean), 1 / (WIDEST * scale) ** 2
    away = rows.response - (rows.design @ mean[:, None])[:, :, 0]
    A = rows.design.swapaxes(1, 2) @ rows.design / noise
    slope = (rows.design.swapaxes(1, 2) @ away[:, :, None])[:, :, 0] / noise
    tau = np.broadcast_to(0.5 / scale**2, slope.shape).copy()
    nu, log, distance = (np.zeros_like(slope) for _ in range(3))
    centre, known = np.zeros_like(slope), np.ones_like(slope)
    todo = np.arange(len(slope))  # each client stops by itself, whoever else is in the block
    for number in range(MOST_STEPS):
        before = tau[todo], nu[todo]
        V = np.linalg.inv(A[todo] + before[0][:, :, None] * np.eye(p))
        m = (V @ (slope[todo] + before[1])[:, :, None])[:, :, 0]
        own = np.diagonal(V, axis1=1, axis2=2)
        other = np.maximum(1 / own - before[0], least)
        at = (m / own - before[1]) / other
        log[todo], first, variance, distance[todo] = _products(at, 1 / other, scale)
        centre[todo], known[todo] = at, other
        new = np.maximum(1 / variance - other, least), first / variance - at * other
        # where factors push one another back and forth, by a part of the way
        step = 0.7 if number > 10 else 1.0
        tau[todo], nu[todo] = (x + step * (y - x) for x, y in zip(before, new, strict=True))
        moved = (np.abs(new[0] - before[0]) * scale**2).max(axis=1, initial=0.0)
        todo = todo[moved >= TOLERANCE]
        if not len(todo):
            break
    whole = slope + nu
    V = np.linalg.inv(A + tau[:, :, None] * np.eye(p))
    m = (V @ whole[:, :, None])[:, :, 0]
    # what the normal factor has in the place of the true one
    stood = -0.5 * np.log1p(tau / known) + 0.5 * (
        (centre * known + nu) ** 2 / (known + tau) - centre**2 * known
    )
    explained = 0.5 * (whole * m).sum(axis=1) + 0.5 * np.linalg.slogdet(2 * np.pi * V)[1]
    squares = rows.rest + (away**2).sum(axis=1)
    base = -0.5 * (rows.sizes * np.log(2 * np.pi * noise) + squares / noise)
    evidence = base + (log - stood).sum(axis=1) + explained
    return Approximation(evidence, m, V, tau, distance)


def _products(m: NDArray, v: NDArray, b: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Log integral of ``N(d; m, v) Laplace(d; 0, b)``, and of d there the mean, variance, size."""
    from scipy.special import log_ndtr

    s = np.sqrt(v)
    logs, firsts, variances = [], [], []
    for sign in (1.0, -1.0):  # each side of zero is a normal distribution cut off
        z = (sign * m - v / b) / s
        near = np.maximum(z, -FAR)
        below = log_ndtr(near)
        mills = np.exp(-0.5 * np.log(2 * np.pi) - 0.5 * near**2 - below)
        tail, own, square = _tail(np.clip(-z, FAR, 1e90))
        far = z < -FAR
        # of N(0, v) at m, and of the normal density at z, exponents are the same
        at_m = -0.5 * m**2 / v - 0.5 * np.log(2 * np.pi)
        logs.append(np.where(far, at_m + np.log(tail), 0.5 * v / b**2 - sign * m / b + below))
        firsts.append(s * np.where(far, own, near + mills))
        variances.append(v * np.where(far, square - own**2, 1 - near * mills - mills**2))
    total = np.logaddexp(*logs)
    right, left = (np.exp(each - total) for each in logs)
    first, distance = (right * firsts[0] + sign * left * firsts[1] for sign in (-1.0, 1.0))
    variance = right * variances[0] + left * variances[1]
    variance += right * left * (firsts[0] + firsts[1]) ** 2
    return total - np.log(2 * b), first, variance, distance


def _tail(t: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Integral of ``exp(-t u - u**2 / 2)`` over positive u, and there the mean of u and u**2."""
    sums = []
    for k in range(3):
        terms = (
            (-0.5) ** j * math.factorial(k + 2 * j) / math.factorial(j) * t ** (-2.0 * j)
            for j in range(TERMS)
        )
        sums.append(sum(terms) / t ** (k + 1))
    return sums[0], sums[1] / sums[0], sums[2] / sums[0]


def weigh_laplace(rows: RotatedRows, population: MixturePopulation) -> Evidence:
    """Weigh the rows of clients against every component; information is that of normal ones."""
    p, noise = rows.design.shape[2], population.noise
    parts = []
    for mean, variances in zip(population.means, population.variances, strict=True):
        v = np.broadcast_to(variances, p)
        b = np.sqrt(v / 2)
        found = approximate(rows, mean, b, noise)
        theta = mean + found.mean
        left = rows.response - (rows.design @ theta[:, :, None])[:, :, 0]
        slope = (rows.design.swapaxes(1, 2) @ left[:, :, None])[:, :, 0] / noise
        by_variance = (found.distance / b - 1) / (2 * v)
        known = np.clip(1 - np.diagonal(found.covariance, axis1=1, axis2=2) / v, 0.0, 1.0) / v
        own, rest = 0.5 * known**2, np.zeros_like(known)
        if len(variances) == 1:
            by_variance, own, rest = (x.sum(axis=1)[:, None] for x in (by_variance, own, rest))
        # rows that the approximation leaves, and what it explains of them
        spread = (rows.design @ found.covariance * rows.design).sum(axis=(1, 2))
        square = rows.rest + (left**2).sum(axis=1) + spread
        by_noise = 0.5 * (square / noise - rows.sizes) / noise
        noise_own = 0.5 * np.maximum(rows.sizes - spread / noise, 0.0) / noise**2
        A = rows.design.swapaxes(1, 2) @ rows.design / noise
        values, vectors = np.linalg.eigh(A - A @ found.covariance @ A)
        white = np.sqrt(np.maximum(values, 0))[:, :, None] * vectors.swapaxes(1, 2)
        figures = by_variance, own, rest, np.zeros_like(own), by_noise, noise_own
        parts.append((found.log, slope, *figures, white, np.ones(white.shape[:2])))
    return Evidence.of(parts)
