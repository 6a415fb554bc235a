"""Linear mixed models of crossed factors whose levels have several coefficients each.

Rows are ``y = X beta + sum_k Z_k u_k + e``; level j of factor k has the coefficients ``u_kj ~ N(0,
noise L_k L_k')`` of its p_k columns, and ``u_kj = L_k b_kj``. The equations of (b, beta) are those
of lme4 (Bates et al. 2015, section 3). The block of the first factor is block-diagonal, with p_1
rows and columns for a level: it is eliminated, and the coefficients of all other factors, the
columns of X and y are one dense matrix, as in `ebfed.regression.numerics.crossed_model`, which has
the intercepts alone. With the covariance ``noise V`` of rows, ``P = V^-1 - V^-1 X (X' V^-1 X)^-1 X'
V^-1`` and ``s = Z' P y``, the deviance has the slope

    2 (sum_j Z_kj' P Z_kj) L_k - 2 sum_j s_kj b_kj' / noise

in L_k, which is finite where L_k is singular.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.linalg.lapack import dpotri
from scipy.sparse import block_diag, bsr_matrix, csr_matrix, hstack
from sklearn.exceptions import ConvergenceWarning

from ebfed.kernels import row_products
from ebfed.regression.numerics.crossed_model import ResponseSystem
from ebfed.regression.numerics.quasi_newton import descend

__all__ = [
    "SlopedFitted",
    "SlopedSums",
    "SlopedSystem",
    "entries_of_roots",
    "maximise_slopes",
    "placed",
]

# Roots end here. A search that does not, and ends beyond the second, has no noise to find.
FARTHEST, NOISELESS = 1e6, 1e3
TOLERANCE = 1e-8
# Step of differences of slopes at the start of the search.
STEP = 1e-4
# Entries of roots below this are tried as zeros.
SMALL = 1e-3


def placed(codes: NDArray, values: NDArray, size: int, start: int = 0) -> csr_matrix:
    """Return rows with their values at the coefficients of their levels; none at level -1.

    Parameters
    ----------
    codes : int64 ndarray of shape (n,)
    values : ndarray of shape (n, p)
    size : int
        Number of columns of the matrix.
    start : int
        Place of the first coefficient of the first level.

    Examples
    --------
    >>> placed(np.array([1, -1]), np.array([[2.0, 3.0], [4.0, 5.0]]), 4).toarray()
    array([[0., 0., 2., 3.],
           [0., 0., 0., 0.]])
    """
    n, p = values.shape
    known = codes >= 0
    columns = start + codes[known, None] * p + np.arange(p)
    ends = np.concatenate(([0], np.cumsum(known * p)))
    return csr_matrix((values[known].ravel(), columns.ravel(), ends), (n, size))


@dataclass(frozen=True)
class SlopedSums:
    """What the likelihood needs of the rows.

    Attributes
    ----------
    blocks : ndarray of shape (q1, p1, p1)
        Weighed products of the columns of the first factor, by level.
    table : sparse matrix of shape (q1 * p1, q)
        Their products with the q coefficients of all other factors.
    outer : ndarray of shape (q1 * p1, c)
        Their products with c columns, the last of which is the response.
    inner : ndarray of shape (q + c, q + c)
        Weighed products of the other factors' columns, by level, and the c columns.
    sizes, widths : int64 ndarray of shape (n_factors,)
        Numbers of levels, and of coefficients of a level.
    n_rows : int
    """

    blocks: NDArray
    table: csr_matrix
    outer: NDArray
    inner: NDArray
    sizes: NDArray[np.int64]
    widths: NDArray[np.int64]
    n_rows: int

    @classmethod
    def of(
        cls,
        codes: Sequence[NDArray],
        sizes: Sequence[int],
        bases: Sequence[NDArray],
        weight: NDArray,
        columns: NDArray,
    ) -> Self:
        """Add up rows; `bases` are the columns of each factor, of shape (n_rows, p_k)."""
        widths = np.array([each.shape[1] for each in bases])
        made = cls._empty(np.array(sizes), widths)
        Z1, Zo = made.indicators(codes, bases)
        weighed = (Zo.multiply(weight[:, None])).tocsr()
        own, p = bases[0], int(widths[0])
        blocks = np.empty((sizes[0], p, p))
        for a in range(p):
            for b in range(p):
                blocks[:, a, b] = np.bincount(codes[0], weight * own[:, a] * own[:, b], sizes[0])
        others = weighed.T @ columns
        weighed_columns = weight[:, None] * columns
        inner = np.block(
            [[(Zo.T @ weighed).toarray(), others], [others.T, columns.T @ weighed_columns]]
        )
        table = csr_matrix(Z1.T @ weighed)
        outer = Z1.T @ weighed_columns
        return cls(blocks, table, outer, inner, made.sizes, widths, len(weight))

    @classmethod
    def _empty(cls, sizes: NDArray, widths: NDArray) -> Self:
        none = np.zeros((0, 0))
        return cls(none, csr_matrix((0, 0)), none, none, sizes, widths, 0)

    @property
    def q(self) -> int:
        """Number of coefficients of all factors but the first."""
        return int(self.ends[-1])

    @property
    def ends(self) -> NDArray[np.int64]:
        """Place of the first coefficient of each factor but the first, and the end of the last."""
        return np.concatenate(([0], np.cumsum((self.sizes * self.widths)[1:])))

    def used(self, factor: int) -> NDArray[np.bool_]:
        """Whether each column of a factor is not zero in all rows."""
        if factor == 0:
            return np.einsum("iaa->a", self.blocks) > 0
        own = np.diag(self.inner)[self.ends[factor - 1] : self.ends[factor]]
        return own.reshape(-1, int(self.widths[factor])).sum(axis=0) > 0

    def indicators(
        self, codes: Sequence[NDArray], bases: Sequence[NDArray]
    ) -> tuple[csr_matrix, csr_matrix]:
        """Columns of rows at their levels, of the first factor and of all others."""
        first = placed(codes[0], bases[0], int(self.sizes[0] * self.widths[0]))
        others = csr_matrix((len(codes[0]), self.q))
        for own, basis, start in zip(codes[1:], bases[1:], self.ends[:-1].tolist(), strict=True):
            others = others + placed(own, basis, self.q, start)
        return first, csr_matrix(others)


class SlopedSystem(ResponseSystem):
    """The equations at given roots.

    Parameters
    ----------
    sums : SlopedSums
    roots : list of ndarray of shape (p_k, p_k)
        Lower triangular root of the covariance of each factor, over the noise.
    restricted : bool

    Raises
    ------
    LinAlgError
        If the equations are singular.
    """

    def __init__(self, sums: SlopedSums, roots: Sequence[NDArray], restricted: bool):
        self.sums, self.roots, self.restricted = sums, list(roots), restricted
        q, own = sums.q, self.roots[0]
        blocks = np.eye(len(own)) + own.T @ sums.blocks @ own
        self.pivots = np.linalg.cholesky(blocks)
        self.block_inverse = np.linalg.inv(blocks)
        shares = own @ self.block_inverse @ own.T
        self.share = _diagonal(shares)
        pairs = zip(self.roots[1:], sums.sizes[1:].tolist(), strict=True)
        self.scale = csr_matrix(block_diag([_repeated(root, m) for root, m in pairs]))
        left = sums.inner.copy()
        along = self.share @ sums.outer
        left[:q, :q] -= (sums.table.T @ (self.share @ sums.table)).toarray()
        both = sums.table.T @ along
        left[:q, q:] -= both
        left[q:, :q] -= both.T
        left[q:, q:] -= sums.outer.T @ along
        left[:, :q] = (self.scale.T @ left[:, :q].T).T
        # products of the other factors' columns, with the first eliminated, and the scaled system
        self.left = left
        matrix = left.copy()
        matrix[:q] = self.scale.T @ left[:q]
        matrix[np.arange(q), np.arange(q)] += 1
        self.triangle = cholesky(matrix, lower=True, check_finite=False)
        if not np.isfinite(self.triangle[-1, -1]):
            raise LinAlgError("the equations of the effects are not finite")

    @property
    def deviance(self) -> float:
        """-2 log-likelihood at these roots, and the best noise and coefficients."""
        diagonal = np.log(np.diag(self.triangle))
        value = 2 * np.log(np.diagonal(self.pivots, axis1=1, axis2=2)).sum()
        value += 2 * diagonal[: -1 if self.restricted else self.sums.q].sum()
        return float(value + self.degrees * (1 + np.log(2 * np.pi * self.noise)))

    @cached_property
    def solution(self) -> tuple[list[NDArray], NDArray]:
        """Spherical effects of each factor, of shape (q_k, p_k), and the coefficients of X."""
        sums, q = self.sums, self.sums.q
        right = np.zeros(len(self.triangle))
        right[-1] = -self.triangle[-1, -1]
        found = solve_triangular(self.triangle, right, lower=True, trans="T", check_finite=False)
        others, beta = found[:q], found[q:-1]
        remaining = sums.outer[:, -1] - sums.outer[:, :-1] @ beta
        return self._all_effects(others, remaining), beta

    def _all_effects(self, others: NDArray, remaining: NDArray) -> list[NDArray]:
        """Effects of every factor, from those of all but the first and what these leave."""
        remaining = remaining - self.sums.table @ (self.scale @ others)
        scores = remaining.reshape(len(self.pivots), -1)
        first = np.einsum("iab,ib->ia", self.block_inverse, scores @ self.roots[0])
        return [first, *self.split(others)]

    def split(self, others: NDArray) -> list[NDArray]:
        """Values of the coefficients of all factors but the first, by factor and level."""
        ends, widths = self.sums.ends, self.sums.widths[1:]
        parts = zip(ends[:-1], ends[1:], widths, strict=True)
        return [others[i:j].reshape(-1, int(width)) for i, j, width in parts]

    def inverse(self, n_columns: int) -> NDArray:
        """Inverse of the equations of the other factors and so many columns."""
        size = self.sums.q + n_columns
        upper, failed = dpotri(self.triangle[:size, :size].T, lower=False)
        if failed:
            raise LinAlgError("the equations of the effects are singular")
        inverse = np.tril(upper.T)
        return inverse + np.tril(inverse, -1).T

    def _first_forms(self, inverse: NDArray) -> NDArray:
        """Forms ``N_i inverse N_i'`` of the first factor's rows of the table, by level."""
        p = len(inverse) - self.sums.q
        scaled = csr_matrix(self.sums.table @ self.scale)
        rows = csr_matrix(hstack([scaled, csr_matrix(self.sums.outer[:, :p])]))
        width = int(self.sums.widths[0])
        parts = [rows[a::width] for a in range(width)]
        found = np.empty((len(self.pivots), width, width))
        for a in range(width):
            found[:, a, a] = _forms(parts[a], inverse)
            for b in range(a):
                both = _forms(parts[a] + parts[b], inverse) - found[:, a, a] - found[:, b, b]
                found[:, a, b] = found[:, b, a] = both / 2
        return found

    def _diagonal_blocks(self, left: NDArray, right: NDArray) -> list[NDArray]:
        """Blocks, by level of the other factors, of ``left right'``."""
        found, sums = [], self.sums
        for i, j, p in zip(sums.ends[:-1], sums.ends[1:], sums.widths[1:], strict=True):
            one, two = (each[i:j].reshape(-1, int(p), each.shape[1]) for each in (left, right))
            found.append(np.einsum("iac,ibc->iab", one, two))
        return found

    def slope(self, noise: float | None = None) -> list[NDArray]:
        """Slope of the deviance in the root of each factor; its upper triangle has no meaning.

        Parameters
        ----------
        noise : float, optional
            At which it is taken; if None, the best at these roots.
        """
        noise = self.noise if noise is None else noise
        sums, q = self.sums, self.sums.q
        size, own = q + self.p * self.restricted, self.roots[0]
        inverse = self.inverse(size - q)
        half = own @ self.block_inverse
        ahead = sums.blocks @ half
        forms = self._first_forms(inverse)
        explained = ahead - (np.eye(len(own)) - ahead @ own.T) @ forms @ half
        traces = [explained.sum(axis=0)]
        # self.left is scaled on the right alone
        rest = np.hstack([self.left[:q, :q], self.left[:q, q:size]])
        traces += [each.sum(axis=0) for each in self._diagonal_blocks(rest, inverse[:q])]
        effects, beta = self.solution
        remaining = (sums.outer[:, -1] - sums.outer[:, :-1] @ beta).reshape(len(sums.blocks), -1)
        others = np.concatenate([each.ravel() for each in effects[1:]])
        moved = self.scale @ others
        first = effects[0] @ own.T
        scores = [
            remaining
            - (sums.table @ moved).reshape(remaining.shape)
            - np.einsum("iab,ib->ia", sums.blocks, first)
        ]
        below = sums.inner[:q, -1] - sums.inner[:q, q:-1] @ beta - sums.inner[:q, :q] @ moved
        scores += self.split(below - sums.table.T @ first.ravel())
        pairs = zip(traces, scores, effects, strict=True)
        return [2 * (trace - score.T @ b / noise) for trace, score, b in pairs]

    def covariances(self, factor: int, n_columns: int) -> NDArray:
        """Covariances of the spherical effects of the levels of a factor, over the noise."""
        inverse = self.inverse(n_columns)
        if factor:
            start, end = self.sums.ends[factor - 1 : factor + 1]
            places = np.arange(start, end).reshape(-1, int(self.sums.widths[factor]))
            return inverse[places[:, :, None], places[:, None, :]]
        half = self.roots[0] @ self.block_inverse
        return self.block_inverse + half.swapaxes(1, 2) @ self._first_forms(inverse) @ half

    def column_covariance(self) -> NDArray:
        """Covariance of the coefficients of columns, over the noise."""
        corner = self.triangle[self.sums.q : -1, self.sums.q : -1]
        root = solve_triangular(corner, np.eye(self.p), lower=True)
        return root.T @ root

    def variances(
        self, codes: Sequence[NDArray], bases: Sequence[NDArray], columns: NDArray
    ) -> NDArray:
        """Variances of the linear predictors of rows, over the noise.

        Effects of levels -1 vary by their population.

        Parameters
        ----------
        codes : list of int64 ndarray of shape (n,)
        bases : list of ndarray of shape (n, p_k)
        columns : ndarray of shape (n, p)
        """
        first, others = self.sums.indicators(codes, bases)
        along = csr_matrix(first @ self.share)
        rows = others @ self.scale - along @ (self.sums.table @ self.scale)
        dense = columns - along @ self.sums.outer[:, : self.p]
        found = _forms(csr_matrix(hstack([rows, csr_matrix(dense)])), self.inverse(self.p))
        found += np.asarray(first.multiply(along).sum(axis=1)).ravel()
        for own, basis, root in zip(codes, bases, self.roots, strict=True):
            found += np.where(own < 0, np.sum((basis @ root) ** 2, axis=1), 0.0)
        return found

    def sample(self, rng: np.random.Generator) -> tuple[list[NDArray], NDArray]:
        """Draw spherical effects and columns around their solution, for a noise of 1."""
        L = self.triangle[:-1, :-1]
        moved = solve_triangular(L, rng.standard_normal(len(L)), lower=True, trans="T")
        others, columns = moved[: self.sums.q], moved[self.sums.q :]
        effects = self._all_effects(others, -self.sums.outer[:, :-1] @ columns)
        own = rng.standard_normal((*effects[0].shape, 1))
        effects[0] = effects[0] + np.linalg.solve(self.pivots.swapaxes(1, 2), own)[:, :, 0]
        return effects, columns


