"""Four pictures that show what a fit assumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ebfed.report.plots.axes import new_axes
from ebfed.report.plots.effect_quantiles import plot_effect_quantiles
from ebfed.report.plots.residual_quantiles import plot_residual_quantiles
from ebfed.report.plots.residuals import plot_residuals
from ebfed.report.plots.scale_location import plot_scale_location

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_diagnostics"]


def plot_diagnostics(fit: Any, *, level: str | None = None, random_state: Any = 0) -> list[Axes]:
    """Draw residuals, their sizes, their quantiles, and quantiles of effects of groups.

    Residuals of linear models are Pearson's; those of counts and classes are quantile residuals.

    Parameters
    ----------
    fit : fitted formula of a regression
    level : str, optional
        Level or crossed factor whose effects are drawn; see `plot_effect_quantiles`.
    random_state : int or None

    Returns
    -------
    list of four matplotlib Axes
        Of a figure of their own, outside pyplot: ``axes[0].figure.savefig("fit.png")``.

    Examples
    --------
    >>> import ebfed as eb
    >>> import statsmodels.api as sm
    >>> grunfeld = sm.datasets.grunfeld.load_pandas().data
    >>> fit = eb.from_formula("invest ~ value + capital + (1 | firm)", grunfeld)
    >>> len(plot_diagnostics(fit))
    4
    """
    axes = new_axes(2, (9.0, 7.0), n_rows=2)
    found = fit.diagnostics()
    options: dict[str, Any] = {"kind": "pearson" if found.leverage else "quantile"}
    options["random_state"] = random_state
    plot_residuals(found, ax=axes[0], **options)
    plot_scale_location(found, ax=axes[1], **options)
    plot_residual_quantiles(found, random_state=random_state, ax=axes[2])
    plot_effect_quantiles(fit, level=level, random_state=random_state, ax=axes[3])
    return axes
