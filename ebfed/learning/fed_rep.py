"""FedRep: a body that is shared, and a head of each client's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import LearningFacts, LearningMemory, LearningSent, Named
from ebfed.learning.base import Learner
from ebfed.learning.checks import check_names
from ebfed.learning.memory import remember
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.training import Task
from ebfed.learning.users import Split
from ebfed.models import Predictor
from ebfed.privacy.calibration import check_count
from ebfed.tables.clients import Clients

__all__ = ["FedRep", "FedRepRounds"]


@dataclass(eq=False, repr=False)
class FedRep(Learner):
    r"""Learn a representation together, and what is made of it alone.

    The parameters of a predictor are a body w, which all clients share, and a head h_i of each
    client's own. In a round a client makes steps of its head at the body that it was sent, and then
    steps of its copy of the body:

    .. math:: h_i \leftarrow h_i - \eta \nabla_h f_i(w, h_i), \qquad
        w_i \leftarrow w_i - \eta \nabla_w f_i(w_i, h_i)

    The server averages the bodies. In the end every client fits its head to the final body, also
    one that no round invited.

    Parameters
    ----------
    model, n_rounds, learning_rate, batch_size, sample_rate and others
        As for every learner: see `ebfed.learning.Learner`; `local_steps` are those of the body.
    personal : sequence of str, optional
        Blocks of the model's parameters that are the head. None: those of its last layer, or the
        intercept of a linear model.
    head_steps : int
        Number of steps of the head in a round.

    Notes
    -----
    A group that was not in the fit has no head: it is predicted by the one that all begin with,
    which is random in a network.

    References
    ----------
    Collins, Hassani, Mokhtari and Shakkottai (2021), Exploiting shared representations for
    personalized federated learning, Algorithm 1.

    Examples
    --------
    >>> from ebfed.models import MLP
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 20)
    >>> X = rng.normal(size=(400, 2))
    >>> y = (X[:, 0] > 0) ^ (groups % 2 == 1)
    >>> est = FedRep(MLP(10), learning_rate=0.5, random_state=0).fit(X, y, groups=groups)
    >>> est.score(X, y, groups=groups)
    0.9...
    """

    personal: Sequence[str] | None = None
    head_steps: int = 10

    def protocol(self) -> FedRepRounds:
        return FedRepRounds(self)


class FedRepRounds(LearnerRounds):
    """What clients and server of `FedRep` do."""

    def check(self) -> None:
        given = self.estimator
        super().check()
        check_count("head_steps", given.head_steps)
        check_names("personal", given.personal)

    def split(self, net: Predictor) -> Split:
        """Return where body and head lie in a predictor's parameters."""
        return Split.of(
            last_layer(net) if self.estimator.personal is None else self.estimator.personal, net, []
        )

    def shared_parameters(self, facts: LearningFacts, rng: np.random.Generator) -> Named:
        """Return the body."""
        net = self.predictor(facts)
        return {"w": net.start(rng)[self.split(net).shared]}

    def own_parameters(
        self, shared: Named, facts: LearningFacts, rng: np.random.Generator
    ) -> Named:
        """Return the head."""
        net = self.predictor(facts)
        return {"head": net.start(rng)[self.split(net).own]}

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Make steps of the head, and then of a copy of the body."""
        places, theta = self.split(task.net), self.personal_parameters(shared, own, task)
        for batch in task:
            slope = task.gradient(theta, batch)[:, places.shared]
            theta[:, places.shared] -= task.rate * self.peak_rate * slope
        return {"w": theta[:, places.shared] - shared["w"]}, {"head": theta[:, places.own]}

    def personal_parameters(self, shared: Named, own: Named, task: Task) -> NDArray[np.float64]:
        """Return the body, and the head after steps at it."""
        places = self.split(task.net)
        theta = places.assemble(shared["w"], own["head"])
        for batch in task.batches(self.estimator.head_steps):
            slope = task.gradient(theta, batch)[:, places.own]
            theta[:, places.own] -= task.rate * self.peak_rate * slope
        return theta

    def unseen_predictor(self, sent: LearningSent) -> tuple[Predictor, NDArray[np.float64]]:
        """Return the predictor of the body and of the head that all begin with."""
        net, own = self.predictor(sent), sent["own"]
        return net, self.split(net).assemble(sent["shared"]["w"], own["head"][None])[0]

    def finish(self, sent: LearningSent, memory: LearningMemory, clients: Clients) -> Any:
        """Set the learned attributes of these clients' own copy: all that have rows fit a head."""
        memory = remember(sent, memory, len(clients))
        return super().finish(
            sent, memory | {"trained": memory["trained"] | (clients.n > 0)}, clients
        )


def last_layer(net: Predictor) -> list[str]:
    """Name the blocks of the last layer of a predictor; the intercept, if it has one layer.

    Examples
    --------
    >>> from ebfed.models import MLP, Softmax
    >>> last_layer(MLP(5).bind(3, 2)), last_layer(Softmax().bind(3, 2))
    (['output', 'output_intercept'], ['intercept'])
    """
    names = list(net.blocks)
    layers = [name.rpartition(".")[0] or name.removesuffix("_intercept") for name in names]
    last = [name for name, layer in zip(names, layers, strict=True) if layer == layers[-1]]
    return last if len(last) < len(names) and "coefficients" not in names else names[-1:]
