"""Roots of a covariance: which entries are free, and how a criterion bends in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

__all__ = [
    "DiagonalRoot",
    "best_size",
    "raised",
    "raised_inverse",
    "sizes_near",
    "sound_factor",
]


class DiagonalRoot:
    """Roots whose diagonal is free, but for entries in a row that are the same.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of entries that are the same, one after the other.
    """

    def __init__(self, sizes: Sequence[int]):
        self.sizes = np.array(sizes)
        self.first = np.cumsum(self.sizes) - self.sizes

    def root(self, free: NDArray) -> NDArray:
        """Return the root with these free entries."""
        return np.diag(np.repeat(free, self.sizes))

    def free(self, root: NDArray) -> NDArray:
        """Return the free entries of a root."""
        return root.diagonal()[self.first]

    def of(self, slope: NDArray) -> NDArray:
        """Slope in the free entries, from that in all."""
        return np.add.reduceat(slope.diagonal(), self.first)

    def metric(self, root: NDArray, curvature: NDArray) -> NDArray:
        """About the inverse curvature in the free entries, from that in the diagonal of T."""
        rows = np.add.reduceat(curvature, self.first, axis=0)
        whole = _bend(root[self.first], np.add.reduceat(rows, self.first, axis=1))
        unit = np.sqrt(whole.diagonal())
        # where columns say the same, their variances are hard to tell apart
        return raised_inverse(whole / np.outer(unit, unit), 1e-3) / np.outer(unit, unit)


def _bend(root: NDArray, curvature: NDArray) -> NDArray:
    """Curvature in the entries of a diagonal root; near zero it bends as its fourth power."""
    bend = np.where(curvature.diagonal() > 0, curvature.diagonal(), 1.0)
    whole = 4 * np.outer(root, root) * curvature
    whole[np.diag_indices(len(root))] = np.maximum(whole.diagonal(), np.sqrt(bend))
    return whole


def sound_factor(matrix: NDArray, least: float) -> NDArray | None:
    """Lower Cholesky factor of a symmetric matrix of which no eigenvalue is small; None if unsure.

    That is below `least` times the largest. With a trace t, the smallest of n eigenvalues is no
    less than the determinant times ``((n - 1) / t)**(n - 1)``.
    """
    factor, failed = dpotrf(matrix, lower=True)
    if failed or not len(matrix):
        return None
    # of Python's numbers, for arrays of a few take longer; of logarithms, for they stay in range
    trace, others = sum(matrix.diagonal().tolist()), len(matrix) - 1
    if not 0 < trace < math.inf:
        return None
    smallest = 2 * sum(map(math.log, factor.diagonal().tolist()))
    smallest += others * (math.log(max(others, 1)) - math.log(trace))
    return factor if smallest > math.log(least) + math.log(trace) else None


def raised_inverse(matrix: NDArray, least: float = 1e-10) -> NDArray:
    """Inverse of a symmetric matrix, eigenvalues below a share of the largest raised to it."""
    if (factor := sound_factor(matrix, least)) is not None:
        half = dtrtri(factor, lower=True)[0]
        return half.T @ half
    values, vectors = np.linalg.eigh(matrix)
    return (vectors / raised(values, least)) @ vectors.T


def raised(values: NDArray, least: float) -> NDArray:
    """Eigenvalues, those below a share of the largest raised to it."""
    return np.maximum(values, max(least * values.max(initial=0.0), 1e-300))


def sizes_near(first: NDArray) -> NDArray:
    """Logarithms of sizes of a root among which a search begins."""
    return np.sort(np.log(np.append(np.geomspace(1e-3, 1e3, 13), first[0])))


def best_size(value: Callable[[NDArray], float], logs: NDArray, q: int) -> NDArray:
    """Search all sizes of a root that is a number times the identity, shape (q, q)."""
    from scipy.optimize import minimize_scalar

    def at(log: float) -> float:
        return value(np.exp(log) * np.eye(q))

    values = np.array([at(log) for log in logs])
    best = int(np.argmin(values))
    around = slice(best - 1, best + 2)
    if 0 < best < len(logs) - 1 and values[best] < min(values[best - 1], values[best + 1]):
        logs[best] = minimize_scalar(at, bracket=tuple(logs[around]), tol=1e-2).x
    return np.full(q, np.exp(logs[best]))
