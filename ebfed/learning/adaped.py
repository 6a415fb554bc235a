"""AdaPeD: predictions that stay near a shared predictor's, by a distance that is learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import (
    LearningFacts,
    LearningMemory,
    LearningMessage,
    LearningSent,
    Named,
)
from ebfed.learning.base import Learner
from ebfed.learning.checks import check_between
from ebfed.learning.exchange import Exchange
from ebfed.learning.privacy import PrivateExchange
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.training import Task
from ebfed.models import Batch, Model, Predictor
from ebfed.privacy.calibration import check_positive
from ebfed.privacy.clipping import shorten
from ebfed.tables.clients import LARGEST, Clients

__all__ = ["AdaPeD", "AdaPeDRounds", "DPAdaPeD", "DPAdaPeDRounds"]


@dataclass(eq=False, repr=False)
class AdaPeD(Learner):
    r"""Adaptive personalisation via distillation.

    Client i has a loss

    .. math:: f_i(\theta_i) + \tfrac12 \log(2\psi)
        + \frac{1}{2\psi} f_i^{\mathrm{KD}}(\theta_i, \mu), \qquad
        f_i^{\mathrm{KD}} = \frac1n \sum_j
        D\{p_\mu(\cdot | x_{ij}) \,\|\, p_{\theta_i}(\cdot | x_{ij})\}

    and makes steps in theta_i, then in its copy of mu, then in its copy of psi; the server averages
    the copies. Only predictions are compared, so theta and mu may be of different models. In the
    end every client makes steps in theta_i alone, which begin at the last mu.

    Parameters
    ----------
    model : Model, optional
        Model of theta_i, the personal predictors: `ebfed.models.Softmax` if None.
    shared_model : Model, optional
        Model of mu; `model` if None. If it is given, mu predicts for clients that no round invited,
        and their `parameters_` are those that they started from.
    learning_rate : float
        Learning rate eta_1 of theta_i.
    shared_learning_rate : float, optional
        Learning rate eta_2 of mu; `learning_rate` if None.
    psi_learning_rate : float
        Learning rate eta_3 of psi.
    psi : float, optional
        First value of psi. None: 1, or 3.5 with ``variant="paper"``.
    psi_floor : float
        Lower bound on psi.
    psi_weight : float
        Factor of the divergence where psi is moved; 1 is the gradient.
    psi_clip : float
        Largest size C_2 of the mean gradient of psi in a round, with `privacy`: the change of psi
        is clipped to tau eta_3 C_2.
    psi_share : float
        Share of what a round costs, with `privacy`, that psi costs; the rest is for mu. The noise
        of a part of share s is that of a part alone, times ``1 / sqrt(s)``: by default 1.02 times
        for mu, which has many parameters, and 5 times for psi, which is one number.
    label_weight : float
        Weight of the loss of responses in the steps of mu, beside the divergence; 0 as published.
    refine : int, optional
        Number of steps of theta_i in the end. They begin at mu, or at theta_i if `shared_model` is
        given; 0 for theta_i of the last round that a client took part in. None: 50, or 0 with
        ``variant="paper"`` or `unsampled`.
    unsampled : bool
        Whether clients that are not invited go on training theta_i, with the mu and psi of the last
        round that they took part in. This costs no privacy: nothing is sent.
    variant : {"refined", "paper"}
        ``"paper"`` is the algorithm as published. Its steps of mu divide the divergence by 2 psi,
        as its loss does; those of ``"refined"`` do not, so that mu learns as fast for each psi.
        With `privacy`, ``"paper"`` clips the gradients of mu to ``privacy.clip`` (C_1) and those of
        psi to `psi_clip` in every local step, and `clip_quantile` must be None. ``"refined"`` clips
        the change of mu in a round, as a whole, to ``privacy.clip``: this discards less, and the
        sensitivity is the same.
    privacy : ClientPrivacy, optional
        Differential privacy of mu and psi. With `clip_quantile` the norm of mu's change follows
        that quantile.
    n_rounds, local_steps, batch_size, sample_rate, ...
        As for every learner: see `ebfed.learning.Learner`; T / tau rounds of tau steps.

    Notes
    -----
    With `privacy` and ``variant="paper"``, what a client sends in a round is eta_2 times a sum of
    tau clipped gradients, of a norm of at most :math:`\tau \eta_2 C_1`: the noise is scaled to
    that. Theorem 5 of the paper takes the sum to have the squared norm :math:`\tau C_1^2`; it is
    :math:`\tau^2 C_1^2`. Personal predictors are never sent, and need no noise.

    References
    ----------
    Ozkara, Girgis, Data and Diggavi (2023), A statistical framework for personalized federated
    learning and estimation, eq. (11), Algorithms 2 and 7, and section 3.3 for its privacy.

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
    psi: float | None = None
    psi_floor: float = 0.5
    psi_weight: float = 1.0
    psi_clip: float = 1.0
    psi_share: float = 0.04
    label_weight: float = 0.0
    refine: int | None = None
    unsampled: bool = False
    variant: Literal["refined", "paper"] = "refined"

    def protocol(self) -> AdaPeDRounds:
        return AdaPeDRounds(self)


