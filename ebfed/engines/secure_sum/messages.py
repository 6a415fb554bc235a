"""What nodes and server agree on before the first round, and what passes between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.secure_sum.keys import KEY, Octets, digest, digested, need

__all__ = [
    "Answer",
    "Keys",
    "NodeState",
    "Request",
    "ServerState",
    "Terms",
    "check_names",
    "check_octets",
    "check_terms",
    "context",
    "dtype_of",
    "largest",
    "least_threshold",
    "round_view",
    "steps",
    "terms",
]


REQUIRED = {"run", "names", "threshold", "colluding", "size", "bits"}


class Terms(TypedDict):
    """What all nodes and the server agree on before the first round; nothing in it is secret."""

    run: str
    """Name of the run; two runs of the same nodes have different ones."""
    names: list[str]
    """Names of the nodes, sorted."""
    threshold: int
    """How many nodes are needed to the end of a round."""
    colluding: int
    """How many of them may be on the side of the server: others give all the noise."""
    size: int
    """Length of the vectors."""
    bits: int
    """Sums are modulo two to this power: 16, 32 or 64."""
    verify: NotRequired[dict[str, Octets]]
    """Public key of each node's signatures, each of shape (32,)."""


class Keys(TypedDict):
    """Public keys of a node for one round, each of shape (32,)."""

    mask: Octets
    """Of agreement on masks."""
    box: Octets
    """Of encryption of shares."""
    signature: NotRequired[Octets]


class Request(TypedDict):
    """What the server sends to a node."""

    step: str
    round: int
    terms: NotRequired[Octets]
    """Of the first step: a digest of the terms."""
    keys: NotRequired[dict[str, Keys]]
    boxes: NotRequired[dict[str, Octets]]
    """Shares for this node, by sender, encrypted."""
    counted: NotRequired[list[str]]
    """Nodes whose vectors are in the sum."""
    receipts: NotRequired[dict[str, Octets]]
    """Of each of them: its signature of what it had received when it sent its vector."""
    signatures: NotRequired[dict[str, Octets]]
    """Of as many as are needed: signatures of who is counted."""


class Answer(TypedDict):
    """What a node answers."""

    step: str
    round: int
    keys: NotRequired[Keys]
    boxes: NotRequired[dict[str, Octets]]
    """Shares for each other node, encrypted."""
    commitment: NotRequired[Octets]
    """By which the server can check the seed of the own mask when it is recovered."""
    masked: NotRequired[NDArray]
    signature: NotRequired[Octets]
    """Of what the node has received, or of who is counted."""
    seeds: NotRequired[dict[str, Octets]]
    """Shares of the seeds of own masks, by owner."""
    secrets: NotRequired[dict[str, Octets]]
    """Shares of the secrets of masks with others, by owner."""


class NodeState(TypedDict):
    """What a node keeps between exchanges, and does not send."""

    name: str
    terms: Terms
    signing: NotRequired[Octets]
    round: int
    """The last round that was begun, -1 before."""
    step: str
    """The last step that was answered."""
    seed: NotRequired[Octets]
    """Of the own mask."""
    secret: NotRequired[Octets]
    """Of the private key of masks with others."""
    box: NotRequired[Octets]
    """Private key of encryption."""
    keys: NotRequired[dict[str, Keys]]
    shares: NotRequired[dict[str, Octets]]
    """Of each node: a share of its seed, then one of its secret, 32 bytes."""
    view: NotRequired[Octets]
    """Digest of what the server has sent to all, in this round."""
    counted: NotRequired[list[str]]
    """Nodes whose vectors are in the sum, as this node has agreed."""


class ServerState(TypedDict):
    """What the server keeps between exchanges of a round."""

    terms: Terms
    round: int
    step: str
    """The step that nodes are asked for; "done" in the end."""
    keys: dict[str, Keys]
    commitments: NotRequired[dict[str, Octets]]
    about: NotRequired[Octets]
    """Digest of what the vectors answer."""
    receipts: NotRequired[dict[str, Octets]]
    total: NotRequired[NDArray]
    counted: NotRequired[list[str]]


def terms(
    run: str,
    names: Sequence[str],
    size: int,
    *,
    threshold: int | None = None,
    colluding: int = 0,
    bits: int = 32,
    verify: Mapping[str, Octets] | None = None,
) -> Terms:
    """Write down what nodes and server agree on.

    Parameters
    ----------
    run : str
        Name of the run, another one for each run of the same nodes.
    names : sequence of str
        Names of the nodes, at least two.
    size : int
        Length of the vectors.
    threshold : int, optional
        How many nodes are needed to the end of a round; the least, if None. Of 5 nodes, 2 may then
        be lost, if none is on the side of the server; see `least_threshold`.
    colluding : int
        How many nodes may be on the side of the server; all but two at most.
    bits : {16, 32, 64}
        Sums are modulo two to this power. Entries of each vector must be so small that a sum of all
        cannot overflow (`largest`).
    verify : dict of arrays of shape (32,), optional
        Public key of the signatures of each node (`keys.verify_key`). It must be from the owner of
        the node, not from the server. None: the server must follow the protocol.

    Returns
    -------
    Terms

    Raises
    ------
    ValueError
    ImportError
        If the extra ``secure`` is not installed.

    Examples
    --------
    >>> agreed = terms("trial 7", ["north", "south", "east"], size=2)
    >>> agreed["names"], agreed["threshold"]
    (['east', 'north', 'south'], 2)
    """
    need()
    names = sorted(names) if not isinstance(names, str) else names
    if threshold is None:
        threshold = least_threshold(len(names), colluding)
    agreed: Terms = {
        "run": run,
        "names": names,  # type: ignore[typeddict-item]  # checked below
        "threshold": threshold,
        "colluding": colluding,
        "size": size,
        "bits": bits,
    }
    if verify is not None:
        agreed["verify"] = dict(sorted(verify.items()))
    check_terms(agreed)
    return agreed


