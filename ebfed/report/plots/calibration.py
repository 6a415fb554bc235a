"""Local estimates against those of populations simulated from the fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.axes import BLACK, BLUE, GREY, finish, open_axes
from ebfed.report.plots.groups import Groups, bar_edges, even_steps, few_outcomes, read_groups
from ebfed.report.plots.labels import OWN, count_groups, quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_calibration"]

MOST_POINTS = 500

BAND, MEDIAN = "95% of simulations (pointwise)", "median of simulations"


def plot_calibration(
    estimator: Any,
    *,
    column: int | str | None = None,
    n_populations: int = 200,
    random_state: Any = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw sorted local estimates against those of populations simulated from the fit.

    Each simulated group has a parameter from the fitted population and as many rows as the real
    one. If the model is right, points follow the diagonal; the band has 95 % of the simulated
    estimates of each rank. It is pointwise: a few points in a hundred lie outside by chance, side
    by side. If only few rates are possible, since all groups have the same few rows, the share of
    groups at each rate is drawn instead.

    Parameters
    ----------
    estimator : fit of means or rates
    column : int or str, optional
        Column of `X`, by place or name; needed if several were fitted.
    n_populations : int
        Number of simulations.
    random_state : int, Generator or None
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If the estimator is no fit of means or rates, has no such column, or `n_populations` is less
        than 20, of which a band is made.

    Examples
    --------
    >>> import ebfed as eb
    >>> X, groups, theta = eb.datasets.make_gaussian_groups(50, 4, random_state=0)
    >>> ax = plot_calibration(eb.GaussianEB().fit(X, groups=groups), ax=eb.report.new_axes()[0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['95% of simulations (pointwise)', 'median of simulations', 'groups']
    """
    if n_populations < 20:
        raise ValueError(f"n_populations must be at least 20; got {n_populations!r}.")
    groups = read_groups(estimator, column)
    rng = np.random.default_rng(random_state)
    ax = open_axes(ax)
    possible = few_outcomes(groups)
    if possible is not None:
        _draw_shares(ax, groups, possible, rng, n_populations)
        return ax
    ranks = even_steps(len(groups.size), MOST_POINTS)
    simulated = np.stack([np.sort(_simulate(groups, rng))[ranks] for _ in range(n_populations)])
    low, middle, high = np.quantile(simulated, [0.025, 0.5, 0.975], axis=0)
    observed = np.sort(groups.local)[ranks]
    ax.fill_between(middle, low, high, color=GREY, alpha=0.3, lw=0, label=BAND)
    ends = [middle.min(), middle.max()]
    ax.plot(ends, ends, color=BLACK, lw=1, ls="--", label=MEDIAN)
    size = float(np.clip(300 / len(ranks), 2.5, 6))
    ax.plot(middle, observed, "o", color=BLUE, ms=size, mew=0, label="groups")
    what = quantity(groups.view, groups.column)
    finish(ax, _title(groups), xlabel=f"{what}: {OWN}, simulated", ylabel=f"{what}: {OWN}")
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


def _draw_shares(
    ax: Axes, groups: Groups, possible: NDArray, rng: np.random.Generator, n_populations: int
) -> None:
    """Draw the share of groups at each of a few possible estimates, with a band for each."""
    m, step, edges = len(groups.size), 1 / groups.size[0], bar_edges(groups)
    simulated = np.stack(
        [np.histogram(_simulate(groups, rng), edges)[0] / m for _ in range(n_populations)]
    )
    low, middle, high = np.quantile(simulated, [0.025, 0.5, 0.975], axis=0)
    observed = np.histogram(groups.local, edges)[0] / m
    ax.bar(possible, high - low, 0.6 * step, bottom=low, color=GREY, alpha=0.4, label=BAND)
    ends = possible - 0.3 * step, possible + 0.3 * step
    ax.hlines(middle, *ends, color=BLACK, lw=1, ls="--", label=MEDIAN)
    ax.plot(possible, observed, "o", color=BLUE, ms=5, mec="white", mew=0.4, label="groups")
    what = quantity(groups.view, groups.column)
    finish(ax, _title(groups), xlabel=f"{what}: {OWN}", ylabel="share of groups", ylim=(0, None))
    ax.legend(frameon=False, fontsize="small")


def _title(groups: Groups) -> str:
    return f"Own data against simulations, {count_groups(groups.view, len(groups.local))}"


def _simulate(groups: Groups, rng: np.random.Generator) -> NDArray:
    """Local estimates of groups of the same sizes, with parameters from the population."""
    theta = groups.population.sample(len(groups.size), rng)[:, 0]
    return groups.view.family.simulate(theta, groups.size, rng, groups.column)
