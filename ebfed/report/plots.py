"""Pictures of fits and studies: shrinkage, populations, gains by fold, curves with bands.

Functions draw on `ax` and return it; without one they open a figure of pyplot, which a notebook
shows. `new_axes` gives axes outside pyplot, for files: they need no display and no closing. Colours
are those of Okabe and Ito (2008), which the colour-blind tell apart, and never carry a meaning
alone: lines and markers differ too.
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

__all__ = [
    "new_axes",
    "plot_by_fold",
    "plot_curves",
    "plot_formulas",
    "plot_population",
    "plot_shrinkage",
]

BLUE, VERMILLION, GREEN, BLACK = "#0072B2", "#D55E00", "#009E73", "#000000"
PURPLE, ORANGE, SKY, GREY = "#CC79A7", "#E69F00", "#56B4E9", "#7f7f7f"
COLOURS = (BLUE, VERMILLION, GREEN, BLACK, PURPLE, ORANGE, SKY)
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def new_axes(
    n_columns: int = 1, size: tuple[float, float] = (6.4, 4.4), *, n_rows: int = 1
) -> list[Axes]:
    """Open a figure outside pyplot and return its axes, side by side and row by row.

    Parameters
    ----------
    n_columns, n_rows : int
    size : tuple of float
        Width and height of the figure in inches.

    Examples
    --------
    >>> left, right = new_axes(2)
    >>> left.figure is right.figure
    True
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.06))
    return list(figure.subplots(n_rows, n_columns, squeeze=False).ravel())