def _forms(rows: csr_matrix, matrix: NDArray) -> NDArray:
    """Quadratic forms of sparse rows in a symmetric matrix."""
    rows = csr_matrix(rows)
    rows.sort_indices()
    products = row_products(rows.indptr, rows.indices, rows.data, matrix)
    along = csr_matrix((products * rows.data, rows.indices, rows.indptr), rows.shape)
    return np.asarray(along.sum(axis=1)).ravel()


def _diagonal(blocks: NDArray) -> csr_matrix:
    n = len(blocks)
    size = n * blocks.shape[1]
    return csr_matrix(bsr_matrix((blocks, np.arange(n), np.arange(n + 1)), (size, size)))


def _repeated(root: NDArray, times: int) -> csr_matrix:
    return _diagonal(np.broadcast_to(root, (times, *root.shape)))


def entries_of_roots(sums: SlopedSums, correlated: Sequence[bool]) -> list[tuple[NDArray, ...]]:
    """Rows and columns of the entries of each factor's root that are parameters.

    Entries of columns that are zero are left out.
    """
    found: list[tuple[NDArray, ...]] = []
    for factor, full in enumerate(correlated):
        used = sums.used(factor)
        rows, columns = np.tril_indices(len(used)) if full else np.diag_indices(len(used))
        known = used[rows] & used[columns]
        found.append((rows[known], columns[known]))
    return found


