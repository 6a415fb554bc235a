"""The equations of crossed factors whose levels have one coefficient each, or several.

Rows are ``y = X beta + sum_k Z_k u_k + e``, ``e_j ~ N(0, noise / w_j)``; level j of factor k has
the coefficients ``u_kj ~ N(0, noise T_k)`` of its p_k columns. With ``T_k = R_k R_k'`` and ``u_kj =
R_k b_kj``, the equations of (b, beta) have the matrix of lme4 (Bates et al. 2015, section 3). The
block of the first factor, the one with the most coefficients, is block-diagonal: it is eliminated,
which leaves a matrix of the coefficients of all other factors, dense or of few entries (see
`ebfed.regression.numerics.crossed_patterns`), and a border: the columns of X, and y. Its triangular
factor has the determinants, and in its last entry the profiled sum of squares. With the
covariance ``noise V`` of rows, ``P = V^-1 - V^-1 X (X' V^-1 X)^-1 X' V^-1`` (or V^-1) and ``s = Z'
P y``, the deviance has the slope

    sum_j Z_kj' P Z_kj - sum_j s_kj s_kj' / noise

in T_k, which is finite where T_k is singular; and the average information of Gilmour, Thompson and
Cullis (1995), whose terms need sums alone. No step reads the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve_triangular
from scipy.sparse import csr_matrix

from ebfed.kernels import level_inverses
from ebfed.regression.numerics.crossed_patterns import CrossedTable
from ebfed.regression.numerics.crossed_sums import CrossedDesign, CrossedSums, placed

__all__ = ["CrossedEquations", "CrossedInverse", "CrossedSystem"]

# Rows, or levels, whose equations are solved at once.
AT_ONCE = 256
# Share of its largest eigenvalue that one of a covariance has at least, unless it is singular.
SINGULAR = 1e-12


class CrossedInverse(NamedTuple):
    """Covariance of the effects of other factors and of columns, over the noise.

    Attributes
    ----------
    values : ndarray
        Of the effects: a matrix of the pattern of the sums.
    border : ndarray of shape (q, p)
        Of these with the coefficients of columns.
    corner : ndarray of shape (p, p)
        Of the latter.
    """

    values: NDArray
    border: NDArray
    corner: NDArray


class CrossedEquations:
    """The equations of spherical effects and columns, at given covariances.

    Parameters
    ----------
    sums : CrossedSums
    roots : list of ndarray of shape (p_k, p_k)
        Root of the covariance of each factor, over the noise.

    Raises
    ------
    LinAlgError
        If the equations are singular.
    """

    def __init__(self, sums: CrossedSums, roots: Sequence[NDArray]):
        self.sums, self.roots, pattern = sums, list(roots), sums.pattern
        self.inverses = np.empty_like(sums.blocks)
        self._of_first = level_inverses(sums.blocks, np.ascontiguousarray(roots[0]), self.inverses)
        if not np.isfinite(self._of_first):
            raise LinAlgError("the equations of the effects are singular")
        self.half = roots[0] @ self.inverses
        self.share = self.half @ roots[0].T
        self._reduced = pattern.reduced(sums.among, sums.table, self.share)
        self.triangle = pattern.factor(pattern.scaled(self._reduced.copy(), self.roots[1:]))
        weighed = self._shared(sums.outer)
        self._left = sums.below - sums.table.totals(weighed)
        self.border = self.triangle.half(self._scaled(self._left.T.copy()).T)
        self.corner = _root(sums.whole - sums.outer.T @ weighed - self.border.T @ self.border)

    def _shared(self, rows: NDArray) -> NDArray:
        """Multiply the rows of the coefficients of each level of the first factor by its share."""
        n, p, _ = self.share.shape
        return (self.share @ rows.reshape(n, p, rows.shape[1])).reshape(rows.shape)

    def _scaled(self, rows: NDArray) -> NDArray:
        """Multiply the columns of the other factors' coefficients by roots, in place."""
        return self.sums.pattern.scaled_columns(rows, self.roots[1:])

    @property
    def log_det(self) -> float:
        """Logarithm of the determinant of the equations of the effects."""
        return float(self._of_first) + self.triangle.log_det

    def natural(self, others: NDArray) -> NDArray:
        """Effects of all factors but the first, from spherical ones."""
        return self.sums.pattern.scaled_columns(others[None].copy(), self.roots[1:], True)[0]

    def _table_times(self, others: NDArray) -> NDArray:
        return self.sums.table.times(self.natural(others)[:, None])[:, 0]

    def spherical(self, others: NDArray) -> NDArray:
        """Products with the columns of spherical effects, from those with the columns of others."""
        return self._scaled(others[None].copy())[0]

    def solve(self, top: NDArray, bottom: NDArray) -> tuple[NDArray, NDArray]:
        """Solve the equations of the effects, the columns left out.

        Parameters
        ----------
        top : ndarray of shape (n_1, p_1)
        bottom : ndarray of shape (q,)
        """
        sums = self.sums
        own = np.einsum("iab,ib->ia", self.half, top)
        along = self.spherical(sums.table.totals(own.reshape(-1, 1))[:, 0])
        others = self.triangle.back(self.triangle.half((bottom - along)[:, None]))[:, 0]
        left = self._table_times(others).reshape(top.shape) @ self.roots[0]
        return np.einsum("iab,ib->ia", self.inverses, top - left), others

    def _half(self, top: NDArray, bottom: NDArray) -> tuple[NDArray, NDArray]:
        """Solve half of the equations of other factors, and of the first columns."""
        half, n_columns = self.triangle.half(top), len(bottom)
        left = bottom - self.border[:, :n_columns].T @ half
        corner = self.corner[:n_columns, :n_columns]
        return half, solve_triangular(corner, left, lower=True, check_finite=False)

    def _back(self, half: NDArray, columns: NDArray) -> tuple[NDArray, NDArray]:
        """Solve the other half: spherical effects, and coefficients of the first columns."""
        corner = self.corner[: len(columns), : len(columns)]
        below = solve_triangular(corner, columns, lower=True, trans="T", check_finite=False)
        return self.triangle.back(half - self.border[:, : len(columns)] @ below), below

    def first_effects(self, others: NDArray, columns: NDArray, response: NDArray) -> NDArray:
        """Effects of the first factor, from spherical ones of others, and coefficients of columns.

        `response` is of shape (n_1 * p_1,): products of its columns with what they are fitted to.
        """
        sums = self.sums
        left = response - sums.outer[:, : len(columns)] @ columns
        left = (left - self._table_times(others)).reshape(sums.blocks.shape[:2])
        return np.einsum("iab,ib->ia", self.inverses, left @ self.roots[0])

    def sample(self, n_columns: int, rng: np.random.Generator) -> tuple[NDArray, NDArray, NDArray]:
        """Draw spherical effects and so many columns around their solution, for a noise of 1.

        Returns
        -------
        first, others, columns : ndarray
            Of the levels of the first factor, of all others, and of the columns: normal, with the
            inverse of all equations as covariance.
        """
        normal = rng.standard_normal((self.sums.q + n_columns, 1))
        others, columns = self._back(normal[: self.sums.q], normal[self.sums.q :])
        others, columns = others[:, 0], columns[:, 0]
        first = self.first_effects(others, columns, np.zeros(len(self.sums.outer)))
        own = rng.standard_normal((*first.shape, 1))
        return first + (np.linalg.cholesky(self.inverses) @ own)[:, :, 0], others, columns

    def inverse(self, n_columns: int) -> CrossedInverse:
        """Covariance, over the noise, of the effects of other factors and the first columns."""
        pattern, roots = self.sums.pattern, self.roots[1:]
        values = pattern.scaled(self.triangle.inverse(), roots, transpose=True)
        corner = self.corner[:n_columns, :n_columns]
        root = solve_triangular(corner, np.eye(n_columns), lower=True).T if n_columns else corner
        tall = self.triangle.back(self.border[:, :n_columns]) @ root
        tall = pattern.scaled_columns(np.ascontiguousarray(tall.T), roots, transpose=True).T
        values = pattern.plus(values, tall) if n_columns else values
        return CrossedInverse(values, -tall @ root.T, root @ root.T)

    def whole_inverse(self) -> NDArray:
        """Covariance of the effects of other factors, over the noise: every pair, shape (q, q)."""
        half = self.triangle.half(self._scaled(np.eye(self.sums.q)).T)
        return half.T @ half

    def column_covariance(self, n_columns: int) -> NDArray:
        """Covariance of the first columns, over the noise."""
        corner = self.corner[:n_columns, :n_columns]
        root = solve_triangular(corner, np.eye(n_columns), lower=True)
        return root.T @ root

    def first_forms(self, inverse: CrossedInverse) -> tuple[NDArray, NDArray]:
        """Quadratic forms, in `inverse`, of the rows of each level of the first factor.

        Returns
        -------
        forms : ndarray of shape (n_1, p_1, p_1)
        products : ndarray
            Products of the rows of the table with `inverse`, at their entries.
        """
        sums, p = self.sums, self.sums.blocks.shape[1]
        table, n_columns = sums.table, len(inverse.corner)
        products = sums.pattern.products(inverse.values, table)
        outer = sums.outer[:, :n_columns].reshape(len(sums.blocks), p, n_columns)
        ahead = table.times(inverse.border).reshape(outer.shape)
        both = (ahead + outer @ inverse.corner / 2) @ outer.swapaxes(1, 2)
        forms = both + both.swapaxes(1, 2)
        lengths = np.diff(table.ends)[::p]
        starts = np.concatenate(([0], np.cumsum(lengths)))[:-1]
        known = lengths > 0
        # entries of the a-th row of every level, one level after the other
        rows = np.repeat(np.arange(len(table.ends) - 1), np.diff(table.ends))
        parts = [np.flatnonzero(rows % p == a) for a in range(p)] if p > 1 else [slice(None)]
        for a in range(p):
            for b in range(a + 1):
                each = products[parts[a]] * table.values[parts[b]]
                total = np.zeros(len(lengths))
                total[known] = np.add.reduceat(each, starts[known]) if known.any() else 0.0
                forms[:, a, b] += total
                if b < a:
                    forms[:, b, a] += total
        return forms, products

    def covariances(self, factor: int, inverse: CrossedInverse) -> NDArray:
        """Covariances of the effects of the levels of a factor, over the noise.

        Parameters
        ----------
        factor : int
        inverse : CrossedInverse

        Returns
        -------
        ndarray of shape (n_levels, p_k, p_k)
        """
        if factor == 0:
            return self.share + self.share @ self.first_forms(inverse)[0] @ self.share
        pattern = self.sums.pattern
        return pattern.at(inverse.values, *pattern.levels(factor - 1))

    def precisions(self, factor: int, inverse: CrossedInverse) -> NDArray:
        """``Z_j' P Z_j`` of each level of a factor; without columns in `inverse`, V^-1 for P.

        Returns
        -------
        ndarray of shape (n_levels, p_k, p_k)
        """
        sums, root = self.sums, self.roots[factor]
        if factor == 0:
            left = np.eye(len(root)) - sums.blocks @ self.share
            forms = self.first_forms(inverse)[0]
            return left @ (sums.blocks - forms @ left.swapaxes(1, 2))
        # (T^-1 + M) K + B b' = I, for the covariance T of the factor, M and B of the equations
        pattern, own = sums.pattern, sums.pattern.spans[factor - 1]
        n_columns = len(inverse.corner)
        square, beside = root @ root.T, self._left[own, :n_columns]
        values = np.linalg.eigvalsh(square)
        if not values[0] > SINGULAR * values[-1]:
            return self._precisions_by_halves(factor, n_columns)
        products = pattern.level_products(self._reduced, inverse.values, factor - 1)
        shape = (*products.shape[:2], n_columns)
        products += beside.reshape(shape) @ inverse.border[own].reshape(shape).swapaxes(1, 2)
        found = products @ np.linalg.inv(square)
        return (found + found.swapaxes(1, 2)) / 2

    def _precisions_by_halves(self, factor: int, n_columns: int) -> NDArray:
        """These if the covariance of the factor is singular, by half solutions of levels."""
        pattern, width = self.sums.pattern, len(self.roots[factor])
        own, reduced = pattern.spans[factor - 1], csr_matrix(pattern.whole(self._reduced))
        found = pattern.at(self._reduced, *pattern.levels(factor - 1)).copy()
        step = max(AT_ONCE // width, 1) * width
        for start in range(own.start, own.stop, step):
            some = slice(start, min(start + step, own.stop))
            rows = self._scaled(reduced[some].toarray())
            half = np.vstack(self._half(rows.T, self._left[some, :n_columns].T))
            levels = half.T.reshape(-1, width, len(half))
            first = (start - own.start) // width
            found[first : first + len(levels)] -= levels @ levels.swapaxes(1, 2)
        return found

    def variances(
        self,
        design: CrossedDesign,
        columns: NDArray | None,
        inverse: CrossedInverse,
    ) -> NDArray:
        """Variances of the linear predictors of rows, over the noise.

        Effects of levels -1 vary by their population.

        Parameters
        ----------
        design : CrossedDesign
            Whose levels are those of the fit, or -1.
        columns : ndarray of shape (n, p) or None
            None: the coefficients of columns are given.
        inverse : CrossedInverse
            Of p columns, or of none.
        """
        sums, own, basis = self.sums, design.codes[0], design.bases[0]
        n, known = len(own), own >= 0
        share = self.share[np.maximum(own, 0)] * known[:, None, None]
        moved = np.einsum("nab,nb->na", share, basis)
        along = placed(own, moved, len(sums.outer))
        rows = csr_matrix(design.matrices[1] - along @ sums.table.matrix)
        away = np.zeros((n, 0))
        if columns is not None:
            away = columns - along @ sums.outer[:, : columns.shape[1]]
        found = self._forms(rows, away, inverse)
        found += np.einsum("na,na->n", basis, moved)
        for codes, values, root in zip(design.codes, design.bases, self.roots, strict=True):
            found += np.where(codes < 0, np.sum((values @ root) ** 2, axis=1), 0.0)
        return found

    def _forms(self, rows: csr_matrix, away: NDArray, inverse: CrossedInverse) -> NDArray:
        """Quadratic forms, in `inverse`, of rows and further columns."""
        table = CrossedTable.of(rows)
        products = self.sums.pattern.products(inverse.values, table)
        of_entries = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        found = np.zeros(rows.shape[0])
        found += np.bincount(of_entries, products * table.values, len(found))
        if away.shape[1]:
            found += np.sum(
                (2 * table.times(inverse.border) + away @ inverse.corner) * away, axis=1
            )
        new = np.flatnonzero(np.isnan(found))  # with pairs that no row of the fit has
        for start in range(0, len(new), AT_ONCE):
            some = new[start : start + AT_ONCE]
            half = self._half(self._scaled(rows[some].toarray()).T, away[some].T)
            found[some] = sum(np.einsum("ij,ij->j", each, each) for each in half)
        return found


def _root(matrix: NDArray) -> NDArray:
    """Lower triangle that is the root of what columns have beside effects."""
    root = np.linalg.cholesky(matrix) if np.isfinite(matrix).all() else np.full_like(matrix, np.nan)
    if not np.isfinite(root).all():
        raise LinAlgError("the equations of the columns are not finite")
    return root


class CrossedSystem(CrossedEquations):
    """The equations of a linear model, whose last column is the response.

    Parameters
    ----------
    sums : CrossedSums
    roots : list of ndarray of shape (p_k, p_k)
    restricted : bool
    """

    def __init__(self, sums: CrossedSums, roots: Sequence[NDArray], restricted: bool):
        super().__init__(sums, roots)
        self.restricted = restricted

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
        return self.squares / self.degrees

    @property
    def squares(self) -> float:
        """Profiled sum of squares."""
        return float(self.corner[-1, -1] ** 2)

    @property
    def deviance(self) -> float:
        """-2 log-likelihood at these roots, and the best noise and coefficients."""
        return self.deviance_at(self.noise)

    def deviance_at(self, noise: float) -> float:
        """-2 log-likelihood at these roots and a noise, and the best coefficients."""
        n = self.degrees
        return self.log_dets + float(n * np.log(2 * np.pi * noise) + self.squares / noise)

    @property
    def log_dets(self) -> float:
        """Logarithm of the determinant of the equations: of effects, and restricted of columns."""
        columns = 2 * float(np.log(np.diag(self.corner)[:-1]).sum()) if self.restricted else 0.0
        return self.log_det + columns

    @cached_property
    def solution(self) -> tuple[NDArray, NDArray, NDArray]:
        """Spherical effects of the first factor and of the others, and the coefficients of X."""
        half, columns = self.border[:, -1:], self.corner[-1:, :-1].T
        others, beta = (each[:, 0] for each in self._back(half, columns))
        return self.first_effects(others, beta, self.sums.outer[:, -1]), others, beta

    @cached_property
    def scores(self) -> list[NDArray]:
        """``Z_j' P y`` of the levels of each factor, shape (n_levels, p_k)."""
        sums = self.sums
        first, others, beta = self.solution
        top, bottom = first @ self.roots[0].T, self.natural(others)
        away = np.append(-beta, 1.0)
        own = (sums.outer @ away - sums.table.times(bottom[:, None])[:, 0]).reshape(top.shape)
        own -= np.einsum("iab,ib->ia", sums.blocks, top)
        among = sums.pattern.times(sums.among, bottom[:, None])[:, 0]
        below = sums.below @ away - among - sums.table.totals(top.reshape(-1, 1))[:, 0]
        return [own, *sums.split(below)]

    @cached_property
    def known(self) -> list[NDArray]:
        """`precisions` of the levels of each factor."""
        inverse = self.inverse(self.p * self.restricted)
        return [self.precisions(k, inverse) for k in range(len(self.roots))]

    def slope(self, noise: float | None = None) -> list[NDArray]:
        """Slope of the deviance in the covariance of each factor, shape (p_k, p_k).

        Parameters
        ----------
        noise : float, optional
            At which it is taken; if None, the best at these roots.
        """
        noise, pairs = noise or self.noise, zip(self.known, self.scores, strict=True)
        return [U.sum(axis=0) - own.T @ own / noise for U, own in pairs]

    def information(self, entries: Sequence[tuple[int, int, int]]) -> NDArray[np.float64]:
        """Average information on entries of the covariances of factors.

        Parameters
        ----------
        entries : sequence of (factor, row, column)
        """
        sums, p = self.sums, self.p
        top = np.zeros((*sums.blocks.shape[:2], len(entries)))
        bottom, explained = np.zeros((sums.q, len(entries))), np.empty(len(entries))
        parts = [top, *sums.split(bottom)]  # views
        for m, (k, a, b) in enumerate(entries):
            own = self.scores[k]
            parts[k][:, a, m] += own[:, b] / 2
            parts[k][:, b, m] += own[:, a] / 2
            explained[m] = own[:, a] @ own[:, b] / self.noise
        flat = top.reshape(-1, len(entries))
        ahead = (sums.blocks @ top).reshape(flat.shape) + sums.table.times(bottom)
        below = sums.pattern.times(sums.among, bottom) + sums.table.totals(flat)
        columns = sums.below[:, :p].T @ bottom + sums.outer[:, :p].T @ flat
        square = flat.T @ ahead + bottom.T @ below
        moved = self._shared(ahead)
        square -= ahead.T @ moved
        below -= sums.table.totals(moved)
        columns -= sums.outer[:, :p].T @ moved
        for half in self._half(self._scaled(np.ascontiguousarray(below.T)).T, columns):
            square -= half.T @ half
        information = (square + square.T) / 2 / self.noise
        return information - np.outer(explained, explained) / self.degrees
