"""Degrees of freedom of tests in linear models of crossed factors.

Satterthwaite's are of any size. Kenward and Roger's need traces of products of matrices with a row
and a column for every level of every factor; with ``V = noise / W + sum_k a_k Z_k Z_k'`` these are

    U_kl = Z_k' V^-1 Z_l,    R_k = Z_k' V^-1 X,    tr(V^-1 V_k V^-1 V_l) = |U_kl|**2,

and those in the noise follow from ``V^-1 = noise V^-1 W^-1 V^-1 + sum_k a_k V^-1 V_k V^-1``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from ebfed.inference.degrees_of_freedom import Inference, KenwardRoger
from ebfed.inference.sums import GroupSums
from ebfed.regression.numerics.crossed_model import CrossedSystem

__all__ = ["CrossedSatterthwaite", "crossed_kenward_roger"]

# Levels of all factors together, for matrices with a row and a column for each.
MOST_LEVELS = 3_000
# Step of differences, as a share of a root.
STEP = 1e-3


class _Parts(NamedTuple):
    """What the deviance and the covariance of the coefficients are made of, at some roots."""

    log_det: float
    squares: float
    covariance: NDArray


class CrossedSatterthwaite(Inference):
    """Degrees of freedom as lmerTest has them.

    The parameters are the standard deviations of factors over that of the noise, theta, and that of
    the noise, sigma. With ``D(theta)`` the logarithms of determinants, ``R(theta)`` the squares
    that are left, and n degrees, the deviance is ``D + 2 n log(sigma) + R / sigma**2``, and the
    covariance of the coefficients ``sigma**2 C(theta)``. Derivatives in sigma are exact, and those
    in theta are differences. A factor whose variance is zero adds nothing.

    Parameters
    ----------
    mean : ndarray of shape (p,)
    system : CrossedSystem
        The equations at the maximum of the likelihood.
    back : ndarray of shape (p, p)
        Coefficients of the columns of X, by those of the columns of the equations.
    """

    def __init__(self, mean: NDArray, system: CrossedSystem, back: NDArray):
        super().__init__(mean)
        self._back, self._noise = back, system.noise
        roots, free = system.theta, np.flatnonzero(system.theta > 0)
        steps = STEP * roots

        def at(*moves: tuple[int, float]) -> _Parts:
            moved = roots.copy()
            for place, step in moves:
                moved[place] += step
            return _parts(CrossedSystem(system.sums, moved**2, system.restricted))

        here = _parts(system)
        ends = {k: [at((k, s * steps[k])) for s in (1, -1)] for k in free.tolist()}
        size, n = len(free), system.degrees
        sigma = np.sqrt(self._noise)
        hessian = np.zeros((size + 1, size + 1))
        hessian[-1, -1] = -2 * n / self._noise + 6 * here.squares / self._noise**2
        slopes = []
        for a, k in enumerate(free.tolist()):
            up, down = ends[k]
            bend = (self._deviance(up) + self._deviance(down) - 2 * self._deviance(here)) / (
                steps[k] ** 2
            )
            hessian[a, a] = bend
            slope = (up.squares - down.squares) / (2 * steps[k])
            hessian[a, -1] = hessian[-1, a] = -2 * slope / sigma**3
            slopes.append(self._noise * (up.covariance - down.covariance) / (2 * steps[k]))
        for a, b in combinations(range(size), 2):
            j, k = free[a], free[b]
            both = [at((j, s * steps[j]), (k, s * steps[k])) for s in (1, -1)]
            apart = [*ends[int(j)], *ends[int(k)]]
            total = sum(map(self._deviance, both)) - sum(map(self._deviance, apart))
            total += 2 * self._deviance(here)
            hessian[a, b] = hessian[b, a] = total / (2 * steps[j] * steps[k])
        slopes.append(2 * sigma * here.covariance)
        self._slopes = np.array([back @ each @ back.T for each in slopes])
        self._known = 2 * np.linalg.inv(hessian)
        self._covariance = self._noise * back @ here.covariance @ back.T

    def _deviance(self, parts: _Parts) -> float:
        """Deviance at the fitted sigma, but for a constant."""
        return parts.log_det + parts.squares / self._noise

    @property
    def covariance(self) -> NDArray:
        """Sampling covariance of the mean."""
        return self._covariance

    def df(self, contrasts: NDArray) -> NDArray:
        """Degrees of freedom of each contrast."""
        variance = np.einsum("np,pq,nq->n", contrasts, self._covariance, contrasts)
        slopes = np.einsum("np,kpq,nq->nk", contrasts, self._slopes, contrasts)
        spread = np.einsum("nk,kl,nl->n", slopes, self._known, slopes)
        return 2 * variance**2 / spread


def _parts(system: CrossedSystem) -> _Parts:
    q, L = system.sums.q, system.triangle
    diagonal = np.diag(L)
    log_det = np.log(system.pivots).sum() + 2 * np.log(diagonal[:q]).sum()
    if system.restricted:
        log_det += 2 * np.log(diagonal[q:-1]).sum()
    corner = L[q:-1, q:-1]
    inverse = solve_triangular(corner, np.eye(len(corner)), lower=True)
    return _Parts(float(log_det), float(L[-1, -1] ** 2), inverse.T @ inverse)


@dataclass(frozen=True)
class _Sums:
    """What `KenwardRoger` reads of a fit."""

    mean: NDArray
    fitted: GroupSums
    inverse: NDArray
    basis: tuple[NDArray]
    restricted: bool = True

    def identified(self, contrasts: NDArray) -> NDArray[np.bool_]:
        """Whether rows identify contrasts: columns are not collinear."""
        return np.ones(len(contrasts), bool)


def crossed_kenward_roger(mean: NDArray, system: CrossedSystem, back: NDArray) -> Inference:
    """Return degrees of freedom and standard errors as pbkrtest has them.

    Parameters
    ----------
    mean, system, back : as in `CrossedSatterthwaite`

    Raises
    ------
    ValueError
        If the fit is by maximum likelihood, or there are too many levels.
    """
    sums, q, p, noise = system.sums, system.sums.q, system.p, system.noise
    if not system.restricted:
        raise ValueError(
            "ddf='kenward-roger' needs a fit by REML, method='reml'; this one is by maximum "
            "likelihood."
        )
    first = len(sums.first)
    if first + q > MOST_LEVELS:
        raise ValueError(
            f"ddf='kenward-roger' is of up to {MOST_LEVELS:,} levels of all factors together; this "
            f"fit has {first + q:,}. ddf='satterthwaite' has no limit."
        )
    table = sums.table.toarray()
    products = np.block([[np.diag(sums.first), table], [table.T, sums.inner[:q, :q]]])
    columns = np.vstack([sums.outer[:, :p], sums.inner[:q, q : q + p]])
    root = np.concatenate([np.full(first, system.theta[0]), system.scale[:q]])
    scaled = cho_factor(np.eye(first + q) + root[:, None] * products * root)
    solved = root[:, None] * cho_solve(scaled, root[:, None] * np.hstack([products, columns]))
    U = (products - products @ solved[:, : first + q]) / noise
    R = (columns - products @ solved[:, first + q :]) / noise
    M = (sums.inner[q : q + p, q : q + p] - columns.T @ solved[:, first + q :]) / noise
    owner = np.concatenate([np.zeros(first, np.int64), sums.owner])
    parts = [np.flatnonzero(owner == k) for k in range(sums.n_factors)]
    phi, K = system.gamma * noise, sums.n_factors
    S, Q = np.zeros((K + 1, p + 1, p + 1)), np.zeros((K + 1, K + 1, p + 1, p + 1))
    trace, pairs = np.zeros(K + 1), np.zeros((K + 1, K + 1))
    for k, own in enumerate(parts):
        S[k, :p, :p], trace[k] = R[own].T @ R[own], np.trace(U[np.ix_(own, own)])
        for m, other in enumerate(parts):
            block = U[np.ix_(own, other)]
            Q[k, m, :p, :p], pairs[k, m] = R[own].T @ block @ R[other], np.sum(block**2)
    S[K, :p, :p] = (M - np.tensordot(phi, S[:K, :p, :p], 1)) / noise
    trace[K] = (sums.n_rows - phi @ trace[:K]) / noise
    Q[:K, K] = (S[:K] - np.tensordot(phi, Q[:K, :K], (0, 1))) / noise
    Q[K, :K] = Q[:K, K].swapaxes(1, 2)
    Q[K, K] = (S[K] - np.tensordot(phi, Q[:K, K], 1)) / noise
    pairs[:K, K] = pairs[K, :K] = (trace[:K] - pairs[:K, :K] @ phi) / noise
    pairs[K, K] = (trace[K] - pairs[:K, K] @ phi) / noise
    found = GroupSums(np.zeros(1), np.zeros((1, p + 1, p + 1)), trace, S, pairs, Q)
    fit: Any = _Sums(mean, found, np.linalg.inv(M), (back,))
    return KenwardRoger(fit)
