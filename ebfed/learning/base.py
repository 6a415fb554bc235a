"""Learning by gradients, in rounds: what federated averaging and its relatives have in common.

In each round the server invites clients, tells them the *shared* parameters, and moves these by an
average of what the clients send back. A client trains on its own rows, and keeps its *own*
parameters to itself. A method says what both are (`_share`, `_own`), what clients do in a round
(`_work`), and what their personal predictors are in the end (`_predictors`). The rest is here.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cache
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ebfed.engines import Blocks, Cohort, Engine
from ebfed.engines.rounds import converse_here
from ebfed.engines.supervised import SupervisedEstimator, check_size
from ebfed.learning.checkpoint import Checkpoint
from ebfed.learning.minibatches import CELLS, deal
from ebfed.models import Linear, Model, Predictor, Softmax
from ebfed.privacy import ledger
from ebfed.privacy.calibration import check_count, check_positive
from ebfed.report.view import LearnerView
from ebfed.tables.clients import LARGEST, Clients
from ebfed.tables.frames import Table, frame

__all__ = ["Learner", "Named", "Now"]

Named = dict[str, NDArray[np.float64]]

# Numbers kept of the losses of all clients together; beyond, not every round is recorded.
RECORDS = 10**7
# Purposes for which a server draws.
START, INVITE, NOISE = range(3)

Sampling = Literal["poisson", "fixed"]


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread() -> Any:
    """Keep a library of linear algebra from starting threads for small matrices."""
    return _controller().limit(limits=1, user_api="blas")


def check_between(name: str, value: Any, low: float, high: float) -> None:
    """Raise a ValueError if an argument is not a number of an interval."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and low <= value <= high):
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}; got {value!r}.")


class Now(NamedTuple):
    """What a round is like.

    Attributes
    ----------
    net : Predictor
    rate : float
        What learning rates are multiplied with.
    clients : float
        How many are expected to take part.
    """

    net: Predictor
    rate: float
    clients: float


def _classifies(learner: Learner) -> bool:
    if learner._model().classifies:
        return True
    raise AttributeError(f"{learner._model()!r} predicts numbers, which have no probabilities")


