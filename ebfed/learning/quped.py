"""QuPeD in full precision: personal predictors, distilled against a shared one."""

from __future__ import annotations

from dataclasses import dataclass

from ebfed.learning.base import Named, Now, check_between
from ebfed.learning.local_training import LocalTraining
from ebfed.learning.minibatches import Minibatches

__all__ = ["QuPeD"]


@dataclass(eq=False, repr=False)
class QuPeD(LocalTraining):
    r"""Personalisation via distillation, of a fixed strength and without quantisation.

    .. math:: F_i(\theta_i, w) = (1 - \lambda) f_i(\theta_i)
        + \lambda\, D(p_w \| p_{\theta_i})

    Client i makes steps of :math:`F_i` in theta_i, and then in its copy of w.

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for every learner: see `ebfed.learning.local_training.LocalTraining` and
        `ebfed.learning.base.Learner`; `learning_rate` is that of theta_i.
    distillation : float
        lambda, in [0, 1].
    shared_learning_rate : float, optional
        Of w; `learning_rate` if None.

    References
    ----------
    Ozkara, Singh, Data and Diggavi (2021), QuPeD: quantized personalization via distillation with
    applications to federated learning, eq. (5), Algorithm 2, without its terms of quantised
    parameters.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(size=20)[groups] > 0
    >>> est = QuPeD(learning_rate=1.0, random_state=0).fit(X, y, groups=groups)
    >>> est.score(X, y, groups=groups)
    0.9...
    """

    distillation: float = 0.25
    shared_learning_rate: float | None = None

    def _own(self, shared: Named, facts: dict) -> Named:
        return {"theta": shared["w"]}

    def _settings(self) -> list[str]:
        shared = [] if self.shared_learning_rate is None else ["shared_learning_rate"]
        return [*super()._settings(), *shared]

    def _check(self) -> None:
        super()._check()
        check_between("distillation", self.distillation, 0, 1)

    def _train(self, shared: Named, own: Named, rows: Minibatches, now: Now) -> tuple[Named, Named]:
        w, theta, share = shared["w"], own["theta"], self.distillation
        eta_w = self.shared_learning_rate
        eta_w = self.learning_rate if eta_w is None else eta_w
        for X, y, weight in rows:
            own_part, back = now.net.pull(theta, X)
            loss, slope = now.net.loss.of(own_part, y, weight)
            rows.note(loss, now.net.loss.score(own_part, y, weight))
            distance = now.net.loss.divergence(own_part, now.net.outputs(w, X), weight)[1]
            g = back((1 - share) * slope + share * distance) + self.weight_decay * theta
            theta = theta - now.rate * self.learning_rate * g
            ours, back = now.net.pull(w, X)
            distance = now.net.loss.divergence(now.net.outputs(theta, X), ours, weight)[2]
            w = w - now.rate * eta_w * share * back(distance)
        return {"w": w - shared["w"]}, {"theta": theta}
