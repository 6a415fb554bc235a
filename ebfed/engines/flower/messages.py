"""Requests and answers, as Flower carries them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

from ebfed import wire
from ebfed.engines.secure_sum.keys import Octets, digest, digested

__all__ = [
    "ACTION",
    "UNSIGNED",
    "Registered",
    "make_reply",
    "make_request",
    "need_flower",
    "question",
    "read_answer",
    "unpack",
]

ACTION = "ebfed"
# Parts of an answer besides the name of the node.
ANSWERS: dict[str, dict[str, type]] = {
    "roll call": {"facts": dict},
    "round": {"message": dict},
    "sum": {"answers": list},
    "result": {},
    "failure": {"failure": str},
}


# What is said of an answer that may be another node's.
UNSIGNED = "an answer that its key has not signed"


class Registered(NamedTuple):
    """A node as the owner of the server has registered it.

    Attributes
    ----------
    name : str
        Empty where the node has no name, as one that has registered itself.
    key : bytes
        Its public key, in the form of PEM.
    """

    name: str
    key: bytes


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


def make_reply(message: Any, answer: dict, private: Any = None) -> Any:
    """Make the answer to a message, signed by the key of the node, if it has one."""
    from flwr.app import Message

    content = pack(answer)
    if private is not None:
        from flwr.supercore.primitives.asymmetric import sign_message

        metadata, record = message.metadata, content[ACTION]
        asked = metadata.run_id, metadata.dst_node_id, metadata.message_id
        record["signature"] = sign_message(private, _signed(*asked, record["packed"]))
    return Message(content, reply_to=message)


def _signed(run: int, node: int, question: str, packed: bytes) -> bytes:
    """Return what a node signs: its answer, and to which message to which node in which run."""
    numbers = (str(each).encode() for each in (run, node, question))
    return digest(b"ebfed answer 1", *numbers, packed)


def question(request: dict) -> Octets:
    """Return the digest of what all nodes are asked in a round of secure sums."""
    asked = [request.get("plan"), request["sent"], request["rows"]]
    return digested(wire.pack(asked))


def read_answer(
    reply: Any,
    node: int,
    exchange: str,
    check: Callable[[int, dict], None],
    registered: Registered | None = None,
) -> dict:
    """Return an answer and its size; the text of a failure is left out: it may quote data.

    An answer under a name is of the node whose key was registered under it. Flower says from which
    node an answer is, but takes the node's word for it.
    """
    answer = _read_answer(reply, node, exchange, check)
    if registered is None or reply.has_error():
        return answer
    name, given = registered.name or f"node {node}", answer.get("name", registered.name)
    if not registered.name:
        answer = {"failure": "its key is registered under no name"}
    elif not _is_of(reply, node, registered.key):
        answer = {"failure": UNSIGNED}
    elif given != name:
        answer = {"failure": f"gives the name {given[:40]!r}, which is not that of its key"}
    return answer | {"name": name}


def _is_of(reply: Any, node: int, key: bytes) -> bool:
    """Whether the owner of a key has signed an answer."""
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

    try:
        record, metadata = reply.content[ACTION], reply.metadata
        asked = metadata.run_id, node, metadata.reply_to_message_id
        signed = _signed(*asked, record["packed"])
        return verify_signature(bytes_to_public_key(key), signed, record["signature"])
    except Exception:  # unknown content may raise any error
        return False


def _read_answer(reply: Any, node: int, exchange: str, check: Callable[[int, dict], None]) -> dict:
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
        except Exception as error:  # even its types may be wrong
            said = f": {error}" if type(error) is ValueError else ""  # in words of this package
            failure = f"an answer that does not fit the question{said.removesuffix('.')}"
            return {"name": answer["name"], "failure": failure}
    return answer
