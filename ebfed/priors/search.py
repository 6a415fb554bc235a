"""Optima that are global over a grid and exact in between."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["maximise", "minimise"]


def minimise(criterion: Callable[[float], tuple[float, float]], grid: NDArray) -> float:
    """Scan a grid, then solve for a zero slope around its best point.

    Profile likelihoods of a variance can have several optima, one of them often at zero; a scan
    finds the right one, and solving for the slope gives it to full precision.

    Parameters
    ----------
    criterion : callable
        Returns value and slope.
    grid : increasing ndarray

    Returns
    -------
    float

    Examples
    --------
    >>> minimise(lambda t: ((t - 2) ** 2, 2 * (t - 2)), np.linspace(0, 10, 8))
    2.0
    """
    from scipy.optimize import brentq

    values = [criterion(t)[0] for t in grid]
    best = int(np.argmin(values))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    if not criterion(low)[1] < 0 < criterion(high)[1]:  # at an end of the range
        return float(grid[best])
    return float(brentq(lambda t: criterion(t)[1], low, high, xtol=1e-300, rtol=1e-14))


def maximise(
    function: Callable[[NDArray], float], start: NDArray, low: NDArray, high: NDArray
) -> tuple[NDArray, NDArray]:
    """Climb a smooth log-likelihood of few parameters within a box, by Newton steps.

    Derivatives are differences, directions of wrong curvature are climbed by their size, and steps
    are halved until they gain.

    Parameters
    ----------
    function : callable
        Of a point; in each coordinate it should bend over a distance of order one.
    start, low, high : ndarray of shape (p,)
        A maximum at the edge of the box is a normal answer.

    Returns
    -------
    point : ndarray of shape (p,)
    covariance : ndarray of shape (p, p)
        Inverse of the negative second derivatives there.

    Examples
    --------
    >>> point, covariance = maximise(
    ...     lambda x: -((x[0] - 1) ** 2) / 2 - (x[1] + 1) ** 2,
    ...     np.array([0.0, 3.0]),
    ...     np.array([-5.0, 0.0]),
    ...     np.array([5.0, 5.0]),
    ... )
    >>> point.round(6) + 0, covariance.round(6) + 0
    (array([1., 0.]), array([[1. , 0. ],
           [0. , 0.5]]))
    """
    x = np.clip(start, low, high)
    value = function(x)
    for _ in range(100):
        slope, values, vectors = _derivatives(function, x, low, high)
        held = ((x <= low) & (slope < 0)) | ((x >= high) & (slope > 0))
        free = np.flatnonzero(~held)
        if not len(free):
            break
        bend = ((vectors * values) @ vectors.T)[np.ix_(free, free)]
        sizes, axes = np.linalg.eigh(bend)
        step = np.zeros(len(x))
        step[free] = axes @ ((axes.T @ slope[free]) / np.maximum(np.abs(sizes), 1e-8))
        length = 1.0
        while True:
            candidate = np.clip(x + length * step, low, high)
            reached = function(candidate)
            if reached >= value + 1e-4 * slope @ (candidate - x) or length < 1e-10:
                break
            length /= 2
        moved, gained = np.abs(candidate - x).max(), reached - value
        if gained > 0:
            x, value = candidate, reached
        if moved < 1e-9 or gained < 1e-10:
            break
    _, values, vectors = _derivatives(function, x, low, high)
    # nothing is known in a direction without curvature
    return x, (vectors / np.maximum(values, 1e-8)) @ vectors.T


def _derivatives(
    function: Callable[[NDArray], float], x: NDArray, low: NDArray, high: NDArray
) -> tuple[NDArray, NDArray, NDArray]:
    """Slope, and eigenvalues and vectors of the negative second derivatives."""
    p = len(x)
    slope = np.empty(p)
    for j, unit in enumerate(1e-4 * np.eye(p)):
        ahead, behind = np.minimum(x + unit, high), np.maximum(x - unit, low)
        slope[j] = (function(ahead) - function(behind)) / (ahead - behind).sum()
    steps = 1e-3 * np.eye(p)
    bend = np.empty((p, p))
    for j, a in enumerate(steps):
        for k, b in enumerate(steps[: j + 1]):
            at = np.clip(x, low + a + b, high - a - b)  # off the edge
            corners = function(at + a + b) + function(at - a - b)
            corners -= function(at + a - b) + function(at - a + b)
            bend[j, k] = bend[k, j] = -corners / (4 * 1e-3**2)
    values, vectors = np.linalg.eigh(bend)
    return slope, values, vectors
