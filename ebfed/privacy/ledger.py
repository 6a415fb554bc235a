"""The ledger: what left the clients of a fit, and what that is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

__all__ = ["Entry", "ledger"]


@dataclass(frozen=True)
class Entry:
    """One kind of release.

    Parameters
    ----------
    who : str
    channel : Channel
    clients, clipped : int
    bits : float
        Sent by all of them together.
    n_features : int
    """

    who: str
    channel: Any
    clients: int
    clipped: int
    bits: float
    n_features: int

    def row(self) -> dict[str, Any]:
        """Return the row of the ledger."""
        epsilon, delta = self.channel.guarantee(self.n_features)
        private = math.isfinite(epsilon)
        return {
            "who": self.who,
            "what": " ".join(repr(self.channel).split()),
            "clients": self.clients,
            "times": 1,
            "epsilon": epsilon,
            "delta": delta,
            "relation": "any two data sets of one client" if private else "none",
            "assumptions": (
                "numbers of rows are public; the server need not be trusted"
                if private
                else "the server is trusted with what is sent"
            ),
            "bits": self.bits,
            "clipped": self.clipped,
        }


def ledger(entries: list[Entry], silent: int) -> dict[str, list]:
    """Return the columns of the ledger; `silent` clients sent nothing."""
    rows = [entry.row() for entry in entries]
    if silent:
        rows.append(
            {
                "who": "not asked",
                "what": "nothing",
                "clients": silent,
                "times": 0,
                "epsilon": 0.0,
                "delta": 0.0,
                "relation": "any two data sets of one client",
                "assumptions": "numbers of rows are public",
                "bits": 0.0,
                "clipped": 0,
            }
        )
    return {name: [row[name] for row in rows] for name in rows[0]}
