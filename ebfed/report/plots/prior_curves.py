"""A population as something to draw: atoms, or a density on a grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import Discrete, GaussianMixture, Prior
from ebfed.priors.symmetric import Symmetric

__all__ = [
    "atoms_of",
    "ceiling",
    "density_of",
    "draws_of",
    "grid_of",
    "reach",
    "spike_of",
    "steps",
]

NEEDLE = 1e-3  # share of the population's sd below which a component is as good as a point


def atoms_of(prior: Prior, column: int) -> tuple[NDArray, NDArray] | None:
    """Places and probabilities of a population of atoms; None if it has a density."""
    if isinstance(prior, Discrete):
        return prior.atoms_[:, column], prior.weights_
    if isinstance(prior, GaussianMixture):
        variances = prior.variances_[:, column]
        if np.all(variances < NEEDLE**2 * prior.variance_[column]):
            return prior.means_[:, column], prior.weights_
    if prior.variance_[column] == 0:
        return prior.mean_[[column]], np.ones(1)
    return None


def spike_of(prior: Prior) -> tuple[float, float] | None:
    """Place and probability of the point that a population with a density has besides."""
    if not isinstance(prior, Symmetric) or not np.any(prior.scales_ == 0):
        return None
    return float(np.ravel(prior.mode_)[0]), float(prior.weights_[prior.scales_ == 0].sum())


def grid_of(prior: Prior, column: int, low: float, high: float) -> NDArray:
    """Places to draw a density at: even ones, and where it is narrow more."""
    at = np.linspace(low, high, 600)
    if isinstance(prior, GaussianMixture):
        away = np.sqrt(prior.variances_[:, [column]]) * np.linspace(-4, 4, 81)
        at = np.union1d(at, prior.means_[:, [column]] + away)
    if (spike := spike_of(prior)) is not None:  # of which the density knows nothing
        at = at[at != spike[0]]
    return at[(at >= low) & (at <= high)]


def draws_of(prior: Prior, column: int) -> NDArray:
    """Many draws of one coordinate: a distribution to the accuracy of a picture."""
    return prior.sample(2_000_000 // len(prior.mean_), random_state=0)[:, column]


def density_of(prior: Prior, column: int, at: NDArray) -> NDArray:
    """Density of one coordinate on a grid, 0 off the support."""
    if len(prior.mean_) > 1:
        edges = np.linspace(at[0], at[-1], 61)
        draws = draws_of(prior, column)
        counts, _ = np.histogram(draws, edges)
        return np.interp(at, (edges[1:] + edges[:-1]) / 2, counts / np.diff(edges) / len(draws))
    low, high = prior.support
    with np.errstate(divide="ignore"):  # at the ends of its support a beta density may be infinite
        return np.where(
            (at < low) | (at > high), 0.0, np.exp(prior.logpdf(np.clip(at, low, high)[:, None]))
        )


def ceiling(density: NDArray) -> float:
    """Height of the axis: a little above the density, which is cut where it shoots up at an end."""
    inner = len(density) // 20
    return 1.1 * min(float(density.max()), 2 * float(density[inner:-inner].max()))


def reach(priors: list[Prior], column: int) -> tuple[float, float]:
    """Where practically all of the populations lie."""
    ends = []
    for prior in priors:
        mean, sd = prior.mean_[column], np.sqrt(prior.variance_[column])
        atoms = atoms_of(prior, column)
        span = np.array([mean - 4 * sd, mean + 4 * sd]) if atoms is None else atoms[0]
        ends += np.clip([span.min(), span.max()], *prior.support).tolist()
    low, high = min(ends), max(ends)
    return (low, high) if low < high else (low - 1, high + 1)


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
