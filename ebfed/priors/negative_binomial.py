"""Mean and overdispersion of counts ``y_i`` of events, ``Poisson(E_i lambda_i)`` of gamma rates.

Overdispersion is the inverse of the gamma's shape; zero means that all groups have one rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, polygamma, psi

from ebfed.kernels import (
    interpolating_weights,
    negative_binomial_profiles,
    negative_binomial_values,
)
from ebfed.likelihoods import LogVariance, Poisson
from ebfed.likelihoods.counting import POISSON, log_masses
from ebfed.likelihoods.distinct import number_rows
from ebfed.likelihoods.log_variance import FLOOR, inverse_trigamma
from ebfed.priors.beta_binomial import tally
from ebfed.priors.search import minimise, minimum_near

__all__ = [
    "DISPERSIONS",
    "halves",
    "log_likelihood_of",
    "log_masses_of",
    "log_rising",
    "maximise",
    "maximise_squares",
    "maximise_table",
    "moments_of_squares",
]

# Where the likelihood is scanned.
DISPERSIONS = np.append(0.0, np.geomspace(1e-8, 1e4, 37))

# More different exposures are replaced by Chebyshev's nodes in cells of their logarithms. As
# functions of logarithms, all that is added up has singularities no nearer than pi: with so many
# nodes in cells of this width, sums are those over all exposures to the last digits.
MOST, WIDTH, N_NODES = 400, 0.25, 10

# Counts from which sums over the numbers that they exceed lose digits of what they differ by.
LARGE = 10**8

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
    if not rows.counts.any():
        return 0.0, 0.0
    if rows.counts.max() >= LARGE:
        return _maximise_large(rows, times)
    log_rate, best = maximise_table(*_table(rows, times), near=near)
    return float(np.exp(log_rate)), best


def _table(rows: Poisson, times: NDArray) -> tuple[Tallies, NDArray, NDArray, NDArray]:
    """Numbers that counts exceed, and groups and events of each exposure."""
    counts = rows.counts[:, 0]
    exceeded = tally(counts, times)
    exposure, groups, events = rows.exposure, times, times * counts
    if len(exposure) <= MOST:
        exposure, codes = np.unique(exposure, return_inverse=True)
        return exceeded, exposure, np.bincount(codes, groups), np.bincount(codes, events)
    return exceeded, exposure, groups, events


def log_likelihood_of(rows: Poisson, times: NDArray) -> Callable[[NDArray, NDArray], NDArray]:
    """Log-likelihood of means and overdispersions, shape (k,) each, up to a constant.

    Examples
    --------
    >>> rows = Poisson(np.array([[0], [2], [9], [4]]), np.array([1.0, 1.0, 2.0, 2.0]))
    >>> values = log_likelihood_of(rows, np.ones(4))(np.array([2.35, 2.35]), np.array([0.0, 0.2]))
    >>> float(np.diff(values)[0].round(2))
    0.3
    """
    if rows.counts.max(initial=0) >= LARGE:
        return lambda mean, dispersion: np.array(
            [
                times @ log_masses_of(rows.counts[:, 0], rows.exposure * one, phi)
                for one, phi in zip(mean, dispersion, strict=True)
            ]
        )
    exceeded, exposure, groups, events = _table(rows, times)
    table = (exposure, groups, events)
    if len(exposure) > MOST:
        table = condensed(*table)
    return lambda mean, dispersion: negative_binomial_values(
        np.log(mean), dispersion, exceeded, *table
    )


def _maximise_large(rows: Poisson, times: NDArray) -> tuple[float, float]:
    """Return what `maximise` does, from the distances of large counts from their means.

    With a the shape, M the mean of a count y and ``d = (y - M) / (a + M)``, the slope in a is
    ``g(a) - g(a + y) + log(1 + d) - d``, where ``g(x) = log x - psi(x)``: no part is as large as
    the counts are.
    """
    y, exposure = rows.counts[:, 0].astype(float), rows.exposure
    mean = float(times @ y / (times @ exposure))

    def criterion(dispersion: float) -> tuple[float, float]:
        nonlocal mean
        for _ in range(200):  # Newton's method, as for smaller counts
            expected = exposure * mean
            share = 1 / (1 + dispersion * expected)
            gain = times @ ((y - expected) * share)
            bend = times @ (expected * (1 + dispersion * y) * share**2)
            step = float(np.clip(gain / bend, -1.0, 1.0))
            mean *= np.exp(step)
            if abs(step) < 1e-15:
                break
        expected = exposure * mean
        value = float(times @ log_masses_of(y, expected, dispersion))
        if dispersion == 0:
            return -value, -float(times @ ((y - expected) ** 2 - y)) / 2
        a = 1 / dispersion
        by_shape = _below_log(np.full(len(y), a)) - _below_log(a + y)
        by_shape += _log_less((y - expected) / (a + expected))
        return -value, float(times @ by_shape) * a**2

    if times.sum() <= 1:
        return mean, 0.0
    lowest = 1e-3 / max(mean * float(exposure.max()), 1.0)
    best = minimise(criterion, np.append(0.0, np.geomspace(lowest, 1e4, 60)))
    criterion(best)
    return mean, best


def log_masses_of(counts: NDArray, expected: NDArray, dispersion: float) -> NDArray:
    """Negative binomial log-probabilities of n counts, exact down to a dispersion of zero.

    Of one mean of each, or of several, shape (k, n).
    """
    sizes = np.full(len(counts), 1 / max(dispersion, 1 / POISSON))
    return log_masses(counts, sizes, np.atleast_2d(expected).T).T.reshape(expected.shape)


def _below_log(x: NDArray) -> NDArray:
    """``log x - psi(x)``, by its series from 16 on."""
    low, s = np.minimum(x, 16.0), 1 / np.maximum(x, 16.0)
    series = s * (0.5 + s * (1 / 12 - s**2 * (1 / 120 - s**2 / 252)))
    return np.where(x < 16, np.log(low) - psi(low), series)


def _log_less(x: NDArray) -> NDArray:
    """``log(1 + x) - x``, by its series near 0."""
    small = np.where(np.abs(x) < 1e-3, x, 0.0)
    series = -(small**2) * (1 / 2 - small * (1 / 3 - small * (1 / 4 - small / 5)))
    return np.where(np.abs(x) < 1e-3, series, np.log1p(x) - x)


def maximise_table(
    counts: Tallies,
    exposure: NDArray,
    groups: NDArray,
    events: NDArray,
    rising: Callable[[Any], tuple[Any, Any]] = lambda dispersion: (0.0, 0.0),
    near: float | None = None,
) -> tuple[float, float]:
    """Logarithm of the mean and overdispersion of greatest likelihood.

    Parameters
    ----------
    counts, exposure, groups, events : see `negative_binomial_profiles`
    rising : callable
        Further part of the log-likelihood, with its slope, which depends on the overdispersion
        only: a number, or an array of several.
    near : float, optional
        As of `maximise`.
    """
    start = float(np.log(events.sum()) - np.log(groups @ exposure))
    table = (exposure, groups, events)
    if len(exposure) > MOST:
        table = condensed(*table)

    def criterion(dispersion: Any) -> tuple[Any, Any]:
        nonlocal start  # each step begins where the one before ended
        found = negative_binomial_profiles(np.atleast_1d(dispersion), start, counts, *table)
        start = float(found[0, -1])
        _, value, slope = found.reshape(3, *np.shape(dispersion))
        more, steeper = rising(dispersion)
        return -value - more, -slope - steeper

    best = minimum_near(criterion, near, takes_arrays=False) if groups.sum() > 1 else 0.0
    if best is None:
        best = minimise(criterion, DISPERSIONS, criterion)
    criterion(best)
    return start, best


def condensed(
    exposure: NDArray, groups: NDArray, events: NDArray
) -> tuple[NDArray, NDArray, NDArray]:
    """Return fewer exposures with as many groups and events; not all of these are positive.

    Examples
    --------
    >>> exposure = np.linspace(1, 20, 5000)
    >>> fewer, groups, events = condensed(exposure, np.ones(5000), np.ones(5000))
    >>> len(fewer), (groups @ np.log1p(fewer)).round(6), np.log1p(exposure).sum().round(6)
    (120, np.float64(11459.754769), np.float64(11459.754769))
    """
    logs = np.log(exposure)
    low = float(logs.min())
    n_cells = int((float(logs.max()) - low) / WIDTH) + 1
    nodes, groups_, events_ = interpolating_weights(
        logs, groups, events, low, WIDTH, n_cells, N_NODES
    )
    if len(nodes) > len(exposure):
        return exposure, groups, events
    return np.exp(nodes), groups_, events_


# Sums of squares: where precisions ``1 / sigma_i**2`` are gamma of shape 1 / phi and mean
# ``exp(eta)``, a sum on d degrees of freedom has the likelihood of a negative binomial count of
# d / 2 events at an exposure of half the sum. Counts are then halves of whole numbers.

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


def maximise_squares(rows: LogVariance, times: NDArray) -> tuple[float, float]:
    """Logarithm of the mean precision and dispersion of greatest likelihood.

    Parameters
    ----------
    rows : LogVariance of n different messages on one coordinate, not all of them zero
    times : ndarray of shape (n,)
        How many clients have each.

    Examples
    --------
    >>> rows = LogVariance(np.array([[1.0], [9.0], [30.0]]), np.array([3.0, 3.0, 3.0]))
    >>> eta, dispersion = maximise_squares(rows, np.ones(3))
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


def moments_of_squares(rows: LogVariance, times: NDArray) -> tuple[float, float]:
    """Logarithm of the mean precision and dispersion, by moments of log variances (Smyth 2004).

    Sample variances below a hundred thousandth of the median one are raised to it.

    Examples
    --------
    >>> rows = LogVariance(np.array([[1.0], [9.0], [90.0]]), np.array([3.0, 3.0, 3.0]))
    >>> eta, dispersion = moments_of_squares(rows, np.ones(3))
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
