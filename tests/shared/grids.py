"""A grid of Flower that is not there: its nodes are in this process."""

import itertools

import pytest

pytest.importorskip("flwr")

from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity

from ebfed.engines.flower import cohort


def as_in_a_run(monkeypatch):
    """Let messages be made without a SuperLink, and looked for without a pause."""
    monkeypatch.setattr(cohort, "POLL", 0.001)
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Grid:
    """Nodes in this process; what each does with a message is a function of it."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.waiting = []  # (looks left until it arrives, message)
        self.numbers = itertools.count()

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        for message in messages:
            message.metadata.__dict__["_message_id"] = name = f"m{next(self.numbers)}"
            replies = self.nodes[message.metadata.dst_node_id](message)
            self.waiting += replies
            yield name

    def pull_messages(self, names):
        arrived = [reply for looks, reply in self.waiting if looks <= 0]
        self.waiting = [(looks - 1, reply) for looks, reply in self.waiting if looks > 0]
        return arrived


class RegisteredGrid(Grid):
    """A grid whose owner has registered the keys of its nodes, each under a name, or none.

    A node is a function of a message and of its private key.
    """

    def __init__(self, nodes, names):
        self.keys = {number: generate_key_pairs()[0] for number in nodes}
        super().__init__({number: self._signing(number, node) for number, node in nodes.items()})
        self.names = names

    def _signing(self, number, node):
        return lambda message: node(message, self.keys[number])

    def get_nodes(self):
        return [
            NodeInfo(
                node_id=number,
                name=self.names.get(number, ""),
                public_key=public_key_to_bytes(self.keys[number].public_key()),
            )
            for number in self.nodes
        ]
