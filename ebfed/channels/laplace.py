"""Laplace noise on the clipped local mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.channels.law import Law
from ebfed.channels.report import PureReport
from ebfed.streams import Stream

__all__ = ["Laplace"]


class Laplace(PureReport):
    """Clip the local mean and add Laplace noise of scale ``(high - low) / epsilon``.

    Parameters
    ----------
    epsilon : float
        Local privacy of the report.
    range : (low, high) or "private", optional
        Range to which local means are clipped.

    References
    ----------
    Dwork, McSherry, Nissim, Smith (2006), Calibrating noise to sensitivity in private data
    analysis.

    Examples
    --------
    >>> from ebfed import Summary
    >>> channel = Laplace(epsilon=1, range=(0, 1))
    >>> channel.variance(Summary.from_rows([0.5], groups=[0])).ravel()
    array([2.])
    """

    def _law(self, n_features: int) -> Law:
        return DoubleExponential(2 / self._epsilon())


@dataclass(frozen=True)
class DoubleExponential(Law):
    """``y = clip(u) + scale * Laplace(1)``."""

    adds_noise: ClassVar[bool] = True

    scale: float

    def draw(self, u: NDArray, sizes: NDArray, stream: Stream) -> NDArray:
        """Add quantiles of uniforms."""
        v = stream.uniforms(*u.shape) - 0.5
        return u - self.scale * np.sign(v) * np.log1p(-2 * np.abs(v))

    def secure(self, u: float, size: int) -> float:
        """Add noise on a grid of floats that leaks nothing."""
        return secure.laplace(u, self.scale)

    def variance(self, u: NDArray, sizes: NDArray) -> NDArray:
        """``2 scale**2``, everywhere."""
        return np.full(u.shape, 2 * self.scale**2)

    def rounded(self, reports: NDArray) -> NDArray:
        """Round to a fiftieth of the scale."""
        return np.rint(reports / (self.scale / 50)) * (self.scale / 50)

    def density(self, reports: NDArray, u: NDArray, sizes: NDArray) -> NDArray:
        """Double exponential around the clipped value."""
        return self._tail(np.abs(reports[:, None] - np.clip(u, -1, 1)))

    def _tail(self, distance: NDArray) -> NDArray:
        return np.exp(-distance / self.scale) / (2 * self.scale)

    def average(
        self, reports: NDArray, means: NDArray, variances: NDArray, sizes: NDArray
    ) -> NDArray:
        """Average over a normal u: clipped tails, and an exponential tilt either side of y."""
        from scipy.special import ndtr

        y, v, b = reports[:, None], variances[:, None], self.scale
        sd, cut = np.sqrt(v), np.clip(y, -1, 1)
        total = ndtr((-1 - means) / sd) * self._tail(np.abs(y + 1))
        total = total + ndtr((means - 1) / sd) * self._tail(np.abs(y - 1))
        for side in (1, -1):  # u below the report, u above it
            tilted = means + side * v / b
            ends = (-1.0, cut) if side > 0 else (cut, 1.0)
            log_mass = _log_normal_mass(*[(end - tilted) / sd for end in ends])
            power = side * (means - y) / b + v / (2 * b**2)
            total = total + np.exp(power + log_mass) / (2 * b)
        return total

    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """Midpoints of fine steps."""
        step = min(self.scale / 40, 1 / 100)
        reach = 1 + 30 * self.scale
        reports = np.arange(-reach, reach, step) + step / 2
        return reports, np.full(len(reports), step)


def _log_normal_mass(low: NDArray, high: NDArray) -> NDArray:
    """``log(Phi(high) - Phi(low))`` without cancellation in either tail."""
    from scipy.special import log_ndtr

    flip = low + high > 0  # the same mass in the lower tail
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    upper, lower = log_ndtr(high), log_ndtr(low)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(low < high, upper + np.log1p(-np.exp(lower - upper)), -np.inf)
