"""Every group's estimate with its interval, sorted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.priors import Posterior
from ebfed.report.plots.axes import (
    BLACK,
    BLUE,
    MANY,
    VERMILLION,
    finish,
    legend_above,
    open_axes,
    plain,
)
from ebfed.report.plots.labels import coefficient, count_groups, fit_height, name_rows, quantity
from ebfed.report.view import GroupView, LocationView, view_of
from ebfed.tables.levels import label_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_intervals", "place_of", "plot_caterpillar"]


def plot_caterpillar(
    fit: Any,
    *,
    level: float = 0.95,
    column: int | str | None = None,
    labels: ArrayLike | None = None,
    top: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the estimates of all groups with their intervals, the largest at the top.

    Up to 60 groups are named, and a figure that holds nothing else grows to fit the names. Of more,
    the three at either end are named, and intervals become a band of thin lines.

    Parameters
    ----------
    fit : fitted estimator with a posterior, formula, or Posterior
    level : float in (0, 1)
        Level of the intervals.
    column : int or str, optional
        Column of `X` or coefficient, by place or name; needed if there are several.
    labels : array-like of shape (n_groups,), optional
        Names of the groups in the order of the posterior, if not their own.
    top : int, optional
        Number of groups to draw, those with the largest means; all if None.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If the posterior has several columns and none of them is named, `labels` are not one for
        each group, or `top` is not positive.

    Examples
    --------
    >>> import ebfed as eb
    >>> posterior = eb.posterior_from([28, 8, -3, 7], [5, 4, 5, 4])
    >>> ax = plot_caterpillar(
    ...     posterior, labels=["A", "B", "C", "D"], ax=eb.report.new_axes()[0]
    ... )
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['C', 'D', 'B', 'A']
    """
    view = None if isinstance(fit, Posterior) else _view(fit)
    posterior = fit if view is None else view.posterior()
    names = posterior.terms
    place = place_of(column, names)
    mean = posterior.mean[:, place]
    lower, upper = (bound[:, place] for bound in posterior.interval(level))
    if not (np.isfinite(mean) & np.isfinite(lower) & np.isfinite(upper)).all():
        raise ValueError("a posterior mean or a bound of its interval is not finite.")
    named = _names(labels, posterior)
    order = np.argsort(mean, kind="stable")
    if top is not None:
        if top < 1:
            raise ValueError(f"top must be a number of groups, at least 1; got {top!r}.")
        order = order[-top:]

    ax = open_axes(ax)
    centre = _centre(fit, posterior, place)
    if centre is not None:
        ax.axvline(centre, color=VERMILLION, lw=1.2, ls="--", zorder=2.5, label="population mean")
        legend_above(ax, "right")
    count = count_groups(view, len(order))
    draw_intervals(ax, mean[order], lower[order], upper[order], [named[k] for k in order], count)
    ax.set_xlabel(f"{_what(view, names, place)}estimate and {100 * level:g}% interval")
    if len(order) < len(mean):
        title = f"the {len(order):,} largest of {count_groups(view, len(mean))}"
        ax.set_title(title, fontsize="medium", loc="left")
    return ax


def _what(view: GroupView | None, names: tuple[str, ...], place: int) -> str:
    """Say what is estimated, for the beginning of a label."""
    if isinstance(view, LocationView):
        return f"{quantity(view, place)}: "
    if view is None and len(names) == 1:
        return ""
    return f"{plain(names[place]) if view is None else coefficient(view, names[place])}: "


def _view(fit: Any) -> GroupView:
    view = view_of(fit)
    if not isinstance(view, GroupView):
        raise ValueError(f"{view.title} has no posterior of its groups to draw.")
    return view


def place_of(column: int | str | None, names: tuple[str, ...] | list[str]) -> int:
    """Find a column by its place or name.

    Raises
    ------
    ValueError
        If there is no such column, or several and none is named.
    """
    names = list(names)
    if column is None and len(names) == 1:
        return 0
    if isinstance(column, str) and column in names:
        return names.index(column)
    whole = isinstance(column, int | np.integer) and not isinstance(column, bool)
    if whole and -len(names) <= column < len(names):  # type: ignore[operator]
        return int(column) % len(names)  # type: ignore[arg-type]
    shown = ", ".join(map(repr, names))
    raise ValueError(f"column must be one of {shown}, or its place; got {column!r}.")


def draw_intervals(
    ax: Axes,
    at: NDArray,
    lower: NDArray,
    upper: NDArray,
    names: list[str],
    count: str,
    colours: Any = None,
) -> None:
    """Draw intervals one above the other, in the order given from the bottom."""
    rows = np.arange(len(at))
    room = fit_height(ax, len(at))  # points of paper between neighbours
    width = float(np.clip(0.4 * room, 0.4, 1.8)) if room > 1 else room
    alpha = 0.45 if colours is None and room < 1 else 1.0
    colours = BLUE if colours is None else colours
    many: dict[str, Any] = {"rasterized": len(at) > MANY}
    ax.hlines(rows, lower, upper, lw=width, colors=colours, alpha=alpha, zorder=2, **many)
    size = float(np.clip(0.8 * room, 1.0, 5.0))
    # white around points separates them from lines
    ax.plot(at, rows, "o", ms=size + 1.2, color="white", mew=0, zorder=3, label="_around", **many)
    ax.plot(at, rows, "o", ms=size, color=BLACK, mew=0, zorder=3.1, **many)
    ax.set_ylim(-0.02 * len(at) - 0.5, 1.02 * len(at) - 0.5)
    finish(ax, left=False)
    name_rows(ax, names, count, room)


def _names(labels: ArrayLike | None, posterior: Posterior) -> list[str]:
    n = len(posterior)
    if labels is None:
        return [label_text(label) for label in posterior.ids]
    given = [str(label) for label in np.asarray(labels).ravel()]
    if len(given) != n:
        raise ValueError(f"labels must name {n} groups; got {len(given)}.")
    return given


def _centre(fit: Any, posterior: Posterior, place: int) -> float | None:
    """Mean of the population, where it is known; at average covariates, if there are any."""
    if fit is posterior:
        mean = getattr(posterior.prior, "mean_", None)
    else:
        view = _view(fit)
        mean = view.prior.mean_ if isinstance(view, LocationView) else getattr(fit, "mean_", None)
    return None if mean is None else float(np.ravel(mean)[place])