def plot_shrinkage(estimator: Any, *, column: int = 0, ax: Axes | None = None) -> Axes:
    """Draw every group's local estimate against its personalised one, and the population.

    A point on the diagonal was left alone; the line that hangs it there is the pull of the
    population, which is drawn on the right along the axis of the estimates. Groups (nearly) at one
    place share a point whose area grows with their number, written beside it where places are few.
    Where groups differ in their number of rows, colour tells it: it is the small ones that are
    pulled most.

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
    summary, prior = estimator.summaries_, estimator.prior_
    told = summary.n > 0
    local = summary.mean[told, column]
    estimate = estimator.predict().reshape(len(told), -1)[told, column]
    x, y, n, count = _merge(local, estimate, summary.n[told])

    mean = prior.mean_[column]
    low, high = min(local.min(), mean), max(local.max(), mean)
    pad = 0.08 * (high - low) or 1.0
    ends = (low - pad, high + pad)
    ax.set(xlabel="local estimate", ylabel="personalised estimate", xlim=ends, ylim=ends)
    ax.plot(ends, ends, color=GREY, lw=1, ls="--", zorder=1, label="left alone")
    ax.axhline(mean, color=VERMILLION, lw=1.2, zorder=1, label="population mean")
    pulls = np.stack([np.column_stack([x, x]), np.column_stack([x, y])], axis=1)
    ax.add_collection(LineCollection(list(pulls), colors=GREY, lw=0.8, alpha=0.6, zorder=1))

    largest = np.clip(4000 / len(x), 16, 400)
    area = np.maximum(largest * count / count.max(), 16)
    style: dict[str, Any] = {"s": area, "edgecolors": "white", "linewidths": 0.4, "zorder": 2}
    # points lie between mean and diagonal, which leaves the corner farther from the mean free
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
        bar.set_title("rows of the group", fontsize="small", pad=3)
    if len(x) <= 12 and count.max() > 1:
        _write_counts(x, y, count, np.sqrt(area) / 2, ax)
    _draw_margin(prior, column, ax)
    return ax


def _merge(local: NDArray, estimate: NDArray, n: NDArray) -> tuple[NDArray, ...]:
    """Bring groups at (nearly) one place together: place, mean number of rows, count."""
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
        )


def _draw_margin(prior: Prior, column: int, ax: Axes) -> None:
    """Draw the population along the axis of the estimates."""
    side = ax.inset_axes((1.02, 0, 0.16, 1), sharey=ax)
    atoms = _atoms(prior, column)
    if atoms is None:
        low, high = np.clip(ax.get_ylim(), *prior.support)
        at = np.linspace(low, high, 600)
        density = _density(prior, column, at)
        side.fill_betweenx(at, density, color=VERMILLION, alpha=0.3, lw=0)
        side.plot(density, at, color=VERMILLION, lw=1)
        side.set_xlim(0, _ceiling(density))
    else:
        side.hlines(atoms[0], 0, atoms[1], color=VERMILLION, lw=1.5)
        side.plot(atoms[1], atoms[0], "o", color=VERMILLION, ms=3.5)
        side.set_xlim(0, 1.15 * atoms[1].max())
    side.set_title("population", fontsize="small")
    side.set_xticks([])
    side.tick_params(left=False, labelleft=False)
    side.spines[["top", "right", "bottom"]].set_visible(False)


def plot_population(
    populations: Mapping[str, Any] | Any,
    *,
    column: int = 0,
    support: tuple[float, float] | None = None,
    cumulative: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw fitted populations together: densities as curves, atoms as stems.

    Parameters
    ----------
    populations : fitted Prior or estimator, or mapping of name to such
    column : int
        Which column of `X`, if several were fitted.
    support : tuple of float, optional
        Ends of the horizontal axis; as wide as the populations if None.
    cumulative : bool
        Draw distribution functions, in which densities and atoms compare directly.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Where densities and atoms meet, the probabilities of atoms have an axis on the right.

    Examples
    --------
    >>> import ebfed as eb
    >>> y, groups, p = eb.datasets.make_bernoulli_groups(200, 14, random_state=0)
    >>> fits = {
    ...     prior: eb.BernoulliEB(prior=prior).fit(y, groups=groups) for prior in ("beta", "npmle")
    ... }
    >>> ax = plot_population(fits, cumulative=True, ax=new_axes()[0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['beta', 'npmle']
    """
    ax = _axes(ax)
    if not isinstance(populations, Mapping):
        populations = {"population": populations}
    priors = {name: getattr(each, "prior_", each) for name, each in populations.items()}
    atoms = {name: _atoms(prior, column) for name, prior in priors.items()}
    low, high = support or _reach(list(priors.values()), column)
    pad = 0.03 * (high - low)
    mixed = 0 < sum(each is None for each in atoms.values()) < len(atoms)
    stems = ax.twinx() if mixed and not cumulative else ax
    at = np.linspace(low, high, 600)
    lines, ceiling = [], 0.0
    for k, (name, prior) in enumerate(priors.items()):
        look: dict[str, Any] = {"color": COLOURS[k % 7], "label": name, "lw": 1.6}
        look["ls"] = LINES[k % 7]
        places = atoms[name]
        if cumulative:
            draws = _draws(prior, column) if places is None else places[0]
            masses = None if places is None else places[1]
            lines += ax.plot(*_steps(draws, masses, low - pad, high + pad), **look)
        elif places is None:
            density = _density(prior, column, at)
            ceiling = max(ceiling, _ceiling(density))
            lines += ax.plot(at, density, **look)
        else:
            look |= {"ls": "-", "marker": MARKERS[k % 7], "ms": 5}
            stems.vlines(places[0], 0, places[1], color=look["color"], lw=1.6)
            stems.plot(*places, **look | {"ls": ""})
            lines += stems.plot([], [], **look)
    ax.set(xlabel="parameter", ylabel="density", xlim=(low - pad, high + pad))
    if ceiling:
        ax.set_ylim(0, ceiling)
    if stems is not ax or not (ceiling or cumulative):
        stems.set_ylabel("probability of an atom")
        stems.set_ylim(bottom=0)
    if cumulative:
        ax.set(ylabel="share of groups at or below", ylim=(0, 1.02))
    ax.legend(handles=lines, frameon=False, fontsize="small")
    return ax


