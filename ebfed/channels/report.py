"""Channels whose clients report on their local mean, clipped to a range."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.channels.base import Channel, Message, public_figures
from ebfed.channels.law import Law
from ebfed.families import Family
from ebfed.likelihoods import Likelihood
from ebfed.likelihoods.multinomial import CERTAIN
from ebfed.privacy import events
from ebfed.privacy.calibration import check_epsilon
from ebfed.streams import Stream, make_key
from ebfed.tables.clients import LARGEST, SMALLEST, Summary
from ebfed.tables.values import numbers

__all__ = ["Box", "PureReport", "Report", "check_report_epsilon"]

CHUNK = 2**15
FURTHEST = 1e300  # in units of a ball, means further away are only so far

# Beyond these, differences of probabilities and squares of noise lose their digits.
LEAST, MOST = 1e-6, 1e9


@dataclass(frozen=True)
class Box:
    """Range to which local means are clipped: coordinate by coordinate, or (`ball`) by their norm.

    In units of the box, clipped means lie in [-1, 1] each, or within a distance of 1.
    """

    centre: NDArray
    half: NDArray
    ball: bool = False

    def units(self, means: NDArray) -> NDArray:
        """Means in units of the box, before clipping; infinite where they exceed float64."""
        with np.errstate(over="ignore"):
            u = means - self.centre
            u *= 1 / self.half
        return u

    def clip(self, u: NDArray) -> NDArray:
        """Clip means in units of the box, in place: tables may be large."""
        if self.ball and u.shape[1] > 1:
            np.clip(u, -FURTHEST, FURTHEST, out=u)
            longest = np.maximum(1, np.abs(u).max(axis=1, keepdims=True))
            u /= longest  # squares of what is left are numbers
            u /= np.maximum(1 / longest, np.sqrt((u**2).sum(axis=1, keepdims=True)))
            return u
        return np.clip(u, -1, 1, out=u)


class Report(Channel):
    """A report on the local mean, drawn from a `Law` on a range.

    A subclass has an argument `range` and writes `_law`.

    Attributes
    ----------
    whole : bool
        Whether a report covers all coordinates at once. If not, each client of a table of several
        columns spends its whole report on one of them, chosen at random.
    """

    range: Any
    whole: ClassVar[bool] = False
    clips_norms: ClassVar[bool] = False

    @abstractmethod
    def _law(self, n_features: int) -> Law:
        """Return the law of a report, after checking the channel's arguments."""

    def _box(self, n_features: int) -> Box:
        """Return the range as a `Box`."""
        if self.range is None or isinstance(self.range, str):
            raise ValueError(
                f"{type(self).__name__} needs a range to clip to: give range=(low, high), or to "
                "the estimator guess=Guess(...), from which it takes one."
            )
        if isinstance(self.range, Box):
            return self.range
        if isinstance(self.range, Report):  # Clip(...) | channel
            return self.range._box(n_features)
        return box(self.range, n_features)

    @property
    def left_open(self) -> set[str]:
        """Name of the argument `range`, where it is not given."""
        return {"range"} if self.range is None or isinstance(self.range, str) else set()

    # Clients ----------------------------------------------------------------------------------

    def encode(self, summary: Summary, rng: Any = None) -> Message:
        """Send ``n`` and ``report``, and ``asked``: which coordinate, if it is one of several.

        Raises
        ------
        ValueError
            If a local mean is not finite, or an argument of the channel is wrong.
        """
        d = summary.n_features
        law, where = self._law(d), self._box(d)
        if isinstance(rng, str):
            if rng != "secure":
                raise ValueError(f"rng must be a seed, a Stream or 'secure'; got {rng!r}.")
            return public_figures(summary) | self._secure(
                law, _units(where, summary.mean), summary.n
            )
        stream = rng if isinstance(rng, Stream) else Stream(make_key(rng), 0)
        message, calls = public_figures(summary), stream.calls
        # some clients at a time, whose figures stay in the processor's cache
        for start in np.arange(0, max(len(summary), 1), CHUNK):
            rows, part = slice(start, start + CHUNK), stream.after(int(start), calls)
            u = _units(where, summary.mean[rows])
            for name, values in self._draw(law, u, summary.n[rows], part).items():
                if name not in message:
                    message[name] = np.empty((len(summary), *values.shape[1:]), values.dtype)
                message[name][rows] = values
            stream.calls = part.calls
        return message

    def _draw(self, law: Law, u: NDArray, sizes: NDArray, stream: Stream) -> Message:
        d = u.shape[1]
        if self.whole or d == 1:
            return {"report": law.draw(u, sizes, stream)}
        column = (stream.uniforms(len(u)) * d).astype(np.int64)
        own = np.take_along_axis(u, column, axis=1)
        return {"report": law.draw(own, sizes, stream), "asked": column == np.arange(d)}

    def _secure(self, law: Law, u: NDArray, sizes: NDArray) -> Message:
        import secrets

        n, d = u.shape
        simulated = self._draw(law, u, sizes, Stream(make_key(0), 0))  # for its shape only
        message = {name: np.zeros_like(values) for name, values in simulated.items()}
        report, asked = message["report"], message.get("asked")
        for i in np.arange(n):
            columns = np.arange(d) if asked is None else [secrets.randbelow(d)]
            if asked is not None:
                asked[i, columns] = True
            report[i] = [law.secure(float(u[i, j]), int(sizes[i])) for j in columns]
        return message

    def clipped(self, summary: Summary) -> NDArray[np.bool_]:
        where = self._box(summary.n_features)
        u = where.units(summary.mean)
        # a tiny excess is rounding, as of a proportion of 1 in the range (0, 1)
        return np.abs(u - where.clip(u.copy())).max(axis=1, initial=0.0) > 1e-12

    # Server -----------------------------------------------------------------------------------

    def decode(self, message: Message) -> NDArray:
        """Estimate each client's clipped local mean without bias, shape (n_clients, d)."""
        asked = message.get("asked")
        d = message["report"].shape[1] if asked is None else asked.shape[1]
        where = self._box(d)
        u = self._law(d).decode(message["report"], message["n"])
        if asked is not None:  # the coordinates not asked for count in the mean over choices
            u = np.where(asked, d * u, 0.0)
        return where.centre + where.half * u

    def check_message(self, message: Message) -> None:
        report, asked = message["report"], message.get("asked")
        if asked is not None and not (asked.sum(axis=1) == 1).all():
            raise ValueError("asked must name one column of each client.")
        d = report.shape[1] if asked is None else asked.shape[1]
        self._law(d).check(report, message["n"])
        self.decode(message)

    def variance(self, summary: Summary) -> NDArray:
        """Variance of `decode` around each client's clipped mean, shape (n_clients, d)."""
        d = summary.n_features
        law, where = self._law(d), self._box(d)
        u = where.clip(where.units(summary.mean))
        variance = law.variance(u, summary.n)
        if not self.whole and d > 1:
            variance = d * variance + (d - 1) * u**2
        return where.half**2 * variance

    def likelihood(self, message: Message, family: Family) -> Likelihood:
        report, asked = message["report"], message.get("asked")
        d = report.shape[1] if asked is None else asked.shape[1]
        where = self._box(d)
        if asked is None:
            has_data = np.ones(report.shape[:2], bool)
        else:
            has_data, report = asked, np.repeat(report, d, axis=1)
        nothing = np.zeros(has_data.shape)
        public = {name: message[name] for name in ("n", "weight") if name in message}
        exact = family.likelihood(public | {"mean": nothing, "scatter": nothing})
        centre, half = np.broadcast_to(where.centre, d), np.broadcast_to(where.half, d)
        return exact.through(self._law(d), report, has_data, centre, half)

    @property
    def bits(self) -> float:
        return float(self._law(1).bits(np.zeros(1, np.int64))[0])

    def report_bits(self, summary: Summary) -> NDArray:
        d = summary.n_features
        bits = self._law(d).bits(summary.n)
        return bits * d if self.whole else bits + (math.ceil(math.log2(d)) if d > 1 else 0)


