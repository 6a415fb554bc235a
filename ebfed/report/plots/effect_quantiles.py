"""Sorted effects of groups against normal quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ebfed.report.plots.axes import open_axes
from ebfed.report.plots.labels import coefficient
from ebfed.report.plots.residual_quantiles import draw_quantiles
from ebfed.report.view import GroupView, view_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_effect_quantiles"]


def plot_effect_quantiles(
    fit: Any, *, term: str | None = None, random_state: Any = 0, ax: Axes | None = None
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
    random_state : int, Generator or None
        Seed of the band.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there is no such coefficient, or all groups are estimated alike.

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
    names = [name for name, differs in zip(view.terms, view.varies, strict=True) if differs]
    term = names[0] if term is None and names else term
    if term not in names:
        raise ValueError(f"term must be one of {', '.join(map(repr, names))}; got {term!r}.")
    place = view.terms.index(term)
    effects = (view.posterior_given_population().mean - view.expected())[:, place]
    size = float(np.sqrt(np.mean(effects**2)))
    if not size > 1e-12:
        raise ValueError(f"{term!r} is estimated alike in all groups, and has no quantiles.")
    ax = open_axes(ax)
    draw_quantiles(ax, effects / size, np.random.default_rng(random_state))
    what = "intercept" if term == "intercept" else coefficient(view, term)
    ax.set(xlabel="normal quantile", ylabel=f"effect of a group on {what}")
    title = f"Quantiles of effects of {len(effects):,} groups"
    ax.set_title(title, loc="left", fontsize="medium")
    return ax
