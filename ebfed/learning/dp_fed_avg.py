"""Federated averaging under differential privacy."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import LearningFacts, LearningMemory
from ebfed.learning.base import WithConsent
from ebfed.learning.fed_avg import FedAvg, FedAvgRounds
from ebfed.learning.individual import IndividualExchange
from ebfed.learning.privacy import PrivateExchange
from ebfed.tables.clients import Clients
from ebfed.tables.consent import epsilons_of

__all__ = ["DPFedAvg", "DPFedAvgRounds"]


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
