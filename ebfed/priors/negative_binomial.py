"""Mean and overdispersion of counts ``y_i`` of events, ``Poisson(E_i lambda_i)`` of gamma rates.

Overdispersion is the inverse of the gamma's shape; zero means that all groups have one rate.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import negative_binomial_profile
from ebfed.likelihoods import Poisson
from ebfed.priors.beta_binomial import tally
from ebfed.priors.search import minimise, minimum_near

__all__ = ["DISPERSIONS", "maximise", "maximise_table"]

# Where the likelihood is scanned.
DISPERSIONS = np.append(0.0, np.geomspace(1e-8, 1e4, 37))

# With more different exposures, a scan first uses averages of similar ones.
MOST, CELLS = 2000, 500

Tallies = tuple[NDArray, NDArray, NDArray]


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
    log_rate, best = maximise_table(exceeded, exposure, groups, events, near=near)
    return float(np.exp(log_rate)), best


def maximise_table(
    counts: Tallies,
    exposure: NDArray,
    groups: NDArray,
    events: NDArray,
    rising: Callable[[float], tuple[float, float]] = lambda dispersion: (0.0, 0.0),
    near: float | None = None,
) -> tuple[float, float]:
    """Logarithm of the mean and overdispersion of greatest likelihood.

    Parameters
    ----------
    counts, exposure, groups, events : see `negative_binomial_profile`
    rising : callable
        Further part of the log-likelihood, with its slope, which depends on the overdispersion
        only.
    near : float, optional
        As of `maximise`.
    """
    pooled = start = float(np.log(events.sum()) - np.log(groups @ exposure))
    table = (exposure, groups, events)

    def loss(dispersion: float, found: tuple[float, float, float]) -> tuple[float, float]:
        more, steeper = rising(dispersion)
        return -found[1] - more, -found[2] - steeper

    def criterion(dispersion: float) -> tuple[float, float]:
        nonlocal start  # each step begins where the one before ended
        found = negative_binomial_profile(dispersion, start, counts, *table)
        start = found[0]
        return loss(dispersion, found)

    rough = None
    if len(exposure) > MOST:
        similar = averages(*table)

        @np.vectorize(otypes=[float, float])
        def rough(dispersion: float) -> tuple[float, float]:
            found = negative_binomial_profile(dispersion, pooled, counts, *similar)
            return loss(dispersion, found)

    best = minimum_near(criterion, near, takes_arrays=False) if groups.sum() > 1 else 0.0
    if best is None:
        best = minimise(criterion, DISPERSIONS, rough)
    criterion(best)
    return start, best


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
