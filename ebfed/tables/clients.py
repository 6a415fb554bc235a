"""Blocks of clients, their rows and their summaries, which can be split and joined.

A *client* is a group that owns rows: a county, a hospital, a phone. `Clients` holds the rows of a
block of clients; `Summary` holds their numbers of rows, means and scatters for location models.
Both are immutable. An engine may cut a block between any two clients, and joining the pieces gives
the block again. Summaries of one client from different places merge exactly (Chan, Golub and
LeVeque, 1983).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.tables.alignment import aligned
from ebfed.tables.labels import label_range, number_labels, parents_among
from ebfed.tables.trees import Tree, starts_of_tops
from ebfed.tables.values import check_labels, numbers, plain, unmasked

__all__ = ["Clients", "Summary", "order_of_rows"]

# Outside this range the fourth powers of moments exceed float64.
LARGEST, SMALLEST = 1e60, 1e-60
# Most figures of the rows of clients among which equal ones are looked for.
ALIKE = 64


@dataclass(frozen=True)
class Clients:
    """The rows of a block of clients, client after client.

    Attributes
    ----------
    ids : ndarray of shape (n_clients,)
        Labels, in the order of the rows.
    indptr : int64 ndarray of shape (n_clients + 1,)
        Client i owns rows ``indptr[i]:indptr[i + 1]``.
    X : ndarray of shape (n_rows, d)
    y : ndarray of shape (n_rows,) or None
    weight : ndarray of shape (n_rows,) or None
        How many rows each row stands for; None: one.

    Examples
    --------
    >>> clients = Clients.from_rows([[1.0], [5.0], [3.0]], groups=["b", "a", "b"])
    >>> clients.ids.tolist(), clients.indptr.tolist(), clients.X.ravel().tolist()
    (['a', 'b'], [0, 1, 3], [5.0, 1.0, 3.0])
    >>> clients.summarise().mean.ravel().tolist()
    [5.0, 2.0]
    """

    ids: NDArray
    indptr: NDArray[np.int64]
    X: NDArray[np.float64]
    y: NDArray | None = None
    weight: NDArray[np.float64] | None = field(default=None, kw_only=True)

    @classmethod
    def from_rows(cls, X: ArrayLike, groups: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Sort rows by group; they keep their order within a group.

        Series and frames of pandas pair by label, as `ebfed.tables.alignment` says.
        """
        X, groups, y = aligned({"X": X, "groups": groups, "y": y}).values()
        return cls.from_codes(X, *number_labels(groups), y)

    @classmethod
    def from_codes(
        cls, X: ArrayLike, ids: NDArray, codes: NDArray[np.int64], y: ArrayLike | None = None
    ) -> Self:
        """Sort rows by group; `codes` are places in the sorted labels `ids`."""
        X = _columns(X)
        _same_length(X, groups=codes)
        indptr = np.concatenate(([0], np.cumsum(np.bincount(codes, minlength=len(ids)))))
        if y is not None:
            y = np.asarray(unmasked(y, "y"))
            _same_length(X, y=y)
        order = order_of_rows(codes)
        return cls(ids, indptr.astype(np.int64), X[order], None if y is None else y[order])

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n(self) -> NDArray[np.int64]:
        """Number of rows of each client."""
        return np.diff(self.indptr)

    def weighted(self, weight: NDArray[np.float64]) -> Self:
        """Give rows weights; those of weight 0 are left out, and their clients stay."""
        return replace(self, weight=weight * self.weights()).of_rows(weight > 0)

    def of_rows(self, kept: NDArray[np.bool_]) -> Self:
        """Keep some rows, and all clients."""
        indptr = np.concatenate(([0], np.cumsum(kept)))[self.indptr]
        y = None if self.y is None else np.asarray(self.y)[kept]
        weight = None if self.weight is None else self.weight[kept]
        return replace(self, indptr=indptr, X=self.X[kept], y=y, weight=weight)

    def tree(self, n_levels: int) -> Tree:
        """Return the tree of which clients are the lowest of so many levels; see `Tree.of`."""
        if n_levels not in self._trees:
            self._trees[n_levels] = Tree.of(self.ids, n_levels)
        return self._trees[n_levels]

    @cached_property
    def _trees(self) -> dict[int, Tree]:
        """Trees that were asked for: every step of a search asks for the same one."""
        return {}

    @cached_property
    def alike(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A client of each kind that has equal rows, and the kind of each client.

        Clients of many rows are a kind each: hardly any have equal rows.

        Examples
        --------
        >>> kinds = Clients.from_rows([1.0, 2.0, 1.0, 2.0, 3.0], ["a", "a", "b", "b", "c"]).alike
        >>> kinds[0].tolist(), kinds[1].tolist()
        ([0, 2], [0, 0, 1])
        """
        m, n = len(self), self.n
        response = np.zeros((len(self.X), 0)) if self.y is None else np.asarray(self.y)
        if response.dtype.kind not in "biuf":
            response = np.unique(response, return_inverse=True)[1]
        rows = np.column_stack([self.X, response, self.weights()])
        most, width = int(n.max(initial=0)), rows.shape[1]
        if not 0 < most * width <= ALIKE:
            return np.arange(m), np.arange(m)
        table = np.zeros((m, 1 + most * width))
        table[:, 0], owner = n, np.repeat(np.arange(m), n)
        place = np.arange(len(rows)) - self.indptr[:-1][owner]
        columns = 1 + place[:, None] * width + np.arange(width)
        table[owner[:, None], columns] = rows
        _, first, kind = np.unique(
            table.view(f"V{8 * table.shape[1]}")[:, 0], return_index=True, return_inverse=True
        )
        order = np.argsort(first)
        return first[order], np.argsort(order)[kind]

    def weights(self) -> NDArray[np.float64]:
        """Return the weight of each row, which is 1 where there are none."""
        return np.ones(len(self.X)) if self.weight is None else self.weight

    def totals(self) -> NDArray[np.int64]:
        """Return how many rows those of each client stand for, as whole numbers."""
        if self.weight is None:
            return self.n
        sums = np.concatenate(([0.0], np.cumsum(self.weight)))
        return np.diff(sums[self.indptr]).astype(np.int64)

    def take(self, index: NDArray) -> Self:
        """Keep the clients in these positions."""
        n = self.n[index]
        indptr = np.concatenate(([0], np.cumsum(n)))
        rows = np.arange(indptr[-1]) + np.repeat(self.indptr[:-1][index] - indptr[:-1], n)
        y = None if self.y is None else self.y[rows]
        weight = None if self.weight is None else self.weight[rows]
        return type(self)(self.ids[index], indptr, self.X[rows], y, weight=weight)

    def merge(self, other: Self) -> Self:
        """Join the rows of two blocks, which may share clients."""
        blocks = (self, other)
        ids, codes = joined_ids(self.ids, other.ids)
        owner = np.repeat(codes, np.concatenate([block.n for block in blocks]))
        order = np.argsort(owner, kind="stable")
        n = np.bincount(owner, minlength=len(ids))
        joined = type(self).join([*blocks])
        y = None if joined.y is None else joined.y[order]
        weight = None if joined.weight is None else joined.weight[order]
        indptr = np.concatenate(([0], np.cumsum(n)))
        return type(self)(ids, indptr, joined.X[order], y, weight=weight)

    def split(self, n_blocks: int) -> list[Self]:
        """Cut into at most `n_blocks` blocks with nearly equal numbers of clients.

        Groups within groups stay together with all of their group of the outermost level.
        """
        edges = np.array(_edges(len(self), n_blocks)).ravel()
        if parents_among(self.ids):
            starts = starts_of_tops(self.ids)
            edges = np.unique(starts[np.searchsorted(starts, edges)])
        pairs = itertools.pairwise(np.unique(edges).tolist()) if len(self) else [(0, 0)]
        return [self._slice(*each) for each in pairs]

    def _slice(self, start: int, stop: int) -> Self:
        rows = slice(self.indptr[start], self.indptr[stop])
        return type(self)(
            self.ids[start:stop],
            self.indptr[start : stop + 1] - self.indptr[start],
            self.X[rows],
            None if self.y is None else self.y[rows],
            weight=None if self.weight is None else self.weight[rows],
        )

    @classmethod
    def join(cls, blocks: list[Self]) -> Self:
        """Put blocks of different clients one after another."""
        counts = np.concatenate([np.diff(block.indptr) for block in blocks])
        return cls(
            np.concatenate([block.ids for block in blocks]),
            np.concatenate(([0], np.cumsum(counts))),
            np.concatenate([block.X for block in blocks]),
            None if blocks[0].y is None else np.concatenate([block.y for block in blocks]),
            weight=None
            if all(block.weight is None for block in blocks)
            else np.concatenate([block.weights() for block in blocks]),
        )

    def summarise(self) -> Summary:
        """Summarise each client: number of rows, mean, scatter."""
        codes = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        return Summary(self.ids, *_summarise(self.X, codes, 0, len(self)))


def order_of_rows(codes: NDArray[np.int64] | None) -> NDArray[np.int64] | slice:
    """Return the order in which clients have rows: sorted by group, and as given within groups.

    Parameters
    ----------
    codes : int64 ndarray of shape (n_rows,) or None
        Number of each row's group, in the order of sorted labels; None if rows are as given.

    Examples
    --------
    >>> order_of_rows(np.array([1, 0, 1])), order_of_rows(np.array([0, 1, 1]))
    (array([1, 0, 2]), slice(None, None, None))
    """
    if codes is None or not np.any(codes[1:] < codes[:-1]):
        return slice(None)
    return np.argsort(codes, kind="stable")


@dataclass(frozen=True)
class Summary:
    """Statistics of a block of clients that a location model needs.

    Attributes
    ----------
    ids : ndarray of shape (n_clients,)
    n : int64 ndarray of shape (n_clients,)
        Number of rows.
    mean : ndarray of shape (n_clients, d)
        0 where a client has no rows.
    scatter : ndarray of shape (n_clients, d)
        Sum of squared deviations from the client's own mean, column by column.
    weight : ndarray of shape (n_clients,), optional
        Exposure, or sum of the weights of rows: the mean is an average over it, and the scatter of
        weighted rows is a weighted sum. None if that is the number of rows.
    sums : mapping of str to ndarray of shape (n_clients, d)
        Further sums that the family of the rows needs, by name; ``log_weight`` is that of the
        logarithms of the weights of rows.

    Examples
    --------
    >>> monday = Summary.from_rows([1.0, 5.0, 3.0], groups=["b", "a", "b"])
    >>> tuesday = Summary.from_rows([8.0], groups=["b"])
    >>> both = monday.merge(tuesday)
    >>> both.ids.tolist(), both.n.tolist(), both.mean.ravel().tolist()
    (['a', 'b'], [1, 3], [5.0, 4.0])
    """

    ids: NDArray
    n: NDArray[np.int64]
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]
    weight: NDArray[np.float64] | None = field(default=None, kw_only=True)
    sums: Mapping[str, NDArray[np.float64]] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse figures that no rows have: a negative scatter, or a mean that is not a number."""
        figures = ("n", "mean", "scatter", *(() if self.weight is None else ("weight",)))
        for name in ("ids", *figures):
            given = getattr(self, name)
            plain = np.asarray(unmasked(given, name))
            if plain is not given:
                object.__setattr__(self, name, plain)
        m, shape = len(self.ids), self.mean.shape
        whole = self.scatter.shape in (shape, (*shape, *shape[1:]))
        if not (self.n.shape == (m,) and len(shape) == 2 and shape[0] == m and whole):
            raise ValueError(
                f"a summary of {m} clients must have n of shape ({m},), and mean and scatter of "
                f"shape ({m}, d); they have shapes {self.n.shape}, {shape} and "
                f"{self.scatter.shape}."
            )
        for name in figures:
            values = getattr(self, name)
            if values.dtype.kind not in "iuf":
                raise TypeError(f"{name} of a summary must be numbers; got {values.dtype}.")
            if values.ndim == 3:  # with products of columns, which may be negative
                values = np.diagonal(values, axis1=1, axis2=2)
            wrong = ~np.isfinite(values) if name == "mean" else ~((values >= 0) & (values < np.inf))
            if wrong.any():
                row = int(np.argwhere(wrong)[0, 0])
                what = "finite, 0 where a client has no rows" if name == "mean" else "0 or more"
                client = self.ids[row : row + 1].tolist()[0]
                raise ValueError(
                    f"{name} of a summary must be {what}; client {client!r} has "
                    f"{values[row].tolist()}."
                )

    @classmethod
    def from_rows(cls, X: ArrayLike, groups: ArrayLike, weight: ArrayLike | None = None) -> Self:
        """Summarise unsorted rows in one pass.

        Parameters
        ----------
        X : array-like of shape (n_rows, d) or (n_rows,)
        groups : array-like of shape (n_rows,)
            A pandas series beside one is paired by label, as `ebfed.tables.alignment` says.
        weight : array-like of shape (n_rows,), optional
            Weight of each row, not negative; a row of weight 0 is not counted.

        Raises
        ------
        ValueError
            If lengths differ, a value is NaN, masked or infinite, squares overflow, or indexes of
            pandas have different labels.
        """
        X, groups, weight = aligned({"X": X, "groups": groups, "weight": weight}).values()
        X = _columns(X)
        groups = check_labels(groups)
        _same_length(X, groups=groups)
        if weight is not None:
            return cls._weighed(X, *number_labels(groups), _weights(weight, X))
        if groups.dtype.kind == "i" and len(groups):
            offset, size = label_range(groups)
            if size:  # labels serve as row numbers of the table: no second pass over them
                n, mean, scatter = _summarise(X, groups, offset, size)
                ids = np.flatnonzero(n)
                if len(ids) < size:
                    n, mean, scatter = n[ids], mean[ids], scatter[ids]
                return cls(ids + offset, n, mean, scatter)
        ids, codes = number_labels(groups)
        return cls(ids, *_summarise(X, codes, 0, len(ids)))

    @classmethod
    def each_row(cls, X: ArrayLike, weight: ArrayLike | None = None) -> Self:
        """Summarise rows without labels: every row is a client, numbered in order."""
        X = _columns(X)
        if weight is not None:
            return cls._weighed(X, np.arange(len(X)), np.arange(len(X)), _weights(weight, X))
        scatter = np.zeros_like(X)
        _check_range(X, X, scatter)
        return cls(np.arange(len(X)), np.ones(len(X), np.int64), X, scatter)

    @classmethod
    def _weighed(cls, X: NDArray, ids: NDArray, codes: NDArray[np.int64], weight: NDArray) -> Self:
        """Summarise rows by weighted sums around weighted means."""
        shape = len(ids), X.shape[1]
        mean, scatter = np.zeros(shape), np.zeros(shape)
        total = np.bincount(codes, weight, minlength=len(ids)).astype(float)
        share = weight / np.where(total > 0, total, 1.0)[codes]
        counted = np.flatnonzero(weight > 0)[::-1]
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            for j, column in enumerate(X.T):
                centre = np.zeros(len(ids))
                centre[codes[counted]] = column[counted]  # rows that are all equal have no scatter
                away = column - centre[codes]
                centre += np.bincount(codes, share * away, minlength=len(ids))
                away = column - centre[codes]  # once more: large means keep their digits
                rest = np.bincount(codes, share * away, minlength=len(ids))
                mean[:, j] = centre + rest
                squares = weight * (away - rest[codes]) ** 2
                scatter[:, j] = np.bincount(codes, squares, minlength=len(ids))
        _check_range(X, mean, scatter)
        n, logs = weighed_rows(codes, weight, len(ids))
        scatter[n == 1] = 0.0
        sums = {"log_weight": np.repeat(logs[:, None], shape[1], axis=1)}
        return cls(ids, n, mean, scatter, weight=total, sums=sums)

    @classmethod
    def from_counts(
        cls, successes: ArrayLike, trials: ArrayLike, ids: ArrayLike | None = None
    ) -> Self:
        """Summarise 0/1 rows that are given as counts.

        Parameters
        ----------
        successes, trials : array-like of int of shape (n_clients,)
            Pandas series pair by label, as `ebfed.tables.alignment` says.
        ids : array-like of shape (n_clients,), optional
            Distinct labels; 0, 1, … if None.

        Raises
        ------
        ValueError
            If counts are not whole, masked, negative or exceed the trials, lengths differ, indexes
            of pandas have different labels, or a label occurs twice.

        Examples
        --------
        >>> Summary.from_counts([3, 0], [4, 2], ids=["a", "b"]).mean.ravel()
        array([0.75, 0.  ])
        """
        given = aligned({"successes": successes, "trials": trials, "ids": ids}, rows=False)
        ids = given.pop("ids")
        successes, trials = (plain(unmasked(each, name)) for name, each in given.items())
        if successes.ndim != 1 or successes.shape != trials.shape:
            raise ValueError(
                f"successes and trials must be one-dimensional and of one length; they have shapes "
                f"{successes.shape} and {trials.shape}."
            )
        for name, counts in (("successes", successes), ("trials", trials)):
            if counts.dtype.kind not in "iuf" or not np.isfinite(counts).all():
                raise ValueError(f"{name} must be whole numbers, none missing.")
            whole = counts.dtype.kind != "f" or np.array_equal(counts, np.floor(counts))
            if not whole or counts.min(initial=0) < 0 or counts.max(initial=0) > 2**53:
                raise ValueError(f"{name} must be whole numbers from 0 to 2**53.")
        if np.any(successes > trials):
            row = int(np.argmax(successes > trials))
            raise ValueError(f"successes exceed trials, first in row {row}.")
        if ids is None:
            ids = np.arange(len(trials))
        else:
            ids, order = number_labels(ids, "ids")
            _same_length(trials, ids=order)
            if len(ids) < len(order):
                raise ValueError(
                    "ids must be all different; add up the counts of a group, or number its labels."
                )
            place = np.argsort(order)
            successes, trials = successes[place], trials[place]
        n = trials.astype(np.int64)
        rate = successes / np.maximum(n, 1)
        return cls(ids, n, rate[:, None], (n * rate * (1 - rate))[:, None])

    @classmethod
    def from_regression(cls, X: ArrayLike, y: ArrayLike, groups: ArrayLike) -> Self:
        """Summarise regressions of clients by their coefficients, for orthogonal designs.

        With ``X_i' X_i = n_i I`` the least-squares coefficients are ``X_i' y_i / n_i``, with
        independent errors of variance ``noise / n_i``. A location model treats them like means of
        n_i rows. The residual variance, on ``n_i - d`` degrees of freedom, is the scatter.

        Parameters
        ----------
        X : array-like of shape (n_rows, d)
        y : array-like of shape (n_rows,)
        groups : array-like of shape (n_rows,)

        Raises
        ------
        ValueError
            If columns of a client's X are not orthogonal with squares that sum to its number of
            rows, or it has no more rows than columns.

        Examples
        --------
        >>> X = [[1, 1], [1, -1], [1, 1], [1, -1]]
        >>> summary = Summary.from_regression(X, [3.0, 1.0, 5.0, 1.0], groups=["a"] * 4)
        >>> summary.mean, summary.scatter
        (array([[2.5, 1.5]]), array([[3., 3.]]))
        """
        X, y, groups = aligned({"X": X, "y": y, "groups": groups}).values()
        design, response = _columns(X), _columns(y, "y")
        _same_length(design, y=response)
        clients = Clients.from_rows(design, groups, response[:, 0])
        (m, d), n = (len(clients), design.shape[1]), np.diff(clients.indptr)
        coefficients, scatter = np.empty((m, d)), np.empty((m, d))
        for i, rows in enumerate(itertools.starmap(slice, itertools.pairwise(clients.indptr))):
            F, target = clients.X[rows], np.asarray(clients.y)[rows]
            if n[i] <= d:
                raise ValueError(
                    f"client {clients.ids[i]!r} has {n[i]} rows for {d} columns; more are needed."
                )
            if not np.abs(F.T @ F / n[i] - np.eye(d)).max() < 1e-8:
                raise ValueError(
                    f"the columns of client {clients.ids[i]!r} are not orthogonal with squares "
                    "that average 1."
                )
            coefficients[i] = F.T @ target / n[i]
            residual = target - F @ coefficients[i]
            scatter[i] = (n[i] - 1) * (residual @ residual) / (n[i] - d)
        _check_range(design, coefficients, scatter)
        return cls(clients.ids, n, coefficients, scatter)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return self.mean.shape[1]

    @property
    def size(self) -> NDArray:
        """Number of rows, exposure or sum of weights that each mean averages over."""
        return self.n if self.weight is None else self.weight

    def merge(self, other: Self) -> Self:
        """Summarise the union of the rows behind two summaries (Chan, Golub, LeVeque 1983).

        If one has weights, those of the rows of the other are 1.

        Raises
        ------
        ValueError
            If the two have different numbers of columns.
        TypeError
            If the labels are of different kinds.
        """
        if self.n_features != other.n_features:
            raise ValueError(
                f"cannot merge a summary of {other.n_features} columns with one of "
                f"{self.n_features}."
            )
        ids, codes = joined_ids(self.ids, other.ids)
        n = np.zeros(len(ids), np.int64)
        mean, scatter = (np.zeros((len(ids), self.n_features)) for _ in range(2))
        first, second = codes[: len(self)], codes[len(self) :]
        size = np.zeros(len(ids), np.result_type(self.size, other.size))
        n[first], mean[first], scatter[first] = self.n, self.mean, self.scatter
        size[first] = self.size
        total = size[second] + other.size
        share = (other.size / np.where(total > 0, total, 1))[:, None]
        deviation = other.mean - mean[second]
        scatter[second] += other.scatter + deviation**2 * size[second][:, None] * share
        mean[second] += deviation * share
        n[second] += other.n
        size[second] += other.size
        sums = {name: np.zeros(mean.shape) for name in {**self.sums, **other.sums}}
        for name, total in sums.items():
            total[first] = self.sums.get(name, 0.0)
            total[second] += other.sums.get(name, 0.0)
        weight = None if self.weight is other.weight is None else size
        return type(self)(ids, n, mean, scatter, weight=weight, sums=sums)

    def take(self, index: NDArray | slice) -> Self:
        """Keep the clients in these positions (or where a mask is true)."""
        return type(self)(
            self.ids[index],
            self.n[index],
            self.mean[index],
            self.scatter[index],
            weight=None if self.weight is None else self.weight[index],
            sums={name: values[index] for name, values in self.sums.items()},
        )

    def renamed(self, ids: NDArray) -> Self:
        """Return the same figures under other labels."""
        return replace(self, ids=ids)

    def among(self, ids: NDArray, place: NDArray[np.int64]) -> Self:
        """Return summaries of these labels, at `place`; empty ones where that is -1."""
        found, seen = self.take(np.maximum(place, 0)), place >= 0
        return replace(
            found,
            ids=ids,
            n=np.where(seen, found.n, 0),
            mean=np.where(seen[:, None], found.mean, 0.0),
            scatter=np.where(seen[:, None], found.scatter, 0.0),
            weight=None if found.weight is None else np.where(seen, found.weight, 0.0),
            sums={name: np.where(seen[:, None], x, 0.0) for name, x in found.sums.items()},
        )

    def split(self, n_blocks: int) -> list[Self]:
        """Cut into at most `n_blocks` blocks with nearly equal numbers of clients."""
        return [self.take(slice(*edges)) for edges in _edges(len(self), n_blocks)]

    @classmethod
    def join(cls, blocks: list[Self]) -> Self:
        """Put blocks of different clients one after another."""
        first = blocks[0]
        return cls(
            *(
                np.concatenate([getattr(block, name) for block in blocks])
                for name in ("ids", "n", "mean", "scatter")
            ),
            weight=None
            if first.weight is None
            else np.concatenate([block.size for block in blocks]),
            sums={
                name: np.concatenate([block.sums[name] for block in blocks]) for name in first.sums
            },
        )


def _summarise(X: NDArray, codes: NDArray, offset: int, size: int) -> tuple[NDArray, ...]:
    from ebfed.kernels import summarise_rows

    d = X.shape[1]
    mean, scatter = np.empty((size, d)), np.empty((size, d))
    n = np.zeros(size, np.int64)
    for j in range(d):
        table = summarise_rows(np.ascontiguousarray(X[:, j]), codes, offset, size)
        n, mean[:, j], scatter[:, j] = table[:, 0].astype(np.int64), table[:, 1], table[:, 2]
    _check_range(X, mean, scatter)
    return n, mean, scatter


def _check_range(X: NDArray, mean: NDArray, scatter: NDArray) -> None:
    """Check that rows are finite and can be squared."""
    if not (np.all(scatter < LARGEST**2) and np.all(np.abs(mean) < LARGEST)):
        rows = ~np.isfinite(X).all(axis=1)
        if rows.any():
            raise ValueError(
                f"Input X contains NaN or infinity in {int(rows.sum())} rows, the first in row "
                f"{int(np.argmax(rows))}; drop them or fill them in."
            )
        raise ValueError(
            f"Input X holds a value too large for float64 arithmetic (up to "
            f"{np.abs(X).max():.3g}): its square overflows. Rescale the data."
        )


def _columns(X: ArrayLike, name: str = "X") -> NDArray[np.float64]:
    X = numbers(X, name, booleans=True)
    if X.ndim == 1:
        X = X[:, None]
    if X.ndim != 2:
        raise ValueError(f"{name} must have one row per observation; got shape {X.shape}.")
    return X


def weighed_rows(
    codes: NDArray[np.int64], weight: NDArray, n_groups: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Count the rows of each group whose weight is not 0, and add up logarithms of their weights.

    Examples
    --------
    >>> weighed_rows(np.array([0, 0, 1]), np.array([1.0, np.e, 0.0]), 2)
    (array([2, 0]), array([1., 0.]))
    """
    seen = weight > 0
    logs = np.bincount(codes, np.log(np.where(seen, weight, 1.0)), minlength=n_groups)
    return np.bincount(codes[seen], minlength=n_groups).astype(np.int64), logs.astype(float)


def _weights(weight: ArrayLike, X: NDArray) -> NDArray[np.float64]:
    weights = _columns(weight, "weight")[:, 0]
    _same_length(X, weight=weights)
    if not np.all((weights >= 0) & (weights < LARGEST)):
        row = int(np.argmin((weights >= 0) & (weights < LARGEST)))
        raise ValueError(f"weight must be finite, and 0 or more; row {row} has {weights[row]}.")
    return weights


def _same_length(X: NDArray, **others: NDArray) -> None:
    for name, values in others.items():
        if len(values) != len(X):
            raise ValueError(f"{name} has {len(values)} entries for the {len(X)} rows of X.")


def _edges(length: int, n_blocks: int) -> list[tuple[int, int]]:
    edges = np.linspace(0, length, max(1, min(n_blocks, length)) + 1).astype(int)
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def joined_ids(ids: NDArray, others: NDArray) -> tuple[NDArray, NDArray[np.int64]]:
    """Number the labels of two blocks of clients, as `number_labels` does.

    Raises
    ------
    TypeError
        If they are of types that cannot be sorted together.

    Examples
    --------
    >>> joined_ids(np.array(["b", "a"]), np.array(["b"]))[1].tolist()
    [1, 0, 1]
    """
    if len(ids) and len(others) and not _comparable(ids, others):
        raise TypeError(
            f"group labels have type {others.dtype} where earlier ones had type {ids.dtype}."
        )
    return number_labels(np.concatenate([each for each in (ids, others) if len(each)] or [ids]))


def _comparable(a: NDArray, b: NDArray) -> bool:
    text, numbers = "OU", "biuf"
    return a.dtype.kind == b.dtype.kind or any(
        a.dtype.kind in kinds and b.dtype.kind in kinds for kinds in (text, numbers)
    )
