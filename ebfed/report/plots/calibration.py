"""Local estimates against those of populations simulated from the fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Binomial
from ebfed.priors import Normal, Prior
from ebfed.report.plots.axes import BLACK, BLUE, GREY, open_axes
from ebfed.report.plots.groups import Groups, even_steps, read_groups
from ebfed.report.plots.rates import few_rates, rate_edges

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
    one. Where the model is right, points follow the diagonal; the band has 95 % of the simulated
    estimates of each rank. It is pointwise: a few points in a hundred lie outside by chance, side
    by side. Of rates that can have few values only, since all groups have the same few rows, the
    share of groups at each value is drawn instead.

    Parameters
    ----------
    estimator : fitted GaussianEB, BernoulliEB or MixtureEB
    column : int or str, optional
        Which column of `X`, if several were fitted: its place or its name.
    n_populations : int
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
    if isinstance(groups.view.likelihood(groups.summary), Binomial) and few_rates(groups):
        _draw_shares(ax, groups, rng, n_populations)
        return ax
    ranks = even_steps(len(groups.n), MOST_POINTS)
    simulated = np.stack([np.sort(_simulate(groups, rng))[ranks] for _ in range(n_populations)])
    low, middle, high = np.quantile(simulated, [0.025, 0.5, 0.975], axis=0)
    seen = np.sort(groups.local)[ranks]
    ax.fill_between(middle, low, high, color=GREY, alpha=0.3, lw=0, label=BAND)
    ends = [middle.min(), middle.max()]
    ax.plot(ends, ends, color=BLACK, lw=1, ls="--", label=MEDIAN)
    size = float(np.clip(300 / len(ranks), 2.5, 6))
    ax.plot(middle, seen, "o", color=BLUE, ms=size, mew=0, label="groups")
    ax.set(xlabel="sorted local estimates, simulated", ylabel="sorted local estimates")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


def _draw_shares(ax: Axes, groups: Groups, rng: np.random.Generator, n_populations: int) -> None:
    """Draw the share of groups at each of a few rates, with a band for each."""
    n = int(groups.n[0])
    rates, edges = np.arange(n + 1) / n, rate_edges(groups)
    simulated = np.stack(
        [
            np.histogram(_simulate(groups, rng), edges)[0] / len(groups.n)
            for _ in range(n_populations)
        ]
    )
    low, middle, high = np.quantile(simulated, [0.025, 0.5, 0.975], axis=0)
    seen = np.histogram(groups.local, edges)[0] / len(groups.n)
    ax.bar(rates, high - low, 0.6 / n, bottom=low, color=GREY, alpha=0.4, label=BAND)
    ax.hlines(middle, rates - 0.3 / n, rates + 0.3 / n, color=BLACK, lw=1, ls="--", label=MEDIAN)
    ax.plot(rates, seen, "o", color=BLUE, ms=5, mec="white", mew=0.4, label="groups")
    ax.set(xlabel="local estimate", ylabel="share of groups", ylim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")


def _simulate(groups: Groups, rng: np.random.Generator) -> NDArray:
    """Local estimates of groups with as many rows, whose parameters come from the population."""
    theta = _draw(groups.view.prior, groups, rng)
    if isinstance(groups.view.likelihood(groups.summary), Binomial):
        return rng.binomial(groups.n, theta) / groups.n
    return rng.normal(theta, np.sqrt(groups.view.noise_variance[groups.column] / groups.n))


def _draw(prior: Prior, groups: Groups, rng: np.random.Generator) -> NDArray:
    if not groups.covariates.size:
        return prior.sample(len(groups.n), rng)[:, groups.column]
    there = prior.at(groups.covariates)
    if isinstance(prior, Normal):
        away = prior.sample(len(groups.n), rng) - prior.mean_
        return (there.mean_ + away)[:, groups.column]
    # the other one that takes covariates is the beta; without spread it is a point
    spread = np.isfinite(there.alpha_)
    alpha, beta = (np.where(spread, x, 1.0) for x in (there.alpha_, there.beta_))
    return np.where(spread, rng.beta(alpha, beta), there.mean_)[:, groups.column]
