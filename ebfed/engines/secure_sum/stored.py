"""A node of a secure sum whose state is on the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed import wire
from ebfed.engines.secure_sum.keys import Octets, digest
from ebfed.engines.secure_sum.messages import Answer, Request, Terms, context
from ebfed.engines.secure_sum.node import answer, sign_up
from ebfed.tables.replacing import replaced

__all__ = ["StoredNode"]


class StoredNode:
    """A node that may be killed at any moment, and goes on with what it has answered.

    The state is on the disk before an answer is given. The last request, if it is asked again, gets
    the same answer; no other request is answered twice.

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
        self._kept: dict[str, Any] = {"state": sign_up(name, agreed, signing)}
        if not self._path.exists():
            return
        try:
            kept = wire.unpack(self._path.read_bytes())
            same = kept["state"]["name"] == name
            same = same and context(kept["state"]["terms"], 0) == context(agreed, 0)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{self._path} is no state of a secure sum: {error}") from None
        if not same:
            raise ValueError(f"{self._path} is the state of another node, or of other terms.")
        self._kept = kept

    def answer(
        self, request: Request, vector: Callable[[], NDArray[np.int64]] | None = None
    ) -> Answer:
        """Answer a request, or give the last answer again.

        Parameters
        ----------
        request : Request
        vector : callable, optional
            Returns what is to be summed. It is called at the step "masked", unless that was
            answered before: noise in it is drawn once.

        Raises
        ------
        ValueError
            If the request is refused.
        """
        asked = np.frombuffer(digest(wire.pack(request)), np.uint8)
        if np.array_equal(self._kept.get("asked", ()), asked):
            return self._kept["answer"]
        wanted = isinstance(request, dict) and request.get("step") == "masked"
        summed = vector() if wanted and vector is not None else None
        state, reply = answer(self._kept["state"], request, summed)
        kept = {"state": state, "asked": asked, "answer": reply}
        with replaced(self._path, private=True) as new:
            new.write_bytes(wire.pack(kept))
        self._kept = kept
        return reply
