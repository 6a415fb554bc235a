"""Fits on nodes that exchange only packed bytes with a server."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ebfed import wire
from ebfed.engines import Cohort
from ebfed.engines.protocol import Estimator
from ebfed.engines.rounds import converse
from ebfed.streams import Stream, make_key

__all__ = ["first_half", "fit_on_nodes", "fit_on_two_nodes"]


class _Relay(Cohort):
    """Nodes that hold their own rows and exchange packed bytes."""

    def __init__(self, estimator: Estimator, rows: list[dict[str, Any]], key: NDArray):
        self.nodes = []
        for own in rows:
            node = clone(estimator)
            self.nodes.append([node, *node.prepare(**own)])
        self.facts = [_over_the_wire(node.describe(*own)) for node, *own in self.nodes]
        self._key = key

    def ask(self, sent: dict, round_: int, turn: NDArray[np.int8]) -> list[dict]:
        first, messages = 0, []
        for each in self.nodes:
            node, clients, memory = each
            last = first + len(clients)
            stream = Stream(self._key, round_, first)
            memory = memory | {"turn": turn[first:last]}
            message, each[2] = node.local(_over_the_wire(sent), memory, clients, stream)
            messages.append(_over_the_wire(message))
            first = last
        return messages


def _over_the_wire(content: dict) -> dict:
    return wire.unpack(wire.pack(content))


def fit_on_two_nodes(
    estimator: Estimator, X: NDArray, groups: NDArray, y: NDArray | None = None
) -> list[Any]:
    """Fit on two nodes, each with half of the groups; returns the nodes."""
    half = first_half(groups)
    rows = [
        {"X": X[part], "y": None if y is None else y[part], "groups": groups[part]}
        for part in (half, ~half)
    ]
    nodes, kept, _ = fit_on_nodes(estimator, rows)
    again = clone(estimator).conclude(kept | {"log_likelihood": 0.0})
    assert str(again.summary()), "a server must have a summary"
    return nodes


def first_half(groups: NDArray) -> NDArray[np.bool_]:
    """Return a mask of the rows whose groups lie in the first half."""
    return groups <= np.median(np.unique(groups))


def fit_on_nodes(estimator: Estimator, rows: list[dict[str, Any]]) -> tuple[list[Any], dict, dict]:
    """Fit with one node for each set of rows.

    Returns the nodes, what the server keeps, and its last broadcast.
    """
    key = make_key(estimator.random_state)
    relay = _Relay(estimator, rows, key)
    server = clone(estimator)
    state = converse(server, relay, key)
    sent = _over_the_wire(server.broadcast(state))
    for node, clients, memory in relay.nodes:
        node.finish(sent, memory, clients)
    return [node for node, *_ in relay.nodes], _over_the_wire(server.keep(state)), sent
