"""Symmetric matrices of the coefficients of all factors of crossed ones but the first.

Pairs of coefficients have an entry where a level of the first factor, or a row, has both. If most
pairs have, such matrices are dense. If factors are all but nested, as pupils in classes of schools,
few have; then triangular factors have few entries, too, in a good order of elimination. Those of
Cuthill and McKee (1969), reversed, and of numbers of neighbours are found at once; that of least
degrees has fewer, but takes as long as a factor, and is for large ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dpotrf, dpotri, dtrtrs
from scipy.sparse import block_diag, csc_matrix, csr_matrix, diags, eye, kron
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu

from ebfed.kernels import (
    block_products,
    count_fill,
    entry_places,
    factor_entries,
    fill_rows,
    inverse_entries,
    multiply_entries,
    products_among,
    row_products,
    solve_backward,
    solve_forward,
    subtract_among,
    subtract_products,
    table_times,
    table_totals,
)

__all__ = [
    "MOST_DENSE",
    "CrossedTable",
    "DensePattern",
    "Pattern",
    "SparsePattern",
    "pattern_of",
    "spans_of",
]

# Coefficients whose matrix is dense.
MOST_DENSE = 6_000
# Coefficients from which few entries are worth while, and the most share of pairs, and of the
# arithmetic of a dense factor, that they may need.
LEAST_SPARSE, DENSITY, SHARE = 50, 0.1, 0.02
# Arithmetic of a factor from which a better order is looked for.
LONG = 1e8
# Pairs within levels of the first factor that are looked at to find out.
MOST_PAIRS = 2e8


class CrossedTable(NamedTuple):
    """A sparse matrix, by rows, of which products cost little beside their arithmetic.

    Attributes
    ----------
    ends : int64 ndarray of shape (n_rows + 1,)
        Ends of the entries of rows.
    columns : int64 ndarray of shape (n_entries,)
        In ascending order within rows.
    values : ndarray of shape (n_entries,)
    size : int
        Number of columns.
    """

    ends: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]
    size: int

    @classmethod
    def of(cls, matrix: csr_matrix) -> Self:
        """Take the entries of a sparse matrix."""
        matrix.sort_indices()
        ends, columns = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
        return cls(ends, columns, matrix.data, matrix.shape[1])

    @property
    def matrix(self) -> csr_matrix:
        """The same as SciPy has it."""
        shape = (len(self.ends) - 1, self.size)
        return csr_matrix((self.values, self.columns, self.ends), shape)

    def times(self, other: NDArray) -> NDArray:
        """Product with a matrix of shape (q, m)."""
        return table_times(self.ends, self.columns, self.values, other)

    def totals(self, other: NDArray) -> NDArray:
        """Product of the transpose with a matrix of shape (n_rows, m)."""
        return table_totals(self.ends, self.columns, self.values, other, self.size)


def spans_of(sizes: Sequence[int], widths: Sequence[int]) -> list[slice]:
    """Places of the coefficients of factors, from numbers of levels and of their coefficients.

    Examples
    --------
    >>> spans_of([3, 2], [1, 2])
    [slice(0, 3, None), slice(3, 7, None)]
    """
    ends = np.cumsum([0, *(n * width for n, width in zip(sizes, widths, strict=True))]).tolist()
    return [slice(i, j) for i, j in pairwise(ends)]


class Pattern(ABC):
    """Which pairs of q coefficients have entries, and arithmetic of matrices that have these.

    A matrix is an array of its values, in the order of the pattern.

    Parameters
    ----------
    sizes, widths : sequence of int
        Numbers of levels of these factors, and of coefficients of a level.
    """

    def __init__(self, sizes: Sequence[int], widths: Sequence[int]):
        self.sizes, self.widths = [*map(int, sizes)], [*map(int, widths)]
        self.spans = spans_of(self.sizes, self.widths)
        self.size = self.spans[-1].stop

    def scaled_columns(
        self, matrix: NDArray, roots: Sequence[NDArray], transpose: bool = False
    ) -> NDArray:
        """Multiply the q columns of a dense matrix by roots of the factors, in place."""
        for own, n, root in zip(self.spans, self.sizes, roots, strict=True):
            if len(root) == 1:
                matrix[:, own] *= root[0, 0]
            else:
                block = matrix[:, own].reshape(len(matrix), n, len(root))
                moved = block @ (root.T if transpose else root)
                matrix[:, own] = moved.reshape(matrix[:, own].shape)
        return matrix

    def levels(self, factor: int) -> tuple[NDArray, NDArray]:
        """Rows and columns of the diagonal blocks of the levels of a factor."""
        own, width = self.spans[factor], self.widths[factor]
        places = np.arange(own.start, own.stop).reshape(-1, width)
        return places[:, :, None], places[:, None, :]

    def diagonal(self, values: NDArray) -> NDArray:
        """Diagonal of a matrix."""
        return self.at(values, np.arange(self.size), np.arange(self.size))

    @abstractmethod
    def zeros(self) -> NDArray:
        """Return a matrix of zeros."""

    @abstractmethod
    def put(self, values: NDArray, rows: NDArray, columns: NDArray, entries: NDArray) -> None:
        """Set entries of a matrix, and of its transpose."""

    @abstractmethod
    def at(self, values: NDArray, rows: NDArray, columns: NDArray) -> NDArray:
        """Entries of a matrix, by rows and columns; NaN where the pattern has none."""

    @abstractmethod
    def times(self, values: NDArray, other: NDArray) -> NDArray:
        """Product of a matrix and a dense one of shape (q, m)."""

    @abstractmethod
    def reduced(self, values: NDArray, table: CrossedTable, shares: NDArray) -> NDArray:
        """Subtract ``sum_i V_i' A_i V_i``, V_i being the rows of level i: the lower triangle."""

    @abstractmethod
    def scaled(self, values: NDArray, roots: Sequence[NDArray], transpose: bool = False) -> NDArray:
        """``R' M R`` for the roots R of factors, or ``R M R'``; may overwrite M."""

    @abstractmethod
    def plus(self, values: NDArray, tall: NDArray) -> NDArray:
        """``M + F F'`` at the entries of the pattern, for F of shape (q, m); may overwrite M."""

    @abstractmethod
    def products(self, values: NDArray, table: CrossedTable) -> NDArray:
        """Products ``M v`` of a matrix and rows v, at their entries; NaN if these are no pairs."""

    @abstractmethod
    def whole(self, values: NDArray) -> NDArray | csr_matrix:
        """A matrix with both triangles, coefficients in their own order, from the lower one."""

    @abstractmethod
    def level_products(self, one: NDArray, other: NDArray, factor: int) -> NDArray:
        """Diagonal blocks of the levels of a factor in the product of two matrices.

        Of the first, the lower triangle is read.
        """

    def values_of(self, matrix: csr_matrix) -> NDArray:
        """Return the values of a matrix with both triangles."""
        found, values = matrix.tocoo(), self.zeros()
        self.put(values, found.row, found.col, found.data)
        return values

    @abstractmethod
    def factor(self, values: NDArray) -> Triangle:
        """Triangular factor of ``I + M``, which may overwrite M.

        Raises
        ------
        LinAlgError
            If that is not positive definite.
        """


