"""Progress of a fit over its rounds or steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.plots.axes import BLUE, finish, open_axes, plain
from ebfed.tables.columns import numeric_columns
from ebfed.tables.lazy import column_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_convergence"]

# Columns that a fit maximises, that it minimises, and that go to zero.
HEIGHTS = ("log_likelihood", "message_log_likelihood")
DEPTHS = ("criterion", "objective")
MOVES = ("change", "moved")
# Relative differences that are rounding, and that are too small to draw.
ROUNDING, FLAT = 1e-12, 1e-9


def plot_convergence(estimator: Any, *, column: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw the progress of a fit over its rounds or steps.

    A likelihood or criterion is drawn as its distance from the best value. That distance, and how
    far parameters moved, have a logarithmic axis. Everything else is drawn unchanged.

    Parameters
    ----------
    estimator : fitted estimator with a `history_`
    column : str, optional
        Column of the history. None: the likelihood or criterion, else the loss, else the first.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If the estimator has no history, or that has no such column or nothing to draw in it.

    Examples
    --------
    >>> import ebfed as eb
    >>> X, groups, theta = eb.datasets.make_gaussian_groups(200, 5, random_state=0)
    >>> est = eb.MixtureEB(2, random_state=0).fit(X, groups=groups)
    >>> ax = plot_convergence(est, ax=eb.report.new_axes()[0])
    >>> ax.get_xlabel(), ax.get_yscale()
    ('step', 'log')
    """
    from matplotlib.ticker import MaxNLocator

    if not hasattr(estimator, "history_"):
        raise ValueError(
            f"{type(estimator).__name__} is fitted in one step and has no history. Regressions "
            "(LinearEB, LogisticEB, AdaMix, ...), MixtureEB and the learners in rounds have one."
        )
    history = estimator.history_
    first, *names = column_names(history)
    if column is None:
        known = [*HEIGHTS, *DEPTHS, "loss", *MOVES]
        column = next((name for name in known if name in names), names[0] if names else None)
    if column not in names:
        raise ValueError(f"column must be one of {', '.join(map(repr, names))}; got {column!r}.")
    at, values = numeric_columns(history, [first, column], "the history").T
    finite = np.isfinite(values)
    if not finite.any():
        raise ValueError(f"the history has no finite number in {column!r}.")
    ax = open_axes(ax)
    at, values = at[finite], values[finite]
    if column in HEIGHTS + DEPTHS:
        place = np.argmax(values) if column in HEIGHTS else np.argmin(values)
        best, label = values[place], f"{column}: distance from the best"
        title = f"best {column}: {best:,.6g} in {first} {at[place]:g}"
        away = np.abs(values - best)
        # differences by rounding are no distance
        away[away <= ROUNDING * abs(best)] = 0.0
        ax.set_title(plain(title.replace("_", " ")), fontsize="medium")
    else:
        away, label = np.abs(values), column
    if column in HEIGHTS + DEPTHS + MOVES and np.sum(away > 0) > 1:
        at, values = at[away > 0], away[away > 0]
        ax.set_yscale("log")
    else:
        label = column
        if np.ptp(values) <= FLAT * np.abs(values).max():  # no progress
            ax.set_ylim(values[0] - 1, values[0] + 1)
    many = len(at) > 60
    ax.plot(at, values, color=BLUE, lw=1.4, marker="" if many else "o", ms=4)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    finish(ax, xlabel=plain(first), ylabel=plain(label.replace("_", " ")))
    return ax
