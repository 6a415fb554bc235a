"""Statistics of two groups: all of them, and the null ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.plots.axes import BLACK, BLUE, VERMILLION, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_two_groups"]


def plot_two_groups(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the histogram of statistics with the fitted density, and the null part of it.

    Where the null part, ``p0 f0``, is far below the density, statistics are discoveries. Marks
    below the axis are at those whose q-value is at most .05.

    Parameters
    ----------
    result : TwoGroups
        Result of `two_groups`.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import ebfed as eb
    >>> z = np.random.default_rng(1).normal(size=1000)
    >>> ax = plot_two_groups(eb.two_groups(z, "theoretical"), ax=eb.report.new_axes()[0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['all statistics', 'all, by the fit', 'null ones, by the fit']
    """
    ax = open_axes(ax)
    density = result.counts / result.counts.sum() / np.diff(result.edges)
    ax.stairs(density, result.edges, fill=True, color=BLACK, alpha=0.15, label="all statistics")
    at = np.linspace(result.edges[0], result.edges[-1], 500)
    ax.plot(at, result.density(at), color=BLUE, lw=1.8, label="all, by the fit")
    null = result.p0 * result.null_density(at)
    ax.plot(at, null, color=VERMILLION, lw=1.8, ls="--", label="null ones, by the fit")
    found = result.z[result.q_value <= 0.05]
    if len(found):
        height = 0.03 * density.max()
        marks = np.clip(found, result.edges[0], result.edges[-1])
        ax.plot(marks, np.full(len(found), -height), "|", color=BLACK, ms=7, label="discoveries")
    ax.set(xlabel="z", ylabel="density", xlim=(result.edges[0], result.edges[-1]))
    title = f"p0 = {result.p0:.3f}, null N({result.delta0:.2f}, {result.sigma0:.2f}²)"
    ax.set_title(title, loc="left", fontsize="medium")
    ax.legend(edgecolor="none", framealpha=0.8, fontsize="small")
    return ax
