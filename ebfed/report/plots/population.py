"""Fitted populations, together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ebfed.priors import Prior
from ebfed.report.plots.axes import COLOURS, LINES, MARKERS, open_axes, open_right
from ebfed.report.plots.labels import quantity
from ebfed.report.plots.prior_curves import (
    atoms_of,
    ceiling,
    density_of,
    draws_of,
    grid_of,
    reach,
    spike_of,
    steps,
)
from ebfed.report.view import LocationView, PopulationView, Viewed, view_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_population"]


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
    populations : fitted Prior or estimator, result of posterior_from, or mapping of name to such
    column : int
        Place of the column of `X`, if several were fitted.
    support : tuple of float, optional
        Ends of the horizontal axis; as wide as the populations if None.
    cumulative : bool
        Whether to draw distribution functions, which compare densities and atoms directly.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        If there are both densities and atoms, the probabilities of atoms have an axis on the
        right.

    Examples
    --------
    >>> import ebfed as eb
    >>> y, groups, p = eb.datasets.make_bernoulli_groups(200, 14, random_state=0)
    >>> fits = {
    ...     prior: eb.BernoulliEB(prior=prior).fit(y, groups=groups) for prior in ("beta", "npmle")
    ... }
    >>> ax = plot_population(fits, cumulative=True, ax=eb.report.new_axes()[0])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['beta', 'npmle']
    """
    ax = open_axes(ax)
    if not isinstance(populations, Mapping):
        populations = {"": populations}
    priors = {name: _prior_of(each) for name, each in populations.items()}
    if unknown := [each for each in priors.values() if not isinstance(each, Prior)]:
        raise TypeError(
            f"populations must be fitted priors, or fits of means or rates; got {unknown[0]!r}."
        )
    atoms = {name: atoms_of(prior, column) for name, prior in priors.items()}
    low, high = support or reach(list(priors.values()), column)
    pad = 0.03 * (high - low)
    spikes = {name: spike_of(prior, column) for name, prior in priors.items()}
    dense = [each is None for each in atoms.values()]
    mixed = any(dense) and (not all(dense) or any(spikes.values()))
    stems = open_right(ax) if mixed and not cumulative else ax
    lines, height = [], 0.0
    for k, (name, prior) in enumerate(priors.items()):
        look: dict[str, Any] = {"color": COLOURS[k % 7], "label": name, "lw": 1.6}
        look["ls"] = LINES[k % 7]
        places = atoms[name]
        if cumulative:
            draws = draws_of(prior, column) if places is None else places[0]
            masses = None if places is None else places[1]
            lines += ax.plot(*steps(draws, masses, low - pad, high + pad), **look)
        elif places is None:
            at = grid_of(prior, column, low, high)
            density = density_of(prior, column, at)
            height = max(height, ceiling(density))
            lines += ax.plot(at, density, **look)
            if (spike := spikes[name]) is not None:
                stems.vlines(spike[0], 0, spike[1], color=look["color"], ls=look["ls"], lw=1.6)
                stems.plot(*spike, MARKERS[k % 7], color=look["color"], ms=5)
        else:
            look |= {"ls": "-", "marker": MARKERS[k % 7], "ms": 5}
            stems.vlines(places[0], 0, places[1], color=look["color"], lw=1.6)
            stems.plot(*places, **look | {"ls": ""})
            lines += stems.plot([], [], **look)
    words = {_quantity(each, column) for each in populations.values()}
    ax.set(xlabel=" / ".join(sorted(words)), ylabel="density", xlim=(low - pad, high + pad))
    if height:
        ax.set_ylim(0, height)
    if stems is not ax or not (height or cumulative):
        stems.set_ylabel("probability of an atom")
        stems.set_ylim(bottom=0)
    if cumulative:
        ax.set(ylabel="share of groups at or below", ylim=(0, 1.02))
    if len(lines) > 1 or "" not in populations:
        ax.legend(handles=lines, edgecolor="none", framealpha=0.8, fontsize="small")
    ax.set_title(f"Fitted population{'s' if len(lines) > 1 else ''}", loc="left", fontsize="medium")
    return ax


def _prior_of(fit: Any) -> Any:
    """Return the population of a fit, or what is one."""
    view = view_of(fit) if isinstance(fit, Viewed) else None
    return view.prior if isinstance(view, PopulationView) else fit


def _quantity(population: Any, column: int) -> str:
    """Say what varies between groups, if a fit has words for it."""
    view = view_of(population) if isinstance(population, Viewed) else None
    return quantity(view, column) if isinstance(view, LocationView) else "parameter of a group"
