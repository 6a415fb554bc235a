"""Mean and overdispersion of counts ``y_i`` of events, ``Poisson(E_i lambda_i)`` of gamma rates.

Overdispersion is the inverse of the gamma's shape; zero means that all groups have one rate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import negative_binomial_profile
from ebfed.likelihoods import Poisson
from ebfed.priors.beta_binomial import tally
from ebfed.priors.search import minimise, minimum_near

__all__ = ["averages", "maximise"]

# With more different exposures, a scan first uses averages of similar ones.
MOST, CELLS = 2000, 500


def maximise(rows: Poisson, times: NDArray, near: float | None = None) -> tuple[float, float]:
    """Mean and overdispersion of greatest negative binomial likelihood.

    The part of the likelihood that depends on single counts is a sum over the numbers that they
    exceed; the other needs the groups and events of each exposure only. It is concave in the
    logarithm of the mean, which is profiled out.

    Parameters
    ----------
    rows : Poisson of n different (counts, exposure) of one coordinate
    times : ndarray of shape (n,)
        How many groups have each.
    near : float, optional
        Overdispersion of similar data, from which the search begins; see `minimum_near`.

    Examples
    --------
    >>> rows = Poisson(np.array([[0], [2], [9], [4]]), np.array([1.0, 1.0, 2.0, 2.0]))
    >>> mean, dispersion = maximise(rows, np.ones(4))
    >>> round(mean, 2), round(1 / dispersion, 2)
    (2.35, 4.83)
    """
    counts = rows.counts[:, 0]
    if not counts.any():
        return 0.0, 0.0
    exceeded = tally(counts, times)
    exposure, codes = np.unique(rows.exposure, return_inverse=True)
    groups, events = np.bincount(codes, times), np.bincount(codes, times * counts)
    pooled = start = float(np.log(events.sum()) - np.log(groups @ exposure))

    def criterion(dispersion: float) -> tuple[float, float]:
        nonlocal start  # each step begins where the one before ended
        table = (exposure, groups, events)
        start, value, slope = negative_binomial_profile(dispersion, start, exceeded, *table)
        return -value, -slope

    rough = None
    if len(exposure) > MOST:
        similar = averages(exposure, groups, events)

        @np.vectorize(otypes=[float, float])
        def rough(dispersion: float) -> tuple[float, float]:
            _, value, slope = negative_binomial_profile(dispersion, pooled, exceeded, *similar)
            return -value, -slope

    best = minimum_near(criterion, near, takes_arrays=False) if times.sum() > 1 else 0.0
    if best is None:
        best = minimise(criterion, np.append(0.0, np.geomspace(1e-8, 1e4, 37)), rough)
    criterion(best)
    return float(np.exp(start)), best


def averages(
    exposure: NDArray, groups: NDArray, events: NDArray
) -> tuple[NDArray, NDArray, NDArray]:
    """Average similar exposures, and add up their groups and events."""
    logs = np.log(exposure)
    low, high = logs.min(), logs.max()
    cell = ((logs - low) / (high - low) * CELLS).astype(np.int64)
    many, total = np.bincount(cell, groups), np.bincount(cell, events)
    some = many > 0
    return (np.bincount(cell, groups * exposure)[some] / many[some], many[some], total[some])
