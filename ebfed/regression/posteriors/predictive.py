"""Averages and quantiles of responses whose linear predictors are normal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.families import ResponseFamily

__all__ = [
    "AT_LIMIT",
    "averaged_variance",
    "predictive_interval",
    "predictive_quantiles",
    "variance_of_mean",
]

# Nodes over the linear predictor, and rows at once.
N_NODES, AT_ONCE = 41, 20_000
# Variance of a linear predictor above which its coefficients are at a limit.
AT_LIMIT = 50.0**2


def averaged_variance(variance: NDArray, of_mean: NDArray) -> NDArray[np.float64]:
    """Variance of linear predictors over which responses are averaged.

    A column that separates classes, or has no events, has a coefficient near plus or minus infinity
    and an error of hundreds. Its likelihood is not normal: it is flat beyond the estimate, and the
    responses that it allows are those of the limit. An average over a normal law would have
    probabilities near one half and infinite counts for them; such rows have the mean response of
    the estimate itself.

    Parameters
    ----------
    variance : ndarray of shape (n_rows,)
        Those of the linear predictors, with that of the coefficients of the mean.
    of_mean : ndarray of shape (n_rows,)
        Those of the coefficients of the mean alone.

    Examples
    --------
    >>> averaged_variance(np.array([0.5, 1e6]), np.array([0.25, 9e5]))
    array([0.5, 0. ])
    """
    return np.where(of_mean > AT_LIMIT, 0.0, variance)


def variance_of_mean(rows: NDArray, mean_covariance: NDArray) -> NDArray[np.float64]:
    """Variance of what the mean of the population has in rows.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, p)
    mean_covariance : ndarray of shape (p, p)
        Of the coefficients of the mean; NaN of those that are not identified.
    """
    return np.einsum("np,pq,nq->n", rows, np.nan_to_num(mean_covariance), rows)


def predictive_interval(
    family: ResponseFamily,
    shapes: NDArray,
    mean: NDArray,
    variance: NDArray,
    level: float,
    of_rows: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Interval for new responses, or for their means, of a normal linear predictor.

    Parameters
    ----------
    family, shapes, mean, variance
        As of `predictive_quantiles`.
    level : float in (0, 1)
    of_rows : bool
        Whether it is to hold responses rather than means.
    """
    from scipy.special import ndtri

    def end(q: float) -> NDArray[np.float64]:
        if of_rows:
            return predictive_quantiles(family, shapes, mean, variance, q)
        return family.inverse(mean + ndtri(q) * np.sqrt(variance), shapes)

    return end((1 - level) / 2), end((1 + level) / 2)


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
    out, known = np.full(len(mean), np.nan), np.flatnonzero(~np.isnan(mean))
    for some in np.array_split(known, 1 + len(known) // AT_ONCE):
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
