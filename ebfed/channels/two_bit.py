"""Two bits: which of two questions a client was asked, and its randomised answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import SystemRandom
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.channels.law import Law
from ebfed.channels.levels import Ramps
from ebfed.channels.one_bit import odds
from ebfed.channels.report import PureReport
from ebfed.privacy.calibration import is_number
from ebfed.streams import Stream

__all__ = ["TwoBit"]


class TwoBit(PureReport):
    """Ask a client where its mean lies, or how far from the centre, and randomise the answer.

    A share `split` of the clients, chosen at random, answer "above the centre?", the others "far
    from the centre?", each by one bit with the whole epsilon. (Answering both with half of it each
    would cost twice the variance at small epsilon.) In units of the range, a 1 is meant with
    probability

        location: ramp(u; -location, location),    spread: ramp(|u|; *spread),

    where ``ramp(x; a, b)`` rises from 0 at a to 1 at b, and ``ramp(1/2)`` is the middle of a step
    (a = b). Both mean and spread of a population follow from the answers.

    Parameters
    ----------
    epsilon : float
        Local privacy of the report.
    split : "auto" or float
        Share of the clients that are asked for location. ``"auto"``: split, centre and ramps have
        the largest Fisher information for mean and spread, given n and the estimator's `guess`.
    range : (low, high) or "private", optional
        Range whose middle is the centre. ``"private"``: the reports of some clients determine a
        better centre for the others.
    location : float
        Half-width of the location ramp, in units of the range. `decode` is without bias for means
        on the ramp.
    spread : (float, float)
        Ends of the spread ramp, in units of the range.

    Examples
    --------
    >>> from ebfed import Summary
    >>> summary = Summary.from_rows([0.1, 0.5, 0.9], groups=[0, 1, 2])
    >>> channel = TwoBit(epsilon=1, split=0.5, range=(0, 1))
    >>> channel.encode(summary, rng=0)["report"].ravel()
    array([3, 2, 3])
    """

    def __init__(
        self,
        epsilon: float,
        split: float | Literal["auto"] = "auto",
        range: Any = None,
        *,
        location: float = 1.0,
        spread: tuple[float, float] = (0.0, 1.0),
    ):
        self.epsilon = epsilon
        self.split = split
        self.range = range
        self.location = location
        self.spread = spread

    @property
    def left_open(self) -> set[str]:
        """The range, where none is given, and with ``split="auto"`` the questions."""
        questions = {"split", "location", "spread"} if self.split == "auto" else set()
        return super().left_open | questions

    def _law(self, n_features: int) -> Law:
        split = 0.5 if self.split == "auto" else self.split
        for name, value in (("split", split), ("location", self.location)):
            if not (is_number(value) and 0 < value <= 1):
                raise ValueError(f"{name} must be above 0 and at most 1; got {value!r}.")
        if split == 1:
            raise ValueError("split must be below 1: some clients must be asked for the spread.")
        try:
            low, high = (float(end) for end in self.spread)
        except (TypeError, ValueError):
            low = high = math.nan
        if not 0 <= low <= high <= 1:
            raise ValueError(f"spread must be (low, high) within [0, 1]; got {self.spread!r}.")
        return TwoQuestions(self._odds(), float(split), float(self.location), (low, high))


@dataclass(frozen=True)
class TwoQuestions(Ramps):
    """Reports 0 and 1: "below" and "above"; 2 and 3: "near" and "far"."""

    epsilon: float
    split: float
    location: float
    spread: tuple[float, float]

    @property
    def knots(self) -> NDArray:
        """Values at which the ramps bend. A step is a ramp too narrow to matter."""
        low, high = self.spread
        high = max(high, low + 1e-6)
        bends = [0, self.location, low, high, 1]
        # two that differ by rounding are one
        return np.unique(np.clip([*bends, *np.negative(bends)], -1, 1).round(9))

    def _truth(self, u: NDArray) -> tuple[NDArray, NDArray]:
        """Probability that the true answer is 1, for both questions."""
        low, high = self.spread
        away = (np.abs(u) - low) / max(high - low, 1e-6)
        return np.clip(0.5 + u / (2 * self.location), 0, 1), np.clip(away, 0, 1)

    def draw(self, u: NDArray, sizes: NDArray, stream: Stream) -> NDArray:
        """Draw the question, then the answer."""
        where = stream.bernoulli(np.full(u.shape, self.split))
        above, far = self._truth(u)
        truth = np.where(where, above, far)
        answer = stream.bernoulli(0.5 + self.slope * (truth - 0.5))
        return np.where(where, answer, 2 + answer)

    def secure(self, u: float, size: int) -> int:
        """Draw the question, round to a bit, answer that by randomised response."""
        random = SystemRandom()
        question = 0 if random.random() < self.split else 1
        meant = float(self._truth(np.array(u))[question])
        return 2 * question + secure.answer(random.random() < meant, self.epsilon)

    def decode(self, reports: NDArray, sizes: NDArray) -> NDArray:
        """Estimate u, without bias on the location ramp, from answers about location."""
        lean = np.where(reports < 2, 2.0 * reports - 1, 0.0)
        return self.location * lean / (self.slope * self.split)

    def _table(self, reports: NDArray) -> NDArray:
        truth, lie = odds(self.epsilon)
        above, far = self._truth(self.knots)
        meant = np.stack([1 - above, above, 1 - far, far])
        asked = np.array([self.split, self.split, 1 - self.split, 1 - self.split])
        rows = asked[:, None] * (meant * truth + (1 - meant) * lie)
        return rows[reports.astype(int)]

    def outcomes(self, size: int) -> tuple[NDArray, NDArray]:
        """All four reports."""
        return np.arange(4), np.ones(4)

    def bits(self, sizes: NDArray) -> NDArray:
        """Two bits."""
        return np.full(len(sizes), 2.0)
