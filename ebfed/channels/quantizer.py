"""k bits per coordinate: stochastic rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels.law import Law
from ebfed.channels.levels import Levels, normal_hats
from ebfed.channels.report import Report
from ebfed.privacy.calibration import check_count
from ebfed.streams import Stream

__all__ = ["Quantizer"]


class Quantizer(Report):
    """Send the local mean in k bits, rounded at random to one of ``2**k`` even steps.

    Unbiased on its range, with variance at most ``b**2 / (2**k - 1)**2`` for a range of half-width
    b, and none at the steps themselves. It hides nothing: communication is what it saves.

    Parameters
    ----------
    bits : int
        Number of bits, at most 24. With one bit, messages do not show the spread of a population.
    range : (low, high), optional
        Range to which local means are clipped, each a number or one per column.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), eq. (20).

    Examples
    --------
    >>> from ebfed import Summary
    >>> summary = Summary.from_rows([0.1, 0.35, 0.9], groups=[0, 1, 2])
    >>> channel = Quantizer(bits=2, range=(0, 1))
    >>> message = channel.encode(summary, rng=0)
    >>> message["report"].ravel()
    array([0, 1, 2])
    >>> channel.decode(message).ravel()
    array([0.    , 0.3333, 0.6667])
    """

    whole = True

    def __init__(self, bits: int, range: Any = None):
        self.bits = bits
        self.range = range

    bits: float = 1  # the argument: a plain attribute  # type: ignore[assignment]

    @property
    def identifies_spread(self) -> bool:  # type: ignore[override]
        """One bit has a law with one parameter: the mean."""
        return check_count("bits", self.bits) > 1

    def _law(self, n_features: int) -> Law:
        bits = check_count("bits", self.bits)
        if bits > 24:
            raise ValueError(f"bits must be at most 24; got {bits}. Exact() sends every digit.")
        return Rounding(2**bits)


@dataclass(frozen=True)
class Rounding(Levels):
    """Send the level itself."""

    levels: int

    def _randomise(self, level: NDArray, count: NDArray, stream: Stream) -> NDArray:
        return level

    def _randomise_secure(self, level: int, count: int) -> float:
        return level

    def _table(self, reports: NDArray, count: int) -> NDArray:
        return (reports[:, None] == np.arange(count)).astype(float)

    def density(self, reports: NDArray, u: NDArray, sizes: NDArray) -> NDArray:
        """Hat of each report's level: no table of all levels, of which there may be millions."""
        place = (np.clip(u, -1, 1) + 1) / 2 * (self.levels - 1)
        return np.maximum(1 - np.abs(place - reports[:, None]), 0.0)

    def average(
        self, reports: NDArray, means: NDArray, variances: NDArray, sizes: NDArray
    ) -> NDArray:
        """Hat of each report's level, averaged over a normal u."""
        pairs, codes = np.unique(np.stack([reports, variances]), axis=1, return_inverse=True)
        step = 2 / (self.levels - 1)
        result = np.empty((pairs.shape[1], len(means)))
        for row, (level, variance) in zip(result, pairs.T, strict=True):
            near = np.arange(max(level - 1, 0), min(level + 2, self.levels))
            hats = normal_hats(means, np.sqrt(variance), near * step - 1)
            row[:] = hats[:, int(level > 0)]
        return result[codes.ravel()]

    def _level(self, reports: NDArray, count: NDArray) -> NDArray:
        return reports

    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """All levels."""
        return np.arange(self.levels), np.ones(self.levels)

    def variance(self, u: NDArray, sizes: NDArray) -> NDArray:
        """``h**2 f (1 - f)``: f the place between two levels, h their distance."""
        step = 2 / (self.levels - 1)
        share = np.mod((u + 1) / step, 1)
        return step**2 * share * (1 - share)

    def bits(self, sizes: NDArray) -> NDArray:
        """Number of bits."""
        return np.full(len(sizes), np.log2(self.levels))
