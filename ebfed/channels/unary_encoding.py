"""One randomised bit for each level."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.channels.law import Law
from ebfed.channels.levels import Levels
from ebfed.channels.one_bit import odds
from ebfed.channels.randomized_response import check_levels
from ebfed.channels.report import PureReport
from ebfed.streams import Stream

__all__ = ["UnaryEncoding"]


class UnaryEncoding(PureReport):
    """Send a bit for each level: the true one's is 1 with probability 1/2, others seldom.

    "Optimised": a bit of another level is 1 with probability ``1 / (e**epsilon + 1)``. The variance
    of a frequency does not grow with the number of levels, as it does in `RandomizedResponse`. For
    0/1 rows a level is the count itself, 0 to n; with `levels`, the local mean is rounded at random
    to that many even steps of the range. A report is a whole number, whose bit j is that of level
    j.

    Parameters
    ----------
    epsilon : float
        Local privacy of the report.
    range : (low, high), optional
    levels : int, optional
        Number of levels, at most 63. None: the n + 1 counts of 0/1 rows.

    References
    ----------
    Wang, Blocki, Li, Jha (2017), Locally differentially private protocols for frequency estimation.

    Examples
    --------
    >>> from ebfed import Summary
    >>> summary = Summary.from_counts([3, 0], [4, 4])
    >>> UnaryEncoding(epsilon=2, range=(0, 1)).encode(summary, rng=0)["report"].ravel()
    array([10,  0])
    """

    def __init__(self, epsilon: float, range: Any = None, *, levels: int | None = None):
        self.epsilon = epsilon
        self.range = range
        self.levels = levels

    def _law(self, n_features: int) -> Law:
        if self.levels is not None:
            _check_count(check_levels(self.levels))
        return Bits(self.levels, self._odds())


def _check_count(count: Any) -> None:
    """One bit of a 64-bit integer is left for its sign."""
    if count > 63:
        raise ValueError(
            f"levels must be at most 63; got {count}. Clients with more rows need levels=…, to "
            "which their proportions are rounded."
        )


@dataclass(frozen=True)
class Bits(Levels):
    """One bit for each level; levels that a client with few rows cannot reach stay 0."""

    epsilon: float

    @property
    def other(self) -> float:
        """Probability of a 1 for a level that is not the client's."""
        return odds(self.epsilon)[1]

    def _randomise(self, level: NDArray, count: NDArray, stream: Stream) -> NDArray:
        _check_count(count.max(initial=2))
        report = np.zeros(level.shape, np.int64)
        for place in range(int(count.max(initial=2))):  # the k-th call of a stream is level k's
            bit = stream.bernoulli(np.where(level == place, 0.5, self.other))
            report |= (bit & (place < count)).astype(np.int64) << place
        return report

    def _randomise_secure(self, level: int, count: int) -> int:
        _check_count(count)
        bits = [secure.answer(False, self.epsilon) for _ in range(count)]
        bits[level] = bool(secrets.randbits(1))
        return sum(bit << place for place, bit in enumerate(bits))

    def _table(self, reports: NDArray, count: int) -> NDArray:
        bits = _unpack(reports, count)
        ones = bits.sum(axis=1, keepdims=True)
        background = ones * np.log(self.other) + (count - ones) * np.log1p(-self.other)
        own = np.where(bits, 0.5 / self.other, 0.5 / (1 - self.other))
        return np.exp(background) * own

    def check(self, reports: NDArray, sizes: NDArray) -> None:
        """Accept any pattern of bits."""

    def _level(self, reports: NDArray, count: NDArray) -> NDArray:
        place = np.arange(int(count.max(initial=2)))
        shares = (_unpack(reports, len(place)) - self.other) / (0.5 - self.other)
        return np.where(place < count[..., None], shares * place, 0.0).sum(axis=-1)

    def variance(self, u: NDArray, sizes: NDArray) -> NDArray:
        """Variances of the bits, weighted by their levels, and of rounding."""
        count = self._count(sizes)[:, None].astype(float)
        place = (u + 1) / 2 * (count - 1)
        low = np.floor(place)
        share = place - low
        squares = (count - 1) * count * (2 * count - 1) / 6
        mean_square = (1 - share) * low**2 + share * (low + 1) ** 2
        other = self.other * (1 - self.other)
        noise = (other * (squares - mean_square) + 0.25 * mean_square) / (0.5 - self.other) ** 2
        return (noise + share * (1 - share)) * (2 / (count - 1)) ** 2

    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """All patterns of bits, for up to 16 levels."""
        count = self._one_count(np.array([size]))
        if count > 16:
            raise ValueError(f"{count} levels have too many patterns to list.")
        return np.arange(2**count), np.ones(2**count)

    def bits(self, sizes: NDArray) -> NDArray:
        """One bit for each level; NaN for counts of no rows."""
        count = np.where(sizes > 0, sizes + 1.0, np.nan) if self.levels is None else self.levels
        return np.broadcast_to(count, len(sizes)).astype(float)


def _unpack(reports: NDArray, count: int) -> NDArray[np.bool_]:
    """Bits of whole numbers, one more axis."""
    return (reports[..., None] >> np.arange(count)) & 1 == 1
