"""Which parameters of a population the messages leave plausible: lattices of weighted points.

The density of a few parameters is known up to a factor and cheap to compute. A lattice over a wide
box is narrowed, step by step, to where the density is not negligible. The points of the last
lattice, with their densities as weights, replace integrals by sums. The result depends on the data
alone: nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["TILT", "explore", "interval_of", "side_by_side", "spread_of", "thinned"]

# Reference priors are flat in a population's standard deviation, times the fifth root of its share
# of the variance of messages. Flat ones alone have too much of their mass at populations that are
# nearly points: intervals are too narrow where the variance is hardly known (`ebfed study
# coverage`, 2000 groups of small spread). With a larger power they are too wide for 8 to 50 groups.
TILT = 0.2
# Log-densities this far below the highest are negligible.
DEPTH = 12.0
# Points of a lattice in each direction, by the number of directions: while searching, at last.
SIZES = {1: (25, 33), 2: (13, 17), 3: (9, 9)}
# Share of the probability that may be left out of the result, and at each end of a coordinate.
LEFT_OUT, TAIL = 1e-3, 1e-4


def explore(
    log_density: Callable[[NDArray], NDArray], low: NDArray, high: NDArray, start: NDArray
) -> tuple[NDArray, NDArray]:
    """Find weighted points that represent a density of one to three parameters.

    Parameters
    ----------
    log_density : callable
        Function from points, shape (k, p), to log-densities up to a constant, shape (k,). Over a
        distance of one, the density should be smooth somewhere between `low` and `high`.
    low, high : ndarray of shape (p,)
        Ends of the box.
    start : ndarray of shape (p,)
        Point inside the box where the density is high.

    Returns
    -------
    points : ndarray of shape (k, p)
    weights : ndarray of shape (k,)
        Positive numbers that sum to 1, largest first.

    Examples
    --------
    >>> points, weights = explore(
    ...     lambda x: -0.5 * ((x[:, 0] - 3) / 0.2) ** 2, np.zeros(1), np.full(1, 50.0), np.ones(1)
    ... )
    >>> mean = weights @ points
    >>> mean.round(3), np.sqrt(weights @ (points - mean) ** 2).round(3)
    (array([3.]), array([0.2]))
    """
    searching, final = SIZES[len(start)]
    box = np.array([low, high], float)
    start = np.clip(start, low, high)
    peak = float(log_density(start[None])[0])
    for _ in range(30):
        points, step = _lattice(box, searching)
        values = log_density(points)
        best = int(np.argmax(values))
        if values[best] > peak:
            peak, start = float(values[best]), points[best]
        kept = np.vstack([points[values > peak - DEPTH], start])
        narrowed = np.clip([kept.min(axis=0) - step, kept.max(axis=0) + step], box[0], box[1])
        if np.all(np.diff(narrowed, axis=0) > 0.7 * np.diff(box, axis=0)):
            break
        box = narrowed
    weights = _shares(points, values, box)
    for j, at in enumerate(points.T):
        order = np.argsort(at, kind="stable")
        below = np.cumsum(weights[order])
        ends = at[order[np.searchsorted(below, [TAIL, 1 - TAIL])]]
        box[:, j] = np.clip(ends + np.array([-step[j], step[j]]), *box[:, j])
    points, _ = _lattice(box, final)
    weights = _shares(points, log_density(points), box)
    order = np.argsort(-weights, kind="stable")
    n_kept = int(np.searchsorted(np.cumsum(weights[order]), 1 - LEFT_OUT)) + 1
    kept = order[:n_kept]
    return points[kept], weights[kept] / weights[kept].sum()


def side_by_side(found: Sequence[tuple[NDArray, NDArray]]) -> tuple[NDArray, NDArray]:
    """Put weighted points of d independent columns beside each other.

    Parameters
    ----------
    found : sequence of d pairs
        Points of shape (k, p) and weights of shape (k,) of each column, as `explore` finds them.

    Returns
    -------
    points : ndarray of shape (K, p, d)
        K is the largest k; columns with fewer points repeat one that then has no weight.
    weights : ndarray of shape (K, d)

    Examples
    --------
    >>> one, two = np.array([[7.0]]), np.array([[1.0], [2.0]])
    >>> points, weights = side_by_side([(one, np.ones(1)), (two, np.full(2, 0.5))])
    >>> points[:, 0], weights
    (array([[7., 1.],
           [7., 2.]]), array([[1. , 0.5],
           [0. , 0.5]]))
    """
    longest = max(len(weights) for _, weights in found)
    points, weights = [], []
    for at, share in found:
        more = longest - len(share)
        points.append(np.pad(at, ((0, more), (0, 0)), mode="edge"))
        weights.append(np.pad(share, (0, more)))
    return np.stack(points, axis=2), np.stack(weights, axis=1)


def thinned(points: NDArray, weights: NDArray, size: int) -> tuple[NDArray, NDArray]:
    """Represent weighted points by at most `size` of them, one from each slice of probability.

    Slices are along the first coordinate and, where this is equal, the next.

    Examples
    --------
    >>> points, weights = thinned(np.arange(100.0)[:, None], np.full(100, 0.01), 4)
    >>> points.ravel(), weights
    (array([12., 37., 62., 87.]), array([0.25, 0.25, 0.25, 0.25]))
    """
    order = np.lexsort(points.T[::-1])
    middles = (np.arange(size) + 0.5) / size * weights.sum()
    place = np.searchsorted(np.cumsum(weights[order]), middles, side="right")
    picked, times = np.unique(np.minimum(place, len(order) - 1), return_counts=True)
    return points[order[picked]], times / size


def interval_of(values: NDArray, weights: NDArray, level: float) -> tuple[float, float]:
    """Return the equal-tailed interval of weighted points, shape (k,) each.

    Examples
    --------
    >>> interval_of(np.arange(1000.0), np.full(1000, 1e-3), 0.9)
    (49.5, 949.5)
    """
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order]) - weights[order] / 2
    low, high = np.interp([(1 - level) / 2, (1 + level) / 2], below, values[order])
    return float(low), float(high)


def spread_of(values: NDArray, weights: NDArray) -> NDArray:
    """Return the standard deviation over the last axis but one of weighted points.

    Parameters
    ----------
    values : ndarray of shape (..., k, d)
    weights : ndarray of shape (k, d)

    Examples
    --------
    >>> spread_of(np.array([[1.0], [3.0]]), np.full((2, 1), 0.5))
    array([1.])
    """
    centre = (weights * values).sum(axis=-2, keepdims=True)
    return np.sqrt((weights * (values - centre) ** 2).sum(axis=-2))


def _shares(points: NDArray, values: NDArray, box: NDArray) -> NDArray:
    """Probability of each point of a lattice; half a cell lies within the box at each face."""
    with np.errstate(under="ignore"):
        shares = np.exp(values - values.max())
    shares = shares / 2.0 ** ((points <= box[0]) | (points >= box[1])).sum(axis=1)
    return shares / shares.sum()


def _lattice(box: NDArray, size: int) -> tuple[NDArray, NDArray]:
    """Points of an even lattice over a box, shape (size**p, p), and its steps, shape (p,)."""
    axes = [np.linspace(low, high, size) for low, high in box.T]
    points = np.stack([each.ravel() for each in np.meshgrid(*axes, indexing="ij")], axis=1)
    return points, np.diff(box, axis=0)[0] / (size - 1)