class Triangle(ABC):
    """A triangular factor L of a matrix of a pattern.

    Attributes
    ----------
    log_det : float
        Logarithm of the determinant of ``L L'``.
    """

    log_det: float

    @abstractmethod
    def half(self, right: NDArray) -> NDArray:
        """``L^-1 B``, for B of shape (q, m)."""

    @abstractmethod
    def back(self, half: NDArray) -> NDArray:
        """``L'^-1 X``, for X of shape (q, m)."""

    @abstractmethod
    def inverse(self) -> NDArray:
        """Inverse of ``L L'`` at the entries of the pattern."""


class DensePattern(Pattern):
    """Every pair of coefficients has an entry: values have the shape (q, q)."""

    def zeros(self) -> NDArray:
        """A matrix of zeros."""
        return np.zeros((self.size, self.size))

    def put(self, values: NDArray, rows: NDArray, columns: NDArray, entries: NDArray) -> None:
        values[rows, columns] = values[columns, rows] = entries

    def at(self, values: NDArray, rows: NDArray, columns: NDArray) -> NDArray:
        """Entries, by rows and columns."""
        return values[rows, columns]

    def times(self, values: NDArray, other: NDArray) -> NDArray:
        """Product with a dense matrix."""
        return values @ other

    def reduced(self, values: NDArray, table: CrossedTable, shares: NDArray) -> NDArray:
        """Subtract products of the rows of a table."""
        left = values.copy()
        subtract_products(table.ends, table.columns, table.values, shares, left)
        for factor in np.flatnonzero(np.array(self.widths) > 1).tolist():
            places = self.levels(factor)
            blocks = left[places]
            left[places] = np.tril(blocks) + np.tril(blocks, -1).swapaxes(1, 2)
        return left

    def scaled(self, values: NDArray, roots: Sequence[NDArray], transpose: bool = False) -> NDArray:
        """Multiply by roots from both sides."""
        matrix = self.scaled_columns(values, roots, transpose)
        return self.scaled_columns(matrix.T, roots, transpose).T

    def plus(self, values: NDArray, tall: NDArray) -> NDArray:
        """Add products of rows."""
        values += tall @ tall.T
        return values

    def products(self, values: NDArray, table: CrossedTable) -> NDArray:
        """Products with the rows of a table."""
        return row_products(table.ends, table.columns, table.values, values)

    def whole(self, values: NDArray) -> NDArray:
        """Both triangles."""
        lower = np.tril(values, -1)
        lower += lower.T
        lower[np.diag_indices(self.size)] = np.diag(values)
        return lower

    def level_products(self, one: NDArray, other: NDArray, factor: int) -> NDArray:
        """Diagonal blocks of a product."""
        found = np.zeros((self.sizes[factor], self.widths[factor], self.widths[factor]))
        block_products(one, other, self.spans[factor].start, found)
        return found

    def factor(self, values: NDArray) -> Triangle:
        """Triangular factor of this plus the identity."""
        return _DenseTriangle(values)


