"""What a fit has reached, on disk, so that one that was interrupted goes on from there.

The folder holds ``fit.ebfed``, the last state of the server and what clients keep, and
``ledger.jsonl``, to which every round is added *before* its messages are asked for: whatever was
released is in the ledger. A fit that goes on repeats the rounds since the state was written. It
draws the same numbers for them, so nothing new is released, and a round that is repeated is not
entered again. From the first round on that nobody was asked for, a private fit draws noise from a
new key, unless its seed is fixed; the state is written with that key before it is used.

Writing takes time where clients keep much. It is done when at least twenty times as long has passed
since, so that it costs a twentieth; and at the end.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed import wire
from ebfed.engines import journal
from ebfed.tables.clients import Clients
from ebfed.tables.replacing import replaced

__all__ = ["Checkpoint"]

SPARE = 20.0
DIGEST = 32  # bytes of the checksum, which come first


class Checkpoint:
    """The folder of one fit.

    Parameters
    ----------
    folder : path
        Made if it does not exist.
    settings : dict
        Arguments of the estimator, as text.
    clients : Clients
        Their rows: a fit goes on only with the same rows and arguments.
    memory : dict of arrays
        What clients bring along besides, such as their choices.

    Notes
    -----
    What is kept includes the key of the noise: a reader of the folder can subtract the noise.
    """

    def __init__(self, folder: str | Path, settings: dict[str, str], clients: Clients, memory: Any):
        if not isinstance(folder, str | Path) or not str(folder):
            raise TypeError(f"checkpoint must be a path of a folder; got {folder!r}.")
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file, self._ledger = self._folder / "fit.ebfed", self._folder / "ledger.jsonl"
        self._identity = _digest([settings, memory], clients)
        self._entered = {(entry["fit"], entry["round"]) for entry in journal.read(self._ledger)}
        self._due = 0.0

    def load(self) -> tuple[Any, Any] | None:
        """Return the last state and what clients kept; None if there is nothing.

        Raises
        ------
        ValueError
            If what is there is of other rows or arguments.
        """
        if not self._file.exists():
            return None
        try:
            content = self._file.read_bytes()
            if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
                raise ValueError("it is damaged")
            kept = wire.unpack(content[DIGEST:])
        except ValueError as error:
            raise ValueError(
                f"checkpoint {str(self._file)!r} cannot be read; delete it to begin again: {error}"
            ) from None
        if kept["identity"] != self._identity:
            raise ValueError(
                f"checkpoint {str(self._folder)!r} is of a fit to other rows or with other "
                "arguments, or by another version; name another folder, or delete this one."
            )
        return kept["state"], kept["memory"]

    def has_entered(self, round_: int, key: NDArray) -> bool:
        """Whether a round with this noise is in the ledger."""
        return (_name(key), round_) in self._entered

    def enter(self, round_: int, key: NDArray) -> None:
        """Write a round in the ledger, unless it is there: its messages are about to be sent."""
        if not self.has_entered(round_, key):
            journal.append(self._ledger, [{"fit": _name(key), "round": round_}])
            self._entered.add((_name(key), round_))

    def keep(self, state: Any, memory: Any, *, now: bool = False) -> None:
        """Write what was reached, if it is time to.

        Parameters
        ----------
        state : dict
        memory : callable
            Returns what clients keep.
        now : bool
            Whether it is time in any case.
        """
        began = time.monotonic()
        if began < self._due and not (now or state["done"]):
            return
        content = {"identity": self._identity, "state": state, "memory": memory()}
        packed = wire.pack(content)
        with replaced(self._file, private=True) as new:
            new.write_bytes(hashlib.sha256(packed).digest() + packed)
        ended = time.monotonic()
        self._due = ended + SPARE * (ended - began)


def _name(key: NDArray) -> str:
    return hashlib.sha256(np.asarray(key, np.uint64).tobytes()).hexdigest()[:16]


def _digest(others: list, clients: Clients) -> str:
    """Name rows, and all else that a fit goes on with."""
    found = hashlib.sha256(wire.pack([others, clients.ids.astype(str), clients.indptr]))
    for values in (clients.X, np.asarray(clients.y), clients.weight):
        if values is None:
            continue
        plain = values.astype(str) if values.dtype.kind == "O" else values
        found.update(np.ascontiguousarray(plain).view(np.uint8).data)
    return found.hexdigest()
