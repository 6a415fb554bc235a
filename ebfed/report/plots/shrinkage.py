"""Local estimates against personalised ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import Prior
from ebfed.report.plots.axes import BLUE, GREY, VERMILLION, open_axes
from ebfed.report.plots.groups import location_of
from ebfed.report.plots.prior_curves import atoms_of, ceiling, density_of, grid_of, spike_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_shrinkage"]


def plot_shrinkage(estimator: Any, *, column: int = 0, ax: Axes | None = None) -> Axes:
    """Draw every group's local estimate against its personalised one, and the population.

    A point on the diagonal is not shrunk. The vertical line from the diagonal to a point shows how
    far the population moves the estimate. The population is drawn on the right, along the axis of
    the estimates. Groups at (nearly) the same place share a point whose area grows with their
    number; the number is written beside it where there are few points. Where groups differ in their
    number of rows, colour shows it: the small ones move most.

    Parameters
    ----------
    estimator : fit of means or rates
    column : int
        Place of the column of `X`, if several were fitted.
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
    ('local estimate', 'personalised estimate')
    """
    from matplotlib.collections import LineCollection

    view = location_of(estimator)
    ax = open_axes(ax)
    summary, prior = view.summary.take(view.has_rows), view.prior
    local = summary.mean[:, column]
    estimate = view.posterior().mean[view.has_rows, column]
    x, y, n, count = _merge(local, estimate, summary.size)

    mean = prior.mean_[column]
    low, high = min(local.min(), mean), max(local.max(), mean)
    pad = 0.08 * (high - low) or 1.0
    ends = (low - pad, high + pad)
    ax.set(xlabel="local estimate", ylabel="personalised estimate", xlim=ends, ylim=ends)
    ax.plot(ends, ends, color=GREY, lw=1, ls="--", zorder=1, label="no shrinkage")
    ax.axhline(mean, color=VERMILLION, lw=1.2, zorder=1, label="population mean")
    pulls = np.stack([np.column_stack([x, x]), np.column_stack([x, y])], axis=1)
    ax.add_collection(LineCollection(list(pulls), colors=GREY, lw=0.8, alpha=0.6, zorder=1))

    largest = np.clip(4000 / len(x), 16, 400)
    area = np.maximum(largest * count / count.max(), 16)
    style: dict[str, Any] = {"s": area, "edgecolors": "white", "linewidths": 0.4, "zorder": 2}
    # points lie between mean and diagonal: the corner farther from the mean is free
    below = mean - low >= high - mean
    ax.legend(loc="lower right" if below else "upper left", frameon=False, fontsize="small")
    if n.min() == n.max():
        ax.scatter(x, y, color=BLUE, **style)
    else:
        points = ax.scatter(x, y, c=n, norm="log", cmap="cividis_r", **style)
        bar = ax.inset_axes((0.6, 0.25, 0.34, 0.025) if below else (0.06, 0.72, 0.34, 0.025))
        ax.figure.colorbar(points, cax=bar, orientation="horizontal")
        ticks = [n.min(), np.sqrt(n.min() * n.max()), n.max()]
        bar.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks], fontsize="small")
        bar.minorticks_off()
        what = "rows" if summary.weight is None else "exposure"
        bar.set_title(f"{what} of the group", fontsize="small", pad=3)
    if len(x) <= 12 and count.max() > 1:
        _write_counts(x, y, count, np.sqrt(area) / 2, ax)
    _draw_margin(prior, column, ax)
    return ax


def _merge(local: NDArray, estimate: NDArray, n: NDArray) -> tuple[NDArray, ...]:
    """Merge groups at (nearly) one place: place, mean size, count."""
    step = (local.max() - local.min()) / 150 or 1.0
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


def _draw_margin(prior: Prior, column: int, ax: Axes) -> None:
    """Draw the population along the axis of the estimates."""
    side = ax.inset_axes((1.02, 0, 0.16, 1), sharey=ax)
    atoms = atoms_of(prior, column)
    if atoms is None:
        low, high = np.clip(ax.get_ylim(), *prior.support)
        at = grid_of(prior, column, low, high)
        density = density_of(prior, column, at)
        side.fill_betweenx(at, density, color=VERMILLION, alpha=0.3, lw=0)
        side.plot(density, at, color=VERMILLION, lw=1)
        side.set_xlim(0, ceiling(density))
        if (spike := spike_of(prior, column)) is not None:
            side.axhline(spike[0], color=VERMILLION, lw=1.5)
    else:
        side.hlines(atoms[0], 0, atoms[1], color=VERMILLION, lw=1.5)
        side.plot(atoms[1], atoms[0], "o", color=VERMILLION, ms=3.5)
        side.set_xlim(0, 1.15 * atoms[1].max())
    side.set_title("population", fontsize="small")
    side.set_xticks([])
    side.tick_params(left=False, labelleft=False)
    side.spines[["top", "right", "bottom"]].set_visible(False)
