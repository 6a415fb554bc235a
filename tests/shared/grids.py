"""A grid of Flower that is not there: its nodes are in this process."""

import itertools

import pytest

pytest.importorskip("flwr")

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
