"""Federated averaging under differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

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
from ebfed.learning.base import WithConsent
from ebfed.learning.exchange import Senders
from ebfed.learning.fed_avg import FedAvg, FedAvgRounds
from ebfed.learning.privacy import PrivateExchange
from ebfed.privacy.odometer import Plan
from ebfed.tables.clients import Clients
from ebfed.tables.consent import epsilons_of

__all__ = ["DPFedAvg", "DPFedAvgRounds", "IndividualExchange"]


class DPFedAvg(WithConsent, FedAvg):
    r"""Federated averaging of clipped changes, with noise.

    Each of m clients joins a round with probability q; K are the clients of the round. They train
    the shared model w on their rows, and send the change theta_i - w, clipped to norm C. The sum
    gets noise of standard deviation z C (see `ClientPrivacy`):

    .. math:: w \leftarrow w + \frac{1}{qm} \Big\{\sum_{i \in K} (\theta_i - w)
        \min\Big(1, \frac{C}{\|\theta_i - w\|}\Big) + \mathcal N(0, z^2 C^2 I)\Big\}

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for `FedAvg`. By default each client joins a round with probability `sample_rate`,
        independently. With ``sampling="fixed"`` each round has the same number of clients; the same
        epsilon then needs more noise.
    privacy : ClientPrivacy
        Differential privacy of what clients send; it must be given.

    Notes
    -----
    `consent` gives each client its own largest epsilon. A client takes part until this is spent
    (`IndividualExchange`). These epsilons are not protected, and ``sampling="fixed"`` is
    not allowed with them.

    Epsilon bounds how much the result can change if all rows of one client are removed. The column
    `relation` of `privacy_` states this.

    References
    ----------
    McMahan, Ramage, Talwar and Zhang (2018), Learning differentially private recurrent language
    models, Algorithm 1. Andrew, Thakkar, McMahan and Ramaswamy (2021), Differentially private
    learning with adaptive clipping, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from ebfed.learning import ClientPrivacy
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(500), 5)
    >>> X = rng.normal(size=(2500, 2))
    >>> y = X[:, 0] > 0
    >>> privacy = ClientPrivacy(epsilon=1.0)
    >>> est = DPFedAvg(privacy=privacy, n_rounds=20, learning_rate=1.0, random_state=0)
    >>> est.fit(X, y, groups=groups).score(X, y, groups=groups)
    0.9...
    >>> est.privacy_[["times", "epsilon", "relation"]].round(3).to_dict("list")
    {'times': [20], 'epsilon': [1.0], 'relation': ['the rows of one client, or none']}

    A hundred clients allow only an epsilon of 0.5:

    >>> consent = {g: 0.5 if g < 100 else 1.0 for g in range(500)}
    >>> est.fit(X, y, groups=groups, consent=consent).privacy_[["clients", "times"]].values
    array([[100,   4],
           [400,  20]])
    """

    def protocol(self) -> DPFedAvgRounds:
        return DPFedAvgRounds(self)


class DPFedAvgRounds(FedAvgRounds):
    """What clients and server of `DPFedAvg` do."""

    requires_privacy: ClassVar[bool] = True
    takes_consent: ClassVar[bool] = True

    def chosen(self, clients: Clients, codes: NDArray | None, consent: Any) -> LearningMemory:
        """Return the budget of each client, if they were given."""
        given = self.estimator
        if consent is None:
            return {}
        if given.privacy is not None and given.privacy.trust == "nobody":
            raise ValueError(
                'consent cannot give budgets with trust="nobody", where the server sees only the '
                "sum over nodes."
            )
        return {"budget": epsilons_of(consent, clients.ids, codes)}

    def describe(self, clients: Clients, memory: LearningMemory) -> LearningFacts:
        """State numbers of rows, columns, classes, and budgets where clients have their own."""
        facts = super().describe(clients, memory)
        return facts | {"budget": memory["budget"]} if "budget" in memory else facts

    def check_facts(self, facts: LearningFacts) -> None:
        super().check_facts(facts)
        budget = facts.get("budget", np.ones(len(facts["n"])))
        if budget.dtype != np.float64 or budget.shape != facts["n"].shape or not (budget > 0).all():
            raise ValueError("budget must be a number above 0 for each client.")

    def exchange(self, n_clients: int) -> PrivateExchange:
        """Protect messages, until the budgets of their clients are spent."""
        given = self.estimator
        assert given.privacy is not None
        kind = PrivateExchange if given.privacy.trust == "nobody" else IndividualExchange
        return kind(self.schedule, n_clients, given.privacy, self.message_bounds)


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
        return np.where(self.active(state), turn, -1).astype(np.int8)

    def active(self, state: LearningState) -> NDArray[np.bool_]:
        """Return which clients have something left of their budgets."""
        if "budget" not in state:
            return super().active(state)
        return self.lasting(state["budget"]) > state["round"]

    def broadcast(self, state: LearningState, sent: LearningSent) -> LearningSent:
        """Return what is broadcast, with the budgets and the expected sum of weights."""
        sent = super().broadcast(state, sent)
        if "budget" not in state:
            return sent
        weights = self.schedule.weights(state["n"][self.active(state)], sent["largest"])
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