def _units(where: Box, means: NDArray) -> NDArray:
    """Clipped means in units of the box.

    Raises
    ------
    ValueError
        If one is not finite.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # infinities of both signs
        total = means.sum()
    if not np.isfinite(total) and not np.isfinite(means).all():
        raise ValueError("local means must be finite; got NaN or infinity.")
    return where.clip(where.units(means))


def box(range: Any, n_features: int) -> Box:
    """Read an argument `range`: (low, high), each a number or one per column.

    Raises
    ------
    ValueError, TypeError
        If it is neither, or is empty.
    """
    what = "range must be (low, high) with low < high, each a number or one per column"
    pair = isinstance(range, Sequence | np.ndarray) and not isinstance(range, str)
    if not pair or getattr(range, "ndim", 1) == 0 or len(range) != 2:
        raise TypeError(f"{what}; got {range!r}.")
    try:
        low, high = (np.broadcast_to(numbers(end, "range"), n_features) for end in range)
    except (TypeError, ValueError):
        raise ValueError(f"{what} ({n_features}); got {range!r}.") from None
    if not (np.isfinite([low, high]).all() and np.all(low < high)):
        raise ValueError(f"{what}; got {range!r}.")
    half = high / 2 - low / 2
    if np.any(half > LARGEST) or np.any(half < SMALLEST):
        raise ValueError(f"range must be between {SMALLEST:g} and {LARGEST:g} wide; got {range!r}.")
    return Box(low / 2 + high / 2, half)


class PureReport(Report):
    """A report whose probability moves by at most ``e**epsilon`` with the client's data."""

    def __init__(self, epsilon: float, range: Any = None):
        self.epsilon = epsilon
        self.range = range

    def _epsilon(self) -> float:
        return check_report_epsilon(self.epsilon)

    def _odds(self) -> float:
        """Return the epsilon by which reports are drawn: no larger than makes a difference."""
        return min(self._epsilon(), CERTAIN)

    def guarantee(self, n_features: int = 1) -> tuple[float, float]:
        """Return epsilon, and delta = 0."""
        return self._epsilon(), 0.0

    def event(self, n_features: int = 1) -> Any:
        return events.pure(self._epsilon())


def check_report_epsilon(epsilon: Any) -> float:
    """Return the epsilon of one report, within what can be drawn and decoded.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_report_epsilon(1)
    1.0
    """
    if not LEAST <= check_epsilon(epsilon) <= MOST:
        raise ValueError(
            f"epsilon of a report must lie between {LEAST:g} and {MOST:g}; got {epsilon!r}."
        )
    return float(epsilon)
