"""pFedMe: shared parameters are the proximal average of own ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import Named
from ebfed.learning.base import Learner
from ebfed.learning.checks import check_pull
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.training import Task
from ebfed.models import Batch
from ebfed.privacy.calibration import check_count, check_positive

__all__ = ["PFedMe", "PFedMeRounds"]


@dataclass(eq=False, repr=False)
class PFedMe(Learner):
    r"""Own parameters minimise the client's loss near its copy of the shared ones.

    .. math:: \tilde\theta_i(w_i) \approx \arg\min_\theta f_i(\theta)
        + \tfrac{\lambda}{2} \|\theta - w_i\|^2, \qquad
        w_i \leftarrow w_i - \eta \lambda \{w_i - \tilde\theta_i(w_i)\}

    The minimum is sought by a few gradient steps; the server moves w by beta times the average
    change of the :math:`w_i`. In the end every client seeks the minimum near the final w.

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for every learner: see `ebfed.learning.Learner`; `learning_rate` is eta, of the
        :math:`w_i`.
    regularization : float
        Strength lambda of the pull to w_i. It must be below 2 over both learning rates, or steps
        overshoot.
    own_learning_rate : float
        Learning rate of the steps towards the minimum.
    own_steps : int
        Number K of these steps.
    mixing : float
        Share beta of the average change that moves w.

    References
    ----------
    Dinh, Tran and Nguyen (2020), Personalized federated learning with Moreau envelopes,
    Algorithm 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(size=20)[groups] > 0
    >>> est = PFedMe(learning_rate=0.1, own_learning_rate=1.0, random_state=0)
    >>> est.fit(X, y, groups=groups).score(X, y, groups=groups)
    0.9...
    """

    regularization: float = 0.5
    own_learning_rate: float = 0.2
    own_steps: int = 3
    mixing: float = 1.0

    def protocol(self) -> PFedMeRounds:
        return PFedMeRounds(self)


class PFedMeRounds(LearnerRounds):
    """What clients and server of `PFedMe` do."""

    def check(self) -> None:
        given = self.estimator
        super().check()
        for name in ("regularization", "own_learning_rate", "mixing"):
            check_positive(name, getattr(given, name))
        check_pull(given.regularization, max(given.own_learning_rate, self.peak_rate))
        check_count("own_steps", given.own_steps)

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Find theta near w, and move w towards it, for each batch."""
        w = shared["w"]
        for batch in task:
            theta = self._nearby(w, batch, task)
            w = w - task.rate * self.peak_rate * self.estimator.regularization * (w - theta)
        return {"w": w - shared["w"]}, own

    def _nearby(self, w: NDArray, batch: Batch, task: Task) -> NDArray[np.float64]:
        """Make steps towards the minimum near w."""
        given = self.estimator
        theta = w
        for _ in range(given.own_steps):
            slope = task.gradient(theta, batch) + given.regularization * (theta - w)
            theta = theta - task.rate * given.own_learning_rate * slope
        return theta

    def personal_parameters(self, shared: Named, own: Named, task: Task) -> NDArray[np.float64]:
        """Return theta near the final w."""
        (batch,) = task.batches(1)
        return self._nearby(shared["w"], batch, task)

    def move(self, shared: Named, average: Named, round_: int) -> Named:
        """Move w by a share of the average change."""
        return {"w": shared["w"] + self.estimator.mixing * average["w"]}
