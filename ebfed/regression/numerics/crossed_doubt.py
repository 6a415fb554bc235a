"""What is not known of the spreads of crossed factors.

As of the groups of `ebfed.regression.numerics.spread_doubt`: the second derivative of the
likelihood in the spread of a factor says which sampling variance the effects of its n levels have,
and their sum of squares has a scaled chi-squared distribution of n - k degrees of freedom, k
combinations of the columns being constant within these levels.

Given the other spreads, effects of the n levels have the precision ``M = Z' V^-1 Z``, Z being the
indicators of the levels and V the covariance of working responses without them. Where the spread
theta is estimated as zero, the sampling variance is n over the trace of M.

Covariances of the coefficients of columns are those of the equations, which do not know that the
weights of rows, and so the determinant of Laplace's approximation, move with the coefficients. They
are mapped by the matrix that maps that of the fitted spreads onto the one of second derivatives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, eigvalsh

from ebfed.inference.spread_degrees import NearbySpreads
from ebfed.regression.numerics.crossed_laplace import FARTHEST, CrossedLaplace, LaplaceFit, Mode
from ebfed.regression.numerics.crossed_model import CrossedEquations
from ebfed.regression.numerics.crossed_sums import CrossedSums
from ebfed.regression.numerics.spread_doubt import normal_figures, variance_nodes

__all__ = ["spreads_near"]

# Share of the information on a combination of columns, from within levels, that is rounding.
ROUNDING = 1e-8
# Share of the sampling error of effects at which a spread is nearly zero.
NEAR_ZERO = 0.05


def spreads_near(model: CrossedLaplace, fit: LaplaceFit) -> NearbySpreads | None:
    """Find three values of the spread of each factor, and the coefficients of columns there.

    These move with a spread as the second derivatives say, the other spreads being fixed.

    Parameters
    ----------
    model : CrossedLaplace
    fit : LaplaceFit

    Returns
    -------
    NearbySpreads or None
        None where the search found no maximum, or none is left at these spreads.
    """
    if fit.known is None or not fit.converged:
        return None
    equations = model.with_columns(fit.mode)
    theta, K = equations.theta, len(equations.theta)
    turn = fit.known[K:, :K] @ np.linalg.pinv(fit.known[:K, :K], hermitian=True)
    fitted = fit.known[K:, K:] - turn @ fit.known[:K, K:]
    of_equations = np.linalg.cholesky(equations.covariance(len(fit.beta)))
    onto = np.linalg.cholesky(fitted) @ np.linalg.inv(of_equations)
    weights, owner, covariances, shifts = [], [], [], []
    for k in range(K):
        n, there, variance = int(equations.sums.sizes[k]), fit.mode, float(fit.known[k, k])
        if theta[k] == 0:
            there, variance = _near_zero(model, fit, k)
        noise = _sampling_variance(there.equations, k)
        if not (variance > 0 and np.isfinite(noise)):
            continue
        figures = normal_figures(float(theta[k] ** 2), variance, n, noise)
        squares, some = variance_nodes(*figures, constant_within(equations.sums, k))
        for root in np.minimum(np.sqrt(squares), FARTHEST):
            moved, shift = theta.copy(), turn[:, k] * (root - theta[k])
            moved[k] = root
            try:
                mode = model.mode(np.concatenate([moved, fit.beta + shift]))
                covariances.append(model.given_spreads(mode))
            except LinAlgError:  # no row has a weight there: levels are nearly separated
                return None
            shifts.append(shift)
        weights.append(some)
        owner.append(np.full(len(some), k))
    if not weights:
        return None
    covariances = onto @ np.array(covariances) @ onto.T
    owners = np.concatenate(owner)
    return NearbySpreads(fitted, np.concatenate(weights), owners, covariances, np.array(shifts))


def _near_zero(model: CrossedLaplace, fit: LaplaceFit, factor: int) -> tuple[Mode, float]:
    """The mode at a small spread, and minus the inverse of the second derivative at zero."""
    theta = fit.mode.equations.theta.copy()
    weight = fit.mode.equations.sums.weights_of(factor).mean()
    theta[factor] = NEAR_ZERO * min(1.0, weight**-0.5)
    mode = model.mode(np.concatenate([theta, fit.beta]))
    slope = float(model.slope(mode)[factor])
    return mode, 2 * theta[factor] / slope if slope > 0 else 0.0


def _sampling_variance(equations: CrossedEquations, factor: int) -> float:
    """Sampling variance of the effects of levels, the harmonic mean; infinite if nothing is known.

    The inverse of all equations has the trace of ``(I + theta^2 M)^-1`` in the block of a factor.
    """
    n, square = int(equations.sums.sizes[factor]), float(equations.gamma[factor])
    shrunk = n - float(equations.traces(equations.half_inverse(0))[factor])
    return square * (n / shrunk - 1) if shrunk > 0 else np.inf


def constant_within(sums: CrossedSums, factor: int) -> int:
    """Count combinations of columns that are constant within all levels of a factor.

    Parameters
    ----------
    sums : CrossedSums
        Of columns that are not collinear.
    factor : int
    """
    own, q = sums.owner == factor, sums.q
    totals: NDArray = sums.outer if factor == 0 else sums.inner[:q, q:][own]
    whole = sums.inner[q:, q:]
    between = (totals / sums.weights_of(factor)[:, None]).T @ totals
    return int((eigvalsh(whole - between, whole) < ROUNDING).sum())
