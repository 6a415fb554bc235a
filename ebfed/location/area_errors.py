"""Mean squared errors of estimates of small areas: the formula of Prasad and Rao, and a bootstrap.

With ``B_i = s_i**2 / (t + s_i**2)``, the best predictor of area i has the mean squared error
``g_1 = t B_i`` if t and beta are known. The rest is what estimating them adds. See `fay_herriot`
for the references.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors.regression import RandomEffects

__all__ = ["bootstrap", "prasad_rao", "shrinkage_of"]


def shrinkage_of(t: float, variances: NDArray) -> NDArray:
    """Return ``B_i = s_i**2 / (t + s_i**2)``, 1 for an infinite variance and 0 for one of 0."""
    finite = np.where(np.isinf(variances), 1.0, variances)
    shares = np.divide(finite, t + finite, out=np.zeros(len(finite)), where=finite > 0)
    return np.where(np.isinf(variances), 1.0, shares)


def prasad_rao(fit: RandomEffects, variances: NDArray, uncertain: NDArray) -> NDArray:
    """Return ``g_1 - B_i**2 bias + g_2 + 2 g_3`` of areas with these sampling variances.

    ``g_2 = B_i**2 w_i' Cov(beta) w_i`` is for estimating beta, and ``g_3 = B_i**2 Var(t) / (t +
    s_i**2)`` for t. g_3 counts twice, since g_1 at the estimate of t is too small by as much again;
    it is off by ``B_i**2`` times the bias of t, too, which is 0 by REML. The first two terms
    together are cut at 0, which they pass only where the bias is larger than t.

    Parameters
    ----------
    fit : RandomEffects
    variances : ndarray of shape (n,)
        Sampling variances, infinite for areas without a direct estimate.
    uncertain : ndarray of shape (n,)
        Sampling variances ``w_i' Cov(beta) w_i`` of the synthetic estimates.

    Examples
    --------
    >>> from ebfed.priors.regression import Design
    >>> x, s = np.array([0.0, 2.0, 4.0]), np.ones(3)
    >>> fit = RandomEffects.fit(x, s**2, Design.of(None, s > 0))
    >>> prasad_rao(fit, np.array([1.0, np.inf]), fit.predict()[1][:2]).round(3)
    array([1.167, 4.333])
    """
    t = fit.variance
    squared = shrinkage_of(t, variances) ** 2
    total = np.where(variances + t > 0, variances + t, np.inf)
    first = np.maximum(t * shrinkage_of(t, variances) - squared * fit.variance_bias, 0.0)
    return first + squared * uncertain + 2 * squared * fit.sampling_variance / total


def bootstrap(
    fit: RandomEffects, variances: NDArray, size: int, random_state: Any, verbose: int
) -> NDArray:
    """Return mean squared errors in areas simulated from the fit, and fitted again.

    The error of an estimate is that of the best predictor, which knows t and beta, plus their
    difference; the two are not correlated. So g_1 is known, and only the second is simulated.

    Parameters
    ----------
    fit : RandomEffects
    variances : ndarray of shape (n,)
        Sampling variances of the areas of the fit, infinite for those without a direct estimate.
    size : int
        Number of simulations.
    random_state : int, Generator or None
    verbose : int
        Whether to show a progress bar.

    References
    ----------
    González-Manteiga, Lombardía, Molina, Morales and Santamaría (2008), Bootstrap mean squared
    error of a small-area EBLUP, Journal of Statistical Computation and Simulation 78, 443-462.
    """
    from tqdm import trange

    rng = np.random.default_rng(random_state)
    t, centre = fit.variance, fit.predict()[0]
    noise = np.sqrt(np.where(np.isinf(variances), 0.0, variances))
    away = shrinkage_of(t, variances)
    squares = np.zeros(len(variances))
    for _ in trange(size, desc="bootstrap", leave=False, disable=not verbose):
        theta = centre + np.sqrt(t) * rng.standard_normal(len(centre))
        x = theta + noise * rng.standard_normal(len(centre))
        again = RandomEffects.fit(x, variances, fit.design, fit.method)
        best = x + away * (centre - x)
        found = x + shrinkage_of(again.variance, variances) * (again.predict()[0] - x)
        squares += (found - best) ** 2
    return t * away + squares / size
