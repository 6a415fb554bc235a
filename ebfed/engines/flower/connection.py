"""A node that stays connected: one process, which answers request after request.

Flower's own SuperNode starts a program that was shipped to it, once for each request. This process
speaks the same Fleet API of a SuperLink, and executes nothing that it receives.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ebfed.engines.flower.files import write
from ebfed.engines.flower.messages import ACTION, make_reply, need_flower, unpack

__all__ = ["Link", "answer_requests", "load_key", "make_key_pair"]

# Seconds between two looks for requests: a part of the time since the last one, within limits.
SHORT, PART, LONG = 0.1, 0.25, 1.0
# Seconds before another attempt to connect: at first, and at most.
AGAIN, RARELY = 0.5, 30.0
# Seconds to wait for the parts of a request, which a server that was killed has not sent.
PARTS = 5.0


def make_key_pair(path: Path) -> Path:
    """Make the key of a node, if there is none; returns the file of its public part.

    The private part is readable by its owner only.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    from ebfed.tables.replacing import replaced

    public = path.with_name(path.name + ".pub")
    if not path.exists():
        key = ec.generate_private_key(ec.SECP384R1())
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        shown = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        for file, content in ((public, shown + b"\n"), (path, private)):
            with replaced(file, private=file == path) as new:
                new.write_bytes(content)
    return public


def load_key(path: Path) -> tuple[Any, Any]:
    """Return the private and the public key of a node.

    Raises
    ------
    ValueError
        If the file holds no key of an elliptic curve.
    """
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    key = load_ssh_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} must hold a key of an elliptic curve: ssh-keygen -t ecdsa.")
    return key, key.public_key()


class Link(NamedTuple):
    """A SuperLink, and how a node connects to it.

    Attributes
    ----------
    address : str
        Host and port.
    root_certificates : str or None
        File of the authorities that may have signed the server's certificate; None: no TLS.
    key : pair of keys or None
        The node's own, which the owner of the server has registered. None: the server accepts any
        node.
    """

    address: str
    root_certificates: str | None
    key: tuple[Any, Any] | None

    @property
    def insecure(self) -> bool:
        """Whether nothing is encrypted."""
        return self.root_certificates is None


def answer_requests(
    link: Link, answer: Callable[[int, dict], dict], noted: Path, say: Callable[[str], Any]
) -> None:
    """Answer the requests of a SuperLink until the process is ended; connect again where needed.

    Attempts to connect do not end: after each one that fails, the pause before the next one is
    twice as long, up to half a minute.

    Parameters
    ----------
    link : Link
    answer : callable
        Returns the answer to a request of a run, as `Node.answer`.
    noted : path
        File for the number that the SuperLink gives to the node.
    say : callable
        Called with a sentence when the connection begins or ends.
    """
    need_flower()
    pause = AGAIN
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            try:
                with _connected(link, noted) as (client, node):
                    say(f"Connected as node {node.node_id}.")
                    pause = AGAIN
                    _answer_all(client, node, answer, link.key and link.key[0])
            # Flower ends the process where versions do not fit
            except (Exception, SystemExit) as error:
                kind = type(error).__name__
                say(f"Not connected ({kind}); trying again in {pause:g} seconds.")
            time.sleep(pause * random.uniform(0.5, 1.0))  # nodes that were cut off together
            pause = min(2 * pause, RARELY)