@dataclass(eq=False, repr=False)
class Learner(SupervisedEstimator):
    """Predictors of every client, learned together by gradient steps in rounds.

    Parameters
    ----------
    model : Model, optional
        What is trained: `ebfed.models.Softmax` if None.
    n_rounds : int
        T, how often the server hears from clients.
    learning_rate : float
        eta, of the steps that clients make.
    decay : float
        By which learning rates are multiplied after each round.
    weight_decay : float
        Added to every gradient: this, times the parameters.
    sample_rate : float
        q, the share of clients that is invited in each round.
    sampling : {"fixed", "poisson"}
        Whether a round has a fixed number of clients, or each joins independently of the others.
    classes : array-like, optional
        Classes that are known to everyone. None: those that clients have, which tells that somebody
        has each.
    warm_start : bool
        Whether `fit` goes on from where the last one, on the same groups, ended.
    checkpoint : path, optional
        A folder. What was reached is kept there, and a fit that was interrupted goes on from it,
        to the same result. It holds the key of the noise, and is as private as the rows.
    engine : Engine, optional
        Where clients compute; in this process if None.
    verbose : int
        1: show a progress bar.
    random_state : int, Generator or None

    Attributes
    ----------
    parameters_ : ndarray of shape (n_groups, p)
        Of the predictor of each group.
    shared_ : dict of ndarrays
        What the server knows.
    classes_ : ndarray of shape (n_classes,)
        Of a classification.
    clients_ : Clients
        Their rows (which, in a real federation, stay with them).
    groups_ : ndarray of shape (n_groups,)
        Labels, sorted.
    history_ : DataFrame
        A row for each round. ``loss`` and ``accuracy`` are means over the clients that worked, of
        the first batch that each saw in the round, before it was trained on; they are known where
        the rows are, and a server finds NaN.
    privacy_ : DataFrame
        Ledger of what left the clients.
    n_features_in_ : int
    """

    model: Model | None = None
    _: KW_ONLY
    n_rounds: int = 100
    learning_rate: float = 0.1
    decay: float = 1.0
    weight_decay: float = 0.0
    sample_rate: float = 1.0
    sampling: Sampling = "fixed"
    classes: Any = None
    warm_start: bool = False
    checkpoint: Any = None
    engine: Engine | None = None
    verbose: int = 0
    random_state: Any = None

    # What the ledger says clients send.
    SENT: ClassVar[str] = "changes of the shared parameters, as they are"

    # The checkpoint, while a fit goes on; and what one that may be gone on with has reached.
    _kept = None
    _state = None

    # What a method says -----------------------------------------------------------------------

    def _share(self, facts: dict, rng: np.random.Generator) -> Named:
        """Shared parameters to start from, each of shape (size,)."""
        return {"w": self._predictor(facts).start(rng)}

    def _own(self, shared: Named, facts: dict) -> Named:
        """Own parameters of a client to start from, each of shape (size,)."""
        return {}

    @abstractmethod
    def _predictors(self, sent: dict, memory: dict, clients: Clients) -> NDArray[np.float64]:
        """Parameters of the personal predictor of each client in the end, shape (m, p)."""

    def _unseen(self, shared: Named) -> NDArray[np.float64]:
        """Parameters of a client of which nothing is known, shape (p,)."""
        return shared["w"]

    def _move(self, shared: Named, average: Named, state: dict) -> Named:
        """Move shared parameters by averages of what clients sent."""
        return {name: value + average[name] for name, value in shared.items()}

    def _note(self, state: dict) -> dict[str, float]:
        """Return what the history says of a round besides."""
        return {}

    def _settings(self) -> list[str]:
        """Names of the arguments that must be finite numbers above 0."""
        return ["learning_rate", "decay"]

    def _check(self) -> None:
        """Raise a ValueError if an argument is wrong."""
        check_count("n_rounds", self.n_rounds)
        for name in self._settings():
            check_positive(name, getattr(self, name))
        check_between("weight_decay", self.weight_decay, 0, LARGEST)
        if check_positive("sample_rate", self.sample_rate) > 1:
            raise ValueError(f"sample_rate must be at most 1; got {self.sample_rate!r}.")
        if self.sampling not in get_args(Sampling):
            raise ValueError(
                f"sampling must be one of {get_args(Sampling)}; got {self.sampling!r}."
            )

    # Models -----------------------------------------------------------------------------------

    def _model(self) -> Model:
        model = Softmax() if self.model is None else self.model
        if not isinstance(model, Model):
            raise TypeError(f"model must be an ebfed.models.Model; got {model!r}.")
        return model

    def _codes(self, sent: dict) -> Callable[[NDArray], NDArray]:
        """Return what turns responses into what losses know: numbers of classes."""
        return np.asarray if self._numeric else lambda y: np.searchsorted(sent["classes"], y)

    def _predictor(self, facts: dict, model: Model | None = None) -> Predictor:
        """Return the predictor for such columns and classes."""
        model = self._model() if model is None else model
        k = len(facts["classes"]) if model.classifies else 1
        return model.bind(int(np.max(facts["n_features"])), k)

    @property
    def _numeric(self) -> bool:  # type: ignore[override]
        return not self._model().classifies

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if self._numeric:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        else:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        return tags

    def _validated(self, table: Table, reset: bool) -> tuple[NDArray, NDArray]:
        values, response = super()._validated(table, reset)
        if self._numeric:
            check_size(response, "y")
        return values, response

    # Clients ----------------------------------------------------------------------------------

    def prepare(
        self, X: Any, y: Any = None, *, groups: Any = None, consent: Any = None
    ) -> tuple[Clients, dict[str, NDArray]]:
        """Read rows, as in `fit`."""
        if consent is not None:
            raise ValueError(f"{type(self).__name__} has no classes of consent.")
        self._declare()
        return self._read(X, y, groups, reset=True)[0], {}

    def _declare(self) -> None:
        """Take note of the classes that are known to everyone."""
        self._declared = None if self.classes is None else np.unique(self.classes)

    def _check_classes(self, classes: NDArray) -> None:
        if self._declared is not None and len(classes) > len(self._declared):
            unknown = np.setdiff1d(classes, self._declared).tolist()
            raise ValueError(f"y has labels that are not among classes: {unknown}.")

    def describe(self, clients: Clients, memory: dict) -> dict[str, NDArray]:
        """State numbers of rows, columns and classes."""
        facts = super().describe(clients, memory)
        if self._numeric:
            return facts
        return facts | {"classes": self.classes_ if self._declared is None else self._declared}

    def local(self, sent: dict, memory: dict, clients: Clients, rng: Any) -> tuple[dict, dict]:
        """Train those clients of a block that are invited."""
        memory = self._remember(sent, memory, len(clients))
        members = np.flatnonzero(memory["turn"] == 0)
        changes = self._work(sent, memory, clients, members, rng)
        return self._protect(changes, sent, memory, members, rng), memory

    @abstractmethod
    def _work(
        self, sent: dict, memory: dict, clients: Clients, members: NDArray[np.int64], rng: Any
    ) -> Named:
        """Let members of a block work for a round, and write down what they keep.

        Parameters
        ----------
        sent, memory, clients, rng
            As in `local`.
        members : ndarray of positions of the clients that work

        Returns
        -------
        changes : dict of ndarrays of shape (len(members), size)
            By which each would move shared parameters.
        """

    def _now(self, sent: dict) -> Now:
        """Return what a round is like."""
        return Now(self._predictor(sent), self.decay ** sent["round"], sent["expected"])

    def _remember(self, sent: dict, memory: dict, m: int) -> dict:
        """Return what clients keep, ready to be written into."""
        if "loss" not in memory:
            memory = dict(memory)
            for name, value in sent["own"].items():
                memory[name] = np.repeat(value[None], m, axis=0)
            for name in ("loss", "score"):
                memory[name] = np.full((m, 0), np.nan, np.float32)
        short = sent["records"] - memory["loss"].shape[1]
        for name in ("loss", "score"):
            if short > 0:
                more = np.full((m, short), np.nan, np.float32)
                memory = memory | {name: np.hstack([memory[name], more])}
        for name in (*sent["own"], "loss", "score"):
            if not memory[name].flags.writeable:  # as what came over a wire is
                memory = memory | {name: memory[name].copy()}
        return memory

    def _protect(
        self, changes: Named, sent: dict, memory: dict, members: NDArray, rng: Any
    ) -> dict[str, NDArray]:
        """Return what leaves the clients."""
        return changes

    def releases(self, sent: dict, memory: dict, clients: Clients) -> list[dict[str, Any]]:
        """List what a round takes from a block of clients."""
        return self._released(sent, memory, clients, 1)

    def _released(
        self, sent: dict, memory: dict, clients: Clients, rounds: int
    ) -> list[dict[str, Any]]:
        """List what so many rounds take from a block of clients."""
        size = sum(len(value) for value in sent["shared"].values())
        bits = 64.0 * size * self.sample_rate * len(clients) * rounds
        return [ledger.disclosure(self.SENT, len(clients), bits) | {"times": rounds}]

    def finish(self, sent: dict, memory: dict, clients: Clients) -> Self:
        """Set the learned attributes of these clients' own copy."""
        memory = self._remember(sent, memory, len(clients))
        self._take(sent)
        self._is_server = False
        self.clients_, self._memory = clients, memory
        self.parameters_ = self._predictors(sent, memory, clients)
        lost = int((~np.isfinite(self.parameters_).all(axis=1)).sum())
        if lost:
            warnings.warn(
                f"the predictors of {lost} of {len(clients)} groups are not finite: choose smaller "
                "learning rates, or rescale the features.",
                stacklevel=2,
            )
        self._ledger = self._released(sent, memory, clients, sent["round"])
        return self

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: dict) -> None:
        """Raise a ValueError if that is not what clients may state."""
        super().check_facts(facts)
        classes = facts.get("classes")
        if not self._numeric and not (isinstance(classes, np.ndarray) and classes.ndim == 1):
            raise ValueError("facts must hold the classes.")

    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        shapes = self._message_shapes(sent, int((turn == 0).sum()))
        if message.keys() != shapes.keys():
            raise ValueError(f"a message must have the parts {', '.join(shapes)}.")
        for name, shape in shapes.items():
            x = message[name]
            if not (isinstance(x, np.ndarray) and x.dtype == np.float64 and x.shape == shape):
                raise ValueError(f"{name} must be float64 numbers of shape {shape}.")
            if not np.isfinite(x).all():
                raise ValueError(f"{name} must be finite.")

    def _message_shapes(self, sent: dict, c: int) -> dict[str, tuple[int, ...]]:
        return {name: (c, len(value)) for name, value in sent["shared"].items()}

    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round."""
        self._check()
        classes = np.zeros(0)
        if not self._numeric:
            classes = np.unique(facts["classes"])
            if len(classes) < 2:
                raise ValueError(
                    f"y has one class only, {classes.tolist()[0]!r}: at least two classes are "
                    "needed."
                )
        facts = facts | {"classes": classes}
        state = super().start(facts, key) | {"classes": classes, "began": 0}
        state["model"] = repr(self._model())
        state["every"] = 1 + len(state["n"]) * self.n_rounds // RECORDS
        shared = self._share(facts, np.random.default_rng([*key, START]))
        state |= {"shared": shared, "own": self._own(shared, facts)}
        return state | {"turn": self._invite(state)}

    def _invite(self, state: dict) -> NDArray[np.int8]:
        """Draw who takes part in a round: 0, or -1 for who does not."""
        m, rng = len(state["n"]), self._draw(state, INVITE)
        if self.sampling == "poisson":
            invited = rng.random(m) < self.sample_rate
        else:
            invited = rng.permutation(m) < max(1, round(self.sample_rate * m))
        return np.where(invited, 0, -1).astype(np.int8)

    def _denominator(self, n: NDArray[np.int64]) -> float:
        """How many clients a round has, or is expected to have; `n` is their numbers of rows."""
        expected = self.sample_rate * len(n)
        return float(expected if self.sampling == "poisson" else max(1, round(expected)))

    @staticmethod
    def _draw(state: dict, purpose: int) -> np.random.Generator:
        """Return the random numbers of a round for some purpose."""
        return np.random.default_rng([*state["key"], purpose, state["round"]])

    def broadcast(self, state: dict) -> dict:
        """Return the shared parameters, and which round it is."""
        names = ("round", "done", "began", "classes", "shared", "own", "n_features")
        rounds, every = max(self.n_rounds, state["round"]), state["every"]
        record = state["round"] // every if state["round"] % every == 0 else -1
        sent = {name: state[name] for name in names} | {
            "records": -(-rounds // every),
            "record": record,
            "every": every,
            "expected": self._denominator(state["n"]),
        }
        if state["done"]:
            sent |= {"history": state["history"], "n_clients": len(state["n"])}
        return sent

    def update(self, state: dict, messages: dict) -> dict:
        """Move the shared parameters."""
        average, state = self._average(state, messages)
        shared = self._move(state["shared"], average, state)
        if not all(np.isfinite(value).all() for value in shared.values()):
            raise ValueError(
                f"shared parameters are no longer finite in round {state['round'] + 1}: choose a "
                f"smaller learning_rate than {self.learning_rate:g}, or rescale the features."
            )
        row = self._count(state) | self._note(state | {"shared": shared})
        round_ = state["round"] + 1
        state = state | {
            "round": round_,
            "done": round_ >= self.n_rounds,
            "shared": shared,
            "history": [*state["history"], row],
        }
        return state | {"turn": self._invite(state)}

    def _count(self, state: dict) -> dict[str, float]:
        """Return how many took part in a round, as far as all may know it."""
        return {"clients": float((state["turn"] == 0).sum())}

    def _average(self, state: dict, messages: dict) -> tuple[Named, dict]:
        """Average what clients sent; parameters stay as they are if no client takes part."""
        return {
            name: messages[name].mean(axis=0) if len(messages[name]) else np.zeros(len(value))
            for name, value in state["shared"].items()
        }, state

    def conclude(self, state: dict) -> Self:
        """Set the learned attributes of the server's own copy, which holds no client's rows."""
        self._become_server(state)
        sent = self.broadcast(state)
        self._take(sent)
        m = len(state["n"])
        nothing = np.zeros((0, self.n_features_in_)), np.zeros(0)
        self.clients_ = Clients(np.arange(m), np.zeros(m + 1, np.int64), *nothing)
        self._n, self._memory = state["n"], {}
        unseen = self._unseen(self.shared_)
        self.parameters_ = np.broadcast_to(unseen, (m, len(unseen)))
        self._ledger = self._released(sent, {}, self.clients_, sent["round"])
        return self

    def _take(self, sent: dict) -> None:
        self.n_iter_, self.shared_ = sent["round"], sent["shared"]
        self._history, self._every = sent["history"], sent["every"]
        self._n_clients = sent["n_clients"]
        if not self._numeric:
            self.classes_ = sent["classes"]
        self._net = self._shared_net = self._predictor(sent)

    def expected_rounds(self) -> int | None:
        """Return T."""
        return self.n_rounds

    # Learning ---------------------------------------------------------------------------------

    def _fit(self, clients: Clients, memory: dict) -> Self:
        self._check()
        state = None
        try:
            if self.checkpoint is not None:
                self._kept = Checkpoint(self.checkpoint, self._arguments(), clients, memory)
                state, memory = self._kept.load() or (None, memory)
            elif self.warm_start and self._state is not None:
                state, memory = self._go_on(clients, memory, self._state)
            with one_thread():  # batches are many and small
                state, memory = converse_here(
                    self, clients, memory, state, before=self._before, after=self._after
                )
                self.finish(self.broadcast(state), memory, clients)
        finally:
            self._kept = None
        self._state = state if self.warm_start else None
        return self

    def _arguments(self) -> dict[str, str]:
        """Return what a fit that goes on must have in common with the one that began."""
        indifferent = ["engine", "verbose", "checkpoint", "warm_start"]
        if not isinstance(self.random_state, int | np.integer):
            indifferent.append("random_state")
        return {
            name: repr(value)
            for name, value in self.get_params(deep=False).items()
            if name not in indifferent
        }

    def _go_on(self, clients: Clients, memory: dict, state: dict) -> tuple[dict, dict]:
        """Return the state that the last fit ended with, and what its clients kept."""
        if not np.array_equal(clients.ids, self.clients_.ids):
            raise ValueError("groups must be those of the last fit, as warm_start is True.")
        facts = self.describe(clients, memory)
        for name in ("n_features", "columns", *(() if self._numeric else ("classes",))):
            if not np.array_equal(np.ravel(facts[name]), np.ravel(state[name])):
                raise ValueError(f"{name} must be those of the last fit, as warm_start is True.")
        if repr(self._model()) != state["model"]:
            raise ValueError("model must be that of the last fit, as warm_start is True.")
        done = state["round"] >= self.n_rounds
        state = state | {"done": done, "began": state["round"]}
        return state | {"turn": self._invite(state)}, self._memory

    def _before(self, state: dict) -> None:
        if self._kept is not None:
            self._kept.enter(state["round"], state["key"])

    def _after(self, state: dict, cohort: Cohort) -> None:
        if self._kept is not None and isinstance(cohort, Blocks):
            self._kept.keep(state, lambda: cohort.memory)

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
        expected = self._expected(X, groups)
        return expected[:, 0] if self._numeric else self.classes_[expected.argmax(axis=1)]

    @available_if(_classifies)
    def predict_proba(self, X: Any, *, groups: Any = None) -> NDArray:
        """Predict the probabilities of each row's classes, shape (n_rows, n_classes).

        Parameters
        ----------
        X, groups : as in `predict`
        """
        return self._expected(X, groups)

    def _expected(self, X: Any, groups: Any) -> NDArray:
        """Return probabilities or numbers for each row, shape (n_rows, k)."""
        rows, labels = self._read_design(X, groups)
        with one_thread():
            return self._predict_rows(rows, labels)

    def _predict_rows(self, rows: NDArray, labels: NDArray | None) -> NDArray:
        out = np.empty((len(rows), self._net.n_outputs))
        place = self._place(labels, len(rows))
        unknown = np.flatnonzero(place < 0)
        theta = self._unseen(self.shared_)[None]
        size = max(1, CELLS // self._net.n_features)
        for start in range(0, len(unknown), size):
            part = unknown[start : start + size]
            out[part] = self._shared_net.predict(theta, rows[None, part])[0]
        known = np.flatnonzero(place >= 0)
        block = Clients.from_rows(rows[known], place[known], known)
        everyone = np.arange(len(block))
        for who, each in deal(block, everyone, None, n_parameters=self._net.size):
            batch = each.all()
            real = batch.weight > 0
            guess = self._net.predict(self.parameters_[block.ids[who]], batch.X)
            out[batch.y[real].astype(np.int64)] = guess[real]
        return out

    def _place(self, labels: NDArray | None, n_rows: int) -> NDArray[np.int64]:
        """Position of each row's group in the fit; -1 for those that were not in it."""
        import pandas as pd

        if labels is None or self._is_server:  # a server does not know who is who
            return np.full(n_rows, -1)
        ids = self.clients_.ids
        place = pd.Index(ids).get_indexer(pd.Index(labels))
        if n_rows and np.all(place < 0) and (ids.dtype.kind in "OU") != (labels.dtype.kind in "OU"):
            warnings.warn(
                f"groups are of type {labels.dtype}, and were of type {ids.dtype} in the fit: no "
                "group is known.",
                stacklevel=4,
            )
        return place

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None
    ) -> float:
        """Share of rows whose class is predicted, or R**2 of predicted numbers.

        Parameters
        ----------
        X, y, groups : as in `fit`
        sample_weight : array-like of shape (n_rows,), optional
        """
        from sklearn.metrics import accuracy_score, r2_score

        response = self._table(X, y, groups).y
        if response is None:
            raise ValueError(f"y is missing: score compares predictions with it{self._hint()}.")
        measure = r2_score if self._numeric else accuracy_score
        predicted = self.predict(X, groups=groups)
        return float(measure(response, predicted, sample_weight=sample_weight))

    # Reports ----------------------------------------------------------------------------------

    def _history_rows(self) -> list[dict]:
        """Rows of the history, with what clients noted where their rows are."""
        has_data = {"loss": self._noted("loss")}
        if not self._numeric:
            has_data["accuracy"] = self._noted("score")
        return [
            row | dict(zip(has_data, values, strict=True))
            for row, *values in zip(self._history, *has_data.values(), strict=True)
        ]

    def _noted(self, name: str) -> list[float]:
        """Mean over clients of what they noted in each round, NaN where nothing was."""
        rounds = len(self._history)
        has_data = np.full(rounds, np.nan)
        values = self._memory.get(name)
        if values is not None:
            count = np.isfinite(values).sum(axis=0)
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = np.nansum(values.astype(np.float64), axis=0) / count
            has_data[:: self._every] = mean[: len(has_data[:: self._every])]
        return has_data.tolist()

    @property
    def terms_(self) -> list[str]:
        """Names of the parameters of a predictor.

        Those of a linear model are columns, with the class after a colon; others are numbered
        within their block.
        """
        check_is_fitted(self, "clients_")
        net, names = self._net, []
        kinds = [""] if self._numeric else [f":{each}" for each in self.classes_.tolist()]
        for block, place in net.blocks.items():
            if isinstance(net.model, Linear | Softmax):
                rows = self._column_names() if block == "coefficients" else [block]
                names += [f"{row}{kind}" for row in rows for kind in kinds]
            else:
                names += [f"{block}_{k}" for k in range(place.stop - place.start)]
        return names

    def _report(self) -> tuple[Callable, Callable, Callable]:
        from ebfed import report

        return report.tidy, report.glance, report.summary_table

    def view(self) -> LearnerView:
        """Return what reports and plots read of the fit."""
        check_is_fitted(self, "clients_")
        return LearnerView(
            title=type(self).__name__,
            style=self._style_,
            is_server=self._is_server,
            sizes=self._sizes(),
            columns=self._column_names(),
            ledger=self._ledger,
            notes=[],
            model=repr(self._model()),
            terms=lambda: self.terms_,
            shared=self.shared_,
            n_parameters=self.parameters_.shape[1],
            n_rounds=self.n_iter_,
            history=self._history_rows,
        )

    def estimates(self, backend: str | None = None) -> Any:
        """Return the parameters of each group's predictor: a frame.

        Parameters
        ----------
        backend : str, optional
            The library of the frame; that of the frame that was fitted if None.

        Returns
        -------
        DataFrame
            Group label, ``n``, and a column for each of `terms_`.
        """
        check_is_fitted(self, "clients_")
        columns: dict[str, Any] = {"n": self._sizes()}
        columns |= dict(zip(self.terms_, self.parameters_.T, strict=True))
        style = self._style_.avoiding(columns)
        style = style if backend is None else style.using(backend)
        return frame({style.group: self.groups_} | columns, style)
