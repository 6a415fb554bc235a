"""Every client on its own: the baseline of all other learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ebfed.engines.protocol import Named
from ebfed.learning.base import Learner
from ebfed.learning.exchange import Exchange, Silence
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.training import Task

__all__ = ["LocalOnly", "LocalOnlyRounds"]


@dataclass(eq=False, repr=False)
class LocalOnly(Learner):
    r"""Each client's own predictor, from nothing but its own rows.

    .. math:: \theta_i \leftarrow \theta_i - \eta \nabla f_i(\theta_i)

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, ...
        As for every learner. Nothing is sent in a round.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [0.0], [1.0]]), [0, 1, 1, 0]
    >>> est = LocalOnly(learning_rate=1.0).fit(X, y, groups=["a", "a", "b", "b"])
    >>> est.predict(X, groups=["a", "a", "b", "b"])
    array([0, 1, 1, 0])
    >>> est.privacy_["epsilon"].tolist()
    [0.0]
    """

    def protocol(self) -> LocalOnlyRounds:
        return LocalOnlyRounds(self)


class LocalOnlyRounds(LearnerRounds):
    """What clients and server of `LocalOnly` do."""

    keeps_theta: ClassVar[bool] = True
    any_optimizer: ClassVar[bool] = True

    def check(self) -> None:
        given = self.estimator
        super().check()
        if given.privacy is not None:
            raise ValueError(
                "privacy must be None: LocalOnly sends nothing, so nothing needs protection; "
                f"got {given.privacy!r}."
            )

        if given.fine_tune:
            raise ValueError(
                "fine_tune must be 0: LocalOnly has no shared predictor to begin with; give it "
                f"more rounds, or use FedAvg; got {given.fine_tune!r}."
            )

    def exchange(self, n_clients: int) -> Exchange:
        """Send nothing."""
        return Silence(self.schedule, n_clients)

    def train(self, shared: Named, own: Named, task: Task) -> tuple[Named, Named]:
        """Make a step for each batch."""
        path, descend = task.path(own["theta"], task.local_steps), task.descent(self.peak_rate)
        place = path.start
        for batch in path.batches(task.local_steps):
            place = descend(place, path.gradient(place, batch))
        return {}, {"theta": path.parameters(place)}
