"""Factors of the rows of each level of a factor, whose noise differs between levels.

A row of level k has weight ``1 / ratio_k**2``, where `ratio_k` is its standard deviation over that
of the first level. So one triangle for each client and level is all that a linear model needs,
whatever the ratios are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factored, Factors
from ebfed.tables.labels import number_labels
from ebfed.tables.values import plain

__all__ = ["Dispersed", "check_names", "levels_of_rows"]

MOST = 100  # levels of noise


@dataclass(frozen=True)
class Dispersed(Factored):
    """What a linear model needs of a block of clients, whose rows have several levels of noise.

    Attributes
    ----------
    ids : ndarray of shape (n_clients,)
    levels : tuple of n_levels str
        Names of the levels, sorted.
    counts : int64 ndarray of shape (n_clients, n_levels)
        Numbers of rows.
    rows : ndarray of shape (n_clients, n_levels, r, d + 1)
        Triangular factors; see `Factors`.
    log_weight : ndarray of shape (n_clients,) or None
        As of `Factors`.

    Examples
    --------
    >>> clients = Clients.from_rows([[1.0], [2.0], [2.0]], [7, 7, 7], [3.0, 1.0, 0.0])
    >>> block = Dispersed.of(clients, np.array(["a", "b", "b"]))
    >>> block.counts, block.rows.shape
    (array([[1, 2]]), (1, 2, 2, 2))
    >>> half = block.weighed(np.array([1.0, 2.0])).rows[0]
    >>> half.T @ half
    array([[3.  , 3.5 ],
           [3.5 , 9.25]])
    """

    ids: NDArray
    levels: tuple[str, ...]
    counts: NDArray[np.int64]
    rows: NDArray[np.float64]
    log_weight: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, clients: Clients, levels: NDArray, weight: NDArray | None = None) -> Self:
        """Compress clients' rows.

        Parameters
        ----------
        clients : Clients
        levels : ndarray of shape (n_rows,)
            Level of each row, in the order of the clients.
        weight : ndarray of shape (n_rows,), optional
            Weight of each row; rows of weight 0 are not counted.
        """
        names, codes = np.unique(levels.astype(str), return_inverse=True)
        owner = np.repeat(np.arange(len(clients.ids)), np.diff(clients.indptr))
        width = clients.X.shape[1] + 1
        blocks = []
        for level in range(len(names)):
            own = codes == level
            indptr = np.append(0, np.cumsum(np.bincount(owner[own], minlength=len(clients.ids))))
            y = None if clients.y is None else clients.y[own]
            part = Clients(clients.ids, indptr.astype(np.int64), clients.X[own], y)
            blocks.append(Factors.of(part, None if weight is None else weight[own]))
        size = max((block.rows.shape[1] for block in blocks), default=0)
        counts = np.zeros((len(clients.ids), len(names)), np.int64)
        rows = np.zeros((len(clients.ids), len(names), size, width))
        for level, block in enumerate(blocks):
            counts[:, level], rows[:, level] = block.n, block.padded(size)
        logs = None
        if weight is not None:
            logs = np.zeros(len(clients.ids))
            for block in blocks:
                logs = logs + cast(NDArray, block.log_weight)
        return cls(clients.ids, tuple(names.tolist()), counts, rows, logs)

    @property
    def n(self) -> NDArray[np.int64]:
        """Number of rows of each client, of all levels."""
        return self.counts.sum(axis=1)

    def weighed(self, ratios: NDArray) -> Factors:
        """Return factors of rows over the ratios of their noise.

        Parameters
        ----------
        ratios : ndarray of shape (n_levels,)
        """
        m, k, r, width = self.rows.shape
        rows = (self.rows / ratios[:, None, None]).reshape(m * k * r, width)
        some = rows.any(axis=1)
        places = np.repeat(np.arange(m), k * r)[some]
        parts = Factors(places, np.zeros(len(places), np.int64), rows[some][:, None, :])
        whole = parts.joined(self.ids)
        return Factors(self.ids, self.n, whole.rows, self.log_weight)

    def with_levels(self, levels: Sequence[str]) -> Self:
        """Put levels in the places of these, among which they are."""
        places = [list(levels).index(name) for name in self.levels]
        counts = np.zeros((len(self), len(levels)), np.int64)
        rows = np.zeros((len(self), len(levels), *self.rows.shape[2:]))
        counts[:, places], rows[:, places] = self.counts, self.rows
        return type(self)(self.ids, tuple(levels), counts, rows, self.log_weight)

    def occupied(self) -> Self:
        """Leave out levels that no client has rows of."""
        some = self.counts.sum(axis=0) > 0
        levels = tuple(name for name, kept in zip(self.levels, some, strict=True) if kept)
        return type(self)(
            self.ids, levels, self.counts[:, some], self.rows[:, some], self.log_weight
        )

    def padded(self, size: int) -> NDArray[np.float64]:
        """Rows, with zeros up to `size` of them for each client and level."""
        return np.pad(self.rows, [(0, 0), (0, 0), (0, size - self.rows.shape[2]), (0, 0)])

    def take(self, index: NDArray | slice) -> Self:
        logs = None if self.log_weight is None else self.log_weight[index]
        return type(self)(self.ids[index], self.levels, self.counts[index], self.rows[index], logs)

    def at(self, level: int) -> Factors:
        """Return factors of the rows of one level; the first has the weights of all."""
        logs = self.log_weight
        if logs is not None and level:
            logs = np.zeros_like(logs)
        return Factors(self.ids, self.counts[:, level], self.rows[:, level], logs)

    def merge(self, other: Self) -> Self:
        """Compress the union of the rows behind two blocks, which may share clients.

        Raises
        ------
        ValueError
            If the two have different numbers of columns.
        """
        levels = sorted({*self.levels, *other.levels})
        one, two = self.with_levels(levels), other.with_levels(levels)
        merged = [one.at(k).merge(two.at(k)) for k in range(len(levels))]
        return self.stacked(merged, levels)

    @classmethod
    def stacked(cls, blocks: Sequence[Factors], levels: Sequence[str]) -> Self:
        """Put factors of the same clients side by side, one block for each level."""
        size = max(block.rows.shape[1] for block in blocks)
        rows = np.stack([block.padded(size) for block in blocks], axis=1)
        counts = np.stack([block.n for block in blocks], axis=1)
        return cls(blocks[0].ids, tuple(levels), counts, rows, blocks[0].log_weight)


def levels_of_rows(labels: NDArray) -> NDArray[np.str_]:
    """Return the level of each row, as text.

    Raises
    ------
    ValueError
        If labels are numbers that are not whole.

    Examples
    --------
    >>> levels_of_rows(np.array([1.0, 0.0])).tolist()
    ['1', '0']
    """
    labels = plain(labels)
    if labels.dtype.kind == "f":
        if (labels != np.floor(labels)).any() or np.abs(labels).max(initial=0) >= 2**53:
            raise ValueError(
                "dispersion must be labels of levels, each of which has a noise; got numbers that "
                "are not whole."
            )
        labels = labels.astype(np.int64)
    ids, codes = number_labels(labels, "dispersion")
    return np.array([str(label) for label in ids.tolist()], str)[codes]


def check_names(names: Sequence[str]) -> None:
    """Refuse names of levels that a message cannot hold, and more than `MOST` of them."""
    if len(names) > MOST:
        raise ValueError(
            f"dispersion has {len(names)} levels, each of which has a noise to estimate; at most "
            f"{MOST} can be fitted. VarianceEB shrinks the variances of many groups."
        )
    if any("\n" in name or not name for name in names):
        raise ValueError("dispersion must have names of levels of one line, and not empty.")
