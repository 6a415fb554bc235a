"""Degrees of freedom of tests in linear models of crossed factors.

Satterthwaite's are of any size. Kenward and Roger's need traces of products of matrices with a row
and a column for every coefficient of every level. The covariance of rows is linear in entries g_a
of the covariances of factors, ``V = noise / W + sum_a g_a V_a``, with ``V_a = Z D_a Z'``, where D_a
has the slope of the covariance of a level for each level of the factor. With

    U = Z' V^-1 Z,    R = Z' V^-1 X

are ``tr(V^-1 V_a V^-1 V_b) = tr(U D_a U D_b)``, and ``X' V^-1 V_a V^-1 V_b V^-1 X = R' D_a U D_b
R``. Those in the noise follow from ``V^-1 = noise V^-1 W^-1 V^-1 + sum_a g_a V^-1 V_a V^-1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import block_diag, csr_matrix, eye, kron

from ebfed.inference.degrees_of_freedom import Inference, KenwardRoger, Satterthwaite
from ebfed.inference.sums import GroupSums
from ebfed.regression.numerics.crossed_model import CrossedSystem
from ebfed.regression.numerics.crossed_search import CrossedBlocks

__all__ = ["crossed_kenward_roger", "crossed_satterthwaite"]

# Coefficients of levels of all factors together, for matrices with a row and a column for each.
MOST_LEVELS = 3_000
# Step of differences, as a share of a root, and the least root of which it is a share.
STEP, LEAST = 1e-3, 0.1


def crossed_satterthwaite(
    mean: NDArray, system: CrossedSystem, back: NDArray, blocks: CrossedBlocks
) -> Inference:
    """Return Satterthwaite's degrees of freedom.

    The parameters are entries of the roots of the factors' covariances over the noise, theta, and
    the standard deviation of the noise, sigma. With ``D(theta)`` the logarithms of determinants,
    ``R(theta)`` the squares that are left, and n degrees, the deviance is ``D + 2 n log(sigma) + R
    / sigma**2``, and the covariance of the coefficients ``sigma**2 C(theta)``. Derivatives in sigma
    are exact. Second ones in theta are differences of slopes, which are exact.

    Parameters
    ----------
    mean : ndarray of shape (p,)
    system : CrossedSystem
        The equations at the maximum of the likelihood.
    back : ndarray of shape (p, p)
        Coefficients of the columns of X, by those of the columns of the equations.
    blocks : CrossedBlocks
        Coefficients of a level that are correlated.
    """
    noise, bends, pairs, free = system.noise, [], [], blocks.in_roots

    def at(factor: int, row: int, column: int, step: float) -> tuple[_Parts, NDArray]:
        roots = [root.copy() for root in system.roots]
        roots[factor][row, column] += step
        moved = CrossedSystem(system.sums, roots, system.restricted)
        of_roots = [2 * each @ root for each, root in zip(moved.slope(noise), roots, strict=True)]
        return _parts(moved), np.array([of_roots[k][a, b] for k, a, b in free])

    for k, a, b in free:
        step = STEP * max(abs(float(system.roots[k][a, b])), LEAST)
        (up, ahead), (down, behind) = (at(k, a, b, s * step) for s in (1, -1))
        bends.append((ahead - behind) / (2 * step))
        pairs.append((up, down, 2 * step))
    hessian = np.array(bends).reshape(len(free), len(free))
    return _of_differences(mean, system, back, _parts(system), (hessian + hessian.T) / 2, pairs)


class _Parts(NamedTuple):
    """What the deviance and the covariance of the coefficients are made of, at some roots."""

    log_det: float
    squares: float
    covariance: NDArray


def _parts(system: CrossedSystem) -> _Parts:
    """Return what a system has of the deviance; from its triangular factor."""
    return _Parts(system.log_dets, system.squares, system.column_covariance(system.p))


def _of_differences(
    mean: NDArray,
    system: CrossedSystem,
    back: NDArray,
    here: _Parts,
    bends: NDArray,
    pairs: Sequence[tuple[_Parts, _Parts, float]],
) -> Inference:
    """Add sigma to the parameters theta, in which the deviance has the second derivatives `bends`.

    Each pair has parts at both sides of the fitted value of a parameter, and their distance.
    """
    noise, k = system.noise, len(pairs)
    sigma, hessian = np.sqrt(noise), np.zeros((k + 1, k + 1))
    hessian[:k, :k] = bends
    hessian[k, k] = -2 * system.degrees / noise + 6 * here.squares / noise**2
    slopes = []
    for a, (up, down, length) in enumerate(pairs):
        hessian[a, k] = hessian[k, a] = -2 * (up.squares - down.squares) / length / sigma**3
        slopes.append(noise * (up.covariance - down.covariance) / length)
    slopes.append(2 * sigma * here.covariance)
    found = np.array([back @ each @ back.T for each in slopes])
    return Satterthwaite(mean, noise * back @ here.covariance @ back.T, found, hessian)


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


def crossed_kenward_roger(
    mean: NDArray, system: CrossedSystem, back: NDArray, blocks: CrossedBlocks
) -> Inference:
    """Return degrees of freedom and standard errors as pbkrtest has them.

    Parameters
    ----------
    mean, system, back, blocks : as in `crossed_satterthwaite`

    Raises
    ------
    ValueError
        If the fit is by maximum likelihood, or there are too many coefficients of levels.
    """
    if not system.restricted:
        raise ValueError(
            "ddf='kenward-roger' needs a fit by REML, method='reml'; this one is by maximum "
            "likelihood."
        )
    counts = system.sums.sizes * system.sums.widths
    if counts.sum() > MOST_LEVELS:
        raise ValueError(
            f"ddf='kenward-roger' is of up to {MOST_LEVELS:,} levels in all, times their "
            f"coefficients; this fit has {counts.sum():,}. 'satterthwaite' has no limit."
        )
    sums, p, noise = system.sums, system.p, system.noise
    table, among = sums.table.matrix.toarray(), csr_matrix(sums.pattern.whole(sums.among)).toarray()
    first = linalg.block_diag(*sums.blocks)
    products = np.block([[first, table], [table.T, among]])
    columns = np.vstack([sums.outer[:, :p], sums.below[:, :p]])
    levels = list(zip(sums.sizes.tolist(), system.roots, strict=True))
    root = csr_matrix(block_diag([kron(eye(n), L) for n, L in levels]))
    scaled = cho_factor(np.eye(len(products)) + root.T @ (root.T @ products).T)
    solved = root @ cho_solve(scaled, root.T @ np.hstack([products, columns]))
    U = (products - products @ solved[:, : len(products)]) / noise
    R = (columns - products @ solved[:, len(products) :]) / noise
    M = (sums.whole[:p, :p] - columns.T @ solved[:, len(products) :]) / noise
    ends = np.cumsum([0, *(n * len(L) for n, L in levels)])
    # of each parameter: place of its factor, slope of the covariance of a level, value
    parts: list[tuple[slice, NDArray, float]] = []
    for k, i, j in blocks.in_roots:
        L = system.roots[k]
        slope = np.zeros((len(L), len(L)))
        slope[i, j] = slope[j, i] = 1.0
        parts.append((slice(ends[k], ends[k + 1]), slope, float(noise * (L @ L.T)[i, j])))
    phi, K = np.array([value for *_, value in parts]), len(parts)
    S, Q = np.zeros((K + 1, p + 1, p + 1)), np.zeros((K + 1, K + 1, p + 1, p + 1))
    trace, pairs = np.zeros(K + 1), np.zeros((K + 1, K + 1))
    for a, (own, slope, _) in enumerate(parts):
        moved = _by_level(slope, R[own])
        S[a, :p, :p] = R[own].T @ moved
        trace[a] = np.trace(_by_level(slope, U[own, own]))
        for b, (other, bend, _) in enumerate(parts[a:], a):
            turned = _by_level(bend, U[other, own])
            Q[a, b, :p, :p] = moved.T @ turned.T @ R[other]
            pairs[a, b] = pairs[b, a] = np.sum(_by_level(slope, U[own, other]) * turned.T)
            Q[b, a] = Q[a, b].T
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


def _by_level(slope: NDArray, rows: NDArray) -> NDArray:
    """Multiply the rows of the coefficients of each level, from the left."""
    return (slope @ rows.reshape(-1, len(slope), rows.shape[1])).reshape(rows.shape)
