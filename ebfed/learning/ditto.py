"""Ditto: own parameters that stay near the shared ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.base import Named, Now, check_between
from ebfed.learning.fed_avg import Averaging
from ebfed.learning.minibatches import Minibatches
from ebfed.tables.clients import LARGEST

__all__ = ["Ditto"]


@dataclass(eq=False, repr=False)
class Ditto(Averaging):
    r"""Federated averaging, beside which each client trains a predictor of its own.

    .. math:: \theta_i \leftarrow \theta_i
        - \eta_p \{\nabla f_i(\theta_i) + \lambda (\theta_i - w)\}

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for `FedAvg`, whose shared parameters w are these.
    regularization : float
        lambda: 0 for predictors that learn from nobody else.
    own_learning_rate : float, optional
        eta_p; `learning_rate` if None.

    Notes
    -----
    What a client keeps does not change what it sends. It begins with the parameters that it first
    hears of; one that never took part has the shared ones.

    References
    ----------
    Li, Hu, Beirami and Smith (2021), Ditto: fair and robust federated learning through
    personalization, Algorithm 1.

    Examples
    --------
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

    def _own(self, shared: Named, facts: dict) -> Named:
        return {"theta": shared["w"], "met": np.zeros(1)}

    def _begin(self, shared: Named, own: Named) -> Named:
        """Have a client begin with the shared parameters that it first hears of."""
        return own | {"theta": np.where(own["met"] > 0, own["theta"], shared["w"])}

    def _settings(self) -> list[str]:
        own = [] if self.own_learning_rate is None else ["own_learning_rate"]
        return [*super()._settings(), *own]

    def _check(self) -> None:
        super()._check()
        check_between("regularization", self.regularization, 0, LARGEST)

    def _train(self, shared: Named, own: Named, rows: Minibatches, now: Now) -> tuple[Named, Named]:
        theta = self._approach(shared["w"], own["theta"], rows, now)  # it is its loss that is noted
        change, _ = super()._train(shared, own, rows, now)
        return change, {"theta": theta, "met": np.ones_like(own["met"])}

    def _approach(
        self, w: NDArray, theta: NDArray, rows: Minibatches, now: Now
    ) -> NDArray[np.float64]:
        """Make a step of the own parameters for each batch."""
        eta = self.learning_rate if self.own_learning_rate is None else self.own_learning_rate
        for batch in rows:
            slope = self._slope(theta, batch, rows, now) + self.regularization * (theta - w)
            theta = theta - now.rate * eta * slope
        return theta
