"""Attacks that tell two clients apart by their reports, learned from reports alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Distinguisher",
    "Event",
    "best_threshold",
    "candidate_events",
    "learn_distinguishers",
    "simulate",
]

BINS = 64  # of a coordinate
CELLS = 4096  # of all coordinates jointly, if there are so few


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
