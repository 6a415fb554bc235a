"""One randomised bit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import SystemRandom

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.channels.law import Law
from ebfed.channels.levels import Ramps
from ebfed.channels.report import PureReport
from ebfed.streams import Stream

__all__ = ["OneBit", "odds"]


class OneBit(PureReport):
    """Send one bit that is 1 with a probability linear in the local mean.

    In units of the range, ``P(1) = 1/2 + tanh(epsilon/2) u/2``: eq. (7) of Ozkara et al. (2023) on
    [0, 1], the mechanism of Duchi et al. on [-b, b]. Its variance, ``b**2 coth(epsilon/2)**2 -
    x**2``, is the least of any report at small epsilon. One bit per client has a law with one
    parameter: it says nothing about the spread of a population, only about its mean.

    Parameters
    ----------
    epsilon : float
        Local privacy of the report: its odds move by at most ``e**epsilon`` with the client's data.
    range : (low, high) or "private", optional
        Range to which local means are clipped. ``"private"``: the reports of some clients determine
        the range of the others.

    References
    ----------
    Duchi, Jordan, Wainwright (2018), Minimax optimal procedures for locally private estimation;
    Ozkara, Girgis, Data, Diggavi (2023), eq. (7).

    Examples
    --------
    >>> from ebfed import Summary
    >>> summary = Summary.from_rows([0.1, 0.5, 0.9], groups=[0, 1, 2])
    >>> OneBit(epsilon=1, range=(0, 1)).encode(summary, rng=0)["report"].ravel()
    array([False, False, False])
    """

    identifies_spread = False

    def _law(self, n_features: int) -> Law:
        return Coin(self._odds())


@dataclass(frozen=True)
class Coin(Ramps):
    """``P(1) = 1/2 + tanh(epsilon/2) u/2``."""

    epsilon: float

    def draw(self, u: NDArray, sizes: NDArray, stream: Stream) -> NDArray:
        """Draw bits."""
        # [E] Equation 7
        chance = u * (self.slope / 2)
        chance += 0.5
        return stream.bernoulli(chance)

    def secure(self, u: float, size: int) -> bool:
        """Round to a bit, and answer that bit by randomised response."""
        return secure.answer(SystemRandom().random() < (u + 1) / 2, self.epsilon)

    def decode(self, reports: NDArray, sizes: NDArray) -> NDArray:
        return (2.0 * reports - 1) / self.slope

    def variance(self, u: NDArray, sizes: NDArray) -> NDArray:
        """``coth(epsilon/2)**2 - u**2``."""
        return 1 / self.slope**2 - u**2

    def _table(self, reports: NDArray) -> NDArray:
        """Probability of each bit at both ends of the range."""
        return np.where(reports[:, None] == np.array([False, True]), *odds(self.epsilon))

    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """Both bits."""
        return np.array([False, True]), np.ones(2)

    def bits(self, sizes: NDArray) -> NDArray:
        """One bit."""
        return np.ones(len(sizes))


def odds(epsilon: float) -> tuple[float, float]:
    """Probability of a true and of an untrue answer, every digit of the smaller one kept.

    Examples
    --------
    >>> odds(2.0)
    (0.8808, 0.1192)
    """
    truth = 1 / (1 + math.exp(-epsilon))
    return truth, truth * math.exp(-epsilon)
