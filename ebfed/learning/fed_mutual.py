"""Mutual learning: a private and a shared predictor that teach one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ebfed.engines.protocol import Named
from ebfed.learning.base import Learner
from ebfed.learning.checks import check_between
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.training import Task

__all__ = ["FedMutual", "FedMutualRounds"]


@dataclass(eq=False, repr=False)
class FedMutual(Learner):
    r"""Federated mutual learning.

    Client i trains its own theta_i and its copy w_i of the shared parameters together, each on its
    loss and on its divergence from the other's predictions:

    .. math:: \alpha f_i(\theta_i)
        + (1 - \alpha)\, D(p_{w_i} \| p_{\theta_i}), \qquad
        \beta f_i(w_i) + (1 - \beta)\, D(p_{\theta_i} \| p_{w_i})

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for every learner: see `ebfed.learning.Learner`.
    own_weight : float
        Weight alpha of the client's own loss in theta_i, in [0, 1].
    shared_weight : float
        Weight beta of the client's own loss in w_i, in [0, 1].

    References
    ----------
    Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu and Wu (2020), Federated mutual learning,
    eqs. (3), (4).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(size=20)[groups] > 0
    >>> est = FedMutual(learning_rate=1.0, random_state=0).fit(X, y, groups=groups)
    >>> est.score(X, y, groups=groups)
    0.9...
    """

    own_weight: float = 0.5
    shared_weight: float = 0.5

    def protocol(self) -> FedMutualRounds:
        return FedMutualRounds(self)


class FedMutualRounds(LearnerRounds):
    """What clients and server of `FedMutual` do."""

    keeps_theta: ClassVar[bool] = True

    def check(self) -> None:
        super().check()
        for name in ("own_weight", "shared_weight"):
            check_between(name, getattr(self.estimator, name), 0, 1)

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Move theta and a copy of w at once, for each batch."""
        w, theta, net = shared["w"].repeat(len(task), axis=0), own["theta"], task.net
        eta, alpha, beta = (
            task.rate * self.peak_rate,
            self.estimator.own_weight,
            self.estimator.shared_weight,
        )
        for X, y, weight in task:
            of_theta, back_theta = net.pull(theta, X)
            of_w, back_w = net.pull(w, X)
            loss, slope_theta = net.loss.of(of_theta, y, weight)
            slope_w = net.loss.of(of_w, y, weight)[1]
            task.note(loss, net.loss.score(of_theta, y, weight))
            towards = net.loss.divergence(of_theta, of_w, weight)[1]
            away = net.loss.divergence(of_w, of_theta, weight)[1]
            g = back_theta(alpha * slope_theta + (1 - alpha) * towards)
            h = back_w(beta * slope_w + (1 - beta) * away)
            theta, w = theta - eta * task.decayed(g, theta), w - eta * task.decayed(h, w)
        return {"w": w - shared["w"]}, {"theta": theta}
