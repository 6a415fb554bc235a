"""The equations of crossed factors whose levels have one coefficient each, or several.

Rows are ``y = X beta + sum_k Z_k u_k + e``, ``e_j ~ N(0, noise / w_j)``; level j of factor k has
the coefficients ``u_kj ~ N(0, noise T_k)`` of its p_k columns. With ``T_k = R_k R_k'`` and ``u_kj =
R_k b_kj``, the equations of (b, beta) have the matrix of lme4 (Bates et al. 2015, section 3). The
block of the first factor, the one with the most coefficients, is block-diagonal: it is eliminated,
which leaves a dense matrix of the coefficients of all other factors, the columns of X, and y. Its
triangular factor has the determinants, and in its last entry the profiled sum of squares. With the
covariance ``noise V`` of rows, ``P = V^-1 - V^-1 X (X' V^-1 X)^-1 X' V^-1`` (or V^-1) and ``s = Z'
P y``, the deviance has the slope

    sum_j Z_kj' P Z_kj - sum_j s_kj s_kj' / noise

in T_k, which is finite where T_k is singular; and the average information of Gilmour, Thompson and
Cullis (1995), whose terms need sums alone. No step reads the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.sparse import csr_matrix, hstack

from ebfed.kernels import level_inverses, row_products, subtract_products
from ebfed.regression.numerics.crossed_sums import CrossedDesign, CrossedSums, placed

__all__ = ["MOST_LEVELS", "CrossedEquations", "CrossedSystem"]

# Coefficients of all factors but the largest: their matrix is dense.
MOST_LEVELS = 6_000
# Share that rows explain of a combination of coefficients, below which differences of ones have
# few digits.
LITTLE = 1e-3


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
        self.sums, self.roots = sums, list(roots)
        self.inverses = np.empty_like(sums.blocks)
        self._of_first = level_inverses(sums.blocks, np.ascontiguousarray(roots[0]), self.inverses)
        self.half = roots[0] @ self.inverses
        self.share = self.half @ roots[0].T
        matrix = self.scale(self._reduced())
        q = sums.q
        matrix[np.arange(q), np.arange(q)] += 1
        # LAPACK reads the transpose, whose upper triangle this is, without a copy
        upper, failed = dpotrf(matrix.T, lower=False, clean=False, overwrite_a=True)
        if failed or not np.isfinite(self._of_first):
            raise LinAlgError("the equations of the effects are singular")
        self.triangle = upper.T
        if len(upper) and not np.isfinite(upper[-1, -1]):
            raise LinAlgError("the equations of the effects are not finite")

    def _reduced(self) -> NDArray:
        """Products of the other factors' columns and all c columns, with the first eliminated.

        On and below the diagonal blocks of levels.
        """
        sums, q = self.sums, self.sums.q
        left, table = sums.inner.copy(), sums.table
        subtract_products(table.indptr, table.indices, table.data, self.share, left)
        for factor in (np.flatnonzero(sums.widths[1:] > 1) + 1).tolist():
            places = _places(sums, factor)
            blocks = left[places]
            left[places] = np.tril(blocks) + np.tril(blocks, -1).swapaxes(1, 2)
        weighed = self._shared(sums.outer)
        left[q:, :q] -= (table.T @ weighed).T
        left[q:, q:] -= sums.outer.T @ weighed
        return left

    def _shared(self, rows: NDArray) -> NDArray:
        """Multiply the rows of the coefficients of each level of the first factor by its share."""
        n, p, _ = self.share.shape
        return (self.share @ rows.reshape(n, p, rows.shape[1])).reshape(rows.shape)

    def scale(self, matrix: NDArray) -> NDArray:
        """Multiply a matrix by roots from the right, and by their transpose from left, in place."""
        matrix = self.scaled_columns(matrix)
        return self.scaled_columns(matrix.T).T

    def scaled_columns(self, matrix: NDArray, transpose: bool = False) -> NDArray:
        """Multiply the columns of the other factors' coefficients by roots, in place."""
        for own, root in zip(self.sums.spans, self.roots[1:], strict=True):
            if len(root) == 1:
                matrix[:, own] *= root[0, 0]
            else:
                block = matrix[:, own].reshape(len(matrix), -1, len(root))
                moved = block @ (root.T if transpose else root)
                matrix[:, own] = moved.reshape(len(matrix), -1)
        return matrix

    @property
    def log_det(self) -> float:
        """Logarithm of the determinant of the equations of the effects."""
        diagonal = np.diag(self.triangle)[: self.sums.q]
        return float(self._of_first + 2 * np.log(diagonal).sum())

    def natural(self, others: NDArray) -> NDArray:
        """Effects of all factors but the first, from spherical ones."""
        return self.scaled_columns(others[None].copy(), transpose=True)[0]

    def solve(self, top: NDArray, bottom: NDArray) -> tuple[NDArray, NDArray]:
        """Solve the equations of the effects, the columns left out.

        Parameters
        ----------
        top : ndarray of shape (n_1, p_1)
        bottom : ndarray of shape (q,)
        """
        sums, q = self.sums, self.sums.q
        own = np.einsum("iab,ib->ia", self.half, top)
        along = self.scaled_columns((sums.table.T @ own.ravel())[None])[0]
        others = cho_solve((self.triangle[:q, :q], True), bottom - along, check_finite=False)
        left = (sums.table @ self.natural(others)).reshape(top.shape) @ self.roots[0]
        return np.einsum("iab,ib->ia", self.inverses, top - left), others

    def first_effects(self, others: NDArray, columns: NDArray, response: NDArray) -> NDArray:
        """Effects of the first factor, from spherical ones of others, and coefficients of columns.

        `response` is of shape (n_1 * p_1,): products of its columns with what they are fitted to.
        """
        sums = self.sums
        left = response - sums.outer[:, : len(columns)] @ columns
        left = (left - sums.table @ self.natural(others)).reshape(sums.blocks.shape[:2])
        return np.einsum("iab,ib->ia", self.inverses, left @ self.roots[0])

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
        first = self.first_effects(others, columns, np.zeros(len(self.sums.outer)))
        own = rng.standard_normal((*first.shape, 1))
        return first + (np.linalg.cholesky(self.inverses) @ own)[:, :, 0], others, columns

    def inverse(self, n_columns: int) -> NDArray:
        """Covariance, over the noise, of the effects of other factors and the first columns."""
        size = self.sums.q + n_columns
        inverse, failed = dpotri(self.triangle[:size, :size].T)
        if failed:
            raise LinAlgError("the equations of the effects are singular")
        inverse = np.tril(inverse.T)
        inverse += np.tril(inverse, -1).T
        inverse = self.scaled_columns(inverse, transpose=True)
        return self.scaled_columns(inverse.T, transpose=True).T

    def column_covariance(self, n_columns: int) -> NDArray:
        """Corner of this: the covariance of columns, over the noise."""
        q = self.sums.q
        corner = self.triangle[q : q + n_columns, q : q + n_columns]
        root = solve_triangular(corner, np.eye(n_columns), lower=True)
        return root.T @ root

    def first_forms(self, inverse: NDArray) -> tuple[NDArray, NDArray]:
        """Quadratic forms, in `inverse`, of the rows of each level of the first factor.

        Returns
        -------
        forms : ndarray of shape (n_1, p_1, p_1)
        products : ndarray
            Products of the rows of the table with `inverse`, at their entries.
        """
        sums, q, p = self.sums, self.sums.q, self.sums.blocks.shape[1]
        table, corner = sums.table, inverse[q:, q:]
        products = row_products(table.indptr, table.indices, table.data, inverse)
        n_columns = len(corner)
        outer = sums.outer[:, :n_columns].reshape(len(sums.blocks), p, n_columns)
        ahead = (table @ inverse[:q, q:]).reshape(outer.shape)
        both = (ahead + outer @ corner / 2) @ outer.swapaxes(1, 2)
        forms = both + both.swapaxes(1, 2)
        lengths = np.diff(table.indptr)[::p]
        starts = np.concatenate(([0], np.cumsum(lengths)))[:-1]
        known = lengths > 0
        # entries of the a-th row of every level, one level after the other
        rows = np.repeat(np.arange(len(table.indptr) - 1), np.diff(table.indptr))
        parts = [np.flatnonzero(rows % p == a) for a in range(p)] if p > 1 else [slice(None)]
        for a in range(p):
            for b in range(a + 1):
                each = products[parts[a]] * table.data[parts[b]]
                total = np.zeros(len(lengths))
                total[known] = np.add.reduceat(each, starts[known]) if known.any() else 0.0
                forms[:, a, b] += total
                if b < a:
                    forms[:, b, a] += total
        return forms, products

    def covariances(self, factor: int, inverse: NDArray) -> NDArray:
        """Covariances of the effects of the levels of a factor, over the noise.

        Parameters
        ----------
        factor : int
        inverse : ndarray
            As `inverse` returns it.

        Returns
        -------
        ndarray of shape (n_levels, p_k, p_k)
        """
        if factor == 0:
            return self.share + self.share @ self.first_forms(inverse)[0] @ self.share
        return inverse[_places(self.sums, factor)]

    def precisions(self, factor: int, inverse: NDArray) -> NDArray:
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
        n, width = int(sums.sizes[factor]), len(root)
        values, vectors = np.linalg.eigh(root @ root.T)
        if values[0] > 1e-12 * values[-1]:
            back = vectors / np.sqrt(values)
            shrunk = np.eye(width) - back.T @ self.covariances(factor, inverse) @ back
            if np.linalg.eigvalsh(shrunk.mean(axis=0))[0] > LITTLE:
                return back @ shrunk @ back.T
        reduced = np.tril(self._reduced())
        reduced += np.tril(reduced, -1).T
        rows = reduced[sums.spans[factor - 1], : len(inverse)]
        both = np.einsum(
            "iac,ibc->iab",
            (rows @ inverse).reshape(n, width, -1),
            rows.reshape(n, width, -1),
        )
        return reduced[_places(sums, factor)] - both

    def variances(
        self,
        design: CrossedDesign,
        columns: NDArray | None,
        inverse: NDArray,
    ) -> NDArray:
        """Variances of the linear predictors of rows, over the noise.

        Effects of levels -1 vary by their population.

        Parameters
        ----------
        design : CrossedDesign
            Whose levels are those of the fit, or -1.
        columns : ndarray of shape (n, p) or None
            None: the coefficients of columns are given.
        inverse : ndarray
            As `inverse` returns it, of p columns.
        """
        sums, own, basis = self.sums, design.codes[0], design.bases[0]
        n, known = len(own), own >= 0
        share = self.share[np.maximum(own, 0)] * known[:, None, None]
        moved = np.einsum("nab,nb->na", share, basis)
        along = placed(own, moved, len(sums.outer))
        rows = design.matrices[1] - along @ sums.table
        if columns is not None:
            rows = hstack([rows, csr_matrix(columns - along @ sums.outer[:, : columns.shape[1]])])
        rows = csr_matrix(rows)
        rows.sort_indices()
        products = row_products(rows.indptr, rows.indices, rows.data, inverse)
        found = np.bincount(np.repeat(np.arange(n), np.diff(rows.indptr)), products * rows.data, n)
        found += np.einsum("na,na->n", basis, moved)
        for codes, values, root in zip(design.codes, design.bases, self.roots, strict=True):
            found += np.where(codes < 0, np.sum((values @ root) ** 2, axis=1), 0.0)
        return found


