"""What a client does for each strength of personalisation, and how strengths are weighed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import LearningSent
from ebfed.learning.temperatures import (
    N_POPULATIONS,
    evidence,
    held_likelihoods,
    own_temperatures,
)
from ebfed.learning.training import LocalTraining, Task, Work
from ebfed.models import Predictor

__all__ = ["StrengthTraining", "moved", "responsibilities", "unit_of"]

# The least weight of a strength: one that noise made 0 would never be met again.
FLOOR = 1e-3


def responsibilities(scores: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Return how likely each strength is for each client.

    Parameters
    ----------
    scores : ndarray of shape (c, k)
        Log-likelihoods; minus infinity for a strength whose training failed.
    weights : ndarray of shape (k,)
        Of strengths, for all clients.

    Returns
    -------
    ndarray of shape (c, k)

    Examples
    --------
    >>> responsibilities(np.log([[1.0, 3.0], [1.0, 1.0]]), np.array([0.5, 0.5]))
    array([[0.25, 0.75],
           [0.5 , 0.5 ]])
    """
    best = scores.max(axis=1, keepdims=True)
    gap = scores - np.where(np.isfinite(best), best, 0.0)
    r = weights * np.exp(np.where(np.isfinite(best), gap, 0.0))
    return r / r.sum(axis=1, keepdims=True)


def moved(weights: NDArray, change: NDArray, count: int) -> NDArray[np.float64]:
    """Return the weights of strengths after a round.

    Parameters
    ----------
    weights, change : ndarrays of shape (k,)
        Weights before the round, and the mean difference of clients' own from them.
    count : int
        Number of the round: 1 for the first in which weights move.

    Examples
    --------
    >>> moved(np.array([0.5, 0.5]), np.array([0.2, -0.2]), 1)
    array([0.7, 0.3])
    """
    after = np.maximum(weights + change / np.sqrt(count), FLOOR)
    return after / after.sum()


def unit_of(sent: LearningSent) -> float:
    """Return what changes of weights are multiplied by, so that none is clipped.

    They have norms of at most the root of 2.
    """
    return sent["clip"] / np.sqrt(2) if "clip" in sent else 1.0


