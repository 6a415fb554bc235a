"""Scale and dispersion of sums of squares whose variances are inverse gamma.

With precisions ``1 / sigma_i**2`` that are gamma of shape 1 / phi and mean ``exp(eta)``, a sum of
squares on d degrees of freedom has the likelihood of a negative binomial count of d / 2 events at
an exposure of half the sum. Counts here are halves of whole numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, polygamma, psi

from ebfed.likelihoods import LogVariance
from ebfed.likelihoods.distinct import number_rows
from ebfed.likelihoods.log_variance import FLOOR, inverse_trigamma
from ebfed.priors.negative_binomial import maximise_table

__all__ = ["halves", "log_rising", "maximise", "moments"]

# A sum of squares of zero, as a share of the average one: it adds a constant.
NONE = 1e-13
NOTHING = np.empty(0), np.empty(0, np.int64), np.empty(0)


def halves(rows: LogVariance) -> NDArray:
    """Halves of the sums of squares of one coordinate, positive, shape (n,).

    Examples
    --------
    >>> halves(LogVariance(np.array([[4.0], [2.0]]), np.array([3.0, 3.0])))
    array([2., 1.])
    """
    half = rows.squares[:, 0] / 2
    return np.maximum(half, NONE * half.mean())


def log_rising(y: NDArray, dispersion: ArrayLike) -> tuple[NDArray, NDArray]:
    """``log(Gamma(y + 1/phi) phi**y / Gamma(1/phi))`` and its slope in phi, shape (n,) each.

    Of several phi, shape (k, n).

    Examples
    --------
    >>> log_rising(np.array([0.0, 1.0, 2.0]), 1.0)[0].round(4)
    array([0.    , 0.    , 0.6931])
    """
    y, dispersion = np.asarray(y, float), np.asarray(dispersion)[..., None]
    small = y * dispersion < 1e-3
    a = 1 / np.maximum(dispersion, 1e-12)  # where it is less, the series is exact
    value = gammaln(a + y) - gammaln(a) - y * np.log(a)
    slope = y * a - a**2 * (psi(a + y) - psi(a))
    # these cancel where y is small beside a: the first terms of their series
    pairs = y * (y - 1)
    first, second, third = pairs / 2, pairs * (2 * y - 1) / 12, pairs**2 / 12
    series = dispersion * (first - dispersion * (second - dispersion * third))
    steep = first - dispersion * (2 * second - 3 * dispersion * third)
    return np.where(small, series, value), np.where(small, steep, slope)


def maximise(rows: LogVariance, times: NDArray) -> tuple[float, float]:
    """Logarithm of the mean precision and dispersion of greatest likelihood.

    Parameters
    ----------
    rows : LogVariance of n different messages on one coordinate, not all of them zero
    times : ndarray of shape (n,)
        How many clients have each.

    Examples
    --------
    >>> rows = LogVariance(np.array([[1.0], [9.0], [30.0]]), np.array([3.0, 3.0, 3.0]))
    >>> eta, dispersion = maximise(rows, np.ones(3))
    >>> round(eta, 3), round(dispersion, 3)
    (-0.925, 0.558)
    """
    half, events = halves(rows), times * rows.degrees / 2
    codes, first, _ = number_rows([rows.degrees])
    counts, of_each = rows.degrees[first] / 2, np.bincount(codes, times)

    def rising(dispersion: Any) -> tuple[Any, Any]:
        value, slope = log_rising(counts, dispersion)
        return value @ of_each, slope @ of_each

    return maximise_table(NOTHING, half, times, events, rising)


def moments(rows: LogVariance, times: NDArray) -> tuple[float, float]:
    """Logarithm of the mean precision and dispersion, by moments of log variances (Smyth 2004).

    Sample variances below a hundred thousandth of the median one are raised to it.

    Examples
    --------
    >>> rows = LogVariance(np.array([[1.0], [9.0], [90.0]]), np.array([3.0, 3.0, 3.0]))
    >>> eta, dispersion = moments(rows, np.ones(3))
    >>> round(eta, 3), round(dispersion, 3)
    (-0.378, 1.799)
    """
    half, n = rows.degrees / 2, times.sum()
    variances = rows.squares[:, 0] / rows.degrees
    order = np.argsort(variances)
    below = np.cumsum(times[order])
    middle = [variances[order][np.searchsorted(below, at)] for at in ((n + 1) // 2, n // 2 + 1)]
    logs = np.log(np.maximum(variances, FLOOR * np.mean(middle))) - psi(half) + np.log(half)
    centre = float(times @ logs / n)
    excess = times @ (logs - centre) ** 2 / max(n - 1, 1) - times @ polygamma(1, half) / n
    if not excess > 0:
        return -centre, 0.0
    shape = float(inverse_trigamma(np.array([excess]))[0])
    return float(-centre - psi(shape) + np.log(shape)), 1 / shape
