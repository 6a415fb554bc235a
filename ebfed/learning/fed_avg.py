"""Federated averaging: one predictor for all, and its fine-tuning by each client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import Named
from ebfed.learning.base import Learner
from ebfed.learning.training import Task
from ebfed.models import Batch

__all__ = ["FedAvg"]


@dataclass(eq=False, repr=False)
class FedAvg(Learner):
    r"""Federated averaging: clients make a few steps from the shared parameters.

    .. math:: w \leftarrow w + \frac{1}{|K|} \sum_{i \in K} (\theta_i - w), \qquad
        \theta_i \leftarrow \theta_i - \eta \nabla f_i(\theta_i) \text{ from } \theta_i = w

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for every learner: see `ebfed.learning.Learner`.
    fine_tune : int
        Number of steps that each client makes from the final parameters, for itself; 0: its
        predictor is the shared one.

    References
    ----------
    McMahan, Moore, Ramage, Hampson and Agüera y Arcas (2017), Communication-efficient learning of
    deep networks from decentralized data, Algorithm 1. Jiang, Konečný, Rush and Kannan (2019),
    Improving federated learning personalization via model agnostic meta learning (fine-tuning).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(size=20)[groups] > 0
    >>> est = FedAvg(learning_rate=1.0, random_state=0).fit(X, y, groups=groups)
    >>> tuned = FedAvg(learning_rate=1.0, fine_tune=50, random_state=0).fit(X, y, groups=groups)
    >>> est.score(X, y, groups=groups), tuned.score(X, y, groups=groups)
    (0.7..., 0.9...)
    """

    fine_tune: int = 0

    def check(self) -> None:
        """Raise a ValueError if an argument is wrong."""
        super().check()
        if not isinstance(self.fine_tune, int | np.integer) or self.fine_tune < 0:
            raise ValueError(f"fine_tune must be a number of steps; got {self.fine_tune!r}.")

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Make a step for each batch, from the shared parameters."""
        return {"w": self._descend(shared["w"], task, task) - shared["w"]}, own

    def _descend(self, theta: NDArray, batches: Iterable[Batch], task: Task) -> NDArray[np.float64]:
        for batch in batches:
            theta = theta - task.rate * self.learning_rate * task.gradient(theta, batch)
        return theta

    def personal_parameters(self, shared: Named, own: Named, task: Task) -> NDArray[np.float64]:
        """Return the shared parameters after steps on the client's own rows."""
        return self._descend(shared["w"], task.batches(self.fine_tune), task)
