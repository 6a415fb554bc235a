"""Discrete Gaussian noise on a grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.channels.law import Law
from ebfed.channels.levels import Levels
from ebfed.channels.report import Report, check_report_epsilon
from ebfed.privacy import events
from ebfed.privacy.calibration import check_count, check_delta
from ebfed.privacy.discrete_gaussian import discrete_gaussian_sigma
from ebfed.streams import Stream

__all__ = ["DiscreteGaussian"]

# Noise is drawn from a table of its probabilities.
MOST_NOISE = 1e5
MOST_LEVELS = 2**16


class DiscreteGaussian(Report):
    """Round the local mean at random to a grid, and add discrete Gaussian noise.

    A report is a whole number: as private as Gaussian noise, cheap to send, and exact in finite
    arithmetic.

    Parameters
    ----------
    epsilon, delta : float
    range : (low, high) or "private", optional
        Range to which local means are clipped.
    levels : int
        Number of points of the grid. Rounding adds at most a quarter of a squared step to the
        variance.

    References
    ----------
    Canonne, Kamath, Steinke (2020), The discrete Gaussian for differential privacy; Ozkara, Girgis,
    Data, Diggavi (2023), Remark 4.

    Examples
    --------
    >>> from ebfed import Summary
    >>> summary = Summary.from_rows([0.1, 0.5, 0.9], groups=[0, 1, 2])
    >>> channel = DiscreteGaussian(epsilon=4, delta=1e-6, range=(0, 1), levels=9)
    >>> channel.encode(summary, rng=0)["report"].dtype
    dtype('int64')
    """

    whole = True

    def __init__(self, epsilon: float, delta: float, range: Any = None, *, levels: int = 65):
        self.epsilon = epsilon
        self.delta = delta
        self.range = range
        self.levels = levels

    def _law(self, n_features: int) -> Law:
        epsilon, delta = check_report_epsilon(self.epsilon), check_delta(self.delta)
        levels = check_count("levels", self.levels)
        if not 2 <= levels <= MOST_LEVELS:
            raise ValueError(f"levels must be from 2 to {MOST_LEVELS:,}; got {levels}.")
        sigma = _sigma(epsilon, delta, levels - 1, n_features)
        if sigma > MOST_NOISE:
            raise ValueError(
                f"epsilon={self.epsilon!r} and delta={self.delta!r} need noise of {sigma:.2g} "
                f"steps of the grid, more than {MOST_NOISE:g}: give a larger epsilon, or fewer "
                f"levels than {levels}."
            )
        return IntegerNoise(levels, sigma)

    def guarantee(self, n_features: int = 1) -> tuple[float, float]:
        return check_report_epsilon(self.epsilon), check_delta(self.delta)

    def event(self, n_features: int = 1) -> Any:
        law = self._law(n_features)
        assert isinstance(law, IntegerNoise)
        return events.concentrated(n_features * (law.levels - 1) ** 2 / (2 * law.sigma**2))


_sigma = lru_cache(maxsize=1024)(discrete_gaussian_sigma)  # asked again for every message


@dataclass(frozen=True)
class IntegerNoise(Levels):
    """Level plus noise with mass proportional to ``exp(-k**2 / (2 sigma**2))`` on the integers."""

    adds_noise: ClassVar[bool] = True

    levels: int
    sigma: float

    @cached_property
    def _masses(self) -> tuple[int, NDArray]:
        reach = int(np.ceil(12 * self.sigma)) + 1  # beyond lies less than 1e-30
        masses = np.exp(-0.5 * (np.arange(-reach, reach + 1) / self.sigma) ** 2)
        return reach, masses / masses.sum()

    def _randomise(self, level: NDArray, count: NDArray, stream: Stream) -> NDArray:
        reach, masses = self._masses
        draws = stream.uniforms(*level.shape)
        return level + np.searchsorted(np.cumsum(masses)[:-1], draws) - reach

    def _randomise_secure(self, level: int, count: int) -> float:
        return secure.integer_gaussian(level, self.sigma)

    def _table(self, reports: NDArray, count: int) -> NDArray:
        away = (reports[:, None] - np.arange(count)) / self.sigma
        total = np.exp(-0.5 * (np.arange(-self._masses[0], self._masses[0] + 1) / self.sigma) ** 2)
        return np.exp(-0.5 * away**2) / total.sum()

    def _level(self, reports: NDArray, count: NDArray) -> NDArray:
        return reports

    def rounded(self, reports: NDArray) -> NDArray:
        """Round to a fiftieth of the noise, where that is more than a step of the grid."""
        step = max(self.sigma / 50, 1.0)
        return np.rint(reports / step) * step

    def variance(self, u: NDArray, sizes: NDArray) -> NDArray:
        """Variance of the noise, and of rounding to the grid."""
        reach, masses = self._masses
        noise = masses @ np.arange(-reach, reach + 1) ** 2
        share = np.mod((u + 1) / 2 * (self.levels - 1), 1)
        return (noise + share * (1 - share)) * (2 / (self.levels - 1)) ** 2

    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """All whole numbers within reach, by steps of a tenth of the noise."""
        step = max(int(self.sigma / 10), 1)
        reach = int(9 * self.sigma) + 1
        reports = np.arange(-reach, self.levels + reach, step)
        return reports, np.full(len(reports), float(step))

    def bits(self, sizes: NDArray) -> NDArray:
        """Number of bits for all numbers but one in 1e30."""
        return np.full(len(sizes), np.ceil(np.log2(self.levels + 2 * self._masses[0])))
