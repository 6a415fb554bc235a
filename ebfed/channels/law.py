"""Distribution of a report given a local value, in units where the range is [-1, 1]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.streams import Stream

__all__ = ["Law"]


class Law(ABC):
    """The randomisation inside a channel; local values u outside [-1, 1] are clipped first.

    Arrays `sizes` hold the numbers of rows of the clients concerned: some reports are about one of
    n + 1 counts.
    """

    adds_noise: ClassVar[bool] = False
    """Whether a report is the clipped local value plus noise, and so has no bounds."""
    hides: ClassVar[bool] = True
    """Whether several local values inside the range can have one report."""

    @abstractmethod
    def draw(self, u: NDArray, sizes: NDArray, stream: Stream) -> NDArray:
        """Draw reports on local values of shape (n, d): shape (n, d) or (n, d, more)."""

    @abstractmethod
    def secure(self, u: float, size: int) -> float | NDArray:
        """Draw one report from the operating system's randomness."""

    def decode(self, reports: NDArray, sizes: NDArray) -> NDArray:
        """Estimate u without bias, shape (n, d); the report itself, unless a law says otherwise."""
        return reports

    @abstractmethod
    def density(self, reports: NDArray, u: NDArray, sizes: NDArray) -> NDArray:
        """Probability (density) of each report at each local value, shape (n, k)."""

    @abstractmethod
    def average(
        self, reports: NDArray, means: NDArray, variances: NDArray, sizes: NDArray
    ) -> NDArray:
        """`density` averaged over ``u ~ N(means[k], variances[i])``, shape (n, k)."""

    @abstractmethod
    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """Reports and weights such that the sum of ``weight * density`` over them is one."""

    def bits(self, sizes: NDArray) -> NDArray:
        """Bits of one report on one coordinate, shape (n,): those of a number, if not said."""
        return np.full(len(sizes), 64.0)

    def check(self, reports: NDArray, sizes: NDArray) -> None:
        """Raise a ValueError if reports, of shape (n, d), are beyond all that `draw` returns.

        Noise has no bounds; it is taken to stay within twice the reach of `outcomes`.
        """
        found = self.outcomes(0)[0].astype(float)
        low, high = found.min(), found.max()
        # outcomes of a density are the middles of steps
        slack = (high - low) * (0.5 if self.adds_noise else 1 / len(found))
        self._check_between(reports, low - slack, high + slack)

    @staticmethod
    def _check_between(reports: NDArray, low: ArrayLike, high: ArrayLike) -> None:
        if not ((reports >= low) & (reports <= high)).all():
            raise ValueError("report must be one that the channel can send.")

    def rounded(self, reports: NDArray) -> NDArray:
        """Reports without the digits that make no difference."""
        return reports

    def variance(self, u: NDArray, sizes: NDArray) -> NDArray:
        """Variance of `decode` at local values of shape (n, d), shape (n, d)."""
        result = np.empty_like(u)
        for size in np.unique(sizes):
            at = sizes == size
            reports, weights = self.outcomes(int(size))
            same = np.full(len(reports), size)
            values, codes = np.unique(u[at], return_inverse=True)
            density = self.density(reports, values, same)
            decoded = self.decode(reports[:, None], same)[:, 0]
            spread = (weights * (decoded[:, None] - values).T ** 2 * density.T).sum(axis=1)
            result[at] = spread[codes].reshape(u[at].shape)
        return result
