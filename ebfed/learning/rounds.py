"""The rounds of a learner: what clients and server do, and the hooks by which methods differ.

A method is a class that derives from `LearnerRounds` and defines a few of its hooks: which
parameters are shared (`shared_parameters`), which are a client's own (`own_parameters`), what a
client does in a round (`train`), and what it predicts by in the end (`personal_parameters`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.channels import secure
from ebfed.engines.protocol import (
    Changes,
    LearningFacts,
    LearningMemory,
    LearningMessage,
    LearningSent,
    LearningState,
    Named,
    State,
)
from ebfed.engines.sums import largest
from ebfed.engines.supervised import SupervisedRounds
from ebfed.learning.checks import check_arguments
from ebfed.learning.exchange import Exchange, Senders
from ebfed.learning.fitting import read_clients, settle
from ebfed.learning.memory import remember
from ebfed.learning.minibatches import precision_of
from ebfed.learning.node_sums import NodeSums
from ebfed.learning.privacy import ClientPrivacy, PrivateExchange
from ebfed.learning.schedule import (
    INVITE,
    NOISE,
    OWN_START,
    START,
    RateSchedule,
    Sampling,
    Schedule,
    draw,
    peak_of,
)
from ebfed.learning.training import KEPT, LocalTraining, Task, portions
from ebfed.learning.validation import Portion, has_stalled
from ebfed.models import Model, Predictor, Softmax
from ebfed.privacy.odometer import Plan
from ebfed.tables.clients import Clients
from ebfed.tables.frames import frame

__all__ = ["LearnerRounds"]


class LearnerRounds(SupervisedRounds, ABC):
    """The protocol of a learner; see `ebfed.engines.protocol.Rounds`.

    Parameters
    ----------
    estimator : Learner
        Its arguments are read, and what was learned is set on it.
    """

    # Whether `privacy` must be given.
    requires_privacy: ClassVar[bool] = False

    # Whether clients may make steps by other optimizers than "sgd".
    any_optimizer: ClassVar[bool] = False

    # Whether a round holds of each client what `Task.path` needs, and not all parameters.
    holds_paths: ClassVar[bool] = False

    # Whether clients keep parameters "theta" of their own, like the shared ones.
    keeps_theta: ClassVar[bool] = False

    # Whether clients may choose what they are promised.
    takes_consent: ClassVar[bool] = False

    # Whether rows of weight 0 are as if they were not there.
    drops_weightless: ClassVar[bool] = True

    def __init__(self, estimator: Any):
        self.estimator = estimator

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

        Here, theta begins with the shared parameters, where clients keep it.

        Parameters
        ----------
        shared : dict of ndarrays
            What `shared_parameters` returned.
        facts : dict
        rng : Generator
        """
        return {"theta": shared["w"]} if self.keeps_theta else {}

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
        name, privacy = type(self.estimator).__name__, self.estimator.privacy
        if privacy is None and self.requires_privacy:
            raise ValueError(
                f"privacy must be given to {name}, such as privacy=ClientPrivacy(epsilon=1.0); got "
                "None."
            )
        if privacy is not None:
            if not isinstance(privacy, ClientPrivacy):
                raise TypeError(f"privacy must be a ClientPrivacy; got {privacy!r}.")
            for level in self.levels.values():
                level.check()

    def exchange(self, n_clients: int) -> Exchange:
        """Return the object that sends, averages and accounts for messages.

        Parameters
        ----------
        n_clients : int
            Of the whole federation.
        """
        if self.estimator.privacy is None:
            return Exchange(self.schedule, n_clients)
        return PrivateExchange(
            self.schedule, n_clients, self.estimator.privacy, self.message_bounds
        )

    def local_training(self, *block: Any) -> LocalTraining:
        """Return what calls `train` and `personal_parameters` with batches of rows.

        Parameters
        ----------
        *block
            What the server broadcast, what clients keep, and the clients.
        """
        return LocalTraining(self, *block)

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
        model = self.estimator.model if model is None else model
        model = Softmax() if model is None else model
        k = len(facts["classes"]) if model.classifies else 1
        return model.bind(int(np.max(facts["n_features"])), k)

    @property
    def levels(self) -> dict[str, ClientPrivacy]:
        """Levels of privacy that clients may choose, with what each is promised."""
        return {"private": self.estimator.privacy}

    @property
    def schedule(self) -> Schedule:
        """Rounds, who is invited to them, and how learning rates fall."""
        given = self.estimator
        default: Sampling = "fixed" if given.privacy is None else "poisson"
        plain = (
            int(given.n_rounds),
            given.sample_rate,
            given.sampling or default,
            given.decay,
        )
        rate = given.learning_rate if isinstance(given.learning_rate, RateSchedule) else None
        return Schedule(*plain, evaluate_every=given.evaluate_every, changes=rate)

    @property
    def peak_rate(self) -> float:
        """Learning rate of clients' steps, without its changes from round to round."""
        return peak_of(self.estimator.learning_rate)

    def rate_of(self, name: str) -> float:
        """Return a learning rate of its own name, that of clients' steps if it is None."""
        rate = getattr(self.estimator, name)
        return self.peak_rate if rate is None else rate

    @property
    def numeric(self) -> bool:
        """Whether the response is a number, rather than a class."""
        return self.estimator._numeric

    # Clients ----------------------------------------------------------------------------------

    def prepare(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        **beside: Any,
    ) -> tuple[Clients, LearningMemory]:
        if consent is not None and not self.takes_consent:
            raise ValueError(f"{type(self).__name__} has no classes of consent.")
        beside["consent"] = consent
        clients, codes, found = read_clients(self.estimator, X, y, groups, **beside)
        return clients, self.chosen(clients, codes, found.get("consent"))

    def chosen(self, clients: Clients, codes: NDArray | None, consent: Any) -> LearningMemory:
        """Return what clients keep of their choices, by the choice of each row; here, nothing.

        Parameters
        ----------
        clients : Clients
        codes : ndarray of shape (n_rows,), or None
            Number of the client of each row; None: each row is a client.
        consent : ndarray of shape (n_rows,), dict from client to choice, or None
            None if no choices were given.
        """
        return {}

    def rows_shown(
        self, clients: Clients, memory: LearningMemory
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        given = self.estimator
        self.check()
        size = np.inf if given.batch_size is None else given.batch_size  # of the last loss, too
        rows = np.minimum(Portion.training(clients, given.validation_fraction).n, size)
        if given.evaluate_every:
            held = Portion.held_back(clients, given.validation_fraction).n
            rows = np.minimum(rows, np.where(held, held, np.inf))
        return rows.astype(float), self.exchange(len(clients)).opened(memory, len(clients))

    def describe(self, clients: Clients, memory: LearningMemory) -> LearningFacts:
        """State numbers of rows, columns and classes."""
        facts = super().describe(clients, memory)
        if self.schedule.by_rows:
            facts["n"] = clients.totals()
        if self.numeric:
            return facts
        declared = self.estimator._declared
        return facts | {"classes": self.estimator.classes_ if declared is None else declared}

    def local(
        self, sent: LearningSent, memory: LearningMemory, clients: Clients, rng: Any
    ) -> tuple[LearningMessage, LearningMemory]:
        """Train those clients of a block that are invited."""
        exchange = self.exchange(sent["n_clients"])
        self.schedule.check_places(sent)
        memory = exchange.remember(remember(sent, memory, len(clients)), len(clients))
        members = np.flatnonzero(memory["turn"] == 0)
        work = self.local_training(sent, memory, clients).work(members, rng)
        sizes = {name: len(value) for name, value in sent["shared"].items()}
        kept = KEPT if exchange.adds_portions and exchange.needs_sums else None
        message: LearningMessage | None = None
        moved = exchange.moved(sent)
        for places, changes in portions(work, sizes, len(members), kept):
            who = members[places]
            if exchange.schedule.by_rows:
                weight = exchange.schedule.weights(clients.totals()[who], sent["largest"])[:, None]
                changes = {name: weight * change for name, change in changes.items()}
            part = exchange.send(changes, Senders(sent, memory, who, rng))
            if exchange.sends_weights:
                part["weights"] = weight
            message = exchange.rounded(part, moved, message)
        memory["trained"][members[clients.n[members] > 0]] = True
        assert message is not None
        return message, memory

    def add_up(self, message: LearningMessage) -> LearningMessage:
        """Return sums over the clients of a block, where the server needs no more than these."""
        return self.exchange(1).add_up(message)

    def secure_sums(
        self, sent: LearningSent, *, nodes: int, rows: int, survivors: int
    ) -> NodeSums | None:
        privacy = self.estimator.privacy
        if privacy is None or privacy.trust != "nobody":
            return None
        exchange: Any = self.exchange(sent["n_clients"])
        return NodeSums(exchange, sent, nodes, rows, survivors)

    def plan(self, sent: LearningSent, memory: LearningMemory, clients: Clients) -> list[Plan]:
        """State all that a run may take from a block of clients; see `Exchange.plan`."""
        return self.exchange(sent["n_clients"]).plan(memory, len(clients))

    def releases(
        self, sent: LearningSent, memory: LearningMemory, clients: Clients
    ) -> list[dict[str, Any]]:
        return self.exchange(sent["n_clients"]).released(sent, memory, len(clients), 1)

    def finish(self, sent: LearningSent, memory: LearningMemory, clients: Clients) -> Any:
        self.schedule.check_places(sent)
        memory = remember(sent, memory, len(clients))
        parameters = self.local_training(sent, memory, clients).predictors()
        return settle(self, sent, memory, clients, parameters)

    def estimates(self, backend: str | None = None) -> Any:
        """Return the parameters of each group's predictor as a frame, of some library if named."""
        fit = self.estimator
        check_is_fitted(fit, "clients_")
        columns = {"n": fit._sizes()} | dict(zip(fit.terms_, fit.parameters_.T, strict=True))
        style = fit._style_.avoiding(columns)
        style = style if backend is None else style.using(backend)
        return frame({style.group: fit.groups_} | columns, style)

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: LearningFacts) -> None:
        super().check_facts(facts)
        classes = facts.get("classes")
        if not self.numeric and not (isinstance(classes, np.ndarray) and classes.ndim == 1):
            raise ValueError("facts must hold the classes.")

    def check_message(
        self, message: LearningMessage, facts: LearningFacts, sent: LearningSent, turn: NDArray
    ) -> None:
        self.exchange(sent["n_clients"]).check(message, facts, sent, turn)

    def start(self, facts: LearningFacts, key: NDArray) -> LearningState:
        given = self.estimator
        self.check()
        state: State = self.first_state(facts, key)
        classes, m = np.zeros(0), len(facts["n"])
        if not self.numeric:
            classes = np.unique(facts["classes"])
            if len(classes) < 2:
                only = classes.tolist()[0]
                raise ValueError(
                    f"y has one class only, {only!r}: at least two classes are needed."
                )
        facts = facts | {"classes": classes}
        shared = self.shared_parameters(facts, draw(key, START))
        own = self.own_parameters(shared, facts, draw(key, OWN_START))
        first: LearningState = {
            **state,
            "history": [],
            "converged": None,
            "classes": classes,
            "began": 0,
            "model": repr(self.predictor(facts).model),
            "every": self.schedule.every(m),
            "held_back": float(given.validation_fraction),
            "evaluate_every": given.evaluate_every,
            "shared": shared,
            "own": {name: value.astype(precision_of(given)) for name, value in own.items()},
        }
        exchange = self.exchange(m)
        first = exchange.start(first, facts)
        return first | {"turn": exchange.invite(first, draw(key, INVITE, 0))}

    def broadcast(self, state: LearningState) -> LearningSent:
        """Return the shared parameters, which round it is, and what clients need besides."""
        m, schedule = len(state["n"]), self.schedule
        record, records = schedule.record(state["round"], state["every"])
        evaluate, evaluations = schedule.evaluation(state["round"])
        sent: LearningSent = {
            "round": state["round"],
            "done": state["done"],
            "began": state["began"],
            "classes": state["classes"],
            "shared": state["shared"],
            "own": state["own"],
            "n_features": state["n_features"],
            "columns": state["columns"],
            "n_clients": m,
            "expected": schedule.expected(state["n"]),
            "largest": int(state["n"].max(initial=1)),
            "record": record,
            "records": records,
            "every": state["every"],
            "evaluate": evaluate,
            "evaluations": evaluations,
        }
        if state["done"]:
            sent["history"] = state["history"]
        return self.exchange(m).broadcast(state, sent)

    def update(self, state: LearningState, messages: LearningMessage) -> LearningState:
        """Move the shared parameters."""
        exchange, key, round_ = self.exchange(len(state["n"])), state["key"], state["round"]
        sent, rng = self.broadcast(state), secure.noise(state, NOISE, round_)
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            average, state = exchange.average(state, sent, messages, rng)
            average, state = self.accelerate(average, state)
            shared = self.move(state["shared"], average, round_)
        if not all(math.isfinite(largest(value)) for value in shared.values()):
            raise ValueError(
                f"shared parameters are no longer finite in round {round_ + 1}: choose a "
                f"smaller learning_rate than {self.peak_rate:g}, or rescale the features."
            )
        row = exchange.note(state, messages, self.note(shared))
        row |= exchange.losses(messages, sent)
        history = [*state["history"], row]
        stalled = has_stalled(history[state["began"] :], self.estimator.early_stopping)
        done = round_ + 1 >= self.estimator.n_rounds or stalled
        state = state | {"round": round_ + 1, "done": done, "shared": shared, "history": history}
        return state | {"turn": exchange.invite(state, draw(key, INVITE, round_ + 1))}

    def fitted_parameters(self, state: LearningState) -> dict[str, tuple[NDArray, NDArray]]:
        """Return the shared parameters, which have no standard errors."""
        return {name: (x, np.full(x.shape, np.nan)) for name, x in state["shared"].items()}

    def shifts(
        self, before: LearningState, after: LearningState, messages: Sequence[LearningMessage]
    ) -> NDArray[np.float64]:
        """Return how far each node moves the average of a round; see `Exchange.shifts`."""
        return self.exchange(len(before["n"])).shifts(messages)

    def conclude(self, state: LearningState) -> Any:
        self.estimator._become_server(state, self.keep(state))
        sent, m = self.broadcast(state), len(state["n"])
        nothing = np.zeros((0, self.estimator.n_features_in_)), np.zeros(0)
        clients = Clients(np.arange(m), np.zeros(m + 1, np.int64), *nothing)
        unseen = self.unseen_predictor(sent)[1].astype(precision_of(self.estimator))
        self.estimator._n = state["n"]
        return settle(self, sent, None, clients, np.broadcast_to(unseen, (m, len(unseen))))

    def expected_rounds(self) -> int:
        return self.estimator.n_rounds
