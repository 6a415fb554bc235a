"""Descent to the minimum of a criterion, by steps of which each kind learns how it bends.

Steps of Broyden, Fletcher, Goldfarb and Shanno start from a metric. They are of no use in a root of
a covariance T of any kind, of one level or several, where that is nearly singular: the criterion
bends along with the root, and a method that learns its curvature takes hundreds of steps. In T
itself it bends about as expected. With the slope g and the expected curvature F at t0, the entries
of T, a step of Fisher scoring leads to the least of

    g'(t - t0) + (t - t0)' F (t - t0) / 2

among all T without negative eigenvalues. Where that is not the least of all, an interior-point
method finds it (Helmberg, Rendl, Vanderbei, Wolkowicz 1996), for which the criterion is not
evaluated. T may be singular, and leave that again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed import kernels

__all__ = ["CovarianceSteps", "QuasiNewtonSteps", "are_few", "descend", "entries_of"]

# Fall of a step, twice, after which the expected curvature is not computed anew.
SMALL_FALL = 0.1
# Steps of which it is remembered how the slope turned.
MEMORY = 5
# Share of the fall before that a step is to fall at most, or the expected curvature is a poor one.
SLOW = 0.25
# Numbers of groups, and of rows of the smallest, below which a likelihood may have two maxima.
FEW, FEW_ROWS = 30, 5


def descend(
    function: Callable[[NDArray], tuple[float, NDArray]],
    x: NDArray,
    steps: QuasiNewtonSteps | CovarianceSteps,
    tolerance: float,
    left: float = 1e-4,
) -> tuple[NDArray, list[float], bool]:
    """Minimise a criterion.

    Parameters
    ----------
    function : callable
        Function that returns value and slope, a new array.
    x : ndarray
        Where to start.
    steps : QuasiNewtonSteps or CovarianceSteps
        Of this descent alone: they learn from where each step led.
    tolerance : float
        Stop where a quadratic would fall by half of this.
    left : float
        Warn if it would fall by half of this at the end.

    Returns
    -------
    x : ndarray
    path : list of float
        Values, falling.
    converged : bool
    """
    value, slope = function(x)
    path = [value]
    for _ in range(1000):
        enough = max(tolerance, steps.rounding * abs(value))
        fall, ahead = steps.ahead(x, slope, enough)
        if fall < enough:
            break
        length = 1.0
        while True:
            candidate = ahead(length)
            reached, there = function(candidate)
            if reached <= value - 1e-4 * length * fall or length < 1e-10:
                break
            length /= 2
        if reached >= value:  # rounding is all that is left
            break
        x, value, slope = candidate, reached, there
        path.append(value)
    ended = bool(fall <= left + 1e-12 * abs(value))
    if not ended:
        warnings.warn(
            f"the variances did not converge: the criterion may fall by another {fall / 2:.2g}.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return x, path, ended


class QuasiNewtonSteps:
    """Steps of Broyden, Fletcher, Goldfarb and Shanno, in any parameters.

    Parameters
    ----------
    metric : callable
        Function that returns about the inverse of the second derivatives at the start, after the
        criterion was evaluated there. If it is exact, steps are Newton's.
    limit : float
        Largest distance of an entry from zero.
    """

    rounding = 1e-13  # share of the criterion

    def __init__(self, metric: Callable[[], NDArray], limit: float):
        self.metric, self.limit = metric, limit
        self.inverse: NDArray | None = None

    def ahead(
        self, x: NDArray, slope: NDArray, enough: float
    ) -> tuple[float, Callable[[float], NDArray]]:
        """Return twice what a quadratic falls by in a step from x, and what a share of it leads to.

        The criterion was evaluated at x last. If it falls by less than `enough`, none is taken.
        """
        if self.inverse is None:
            self.inverse, self.before = np.array(self.metric(), order="C"), (x, slope)
        moved, turned = x - self.before[0], slope - self.before[1]
        step, fall = kernels.quasi_newton_step(self.inverse, moved, turned, slope)
        self.before = x, slope
        limit = self.limit
        return fall, lambda length: np.minimum(np.maximum(x + length * step, -limit), limit)


class CovarianceSteps:
    """Steps of Fisher scoring in covariances of levels; x is a root of them, slopes are in T.

    Parameters
    ----------
    curvature : callable
        Function that returns the expected second derivatives in the entries of the blocks of T,
        at the root where the criterion was evaluated last.
    blocks : sequence of slices
        Rows and columns of the levels' covariances.
    limit : float
        Largest distance of an entry of the root from zero.
    """

    rounding = 1e-14  # share of the criterion

    def __init__(self, curvature: Callable[[], NDArray], blocks: Sequence[slice], limit: float):
        self.curvature, self.limit = curvature, limit
        self.places, self.ends = entries_of(blocks)
        self.memory = np.zeros((2, MEMORY, self.places.shape[1]))
        self.before: tuple[NDArray, NDArray] | None = None
        self.fall, self.slow = np.inf, False

    def ahead(
        self, x: NDArray, slope: NDArray, enough: float
    ) -> tuple[float, Callable[[float], NDArray]]:
        """Return what `QuasiNewtonSteps.ahead` does."""
        places, ends, before = self.places, self.ends, self.before or (x, slope)
        if self.fall > SMALL_FALL:  # after a small one it is about the same
            self.expected = self.curvature()
        given = x, slope, *before, self.memory, self.slow, self.expected, places, ends
        inverse, here, sloping, bends, whole = kernels.scoring_step(*given)
        if inside := len(whole) > 0:
            step = (whole @ whole.T)[places[0], places[1]] - here
        else:
            quadratic = here, sloping, bends
            step = kernels.bounded_entries(*quadratic, places, ends, enough) - here
        fall = float(-sloping @ step)
        self.slow = self.slow or fall > SLOW * self.fall
        self.fall, self.before = fall, (x, slope)

        def reached(length: float) -> NDArray:
            root = whole
            if length < 1 or not inside:
                root = kernels.covariance_root(here + length * step, places, ends)
            candidate = inverse.T @ root
            candidate *= self.limit / max(np.abs(candidate).max(), self.limit)
            return candidate

        return fall, reached


def are_few(n: NDArray) -> bool:
    """Whether groups with these numbers of rows are few, and the smallest has few rows.

    Such a group may be far from the others, and be taken for a scatter of rows at one maximum of
    the likelihood, below another.

    Examples
    --------
    >>> are_few(np.array([3, 7, 1])), are_few(np.array([20, 28])), are_few(np.ones(31))
    (True, False, False)
    """
    return len(n) <= FEW and bool(n.min() < FEW_ROWS)


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
