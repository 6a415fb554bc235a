"""Nodes of a secure sum in this process, for tests and simulations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed import wire
from ebfed.engines.secure_sum.keys import Octets
from ebfed.engines.secure_sum.messages import NodeState, Request, Terms
from ebfed.engines.secure_sum.node import answer, sign_up

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
    states : dict of NodeState
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
        self.states: dict[str, NodeState] = {
            name: sign_up(name, agreed, None if signing is None else signing[name])
            for name in agreed["names"]
        }
        self.transcript: list[tuple[str, bytes]] = []
        self._gone: set[str] = set()

    def ask(self, step: str, requests: Mapping[str, Request]) -> dict[str, Any]:
        """Return the answers of nodes that are not lost; see `server.secure_sum`."""
        if step == "keys":  # of a new round
            self._gone = {name for name, last in self.last.items() if not last}
        answers = {}
        for name, request in requests.items():
            sent = wire.pack(request)
            self.transcript.append((name, sent))
            if name in self._gone:
                continue
            vector = self.vectors[name] if step == "masked" else None
            state, reply = answer(self.states[name], wire.unpack(sent), vector)
            self.states[name] = wire.unpack(wire.pack(state))
            received = wire.pack(reply)
            self.transcript.append((name, received))
            answers[name] = wire.unpack(received)
            if self.last.get(name) == step:
                self._gone.add(name)
        return answers
