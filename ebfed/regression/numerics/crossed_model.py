"""Linear mixed models of crossed factors: likelihood, slope and effects, all exact.

Rows are ``y = X beta + sum_k Z_k u_k + e``, ``u_k ~ N(0, noise gamma_k I)``, ``e_j ~ N(0, noise /
w_j)``. With spherical effects ``b_k = u_k / sqrt(gamma_k)`` the equations of (b, beta) have the
matrix of lme4 (Bates et al. 2015, section 3). The block of the factor with the most levels is
diagonal: it is eliminated, which leaves a dense matrix of the levels of all other factors, the
columns of X, and y. Its triangular factor has the determinants, and in its last entry the profiled
sum of squares. The profiled deviance is minimised by Newton steps with the average information
(Gilmour, Thompson and Cullis 1995), whose terms need sums alone; no step reads the rows.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri, spotri

from ebfed.kernels import combination_variances, row_products, subtract_products
from ebfed.regression.numerics.crossed_sums import CrossedSums

__all__ = [
    "MOST_LEVELS",
    "CrossedEquations",
    "CrossedSystem",
    "Fitted",
    "ResponseSystem",
    "maximise",
    "one_way",
]

# Levels of all factors but the largest: their matrix is dense.
MOST_LEVELS = 6_000
# A factor explains nothing where its variance, in units of the sampling variance of the effect of
# one of its levels, would fall below this.
SMALLEST = 1e-7
# Expected fall of the deviance, of the last step or of one more, at which the search ends.
TOLERANCE, LEFT = 1e-6, 2e-6
MOST_STEPS = 100
# Dense levels up to which two starts are compared: of more, another factorisation takes long, and
# the inverse for the first step is of single precision, which takes half the time.
FEW_LEVELS = 1_000


class Slope(NamedTuple):
    """Slope of the deviance in gamma, and the average information of it."""

    gradient: NDArray
    information: NDArray


class CrossedEquations:
    """The equations of spherical effects and columns, at given variances.

    Parameters
    ----------
    sums : CrossedSums
    gamma : ndarray of shape (n_factors,)
        Variances of the factors over that of the noise.
    """

    def __init__(self, sums: CrossedSums, gamma: NDArray):
        self.sums, self.gamma = sums, gamma
        self.theta = np.sqrt(gamma)
        q = sums.q
        self.pivots = 1 + gamma[0] * sums.first
        self.scale = np.ones(len(sums.inner))
        self.scale[:q] = self.theta[sums.owner]
        share = gamma[0] / self.pivots
        matrix = sums.inner * self.scale
        matrix *= self.scale[:, None]
        matrix[np.arange(q), np.arange(q)] += 1
        subtract_products(*self.scaled_table, share, matrix)
        weighed = share[:, None] * sums.outer
        matrix[q:, :q] -= (sums.table.T @ weighed).T * self.scale[:q]
        matrix[q:, q:] -= sums.outer.T @ weighed
        # LAPACK reads the transpose, whose upper triangle this is, without a copy
        upper, failed = dpotrf(matrix.T, lower=False, clean=False, overwrite_a=True)
        if failed:
            raise LinAlgError("the equations of the effects are singular")
        self.triangle = upper.T

    @cached_property
    def scaled_table(self) -> tuple[NDArray, NDArray, NDArray]:
        """Table of the first factor and scaled effects of others: places, columns, values."""
        table = self.sums.table
        return table.indptr, table.indices, table.data * self.scale[table.indices]

    @property
    def log_det(self) -> float:
        """Logarithm of the determinant of the equations of the effects."""
        diagonal = np.diag(self.triangle)[: self.sums.q]
        return float(np.log(self.pivots).sum() + 2 * np.log(diagonal).sum())

    def solve(self, top: NDArray, bottom: NDArray) -> tuple[NDArray, NDArray]:
        """Solve the equations of the effects, the columns left out."""
        sums, q, root = self.sums, self.sums.q, self.theta[0]
        reduced = bottom - self.scale[:q] * (sums.table.T @ (root * top / self.pivots))
        others = cho_solve((self.triangle[:q, :q], True), reduced, check_finite=False)
        first = top - root * (sums.table @ (self.scale[:q] * others))
        return first / self.pivots, others

    def sample(self, n_columns: int, rng: np.random.Generator) -> tuple[NDArray, NDArray, NDArray]:
        """Draw spherical effects and so many columns around their solution, for a noise of 1.

        Returns
        -------
        first, others, columns : ndarray
            Of the levels of the first factor, of all others, and of the columns: normal, with the
            inverse of all equations as covariance.
        """
        q = self.sums.q
        L = self.triangle[: q + n_columns, : q + n_columns]
        normal = rng.standard_normal(len(L))
        moved = solve_triangular(L, normal, lower=True, trans="T", check_finite=False)
        others, columns = moved[:q], moved[q:]
        along = self.sums.table @ (self.scale[:q] * others)
        along += self.sums.outer[:, :n_columns] @ columns
        own = rng.standard_normal(len(along)) / np.sqrt(self.pivots)
        return own - self.theta[0] * along / self.pivots, others, columns

    def inverse(self, n_columns: int) -> NDArray:
        """Inverse of the equations of the other factors and so many columns, symmetric."""
        inverse = np.tril(self.half_inverse(n_columns))
        return inverse + np.tril(inverse, -1).T

    def half_inverse(self, n_columns: int, rough: bool = False) -> NDArray:
        """The lower triangle of the inverse, of 32 bits if rough; there is more above it."""
        size = self.sums.q + n_columns
        triangle = self.triangle[:size, :size].T
        inverse, failed = spotri(triangle) if rough else dpotri(triangle)
        if failed:
            raise LinAlgError("the equations of the effects are singular")
        return inverse.T

    def covariance(self, n_columns: int) -> NDArray:
        """Corner of this inverse: the covariance of columns, over the noise."""
        q = self.sums.q
        corner = self.triangle[q : q + n_columns, q : q + n_columns]
        root = solve_triangular(corner, np.eye(n_columns), lower=True)
        return root.T @ root

    def forms(self, products: NDArray) -> NDArray:
        """Quadratic forms of the rows of the table, from products of these and a matrix."""
        ends, _, values = self.scaled_table
        return np.add.reduceat(products * values, ends[:-1])

    def traces(self, inverse: NDArray) -> NDArray:
        """Trace of each factor's block of the inverse of all equations.

        Of `inverse`, that of the other factors and some columns, the lower triangle is read.
        """
        sums, q = self.sums, self.sums.q
        n_columns = len(inverse) - q
        trace = self.per_factor(np.diag(inverse)[:q])
        forms = self.forms(row_products(*self.scaled_table, inverse))
        if n_columns:
            columns, corner = sums.outer[:, :n_columns], inverse[q:, q:]
            corner = np.tril(corner) + np.tril(corner, -1).T
            along = columns @ corner + 2 * (sums.table @ (self.scale[:q, None] * inverse[q:, :q].T))
            forms += np.sum(along * columns, axis=1)
        trace[0] = np.sum((1 + self.gamma[0] / self.pivots * forms) / self.pivots)
        return trace

    def per_factor(self, values: NDArray) -> NDArray:
        """Sum values of the levels of the other factors."""
        return np.bincount(self.sums.owner, values, self.sums.n_factors)

    def variances(
        self,
        rows: NDArray,
        others: NDArray,
        known: NDArray,
        columns: NDArray | None,
        inverse: NDArray,
    ) -> NDArray:
        """Variances of combinations of effects, over that of the noise.

        Parameters
        ----------
        rows : int64 ndarray of shape (n,)
            Level of the first factor; -1 for none.
        others : int64 ndarray of shape (n, k)
            Places of levels of other factors; -1 for none.
        known : ndarray of shape (n,)
            Variance of levels that are not in the fit, which is added.
        columns : ndarray of shape (n, p) or None
            Coefficients of columns; None where these are given.
        inverse : ndarray
            As `inverse` returns it.
        """
        sums = self.sums
        n, p = len(rows), len(inverse) - self.sums.q
        entries = np.where(others >= 0, self.scale[np.maximum(others, 0)], 0.0)
        forms = combination_variances(
            rows,
            np.full(n, self.theta[0]),
            (others, entries),
            np.zeros((n, p)) if columns is None else np.ascontiguousarray(columns),
            inverse,
            self.pivots,
            self.theta[0] / self.pivots,
            self.scaled_table,
            np.ascontiguousarray(sums.outer[:, :p]),
        )
        return forms + known


class ResponseSystem:
    """Equations whose last column is the response: the noise is in the end of their triangle."""

    sums: Any
    triangle: NDArray
    restricted: bool

    @property
    def p(self) -> int:
        """Number of columns of X."""
        return self.sums.outer.shape[1] - 1

    @property
    def degrees(self) -> int:
        """Number of rows, less that of columns if restricted."""
        return self.sums.n_rows - self.p * self.restricted

    @property
    def noise(self) -> float:
        """Variance of a row of weight 1."""
        return float(self.triangle[-1, -1] ** 2 / self.degrees)


class CrossedSystem(ResponseSystem, CrossedEquations):
    """The equations of a linear model, whose last column is the response.

    Parameters
    ----------
    sums : CrossedSums
    gamma : ndarray of shape (n_factors,)
        Variances of the factors over that of the noise.
    restricted : bool
    """

    def __init__(self, sums: CrossedSums, gamma: NDArray, restricted: bool):
        super().__init__(sums, gamma)
        self.restricted = restricted

    @property
    def deviance(self) -> float:
        """-2 log-likelihood at this gamma, and the best noise and coefficients."""
        value = self.log_det
        if self.restricted:
            value += 2 * np.log(np.diag(self.triangle)[self.sums.q : -1]).sum()
        value += self.degrees * (1 + np.log(2 * np.pi * self.noise))
        return float(value)

    @cached_property
    def solution(self) -> tuple[NDArray, NDArray, NDArray]:
        """Spherical effects of the first factor, of the others, and the coefficients of X."""
        sums, q = self.sums, self.sums.q
        # the last row of the triangle is the right side: the last unknown is -1, without a copy
        right = np.zeros(len(self.triangle))
        right[-1] = -self.triangle[-1, -1]
        found = solve_triangular(self.triangle, right, lower=True, trans="T", check_finite=False)
        found = found[:-1]
        left = sums.outer[:, -1] - sums.outer[:, :-1] @ found[q:]
        left -= sums.table @ (self.scale[:q] * found[:q])
        return self.theta[0] * left / self.pivots, found[:q], found[q:]

    def slope(self, rough: bool = False) -> Slope:
        """Slope of the deviance in gamma; its traces have 32 bits if rough."""
        sums, q, K = self.sums, self.sums.q, self.sums.n_factors
        trace = self.traces(self.half_inverse(self.p * self.restricted, rough))
        b1, b2, _ = self.solution
        explained = self.per_factor(b2**2)
        explained[0] = b1 @ b1
        explained = explained / self.gamma / self.noise
        gradient = (sums.sizes - trace) / self.gamma - explained
        # P f of the working variates f_k = Z_k b_k / theta_k, by the same equations
        top, bottom = np.zeros((len(b1), K)), np.zeros((q + self.p, K))
        own, others = b1 / self.theta[0], np.zeros((q, K))
        others[np.arange(q), sums.owner] = b2 / self.theta[sums.owner]
        top[:, 0] = sums.first * own
        top += sums.table @ others
        bottom[:, 0] = np.concatenate([sums.table.T @ own, sums.outer[:, :-1].T @ own])
        bottom += sums.inner[:-1, :q] @ others
        square = others.T @ bottom[:q]
        square[0] += own @ top
        share = (self.gamma[0] / self.pivots)[:, None] * top
        reduced = bottom - np.vstack([sums.table.T @ share, sums.outer[:, :-1].T @ share])
        reduced *= self.scale[:-1, None]
        reduced = np.vstack([reduced, np.zeros(K)])
        half = solve_triangular(self.triangle, reduced, lower=True, check_finite=False)[:-1]
        square -= top.T @ share + half.T @ half
        information = (square + square.T) / 2 / self.noise
        information -= np.outer(explained, explained) / self.degrees
        return Slope(gradient, information)


class Fitted(NamedTuple):
    """The maximum of the likelihood."""

    system: CrossedSystem
    converged: bool
    history: list[dict[str, Any]]


def maximise(sums: CrossedSums, restricted: bool, known: NDArray[np.bool_] | None = None) -> Fitted:
    """Maximise the likelihood in the variances of the factors.

    Parameters
    ----------
    sums : CrossedSums
    restricted : bool
    known : bool ndarray of shape (n_factors,), optional
        Factors whose variances are identified; those of others are zero.

    Raises
    ------
    LinAlgError
        If the columns and the effects explain the response without any noise.
    """
    least = SMALLEST / np.array([np.mean(sums.weights_of(k)) for k in range(sums.n_factors)])
    known = np.ones(sums.n_factors, bool) if known is None else known
    start = np.where(known, np.maximum(_start(sums), 10 * least), least)
    system = _near(sums, start, np.where(known, 10 * least, least), restricted)
    gamma, history, converged = system.gamma, [], False
    before = 1e-300
    for number in range(MOST_STEPS):
        rough = number == 0 and sums.q > FEW_LEVELS
        slope = system.slope(rough)
        at_end = ~known | ((gamma <= least) & (slope.gradient > 0))
        step, expected = _step(slope, ~at_end)
        history.append(_row(system, expected))
        # the next fall is to this one at most as this one is to the last
        converged = not rough and (expected < TOLERANCE or expected**2 / before < LEFT)
        before = max(expected, 1e-300)
        system, gamma, moved = _moved(system, step, least)
        if converged or not moved:
            break
    zero = gamma <= least
    if zero.any():
        system = CrossedSystem(sums, np.where(zero, 0.0, gamma), restricted)
    return Fitted(system, bool(converged), [*history, _row(system, 0.0)])


def _near(sums: CrossedSums, gamma: NDArray, small: NDArray, restricted: bool) -> CrossedSystem:
    """Find the better start: these variances, or a hundredth of them.

    There may be several maxima: levels of many rows and of few may ask for different variances.
    """
    start = CrossedSystem(sums, gamma, restricted)
    if sums.q > FEW_LEVELS:
        return start
    smaller = CrossedSystem(sums, np.maximum(gamma / 100, small), restricted)
    return min(start, smaller, key=lambda each: each.deviance)


def _row(system: CrossedSystem, expected: float) -> dict[str, Any]:
    return {"criterion": system.deviance, "expected": expected, "noise": system.noise}


def _start(sums: CrossedSums) -> NDArray:
    """Variances of factors, over the noise, by moments (Henderson 1953, his first method).

    Squares within the levels of a factor, and those of all rows, have expectations that are sums of
    the variances. Where these equations give none, each variance is that of a one-way analysis.
    """
    n, total, K = sums.n_rows, float(sums.inner[-1, -1]), sums.n_factors
    weights = [sums.weights_of(k) for k in range(K)]
    between = [float((sums.totals_of(k) ** 2 / weights[k]).sum()) for k in range(K)]
    m, all_weights = np.array([len(each) for each in weights]), weights[0].sum()
    expected = np.full((K + 1, K + 1), all_weights)
    expected[:K, :K] -= _shared(sums, weights)
    expected[:K, K], expected[K, K] = n - m, n - 1
    expected[K, :K] -= [each @ each / all_weights for each in weights]
    squares = total - np.array([*between, 0.0])
    found = np.linalg.lstsq(expected, squares, rcond=None)[0]
    alone = np.empty(K)
    for k in range(K):
        within = max(squares[k] / max(n - m[k], 1), 1e-3 * total / n)
        alone[k] = one_way(weights[k], sums.totals_of(k), within)
    usable = found[K] > 1e-3 * total / n
    return np.where(found[:K] > 0, found[:K] / found[K], alone) if usable else alone


def _shared(sums: CrossedSums, weights: list[NDArray]) -> NDArray:
    """Sum, over pairs of levels of factors k and l, the squared shared weight over that of k's."""
    K, q = sums.n_factors, sums.q
    pairs = sums.table.multiply(sums.table)
    inverse = 1 / np.concatenate([weights[k] for k in range(1, K)])
    shared = np.zeros((K, K))
    shared[0] = np.bincount(sums.owner, pairs.T @ (1 / weights[0]), K)
    shared[:, 0] = np.bincount(sums.owner, np.ravel(pairs.sum(axis=0)) * inverse, K)
    if K > 2:
        among = sums.inner[:q, :q] ** 2 * inverse[:, None]
        ends = np.concatenate([[0], np.cumsum(sums.sizes[1:-1])])
        shared[1:, 1:] = np.add.reduceat(np.add.reduceat(among, ends, axis=0), ends, axis=1)
    shared[np.arange(K), np.arange(K)] = [each.sum() for each in weights]
    return shared


