"""Statistics of groups whose rows arrive in batches."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.kernels import add_rows, number_more
from ebfed.tables.clients import LARGEST, Summary

__all__ = ["Adders", "Tally"]

# Whole numbers in a range of this width are rows of a table; others are looked up.
NEAR = 1 << 20


class Tally:
    """Numbers of rows, means and scatters of groups; rows can be added at any time.

    Examples
    --------
    >>> tally = Tally()
    >>> tally.add(np.array([7, 5]), np.array([1.0, 2.0]))
    >>> tally.add(np.array([7, 9]), np.array([3.0, 4.0]))
    >>> n, mean, scatter = tally.figures()
    >>> tally.labels().tolist(), n.tolist(), mean.tolist()
    ([5, 7, 9], [1, 2, 1], [2.0, 2.0, 4.0])
    """

    def __init__(self) -> None:
        self._table = np.zeros((1024, 4))
        self._size = 0
        # labels in a narrow range are row numbers of the table; others are looked up
        self._near, self._low, self._type = True, 0, np.dtype(np.int64)
        self._slots = np.zeros((1024, 2), np.int64)
        self._numbers: list[NDArray] = []
        self._places: dict[Any, int] = {}

    def add(self, labels: ArrayLike, values: NDArray, codes: NDArray | None = None) -> None:
        """Add rows.

        Parameters
        ----------
        labels : array-like
            Numbers or times, one per row; with `codes`, labels of any type. All have one type,
            and none is missing.
        values : float64 ndarray of shape (n_rows,)
        codes : int ndarray of shape (n_rows,), optional
            Positions of labels: that of row i is ``labels[codes[i]]``.
        """
        if codes is not None:
            self._near, places = False, self._find(labels)[codes]
        elif self._covers(labels := np.asarray(labels)):
            add_rows(self._table, values, labels.astype(np.int64, copy=False), self._low)
            return
        else:
            places = self._count(labels)
        self._table = _longer(self._table, self._size)
        add_rows(self._table, values, places, 0)

    def _covers(self, labels: NDArray) -> bool:
        """Return whether labels are row numbers of the table, which grows if needed."""
        if not self._near or not len(labels):
            return self._near
        low, high = (labels.min(), labels.max()) if labels.dtype.kind in "iu" else (0, NEAR)
        low, high = int(low), int(high)
        if self._size:
            low, high = min(low, self._low), max(high, self._low + self._size - 1)
        if high - low >= NEAR or high > np.iinfo(np.int64).max:
            self._look_up()
            return False
        if self._size and low < self._low:
            self._table = np.concatenate([np.zeros((self._low - low, 4)), self._table])
        self._low, self._size, self._type = low, high - low + 1, labels.dtype
        self._table = _longer(self._table, self._size)
        return True

    def _look_up(self) -> None:
        """Look labels up from now on, because their range is too wide."""
        numbers, kept = self.labels(), self._kept()
        self._near, self._size, self._table = False, len(kept), self._table[kept]
        self._slots, *_ = number_more(self._slots, 0, numbers.astype(np.int64))
        self._numbers = [numbers] if len(kept) else []

    def _kept(self) -> NDArray[np.int64]:
        """Return the rows of the table that are groups."""
        rows = self._table[: self._size, 0]
        return np.flatnonzero(rows) if self._near else np.arange(self._size)

    def _count(self, labels: NDArray) -> NDArray[np.int64]:
        """Number labels of at most 64 bits."""
        if labels.dtype.kind == "f":
            keys = labels.astype(np.float64) + 0.0  # one of the two zeros
        else:
            keys = labels if labels.dtype.kind in "Mm" else labels.astype(np.int64)
        self._slots, places, first = number_more(self._slots, self._size, keys.view(np.int64))
        self._numbers.append(labels[first])
        self._size += len(first)
        return places

    def _find(self, labels: Any) -> NDArray[np.int64]:
        """Number distinct labels."""
        places = np.array([self._places.setdefault(each, len(self._places)) for each in labels])
        self._size = len(self._places)
        return places.astype(np.int64)

    def labels(self) -> NDArray:
        """Return labels, in the order of `figures`."""
        if self._near:
            return (self._low + self._kept()).astype(self._type)
        if self._places or not self._numbers:
            return np.array(list(self._places), dtype=object)
        return np.concatenate(self._numbers)

    def __len__(self) -> int:
        return len(self._kept())

    def figures(self) -> tuple[NDArray[np.int64], NDArray, NDArray]:
        """Return numbers of rows, means and scatters, in the order of `labels`."""
        n, first, mean, scatter = self._table[self._kept()].T
        return n.astype(np.int64), first + mean, scatter

    def overflows(self) -> bool:
        """Return whether squares exceed the range of float64."""
        _, mean, scatter = self.figures()
        return not ((np.abs(mean) < LARGEST).all() and (scatter < LARGEST**2).all())

    def summary(self, ids: NDArray) -> Summary:
        """Return a summary sorted by these ids, without groups that have no rows."""
        n, mean, scatter = self.figures()
        order = np.argsort(ids)
        order = order[n[order] > 0]  # a label may have no row with a value
        return Summary(ids[order], n[order], mean[order, None], scatter[order, None])


def _longer(table: NDArray, size: int) -> NDArray:
    """Append rows of zeros to a table that is too short; at least double it."""
    if size <= len(table):
        return table
    return np.concatenate([table, np.zeros((max(size, 2 * len(table)) - len(table), 4))])


class Adders:
    """Two tallies that take turns, each in its own thread.

    The assignment of rows does not depend on the machine, so the figures do not either.
    """

    def __init__(self) -> None:
        self.tallies = Tally(), Tally()
        self._threads = [ThreadPoolExecutor(1) for _ in self.tallies]
        self._open: deque[Future] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for thread in self._threads:
            thread.shutdown()
        if error[0] is None:
            for task in self._open:
                task.result()

    def add(self, labels: Any, values: NDArray, codes: NDArray | None) -> None:
        """Add rows; wait for an earlier block if both threads are busy."""
        if len(self._open) == len(self.tallies):
            self._open.popleft().result()
        self._open.append(self._threads[0].submit(self.tallies[0].add, labels, values, codes))
        self.tallies, self._threads = self.tallies[::-1], self._threads[::-1]
