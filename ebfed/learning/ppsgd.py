"""PPSGD: a shared vector and own ones that are added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import LearningFacts, LearningMemory, Named
from ebfed.learning.base import Learner
from ebfed.learning.checks import check_between, check_names
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.schedule import Schedule
from ebfed.learning.training import LocalTraining, Task
from ebfed.learning.users import Split
from ebfed.models import Predictor
from ebfed.tables.clients import Clients

__all__ = ["PPSGD", "PPSGDRounds"]

Objective = Literal["clients", "rows"]


@dataclass(eq=False, repr=False)
class PPSGD(Learner):
    r"""Personalized private SGD on an additive model: client i predicts by w + theta_i.

    .. math:: \theta_i \leftarrow \theta_i - \frac{\eta}{Q}\, g_i, \qquad
        w \leftarrow w - \alpha \eta\, \frac{1}{Q} \Big\{\sum_{i \in K}
        g_i \min\Big(1, \frac{C}{\|g_i\|}\Big) + \mathcal N(0, z^2 C^2 I)\Big\}

    where g_i is the gradient of client i's batch at :math:`w + \theta_i`, and Q the number of
    clients, or of rows, that a round is expected to have. Only w is ever published.

    Parameters
    ----------
    model, n_rounds, batch_size, sample_rate, ...
        As for every learner; `local_steps` is 1, a round is a step.
    learning_rate : float
        Learning rate eta. With ``alpha=inf`` it is that of w.
    alpha : float
        Ratio of the steps of w and theta_i: 0, where every client learns alone, to infinity, where
        only w is learned.
        ``alpha * Q = 1`` gives the steps of both equal variances.
    objective : {"clients", "rows"}
        Whether the mean over clients of their mean losses is minimised (Algorithms 1 and 3, where
        clients are equal, and g_i a mean), or the mean over all rows (Algorithm 2, where g_i is a
        sum, and clipped as such).
    personal : sequence of str, optional
        Blocks of the model's parameters that clients add to, such as ``["output",
        "output_intercept"]`` of a network whose other layers are shared; theta_i has these alone.
        None: all.
    privacy : ClientPrivacy
        Differential privacy of what clients send; it must be given.

    Attributes
    ----------
    shared_ : dict
        ``w``, ndarray of shape (p,).
    parameters_ : ndarray of shape (n_groups, p)
        :math:`w + \theta_i`.

    References
    ----------
    Bietti, Wei, Dudik, Langford and Wu (2022), Personalization improves privacy-accuracy tradeoffs
    in federated learning, Algorithms 1 to 3, and for `personal` section 6.

    Examples
    --------
    >>> from ebfed.learning import ClientPrivacy
    >>> from ebfed.models import Linear
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(200), 10)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = X @ [3.0, -1.0] + rng.normal(size=200)[groups] + 0.1 * rng.normal(size=2000)
    >>> privacy = ClientPrivacy(noise_multiplier=1.0, clip=5.0)
    >>> est = PPSGD(Linear(), privacy=privacy, learning_rate=0.5, random_state=0)
    >>> est.fit(X, y, groups=groups).shared_["w"][:2].round(1)
    array([ 2.9, -1. ])
    """

    alpha: float = 1.0
    objective: Objective = "clients"
    personal: Sequence[str] | None = None

    def protocol(self) -> PPSGDRounds:
        return PPSGDRounds(self)


class PPSGDRounds(LearnerRounds):
    """What clients and server of `PPSGD` do."""

    requires_privacy: ClassVar[bool] = True

    def check(self) -> None:
        given = self.estimator
        super().check()
        check_between("alpha", given.alpha, 0, np.inf)
        if given.local_steps != 1:
            raise ValueError(f"local_steps must be 1: a round is a step; got {given.local_steps}.")
        if given.objective not in get_args(Objective):
            raise ValueError(
                f"objective must be one of {get_args(Objective)}; got {given.objective!r}."
            )
        check_names("personal", given.personal)

    def places(self, net: Predictor) -> NDArray[np.int64] | slice:
        """Return where clients add to the parameters of a predictor."""
        personal = self.estimator.personal
        return slice(None) if personal is None else Split.of(personal, net, []).own

    @property
    def schedule(self) -> Schedule:
        """Rounds, whose sums are divided by numbers of clients or of rows."""
        plain = super().schedule
        if self.estimator.objective == "clients":
            return plain  # [P] Algorithm 3
        return OfRows(**vars(plain), batch_size=self.estimator.batch_size)

    def prepare(self, *rows: Any, **beside: Any) -> tuple[Clients, LearningMemory]:
        if beside.get("sample_weight") is not None and self.estimator.objective == "rows":
            raise ValueError(
                "sample_weight is not for objective='rows', which divides by public numbers of "
                "rows. Use objective='clients'."
            )
        return super().prepare(*rows, **beside)

    def local_training(self, *block: Any) -> LocalTraining:
        """Return batches, whose losses are means or sums over rows."""
        training = LocalTraining(self, *block)
        training.total = self.estimator.objective == "rows"
        return training

    def own_parameters(
        self, shared: Named, facts: LearningFacts, rng: np.random.Generator
    ) -> Named:
        """Return theta, which is added to w."""
        return {"theta": np.zeros_like(shared["w"])[self.places(self.predictor(facts))]}

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Return the gradient at w + theta, and theta after a step."""
        (batch,) = task
        slope = task.gradient(self.personal_parameters(shared, own, task), batch)
        if np.isinf(self.estimator.alpha):
            return {"w": slope}, own
        step = task.rate * self.peak_rate / task.expected
        # [P] Algorithm 1
        return {"w": slope}, {"theta": own["theta"] - step * slope[:, self.places(task.net)]}

    def move(self, shared: Named, average: Named, round_: int) -> Named:
        """Make a step of w."""
        alpha = 1.0 if np.isinf(self.estimator.alpha) else self.estimator.alpha
        step = alpha * self.schedule.rate(round_) * self.peak_rate
        return {"w": shared["w"] - step * average["w"]}

    def personal_parameters(self, shared: Named, own: Named, task: Task) -> NDArray[np.float64]:
        """Return w + theta."""
        if self.estimator.personal is None:
            return shared["w"] + own["theta"]
        theta = np.repeat(shared["w"], len(own["theta"]), axis=0)
        theta[:, self.places(task.net)] += own["theta"]
        return theta


@dataclass(frozen=True)
class OfRows(Schedule):
    """Rounds whose sums are divided by their expected number of rows."""

    batch_size: int | None = None

    def expected(self, n: NDArray[np.int64]) -> float:
        """Return the expected number of rows of a round."""
        rows = n if self.batch_size is None else np.minimum(n, self.batch_size)
        return super().expected(n) * float(rows.mean())  # [P] Algorithm 2
