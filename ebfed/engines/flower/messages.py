"""Requests and answers, as Flower carries them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from ebfed import wire

__all__ = ["ACTION", "make_reply", "make_request", "need_flower", "read_answer", "unpack"]

ACTION = "ebfed"
# Parts of an answer besides the name of the node.
ANSWERS: dict[str, dict[str, type]] = {
    "roll call": {"facts": dict},
    "round": {"message": dict},
    "sum": {"answers": list},
    "result": {},
    "failure": {"failure": str},
}


def need_flower() -> None:
    """Raise ImportError if Flower is not installed."""
    if importlib.util.find_spec("flwr") is None:
        raise ImportError('federation needs Flower: pip install "ebfed[flower]"')


def pack(content: dict) -> Any:
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({ACTION: ConfigRecord({"packed": wire.pack(content)})})


def unpack(message: Any) -> dict:
    """Return the content of a message."""
    content = wire.unpack(message.content[ACTION]["packed"])
    if not isinstance(content, dict):
        raise ValueError(f"a message must hold a dict; got a {type(content).__name__}.")
    return content


def make_request(node: int, title: str, request: dict) -> Any:
    """Make a message to a node."""
    from flwr.app import Message

    return Message(pack(request), node, f"query.{ACTION}", group_id=title)


def make_reply(message: Any, answer: dict) -> Any:
    """Make the answer to a message."""
    from flwr.app import Message

    return Message(pack(answer), reply_to=message)


def read_answer(reply: Any, node: int, exchange: str, check: Callable[[int, dict], None]) -> dict:
    """Return an answer and its size; the text of a failure is left out: it may quote data."""
    if reply.has_error():
        return {"failure": f"Flower's error code {reply.error.code}"}
    try:
        answer = unpack(reply)
        answer["bytes"] = len(reply.content[ACTION]["packed"])
    except Exception:  # unknown bytes may raise any error
        return {"failure": "an answer that cannot be read"}
    wanted = {"name": str} | ANSWERS["failure" if "failure" in answer else exchange]
    if not all(isinstance(answer.get(part), kind) for part, kind in wanted.items()):
        return {"failure": "an answer to something else"}
    if "failure" not in answer:
        try:
            check(node, answer)
        except Exception:  # the same: even its types may be wrong
            return {"name": answer["name"], "failure": "an answer that does not fit the question"}
    return answer
