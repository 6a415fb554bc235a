"""Which clients a round invites, how learning rates fall, and which rounds are recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ebfed.privacy.calibration import check_count, check_positive

__all__ = [
    "INVITE",
    "NOISE",
    "OWN_START",
    "START",
    "RateSchedule",
    "Sampling",
    "Schedule",
    "check_rate",
    "draw",
    "peak_of",
    "share_of",
]

Sampling = Literal["poisson", "fixed"]
Shape = Literal["constant", "step", "cosine"]

# Purposes for which a server draws.
START, INVITE, NOISE, OWN_START = range(4)
# Largest number of recorded losses, over all clients; with more rounds, not every one is recorded.
RECORDS = 10**7


def draw(key: NDArray[np.uint64], purpose: int, *more: int) -> np.random.Generator:
    """Return the random numbers of a server for a purpose, in a round."""
    return np.random.default_rng([*key, purpose, *more])


@dataclass(frozen=True)
class Schedule:
    """The rounds of a fit.

    Parameters
    ----------
    n_rounds : int
    sample_rate : float
        Share of the clients that a round invites.
    sampling : {"poisson", "fixed"}
    decay : float
        Learning-rate decay per round.
    by_rows : bool
        Whether a client counts in proportion to its rows, rather than once.
    evaluate_every : int, optional
        Before every so many rounds clients evaluate their predictors.
    changes : RateSchedule, optional
        How learning rates change from round to round, in place of a decay.
    """

    n_rounds: int
    sample_rate: float
    sampling: Sampling
    decay: float
    by_rows: bool = False
    evaluate_every: int | None = None
    changes: RateSchedule | None = None

    def size(self, n_clients: int) -> int:
        """Return how many clients a round of a fixed size has."""
        return max(1, round(self.sample_rate * n_clients))

    def clients(self, n_clients: int) -> float:
        """Return how many clients a round has, or is expected to have."""
        if self.sampling == "poisson":
            return float(self.sample_rate * n_clients)
        return float(self.size(n_clients))

    def expected(self, n: NDArray[np.int64]) -> float:
        """Return what sums over the clients of a round are divided by: the expected sum of weights.

        Parameters
        ----------
        n : ndarray of shape (n_clients,)
            Numbers of rows.
        """
        return self.clients(len(n)) * float(self.weights(n, n.max(initial=1)).mean())

    def weights(self, n: NDArray[np.int64], largest: int) -> NDArray[np.float64]:
        """Return the weights of clients in averages, at most 1.

        Parameters
        ----------
        n : ndarray of shape (c,)
            Numbers of rows.
        largest : int
            That of the largest client of all.

        Examples
        --------
        >>> Schedule(10, 0.5, "fixed", 1.0, by_rows=True).weights(np.array([2, 4]), 8)
        array([0.25, 0.5 ])
        """
        return n / largest if self.by_rows else np.ones(len(n))

    def invite(self, n_clients: int, rng: np.random.Generator) -> NDArray[np.int8]:
        """Draw who takes part in a round: 0, or -1 for who does not.

        Examples
        --------
        >>> Schedule(10, 0.5, "fixed", 1.0).invite(4, np.random.default_rng(0))
        array([-1,  0,  0, -1], dtype=int8)
        """
        if self.sampling == "poisson":
            invited = rng.random(n_clients) < self.sample_rate
        else:
            invited = rng.permutation(n_clients) < self.size(n_clients)
        return np.where(invited, 0, -1).astype(np.int8)

    def rate(self, round_: int) -> float:
        """Return what learning rates are multiplied by in a round."""
        if self.changes is not None:
            return self.changes.share(round_, self.n_rounds)
        return self.decay**round_

    def every(self, n_clients: int) -> int:
        """Return k: every k-th round is recorded."""
        return 1 + n_clients * self.n_rounds // RECORDS

    def evaluation(self, round_: int) -> tuple[int, int]:
        """Return the place of a round among evaluations, or -1, and how many there are so far."""
        every = self.evaluate_every
        if every is None:
            return -1, 0
        return round_ // every if round_ % every == 0 else -1, 1 + round_ // every

    def check_places(self, sent: Mapping[str, Any]) -> None:
        """Raise a ValueError if a broadcast wants more places than there can be rounds."""
        most = max(self.n_rounds, sent["round"]) + 1
        for name in ("records", "evaluations"):
            if not 0 <= sent[name] <= most:
                raise ValueError(f"{name} must be from 0 to {most}; got {sent[name]!r}.")

    def record(self, round_: int, every: int) -> tuple[int, int]:
        """Return the place of a round in the records, or -1, and how many places there are."""
        place = round_ // every if round_ % every == 0 else -1
        return place, -(-max(self.n_rounds, round_) // every)


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
