"""Exact summaries of groups that are at several nodes: merged on the server, used at the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import LocationFacts, Message
from ebfed.families import Family
from ebfed.tables.clients import Summary

__all__ = ["checked_part", "merged", "merged_facts", "summary_of"]

PLAIN = ("n", "mean", "scatter", "weight", "covariates")


def summary_of(figures: Mapping[str, NDArray], ids: NDArray) -> Summary:
    """Return what an exact message says of groups, under these labels."""
    sums = {name: values for name, values in figures.items() if name not in PLAIN}
    plain = figures["n"], figures["mean"], figures["scatter"]
    return Summary(ids, *plain, weight=figures.get("weight"), sums=sums)


def merged(
    messages: Sequence[Message], codes: Sequence[NDArray[np.int64]], family: Family
) -> Message:
    """Merge the exact messages of nodes, whose groups have these numbers."""
    figures = family.figures(reduce(family.merge, map(summary_of, messages, codes)))
    if "covariates" in messages[0]:
        _, first = np.unique(np.concatenate(codes), return_index=True)
        stated = np.concatenate([message["covariates"] for message in messages])
        figures["covariates"] = stated[first]
    return figures


def merged_facts(facts: Sequence[LocationFacts], codes: Sequence[NDArray]) -> LocationFacts:
    """Merge what nodes have stated of their groups: numbers of rows and exposures are added.

    Raises
    ------
    ValueError
        If a group has other covariates at another node, or only some nodes have weights of rows.
    """
    if len({"weight" in each for each in facts}) > 1:
        raise ValueError("sample_weight= must be given at all nodes, or at none.")
    numbers = np.concatenate(codes)
    _, first = np.unique(numbers, return_index=True)
    given = {
        name: np.concatenate([cast(Mapping[str, Any], each)[name] for each in facts])
        for name in facts[0]
    }
    covariates = given["covariates"].reshape(len(numbers), -1)[first]
    if not np.array_equal(covariates[numbers].ravel(), given["covariates"]):
        raise ValueError("a group at two nodes must have the same covariates at both.")
    merged = given | {"consent": given["consent"][first], "covariates": covariates.ravel()}
    for name in ("n", "weight"):
        if name in given:
            merged[name] = np.zeros(len(first), given[name].dtype)
            np.add.at(merged[name], numbers, given[name])
    return cast(LocationFacts, merged)


def checked_part(figures: Any, own: Summary) -> Summary:
    """Return merged figures of a node's groups, where they may be that.

    Raises
    ------
    ValueError
        If they are figures of something else, or of fewer rows than the node has.
    """
    pattern = Family.figures(own)
    sound = isinstance(figures, dict) and figures.keys() - {"covariates"} == pattern.keys()
    sound = sound and all(
        isinstance(figures[name], np.ndarray)
        and figures[name].shape == like.shape
        and figures[name].dtype == like.dtype
        and np.isfinite(figures[name]).all()
        for name, like in pattern.items()
    )
    if not sound or np.any(figures["n"] < own.n):
        raise ValueError("merged figures must be sums of the rows of this node and of others.")
    return summary_of(figures, own.ids)
