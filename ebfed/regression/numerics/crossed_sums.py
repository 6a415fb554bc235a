"""Rows of crossed factors, and the sums over rows of which their equations are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from ebfed.regression.numerics.crossed_patterns import CrossedTable, Pattern, pattern_of, spans_of

__all__ = ["CrossedDesign", "CrossedSums", "placed"]


@dataclass(frozen=True)
class CrossedSums:
    """What the likelihood needs of the rows.

    Level j of factor k has p_k coefficients; the first factor is the one with the most.

    Attributes
    ----------
    blocks : ndarray of shape (n_1, p_1, p_1)
        Weighed products of the columns of the first factor, by level.
    table : CrossedTable of n_1 * p_1 rows
        Their products with the q coefficients of all other factors. The rows of a level have
        entries in the same places, some of which may be zero.
    outer : ndarray of shape (n_1 * p_1, c)
        Their products with c columns, the last of which may be the response.
    among : ndarray
        Weighed products of the other factors' columns, by level: a matrix of `pattern`.
    below : ndarray of shape (q, c)
        Their products with the c columns.
    whole : ndarray of shape (c, c)
        Products of these with each other.
    pattern : Pattern
    sizes, widths : int64 ndarray of shape (n_factors,)
        Numbers of levels, and of coefficients of a level.
    n_rows : int
    """

    blocks: NDArray
    table: CrossedTable
    outer: NDArray
    among: NDArray
    below: NDArray
    whole: NDArray
    pattern: Pattern
    sizes: NDArray[np.int64]
    widths: NDArray[np.int64]
    n_rows: int

    @property
    def q(self) -> int:
        """Number of coefficients of all factors but the first."""
        return self.pattern.size

    def split(self, others: NDArray) -> list[NDArray]:
        """Values of the coefficients of all factors but the first, by factor and level."""
        pairs = zip(self.pattern.spans, self.sizes[1:], self.widths[1:], strict=True)
        return [others[own].reshape(n, width, *others.shape[1:]) for own, n, width in pairs]

    def weights_of(self, factor: int) -> NDArray:
        """Weighed sums of squares of the columns of a factor, shape (n_levels, p_k)."""
        if factor == 0:
            return np.einsum("iaa->ia", self.blocks)
        return self.split(self.pattern.diagonal(self.among))[factor - 1]

    def totals_of(self, factor: int) -> NDArray:
        """Weighed products of these columns with the c columns, shape (n_levels, p_k, c)."""
        if factor == 0:
            return self.outer.reshape(*self.blocks.shape[:2], self.outer.shape[1])
        return self.split(self.below)[factor - 1]

    def combined(self, turn: NDArray) -> Self:
        """Sums with combinations of the c columns in their place, shape (c, c')."""
        outer, below, whole = self.outer @ turn, self.below @ turn, turn.T @ self.whole @ turn
        return replace(self, outer=outer, below=below, whole=whole)


class _Pairs(NamedTuple):
    """Pairs of levels of two factors that occur in rows, and the pair of each row."""

    one: NDArray[np.int64]
    other: NDArray[np.int64]
    slots: NDArray[np.int64]

    @classmethod
    def of(cls, one: NDArray, other: NDArray, size: int) -> _Pairs:
        """Find the pairs, in order; the other factor has `size` levels."""
        pairs, slots = np.unique(one * size + other, return_inverse=True)
        return cls(pairs // size, pairs % size, slots)


class _Entries(NamedTuple):
    """Where the entries of the table are.

    Attributes
    ----------
    columns, ends : int64 ndarray
        Columns of the entries, and ends of rows.
    first : list of int64 ndarray
        For each factor but the first, the place of the first entry of each of its pairs.
    length : list of int64 ndarray
        Number of entries of the rows of their levels.
    """

    columns: NDArray[np.int64]
    ends: NDArray[np.int64]
    first: list[NDArray[np.int64]]
    length: list[NDArray[np.int64]]


@dataclass(frozen=True)
class CrossedDesign:
    """Level of each row of each factor, and the columns whose coefficients its levels have.

    Attributes
    ----------
    codes : list of int64 ndarray of shape (n_rows,)
        The first is of the factor with the most coefficients.
    sizes : int64 ndarray of shape (n_factors,)
        Numbers of levels.
    bases : list of ndarray of shape (n_rows, p_k)
    """

    codes: Sequence[NDArray[np.int64]]
    sizes: NDArray[np.int64]
    bases: Sequence[NDArray[np.float64]]

    @cached_property
    def widths(self) -> NDArray[np.int64]:
        """Number of coefficients of a level of each factor."""
        return np.array([basis.shape[1] for basis in self.bases])

    @cached_property
    def spans(self) -> list[slice]:
        """Places of the coefficients of each factor but the first."""
        return spans_of(self.sizes[1:].tolist(), self.widths[1:].tolist())

    @cached_property
    def among(self) -> dict[tuple[int, int], _Pairs]:
        """Pairs of levels of factors k > l, and of the first (l = 0) with each other one."""
        K = len(self.codes)
        return {
            (k, j): _Pairs.of(self.codes[j], self.codes[k], int(self.sizes[k]))
            for k in range(1, K)
            for j in range(k)
        }

    @cached_property
    def places(self) -> _Entries:
        """Where the entries of the table are."""
        n, p, widths = int(self.sizes[0]), int(self.widths[0]), self.widths
        pairs = [self.among[k, 0] for k in range(1, len(self.codes))]
        level = np.concatenate([each.one for each in pairs])
        width = np.repeat(widths[1:], [len(each.one) for each in pairs])
        starts = [span.start for span in self.spans]
        begin = np.concatenate(
            [
                start + each.other * own
                for start, each, own in zip(starts, pairs, widths[1:].tolist(), strict=True)
            ]
        )
        order = np.argsort(level, kind="stable")
        length = np.bincount(level, width, n).astype(np.int64)
        before = np.concatenate(([0], np.cumsum(length)))  # of one row of each level
        offset = np.empty(len(level), np.int64)
        offset[order] = np.cumsum(width[order]) - width[order]
        offset -= before[level]
        first = p * before[level] + offset
        columns = np.empty(p * before[-1], np.int64)
        ends = np.concatenate(([0], np.cumsum(np.repeat(length, p))))
        for a in range(p):
            for b in range(int(width.max(initial=0))):
                own = width > b
                columns[first[own] + a * length[level[own]] + b] = begin[own] + b
        cuts = np.cumsum([len(each.one) for each in pairs])[:-1]
        return _Entries(columns, ends, np.split(first, cuts), np.split(length[level], cuts))

    @cached_property
    def pattern(self) -> Pattern:
        """Pairs of coefficients of all factors but the first that have entries."""
        n, p, places = int(self.sizes[0]), int(self.widths[0]), self.places
        q, starts = self.spans[-1].stop, [span.start for span in self.spans]
        lengths = np.diff(places.ends)[::p]  # the rows of a level have entries in the same places
        own = np.repeat(np.arange(n * p) % p == 0, np.diff(places.ends))
        ends = np.concatenate(([0], np.cumsum(lengths)))
        table = CrossedTable(ends, places.columns[own], np.ones(own.sum()), q)
        rows, columns = [], []
        for (k, j), pairs in self.among.items():
            if j == 0:
                continue
            for a in range(int(self.widths[k])):
                for b in range(int(self.widths[j])):
                    rows.append(starts[k - 1] + pairs.other * self.widths[k] + a)
                    columns.append(starts[j - 1] + pairs.one * self.widths[j] + b)
        place = (
            np.concatenate([*rows, []]).astype(int),
            np.concatenate([*columns, []]).astype(int),
        )
        among = csr_matrix((np.ones(len(place[0])), place), (q, q))
        return pattern_of(self.sizes[1:].tolist(), self.widths[1:].tolist(), table, among)

    def sums(self, weight: NDArray, columns: NDArray) -> CrossedSums:
        """Add up rows with weights, and c columns, shape (n_rows, c)."""
        sizes, widths = self.sizes, self.widths
        spans, own = self.spans, self.bases[0] * weight[:, None]
        q = spans[-1].stop
        n, p = int(sizes[0]), int(widths[0])
        blocks = np.empty((n, p, p))
        for a in range(p):
            for b in range(a + 1):
                total = np.bincount(self.codes[0], own[:, a] * self.bases[0][:, b], n)
                blocks[:, a, b] = blocks[:, b, a] = total
        places = self.places
        entries = np.zeros(len(places.columns))
        pattern, among = self.pattern, self.pattern.zeros()
        for k in range(1, len(sizes)):
            basis, begin = self.bases[k], spans[k - 1].start
            pairs, first, length = self.among[k, 0], places.first[k - 1], places.length[k - 1]
            for a in range(p):
                for b in range(int(widths[k])):
                    total = np.bincount(pairs.slots, own[:, a] * basis[:, b], len(first))
                    entries[first + a * length + b] = total
            weighed = basis * weight[:, None]
            levels = np.arange(sizes[k])
            for j in range(1, k + 1):
                same = _Pairs(levels, levels, self.codes[k]) if j == k else self.among[k, j]
                for a in range(int(widths[k])):
                    for b in range(int(widths[j])):
                        total = np.bincount(
                            same.slots, weighed[:, a] * self.bases[j][:, b], len(same.one)
                        )
                        rows = begin + same.other * widths[k] + a
                        others = spans[j - 1].start + same.one * widths[j] + b
                        pattern.put(among, rows, others, total)
        weighed = weight[:, None] * columns
        outer, below = self.totals(weighed)
        table = CrossedTable(places.ends, places.columns, entries, q)
        return CrossedSums(
            blocks,
            table,
            outer,
            among,
            below,
            columns.T @ weighed,
            pattern,
            sizes,
            widths,
            len(weight),
        )

    def taken(self, index: NDArray) -> Self:
        """Keep the rows in these positions."""
        own = [codes[index] for codes in self.codes], [basis[index] for basis in self.bases]
        return type(self)(own[0], self.sizes, own[1])

    @property
    def matrices(self) -> tuple[csr_matrix, csr_matrix]:
        """Columns of the coefficients of the first factor, and of all others; none at level -1."""
        spans, count = self.spans, int(self.sizes[0] * self.widths[0])
        first = placed(self.codes[0], self.bases[0], count)
        others = csr_matrix((len(self.codes[0]), spans[-1].stop))
        for own, basis, span in zip(self.codes[1:], self.bases[1:], spans, strict=True):
            others = others + placed(own, basis, spans[-1].stop, span.start)
        return first, csr_matrix(others)

    def totals(self, columns: NDArray) -> tuple[NDArray, NDArray]:
        """Products of the columns of the factors with c columns of rows.

        Returns
        -------
        first : ndarray of shape (n_1 * p_1, c)
        others : ndarray of shape (q, c)
        """
        found = []
        for own, size, basis in zip(self.codes, self.sizes.tolist(), self.bases, strict=True):
            total = np.empty((size, basis.shape[1], columns.shape[1]))
            for a, values in enumerate(basis.T):
                for b, column in enumerate(columns.T):
                    total[:, a, b] = np.bincount(own, values * column, size)
            found.append(total.reshape(size * basis.shape[1], columns.shape[1]))
        return found[0], np.concatenate(found[1:])

    def predictor(self, effects: Sequence[NDArray]) -> NDArray[np.float64]:
        """Sum of the effects of each row, from coefficients of levels of shape (n_k, p_k)."""
        total = np.zeros(len(self.codes[0]))
        for own, basis, values in zip(self.codes, self.bases, effects, strict=True):
            for a, column in enumerate(basis.T):
                total += column * values[own, a]
        return total


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
