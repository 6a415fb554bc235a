"""Posterior whose every client has a mixture of points, normals and half-line normals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr, ndtri_exp

from ebfed.kernels import mixture_below, mixture_quantiles
from ebfed.likelihoods import Likelihood
from ebfed.priors.posterior import Posterior

__all__ = ["NOTHING", "N_NORMALS", "Components", "MixturePosterior"]

FEW = 16  # components that are compared one by one
NOTHING = 1e-14  # probability of a component that is none
N_NORMALS = 20  # that a t error is a mixture of, usually


@dataclass(frozen=True)
class Components:
    """Component k of client i is ``anchors + scales * U``.

    U is standard normal where ``sides[k]`` is 0, else it is ``sides[k] * (Z - starts)`` given ``Z >
    starts``: the normal cut at its anchor. A scale of zero makes it a point.

    Attributes
    ----------
    weights, anchors, scales, starts : ndarray of shape (k, n)
    sides : int64 ndarray of shape (k,)
    """

    weights: NDArray
    anchors: NDArray
    scales: NDArray
    starts: NDArray
    sides: NDArray

    def arrays(self, sign: int = 1) -> tuple[NDArray, NDArray, NDArray, NDArray, NDArray]:
        """All of them, as the kernels take them; those of -theta if `sign` is -1."""
        return self.weights, sign * self.anchors, self.scales, self.starts, sign * self.sides

    def moments(self) -> tuple[NDArray, NDArray]:
        """Mean and variance of each client's mixture, each of shape (n,)."""
        means, spreads = self.anchors.copy(), self.scales**2
        for k in np.flatnonzero(self.sides):
            excess, spread = _excess_moments(self.starts[k])
            means[k] += self.sides[k] * self.scales[k] * excess
            spreads[k] *= spread
        mean = (self.weights * means).sum(axis=0)
        return mean, (self.weights * (spreads + (means - mean) ** 2)).sum(axis=0)

    def pick(self, size: int, rng: np.random.Generator) -> NDArray:
        """Draw a component of each client's mixture, shape (size, n)."""
        below = np.cumsum(self.weights, axis=0)
        uniform = rng.random((size, 1, below.shape[1])) * below[-1]
        if len(below) <= FEW:
            return np.minimum((uniform > below).sum(axis=1), len(below) - 1)
        pairs = zip(below.T, uniform[:, 0].T, strict=True)
        picked = np.stack([np.searchsorted(*pair) for pair in pairs], axis=1)
        return np.minimum(picked, len(below) - 1)

    def sample(self, size: int, rng: np.random.Generator) -> NDArray:
        """Draw from each client's mixture, shape (size, n)."""
        picked = self.pick(size, rng)
        anchor, scale, start = (
            np.take_along_axis(each, picked, axis=0)
            for each in (self.anchors, self.scales, self.starts)
        )
        side = self.sides[picked]
        normal = rng.standard_normal(picked.shape)
        if np.any(side):
            draws = _draw_excess(start, rng.random(picked.shape))
            normal = np.where(side == 0, normal, side * draws)
        return anchor + scale * normal


class MixturePosterior(Posterior):
    """Posterior of a mixture of points, normals or Laplaces, under normal or t errors.

    All figures are exact; quantiles are roots of the mixture's distribution function, to 1e-12 of
    the standard deviation. Components are formed a block of clients at a time, so memory stays
    bounded for millions of clients.

    Parameters
    ----------
    components : callable
        Function from a likelihood to the `Components` of its rows.
    n_components : int
    likelihood : Gaussian or StudentT likelihood of n clients, on the line
    """

    _has_points = True

    def __init__(
        self,
        components: Callable[[Any], Components],
        n_components: int,
        likelihood: Likelihood,
    ):
        self.components, self.n_components, self.likelihood = components, n_components, likelihood
        moments = [block.moments() for block in self._blocks()]
        self.mean = np.concatenate([mean for mean, _ in moments])[:, None]
        self.sd = np.sqrt(np.concatenate([variance for _, variance in moments]))[:, None]

    def _blocks(self) -> Iterator[Components]:
        n_blocks = 1 + len(self.likelihood) * self.n_components // 200_000
        return map(self.components, self.likelihood.split(n_blocks))

    def _quantile(self, q: float) -> NDArray:
        if q in (0, 1):  # normals reach to infinity; points do not
            return np.where(self.sd > 0, np.inf if q else -np.inf, self.mean)
        # in the lower half, where small probabilities keep their digits
        sign = 1 if q <= 0.5 else -1
        values, first = [], 0
        for block in self._blocks():
            last = first + block.weights.shape[1]
            mean, sd = sign * self.mean[first:last, 0], self.sd[first:last, 0]
            found = mixture_quantiles(min(q, 1 - q), mean, sd, *block.arrays(sign))
            values.append(sign * found)
            first = last
        return np.concatenate(values)[:, None]

    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        at = sign * np.array(np.broadcast_to(threshold, self.mean.shape)[:, 0], float)
        below, first = [], 0
        for block in self._blocks():
            last = first + block.weights.shape[1]
            below.append(mixture_below(at[first:last], *block.arrays(sign)))
            first = last
        return np.minimum(np.concatenate(below), 1.0)[:, None]

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng = np.random.default_rng(random_state)
        return np.hstack([block.sample(size, rng) for block in self._blocks()])[:, :, None]


def _draw_excess(start: NDArray, uniform: NDArray) -> NDArray:
    """Draw ``Z - start`` given ``Z > start``, by inversion of the log survival function of Z.

    Beyond 1e4, where that function has too few digits, ``Z**2 - start**2`` is twice an exponential
    variable, to ``start**-2``.
    """
    log_tail = np.log1p(-uniform)
    near = np.maximum(-ndtri_exp(log_tail + log_ndtr(-start)) - start, 0.0)
    far = np.maximum(start, 1e4)
    beyond = -2 * log_tail / (far + np.sqrt(far**2 - 2 * log_tail))
    return np.where(start > 1e4, beyond, near)


def _excess_moments(start: NDArray) -> tuple[NDArray, NDArray]:
    """Mean and variance of ``Z - start`` given ``Z > start``.

    From the inverse Mills ratio l: ``l - start`` and ``1 - l (l - start)``; beyond 4, where these
    cancel, by the continued fraction ``l = start + 1/(start + 2/(start + 3/(start + …)))``.
    """
    near = np.minimum(start, 4.0)
    inverse = np.sqrt(2 / np.pi) / erfcx(near / np.sqrt(2))
    mean, variance = inverse - near, 1 - inverse * (inverse - near)
    far = start > 4
    if far.any():
        at = start[far]
        third = at
        for j in range(40, 3, -1):
            third = at + j / third
        second = at + 3 / third
        first = at + 2 / second
        mean[far] = 1 / first
        variance[far] = (at + 4 / second - 3 / third) / (first**2 * second)
    return mean, variance