def _places(sums: CrossedSums, factor: int) -> tuple[NDArray, NDArray]:
    """Rows and columns of the diagonal blocks of the levels of a factor, not the first."""
    own, width = sums.spans[factor - 1], int(sums.widths[factor])
    places = np.arange(own.start, own.stop).reshape(-1, width)
    return places[:, :, None], places[:, None, :]


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
        return float(self.triangle[-1, -1] ** 2 / self.degrees)

    @property
    def deviance(self) -> float:
        """-2 log-likelihood at these roots, and the best noise and coefficients."""
        value = self.log_det
        if self.restricted:
            value += 2 * np.log(np.diag(self.triangle)[self.sums.q : -1]).sum()
        return float(value + self.degrees * (1 + np.log(2 * np.pi * self.noise)))

    @cached_property
    def solution(self) -> tuple[NDArray, NDArray, NDArray]:
        """Spherical effects of the first factor and of the others, and the coefficients of X."""
        q = self.sums.q
        # the last row of the triangle is the right side: the last unknown is -1, without a copy
        right = np.zeros(len(self.triangle))
        right[-1] = -self.triangle[-1, -1]
        found = solve_triangular(self.triangle, right, lower=True, trans="T", check_finite=False)
        others, beta = found[:q], found[q:-1]
        return self.first_effects(others, beta, self.sums.outer[:, -1]), others, beta

    @cached_property
    def scores(self) -> list[NDArray]:
        """``Z_j' P y`` of the levels of each factor, shape (n_levels, p_k)."""
        sums, q = self.sums, self.sums.q
        first, others, beta = self.solution
        top, bottom = first @ self.roots[0].T, self.natural(others)
        away = np.append(-beta, 1.0)
        own = (sums.outer @ away - sums.table @ bottom).reshape(top.shape)
        own -= np.einsum("iab,ib->ia", sums.blocks, top)
        below = sums.inner[:q, q:] @ away - sums.inner[:q, :q] @ bottom - sums.table.T @ top.ravel()
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
        sums, q, p = self.sums, self.sums.q, self.p
        top = np.zeros((*sums.blocks.shape[:2], len(entries)))
        bottom, explained = np.zeros((q, len(entries))), np.empty(len(entries))
        parts = [top, *sums.split(bottom)]  # views
        for m, (k, a, b) in enumerate(entries):
            own = self.scores[k]
            parts[k][:, a, m] += own[:, b] / 2
            parts[k][:, b, m] += own[:, a] / 2
            explained[m] = own[:, a] @ own[:, b] / self.noise
        flat = top.reshape(-1, len(entries))
        ahead = (sums.blocks @ top).reshape(flat.shape) + sums.table @ bottom
        below = sums.inner[: q + p, :q] @ bottom
        below[:q] += sums.table.T @ flat
        below[q:] += sums.outer[:, :p].T @ flat
        square = flat.T @ ahead + bottom.T @ below[:q]
        moved = self._shared(ahead)
        square -= ahead.T @ moved
        below[:q] -= sums.table.T @ moved
        below[q:] -= sums.outer[:, :p].T @ moved
        below = self.scaled_columns(np.ascontiguousarray(below.T)).T
        L = self.triangle[: q + p, : q + p]
        half = solve_triangular(L, below, lower=True, check_finite=False)
        square -= half.T @ half
        information = (square + square.T) / 2 / self.noise
        return information - np.outer(explained, explained) / self.degrees
