"""Pictures of fits: shrinkage, populations, gains by fold.

Functions draw on `ax` and return it; without one they open a figure of pyplot, which a notebook
shows. `new_axes` gives axes outside pyplot, for files: they need no display and no closing. Colours
are those of Okabe and Ito (2008), told apart by the colour-blind, and never carry a meaning alone:
lines and markers differ too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import Discrete, Prior

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["new_axes", "plot_by_fold", "plot_population", "plot_shrinkage"]

BLACK, GREY = "#000000", "#8c8c8c"
BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE = "#56B4E9", "#CC79A7"
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE)
LINES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P")


def new_axes(n_columns: int = 1, size: tuple[float, float] = (6.4, 4.4)) -> list[Axes]:
    """Open a figure outside pyplot and return its axes, side by side.

    Parameters
    ----------
    n_columns : int
    size : tuple of float
        Width and height of the figure in inches.

    Examples
    --------
    >>> left, right = new_axes(2)
    >>> left.figure is right.figure
    True
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return list(figure.subplots(1, n_columns, squeeze=False)[0])


def plot_shrinkage(estimator: Any, *, column: int = 0, ax: Axes | None = None) -> Axes:
    """Draw every group's local estimate against its personalised one, and the population.

    A point on the diagonal was left alone; its distance from there is the pull towards the
    population, drawn on the right on the scale of the estimates. Groups (nearly) at one place share
    a point whose area is their number; where groups differ in their number of rows, colour tells
    it, since it is the small ones that are pulled.

    Parameters
    ----------
    estimator : fitted GaussianEB or BernoulliEB
    column : int
        Which column of `X`, if several were fitted.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import ebfed as eb
    >>> X, groups, theta = eb.datasets.make_gaussian_groups(50, 3, random_state=0)
    >>> ax = plot_shrinkage(eb.GaussianEB().fit(X, groups=groups), ax=new_axes()[0])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('local estimate', 'personalised estimate')
    """
    from matplotlib.collections import LineCollection

    ax = _axes(ax)
    told = estimator.summaries_.n > 0
    n = estimator.summaries_.n[told]
    local = estimator.summaries_.mean[told, column]
    estimate = estimator.predict().reshape(len(told), -1)[told, column]
    x, y, rows, count = _merge(local, estimate, n)
    mean = estimator.prior_.mean_[column]

    low, high = min(local.min(), mean), max(local.max(), mean)
    pad = 0.05 * (high - low) or 1.0
    ends = (low - pad, high + pad)
    ax.plot(ends, ends, color=GREY, lw=1, ls="--", zorder=1, label="left alone: estimate = local")
    ax.axhline(mean, color=VERMILLION, lw=1.2, zorder=1, label="population mean")
    pulls = np.stack([np.column_stack([x, x]), np.column_stack([x, y])], axis=1)
    ax.add_collection(LineCollection(list(pulls), colors=GREY, lw=0.8, alpha=0.5, zorder=1))

    area = 16 + 400 * (count - 1) / max(count.max() - 1, 50)
    one_size = n.min() == n.max()
    points = ax.scatter(
        x,
        y,
        s=area,
        c=[BLUE] if one_size else rows,
        norm=None if one_size else "log",
        cmap=None if one_size else "cividis_r",
        edgecolors="white",
        linewidths=0.4,
        zorder=2,
    )
    ax.set(xlabel="local estimate", ylabel="personalised estimate", xlim=ends, ylim=ends)
    _margin(estimator.prior_, column, ax)
    _shrinkage_legend(ax, count)
    if not one_size:
        bar = ax.inset_axes((0.62, 0.09, 0.34, 0.025))
        ax.figure.colorbar(points, cax=bar, orientation="horizontal")
        bar.set_title("rows of the group", fontsize="small", pad=3)
        bar.tick_params(labelsize="small", length=2)
    return ax


def _merge(local: NDArray, estimate: NDArray, n: NDArray) -> tuple[NDArray, ...]:
    """Bring groups at (nearly) one place together: place, mean number of rows, count."""
    step = (local.max() - local.min()) / 150 or 1.0
    across = np.rint((local - local.min()) / step).astype(np.int64)
    up = np.rint((estimate - estimate.min()) / step).astype(np.int64)
    _, codes, count = np.unique(
        across * (up.max() + 1) + up, return_inverse=True, return_counts=True
    )
    return *(np.bincount(codes, values) / count for values in (local, estimate, n)), count


def _margin(prior: Prior, column: int, ax: Axes) -> None:
    """Draw the population along the axis of the estimates."""
    side = ax.inset_axes((1.02, 0, 0.16, 1), sharey=ax)
    atoms = _atoms(prior, column)
    if atoms is None:
        at = np.linspace(*ax.get_ylim(), 400)
        density = _density(prior, column, at)
        side.fill_betweenx(at, density, color=VERMILLION, alpha=0.35, lw=0)
        side.plot(density, at, color=VERMILLION, lw=1)
        side.set_xlim(0, 1.05 * _ceiling(density))
    else:
        side.hlines(atoms[0], 0, atoms[1], color=VERMILLION, lw=2)
        side.plot(atoms[1], atoms[0], "o", color=VERMILLION, ms=3)
        side.set_xlim(0, 1.15 * atoms[1].max())
    side.axhline(prior.mean_[column], color=VERMILLION, lw=1.2)
    side.set_title("population", fontsize="small")
    side.set_xticks([])
    side.tick_params(left=False, labelleft=False)
    side.spines[["top", "right", "bottom"]].set_visible(False)


def _shrinkage_legend(ax: Axes, count: NDArray) -> None:
    ax.legend(loc="upper left", frameon=False, fontsize="small")


def plot_population(
    populations: Mapping[str, Any],
    *,
    column: int = 0,
    support: tuple[float, float] | None = None,
    cumulative: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw fitted populations together: densities as curves, atoms as stems.

    Parameters
    ----------
    populations : mapping of name to fitted Prior or estimator
    column : int
        Which column of `X`, if several were fitted.
    support : tuple of float, optional
        Ends of the horizontal axis; as wide as the populations are if None.
    cumulative : bool
        Draw distribution functions, in which densities and atoms compare directly.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Where densities and atoms meet, atoms have an axis of their own on the right.

    Examples
    --------
    >>> import ebfed as eb
    >>> y, groups, p = eb.datasets.make_bernoulli_groups(200, 14, random_state=0)
    >>> fits = {prior: eb.BernoulliEB(prior=prior).fit(y, groups=groups) for prior in ("beta", "npmle")}
    >>> ax = plot_population(fits, cumulative=True, ax=new_axes()[0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['beta', 'npmle']
    """
    ax = _axes(ax)
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def _atoms(prior: Prior, column: int) -> tuple[NDArray, NDArray] | None:
    """Places and probabilities of a population of atoms; None if it has a density."""
    if isinstance(prior, Discrete):
        return prior.atoms_[:, column], prior.weights_
    if prior.variance_[column] == 0:
        return prior.mean_[[column]], np.ones(1)
    return None


def _density(prior: Prior, column: int, at: NDArray) -> NDArray:
    """Density of one coordinate; 0 off the support, finite at its ends."""
    low, high = prior.support
    inside = (at >= low) & (at <= high)
    if len(prior.mean_) == 1:
        theta = np.clip(at, np.nextafter(low, 0.5), np.nextafter(high, 0.5))
        return np.where(inside, np.exp(prior.logpdf(theta[:, None])), 0.0)
    return at


def _ceiling(density: NDArray) -> float:
    return float(density.max())
