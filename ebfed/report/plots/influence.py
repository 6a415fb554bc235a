"""Influence of groups on the coefficients of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.plots.axes import BLUE, finish, open_axes
from ebfed.report.plots.labels import name_points
from ebfed.tables.columns import Columns
from ebfed.tables.lazy import column_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_influence"]


def plot_influence(
    fit: Any, *, level: str | None = None, top: int = 5, ax: Axes | None = None
) -> Axes:
    """Draw Cook's distance of each group, and name the largest.

    Parameters
    ----------
    fit : fit of a regression, or the frame that its `influence` returns
    level : str, optional
        Name of a level of groups within groups; the lowest if None.
    top : int
        Number of groups that are named.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError
        If the fit has no `influence`.
    ValueError
        If `top` is negative, or there is no such level.

    Examples
    --------
    >>> import ebfed as eb
    >>> X, y = np.random.default_rng(0).normal(size=(2, 40))
    >>> groups = np.repeat(np.arange(8), 5)
    >>> fit = eb.LinearEB(varying=["intercept"]).fit(X[:, None], y, groups=groups)
    >>> len(plot_influence(fit, top=2, ax=eb.report.new_axes()[0]).texts)
    2
    """
    if top < 0:
        raise ValueError(f"top must be 0 or more; got {top!r}.")
    table = fit
    if not hasattr(fit, "columns"):
        if not hasattr(fit, "influence"):
            raise TypeError(f"{type(fit).__name__} has no influence of groups.")
        table = fit.influence(level)
    elif level is not None:
        raise ValueError("level must be None for a frame, which has the groups of one level.")
    names = list(column_names(table))
    own = names[: names.index("n")]
    labels = zip(*(Columns.of(table).values(name).tolist() for name in own), strict=True)
    texts = [" ".join(map(str, each)) for each in labels]
    distance = Columns.of(table).values("cooksd")
    ax = open_axes(ax)
    x = np.arange(1, len(distance) + 1)
    ax.vlines(x, 0, distance, color=BLUE, lw=1)
    ax.plot(x, distance, "o", color=BLUE, ms=3)
    finish(
        ax, f"Influence of {len(x):,} groups of {own[-1]}", xlabel=f"place of the {own[-1]}",
        ylabel="Cook's distance", ylim=(0, None),
    )  # fmt: skip
    ax.locator_params(axis="x", integer=True)
    largest = np.argsort(-np.nan_to_num(distance), kind="stable")[:top]
    at = np.column_stack([x, distance])[largest]
    if len(at):
        ax.margins(y=0.1)
        name_points(ax, at, [texts[j] for j in largest])
    return ax
