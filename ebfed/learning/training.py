"""A round's work of clients: a few steps on batches of their own rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import Changes, LearningMemory, LearningSent, Named
from ebfed.engines.sums import Columns
from ebfed.learning.fine_tuning import FineTuning
from ebfed.learning.minibatches import Minibatches, Picked, deal, encoder, precision_of
from ebfed.learning.optimizers import Descent, Optimizer
from ebfed.learning.paths import Path, path_of
from ebfed.learning.validation import Portion, scores_of
from ebfed.models import Batch, Predictor
from ebfed.tables.clients import Clients

__all__ = ["LocalTraining", "SharedTraining", "Task", "Work", "portions"]

# Sets of clients, by their places among those that work, and what each client would change.
Work = Iterator[tuple[NDArray[np.int64], Changes]]
# Numbers of changes that are kept before they are added up.
KEPT = 2**19


class Task:
    """What c clients are to do in a round: batches of their rows, and how to step.

    Attributes
    ----------
    net : Predictor
    rate : float
        Factor of learning rates in this round.
    expected : float
        Number of clients, or of rows, that the round is expected to have.
    share : float
        Share of all clients that the round is expected to have.
    new : bool ndarray of shape (c, 1)
        Whether a client has not trained in any round so far.
    """

    def __init__(
        self,
        rows: Minibatches,
        net: Predictor,
        rate: float,
        expected: float,
        share: float,
        weight_decay: float,
        new: NDArray[np.bool_],
        optimizer: Optimizer,
    ):
        self.net, self.rate, self.new = net, rate, new[:, None]
        self.expected, self.share = expected, share
        self._rows, self._weight_decay, self._optimizer = rows, weight_decay, optimizer

    def __len__(self) -> int:
        """How many clients there are."""
        return len(self._rows.n)

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batch of each local step."""
        return iter(self._rows)

    @property
    def width(self) -> int:
        """How many rows each client has, those of weight 0 included that it is padded with."""
        return self._rows.width

    @property
    def local_steps(self) -> int:
        """How many local steps there are."""
        return len(self._rows)

    def batches(self, count: int) -> Iterator[Batch]:
        """Yield that many batches, whatever the number of local steps."""
        return self._rows.take(count)

    def picked(self, count: int) -> Iterator[Picked]:
        """Yield the same batches without the features of their rows."""
        return self._rows.pick(count)

    def rows(self) -> NDArray:
        """Return the features of the rows that one round may see, shape (c, width, d)."""
        return self._rows.all().X

    def folds(self, count: int) -> Iterator[tuple[Self, Batch]]:
        """Yield the task with a part of the rows left out, and these rows, for each of the parts.

        Parameters
        ----------
        count : int
            How many parts; see `Minibatches.folds`.
        """
        for rows, held in self._rows.folds(count):
            part = copy(self)
            part._rows = rows
            yield part, held

    @property
    def n(self) -> NDArray[np.int64]:
        """Number of rows of each client."""
        return self._rows.n

    @property
    def totals(self) -> NDArray:
        """Sum of the weights of each client's rows, which is their number without weights."""
        return self._rows.totals

    def note(self, loss: NDArray, score: NDArray) -> None:
        """Note how well the first batch was predicted; later calls change nothing.

        Parameters
        ----------
        loss, score : ndarrays of shape (c,)
        """
        self._rows.note(loss, score)

    def gradient(
        self, theta: NDArray, batch: Batch, out: NDArray | None = None
    ) -> NDArray[np.float64]:
        """Return the gradient of the loss of a batch, with weight decay; its loss is noted.

        Parameters
        ----------
        theta : ndarray of shape (c, p), or (1, p) for the same parameters of all clients
        batch : Batch
        out : ndarray of shape (c, p), optional
            Array for the gradient, whose values are lost.

        Returns
        -------
        ndarray of shape (c, p)
        """
        slope = self.net.gradient(theta, batch, out)
        self.note(slope.loss, slope.score)
        return self.decayed(slope.gradient, theta)

    def path(self, theta: NDArray, steps: int) -> Path:
        """Return coordinates for steps from parameters, for which the fewest products are needed.

        Parameters
        ----------
        theta : ndarray of shape (c, p) or (1, p)
        steps : int
            How many there will be: plain ones, with momentum, or with a pull to `theta`.
        """
        kind = path_of(self.net, self.width, steps, self._rows.size, self._optimizer)
        return kind(self, theta)

    def change(self, theta: NDArray, learning_rate: float) -> NDArray | Columns:
        """Return how far the local steps lead from parameters of shape (1, p), shape (c, p).

        Of steps along rows it is Columns, of which `np.asarray` makes an array.
        """
        path, descend = self.path(theta, self.local_steps), self.descent(learning_rate)
        place, spare = path.start, None  # whose memory the next gradient takes
        for step, batch in enumerate(path.batches(self.local_steps), 1):
            gradient = path.gradient(place, batch, spare)
            if step == self.local_steps:
                return path.change(descend.change(place, gradient, path.start))
            before, place = place, descend(place, gradient)
            spare = before if before is not path.start and before.dtype == gradient.dtype else None
        raise AssertionError("a round has a step")

    def descent(self, learning_rate: float) -> Descent:
        """Return what makes steps down gradients in this round, by the learner's optimizer."""
        return Descent(self._optimizer, self.rate * learning_rate)

    def steps(self, rates: NDArray[np.float64]) -> Descent:
        """Return what makes steps of these learning rates, whatever the round; shape (c, 1)."""
        return Descent(self._optimizer, rates)

    def decayed(self, gradient: NDArray, theta: NDArray) -> NDArray[np.float64]:
        """Add weight decay to a gradient, which is written to."""
        if self._weight_decay:
            gradient += self._weight_decay * theta
        return gradient


