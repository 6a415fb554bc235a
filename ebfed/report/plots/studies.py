"""Results of studies: gains by fold, curves with bands, formulas with simulations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.plots.axes import BLACK, COLOURS, GREY, LINES, MARKERS, finish, open_axes, plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["plot_by_fold", "plot_curves", "plot_formulas"]


def plot_by_fold(gains: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the gain of each method in each fold, with mean and standard deviation over folds.

    Parameters
    ----------
    gains : DataFrame of shape (n_folds, n_methods)
        Gains in per cent; folds in the index, methods in the columns. A column of NaN is left out.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import pandas as pd
    >>> import ebfed as eb
    >>> gains = pd.DataFrame({"ML": [2.0, 4.0], "NPMLE": [1.0, 6.0]}, index=[2016, 2020])
    >>> ax = plot_by_fold(gains, ax=eb.report.new_axes()[0])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['ML', 'NPMLE']
    """
    ax = open_axes(ax)
    gains = gains.dropna(axis="columns", how="all")
    rows = np.arange(gains.shape[1])
    # folds one below the other within a method, so that no dot hides another
    heights = np.linspace(-0.24, 0.24, len(gains))
    few = len(gains) <= len(COLOURS)
    for k, (fold, values) in enumerate(gains.iterrows()):
        look: dict[str, Any] = {"color": GREY}
        if few:
            look = {"color": COLOURS[k], "marker": MARKERS[k], "label": plain(fold)}
        ax.scatter(values, rows + heights[k], s=28, zorder=3, **look)
    mean, sd = gains.mean(), gains.std(ddof=0)
    ax.barh(rows, 2 * sd, left=mean - sd, height=0.66, color="#e6e6e6", zorder=1)
    ax.vlines(mean, rows - 0.33, rows + 0.33, color=BLACK, lw=2, zorder=2)
    ax.axvline(0, color=GREY, lw=1, ls="--", zorder=1.5)
    ax.set_yticks(rows, [plain(name) for name in gains.columns])
    ax.invert_yaxis()
    finish(ax, left=False, xlabel="gain over local, %  (bar: mean ± sd over folds)")
    ax.tick_params(left=False)
    if few:
        ax.legend(
            title=gains.index.name,
            frameon=False,
            fontsize="small",
            loc="upper left",
            bbox_to_anchor=(1, 1),
        )
    return ax


