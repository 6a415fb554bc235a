"""Every client on its own: what others must do better than."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.base import Named, Now
from ebfed.learning.local_training import LocalTraining
from ebfed.learning.minibatches import Minibatches
from ebfed.privacy import ledger
from ebfed.tables.clients import Clients

__all__ = ["LocalOnly"]


@dataclass(eq=False, repr=False)
class LocalOnly(LocalTraining):
    r"""Each client's own predictor, from nothing but its own rows.

    .. math:: \theta_i \leftarrow \theta_i - \eta \nabla f_i(\theta_i)

    Parameters
    ----------
    model, n_rounds, learning_rate, local_steps, batch_size, ...
        As for every learner. Nothing is sent in a round.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [0.0], [1.0]]), [0, 1, 1, 0]
    >>> est = LocalOnly(learning_rate=1.0).fit(X, y, groups=["a", "a", "b", "b"])
    >>> est.predict(X, groups=["a", "a", "b", "b"])
    array([0, 1, 1, 0])
    >>> est.privacy_["epsilon"].tolist()
    [0.0]
    """

    def _own(self, shared: Named, facts: dict) -> Named:
        return {"theta": shared["w"]}

    def _train(self, shared: Named, own: Named, rows: Minibatches, now: Now) -> tuple[Named, Named]:
        theta = own["theta"]
        for batch in rows:
            theta = theta - now.rate * self.learning_rate * self._slope(theta, batch, rows, now)
        return {}, {"theta": theta}

    def _protect(
        self, changes: Named, sent: dict, memory: dict, members: NDArray, rng: Any
    ) -> dict[str, NDArray]:
        return {}

    def _message_shapes(self, sent: dict, c: int) -> dict[str, tuple[int, ...]]:
        return {}

    def _average(self, state: dict, messages: dict) -> tuple[Named, dict]:
        return {name: np.zeros_like(value) for name, value in state["shared"].items()}, state

    def _released(
        self, sent: dict, memory: dict, clients: Clients, rounds: int
    ) -> list[dict[str, Any]]:
        return [ledger.silence(len(clients))]
