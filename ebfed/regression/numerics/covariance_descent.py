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

from ebfed import kernels
from ebfed.regression.numerics.quasi_newton import settled

__all__ = ["descend_covariances"]

# Fall of a step, twice, after which the expected curvature is not computed anew.
SMALL_FALL = 0.1

# Steps of which it is remembered how the slope turned.
MEMORY = 5

# Share of the fall before that a step is to fall at most, or the expected curvature is a poor one.
SLOW = 0.25


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
    places, ends = entries_of(blocks)
    value, slope = function(root)
    path: list[float] = [value]
    before, memory = (root, slope), np.zeros((2, MEMORY, places.shape[1]))
    fall, slow = np.inf, False
    for _ in range(1000):
        if fall > SMALL_FALL:  # after a small one it is about the same
            expected = curvature()
        enough = max(tolerance, 1e-14 * abs(value))
        given = root, slope, *before, memory, slow, expected, places, ends
        inverse, here, sloping, bends, ahead = kernels.scoring_step(*given)
        if inside := len(ahead) > 0:
            step = (ahead @ ahead.T)[places[0], places[1]] - here
        else:
            quadratic = here, sloping, bends
            step = kernels.bounded_entries(*quadratic, places, ends, enough) - here
        fall_before, fall = fall, float(-sloping @ step)
        slow = slow or fall > SLOW * fall_before
        if fall < enough:
            break
        length = 1.0
        while True:
            if length < 1 or not inside:
                ahead = kernels.covariance_root(here + length * step, places, ends)
            candidate = inverse.T @ ahead
            candidate *= limit / max(np.abs(candidate).max(), limit)
            reached, there = function(candidate)
            if reached <= value - 1e-4 * length * fall or length < 1e-10:
                break
            length /= 2
        if reached >= value:  # rounding is all that is left
            break
        before = root, slope
        root, value, slope = candidate, reached, there
        path.append(value)
    return root, path, settled(fall, value, left)


def entries_of(blocks: Sequence[slice]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the entries of blocks, and where blocks begin and the last ends.

    Examples
    --------
    >>> entries_of([slice(0, 1), slice(1, 3)])
    (array([[0, 1, 1, 2, 2],
           [0, 1, 2, 1, 2]]), array([0, 1, 3]))
    """
    places = [b.start + np.indices((b.stop - b.start,) * 2).reshape(2, -1) for b in blocks]
    return np.concatenate(places, axis=1), np.array([0, *(b.stop for b in blocks)])
