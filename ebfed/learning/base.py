"""Learning by gradients, in rounds: what federated averaging and its relatives have in common.

In each round the server invites clients, sends them the *shared* parameters, and moves these by an
average of what the clients send back. A client trains on its own rows, and keeps its *own*
parameters to itself.

A method is a class that derives from `Learner` and defines a few of its hooks: which parameters are
shared (`shared_parameters`), which are a client's own (`own_parameters`), what a client does in a
round (`train`), and what it predicts by in the end (`personal_parameters`). The vignette on
extending has an example.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ebfed.engines import Engine
from ebfed.engines.protocol import (
    Changes,
    LearningFacts,
    LearningMemory,
    LearningMessage,
    LearningSent,
    LearningState,
    Named,
)
from ebfed.engines.supervised import SupervisedEstimator, paired_rows, score_of
from ebfed.kernels.threads import one_thread
from ebfed.learning.checks import check_arguments
from ebfed.learning.exchange import Exchange
from ebfed.learning.files import LearnerFile, save
from ebfed.learning.fitting import history_rows, hold_rounds, read_choices, rows_shown, settle
from ebfed.learning.memory import remember
from ebfed.learning.minibatches import precision_of
from ebfed.learning.node_sums import node_sums
from ebfed.learning.optimizers import Optimizer
from ebfed.learning.predictions import estimates, expected_of, export, term_names
from ebfed.learning.privacy import ClientPrivacy, PrivateExchange
from ebfed.learning.rates import RateSchedule, peak_of
from ebfed.learning.schedule import Sampling, Schedule
from ebfed.learning.server import broadcast_of, first_state, next_state
from ebfed.learning.training import KEPT, LocalTraining, Task, portions
from ebfed.models import Model, Predictor, Softmax
from ebfed.privacy.odometer import Plan
from ebfed.report.view import LearnerView, reports
from ebfed.tables.clients import Clients

__all__ = ["Learner"]


def _classifies(learner: Learner) -> bool:
    if learner._numeric:
        raise AttributeError(f"{learner.model!r} predicts numbers, which have no probabilities")
    return True


@dataclass(eq=False, repr=False)
class Learner(SupervisedEstimator):
    """Predictors of every client, learned together by gradient steps in rounds.

    Parameters
    ----------
    model : Model, optional
        Model that is trained: `ebfed.models.Softmax` if None.
    n_rounds : int
        Number of rounds, T.
    learning_rate : float or RateSchedule
        Learning rate eta of clients' steps. With a schedule, all learning rates of clients change
        from round to round in proportion to it.
    decay : float
        Learning-rate decay per round.
    local_steps : int
        Number tau of steps that a client makes in a round.
    batch_size : int, optional
        Rows of each step, drawn without replacement until all were seen; all rows if None.
    shuffle : bool
        Whether rows are drawn in random order. False: in their own order, on and on from round to
        round.
    weight_decay : float
        Weight decay: this, times the parameters, is added to every gradient.
    optimizer : {"sgd", "momentum", "adam"}
        How clients make steps: plain ones, with a momentum of 0.9, or Adam's; moments are new in
        every round. Learners whose steps have a meaning of their own have ``"sgd"`` only.
    dtype : {"float64", "float32"}
        Precision of rows, own parameters, clients' steps and predictions: ``"float32"`` needs half
        the memory, and about half the time of large models. Messages, shared parameters and noise
        have 64 bits in either case. Modules of PyTorch compute in their own precision.
    sample_rate : float
        Share q of the clients that is invited in each round.
    sampling : {"fixed", "poisson"}, optional
        Whether a round has a fixed number of clients, or each joins independently. None: "poisson"
        with `privacy`, "fixed" without.
    privacy : ClientPrivacy, optional
        Differential privacy of what clients send; None: messages are sent as they are.
    classes : array-like, optional
        Classes that are known beforehand. None: those that clients state, which shows that some
        client has each.
    warm_start : bool
        Whether `fit` continues the last fit, which must be of the same groups, and hold the same
        share of rows back. Noise is drawn from a new key.
    checkpoint : path, optional
        Folder of a checkpoint, from which an interrupted fit continues, to the same result. It
        holds the key of the noise, and is as private as the rows.
    engine : Engine, optional
        Engine that clients compute on; in this process if None.
    validation_fraction : float
        Share of the rows of each client that is held back from training, to measure how well its
        predictor does.
    fine_tune : int or "auto"
        Number of steps that each client makes in the end, from its predictor, down the loss of its
        own rows alone. ``"auto"``: each client compares 0, 1, 2, 5, 10, 20, 50 and 100 steps by the
        loss of the rows that it holds back, on which nothing was trained, and makes those of the
        smallest loss on all its rows; none if it holds nothing back. A choice by a few rows is
        noisy. It is not sent, so that it costs no privacy.
    fine_tune_rate : float, optional
        Learning rate of these steps, which does not decay. None: `learning_rate`, as it is after
        the last round; with ``"auto"`` a tenth of that is compared, too.
    evaluate_every : int, optional
        Number k: before every k-th round, the clients of the round evaluate their predictors on
        rows that are held back. ``validation`` of `history_` is the mean over these clients, with
        ``fine_tune="auto"`` before the fine-tuning, which has chosen by these rows.
    metric : callable, optional
        Function of responses and predictions (classes or numbers) of a client's rows that are held
        back; larger is better. None: the share of classes that are right, or minus the mean squared
        error.
    early_stopping : int, optional
        The fit ends when so many evaluations in a row were not better than the best before; with
        `warm_start`, of the rounds since it went on. The
        server must see `validation` for that, so that it is refused with `privacy`.
    verbose : int
        1: show a progress bar.
    random_state : int, Generator or None
        Seed of all draws. With `privacy`, a fixed seed is for simulations: it protects nobody.

    Attributes
    ----------
    parameters_ : ndarray of shape (n_groups, p)
        Of the predictor of each group.
    shared_ : dict of ndarrays
        What the server knows.
    model_ : Model
        Model of the predictors.
    classes_ : ndarray of shape (n_classes,)
        Of a classification.
    clients_ : Clients
        Their rows (which, in a real federation, stay with them).
    groups_ : ndarray of shape (n_groups,)
        Labels, sorted.
    history_ : DataFrame
        A row for each round. ``loss`` and ``accuracy`` are means over the clients that took part,
        of their first batch of the round, before they train on it. Without `privacy` they are sums
        that clients send. With it they are not sent, and NaN on a server, which has no rows. The
        same holds for ``validation``.
    privacy_ : DataFrame
        Ledger of what clients sent.
    n_features_in_ : int
    """

    model: Model | None = None
    _: KW_ONLY
    n_rounds: int = 100
    learning_rate: float | RateSchedule = 0.1
    decay: float = 1.0
    local_steps: int = 1
    batch_size: int | None = None
    shuffle: bool = True
    weight_decay: float = 0.0
    optimizer: Optimizer = "sgd"
    dtype: Literal["float64", "float32"] = "float64"
    sample_rate: float = 1.0
    sampling: Sampling | None = None
    privacy: ClientPrivacy | None = None
    classes: Any = None
    warm_start: bool = False
    checkpoint: Any = None
    engine: Engine | None = None
    fine_tune: int | Literal["auto"] = 0
    fine_tune_rate: float | None = None
    validation_fraction: float = 0.0
    evaluate_every: int | None = None
    metric: Any = None
    early_stopping: int | None = None
    verbose: int = 0
    random_state: Any = None

    # Whether `privacy` must be given.
    requires_privacy: ClassVar[bool] = False

    # Whether clients may make steps by other optimizers than "sgd".
    any_optimizer: ClassVar[bool] = False

    # Whether a round holds of each client what `Task.path` needs, and not all parameters.
    holds_paths: ClassVar[bool] = False

    # Whether rows of weight 0 are as if they were not there.
    drops_weightless: ClassVar[bool] = True

    # What a file has of the fit.
    _file: ClassVar = LearnerFile()
    # The state that a fit with warm_start goes on from.
    _state: LearningState | None = field(default=None, init=False)

    # What a method defines --------------------------------------------------------------------

    def shared_parameters(self, facts: LearningFacts, rng: np.random.Generator) -> Named:
        """Return the shared parameters to start from, each of shape (size,).

        Parameters
        ----------
        facts : dict
            What clients stated: see `ebfed.engines.protocol.LearningFacts`.
        rng : Generator
        """
        return {"w": self.predictor(facts).start(rng)}

    def own_parameters(
        self, shared: Named, facts: LearningFacts, rng: np.random.Generator
    ) -> Named:
        """Return the own parameters that a client starts from, each of shape (size,).

        Parameters
        ----------
        shared : dict of ndarrays
            What `shared_parameters` returned.
        facts : dict
        rng : Generator
        """
        return {}

    @abstractmethod
    def train(self, shared: Named, own: Named, task: Task) -> tuple[Changes, Named]:
        """Let c clients work for a round.

        Parameters
        ----------
        shared : dict of ndarrays of shape (1, size)
            Shared parameters, the same for all clients.
        own : dict of ndarrays of shape (c, size)
            Own parameters of each client.
        task : Task
            Yields a batch for each local step.

        Returns
        -------
        changes : dict of ndarrays, or Columns, of shape (c, size)
            By which each client would move the shared parameters.
        own : dict of ndarrays of shape (c, size)
            What each client keeps.
        """

    def personal_parameters(self, shared: Named, own: Named, task: Task) -> NDArray[np.float64]:
        """Return the parameters of the personal predictors of c clients in the end, shape (c, p).

        Parameters
        ----------
        shared, own, task
            As in `train`, with the final parameters. Here, ``own["theta"]`` is returned, and the
            shared parameters of clients that never trained.
        """
        return np.where(task.new, shared["w"], own["theta"])

    def unseen_predictor(self, sent: LearningSent) -> tuple[Predictor, NDArray[np.float64]]:
        """Return the predictor of a client that was not in the fit, and its parameters (p,).

        Parameters
        ----------
        sent : dict
            The last broadcast.
        """
        return self.predictor(sent), sent["shared"]["w"]

    def move(self, shared: Named, average: Named, round_: int) -> Named:
        """Return the shared parameters of the next round.

        Parameters
        ----------
        shared : dict of ndarrays of shape (size,)
        average : dict of ndarrays of shape (size,)
            Of what `train` returned as changes; these arrays may be written to.
        round_ : int
        """
        return {name: np.add(x, average[name], out=average[name]) for name, x in shared.items()}

    def accelerate(self, average: Named, state: LearningState) -> tuple[Named, LearningState]:
        """Return what `move` gets, and the state: a server may keep moments of averages.

        `move` may write to what it gets, so that the state must hold other arrays.

        Parameters
        ----------
        average : dict of ndarrays of shape (size,)
        state : dict
        """
        return average, state

    def note(self, shared: Named) -> dict[str, float]:
        """Return columns that the history has besides those of all learners, for a round.

        Parameters
        ----------
        shared : dict of ndarrays
            Shared parameters after the round.
        """
        return {}

    def message_bounds(self, sent: LearningSent) -> dict[str, float]:
        """Return the largest norm of parts of the changes that have one of their own.

        With `privacy`, each of these is clipped to its norm, and all other parts together to
        ``privacy.clip``; noise is scaled to these norms. Here no part has a norm of its own.

        Parameters
        ----------
        sent : dict
        """
        return {}

    def check(self) -> None:
        """Raise a ValueError if an argument is wrong; extend it for arguments of your own."""
        check_arguments(self)

    def exchange(self, n_clients: int) -> Exchange:
        """Return the object that sends, averages and accounts for messages.

        Parameters
        ----------
        n_clients : int
            Of the whole federation.
        """
        if self.privacy is None:
            return Exchange(self.schedule, n_clients)
        return PrivateExchange(self.schedule, n_clients, self.privacy, self.message_bounds)

    def local_training(self) -> LocalTraining:
        """Return the object that calls `train` and `personal_parameters` with batches of rows."""
        return LocalTraining(self)

    # What a method may use --------------------------------------------------------------------

    def predictor(
        self, facts: LearningFacts | LearningSent | LearningState, model: Model | None = None
    ) -> Predictor:
        """Return the predictor for columns and classes, by `model` or another one.

        Parameters
        ----------
        facts : dict
            Facts, a broadcast or a state.
        model : Model, optional
        """
        model = self.model if model is None else model
        model = Softmax() if model is None else model
        k = len(facts["classes"]) if model.classifies else 1
        return model.bind(int(np.max(facts["n_features"])), k)

    @property
    def schedule(self) -> Schedule:
        """Rounds, who is invited to them, and how learning rates fall."""
        default: Sampling = "fixed" if self.privacy is None else "poisson"
        plain = int(self.n_rounds), self.sample_rate, self.sampling or default, self.decay
        rate = self.learning_rate if isinstance(self.learning_rate, RateSchedule) else None
        return Schedule(*plain, evaluate_every=self.evaluate_every, changes=rate)

    # Learning rate of clients' steps, without its changes from round to round.
    peak_rate = property(lambda self: peak_of(self.learning_rate))

    @property
    def _numeric(self) -> bool:  # type: ignore[override]
        if self.model is not None and not isinstance(self.model, Model):
            raise TypeError(f"model must be an ebfed.models.Model; got {self.model!r}.")
        return self.model is not None and not self.model.classifies

    # Clients ----------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X, y, groups : as in `ebfed.LinearEB.fit`
        sample_weight : array-like of shape (n_rows,) or str, optional
            Frequency of each row, 0 or more: how many rows it stands for, or the column of the
            frame `X` that holds it. The loss of a batch is the weighted mean of its rows, so that
            with batches of all rows a row of weight 2 is the row twice; a row of weight 0 is
            absent. ``weights="rows"`` counts sums of weights, which must be whole. Rows that are
            held back keep their weights in the default metric, and `metric` gets them as
            ``sample_weight=``. With `privacy` a client's message is clipped whatever the weights
            of its rows, so that no promise depends on them.

        Returns
        -------
        self
        """
        return self._fit(*self.prepare(X, y, groups=groups, sample_weight=sample_weight))

    def prepare(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        sample_weight: Any = None,
    ) -> tuple[Clients, LearningMemory]:
        """Read rows, as in `fit`."""
        if consent is not None:
            raise ValueError(f"{type(self).__name__} has no classes of consent.")
        return read_choices(self, X, y, groups, None, sample_weight)[0], {}

    rows_shown = rows_shown

    def describe(self, clients: Clients, memory: LearningMemory) -> LearningFacts:
        """State numbers of rows, columns and classes."""
        facts = super().describe(clients, memory)
        if self.schedule.by_rows:
            facts["n"] = clients.totals()
        if self._numeric:
            return facts
        return facts | {"classes": self.classes_ if self._declared is None else self._declared}

    def local(
        self, sent: LearningSent, memory: LearningMemory, clients: Clients, rng: Any
    ) -> tuple[LearningMessage, LearningMemory]:
        """Train those clients of a block that are invited."""
        exchange = self.exchange(sent["n_clients"])
        self.schedule.check_places(sent)
        memory = exchange.remember(remember(sent, memory, len(clients)), len(clients))
        members = np.flatnonzero(memory["turn"] == 0)
        work = self.local_training().work(sent, memory, clients, members, rng)
        sizes = {name: len(value) for name, value in sent["shared"].items()}
        kept = KEPT if exchange.adds_portions and exchange.needs_sums else None
        message: LearningMessage | None = None
        moved = exchange.moved(sent)
        for places, changes in portions(work, sizes, len(members), kept):
            who = members[places]
            if exchange.schedule.by_rows:
                weight = exchange.schedule.weights(clients.totals()[who], sent["largest"])[:, None]
                changes = {name: weight * change for name, change in changes.items()}
            part = exchange.send(changes, sent, memory, who, rng)
            if exchange.sends_weights:
                part["weights"] = weight
            message = exchange.rounded(part, moved, message)
        memory["trained"][members[clients.n[members] > 0]] = True
        assert message is not None
        return message, memory

    def add_up(self, message: LearningMessage) -> LearningMessage:
        """Return sums over the clients of a block, where the server needs no more than these."""
        return self.exchange(1).add_up(message)

    secure_sums = node_sums

    def plan(self, sent: LearningSent, memory: LearningMemory, clients: Clients) -> list[Plan]:
        """State all that a run may take from a block of clients; see `Exchange.plan`."""
        return self.exchange(sent["n_clients"]).plan(memory, len(clients))

    def releases(
        self, sent: LearningSent, memory: LearningMemory, clients: Clients
    ) -> list[dict[str, Any]]:
        """List what a round takes from a block of clients."""
        return self.exchange(sent["n_clients"]).released(sent, memory, len(clients), 1)

    def finish(self, sent: LearningSent, memory: LearningMemory, clients: Clients) -> Self:
        """Set the learned attributes of these clients' own copy."""
        self.schedule.check_places(sent)
        memory = remember(sent, memory, len(clients))
        self._is_server = False
        parameters = self.local_training().predictors(sent, memory, clients)
        return settle(self, sent, memory, clients, parameters)

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: LearningFacts) -> None:
        """Raise a ValueError if that is not what clients may state."""
        super().check_facts(facts)
        classes = facts.get("classes")
        if not self._numeric and not (isinstance(classes, np.ndarray) and classes.ndim == 1):
            raise ValueError("facts must hold the classes.")

    def check_message(
        self, message: LearningMessage, facts: LearningFacts, sent: LearningSent, turn: NDArray
    ) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        self.exchange(sent["n_clients"]).check(message, facts, sent, turn)

    def start(self, facts: LearningFacts, key: NDArray) -> LearningState:
        """Return the state before the first round."""
        self.check()
        return first_state(self, facts, super().start(facts, key), key)

    def broadcast(self, state: LearningState) -> LearningSent:
        """Return the shared parameters, which round it is, and what clients need besides."""
        return broadcast_of(self, state)

    def update(self, state: LearningState, messages: LearningMessage) -> LearningState:
        """Move the shared parameters."""
        return next_state(self, state, messages)

    def fitted_parameters(self, state: LearningState) -> dict[str, tuple[NDArray, NDArray]]:
        """Return the shared parameters, which have no standard errors."""
        return {name: (x, np.full(x.shape, np.nan)) for name, x in state["shared"].items()}

    def shifts(
        self, before: LearningState, after: LearningState, messages: Sequence[LearningMessage]
    ) -> NDArray[np.float64]:
        """Return how far each node moves the average of a round; see `Exchange.shifts`."""
        return self.exchange(len(before["n"])).shifts(messages)

    def conclude(self, state: LearningState) -> Self:
        """Set the learned attributes of the server's own copy, which holds no client's rows."""
        self._become_server(state, self.keep(state))
        sent, m = self.broadcast(state), len(state["n"])
        nothing = np.zeros((0, self.n_features_in_)), np.zeros(0)
        clients = Clients(np.arange(m), np.zeros(m + 1, np.int64), *nothing)
        unseen = self.unseen_predictor(sent)[1].astype(precision_of(self))
        self._n = state["n"]
        return settle(self, sent, None, clients, np.broadcast_to(unseen, (m, len(unseen))))

    # Learning ---------------------------------------------------------------------------------

    def _fit(self, clients: Clients, memory: Any) -> Self:
        self.check()
        with one_thread():  # batches are many and small
            state, memory = hold_rounds(self, clients, memory)
            self.finish(self.broadcast(state), memory, clients)
        self._kept = self.keep(state)
        private = self.exchange(len(state["n"])).promises
        going_on: Any = self._kept if private else state  # without the key of noise
        self._state = going_on if self.warm_start else None
        return self

    # Predictions ------------------------------------------------------------------------------

    def predict(self, X: Any, *, groups: Any = None) -> NDArray:
        """Predict each row's response by the predictor of its group.

        Parameters
        ----------
        X : as in `fit`
        groups : as in `fit`, optional
            Label of each row. A group that was not in the fit is predicted by the shared
            parameters; so are all rows if None (unless `X` has the column that held them in the
            fit).

        Returns
        -------
        ndarray of shape (n_rows,)
            Classes, or numbers.
        """
        expected = expected_of(self, X, groups)
        return expected[:, 0] if self._numeric else self.classes_[expected.argmax(axis=1)]

    @available_if(_classifies)
    def predict_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        """Predict the probabilities of each row's classes, shape (n_rows, n_classes).

        The arguments are those of `predict`.
        """
        return expected_of(self, X, groups)

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None
    ) -> float:
        """Share of rows whose class is predicted, or R**2 of predicted numbers.

        Parameters
        ----------
        X, y, groups : as in `fit`
        sample_weight : array-like of shape (n_rows,), optional
        """
        X, y, groups, weights = paired_rows(X, y, groups, sample_weight)
        response = self._table(X, y, groups).y
        if response is None:
            raise ValueError(f"y is missing: score compares predictions with it{self._hint()}.")
        return score_of(response, self.predict(X, groups=groups), weights, self._numeric)

    # Reports ----------------------------------------------------------------------------------

    _report = staticmethod(reports)
    save = save

    @property
    def terms_(self) -> list[str]:
        """Names of the parameters of a predictor.

        Those of a linear model are columns, with the class after a colon; others are numbered
        within their block.
        """
        check_is_fitted(self, "clients_")
        classes = None if self._numeric else self.classes_.tolist()
        return term_names(self._net, self._column_names(), classes)

    def view(self) -> LearnerView:
        """Return what reports and plots read of the fit."""
        check_is_fitted(self, "clients_")
        return LearnerView(
            title=type(self).__name__,
            style=self._style_,
            is_server=self._is_server,
            sizes=self._sizes(),
            totals=self._totals,
            columns=self._column_names(),
            ledger=self._ledger,
            notes=[*self._notes, *self._remarks],
            model=repr(self.model_),
            terms=lambda: self.terms_,
            shared=self.shared_,
            n_parameters=self.parameters_.shape[1],
            n_rounds=self.n_iter_,
            history=self._history_rows,
        )

    _history_rows = history_rows
    estimates = estimates
    export = export
