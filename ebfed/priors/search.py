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
    function: Callable[[NDArray], float], starts: list[NDArray], low: NDArray, high: NDArray
) -> tuple[NDArray, NDArray]:
    """Maximise a smooth log-likelihood over a box, from the best of several starts.

    Parameters
    ----------
    function : callable
        Of a point; its scale in each coordinate should be of order one.
    starts : list of ndarray of shape (p,)
    low, high : ndarray of shape (p,)
        The box; a maximum at its edge is a normal answer.

    Returns
    -------
    point : ndarray of shape (p,)
    covariance : ndarray of shape (p, p)
        Inverse of the negative second derivatives there.

    Examples
    --------
    >>> point, covariance = maximise(
    ...     lambda x: -((x[0] - 1) ** 2) / 2 - (x[1] + 1) ** 2,
    ...     [np.array([0.0, 3.0])],
    ...     np.array([-5.0, 0.0]),
    ...     np.array([5.0, 5.0]),
    ... )
    >>> point.round(6) + 0, covariance.round(6) + 0
    (array([1., 0.]), array([[1. , 0. ],
           [0. , 0.5]]))
    """
    from scipy.optimize import minimize

    def slope(x: NDArray) -> NDArray:
        return np.array(
            [-_difference(function, x, unit, low, high) for unit in 1e-5 * np.eye(len(x))]
        )

    start = max((np.clip(x, low, high) for x in starts), key=function)
    result = minimize(
        lambda x: -function(x),
        start,
        jac=slope,
        method="L-BFGS-B",
        bounds=np.stack([low, high], axis=1),
        options={"ftol": 1e-15, "gtol": 1e-6, "maxiter": 200},
    )
    x, steps = result.x, 1e-3 * np.eye(len(start))
    bend = -np.array(
        [[_second_difference(function, x, a, b, low, high) for b in steps] for a in steps]
    )
    values, vectors = np.linalg.eigh(bend)
    # nothing is known in a direction without curvature
    return x, (vectors / np.maximum(values, 1e-8)) @ vectors.T


def _difference(
    function: Callable[[NDArray], float], x: NDArray, unit: NDArray, low: NDArray, high: NDArray
) -> float:
    """Slope by a difference that stays in the box."""
    ahead, behind = np.minimum(x + unit, high), np.maximum(x - unit, low)
    return (function(ahead) - function(behind)) / (ahead - behind).sum()


def _second_difference(
    function: Callable[[NDArray], float],
    x: NDArray,
    a: NDArray,
    b: NDArray,
    low: NDArray,
    high: NDArray,
) -> float:
    """Mixed second derivative by differences around a point moved off the edge."""
    x = np.clip(x, low + a + b, high - a - b)
    corners = function(x + a + b) - function(x + a - b) - function(x - a + b)
    return (corners + function(x - a - b)) / (4 * a.sum() * b.sum())
