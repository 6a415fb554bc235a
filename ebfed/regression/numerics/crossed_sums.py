"""Rows of crossed factors, and the sums over rows of which their equations are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

__all__ = ["CrossedLevels", "CrossedSums"]


@dataclass(frozen=True)
class CrossedSums:
    """What the likelihood needs of the rows.

    Attributes
    ----------
    first : ndarray of shape (q1,)
        Sum of the weights of each level of the first factor, the one with the most levels.
    table : sparse matrix of shape (q1, q)
        Sums of weights of the pairs of its levels with the q levels of all other factors.
    outer : ndarray of shape (q1, c)
        Weighed sums of c columns in its levels; the last may be the response.
    inner : ndarray of shape (q + c, q + c)
        Weighed products of the indicators of the q other levels, and the columns.
    owner : int64 ndarray of shape (q,)
        Number of the factor of each of these levels, from 1.
    n_rows : int
    """

    first: NDArray
    table: csr_matrix
    outer: NDArray
    inner: NDArray
    owner: NDArray[np.int64]
    n_rows: int

    @property
    def q(self) -> int:
        """Number of levels of all factors but the first."""
        return len(self.owner)

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return 1 + int(self.owner.max(initial=0))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of levels of each factor."""
        return np.concatenate(([len(self.first)], np.bincount(self.owner)[1:]))

    def weights_of(self, factor: int) -> NDArray:
        """Sums of weights of the levels of a factor."""
        own = np.flatnonzero(self.owner == factor)
        return self.first if factor == 0 else self.inner[own, own]

    def totals_of(self, factor: int) -> NDArray:
        """Weighed sums of the last column of the levels of a factor."""
        own = np.flatnonzero(self.owner == factor)
        return self.outer[:, -1] if factor == 0 else self.inner[own, -1]


@dataclass(frozen=True)
class CrossedLevels:
    """Levels of rows, and which pairs of levels occur.

    Attributes
    ----------
    codes : int64 ndarray of shape (n_rows,)
        Level of each row of the first factor, the one with the most levels.
    places : int64 ndarray of shape (n_rows, k)
        Level of each row of the k other factors, among the q levels of all of these.
    sizes : int64 ndarray of shape (1 + k,)
        Numbers of levels.
    owner : int64 ndarray of shape (q,)
        Number of the factor of each of the other levels, from 1.
    table : sparse matrix of shape (q1, q)
        Pairs of levels of the first factor and others.
    slots : int64 ndarray of shape (n_rows, k)
        Entries of the table in which rows are.
    """

    codes: NDArray[np.int64]
    places: NDArray[np.int64]
    sizes: NDArray[np.int64]
    owner: NDArray[np.int64]
    table: csr_matrix
    slots: NDArray[np.int64]

    @classmethod
    def of(cls, codes: Sequence[NDArray], sizes: Sequence[int]) -> Self:
        """Find the pairs of levels, of factors in this order."""
        starts = np.concatenate(([0], np.cumsum(sizes[1:-1]))).astype(np.int64)
        places = np.column_stack(
            [own + start for own, start in zip(codes[1:], starts, strict=True)]
        )
        q, owner = int(sum(sizes[1:])), np.repeat(np.arange(1, len(sizes)), sizes[1:])
        keys = codes[0][:, None] * q + places
        pairs, slots = np.unique(keys.ravel(), return_inverse=True)
        indptr = np.searchsorted(pairs, np.arange(sizes[0] + 1) * q)
        table = csr_matrix((np.zeros(len(pairs)), pairs % q, indptr), (sizes[0], q))
        return cls(codes[0], places, np.array(sizes), owner, table, slots.reshape(keys.shape))

    @property
    def by_factor(self) -> list[NDArray[np.int64]]:
        """Level of each row of each factor."""
        starts = np.concatenate(([0], np.cumsum(self.sizes[1:-1])))
        return [self.codes, *(self.places - starts).T]

    @cached_property
    def _among(self) -> list[tuple[NDArray, NDArray, NDArray]]:
        """Pairs of levels of other factors, and that of each row."""
        found, q = [], len(self.owner)
        for j in range(self.places.shape[1]):
            for k in range(j):
                keys = self.places[:, j] * q + self.places[:, k]
                pairs, slots = np.unique(keys, return_inverse=True)
                found.append((pairs // q, pairs % q, slots))
        return found

    def sums(self, weight: NDArray, columns: NDArray) -> CrossedSums:
        """Add up rows with weights, and c columns, shape (n_rows, c)."""
        q, c = len(self.owner), columns.shape[1]
        weighed = weight[:, None] * columns
        inner = np.zeros((q + c, q + c))
        for j in range(self.places.shape[1]):
            inner[np.arange(q), np.arange(q)] += np.bincount(self.places[:, j], weight, q)
        for rows, others, slots in self._among:
            inner[rows, others] = inner[others, rows] = np.bincount(slots, weight, len(rows))
        first, others = self.totals(weighed)
        inner[:q, q:], inner[q:, :q], inner[q:, q:] = others, others.T, columns.T @ weighed
        entries = np.zeros(self.table.nnz)
        for slots in self.slots.T:
            entries += np.bincount(slots, weight, len(entries))
        table = csr_matrix((entries, self.table.indices, self.table.indptr), self.table.shape)
        alone = np.bincount(self.codes, weight, self.sizes[0])
        return CrossedSums(alone, table, first, inner, self.owner, len(weight))

    def totals(self, columns: NDArray) -> tuple[NDArray, NDArray]:
        """Add up columns of rows by level of the first factor, and of the others."""
        first = np.empty((self.sizes[0], columns.shape[1]))
        others = np.zeros((len(self.owner), columns.shape[1]))
        for c, column in enumerate(columns.T):
            first[:, c] = np.bincount(self.codes, column, self.sizes[0])
            for places in self.places.T:
                others[:, c] += np.bincount(places, column, len(self.owner))
        return first, others

    def of_rows(self, first: NDArray, others: NDArray) -> NDArray:
        """Effect of each row of each factor, shape (n_rows, 1 + k), from those of levels."""
        return np.column_stack([first[self.codes], others[self.places]])
