"""Which parameters of a population the messages leave plausible: lattices of weighted points.

The density of a few parameters is known up to a factor and cheap to compute. The search begins at a
fit, climbs to the peak of the density, and lays a lattice around it. Steps are set by the curvature
at the peak, and points are added wherever the density beside them is not negligible, so that the
lattice is as narrow or as wide as the density. Its points, with their densities as weights, replace
integrals by sums. The result depends on the data alone: nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv, ndtri

__all__ = [
    "TILT",
    "explore",
    "explore_spreads",
    "interval_of",
    "log_prior_of_spread",
    "reweighted",
    "side_by_side",
    "spread_of",
    "student_draws",
    "thinned",
]

# Reference priors are flat in a population's standard deviation, times the fifth root of its share
# of the variance of messages. Flat ones alone have too much of their mass at populations that are
# nearly points: intervals are too narrow where the variance is hardly known (the study
# `ebfed.evaluation.coverage`, 2000 groups of small spread). With a larger power they are too wide
# for 8 to 50 groups.
TILT = 0.2
# Log-densities this far below the highest are negligible.
DEPTH = 10.0
# Step of a lattice, in conditional standard deviations; sums of normal densities at such points
# are integrals to 14 digits. A standard deviation is at most `WIDEST`, whatever the curvature.
STEP, WIDEST = 0.75, 3.0
# Coordinates that end at zero are no nearer to it.
LEAST = 1e-6
# Share of the probability that may be left out of the result.
LEFT_OUT = 1e-3
# A lattice is finer where its points are worth fewer than `FEWEST` of equal weight, or, unless they
# would be too many, where log-densities of neighbours, the higher within `NEAR` of the peak, differ
# by more than `STEEP`.
FEWEST, NEAR, STEEP = 3.0, 2.0, 3.0
# How far below the density at the start the highest point of a lattice may be.
LOST = 0.05
# Most points of a lattice, and how often its steps are changed.
MOST, TRIALS = 6000, 12
# Numbers of steps that are distinguished in a direction.
SIDE = 2**20
# By the number of directions: steps by which a lattice grows at once.
GROWTH = {1: 4, 2: 2, 3: 1}
# Degrees of freedom of Student's t, from which more parameters are proposed.
DEGREES = 6

LogDensity = Callable[[NDArray], NDArray]


def explore(
    log_density: LogDensity, start: ArrayLike, positive: ArrayLike = False
) -> tuple[NDArray, NDArray]:
    """Find weighted points that represent a density of one to three parameters.

    Parameters
    ----------
    log_density : callable
        Function from points, shape (k, p), to log-densities up to a constant, shape (k,): -inf
        outside the support. The density should be smooth over a distance of one, or less where it
        is narrow, and fall to zero in all directions.
    start : array-like of shape (p,)
        Point where the density is high, such as a fit.
    positive : bool array-like that broadcasts to (p,)
        Whether a coordinate ends at zero, where the density may be high.

    Returns
    -------
    points : ndarray of shape (k, p)
    weights : ndarray of shape (k,)
        Positive numbers that sum to 1, largest first.

    Raises
    ------
    ValueError
        If no lattice represents the density: it does not fall, or is not smooth.

    Examples
    --------
    >>> points, weights = explore(lambda x: -0.5 * ((x[:, 0] - 3) / 0.002) ** 2, [1.0])
    >>> mean = weights @ points
    >>> mean.round(4), np.sqrt(weights @ (points - mean) ** 2).round(4)
    (array([3.]), array([0.002]))
    """
    start = np.array(start, float)
    ends = np.broadcast_to(np.asarray(positive, bool), start.shape)
    height, at = _inside(log_density, ends)
    lowest = float(height(start[None])[0]) - LOST
    peak, deviations = _climb(height, at(start))
    steps, crowded = STEP * deviations, False
    for _ in range(TRIALS):
        lattice = _Lattice(at(peak), steps, ends)
        if not lattice.fill(height) or np.isneginf(lattice.values.max()):
            steps, crowded = 2 * steps, True
            continue
        weights, steep = lattice.shares(), lattice.steep() & (not crowded)
        if lattice.values.max() < lowest or weights @ weights > 1 / FEWEST:
            steep[:] = True
        if not steep.any():
            break
        peak = lattice.points[np.argmax(lattice.values)]
        steps = np.where(steep, lattice.steps / 2, lattice.steps)
    else:
        raise ValueError(
            "plausible populations were not found: the density of the population's parameters "
            "does not fall to zero, or is not smooth. X may say too little of the population."
        )
    order = np.argsort(-weights, kind="stable")
    kept = order[: int(np.searchsorted(np.cumsum(weights[order]), 1 - LEFT_OUT)) + 1]
    return lattice.points[kept], weights[kept] / weights[kept].sum()


def explore_spreads(
    height: LogDensity, near: ArrayLike, unit: ArrayLike, least: float = 0.1
) -> tuple[NDArray, NDArray]:
    """Find variances that messages leave plausible, (K, p), and their probabilities.

    From their log-likelihood, a function of shape (k, p) to (k,), the likeliest ones, and standard
    deviations of typical messages, (p,); the search begins at no less than about `least` of these.
    The prior of each is that of `log_prior_of_spread`.

    Examples
    --------
    >>> variances, weights = explore_spreads(lambda v: -8 * v[:, 0], [0.1], [1.0])
    >>> float((weights @ variances[:, 0]).round(2))
    0.09
    """

    def variances(points: NDArray) -> NDArray:
        return (unit * np.sinh(points)) ** 2

    def log_density(points: NDArray) -> NDArray:
        return log_prior_of_spread(points).sum(axis=1) + height(variances(points))

    start = np.clip(np.arcsinh(np.sqrt(near) / unit), least, None)
    points, weights = explore(log_density, start, positive=True)
    return variances(points), weights


def log_prior_of_spread(points: NDArray) -> NDArray:
    """Log-density of the inverse sinh of a standard deviation in units of a typical message's.

    That of a flat prior of the standard deviation, times the fifth root of the share of the
    variance in that of an estimate. Points are positive.

    References
    ----------
    Gelman (2006), Prior distributions for variance parameters in hierarchical models, Bayesian
    Analysis 1, 515-534.
    """
    return np.log(np.cosh(points)) + 2 * TILT * np.log(np.tanh(points))


def _inside(
    log_density: LogDensity, ends: NDArray[np.bool_]
) -> tuple[LogDensity, Callable[[NDArray], NDArray]]:
    """Return a density that is mirrored at ends, and where it has a point."""

    def at(points: NDArray) -> NDArray:
        return np.where(ends, np.maximum(np.abs(points), LEAST), points)

    def height(points: NDArray) -> NDArray:
        with np.errstate(all="ignore"):  # far from the peak, densities have no numbers
            values = log_density(at(points))
        return np.where(np.isnan(values), -np.inf, values)

    return height, at


def reweighted(
    away: NDArray,
    proposed: NDArray,
    place: Callable[[NDArray], NDArray],
    log_density: LogDensity,
    rounds: int,
) -> tuple[NDArray, NDArray]:
    """Represent a density by proposed points, with its quotients to the proposals as weights.

    Each round corrects mean and covariance of the next one's proposals (Cappe, Guillin, Marin,
    Robert 2004, Population Monte Carlo).

    Parameters
    ----------
    away : ndarray of shape (k, p)
        Proposals about zero, of about unit covariance.
    proposed : ndarray of shape (k,)
        Their log-densities.
    place : callable
        Function from moved proposals to the points that they stand for.
    log_density : callable
        Function from points to log-densities up to a constant.
    rounds : int

    Returns
    -------
    points, weights : as of `explore`

    Examples
    --------
    >>> away, proposed, _ = student_draws(256, 1)
    >>> points, weights = reweighted(
    ...     away, proposed, lambda moved: 3 + moved, lambda x: -2 * (x[:, 0] - 3.5) ** 2, 2
    ... )
    >>> mean = weights @ points
    >>> mean.round(2), np.sqrt(weights @ (points - mean) ** 2).round(2)
    (array([3.5]), array([0.5]))
    """
    p = away.shape[1]
    shift, turn = np.zeros(p), np.eye(p)
    for _ in range(rounds):
        moved = shift + away @ turn.T
        points = place(moved)
        logs = log_density(points) - proposed + np.linalg.slogdet(turn)[1]
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        shift = weights @ moved
        spread = (moved - shift).T * weights @ (moved - shift)
        turn = np.linalg.cholesky(spread + 0.05 * np.eye(p))
    order = np.argsort(-weights, kind="stable")
    order = order[: int(np.searchsorted(np.cumsum(weights[order]), 1 - LEFT_OUT)) + 1]
    return points[order], weights[order] / weights[order].sum()


def student_draws(size: int, p: int, more: int = 0) -> tuple[NDArray, NDArray, NDArray]:
    """Draws of a multivariate t from evenly spread points, and these themselves.

    Returns
    -------
    draws : ndarray of shape (size, p)
    logs : ndarray of shape (size,)
        Their log-densities up to a constant.
    uniform : ndarray of shape (size, more)
        More coordinates of the same points, in the unit cube.

    Examples
    --------
    >>> student_draws(1000, 2)[0].var(axis=0).round(1)
    array([1.5, 1.5])
    """
    uniform = _spread_out(size, more + p + 1)
    scale = gammaincinv(DEGREES / 2, uniform[:, -1:]) * 2 / DEGREES
    draws = ndtri(uniform[:, more:-1]) / np.sqrt(scale)
    logs = -(DEGREES + p) / 2 * np.log1p((draws**2).sum(axis=1) / DEGREES)
    return draws, logs, uniform[:, :more]


def _spread_out(size: int, d: int) -> NDArray:
    """Points that fill the unit cube evenly, shape (size, d): multiples of powers of a root.

    The root of ``x**(d + 1) = x + 1`` makes of the golden ratio a sequence in d dimensions (Roberts
    2018, The unreasonable effectiveness of quasirandom sequences).
    """
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (d + 1))
    return (0.5 + np.outer(np.arange(1, size + 1), root ** -np.arange(1.0, d + 1))) % 1


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

    Where several points have one value, they are of a lattice: its values stand for cells around
    them. By Euler and Maclaurin, the probability below the edge between two cells is the sum of
    the weights below it and a 24th of the step of the weights there. Between edges, normal scores
    of these probabilities are straight lines.

    Examples
    --------
    >>> interval_of(np.arange(1000.0), np.full(1000, 1e-3), 0.9)
    (49.5, 949.5)
    >>> at = np.repeat(np.arange(-4, 4.1, 0.75), 2)  # of a normal density
    >>> weights = np.exp(-(at**2) / 2)
    >>> [round(end, 2) for end in interval_of(at, weights / weights.sum(), 0.95)]
    [-1.96, 1.96]
    """
    some = weights > 0
    distinct, place = np.unique(values[some], return_inverse=True)
    weights, ends = np.bincount(place, weights[some]), [(1 - level) / 2, (1 + level) / 2]
    if len(distinct) == 1 or len(distinct) == len(place):
        low, high = np.interp(ends, np.cumsum(weights) - weights / 2, distinct)
        return float(low), float(high)
    below = np.clip(np.cumsum(weights)[:-1] + np.diff(weights) / 24, 1e-12, 1 - 1e-12)
    scores, edges = np.maximum.accumulate(ndtri(below)), (distinct[1:] + distinct[:-1]) / 2
    low, high = np.interp(ndtri(ends), scores, edges)
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


