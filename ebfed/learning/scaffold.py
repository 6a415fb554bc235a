"""SCAFFOLD: federated averaging whose steps are corrected for how clients differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ebfed.engines.protocol import (
    LearningFacts,
    LearningMemory,
    LearningMessage,
    LearningSent,
    Named,
)
from ebfed.learning.exchange import Exchange
from ebfed.learning.fed_avg import FedAvg, FedAvgRounds
from ebfed.learning.training import Task
from ebfed.tables.clients import Clients

__all__ = ["Scaffold", "ScaffoldRounds"]


@dataclass(eq=False, repr=False)
class Scaffold(FedAvg):
    r"""Stochastic controlled averaging.

    Each client keeps a control variate c_i, an estimate of its own gradient; their average c is
    shared. A client makes K steps from w, and renews c_i by its mean gradient:

    .. math:: \theta \leftarrow \theta - \eta \{\nabla f_i(\theta) - c_i + c\}, \qquad
        c_i' = c_i - c + \frac{w - \theta}{K \eta}

    The server moves w by a step along the average of theta - w, and c by the average of c_i' - c_i
    times the share of clients in the round. So clients that differ do not pull w away from the
    minimum of the average loss, however many local steps they make.

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, server_learning_rate, fine_tune and others
        As for `FedAvg`; `weights` must be ``"clients"``, and `optimizer` ``"sgd"``.

    Notes
    -----
    The changes of w and c are of one message: with `privacy` they are clipped together, and a
    gradient is larger than the change that it makes, so that the noise of w is much larger than
    `FedAvg`'s.

    References
    ----------
    Karimireddy, Kale, Mohri, Reddi, Stich and Suresh (2020), SCAFFOLD: stochastic controlled
    averaging for federated learning, Algorithm 1, option II.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + 0.5 * rng.normal(size=20)[groups] > 0
    >>> est = Scaffold(learning_rate=1.0, local_steps=20, random_state=0)
    >>> est.fit(X, y, groups=groups).score(X, y, groups=groups)
    0.8...
    """

    def protocol(self) -> ScaffoldRounds:
        return ScaffoldRounds(self)


class ScaffoldRounds(FedAvgRounds):
    """What clients and server of `Scaffold` do."""

    any_optimizer: ClassVar[bool] = False
    holds_paths: ClassVar[bool] = False

    def check(self) -> None:
        super().check()
        if self.estimator.weights != "clients":
            raise ValueError("weights must be 'clients': control variates of clients count alike.")

    def exchange(self, n_clients: int) -> Exchange:
        """Send changes; c is of all clients, so that its sum is not divided by who took part."""
        return replace(super().exchange(n_clients), totals=frozenset(["c"]))

    def shared_parameters(self, facts: LearningFacts, rng: np.random.Generator) -> Named:
        """Return w, and c, which is 0."""
        w = self.predictor(facts).start(rng)
        return {"w": w, "c": np.zeros_like(w)}

    def own_parameters(
        self, shared: Named, facts: LearningFacts, rng: np.random.Generator
    ) -> Named:
        """Return c_i, which is 0, and what it was moved by since c was."""
        return {"control": shared["c"], "owed": shared["c"]}

    def local(
        self, sent: LearningSent, memory: LearningMemory, clients: Clients, rng: Any
    ) -> tuple[LearningMessage, LearningMemory]:
        """Train clients; what was in an answer that was lost is sent once more."""
        if "own" in memory:
            uncounted = memory.get("uncounted", np.zeros(len(clients), bool))[:, None]
            owed = np.where(uncounted, memory["own"]["owed"], 0.0)
            memory = memory | {"own": memory["own"] | {"owed": owed}}
        return super().local(sent, memory, clients, rng)

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Make a corrected step for each batch, and renew the control variate."""
        theta, eta = shared["w"], task.rate * self.peak_rate
        correction = shared["c"] - own["control"]
        for batch in task:
            theta = theta - eta * (task.gradient(theta, batch) + correction)
        change = theta - shared["w"]
        control = own["control"] - shared["c"] - change / (self.estimator.local_steps * eta)
        owed = own["owed"] + control - own["control"]
        return {"w": change, "c": task.share * owed}, {"control": control, "owed": owed}
