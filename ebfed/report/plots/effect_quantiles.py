"""Sorted effects of groups against normal quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.axes import open_axes
from ebfed.report.plots.labels import coefficient
from ebfed.report.plots.residual_quantiles import draw_quantiles
from ebfed.report.view import GroupView, view_of
from ebfed.tables.columns import Columns
from ebfed.tables.lazy import column_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_effect_quantiles"]


def plot_effect_quantiles(
    fit: Any,
    *,
    term: str | None = None,
    level: str | None = None,
    random_state: Any = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw sorted effects of groups, in units of their spread, against normal quantiles.

    An estimated effect is divided by the root of the mean square of all, since estimates scatter
    less than effects. Those of groups of very different sizes scatter differently, and leave the
    line for this reason alone.

    Parameters
    ----------
    fit : fit of a regression
    term : str, optional
        Coefficient that differs between groups; the first if None.
    level : str, optional
        Name of a level of groups within groups, or of a crossed factor. None: the lowest level, or
        the first factor.
    random_state : int, Generator or None
        Seed of the band.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there is no such coefficient or level, or all groups are estimated alike.

    Examples
    --------
    >>> import ebfed as eb
    >>> X, y = np.random.default_rng(0).normal(size=(2, 40))
    >>> groups = np.repeat(np.arange(8), 5)
    >>> fit = eb.LinearEB(varying=["intercept"]).fit(X[:, None], y + groups, groups=groups)
    >>> plot_effect_quantiles(fit, ax=eb.report.new_axes()[0]).get_ylabel()
    'effect of a group on intercept'
    """
    view = view_of(fit)
    if not isinstance(view, GroupView):
        raise ValueError("fit must have a coefficient of every group.")
    if level is None:
        names = [name for name, differs in zip(view.terms, view.varies, strict=True) if differs]
        given, expected = view.effects()
        values = given.mean - expected
        effects = {name: values[:, view.terms.index(name)] for name in names}
    else:
        effects = _effects_of(fit, level, view.terms)
    names = list(effects)
    term = names[0] if term is None and names else term
    if term not in names:
        raise ValueError(f"term must be one of {', '.join(map(repr, names))}; got {term!r}.")
    values = effects[term]
    size = float(np.sqrt(np.mean(values**2)))
    if not size > 1e-12:
        raise ValueError(f"{term!r} is estimated alike in all groups, and has no quantiles.")
    ax = open_axes(ax)
    draw_quantiles(ax, values / size, np.random.default_rng(random_state))
    what = "intercept" if term == "intercept" else coefficient(view, term)
    ax.set(xlabel="normal quantile", ylabel=f"effect of a {level or 'group'} on {what}")
    of = f"groups of {level}" if level else "groups"
    title = f"Quantiles of effects of {len(values):,} {of}"
    ax.set_title(title, loc="left", fontsize="medium")
    return ax


def _effects_of(fit: Any, level: str, terms: Sequence[str]) -> dict[str, NDArray]:
    """Effects of the groups of a level, on each coefficient that differs between them."""
    if "level" not in signature(fit.ranef).parameters:
        raise ValueError(f"level must be None: {type(fit).__name__} has one level of groups.")
    table = fit.ranef(level=level)
    names = column_names(table)
    if "std.error" in names:  # of a crossed factor, a row for each of its terms
        effects = Columns.of(table).values("estimate")
        if "term" not in names:
            return {"intercept": effects}
        own = Columns.of(table).values("term")
        return {name: effects[own == name] for name in dict.fromkeys(own.tolist())}
    return {name: Columns.of(table).values(name) for name in names if name in terms}
