"""What passes in a round of learning if some clients opted out of privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import (
    LearningFacts,
    LearningMemory,
    LearningMessage,
    LearningSent,
    LearningState,
    Named,
)
from ebfed.learning.exchange import size_of
from ebfed.learning.privacy import PrivateExchange, noisy_sum
from ebfed.privacy import ledger
from ebfed.privacy.odometer import Plan

__all__ = ["CLASSES", "OptOutExchange"]

CLASSES = ("private", "open")


@dataclass(frozen=True)
class OptOutExchange(PrivateExchange):
    """Clipped messages, with noise and less weight where clients did not opt out.

    Parameters
    ----------
    schedule, n_clients, privacy, bounds
        As in `PrivateExchange`.
    ratio : float or "optimal"
        Weight of a private client beside 1 of an open one; see `optimal`.
    """

    ratio: float | Literal["optimal"]

    @property
    def terms(self) -> tuple:
        """Arguments on which the account rests: with a ratio of 0, it is of nothing."""
        return (self.ratio,)

    def optimal(self, n_private: int, size: int) -> float:
        r"""Return the weight that makes the variance of the sum of all rounds least.

        .. math:: r^* = \frac{\sigma^2}{\sigma^2 + N_p \gamma^2}, \qquad
            \sigma^2 = \frac{S^2}{p}, \qquad
            N_p \gamma^2 = \frac{z^2 S^2}{T q^2 N_p}

        The variance sigma^2 of changes of different clients is, in each of p coordinates, that of
        changes as long as S. The noise of T rounds averages out, and what clients have of their own
        does not: N_p gamma^2 is the noise of a private client's share in the mean of all rounds.
        Where clients add the noise themselves, it is :math:`z^2 S^2 / (T q)`.

        Parameters
        ----------
        n_private : int
            Number N_p of private clients.
        size : int
            Number p of shared parameters.
        """
        z, _ = self.split()
        invited = self.schedule.sample_rate * max(n_private, 1)
        noise = z**2 * (invited if self.privacy.trust == "none" else 1.0)
        # each in units of S ** 2
        share = max(n_private, 1) * noise / (self.schedule.n_rounds * invited**2)
        return 1 / (1 + size * share)

    # Clients ----------------------------------------------------------------------------------

    def send(
        self,
        changes: Named,
        sent: LearningSent,
        memory: LearningMemory,
        members: NDArray[np.int64],
        rng: Any,
    ) -> LearningMessage:
        """Return what clients send: changes times their weights, so that their sum is enough."""
        message = super().send(changes, sent, memory, members, rng)
        weights = self.weights(memory["consent"][members], sent)[:, None]
        changes = {name: weights * values for name, values in message["changes"].items()}
        return message | {"changes": changes}

    def weights(self, consent: NDArray[np.int8], sent: LearningSent) -> NDArray[np.float64]:
        """Return the weight of each client, by its choice."""
        return np.where(consent == 0, sent["ratio"], 1.0)

    def disturb(
        self,
        values: NDArray,
        scale: float,
        memory: LearningMemory,
        members: NDArray[np.int64],
        rng: Any,
    ) -> NDArray[np.float64]:
        """Add the noise that each private client draws for itself."""
        noisy = super().disturb(values, scale, memory, members, rng)
        return np.where((memory["consent"][members] == 0)[:, None], noisy, values)

    def opened(self, memory: LearningMemory, m: int) -> NDArray[np.bool_]:
        """Return which clients are to send something that no noise protects."""
        return super().opened(memory, m) | (memory["consent"] == 1)

    def plan(self, memory: LearningMemory, m: int) -> list[Plan]:
        """State all that a run may take from m clients, by their choice."""
        private, opened = (memory["consent"] == index for index in range(2))
        plans = [Plan.exact("open", opened, self.schedule.n_rounds)] if opened.any() else []
        if private.any() and self.ratio != 0:
            plans.append(self.plan_of("private", private))
        return plans

    def released(
        self, sent: LearningSent, memory: LearningMemory | None, m: int, rounds: int
    ) -> list[dict[str, Any]]:
        """Return the ledger, a row for each choice."""
        if memory is None:  # a server's copy knows how many, and no more
            consent = np.repeat([0, 1], [sent["n_clients"] - sent["opened"], sent["opened"]])
        else:
            consent = memory["consent"]
        rows = []
        for index, who in enumerate(CLASSES):
            members = np.flatnonzero(consent == index)
            if len(members) and index:
                rows.append(self._disclosure(who, sent, members, rounds))
            elif len(members) and self.ratio == 0:
                rows.append(ledger.silence(len(members)) | {"who": who})
            elif len(members):
                rows.append(self.row(who, sent, memory, members, rounds))
        return [row | {"assumptions": f"{row['assumptions']}; choices are public"} for row in rows]

    def _disclosure(
        self, who: str, sent: LearningSent, members: NDArray[np.int64], rounds: int
    ) -> dict[str, Any]:
        bits = 64.0 * size_of(sent) * self.schedule.sample_rate * len(members) * rounds
        row = ledger.disclosure("clipped changes, as they are", len(members), bits)
        return row | {"who": who, "times": rounds, "epsilon": math.inf}

    # Server -----------------------------------------------------------------------------------

    def longest(self, sent: LearningSent, facts: LearningFacts, turn: NDArray) -> list[Any]:
        """Return the largest norm that each bounded part of each message may have."""
        weights = self.weights(facts["consent"][turn == 0], sent)
        return [limit * weights for limit in super().longest(sent, facts, turn)]

    def start(self, state: LearningState, facts: LearningFacts) -> LearningState:
        """Return the first state, with the choices of clients."""
        if self.ratio == 0 and not facts["consent"].any():
            raise ValueError("ratio is 0, and no client opted out: none would be invited.")
        return super().start(state, facts) | {"consent": facts["consent"]}

    def invite(self, state: LearningState, rng: np.random.Generator) -> NDArray[np.int8]:
        """Draw who is invited to a round: no client whose answer would have no weight."""
        turn = super().invite(state, rng)
        if self.ratio == 0:
            turn = np.where(state["consent"] == 1, turn, -1).astype(np.int8)
        return turn

    def broadcast(self, state: LearningState, sent: LearningSent) -> LearningSent:
        """Return what is broadcast, with how many clients opted out, and the others' weight."""
        opened = int(state["consent"].sum())
        ratio = self.ratio
        if isinstance(ratio, str):
            size = sum(len(value) for value in sent["shared"].values())
            ratio = self.optimal(self.n_clients - opened, size)
        return super().broadcast(state, sent) | {"opened": opened, "ratio": float(ratio)}

    def average(
        self,
        state: LearningState,
        sent: LearningSent,
        message: LearningMessage,
        rng: Any,
    ) -> tuple[Named, LearningState]:
        """Add up what was weighted, with the noise of the private class times its weight."""
        scales, noise = self.server_scales(sent)
        counts = sent["expected"] / self.n_clients * np.bincount(state["consent"], minlength=2)
        if self.ratio == 0:
            counts[0] = 0.0
        ratio = sent["ratio"]
        weight = counts[1] + ratio * counts[0]  # [O] Algorithm 1
        average = {
            name: noisy_sum(message["changes"][name], ratio * scales[name], rng) / weight
            for name in sent["shared"]
        }
        if self.privacy.clip_quantile is None:
            return average, state
        bits = float(noisy_sum(message["bit"], noise, rng)[0]) / counts.sum()
        return average, self.follow(state, bits)

    def server_scales(self, sent: LearningSent) -> tuple[dict[str, float], float]:
        """Return the standard deviations of the noise that the server adds."""
        if self.ratio == 0:  # nothing needs noise
            return dict.fromkeys(sent["shared"], 0.0), 0.0
        return super().server_scales(sent)

    def check_resume(
        self, state: LearningState, memory: LearningMemory, kept: LearningMemory
    ) -> None:
        """Raise a ValueError if a warm start would break the promise."""
        if not np.array_equal(memory["consent"], kept["consent"]):
            raise ValueError("consent must be that of the last fit, as warm_start is True.")
        super().check_resume(state, memory, kept)
