"""Calibration of discrete Gaussian noise: its delta, and the noise for a guarantee."""

from __future__ import annotations

import math

import numpy as np

from ebfed.privacy.calibration import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    gaussian_sigma,
    smallest_sigma,
)

__all__ = ["discrete_gaussian_delta", "discrete_gaussian_sigma"]


def discrete_gaussian_delta(sigma: float, epsilon: float, steps: int) -> float:
    r"""Compute the exact delta of discrete Gaussian noise on a whole number.

    The noise is y with probability :math:`P(y) \propto e^{-y^2 / 2\sigma^2}`, y a whole number. The
    likelihood ratio of two answers is monotone, so the sum of the definition is one over a tail:

    .. math:: \delta = \sum_y \max\{0, P(y) - e^\varepsilon P(y + k)\}
        = \sum_{y > \varepsilon\sigma^2/k - k/2} P(y) - e^\varepsilon P(y + k).

    Parameters
    ----------
    sigma : float
        Parameter of the noise; slightly above the standard deviation if it is small.
    epsilon : float
    steps : int
        Largest difference k between two neighbouring answers.

    Returns
    -------
    float

    Raises
    ------
    ValueError

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Theorem 7.

    Examples
    --------
    >>> discrete_gaussian_delta(sigma=1.0, epsilon=1.0, steps=1)
    0.14135
    >>> discrete_gaussian_delta(sigma=50.0, epsilon=1.0, steps=50)
    0.12692
    """
    sigma, epsilon = check_positive("sigma", sigma), check_epsilon(epsilon)
    steps = check_count("steps", steps)
    start = max(epsilon * sigma * (sigma / steps) - steps / 2, -15 * sigma - 1)
    if start > 40 * sigma + 1:  # P underflows
        return 0.0
    # the omitted terms are below e^-100 of the first term of the tail, or of the sum
    stop = math.sqrt(max(start, 0.0) ** 2 + 200 * sigma**2) + 2
    y = np.arange(math.floor(start), math.ceil(stop))
    loss = (steps / sigma) * ((y + steps / 2) / sigma)  # log P(y) / P(y + k)
    terms = np.exp(-0.5 * (y / sigma) ** 2) * -np.expm1(np.minimum(epsilon - loss, 0.0))
    return float(terms.sum() / _discrete_gaussian_mass(sigma))


def discrete_gaussian_sigma(epsilon: float, delta: float, steps: int, n_features: int = 1) -> float:
    r"""Find the smallest discrete Gaussian noise that is (epsilon, delta)-private.

    For one number, by its exact delta. For a vector whose d coordinates may each change by k, by
    concentrated privacy, :math:`\rho = k^2 d / 2\sigma^2`, with the best order of

    .. math:: \varepsilon = \alpha\rho + \log(1 - 1/\alpha)
        - \frac{\log(\alpha\delta)}{\alpha - 1}.

    Parameters
    ----------
    epsilon, delta : float
    steps : int
        Largest difference k between two neighbouring answers, in each coordinate.
    n_features : int
        Number d of coordinates.

    Returns
    -------
    float
        Parameter of the noise, for each coordinate independently. It gives the guarantee. A larger
        one may not if the noise is finer than a step, because there delta is not quite monotone
        (one step, sigma below 1: it rises by a hundredth at epsilon 1, and may rise tenfold at
        epsilon 5).

    Raises
    ------
    ValueError

    References
    ----------
    Canonne, Kamath and Steinke (2020), Theorems 7 and 14, Proposition 12.

    Examples
    --------
    >>> discrete_gaussian_sigma(epsilon=1.0, delta=1e-5, steps=15)
    55.9597
    >>> discrete_gaussian_sigma(epsilon=1.0, delta=1e-5, steps=15, n_features=4)
    121.35
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    steps = check_count("steps", steps)
    if check_count("n_features", n_features) > 1:
        return steps * math.sqrt(n_features / (2 * _largest_rho(epsilon, delta)))
    return smallest_sigma(
        lambda sigma: discrete_gaussian_delta(sigma, epsilon, steps),
        delta,
        gaussian_sigma(epsilon, delta, steps),
    )


def _discrete_gaussian_mass(sigma: float) -> float:
    """Sum exp(-y² / 2 sigma²) over the whole numbers."""
    if sigma > 2:  # the sum is the integral, to the last digit (Poisson summation)
        return sigma * math.sqrt(2 * math.pi)
    return float(np.exp(-0.5 * (np.arange(-40, 41) / sigma) ** 2).sum())


def _largest_rho(epsilon: float, delta: float) -> float:
    """Find the largest rho that implies (epsilon, delta); any order is valid."""
    from scipy.optimize import minimize_scalar

    def negative(log_excess: float) -> float:  # of the order over 1
        excess = math.exp(log_excess)
        order = 1 + excess
        gain = math.log(order / excess) + (math.log(order) + math.log(delta)) / excess
        return -(epsilon + gain) / order

    grid = np.linspace(-25, 60, 171)
    best = grid[np.argmin([negative(point) for point in grid])]
    fit = minimize_scalar(
        negative, bounds=(best - 0.5, best + 0.5), method="bounded", options={"xatol": 1e-9}
    )
    return -float(fit.fun)
