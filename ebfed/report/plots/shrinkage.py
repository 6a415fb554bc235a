"""Local estimates against personalised ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import Prior
from ebfed.report.plots.axes import BLACK, BLUE, GREY, MANY, VERMILLION, open_axes, shades
from ebfed.report.plots.groups import read_groups
from ebfed.report.plots.labels import OWN, count_groups, name_points, quantity
from ebfed.report.plots.prior_curves import (
    atoms_of,
    ceiling,
    central,
    density_of,
    grid_of,
    spike_of,
)
from ebfed.tables.levels import label_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_shrinkage"]

# Points whose counts or names are written, and that have strong lines.
MOST_WRITTEN, FEW = 12, 200
FAR = 3.0  # distances between quartiles beyond them


def plot_shrinkage(estimator: Any, *, column: int | str | None = 0, ax: Axes | None = None) -> Axes:
    """Draw every group's estimate against that from its own data alone, and the population.

    A point on the diagonal is not shrunk. The vertical line from the diagonal to a point shows how
    far the population moves the estimate. The population is drawn on the right, along the axis of
    the estimates. Groups at (nearly) the same place share a point whose area grows with their
    number; the number is written beside it where there are few points. Up to twelve points of one
    group each are named. Where groups differ in their number of rows, colour shows it: the small
    ones move most. A few groups whose own data are far out would squeeze all others: triangles at
    the edge stand for them, and the legend has their number.

    Parameters
    ----------
    estimator : fit of means or rates
    column : int or str
        Column of `X`, by place or name, if several were fitted.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import ebfed as eb
    >>> X, groups, theta = eb.datasets.make_gaussian_groups(50, 3, random_state=0)
    >>> ax = plot_shrinkage(eb.GaussianEB().fit(X, groups=groups), ax=eb.report.new_axes()[0])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('mean: own data alone', 'mean: estimate')
    """
    from matplotlib.collections import LineCollection

    groups = read_groups(estimator, column)
    view, population = groups.view, groups.population
    ax = open_axes(ax)
    local, estimate, mean = groups.local, groups.estimate, view.prior.mean_[groups.column]
    across = _reach(local, mean)
    x, y, n, count = _merge(local, estimate, groups.size, (across[1] - across[0]) / 150)
    up = _include(estimate, central(population), across)
    what = quantity(view, groups.column)
    ax.set(xlabel=f"{what}: {OWN}", ylabel=f"{what}: estimate", xlim=across, ylim=up)
    ax.set_title(f"Shrinkage of {count_groups(view, len(local))}", loc="left", fontsize="medium")

    ends = min(across[0], up[0]), max(across[1], up[1])
    ax.plot(ends, ends, color=GREY, lw=1, ls="--", zorder=1, label="no shrinkage")
    ax.axhline(mean, color=VERMILLION, lw=1.2, zorder=1, label="population mean")
    pulls = np.stack([np.column_stack([x, x]), np.column_stack([x, y])], axis=1)
    thin = {"lw": 0.8, "alpha": 0.6} if len(x) <= FEW else {"lw": 0.4, "alpha": 0.25}
    lines = LineCollection(list(pulls), colors=GREY, zorder=1, rasterized=len(x) > MANY, **thin)
    ax.add_collection(lines)
    _draw_far(ax, local, estimate, across)

    largest = np.clip(4000 / len(x), 9, 400 if count.max() > 1 else 60)
    area = np.maximum(largest * count / count.max(), 9 if len(x) > FEW else 16)
    style: dict[str, Any] = {"s": area, "edgecolors": "white", "linewidths": 0.3, "zorder": 2}
    style["rasterized"] = len(x) > MANY
    # points lie between mean and diagonal: two corners are free
    below = (across[1] - mean) * (mean - up[0]) >= (mean - across[0]) * (up[1] - mean)
    ax.legend(loc="lower right" if below else "upper left", frameon=False, fontsize="small")
    if n.min() == n.max():
        ax.scatter(x, y, color=BLUE, **style)
    else:
        points = ax.scatter(x, y, c=n, norm="log", cmap=shades("size"), **style)
        bar = ax.inset_axes((0.6, 0.25, 0.34, 0.025) if below else (0.06, 0.7, 0.34, 0.025))
        ax.figure.colorbar(points, cax=bar, orientation="horizontal")
        ticks = [n.min(), np.sqrt(n.min() * n.max()), n.max()]
        bar.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks], fontsize="small")
        bar.minorticks_off()
        family, summary = view.family, view.summary
        kind = "exposure" if family.takes_exposure else "weight"
        kind = "rows" if family.averaged_over(summary) is summary.n else kind
        bar.set_title(f"{kind} of the group", fontsize="small", pad=3)
    _draw_margin(population, ax)
    if len(x) <= MOST_WRITTEN and count.max() > 1:
        _write_counts(x, y, count, np.sqrt(area) / 2, ax)
    elif len(local) <= MOST_WRITTEN:
        named = [label_text(label) for label in groups.labels]
        name_points(ax, np.column_stack([local, estimate]), named, np.sqrt(largest) / 2)
    return ax


def _reach(local: NDArray, mean: float) -> tuple[float, float]:
    """Ends of the axis of own data: all of them but a few that are far out (Tukey 1977)."""
    quarters = np.quantile(local, [0.25, 0.75])
    far = FAR * np.ptp(quarters) or np.inf
    inner = local[(local >= quarters[0] - far) & (local <= quarters[1] + far)]
    low, high = min(inner.min(), mean), max(inner.max(), mean)
    pad = 0.06 * (high - low) or 1.0
    return low - pad, high + pad


def _include(
    estimate: NDArray, population: tuple[float, float], across: tuple[float, float]
) -> tuple[float, float]:
    """Ends of the axis of estimates: all of these, the population, and half of the other axis."""
    low, high = min(estimate.min(), population[0]), max(estimate.max(), population[1])
    pad = max(0.06 * (high - low), (across[1] - across[0]) / 4 - (high - low) / 2)
    return low - pad, high + pad


def _draw_far(ax: Axes, local: NDArray, estimate: NDArray, across: tuple[float, float]) -> None:
    """Draw triangles at the edge for groups whose own data lie beyond it."""
    beyond = [(local < across[0], across[0], "<"), (local > across[1], across[1], ">")]
    number = sum(int(far.sum()) for far, _, _ in beyond)
    label = f"{number:,} beyond the axis"
    for far, edge, marker in beyond:
        if far.any():
            ax.plot(
                np.full(far.sum(), edge), estimate[far], marker, color=BLACK, ms=4, mew=0,
                clip_on=False, zorder=3, label=label,
            )  # fmt: skip
            label = "_"  # once is enough


def _merge(local: NDArray, estimate: NDArray, n: NDArray, step: float) -> tuple[NDArray, ...]:
    """Merge groups at (nearly) one place: place, mean size, count."""
    across, up = (np.rint((v - v.min()) / step).astype(np.int64) for v in (local, estimate))
    cells = across * (up.max() + 1) + up
    _, codes, count = np.unique(cells, return_inverse=True, return_counts=True)
    return *(np.bincount(codes, values) / count for values in (local, estimate, n)), count


def _write_counts(x: NDArray, y: NDArray, count: NDArray, radius: NDArray, ax: Axes) -> None:
    """Write the number of groups by each point, on the side away from the diagonal."""
    for at, height, number, r in zip(x, y, count, radius, strict=True):
        away = 1 if height >= at else -1
        ax.annotate(
            f"{number:,}",
            (at, height),
            (-4 * away, away * (r + 2)),
            textcoords="offset points",
            ha="center",
            va="bottom" if away > 0 else "top",
            fontsize="small",
            color=GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85},
        )


def _draw_margin(prior: Prior, ax: Axes) -> None:
    """Draw the population along the axis of the estimates."""
    side = ax.inset_axes((1.02, 0, 0.16, 1), sharey=ax)
    atoms = atoms_of(prior)
    if atoms is None:
        low, high = np.clip(ax.get_ylim(), *prior.support)
        at = grid_of(prior, 0, low, high)
        density = density_of(prior, 0, at)
        side.fill_betweenx(at, density, color=VERMILLION, alpha=0.3, lw=0)
        side.plot(density, at, color=VERMILLION, lw=1)
        side.set_xlim(0, ceiling(density))
        if (spike := spike_of(prior)) is not None:
            side.axhline(spike[0], color=VERMILLION, lw=1.5)
    else:
        side.hlines(atoms[0], 0, atoms[1], color=VERMILLION, lw=1.5)
        side.plot(atoms[1], atoms[0], "o", color=VERMILLION, ms=3.5)
        side.set_xlim(0, 1.15 * atoms[1].max())
    side.set_title("population", fontsize="small")
    side.set_xticks([])
    side.tick_params(left=False, labelleft=False)
    side.spines[["top", "right", "bottom"]].set_visible(False)
