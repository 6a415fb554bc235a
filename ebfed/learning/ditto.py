"""Ditto: own parameters that stay near the shared ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ebfed.engines.protocol import Changes, Named
from ebfed.learning.base import Learner
from ebfed.learning.checks import check_pull
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.training import Task
from ebfed.privacy.calibration import check_positive

__all__ = ["Ditto", "DittoRounds"]


@dataclass(eq=False, repr=False)
class Ditto(Learner):
    r"""Federated averaging, beside which each client trains a predictor of its own.

    .. math:: \theta_i \leftarrow \theta_i
        - \eta_p \{\nabla f_i(\theta_i) + \lambda (\theta_i - w)\}

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for `FedAvg`, whose shared parameters w are these.
    regularization : float
        Strength lambda of the pull to w: 0 for predictors of own rows alone. It must be below
        ``2 / own_learning_rate``, or steps overshoot.
    own_learning_rate : float, optional
        Learning rate eta_p of theta_i; `learning_rate` if None.

    Notes
    -----
    What a client keeps does not change what it sends. It begins with the shared parameters of the
    first round that it takes part in; one that never took part has the final ones.

    References
    ----------
    Li, Hu, Beirami and Smith (2021), Ditto: fair and robust federated learning through
    personalization, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(size=20)[groups] > 0
    >>> est = Ditto(learning_rate=1.0, random_state=0).fit(X, y, groups=groups)
    >>> est.score(X, y, groups=groups)
    0.9...
    """

    regularization: float = 0.1
    own_learning_rate: float | None = None

    def protocol(self) -> DittoRounds:
        return DittoRounds(self)


class DittoRounds(LearnerRounds):
    """What clients and server of `Ditto` do."""

    keeps_theta: ClassVar[bool] = True
    any_optimizer: ClassVar[bool] = True

    def check(self) -> None:
        given = self.estimator
        super().check()
        own_rate = check_positive("own_learning_rate", self.rate_of("own_learning_rate"))
        check_pull(given.regularization, own_rate, given.optimizer)

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Changes, Named]:
        """Make steps of theta towards w, then steps of a copy of w."""
        theta = self.personal_parameters(shared, own, task)
        descend = task.descent(self.rate_of("own_learning_rate"))
        for batch in task:
            slope = task.gradient(theta, batch) + self.estimator.regularization * (
                theta - shared["w"]
            )
            theta = descend(theta, slope)
        return {"w": task.change(shared["w"], self.peak_rate)}, {"theta": theta}
