"""Rows of many clients as batches of equal size, ready for batched matrix products.

What a client computes must not depend, to the last bit, on who is computed beside it. So the width
of its batches is a function of its own number of rows, clients are taken together only if their
widths agree, and each draws its order from a range of the stream that is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.engines.protocol import LearningSent
from ebfed.models import Batch
from ebfed.streams import Stream
from ebfed.tables.clients import Clients

__all__ = [
    "CELLS",
    "Minibatches",
    "Picked",
    "Uniforms",
    "deal",
    "encoder",
    "precision_of",
    "width_of",
]

# Draws that each client may take in a round: more rows than that are not shuffled as a whole.
STRIDE = 2**32
# Numbers that are worked on at once: few enough to stay in a second-level cache.
CELLS = 2**19


class Picked(NamedTuple):
    """A batch without the features of its rows.

    Attributes
    ----------
    places : int ndarray of shape (c, b), optional
        Which of the rows of `Minibatches.all` these are; all of them if None.
    y, weight : ndarrays of shape (c, b)
        As in `ebfed.models.Batch`.
    """

    places: NDArray[np.int64] | None
    y: NDArray
    weight: NDArray[np.float64]


class Minibatches:
    """Batches of the rows of c clients, one for each local step.

    Attributes
    ----------
    n : int ndarray of shape (c,)
        Rows of each client.
    loss, score : ndarrays of shape (c,)
        What was noted of the first batch; NaN until then.
    """

    def __init__(
        self,
        clients: Clients,
        members: NDArray[np.int64],
        order: NDArray[np.int64],
        encode: Callable[[NDArray], NDArray],
        batch_size: int | None,
        steps: int,
        total: bool,
    ):
        self.n = clients.n[members]
        self._clients, self._order, self._encode = clients, order, encode
        self._first = clients.indptr[members]
        self._size, self._steps, self._total = batch_size, steps, total
        self.loss = np.full(len(members), np.nan)
        self.score = np.full(len(members), np.nan)
        self._noted = False

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        return self.take(self._steps)

    @property
    def size(self) -> int:
        """Number of rows of a batch."""
        return self.width if self._size is None else self._size

    @property
    def width(self) -> int:
        """How many rows a client has, those that it is padded with included."""
        return self._order.shape[1]

    def take(self, count: int) -> Iterator[Batch]:
        """Yield the batches of that many steps."""
        if self._size is None:  # every step sees all rows
            yield from [self.all()] * count
            return
        for places in self._places(self._size, count):
            yield self._batch(np.take_along_axis(self._order, places, axis=1))

    def pick(self, count: int) -> Iterator[Picked]:
        """Yield the same batches, without features."""
        if self._size is None:
            yield from [Picked(None, *self._responses(self._order)[1:])] * count
            return
        for places in self._places(self._size, count):
            rows = np.take_along_axis(self._order, places, axis=1)
            yield Picked(places, *self._responses(rows)[1:])

    def _places(self, size: int, count: int) -> Iterator[NDArray[np.int64]]:
        """Yield which rows, in the order of each client, the batches of that many steps have."""
        n = np.maximum(self.n, 1)[:, None]
        for step in range(count):
            yield (step * size + np.arange(size)) % n

    @property
    def totals(self) -> NDArray:
        """Sum of the weights of each client's rows; their number if they have none."""
        if self._clients.weight is None or not len(self._clients.X):
            return self.n
        real = self._order >= 0
        rows = np.where(real, self._order, 0) + self._first[:, None]
        rows = np.minimum(rows, len(self._clients.X) - 1)
        return np.where(real, self._clients.weight[rows], 0.0).sum(axis=1)

    def all(self) -> Batch:
        """Return the rows that one round may see, at once."""
        return self._batch(self._order)

    def folds(self, count: int) -> Iterator[tuple[Self, Batch]]:
        """Yield batches of all rows but a part of them, and this part at once, for each part.

        The parts are about equally large and drawn at random, the same ones in every round. Rows of
        the part have their own weight, or weight 1.

        Parameters
        ----------
        count : int
            How many parts there are. Those beyond a client's number of rows are empty.
        """
        fold = np.full(self._order.shape, -1)
        for i, n in enumerate(self.n.tolist()):
            fold[i, self._order[i] >= 0] = (np.random.default_rng(n).permutation(n) % count)[
                self._order[i, self._order[i] >= 0]
            ]
        most = -(-self._order.shape[1] // count)
        for each in range(min(count, int(self.n.max(initial=0)))):
            rest = copy(self)
            rest._order = _kept(self._order, (fold >= 0) & (fold != each))
            rest.n = (rest._order >= 0).sum(axis=1)
            held = copy(self)
            held._order = _kept(self._order, fold == each)[:, :most]
            held._total = True
            yield rest, held.all()

    def note(self, loss: NDArray, score: NDArray) -> None:
        """Note how well the first batch was predicted; later calls change nothing."""
        if not self._noted:
            self._noted = True
            has_data = self.n > 0
            self.loss, self.score = (np.where(has_data, each, np.nan) for each in (loss, score))

    def _batch(self, order: NDArray[np.int64]) -> Batch:
        """Gather rows; places beyond a client's last row are its first row at weight 0."""
        rows, y, weight = self._responses(order)
        if len(self._clients.X) == 0:  # there are no rows
            return Batch(np.zeros((*rows.shape, self._clients.X.shape[1]), weight.dtype), y, weight)
        X = self._clients.X[rows]
        X[self.n == 0] = 0.0  # of clients without rows
        return Batch(X, y, weight)

    def _responses(self, order: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray, NDArray]:
        """Return places of rows in the block, their responses, and weights."""
        real = (order >= 0) & (self.n > 0)[:, None]
        rows = np.where(real, order, 0) + self._first[:, None]
        rows = np.minimum(rows, max(len(self._clients.X) - 1, 0))
        weight = real.astype(self._clients.X.dtype)
        if self._clients.weight is not None and len(self._clients.X):
            weight *= self._clients.weight[rows]
        if not self._total:
            total = weight.sum(axis=1, keepdims=True)
            weight /= np.where(total > 0, total, 1)
        if len(self._clients.X) == 0:
            return rows, np.zeros(rows.shape, np.int64), weight
        return rows, self._encode(np.asarray(self._clients.y)[rows]), weight


def encoder(rounds: Any, sent: LearningSent) -> Callable[[NDArray], NDArray]:
    """Return the function that turns responses into what losses take: numbers of classes."""
    if rounds.numeric:
        return lambda y: np.asarray(y, precision_of(rounds.estimator))
    return lambda y: np.searchsorted(sent["classes"], y)


def width_of(n: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round numbers of rows up to three leading bits, so that few widths are met.

    Examples
    --------
    >>> width_of(np.array([0, 1, 7, 9, 100, 1000]))
    array([   1,    1,    7,   10,  112, 1024])
    """
    n = np.maximum(n, 1)
    step = 2 ** np.maximum(np.floor(np.log2(n)).astype(np.int64) - 2, 0)
    return -(-n // step) * step


def deal(
    clients: Clients,
    members: NDArray[np.int64],
    rng: Any,
    *,
    encode: Callable[[NDArray], NDArray] = np.asarray,
    n_parameters: int | Callable[[int, int | None], int],
    batch_size: int | None = None,
    steps: int = 1,
    shuffle: bool = True,
    skip: int = 0,
    total: bool = False,
) -> Iterator[tuple[NDArray[np.int64], Minibatches]]:
    """Cut clients into sets that are computed together.

    Parameters
    ----------
    clients : Clients
    members : ndarray of positions of the clients that work in this round
    rng : Stream, "secure" or None
        Of the order of rows; "secure" for one that cannot be repeated, None for one that is known
        beforehand.
    encode : callable
        Turns responses into what losses know.
    n_parameters : int or callable
        Of one client, perhaps as a function of its number of rows, and of that of a step if these
        are not all: bounds what is computed at once.
    batch_size : int or None
        Rows of each step; all if None, or if a client has fewer.
    steps : int
    shuffle : bool
        Whether rows are taken in an order drawn anew in each round.
    skip : int
        Without `shuffle`: how many steps were made before this round.
    total : bool
        Whether losses are sums over rows, rather than means.

    Yields
    ------
    places : ndarray
        Which of `members`.
    batches : Minibatches
    """
    n, d = clients.n[members], clients.X.shape[1]
    width = width_of(n)
    many = np.zeros(len(n), bool) if batch_size is None else n > batch_size
    source = Uniforms(rng) if shuffle and batch_size is not None else None
    for kind in np.unique(2 * width + many).tolist():
        each, choose = kind // 2, bool(kind % 2)
        places = np.flatnonzero((width == each) & (many == choose))
        size = batch_size if choose else None
        p = n_parameters(each, size) if callable(n_parameters) else n_parameters
        count = int(max(1, CELLS // max((size or each) * d, p)))
        for start in range(0, len(places), count):
            part = places[start : start + count]
            drawn = source if choose else None
            order = _order(n[part], each, members[part], drawn, skip * (size or 0))
            yield part, Minibatches(clients, members[part], order, encode, size, steps, total)


def _kept(order: NDArray[np.int64], kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Move those places that are kept to the left, in their order; -1 beyond the last."""
    first = np.argsort(~kept, axis=1, kind="stable")
    places = np.take_along_axis(order, first, axis=1)
    return np.where(np.arange(order.shape[1]) < kept.sum(axis=1, keepdims=True), places, -1)


class Uniforms:
    """Uniforms of clients, each from a range of its own."""

    def __init__(self, rng: Any):
        self._words = rng.words(STRIDE) if isinstance(rng, Stream) else None
        self._known = rng is None
        self._own = np.random.default_rng()

    def draw(self, member: int, count: int) -> NDArray[np.float64]:
        """Draw the next uniforms of a client; each client may draw once."""
        if self._known:  # the same for all, so that it does not matter where they are
            return np.random.default_rng(count).random(count)
        if self._words is None:
            return self._own.random(count)
        key, tag, start = self._words
        out = np.empty(count)
        kernels.fill_uniforms(out, key, tag, start + np.uint64(member) * np.uint64(STRIDE))
        return out


def _order(
    n: NDArray[np.int64], width: int, members: NDArray, source: Uniforms | None, skipped: int
) -> NDArray[np.int64]:
    """Order of each client's rows, -1 beyond its last, shape (c, width)."""
    order = np.arange(width)[None, :].repeat(len(n), axis=0)
    if source is not None:
        for i, member in enumerate(members.tolist()):
            order[i, : n[i]] = np.argsort(source.draw(member, int(n[i])), kind="stable")
    elif skipped:
        order = (order + skipped) % np.maximum(n, 1)[:, None]
    return np.where(np.arange(width) < n[:, None], order, -1)


def precision_of(learner: Any) -> np.dtype:
    """Return the type of the numbers that clients compute in.

    Raises
    ------
    ValueError
        If `dtype` is neither ``"float64"`` nor ``"float32"``.
    """
    value = learner.dtype
    if not isinstance(value, str) or value not in ("float64", "float32"):
        raise ValueError(f"dtype must be 'float64' or 'float32'; got {value!r}.")
    return np.dtype(value)
