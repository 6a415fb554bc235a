"""What is not known of the spreads of crossed factors.

As of the groups of `ebfed.regression.numerics.spread_doubt`: the second derivative of the
likelihood in the spread of a factor says which sampling variance the effects of its n levels have,
and their sum of squares has a scaled chi-squared distribution of n - k degrees of freedom, k
combinations of the columns being constant within these levels.

Given the other spreads, effects of the n levels have the precision ``M = Z' V^-1 Z``, Z being the
columns of the levels and V the covariance of working responses without them. Where the spread
theta is estimated as zero, the sampling variance is n over the trace of M. With several
coefficients of a level, spreads are the entries of the root of their covariance.

Of linear models the information on spreads is the average information of the search, and a
restricted likelihood is one of n - k levels already.

Covariances of the coefficients of columns are those of the equations, which do not know that the
weights of rows, and so the determinant of Laplace's approximation, move with the coefficients. They
are mapped by the matrix that maps that of the fitted spreads onto the one of second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, eigvalsh

from ebfed.inference.spread_degrees import NearbySpreads
from ebfed.regression.numerics.crossed_laplace import FARTHEST, CrossedLaplace, LaplaceFit, Mode
from ebfed.regression.numerics.crossed_model import CrossedEquations, CrossedSystem
from ebfed.regression.numerics.crossed_search import CrossedBlocks
from ebfed.regression.numerics.crossed_sums import CrossedSums
from ebfed.regression.numerics.spread_doubt import normal_figures, variance_nodes

__all__ = ["Surroundings", "roots_near", "spreads_near"]

# Share of the information on a combination of columns, from within levels, that is rounding.
ROUNDING = 1e-8
# Share of the sampling error of effects at which a spread is nearly zero.
NEAR_ZERO = 0.05
# Of more levels, what is not known of their spread adds less than .2 % to standard deviations.
MANY = 500

# Weight, roots of all factors.
Near = tuple[float, list[NDArray]]


class Surroundings:
    """Spreads near the fitted ones, found when they are first asked for.

    Parameters
    ----------
    find : callable, optional
        Function that finds them, as `spreads_near` does; by default there are no such spreads.
    """

    def __init__(
        self, find: Callable[[], tuple[NearbySpreads, list[Near]] | None] = lambda: None
    ) -> None:
        self._find = find

    @cached_property
    def found(self) -> tuple[NearbySpreads | None, list[Near]]:
        """With the coefficients there; and weights, and roots of factors."""
        found = self._find()
        del self._find  # it keeps the rows
        return found or (None, [])

    def __getstate__(self) -> dict[str, Any]:
        return {"found": self.found}


def roots_near(system: CrossedSystem, blocks: CrossedBlocks) -> list[Near]:
    """Find roots near those of a linear model, and their weights.

    Those along a standard deviation have weights that sum to 1; along an entry off the diagonal,
    the fitted root has the rest.

    Parameters
    ----------
    system : CrossedSystem
        At the maximum of the likelihood.
    blocks : CrossedBlocks
    """
    entries, found = blocks.in_roots, []
    if (system.sums.sizes >= MANY).all():
        return []
    known = _known_roots(system, blocks)
    for m, (k, a, b) in enumerate(entries):
        n, value, variance = int(system.sums.sizes[k]), system.roots[k][a, b], float(known[m])
        if n >= MANY:
            continue
        if a != b:
            values, weights = _either_side(value, variance)
        else:
            there, small = system, _small(system, k, a)
            if value < small:
                value, roots = 0.0, _moved(system.roots, k, a, a, small)
                there = CrossedSystem(system.sums, roots, system.restricted)
                slope = float((2 * there.slope()[k] @ there.roots[k])[a, a])
                variance = 2 * small / slope if slope > 0 else 0.0
            lost = constant_within(system.sums, system.p, k, a)
            n, lost = (n - lost, 0) if system.restricted else (n, lost)
            noise = _sampling_variance(there, k, a)
            values, weights = _values_near(value, variance, n, noise, lost)
        found += [
            (float(weight), _moved(system.roots, k, a, b, float(each)))
            for each, weight in zip(values, weights, strict=True)
        ]
    return found


def _known_roots(system: CrossedSystem, blocks: CrossedBlocks) -> NDArray[np.float64]:
    """Sampling variances of the entries of roots; zero of those that are zero on a diagonal."""
    entries, places = blocks.in_roots, blocks.in_covariances
    turn = np.zeros((len(places), len(entries)))
    for m, (k, a, b) in enumerate(entries):
        for i, (factor, row, column) in enumerate(places):
            if factor == k:
                turn[i, m] = (row == a) * system.roots[k][column, b]
                turn[i, m] += (column == a) * system.roots[k][row, b]
    bends = turn.T @ system.information(places) @ turn
    return 2 * np.diag(np.linalg.pinv((bends + bends.T) / 2, ROUNDING, hermitian=True))


def _moved(
    roots: Sequence[NDArray], factor: int, row: int, column: int, value: float
) -> list[NDArray]:
    moved = [root.copy() for root in roots]
    moved[factor][row, column] = value
    return moved


def _small(equations: CrossedEquations, factor: int, place: int) -> float:
    """A spread that is nearly zero beside the sampling error of effects."""
    weight = equations.sums.weights_of(factor)[:, place].mean()
    return NEAR_ZERO * min(1.0, weight**-0.5)


def _values_near(
    value: float, variance: float, n: int, noise: float, lost: int
) -> tuple[NDArray, NDArray]:
    """Values of a standard deviation, and their weights; none where the rows say nothing of it."""
    if not (variance > 0 and np.isfinite(noise) and n > 0):
        return np.zeros(0), np.zeros(0)
    squares, weights = variance_nodes(*normal_figures(value**2, variance, n, noise), lost)
    return np.sqrt(squares), weights


def _either_side(value: float, variance: float) -> tuple[NDArray, NDArray]:
    """Two values of an entry off the diagonal, which is nearly normal, and their weights."""
    if not variance > 0:
        return np.zeros(0), np.zeros(0)
    return value + np.sqrt(3 * variance) * np.array([-1.0, 1.0]), np.full(2, 1 / 6)


def spreads_near(model: CrossedLaplace, fit: LaplaceFit) -> tuple[NearbySpreads, list[Near]] | None:
    """Find values of each entry of the roots, and the coefficients of columns there.

    These move with a spread as the second derivatives say, the other spreads being fixed. Entries
    off the diagonal, which are nearly normal, have two values.

    Parameters
    ----------
    model : CrossedLaplace
    fit : LaplaceFit

    Returns
    -------
    NearbySpreads, and weights and roots; or None
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
    weights, parameters, covariances, shifts, roots = [], [], [], [], []
    for m, (k, a, b) in enumerate(model.entries):
        value, variance = float(fit.point[m]), float(fit.known[m, m])
        if a == b:
            there, n = fit.mode, int(equations.sums.sizes[k])
            if value == 0:
                there, variance = _near_zero(model, fit, m)
            noise = _sampling_variance(there.equations, k, a)
            lost = constant_within(equations.sums, p, k, a)
            values, some = _values_near(value, variance, n, noise, lost)
            values = np.minimum(values, FARTHEST)
        else:
            values, some = _either_side(value, variance)
        for each in values:
            moved = fit.point.copy()
            moved[m] = each
            moved[rest] += turn[:, m] * (each - value)
            try:
                covariances.append(model.given_spreads(model.mode(moved)))
            except LinAlgError:  # no row has a weight there: levels are nearly separated
                return None
            shifts.append(moved[own] - fit.point[own])
            roots.append(model.roots(moved))
        weights.append(some)
        parameters.append(np.full(len(some), m))
    if not roots:
        return None
    found = onto @ np.array(covariances) @ onto.T
    owners = np.concatenate(parameters)
    whole = np.concatenate(weights)
    few = [model.design.sizes[model.entries[m][0]] < MANY for m in owners]
    near = [each for each, kept in zip(zip(whole, roots, strict=True), few, strict=True) if kept]
    return NearbySpreads(fitted, whole, owners, found, np.array(shifts)), near


def _near_zero(model: CrossedLaplace, fit: LaplaceFit, entry: int) -> tuple[Mode, float]:
    """The mode at a small spread, and minus the inverse of the second derivative at zero."""
    factor, place, _ = model.entries[entry]
    point = fit.point.copy()
    point[entry] = _small(fit.mode.equations, factor, place)
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


def constant_within(sums: CrossedSums, p: int, factor: int, place: int) -> int:
    """Count combinations of columns that are those of a factor times constants of its levels.

    Parameters
    ----------
    sums : CrossedSums
        Of p columns that are not collinear, and perhaps more.
    p : int
    factor, place : int
        Factor, and place of its column.
    """
    weight = sums.weights_of(factor)[:, place]
    totals, whole = sums.totals_of(factor)[weight > 0, place, :p], sums.whole[:p, :p]
    if not p:
        return 0
    between = (totals / weight[weight > 0, None]).T @ totals
    return int((eigvalsh(whole - between, whole) < ROUNDING).sum())
