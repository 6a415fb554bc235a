"""From the local estimates of groups to those with the population."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.axes import BLUE, GREY, VERMILLION, finish, legend_above, open_axes, plain
from ebfed.report.plots.groups import even_steps, read_groups
from ebfed.report.plots.labels import OWN, count_groups, quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_arrows"]

MOST_ARROWS = 60
MOST_NAMED, LETTERS = 12, 24


def plot_arrows(estimator: Any, *, column: int | str | None = None, ax: Axes | None = None) -> Axes:
    """Draw a line from every group's local estimate, above, to its estimate, below.

    If there are more than 60 groups, 60 are drawn: those at even steps in the order of local
    estimates.

    Parameters
    ----------
    estimator : fit of means or rates
    column : int or str, optional
        Column of `X`, by place or name; needed if several were fitted.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If the estimator has no local estimates, or no such column.

    See Also
    --------
    plot_coefficients : the same for regressions.

    Examples
    --------
    >>> import ebfed as eb
    >>> X, groups, theta = eb.datasets.make_gaussian_groups(100, 3, random_state=0)
    >>> ax = plot_arrows(eb.GaussianEB().fit(X, groups=groups), ax=eb.report.new_axes()[0])
    >>> ax.get_title(), [label.get_text() for label in ax.get_yticklabels()]
    ('60 of 100 groups', ['estimate', 'own data alone'])
    """
    from matplotlib.collections import LineCollection

    groups = read_groups(estimator, column)
    local, personalised = groups.local, groups.estimate
    order = np.argsort(local, kind="stable")
    chosen = order[even_steps(len(order), MOST_ARROWS)]
    ax = open_axes(ax)
    x, y = local[chosen], personalised[chosen]
    ways = np.stack([np.column_stack([x, np.ones(len(x))]), np.column_stack([y, 0 * y])], axis=1)
    ax.add_collection(LineCollection(list(ways), colors=GREY, lw=0.9, alpha=0.8, zorder=1))
    ax.plot(x, np.ones(len(x)), "o", color=BLUE, mfc="white", ms=6, zorder=2)
    ax.plot(y, np.zeros(len(y)), "v", color=BLUE, ms=6, mec="white", mew=0.4, zorder=2)
    mean = groups.view.prior.mean_[groups.column]
    ax.axvline(mean, color=VERMILLION, lw=1.2, ls="--", zorder=0, label="population mean")
    legend_above(ax, "right")
    top = 1.15
    if len(x) <= MOST_NAMED:
        names = [plain(label, LETTERS) for label in groups.labels[chosen]]
        _name_points(ax, x, names)
        share = min(0.5, 0.02 * max(map(len, names)))  # of the height, for names that stand
        top = (1.15 + 0.15 * share) / (1 - share)
    ax.set_yticks([0, 1], ["estimate", OWN])
    ax.set_ylim(-0.15, top)
    ax.tick_params(left=False)
    finish(ax, left=False, xlabel=quantity(groups.view, groups.column))
    if len(chosen) < len(local):
        title = f"{len(chosen)} of {count_groups(groups.view, len(local))}"
        ax.set_title(title, fontsize="medium", pad=18)
    return ax


def _name_points(ax: Axes, x: NDArray, names: list[str]) -> None:
    """Write names above points on a line, moved apart where they would meet."""
    low, high = ax.get_xlim()
    gap = 0.045 * (high - low)
    at = x.copy()
    for _ in range(200):  # neighbours move apart, each by half of the missing distance
        lack = np.maximum(gap - np.diff(at), 0)
        if lack.max(initial=0) < 0.01 * gap:
            break
        at[:-1] -= lack / 2
        at[1:] += lack / 2
    for name, place, point in zip(names, at, x, strict=True):
        ax.annotate(
            name, (point, 1.02), (place, 1.14), ha="center", va="bottom", rotation=90,
            fontsize="small", arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.5},
        )  # fmt: skip
