"""Rows of the ledger: the releases of a fit, their guarantees, and whether the noise is real."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from ebfed.privacy.calibration import PrivacyWarning

__all__ = [
    "NO_PROMISE",
    "columns",
    "covariates",
    "disclosure",
    "is_private",
    "is_simulated",
    "release",
    "silence",
    "simulated",
]

LOCAL = "any two data sets of one client"

NO_PROMISE = "simulated noise: no promise"


def release(
    who: str,
    channel: Any,
    *,
    clients: int,
    clipped: int | None,
    bits: float,
    n_features: int,
    exposures: bool = False,
) -> dict[str, Any]:
    """Describe one kind of release, a row of the ledger.

    Parameters
    ----------
    who : str
    channel : Channel
        Channel with all arguments set.
    clients : int
        Number of clients that were asked for a message.
    clipped : int or None
        Number of clients with a clipped mean; None if unknown.
    bits : float
        Number of bits that all of them sent.
    n_features : int
    exposures : bool
        Whether they sent exposures as they are, beside numbers of rows.
    """
    with warnings.catch_warnings():  # the row has the same content as the warning
        warnings.simplefilter("ignore", PrivacyWarning)
        epsilon, delta = channel.guarantee(n_features)
    row = disclosure(" ".join(repr(channel).split()), clients, bits) | {"who": who}
    row |= {"epsilon": epsilon, "delta": delta}
    row["clipped"] = math.nan if clipped is None else clipped
    if math.isfinite(epsilon):
        row["relation"] = LOCAL
        more = " and exposures" * exposures + " and categories" * channel.of_shares
        row["assumptions"] = f"numbers of rows{more} are public; no other party must be trusted"
    return row


def disclosure(what: str, clients: int, bits: float) -> dict[str, Any]:
    """Describe statistics that all clients send without noise, a row of the ledger.

    Parameters
    ----------
    what : str
    clients : int
    bits : float
        Number of bits that all of them sent.
    """
    return {
        "who": "all clients",
        "what": what,
        "clients": clients,
        "times": 1,
        "epsilon": math.inf,
        "delta": 0.0,
        "relation": "none",
        "assumptions": "the server is trusted with what is sent",
        "bits": bits,
        "clipped": 0,
    }


def covariates(names: list[str], clients: int) -> dict[str, Any]:
    """Describe the covariates that clients state, a row of the ledger."""
    what = f"public covariates: {', '.join(names)}"
    row = disclosure(what, clients, 64.0 * len(names) * clients) | {"who": "every client"}
    return row | {"assumptions": "covariates are public; no guarantee covers them"}


def silence(clients: int) -> dict[str, Any]:
    """Describe clients that sent nothing, a row of the ledger."""
    row = disclosure("nothing", clients, 0.0) | {"who": "not asked", "times": 0, "epsilon": 0.0}
    return row | {"relation": LOCAL, "assumptions": "numbers of rows are public"}


def columns(rows: list[dict[str, Any]]) -> dict[str, list]:
    """Turn rows into columns."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def is_private(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether some client was promised something.

    Clients that were not asked were not promised that their rows stay with them.
    """
    return any(row["epsilon"] < math.inf and row["who"] != "not asked" for row in rows)


def simulated(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a fit whose noise follows from a fixed seed.

    Epsilon is kept, as what the mechanism is worth with real noise. A known seed protects nobody:
    who knows it can subtract the noise.

    Examples
    --------
    >>> simulated([{"epsilon": 1.0, "assumptions": "numbers of rows are public"}])
    [{'epsilon': 1.0, 'assumptions': 'simulated noise: no promise; numbers of rows are public'}]
    """
    return [
        row | {"assumptions": f"{NO_PROMISE}; {row['assumptions']}"}
        if 0 < row["epsilon"] < math.inf and not is_simulated([row])
        else row
        for row in rows
    ]


def is_simulated(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether the rows say that their noise is simulated."""
    return any(row["assumptions"].startswith(NO_PROMISE) for row in rows)