def plot_by_fold(gains: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the gain of each method in each fold, with mean and standard deviation over folds.

    Parameters
    ----------
    gains : DataFrame of shape (n_folds, n_methods)
        Gains in per cent; folds in the index, methods in the columns. A column of NaN is left out.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import pandas as pd
    >>> gains = pd.DataFrame({"ML": [2.0, 4.0], "NPMLE": [1.0, 6.0]}, index=[2016, 2020])
    >>> ax = plot_by_fold(gains, ax=new_axes()[0])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['ML', 'NPMLE']
    """
    ax = _axes(ax)
    gains = gains.dropna(axis="columns", how="all")
    rows = np.arange(gains.shape[1])
    # folds one below the other within a method, so that no dot hides another
    heights = np.linspace(-0.24, 0.24, len(gains))
    few = len(gains) <= len(COLOURS)
    for k, (fold, values) in enumerate(gains.iterrows()):
        look = (
            {"color": COLOURS[k], "marker": MARKERS[k], "label": fold} if few else {"color": GREY}
        )
        ax.scatter(values, rows + heights[k], s=28, zorder=3, **look)
    mean, sd = gains.mean(), gains.std(ddof=0)
    ax.barh(rows, 2 * sd, left=mean - sd, height=0.66, color="#e6e6e6", zorder=1)
    ax.vlines(mean, rows - 0.33, rows + 0.33, color=BLACK, lw=2, zorder=2)
    ax.axvline(0, color=GREY, lw=1, ls="--", zorder=1.5)
    ax.set_yticks(rows, [str(name) for name in gains.columns])
    ax.invert_yaxis()
    ax.set_xlabel("gain over local, %  (bar: mean ± sd over folds)")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)
    if few:
        ax.legend(
            title=gains.index.name,
            frameon=False,
            fontsize="small",
            loc="upper left",
            bbox_to_anchor=(1, 1),
        )
    return ax


def plot_curves(
    curves: pd.DataFrame,
    *,
    x: str,
    y: str,
    spread: str,
    looks: Mapping[str, Mapping[str, Any]] | None = None,
    log_x: bool = True,
    log_y: bool = False,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw a result of each method against a setting, with bands.

    A method whose `x` is NaN has no such setting: it is a level line, named at its right end. Ticks
    of the horizontal axis stand at the values of `x`.

    Parameters
    ----------
    curves : DataFrame
        A row for each point: ``method`` and the columns named; markers are hollow where a column
        ``valid`` says False.
    x, y, spread : str
        Columns: where, how much, and half the height of the band.
    looks : mapping of method to mapping, optional
        ``color``, ``marker``, ``ls`` of methods; by their order if None.
    log_x, log_y, legend : bool
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import pandas as pd
    >>> curves = pd.DataFrame(
    ...     {
    ...         "method": ["best", "one bit", "one bit"],
    ...         "epsilon": [np.nan, 1.0, 4.0],
    ...         "mse": [0.1, 0.4, 0.2],
    ...         "se": [0.01, 0.02, 0.01],
    ...     }
    ... )
    >>> ax = plot_curves(curves, x="epsilon", y="mse", spread="se", ax=new_axes()[0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['one bit']
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['1', '4']
    """
    from matplotlib.ticker import LogLocator, NullLocator

    ax = _axes(ax)
    ax.set(xlabel=x, ylabel=y)
    if log_x:
        ax.set_xscale("log")
    if log_y:
        ax.set_yscale("log")
        short = curves[y].max() < 5 * curves[y].min()
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8) if short else (1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(NullLocator())
    drawn, levels = 0, curves.loc[curves[x].isna(), y]
    for method, points in curves.groupby("method", sort=False):
        at, values, band = (points[name].to_numpy(float) for name in (x, y, spread))
        if np.isnan(at).all():
            ax.axhline(values[0], color=GREY, lw=1, ls=LINES[1], zorder=1)
            below = values[0] < levels.max()
            ax.annotate(
                str(method),
                (1, values[0]),
                (-3, -4 if below else 2),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="right",
                va="top" if below else "bottom",
                fontsize="small",
                color="#4d4d4d",
            )
            continue
        look: dict[str, Any] = {
            "color": COLOURS[drawn % 7],
            "marker": MARKERS[drawn % 7],
            "ls": LINES[drawn % 7],
        }
        look |= dict((looks or {}).get(str(method), {}))
        drawn += 1
        ax.fill_between(at, values - band, values + band, color=look["color"], alpha=0.15, lw=0)
        ax.plot(at, values, lw=1.4, ms=4.5, label=str(method), **look)
        if "valid" in points:
            hollow = ~points["valid"].to_numpy(bool)
            look |= {"ls": "", "mfc": "white"}
            ax.plot(at[hollow], values[hollow], ms=6, zorder=3, **look)
    ticks = np.unique(curves[x].dropna())
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.spines[["top", "right"]].set_visible(False)
    if legend and drawn:
        ax.legend(frameon=False, fontsize="small")
    return ax


def plot_formulas(
    lines: pd.DataFrame,
    points: pd.DataFrame,
    *,
    x: str,
    y: str,
    error: str,
    log_x: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw formulas as lines, and on them, with error bars, what simulations found.

    Parameters
    ----------
    lines, points : DataFrame
        A row for each place on a curve: ``method``, `x` and `y`; points have `error`, half the
        length of the bar. Stars stand where a column ``best`` of the points says True.
    x, y, error : str
        Columns.
    log_x : bool
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import pandas as pd
    >>> lines = pd.DataFrame({"method": "mean", "n": range(1, 9)}).eval("risk = 1 / n")
    >>> points = lines[::4].assign(error=0.02)
    >>> ax = plot_formulas(lines, points, x="n", y="risk", error="error", ax=new_axes()[0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['mean']
    """
    from matplotlib.lines import Line2D

    ax = _axes(ax)
    ax.set(xlabel=x, ylabel=y)
    if log_x:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
    handles = []
    for k, (method, line) in enumerate(lines.groupby("method", sort=False)):
        # a curve may lie on an earlier one, which is thicker, and shows in its gaps
        look: dict[str, Any] = {"color": COLOURS[k % 7], "ls": LINES[k % 7]}
        ax.plot(line[x], line[y], lw=2.6 - 0.4 * min(k, 3), zorder=2 + k / 10, **look)
        here = points[points["method"] == method]
        best = np.zeros(len(here), bool) if "best" not in here else here["best"].to_numpy(bool)
        for part, marker, size in ((~best, MARKERS[k % 7], 7 - min(k, 4)), (best, "*", 13 - k)):
            ax.errorbar(
                here.loc[part, x],
                here.loc[part, y],
                here.loc[part, error],
                color=look["color"],
                ls="",
                marker=marker,
                ms=size,
                mec="white",
                mew=0.5,
                zorder=3 + k / 10,
            )
        handles.append(Line2D([], [], label=str(method), marker=MARKERS[k % 7], ms=5, **look))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(handles=handles, frameon=False, fontsize="small")
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


def _draws(prior: Prior, column: int) -> NDArray:
    """Many draws of one coordinate: a distribution to the accuracy of a picture."""
    return prior.sample(2_000_000 // len(prior.mean_), random_state=0)[:, column]


def _density(prior: Prior, column: int, at: NDArray) -> NDArray:
    """Density of one coordinate on an even grid, 0 off the support."""
    if len(prior.mean_) > 1:
        edges = np.linspace(at[0], at[-1], 61)
        draws = _draws(prior, column)
        counts, _ = np.histogram(draws, edges)
        return np.interp(at, (edges[1:] + edges[:-1]) / 2, counts / np.diff(edges) / len(draws))
    low, high = prior.support
    with np.errstate(divide="ignore"):  # at the ends of its support a beta density may be infinite
        return np.where(
            (at < low) | (at > high), 0.0, np.exp(prior.logpdf(np.clip(at, low, high)[:, None]))
        )


def _ceiling(density: NDArray) -> float:
    """Height of the axis: a little above the density, which is cut where it shoots up at an end."""
    inner = len(density) // 20
    return 1.1 * min(float(density.max()), 2 * float(density[inner:-inner].max()))


def _reach(priors: list[Prior], column: int) -> tuple[float, float]:
    """Where practically all of the populations lie."""
    ends = []
    for prior in priors:
        mean, sd = prior.mean_[column], np.sqrt(prior.variance_[column])
        atoms = _atoms(prior, column)
        reach = np.array([mean - 4 * sd, mean + 4 * sd]) if atoms is None else atoms[0]
        ends += np.clip([reach.min(), reach.max()], *prior.support).tolist()
    low, high = min(ends), max(ends)
    return (low, high) if low < high else (low - 1, high + 1)


def _steps(
    values: NDArray, masses: NDArray | None, low: float, high: float
) -> tuple[NDArray, NDArray]:
    """Corners of a distribution function, from `low` to `high`."""
    order = np.argsort(values)
    share = np.full(len(values), 1 / len(values)) if masses is None else masses[order]
    below = np.concatenate(([0.0], np.cumsum(share)))
    if masses is None:  # so many steps are a curve: some of them draw it
        at = np.linspace(low, high, 600)
        return at, below[np.searchsorted(values[order], at, side="right")]
    corners = np.repeat(values[order], 2)
    return np.concatenate(([low], corners, [high])), np.repeat(below, 2)
