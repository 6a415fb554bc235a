"""Estimates of studies against their standard errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.plots.axes import BLUE, GREY, VERMILLION, finish, legend_above, open_axes
from ebfed.report.plots.labels import name_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_funnel"]

# Studies that are named.
MOST_WRITTEN = 15


def plot_funnel(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw a funnel plot of a meta-analysis: precise studies are at the top.

    If studies had one effect, chance would leave the given share of them within the grey funnel;
    the wider, dashed one adds the variance between studies. Small studies that are missing on one
    side may be unpublished. With covariates, residuals are drawn. Up to fifteen studies are named.

    Parameters
    ----------
    result : MetaAnalysis
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import ebfed as eb
    >>> found = eb.meta_analysis([0.2, 0.5, 0.9], [0.1, 0.15, 0.3])
    >>> ax = plot_funnel(found, ax=eb.report.new_axes()[0])
    >>> ax.get_xlabel(), ax.get_ylabel(), bool(ax.yaxis_inverted())
    ('effect', 'standard error', True)
    """
    from scipy.stats import norm

    ax = open_axes(ax)
    table = result.given
    centre, x = (0.0, table.values - result.random_effects.predict()[0]) if table.names else (
        result.estimate, table.values,
    )  # fmt: skip
    errors = np.linspace(0, 1.08 * table.errors.max(), 100)
    reach = float(norm.ppf((1 + result.level) / 2))
    ax.axvline(centre, color=VERMILLION, lw=1.2, ls="--", zorder=1, label="mean")
    one, both = reach * errors, reach * np.sqrt(errors**2 + result.tau2)
    share = f"{100 * result.level:g}%"
    ax.fill_betweenx(
        errors, centre - one, centre + one, color=GREY, alpha=0.2, lw=0, zorder=0,
        label=f"{share} of studies, by chance",
    )  # fmt: skip
    if result.tau2 > 0:
        for side in (-1, 1):
            label = "_" if side < 0 else f"{share}, with the variance between studies"
            ax.plot(centre + side * both, errors, color=GREY, lw=1, ls="--", label=label)
    ax.plot(x, table.errors, "o", color=BLUE, ms=5, mec="white", mew=0.5, zorder=3)
    ax.set_ylim(errors[-1], 0)
    finish(ax, xlabel="residual" if table.names else "effect", ylabel="standard error")
    legend_above(ax, ncols=2)
    if len(x) <= MOST_WRITTEN and table.labels is not None:
        name_points(ax, np.column_stack([x, table.errors]), [str(each) for each in table.labels])
    return ax
