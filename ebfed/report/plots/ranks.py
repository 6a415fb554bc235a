"""Ranks of groups, with their uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.axes import GREY, open_axes, plain, shades
from ebfed.report.plots.caterpillar import draw_intervals
from ebfed.report.plots.labels import fit_height
from ebfed.tables.columns import numeric_columns
from ebfed.tables.lazy import column_names
from ebfed.tables.values import is_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_ranks"]


def plot_ranks(ranks: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the ranks of groups with their intervals, the first at the top.

    Up to 60 groups are named, and a figure that holds nothing else grows to fit the names; of more,
    the three at either end are. If the frame has ``prob_top``, groups that are more probably among
    the top ones are darker. If it has ``estimate``, the axis says which end is the highest.

    Parameters
    ----------
    ranks : data frame of any library
        Result of `Posterior.ranks`, a row for each group: its label in the first column, or those
        of its levels in the first ones (if there is none, groups are numbered); ``rank``; ``lower``
        and ``upper``, the ends of an interval; and perhaps ``prob_top``.
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
    levels = names[: min(names.index(name) for name in ("estimate", "rank") if name in names)]
    columns = [np.asarray(ranks[name])[order] for name in levels] or [order]
    labels = [" / ".join(map(str, label)) for label in zip(*columns, strict=True)]

    ax = open_axes(ax)
    group = levels[-1] if levels else "group"
    count = f"{len(rank):,} groups" + ("" if group == "group" else f" ({plain(group)})")
    fit_height(ax, len(rank))
    colours = None
    if prob_top:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        scale = ScalarMappable(Normalize(0, 1), shades("probability"))
        colours = scale.to_rgba(prob_top[0])
        bar = ax.figure.colorbar(scale, ax=ax, shrink=0.6, aspect=18, pad=0.02)
        bar.set_label(f"probability to be {_first(prob_top[0].sum())}")
    draw_intervals(ax, rank, lower, upper, labels, count, colours)
    ax.set_xlim(0.5 - 0.01 * len(rank), len(rank) * 1.01 + 0.5)
    ax.grid(axis="x", color=GREY, alpha=0.25, lw=0.6)
    ax.set_axisbelow(True)
    ax.set_xticks(_ticks(len(rank)))
    ax.set_xlabel(f"rank and its interval{_direction(ranks, names, order)}")
    return ax


def _first(total: float) -> str:
    """Say of which first ranks these are probabilities: they sum to their number."""
    number = round(total)
    if abs(total - number) > 1e-6:
        return "among the top"
    return "first" if number == 1 else f"among the first {number:,}"


def _ticks(n: int) -> list[int]:
    """Round ranks from 1 to n, the first among them."""
    from matplotlib.ticker import MaxNLocator

    even = MaxNLocator(8, integer=True).tick_values(1, n)
    return [1, *(int(each) for each in even if 1 < each <= n)]


def _direction(ranks: Any, names: list[str], order: NDArray) -> str:
    """Say whether rank 1 has the largest estimate, where estimates are given and differ."""
    if "estimate" not in names:
        return ""
    estimate = numeric_columns(ranks, ["estimate"], "ranks")[order, 0]
    if estimate[-1] == estimate[0]:
        return ""
    return f" (1 is the {'highest' if estimate[-1] > estimate[0] else 'lowest'} estimate)"