def plot_curves(
    curves: pd.DataFrame,
    *,
    x: str,
    y: str,
    spread: str,
    looks: Mapping[str, Mapping[str, Any]] | None = None,
    log_x: bool = True,
    log_y: bool = False,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw a result of each method against a setting, with bands.

    A method whose `x` is NaN has no such setting: it is a level line, named at the right end.
    Ticks of the horizontal axis are at the values of `x`.

    Parameters
    ----------
    curves : DataFrame
        A row for each point: ``method`` and the columns `x`, `y` and `spread`; markers are hollow
        where a column ``valid`` is False.
    x, y, spread : str
        Columns of the horizontal axis, the vertical axis, and half the height of the band.
    looks : mapping of method to mapping, optional
        ``color``, ``marker``, ``ls`` of methods; by their order if None.
    log_x, log_y, legend : bool
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import pandas as pd
    >>> import ebfed as eb
    >>> curves = pd.DataFrame(
    ...     {
    ...         "method": ["best", "one bit", "one bit"],
    ...         "epsilon": [np.nan, 1.0, 4.0],
    ...         "mse": [0.1, 0.4, 0.2],
    ...         "se": [0.01, 0.02, 0.01],
    ...     }
    ... )
    >>> ax = plot_curves(curves, x="epsilon", y="mse", spread="se", ax=eb.report.new_axes()[0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['one bit']
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['1', '4']
    """
    from matplotlib.ticker import LogLocator, NullLocator

    ax = open_axes(ax)
    ax.set(xlabel=plain(x), ylabel=plain(y))
    if log_x:
        ax.set_xscale("log")
    if log_y:
        ax.set_yscale("log")
        short = curves[y].max() < 5 * curves[y].min()
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8) if short else (1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(NullLocator())
    drawn, levels = 0, curves.loc[curves[x].isna(), y]
    for method, points in curves.groupby("method", sort=False):
        at, values, band = (points[name].to_numpy(float) for name in (x, y, spread))
        if np.isnan(at).all():
            ax.axhline(values[0], color=GREY, lw=1, ls=LINES[1], zorder=1)
            below = values[0] < levels.max()
            ax.annotate(
                plain(method),
                (1, values[0]),
                (-3, -4 if below else 2),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="right",
                va="top" if below else "bottom",
                fontsize="small",
                color="#4d4d4d",
            )
            continue
        look: dict[str, Any] = {
            "color": COLOURS[drawn % 7],
            "marker": MARKERS[drawn % 7],
            "ls": LINES[drawn % 7],
        }
        look |= dict((looks or {}).get(str(method), {}))
        drawn += 1
        ax.fill_between(at, values - band, values + band, color=look["color"], alpha=0.15, lw=0)
        ax.plot(at, values, lw=1.4, ms=4.5, label=plain(method), **look)
        if "valid" in points:
            hollow = ~points["valid"].to_numpy(bool)
            look |= {"ls": "", "mfc": "white"}
            ax.plot(at[hollow], values[hollow], ms=6, zorder=3, **look)
    ticks = np.unique(curves[x].dropna())
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    finish(ax)
    if legend and drawn:
        ax.legend(frameon=False, fontsize="small")
    return ax


def plot_formulas(
    lines: pd.DataFrame,
    points: pd.DataFrame,
    *,
    x: str,
    y: str,
    error: str,
    log_x: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw formulas as lines, with results of simulations as points with error bars.

    Parameters
    ----------
    lines, points : DataFrame
        A row for each place on a curve: ``method``, `x` and `y`; points have `error`, half the
        length of the bar. Stars stand where a column ``best`` of the points says True.
    x, y, error : str
        Columns.
    log_x : bool
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import pandas as pd
    >>> import ebfed as eb
    >>> lines = pd.DataFrame({"method": "mean", "n": range(1, 9)}).eval("risk = 1 / n")
    >>> points = lines[::4].assign(error=0.02)
    >>> names = {"x": "n", "y": "risk", "error": "error"}
    >>> ax = plot_formulas(lines, points, **names, ax=eb.report.new_axes()[0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['mean']
    """
    from matplotlib.lines import Line2D

    ax = open_axes(ax)
    ax.set(xlabel=plain(x), ylabel=plain(y))
    if log_x:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
    handles = []
    for k, (method, line) in enumerate(lines.groupby("method", sort=False)):
        # a curve may lie on an earlier one, which is thicker, and shows in its gaps
        look: dict[str, Any] = {"color": COLOURS[k % 7], "ls": LINES[k % 7]}
        ax.plot(line[x], line[y], lw=2.6 - 0.4 * min(k, 3), zorder=2 + k / 10, **look)
        here = points[points["method"] == method]
        best = np.zeros(len(here), bool) if "best" not in here else here["best"].to_numpy(bool)
        for part, marker, size in ((~best, MARKERS[k % 7], 7 - min(k, 4)), (best, "*", 13 - k)):
            ax.errorbar(
                here.loc[part, x],
                here.loc[part, y],
                here.loc[part, error],
                color=look["color"],
                ls="",
                marker=marker,
                ms=size,
                mec="white",
                mew=0.5,
                zorder=3 + k / 10,
            )
        handles.append(Line2D([], [], label=plain(method), marker=MARKERS[k % 7], ms=5, **look))
    finish(ax)
    ax.legend(handles=handles, frameon=False, fontsize="small")
    return ax
