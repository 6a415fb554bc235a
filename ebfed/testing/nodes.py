"""Fits on nodes that exchange only packed bytes with a server."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ebfed import wire
from ebfed.engines import Cohort
from ebfed.engines.matching import Matched, digests
from ebfed.engines.protocol import Estimator
from ebfed.engines.rounds import converse
from ebfed.privacy import events
from ebfed.privacy.odometer import Charge, Plan, compose
from ebfed.streams import Stream, make_key

__all__ = ["first_half", "fit_on_nodes", "fit_on_two_nodes"]


class _Relay(Cohort):
    """Nodes that hold their own rows and exchange packed bytes."""

    def __init__(self, estimator: Estimator, rows: list[dict[str, Any]], key: NDArray):
        self.nodes = []
        for own in rows:
            node = clone(estimator).protocol()
            self.nodes.append([node, *node.prepare(**own)])
        self.facts = [_over_the_wire(node.describe(*own)) for node, *own in self.nodes]
        self._key = key
        self._plans: list[list[Plan]] = []
        self.answered = list(range(len(rows)))

    def ask(self, sent: dict, round_: int, turn: NDArray[np.int8]) -> list[dict]:
        first, messages = 0, list[dict]()
        for each in self.nodes:
            node, clients, memory = each
            last = first + len(clients)
            stream = Stream(self._key, round_, first)
            memory = memory | {"turn": turn[first:last]}
            plans = node.plan(_over_the_wire(sent), memory, clients)
            if round_ == 0:
                self._plans.append(plans)
                _check_plans(plans, len(clients))
            for plan in plans:
                assert plan.rounds is None or round_ < plan.rounds, "a round that is not planned"
            message, each[2] = node.local(_over_the_wire(sent), memory, clients, stream)
            message, facts = _over_the_wire(node.add_up(message)), self.facts[len(messages)]
            node.check_message(message, facts, sent, turn[first:last])
            messages.append(message)
            first = last
        return messages

    def check_ledgers(self) -> None:
        """Compare what was planned before the first round with the ledgers of the nodes."""
        for (node, *_), plans in zip(self.nodes, self._plans, strict=True):
            planned = max((plan.epsilon for plan in plans), default=0.0)
            rows = node.estimator.privacy_
            public = rows["what"].str.startswith("public covariates")
            spent = rows["epsilon"][~public].max()
            assert not spent > planned * (1 + 1e-6), "the ledger lists more than was planned"


def _check_plans(plans: list[Plan], n_clients: int) -> None:
    """Each client is in one plan at most; a mechanism costs what is stated of it."""
    counts = np.sum([plan.members for plan in plans], axis=0) if plans else np.zeros(n_clients)
    assert np.shape(counts) == (n_clients,), "a plan must say which clients it is about"
    assert np.all(counts <= 1), "a client must be in one plan"
    for plan in plans:
        charge = Charge.from_dict(json.loads(json.dumps(plan.charge.to_dict())))
        assert charge == plan.charge, "a plan must survive a file"
        if np.isfinite(plan.epsilon):
            # without its statement, at a delta that the statement does not need to hold at
            delta = plan.delta or 1e-12
            bare = compose([replace(charge, epsilon=1e9, delta=1.0)], delta)
            assert bare <= plan.epsilon * 1.02 + 1e-3, "an event costs more than is stated"
        else:
            assert charge.event == events.open_release(), "only an exact release is unlimited"


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
    again = clone(estimator).protocol().conclude(kept | {"log_likelihood": 0.0})
    assert str(again.summary()), "a server must have a summary"
    return nodes


def first_half(groups: NDArray) -> NDArray[np.bool_]:
    """Return a mask of the rows whose groups lie in the first half."""
    return groups <= np.median(np.unique(groups))


def fit_on_nodes(
    estimator: Estimator, rows: list[dict[str, Any]], match_key: bytes | None = None
) -> tuple[list[Any], dict, dict]:
    """Fit with one node for each set of rows; labels are matched under a key, if there is one.

    Returns the nodes, what the server keeps, and its last broadcast.
    """
    key = make_key(estimator.random_state)
    relay = _Relay(estimator, rows, key)
    server = clone(estimator).protocol()
    matched = None
    if match_key is not None:
        given = [digests(clients.ids, match_key) for _, clients, _ in relay.nodes]
        matched = Matched(relay, server, given)
    state = converse(server, matched or relay, key)
    sent = _over_the_wire(server.broadcast(state))
    for number, (node, clients, memory) in enumerate(relay.nodes):
        if matched is not None:
            part = matched.part(number)
            assert part is not None, "every node answers here"
            part = _over_the_wire(part)
            clients, memory = node.with_merged(part, clients, memory)
        node.finish(sent, memory, clients)
    relay.check_ledgers()
    return [node.estimator for node, *_ in relay.nodes], _over_the_wire(server.keep(state)), sent
