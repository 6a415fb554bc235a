"""Groups in the plane of two coefficients: by their own data, and with the population."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.plots.axes import BLACK, BLUE, GREY, LINES, VERMILLION, open_axes
from ebfed.report.plots.caterpillar import place_of
from ebfed.report.plots.groups import check_rows, even_steps
from ebfed.report.plots.labels import OWN, coefficient, count_groups, name_points
from ebfed.report.view import GroupView, view_of
from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factors
from ebfed.tables.levels import label_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_coefficients"]

MOST_ARROWS = 60
MOST_NAMED = 12
ARROW: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 7, "shrinkA": 0, "shrinkB": 1}
ARROW |= {"color": GREY, "lw": 0.8}
RUNAWAY = 15.0  # log-odds beyond which the classes count as separated


def plot_coefficients(
    estimator: Any,
    *,
    x: int | str | None = None,
    y: int | str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw groups in the plane of two coefficients, from their own data and with the population.

    An arrow leads from the estimate from a group's own rows (least squares; maximum likelihood for
    a logistic regression) to the posterior mean. Ellipses hold 50 and 95 % of the
    population. Groups whose rows do not determine their coefficients are drawn without an arrow. If
    there are more than 60 groups, 60 are drawn, at even steps in the order of labels.

    Parameters
    ----------
    estimator : fitted LinearEB, LogisticEB, AdaMix, or another regression of two coefficients
    x, y : int or str, optional
        Coefficients, by name or place in `terms_`; the first two if None.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If the estimator is no regression, or has no such two coefficients.

    References
    ----------
    After the shrinkage plots of D. Bates (2010), *lme4: Mixed-effects modeling with R*, chapter 3.

    Examples
    --------
    >>> import ebfed as eb
    >>> rng = np.random.default_rng(0)
    >>> groups, t = np.repeat(np.arange(20), 6), np.tile(np.arange(6.0), 20)
    >>> response = rng.normal(1, 1, 20)[groups] + rng.normal(2, 0.5, 20)[groups] * t
    >>> response += rng.normal(size=120)
    >>> est = eb.LinearEB("full").fit(t[:, None], response, groups=groups)
    >>> ax = plot_coefficients(est, ax=eb.report.new_axes()[0])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('intercept', 'coefficient of x0')
    """
    from matplotlib.patches import FancyArrowPatch

    view = view_of(estimator)
    clients = getattr(estimator, "clients_", None)
    if not (isinstance(view, GroupView) and isinstance(clients, Factors | Clients)):
        raise ValueError(
            f"{view.title} has no coefficients of groups; LinearEB, LogisticEB and AdaMix have. "
            "For means and rates, see plot_arrows."
        )
    check_rows(view)
    terms = view.terms
    if len(terms) < 2:
        raise ValueError(f"a plane needs two coefficients; there is one, {terms[0]!r}.")
    axes = [place_of(0 if x is None else x, terms), place_of(1 if y is None else y, terms)]
    chosen = even_steps(len(clients), MOST_ARROWS)
    end = view.posterior().mean[chosen][:, axes]
    start = _alone(clients.take(chosen), len(terms), getattr(estimator, "classes_", None))[:, axes]
    alone = np.isfinite(start).all(axis=1)

    ax = open_axes(ax)
    for weight, mean, covariance in _components(estimator, view):
        _draw_component(ax, mean[axes], covariance[axes][:, axes], weight)
    _set_limits(ax, start[alone], end)
    for from_, to in zip(start[alone], end[alone], strict=True):
        ax.add_patch(FancyArrowPatch(tuple(from_), tuple(to), **ARROW))
    ax.plot(*start[alone].T, "o", color=BLUE, mfc="white", ms=4.5, label=OWN)
    ax.plot(*end.T, "o", color=BLUE, ms=4.5, mec="white", mew=0.4, label="estimate")
    ax.set(xlabel=coefficient(view, terms[axes[0]]), ylabel=coefficient(view, terms[axes[1]]))
    parts = [f"{len(chosen)} of {count_groups(view, len(clients))}"] * (len(chosen) < len(clients))
    if not alone.all():
        parts.append(f"{np.sum(~alone)} cannot be estimated alone")
    ax.set_title("; ".join(parts), fontsize="medium")
    if len(chosen) <= MOST_NAMED:
        at = np.where(alone[:, None], start, end)
        name_points(ax, at, [label_text(label) for label in clients.ids])
    handles, labels = ax.get_legend_handles_labels()
    kept = dict(zip(labels, handles, strict=True))  # each of several components has the same
    ax.legend(
        kept.values(), kept.keys(), loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3,
        frameon=False, fontsize="small",
    )  # fmt: skip
    return ax