class SlopedFitted(NamedTuple):
    """The maximum of the likelihood."""

    system: SlopedSystem
    converged: bool
    history: list[dict[str, Any]]


def maximise_slopes(sums: SlopedSums, restricted: bool, correlated: Sequence[bool]) -> SlopedFitted:
    """Maximise the likelihood in the roots of the factors.

    Parameters
    ----------
    sums : SlopedSums
        Of bases whose columns have squares of a mean of about 1.
    restricted : bool
    correlated : list of bool
        Whether the coefficients of each factor are, or their covariance is diagonal.

    Raises
    ------
    LinAlgError
        If the columns and the effects explain the response without any noise.
    """
    free = entries_of_roots(sums, correlated)
    ends = np.cumsum([0, *(len(each[0]) for each in free)])

    def roots(x: NDArray) -> list[NDArray]:
        made = []
        for p, places, i, j in zip(sums.widths, free, ends[:-1], ends[1:], strict=True):
            root = np.zeros((int(p), int(p)))
            root[places] = x[i:j]
            made.append(root)
        return made

    def criterion(x: NDArray) -> tuple[float, NDArray]:
        try:
            system = SlopedSystem(sums, roots(x), restricted)
            slopes = system.slope()
        except LinAlgError:
            return np.inf, np.zeros(len(x))
        found = [slope[places] for slope, places in zip(slopes, free, strict=True)]
        return system.deviance, np.concatenate(found)

    pairs = zip(sums.widths, free, strict=True)
    start = np.concatenate([np.eye(int(p))[places] for p, places in pairs]) / 2

    value, slope = criterion(start)
    if not np.isfinite(value):
        raise LinAlgError("the equations of the effects are singular")

    def metric() -> NDArray:
        steps = STEP * np.eye(len(start))
        bends = np.array([criterion(start + step)[1] - slope for step in steps]) / STEP
        values, vectors = np.linalg.eigh((bends + bends.T) / 2)
        values = np.maximum(np.abs(values), 1e-3 * np.abs(values).max())
        return vectors / values @ vectors.T

    with warnings.catch_warnings():  # the fit has a note
        warnings.simplefilter("ignore", ConvergenceWarning)
        x, path, converged = descend(criterion, start, metric, FARTHEST, TOLERANCE)
    if not converged and np.abs(x).max() > NOISELESS:
        raise LinAlgError("nothing is left of the noise")
    rounded = np.where(np.abs(x) < SMALL, 0.0, x)
    if (rounded != x).any() and criterion(rounded)[0] <= path[-1] + TOLERANCE:
        x = rounded
    found = [root * np.where(np.diag(root) < 0, -1.0, 1.0) for root in roots(x)]
    system = SlopedSystem(sums, found, restricted)
    return SlopedFitted(system, converged, [{"criterion": value} for value in path])
