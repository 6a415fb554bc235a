"""Laws that first round a local value to one of finitely many levels."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from random import SystemRandom

import numpy as np
from numpy.typing import NDArray

from ebfed.channels.law import Law
from ebfed.streams import Stream

__all__ = ["Levels", "Ramps", "average_levels", "counts_are_levels", "hats", "normal_hats"]


class Ramps(Law):
    """Probabilities of reports that are linear in the local value between knots."""

    epsilon: float

    @property
    def slope(self) -> float:
        """Largest change of the probability of an answer, over a ramp from -1 to 1."""
        return float(np.tanh(self.epsilon / 2))

    @property
    def knots(self) -> NDArray:
        """Local values at which the ramps bend: here, the ends of the range."""
        return np.array([-1.0, 1.0])

    @abstractmethod
    def _table(self, reports: NDArray) -> NDArray:
        """Probability of each report at the knots."""

    def density(self, reports: NDArray, u: NDArray, sizes: NDArray) -> NDArray:
        return self._table(reports) @ hats(u, self.knots).T

    def average(
        self, reports: NDArray, means: NDArray, variances: NDArray, sizes: NDArray
    ) -> NDArray:
        """Probability of each report, averaged over a normal u."""
        return average_levels(self._table(reports), self.knots, means, variances)


@dataclass(frozen=True)
class Levels(Law):
    """Round u to one of `levels` even steps of [-1, 1], at random so that it is unbiased.

    Then a level j is randomised; a subclass says how in `_randomise`, and how probable each report
    is at each level in `_table`.

    Parameters
    ----------
    levels : int or None
        Number of levels. None: one for each possible count, 0 to n, of a client with n rows.
    """

    levels: int | None

    @abstractmethod
    def _randomise(self, level: NDArray, count: NDArray, stream: Stream) -> NDArray:
        """Draw reports on levels; `count` is the number of levels, both of shape (n, d)."""

    @abstractmethod
    def _randomise_secure(self, level: int, count: int) -> float | NDArray:
        """Draw one report on a level from the operating system's randomness."""

    @abstractmethod
    def _table(self, reports: NDArray, count: int) -> NDArray:
        """Probability of each report at each level, shape (n, count)."""

    @abstractmethod
    def _level(self, reports: NDArray, count: NDArray) -> NDArray:
        """Unbiased estimate of the level, shape (n, d)."""

    def _count(self, sizes: NDArray) -> NDArray:
        return np.full(len(sizes), self.levels) if self.levels else np.maximum(sizes, 1) + 1

    def _one_count(self, sizes: NDArray) -> int:
        """Number of levels of clients that share one."""
        return self.levels if self.levels else max(int(sizes[0]), 1) + 1

    def draw(self, u: NDArray, sizes: NDArray, stream: Stream) -> NDArray:
        """Round, and randomise."""
        count = np.broadcast_to(self._count(sizes)[:, None], u.shape)
        place = (u + 1) / 2 * (count - 1)
        # [E] Equation 20
        level = np.minimum(place.astype(np.int64), count - 2)
        level += stream.bernoulli(place - level)
        return self._randomise(level, count, stream)

    def secure(self, u: float, size: int) -> float | NDArray:
        """Round and randomise with the operating system's randomness."""
        count = self._one_count(np.array([size]))
        place = (u + 1) / 2 * (count - 1)
        level = min(int(place), count - 2)
        level += SystemRandom().random() < place - level
        return self._randomise_secure(int(level), count)

    def check(self, reports: NDArray, sizes: NDArray) -> None:
        """Raise a ValueError if reports are no levels."""
        if self.adds_noise:
            super().check(reports, sizes)
        else:
            self._check_between(reports, 0, np.maximum(self._count(sizes), 2)[:, None] - 1)

    def decode(self, reports: NDArray, sizes: NDArray) -> NDArray:
        count = self._count(sizes)[:, None]
        return 2 * self._level(reports, count) / (count - 1) - 1

    def density(self, reports: NDArray, u: NDArray, sizes: NDArray) -> NDArray:
        """Probability of each report at each local value; `sizes` must agree if levels are None."""
        count = self._one_count(sizes)
        return self._table(reports, count) @ hats(u, np.linspace(-1, 1, count)).T

    def average(
        self, reports: NDArray, means: NDArray, variances: NDArray, sizes: NDArray
    ) -> NDArray:
        """Probability of each report, averaged over a normal u."""
        counts_are_levels(self.levels is not None)
        count = self._one_count(sizes)
        return average_levels(
            self._table(reports, count), np.linspace(-1, 1, count), means, variances
        )