def one_way(weight: NDArray, response: NDArray, within: float) -> float:
    """Variance of levels by their weighed sums, over that of rows of weight 1, `within`."""
    m = max(len(weight) - 1, 1)
    between = float((response**2 / weight).sum()) / m
    each = (weight.sum() - (weight**2).sum() / weight.sum()) / m
    return max((between - within) / each / within, 0.05 / each)


def _step(slope: Slope, free: NDArray[np.bool_]) -> tuple[NDArray, float]:
    """Newton step of the parameters that are free, and how far the deviance is to fall."""
    step = np.zeros(len(free))
    if not free.any():
        return step, 0.0
    gradient, information = slope.gradient[free], slope.information[np.ix_(free, free)]
    size = np.sqrt(np.maximum(np.diag(information), 1e-300))
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    values = np.maximum(values, 1e-6)
    step[free] = -(vectors @ ((vectors.T @ (gradient / size)) / values)) / size
    return step, float(-step[free] @ gradient / 2)


def _moved(
    system: CrossedSystem, step: NDArray, least: NDArray
) -> tuple[CrossedSystem, NDArray, bool]:
    """Go along a step, a shorter one where the deviance would rise."""
    gamma, before = system.gamma, system.deviance
    for _ in range(30):
        new = np.maximum(np.clip(gamma + step, gamma / 20, gamma * 20), least)
        moved = CrossedSystem(system.sums, new, system.restricted)
        if moved.deviance <= before + 1e-9 * abs(before):
            return moved, new, True
        step = step / 2
    return system, gamma, False
