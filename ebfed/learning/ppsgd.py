"""PPSGD: a shared vector and own ones that are added up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.base import Named, Now, check_between
from ebfed.learning.local_training import LocalTraining
from ebfed.learning.minibatches import Minibatches
from ebfed.learning.privacy import PrivateLearner

__all__ = ["PPSGD"]

Objective = Literal["clients", "rows"]


@dataclass(eq=False, repr=False)
class PPSGD(PrivateLearner, LocalTraining):
    r"""Personalized private SGD on an additive model: client i predicts by w + theta_i.

    .. math:: \theta_i \leftarrow \theta_i - \frac{\eta}{Q}\, g_i, \qquad
        w \leftarrow w - \alpha \eta\, \frac{1}{Q} \Big\{\sum_{i \in K}
        g_i \min\Big(1, \frac{C}{\|g_i\|}\Big) + \mathcal N(0, z^2 C^2 I)\Big\}

    where g_i is the gradient of client i's batch at :math:`w + \theta_i`, and Q the number of
    clients, or of rows, that a round is expected to have. Only w is ever published, and others
    learn of a client nothing else.

    Parameters
    ----------
    model, n_rounds, batch_size, sample_rate, ...
        As for every learner; `local_steps` is 1, a round is a step.
    learning_rate : float
        eta. With ``alpha=inf`` it is the step of w.
    alpha : float
        Between 0, where every client learns alone, and infinity, where only w is learned.
        ``alpha * Q = 1`` gives the steps of both equal variances.
    objective : {"clients", "rows"}
        Whether the mean over clients of their mean losses is minimised (Algorithms 1 and 3, where
        clients are equal, and g_i a mean), or the mean over all rows (Algorithm 2, where g_i is a
        sum, and clipped as such).
    epsilon, delta, noise_multiplier, clip, clip_quantile, clip_step, bit_noise, trust
        The promise: see `ebfed.learning.privacy.PrivateLearner`.

    Attributes
    ----------
    shared_ : dict
        ``w``, ndarray of shape (p,).
    parameters_ : ndarray of shape (n_groups, p)
        :math:`w + \theta_i`.

    References
    ----------
    Bietti, Wei, Dudik, Langford and Wu (2022), Personalization improves privacy-accuracy tradeoffs
    in federated learning, Algorithms 1 to 3.

    Examples
    --------
    >>> from ebfed.models import Linear
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(200), 10)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = X @ [3.0, -1.0] + rng.normal(size=200)[groups] + 0.1 * rng.normal(size=2000)
    >>> est = PPSGD(Linear(), alpha=1.0, learning_rate=0.5, clip=5.0, noise_multiplier=1.0)
    >>> est.set_params(random_state=0).fit(X, y, groups=groups).shared_["w"][:2].round(1)
    array([ 2.9, -1. ])
    """

    alpha: float = 1.0
    objective: Objective = "clients"

    @property
    def _total(self) -> bool:  # type: ignore[override]
        return self.objective == "rows"

    def _check(self) -> None:
        super()._check()
        check_between("alpha", self.alpha, 0, np.inf)
        if self.local_steps != 1:
            raise ValueError(f"local_steps must be 1: a round is a step; got {self.local_steps}.")
        if self.objective not in get_args(Objective):
            raise ValueError(
                f"objective must be one of {get_args(Objective)}; got {self.objective!r}."
            )

    def _own(self, shared: Named, facts: dict) -> Named:
        return {"theta": np.zeros_like(shared["w"])}

    def _train(self, shared: Named, own: Named, rows: Minibatches, now: Now) -> tuple[Named, Named]:
        (batch,) = rows
        slope = self._slope(shared["w"] + own["theta"], batch, rows, now)
        if np.isinf(self.alpha):
            return {"w": slope}, own
        step = now.rate * self.learning_rate / now.clients
        return {"w": slope}, {"theta": own["theta"] - step * slope}

    def _personal(
        self, shared: Named, own: Named, rows: Minibatches, now: Now
    ) -> NDArray[np.float64]:
        return shared["w"] + own["theta"]

    # Server -----------------------------------------------------------------------------------

    def _move(self, shared: Named, average: Named, state: dict) -> Named:
        alpha = 1.0 if np.isinf(self.alpha) else self.alpha
        step = alpha * self.decay ** state["round"] * self.learning_rate
        return {"w": shared["w"] - step * average["w"]}

    def _denominator(self, n: NDArray[np.int64]) -> float:
        clients = super()._denominator(n)
        if self.objective == "clients":
            return clients
        batch = n if self.batch_size is None else np.minimum(n, self.batch_size)
        return clients * float(batch.mean())
