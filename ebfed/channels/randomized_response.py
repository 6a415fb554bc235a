"""The true level, or any other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.channels.law import Law
from ebfed.channels.levels import Levels
from ebfed.channels.report import PureReport
from ebfed.privacy.calibration import check_count
from ebfed.streams import Stream

__all__ = ["RandomizedResponse", "check_levels"]

# The likelihood of a report is a table over the levels.
MOST_LEVELS = 2**14


class RandomizedResponse(PureReport):
    """Send the level of the local mean with odds ``e**epsilon`` against each other level.

    For 0/1 rows a level is the count itself, 0 to n; with `levels`, the local mean is rounded at
    random to that many even steps of the range.

    Parameters
    ----------
    epsilon : float
        Local privacy of the report.
    range : (low, high), optional
    levels : int, optional
        Number of levels. None: the n + 1 counts of 0/1 rows.

    References
    ----------
    Warner (1965); Kairouz, Oh, Viswanath (2016), Extremal mechanisms for local differential
    privacy.

    Examples
    --------
    >>> from ebfed import Summary
    >>> summary = Summary.from_counts([3, 0], [4, 4])
    >>> RandomizedResponse(epsilon=6, range=(0, 1)).encode(summary, rng=0)["report"].ravel()
    array([3, 0])
    """

    def __init__(self, epsilon: float, range: Any = None, *, levels: int | None = None):
        self.epsilon = epsilon
        self.range = range
        self.levels = levels

    def _law(self, n_features: int) -> Law:
        return Truth(check_levels(self.levels), self._odds())


def check_levels(levels: int | None) -> int | None:
    """Return `levels`: None, or from 2 to `MOST_LEVELS`."""
    if levels is not None and not 2 <= check_count("levels", levels) <= MOST_LEVELS:
        raise ValueError(f"levels must be from 2 to {MOST_LEVELS:,}; got {levels}.")
    return levels


@dataclass(frozen=True)
class Truth(Levels):
    """The level with probability ``e**epsilon / (e**epsilon + J - 1)``, else another, evenly."""

    epsilon: float

    def _other(self, count: Any) -> Any:
        """Probability of each untrue level."""
        odds = math.exp(-self.epsilon)
        return odds / (1 + (count - 1) * odds)

    def _randomise(self, level: NDArray, count: NDArray, stream: Stream) -> NDArray:
        lie = stream.bernoulli((count - 1) * self._other(count))
        other = (stream.uniforms(*level.shape) * (count - 1)).astype(np.int64)
        return np.where(lie, other + (other >= level), level)

    def _randomise_secure(self, level: int, count: int) -> int:
        return secure.choose(level, count, 1 / (1 + (count - 1) * math.exp(-self.epsilon)))

    def _table(self, reports: NDArray, count: int) -> NDArray:
        same = reports[:, None] == np.arange(count)
        return np.where(same, 1 - (count - 1) * self._other(count), self._other(count))

    def _level(self, reports: NDArray, count: NDArray) -> NDArray:
        other = self._other(count)
        return (reports - other * count * (count - 1) / 2) / (1 - count * other)

    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """All levels."""
        count = self._one_count(np.array([size]))
        return np.arange(count), np.ones(count)

    def bits(self, sizes: NDArray) -> NDArray:
        """Number of bits for every level; NaN for counts of no rows."""
        count = np.where(sizes > 0, sizes + 1.0, np.nan) if self.levels is None else self.levels
        return np.ceil(np.log2(np.broadcast_to(count, len(sizes))))
