"""How a node stays connected: with a SuperLink that is not there."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

import httpx
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity

from ebfed.engines.flower import connection, messages

LINK = connection.Link("127.0.0.1:1", None, None)


@pytest.fixture
def pauses(monkeypatch):
    found = []
    monkeypatch.setattr(connection.time, "sleep", found.append)
    monkeypatch.setattr(connection.random, "uniform", lambda low, high: high)
    return found


def test_attempts_go_on_with_growing_pauses(tmp_path, monkeypatch, pauses):
    """After a connection they begin again with a short one."""
    attempts, said = iter([*[ConnectionError] * 9, None, SystemExit, KeyboardInterrupt]), []

    @contextmanager
    def connected(link, noted):
        if (error := next(attempts)) is not None:
            raise error
        yield None, SimpleNamespace(node_id=7)

    def fail(*_):
        raise OSError

    monkeypatch.setattr(connection, "_connected", connected)
    monkeypatch.setattr(connection, "_answer_all", fail)
    connection.answer_requests(LINK, lambda run, request: {}, tmp_path / "n", said.append)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 0.5, 1]
    assert said[0] == "Not connected (ConnectionError); trying again in 0.5 seconds."
    assert said[9] == "Connected as node 7."
    assert next(attempts, "none is left") == "none is left"


class Client:
    """A SuperLink with requests, of which some parts may be missing."""

    def __init__(self, requests, monkeypatch):
        for name in ("_run_id", "_node_id", "_task_id"):
            monkeypatch.setattr(TaskIdentity, name, 1)
        self.requests, self.sent = [], []
        for title in requests:
            message = messages.make_request(5, title, {"exchange": title})
            message.metadata.__dict__["_message_id"] = message.object_id
            self.requests.append((title, message))

    def PullMessages(self, request):
        if not self.requests:
            raise ConnectionResetError
        self.title, message = self.requests.pop(0)
        self.message = message
        return SimpleNamespace(
            messages_list=[message_to_proto(remove_content_from_message(message))],
            message_object_trees=[get_object_tree(message)],
        )

    def PullObject(self, request):
        if self.title == "torn":
            return SimpleNamespace(object_found=True, object_available=False)
        found = get_all_nested_objects(self.message)[request.object_id].deflate()
        return SimpleNamespace(object_found=True, object_available=True, object_content=found)

    def ConfirmMessageReceived(self, request):
        pass

    def PushMessages(self, request):
        if self.title == "stopped":
            raise httpx.HTTPStatusError("", request=None, response=httpx.Response(403))
        if self.title == "refused":
            raise httpx.HTTPStatusError("", request=None, response=httpx.Response(401))
        self.sent.append(self.title)
        return SimpleNamespace(session_id="s", objects_to_push=[])

    def PushObject(self, request):
        raise AssertionError("nothing was asked for")


def test_what_ends_a_connection(monkeypatch):
    """Neither a request whose sender was killed nor a run that was stopped; a refusal does."""
    monkeypatch.setattr(connection, "PARTS", 0.01)
    client, asked = Client(["torn", "stopped", "good", "refused", "good"], monkeypatch), []

    def answer(run, request):
        asked.append(request["exchange"])
        return {"name": "north"}

    with pytest.raises(httpx.HTTPStatusError):
        connection._answer_all(client, Node(node_id=5), answer)
    assert asked == ["stopped", "good", "refused"]
    assert client.sent == ["good"]
    assert len(client.requests) == 1