def check_terms(agreed: Any) -> None:
    """Raise a ValueError if terms cannot be kept."""
    if not isinstance(agreed, dict) or not REQUIRED <= agreed.keys() <= REQUIRED | {"verify"}:
        raise ValueError("terms must be a dict as ebfed.engines.secure_sum.terms returns.")
    run, names, threshold = agreed["run"], agreed["names"], agreed["threshold"]
    if not (isinstance(run, str) and run):
        raise ValueError(f"run must be a name; got {run!r}.")
    if not (isinstance(names, list) and all(isinstance(each, str) and each for each in names)):
        raise ValueError(f"names must be a list of names; got {names!r}.")
    if len(names) < 2 or names != sorted(set(names)):
        raise ValueError(f"names must be two or more, each once and sorted; got {names!r}.")
    colluding, most = agreed["colluding"], len(names) - 2
    if type(colluding) is not int or not 0 <= colluding <= most:
        raise ValueError(f"colluding must be a whole number from 0 to {most}; got {colluding!r}.")
    least = least_threshold(len(names), colluding)
    if type(threshold) is not int or not least <= threshold <= len(names):
        raise ValueError(
            f"threshold must be a whole number from {least} (more than half of the nodes) to "
            f"{len(names)}; got {threshold!r}."
        )
    if type(agreed["size"]) is not int or agreed["size"] < 1:
        raise ValueError(f"size must be a whole number, 1 or above; got {agreed['size']!r}.")
    if agreed["bits"] not in (16, 32, 64):
        raise ValueError(f"bits must be 16, 32 or 64; got {agreed['bits']!r}.")
    if "verify" in agreed:
        if list(agreed["verify"]) != names:
            raise ValueError("verify must have a key for each of the names, and for no other.")
        for name, key in agreed["verify"].items():
            check_octets(f"verify[{name!r}]", key, KEY)


def least_threshold(n_nodes: int, colluding: int = 0) -> int:
    """Return the least threshold by which only sums over two honest nodes or more are shown.

    Of n nodes, c are on the side of the server. A sum over t nodes has t - c of the others, which
    must be two: the sum of one is its vector. And a server that sends different lists to nodes
    must not find t that agree to each of two lists: 2 t > n + c.

    Parameters
    ----------
    n_nodes : int
    colluding : int
        How many of the nodes are on the side of the server.

    Examples
    --------
    >>> [least_threshold(5, colluding) for colluding in range(4)]
    [3, 4, 4, 5]
    """
    return max((n_nodes + colluding) // 2 + 1, colluding + 2)


def steps(agreed: Terms) -> list[str]:
    """Return the steps of a round in order.

    Examples
    --------
    >>> steps(terms("trial 7", ["north", "south"], size=2))
    ['keys', 'shares', 'masked', 'unmask']
    """
    return ["keys", "shares", "masked", *(["agree"] if "verify" in agreed else []), "unmask"]


def dtype_of(agreed: Terms) -> np.dtype:
    """Return the type of masked numbers, whose sums wrap around."""
    return np.dtype(f"<u{agreed['bits'] // 8}")


def largest(bits: int, n_nodes: int) -> int:
    """Return how large entries of a vector may be, so that no sum over the nodes overflows.

    Examples
    --------
    >>> largest(bits=16, n_nodes=3)
    10922
    """
    return (2 ** (bits - 1) - 1) // n_nodes


def context(agreed: Terms, round_: int) -> bytes:
    """Name a round of a run with these terms, by a digest."""
    names = [part for each in agreed["names"] for part in (each.encode(), _key_of(agreed, each))]
    numbers = (*(agreed[name] for name in ("threshold", "colluding", "size", "bits")), round_)
    return digest(
        b"ebfed secure sum 1",
        agreed["run"].encode(),
        *(str(each).encode() for each in numbers),
        *names,
    )


def _key_of(agreed: Terms, name: str) -> bytes:
    return agreed["verify"][name].tobytes() if "verify" in agreed else b""


def round_view(
    agreed: Terms, round_: int, keys: Mapping[str, Keys], sharing: Sequence[str], about: Octets
) -> Octets:
    """Name what the server has sent to all: keys, who has sent shares, and what vectors answer."""
    known = [
        part
        for name in sorted(keys)
        for part in (name.encode(), keys[name]["mask"].tobytes(), keys[name]["box"].tobytes())
    ]
    names = [name.encode() for name in sorted(sharing)]
    parts = digest(*known), digest(*names), about.tobytes()
    return digested(context(agreed, round_), b"view", *parts)


def check_octets(what: str, value: Any, size: int) -> None:
    """Raise a ValueError if that is no array of so many bytes."""
    right = isinstance(value, np.ndarray) and value.dtype == np.uint8
    if not right or value.shape != (size,):
        raise ValueError(f"{what} must be {size} bytes.")


def check_names(what: str, names: Any, among: Sequence[str], least: int) -> None:
    """Raise a ValueError if these are not enough names, each once, among those known."""
    if not isinstance(names, list | dict) or not all(isinstance(each, str) for each in names):
        raise ValueError(f"{what} must be of nodes by name.")
    if unknown := sorted(set(names) - set(among)):
        raise ValueError(f"{what}: {unknown[0]!r} is not among {', '.join(among)}.")
    if len(set(names)) != len(names):
        raise ValueError(f"{what} must name each node once.")
    if len(names) < least:
        raise ValueError(f"{what} must be of {least} nodes or more; got {len(names)}.")
