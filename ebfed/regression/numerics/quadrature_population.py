"""The parameters of a normal population whose likelihood is found by quadrature.

Coefficients are ``theta = frame (c + at places: root eta)``, eta standard normal. The parameters
are those of c's mean, along `ways`, and entries of the root: of a lower triangle, of its diagonal,
or one number times the identity, for each level of groups; and then shapes of the family of rows,
if it has some. No sign of an entry matters, so that a variance of zero lies in the interior, where
the likelihood has slope zero and bends down if groups do not differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.numerics.normal_population import HIGH, LOW, Covariance
from ebfed.regression.numerics.trust_region import uncertainty

__all__ = ["QuadraturePopulation", "entries_of", "square_of"]


def entries_of(kind: Covariance, sizes: Sequence[int] | NDArray) -> tuple[NDArray, NDArray]:
    """Rows and columns of the entries of a root that may differ from zero.

    Parameters
    ----------
    kind : {"diag", "spherical", "full"}
    sizes : sequence of int
        Numbers of coefficients that differ between groups, of each level from the top: the root has
        a block for each.

    Examples
    --------
    >>> [each.tolist() for each in entries_of("full", [1, 2])]
    [[0, 1, 2, 2], [0, 1, 1, 2]]
    """
    if kind != "full":
        return np.arange(sum(sizes)), np.arange(sum(sizes))
    blocks = [np.tril_indices(q) for q in sizes]
    starts = np.cumsum([0, *sizes])
    rows, columns = (
        np.concatenate([first + block[axis] for first, block in zip(starts, blocks, strict=False)])
        for axis in (0, 1)
    )
    return rows.astype(np.int64), columns.astype(np.int64)


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
        Entries of c that differ between groups, of each level from the top.
    sizes : tuple of int
        Numbers of these, of each level.
    """

    point: NDArray
    kind: Covariance
    frame: NDArray
    ways: NDArray
    places: NDArray
    sizes: tuple[int, ...]

    @property
    def mean(self) -> NDArray:
        """Mean of c, shape (r,)."""
        return self.ways @ self.point[: self.ways.shape[1]]

    @property
    def root(self) -> NDArray:
        """Root of the covariances of c at `places`, a block for each level, shape (q, q)."""
        q, turn = len(self.places), self.turn
        root = np.zeros((q, q))
        k = self.ways.shape[1]
        root[entries_of(self.kind, self.sizes)] = turn @ self.point[k : k + turn.shape[1]]
        return root

    @property
    def shapes(self) -> NDArray:
        """Parameters of the family of rows, shape (t,)."""
        return self.point[self.ways.shape[1] + self.turn.shape[1] :]

    @property
    def turn(self) -> NDArray[np.float64]:
        """Derivatives of the entries of the root in their parameters."""
        if self.kind != "spherical":
            return np.eye(len(entries_of(self.kind, self.sizes)[0]))
        used = [size for size in self.sizes if size]
        owner = np.repeat(np.arange(len(used)), used)
        return (owner[:, None] == np.arange(len(used))).astype(float)

    def start(
        self, spread: float, intercept: float = 0.0, shapes: NDArray | None = None
    ) -> QuadraturePopulation:
        """Return the population with these standard deviations in all directions.

        The mean is zero, but for the first coefficient, which is to be `intercept`.
        """
        rows, columns = entries_of(self.kind, self.sizes)
        entries = np.linalg.lstsq(self.turn, np.where(rows == columns, spread, 0.0))[0]
        mean = np.zeros(self.ways.shape[1])
        if intercept:
            first = intercept * np.eye(len(self.frame))[0]
            mean = np.linalg.lstsq(self.frame @ self.ways, first, rcond=None)[0]
        shapes = np.zeros(0) if shapes is None else shapes
        return self.at(np.concatenate([mean, entries, shapes]))

    def at(self, point: NDArray) -> QuadraturePopulation:
        """Return the population of another point."""
        return replace(self, point=point)

    def chain(self, score: NDArray, curvature: NDArray) -> tuple[NDArray, NDArray]:
        """Derivatives in the parameters from those in c's mean, entries of the root, and shapes."""
        (r, k), t, spread = self.ways.shape, len(self.shapes), self.turn
        n_entries = len(spread)
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

    def seen(self) -> tuple[NDArray, list[NDArray]]:
        """Mean of theta, and a root of its covariance for each level, from the top, (p, q).

        What is hardly above zero is zero.
        """
        roots = []
        for first, last in itertools.pairwise(np.cumsum([0, *self.sizes])):
            root = self.root[first:last, first:last]
            if self.kind == "full" and root.size:
                axes, sizes, _ = np.linalg.svd(root)
                if sizes[-1] < np.sqrt(LOW):
                    root = axes * np.where(sizes < np.sqrt(LOW), 0.0, sizes)
            else:
                root = np.where(np.abs(root) < np.sqrt(LOW), 0.0, np.abs(root))
            roots.append(self.frame[:, self.places[first:last]] @ root)
        return self.frame @ self.mean, roots

    def at_bounds(self) -> tuple[bool, bool]:
        """Whether a variance is zero, and whether one is too large for the quadrature."""
        sizes = np.linalg.svd(self.root, compute_uv=False)
        return bool(np.any(sizes < np.sqrt(LOW))), bool(np.any(sizes > np.sqrt(HIGH / 2)))