class StrengthTraining(LocalTraining):
    """Rounds that train the shared parameters, then rounds that weigh strengths."""

    def work(self, members: NDArray[np.int64], rng: Any) -> Work:
        """Let members of the block work for a round; see `LocalTraining.work`."""
        sent, own = self.sent, self.memory["own"]
        if sent["round"] < self.rounds.shared_rounds:
            yield from super().work(members, rng)
            return
        if sent["record"] >= 0:  # how well w predicts the first batch
            for places, task in self.tasks(members, rng):
                task.gradient(self.shared["w"], next(iter(task)))
                self.record(members[places], task)
        self._score(members, rng)
        self._evaluate(members)
        weights, empty = sent["shared"]["strengths"], self.clients.n[members] == 0
        change = responsibilities(own["scores"][members], weights) - weights
        change[empty] = 0.0
        none = np.zeros((len(members), len(sent["shared"]["w"])))
        changes = {"w": none, "strengths": unit_of(sent) * change}
        if "temperatures" in sent["shared"]:
            found = evidence(own["held"][members].astype(float))
            found[empty] = 0.0
            changes["temperatures"] = found
        yield np.arange(len(members)), changes

    def predictors(self) -> NDArray[np.float64]:
        """Return the weighted average over strengths of each client's parameters, shape (m, p)."""
        everyone, sent, own = self.everyone, self.sent, self.memory["own"]
        self._score(everyone, None)
        # those that no round invited have their own predictors, too
        self.memory["trained"][self.clients.n > 0] = True
        heats = "temperature" in own
        if heats:
            population = sent["shared"].get("temperatures", np.zeros(N_POPULATIONS))
            invited = self.rounds.expected_invited(sent["n_clients"])
            own["temperature"][:, 0] = own_temperatures(self._held(everyone), population, invited)
        return self._average(everyone, own["scores"], heats)

    def _predictors_now(self, members: NDArray[np.int64]) -> NDArray[np.float64]:
        scores = self.memory["own"]["scores"][members]
        if self.sent["round"] < self.rounds.shared_rounds:  # of another w, or none
            for places, task in self.tasks(members, None):
                scores[places] = self._likelihoods(self.shared["w"], task)
        return self._average(members, scores)

    def _average(
        self, members: NDArray[np.int64], scores: NDArray, whole: bool = False
    ) -> NDArray[np.float64]:
        """Return the weighted average over strengths of members' parameters, shape (c, p)."""
        r = responsibilities(scores, self.sent["shared"]["strengths"])
        w = self.shared["w"]
        theta = np.zeros((len(members), w.shape[1]), w.dtype)
        for who, task in self.tasks(members, None, whole):
            for near, weight in zip(self._paths(w, task), r[who].T, strict=True):
                part = weight[:, None].astype(w.dtype)
                theta[who] += np.where(part > 0, part * near, 0.0)
        return theta

    def _held(self, members: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return log-likelihoods of rows that members hold back, for each temperature."""
        with np.errstate(over="ignore", invalid="ignore"):
            theta = self._average(members, self.memory["own"]["scores"][members])
            return held_likelihoods(self, members, theta)

    def _score(self, members: NDArray[np.int64], rng: Any) -> None:
        """Find the log-likelihoods of members that have none for the w that is now shared."""
        own, round_ = self.memory["own"], self.rounds.shared_rounds
        missing = members[own["scored"][members, 0] != round_]
        for places, task in self.tasks(missing, rng):
            own["scores"][missing[places]] = self._likelihoods(self.shared["w"], task)
        if "temperatures" in self.sent["shared"] and self.sent["round"] < self.given.n_rounds:
            own["held"][missing] = self._held(missing)
        own["scored"][missing] = round_

    def _likelihoods(self, w: NDArray, task: Task) -> NDArray[np.float64]:
        """Return the log-likelihoods of rows that were left out, shape (c, n_strengths)."""
        losses = np.zeros((len(task), len(self.given.strengths)))
        with np.errstate(over="ignore", invalid="ignore"):
            for part, held in task.folds(self.given.folds):
                for g, theta in enumerate(self._paths(w, part)):
                    outputs = task.net.outputs(theta, held.X)
                    losses[:, g] += task.net.loss.of(outputs, held.y, held.weight)[0]
        if not task.net.model.classifies:
            size = task.totals[:, None] * task.net.model.numbers(task.net.n_features)
            losses = size / 2 * np.log(np.maximum(losses, 1e-300))
        return np.where(np.isfinite(losses), -losses, -np.inf)

    def _paths(self, w: NDArray, task: Task) -> Iterator[NDArray[np.float64]]:
        """Yield the parameters of clients for each strength, shape (c, p), or w for strength 0."""
        options = self.given
        rate, strengths = options.fine_tune_rate, np.asarray(options.strengths, float)
        eta = self.rounds.peak_rate if rate is None else rate
        steps = options.fine_tune * int((strengths > 0).sum())
        path = task.path(w, steps)
        batches = path.batches(steps)
        total = np.where(task.n > 0, task.totals, 1)[:, None].astype(w.dtype)
        spread = _mean_squares(task.net, w[0], path.blocks) * total
        place = path.start
        for strength in strengths.tolist():
            if strength > 0:
                near = 1 / (1 + eta / (strength * spread))
                for _ in range(options.fine_tune):
                    ahead = place - eta * path.gradient(place, next(batches))
                    place = path.start + near * (ahead - path.start)
            yield path.parameters(place)


def _mean_squares(net: Predictor, w: NDArray, places: dict[str, slice]) -> NDArray[np.float64]:
    """Return the mean square of w in the block of each place, or overall if that is larger."""
    overall = np.mean(w**2) or 1.0
    squares = np.empty(max(place.stop for place in places.values()), w.dtype)
    for name, place in places.items():
        squares[place] = max(np.mean(w[net.blocks[name]] ** 2), overall)
    return squares
