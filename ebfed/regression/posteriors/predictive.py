"""Quantiles of new responses, whose linear predictors are normal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.families import ResponseFamily

__all__ = ["predictive_quantiles"]

# Nodes over the linear predictor, and rows at once.
N_NODES, AT_ONCE = 41, 20_000


def predictive_quantiles(
    family: ResponseFamily, shapes: NDArray, mean: NDArray, variance: NDArray, q: float
) -> NDArray[np.float64]:
    """Smallest response that a new one exceeds with probability 1 - q at most.

    Parameters
    ----------
    family : ResponseFamily
    shapes : ndarray of shape (t,)
    mean, variance : ndarray of shape (n_rows,)
        Those of the linear predictor.
    q : float in (0, 1)

    Returns
    -------
    ndarray of shape (n_rows,)

    Examples
    --------
    >>> from ebfed.regression.families import Poisson
    >>> mean, known = np.log([3.0, 100.0]), np.zeros(2)
    >>> predictive_quantiles(Poisson(), np.zeros(0), mean, known, 0.975)
    array([  7., 120.])
    """
    from scipy.special import roots_hermitenorm

    nodes, weights = roots_hermitenorm(N_NODES)
    weights = weights / weights.sum()
    out = np.empty(len(mean))
    for some in np.array_split(np.arange(len(mean)), 1 + len(mean) // AT_ONCE):
        z = mean[some, None] + np.sqrt(variance[some, None]) * nodes

        def below(y: NDArray, z: NDArray = z) -> NDArray:
            # a mean beyond the largest number is beyond any response
            return np.nan_to_num(family.below(y[:, None], z, shapes), nan=0.0) @ weights

        with np.errstate(over="ignore", invalid="ignore"):
            out[some] = _smallest(below, len(some), q, family.whole)
    return out


def _smallest(below: object, n: int, q: float, whole: bool) -> NDArray[np.float64]:
    """Bisect distribution functions of n responses from 0."""
    assert callable(below)
    low, high = np.full(n, -1.0 if whole else 0.0), np.ones(n)
    while (short := (below(high) < q) & np.isfinite(high)).any():
        low[short], high[short] = high[short], 2 * high[short]
    while True:
        middle = np.floor((low + high) / 2) if whole else (low + high) / 2
        # beyond 2**53 there is no float between some that differ by more than 1
        open_ = (low < middle) & (middle < high)
        if not whole:
            open_ &= high - low > 1e-12 * high
        if not open_.any():
            return high
        short = below(middle) < q
        low, high = np.where(open_ & short, middle, low), np.where(open_ & ~short, middle, high)
