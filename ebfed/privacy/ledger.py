"""The ledger: what left the clients of a fit, and what that is worth."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ebfed.privacy.calibration import PrivacyWarning

__all__ = ["columns", "covariates", "disclosure", "release", "silence"]

LOCAL = "any two data sets of one client"


def release(
    who: str, channel: Any, *, clients: int, clipped: int | None, bits: float, n_features: int
) -> dict[str, Any]:
    """Describe one kind of release, a row of the ledger.

    Parameters
    ----------
    who : str
    channel : Channel
        With nothing left open.
    clients : int
        How many were asked for a message.
    clipped : int or None
        Of how many the mean was clipped; None where that is not known.
    bits : float
        Sent by all of them together.
    n_features : int
    """
    with warnings.catch_warnings():  # the row says what the warning does
        warnings.simplefilter("ignore", PrivacyWarning)
        epsilon, delta = channel.guarantee(n_features)
    private = math.isfinite(epsilon)
    return {
        "who": who,
        "what": " ".join(repr(channel).split()),
        "clients": clients,
        "times": 1,
        "epsilon": epsilon,
        "delta": delta,
        "relation": LOCAL if private else "none",
        "assumptions": (
            "numbers of rows are public; nobody else need be trusted"
            if private
            else "the server is trusted with what is sent"
        ),
        "bits": bits,
        "clipped": math.nan if clipped is None else clipped,
    }


def disclosure(what: str, clients: int, bits: float) -> dict[str, Any]:
    """Describe figures that all clients send as they are, a row of the ledger.

    Parameters
    ----------
    what : str
    clients : int
    bits : float
        Sent by all of them together.
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
    return {
        "who": "every client",
        "what": f"population covariates, public: {', '.join(names)}",
        "clients": clients,
        "times": 1,
        "epsilon": math.inf,
        "delta": 0.0,
        "relation": "none",
        "assumptions": "covariates are public, and outside every promise",
        "bits": 64.0 * len(names) * clients,
        "clipped": 0,
    }


def silence(clients: int) -> dict[str, Any]:
    """Describe clients that sent nothing, a row of the ledger."""
    return {
        "who": "not asked",
        "what": "nothing",
        "clients": clients,
        "times": 0,
        "epsilon": 0.0,
        "delta": 0.0,
        "relation": LOCAL,
        "assumptions": "numbers of rows are public",
        "bits": 0.0,
        "clipped": 0,
    }


def columns(rows: list[dict[str, Any]]) -> dict[str, list]:
    """Turn rows into columns."""
    return {name: [row[name] for row in rows] for name in rows[0]}