class AdaPeDRounds(LearnerRounds):
    """What clients and server of `AdaPeD` do."""

    def check(self) -> None:
        given = self.estimator
        super().check()
        for name in ("psi_learning_rate", "psi_floor", "psi_weight", "psi_clip"):
            check_positive(name, getattr(given, name))
        check_positive("psi", self._psi)
        check_between("label_weight", given.label_weight, 0, LARGEST)
        refine = self.refining
        if not isinstance(refine, int | np.integer) or isinstance(refine, bool) or refine < 0:
            raise ValueError(f"refine must be a number of steps; got {refine!r}.")
        if not 0 < check_positive("psi_share", given.psi_share) < 1:
            raise ValueError(f"psi_share must be between 0 and 1; got {given.psi_share!r}.")
        check_positive("shared_learning_rate", self.rate_of("shared_learning_rate"))
        if given.shared_model is not None and not isinstance(given.shared_model, Model):
            raise TypeError(
                f"shared_model must be an ebfed.models.Model; got {given.shared_model!r}."
            )
        if given.shared_model is not None and given.shared_model.classifies != (not self.numeric):
            raise ValueError("model and shared_model must both predict classes, or both numbers.")
        if given.variant not in ("refined", "paper"):
            raise ValueError(f"variant must be 'refined' or 'paper'; got {given.variant!r}.")
        adaptive = given.privacy is not None and given.privacy.clip_quantile is not None
        if adaptive and given.variant == "paper":
            raise ValueError(
                "clip_quantile must be None with variant='paper', which clips gradients step by "
                "step."
            )

    @property
    def _psi(self) -> float:
        given = self.estimator
        if given.psi is None:
            return 3.5 if given.variant == "paper" else 1.0
        return given.psi

    @property
    def refining(self) -> int:
        """Number of steps of theta_i in the end."""
        given = self.estimator
        if given.refine is None:
            return 0 if given.variant == "paper" or given.unsampled else 50
        return given.refine

    def _teacher(self, net: Predictor) -> Predictor:
        """Return the predictor that mu is of."""
        if self.estimator.shared_model is None:
            return net
        return self.estimator.shared_model.bind(net.n_features, net.n_outputs)

    def shared_parameters(self, facts: LearningFacts, rng: np.random.Generator) -> Named:
        """Return mu and psi."""
        mu = self.predictor(facts, self.estimator.shared_model).start(rng)
        return {"mu": mu, "psi": np.array([float(self._psi)])}

    def own_parameters(
        self, shared: Named, facts: LearningFacts, rng: np.random.Generator
    ) -> Named:
        """Return theta, and the mu and psi that clients go on with if they are not invited."""
        theta = shared["mu"]
        if self.estimator.shared_model is not None:
            theta = self.predictor(facts).start(rng)
        return {"theta": theta} | (shared if self.estimator.unsampled else {})

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Make a step of theta, of a copy of mu, and of a copy of psi, for each batch."""
        given = self.estimator
        theta, mu, teacher = own["theta"], shared["mu"], self._teacher(task.net)
        psi = np.maximum(shared["psi"], given.psi_floor).repeat(len(theta), axis=0)
        for batch in task:  # [E] Algorithm 2
            theta = self._learn_from(theta, mu, psi, batch, task)
            h, _ = self._distil(theta, mu, batch, task, teacher)
            h = h / (2 * psi) if given.variant == "paper" else h
            if given.label_weight > 0:
                h = h + given.label_weight * teacher.gradient(mu, batch).gradient
            mu = mu - task.rate * self.rate_of("shared_learning_rate") * self._clipped(h, "mu")
            _, divergence = self._distil(theta, mu, batch, task, teacher)
            k = 1 / (2 * psi) - given.psi_weight * divergence / (2 * psi**2)
            psi = psi - task.rate * given.psi_learning_rate * self._clipped(k, "psi")
            psi = np.maximum(psi, given.psi_floor)
        keep = {"theta": theta} | (shared if given.unsampled else {})
        return {"mu": mu - shared["mu"], "psi": psi - shared["psi"]}, keep

    def _learn_from(
        self, theta: NDArray, mu: NDArray, psi: NDArray, batch: Batch, task: Task
    ) -> NDArray[np.float64]:
        """Make a step of theta."""
        net, (X, y, weight) = task.net, batch
        reference = self._teacher(net).outputs(mu, X)
        outputs, back = net.pull(theta, X)
        loss, slope = net.loss.of(outputs, y, weight)
        task.note(loss, net.loss.score(outputs, y, weight))
        distance = net.loss.divergence(outputs, reference, weight)[1]
        # [E] Equation 11
        g = task.decayed(back(slope + distance / (2 * psi[:, :, None])), theta)
        return theta - task.rate * self.peak_rate * g

    def _distil(
        self, theta: NDArray, mu: NDArray, batch: Batch, task: Task, teacher: Predictor
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Gradient of the divergence in mu (c, p), and the divergence (c, 1)."""
        outputs = task.net.outputs(theta, batch.X)
        reference, back = teacher.pull(mu, batch.X)
        value, _, slope = task.net.loss.divergence(outputs, reference, batch.weight)
        return back(slope), value[:, None]

    def _clipped(self, gradient: NDArray, name: str) -> NDArray[np.float64]:
        """Clip a gradient of what is sent, with the privacy of the paper."""
        given = self.estimator
        if given.privacy is None or given.variant != "paper":
            return gradient
        return shorten(gradient, given.privacy.clip if name == "mu" else given.psi_clip)[0]

    def message_bounds(self, sent: LearningSent) -> dict[str, float]:
        """Return the largest norms of tau steps that are clipped."""
        given = self.estimator
        assert given.privacy is not None
        tau = given.local_steps * self.schedule.rate(sent["round"])
        psi = tau * given.psi_learning_rate * given.psi_clip
        if given.variant == "refined":
            return {"psi": psi}
        mu = tau * self.rate_of("shared_learning_rate") * given.privacy.clip
        slack = 1 + 1e-9  # rounding may take a sum a little beyond
        return {"mu": mu * slack, "psi": psi * slack}

    def exchange(self, n_clients: int) -> Exchange:
        """Protect mu and psi, each with its share of the privacy."""
        exchange = super().exchange(n_clients)
        if not isinstance(exchange, PrivateExchange):
            return exchange
        return replace(
            exchange, shares={"mu": 1 - self.estimator.psi_share, "psi": self.estimator.psi_share}
        )

    def local(
        self, sent: LearningSent, memory: LearningMemory, clients: Clients, rng: Any
    ) -> tuple[LearningMessage, LearningMemory]:
        """Train the clients that are invited; with `unsampled`, the others on their own."""
        message, memory = super().local(sent, memory, clients, rng)
        if self.estimator.unsampled:  # [E] Algorithm 7
            members, own = np.flatnonzero(memory["turn"] != 0), memory["own"]
            training = self.local_training(sent, memory, clients)
            for places, task in training.tasks(members, rng):
                who = members[places]
                theta, mu, psi = (own[name][who] for name in ("theta", "mu", "psi"))
                psi = np.maximum(psi, self.estimator.psi_floor)
                for batch in task:
                    theta = self._learn_from(theta, mu, psi, batch, task)
                own["theta"][who] = theta
            memory["trained"][members[clients.n[members] > 0]] = True
        return message, memory

    def personal_parameters(self, shared: Named, own: Named, task: Task) -> NDArray[np.float64]:
        """Return theta after `refine` steps from mu, or from theta if mu is of another model."""
        mu, start = shared["mu"], own["theta"]
        moves = task.n[:, None] > 0
        if self.estimator.shared_model is None:
            start = np.where(task.new | (self.refining > 0), mu, start)
        else:
            moves &= ~task.new
        theta, psi = start, np.maximum(shared["psi"], self.estimator.psi_floor)
        for batch in task.batches(self.refining):
            theta = self._learn_from(theta, mu, psi, batch, task)
        return np.where(moves, theta, start)

    def unseen_predictor(self, sent: LearningSent) -> tuple[Predictor, NDArray[np.float64]]:
        """Return the shared predictor, and mu."""
        return self._teacher(self.predictor(sent)), sent["shared"]["mu"]

    def note(self, shared: Named) -> dict[str, float]:
        """Return psi."""
        return {"psi": float(shared["psi"][0])}


class DPAdaPeD(AdaPeD):
    r"""AdaPeD with differential privacy, which must be given.

    Parameters
    ----------
    model, shared_model, n_rounds, local_steps, psi, psi_clip, privacy, ...
        As for `AdaPeD`.

    References
    ----------
    Ozkara, Girgis, Data and Diggavi (2023), section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from ebfed.learning import ClientPrivacy
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(200), 10)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = X[:, 0] + rng.normal(size=200)[groups] > 0
    >>> privacy = ClientPrivacy(epsilon=1.0)
    >>> est = DPAdaPeD(privacy=privacy, learning_rate=1.0, psi=1.0, n_rounds=50, random_state=0)
    >>> est.fit(X, y, groups=groups).score(X, y, groups=groups)
    0.9...
    """

    def protocol(self) -> DPAdaPeDRounds:
        return DPAdaPeDRounds(self)


class DPAdaPeDRounds(AdaPeDRounds):
    """What clients and server of `DPAdaPeD` do."""

    requires_privacy: ClassVar[bool] = True
