"""Price of privacy in accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.plots.axes import open_axes
from ebfed.report.plots.studies import plot_curves
from ebfed.tables.columns import numeric_columns
from ebfed.tables.lazy import column_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_privacy"]

# How many times the least error the largest may be on a linear axis.
FAR = 10
NUMBERS = ["epsilon", "error", "std_error", "local_error"]


def plot_privacy(prices: Any, *, ax: Axes | None = None) -> Axes:
    """Draw how far privacy moves the estimates of groups, against epsilon.

    Bands are one standard error to either side. Above the level line a group's own data give the
    better estimate: that part is shaded, and its points are hollow.

    Parameters
    ----------
    prices : data frame of any library
        A row for each channel and epsilon: ``channel``; ``epsilon``; ``error``, the root mean
        squared change of the estimates against those without privacy; its ``std_error``; and
        ``local_error``, the same of estimates from each group's own rows, one number throughout.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError, TypeError
        If a column is missing or no number, a number is missing, an epsilon is not positive, or
        ``local_error`` varies.

    Examples
    --------
    >>> import pandas as pd
    >>> import ebfed as eb
    >>> prices = pd.DataFrame(
    ...     {
    ...         "channel": "Laplace",
    ...         "epsilon": [0.5, 1.0, 2.0],
    ...         "error": [0.4, 0.2, 0.1],
    ...         "std_error": 0.01,
    ...         "local_error": 0.3,
    ...     }
    ... )
    >>> ax = plot_privacy(prices, ax=eb.report.new_axes()[0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()], ax.texts[0].get_text()
    (['Laplace'], 'own data only')
    """
    import pandas as pd

    names = column_names(prices)
    if "channel" not in names:
        raise ValueError(f"prices must have the column 'channel'; it has {', '.join(names)}.")
    numbers = numeric_columns(prices, NUMBERS, "prices")
    if not np.isfinite(numbers).all() or np.any(numbers[:, 0] <= 0):
        raise ValueError("prices must be finite numbers, and epsilon positive.")
    local = numbers[:, 3]
    if not np.allclose(local, local[0]):
        raise ValueError("local_error must be the same in all rows: it depends on no channel.")
    curves = pd.DataFrame(numbers[:, :3], columns=NUMBERS[:3])
    curves.insert(0, "channel", [str(name) for name in np.asarray(prices["channel"])])
    curves["valid"] = numbers[:, 1] <= local
    curves = curves.sort_values("epsilon", kind="stable")
    level = pd.DataFrame({"channel": ["own data only"], "error": [local[0]], "std_error": [0.0]})
    level["valid"] = True
    both = pd.concat([curves, level], ignore_index=True).rename(columns={"channel": "method"})
    errors = both["error"]
    # beside a channel that loses everything, the others would lie on one line
    far = bool(errors.min() > 0 and errors.max() > FAR * errors.min())
    ax = plot_curves(both, x="epsilon", y="error", spread="std_error", log_y=far, ax=open_axes(ax))
    if not far:
        ax.set_ylim(bottom=0)
    if not curves["valid"].all():
        _shade_above(ax, local[0])
    ax.set(xlabel="epsilon", ylabel="change of the estimates (root mean square)")
    return ax


def _shade_above(ax: Axes, level: float) -> None:
    """Shade where estimates are worse than those of groups that take no part."""
    top = ax.get_ylim()[1]
    ax.axhspan(level, top, color="#b2182b", alpha=0.07, lw=0, zorder=0)
    ax.set_ylim(top=top)
    ax.annotate(
        "worse than own data",
        (1, 1),
        (-3, -4),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize="small",
        color="#8b1a1a",
    )
