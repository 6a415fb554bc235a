"""A server's part of learning: the first state, what is broadcast, and the next state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ebfed.channels import secure
from ebfed.engines.protocol import (
    LearningFacts,
    LearningMessage,
    LearningSent,
    LearningState,
    State,
)
from ebfed.engines.sums import largest
from ebfed.learning.minibatches import precision_of
from ebfed.learning.schedule import INVITE, NOISE, OWN_START, START, draw
from ebfed.learning.validation import has_stalled

if TYPE_CHECKING:
    from ebfed.learning.base import Learner

__all__ = ["broadcast_of", "first_state", "next_state"]


def first_state(
    learner: Learner, facts: LearningFacts, state: State, key: NDArray[np.uint64]
) -> LearningState:
    """Return the state before the first round.

    Parameters
    ----------
    learner : Learner
    facts : dict
        What all clients stated.
    state : dict
        What all supervised methods begin with.
    key : ndarray of shape (2,)
        Of what the server draws.
    """
    classes, m = np.zeros(0), len(facts["n"])
    if not learner._numeric:
        classes = np.unique(facts["classes"])
        if len(classes) < 2:
            raise ValueError(
                f"y has one class only, {classes.tolist()[0]!r}: at least two classes are needed."
            )
    facts = facts | {"classes": classes}
    shared = learner.shared_parameters(facts, draw(key, START))
    own = learner.own_parameters(shared, facts, draw(key, OWN_START))
    first: LearningState = {
        **state,
        "history": [],
        "converged": None,
        "classes": classes,
        "began": 0,
        "model": repr(learner.predictor(facts).model),
        "every": learner.schedule.every(m),
        "held_back": float(learner.validation_fraction),
        "evaluate_every": learner.evaluate_every,
        "shared": shared,
        "own": {name: value.astype(precision_of(learner)) for name, value in own.items()},
    }
    exchange = learner.exchange(m)
    first = exchange.start(first, facts)
    return first | {"turn": exchange.invite(first, draw(key, INVITE, 0))}


def broadcast_of(learner: Learner, state: LearningState) -> LearningSent:
    """Return the shared parameters, which round it is, and what clients need besides."""
    m, schedule = len(state["n"]), learner.schedule
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
    return learner.exchange(m).broadcast(state, sent)


def next_state(learner: Learner, state: LearningState, message: LearningMessage) -> LearningState:
    """Return the state after a round.

    Parameters
    ----------
    learner : Learner
    state : dict
    message : dict
        Of all clients that took part, joined.
    """
    exchange, key, round_ = learner.exchange(len(state["n"])), state["key"], state["round"]
    sent, rng = learner.broadcast(state), secure.noise(state, NOISE, round_)
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        average, state = exchange.average(state, sent, message, rng)
        average, state = learner.accelerate(average, state)
        shared = learner.move(state["shared"], average, round_)
    if not all(math.isfinite(largest(value)) for value in shared.values()):
        raise ValueError(
            f"shared parameters are no longer finite in round {round_ + 1}: choose a "
            f"smaller learning_rate than {learner.peak_rate:g}, or rescale the features."
        )
    row = exchange.note(state, learner.note(shared)) | exchange.losses(message, sent)
    history = [*state["history"], row]
    stalled = has_stalled(history[state["began"] :], learner.early_stopping)
    done = round_ + 1 >= learner.n_rounds or stalled
    state = state | {"round": round_ + 1, "done": done, "shared": shared, "history": history}
    return state | {"turn": exchange.invite(state, draw(key, INVITE, round_ + 1))}
