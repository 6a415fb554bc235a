"""Reports likely to lie in a window around the local mean."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from random import SystemRandom

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.channels.law import Law
from ebfed.channels.one_bit import Coin, odds
from ebfed.channels.report import PureReport
from ebfed.streams import Stream

__all__ = ["Hybrid", "Piecewise"]

# Cells of the grid that secure reports lie on.
CELLS = 2**40
# Below, one bit alone has the smaller worst variance (Wang et al. 2019, eq. 8).
LEAST_EPSILON = 0.6093524930271883


class Piecewise(PureReport):
    """Send a number that is likelier, by ``e**epsilon``, in a window around the local mean.

    On [-1, 1], with ``C = coth(epsilon/4)``, reports lie in [-C, C] and windows are ``C - 1`` wide.

    Parameters
    ----------
    epsilon : float
        Local privacy of the report.
    range : (low, high) or "private", optional
        Range to which local means are clipped.

    References
    ----------
    Wang et al. (2019), Collecting and analyzing multidimensional data with local differential
    privacy, algorithm 2.

    Examples
    --------
    >>> from ebfed import Summary
    >>> channel = Piecewise(epsilon=4, range=(-1, 1))
    >>> channel.variance(Summary.from_rows([0.0], groups=[0])).ravel()
    array([0.0849])
    """

    def _law(self, n_features: int) -> Law:
        return Window(self._odds())


class Hybrid(PureReport):
    """Send a `Piecewise` report with probability ``1 - e**(-epsilon/2)``, else a `OneBit` one.

    The mixture has the smaller worst variance of the two at every epsilon; below 0.61 it is one bit
    alone.

    Parameters
    ----------
    epsilon : float
        Local privacy of the report.
    range : (low, high) or "private", optional
        Range to which local means are clipped.

    References
    ----------
    Wang et al. (2019), section 3.3.

    Examples
    --------
    >>> from ebfed import Summary
    >>> channel = Hybrid(epsilon=1, range=(-1, 1))
    >>> channel.variance(Summary.from_rows([0.0], groups=[0])).ravel()
    array([4.3...])
    """

    @property
    def identifies_spread(self) -> bool:  # type: ignore[override]
        """Whether it is more than one bit."""
        return self._epsilon() > LEAST_EPSILON

    def _law(self, n_features: int) -> Law:
        epsilon = self._odds()
        return WindowOrCoin(epsilon) if epsilon > LEAST_EPSILON else Coin(epsilon)


@dataclass(frozen=True)
class Window(Law):
    """Density ``high`` on ``[l(u), l(u) + C - 1]``, ``low`` on the rest of ``[-C, C]``."""

    epsilon: float

    @property
    def reach(self) -> float:
        """Largest report C."""
        return 1 + self.width

    @property
    def width(self) -> float:
        """Width of a window: ``C - 1``."""
        return 2 / math.expm1(self.epsilon / 2)

    @property
    def truth(self) -> float:
        """Probability of the window."""
        return odds(self.epsilon / 2)[0]

    def _start(self, u: NDArray) -> NDArray:
        """Start l(u) of the window."""
        return u + self.width / 2 * (u - 1)

    def draw(self, u: NDArray, sizes: NDArray, stream: Stream) -> NDArray:
        """Turn one uniform into a place inside or outside the window."""
        v, p, width = stream.uniforms(*u.shape), self.truth, self.width
        start = self._start(u)
        outside = -self.reach + (v - p) / (1 - p) * (self.reach + 1)
        outside += np.where(outside > start, width, 0.0)
        return np.where(v < p, start + v / p * width, outside)

    def secure(self, u: float, size: int) -> float:
        """Choose one of 2**40 cells; which one never depends on the last bits of u."""
        inside = math.ceil(CELLS * self.width / (2 * self.reach))
        place = (float(self._start(np.array(u))) + self.reach) / (2 * self.reach)
        start = min(max(round(place * CELLS), 0), CELLS - inside)
        if secure.answer(True, self.epsilon / 2):
            cell = start + secrets.randbelow(inside)
        else:
            cell = secrets.randbelow(CELLS - inside)
            cell += inside if cell >= start else 0
        return (2 * (cell + 0.5) / CELLS - 1) * self.reach

    def variance(self, u: NDArray, sizes: NDArray) -> NDArray:
        """``u**2 / (e - 1) + (e + 3) / (3 (e - 1)**2)`` with ``e = exp(epsilon / 2)``."""
        e = math.exp(self.epsilon / 2)
        return u**2 / (e - 1) + (e + 3) / (3 * (e - 1) ** 2)

    def rounded(self, reports: NDArray) -> NDArray:
        """Midpoints of even cells, 200 to a window.

        Windows of clipped values begin or end at -1 and 1: so do cells.
        """
        size, step, inner = np.abs(reports), self.width / 200, math.ceil(200 / self.width)
        beyond = 1 + (np.clip(np.floor((size - 1) / step), 0, 199) + 0.5) * step
        within = (np.minimum(np.floor(size * inner), inner - 1) + 0.5) / inner
        return np.copysign(np.where(size > 1, beyond, within), reports)

    def _mix(self, inside: NDArray) -> NDArray:
        """Density where the report lies in the window with that probability."""
        truth, lie = odds(self.epsilon / 2)
        return truth / self.width * inside + lie / (self.reach + 1) * (1 - inside)

    def _edges(self, reports: NDArray) -> tuple[NDArray, NDArray]:
        """Local values whose windows begin and end at each report, shape (n, 1)."""
        y, width = reports[:, None], self.width
        return (2 * y - width) / (self.reach + 1), (2 * y + width) / (self.reach + 1)

    def density(self, reports: NDArray, u: NDArray, sizes: NDArray) -> NDArray:
        """``high`` where the report lies in the window, else ``low``."""
        low, high = self._edges(reports)
        u = np.clip(u, -1, 1)
        return self._mix(((low <= u) & (u <= high)).astype(float))

    def average(
        self, reports: NDArray, means: NDArray, variances: NDArray, sizes: NDArray
    ) -> NDArray:
        """Average over a normal u: the probability that its window holds the report."""
        from scipy.special import ndtr

        low, high = self._edges(reports)
        low, high = np.where(low <= -1, -np.inf, low), np.where(high >= 1, np.inf, high)
        sd = np.sqrt(variances)[:, None]
        low, high = (low - means) / sd, (high - means) / sd
        flip = low + high > 0  # the same mass in the lower tail, which has more digits
        low, high = np.where(flip, -high, low), np.where(flip, -low, high)
        return self._mix(ndtr(high) - ndtr(low))

    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """Midpoints of even steps, 100 to a window unless it is very narrow."""
        count = min(max(2000, math.ceil(200 * self.reach / self.width)), 100_000)
        reports = (np.arange(count) + 0.5) / count * 2 - 1
        return reports * self.reach, np.full(count, 2 * self.reach / count)


@dataclass(frozen=True)
class WindowOrCoin(Law):
    """A `Window` report, or the two values ``±coth(epsilon/2)`` of a `Coin`."""

    epsilon: float

    @property
    def share(self) -> float:
        """Probability of a report of the first kind."""
        return -math.expm1(-self.epsilon / 2)

    @property
    def window(self) -> Window:
        """The first kind."""
        return Window(self.epsilon)

    @property
    def coin(self) -> Coin:
        """The second kind."""
        return Coin(self.epsilon)

    @property
    def answer(self) -> float:
        """The size of the second kind's reports."""
        return 1 / self.coin.slope

    def _is_coin(self, reports: NDArray) -> NDArray:
        return np.abs(reports) == self.answer

    def draw(self, u: NDArray, sizes: NDArray, stream: Stream) -> NDArray:
        """Draw both, and keep one."""
        numbers = self.window.draw(u, sizes, stream)
        bits = np.where(self.coin.draw(u, sizes, stream), self.answer, -self.answer)
        return np.where(stream.bernoulli(np.full(u.shape, self.share)), numbers, bits)

    def secure(self, u: float, size: int) -> float:
        """Draw one or the other."""
        if SystemRandom().random() < self.share:
            return self.window.secure(u, size)
        return self.answer if self.coin.secure(u, size) else -self.answer

    def variance(self, u: NDArray, sizes: NDArray) -> NDArray:
        """Mix the two variances."""
        window, coin = self.window.variance(u, sizes), self.coin.variance(u, sizes)
        return self.share * window + (1 - self.share) * coin

    def rounded(self, reports: NDArray) -> NDArray:
        """Round the numbers, keep the answers of the coin."""
        return np.where(self._is_coin(reports), reports, self.window.rounded(reports))

    def _choose(self, reports: NDArray, numbers: NDArray, bits: NDArray) -> NDArray:
        coin = self._is_coin(reports)[:, None]
        return np.where(coin, (1 - self.share) * bits, self.share * numbers)

    def density(self, reports: NDArray, u: NDArray, sizes: NDArray) -> NDArray:
        """Density of a number, probability of an answer of the coin."""
        numbers = self.window.density(reports, u, sizes)
        return self._choose(reports, numbers, self.coin.density(reports > 0, u, sizes))

    def average(
        self, reports: NDArray, means: NDArray, variances: NDArray, sizes: NDArray
    ) -> NDArray:
        numbers = self.window.average(reports, means, variances, sizes)
        bits = self.coin.average(reports > 0, means, variances, sizes)
        return self._choose(reports, numbers, bits)

    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """Outcomes of both kinds."""
        reports, weights = self.window.outcomes(size)
        ends = np.array([-self.answer, self.answer])
        return np.concatenate((reports, ends)), np.concatenate((weights, np.ones(2)))
