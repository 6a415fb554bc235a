"""Factors of groups that are at several nodes: merged on the server, used at the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.protocol import LinearMessage, RegressionFacts
from ebfed.tables.factors import Factors

__all__ = ["checked_part", "merged", "merged_facts"]

# What rounding may take from a sum of squares when factors are merged.
ROUNDING = 1e-9


def merged_facts(facts: Sequence[RegressionFacts], codes: Sequence[NDArray]) -> RegressionFacts:
    """Merge what nodes have stated of groups with these numbers: numbers of rows are added.

    Raises
    ------
    ValueError
        If only some nodes have weights of rows, or the noise of rows has levels.
    """
    joined: Any = {
        name: np.concatenate([cast(Any, each)[name] for each in facts])
        for name in facts[0]
        if name not in ("n", "log_weight", "parents")
    }
    if any("dispersion" in each for each in facts):
        raise ValueError(
            "dispersion= needs all rows of a group at one node; some groups are at several."
        )
    if len({"log_weight" in each for each in facts}) > 1:
        raise ValueError("sample_weight= must be given at all nodes, or at none.")
    numbers = np.concatenate(codes)
    n = np.zeros(len(np.unique(numbers)), np.int64)
    np.add.at(n, numbers, np.concatenate([each["n"] for each in facts]))
    if "parents" in facts[0]:
        first = np.unique(numbers, return_index=True)[1]
        joined["parents"] = np.concatenate([each["parents"] for each in facts])[first]
    if "log_weight" in facts[0]:
        joined["log_weight"] = np.bincount(
            numbers, np.concatenate([each["log_weight"] for each in facts]), minlength=len(n)
        )
    return cast(RegressionFacts, joined | {"n": n})


def merged(messages: Sequence[LinearMessage], codes: Sequence[NDArray]) -> LinearMessage:
    """Merge factors of groups with these numbers: each is that of the rows at all nodes."""
    size = messages[0]["factor"].shape[1]
    blocks = [
        Factors(own, message["n"], message["factor"])
        for message, own in zip(messages, codes, strict=True)
    ]
    # `Factors.merge` sorts the groups
    whole = reduce(Factors.merge, blocks) if len(blocks) > 1 else blocks[0]
    whole = whole.take(np.argsort(whole.ids))
    return {"n": whole.n, "factor": whole.padded(max(size, whole.rows.shape[1]))}


def checked_part(part: Any, own: Factors) -> Factors:
    """Return merged factors of a node's groups, where they may be that.

    Raises
    ------
    ValueError
        If they are of something else, or of fewer rows than the node has.
    """
    sound = isinstance(part, dict) and part.keys() == {"n", "factor"}
    n: Any = part["n"] if sound else None
    factor: Any = part["factor"] if sound else None
    sound = (
        isinstance(n, np.ndarray)
        and isinstance(factor, np.ndarray)
        and (n.dtype, factor.dtype) == (np.int64, np.float64)
        and n.shape == (len(own),)
        and factor.ndim == 3
        and (len(factor), factor.shape[2]) == (len(own), own.rows.shape[2])
        and factor.shape[1] <= factor.shape[2]
        and bool(np.isfinite(factor).all())
        and bool((n >= own.n).all())
    )
    if sound:
        here, everywhere = ((rows**2).sum(axis=1) for rows in (own.rows, factor))
        sound = bool((here <= everywhere * (1 + ROUNDING)).all())
    if not sound:
        raise ValueError("merged factors must be of the rows of this node and of others.")
    return Factors(own.ids, n, factor, own.log_weight)
