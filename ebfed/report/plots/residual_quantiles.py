"""Sorted residuals of rows against normal quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.diagnostics import diagnostics_of
from ebfed.report.plots.axes import BLACK, BLUE, GREY, MANY, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_quantiles", "plot_residual_quantiles"]

BAND = "95% of simulations (pointwise)"
N_SIMULATIONS = 200


def plot_residual_quantiles(
    fit: Any, *, conditional: bool = True, random_state: Any = 0, ax: Axes | None = None
) -> Axes:
    """Draw sorted quantile residuals against normal quantiles, with a band of simulations.

    The band has 95 % of the residuals of each rank, of as many independent standard normal numbers.
    It is pointwise: some points lie outside by chance, side by side. Residuals that are not
    conditional are correlated within groups, and their band is too narrow.

    Parameters
    ----------
    fit : fitted formula of a regression, or Diagnostics
    conditional : bool
        See `Diagnostics.residuals`.
    random_state : int, Generator or None
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
    >>> plot_residual_quantiles(found, ax=eb.report.new_axes()[0]).get_ylabel()
    'quantile residual'
    """
    found = diagnostics_of(fit)
    rng = np.random.default_rng(random_state)
    values = found.residuals("quantile", conditional=conditional, random_state=rng)
    ax = open_axes(ax)
    draw_quantiles(ax, values, rng)
    ax.set(xlabel="normal quantile", ylabel="quantile residual")
    ax.set_title("Quantiles of residuals", loc="left", fontsize="medium")
    return ax


def draw_quantiles(ax: Axes, values: NDArray, rng: np.random.Generator) -> None:
    """Draw sorted numbers against normal quantiles, with the band of standard normal ones."""
    from scipy.special import ndtri

    n = len(values)
    normal = ndtri((np.arange(n) + 0.5) / n)
    shown = np.unique(np.linspace(0, n - 1, min(n, MANY)).astype(int))
    simulated = np.stack([np.sort(rng.standard_normal(n))[shown] for _ in range(N_SIMULATIONS)])
    low, high = np.quantile(simulated, [0.025, 0.975], axis=0)
    ax.fill_between(normal[shown], low, high, color=GREY, alpha=0.3, lw=0, label=BAND)
    ends = [normal[0], normal[-1]]
    ax.plot(ends, ends, color=BLACK, lw=1, ls="--")
    size = float(np.clip(300 / n, 2.5, 5))
    ax.plot(normal[shown], np.sort(values)[shown], "o", color=BLUE, ms=size, mew=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small", loc="upper left")
