"""The users of owners: which rows are of which user, who is drawn, and sums over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.minibatches import CELLS, Uniforms, width_of
from ebfed.models import Batch, Predictor, Slope
from ebfed.tables.clients import Clients

__all__ = ["Split", "Sums", "Users"]


class Sums:
    """Sums over the users of each owner.

    Attributes
    ----------
    total : ndarray of shape (m, p)
        Of gradients.
    count, loss, score : ndarrays of shape (m,)
    bits : ndarray of shape (m,)
        Of a half for each user whose gradient is short enough, minus a half for the others.
    """

    def __init__(self, m: int, size: int):
        self.total = np.zeros((m, size))
        self.count, self.loss, self.score = np.zeros(m), np.zeros(m), np.zeros(m)
        self.bits = np.zeros(m)

    def add(self, owner: NDArray[np.int64], gradient: NDArray, step: Slope) -> None:
        """Add some users, each of that owner."""
        np.add.at(self.total, owner, gradient)
        np.add.at(self.count, owner, 1.0)
        np.add.at(self.loss, owner, step.loss)
        np.add.at(self.score, owner, step.score)


@dataclass(frozen=True)
class Users:
    """Which rows of owners are whose.

    Attributes
    ----------
    owner : ndarray of shape (n_users,)
        Position of each user's owner.
    size, first : ndarrays of shape (n_users,)
        How many rows a user has, and where they begin in `rows`.
    rows : ndarray of shape (n_rows,)
    count : ndarray of shape (n_owners,)
        Users of each owner.
    """

    owner: NDArray[np.int64]
    size: NDArray[np.int64]
    first: NDArray[np.int64]
    rows: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, clients: Clients) -> Self:
        """Find the users of owners, whose numbers are the last column of the rows."""
        owner = np.repeat(np.arange(len(clients)), clients.n)
        user = clients.X[:, -1]
        rows = np.lexsort((user, owner))
        new = np.ones(len(rows), bool)
        new[1:] = (np.diff(owner[rows]) != 0) | (np.diff(user[rows]) != 0)
        first = np.flatnonzero(new)
        size = np.diff(np.append(first, len(rows)))
        count = np.bincount(owner[rows][first], minlength=len(clients)).astype(np.int64)
        return cls(owner[rows][first], size, first, rows, count)

    def draw(self, rate: float, rng: Any) -> NDArray[np.int64]:
        """Include each user independently with that probability."""
        uniforms = Uniforms(rng)
        drawn = [uniforms.draw(owner, n) for owner, n in enumerate(self.count.tolist())]
        return np.flatnonzero(np.concatenate([*drawn, np.zeros(0)]) < rate)

    def batches(self, users: NDArray[np.int64], net: Predictor) -> Iterator[NDArray[np.int64]]:
        """Cut users into sets of about as many rows that are computed together."""
        width = width_of(self.size[users])
        for each in np.unique(width).tolist():
            chosen = users[width == each]
            step = max(1, CELLS // max(each * net.n_features, net.size))
            yield from (chosen[k : k + step] for k in range(0, len(chosen), step))

    def gather(self, clients: Clients, users: NDArray[np.int64], encode: Any) -> Batch:
        """Return the rows of users, each with its weight over the number of rows of its user."""
        size = self.size[users][:, None]
        place = np.arange(width_of(self.size[users])[0])
        rows = self.rows[self.first[users][:, None] + np.minimum(place, size - 1)]
        weight = (place < size) / size
        if clients.weight is not None:
            weight *= clients.weight[rows]
        return Batch(clients.X[rows][..., :-1], encode(np.asarray(clients.y)[rows]), weight)


@dataclass(frozen=True)
class Split:
    """Where shared and own parameters lie in those of a predictor.

    Attributes
    ----------
    shared, own : ndarrays of int
    """

    shared: NDArray[np.int64]
    own: NDArray[np.int64]

    @classmethod
    def of(cls, personal: Sequence[str], net: Predictor, columns: Sequence[str]) -> Self:
        """Find own parameters by name.

        Parameters
        ----------
        personal : sequence of str
            Blocks of the predictor's parameters, or columns of a linear one.
        net : Predictor
        columns : sequence of str
        """
        own = np.zeros(net.size, bool)
        for name in personal:
            if name in net.blocks:
                own[net.blocks[name]] = True
            elif name in columns and "coefficients" in net.blocks:
                start = net.blocks["coefficients"].start + columns.index(name) * net.n_outputs
                own[start : start + net.n_outputs] = True
            else:
                raise ValueError(
                    f"personal must name blocks of the model ({', '.join(net.blocks)}) or columns "
                    f"of a linear one; got {name!r}."
                )
        if own.all():
            raise ValueError("personal names all parameters, and nothing is shared: use LocalOnly.")
        return cls(np.flatnonzero(~own), np.flatnonzero(own))

    def assemble(self, u: NDArray, x: NDArray) -> NDArray[np.float64]:
        """Put shared parameters u and own ones x, shape (m, k), together: shape (m, p)."""
        theta = np.empty((len(x), len(self.shared) + len(self.own)), x.dtype)
        theta[:, self.shared], theta[:, self.own] = u, x
        return theta
