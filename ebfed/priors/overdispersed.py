"""Mean and dispersion of rates whose counts scatter more than Poisson noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
from numpy.polynomial.chebyshev import chebfit, chebval
from numpy.typing import NDArray
from scipy.special import polygamma, psi

from ebfed.likelihoods import NegativeBinomial
from ebfed.likelihoods.counting import POISSON
from ebfed.priors.search import maximise as climb

__all__ = ["log_likelihood_of", "maximise"]

# Dispersions from which the search may start, beside that of moments.
STARTS = (0.0, 0.05, 1.0)
# Step of integrals, in widths of integrands.
FINE = 0.5
# Of the likelihood of other populations: such steps; relative error of a mean that is known well,
# dispersions at which it is found then, and errors of the dispersion up to the largest of these.
SMOOTH, WELL, N_NODES, FAR = 0.75, 0.02, 10, 10.0
# Dispersions below lose digits in derivatives: these are then by differences.
LEAST = 1e-6


def maximise(rows: NegativeBinomial, times: NDArray) -> tuple[NDArray, NDArray]:
    """Mean and dispersion of greatest likelihood of a gamma population, and their covariance.

    Parameters
    ----------
    rows : NegativeBinomial of n different messages on one coordinate
    times : ndarray of shape (n,)
        How many clients have each.

    Returns
    -------
    point : ndarray of shape (2,)
    covariance : ndarray of shape (2, 2)

    Examples
    --------
    >>> counts = np.array([[0], [2], [9], [4], [30]])
    >>> rows = NegativeBinomial(counts, np.ones(5), np.full((5, 1), 4.0))
    >>> maximise(rows, np.ones(5))[0].round(3)
    array([9.192, 1.409])
    """
    mean = max(float(times @ rows.counts[:, 0]), 0.5) / float(times @ rows.exposure)
    starts = [*STARTS, _moments(rows, times, mean)]
    integrals = lru_cache(maxsize=1)(partial(_integrals, rows))

    def height(mean: float, dispersion: float) -> float:
        found = integrals(mean, dispersion, FINE)
        return float(times @ rows.gamma_marginal(mean, dispersion, found))

    dispersion = max(starts, key=lambda phi: _rough(rows, times, mean, phi))
    unit = np.array([mean, dispersion + 0.05]) / 3

    def derivatives(x: NDArray) -> tuple[NDArray, NDArray] | None:
        mean, dispersion = map(float, x)
        if 0 < dispersion < LEAST:
            return None
        if dispersion == 0:
            return _without_spread(rows, times, mean)
        return _derivatives(
            times @ integrals(mean, dispersion, FINE), times.sum(), mean, dispersion
        )

    low, high = np.array([1e-9 * mean, 0.0]), np.array([1e3 * mean, 1e4])
    start = np.array([mean, dispersion])
    return climb(lambda x: height(*map(float, x)), start, low, high, derivatives, unit)


def log_likelihood_of(
    rows: NegativeBinomial, times: NDArray
) -> Callable[[NDArray, NDArray], NDArray]:
    """Log-likelihood of means and dispersions, shape (k,) each, up to a constant.

    Where the mean is known well, it is found at some dispersions only, with its derivatives in the
    mean at the best one. In the mean it is then close to ``A log(mean) - C mean``, as of Poisson
    counts; A, C and the height are polynomials of the dispersion in between.
    """
    (mean, dispersion), covariance = maximise(rows, times)
    if not covariance[0, 0] < (WELL * mean) ** 2:
        return lambda means, dispersions: np.array(
            [
                times @ rows.gamma_marginal(one, phi, _integrals(rows, one, phi, SMOOTH))
                for one, phi in zip(means, dispersions, strict=True)
            ]
        )

    def figures(phi: float) -> NDArray:
        """Height, A and C at a dispersion."""
        found = rows.gamma_integrals(mean, phi, SMOOTH)
        height = times @ rows.gamma_marginal(mean, phi, found)
        slope, second = _derivatives(times @ found, times.sum(), mean, phi)
        events = -(mean**2) * second[0, 0]
        return np.array([height, events, events / mean - slope[0]])

    highest = dispersion + FAR * np.sqrt(covariance[1, 1])
    line = np.cos((np.arange(N_NODES) + 0.5) * np.pi / N_NODES)
    table = chebfit(line, [figures(highest * (1 + x) / 2) for x in line], N_NODES - 1)

    def log_likelihood(means: NDArray, dispersions: NDArray) -> NDArray:
        inside = np.minimum(dispersions, highest)
        height, events, exposure = chebval(2 * inside / highest - 1, table)
        height = height + events * np.log(means / mean) - exposure * (means - mean)
        return height - FAR**2 * (dispersions - inside) / highest

    return log_likelihood


def _moments(rows: NegativeBinomial, times: NDArray, mean: float) -> float:
    """Dispersion by the method of moments, not negative."""
    expected, sizes = rows.exposure * mean, rows.sizes[:, 0]
    noise = expected * (1 + expected / sizes)
    excess = times @ ((rows.counts[:, 0] - expected) ** 2 - noise)
    return max(float(excess / (times @ (expected**2 * (1 + 1 / sizes)))), 0.0)


def _rough(rows: NegativeBinomial, times: NDArray, mean: float, dispersion: float) -> float:
    """Log-likelihood as if counts were negative binomial of their mean and variance."""
    sizes = np.minimum(rows.sizes, POISSON)
    sizes = 1 / (1 / sizes + dispersion * (1 + 1 / sizes))
    return float(times @ replace(rows, sizes=sizes).logpdf(np.array([[mean]]))[:, 0])


def _integrals(
    rows: NegativeBinomial, mean: float, dispersion: float, step: float
) -> NDArray | None:
    """Integrals over a population that is no point."""
    return rows.gamma_integrals(mean, dispersion, step) if dispersion > 0 else None


def _without_spread(rows: NegativeBinomial, times: NDArray, mean: float) -> tuple[NDArray, NDArray]:
    """Return what `_derivatives` does, where all rates are the mean.

    If g is the likelihood at x times the mean over that at x = 1, with derivatives ``g_k`` there,
    the log-likelihood is ``phi g_2 / 2 + phi**2 (g_3 / 3 + g_4 / 8 - g_2**2 / 8)`` above that
    without spread, from the moments phi, ``2 phi**2`` and ``3 phi**2`` of ``x - 1``.
    """
    y, sizes = rows.counts[:, 0].astype(float), np.minimum(rows.sizes[:, 0], POISSON)
    expected = rows.exposure * mean
    share, total = expected / (expected + sizes), (y + sizes)
    one, two, three, four = (
        (-1) ** k * factor * (total * share**k - y)
        for k, factor in ((1, 1), (2, 1), (3, 2), (4, 6))
    )
    g_2 = two + one**2
    g_3 = three + 3 * one * two + one**3
    g_4 = four + 4 * one * three + 3 * two**2 + 6 * one**2 * two + one**4
    mixed = two + three / 2 + one * (one + two)
    by_mean, by_both = times @ one / mean, times @ mixed / mean
    bent = times @ (2 * g_3 / 3 + (g_4 - g_2**2) / 4)
    slope = np.array([by_mean, times @ g_2 / 2])
    return slope, np.array([[times @ two / mean**2, by_both], [by_both, bent]])


def _derivatives(
    sums: NDArray, n: float, mean: float, dispersion: float
) -> tuple[NDArray, NDArray]:
    """Slope and second derivatives of the log-likelihood in mean and dispersion.

    From sums of the integrals of n clients.

    The log-density of theta has the derivatives ``a x / mean`` in the mean and ``log a - psi(a) -
    v`` in the shape a, with x and v of `negative_binomial_gamma`; second derivatives of the
    log-likelihood are means of second derivatives, and covariances of first ones (Louis, 1982).
    """
    a = 1 / dispersion
    _, x, v, var_x, var_v, both = sums
    by_shape = n * (np.log(a) - psi(a)) - v
    slope = np.array([a * x / mean, -(a**2) * by_shape])
    mixed = -(a**2) * (x - a * both) / mean
    second = np.array(
        [
            [(a**2 * var_x - a * (n + 2 * x)) / mean**2, mixed],
            [mixed, a**4 * (n * (1 / a - polygamma(1, a)) + var_v) + 2 * a**3 * by_shape],
        ]
    )
    return slope, second
