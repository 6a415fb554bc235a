"""Sizes of residuals of rows against their fitted values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.diagnostics import ResidualKind, diagnostics_of
from ebfed.report.plots.axes import open_axes
from ebfed.report.plots.residuals import draw_smooth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_scale_location"]


def plot_scale_location(
    fit: Any, *, kind: ResidualKind = "pearson", random_state: Any = 0, ax: Axes | None = None
) -> Axes:
    """Draw roots of the sizes of residuals against fitted values, with a smooth (lowess).

    If the variance is right, the smooth is flat.

    Parameters
    ----------
    fit : fitted formula of a regression, or Diagnostics
    kind, random_state : as in `plot_residuals`
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import ebfed as eb
    >>> X, y = np.random.default_rng(0).normal(size=(2, 40))
    >>> groups = np.repeat(np.arange(8), 5)
    >>> found = eb.LinearEB().fit(X[:, None], y, groups=groups).diagnostics(
    ...     X[:, None], y, groups=groups
    ... )
    >>> plot_scale_location(found, ax=eb.report.new_axes()[0]).get_xlabel()
    'fitted value'
    """
    found = diagnostics_of(fit)
    values = found.residuals(kind, random_state=random_state)
    ax = open_axes(ax)
    draw_smooth(ax, found.fitted, np.sqrt(np.abs(values)))
    ax.set(xlabel="fitted value", ylabel=f"root of |{kind} residual|")
    ax.set_title("Sizes of residuals", loc="left", fontsize="medium")
    return ax