def _climb(height: LogDensity, x: NDArray) -> tuple[NDArray, NDArray]:
    """Climb to a peak by Newton's steps; also return conditional standard deviations there.

    Slopes and curvatures are differences over about a third of a standard deviation, whatever that
    turns out to be. Each round is one call of `height`.
    """
    p = len(x)
    unit = np.eye(p)
    first, second = np.triu_indices(p, 1)
    stencil = np.concatenate([np.zeros((1, p)), unit, -unit, unit[first] + unit[second]])
    size, step = np.full(p, 0.1), np.zeros(p)
    peak, gain = -np.inf, 0.0
    for _ in range(200):
        values = height(x + step + stencil * size)
        if values[0] < peak and gain > 1e-3:  # too long a step
            step, gain = step / 2, gain / 4
            continue
        if values[0] >= peak:
            x, peak = x + step, float(values[0])
        step = np.zeros(p)
        up, down, both = np.split(values[1:], [p, 2 * p])
        # at an end of the support the other side stands for both
        up, down = np.where(np.isneginf(up), down, up), np.where(np.isneginf(down), up, down)
        if not np.isfinite([values[0], *up, *down]).all():
            size = size / 2
            continue
        both = np.where(np.isneginf(both), up[first] + up[second] - values[0], both)
        bend = np.diag(up + down - 2 * values[0])
        bend[first, second] = bend[second, first] = both - up[first] - up[second] + values[0]
        slope = (up - down) / 2 / size
        sizes, axes = np.linalg.eigh(-bend / np.outer(size, size))
        sizes = np.maximum(np.abs(sizes), WIDEST**-2)
        step = np.clip(axes @ ((axes.T @ slope) / sizes), -2.0, 2.0)
        gain = float(slope @ step)
        deviations = (axes**2 @ sizes) ** -0.5
        last, size = size, deviations / 3
        if gain < 0.01 and np.all((size < 2 * last) & (last < 2 * size)):
            break
    return x, 3 * size


