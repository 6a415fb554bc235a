"""Learning by gradients, in rounds: what federated averaging and its relatives have in common.

In each round the server invites clients, sends them the *shared* parameters, and moves these by an
average of what the clients send back. A client trains on its own rows, and keeps its *own*
parameters to itself.

A method is two classes. One derives from `Learner` and has its arguments. The other derives from
`ebfed.learning.rounds.LearnerRounds` and says what clients and server do. The vignette on
extending has an example.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ebfed.engines import Engine, portable
from ebfed.engines.protocol import LearningState
from ebfed.engines.publishing import FitFile, name_columns
from ebfed.engines.supervised import SupervisedEstimator
from ebfed.kernels.threads import one_thread
from ebfed.learning.fitting import hold_rounds, settle
from ebfed.learning.memory import losses
from ebfed.learning.minibatches import CELLS, deal
from ebfed.learning.optimizers import Optimizer
from ebfed.learning.privacy import ClientPrivacy
from ebfed.learning.rounds import LearnerRounds
from ebfed.learning.schedule import RateSchedule, Sampling
from ebfed.models import Linear, Model, Predictor, Softmax, Torch
from ebfed.privacy.ledger import is_private
from ebfed.report.effects import Face
from ebfed.report.view import LearnerView
from ebfed.tables.clients import Clients
from ebfed.tables.unseen import warn_of_mistyped

__all__ = ["Learner", "WithConsent", "expected_of"]

# Keys of the last state that have an entry for each client.
OF_CLIENTS = ("n", "consent", "users")


class LearnerFile(FitFile):
    """Takes a fit apart, and puts it together again; see `ebfed.engines.portable`.

    Rows are not written. A fit that was read predicts, and shows its parameters, history and
    ledger; for another fit, with `warm_start`, its rows would have to be given and trained again.
    """

    def population(self, fit: Any) -> dict[str, Any]:
        """Return what is of all groups together."""
        of_all = {name: x for name, x in fit._kept.items() if name not in OF_CLIENTS}
        chosen = np.bincount(fit._kept.get("consent", np.zeros(0, np.int8)))
        return of_all | {"n_clients": len(fit._kept["n"]), "chosen": chosen}

    def groups(self, fit: Any) -> dict[str, Any]:
        """Return what the fit has of groups; of a server's copy, what they stated."""
        of_groups = {name: fit._kept[name] for name in OF_CLIENTS if name in fit._kept}
        if not fit._is_server:
            of_groups |= {"labels": fit.groups_, "parameters": fit.parameters_}
            of_groups["memory"] = fit._memory
        return of_groups

    def restore(self, fit: Any, population: Any, columns: dict[str, Any], groups: Any) -> None:
        m, chosen = population.pop("n_clients"), population.pop("chosen")
        stated = {name: np.zeros(m, np.int64) for name in OF_CLIENTS}
        if len(chosen):  # how many chose each level is public, whoever they are
            stated["consent"] = np.repeat(np.arange(len(chosen)), chosen)
        if groups is not None:
            stated = {name: groups[name] for name in OF_CLIENTS if name in groups}
        state = population | stated
        fit._kept = state
        if groups is None or "labels" not in groups:
            fit.protocol().conclude(state)
        else:
            clients = _without_rows(groups["labels"], groups["n"])
            rounds = fit.protocol()
            sent, net = rounds.broadcast(state), rounds.predictor(state)
            name_columns(fit, state)
            parameters = groups["parameters"]
            if parameters.shape != (len(clients), net.size):
                raise ValueError(f"parameters must be of shape {(len(clients), net.size)}")
            settle(rounds, sent, groups["memory"], clients, parameters)
            fit.keep_rows = is_private(fit._ledger)
        self.name(fit, columns)


def _without_rows(labels: NDArray, n: NDArray[np.int64]) -> Clients:
    """Return clients of these sizes, whose rows have no columns."""
    if len(labels) != len(n):
        raise ValueError(f"n has {len(n)} entries for {len(labels)} groups")
    ends = np.concatenate([[0], np.cumsum(n)]).astype(np.int64)
    return Clients(labels, ends, np.empty((ends[-1], 0)), np.zeros(ends[-1]))


