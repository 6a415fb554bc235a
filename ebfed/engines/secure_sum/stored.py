"""A node of a secure sum whose state is on the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed import wire
from ebfed.engines.secure_sum.keys import KEY, Octets, digested, need, signing_key, verify_key
from ebfed.engines.secure_sum.messages import Answer, Request, Terms, context
from ebfed.engines.secure_sum.node import NOTHING, answer, sign_up
from ebfed.tables.replacing import replaced

__all__ = ["StoredNode", "stored_key"]


def stored_key(path: Path) -> tuple[Octets, Octets]:
    """Return the key for signatures in a file, and its public part.

    It is made if there is none, for its owner only, with the public part in a file beside it. Both
    are in hexadecimal digits.

    Raises
    ------
    ValueError
        If the file holds no key.
    ImportError
        If the extra ``secure`` is not installed.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sum-key"
    >>> private, public = stored_key(path)
    >>> path.with_name("sum-key.pub").read_text().strip() == public.tobytes().hex()
    True
    """
    need()
    if not path.exists():
        made = signing_key()
        for file, key in ((path.with_name(path.name + ".pub"), verify_key(made)), (path, made)):
            with replaced(file, private=file == path) as new:
                new.write_text(f"{key.tobytes().hex()}\n", encoding="ascii")
    try:
        private = np.frombuffer(bytes.fromhex(path.read_text(encoding="ascii")), np.uint8)
    except ValueError:
        private = np.empty(0, np.uint8)
    if len(private) != KEY:
        raise ValueError(f"{path} must hold a key of {KEY} bytes, in hexadecimal digits.")
    return private, verify_key(private)


class StoredNode:
    """A node that may be killed at any moment, and goes on with what it has answered.

    The state is on the disk before an answer is given. The last request of a round, if it is asked
    again, gets the same answer; no other request is answered twice. Of two rounds that are held at
    the same time, one is even and one is odd: each has a state of its own.

    Parameters
    ----------
    path : path
        File of the state, in a folder that exists. It holds keys: only its owner may read it.
    name, agreed, signing
        As in `node.sign_up`.

    Raises
    ------
    ValueError
        If the file is of another node or other terms, or damaged.

    Examples
    --------
    >>> import tempfile
    >>> from ebfed.engines.secure_sum import terms
    >>> path = Path(tempfile.mkdtemp()) / "north.ebfed"
    >>> agreed = terms("trial 7", ["north", "south"], size=2)
    >>> node = StoredNode(path, "north", agreed)
    >>> shown = node.answer({"step": "keys", "round": 0})["keys"]["mask"]

    Started again, it shows the same keys:

    >>> again = StoredNode(path, "north", agreed).answer({"step": "keys", "round": 0})
    >>> bool((again["keys"]["mask"] == shown).all())
    True
    """

    def __init__(self, path: str | Path, name: str, agreed: Terms, signing: Octets | None = None):
        self._path = Path(path)
        self._turns: list[dict[str, Any]] = [{"state": sign_up(name, agreed, signing)}] * 2
        if not self._path.exists():
            return
        try:
            even, odd = wire.unpack(self._path.read_bytes())
            states = even["state"], odd["state"]
            same = all(each["name"] == name for each in states)
            same = same and {context(each["terms"], 0) for each in states} == {context(agreed, 0)}
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{self._path} is no state of a secure sum: {error}") from None
        if not same:
            raise ValueError(f"{self._path} is the state of another node, or of other terms.")
        self._turns = [even, odd]

    def answer(
        self,
        request: Request,
        vector: Callable[[int], NDArray[np.int64]] | None = None,
        about: Octets = NOTHING,
    ) -> Answer:
        """Answer a request, or give the last answer again.

        Parameters
        ----------
        request : Request
        vector : callable, optional
            Returns what is to be summed in a round, or raises a ValueError. It is called at the
            step "masked", unless that was answered before: noise in it is drawn once.
        about : array of bytes
            As in `node.answer`.

        Raises
        ------
        ValueError
            If the request is refused.
        """
        round_ = request.get("round") if isinstance(request, dict) else None
        turn = round_ % 2 if type(round_) is int else 0  # what is no round is refused below
        kept, asked = self._turns[turn], digested(wire.pack(request))
        if np.array_equal(kept.get("asked", ()), asked):
            return kept["answer"]
        wanted = isinstance(request, dict) and request.get("step") == "masked"
        summed = vector(round_) if wanted and vector is not None else None
        state, reply = answer(kept["state"], request, summed, about)
        turns = list(self._turns)
        turns[turn] = {"state": state, "asked": asked, "answer": reply}
        with replaced(self._path, private=True) as new:
            new.write_bytes(wire.pack(turns))
        self._turns = turns
        return reply
