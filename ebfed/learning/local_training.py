"""Learners whose clients make gradient steps on batches of their own rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.learning.base import Learner, Named, Now
from ebfed.learning.minibatches import Minibatches, deal
from ebfed.models import Batch
from ebfed.privacy.calibration import check_count
from ebfed.tables.clients import Clients

__all__ = ["LocalTraining"]


@dataclass(eq=False, repr=False)
class LocalTraining(Learner):
    """A learner in which a client makes a few steps in each round.

    A method says what they are (`_train`, a few lines that read like its algorithm box, for many
    clients at once), and what its personal predictor is in the end (`_personal`).

    Parameters
    ----------
    local_steps : int
        tau, how many steps a client makes in a round.
    batch_size : int, optional
        Rows of each step, drawn without replacement until all were seen; all rows if None.
    shuffle : bool
        False: rows are taken in the order they came in, on and on from round to round.
    """

    local_steps: int = 1
    batch_size: int | None = None
    shuffle: bool = True

    # Whether losses of a client are sums over its rows, rather than means.
    _total: ClassVar[bool] = False

    @abstractmethod
    def _train(self, shared: Named, own: Named, rows: Minibatches, now: Now) -> tuple[Named, Named]:
        """Let c clients work for a round.

        Parameters
        ----------
        shared : dict of ndarrays of shape (1, size)
        own : dict of ndarrays of shape (c, size)
        rows : Minibatches
            One batch for each local step.
        now : Now

        Returns
        -------
        changes : dict of ndarrays of shape (c, size)
            By which the client would move shared parameters.
        own : dict of ndarrays of shape (c, size)
        """

    def _begin(self, shared: Named, own: Named) -> Named:
        """Return own parameters with those of clients that never took part as they begin."""
        return own

    def _personal(
        self, shared: Named, own: Named, rows: Minibatches, now: Now
    ) -> NDArray[np.float64]:
        """Parameters of the personal predictor of c clients in the end, shape (c, p)."""
        return own["theta"]

    def _last_steps(self) -> int:
        """How many batches `_personal` is given."""
        return self.local_steps

    def _check(self) -> None:
        super()._check()
        check_count("local_steps", self.local_steps)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)

    def _work(
        self, sent: dict, memory: dict, clients: Clients, members: NDArray[np.int64], rng: Any
    ) -> Named:
        """Train members, write down what they keep, and return what they would change."""
        now = self._now(sent)
        shared = {name: value[None] for name, value in sent["shared"].items()}
        changes = {name: np.zeros((len(members), v.shape[1])) for name, v in shared.items()}
        done = self.local_steps * (sent["round"] - sent["began"])
        for places, rows in self._deal(sent, clients, members, rng, self.local_steps, done):
            who = members[places]
            own = self._begin(shared, {name: memory[name][who] for name in sent["own"]})
            with np.errstate(over="ignore", invalid="ignore"):  # it is found out afterwards
                change, own = self._train(shared, own, rows, now)
            for name, value in change.items():
                changes[name][places] = value
            for name, value in own.items():
                memory[name][who] = value
            if sent["record"] >= 0:
                with np.errstate(over="ignore"):
                    memory["loss"][who, sent["record"]] = rows.loss
                memory["score"][who, sent["record"]] = rows.score
        for moves in changes.values():  # who has no rows is as if it were not there
            moves[clients.n[members] == 0] = 0.0
        return changes

    def _deal(
        self, sent: dict, clients: Clients, members: NDArray, rng: Any, steps: int, skip: int = 0
    ) -> Iterator[tuple[NDArray[np.int64], Minibatches]]:
        """Cut clients into sets that are computed together, with batches for so many steps."""
        return deal(
            clients,
            members,
            rng,
            encode=self._codes(sent),
            n_parameters=self._predictor(sent).size,
            batch_size=self.batch_size,
            steps=steps,
            shuffle=self.shuffle,
            skip=skip,
            total=self._total,
        )

    def _slope(
        self, theta: NDArray, batch: Batch, rows: Minibatches, now: Now
    ) -> NDArray[np.float64]:
        """Gradient of the loss of a batch, and of the decay of weights, shape (c, p)."""
        slope = now.net.gradient(theta, batch)
        rows.note(slope.loss, slope.score)
        return slope.gradient + self.weight_decay * theta if self.weight_decay else slope.gradient

    def _predictors(self, sent: dict, memory: dict, clients: Clients) -> NDArray[np.float64]:
        theta = np.empty((len(clients), self._net.size))
        shared = {name: value[None] for name, value in sent["shared"].items()}
        everyone = np.arange(len(clients))
        now = self._now(sent)
        for who, rows in self._deal(sent, clients, everyone, None, self._last_steps()):
            own = self._begin(shared, {name: memory[name][who] for name in sent["own"]})
            with np.errstate(over="ignore", invalid="ignore"):
                theta[who] = self._personal(shared, own, rows, now)
        return theta
