"""Lower bounds on epsilon from simulated reports, as a test of the guarantee of a channel.

An (epsilon, delta)-private channel makes no event more than ``e**epsilon`` times, plus delta, as
probable with one client's data as with another's. So, for any event E,

    epsilon >= log((P(E) - delta) / Q(E)),

and simulated reports of both clients bound the right-hand side: a lower limit for P and an upper
limit for Q (Clopper and Pearson's, valid for every sample size). If the bound exceeds the claimed
epsilon, the channel is wrong: it has too little noise, a missing clip or a biased coin. A bound
below the claim proves nothing; only this event and this number of reports did not refute it.

Events are learned from reports alone, and not from the law that the channel states, which may be
wrong. The reports are divided into three parts. The first eighth fits laws to the reports of each
client: frequencies of (binned) coordinates, jointly if there are few, else as if independent, and a
straight line. The second eighth chooses one event: two clients, one of these laws, and a threshold
of the likelihood ratio. The rest counts this event once, so the choice needs no correction.

Every object with `encode` and `guarantee` can be audited. The audit is of simulated reports;
``rng="secure"`` draws through OpenDP's samplers, which are too slow for many reports. If a score
distinguishes two inputs, as for whole trainings (`ebfed.evaluation.training_audit`),
`bound_from_scores` chooses the event and counts it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ebfed.privacy.attacks import best_threshold, candidate_events, learn_distinguishers, simulate
from ebfed.privacy.calibration import check_count, check_epsilon

__all__ = [
    "Audit",
    "LowerBound",
    "Shown",
    "audit",
    "bound_from_scores",
    "largest_bound",
    "lower_bound",
]

FEWEST = 1000  # simulations


@dataclass(frozen=True)
class LowerBound(ABC):
    """Lower bound on an epsilon that is claimed.

    Attributes
    ----------
    channel : str
        What was tested, with all its arguments.
    n_features : int
        Columns of the clients' data.
    epsilon, delta : float
        Guarantee that is tested.
    lower : float
        Lower bound on epsilon; 0 if nothing was shown.
    """

    channel: str
    n_features: int
    epsilon: float
    delta: float
    lower: float

    @property
    def passed(self) -> bool:
        """Whether the guarantee was not refuted; True is no proof of it."""
        return self.lower <= self.epsilon

    @property
    @abstractmethod
    def event(self) -> str:
        """Describe what was observed."""

    def row(self) -> dict[str, Any]:
        """Return the row of a table of audits."""
        return {
            "channel": self.channel,
            "n_features": self.n_features,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "lower": self.lower,
            "event": self.event,
            "passed": self.passed,
        }


@dataclass(frozen=True)
class Audit(LowerBound):
    """Lower bound on the epsilon of a channel.

    Attributes
    ----------
    channel : str
    n_features : int
        Columns of the clients' data.
    epsilon, delta : float
        Guarantee that is tested.
    lower : float
        Lower bound on epsilon, wrong with probability `error`; 0 if nothing was shown.
    first, second : str
        Names of the two clients of the event.
    p, q : float
        Frequencies of the event for the first client and for the second.
    simulations : int
        Number of reports of each client.
    error : float

    Examples
    --------
    >>> found = Audit("OneBit(...)", 1, 1.0, 0.0, 1.3, "high", "low", 0.8, 0.2, 1000, 1e-6)
    >>> found.passed
    False
    >>> found.event
    'an event is seen in 80 % of runs if the client is high, in 20 % if low'
    """

    first: str
    second: str
    p: float
    q: float
    simulations: int
    error: float

    @property
    def event(self) -> str:
        """Say how often the event was seen for each client."""
        p, q = (f"{100 * share:.3g} %" for share in (self.p, self.q))
        first = f"an event is seen in {p} of runs if the client is {self.first}"
        return f"{first}, in {q} if {self.second}"


def audit(
    channel: Any,
    summary: Any,
    *,
    claim: tuple[float, float] | None = None,
    simulations: int = 200_000,
    error: float = 1e-6,
    rng: Any = 0,
) -> Audit:
    """Bound the epsilon of a channel from below.

    Parameters
    ----------
    channel : Channel
        Object with ``encode(summary, rng)``, which returns a dict of arrays with one entry per
        client, and ``guarantee(n_features)``.
    summary : Summary
        Summaries of at least two clients with equal numbers of rows (which are public); in the
        local model any two clients are neighbours. Give the ends of the range, and values far
        outside it.
    claim : (float, float), optional
        Epsilon and delta to test; by default those of the channel's `guarantee`.
    simulations : int
        Number of reports of each client, at least 1,000. `largest_bound` is the most they show.
    error : float
        Probability that the bound exceeds the true epsilon, so that a correct channel fails.
    rng : int, Generator or None

    Returns
    -------
    Audit

    Raises
    ------
    TypeError
        If `channel` is not a channel.
    ValueError
        If the channel has no guarantee, or one that no audit of this size can refute. If there are
        fewer than two clients. If an argument is out of range.

    References
    ----------
    Jagielski, Ullman, Oprea (2020), Auditing differentially private machine learning, on bounds by
    Clopper and Pearson; Bichsel, Steffen, Bogunovic, Vechev (2021), DP-Sniper, on learning events.

    Examples
    --------
    >>> from ebfed import Summary
    >>> from ebfed.channels import OneBit
    >>> ends = Summary.from_counts([0, 5], [5, 5])
    >>> found = audit(OneBit(epsilon=1, range=(0, 1)), ends)
    >>> found.passed, found.lower > 0.95
    (True, True)
    """
    epsilon, delta = _claim_of(channel, summary, claim)
    error = _check_error(error)
    if check_count("simulations", simulations) < FEWEST:
        raise ValueError(f"simulations must be at least {FEWEST:,}; got {simulations}.")
    # parts to learn laws, to choose the event, and to count it
    edges = (0, simulations // 8, simulations // 4, int(simulations))
    learn, choose, count = (slice(*ends) for ends in pairwise(edges))
    total = count.stop - count.start
    if epsilon >= (most := largest_bound(total, delta, error)):
        raise ValueError(
            f"epsilon={epsilon:g} cannot be refuted by {simulations:,} simulations, which show at "
            f"most {most:.3g}; use more simulations or a smaller epsilon."
        )

    columns = simulate(channel, summary, edges[-1], np.random.default_rng(rng))
    with np.errstate(over="ignore", invalid="ignore"):  # reports may be infinite
        candidates = candidate_events(
            learn_distinguishers(columns, learn), len(summary), choose, delta, error
        )
        best = max(candidates, key=lambda event: event.worth)
        p, q = (best.times(client, count) for client in (best.first, best.second))
    return Audit(
        channel=_name(channel),
        n_features=int(summary.n_features),
        epsilon=epsilon,
        delta=delta,
        lower=lower_bound(p, q, total, delta, error),
        first=str(summary.ids[best.first]),
        second=str(summary.ids[best.second]),
        p=p / total,
        q=q / total,
        simulations=edges[-1],
        error=error,
    )


def lower_bound(
    hits: int, false_hits: int, total: int, delta: float = 0.0, error: float = 1e-6
) -> float:
    """Bound epsilon from below by the frequencies of an event for two clients.

    Parameters
    ----------
    hits, false_hits : int
        Number of events in `total` reports of the first client, and of the second.
    total : int
    delta : float
    error : float
        Probability that the bound exceeds the true epsilon; half of it for each limit.

    Returns
    -------
    float
        ``log((p - delta) / q)``, p a lower limit for the first client's probability and q an upper
        limit for the second's; 0 if that is negative.

    Examples
    --------
    >>> lower_bound(75_000, 25_000, 100_000)  # odds of 3 to 1: log 3 = 1.0986
    1.062...
    >>> lower_bound(500, 500, 1000)
    0.0
    """
    from scipy.stats import binomtest

    level = 1 - _check_error(error) / 2
    p = binomtest(hits, total, alternative="greater").proportion_ci(level, method="exact").low
    q = binomtest(false_hits, total, alternative="less").proportion_ci(level, method="exact").high
    return max(math.log((p - delta) / q), 0.0) if p > delta else 0.0


class Shown(NamedTuple):
    """Lower bound on epsilon from the scores of two inputs.

    Attributes
    ----------
    lower : float
        Lower bound on epsilon, wrong with probability `error`.
    swapped : bool
        Whether the event is more probable with the second input.
    p, q : float
        Frequencies of the event for the more probable input, and for the other.
    """

    lower: float
    swapped: bool
    p: float
    q: float


def bound_from_scores(
    first: ArrayLike, second: ArrayLike, *, delta: float = 0.0, error: float = 1e-6
) -> Shown:
    """Bound epsilon from below by scores of simulations with two inputs.

    The first quarter of the simulations chooses a score, a threshold, and the side of the event.
    The others count that event. The bound is valid for any scores, if those of the last three
    quarters are independent of one another.

    Parameters
    ----------
    first, second : array-like of shape (n,) or (k, n)
        Scores of each of n simulations, larger where the first input seems more probable.
    delta : float
    error : float
        Probability that the bound exceeds the true epsilon.

    Returns
    -------
    Shown

    Raises
    ------
    ValueError
        If shapes differ, n is below 1,000, a score is NaN, or an argument is out of range.

    Examples
    --------
    Two normal laws at a distance of one standard deviation: epsilon is 1.57 at that delta.

    >>> x = np.random.default_rng(0).standard_normal((2, 100_000))
    >>> bound_from_scores(x[0] + 1, x[1], delta=0.05)
    Shown(lower=1.3..., swapped=True, p=0.1..., q=0.02...)
    """
    scores = np.array([np.atleast_2d(first), np.atleast_2d(second)], float)  # (2, k, n)
    delta, error = _check_delta(delta), _check_error(error)
    if scores.shape[2] < FEWEST or np.isnan(scores).any():
        raise ValueError(
            f"scores of at least {FEWEST:,} simulations are needed, none of them NaN; "
            f"got {scores.shape[2]:,}."
        )
    choose, total = scores.shape[2] // 4, scores.shape[2] - scores.shape[2] // 4
    best, chosen = -math.inf, (scores[:, 0], math.inf, False)
    for swapped in (False, True):
        for each in np.moveaxis(-scores[::-1] if swapped else scores, 1, 0):  # (2, n)
            seen = np.sort(each[:, :choose])
            worth, threshold = best_threshold(seen[0], seen[1], delta, error)
            if worth > best:
                best, chosen = worth, (each, threshold, swapped)
    each, threshold, swapped = chosen
    p, q = (each[:, choose:] >= threshold).sum(axis=1).tolist()
    return Shown(lower_bound(p, q, total, delta, error), swapped, p / total, q / total)


def largest_bound(total: int, delta: float = 0.0, error: float = 1e-6) -> float:
    """Return the bound of an event with frequency 1 for one client and 0 for another.

    Parameters
    ----------
    total : int
        Number of reports of each client.
    delta, error : float

    Returns
    -------
    float
        About ``log(total / log(2 / error))``. No larger epsilon can be refuted.

    Examples
    --------
    >>> largest_bound(150_000)
    9.2...
    """
    tail = (_check_error(error) / 2) ** (1 / total)
    return max(math.log((tail - delta) / (1 - tail)), 0.0) if tail > delta else 0.0


def _claim_of(channel: Any, summary: Any, claim: tuple[float, float] | None) -> tuple[float, float]:
    """Return the epsilon and delta to audit, after checks."""
    for method in ("encode", "guarantee"):
        if isinstance(channel, type) or not callable(getattr(channel, method, None)):
            raise TypeError(f"channel must have methods encode and guarantee; got {channel!r}.")
    if len(summary) < 2 or np.ptp(summary.n) > 0:
        raise ValueError("an audit needs at least two clients, all with the same number of rows.")
    epsilon, delta = channel.guarantee(summary.n_features) if claim is None else claim
    if epsilon == math.inf:
        raise ValueError(f"{_name(channel)} has no guarantee to refute: its epsilon is infinite.")
    return check_epsilon(epsilon), _check_delta(delta)


def _name(channel: Any) -> str:
    return " ".join(repr(channel).split())


def _check_delta(delta: Any) -> float:
    if not (isinstance(delta, (int, float)) and 0 <= delta < 1):
        raise ValueError(f"delta must be at least 0 and below 1; got {delta!r}.")
    return float(delta)


def _check_error(error: Any) -> float:
    if not (isinstance(error, (int, float)) and 1e-12 <= error < 1):
        raise ValueError(f"error must be at least 1e-12 and below 1; got {error!r}.")
    return float(error)
