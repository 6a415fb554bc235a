"""Ranks of groups, with their uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.plots.axes import GREY, open_axes
from ebfed.report.plots.caterpillar import draw_intervals
from ebfed.tables.frames import is_frame, numeric_columns
from ebfed.tables.lazy import column_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_ranks"]


def plot_ranks(ranks: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the ranks of groups with their intervals, the first at the top.

    Up to 30 groups are named. If the frame has ``prob_top``, groups that are more probably among
    the top ones are darker.

    Parameters
    ----------
    ranks : data frame of any library
        Result of `Posterior.ranks`, a row for each group: its label in the first column (if there
        is none, groups are numbered); ``rank``; ``lower`` and ``upper``, the ends of an interval;
        and perhaps ``prob_top``.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError, TypeError
        If a column is missing or no number, or a number is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> import ebfed as eb
    >>> ranks = pd.DataFrame(
    ...     {"school": ["A", "B"], "rank": [1.6, 1.4], "lower": [1, 1], "upper": [2, 2]}
    ... )
    >>> ax = plot_ranks(ranks, ax=eb.report.new_axes()[0])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['A', 'B']
    """
    if not is_frame(ranks):
        raise TypeError(f"ranks must be the frame that ranks() returns; got {ranks!r}.")
    names = column_names(ranks)
    wanted = ["rank", "lower", "upper", *(["prob_top"] if "prob_top" in names else [])]
    numbers = numeric_columns(ranks, wanted, "ranks")
    if not np.isfinite(numbers).all():
        raise ValueError("ranks has numbers that are missing or infinite.")
    order = np.argsort(-numbers[:, 0], kind="stable")
    rank, lower, upper, *prob_top = numbers[order].T
    labelled = names[0] not in ("estimate", "rank")
    labels = [str(label) for label in (np.asarray(ranks[names[0]])[order] if labelled else order)]

    from matplotlib.ticker import MaxNLocator

    ax = open_axes(ax)
    colours = None
    if prob_top:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        scale = ScalarMappable(Normalize(0, 1), "cividis_r")
        colours = scale.to_rgba(prob_top[0])
        bar = ax.figure.colorbar(scale, ax=ax, shrink=0.6, aspect=18, pad=0.02)
        bar.set_label("probability to be among the top")
    draw_intervals(ax, rank, lower, upper, labels, colours)
    ax.set_xlim(0.5 - 0.01 * len(rank), len(rank) * 1.01 + 0.5)
    ax.grid(axis="x", color=GREY, alpha=0.25, lw=0.6)
    ax.set_axisbelow(True)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("rank and its interval")
    return ax
