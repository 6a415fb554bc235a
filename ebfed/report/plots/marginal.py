"""Local estimates, and what the fit says of them and of the population."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Binomial, Gaussian
from ebfed.priors import Discrete, Normal, Prior
from ebfed.report.plots.axes import BLACK, BLUE, VERMILLION, open_axes
from ebfed.report.plots.groups import Groups, read_groups
from ebfed.report.plots.prior_curves import atoms_of, ceiling, density_of, grid_of, spike_of
from ebfed.report.plots.rates import rate_edges

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_marginal"]

MOST_SIZES = 100  # different numbers of rows; of more, so many quantiles stand for all
MOST_ROWS = 2000  # more rows than that blur a rate by less than a bar is wide


def plot_marginal(
    estimator: Any, *, column: int | str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw local estimates as a histogram, with what the fit says of them and of the population.

    The curve over the histogram is the marginal density of local estimates under the fit, averaged
    over the groups' numbers of rows (and covariates): where the model is right, it follows the
    histogram. The population, which the errors of local estimates widen to that, is the other.

    Parameters
    ----------
    estimator : fitted GaussianEB, BernoulliEB or MixtureEB
    column : int or str, optional
        Which column of `X`, if several were fitted: its place or its name.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Where the population has atoms, their probabilities have an axis on the right.

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
    ['local estimates', 'fitted, of local estimates', 'population']
    """
    groups = read_groups(estimator, column)
    ax = open_axes(ax)
    rates = isinstance(groups.view.likelihood(groups.summary), Binomial)
    edges = rate_edges(groups) if rates else _mean_edges(groups.local)
    look: dict[str, Any] = {"color": "#d9d9d9"}
    seen = np.histogram(groups.local, edges, density=True)[0]
    ax.stairs(seen, edges, fill=True, label="local estimates", **look)
    if len(groups.local) <= 50 and not rates:
        ax.plot(groups.local, np.zeros(len(groups.local)), "|", color=BLACK, ms=12, clip_on=False)
    if rates:
        expected = _expected_shares(groups, edges) / np.diff(edges)
        middle = (edges[1:] + edges[:-1]) / 2
        style: dict[str, Any] = {"marker": "D", "ms": 4, "lw": 1.2}
    else:
        pad = 0.1 * (edges[-1] - edges[0])
        middle = np.linspace(edges[0] - pad, edges[-1] + pad, 400)
        expected = _marginal_density(groups, middle)
        style = {"lw": 1.8}
    ax.plot(middle, expected, color=BLUE, label="fitted, of local estimates", **style)
    highest = 1.15 * max(seen.max(), expected.max())
    ax.set_ylim(0, highest)
    handles = ax.get_legend_handles_labels()[0]
    ends = (edges[0], edges[-1]) if rates else (middle[0], middle[-1])
    handles += _draw_population(ax, groups.view.prior, groups, ends)
    ax.set(xlabel="estimate", ylabel="density", xlim=ends)
    ax.legend(handles=handles, frameon=False, fontsize="small")
    return ax


def _mean_edges(values: NDArray) -> NDArray:
    return np.histogram_bin_edges(values, int(np.clip(np.sqrt(len(values)), 5, 60)))


def _draw_population(
    ax: Axes, prior: Prior, groups: Groups, ends: tuple[float, float]
) -> list[Any]:
    look: dict[str, Any] = {"color": VERMILLION, "label": "population", "ls": "--"}
    points, handles = atoms_of(prior, groups.column), []
    if points is None:
        at = grid_of(prior, groups.column, *np.clip(ends, *prior.support))
        density = _population_density(prior, groups, at)
        top = ax.get_ylim()[1]
        ax.set_ylim(0, max(top, min(ceiling(density), 2 * top)))
        handles += ax.plot(at, density, lw=1.8, **look)
        spike = spike_of(prior)
        points = None if spike is None else (np.array(spike[:1]), np.array(spike[1:]))
        look["label"] = "point of the population"
    elif groups.covariates.size:
        n = len(groups.n)
        points = prior.at(groups.covariates).mean_[:, groups.column], np.full(n, 1 / n)
    if points is not None:
        right = ax.twinx()
        right.vlines(points[0], 0, points[1], color=VERMILLION, lw=1.4, ls="--")
        right.plot(*points, "s", ms=5, color=VERMILLION)
        right.set(ylabel="probability of an atom", ylim=(0, 1.15 * points[1].max()))
        handles += right.plot([], [], marker="s", ms=5, **look)
    return handles


def _population_density(prior: Prior, groups: Groups, at: NDArray) -> NDArray:
    """Density of the population, averaged over the groups' covariates if there are any."""
    if not groups.covariates.size:
        return density_of(prior, groups.column, at)
    from scipy import stats

    there, j = prior.at(groups.covariates), groups.column
    if isinstance(prior, Normal):
        law = stats.norm(there.mean_[:, j], np.sqrt(prior.variance_[j]))
    else:
        law = stats.beta(there.alpha_[:, j], there.beta_[:, j])
    return law.pdf(at[:, None]).mean(axis=1)


def _conditions(prior: Prior, groups: Groups) -> tuple[NDArray, NDArray, NDArray]:
    """Numbers of rows, covariates and shares of the kinds of groups there are."""
    if groups.covariates.size:
        return groups.n, groups.covariates, np.full(len(groups.n), 1 / len(groups.n))
    n, counts = np.unique(groups.n, return_counts=True)
    if len(n) > MOST_SIZES:
        middles = (np.arange(MOST_SIZES) + 0.5) / MOST_SIZES
        n, counts = np.unique(np.quantile(groups.n, middles, method="nearest"), return_counts=True)
    return n, np.empty((len(n), 0)), counts / counts.sum()


def _marginal_density(groups: Groups, at: NDArray) -> NDArray:
    """Density of local means at these places, averaged over the groups."""
    prior = groups.view.prior
    n, covariates, shares = _conditions(prior, groups)
    d = groups.summary.mean.shape[1]
    # nothing is said of the other columns
    values, variances = np.zeros((len(at) * len(n), d)), np.full((len(at) * len(n), d), np.inf)
    values[:, groups.column] = np.repeat(at, len(n))
    noise = groups.view.noise_variance[groups.column]
    variances[:, groups.column] = np.tile(noise / n, len(at))
    if covariates.size:
        prior = prior.at(np.tile(covariates, (len(at), 1)))
    log = prior.log_marginal(Gaussian(values, variances))
    return np.exp(log).reshape(len(at), len(n)) @ shares


def _expected_shares(groups: Groups, edges: NDArray) -> NDArray:
    """Share of local rates that the fit expects between the edges, averaged over the groups."""
    prior = groups.view.prior
    n, covariates, shares = _conditions(prior, groups)
    n = np.minimum(n, MOST_ROWS)
    trials = np.repeat(n, n + 1)
    z = np.concatenate([np.arange(each + 1) for each in n])
    if covariates.size:
        prior = prior.at(np.repeat(covariates, n + 1, axis=0))
    if groups.summary.mean.shape[1] > 1:
        prior = _one_column(prior, groups.column)
    masses = np.exp(prior.log_marginal(Binomial(z[:, None], trials)))
    return np.histogram(z / trials, edges, weights=masses * np.repeat(shares, n + 1))[0]


def _one_column(prior: Prior, column: int) -> Prior:
    """Population of one of several rates."""
    if isinstance(prior, Discrete):
        return Discrete.known(prior.atoms_[:, [column]], prior.weights_)
    one = copy(prior)
    for name in ("mean_", "concentration_"):
        setattr(one, name, getattr(prior, name)[..., [column]])
    return one
