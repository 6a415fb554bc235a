"""Per-FedAvg: shared parameters from which one step personalises."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import Named
from ebfed.learning.base import Learner
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.training import Task
from ebfed.models import Batch
from ebfed.privacy.calibration import check_positive

__all__ = ["PerFedAvg", "PerFedAvgRounds"]


@dataclass(eq=False, repr=False)
class PerFedAvg(Learner):
    r"""Shared parameters whose loss is small after each client has made one step of its own.

    .. math:: w_i \leftarrow w_i - \eta\, (I - \alpha \nabla^2 f_i(w_i))\,
        \nabla f_i(w_i - \alpha \nabla f_i(w_i))

    The two gradients are taken on different batches if there are several (``local_steps > 1``). The
    product with the Hessian is a difference of two gradients ("HF" of the paper), or left out
    ("FO").

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for every learner: see `ebfed.learning.Learner`.
    own_learning_rate : float
        Learning rate alpha of the step that personalises.
    hessian : bool
        Whether the product with the Hessian is computed.

    References
    ----------
    Fallah, Mokhtari and Ozdaglar (2020), Personalized federated learning with theoretical
    guarantees: a model-agnostic meta-learning approach, Algorithm 1, eq. (13).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(size=20)[groups] > 0
    >>> est = PerFedAvg(learning_rate=1.0, own_learning_rate=5.0, local_steps=2, random_state=0)
    >>> est.fit(X, y, groups=groups).score(X, y, groups=groups)
    0.9...
    """

    own_learning_rate: float = 0.01
    hessian: bool = True

    def protocol(self) -> PerFedAvgRounds:
        return PerFedAvgRounds(self)


class PerFedAvgRounds(LearnerRounds):
    """What clients and server of `PerFedAvg` do."""

    def check(self) -> None:
        super().check()
        check_positive("own_learning_rate", self.estimator.own_learning_rate)

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Make steps of the loss after one step, for each batch."""
        w, alpha = shared["w"], self.estimator.own_learning_rate
        batches = list(task)
        for batch, other in zip(batches, [*batches[1:], batches[0]], strict=True):
            adapted = w - alpha * task.gradient(w, batch)
            slope = task.gradient(adapted, other)
            if self.estimator.hessian:
                slope = slope - alpha * self._curvature(w, slope, batch, task)
            w = w - task.rate * self.peak_rate * slope
        return {"w": w - shared["w"]}, own

    def _curvature(
        self, w: NDArray, direction: NDArray, batch: Batch, task: Task
    ) -> NDArray[np.float64]:
        """Product of the Hessian with a direction, by a central difference of gradients."""
        size = np.linalg.norm(direction, axis=1, keepdims=True)
        length = 1e-4 * (1 + np.linalg.norm(w, axis=1, keepdims=True))
        step = length * direction / np.maximum(size, 1e-300)
        ahead, behind = (task.gradient(w + sign * step, batch) for sign in (1, -1))
        return (ahead - behind) * size / (2 * length)

    def personal_parameters(self, shared: Named, own: Named, task: Task) -> NDArray[np.float64]:
        """Return the shared parameters after one step."""
        (batch,) = task.batches(1)
        return shared["w"] - self.estimator.own_learning_rate * task.gradient(shared["w"], batch)
