"""Nodes of a secure sum in this process, for tests and simulations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed import wire
from ebfed.engines.secure_sum.keys import Octets
from ebfed.engines.secure_sum.messages import NodeState, Request, Terms
from ebfed.engines.secure_sum.node import NOTHING, answer, sign_up

__all__ = ["LocalNodes"]


class LocalNodes:
    """Nodes in this process; all that passes between them and the server is packed and kept.

    Parameters
    ----------
    agreed : Terms
    vectors : dict of int64 ndarrays of shape (size,)
        Vector of each node, by name.
    last : dict of str, optional
        Nodes that are lost, each with the last step that it answers; "" for none.
    signing : dict of arrays of shape (32,), optional
        Private keys of signatures, by name.

    Attributes
    ----------
    about : array of bytes
        Digest of what the vectors answer, see `node.answer`.
    states : dict of lists of NodeState
        Of each node: the state for even rounds, and that for odd ones.
    transcript : list of (str, bytes)
        All that the server has sent to a node or received from one, in order, with the node's name.

    Examples
    --------
    >>> from ebfed.engines.secure_sum import secure_sum, terms
    >>> agreed = terms("trial 7", ["north", "south"], size=1)
    >>> nodes = LocalNodes(agreed, {"north": np.array([3]), "south": np.array([-5])})
    >>> secure_sum(agreed, 0, nodes.ask).total
    array([-2])
    >>> sorted(nodes.states), len(nodes.transcript)
    (['north', 'south'], 16)
    """

    def __init__(
        self,
        agreed: Terms,
        vectors: Mapping[str, NDArray[np.int64]],
        last: Mapping[str, str] | None = None,
        signing: Mapping[str, Octets] | None = None,
    ):
        self.vectors, self.last = dict(vectors), dict(last or {})
        self.about = NOTHING
        self.states: dict[str, list[NodeState]] = {
            name: [sign_up(name, agreed, None if signing is None else signing[name])] * 2
            for name in agreed["names"]
        }
        self.transcript: list[tuple[str, bytes]] = []
        self._gone: set[tuple[str, int]] = set()

    def ask(self, requests: Mapping[str, list[Request]]) -> dict[str, Any]:
        """Return the answers of nodes that are not lost; see `server.SecureSums`."""
        answers: dict[str, Any] = {}
        for name, asked in requests.items():
            sent = wire.pack(asked)
            self.transcript.append((name, sent))
            last = self.last.get(name)
            if last == "":
                self._gone |= {(name, request["round"]) for request in asked}
            if any((name, request["round"]) in self._gone for request in asked):
                continue
            received = wire.pack([self._answer(name, each) for each in wire.unpack(sent)])
            self.transcript.append((name, received))
            answers[name] = wire.unpack(received)
            self._gone |= {(name, each["round"]) for each in asked if each["step"] == last}
        return answers

    def _answer(self, name: str, request: Request) -> Any:
        states, turn = self.states[name], request["round"] % 2
        vector = self.vectors[name] if request["step"] == "masked" else None
        states[turn], reply = answer(states[turn], request, vector, self.about)
        states[turn] = wire.unpack(wire.pack(states[turn]))
        return reply
