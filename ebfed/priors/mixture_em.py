"""EM for mixtures of Gaussians that are seen through Gaussian noise, in few passes over the rows.

A mixture's density of a row x with noise V is a log-linear function of x and its squares,

    log w_l N(x; mu_l, S_l + V) = a_l + x'(mu_l P_l) - (x * x)'P_l / 2,    P_l = 1 / (S_l + V).

So rows of the same noise need one product with a matrix for the densities of all components, and
one for the sums that the maximum needs; the rows go through the processor's cache once per step.
Where columns share their variances, a single column holds the sum of the squares.

EM converges slowly where components overlap. Its steps are extrapolated by Anderson's method
(Walker and Ni 2011; Henderson and Varadhan 2019, on EM): the combination of the last points whose
steps cancel best, in the metric of the complete data. An extrapolation that loses likelihood is
undone, and the step of EM taken instead.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Mixture",
    "SortedMessages",
    "climb",
    "kmeans",
    "levels",
    "log_joint",
    "log_sum",
    "start",
]

BLOCK = 2048  # rows that stay in the cache
RUN = 16  # rows of equal noise, on average, from which products of matrices are worth their calls
DEPTH = 8  # steps that are extrapolated


class Mixture(NamedTuple):
    """Weights (k,), centres (k, d) and variances (k, d) of the components."""

    weights: NDArray
    means: NDArray
    variances: NDArray


class SortedMessages(NamedTuple):
    """Messages, those of equal noise next to each other."""

    values: NDArray
    counts: NDArray
    noise: NDArray  # variances of each level, (n_levels, d)
    level: NDArray
    ends: NDArray  # where each level begins, and the last one ends
    features: NDArray  # values, then their squares or the sum of these

    @classmethod
    def of(
        cls, values: NDArray, variances: NDArray, counts: NDArray, shared: bool
    ) -> SortedMessages:
        """Sort; `shared` says that the columns of a component have one variance."""
        noise, level = levels(variances)
        if len(noise) > 1:
            order = np.argsort(level, kind="stable")
            values, counts, level = values[order], counts[order], level[order]
        ends = np.append(np.flatnonzero(np.diff(level, prepend=-1)), len(level))
        alike = shared and bool(np.all(noise == noise[:, :1]))
        noise = np.broadcast_to(noise, (len(noise), values.shape[1]))
        squares = np.einsum("ij,ij->i", values, values)[:, None] if alike else values**2
        return cls(values, counts, noise, level, ends, np.hstack([values, squares]))

    @property
    def n_squares(self) -> int:
        """Number of columns of squares: d, or 1 if all columns are alike."""
        return self.features.shape[1] - self.values.shape[1]

    def weighted(self, counts: NDArray) -> SortedMessages:
        """Count each message so often, and leave out those that nobody sent."""
        if np.array_equal(counts, self.counts):
            return self
        return self._replace(counts=counts).take(np.flatnonzero(counts))

    def take(self, index: NDArray) -> SortedMessages:
        """Keep the messages in these increasing positions."""
        level = self.level[index]
        ends = np.searchsorted(level, np.arange(len(self.noise) + 1))
        return SortedMessages(
            self.values[index], self.counts[index], self.noise, level, ends, self.features[index]
        )


def levels(variances: NDArray) -> tuple[NDArray, NDArray]:
    """Different rows of variances, and which of them each client has."""
    _, first, level = np.unique(variances[:, 0], return_index=True, return_inverse=True)
    noise = variances[first]
    if variances.shape[1] > 1 and not all(
        np.array_equal(column, own[level]) for column, own in zip(variances.T, noise.T, strict=True)
    ):
        noise, level = np.unique(variances, axis=0, return_inverse=True)
    return noise, level.ravel()


def log_sum(values: NDArray) -> NDArray:
    """Log of the sum of exponentials of each row."""
    top = values.max(axis=1)
    top = np.where(np.isinf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return top + np.log(np.exp(values - top[:, None]).sum(axis=1))


def log_joint(values: NDArray, noise: NDArray, level: NDArray, mixture: Mixture) -> NDArray:
    """``log w_l N(x_i; mu_l, S_l + V_i)``, shape (n, k)."""
    joint = np.empty((len(values), len(mixture.weights)))
    with np.errstate(divide="ignore"):
        logs = np.log(mixture.weights)
    for column, log, mean, variance in zip(joint.T, logs, *mixture[1:], strict=True):
        total = noise + variance
        has_data = np.isfinite(total)
        height = log - 0.5 * np.log(np.where(has_data, 2 * np.pi * total, 1.0)).sum(axis=1)
        precision = np.where(has_data, 1 / total, 0.0)
        # logs and quotients of levels only: clients have few different sizes
        precision = precision[level] if len(noise) > 1 else np.broadcast_to(precision, values.shape)
        away = values - mean
        away *= away
        column[:] = height[level] - 0.5 * np.einsum("ij,ij->i", away, precision)
    return joint


def start(table: SortedMessages, k: int, shared: bool, least: NDArray, rng: Any) -> Mixture:
    """Centres by k-means++, and one variance for all: what noise does not explain around them."""
    from sklearn.cluster import kmeans_plusplus

    values, counts = table.values, table.counts
    means, _ = kmeans_plusplus(values, k, sample_weight=counts, random_state=rng)
    nearest = np.argmin((means**2).sum(axis=1)[:, None] - 2 * means @ values.T, axis=0)
    share = counts / counts.sum()
    around = share @ (values - means[nearest]) ** 2
    noise = np.bincount(table.level, share, len(table.noise)) @ table.noise
    variance = np.maximum(around - noise, 0.1 * around)
    if shared:
        variance = np.full_like(variance, variance.mean())
    variances = np.tile(np.maximum(variance, least), (k, 1))
    return Mixture(np.full(k, 1 / k), means, variances)


def climb(
    table: SortedMessages, mixture: Mixture, shared: bool, least: NDArray, tol: float, steps: int
) -> tuple[Mixture, NDArray]:
    """EM until two steps gain less than `tol` of the log-likelihood; returns mixture and path."""
    path: list[float] = []
    history = _History(table, shared, least)
    sure, small = mixture, 0
    while len(path) < steps:
        evidence, sums = _expected(table, mixture)
        if path and evidence < path[-1] and mixture is not sure:
            mixture = sure
            history.forget()
            continue
        path.append(evidence)
        if len(path) > 1:
            small = small + 1 if path[-1] - path[-2] < tol * (1 + abs(path[-1])) else 0
            if small == 2 or path[-1] <= path[-2]:
                break
        sure = _maximised(table, mixture, sums, shared, least)
        mixture = history.extrapolate(mixture, sure)
    return mixture, np.array(path)


class _History:
    """The last points and steps of EM, from which to extrapolate."""

    def __init__(self, table: SortedMessages, shared: bool, least: NDArray):
        self.noise = np.average(table.noise, axis=0, weights=np.diff(table.ends))
        self.shared, self.least = shared, least
        self.forget()

    def forget(self) -> None:
        self.points: list[NDArray] = []
        self.moves: list[NDArray] = []

    def extrapolate(self, mixture: Mixture, after: Mixture) -> Mixture:
        """Return where EM goes from here; it goes to `after` in one step."""
        here = self._free(mixture)
        self.points.append(here)
        self.moves.append(self._free(after) - here)
        if len(self.points) == 1:
            return after
        del self.points[: -DEPTH - 1], self.moves[: -DEPTH - 1]
        metric = self._metric(after)
        points, moves = np.diff(self.points, axis=0).T, np.diff(self.moves, axis=0).T
        share = np.linalg.lstsq(metric[:, None] * moves, metric * self.moves[-1], rcond=1e-7)[0]
        return self._mixture(here + self.moves[-1] - (points + moves) @ share, after)

    def _free(self, mixture: Mixture) -> NDArray:
        variances = mixture.variances[:, :1] if self.shared else mixture.variances
        logs = np.log(np.maximum(mixture.weights, 1e-300))
        return np.concatenate([logs, mixture.means.ravel(), variances.ravel()])

    def _metric(self, mixture: Mixture) -> NDArray:
        """Root of the information of complete data, one number for each free parameter."""
        weight, k = mixture.weights[:, None], len(mixture.weights)
        precision = 1 / np.maximum(mixture.variances + self.noise, 1e-300)
        bend = precision**2 / 2
        bend = bend.sum(axis=1, keepdims=True) if self.shared else bend
        parts = (weight, weight * precision, weight * bend)
        return np.sqrt(np.concatenate([part.reshape(k, -1).ravel() for part in parts]))

    def _mixture(self, free: NDArray, like: Mixture) -> Mixture:
        k, d = like.means.shape
        logs, means, variances = np.split(free, [k, k + k * d])
        weights = np.exp(logs - logs.max())
        variances = np.maximum(variances.reshape(k, -1), self.least[: len(variances) // k])
        variances = np.broadcast_to(variances, (k, d)).copy()
        return Mixture(weights / weights.sum(), means.reshape(k, d), variances)


def _expected(table: SortedMessages, mixture: Mixture) -> tuple[float, NDArray]:
    """Log-likelihood, and what the maximum needs of the rows.

    Returns
    -------
    evidence : float
    sums : ndarray of shape (k, n_levels, n_features + 1)
        Expected sums of the features of each component and level, and of clients.
    """
    from scipy.sparse import csr_array

    (n, width), k = table.features.shape, len(mixture.weights)
    sums = np.zeros((k, len(table.noise), width + 1))
    if n < RUN * len(table.noise):
        joint = log_joint(table.values, table.noise, table.level, mixture)
        logs = log_sum(joint)
        shares = table.counts[:, None] * np.exp(joint - logs[:, None])
        for own, share in zip(sums, shares.T, strict=True):
            # a row for each level: sums are sparse products
            each = csr_array((share, np.arange(n), table.ends))
            own[:, :-1], own[:, -1] = each @ table.features, each.sum(axis=1)
        return float(table.counts @ logs), sums
    slopes, heights = _log_linear(table, mixture)
    evidence: Any = 0.0
    joint, top, total = np.empty((k, BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    for level, (begin, end) in enumerate(pairwise(table.ends)):
        for at in range(begin, end, BLOCK):
            place = slice(at, min(at + BLOCK, end))
            rows, counts = table.features[place], table.counts[place]
            m = len(rows)
            block = np.matmul(slopes[level], rows.T, out=joint[:, :m] if m == BLOCK else None)
            block += heights[level]
            high = np.max(block, axis=0, out=top[:m])
            block -= high
            np.exp(block, out=block)
            each = np.sum(block, axis=0, out=total[:m])
            evidence += counts @ (high + np.log(each))
            block *= counts / each
            sums[:, level, :-1] += block @ rows
            sums[:, level, -1] += block.sum(axis=1)
    return float(evidence), sums


def _log_linear(table: SortedMessages, mixture: Mixture) -> tuple[NDArray, NDArray]:
    """Densities of each level as linear functions of features: slopes (k, f), heights (k, 1)."""
    total = table.noise[:, None, :] + mixture.variances
    slopes = np.empty((*total.shape[:2], table.features.shape[1]))
    d = total.shape[2]
    np.divide(mixture.means, total, out=slopes[:, :, :d])
    slopes[:, :, d:] = -0.5 / total[:, :, : table.n_squares]
    heights = np.log(2 * np.pi * total).sum(axis=2) + (mixture.means * slopes[:, :, :d]).sum(axis=2)
    with np.errstate(divide="ignore"):
        return slopes, (np.log(mixture.weights) - 0.5 * heights)[:, :, None]


def _maximised(
    table: SortedMessages, mixture: Mixture, sums: NDArray, shared: bool, least: NDArray
) -> Mixture:
    """Weights, centres and variances given the expected sums of each component.

    Centres are weighted by precision, and variances take up to three steps of scoring, or where
    these would lose likelihood the step of EM with theta missing too, which cannot. With one level
    of noise, the first step is the maximum.
    """
    d, c = table.values.shape[1], table.n_squares
    values, squares, n = sums[:, :, :d], sums[:, :, d:-1], sums[:, :, -1:]
    total = n.sum(axis=(1, 2))
    alive = total > 1e-9 * total.sum()
    noise, means, variance = table.noise[:, :c], mixture.means, mixture.variances[:, None, :c]
    # around the current centres: k components, levels of noise, columns
    at = means[:, None]
    first = values - n * at
    second = squares - _columns((2 * first + n * at) * at, c)
    size = n * (d // c)  # numbers behind each column of squares

    def over_levels(figures: NDArray) -> NDArray:
        summed = figures.sum(axis=1, keepdims=True)
        return (
            np.broadcast_to(summed.sum(axis=2, keepdims=True), summed.shape) if shared else summed
        )

    def height(variance: NDArray, square: NDArray) -> NDArray:
        between = noise + variance
        return -over_levels(size * np.log(between) + square / between)

    with np.errstate(divide="ignore", invalid="ignore"):  # of components without any rows
        for _ in range(min(len(noise), 3)):
            precision = 1 / (noise + variance)
            weight = n * precision
            shift = (first * precision).sum(axis=1) / weight.sum(axis=1)
            square = second - _columns((2 * first - n * shift[:, None]) * shift[:, None], c)
            square = np.maximum(square, 0.0)
            weight = size * precision
            slope = over_levels(precision**2 * square - weight)
            scored = np.maximum(variance + slope / over_levels(weight * precision), least[:c])
            whole = over_levels(np.broadcast_to(size, square.shape))
            sure = np.maximum(variance + variance**2 * slope / whole, least[:c])
            better = height(scored, square) >= height(variance, square)
            variance = np.where(better, scored, sure)
    return Mixture(
        total / total.sum(),
        np.where(alive[:, None], means + shift, means),
        np.where(alive[:, None], variance[:, 0], mixture.variances),
    )


def _columns(sums: NDArray, c: int) -> NDArray:
    """All columns, or their sum as the only one."""
    return sums.sum(axis=2, keepdims=True) if c < sums.shape[2] else sums


LLOYD = 300  # steps of k-means, at most


def kmeans(values: NDArray, k: int, rng: Any) -> tuple[NDArray, NDArray]:
    """Cluster rows: k-means++ (Arthur and Vassilvitskii 2007) and Lloyd's steps.

    Returns
    -------
    labels : int ndarray of shape (n,)
    centres : ndarray of shape (k, d)
    """
    from sklearn.cluster import kmeans_plusplus

    centre = values.mean(axis=0)  # around which squares lose no digits
    values = values - centre
    centres, _ = kmeans_plusplus(values, k, random_state=rng)
    labels = np.full(len(values), -1)
    for _ in range(LLOYD):
        nearest = np.argmin((centres**2).sum(axis=1) - 2 * values @ centres.T, axis=1)
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        members = labels[:, None] == np.arange(k)
        count = members.sum(axis=0)
        # a cluster that lost all its rows keeps its centre
        means = members.T.astype(float) @ values / np.maximum(count, 1)[:, None]
        centres = np.where(count[:, None] > 0, means, centres)
    return labels, centre + centres