def expected_of(learner: Any, X: Any, groups: Any) -> NDArray[np.float64]:
    """Return probabilities or numbers that a fitted learner expects of each row, shape (n, k)."""
    rows, labels = learner._read_design(X, groups)
    if learner._is_server:  # it does not know which group is which
        labels = None
    place = _places(learner.clients_.ids, labels, len(rows))
    place[(place >= 0) & learner._without_own[place]] = -1
    net, parameters, (unseen_net, unseen) = learner._net, learner.parameters_, learner._unseen
    temperatures = getattr(learner, "temperatures_", None)
    rows = rows.astype(parameters.dtype, copy=False)
    out = np.empty((len(rows), net.n_outputs), rows.dtype)
    unknown, known = np.flatnonzero(place < 0), np.flatnonzero(place >= 0)
    size = max(1, CELLS // net.n_features)
    with one_thread():
        for start in range(0, len(unknown), size):
            part = unknown[start : start + size]
            out[part] = unseen_net.predict(unseen[None], rows[None, part])[0]
        block = Clients.from_rows(rows[known], place[known], known)
        block = replace(block, X=block.X.astype(rows.dtype, copy=False))
        for who, each in deal(block, np.arange(len(block)), None, n_parameters=net.size):
            batch, own = each.all(), block.ids[who]
            real = batch.weight > 0
            outputs = net.outputs(parameters[own], batch.X)
            if temperatures is not None:
                outputs = outputs / temperatures[own, None, None]
            out[batch.y[real].astype(np.int64)] = net.loss.mean(outputs)[real]
    return out


def _places(ids: NDArray, labels: NDArray | None, n_rows: int) -> NDArray[np.int64]:
    """Return the position of each row's group among ids; -1 for those that are not there."""
    import pandas as pd

    if labels is None:
        return np.full(n_rows, -1)
    place = pd.Index(ids).get_indexer(pd.Index(labels))
    if n_rows and np.all(place < 0) and (ids.dtype.kind in "OU") != (labels.dtype.kind in "OU"):
        warnings.warn(
            f"groups are of type {labels.dtype}, and were of type {ids.dtype} in the fit: no "
            "group is known.",
            stacklevel=4,
        )
    elif np.any(place < 0):
        warn_of_mistyped(pd.unique(labels), ids)
    return place


def term_names(net: Predictor, columns: list[str], classes: list | None) -> list[str]:
    """Name the parameters of a predictor; `classes` is None where numbers are predicted."""
    names: list[str] = []
    kinds = [""] if classes is None else [f":{each}" for each in classes]
    for block, place in net.blocks.items():
        if isinstance(net.model, Linear | Softmax):
            rows = columns if block == "coefficients" else [block]
            names += [f"{row}{kind}" for row in rows for kind in kinds]
        else:
            names += [f"{block}_{k}" for k in range(place.stop - place.start)]
    return names


def _classifies(learner: Learner) -> bool:
    if learner._numeric:
        raise AttributeError(f"{learner.model!r} predicts numbers, which have no probabilities")
    return True


@dataclass(eq=False, repr=False)
class Learner(Face, SupervisedEstimator):
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

    # What a file has of the fit.
    _file: ClassVar = LearnerFile()
    # The state that a fit with warm_start goes on from.
    _state: LearningState | None = field(default=None, init=False)

    @abstractmethod
    def protocol(self) -> LearnerRounds:
        """Return what clients and server do, by these arguments."""

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
        return self._fit(*self.protocol().prepare(X, y, groups=groups, sample_weight=sample_weight))

    # Learning ---------------------------------------------------------------------------------

    def _fit(self, clients: Clients, memory: Any) -> Self:
        rounds = self.protocol()
        rounds.check()
        with one_thread():  # batches are many and small
            state, memory = hold_rounds(rounds, clients, memory)
            rounds.finish(rounds.broadcast(state), memory, clients)
        self._kept = rounds.keep(state)
        private = rounds.exchange(len(state["n"])).promises
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

    # Reports ----------------------------------------------------------------------------------

    def save(self, path: str | Path, *, groups: bool = True) -> None:
        """Write the fit to a JSON file, from which `ebfed.load_fit` gives it back, to the last bit.

        The file has the arguments, the model, and the shared parameters. Rows, keys of noise, the
        engine, a checkpoint's folder and the seed of a private fit are not written.

        Parameters
        ----------
        path : str or Path
        groups : bool
            Whether to write what the fit has of the groups too: their labels, sizes and own
            parameters, and what was noted of them in each round. Without them, all rows are
            predicted as those of unseen groups.

        Raises
        ------
        ValueError
            If the groups of a private fit are to be written, and `keep_rows` was not set to True;
            or this is the copy of a node of a federation.
        TypeError
            If an argument is of a class of the user's own, or the model is a module of PyTorch.

        Examples
        --------
        >>> import tempfile
        >>> import ebfed as eb
        >>> path = tempfile.mkdtemp() + "/fit.json"
        >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 1, 1, 0]
        >>> fit = eb.learning.FedAvg(n_rounds=3, random_state=0).fit(X, y, groups=list("aabb"))
        >>> fit.save(path)
        >>> bool((eb.load_fit(path).predict_proba(X) == fit.predict_proba(X)).all())
        True
        """
        if isinstance(self.model_, Torch):
            raise TypeError(
                "a module of PyTorch is code, which a file of a fit does not hold. Save the "
                "module's own state with torch.save, and the arrays `shared_` and `parameters_`."
            )
        portable.save(self, path, groups)

    @property
    def terms_(self) -> list[str]:
        """Names of the parameters of a predictor.

        Those of a linear model are columns, with the class after a colon; others are numbered
        within their block.
        """
        check_is_fitted(self, "clients_")
        classes = None if self._numeric else self.classes_.tolist()
        return term_names(self._net, self._column_names(), classes)

    def __ebfed_view__(self) -> LearnerView:
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

    def _history_rows(self) -> list[dict]:
        """Rows of the history, with what clients noted and did not send, and epsilon."""
        n, noted = len(self._history), {}
        if not all("loss" in row for row in self._history):
            noted["loss"] = losses(self._memory, "loss", n, self._every)
            if not self._numeric:
                noted["accuracy"] = losses(self._memory, "score", n, self._every)
        if self.evaluate_every and not all("validation" in row for row in self._history):
            noted["validation"] = losses(self._memory, "validation", n, self.evaluate_every)
        spent = self.protocol().exchange(self._n_clients).spent(n, self._ledger)
        if spent is not None:
            noted["epsilon"] = spent
        return [
            row | dict(zip(noted, values, strict=True))
            for row, *values in zip(self._history, *noted.values(), strict=True)
        ]

    def export(self, group: Any = None) -> dict[str, Any]:
        """Return the parameters of a group's predictor, by name.

        Parameters
        ----------
        group : label, optional
            Group of the fit. None: the predictor of groups that were not in it.

        Returns
        -------
        dict of ndarrays, or of tensors
            Of a module of PyTorch its ``state_dict``, for ``module.load_state_dict``. Temperatures
            of `HierarchicalEB` are not among them: outputs have to be divided by those of
            `temperatures_` for its probabilities.

        Raises
        ------
        ValueError
            If the group was not in the fit.

        Examples
        --------
        >>> import ebfed as eb
        >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 1, 1, 0]
        >>> fit = eb.learning.FedAvg(n_rounds=3, random_state=0).fit(X, y, groups=list("aabb"))
        >>> fit.export("a")["coefficients"].shape
        (1, 2)
        """
        check_is_fitted(self, "clients_")
        net, theta = self._unseen
        if group is not None:
            (place,) = _places(self.clients_.ids, np.array([group]), 1)
            if place < 0:
                raise ValueError(f"group must be one of the fit; got {group!r}.")
            if not self._without_own[place]:
                net, theta = self._net, self.parameters_[place]
        return net.model.exported({name: x[0].copy() for name, x in net.named(theta[None]).items()})


class WithConsent:
    """Learners of which each client chooses what it is promised."""

    _fit: Callable[..., Any]
    protocol: Callable[[], LearnerRounds]

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        consent: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X, y, groups, sample_weight : as for every learner
        consent : array-like of shape (n_rows,), dict from group to choice, or str, optional
            Choice of each row's group, or the column of the frame `X` that holds it. `FeO2`:
            ``"private"`` (or a level of privacy, if there are several) or ``"open"``; None: no
            client opted out. `DPFedAvg`: largest epsilon, at the delta of `privacy`; None: that of
            `privacy` for all.

        Returns
        -------
        self
        """
        given = {"groups": groups, "consent": consent, "sample_weight": sample_weight}
        return self._fit(*self.protocol().prepare(X, y, **given))
