"""Roots of a covariance: which entries are free, and how a criterion bends in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

__all__ = [
    "CommonRoot",
    "DiagonalRoot",
    "LowerRoot",
    "RootEntries",
    "best_size",
    "raised_inverse",
    "sizes_near",
    "sound_factor",
]


class RootEntries(ABC):
    """Free entries of a lower triangular root."""

    @abstractmethod
    def root(self, free: NDArray) -> NDArray:
        """Return the root with these free entries."""

    @abstractmethod
    def free(self, root: NDArray) -> NDArray:
        """Return the free entries of a root."""

    @abstractmethod
    def of(self, slope: NDArray) -> NDArray:
        """Slope in the free entries, from that in all."""

    @abstractmethod
    def metric(self, root: NDArray, curvature: NDArray) -> NDArray:
        """About the inverse curvature in the free entries, from that in the diagonal of T."""


class DiagonalRoot(RootEntries):
    """Every entry of the diagonal is free."""

    def root(self, free: NDArray) -> NDArray:
        """Return the root with these free entries."""
        return np.diag(free)

    def free(self, root: NDArray) -> NDArray:
        """Return the free entries of a root."""
        return root.diagonal()

    def of(self, slope: NDArray) -> NDArray:
        """Slope in the free entries."""
        return slope.diagonal()

    def metric(self, root: NDArray, curvature: NDArray) -> NDArray:
        """About the inverse curvature in the free entries."""
        whole = _bend(root, curvature)
        unit = np.sqrt(whole.diagonal())
        # where columns say the same, their variances are hard to tell apart
        return raised_inverse(whole / np.outer(unit, unit), 1e-3) / np.outer(unit, unit)


class CommonRoot(RootEntries):
    """All entries of the diagonal are the same; of blocks of these sizes, those of each block."""

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
        """Slope in the free entries."""
        return np.add.reduceat(slope.diagonal(), self.first)

    def metric(self, root: NDArray, curvature: NDArray) -> NDArray:
        """About the inverse curvature in the free entries."""
        rows = np.add.reduceat(curvature, self.first, axis=0)
        return DiagonalRoot().metric(root[self.first], np.add.reduceat(rows, self.first, axis=1))


class LowerRoot(RootEntries):
    """Every entry of the lower triangle is free."""

    def __init__(self, places: tuple[NDArray, NDArray]):
        self.places = places

    def root(self, free: NDArray) -> NDArray:
        """Return the root with these free entries."""
        q = self.places[0][-1] + 1
        root = np.zeros((q, q))
        root[self.places] = free
        return root

    def free(self, root: NDArray) -> NDArray:
        """Return the free entries of a root."""
        return root[self.places]

    def of(self, slope: NDArray) -> NDArray:
        """Slope in the free entries."""
        return slope[self.places]

    def metric(self, root: NDArray, curvature: NDArray) -> NDArray:
        """About the inverse curvature in the free entries."""
        whole = _bend(root, curvature)
        side = np.sqrt(np.where(curvature.diagonal() > 0, curvature.diagonal(), 1.0))
        units = np.maximum(root**2 * side, 1.0) * side[:, None]
        np.fill_diagonal(units, whole.diagonal())
        return np.diag(1 / units[self.places])

    def newton(self, root: NDArray, outer: NDArray, shared: NDArray, n_rows: int) -> NDArray:
        """About the inverse curvature in the free entries, expected at a root.

        Parameters
        ----------
        root : ndarray of shape (q, q)
        outer : ndarray of shape (q, q, q, q)
            Sum over groups of products of the entries of ``K = Z' V^-1 Z`` with one another.
        shared : ndarray of shape (q, q)
            Sum of K.
        n_rows : int
            Number of rows, which share a noise variance.
        """
        rows, columns = self.places
        q = len(root)
        moves = np.eye(q)[rows][:, :, None] * root.T[columns][:, None, :]
        moves = (moves + moves.swapaxes(1, 2)).reshape(len(rows), q * q)  # of T, by each entry
        along = moves @ shared.ravel()
        # the criterion bends by the trace of K D K E along D and E
        whole = moves @ outer.transpose(1, 2, 3, 0).reshape(q * q, q * q) @ moves.T
        whole -= np.outer(along, along) / n_rows
        own = np.einsum("aaaa->a", outer) - shared.diagonal() ** 2 / n_rows
        side = np.sqrt(np.where(own > 0, own, 1.0))
        np.fill_diagonal(whole, np.maximum(whole.diagonal(), side[rows]))
        unit = np.sqrt(whole.diagonal())
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
    others, trace = len(matrix) - 1, matrix.trace()
    smallest = np.prod(factor.diagonal()) ** 2 * (others / trace) ** others
    return factor if smallest > least * trace else None


def raised_inverse(matrix: NDArray, least: float = 1e-10) -> NDArray:
    """Inverse of a symmetric matrix, eigenvalues below a share of the largest raised to it."""
    if (factor := sound_factor(matrix, least)) is not None:
        half = dtrtri(factor, lower=True)[0]
        return half.T @ half
    values, vectors = np.linalg.eigh(matrix)
    floor = max(least * values.max(initial=0.0), 1e-300)
    return (vectors / np.maximum(values, floor)) @ vectors.T


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
