"""Budgets of clients' own: each takes part until its epsilon is spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from ebfed.learning.exchange import Senders
from ebfed.learning.privacy import PrivateExchange
from ebfed.privacy.odometer import Plan

__all__ = ["IndividualExchange"]


@dataclass(frozen=True)
class IndividualExchange(PrivateExchange):
    r"""Clipped messages with noise, from clients that stop when their own budget is spent.

    All rounds have the same noise. A client of budget :math:`\varepsilon_i` takes part in the first

    .. math:: T_i = \max\{t: \min_\alpha\, [t \rho_\alpha + \log(1 - 1/\alpha)
        - \log(\alpha\delta) / (\alpha - 1)] \le \varepsilon_i\}

    rounds, :math:`\rho_\alpha` being the Rényi divergence of one round: a Rényi filter in which
    every message is charged as one of the largest norm. So T_i follows from public figures alone,
    and sums are divided by the expected number of the clients that still take part. Where clients
    have no budgets, this is `PrivateExchange`.

    References
    ----------
    Feldman and Zrnic (2021), Individual privacy accounting via a Rényi filter, with the same
    divergence for every message; Mironov (2017), Proposition 1.
    """

    def lasting(self, budgets: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return how many rounds each budget pays for."""
        if self.multiplier == 0:
            raise ValueError("consent gives budgets, and noise_multiplier=0 keeps none.")
        if self.round.relation == "replace_one" and self.round.trust == "server":
            raise ValueError("consent can give budgets where sampling is 'poisson'.")
        spent = self.round.spent(self.multiplier, self.schedule.n_rounds, self.privacy.delta)
        return np.searchsorted(spent, budgets * (1 + 1e-12), side="right")

    # Clients ----------------------------------------------------------------------------------

    def send(self, changes: Named, who: Senders) -> LearningMessage:
        """Send nothing of a client whose budget is spent, whatever the server asks for."""
        if "budget" in who.memory and len(who.members):
            over = self.lasting(who.memory["budget"][who.members]) <= who.sent["round"]
            if over.any():
                raise ValueError(f"the budgets of {int(over.sum())} clients are spent.")
        return super().send(changes, who)

    # Server -----------------------------------------------------------------------------------

    def start(self, state: LearningState, facts: LearningFacts) -> LearningState:
        """Return the first state, with the budgets."""
        state = super().start(state, facts)
        if "budget" not in facts:
            return state
        if not self.lasting(facts["budget"]).any():
            raise ValueError("no client's budget pays for one round.")
        return state | {"budget": facts["budget"]}

    def invite(self, state: LearningState, rng: np.random.Generator) -> NDArray[np.int8]:
        """Draw who is invited to a round, of those whose budgets last."""
        turn = super().invite(state, rng)
        if "budget" not in state:
            return turn
        return np.where(self.lasting(state["budget"]) > state["round"], turn, -1).astype(np.int8)

    def broadcast(self, state: LearningState, sent: LearningSent) -> LearningSent:
        """Return what is broadcast, with the budgets and the expected sum of weights."""
        sent = super().broadcast(state, sent)
        if "budget" not in state:
            return sent
        active = self.lasting(state["budget"]) > state["round"]
        weights = self.schedule.weights(state["n"][active], sent["largest"])
        expected = float(self.schedule.sample_rate * weights.sum())
        return sent | {"budget": state["budget"], "expected": expected}

    def check_resume(
        self, state: LearningState, memory: LearningMemory, kept: LearningMemory
    ) -> None:
        """Refuse: budgets are for one fit."""
        if "budget" in state or "budget" in memory:
            raise ValueError("with warm_start, consent cannot give budgets.")
        super().check_resume(state, memory, kept)

    # Accounts ---------------------------------------------------------------------------------

    def plan(self, memory: LearningMemory, m: int) -> list[Plan]:
        """State all that a run may take from m clients, by how long their budgets last."""
        if "budget" not in memory:
            return super().plan(memory, m)
        lasting = self.lasting(memory["budget"])
        numbers = np.unique(lasting[lasting > 0]).tolist()
        return [self.plan_of(_name(times), lasting == times, times) for times in numbers]

    def released(
        self, sent: LearningSent, memory: LearningMemory | None, m: int, rounds: int
    ) -> list[dict[str, Any]]:
        """Return the ledger, a row for clients whose budgets last equally long."""
        kept: Any = sent if memory is None else memory
        if "budget" not in kept:
            return super().released(sent, memory, m, rounds)
        lasting = self.lasting(kept["budget"])
        rows = [
            self.row(
                _name(times), sent, memory, np.flatnonzero(lasting == times), min(times, rounds)
            )
            for times in np.unique(lasting).tolist()
        ]
        return [row | {"assumptions": f"{row['assumptions']}; budgets are public"} for row in rows]


def _name(times: int) -> str:
    return f"budgets for {times} rounds"
