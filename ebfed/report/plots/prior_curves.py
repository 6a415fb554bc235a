"""A population as something to draw: atoms, or a density on a grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import Prior

MOST_DRAWS = 100_000

__all__ = [
    "atoms_of",
    "ceiling",
    "central",
    "density_of",
    "draws_of",
    "grid_of",
    "reach",
    "spike_of",
    "steps",
]


def atoms_of(prior: Prior, column: int = 0) -> tuple[NDArray, NDArray] | None:
    """Places and probabilities of a discrete population; None if it has a density."""
    places, masses = prior.column(column).points()
    return (places, masses) if masses.sum() > 1 - 1e-9 else None


def spike_of(prior: Prior, column: int = 0) -> tuple[float, float] | None:
    """Place and probability of the point that a population with a density has too."""
    places, masses = prior.column(column).points()
    return (float(places[0]), float(masses[0])) if 0 < masses.sum() <= 1 - 1e-9 else None


def grid_of(prior: Prior, column: int, low: float, high: float) -> NDArray:
    """Places at which to draw a density: even ones, and more where it is narrow."""
    return prior.column(column).grid(low, high)


def draws_of(prior: Prior, column: int) -> NDArray:
    """Many draws of one coordinate: a distribution to the accuracy of a plot."""
    return prior.column(column).sample(2_000_000, random_state=0)[:, 0]


def density_of(prior: Prior, column: int, at: NDArray) -> NDArray:
    """Density of one coordinate on a grid, 0 off the support.

    Of a population at the covariates of groups, the average over the groups.
    """
    low, high = prior.support
    inside = (at >= low) & (at <= high)
    density = np.zeros(len(at))
    with np.errstate(divide="ignore"):  # at the ends of its support a density may be infinite
        values = np.exp(prior.column(column).logpdf(at[inside][:, None]))
    density[inside] = values if values.ndim == 1 else values.mean(axis=0)
    return density


def ceiling(density: NDArray) -> float:
    """Height of the axis: a little above the density, which is cut where it rises at an end."""
    inner = len(density) // 20
    return 1.1 * min(float(density.max()), 2 * float(density[inner:-inner].max()))


def central(prior: Prior, column: int = 0, share: float = 0.999) -> tuple[float, float]:
    """Ends between which this share of the parameters of a population lies."""
    if (atoms := atoms_of(prior, column)) is not None:
        return float(atoms[0].min()), float(atoms[0].max())
    one = prior.column(column)
    # a population at the covariates of n groups gives a parameter of each at a time
    size = len(one.mean_) if one.mean_.ndim > 1 else MOST_DRAWS
    rng = np.random.default_rng(0)
    draws = [one.sample(size, random_state=rng) for _ in range(-(-MOST_DRAWS // size))]
    low, high = np.quantile(np.concatenate(draws)[:, 0], [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


def reach(priors: list[Prior], column: int) -> tuple[float, float]:
    """Range of practically all parameters of the populations."""
    ends: list[float] = []
    for prior in priors:
        mean, sd = prior.mean_[column], np.sqrt(prior.variance_[column])
        ends += central(prior, column)
        if atoms_of(prior, column) is None:
            ends += np.clip([mean - 4 * sd, mean + 4 * sd], *prior.support).tolist()
    low, high = min(ends), max(ends)
    if low < high:
        return low, high
    around = abs(low) / 2 or 1.0
    low, high = np.clip([low - around, high + around], *priors[0].support)
    return float(low), float(high)


def steps(
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
