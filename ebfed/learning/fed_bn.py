"""FedBN: layers that normalise stay with each client, and all others are shared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import LearningMemory, LearningSent, Named
from ebfed.learning.fed_rep import FedRep, FedRepRounds
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.training import Task
from ebfed.learning.users import Split
from ebfed.models import Predictor, Torch
from ebfed.tables.clients import Clients

__all__ = ["FedBN", "FedBNRounds"]


@dataclass(eq=False, repr=False)
class FedBN(FedRep):
    r"""Federated averaging of all but the layers that normalise, which are each client's own.

    Clients whose features have other scales or offsets, such as those of another scanner, learn
    scales and offsets b_i of their own. In a round a client makes steps of both:

    .. math:: (w_i, b_i) \leftarrow (w_i, b_i) - \eta \nabla f_i(w_i, b_i)
        \text{ from } w_i = w

    The server averages w_i.

    Parameters
    ----------
    model : Torch
        Module with layers that normalise: ``GroupNorm``, ``LayerNorm``, ``InstanceNorm`` or
        ``RMSNorm``, or ``BatchNorm`` in evaluation mode.
    n_rounds, learning_rate, local_steps, batch_size, optimizer, sample_rate and others
        As for every learner: see `ebfed.learning.Learner`.
    personal : sequence of str, optional
        Blocks of the model's parameters that are a client's own. None: those of layers that
        normalise.

    Notes
    -----
    The paper also keeps running means and variances of batches with the client. Modules treat rows
    one by one here, so that those of ``BatchNorm`` are fixed numbers of the module, the same for
    all clients.

    References
    ----------
    Li, Jiang, Zhang, Kamp and Dou (2021), FedBN: federated learning on non-IID features via local
    batch normalization, Algorithm 1.

    Examples
    --------
    >>> from ebfed.models import MLP
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(size=20)[groups] > 0
    >>> est = FedBN(MLP(5), personal=["output_intercept"], learning_rate=1.0, random_state=0)
    >>> est.fit(X, y, groups=groups).score(X, y, groups=groups)
    0.9...
    """

    head_steps: int = field(default=1, init=False)

    def protocol(self) -> FedBNRounds:
        return FedBNRounds(self)


class FedBNRounds(FedRepRounds):
    """What clients and server of `FedBN` do."""

    any_optimizer: ClassVar[bool] = True

    def split(self, net: Predictor) -> Split:
        names = self.estimator.personal
        if names is None:
            names = net.model.normalizing() if isinstance(net.model, Torch) else []
            if not names:
                raise ValueError(
                    "model must have layers that normalise, such as torch.nn.LayerNorm, whose "
                    f"scales and offsets are trained; got {net.model!r}. Or name own parameters: "
                    f"personal must be some of {', '.join(net.blocks)}."
                )
        return Split.of(names, net, [])

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Make a step of shared and own parameters for each batch."""
        places, descend = self.split(task.net), task.descent(self.peak_rate)
        theta = self.personal_parameters(shared, own, task)
        for batch in task:
            theta = descend(theta, task.gradient(theta, batch))
        return {"w": theta[:, places.shared] - shared["w"]}, {"head": theta[:, places.own]}

    def personal_parameters(self, shared: Named, own: Named, task: Task) -> NDArray[np.float64]:
        """Return shared and own parameters together."""
        return self.split(task.net).assemble(shared["w"], own["head"])

    def finish(self, sent: LearningSent, memory: LearningMemory, clients: Clients) -> Any:
        """Set the learned attributes; clients that no round invited have no layers of their own."""
        return LearnerRounds.finish(self, sent, memory, clients)
