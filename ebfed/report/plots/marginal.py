"""Local estimates, and what the fit says of them and of the population."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import Prior
from ebfed.report.plots.axes import BLACK, BLUE, VERMILLION, open_axes, open_right
from ebfed.report.plots.groups import Groups, bar_edges, read_groups
from ebfed.report.plots.labels import OWN, count_groups, quantity
from ebfed.report.plots.prior_curves import (
    atoms_of,
    ceiling,
    central,
    density_of,
    grid_of,
    spike_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_marginal"]

MOST_SIZES = 100  # different numbers of rows; of more, so many quantiles stand for all
NARROW = 4  # times the height of the histogram
MOST_ROWS = 2000  # errors of rates from more rows are smaller than the width of a bar


def plot_marginal(
    estimator: Any, *, column: int | str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw local estimates as a histogram, with the fit to them and the population.

    The curve over the histogram is the marginal density of local estimates under the fit, averaged
    over the groups' numbers of rows (and covariates): if the model is right, it follows the
    histogram. The other curve is the population. It is narrower, since local estimates have errors.
    A much narrower one has an axis of its own on the right.

    Parameters
    ----------
    estimator : fit of means or rates
    column : int or str, optional
        Column of `X`, by place or name; needed if several were fitted.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Axes; probabilities of atoms, or a narrow population, have an axis on the right.

    Raises
    ------
    ValueError
        If the estimator is no fit of means or rates, or has no such column.

    Examples
    --------
    >>> import ebfed as eb
    >>> y, groups, p = eb.datasets.make_bernoulli_groups(500, 8, random_state=0)
    >>> ax = plot_marginal(eb.BernoulliEB().fit(y, groups=groups), ax=eb.report.new_axes()[0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['own data alone', 'own data alone, by the fit', 'population']
    """
    groups = read_groups(estimator, column)
    ax = open_axes(ax)
    view, local = groups.view, groups.local
    discrete = not view.family.has_density
    edges = bar_edges(groups) if discrete else _mean_edges(local)
    observed = np.histogram(local, edges, density=True)[0]
    ax.stairs(observed, edges, fill=True, label=OWN, color=BLACK, alpha=0.15)
    if len(local) <= 50 and not discrete:
        ax.plot(local, np.zeros(len(local)), "|", color=BLACK, ms=12, clip_on=False)
    if discrete:
        expected = _expected_shares(groups, edges) / np.diff(edges)
        middle = (edges[1:] + edges[:-1]) / 2
        style: dict[str, Any] = {"marker": "D", "ms": 4, "lw": 1.2}
        ends = (edges[0], edges[-1])
    else:
        low, high = central(groups.population)
        low, high = min(edges[0], low), max(edges[-1], high)
        pad = 0.05 * (high - low)
        ends = (low - pad, high + pad)
        middle = np.linspace(*ends, 400)
        expected = _marginal_density(groups, middle)
        style = {"lw": 1.8}
    ax.plot(middle, expected, color=BLUE, label=f"{OWN}, by the fit", **style)
    ax.set_ylim(0, 1.15 * max(observed.max(), expected.max()))
    handles = ax.get_legend_handles_labels()[0]
    handles += _draw_population(ax, groups.population, ends)
    ax.set(xlabel=quantity(view, groups.column), ylabel="density", xlim=ends)
    title = f"Own data and population, {count_groups(view, len(local))}"
    ax.set_title(title, loc="left", fontsize="medium")
    ax.legend(handles=handles, edgecolor="none", framealpha=0.8, fontsize="small")
    return ax


def _mean_edges(values: NDArray) -> NDArray:
    return np.histogram_bin_edges(values, int(np.clip(np.sqrt(len(values)), 3, 60)))


def _draw_population(ax: Axes, prior: Prior, ends: tuple[float, float]) -> list[Any]:
    """Draw a population as a curve, or its atoms on an axis on the right."""
    look: dict[str, Any] = {"color": VERMILLION, "label": "population", "ls": "--"}
    points, handles = atoms_of(prior), []
    if points is None:
        at = grid_of(prior, 0, *np.clip(ends, *prior.support))
        density = density_of(prior, 0, at)
        height, top = ceiling(density), ax.get_ylim()[1]
        spike = spike_of(prior)
        points = None if spike is None else (np.array(spike[:1]), np.array(spike[1:]))
        beside = ax
        if points is None and height > NARROW * top:
            beside = open_right(ax)
            beside.set(ylabel="density of the population", ylim=(0, height))
        else:
            ax.set_ylim(0, max(top, height))
        handles += beside.plot(at, density, lw=1.8, **look)
        look["label"] = "point of the population"
    if points is not None:
        right = open_right(ax)
        right.vlines(points[0], 0, points[1], color=VERMILLION, lw=1.4, ls="--")
        right.plot(*points, "s", ms=5, color=VERMILLION)
        right.set(ylabel="probability of an atom", ylim=(0, 1.15 * points[1].max()))
        handles += right.plot([], [], marker="s", ms=5, **look)
    return handles


def _conditions(groups: Groups) -> tuple[NDArray, NDArray, NDArray | None]:
    """Sizes and shares of the kinds of groups, and places of their covariates if there are any."""
    m = len(groups.size)
    if groups.covariates.size:
        return groups.size, np.full(m, 1 / m), np.arange(m)
    size, counts = np.unique(groups.size, return_counts=True)
    if len(size) > MOST_SIZES:
        middles = (np.arange(MOST_SIZES) + 0.5) / MOST_SIZES
        typical = np.quantile(groups.size, middles, method="nearest")
        size, counts = np.unique(typical, return_counts=True)
    return size, counts / counts.sum(), None


def _marginal_density(groups: Groups, at: NDArray) -> NDArray:
    """Density of local means at these places, averaged over the groups."""
    size, shares, place = _conditions(groups)
    likelihood = groups.likelihood(np.repeat(at, len(size)), np.tile(size, len(at)))
    prior = groups.population if place is None else _of(groups, np.tile(place, len(at)))
    log = prior.log_marginal(likelihood)
    return np.exp(log).reshape(len(at), len(size)) @ shares


def _expected_shares(groups: Groups, edges: NDArray) -> NDArray:
    """Share of local rates that the fit expects between the edges, averaged over the groups."""
    size, shares, place = _conditions(groups)
    size = np.minimum(size, MOST_ROWS / edges[-1]).astype(size.dtype)
    possible = [groups.view.family.outcomes(each, edges[-1]) for each in size]
    number = [len(each) for each in possible]
    local = np.concatenate(possible)
    prior = groups.population if place is None else _of(groups, np.repeat(place, number))
    masses = np.exp(prior.log_marginal(groups.likelihood(local, np.repeat(size, number))))
    return np.histogram(local, edges, weights=masses * np.repeat(shares, number))[0]


def _of(groups: Groups, place: NDArray) -> Prior:
    """Population at the covariates of the groups at these places."""
    return groups.view.prior.at(groups.covariates[place]).column(groups.column)
