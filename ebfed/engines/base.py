"""Engines and cohorts: where the clients' part of a round is computed.

An `Engine` is a place where blocks of clients are put once and asked many times. A `Cohort` is what
a fit talks to: clients, wherever they are, that state public facts and answer questions. `Blocks`
is the cohort of an engine; a federation's clients are another (`ebfed.engines.flower`).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import Rounds
from ebfed.engines.robust import check_finite
from ebfed.streams import Stream

__all__ = ["Block", "Blocks", "Cohort", "Engine", "cut", "join"]


class Engine(ABC):
    """A place where blocks of clients stay during a fit, and compute.

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
    def place(self, blocks: Sequence[Any]) -> list:
        """Put objects where they stay until the list that is returned is forgotten.

        Parameters
        ----------
        blocks : list of objects
            What each keeps between calls, it keeps where it is.

        Returns
        -------
        list
            What `call` takes for each of them.
        """

    @abstractmethod
    def call(self, placed: Sequence[Any], method: str, arguments: Sequence[tuple]) -> list:
        """Call a method of each object that was placed, with arguments of its own.

        Returns
        -------
        list
            The results, in the order of `placed`.
        """


class Block:
    """A block of clients with what they keep, where an engine has put it.

    Parameters
    ----------
    worker : Rounds
        Of the copy that computes these clients' part.
    clients : block of clients
    memory : dict of arrays
        What the clients keep to themselves, one entry each.
    """

    def __init__(self, worker: Rounds, clients: Any, memory: dict):
        self._worker, self._clients, self._memory = worker, clients, memory

    def answer(self, sent: dict, turn: NDArray[np.int8], rng: Stream) -> dict:
        """Run the clients' part of a round: keep their memory, and return their message.

        It is the sum over these clients where the server needs no more.
        """
        memory = self._memory | {"turn": turn}
        message, self._memory = self._worker.local(sent, memory, self._clients, rng)
        return self._worker.add_up(message)

    def recall(self) -> dict:
        """Return what the clients keep."""
        return self._memory


class Cohort(ABC):
    """Clients that take part in a fit, in blocks.

    Attributes
    ----------
    facts : list of dict
        What each block states publicly before the first round, `Rounds.describe`.
    answered : list of int
        Numbers of the blocks whose messages the last `ask` returned.
    """

    facts: list[dict[str, Any]]
    answered: list[int]

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

    def begin(self, protocol: Rounds, key: NDArray) -> Any:
        """Return the state before the first round, from the facts of all blocks."""
        return protocol.start(join(self.facts), key)

    def take(
        self,
        protocol: Rounds,
        state: Any,
        messages: list[dict],
        merge: Callable[[Sequence[int], Sequence[dict]], dict] | None = None,
    ) -> Any:
        """Return the state after a round with the messages that `ask` returned.

        Parameters
        ----------
        protocol : Rounds
        state : dict
            The state before the round.
        messages : list of dict
        merge : callable, optional
            Makes one message of those of the blocks with these numbers; they are joined if None.

        Raises
        ------
        ValueError
            If it is the last, and has a parameter that is not finite.
        """
        whole = join(messages) if merge is None else merge(self.answered, messages)
        return check_finite(protocol, protocol.update(state, whole))


class Blocks(Cohort):
    """Clients whose rows this process holds, on an engine.

    Parameters
    ----------
    engine : Engine
    protocol : Rounds
    worker : Rounds
        Of a copy that computes the clients' part, wherever the engine does.
    clients : block of clients
    memory : dict of arrays
        What the clients keep to themselves, one entry each.
    key : ndarray of shape (2,)
        Of what channels draw; see `Stream`.
    """

    def __init__(
        self,
        engine: Engine,
        protocol: Rounds,
        worker: Rounds,
        clients: Any,
        memory: dict,
        key: NDArray,
    ):
        self._engine, self.key = engine, key
        blocks = [clients] if engine.n_blocks == 1 else clients.split(engine.n_blocks)
        edges = np.cumsum([0, *map(len, blocks)])
        self._slices = [slice(*edge) for edge in itertools.pairwise(edges)]
        memories = [cut(memory, each) for each in self._slices]
        pairs = list(zip(blocks, memories, strict=True))
        self._blocks = [Block(worker, *pair) for pair in pairs]
        self.answered = list(range(len(pairs)))
        self.facts = [protocol.describe(*pair) for pair in pairs]

    @cached_property
    def _placed(self) -> list:
        # not before they are asked: the facts may already show that there can be no fit
        return self._engine.place(self._blocks)

    @property
    def memory(self) -> dict:
        """What all clients keep, one entry each."""
        return join(self._engine.call(self._placed, "recall", [()] * len(self._placed)))

    def ask(self, sent: dict, round_: int, turn: NDArray[np.int8]) -> list[dict]:
        """Run the clients' part on every block."""
        questions = [
            (sent, turn[each], Stream(self.key, round_, int(each.start))) for each in self._slices
        ]
        return self._engine.call(self._placed, "answer", questions)


def join(blocks: list[dict]) -> dict:
    """Put dicts of arrays one after another, name by name; dicts in dicts too.

    Raises
    ------
    ValueError
        If they have different names, such as the weights of rows at some nodes alone.

    Examples
    --------
    >>> join([{"n": np.array([1])}, {"n": np.array([2, 3])}])
    {'n': array([1, 2, 3])}
    """
    if len(blocks) == 1:
        return blocks[0]
    for block in blocks[1:]:
        if other := sorted(map(str, block.keys() ^ blocks[0].keys())):
            raise ValueError(f"all nodes must state the same; some have no {', '.join(other)}.")
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
