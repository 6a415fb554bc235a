"""How learning rates change from round to round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sklearn.base import BaseEstimator

from ebfed.privacy.calibration import check_count, check_positive

__all__ = ["RateSchedule", "check_rate", "peak_of", "share_of"]

Shape = Literal["constant", "step", "cosine"]


@dataclass(frozen=True)
class RateSchedule(BaseEstimator):
    r"""A learning rate that depends on the round, in place of a number.

    In round t of T, from 0, after W rounds of warm-up, it is `peak` times

    .. math:: \frac{t + 1}{W + 1} \text{ for } t < W, \quad 1, \quad
        f^{\lfloor (t - W) / k \rfloor}, \quad \text{or} \quad
        e + (1 - e)\, \frac{1 + \cos(\pi (t - W) / (T - W))}{2}

    afterwards, by its shape. Other rates of clients change in proportion to `learning_rate`.

    Parameters
    ----------
    peak : float
        Largest learning rate, above 0.
    shape : {"constant", "step", "cosine"}
        How the rate falls after the warm-up.
    warm_up : int
        Number of rounds W in which the rate rises.
    every : int
        Number of rounds k between falls, of ``"step"``.
    factor : float
        Factor f of each fall, between 0 and 1, of ``"step"``.
    end : float
        Share e of the peak in the end, between 0 and 1, of ``"cosine"``. It is above 0, since
        steps that clients make after the last round have that rate.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Loshchilov and Hutter (2017), SGDR: stochastic gradient descent with warm restarts (cosine).
    Goyal et al. (2017), Accurate, large minibatch SGD (warm-up).

    Examples
    --------
    >>> rate = RateSchedule(0.1, "cosine", warm_up=1)
    >>> [round(rate.peak * rate.share(t, 5), 3) for t in range(6)]
    [0.05, 0.1, 0.086, 0.051, 0.015, 0.001]
    """

    peak: float
    shape: Shape = "constant"
    warm_up: int = 0
    every: int = 30
    factor: float = 0.1
    end: float = 0.01

    def __post_init__(self) -> None:
        """Refuse numbers out of their range."""
        check_positive("peak", self.peak)
        if self.shape not in get_args(Shape):
            raise ValueError(f"shape must be one of {get_args(Shape)}; got {self.shape!r}.")
        if self.warm_up != 0:
            check_count("warm_up", self.warm_up)
        check_count("every", self.every)
        for name in ("factor", "end"):
            if check_positive(name, getattr(self, name)) > 1:
                raise ValueError(f"{name} must be at most 1; got {getattr(self, name)!r}.")

    def share(self, round_: int, n_rounds: int) -> float:
        """Return the share of the peak in a round, from 0."""
        after = round_ - self.warm_up
        if after < 0:
            return (round_ + 1) / (self.warm_up + 1)
        if self.shape == "step":
            return float(self.factor ** (after // self.every))
        if self.shape == "cosine":
            progress = min(1.0, after / max(n_rounds - self.warm_up, 1))
            return self.end + (1 - self.end) * (1 + math.cos(math.pi * progress)) / 2
        return 1.0


def check_rate(name: str, value: Any) -> None:
    """Raise an error if an argument is neither a positive number nor a schedule."""
    if not isinstance(value, RateSchedule):
        check_positive(name, value)


def peak_of(rate: float | RateSchedule) -> float:
    """Return a learning rate without its changes from round to round."""
    return rate.peak if isinstance(rate, RateSchedule) else rate


def share_of(rate: float | RateSchedule, round_: int, n_rounds: int) -> float:
    """Return the share of its peak that a learning rate has in a round: 1 of a number."""
    return rate.share(round_, n_rounds) if isinstance(rate, RateSchedule) else 1.0
