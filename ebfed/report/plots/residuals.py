"""Residuals of rows against their fitted values, and their size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.diagnostics import ResidualKind, diagnostics_of
from ebfed.report.plots.axes import BLUE, GREY, MANY, VERMILLION, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_smooth", "plot_residuals"]


def plot_residuals(
    fit: Any, *, kind: ResidualKind = "pearson", random_state: Any = 0, ax: Axes | None = None
) -> Axes:
    """Draw residuals of rows against fitted values, with a smooth (lowess).

    If the mean is right, the smooth is near zero everywhere, but for a slope upwards where groups
    have few rows: their effects are shrunk, and residuals have the rest. Residuals of counts lie on
    curves, one for each count; ``kind="quantile"`` has none.

    Parameters
    ----------
    fit : fitted formula of a regression, or Diagnostics
    kind : {"response", "pearson", "deviance", "standardized", "quantile"}
        See `Diagnostics.residuals`.
    random_state : int, Generator or None
        Seed of quantile residuals.
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
    >>> plot_residuals(found, ax=eb.report.new_axes()[0]).get_ylabel()
    'pearson residual'
    """
    found = diagnostics_of(fit)
    values = found.residuals(kind, random_state=random_state)
    ax = open_axes(ax)
    ax.axhline(0, color=GREY, lw=1, ls="--")
    draw_smooth(ax, found.fitted, values)
    ax.set(xlabel="fitted value", ylabel=f"{kind} residual")
    ax.set_title(f"Residuals, {len(values):,} rows", loc="left", fontsize="medium")
    return ax


def draw_smooth(ax: Axes, x: NDArray, y: NDArray) -> None:
    """Draw points and their lowess."""
    from statsmodels.nonparametric.smoothers_lowess import lowess

    size = float(np.clip(300 / max(len(x), 1), 2, 5))
    ax.plot(x, y, "o", color=BLUE, ms=size, mew=0, alpha=0.6, rasterized=len(x) > MANY)
    if np.ptp(x) > 0:
        smooth = lowess(y, x, frac=2 / 3, delta=0.01 * float(np.ptp(x)))
        ax.plot(*smooth.T, color=VERMILLION, lw=1.5)
    ax.spines[["top", "right"]].set_visible(False)
