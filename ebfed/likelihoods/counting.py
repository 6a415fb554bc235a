"""Log-probabilities of Poisson and negative binomial counts, however large.

Logarithms of gamma functions of large numbers, and powers of large counts, leave no digits of what
they differ by. So probabilities are taken at a mean of y, from Stirling's series, and how much less
they are at another (Loader, 2000, Fast and accurate computation of binomial probabilities).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["POISSON", "log_masses", "log_peaks", "log_ways"]

# Size at which counts up to 2**53 are Poisson ones to all digits.
POISSON = 1e40
# Numbers at a time, which stay in a cache.
BLOCK = 2**16


def log_ways(counts: NDArray, sizes: NDArray) -> NDArray:
    """``log(size (size + 1) ... (size + y - 1) / y!)``, without loss of digits at large numbers.

    Examples
    --------
    >>> np.exp(log_ways(np.array([0, 1, 3]), np.array([2.0, 2.0, 2.0]))).round(6)
    array([1., 2., 4.])
    """
    some = np.maximum(counts, 1)
    more = some * np.log1p(sizes / some) + sizes * np.log1p(some / sizes)
    return np.where(counts > 0, log_peaks(some, sizes) + more, 0.0)


def log_masses(counts: NDArray, sizes: NDArray, means: NDArray) -> NDArray:
    """Log-probability of n counts of these sizes at k means of each, shape (n, k).

    Examples
    --------
    >>> log_masses(np.array([2]), np.array([3.0]), np.array([[2.0]])).round(4)
    array([[-1.5733]])
    """
    found, total = np.empty(means.shape), counts + sizes
    peaks, step = log_peaks(counts, sizes), max(BLOCK // max(means.shape[1], 1), 1)
    few = counts < sizes
    for rows, less in ((few, _less_at_few), (~few, _less_at_many)):
        places = np.flatnonzero(rows)
        for first in range(0, len(places), step):
            some = places[first : first + step]
            at = counts[some, None], sizes[some, None], total[some, None]
            found[some] = peaks[some, None] - less(*at, means[some])
    return found


def _less_at_few(y: NDArray, size: NDArray, total: NDArray, mean: NDArray) -> NDArray:
    """``total log((mean + size) / total) - y log(mean / y)``, with a total of y and the size.

    At small y, what the logarithms have in common is small.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # a mean below 0 has no probability
        share = np.log(mean / np.maximum(y, 1))
        share[y[:, 0] == 0] = 0.0
        share *= y
        mean -= y
        mean /= total
        np.log1p(mean, out=mean)
        mean *= total
        mean -= share
    return mean


def _less_at_many(y: NDArray, size: NDArray, total: NDArray, mean: NDArray) -> NDArray:
    """The same at large y: ``y log(mean / y)`` is taken from both."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = y / mean
        less = np.log(share)
        less *= -size
        share -= 1
        share *= size / total
        np.log1p(share, out=share)
        share *= total
        less += share
    less[mean == 0] = np.inf
    return less


def log_peaks(counts: NDArray, sizes: NDArray) -> NDArray:
    """Log-probability of counts of these sizes at a mean of y.

    Examples
    --------
    >>> log_peaks(np.array([0, 2]), np.array([3.0, 3.0])).round(4)  # log(6 * .6**3 * .4**2)
    array([ 0.    , -1.5733])
    """
    some = np.maximum(counts, 1)
    total = some + sizes
    beyond = _beyond_stirling(total) - _beyond_stirling(sizes) - _beyond_stirling(some)
    peaks = beyond - 0.5 * np.log(2 * np.pi * some * (1 + some / sizes))
    return np.where(counts > 0, peaks, 0.0)


def _beyond_stirling(x: NDArray) -> NDArray:
    """``log x! - (x + 1/2) log x + x - log(2 pi) / 2``, by its series from 16 on."""
    from scipy.special import gammaln

    low = np.minimum(x, 16.0)
    exact = gammaln(low + 1) - (low + 0.5) * np.log(low) + low - 0.5 * np.log(2 * np.pi)
    s = 1 / np.square(np.maximum(x, 16.0))
    series = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s / 1680))) * np.sqrt(s)
    return np.where(x < 16, exact, series)
