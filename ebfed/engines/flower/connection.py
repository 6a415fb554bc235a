"""A node that stays connected: one process, which answers request after request.

Flower's own SuperNode starts a program that was shipped to it, once for each request. This process
speaks the same Fleet API of a SuperLink, and executes nothing that it receives.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ebfed.engines.flower.files import write
from ebfed.engines.flower.messages import ACTION, make_reply, need_flower, unpack

__all__ = ["Link", "answer_requests", "load_key", "make_key_pair"]

# Seconds between two looks for requests: in a run, and after so many seconds without one.
SHORT, LONG, CALM = 0.05, 1.0, 120.0
# Seconds before another attempt to connect.
AGAIN = 2.0


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
    while True:
        try:
            _sign_off(link, noted)
            _stay_connected(link, answer, noted, say)
        except KeyboardInterrupt:
            return
        # Flower ends the process where it cannot connect
        except (Exception, SystemExit) as error:
            say(f"Not connected ({type(error).__name__}); trying again in {AGAIN:g} seconds.")
        else:
            say(f"The connection ended; trying again in {AGAIN:g} seconds.")
        time.sleep(AGAIN)


def _sign_off(link: Link, noted: Path) -> None:
    """End the connection of a process that was killed, which the SuperLink believes to be there."""
    if link.key is None or not noted.exists():
        return
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    number = int(noted.read_text())
    interceptors = [NodeAuthHttpInterceptor(*link.key)]
    with (
        contextlib.suppress(Exception),  # it has forgotten the node, or does not answer yet
        FleetHttpClient.from_server_address(
            link.address, link.insecure, link.root_certificates, interceptors=interceptors
        ) as client,
    ):
        client.DeactivateNode(DeactivateNodeRequest(node_id=number))


def _stay_connected(
    link: Link, answer: Callable[[int, dict], dict], noted: Path, say: Callable[[str], Any]
) -> None:
    from flwr.supercore.run import RunNotRunningException
    from flwr.supernode.fleet_http_connection import http_request_response

    arguments = link.address, link.insecure, link.root_certificates, link.key
    with http_request_response(*arguments) as connection:
        number, receive, send, _, _, pull, push, confirm = connection
        write(noted, str(number).encode())
        say(f"Connected as node {number}.")
        last = time.monotonic()
        while True:
            if (received := receive()) is None:
                time.sleep(SHORT if time.monotonic() - last < CALM else LONG)
                continue
            with contextlib.suppress(RunNotRunningException):  # the run was stopped meanwhile
                _send(_reply(received, answer, pull, confirm), send, push)
            last = time.monotonic()


def _reply(
    received: tuple[Any, Any],
    answer: Callable[[int, dict], dict],
    pull: Callable[[int, str], bytes],
    confirm: Callable[[int, str], None],
) -> Any:
    """Return the reply to a message: an answer, or an error where it is no request of ebfed."""
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode
    from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree

    head, tree = received
    run = head.metadata.run_id
    message = pull_and_inflate_object_from_tree(
        tree,
        lambda object_id: pull(run, object_id),
        lambda object_id: confirm(run, object_id),
        return_type=Message,
    )
    message.metadata.__dict__["_message_id"] = tree.object_id
    try:
        if message.metadata.message_type != f"query.{ACTION}":
            raise ValueError("this node answers requests of ebfed only.")
        request = unpack(message)
    except Exception as error:  # anybody may send anything
        code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        return Message(Error(code, f"{type(error).__name__}"), reply_to=message)
    return make_reply(message, answer(run, request))


def _send(
    reply: Any,
    send: Callable[[Any, Any, float], tuple[set[str], str]],
    push: Callable[[int, str, str, bytes], None],
) -> None:
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_utils import push_objects

    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        tree, contents = get_object_tree(reply), get_all_nested_objects(reply)
        wanted, session = send(reply, tree, 0.0)
        push_objects(
            contents,
            lambda object_id, content: push(reply.metadata.run_id, session, object_id, content),
            object_ids_to_push=wanted,
        )