class _Lattice:
    """Points ``centre + steps * whole numbers``, laid where a density is not negligible.

    Where a coordinate ends at zero, zero is midway between two points: a lattice that is continued
    beyond the end is its own mirror image, and sums over it are as near to integrals as without an
    end.

    Parameters
    ----------
    peak, steps : ndarray of shape (p,)
        Centre and steps, but for what ends need.
    ends : bool ndarray of shape (p,)
        Whether a coordinate ends at zero.
    """

    def __init__(self, peak: NDArray, steps: NDArray, ends: NDArray):
        self.centre, self.steps, self.ends = peak.copy(), steps.copy(), ends
        cells = np.maximum(np.ceil(peak / steps - 0.5), 0)
        fitting = np.maximum(peak / (cells + 0.5), steps / 2)
        near = ends & (cells < 20)
        self.steps[near] = np.minimum(fitting, steps)[near]
        self.centre[near] = ((cells + 0.5) * self.steps)[near]

    @property
    def points(self) -> NDArray:
        """Points, shape (k, p)."""
        return self.centre + self.numbers * self.steps

    def fill(self, height: LogDensity) -> bool:
        """Find points and their log-densities; return whether they are not too many."""
        p = len(self.centre)
        new = _cube(p, int(4 / STEP))
        new = new[(new**2).sum(axis=1) <= (4 / STEP) ** 2]
        beside = _codes(_cube(p, GROWTH[p])) - _codes(np.zeros((1, p), np.int64))
        self.numbers, self.values = np.empty((0, p), np.int64), np.empty(0)
        known = np.empty(0, np.int64)
        while True:
            within = self.centre + new * self.steps > 0
            new = new[(within | ~self.ends).all(axis=1)]
            if not len(new):
                return True
            if len(self.numbers) + len(new) > MOST:
                return False
            values = height(self.centre + new * self.steps)
            self.numbers = np.concatenate([self.numbers, new])
            self.values = np.concatenate([self.values, values])
            grown = values > self.values.max() - DEPTH
            codes = _codes(new)
            known = np.sort(np.concatenate([known, codes]))
            near = np.unique(codes[grown][:, None] + beside)
            place = np.minimum(np.searchsorted(known, near), len(known) - 1)
            new = _numbers(near[known[place] != near], p)

    def shares(self) -> NDArray:
        """Probability of each point."""
        with np.errstate(under="ignore"):
            shares = np.exp(self.values - self.values.max())
        return shares / shares.sum()

    def steep(self) -> NDArray:
        """Whether the density changes much from point to point, in each direction, shape (p,)."""
        order = np.argsort(_codes(self.numbers))
        codes, values = _codes(self.numbers)[order], self.values[order]
        high = values > values.max() - NEAR
        found = np.zeros(len(self.centre), bool)
        for j, stride in enumerate(SIDE ** np.arange(len(self.centre))[::-1]):
            for there in (codes[high] - stride, codes[high] + stride):
                place = np.minimum(np.searchsorted(codes, there), len(codes) - 1)
                fall = np.where(codes[place] == there, values[high] - values[place], 0.0)
                found[j] |= bool(np.any(np.isfinite(fall) & (fall > STEEP)))
        return found


def _cube(p: int, reach: int) -> NDArray:
    """Whole numbers from -reach to reach in p directions, shape (k, p)."""
    return np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * p, indexing="ij"), -1).reshape(
        -1, p
    )


def _codes(numbers: NDArray) -> NDArray:
    """Return one number for each row of whole numbers, in the order of rows."""
    return (numbers + SIDE // 2) @ SIDE ** np.arange(numbers.shape[1])[::-1]


def _numbers(codes: NDArray, p: int) -> NDArray:
    """Return the rows of p whole numbers that have these codes."""
    return codes[:, None] // SIDE ** np.arange(p)[::-1] % SIDE - SIDE // 2
