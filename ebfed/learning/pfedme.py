"""pFedMe: shared parameters are the proximal average of own ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.base import Named, Now
from ebfed.learning.local_training import LocalTraining
from ebfed.learning.minibatches import Minibatches
from ebfed.models import Batch
from ebfed.privacy.calibration import check_count

__all__ = ["PFedMe"]


@dataclass(eq=False, repr=False)
class PFedMe(LocalTraining):
    r"""Own parameters minimise the client's loss near its copy of the shared ones.

    .. math:: \tilde\theta_i(w_i) \approx \arg\min_\theta f_i(\theta)
        + \tfrac{\lambda}{2} \|\theta - w_i\|^2, \qquad
        w_i \leftarrow w_i - \eta \lambda \{w_i - \tilde\theta_i(w_i)\}

    The minimum is sought by a few gradient steps; the server moves w by beta times the average
    change of the :math:`w_i`.

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for every learner: see `ebfed.learning.local_training.LocalTraining` and
        `ebfed.learning.base.Learner`; `learning_rate` is eta, of the :math:`w_i`.
    regularization : float
        lambda.
    own_learning_rate : float
        Of the steps towards the minimum.
    own_steps : int
        K, how many of them.
    mixing : float
        beta.

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

    def _own(self, shared: Named, facts: dict) -> Named:
        return {"theta": shared["w"]}

    def _settings(self) -> list[str]:
        return [*super()._settings(), "regularization", "own_learning_rate", "mixing"]

    def _check(self) -> None:
        super()._check()
        check_count("own_steps", self.own_steps)

    def _train(self, shared: Named, own: Named, rows: Minibatches, now: Now) -> tuple[Named, Named]:
        w, theta = shared["w"], own["theta"]
        for batch in rows:
            theta = self._nearby(w, batch, rows, now)
            w = w - now.rate * self.learning_rate * self.regularization * (w - theta)
        return {"w": w - shared["w"]}, {"theta": theta}

    def _nearby(self, w: NDArray, batch: Batch, rows: Minibatches, now: Now) -> NDArray[np.float64]:
        """Make steps towards the minimum near w."""
        theta = w
        for _ in range(self.own_steps):
            slope = self._slope(theta, batch, rows, now) + self.regularization * (theta - w)
            theta = theta - now.rate * self.own_learning_rate * slope
        return theta

    def _move(self, shared: Named, average: Named, state: dict) -> Named:
        return {"w": shared["w"] + self.mixing * average["w"]}
