"""Mutual learning: a private and a shared predictor that teach one another."""

from __future__ import annotations

from dataclasses import dataclass

from ebfed.learning.base import Named, Now, check_between
from ebfed.learning.local_training import LocalTraining
from ebfed.learning.minibatches import Minibatches

__all__ = ["FedMutual"]


@dataclass(eq=False, repr=False)
class FedMutual(LocalTraining):
    r"""Federated mutual learning.

    Client i trains its own theta_i and its copy w_i of the shared parameters together, each on its
    loss and on its divergence from the other's predictions:

    .. math:: \alpha f_i(\theta_i)
        + (1 - \alpha)\, D(p_{w_i} \| p_{\theta_i}), \qquad
        \beta f_i(w_i) + (1 - \beta)\, D(p_{\theta_i} \| p_{w_i})

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate and others
        As for every learner: see `ebfed.learning.local_training.LocalTraining` and
        `ebfed.learning.base.Learner`.
    own_weight : float
        alpha, in [0, 1].
    shared_weight : float
        beta, in [0, 1].

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

    def _own(self, shared: Named, facts: dict) -> Named:
        return {"theta": shared["w"]}

    def _check(self) -> None:
        super()._check()
        for name in ("own_weight", "shared_weight"):
            check_between(name, getattr(self, name), 0, 1)

    def _train(self, shared: Named, own: Named, rows: Minibatches, now: Now) -> tuple[Named, Named]:
        w, theta = shared["w"].repeat(len(own["theta"]), axis=0), own["theta"]
        eta, alpha, beta = now.rate * self.learning_rate, self.own_weight, self.shared_weight
        for X, y, weight in rows:
            own_part, back_mine = now.net.pull(theta, X)
            ours, back_ours = now.net.pull(w, X)
            loss, slope_mine = now.net.loss.of(own_part, y, weight)
            slope_ours = now.net.loss.of(ours, y, weight)[1]
            rows.note(loss, now.net.loss.score(own_part, y, weight))
            towards = now.net.loss.divergence(own_part, ours, weight)[1]
            away = now.net.loss.divergence(ours, own_part, weight)[1]
            theta = theta - eta * (
                back_mine(alpha * slope_mine + (1 - alpha) * towards) + self.weight_decay * theta
            )
            w = w - eta * (back_ours(beta * slope_ours + (1 - beta) * away) + self.weight_decay * w)
        return {"w": w - shared["w"]}, {"theta": theta}
