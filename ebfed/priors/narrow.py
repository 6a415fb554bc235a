"""Posteriors of messages that say far more than a population's grid can show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from ebfed.likelihoods import Likelihood
from ebfed.priors.posterior import Posterior

__all__ = ["Around", "NarrowPosterior", "error_of"]

# Nodes lie in even steps of the inverse hyperbolic sine of the distance from an estimate in errors:
# sums over them are exact to 1e-12 for a normal law, and reach far for one of heavy tails.
STEP = 0.1
# Errors that nodes reach at least, and log-likelihood beyond which nothing is left.
REACH, NOTHING = 8.0, -40.0
# Cells beyond which the log-density of a population is taken not to change further.
FAR = 20.0
BLOCK = 2_000_000  # nodes of all clients that are in memory at a time


def error_of(likelihood: Likelihood) -> NDArray[np.float64]:
    """Return the standard error of each local estimate where theta is as estimated, shape (n,).

    Examples
    --------
    >>> from ebfed.likelihoods import Poisson
    >>> error_of(Poisson(np.array([[4], [9]]), np.ones(2)))
    array([2., 3.])
    """
    at: Any = likelihood.local[:, 0]
    return np.sqrt(likelihood.sampling_variance(at, 0.0))


class Around:
    """Log-density of a population around local estimates, over cells in which it hardly bends.

    At the distance t from the estimate of client i it is ``slope_i t + bend_i t**2 / 2``, plus what
    does not depend on t.

    Parameters
    ----------
    slope, bend, cells : ndarray of shape (n,)
    ends : tuple of float
        Ends of the support.
    """

    def __init__(self, slope: NDArray, bend: NDArray, cells: NDArray, ends: tuple[float, float]):
        self.slope, self.bend, self.cells, self.ends = slope, bend, cells, ends

    @classmethod
    def of(
        cls,
        populations: Sequence[Any],
        shares: NDArray,
        likelihood: Likelihood,
        cells: NDArray,
        ends: tuple[float, float],
    ) -> Around:
        """Average the densities of populations, each over that at the estimate, to second order.

        Parameters
        ----------
        populations : sequence of K Prior
        shares : ndarray of shape (K, 1 or n)
            Their probabilities.
        likelihood : Likelihood of n clients
        cells : ndarray of shape (n,)
        ends : tuple of float
        """
        step = cells / 2
        x = np.clip(likelihood.local[:, 0], ends[0] + step, ends[1] - step)
        places = np.clip(np.concatenate([x - step, x, x + step]), *ends)[:, None]
        slope, square = np.zeros(len(x)), np.zeros(len(x))
        for one, share in zip(populations, shares, strict=True):
            before, at, after = one.logpdf(places).reshape(3, -1)
            rise = (after - before) / (2 * step)
            slope += share * rise
            square += share * ((before + after - 2 * at) / step**2 + rise**2)
        # no more than half of the estimate's own: that of a knot is far less
        bend = np.minimum(square - slope**2, 0.5 / error_of(likelihood) ** 2)
        return cls(slope, bend, cells, ends)

    def take(self, own: slice) -> Around:
        """Keep some clients."""
        return Around(self.slope[own], self.bend[own], self.cells[own], self.ends)

    def __call__(self, t: NDArray) -> NDArray:
        """Evaluate it at distances t of shape (n, k)."""
        reach = FAR * self.cells[:, None]
        t = np.clip(t, -reach, reach)
        return t * (self.slope[:, None] + self.bend[:, None] * t / 2)


class NarrowPosterior(Posterior):
    """Posterior of clients whose messages are sharper than the cells of a population's grid.

    Each client has nodes of its own, at which its likelihood is exact.

    Parameters
    ----------
    likelihood : Likelihood of n clients
        Of one coordinate.
    around : Around
        The population.

    Examples
    --------
    >>> from ebfed.likelihoods import Poisson
    >>> counts = Poisson(np.array([[40_000]]), np.full(1, 10_000.0))
    >>> cell = np.full(1, 0.1)
    >>> flat = NarrowPosterior(counts, Around(0 * cell, 0 * cell, cell, (0.0, np.inf)))
    >>> [end.round(4).item() for end in flat.interval()]  # of a gamma distribution of shape 40,001
    [3.961, 4.0394]
    """

    def __init__(self, likelihood: Likelihood, around: Around):
        self.likelihood, self._around = likelihood, around
        self._x, self._error = likelihood.local[:, 0], error_of(likelihood)
        most = int(np.ceil(np.arcsinh(self._reach()) / STEP))
        self._unit = STEP * np.arange(-most, most + 1)
        z = np.sinh(self._unit)
        first, second = self._rows(lambda w: np.stack([w @ z, w @ z**2])).T
        self.mean = (self._x + self._error * first)[:, None]
        self.sd = (self._error * np.sqrt(np.maximum(second - first**2, 0.0)))[:, None]

    def _reach(self) -> float:
        """Errors from the estimates beyond which no likelihood is left, or no support."""
        low, high = self._around.ends
        peak, reach = self.likelihood.log_peak(), REACH
        longest = float(((high - low) / self._error).max(initial=REACH))
        while reach < longest:
            both = self._x[:, None] + self._error[:, None] * np.array([-reach, reach])
            left = self.likelihood.logpdf(np.clip(both, low, high)[:, :, None]) - peak[:, None]
            if not (left[(both > low) & (both < high)] > NOTHING).any():
                break
            reach *= 4
        return reach

    def _logs(self) -> Iterator[NDArray]:
        """Log-masses of the nodes, over that of an even unit at the estimate, (block, k)."""
        z, low, high = np.sinh(self._unit), *self._around.ends
        edges = np.linspace(0, len(self._x), 2 + len(self._x) * len(z) // BLOCK).astype(int)
        for edge in pairwise(edges):
            own = slice(*map(int, edge))
            rows, error = self.likelihood.take(own), self._error[own, None]
            t, ends = error * z, np.array([low, high]) - self._x[own, None]
            logs = rows.logpdf(np.clip(self._x[own, None] + t, low, high)[:, :, None])
            logs += self._around.take(own)(t) + np.log(np.cosh(self._unit))
            # of the cell of a node, the share that is within the support
            first, last = (np.arcsinh(ends / error) / STEP).T[:, :, None]
            place = self._unit / STEP
            share = np.minimum(last, place + 0.5) - np.maximum(first, place - 0.5)
            with np.errstate(divide="ignore"):
                logs += np.log(np.clip(share, 0.0, 1.0))
            yield logs - rows.log_peak()[:, None]

    def _rows(self, figures: Callable[[NDArray], NDArray]) -> NDArray:
        """Figures with clients last, from weights of the nodes; clients first."""
        found = [figures(np.exp(x - logsumexp(x, axis=1, keepdims=True))) for x in self._logs()]
        return np.concatenate(found, axis=-1).T

    def log_integral(self) -> NDArray:
        """Log of the likelihood over the population, over the density at the estimate, (n,)."""
        logs = np.concatenate([logsumexp(logs, axis=1) for logs in self._logs()])
        return self.likelihood.log_peak() + np.log(STEP * self._error) + logs

    def _quantile(self, q: float) -> NDArray:
        if q in (0, 1):
            return np.full(self.mean.shape, self._around.ends[int(q)])
        return self._at(np.full((len(self._x), 1), q))

    def _at(self, q: NDArray) -> NDArray:
        """Values with probabilities q below them, shape (n, k) both."""
        edges, first = [], 0
        for logs in self._logs():
            weights = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
            last = first + len(weights)
            edges.append(_solve(weights, q[first:last]))
            first = last
        unit = self._unit[0] + STEP * np.concatenate(edges)
        return self._x[:, None] + self._error[:, None] * np.sinh(unit)

    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        at = np.broadcast_to(np.asarray(threshold, float), self.mean.shape)[:, 0]
        place = (np.arcsinh((at - self._x) / self._error) - self._unit[0]) / STEP
        found, first = [], 0
        for logs in self._logs():
            weights = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
            last = first + len(weights)
            found.append(_below(weights, place[first:last, None]))
            first = last
        below = np.clip(np.concatenate(found), 0.0, 1.0)
        return below if sign > 0 else 1 - below

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng = np.random.default_rng(random_state)
        return self._at(rng.random((len(self._x), size))).T[:, :, None]


def _cumulated(weights: NDArray) -> NDArray:
    """Probability below each node, shape (n, k): sums of Euler and Maclaurin."""
    padded = np.pad(weights, ((0, 0), (1, 1)))
    return np.cumsum(weights, axis=1) - weights / 2 - (padded[:, 2:] - padded[:, :-2]) / 24


def _below(weights: NDArray, place: NDArray, total: NDArray | None = None) -> NDArray:
    """Probability below places, in steps from the first node, by cubics between the nodes."""
    total = _cumulated(weights) if total is None else total
    place = np.clip(place, 0.0, weights.shape[1] - 1.0)
    j = np.minimum(place.astype(np.int64), weights.shape[1] - 2)
    left, right, start, end = (
        np.take_along_axis(values, j + move, axis=1)
        for values in (weights, total)
        for move in (0, 1)
    )
    u = place - j
    rise = end - start
    return start + u * (left + u * (3 * rise - 2 * left - right + u * (left + right - 2 * rise)))


def _solve(weights: NDArray, q: NDArray) -> NDArray:
    """Places below which there are the probabilities q, shape (n, k)."""
    total = _cumulated(weights)
    low = np.zeros(q.shape)
    high = np.full(q.shape, weights.shape[1] - 1.0)
    for _ in range(50):
        middle = (low + high) / 2
        above = _below(weights, middle, total) >= q
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2
