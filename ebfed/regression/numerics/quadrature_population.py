"""The parameters of a normal population whose likelihood is found by quadrature.

Coefficients are ``theta = frame (c + at places: root eta)``, eta standard normal. The parameters
are those of c's mean, along `ways`, and entries of the root: of a lower triangle, of its diagonal,
or one number times the identity; and then shapes of the family of rows, if it has some. No sign of
an entry matters, so that a variance of zero lies in the interior, where the likelihood has slope
zero and bends down if groups do not differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.numerics.normal_population import HIGH, LOW, Covariance
from ebfed.regression.numerics.trust_region import uncertainty

__all__ = ["QuadraturePopulation", "entries_of", "square_of"]


def entries_of(kind: Covariance, q: int) -> tuple[NDArray, NDArray]:
    """Rows and columns of the entries of a root that may differ from zero."""
    if kind == "full":
        rows, columns = np.tril_indices(q)
        return rows.astype(np.int64), columns.astype(np.int64)
    return np.arange(q), np.arange(q)


def square_of(halves: NDArray) -> NDArray:
    """Return the symmetric matrix with this lower half, row by row.

    >>> square_of(np.array([1.0, 2.0, 3.0])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    d = int(np.sqrt(2 * len(halves)))
    square = np.zeros((d, d))
    rows, columns = np.tril_indices(d)
    square[rows, columns] = square[columns, rows] = halves
    return square


@dataclass(frozen=True)
class QuadraturePopulation:
    """Parameters, and what they mean.

    Attributes
    ----------
    point : ndarray of shape (k + s + t,)
        k numbers of the mean, s of the root, and t shapes.
    kind : {"diag", "spherical", "full"}
    frame : ndarray of shape (p, r)
    ways : ndarray of shape (r, k)
        Directions in which the mean of c moves.
    places : int64 ndarray of shape (q,)
        Entries of c that differ between groups.
    """

    point: NDArray
    kind: Covariance
    frame: NDArray
    ways: NDArray
    places: NDArray

    @property
    def mean(self) -> NDArray:
        """Mean of c, shape (r,)."""
        return self.ways @ self.point[: self.ways.shape[1]]

    @property
    def root(self) -> NDArray:
        """Root of the covariance of c at `places`, shape (q, q)."""
        q = len(self.places)
        root = np.zeros((q, q))
        k = self.ways.shape[1]
        root[entries_of(self.kind, q)] = self.point[k : k + self._n_free]
        return root

    @property
    def shapes(self) -> NDArray:
        """Parameters of the family of rows, shape (t,)."""
        return self.point[self.ways.shape[1] + self._n_free :]

    @property
    def _n_free(self) -> int:
        """Number of parameters of the root."""
        q = len(self.places)
        return min(q, 1) if self.kind == "spherical" else len(entries_of(self.kind, q)[0])

    def start(
        self, spread: float, intercept: float = 0.0, shapes: NDArray | None = None
    ) -> QuadraturePopulation:
        """Return the population with these standard deviations in all directions.

        The mean is zero, but for the first coefficient, which is to be `intercept`.
        """
        rows, columns = entries_of(self.kind, len(self.places))
        entries = np.where(rows == columns, spread, 0.0)[: self._n_free]
        mean = np.zeros(self.ways.shape[1])
        if intercept:
            first = intercept * np.eye(len(self.frame))[0]
            mean = np.linalg.lstsq(self.frame @ self.ways, first, rcond=None)[0]
        shapes = np.zeros(0) if shapes is None else shapes
        return self.at(np.concatenate([mean, entries, shapes]))

    def at(self, point: NDArray) -> QuadraturePopulation:
        """Return the population of another point."""
        return QuadraturePopulation(point, self.kind, self.frame, self.ways, self.places)

    def chain(self, score: NDArray, curvature: NDArray) -> tuple[NDArray, NDArray]:
        """Derivatives in the parameters from those in c's mean, entries of the root, and shapes."""
        (r, k), q, t = self.ways.shape, len(self.places), len(self.shapes)
        n_entries = len(entries_of(self.kind, q)[0])
        spread = np.ones((n_entries, min(q, 1))) if self.kind == "spherical" else np.eye(n_entries)
        turn = np.zeros((r + n_entries + t, k + spread.shape[1] + t))
        turn[:r, :k], turn[r : r + n_entries, k : k + spread.shape[1]] = self.ways, spread
        turn[r + n_entries :, k + spread.shape[1] :] = np.eye(t)
        return turn.T @ score, turn.T @ curvature @ turn

    def mean_covariance(self, curvature: NDArray) -> NDArray:
        """Sampling covariance of the mean of theta, from the observed information, (p, p)."""
        k = self.ways.shape[1]
        there = self.frame @ self.ways
        return there @ uncertainty(curvature)[:k, :k] @ there.T

    def shape_covariance(self, curvature: NDArray) -> NDArray:
        """Sampling covariance of the mean of theta and the shapes, (p + t, p + t)."""
        (p, k), t = (self.frame @ self.ways).shape, len(self.shapes)
        turn = np.zeros((p + t, len(curvature)))
        turn[:p, :k] = self.frame @ self.ways
        turn[p:, len(curvature) - t :] = np.eye(t)
        return turn @ uncertainty(curvature) @ turn.T

    def seen(self) -> tuple[NDArray, NDArray]:
        """Mean of theta and a root of its covariance, (p, q); what is hardly above zero is zero."""
        root = self.root
        if self.kind == "full" and root.size:
            axes, sizes, _ = np.linalg.svd(root)
            if sizes[-1] < np.sqrt(LOW):
                root = axes * np.where(sizes < np.sqrt(LOW), 0.0, sizes)
        else:
            root = np.where(np.abs(root) < np.sqrt(LOW), 0.0, np.abs(root))
        return self.frame @ self.mean, self.frame[:, self.places] @ root

    def at_bounds(self) -> tuple[bool, bool]:
        """Whether a variance is zero, and whether one is too large for the quadrature."""
        sizes = np.linalg.svd(self.root, compute_uv=False)
        return bool(np.any(sizes < np.sqrt(LOW))), bool(np.any(sizes > np.sqrt(HIGH / 2)))
