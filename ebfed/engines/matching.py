"""The same group at two nodes: labels are matched by digests under a key that only nodes have.

Each node sends HMAC-SHA256 of its labels. Equal digests are equal labels, and nobody can try out
labels without the key. The server adds the summaries of groups with the same digest (`Matched`), so
that the fit is that of all rows in one process, and each node gets the sums of its own groups. Of a
linear regression these are factors of rows, which are merged likewise. Only summaries without noise
are merged. Private reports on one group from two nodes are two releases,
whose epsilons add up: nodes send no digests with them.

The server learns which nodes share how many groups. A node learns the sums over all nodes of the
groups that it has, and so the sums of the other node where there are two.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import string
from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.base import Cohort

__all__ = ["UNMATCHED", "Matched", "check_digests", "digests", "read_match_key"]

# Least length of a key, and length of a digest.
BYTES = 32
# What keys are compared by: no label is encoded like this.
CHECK = b"key of ebfed"

UNMATCHED = (
    "labels were not matched between nodes: a group at two nodes counts as two, so there may be "
    "fewer groups than are shown"
)


def read_match_key(path: str | Path) -> bytes:
    """Read the key of nodes from a file: at least 64 hexadecimal digits.

    One owner makes it, ``python -c "import secrets; print(secrets.token_hex(32))"``, and gives it
    to the other owners, but not to the server.

    Raises
    ------
    ValueError
        If there is no such file, or it holds something else.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"match_key: {path} cannot be read: {type(error).__name__}.") from None
    if len(text) < 2 * BYTES or len(text) % 2 or not set(text) <= set(string.hexdigits):
        raise ValueError(f"match_key: {path} must hold {2 * BYTES} hexadecimal digits or more.")
    return bytes.fromhex(text)


def digests(labels: NDArray, key: bytes) -> NDArray[np.uint8]:
    """Return the digest of each label, and in the first row that of the key itself.

    Equal numbers have equal digests, whole floats and integers too. A number and the string of its
    digits differ, as they do in one process.

    Parameters
    ----------
    labels : ndarray of shape (m,)
        Numbers, strings or dates.
    key : bytes

    Returns
    -------
    ndarray of shape (1 + m, 32)

    Raises
    ------
    TypeError
        If a label is of another type.

    Examples
    --------
    >>> key = bytes(32)
    >>> a, b = digests(np.array([1, 2]), key), digests(np.array([2.0, 3.5]), key)
    >>> (a[0] == b[0]).all(), (a[2] == b[1]).all(), (digests(np.array(["2"]), key)[1] == a[2]).all()
    (np.True_, np.True_, np.False_)
    """
    known = hmac.new(key, digestmod=hashlib.sha256)
    joined = bytearray()
    for content in (CHECK, *map(_encoded, labels)):
        each = known.copy()
        each.update(content)
        joined += each.digest()
    return np.frombuffer(bytes(joined), np.uint8).reshape(-1, BYTES)


def _encoded(label: Any) -> bytes:
    """Encode type and value of a label."""
    if isinstance(label, dt.date):  # as tuples of levels have
        label = np.datetime64(label)
    if isinstance(label, np.datetime64):
        return b"date:" + str(label.astype("datetime64[ns]")).encode()
    if isinstance(label, bool | np.bool_ | int | np.integer):
        return b"number:%d" % int(label)
    if isinstance(label, float | np.floating | Decimal):
        if label % 1 == 0:
            return b"number:%d" % int(label)
        return b"number:" + float(label).hex().encode()
    if isinstance(label, tuple):  # of several levels
        parts = [_encoded(each) for each in label]
        return b"levels:" + b"".join(b"%d:%s" % (len(part), part) for part in parts)
    if isinstance(label, str):
        return b"text:" + label.encode("utf-8", "surrogatepass")
    raise TypeError(
        f"labels must be numbers, strings or dates to be matched; got {type(label).__name__}."
    )


def check_digests(given: Any, n_clients: int) -> None:
    """Raise a ValueError if these are not digests of a key and of so many different labels."""
    sound = isinstance(given, np.ndarray) and given.dtype == np.uint8
    if not sound or given.shape != (1 + n_clients, BYTES):
        raise ValueError(f"digests must be {BYTES} bytes for a key and for each label.")
    if len(np.unique(given, axis=0)) < len(given):
        raise ValueError("digests of different labels must differ.")


class Matched(Cohort):
    """Clients of several nodes, where those with the same digest are one client.

    Parameters
    ----------
    cohort : Cohort
        The nodes, block by block.
    protocol : Rounds
        Whose messages can be merged (`Rounds.matches`).
    given : list of ndarray
        What `digests` returned at each node.

    Attributes
    ----------
    n_shared : int
        Number of groups at two nodes or more.

    Raises
    ------
    ValueError
        If nodes have different keys.
    """

    def __init__(self, cohort: Cohort, protocol: Any, given: Sequence[NDArray[np.uint8]]):
        if len({each[0].tobytes() for each in given}) > 1:
            raise ValueError("match_key must be the same at all nodes; there are different keys.")
        self._cohort, self._protocol = cohort, protocol
        labels = np.concatenate([each[1:] for each in given])
        # rows of bytes as one value each: these sort fast
        _, codes, counts = np.unique(
            np.ascontiguousarray(labels).view(f"V{BYTES}").ravel(),
            return_inverse=True,
            return_counts=True,
        )
        self._codes: list[NDArray] = np.split(codes, np.cumsum([len(x) - 1 for x in given])[:-1])
        self.n_shared = int((counts > 1).sum())
        self.facts = [protocol.merge_facts(cohort.facts, self._codes)]
        self.answered = [0]
        self._messages: dict[int, dict[str, Any]] = {}

    def ask(self, sent: dict, round_: int, turn: NDArray[np.int8]) -> list[dict]:
        """Ask all nodes; `take` merges their messages."""
        return self._cohort.ask(sent, round_, turn[np.concatenate(self._codes)])

    def take(self, protocol: Any, state: Any, messages: list[dict], merge: Any = None) -> Any:
        """Return the state after a round, whose messages are merged."""
        numbers = self._cohort.answered
        self._messages = dict(zip(numbers, messages, strict=True))
        return self._cohort.take(protocol, state, messages, self._merged)

    def _merged(self, numbers: Sequence[int], messages: Sequence[dict]) -> dict[str, Any]:
        return self._protocol.merge(messages, [self._codes[number] for number in numbers])

    @cached_property
    def _whole(self) -> tuple[dict[str, Any], NDArray]:
        """The merged message of the nodes of the result, and the numbers of its groups."""
        numbers = self._cohort.answered
        merged = self._merged(numbers, [self._messages[number] for number in numbers])
        return merged, np.unique(np.concatenate([self._codes[number] for number in numbers]))

    def part(self, number: int) -> dict[str, Any] | None:
        """Return what the merged message says of the groups of a node; None if it was silent."""
        if number not in self._cohort.answered:
            return None
        message, present = self._whole
        return _rows_of(message, np.searchsorted(present, self._codes[number]))


def _rows_of(message: dict[str, Any], rows: NDArray) -> dict[str, Any]:
    """Return the entries of some groups, from the arrays of a message."""
    return {
        name: _rows_of(part, rows) if isinstance(part, dict) else part[rows]
        for name, part in message.items()
    }
