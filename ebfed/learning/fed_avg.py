"""Federated averaging: one predictor for all, and its fine-tuning by each client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import Changes, LearningState, Named
from ebfed.learning.base import Learner
from ebfed.learning.optimizers import Optimizer, check_optimizer, server_step
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.schedule import RateSchedule, Schedule, check_rate, peak_of, share_of
from ebfed.learning.training import LocalTraining, SharedTraining, Task

__all__ = ["FedAvg", "FedAvgRounds"]


@dataclass(eq=False, repr=False)
class FedAvg(Learner):
    r"""Federated averaging: clients make a few steps from the shared parameters.

    .. math:: w \leftarrow w + \frac{\sum_{i \in K} a_i (\theta_i - w)}{\sum_{i \in K} a_i}, \qquad
        \theta_i \leftarrow \theta_i - \eta \nabla f_i(\theta_i) \text{ from } \theta_i = w

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, sample_rate, fine_tune and others
        As for every learner: see `ebfed.learning.Learner`. Without fine-tuning, the predictor of
        all clients is the shared one.
    weights : {"clients", "rows"}
        Whether all clients have the same weight a_i in an average, or one in proportion to their
        numbers of rows, as in the paper. These numbers are public. With `privacy` the weighted
        changes are clipped, and the average is over the expected sum of weights.
    server_optimizer : {"sgd", "momentum", "adam"}
        How the server moves w along the average change: by it, with a momentum of 0.9 (FedAvgM), or
        as Adam does (FedAdam), for which a `server_learning_rate` near 0.01 is usual. The server
        computes it from averages alone, so that it costs no privacy.
    server_learning_rate : float or RateSchedule
        Factor of the server's steps.

    References
    ----------
    McMahan, Moore, Ramage, Hampson and Agüera y Arcas (2017), Communication-efficient learning of
    deep networks from decentralized data, Algorithm 1. Jiang, Konečný, Rush and Kannan (2019),
    Improving federated learning personalization via model agnostic meta learning (fine-tuning).
    Hsu, Qi and Brown (2019), Measuring the effects of non-identical data distribution for federated
    visual classification (FedAvgM). Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and
    McMahan (2021), Adaptive federated optimization, Algorithm 2 (FedAdam).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(20), 10)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.normal(size=20)[groups] > 0
    >>> est = FedAvg(learning_rate=1.0, random_state=0).fit(X, y, groups=groups)
    >>> tuned = FedAvg(learning_rate=1.0, fine_tune=50, random_state=0).fit(X, y, groups=groups)
    >>> est.score(X, y, groups=groups), tuned.score(X, y, groups=groups)
    (0.7..., 0.9...)
    """

    weights: Literal["clients", "rows"] = "clients"
    server_optimizer: Optimizer = "sgd"
    server_learning_rate: float | RateSchedule = 1.0

    def protocol(self) -> FedAvgRounds:
        return FedAvgRounds(self)


class FedAvgRounds(LearnerRounds):
    """What clients and server of `FedAvg` do."""

    any_optimizer: ClassVar[bool] = True
    holds_paths: ClassVar[bool] = True

    def check(self) -> None:
        given = self.estimator
        super().check()
        if given.weights not in ("clients", "rows"):
            raise ValueError(f"weights must be 'clients' or 'rows'; got {given.weights!r}.")
        adaptive = given.privacy is not None and given.privacy.clip_quantile is not None
        if given.weights == "rows" and adaptive:
            raise ValueError(
                "weights='rows' needs a fixed clip: clip_quantile is a share of clients, which "
                "count alike."
            )
        check_optimizer("server_optimizer", given.server_optimizer)
        check_rate("server_learning_rate", given.server_learning_rate)

    @property
    def schedule(self) -> Schedule:
        """Rounds, who is invited to them, and the weights of clients."""
        schedule = super().schedule
        return replace(schedule, by_rows=True) if self.estimator.weights == "rows" else schedule

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Changes, Named]:
        """Make a step for each batch, from the shared parameters."""
        return {"w": task.change(shared["w"], self.peak_rate)}, own

    def accelerate(self, average: Named, state: LearningState) -> tuple[Named, LearningState]:
        """Return the server's step along the average change of w, and the state with moments."""
        given = self.estimator
        step, moments = server_step(given.server_optimizer, average["w"], state.get("moments", {}))
        state = state | {"moments": moments} if moments else state
        rate = given.server_learning_rate
        factor = share_of(rate, state["round"], given.n_rounds) * peak_of(rate)
        return average | {"w": step if factor == 1 else factor * step}, state

    def local_training(self, *block: Any) -> LocalTraining:
        """Return the object that trains clients; without fine-tuning there is one predictor."""
        kind = LocalTraining if self.estimator.fine_tune else SharedTraining
        return kind(self, *block)

    def personal_parameters(self, shared: Named, own: Named, task: Task) -> NDArray[np.float64]:
        """Return the shared parameters."""
        return shared["w"]
