"""Rates of which few or many values are possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.groups import Groups

__all__ = ["few_rates", "rate_edges"]

MOST_BARS = 40


def few_rates(groups: Groups) -> bool:
    """Whether all groups have the same few rows, so that few rates are possible."""
    return bool(groups.n.min() == groups.n.max() <= MOST_BARS)


def rate_edges(groups: Groups) -> NDArray:
    """A bar for each rate that is possible, if these are few."""
    if few_rates(groups):
        return (np.arange(groups.n[0] + 2) - 0.5) / groups.n[0]
    edges = np.linspace(0, 1, 21)
    edges[1:-1] -= 1e-9  # on no rate, which rounding could put on either side
    return edges
