"""Direct estimates of areas beside the estimates of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.plots.axes import BLUE, GREY, MANY, VERMILLION, finish, legend_above, open_axes
from ebfed.report.plots.labels import fit_height, name_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_areas"]


def plot_areas(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw direct estimates and estimates of small areas, the most precise direct one at the top.

    A hollow square is a direct estimate with the interval of its standard error, a point the
    estimate with its interval, a bar the synthetic estimate. Areas without a direct estimate are at
    the bottom.

    Parameters
    ----------
    result : FayHerriot
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import ebfed as eb
    >>> found = eb.fay_herriot([0.2, 0.5, 0.9], [0.1, 0.3, 0.2], labels=["A", "B", "C"])
    >>> ax = plot_areas(found, ax=eb.report.new_axes()[0])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['B', 'C', 'A']
    """
    from scipy.stats import norm

    ax = open_axes(ax)
    table, (lower, upper) = result.given, result.interval()
    order = np.argsort(-np.where(table.has_data, table.errors, np.inf), kind="stable")
    rows, n = np.arange(len(order)), len(order)
    room = fit_height(ax, n)
    size = float(np.clip(0.5 * room, 1.0, 5.0))
    many: dict[str, Any] = {"rasterized": n > MANY}
    known = table.has_data[order]
    half = float(norm.ppf((1 + result.level) / 2)) * table.errors[order][known]
    direct, up = table.values[order][known], 0.18
    ax.hlines(rows[known] + up, direct - half, direct + half, color=GREY, lw=0.8, **many)
    ax.plot(direct, rows[known] + up, "s", mfc="white", mec=GREY, ms=size, label="direct", **many)
    ax.hlines(rows - up, lower[order], upper[order], color=BLUE, lw=1.2, **many)
    ax.plot(result.estimates[order], rows - up, "o", color=BLUE, ms=size, label="estimate", **many)
    ax.plot(
        result.synthetic[order], rows - up, "|", color=VERMILLION, ms=1.6 * size, mew=1.5,
        label="synthetic", **many,
    )  # fmt: skip
    name_rows(ax, [str(label) for label in result.labels[order]], f"{n:,} areas", room)
    ax.set_ylim(-0.8, n - 0.2)
    finish(ax, left=False, xlabel=f"estimate and {100 * result.level:g}% interval")
    legend_above(ax, ncols=3)
    return ax
