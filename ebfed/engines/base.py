"""Engines and cohorts: where the clients' part of a round is computed.

An `Engine` runs one function on blocks of clients that this process holds. A `Cohort` is what a
fit talks to: clients, wherever they are, that state public facts and answer questions. `Blocks` is
the cohort of an engine; a federation's clients are another (`ebfed.engines.flower`).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.streams import Stream

__all__ = ["Blocks", "Cohort", "Engine", "cut", "join"]


class Engine(ABC):
    """Runs one function on every block of clients.

    Attributes
    ----------
    n_blocks : int
        Into how many blocks the clients are to be cut. Results never depend on it.
    """

    n_blocks: int = 1

    def __sklearn_clone__(self) -> Engine:
        """Return itself: an engine is a place, which copies of an estimator share."""
        return self

    @abstractmethod
    def map(self, function: Callable[..., Any], blocks: Sequence[tuple]) -> list:
        """Return ``[function(*block) for block in blocks]``, in that order."""


class Cohort(ABC):
    """Clients that take part in a fit, in blocks.

    Attributes
    ----------
    facts : list of dict
        What each block states publicly before the first round, `Estimator.describe`.
    """

    facts: list[dict[str, Any]]

    @abstractmethod
    def ask(self, sent: dict, round_: int, turn: NDArray[np.int8]) -> list[dict]:
        """Ask every client and wait for the answers.

        Parameters
        ----------
        sent : dict
            What the server broadcasts.
        round_ : int
        turn : ndarray of shape (n_clients,)
            The round in which each client is to answer, -1 for never.

        Returns
        -------
        list of dict
            The messages of the blocks that answered, in the order of `facts`.
        """


class Blocks(Cohort):
    """Clients whose rows this process holds, on an engine.

    Parameters
    ----------
    engine : Engine
    estimator : Estimator
    worker : Estimator
        A copy that computes the clients' part, wherever the engine does.
    clients : block of clients
    memory : dict of arrays
        What the clients keep to themselves, one entry each.
    key : ndarray of shape (2,)
        Of what channels draw; see `Stream`.
    """

    def __init__(
        self,
        engine: Engine,
        estimator: Any,
        worker: Any,
        clients: Any,
        memory: dict,
        key: NDArray,
    ):
        self._engine, self._worker, self.key = engine, worker, key
        self._blocks = clients.split(engine.n_blocks)
        edges = np.cumsum([0, *map(len, self._blocks)])
        self._places = [slice(*edge) for edge in itertools.pairwise(edges)]
        self._memories = [cut(memory, place) for place in self._places]
        self.facts = [
            estimator.describe(*block) for block in zip(self._blocks, self._memories, strict=True)
        ]

    @property
    def memory(self) -> dict:
        """What all clients keep, one entry each."""
        return join(self._memories)

    def ask(self, sent: dict, round_: int, turn: NDArray[np.int8]) -> list[dict]:
        """Run the clients' part on every block."""
        calls = [
            (
                sent,
                memory | {"turn": turn[place]},
                block,
                Stream(self.key, round_, int(place.start)),
            )
            for memory, block, place in zip(self._memories, self._blocks, self._places, strict=True)
        ]
        answers = self._engine.map(self._worker.local, calls)
        self._memories = [memory for _, memory in answers]
        return [message for message, _ in answers]


def join(blocks: list[dict]) -> dict:
    """Put dicts of arrays one after another, name by name; dicts in dicts too.

    Examples
    --------
    >>> join([{"n": np.array([1])}, {"n": np.array([2, 3])}])
    {'n': array([1, 2, 3])}
    """
    if len(blocks) == 1:
        return blocks[0]
    return {
        name: join([block[name] for block in blocks])
        if isinstance(first, dict)
        else np.concatenate([block[name] for block in blocks])
        for name, first in blocks[0].items()
    }


def cut(memory: dict, place: slice | NDArray[np.int64]) -> dict:
    """Take some clients' entries of dicts of arrays; dicts in dicts too."""
    return {
        name: cut(values, place) if isinstance(values, dict) else values[place]
        for name, values in memory.items()
    }
