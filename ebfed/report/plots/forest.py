"""Studies of a meta-analysis: with their intervals and their mean, and against their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.plots.axes import (
    BLACK,
    BLUE,
    GREY,
    VERMILLION,
    finish,
    legend_above,
    open_axes,
    plain,
)
from ebfed.report.plots.labels import LETTERS, MOST_NAMED, fit_height, name_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_forest", "plot_funnel"]

# Studies that are named.
MOST_WRITTEN = 15


def plot_forest(result: Any, *, exponentiate: bool = False, ax: Axes | None = None) -> Axes:
    """Draw a forest plot of a meta-analysis.

    A square is a study's own estimate, its area the study's share in the mean, its line the
    interval from its own standard error. A circle is the study's shrunken estimate. The diamond is
    the interval of the mean, and the line below it that of a new study. With covariates, a bar is
    the mean at each study's covariates, and there is no diamond. Up to 60 studies have their
    figures beside them.

    Parameters
    ----------
    result : MetaAnalysis
    exponentiate : bool
        Whether effects are logarithms, to be shown as ratios on a logarithmic axis.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import ebfed as eb
    >>> found = eb.meta_analysis([0.2, 0.5, 0.9], [0.1, 0.15, 0.3], labels=["A", "B", "C"])
    >>> ax = plot_forest(found, ax=eb.report.new_axes()[0])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['A', 'B', 'C', 'mean', 'new study']
    """
    from scipy.stats import norm

    ax = open_axes(ax)
    shown = np.exp if exponentiate else np.asarray
    table = result.given
    k, has_mean = len(table.values), not table.names
    rows = np.arange(k, 0, -1.0)
    half = float(norm.ppf((1 + result.level) / 2)) * table.errors
    lower, upper = shown(table.values - half), shown(table.values + half)
    room = fit_height(ax, k + 3)
    size = float(np.clip(0.9 * room, 2.0, 10.0))
    ax.axvline(float(shown(0.0)), color=GREY, lw=1, zorder=0)
    ax.hlines(rows, lower, upper, colors=BLACK, lw=1.0, zorder=2)
    areas = size**2 * np.maximum(result.share / result.share.max(), 0.04)
    ax.scatter(
        shown(table.values), rows, s=areas, marker="s", color=BLUE, zorder=3, label="study alone"
    )
    ax.plot(
        shown(result.posterior.mean[:, 0]), rows, "o", mfc="white", mec=VERMILLION,
        ms=max(0.45 * size, 1.5), zorder=4, label="study, shrunk",
    )  # fmt: skip
    names = [plain(label, LETTERS) for label in result.labels]
    places = list(rows)
    if has_mean:
        (low, high), new = shown(result.interval), shown(result.prediction_interval)
        centre = float(shown(result.estimate))
        ax.fill([low, centre, high, centre], [-0.5, -0.15, -0.5, -0.85], color=VERMILLION, zorder=3)
        ax.hlines(-1.5, new[0], new[1], colors=VERMILLION, lw=2.5, zorder=3)
        ax.axvline(centre, color=VERMILLION, lw=1, ls=":", zorder=1)
        names += ["mean", "new study"]
        places += [-0.5, -1.5]
    else:
        means = shown(result.random_effects.predict()[0])
        ax.plot(
            means, rows, "|", color=VERMILLION, ms=1.2 * size, mew=2, zorder=3.5,
            label="mean at its covariates",
        )  # fmt: skip
    letters = float(np.clip(0.8 * room, 4.0, 10.0))
    if k <= MOST_NAMED:
        ax.set_yticks(places, names, fontsize=letters)
        figures = list(zip(shown(table.values), lower, upper, strict=True))
        if has_mean:
            figures += [(centre, low, high), (None, *new)]
        _write(ax, places, figures, letters)
    else:
        ax.set_yticks(places[k:], names[k:], fontsize="small")
        ax.set_ylabel(f"{k:,} studies")
    ax.tick_params(left=False)
    ax.set_ylim(-2.1 if has_mean else 0.4, k + 0.6)
    if exponentiate:
        _ratios(ax)
    finish(ax, left=False, xlabel=f"effect and {100 * result.level:g}% interval")
    legend_above(ax, ncols=3)
    return ax


def _write(ax: Axes, places: list[float], figures: list[tuple], letters: float) -> None:
    """Write estimates and intervals on the right."""
    for place, (centre, low, high) in zip(places, figures, strict=True):
        first = "" if centre is None else f"{centre:.2f} "
        ax.annotate(
            f"{first}[{low:.2f}, {high:.2f}]", (1, place), (4, 0), va="center", fontsize=letters,
            xycoords=("axes fraction", "data"), textcoords="offset points", annotation_clip=False,
        )  # fmt: skip


def _ratios(ax: Axes) -> None:
    """Make the axis logarithmic, with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


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
