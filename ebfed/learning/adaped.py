"""AdaPeD: predictions that stay near a shared predictor's, by a distance that is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.base import Named, Now
from ebfed.learning.local_training import LocalTraining
from ebfed.learning.minibatches import Minibatches
from ebfed.models import Batch, Model, Predictor
from ebfed.tables.clients import Clients

__all__ = ["AdaPeD"]


@dataclass(eq=False, repr=False)
class AdaPeD(LocalTraining):
    r"""Adaptive personalisation via distillation.

    Client i has a loss

    .. math:: f_i(\theta_i) + \tfrac12 \log(2\psi)
        + \frac{1}{2\psi} f_i^{\mathrm{KD}}(\theta_i, \mu), \qquad
        f_i^{\mathrm{KD}} = \frac1n \sum_j
        D\{p_\mu(\cdot | x_{ij}) \,\|\, p_{\theta_i}(\cdot | x_{ij})\}

    and makes steps in theta_i, then in its copy of mu, then in its copy of psi; the server averages
    the copies. Only predictions are compared, so theta and mu may be of different models.

    Parameters
    ----------
    model : Model, optional
        Of theta_i, the personal predictors: `ebfed.models.Softmax` if None.
    shared_model : Model, optional
        Of mu; `model` if None.
    learning_rate : float
        eta_1, of theta_i.
    shared_learning_rate : float, optional
        eta_2, of mu; `learning_rate` if None.
    psi_learning_rate : float
        eta_3, of psi.
    psi : float
        What psi begins with.
    psi_floor : float
        psi is kept from falling below.
    psi_weight : float
        By which the divergence is multiplied where psi is moved; 1 is the gradient.
    unsampled : bool
        Whether clients that are not invited go on training theta_i with what they last heard,
        which costs no privacy: nothing is sent.
    n_rounds, local_steps, batch_size, sample_rate, ...
        As for every learner: see `ebfed.learning.local_training.LocalTraining` and
        `ebfed.learning.base.Learner`; T / tau rounds of tau steps.

    References
    ----------
    Ozkara, Girgis, Data and Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, eq. (11), Algorithms 2 and 7.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(size=20)[groups] > 0
    >>> est = AdaPeD(learning_rate=1.0, psi=1.0, random_state=0).fit(X, y, groups=groups)
    >>> est.score(X, y, groups=groups)
    0.9...
    >>> bool(est.history_["psi"].iloc[-1] < 1.0)
    True
    """

    shared_model: Model | None = None
    shared_learning_rate: float | None = None
    psi_learning_rate: float = 0.05
    psi: float = 3.5
    psi_floor: float = 0.5
    psi_weight: float = 1.0
    unsampled: bool = False

    def _settings(self) -> list[str]:
        shared = [] if self.shared_learning_rate is None else ["shared_learning_rate"]
        own = ["psi_learning_rate", "psi", "psi_floor", "psi_weight"]
        return [*super()._settings(), *own, *shared]

    def _check(self) -> None:
        super()._check()
        if self.shared_model is not None and not isinstance(self.shared_model, Model):
            raise TypeError(
                f"shared_model must be an ebfed.models.Model; got {self.shared_model!r}."
            )
        if self.shared_model is not None and self.shared_model.classifies != (not self._numeric):
            raise ValueError("model and shared_model must both predict classes, or both numbers.")

    def _share(self, facts: dict, rng: np.random.Generator) -> Named:
        mu = self._predictor(facts, self.shared_model).start(rng)
        return {"mu": mu, "psi": np.array([self.psi])}

    def _own(self, shared: Named, facts: dict) -> Named:
        own = {"theta": shared["mu"]}
        if self.shared_model is not None:
            own["theta"] = self._predictor(facts).start(np.random.default_rng(len(shared["mu"])))
        return own | ({"mu": shared["mu"], "psi": shared["psi"]} if self.unsampled else {})

    def _train(self, shared: Named, own: Named, rows: Minibatches, now: Now) -> tuple[Named, Named]:
        theta, mu = own["theta"], shared["mu"]
        psi = np.maximum(shared["psi"], self.psi_floor).repeat(len(theta), axis=0)
        teacher = self._teacher(now.net)
        for batch in rows:
            theta = self._learn_from(theta, mu, psi, batch, rows, now)
            h, _ = self._distil(theta, mu, batch, now, teacher)
            mu = mu - now.rate * self._step_of_mu * self._bound(h / (2 * psi), "mu")
            _, divergence = self._distil(theta, mu, batch, now, teacher)
            k = 1 / (2 * psi) - self.psi_weight * divergence / (2 * psi**2)
            psi = psi - now.rate * self.psi_learning_rate * self._bound(k, "psi")
            psi = np.maximum(psi, self.psi_floor)
        keep = {"mu": shared["mu"], "psi": shared["psi"]} if self.unsampled else {}
        return {"mu": mu - shared["mu"], "psi": psi - shared["psi"]}, {"theta": theta} | keep

    def _learn_from(
        self, theta: NDArray, mu: NDArray, psi: NDArray, batch: Batch, rows: Minibatches, now: Now
    ) -> NDArray[np.float64]:
        """Make a step of the own parameters."""
        reference = self._teacher(now.net).outputs(mu, batch.X)
        outputs, back = now.net.pull(theta, batch.X)
        loss, slope = now.net.loss.of(outputs, batch.y, batch.weight)
        rows.note(loss, now.net.loss.score(outputs, batch.y, batch.weight))
        distance = now.net.loss.divergence(outputs, reference, batch.weight)[1]
        g = back(slope + distance / (2 * psi[:, :, None])) + self.weight_decay * theta
        return theta - now.rate * self.learning_rate * g

    def _distil(
        self, theta: NDArray, mu: NDArray, batch: Batch, now: Now, teacher: Predictor
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Gradient of the divergence in mu (c, p), and the divergence (c, 1)."""
        outputs = now.net.outputs(theta, batch.X)
        reference, back = teacher.pull(mu, batch.X)
        value, _, slope = now.net.loss.divergence(outputs, reference, batch.weight)
        return back(slope), value[:, None]

    def _teacher(self, net: Predictor) -> Predictor:
        if self.shared_model is None:
            return net
        return self.shared_model.bind(net.n_features, net.n_outputs)

    @property
    def _step_of_mu(self) -> float:
        shared = self.shared_learning_rate
        return self.learning_rate if shared is None else shared

    def _bound(self, gradient: NDArray, name: str) -> NDArray[np.float64]:
        """Bound the gradient of what is sent; here, by nothing."""
        return gradient

    def local(self, sent: dict, memory: dict, clients: Clients, rng: Any) -> tuple[dict, dict]:
        """Train the clients that are invited; the others on their own, if so wished."""
        message, memory = super().local(sent, memory, clients, rng)
        if self.unsampled:
            self._rest(sent, memory, clients, rng)
        return message, memory

    def _rest(self, sent: dict, memory: dict, clients: Clients, rng: Any) -> None:
        """Let clients that are not invited train with what they last heard."""
        now = self._now(sent)
        members = np.flatnonzero(memory["turn"] != 0)
        done = self.local_steps * (sent["round"] - sent["began"])
        for places, rows in self._deal(sent, clients, members, rng, self.local_steps, done):
            who = members[places]
            theta, mu, psi = (memory[name][who] for name in ("theta", "mu", "psi"))
            psi = np.maximum(psi, self.psi_floor)
            for batch in rows:
                theta = self._learn_from(theta, mu, psi, batch, rows, now)
            memory["theta"][who] = theta

    def _unseen(self, shared: Named) -> NDArray[np.float64]:
        return shared["mu"]

    def _take(self, sent: dict) -> None:
        super()._take(sent)
        self._shared_net = self._teacher(self._net)

    def _note(self, state: dict) -> dict[str, float]:
        return {"psi": float(state["shared"]["psi"][0])}
