"""Scale and dispersion of sums of squares whose variances are inverse gamma.

With precisions ``1 / sigma_i**2`` that are gamma of shape 1 / phi and mean ``exp(eta)``, a sum of
squares on d degrees of freedom has the likelihood of a negative binomial count of d / 2 events at
an exposure of half the sum. Counts here are halves of whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.likelihoods import LogVariance
from ebfed.likelihoods.distinct import number_rows
from ebfed.likelihoods.log_variance import FLOOR, inverse_trigamma
from ebfed.priors.count_regression import Counts
from ebfed.priors.exploration import TILT
from ebfed.priors.negative_binomial import maximise_table
from ebfed.priors.plausible_regression import GammaRegression

__all__ = ["Squares", "SquaresRegression", "halves", "log_rising", "maximise", "moments"]

# Scale of Cauchy's density, in standard deviations of a typical log sample variance.
WIDE = 5.0
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
    from scipy.special import gammaln, psi

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
    from scipy.special import polygamma, psi

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


@dataclass(frozen=True)
class Squares(Counts):
    """Sums of squares, rows of a design, and how many groups have each; see `Counts`."""

    def rising(self, dispersion: float) -> tuple[NDArray, NDArray]:
        """``log(Gamma(y + 1/phi) phi**y / Gamma(1/phi))`` and its slope in phi, shape (n,) each."""
        return log_rising(self.counts, dispersion)


class SquaresRegression(GammaRegression):
    """Sums of squares whose precisions are gammas of mean ``exp(W beta)``; see `CountRegression`.

    `events` are halves of degrees of freedom, and `size` are halves of the sums.

    The prior of the dispersion is that of a standard deviation, here of the logarithm of variances:
    t has Cauchy's density of five times s, the standard deviation of a typical log sample variance,
    times ``(t**2 / (t**2 + s**2))**(1/5)``. It is nearly flat in t, as for normal populations: the
    prior of counts is for a spread beside their mean, and would hold that of variances too small.
    """

    def log_spread_prior(self, log_dispersion: NDArray) -> NDArray:
        """Log-density of the log-dispersion up to a constant, shape (k,)."""
        from scipy.special import polygamma

        shape = np.exp(-log_dispersion)
        squared, noise = polygamma(1, shape), float(polygamma(1, self.events.mean()))
        slope = -polygamma(2, shape) * shape / (2 * np.sqrt(squared))
        wide = np.log1p(squared / (WIDE**2 * noise))
        return np.log(slope) + TILT * np.log(squared / (squared + noise)) - wide

    def log_likelihood(self, predictor: NDArray, dispersion: NDArray) -> NDArray:
        """Log-likelihood of sums of squares."""
        from scipy.special import gammaln

        counts, codes = np.unique(self.events, return_inverse=True)
        of_each = np.bincount(codes)
        shape, scale = 1 / dispersion, dispersion[:, None] * np.exp(predictor)
        rising = gammaln(counts + shape[:, None]) - gammaln(shape)[:, None]
        terms = self.events * np.log(scale)
        terms -= (self.events + shape[:, None]) * np.log1p(scale * self.size)
        return rising @ of_each + terms.sum(axis=1)
