"""The parameters of a normal population whose likelihood is found by quadrature.

Coefficients are ``theta = frame (c + at places: root eta)``, eta standard normal. The parameters
are those of c's mean, along `ways`, and entries of the root: for each block of coefficients those
of a lower triangle, or one number times the identity; and then shapes of the family of rows, if it
has some. No sign of an entry matters, so that a variance of zero lies in the interior, where the
likelihood has slope zero and bends down if groups do not differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.sums import entries_of_terms, root_of_terms
from ebfed.inference.trust_region import uncertainty

__all__ = [
    "HIGH",
    "LOW",
    "Covariance",
    "QuadraturePopulation",
    "entries_of",
    "square_of",
    "turn_of",
]

Covariance = Literal["diag", "spherical", "full"]

# Bounds of variances, in units.
LOW, HIGH = 1e-6, 1e4

# Standard deviation that is added to those from which a search begins.
LEAST = 0.1


def entries_of(blocks: NDArray, shared: bool = False) -> tuple[NDArray, NDArray]:
    """Rows and columns of the entries of a root that may differ from zero.

    Parameters
    ----------
    blocks : ndarray of shape (q,)
        Number of the block of each coefficient that differs between groups: those of different
        blocks are independent.
    shared : bool
        Whether the coefficients of a block are independent too, and share a variance.

    Examples
    --------
    >>> [each.tolist() for each in entries_of(np.array([0, 1, 1]))]
    [[0, 1, 2, 2], [0, 1, 1, 2]]
    """
    return entries_of_terms(np.arange(len(blocks)) if shared else blocks)


def turn_of(blocks: NDArray, shared: bool = False) -> NDArray[np.float64]:
    """Derivatives of the entries of a root, as of `entries_of`, in its parameters."""
    if not shared:
        return np.eye(len(entries_of(blocks)[0]))
    return (blocks[:, None] == np.unique(blocks)).astype(float)


def square_of(halves: NDArray) -> NDArray:
    """Return the symmetric matrix with this lower half, row by row.

    >>> square_of(np.array([1.0, 2.0, 3.0])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    d = int(np.sqrt(2 * len(halves)))
    square = np.zeros((d, d))
    rows, columns = entries_of_terms(np.zeros(d))
    square[rows, columns] = square[columns, rows] = halves
    return square


@dataclass(frozen=True)
class QuadraturePopulation:
    """Parameters, and what they mean.

    Attributes
    ----------
    point : ndarray of shape (k + s + t,)
        k numbers of the mean, s of the root, and t shapes.
    shared : bool
        Whether the coefficients of a block are independent, and share a variance.
    frame : ndarray of shape (p, r)
    ways : ndarray of shape (r, k)
        Directions in which the mean of c moves.
    places : int64 ndarray of shape (q,)
        Entries of c that differ between groups, of each level from the top.
    sizes : tuple of int
        Numbers of these, of each level.
    blocks : int64 ndarray of shape (q,)
        Block of each, whose coefficients are independent of those of other blocks.
    """

    point: NDArray
    shared: bool
    frame: NDArray
    ways: NDArray
    places: NDArray
    sizes: tuple[int, ...]
    blocks: NDArray

    @property
    def entries(self) -> tuple[NDArray, NDArray]:
        """Rows and columns of the entries of the root that are not zero."""
        return entries_of(self.blocks, self.shared)

    @property
    def mean(self) -> NDArray:
        """Mean of c, shape (r,)."""
        return self.ways @ self.point[: self.ways.shape[1]]

    @property
    def root(self) -> NDArray:
        """Root of the covariances of c at `places`, shape (q, q)."""
        q, turn = len(self.places), self.turn
        root = np.zeros((q, q))
        k = self.ways.shape[1]
        root[self.entries] = turn @ self.point[k : k + turn.shape[1]]
        return root

    @property
    def shapes(self) -> NDArray:
        """Parameters of the family of rows, shape (t,)."""
        return self.point[self.ways.shape[1] + self.turn.shape[1] :]

    @property
    def turn(self) -> NDArray[np.float64]:
        """Derivatives of the entries of the root in their parameters."""
        return turn_of(self.blocks, self.shared)

    def start(
        self, spread: float, intercept: float = 0.0, shapes: NDArray | None = None
    ) -> QuadraturePopulation:
        """Return the population with these standard deviations in all directions.

        The mean is zero, but for the first coefficient, which is to be `intercept`.
        """
        rows, columns = self.entries
        entries = np.linalg.lstsq(self.turn, np.where(rows == columns, spread, 0.0))[0]
        mean = np.zeros(self.ways.shape[1])
        if intercept:
            first = intercept * np.eye(len(self.frame))[0]
            mean = np.linalg.lstsq(self.frame @ self.ways, first, rcond=None)[0]
        shapes = np.zeros(0) if shapes is None else shapes
        return self.at(np.concatenate([mean, entries, shapes]))

    def near(
        self, mean: NDArray, covariances: Sequence[NDArray], shapes: NDArray
    ) -> QuadraturePopulation:
        """Return the population of these coordinates that is near to one, as of `seen`.

        Variances are a little larger, for at zero the likelihood has slope zero in a root.

        Parameters
        ----------
        mean : ndarray of shape (p,)
        covariances : sequence of ndarray of shape (p, p)
            Of each level, from the top.
        shapes : ndarray of shape (t,)
        """
        T, ends = LEAST**2 * np.eye(len(self.places)), np.cumsum([0, *self.sizes])
        for level, own in zip(covariances, map(slice, ends[:-1], ends[1:]), strict=True):
            back = np.linalg.pinv(self.frame[:, self.places[own]])
            T[own, own] += back @ level @ back.T
        root = root_of_terms(T, np.arange(len(T)) if self.shared else self.blocks)
        entries = np.linalg.lstsq(self.turn, root[self.entries], rcond=None)[0]
        along = np.linalg.lstsq(self.frame @ self.ways, mean, rcond=None)[0]
        return self.at(np.concatenate([along, entries, shapes]))

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
            blocks = np.arange(last - first) if self.shared else self.blocks[first:last]
            for block in np.unique(blocks):
                own = np.ix_(blocks == block, blocks == block)
                root[own] = _away_from_zero(root[own])
            roots.append(self.frame[:, self.places[first:last]] @ root)
        return self.frame @ self.mean, roots

    def at_bounds(self) -> tuple[bool, bool]:
        """Whether a variance is zero, and whether one is too large for the quadrature."""
        sizes = np.linalg.svd(self.root, compute_uv=False)
        return bool(np.any(sizes < np.sqrt(LOW))), bool(np.any(sizes > np.sqrt(HIGH / 2)))


def _away_from_zero(root: NDArray) -> NDArray:
    """Return the root of a block, what is hardly above zero as zero."""
    if len(root) == 1:
        return np.where(np.abs(root) < np.sqrt(LOW), 0.0, np.abs(root))
    axes, sizes, _ = np.linalg.svd(root)
    return axes * np.where(sizes < np.sqrt(LOW), 0.0, sizes) if sizes[-1] < np.sqrt(LOW) else root
