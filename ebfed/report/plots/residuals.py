"""Residuals of rows: against fitted values and normal quantiles, their size, and of groups."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.diagnostics import ResidualKind, diagnostics_of
from ebfed.report.plots.axes import BLACK, BLUE, GREY, MANY, VERMILLION, finish, new_axes, open_axes
from ebfed.report.plots.labels import coefficient
from ebfed.report.view import GroupView, view_of
from ebfed.tables.columns import Columns
from ebfed.tables.lazy import column_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "plot_diagnostics",
    "plot_effect_quantiles",
    "plot_residual_quantiles",
    "plot_residuals",
    "plot_scale_location",
]


def plot_residuals(
    fit: Any, *, kind: ResidualKind = "pearson", random_state: Any = 0, ax: Axes | None = None
) -> Axes:
    """Draw residuals of rows against fitted values, with a smooth (lowess).

    If the mean is right, the smooth is near zero everywhere, but for a slope upwards where groups
    have few rows: their effects are shrunk, and residuals have the rest. Residuals of counts lie on
    curves, one for each count; ``kind="quantile"`` has none.

    Parameters
    ----------
    fit : fitted formula of a regression, or Diagnostics
    kind : {"response", "pearson", "deviance", "standardized", "quantile"}
        See `Diagnostics.residuals`.
    random_state : int, Generator or None
        Seed of quantile residuals.
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
    >>> plot_residuals(found, ax=eb.report.new_axes()[0]).get_ylabel()
    'pearson residual'
    """
    found = diagnostics_of(fit)
    values = found.residuals(kind, random_state=random_state)
    ax = open_axes(ax)
    ax.axhline(0, color=GREY, lw=1, ls="--")
    _draw_smooth(ax, found.fitted, values)
    title = f"Residuals, {len(values):,} rows"
    finish(ax, title, xlabel="fitted value", ylabel=f"{kind} residual")
    return ax


def _draw_smooth(ax: Axes, x: NDArray, y: NDArray) -> None:
    """Draw points and their lowess."""
    from statsmodels.nonparametric.smoothers_lowess import lowess

    size = float(np.clip(300 / max(len(x), 1), 2, 5))
    ax.plot(x, y, "o", color=BLUE, ms=size, mew=0, alpha=0.6, rasterized=len(x) > MANY)
    if np.ptp(x) > 0:
        smooth = lowess(y, x, frac=2 / 3, delta=0.01 * float(np.ptp(x)))
        ax.plot(*smooth.T, color=VERMILLION, lw=1.5)


def plot_scale_location(
    fit: Any, *, kind: ResidualKind = "pearson", random_state: Any = 0, ax: Axes | None = None
) -> Axes:
    """Draw roots of the sizes of residuals against fitted values, with a smooth (lowess).

    If the variance is right, the smooth is flat.

    Parameters
    ----------
    fit : fitted formula of a regression, or Diagnostics
    kind, random_state : as in `plot_residuals`
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
    >>> plot_scale_location(found, ax=eb.report.new_axes()[0]).get_xlabel()
    'fitted value'
    """
    found = diagnostics_of(fit)
    values = found.residuals(kind, random_state=random_state)
    ax = open_axes(ax)
    _draw_smooth(ax, found.fitted, np.sqrt(np.abs(values)))
    label = f"root of |{kind} residual|"
    finish(ax, "Sizes of residuals", xlabel="fitted value", ylabel=label)
    return ax


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
    return _draw_quantiles(ax, values, rng, "Quantiles of residuals", "quantile residual")


def _draw_quantiles(
    ax: Axes | None, values: NDArray, rng: np.random.Generator, title: str, label: str
) -> Axes:
    """Draw sorted numbers against normal quantiles, with the band of standard normal ones."""
    from scipy.special import ndtri

    ax = open_axes(ax)
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
    finish(ax, title, xlabel="normal quantile", ylabel=label)
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


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
    what = "intercept" if term == "intercept" else coefficient(view, term)
    of = f"groups of {level}" if level else "groups"
    title = f"Quantiles of effects of {len(values):,} {of}"
    label, rng = f"effect of a {level or 'group'} on {what}", np.random.default_rng(random_state)
    return _draw_quantiles(ax, values / size, rng, title, label)


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
