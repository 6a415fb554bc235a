"""The linear mixed model whose noise has a standard deviation for each level of a factor.

A row of level k has the noise ``sigma**2 r_k**2``, ``r_1 = 1``. Given the ratios r, rows over their
ratios are those of a model with one noise, whose criterion is minimised over all else
(`ebfed.regression.numerics.mixed_model`). The criterion of the ratios is that minimum, plus ``2
sum_k n_k log r_k``. Its slope follows from the identity of Fisher (1925): with e_k the noise of the
rows of level k,

    d criterion / d log r_k = 2 n_k - 2 E[e_k' e_k | y] / (sigma**2 r_k**2),

the expectation under what is known of all coefficients; for REML that includes the mean's error.
The model is `varIdent` of nlme (Pinheiro and Bates 2000, section 5.2) and `dispformula` of glmmTMB.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed.regression.numerics.descent import QuasiNewtonSteps, descend
from ebfed.regression.numerics.mixed_model import Fit
from ebfed.tables.dispersed import Dispersed
from ebfed.tables.factors import Factors

__all__ = ["DispersedFit", "fit_dispersed"]

# Largest ratio of standard deviations of the search, as a logarithm.
LARGEST_RATIO = 12.0
# How far the criterion may be from its minimum.
TOLERANCE = 1e-8

# Means and covariances of the coefficients of some clients, one block after the other.
Coefficients = Iterable[tuple[NDArray, NDArray]]


@dataclass
class DispersedFit:
    """A fitted model, with the noise of levels.

    Attributes
    ----------
    fit : Fit
        Fit of rows over their ratios: its noise is that of the first level. Its criterion is that
        of the rows as they are.
    ratios : ndarray of shape (n_levels,)
        Standard deviation of the noise of each level, over that of the first.
    """

    fit: Fit
    ratios: NDArray[np.float64]


def fit_dispersed(
    block: Dispersed,
    fitted: Callable[[Factors], Fit],
    coefficients: Callable[[Factors, Fit], Coefficients],
) -> DispersedFit:
    """Minimise the criterion over the ratios, and all else for each.

    Parameters
    ----------
    block : Dispersed
        Of which each level has rows.
    fitted : callable
        Fit of rows over their ratios.
    coefficients : callable
        What is known of the coefficients of clients, from their rows over the ratios and the fit.

    Raises
    ------
    ValueError
        If the coefficients explain all rows of one level and not those of others: the likelihood
        then has no maximum.
    """
    n = block.counts.sum(axis=0)
    last: list[Fit] = []

    def criterion(free: NDArray) -> tuple[float, NDArray]:
        logs = np.append(0.0, free)
        ratios = np.exp(logs)
        rows = block.weighed(ratios)
        fit = fitted(rows)
        last[:] = [fit]
        if not np.isfinite(fit.criterion) or fit.noise_variance <= 0:  # no noise is left
            return -np.inf, np.zeros(len(free))
        left = _squares_left(block, coefficients(rows, fit))
        slope = 2 * n - 2 * left / (fit.noise_variance * ratios**2)
        return float(fit.criterion + 2 * n @ logs), slope[1:]

    def metric() -> NDArray:
        return np.linalg.inv(4 * (np.diag(n) - np.outer(n, n) / n.sum())[1:, 1:])

    free = np.zeros(len(n) - 1)
    value, _ = criterion(free)
    if len(free) and np.isfinite(value):
        with warnings.catch_warnings():  # of fits on the way
            warnings.simplefilter("ignore", ConvergenceWarning)
            steps = QuasiNewtonSteps(metric, LARGEST_RATIO)
            free, path, converged = descend(criterion, free, steps, TOLERANCE)
        value, _ = criterion(free)
        logs = np.append(0.0, free)
        if np.ptp(logs) >= LARGEST_RATIO - 1e-6 or not np.isfinite(value):
            level = block.levels[int(np.argmin(logs))]
            raise ValueError(
                f"the coefficients explain all rows of level {level!r} of the dispersion, and not "
                "those of others: its noise cannot be estimated. Join it with another level."
            )
        if not converged:
            warnings.warn("the noise of levels did not converge.", ConvergenceWarning, stacklevel=2)
        fit = last[0]
        fit.path, fit.converged = path, fit.converged and converged
        fit.criterion = value
    return DispersedFit(last[0], np.exp(np.append(0.0, free)))


def _squares_left(block: Dispersed, coefficients: Coefficients) -> NDArray[np.float64]:
    """Expected sums of squares of the noise of rows, shape (n_levels,)."""
    total, first = np.zeros(len(block.levels)), 0
    for mean, covariance in coefficients:
        rows = block.rows[first : first + len(mean)]
        X = rows[..., :-1]
        residual = rows[..., -1] - np.einsum("mkrp,mp->mkr", X, mean)
        total += np.einsum("mkr,mkr->k", residual, residual)
        spread = np.einsum("mkrp,mpq->mkrq", X, covariance)
        total += np.einsum("mkrq,mkrq->k", spread, X)
        first += len(mean)
    return total
