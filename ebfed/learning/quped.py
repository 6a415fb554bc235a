"""QuPeD in full precision: personal predictors, distilled against a shared one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ebfed.engines.protocol import Named
from ebfed.learning.base import Learner
from ebfed.learning.checks import check_between
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.training import Task
from ebfed.privacy.calibration import check_positive

__all__ = ["QuPeD", "QuPeDRounds"]


@dataclass(eq=False, repr=False)
class QuPeD(Learner):
    r"""Personalisation via distillation, of a fixed strength and without quantisation.

    .. math:: F_i(\theta_i, w) = (1 - \lambda) f_i(\theta_i)
        + \lambda\, D(p_w \| p_{\theta_i})

    Client i makes steps of :math:`F_i` in theta_i, and then in its copy of w.

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for every learner: see `ebfed.learning.Learner`; `learning_rate` is that of theta_i.
    distillation : float
        Strength lambda of the distillation, in [0, 1].
    shared_learning_rate : float, optional
        Learning rate of w; `learning_rate` if None.

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

    def protocol(self) -> QuPeDRounds:
        return QuPeDRounds(self)


class QuPeDRounds(LearnerRounds):
    """What clients and server of `QuPeD` do."""

    keeps_theta: ClassVar[bool] = True

    def check(self) -> None:
        given = self.estimator
        super().check()
        check_positive("shared_learning_rate", self.rate_of("shared_learning_rate"))
        check_between("distillation", given.distillation, 0, 1)

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Make a step of theta, and then one of a copy of w, for each batch."""
        w, theta, share, net = shared["w"], own["theta"], self.estimator.distillation, task.net
        eta_w = self.rate_of("shared_learning_rate")
        for X, y, weight in task:
            outputs, back = net.pull(theta, X)
            loss, slope = net.loss.of(outputs, y, weight)
            task.note(loss, net.loss.score(outputs, y, weight))
            distance = net.loss.divergence(outputs, net.outputs(w, X), weight)[1]
            g = task.decayed(back((1 - share) * slope + share * distance), theta)
            theta = theta - task.rate * self.peak_rate * g
            outputs, back = net.pull(w, X)
            distance = net.loss.divergence(net.outputs(theta, X), outputs, weight)[2]
            w = w - task.rate * eta_w * share * back(distance)
        return {"w": w - shared["w"]}, {"theta": theta}
