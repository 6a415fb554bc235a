"""Rows of the ledger: the releases of a fit and their guarantees."""

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
        Channel with all arguments set.
    clients : int
        Number of clients that were asked for a message.
    clipped : int or None
        Number of clients with a clipped mean; None if unknown.
    bits : float
        Number of bits that all of them sent.
    n_features : int
    """
    with warnings.catch_warnings():  # the row has the same content as the warning
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
            "numbers of rows are public; no other party must be trusted"
            if private
            else "the server is trusted with what is sent"
        ),
        "bits": bits,
        "clipped": math.nan if clipped is None else clipped,
    }


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
    return {
        "who": "every client",
        "what": f"public covariates: {', '.join(names)}",
        "clients": clients,
        "times": 1,
        "epsilon": math.inf,
        "delta": 0.0,
        "relation": "none",
        "assumptions": "covariates are public; no guarantee covers them",
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
