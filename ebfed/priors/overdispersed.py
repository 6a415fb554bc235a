"""Mean and dispersion of rates whose counts scatter more than Poisson noise."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import NegativeBinomial
from ebfed.priors.search import maximise as climb

__all__ = ["maximise"]

# Dispersions from which the search may start, beside that of moments.
STARTS = (0.0, 0.05, 1.0)
# Steps of integrals at these, and after, in widths of integrands.
COARSE, FINE = 1.5, 0.5
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

    def height(mean: float, dispersion: float, step: float = FINE) -> float:
        found = integrals(mean, dispersion, step)
        return float(times @ rows.gamma_marginal(mean, dispersion, found))

    dispersion = max(starts, key=lambda phi: height(mean, phi, COARSE))
    unit = np.array([mean, dispersion + 0.05]) / 3

    def derivatives(x: NDArray) -> tuple[NDArray, NDArray] | None:
        mean, dispersion = (float(each) for each in x * unit)
        if dispersion < LEAST:
            return None
        sums = times @ integrals(mean, dispersion, FINE)
        slope, second = _derivatives(sums, times.sum(), mean, dispersion)
        return slope * unit, second * np.outer(unit, unit)

    low, high = np.array([1e-9 * mean, 0.0]), np.array([1e3 * mean, 1e4])
    start = np.array([mean, dispersion])
    point, covariance = climb(
        lambda x: height(*(float(each) for each in x * unit)),
        start / unit,
        low / unit,
        high / unit,
        derivatives,
    )
    return point * unit, covariance * np.outer(unit, unit)


def _moments(rows: NegativeBinomial, times: NDArray, mean: float) -> float:
    """Dispersion by the method of moments, not negative."""
    expected, sizes = rows.exposure * mean, rows.sizes[:, 0]
    noise = expected * (1 + expected / sizes)
    excess = times @ ((rows.counts[:, 0] - expected) ** 2 - noise)
    return max(float(excess / (times @ (expected**2 * (1 + 1 / sizes)))), 0.0)


def _integrals(
    rows: NegativeBinomial, mean: float, dispersion: float, step: float
) -> NDArray | None:
    """Integrals over a population that is no point."""
    return rows.gamma_integrals(mean, dispersion, step) if dispersion > 0 else None


def _derivatives(
    sums: NDArray, n: float, mean: float, dispersion: float
) -> tuple[NDArray, NDArray]:
    """Slope and second derivatives of the log-likelihood in mean and dispersion.

    From sums of the integrals of n clients.

    The log-density of theta has the derivatives ``a x / mean`` in the mean and ``log a - psi(a) -
    v`` in the shape a, with x and v of `negative_binomial_gamma`; second derivatives of the
    log-likelihood are means of second derivatives, and covariances of first ones (Louis, 1982).
    """
    from scipy.special import polygamma, psi

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
