"""A learner's fit in this process: reading rows, holding rounds, setting learned attributes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ebfed.engines import Blocks, Cohort
from ebfed.engines.protocol import LearningFacts, LearningMemory, LearningSent, LearningState
from ebfed.engines.rounds import converse_here
from ebfed.engines.supervised import check_size
from ebfed.learning.checkpoint import Checkpoint, fingerprint
from ebfed.learning.checks import check_between
from ebfed.learning.fine_tuning import makes_last_steps
from ebfed.learning.minibatches import precision_of
from ebfed.learning.schedule import INVITE, draw
from ebfed.learning.validation import check_metric, hold_back
from ebfed.privacy.ledger import simulated
from ebfed.streams import is_fixed, noise_key
from ebfed.tables.clients import Clients, order_of_rows
from ebfed.tables.labels import number_labels
from ebfed.tables.of_rows import check_whole
from ebfed.tables.values import of_one_type

__all__ = ["hold_rounds", "read_clients", "settle"]


def read_clients(
    learner: Any, X: Any, y: Any, groups: Any, **beside: Any
) -> tuple[Clients, NDArray | None, Mapping[str, Any]]:
    """Read rows, as in `fit`; return clients, numbers of rows' groups, and what goes with rows.

    Parameters
    ----------
    learner : Learner
    X, y, groups : as in `fit`
    **beside
        `sample_weight`, `consent` and `users`.
    """
    declared = learner.classes
    if declared is not None:
        declared = number_labels(declared, "classes")[0]
        # as labels of rows, which nodes can send
        declared = of_one_type(declared, "classes") if declared.dtype.kind == "O" else declared
    learner._declared = declared
    given = learner._known_beside(X, beside, True)
    clients, codes, found = learner._read(X, y, groups, True, beside=given)
    weights = found.get("sample_weight", X.weight if isinstance(X, Clients) else None)
    if weights is not None:
        clients = _weighted(learner, clients, codes, weights)
    check_between("validation_fraction", learner.validation_fraction, 0, 0.9)
    X = clients.X.astype(precision_of(learner), copy=False)
    clients = hold_back(replace(clients, X=X), learner.validation_fraction)
    if learner._numeric:
        check_size(np.asarray(clients.y), "y")
    elif learner._declared is not None and len(learner.classes_) > len(learner._declared):
        unknown = np.setdiff1d(learner.classes_, learner._declared).tolist()
        raise ValueError(f"y has labels that are not among classes: {unknown}.")
    return clients, codes, found


def _weighted(learner: Any, clients: Clients, codes: NDArray | None, weights: NDArray) -> Clients:
    """Give rows the weights that were given in their own order."""
    if len(weights) != len(clients.X):
        raise ValueError(
            f"sample_weight has {len(weights)} entries for the {len(clients.X)} rows of X."
        )
    rounds = learner.protocol()
    schedule = rounds.schedule
    if schedule.by_rows:
        check_whole(weights, "weights='rows'")
    if schedule.by_rows and learner.privacy is not None:
        raise ValueError(
            "sample_weight is not for weights='rows' with privacy: numbers of rows are public, and "
            "sums of weights are not. Use weights='clients'."
        )
    check_metric(learner.metric)
    weights = weights[order_of_rows(codes)]
    if rounds.drops_weightless:
        clients = clients.weighted(weights)
    else:
        clients = replace(clients, weight=weights)
    if not learner._numeric:  # classes of rows that count
        found = np.unique(np.asarray(clients.y))
        declared = learner._declared
        learner._check_classes(found)
        learner.classes_ = found if declared is None else np.union1d(found, declared)
    return clients


def hold_rounds(
    rounds: Any, clients: Clients, memory: LearningMemory
) -> tuple[LearningState, LearningMemory]:
    """Hold all rounds of a fit; return the last state and what clients keep.

    Parameters
    ----------
    rounds : LearnerRounds
        Of a learner with its `checkpoint` or `warm_start`.
    clients : Clients
    memory : dict
        What the clients keep before the first round.
    """
    state: LearningState | None = None
    learner = rounds.estimator
    private = rounds.exchange(len(clients)).promises
    hooks: dict[str, Any] = {"private": private}
    if learner.checkpoint is not None:
        kept = Checkpoint(learner.checkpoint, _arguments(learner, private), clients, memory)
        state, memory = kept.load() or (None, memory)

        renews = state is not None and private and not is_fixed(learner.random_state)

        def before(state: LearningState, cohort: Cohort) -> LearningState:
            nonlocal renews
            assert isinstance(cohort, Blocks)
            if renews and not kept.has_entered(state["round"], state["key"]):
                renews, cohort.key = False, noise_key()
                state = state | {"key": cohort.key}
                kept.keep(state, lambda: cohort.memory, now=True)
            kept.enter(state["round"], state["key"])
            return state

        def after(state: LearningState, cohort: Cohort) -> None:
            assert isinstance(cohort, Blocks)
            kept.keep(state, lambda: cohort.memory)

        hooks |= {"before": before, "after": after}
    elif learner.warm_start and learner._is_server:
        raise ValueError(
            "warm_start goes on from what clients kept, which a published copy does not have: set "
            "keep_rows = True before the fit is pickled."
        )
    elif learner.warm_start and learner._state is not None:
        state, memory = _resumed(rounds, clients, memory, private)
    return converse_here(rounds, clients, memory, state, **hooks)


def _arguments(learner: Any, private: bool) -> dict[str, str]:
    """Return what a fit that goes on must have in common with the one that began.

    A round that is repeated draws the same noise, so its messages must be the same: those of
    another version may not be, nor those of another loss of the same name.
    """
    indifferent = ["engine", "verbose", "checkpoint", "warm_start"]
    if not is_fixed(learner.random_state):
        indifferent.append("random_state")
    arguments = learner.get_params(deep=False)
    if private:
        arguments |= {"versions": [version(name) for name in ("ebfed", "numpy", "scipy")]}
    return {
        name: fingerprint(value) for name, value in arguments.items() if name not in indifferent
    }


def _resumed(
    rounds: Any, clients: Clients, memory: LearningMemory, private: bool
) -> tuple[LearningState, LearningMemory]:
    """Return the state that the last fit ended with, and what its clients kept.

    Rows may have changed since, so the key of a private fit's noise is a new one.
    """
    learner = rounds.estimator
    assert learner._state is not None
    state = learner._state
    if not np.array_equal(clients.ids, learner.clients_.ids):
        raise ValueError("groups must be those of the last fit, as warm_start is True.")
    facts, then = dict[str, Any](rounds.describe(clients, memory)), dict[str, Any](state)
    for name in ("n_features", "columns", *(("classes",) if "classes" in facts else ())):
        if not np.array_equal(np.ravel(facts[name]), np.ravel(then[name])):
            raise ValueError(f"{name} must be those of the last fit, as warm_start is True.")
    if repr(rounds.predictor(state).model) != state["model"]:
        raise ValueError("model must be that of the last fit, as warm_start is True.")
    if learner.validation_fraction != state["held_back"]:  # or trained rows would be held back
        raise ValueError("validation_fraction must be that of the last fit, as warm_start is True.")
    exchange, round_ = rounds.exchange(len(state["n"])), state["round"]
    every = learner.evaluate_every or state["evaluate_every"]
    if not exchange.sends_losses and every != (state["evaluate_every"] or every):
        raise ValueError(
            "evaluate_every must be that of the last fit, as warm_start is True, and evaluations "
            "stay with the clients."
        )
    state = state | {"done": round_ >= learner.n_rounds, "began": round_, "evaluate_every": every}
    exchange.check_resume(state, memory, learner._memory)
    _check_shapes(rounds, state)
    if private:
        state = state | {"key": noise_key(learner.random_state)}
    turn = exchange.invite(state, draw(state["key"], INVITE, round_))
    return state | {"turn": turn}, learner._memory


def _check_shapes(rounds: Any, state: LearningState) -> None:
    """Raise a ValueError if parameters of the last fit are not those of the arguments of now."""
    rng, facts = np.random.default_rng(0), cast("LearningFacts", state)
    shared = rounds.shared_parameters(facts, rng)
    own = rounds.own_parameters(shared, facts, rng)
    for kind, now, then in (("shared", shared, state["shared"]), ("own", own, state["own"])):
        sizes, before = ({k: x.shape for k, x in named.items()} for named in (now, then))
        if sizes != before:
            changed = sorted(k for k, _ in sizes.items() ^ before.items())
            raise ValueError(
                f"{kind} parameters must be as many as in the last fit, as warm_start is True: an "
                f"argument that changed makes others of {', '.join(dict.fromkeys(changed))}."
            )


def settle(
    rounds: Any,
    sent: LearningSent,
    memory: LearningMemory | None,
    clients: Clients,
    parameters: NDArray[np.float64],
) -> Any:
    """Set the learned attributes, of clients or of a server, whose memory is None."""
    learner = rounds.estimator
    learner._is_server, learner.clients_ = memory is None, clients
    learner.parameters_ = parameters.astype(precision_of(learner), copy=False)
    learner.n_iter_, learner.shared_ = sent["round"], sent["shared"]
    learner._history, learner._every = sent["history"], sent["every"]
    learner._n_clients, learner._memory = sent["n_clients"], memory
    if not learner._numeric:
        learner.classes_ = sent["classes"]
    learner._net = rounds.predictor(sent)
    learner.model_ = learner._net.model
    unseen_net, unseen = rounds.unseen_predictor(sent)
    learner._unseen = unseen_net, unseen.astype(precision_of(learner), copy=False)
    learner._notes, learner._without_own = [], np.zeros(len(parameters), bool)
    own_steps = makes_last_steps(rounds)
    if memory is not None and sent["own"] and not own_steps and not memory["trained"].all():
        new = learner._without_own = ~memory["trained"]
        learner._notes = [
            f"{new.sum()} of {len(new)} groups were never invited: the shared parameters predict "
            "for them."
        ]
    # without an array of the size of the parameters
    lost = int((~np.isfinite([parameters.min(axis=1), parameters.max(axis=1)]).all(axis=0)).sum())
    if lost and memory is not None:
        warnings.warn(
            f"the predictors of {lost} of {len(clients)} groups are not finite: choose smaller "
            "learning rates, or rescale the features.",
            stacklevel=3,
        )
    exchange = rounds.exchange(sent["n_clients"])
    rows = exchange.released(sent, memory, len(clients), sent["round"])
    by_server = memory is None and exchange.server_adds_noise and is_fixed(learner.random_state)
    learner._ledger = simulated(rows) if learner._simulated or by_server else rows
    return learner
