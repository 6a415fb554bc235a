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
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.privacy.calibration import check_count, check_epsilon, check_error

__all__ = [
    "Audit",
    "Distinguisher",
    "Event",
    "LowerBound",
    "Shown",
    "audit",
    "bound_from_scores",
    "largest_bound",
    "lower_bound",
    "simulate",
]

FEWEST = 1000  # simulations

BINS = 64  # of a coordinate
CELLS = 4096  # of all coordinates jointly, if there are so few


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
    error = check_error(error)
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

    level = 1 - check_error(error) / 2
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
    delta, error = _check_delta(delta), check_error(error)
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
    tail = (check_error(error) / 2) ** (1 / total)
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


class Distinguisher(Protocol):
    """A rule that scores how likely a report is under each client, learned from reports."""

    def scores(self, client: int, part: slice) -> NDArray:
        """Return log-likelihoods of a client's reports under each client, (clients, reports).

        Constants of each report and of each client are left out.
        """


@dataclass(frozen=True)
class Cells:
    """Frequencies of the cells of one table, or of several tables taken as independent."""

    columns: list[NDArray]
    edges: list[NDArray]  # of the bins of each coordinate
    joint: bool  # one table of all coordinates
    logs: list[NDArray]  # of each table: (clients, cells)

    @classmethod
    def learn(cls, columns: list[NDArray], edges: list[NDArray], joint: bool, part: slice) -> Cells:
        """Count reports, plus one half in each cell."""
        found = cls(columns, edges, joint, [])
        clients = [found._codes(client, part) for client in range(len(columns[0]))]
        for size, *codes in zip(found._sizes, *clients, strict=True):
            counts = [np.bincount(code, minlength=size) for code in codes]
            found.logs.append(np.log(np.array(counts) + 0.5))
        return found

    @property
    def _sizes(self) -> list[int]:
        sizes = [len(edges) + 1 for edges in self.edges]
        return [math.prod(sizes)] if self.joint else sizes

    def _codes(self, client: int, part: slice) -> list[NDArray]:
        """Number the cell of each report in each table."""
        codes = [
            column[client, part].view(np.int8)
            if column.dtype == bool
            else np.searchsorted(edges, column[client, part])
            for column, edges in zip(self.columns, self.edges, strict=True)
        ]
        if not self.joint:
            return codes
        return [np.ravel_multi_index(codes, [len(edges) + 1 for edges in self.edges])]

    def scores(self, client: int, part: slice) -> NDArray:
        codes = self._codes(client, part)
        return _sum(log[:, code] for log, code in zip(self.logs, codes, strict=True))


@dataclass(frozen=True)
class Line:
    """Means of each coordinate in units of its noise, sufficient for equal normal noise."""

    columns: list[NDArray]
    means: list[NDArray]  # of each coordinate: (clients, 1)

    @classmethod
    def learn(cls, columns: list[NDArray], part: slice) -> Line:
        """Divide means by variances."""
        means = []
        for column in columns:
            variance = column[:, part].var(axis=1).mean()
            mean = column[:, part].mean(axis=1, keepdims=True)
            means.append(mean / (variance if variance > 0 else 1.0))
        return cls(columns, means)

    def scores(self, client: int, part: slice) -> NDArray:
        return _sum(
            mean * column[client, part]
            for mean, column in zip(self.means, self.columns, strict=True)
        )


@dataclass(frozen=True)
class Event:
    """Reports that score at least `threshold` more for the first client than for the second."""

    worth: float
    threshold: float
    rule: Distinguisher
    first: int
    second: int

    def times(self, client: int, part: slice) -> int:
        """Count the event in the reports of a client."""
        scores = self.rule.scores(client, part)
        return int((scores[self.first] - scores[self.second] >= self.threshold).sum())


def _sum(terms: Iterator[NDArray]) -> NDArray:
    """Add arrays, in order and in place."""
    total = next(terms).astype(float)
    for term in terms:
        total += term
    return total


def simulate(channel: Any, summary: Any, simulations: int, rng: Any) -> list[NDArray]:
    """Draw reports; return their coordinates, each of shape (clients, simulations)."""
    messages = [
        channel.encode(summary.take(np.full(simulations, client)), rng)
        for client in range(len(summary))
    ]
    columns = []
    for name in messages[0]:
        parts = [np.reshape(message[name], (simulations, -1)) for message in messages]
        columns += list(np.moveaxis(np.array(parts), -1, 0))
    columns = [np.ascontiguousarray(column) for column in columns]
    columns += [bit for column in columns for bit in _flags(column)]
    return [column for column in columns if column.min() != column.max()] or columns[:1]


def _flags(column: NDArray) -> list[NDArray]:
    """Return the bits of whole numbers with many values, which may be sets of flags."""
    if column.dtype.kind not in "iu" or column.min() < 0 or column.max() <= BINS:
        return []
    return [(column >> place) & 1 == 1 for place in range(int(column.max()).bit_length())]


def learn_distinguishers(columns: list[NDArray], part: slice) -> Iterator[Distinguisher]:
    """Learn distinguishers of every kind."""
    edges = [_edges(column[:, part][:, :4000]) for column in columns]
    yield Cells.learn(columns, edges, False, part)
    if len(columns) > 1 and math.prod(len(ends) + 1 for ends in edges) <= CELLS:
        yield Cells.learn(columns, edges, True, part)
    yield Line.learn(columns, part)


def _edges(seen: NDArray) -> NDArray:
    """Return the values of a coordinate if there are few, else edges of equal shares."""
    edges = np.unique(seen)
    if len(edges) > BINS:
        edges = np.unique(np.quantile(seen, np.arange(1, BINS) / BINS))
    return edges


def candidate_events(
    rules: Iterator[Distinguisher], clients: int, part: slice, delta: float, error: float
) -> Iterator[Event]:
    """Find the best threshold of each rule, for each ordered pair of clients."""
    for rule in rules:
        scores = [rule.scores(client, part) for client in range(clients)]
        for a, b in combinations(range(clients), 2):
            of_a, of_b = (np.sort(scores[client][a] - scores[client][b]) for client in (a, b))
            yield Event(*best_threshold(of_a, of_b, delta, error), rule, a, b)
            yield Event(*best_threshold(-of_b[::-1], -of_a[::-1], delta, error), rule, b, a)


def best_threshold(
    of_first: NDArray, of_second: NDArray, delta: float, error: float
) -> tuple[float, float]:
    """Return the largest bound by Wilson's limits, and the threshold that gives it.

    Scores are sorted. With few reports the limits are wide, so thresholds that few scores exceed
    are not chosen.
    """
    from scipy.special import ndtri

    n, z = len(of_first), ndtri(error / 2)
    ranks = n - np.geomspace(1, n, 60).astype(int)
    thresholds = np.concatenate([of_first[ranks], of_second[ranks]])
    times = np.array([n - np.searchsorted(scores, thresholds) for scores in (of_first, of_second)])
    centre = (times + z**2 / 2) / (n + z**2)
    half = -z * np.sqrt(times * (1 - times / n) + z**2 / 4) / (n + z**2)
    p, q = centre[0] - half[0], centre[1] + half[1]
    worth = np.log(np.maximum(p - delta, 1e-300) / q)
    best = int(np.argmax(worth))
    return float(worth[best]), float(thresholds[best])
