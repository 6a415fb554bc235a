"""Bars for own estimates of discrete rows, of which few or many values are possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.groups import Groups
from ebfed.report.plots.prior_curves import central

__all__ = ["bar_edges", "few_outcomes"]

MOST_BARS = 40


def few_outcomes(groups: Groups) -> NDArray | None:
    """Return the own estimates that are possible, if all groups have the same few of them."""
    family, size = groups.view.family, groups.size
    if family.has_density or size.min() < size.max():
        return None
    possible = family.outcomes(size[0], groups.local.max())
    return possible if len(possible) <= MOST_BARS + 1 else None


def bar_edges(groups: Groups) -> NDArray:
    """Return the edges of a bar for each possible estimate, if these are few, else of even bars."""
    possible = few_outcomes(groups)
    if possible is not None:
        half = 0.5 / groups.size[0]
        return np.append(possible - half, possible[-1] + half)
    low, most = groups.view.family.support
    high = max(float(groups.local.max()), central(groups.population)[1]) or 1.0
    if 2 * high > most:  # else most of the axis would be empty
        high = most
    edges = np.linspace(low, high, int(np.clip(np.sqrt(len(groups.local)), 5, 40)) + 1)
    edges[1:-1] -= 1e-9 * high  # on no possible rate, which rounding could put on either side
    return edges