class LocalTraining:
    """A block of clients in a round, who call `LearnerRounds.train` on batches of their rows.

    Parameters
    ----------
    rounds : LearnerRounds
    sent : dict
        What the server broadcast.
    memory : dict
        What the clients keep, which is written to.
    clients : Clients
    """

    # Whether the loss of a client is the sum over its rows, rather than their mean.
    total: bool = False

    def __init__(
        self,
        rounds: Any,
        sent: LearningSent,
        memory: LearningMemory,
        clients: Clients,
    ):
        self.rounds, self.given = rounds, rounds.estimator
        self.sent, self.memory, self.clients = sent, memory, clients
        self.net: Predictor = rounds.predictor(sent)

    @cached_property
    def shared(self) -> Named:
        """Shared parameters in the precision of clients, each of shape (1, size)."""
        precision = precision_of(self.given)
        return {name: value[None].astype(precision) for name, value in self.sent["shared"].items()}

    @property
    def everyone(self) -> NDArray[np.int64]:
        """Positions of all clients of the block."""
        return np.arange(len(self.clients))

    def work(self, members: NDArray[np.int64], rng: Any) -> Work:
        """Let members of the block work for a round, and write down what they keep.

        Parameters
        ----------
        members : ndarray of positions of the clients that work
        rng : Stream, or "secure"
            As in `LearnerRounds.local`.

        Yields
        ------
        places : ndarray
            Which of `members`; each is in one set.
        changes : dict of ndarrays, or Columns, of shape (len(places), size)
            By which each would move the shared parameters.
        """
        shared, memory, paths = self.shared, self.memory, self.rounds.holds_paths
        self._evaluate(members)
        for places, task in self.tasks(members, rng, paths=paths):
            who = members[places]
            own = {name: value[who] for name, value in memory["own"].items()}
            with np.errstate(over="ignore", invalid="ignore"):  # the server checks what it gets
                changes, own = self.rounds.train(shared, own, task)
            for name, value in own.items():
                memory["own"][name][who] = value
            self.record(who, task)
            if (empty := self.clients.n[who] == 0).any():  # they change nothing
                changes = {k: np.where(empty[:, None], 0.0, each) for k, each in changes.items()}
            yield places, changes

    def record(self, who: NDArray[np.int64], task: Task) -> None:
        """Write down how well clients predicted their first batch, if the round is recorded."""
        if (place := self.sent["record"]) >= 0:
            with np.errstate(over="ignore"):
                self.memory["loss"][who, place] = task._rows.loss
            self.memory["score"][who, place] = task._rows.score

    def _evaluate(self, members: NDArray[np.int64]) -> None:
        """Write down how well members predict rows that are held back, if it is time to."""
        if self.sent["evaluate"] >= 0:
            theta, scores = self._predictors_now(members), np.full(len(members), np.nan)
            classes = None if self.rounds.numeric else self.sent["classes"]
            weighted, metric = self.clients.weight is not None, self.given.metric
            for places, rows in self.held_back(members, np.asarray):
                batch = rows.all()
                expected = self.net.predict(theta[places], batch.X)
                scores[places] = scores_of(metric, batch, expected, classes, weighted)
            self.memory["validation"][members, self.sent["evaluate"]] = scores

    def _predictors_now(self, members: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the parameters of members' predictors, were this the end."""
        theta = self._personal(members)
        if self.given.fine_tune == "auto":  # which chooses by the rows that are held back
            return theta
        return self.tuned(members, theta)

    def predictors(self) -> NDArray[np.float64]:
        """Return the parameters of each client's personal predictor in the end, shape (m, p)."""
        return self.tuned(self.everyone, self._personal(self.everyone))

    def tuned(self, members: NDArray[np.int64], theta: NDArray) -> NDArray[np.float64]:
        """Return the parameters of members' predictors, shape (c, p), after `fine_tune` steps."""
        if not self.given.fine_tune:
            return theta
        with np.errstate(over="ignore", invalid="ignore"):
            return FineTuning(self, members).tune(theta)

    def _personal(self, members: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the parameters of members' personal predictors, were this the end."""
        theta = np.empty((len(members), self.net.size), precision_of(self.given))
        shared = self.shared
        for places, task in self.tasks(members, None):
            own = {x: self.memory["own"][x][members[places]] for x in self.sent["own"]}
            with np.errstate(over="ignore", invalid="ignore"):
                theta[places] = self.rounds.personal_parameters(shared, own, task)
        return theta

    def tasks(
        self, members: NDArray[np.int64], rng: Any, whole: bool = False, paths: bool = False
    ) -> Iterator[tuple[NDArray[np.int64], Task]]:
        """Cut clients into sets that are computed together.

        Parameters
        ----------
        members : ndarray of positions of clients
        rng : Stream, "secure" or None
            None for the order of rows that `LearnerRounds.personal_parameters` sees: it is known
            beforehand.
        whole : bool
            Whether rows that are held back are among the batches.
        paths : bool
            Whether of each client no more is held than its path needs.
        """
        net, given, sent = self.net, self.given, self.sent
        steps = given.local_steps

        def cells(n: int, size: int | None) -> int:
            return path_of(net, n, steps, size, given.optimizer).cells(net, n)

        dealt = deal(
            Portion.training(self.clients, 0 if whole else given.validation_fraction),
            members,
            rng,
            encode=encoder(self.rounds, sent),
            n_parameters=cells if paths else net.size,
            batch_size=given.batch_size,
            steps=steps,
            shuffle=given.shuffle,
            skip=0 if rng is None else steps * (sent["round"] - sent["began"]),
            total=self.total,
        )
        schedule, m = self.rounds.schedule, sent["n_clients"]
        rate, share = schedule.rate(sent["round"]), schedule.clients(m) / m
        for places, rows in dealt:
            new = ~self.memory["trained"][members[places]]
            figures = rate, sent["expected"], share, given.weight_decay
            yield places, Task(rows, net, *figures, new, given.optimizer)

    def held_back(
        self,
        members: NDArray[np.int64],
        encode: Callable[[NDArray], NDArray] | None = None,
        total: bool = False,
    ) -> Iterator[tuple[NDArray[np.int64], Minibatches]]:
        """Cut the rows that members hold back into sets that are computed together; see `deal`."""
        held = Portion.held_back(self.clients, self.given.validation_fraction)
        encode = encoder(self.rounds, self.sent) if encode is None else encode
        return deal(held, members, None, encode=encode, n_parameters=self.net.size, total=total)


class SharedTraining(LocalTraining):
    """Rounds after which all clients predict by the shared parameters."""

    def predictors(self) -> NDArray[np.float64]:
        """Return the shared parameters of all clients, shape (m, p): a view of one row."""
        shared = self.rounds.unseen_predictor(self.sent)[1].astype(precision_of(self.given))
        return np.broadcast_to(shared, (len(self.clients), len(shared)))


def portions(
    work: Work, sizes: dict[str, int], count: int, kept: int | None
) -> Iterator[tuple[NDArray[np.int64], dict[str, Any]]]:
    """Join the changes of sets of clients, in the order of their places.

    Parameters
    ----------
    work : iterator
        As `LocalTraining.work` returns it.
    sizes : dict of int
        Of each part of the changes.
    count : int
        Number of clients of all sets.
    kept : int, optional
        A portion ends when it has that many numbers; None: there is one portion, in 64 bits.

    Yields
    ------
    places : ndarray
        Sorted.
    changes : dict of ndarrays, or Columns, of shape (len(places), size)
        Nothing else refers to them. With one portion they are ndarrays.
    """
    sets: list[tuple[NDArray[np.int64], Changes]] = []
    held = 0
    for places, changes in work:
        if kept and any(isinstance(value, Columns) for value in changes.values()):
            yield _joined([(places, changes)], sizes, None)
            continue
        sets.append((places, changes))
        held += sum(value.size for value in changes.values())
        if kept is not None and held >= kept:
            yield _joined(sets, sizes, None if kept else np.float64)
            sets, held = [], 0
    if sets or not count:
        yield _joined(sets, sizes, None if kept else np.float64)


def _joined(
    sets: list[tuple[NDArray[np.int64], Changes]], sizes: dict[str, int], dtype: Any
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Join sets of clients, and give each the part of the changes that it does not have."""
    places = np.concatenate([np.zeros(0, np.int64), *(each for each, _ in sets)])
    order = np.argsort(places)
    if len(sets) == 1 and (np.diff(places) > 0).all():  # as a rule: nothing is copied
        own = sets[0][1]
        shapes = {name: value.shape for name, value in own.items()}
        if shapes.items() >= {name: (len(places), size) for name, size in sizes.items()}.items():
            if dtype is None:
                return places, dict(own)
            return places, {name: np.asarray(value, dtype) for name, value in own.items()}
    whole = {name: np.zeros((len(places), size)) for name, size in sizes.items()}
    rows = np.argsort(order)
    for each, changes in sets:
        own_rows, rows = rows[: len(each)], rows[len(each) :]
        for name, value in changes.items():
            whole[name][own_rows] = value
    return places[order], whole
