"""What is not known of the spreads of crossed factors.

As of the groups of `ebfed.regression.numerics.spread_doubt`: the second derivative of the
likelihood in the spread of a factor says which sampling variance the effects of its n levels have,
and their sum of squares has a scaled chi-squared distribution of n - k degrees of freedom, k
combinations of the columns being constant within these levels.

Given the other spreads, effects of the n levels have the precision ``M = Z' V^-1 Z``, Z being the
columns of the levels and V the covariance of working responses without them. Where the spread
theta is estimated as zero, the sampling variance is n over the trace of M. With several
coefficients of a level, spreads are the entries of the root of their covariance.

Covariances of the coefficients of columns are those of the equations, which do not know that the
weights of rows, and so the determinant of Laplace's approximation, move with the coefficients. They
are mapped by the matrix that maps that of the fitted spreads onto the one of second derivatives.
"""

from __future__ import annotations

import numpy as np
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
    """Find values of each entry of the roots, and the coefficients of columns there.

    These move with a spread as the second derivatives say, the other spreads being fixed. Entries
    off the diagonal, which are nearly normal, have two values.

    Parameters
    ----------
    model : CrossedLaplace
    fit : LaplaceFit

    Returns
    -------
    NearbySpreads or None
        None where the search found no maximum, or none is left at these spreads.
    """
    if fit.known is None or not (fit.converged and model.p):
        return None
    equations, K, p = model.with_columns(fit.mode), model.n_entries, model.p
    own, rest = slice(K, K + p), slice(K, len(fit.point))
    turn = fit.known[rest, :K] @ np.linalg.pinv(fit.known[:K, :K], hermitian=True)
    fitted = (fit.known[rest, rest] - turn @ fit.known[:K, rest])[:p, :p]
    of_equations = np.linalg.cholesky(equations.column_covariance(p))
    onto = np.linalg.cholesky(fitted) @ np.linalg.inv(of_equations)
    weights, parameters, covariances, shifts = [], [], [], []
    for m, (k, a, b) in enumerate(model.entries):
        value, variance = float(fit.point[m]), float(fit.known[m, m])
        if a == b:
            there, n = fit.mode, int(equations.sums.sizes[k])
            if value == 0:
                there, variance = _near_zero(model, fit, m)
            noise = _sampling_variance(there.equations, k, a)
            if not (variance > 0 and np.isfinite(noise)):
                continue
            figures = normal_figures(value**2, variance, n, noise)
            lost = constant_within(equations.sums, k, a)
            squares, some = variance_nodes(*figures, lost)
            values = np.minimum(np.sqrt(squares), FARTHEST)
        elif variance > 0:
            values = value + np.sqrt(3 * variance) * np.array([-1.0, 1.0])
            some = np.full(2, 1 / 6)
        else:
            continue
        for each in values:
            moved = fit.point.copy()
            moved[m] = each
            moved[rest] += turn[:, m] * (each - value)
            try:
                covariances.append(model.given_spreads(model.mode(moved)))
            except LinAlgError:  # no row has a weight there: levels are nearly separated
                return None
            shifts.append(moved[own] - fit.point[own])
        weights.append(some)
        parameters.append(np.full(len(some), m))
    if not weights:
        return None
    found = onto @ np.array(covariances) @ onto.T
    owners = np.concatenate(parameters)
    return NearbySpreads(fitted, np.concatenate(weights), owners, found, np.array(shifts))


def _near_zero(model: CrossedLaplace, fit: LaplaceFit, entry: int) -> tuple[Mode, float]:
    """The mode at a small spread, and minus the inverse of the second derivative at zero."""
    factor, place, _ = model.entries[entry]
    weight = fit.mode.equations.sums.weights_of(factor)[:, place].mean()
    point = fit.point.copy()
    point[entry] = NEAR_ZERO * min(1.0, weight**-0.5)
    mode = model.mode(point)
    slope = float(model.slope(point, mode)[entry])
    return mode, 2 * point[entry] / slope if slope > 0 else 0.0


def _sampling_variance(equations: CrossedEquations, factor: int, place: int) -> float:
    """Sampling variance of the effects of levels, the harmonic mean; infinite if nothing is known.

    The inverse of all equations has the trace of ``(I + R' M R)^-1`` in the block of a factor.
    """
    n, root = int(equations.sums.sizes[factor]), equations.roots[factor]
    precisions = equations.precisions(factor, equations.inverse(0))
    shrunk = float(root[:, place] @ precisions.sum(axis=0) @ root[:, place])
    return float(root[place, place] ** 2) * (n / shrunk - 1) if shrunk > 0 else np.inf


def constant_within(sums: CrossedSums, factor: int, place: int) -> int:
    """Count combinations of columns that are those of a factor times constants of its levels.

    Parameters
    ----------
    sums : CrossedSums
        Of columns that are not collinear.
    factor, place : int
        Factor, and place of its column.
    """
    weight = sums.weights_of(factor)[:, place]
    totals = sums.totals_of(factor)[weight > 0, place]
    whole = sums.whole
    between = (totals / weight[weight > 0, None]).T @ totals
    return int((eigvalsh(whole - between, whole) < ROUNDING).sum())