def _components(estimator: Any, view: GroupView) -> Iterator[tuple[float, NDArray, NDArray]]:
    """Weight, mean and covariance of each part of the population."""
    if view.components is not None:
        for weight, mean, variances in zip(*view.components, strict=True):
            yield weight, mean, np.diag(variances)
    else:
        yield 1.0, estimator.mean_, estimator.covariance_


def _draw_component(ax: Axes, mean: NDArray, covariance: NDArray, weight: float) -> None:
    values, vectors = np.linalg.eigh(covariance)
    turn = np.linspace(0, 2 * np.pi, 200)
    circle = (vectors * np.sqrt(np.maximum(values, 0))) @ np.stack([np.cos(turn), np.sin(turn)])
    for share, line in ((0.5, LINES[0]), (0.95, LINES[1])):
        radius = np.sqrt(-2 * np.log(1 - share))  # of a normal in the plane
        outline = mean[:, None] + radius * circle
        label = f"{share:.0%} of the population"
        ax.plot(*outline, color=VERMILLION, ls=line, lw=1.2, zorder=1, label=label)
    size = 12 if weight == 1 else 8 + 8 * weight
    ax.plot(*mean, "+", color=BLACK, ms=size, mew=1.8, zorder=4, label="population mean")


def _set_limits(ax: Axes, start: NDArray, end: NDArray) -> None:
    """Include the population, all estimates, and nearly all of the others."""
    inner = np.quantile(start, [0.03, 0.97], axis=0) if len(start) > 10 else start
    outlines = [np.column_stack(line.get_data()) for line in ax.lines]
    points = np.concatenate([inner, end, *outlines])
    low, high = points.min(axis=0), points.max(axis=0)
    pad = np.where(high > low, 0.05 * (high - low), 1.0)
    ax.set_xlim(low[0] - pad[0], high[0] + pad[0])
    ax.set_ylim(low[1] - pad[1], high[1] + pad[1])


def _alone(clients: Any, p: int, classes: NDArray | None) -> NDArray:
    """Coefficients of each client alone, NaN where its rows do not determine them, (n, p)."""
    if classes is not None:
        if len(classes) != 2:
            raise ValueError(f"arrows are drawn for two classes; there are {len(classes)}.")
        blocks = zip(clients.indptr[:-1], clients.indptr[1:], strict=True)
        rows = (slice(first, last) for first, last in blocks)
        found = [_most_likely(clients.X[each], clients.y[each] == classes[1]) for each in rows]
        return np.array(found)
    # the covariates of groups, behind, are constant within each
    X, y = clients.rows[:, :, :p], clients.rows[:, :, -1]
    coefficients = np.einsum("npr,nr->np", np.linalg.pinv(X), y)
    coefficients[np.linalg.matrix_rank(X) < p] = np.nan
    return coefficients


def _most_likely(X: NDArray, y: NDArray) -> NDArray:
    """Logistic regression by Newton's method; NaN where the classes are separated."""
    from scipy.special import expit

    theta, nothing = np.zeros(X.shape[1]), np.full(X.shape[1], np.nan)
    if np.linalg.matrix_rank(X) < len(theta) or y.all() or not y.any():
        return nothing
    for _ in range(50):
        p = expit(X @ theta)
        slope, curvature = X.T @ (y - p), (X * (p * (1 - p))[:, None]).T @ X
        step = np.linalg.lstsq(curvature, slope, rcond=None)[0]
        theta = theta + step / max(1.0, np.abs(X @ step).max() / 2)
        if np.abs(X @ theta).max() > RUNAWAY:
            return nothing
        if np.abs(X @ step).max() < 1e-8:
            return theta
    return nothing
