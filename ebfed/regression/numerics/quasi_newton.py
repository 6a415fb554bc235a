"""A quasi-Newton method that starts from a metric."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed import kernels

__all__ = ["descend", "settled"]


def descend(
    function: Callable[[NDArray], tuple[float, NDArray]],
    x: NDArray,
    metric: Callable[[], NDArray],
    limit: float,
    tolerance: float,
    left: float = 1e-4,
) -> tuple[NDArray, list[float], bool]:
    """Minimise by the quasi-Newton method of Broyden, Fletcher, Goldfarb and Shanno.

    Parameters
    ----------
    function : callable
        Function that returns value and slope, a new array.
    x : ndarray of shape (k,)
    metric : callable
        Function that returns about the inverse of the second derivatives at x, after the criterion
        was evaluated there. If it is exact, steps are Newton's.
    limit : float
        Largest distance of an entry from zero.
    tolerance : float
        Stop where a quadratic would fall by half of this.
    left : float
        Warn if it would fall by half of this at the end.

    Returns
    -------
    x : ndarray of shape (k,)
    path : list of float
        Values, falling.
    converged : bool
    """
    value, slope = function(x)
    path, inverse = [value], np.array(metric(), order="C")
    moved = turned = np.zeros_like(slope)
    for _ in range(1000):
        step, fall = kernels.quasi_newton_step(inverse, moved, turned, slope)
        if fall < max(tolerance, 1e-13 * abs(value)):
            break
        length = 1.0
        while True:
            candidate = np.minimum(np.maximum(x + length * step, -limit), limit)
            reached, there = function(candidate)
            if reached <= value - 1e-4 * length * fall or length < 1e-10:
                break
            length /= 2
        if reached >= value:  # rounding is all that is left
            break
        moved, turned = candidate - x, there - slope
        x, value, slope = candidate, reached, there
        path.append(value)
    return x, path, settled(fall, value, max(tolerance, left))


def settled(fall: float, value: float, left: float) -> bool:
    """Whether no more is left to fall, twice, but for rounding; warns otherwise."""
    ended = bool(fall <= left + 1e-12 * abs(value))
    if not ended:
        warnings.warn(
            f"the variances did not converge: the criterion may fall by another {fall / 2:.2g}.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return ended