class _DenseTriangle(Triangle):
    def __init__(self, values: NDArray):
        values[np.diag_indices(len(values))] += 1
        # LAPACK reads the transpose, whose upper triangle this is, without a copy
        self._upper, failed = dpotrf(values.T, lower=False, clean=False, overwrite_a=True)
        diagonal = np.diag(self._upper)
        if failed or not np.isfinite(diagonal).all():
            raise LinAlgError("the equations of the effects are singular")
        self.log_det = float(2 * np.log(diagonal).sum())

    def half(self, right: NDArray) -> NDArray:
        """Solve half of the equations."""
        return dtrtrs(self._upper, right, lower=0, trans=1)[0] if right.shape[1] else right

    def back(self, half: NDArray) -> NDArray:
        """Solve the other half."""
        return dtrtrs(self._upper, half, lower=0, trans=0)[0] if half.shape[1] else half

    def inverse(self) -> NDArray:
        """Entries of the inverse."""
        inverse = np.tril(dpotri(self._upper)[0].T)
        return inverse + np.tril(inverse, -1).T


class SparsePattern(Pattern):
    """Few pairs have an entry: values are those of the lower triangle, in order of elimination.

    Parameters
    ----------
    sizes, widths : as in `Pattern`
    order : int64 ndarray of shape (q,)
        Coefficient that is eliminated at each step; those of a level follow each other.
    starts, rows : int64 ndarray
        Entries of the triangular factor, see `ebfed.kernels.sparse`.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        widths: Sequence[int],
        order: NDArray[np.int64],
        starts: NDArray[np.int64],
        rows: NDArray[np.int64],
    ):
        super().__init__(sizes, widths)
        self.order, self.starts, self.rows = order, starts, rows
        self.columns = np.repeat(np.arange(self.size), np.diff(starts))
        self.step = np.empty_like(order)
        self.step[order] = np.arange(self.size)

    def zeros(self) -> NDArray:
        """A matrix of zeros."""
        return np.zeros(len(self.rows))

    def _places(self, rows: NDArray, columns: NDArray) -> NDArray:
        rows, columns = np.broadcast_arrays(rows, columns)
        one, other = self.step[rows].ravel(), self.step[columns].ravel()
        return entry_places(self.starts, self.rows, one, other).reshape(rows.shape)

    def put(self, values: NDArray, rows: NDArray, columns: NDArray, entries: NDArray) -> None:
        values[self._places(rows, columns)] = entries

    def at(self, values: NDArray, rows: NDArray, columns: NDArray) -> NDArray:
        """Entries, by rows and columns."""
        places = self._places(rows, columns)
        return np.where(places < 0, np.nan, values[places])

    def times(self, values: NDArray, other: NDArray) -> NDArray:
        """Product with a dense matrix."""
        moved = np.ascontiguousarray(other[self.order])
        return multiply_entries(self.starts, self.rows, values, moved)[self.step]

    def _of(self, table: CrossedTable) -> tuple[NDArray, NDArray, NDArray]:
        return table.ends, self.step[table.columns], table.values

    def reduced(self, values: NDArray, table: CrossedTable, shares: NDArray) -> NDArray:
        """Subtract products of the rows of a table."""
        left = values.copy()
        subtract_among(self._of(table), shares, self.starts, self.rows, left)
        return left

    def scaled(self, values: NDArray, roots: Sequence[NDArray], transpose: bool = False) -> NDArray:
        """Multiply by roots from both sides."""
        if max(self.widths) == 1:
            size = np.concatenate(
                [np.full(n, root[0, 0]) for n, root in zip(self.sizes, roots, strict=True)]
            )[self.order]
            return values * size[self.rows] * size[self.columns]
        each = [root.T if transpose else root for root in roots]
        turn = csr_matrix(
            block_diag([kron(eye(n), root) for n, root in zip(self.sizes, each, strict=True)])
        )
        return self.values_of(csr_matrix(turn.T @ self.whole(values) @ turn))

    def level_products(self, one: NDArray, other: NDArray, factor: int) -> NDArray:
        """Diagonal blocks of a product."""
        width, own = self.widths[factor], self.spans[factor]
        if width == 1:
            both, off = one * other, self.rows != self.columns
            total = np.bincount(self.rows, both, self.size)
            total += np.bincount(self.columns[off], both[off], self.size)
            return total[self.step[own]][:, None, None]
        left, right = self.whole(one), self.whole(other)
        found = np.empty((self.sizes[factor], width, width))
        for a, b in np.ndindex(width, width):
            of_one = left[own.start + a : own.stop : width]
            of_other = right[own.start + b : own.stop : width]
            found[:, a, b] = np.ravel(of_one.multiply(of_other).sum(axis=1))
        return found

    def whole(self, values: NDArray) -> csr_matrix:
        """Both triangles."""
        rows, columns = self.order[self.rows], self.order[self.columns]
        off = rows != columns
        places = np.append(rows, columns[off]), np.append(columns, rows[off])
        return csr_matrix((np.append(values, values[off]), places), (self.size, self.size))

    def plus(self, values: NDArray, tall: NDArray) -> NDArray:
        """Add products of rows."""
        moved = tall[self.order]
        for column in moved.T:
            values = values + column[self.rows] * column[self.columns]
        return values

    def products(self, values: NDArray, table: CrossedTable) -> NDArray:
        """Products with the rows of a table."""
        return products_among(self._of(table), self.starts, self.rows, values)

    def factor(self, values: NDArray) -> Triangle:
        """Triangular factor of this plus the identity."""
        return _SparseTriangle(self, values)


class _SparseTriangle(Triangle):
    def __init__(self, pattern: SparsePattern, values: NDArray):
        self.pattern = pattern
        values[pattern.starts[:-1]] += 1
        self._values = values
        self.log_det = float(factor_entries(pattern.starts, pattern.rows, values))
        if not np.isfinite(self.log_det):
            raise LinAlgError("the equations of the effects are singular")

    def half(self, right: NDArray) -> NDArray:
        """Solve half of the equations."""
        half = np.array(right[self.pattern.order], order="C")
        solve_forward(self.pattern.starts, self.pattern.rows, self._values, half)
        return half

    def back(self, half: NDArray) -> NDArray:
        """Solve the other half."""
        solution = np.array(half, order="C")
        solve_backward(self.pattern.starts, self.pattern.rows, self._values, solution)
        return solution[self.pattern.step]

    def inverse(self) -> NDArray:
        """Entries of the inverse."""
        return inverse_entries(self.pattern.starts, self.pattern.rows, self._values)


def pattern_of(
    sizes: Sequence[int], widths: Sequence[int], table: CrossedTable, among: csr_matrix
) -> Pattern:
    """Choose the pattern of matrices with these entries.

    Parameters
    ----------
    sizes, widths : sequence of int
        Of the factors but the first.
    table : CrossedTable of q columns
        Coefficients that rows of the table have together.
    among : sparse matrix of shape (q, q)
        Pairs of coefficients of rows; those of a level have the same entries as each other.

    Raises
    ------
    ValueError
        If there are more than 6,000 coefficients, and too many pairs.
    """
    dense = DensePattern(sizes, widths)
    found = _few_entries(dense, table, among) if dense.size >= LEAST_SPARSE else None
    if found is None and dense.size > MOST_DENSE:
        raise ValueError(
            f"the factors but the largest have {dense.size:,} coefficients of levels together; "
            f"more than {MOST_DENSE:,} are fitted only if factors are nearly nested, so that few "
            "levels share levels of others."
        )
    return found or dense


def _few_entries(
    dense: DensePattern, table: CrossedTable, among: csr_matrix
) -> SparsePattern | None:
    """Return the pattern of few entries; None if it would not be worth while."""
    lengths = np.diff(table.ends).astype(np.float64)
    if lengths @ lengths > MOST_PAIRS:
        return None
    q, ones = dense.size, np.ones
    rows = table._replace(values=ones(len(table.values))).matrix
    pairs = csr_matrix((ones(among.nnz), among.indices, among.indptr), among.shape)
    level = np.repeat(np.arange(sum(dense.sizes)), np.repeat(dense.widths, dense.sizes))
    within = csr_matrix((ones(q), level, np.arange(q + 1)))
    for some in (rows[: rows.shape[0] // 8], rows):  # a part may show that there are too many
        graph = csr_matrix(some.T @ some + pairs + pairs.T + within @ within.T)
        if graph.nnz > DENSITY * q**2:
            return None
    most = min(SHARE * q**3 / 3, MOST_DENSE**3 / 3)
    of_levels = csr_matrix(within.T @ graph @ within)
    ends, columns = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    best: tuple | None = None
    for find in (_near_diagonal, _fewest_neighbours, _least_degree):
        if find is _least_degree and (best is None or most < LONG):
            break
        rank = np.argsort(find(of_levels))
        order = np.argsort(rank[level], kind="stable")
        counts, parent = count_fill(ends, columns, order, most)
        if len(counts):
            most, best = float(counts.astype(float) @ counts), (order, counts, parent)
    if best is None or best[1].sum() > MOST_DENSE**2:
        return None
    return SparsePattern(dense.sizes, dense.widths, best[0], *fill_rows(ends, columns, *best))


def _near_diagonal(graph: csr_matrix) -> NDArray:
    return reverse_cuthill_mckee(graph, symmetric_mode=True)


def _fewest_neighbours(graph: csr_matrix) -> NDArray:
    return np.argsort(np.diff(graph.indptr), kind="stable")


def _least_degree(graph: csr_matrix) -> NDArray:
    """Eliminate the one with the fewest neighbours at each step (Liu 1985), as SuperLU does."""
    weights = csc_matrix(graph + diags(1.0 + np.ravel(graph.sum(axis=1))))
    options = {"SymmetricMode": True}
    found = splu(weights, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    return np.argsort(found.perm_c)
