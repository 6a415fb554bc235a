"""Descent in covariances T of any kind, of one level or several, singular or not.

Where T is nearly singular, a root of T says little about where to go: the criterion bends along
with the root, and a method that learns its curvature takes hundreds of steps. In T itself it bends
about as expected. With the slope g and the expected curvature F at t0, the entries of T, a step of
Fisher scoring leads to the least of

    g'(t - t0) + (t - t0)' F (t - t0) / 2

among all T without negative eigenvalues. Where that is not the least of all, an interior-point
method finds it (Helmberg, Rendl, Vanderbei, Wolkowicz 1996), for which the criterion is not
evaluated. T may be singular, and leave that again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrs

from ebfed import kernels
from ebfed.regression.numerics.quasi_newton import settled
from ebfed.regression.numerics.roots import raised, sound_factor

__all__ = ["descend_covariances"]

# Curvatures of T below this share of the largest are raised to it.
FLAT = 1e-6

# Fall of a step, twice, after which the expected curvature is not computed anew.
SMALL_FALL = 0.1

# Steps of which it is remembered how the slope turned.
MEMORY = 2


def descend_covariances(
    function: Callable[[NDArray], tuple[float, NDArray]],
    root: NDArray,
    curvature: Callable[[], NDArray],
    blocks: Sequence[slice],
    limit: float,
    tolerance: float,
    left: float,
) -> tuple[NDArray, list[float], bool]:
    """Minimise a criterion over a covariance of each level.

    Parameters
    ----------
    function : callable
        Function of a root that returns the criterion, and its slope in T, shape (q, q).
    root : ndarray of shape (q, q)
        Where to start.
    curvature : callable
        Function that returns the expected second derivatives in the entries of the blocks of T,
        at the root where the criterion was evaluated last.
    blocks : sequence of slices
        Rows and columns of the levels' covariances.
    limit : float
        Largest distance of an entry of the root from zero.
    tolerance : float
        Stop where the criterion would fall by half of this.
    left : float
        Warn if it would fall by half of this at the end.

    Returns
    -------
    root : ndarray of shape (q, q)
    path : list of float
        Values, falling.
    converged : bool
    """
    space = _Space(blocks)
    value, slope = function(root)
    path: list[float] = [value]
    turns: list[tuple[NDArray, NDArray]] = []
    fall = np.inf
    for _ in range(1000):
        if fall > SMALL_FALL:  # after a small one it is about the same
            expected = curvature()
        bends, enough = expected, max(tolerance, 1e-14 * abs(value))
        for moved, turned in turns[-MEMORY:]:
            bends = _corrected(bends, moved, turned)
        axes, inverse = space.axes(bends)
        change = space.product(inverse, inverse)
        here, sloping = space.of(axes.T @ root), change @ space.flat(slope)
        step = space.least(here, sloping, change @ bends @ change.T, enough) - here
        fall = float(-sloping @ step)
        if fall < enough:
            break
        length = 1.0
        while True:
            candidate = inverse.T @ space.nearest(here + length * step)
            candidate *= limit / max(np.abs(candidate).max(), limit)
            reached, there = function(candidate)
            if reached <= value - 1e-4 * length * fall or length < 1e-10:
                break
            length /= 2
        if reached >= value:  # rounding is all that is left
            break
        turns.append((space.of(candidate) - space.of(root), space.flat(there - slope)))
        root, value, slope = candidate, reached, there
        path.append(value)
    return root, path, settled(fall, value, left)


def _corrected(bends: NDArray, moved: NDArray, turned: NDArray) -> NDArray:
    """Correct the curvature along a step by how the slope turned (Broyden 1970).

    With few groups, expected and true curvature differ, and the last steps would be many. Far from
    the minimum they differ more, and what is learned there is soon wrong.
    """
    along, found = bends @ moved, moved @ turned
    expected = moved @ along
    if not expected / 2 < found < 2 * expected:
        return bends
    return bends + np.outer(turned, turned) / found - np.outer(along, along) / expected


class _Space:
    """Symmetric matrices of blocks, shape (q, q), whose entries lie in a row, block by block."""

    def __init__(self, blocks: Sequence[slice]):
        self.blocks, self.q = blocks, blocks[-1].stop
        places = [b.start + np.indices((b.stop - b.start,) * 2).reshape(2, -1) for b in blocks]
        self.rows, self.columns = np.concatenate(places, axis=1)

    def flat(self, matrix: NDArray) -> NDArray:
        """Entries of a matrix."""
        return matrix[self.rows, self.columns]

    def of(self, root: NDArray) -> NDArray:
        """Entries of a matrix, from its root."""
        return self.flat(root @ root.T)

    def matrix(self, entries: NDArray) -> NDArray:
        """Matrix of these entries."""
        matrix = np.zeros((self.q, self.q))
        matrix[self.rows, self.columns] = entries
        return (matrix + matrix.T) / 2

    def product(self, left: NDArray, right: NDArray) -> NDArray:
        """What takes the entries of a matrix D to those of ``left D right'``."""
        rows, columns = self.rows, self.columns
        return left[rows[:, None], rows] * right[columns[:, None], columns]

    def nearest(self, entries: NDArray) -> NDArray:
        """Root of the nearest matrix without negative eigenvalues."""
        matrix, root = self.matrix(entries), np.zeros((self.q, self.q))
        for b in self.blocks:
            values, vectors = np.linalg.eigh(matrix[b, b])
            root[b, b] = vectors * np.sqrt(np.maximum(values, 0.0))
        return root

    def axes(self, bends: NDArray) -> tuple[NDArray, NDArray]:
        """Coordinates C in which ``C' T C`` bends about alike in all directions; their inverse.

        The curvature is about the sum of products of ``K_i = Z_i' V_i^-1 Z_i`` with itself; C C'
        is the sum of the K_i, weighted by their traces.
        """
        axes, inverse, at = np.zeros((self.q, self.q)), np.zeros((self.q, self.q)), 0
        for b in self.blocks:
            q = b.stop - b.start
            own = bends[at : at + q * q, at : at + q * q].reshape(q, q, q, q)
            values, vectors = np.linalg.eigh(np.einsum("adbd->ab", own))
            size = np.sqrt(raised(values, 1e-10))
            axes[b, b], inverse[b, b], at = vectors * size, (vectors / size).T, at + q * q
        return axes, inverse

    def least(self, here: NDArray, slope: NDArray, bends: NDArray, enough: float) -> NDArray:
        """Entries of a matrix without negative eigenvalues where a quadratic is least.

        It is known to a small share of what the quadratic falls, or of what is `enough`.
        """
        if (factor := sound_factor(bends, FLAT)) is not None:
            free = here - dpotrs(factor, slope, lower=True)[0]
        else:
            values, vectors = np.linalg.eigh(bends)
            bends = (vectors * raised(values, FLAT)) @ vectors.T
            free = here - vectors @ (vectors.T @ slope / raised(values, FLAT))
        axes = np.linalg.eigvalsh(self.matrix(free))
        if axes[0] >= 0:
            return free
        size, steepest = max(np.abs(axes).max(), np.abs(here).max()), np.linalg.eigvalsh(bends)[-1]
        given = steepest, size, enough, self.rows, self.columns, self.q
        X, S = kernels.least_covariance(here, slope, bends, *given)
        # one step along the slope, by which small eigenvalues become zero
        return self.of(self.nearest(self.flat(X - S / steepest)))
