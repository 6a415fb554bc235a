"""Symmetric families of one scale around zero: what a slab, or a population, is made of.

For each: its density and distribution function, its draws, and what Gaussian noise of variance s2
makes of it. With u the message less the mode, `log_blurred` is the log-density of u over the peak
``1 / sqrt(2 pi s2)`` of its noise; `parts` are the pieces of the posterior of theta.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, expit, log_ndtr, ndtr

from ebfed.kernels import laplace_slab, normal_slab

__all__ = ["LaplaceSlab", "NormalSlab", "Parts", "Slab"]

Parts = list[tuple[NDArray, NDArray, NDArray, NDArray, int]]
"""Share, anchor less mode, scale, start and side of each piece; see `mixture_below`."""


class NormalSlab:
    """``N(0, scale**2)``."""

    square: ClassVar[float] = 1.0  # variance at scale 1
    fit: ClassVar[Callable[..., NDArray]] = staticmethod(normal_slab)

    @staticmethod
    def logpdf(u: NDArray, scale: NDArray) -> NDArray:
        """Log-density."""
        return -0.5 * (np.log(2 * np.pi * scale**2) + (u / scale) ** 2)

    @staticmethod
    def cdf(u: NDArray, scale: NDArray) -> NDArray:
        """Distribution function."""
        return ndtr(u / scale)

    @staticmethod
    def sample(size: int, rng: np.random.Generator) -> NDArray:
        """Draws at scale 1."""
        return rng.standard_normal(size)

    @staticmethod
    def log_blurred(u: NDArray, s2: NDArray, scale: NDArray) -> NDArray:
        """``log N(u; 0, s2 + scale**2) / N(0; 0, s2)``."""
        total = s2 + scale**2
        return 0.5 * (np.log(s2 / total) - u**2 / total)

    @staticmethod
    def parts(u: NDArray, s2: NDArray, scale: float) -> Parts:
        """One normal: the conjugate posterior."""
        share = scale**2 / (scale**2 + s2)
        one, zero = np.ones(u.shape), np.zeros(u.shape)
        return [(one, share * u, np.sqrt(share * s2), zero, 0)]


class LaplaceSlab:
    """Double exponential, density ``exp(-|theta| / scale) / (2 scale)``."""

    square: ClassVar[float] = 2.0
    fit: ClassVar[Callable[..., NDArray]] = staticmethod(laplace_slab)

    @staticmethod
    def logpdf(u: NDArray, scale: NDArray) -> NDArray:
        """Log-density."""
        return -np.log(2 * scale) - np.abs(u) / scale

    @staticmethod
    def cdf(u: NDArray, scale: NDArray) -> NDArray:
        """Distribution function."""
        tail = 0.5 * np.exp(-np.abs(u) / scale)
        return np.where(u > 0, 1 - tail, tail)

    @staticmethod
    def sample(size: int, rng: np.random.Generator) -> NDArray:
        """Draws at scale 1."""
        return rng.laplace(size=size)

    @staticmethod
    def log_blurred(u: NDArray, s2: NDArray, scale: NDArray) -> NDArray:
        """``log (k / 2) (R(k - z) + R(k + z)) - z**2 / 2``: k = s / scale, z = u / s, R Mills'."""
        s = np.sqrt(s2)
        k, z = np.broadcast_arrays(s / scale, np.abs(u) / s)
        half = 0.5 * z**2
        away = k - z < -5
        near = _log_mills(np.where(away, 0.0, k - z)) - half
        if away.any():  # many errors away z**2 / 2 cancels a square in R, and both are left out
            far, by = k[away], z[away]
            near[away] = far * (0.5 * far - by) + 0.5 * np.log(2 * np.pi) + log_ndtr(by - far)
        return np.log(k / 2) + np.logaddexp(near, _log_mills(k + z) - half)

    @staticmethod
    def parts(u: NDArray, s2: NDArray, scale: float) -> Parts:
        """Two half-line normals, ``N(u - s2 / scale, s2)`` above 0 and its mirror below."""
        s = np.sqrt(s2)
        above, below = s / scale - u / s, s / scale + u / s
        odds = _log_mills(above) - _log_mills(below)
        zero = np.zeros(u.shape)
        return [(expit(odds), zero, s, above, 1), (expit(-odds), zero, s, below, -1)]


Slab = type[NormalSlab] | type[LaplaceSlab]


def _log_mills(t: NDArray) -> NDArray:
    """Log of Mills' ratio ``(1 - Phi(t)) / phi(t)``."""
    high = np.log(np.sqrt(np.pi / 2) * erfcx(np.maximum(t, -5) / np.sqrt(2)))
    low = t < -5
    if low.any():
        at = t[low]
        high[low] = 0.5 * at**2 + 0.5 * np.log(2 * np.pi) + log_ndtr(-at)
    return high
