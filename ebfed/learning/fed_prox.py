"""FedProx: federated averaging whose clients stay near the shared parameters."""

from __future__ import annotations

from dataclasses import dataclass

from ebfed.engines.protocol import Changes, Named
from ebfed.learning.checks import check_pull
from ebfed.learning.fed_avg import FedAvg, FedAvgRounds
from ebfed.learning.training import Task

__all__ = ["FedProx", "FedProxRounds"]


@dataclass(eq=False, repr=False)
class FedProx(FedAvg):
    r"""Federated averaging with a proximal term.

    Clients make gradient steps of

    .. math:: f_i(\theta) + \tfrac{\lambda}{2} \|\theta - w\|^2

    from the shared parameters w, so that many local steps do not lead far away where clients
    differ.

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, weights, fine_tune and others
        As for `FedAvg`; fine-tuning has no proximal term.
    regularization : float
        Strength lambda of the pull to w; 0 is `FedAvg`. It must be below ``2 / learning_rate``, or
        steps overshoot.

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith (2020), Federated optimization in heterogeneous
    networks, Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + 0.5 * rng.normal(size=20)[groups] > 0
    >>> est = FedProx(learning_rate=1.0, local_steps=20, regularization=0.5, random_state=0)
    >>> est.fit(X, y, groups=groups).score(X, y, groups=groups)
    0.8...
    """

    regularization: float = 0.1

    def protocol(self) -> FedProxRounds:
        return FedProxRounds(self)


class FedProxRounds(FedAvgRounds):
    """What clients and server of `FedProx` do."""

    def check(self) -> None:
        super().check()
        check_pull(self.estimator.regularization, self.peak_rate, self.estimator.optimizer)

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Changes, Named]:
        """Make a step for each batch, with a pull to the shared parameters."""
        path, descend = task.path(shared["w"], task.local_steps), task.descent(self.peak_rate)
        place = path.start
        for batch in path.batches(task.local_steps):
            pull = self.estimator.regularization * (place - path.start)
            place = descend(place, path.gradient(place, batch) + pull)
        return {"w": path.change(place - path.start)}, own
