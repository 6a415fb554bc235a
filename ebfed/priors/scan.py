"""Minimise a smooth function of one nonnegative number, global over a grid, exact in between."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["minimise"]


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