def counts_are_levels(sure: bool) -> None:
    """Refuse levels=None for other means than proportions."""
    if not sure:
        raise ValueError(
            "levels must be given where local means are not proportions of 0/1 rows: only these "
            "have counts, which are the levels where levels=None."
        )


def average_levels(table: NDArray, knots: NDArray, means: NDArray, variances: NDArray) -> NDArray:
    """``table[i] @ E hats(u)`` for ``u ~ N(means[k], variances[i])``, shape (n, k)."""
    distinct, codes = np.unique(variances, return_inverse=True)
    result = np.empty((len(table), len(means)))
    for code, variance in enumerate(distinct):
        at = codes == code
        result[at] = table[at] @ normal_hats(means, np.sqrt(variance), knots).T
    return result


def hats(u: NDArray, knots: NDArray) -> NDArray:
    """Share of each knot in each value, (k, J): piecewise linear, 1 at the knot, 0 at the next.

    Examples
    --------
    >>> hats(np.array([-1.0, 0.5, 3.0]), np.array([-1.0, 0.0, 1.0]))
    array([[1. , 0. , 0. ],
           [0. , 0.5, 0.5],
           [0. , 0. , 1. ]])
    """
    u = np.clip(u, knots[0], knots[-1])
    right = np.clip(np.searchsorted(knots, u, side="right"), 1, len(knots) - 1)
    share = (u - knots[right - 1]) / (knots[right] - knots[right - 1])
    result = np.zeros((len(u), len(knots)))
    rows = np.arange(len(u))
    result[rows, right - 1] = 1 - share
    result[rows, right] = share
    return result


def normal_hats(means: NDArray, sd: float, knots: NDArray) -> NDArray:
    """Average of `hats` over ``u ~ N(means[k], sd**2)``, shape (k, J).

    A hat is a second difference of ramps, and ``E(u - a)_+ = sd (phi(z) + z Phi(z))`` with ``z =
    (mean - a) / sd``. Below the mean, the mirrored ramp ``E(a - u)_+`` is the small one: taking it
    there keeps every digit of the tails. Between knots much closer than sd, differences would lose
    digits, so Taylor's formula is used.

    Examples
    --------
    >>> normal_hats(np.array([0.0]), 0.1, np.array([-1.0, 0.0, 1.0]))
    array([[0.0399, 0.9202, 0.0399]])
    """
    from scipy.special import ndtr

    away = means[:, None] - knots
    if sd == 0:
        up, down = np.maximum(away, 0), np.maximum(-away, 0)
    else:
        z = away / sd
        height = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        up, down = sd * (height + z * ndtr(z)), sd * (height - z * ndtr(-z))
    width, middle = np.diff(knots), (away[:, 1:] + away[:, :-1]) / 2
    above, below = -np.diff(up) / width, np.diff(down) / width  # E of a ramp, and of one minus it
    left = middle < 0  # the smaller one is exact
    above, below = np.where(left, above, 1 - below), np.where(left, 1 - above, below)
    close = width < 3e-3 * sd
    share = width[close] / sd
    if close.any():
        at = middle[:, close] / sd
        bent = share**2 / 24 * at * np.exp(-0.5 * at**2) / np.sqrt(2 * np.pi)
        above[:, close], below[:, close] = ndtr(at) - bent, ndtr(-at) + bent
    result = np.empty_like(away)
    result[:, 0], result[:, -1] = below[:, 0], above[:, -1]
    bend = np.where(away[:, 1:-1] < 0, above[:, :-1] - above[:, 1:], below[:, 1:] - below[:, :-1])
    flat = close[1:] & close[:-1]
    if flat.any():
        left, right = (ends[flat] / sd for ends in (width[:-1], width[1:]))
        at, top = z[:, 1:-1][:, flat], height[:, 1:-1][:, flat]
        tilt = at * (right**2 - left**2) / 6 + (at**2 - 1) * (right**3 + left**3) / 24
        bend[:, flat] = top * ((left + right) / 2 + tilt)
    result[:, 1:-1] = bend
    return np.maximum(result, 0.0)