@contextlib.contextmanager
def _connected(link: Link, noted: Path) -> Iterator[tuple[Any, Any]]:
    """Connect, and say so to the SuperLink every few seconds, until the end.

    Flower's own SuperNode ends its process when it is refused, as by a SuperLink that was started
    again without its database. Here, every failure is an error of the call.
    """
    from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL as BEAT
    from flwr.proto.fleet_pb2 import (
        ActivateNodeRequest,
        DeactivateNodeRequest,
        RegisterNodeFleetRequest,
        UnregisterNodeFleetRequest,
    )
    from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.heartbeat import HeartbeatSender
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    private, shown = generate_key_pairs() if link.key is None else link.key
    public = public_key_to_bytes(shown)
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    interceptors: list[Any] = [version, NodeAuthHttpInterceptor(private, shown)]
    with FleetHttpClient.from_server_address(
        link.address, link.insecure, link.root_certificates, interceptors=interceptors
    ) as client:
        if link.key is None:
            client.RegisterNode(RegisterNodeFleetRequest(public_key=public))
        elif noted.exists():  # a process that was killed is believed to be there
            with contextlib.suppress(Exception):
                client.DeactivateNode(DeactivateNodeRequest(node_id=int(noted.read_text())))
        asked = ActivateNodeRequest(public_key=public, heartbeat_interval=BEAT)
        node = Node(node_id=client.ActivateNode(asked).node_id)
        write(noted, str(node.node_id).encode())

        def beat() -> bool:
            try:
                request = SendNodeHeartbeatRequest(node=node, heartbeat_interval=BEAT)
                return client.SendNodeHeartbeat(request).success
            except Exception:  # the next one may arrive
                return False

        sender = HeartbeatSender(beat)
        sender.start()
        try:
            yield client, node
        finally:
            sender.stop()
            with contextlib.suppress(Exception):
                client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
                if link.key is None:
                    client.UnregisterNode(UnregisterNodeFleetRequest(node_id=node.node_id))


def _answer_all(
    client: Any, node: Any, answer: Callable[[int, dict], dict], private: Any = None
) -> None:
    """Answer one request after the other, until a call fails."""
    from flwr.common.serde import message_from_proto
    from flwr.proto.fleet_pb2 import PullMessagesRequest
    from httpx import HTTPStatusError, codes

    last = time.monotonic()
    while True:
        found = client.PullMessages(PullMessagesRequest(node=node))
        if not found.messages_list:
            time.sleep(min(max(SHORT, PART * (time.monotonic() - last)), LONG))
            continue
        head = message_from_proto(found.messages_list[0])
        try:
            reply = _reply(client, node, head, found.message_object_trees[0], answer, private)
            if reply is not None:
                _send(client, node, reply)
        except HTTPStatusError as error:
            if error.response.status_code != codes.FORBIDDEN:  # the run was stopped meanwhile
                raise
        last = time.monotonic()


def _reply(
    client: Any,
    node: Any,
    head: Any,
    tree: Any,
    answer: Callable[[int, dict], dict],
    private: Any,
) -> Any:
    """Return the reply to a message: an answer, or an error where it is no request of ebfed.

    None if parts of the message are missing: its sender was killed, and asks again.
    """
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode
    from flwr.supercore.inflatable.inflatable_protobuf_utils import (
        make_confirm_message_received_fn_protobuf,
        make_pull_object_fn_protobuf,
    )
    from flwr.supercore.inflatable.inflatable_utils import (
        ObjectPullError,
        pull_and_inflate_object_from_tree,
    )

    run = head.metadata.run_id
    try:
        message = pull_and_inflate_object_from_tree(
            tree,
            make_pull_object_fn_protobuf(client.PullObject, node, run),
            make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run),
            return_type=Message,
            max_time=PARTS,
        )
    except ObjectPullError:
        return None
    message.metadata.__dict__["_message_id"] = tree.object_id
    try:
        if message.metadata.message_type != f"query.{ACTION}":
            raise ValueError("this node answers requests of ebfed only.")
        request = unpack(message)
    except Exception as error:  # anybody may send anything
        code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        return Message(Error(code, f"{type(error).__name__}"), reply_to=message)
    return make_reply(message, answer(run, request), private)


def _send(client: Any, node: Any, reply: Any) -> None:
    from flwr.app.message import remove_content_from_message
    from flwr.common.serde import message_to_proto
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_protobuf_utils import make_push_object_fn_protobuf
    from flwr.supercore.inflatable.inflatable_utils import push_objects

    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        tree, contents = get_object_tree(reply), get_all_nested_objects(reply)
        head = remove_content_from_message(reply) if reply.has_content() else reply
        taken = client.PushMessages(
            PushMessagesRequest(
                node=node,
                messages_list=[message_to_proto(head)],
                message_object_trees=[tree],
                clientapp_runtime_list=[0.0],
            )
        )
        run, session = reply.metadata.run_id, taken.session_id
        push_objects(
            contents,
            make_push_object_fn_protobuf(client.PushObject, node, run, session),
            object_ids_to_push=set(taken.objects_to_push),
        )
