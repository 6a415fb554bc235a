"""Generalized linear models of crossed factors: Laplace's approximation of their likelihood.

A row has the linear predictor ``x' beta + sum_k theta_k b_k + offset``, with ``b_k ~ N(0, 1)`` of
its level of factor k. The likelihood integrates over all b, which has no closed form; Laplace's
method takes the normal integrand with the same mode and the same second derivatives there (Bates et
al. 2015; lme4's `glmer` with ``nAGQ=1``):

    -2 log L = -2 l(eta) + |b|**2 + log det(I + Z' W Z),   at the mode of b.

The mode, the determinant, and the slope of this in theta and beta are exact: the equations are
those of a linear model with weights W, see `ebfed.regression.numerics.crossed_model`. The mode
moves with theta and beta, and W with the mode; one more solution of the equations has the slope of
both (the adjoint).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from sklearn.exceptions import ConvergenceWarning

from ebfed.kernels import canonical_rows, row_products
from ebfed.regression.numerics.crossed_model import CrossedEquations, one_way
from ebfed.regression.numerics.crossed_sums import CrossedLevels
from ebfed.regression.numerics.quasi_newton import descend

__all__ = ["FARTHEST", "CrossedLaplace", "LaplaceFit", "Mode"]

Criterion = Callable[[NDArray], tuple[float, NDArray]]

# Spreads, and coefficients of columns whose squares have the mean 1, stay below this.
FARTHEST = 60.0
# Newton's steps to the mode end where the last was of less than the root of this, for a row.
CLOSE = 1e-16
# What a quadratic has left to fall, of the criterion, where the search ends.
TOLERANCE = 1e-8
# Weights of rows are above this at the start, also where columns separate rows.
LEAST = 1e-8
# Share of the largest weight that others have at least, where equations would be singular.
LIGHT = 1e-10
# Step of differences of slopes, as a share of standard errors.
STEP = 1e-2


@dataclass(frozen=True)
class Mode:
    """The mode of the effects at some spreads and coefficients.

    Attributes
    ----------
    equations : CrossedEquations
        With the weights of rows there.
    first, others : ndarray
        Spherical effects.
    found : ndarray of shape (3, n_rows)
        Slopes of rows, their weights, and slopes of their weights.
    criterion : float
        -2 log-likelihood, but for a constant.
    """

    equations: CrossedEquations
    first: NDArray
    others: NDArray
    found: NDArray
    criterion: float


class LaplaceFit(NamedTuple):
    """The maximum of the approximate likelihood.

    Attributes
    ----------
    known : ndarray of shape (K + p, K + p) or None
        Sampling covariance of spreads and coefficients, zero where a spread is; None where second
        derivatives have no inverse.
    """

    mode: Mode
    beta: NDArray
    covariance: NDArray
    converged: bool
    path: list[float]
    known: NDArray | None


class CrossedLaplace:
    """The approximate likelihood of rows.

    Parameters
    ----------
    levels : CrossedLevels
    columns : ndarray of shape (n_rows, p)
        Columns of X, each with squares of a mean of about 1.
    kind : int
        Number of the family in `ebfed.kernels.responses`, of a canonical link.
    y, weight, offset : ndarray of shape (n_rows,)
    """

    def __init__(
        self,
        levels: CrossedLevels,
        columns: NDArray,
        kind: int,
        y: NDArray,
        weight: NDArray,
        offset: NDArray,
    ):
        self.levels, self.columns = levels, columns
        self._kind, self._y, self._weight, self._offset = kind, y, weight, offset
        self._last = (np.zeros(levels.sizes[0]), np.zeros(len(levels.owner)))
        self._n_factors = len(levels.sizes)

    def _rows(self, predictor: NDArray) -> tuple[float, NDArray]:
        found = np.empty((3, len(predictor)))
        value = canonical_rows(self._kind, self._y, self._weight, predictor, found)
        return -2 * value, found

    def alone(self) -> NDArray:
        """Coefficients without any effects, by Newton's method."""
        beta = np.zeros(self.columns.shape[1])
        value, found = self._rows(self.columns @ beta + self._offset)
        for _ in range(50):
            bend = self.columns.T @ (found[1][:, None] * self.columns)
            bend[np.diag_indices(len(beta))] += 1e-9 * len(self._y)
            slope = self.columns.T @ found[0]
            step = np.linalg.solve(bend, slope)
            fall = float(step @ slope)
            for _ in range(40):
                moved = np.clip(beta + step, -FARTHEST / 2, FARTHEST / 2)
                reached, there = self._rows(self.columns @ moved + self._offset)
                if reached <= value:
                    break
                step = step / 2
            beta, value, found = moved, reached, there
            if fall < 1e-6:
                break
        return beta

    def start(self) -> NDArray:
        """Spreads by one-way analyses of working responses, and coefficients without effects."""
        beta = self.alone()
        _, found = self._rows(self.columns @ beta + self._offset)
        sums = self.levels.sums(np.maximum(found[1], LEAST), np.zeros((len(self._y), 0)))
        slopes = self.levels.totals(found[0][:, None])
        weights = [sums.weights_of(k) for k in range(self._n_factors)]
        totals = [slopes[0][:, 0]]
        totals += [slopes[1][sums.owner == k, 0] for k in range(1, self._n_factors)]
        gamma = [one_way(w, t, 1.0) for w, t in zip(weights, totals, strict=True)]
        return np.concatenate([np.sqrt(np.clip(gamma, 1e-4, 25.0)), beta])

    def mode(self, point: NDArray) -> Mode:
        """Find the mode by Newton's method, from the last one, or from zero if that is better."""
        theta, beta = np.abs(point[: self._n_factors]), point[self._n_factors :]
        levels, fixed = self.levels, self.columns @ beta + self._offset
        scale = theta[levels.owner]
        none = np.zeros((len(fixed), 0))

        def at(first: NDArray, others: NDArray) -> tuple[float, NDArray]:
            effects = levels.of_rows(theta[0] * first, scale * others)
            value, found = self._rows(fixed + effects.sum(axis=1))
            return value + float(first @ first + others @ others), found

        zero = np.zeros(len(self._last[0])), np.zeros(len(self._last[1]))
        reached, (first, others) = at(*self._last), self._last
        if (beside := at(*zero))[0] < reached[0]:
            reached, (first, others) = beside, zero
        value, found = reached
        for _ in range(100):
            equations = CrossedEquations(levels.sums(found[1], none), theta**2)
            top, bottom = (each[:, 0] for each in levels.totals(found[0][:, None]))
            top, bottom = theta[0] * top - first, scale * bottom - others
            move = equations.solve(top, bottom)
            size = float(top @ move[0] + bottom @ move[1])
            if size < CLOSE * len(fixed):
                break
            length = 1.0
            while True:
                trial = first + length * move[0], others + length * move[1]
                reached = at(*trial)
                if reached[0] <= value + 1e-12 * abs(value) or length < 1e-8:
                    break
                length /= 2
            first, others = trial
            value, found = reached
        self._last = first, others
        return Mode(equations, first, others, found, value + equations.log_det)

    def slope(self, mode: Mode) -> NDArray:
        """Slope of the criterion in spreads and coefficients."""
        levels, equations = self.levels, mode.equations
        theta, scale, q = equations.theta, equations.scale, equations.sums.q
        slopes, weight, third = mode.found
        inverse = equations.half_inverse(0)
        turn = third * self._spreads(equations, inverse)
        top, bottom = (each[:, 0] for each in levels.totals(turn[:, None]))
        first, others = equations.solve(theta[0] * top, scale[:q] * bottom)
        along = levels.of_rows(theta[0] * first, scale[:q] * others).sum(axis=1)
        turn -= weight * along
        by_beta = self.columns.T @ (turn - 2 * slopes)
        (s0, t0), (s1, t1) = (each.T for each in levels.totals(np.stack([slopes, turn], axis=1)))
        by_theta = equations.per_factor(mode.others * (t1 - 2 * s1) + others * s1)
        by_theta[0] = mode.first @ (t0 - 2 * s0) + first @ s0
        known = theta > 1e-8
        left = (equations.sums.sizes - equations.traces(inverse))[known]
        by_theta[known] += 2 * left / theta[known]
        return np.concatenate([by_theta * known, by_beta])

    def _spreads(self, equations: CrossedEquations, inverse: NDArray) -> NDArray:
        """Variances of the effects of rows, from the lower triangle of an inverse."""
        levels = self.levels
        products = row_products(*equations.scaled_table, inverse)
        share = (equations.gamma[0] / equations.pivots)[levels.codes]
        found = share * (1 + share * equations.forms(products)[levels.codes])
        for places, slots in zip(levels.places.T, levels.slots.T, strict=True):
            scale = equations.scale[places]
            found -= 2 * share * scale * products[slots]
            for others in levels.places.T:
                entries = inverse[np.maximum(places, others), np.minimum(places, others)]
                found += scale * equations.scale[others] * entries
        return found

    def fit(self) -> LaplaceFit:
        """Maximise the approximate likelihood in spreads and coefficients."""
        K = self._n_factors
        last: list[Mode] = []

        def criterion(point: NDArray) -> tuple[float, NDArray]:
            try:
                mode = self.mode(point)
                slope = self.slope(mode)
            except LinAlgError:  # far from the maximum
                return np.inf, np.zeros(len(point))
            last[:] = [mode]
            sign = np.where(point[:K] < 0, -1.0, 1.0)
            slope[:K] *= sign
            return mode.criterion, slope

        def metric() -> NDArray:
            equations = last[0].equations
            shrunk = 1 - self._inverse_diagonals(equations)
            owner = np.concatenate([np.zeros(len(equations.pivots), np.int64), self.levels.owner])
            size = np.maximum(np.bincount(owner, shrunk**2, K), 0.5)
            found = np.zeros((len(point),) * 2)
            found[np.arange(K), np.arange(K)] = np.maximum(equations.theta**2, 1e-6) / (4 * size)
            found[K:, K:] = self.given_spreads(last[0]) / 2
            return found

        point = self.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the answer has it, too
            point, path, converged = descend(criterion, point, metric, FARTHEST, TOLERANCE)
        point[:K] = np.abs(point[:K])
        point = self._without(point, path[-1])
        free = np.concatenate([np.flatnonzero(point[:K] > 0), np.arange(K, len(point))])
        bends = self._bends(criterion, point, free, np.sqrt(2 * np.diag(metric())))
        inverse, known = _inverse(bends), None
        if inverse is not None:
            known = np.zeros((len(point),) * 2)
            known[np.ix_(free, free)] = 2 * inverse
            moved = point.copy()
            moved[free] -= inverse @ criterion(point)[1][free]
            least = path[-1] + 1e-9 * abs(path[-1])
            if (moved[:K] >= 0).all() and self.mode(moved).criterion <= least:
                point = moved
        mode = self.mode(point)
        path.append(mode.criterion)
        covariance = self.given_spreads(mode) if known is None else known[K:, K:]
        ended = converged and known is not None
        return LaplaceFit(mode, point[K:], covariance, ended, path, known)

    def _inverse_diagonals(self, equations: CrossedEquations) -> NDArray:
        """Diagonal of the inverse of the equations, of the first factor and of the others."""
        inverse, theta = equations.inverse(0), equations.theta
        n, q = len(equations.pivots), equations.sums.q
        none = np.full((n, 1), -1)
        first = equations.variances(np.arange(n), none, np.zeros(n), None, inverse)
        first = np.where(theta[0] > 0, first / max(theta[0], 1e-150) ** 2, 1.0)
        return np.concatenate([first, np.diag(inverse)[:q]])

    def given_spreads(self, mode: Mode) -> NDArray:
        """Covariance of the coefficients of columns where spreads are known: that of `mode`."""
        return self.with_columns(mode).covariance(self.columns.shape[1])

    def with_columns(self, mode: Mode) -> CrossedEquations:
        """Equations at a mode of effects and coefficients of columns together.

        Where columns separate rows, the weights of these go to zero, and the equations are singular
        but for `LIGHT`.
        """
        weight, gamma = mode.found[1], mode.equations.gamma
        try:
            return CrossedEquations(self.levels.sums(weight, self.columns), gamma)
        except LinAlgError:
            weight = np.maximum(weight, LIGHT * weight.max())
            return CrossedEquations(self.levels.sums(weight, self.columns), gamma)

    def _without(self, point: NDArray, least: float) -> NDArray:
        """Set small spreads to zero where the criterion is as low there."""
        for k in np.flatnonzero(point[: self._n_factors] < 0.02):
            trial = point.copy()
            trial[k] = 0.0
            if self.mode(trial).criterion <= least + 1e-6:
                point = trial
        return point

    def _bends(
        self, criterion: Criterion, point: NDArray, free: NDArray, errors: NDArray
    ) -> NDArray:
        """Second derivatives, by differences of slopes."""
        bends = np.empty((len(free),) * 2)
        for row, j in enumerate(free):
            step = np.zeros(len(point))
            step[j] = STEP * errors[j]
            if j < self._n_factors:
                step[j] = min(step[j], point[j] / 2)
            up, down = (criterion(point + s * step)[1][free] for s in (1, -1))
            bends[row] = (up - down) / (2 * step[j])
        return (bends + bends.T) / 2


def _inverse(bends: NDArray) -> NDArray | None:
    """Invert second derivatives; None where they are not positive definite."""
    size = np.sqrt(np.abs(np.diag(bends)))
    if not (np.isfinite(bends).all() and (size > 0).all()):
        return None
    values, vectors = np.linalg.eigh(bends / np.outer(size, size))
    if values[0] <= 1e-9:
        return None
    return (vectors / values) @ vectors.T / np.outer(size, size)
