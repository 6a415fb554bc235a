"""Checks of arguments that learners have."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np

from ebfed.learning.fine_tuning import check_fine_tuning
from ebfed.learning.minibatches import precision_of
from ebfed.learning.optimizers import MOMENTUM, Optimizer, check_optimizer
from ebfed.learning.schedule import RateSchedule, Sampling, check_rate
from ebfed.privacy.calibration import as_float, check_count, check_positive
from ebfed.tables.clients import LARGEST

__all__ = ["check_arguments", "check_between", "check_names", "check_pull"]

MOST_GROWTH = math.log(LARGEST)
# Sums are divided by the expected number of clients: below this rate their noise has no bounds.
LEAST_RATE = 1e-9


def check_between(name: str, value: Any, low: float, high: float) -> None:
    """Raise a ValueError if an argument is not a number of an interval."""
    if not low <= as_float(value) <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}; got {value!r}.")


def check_names(name: str, value: Any) -> None:
    """Raise a TypeError if an argument is neither None nor a list of names."""
    if value is not None and (isinstance(value, str) or not np.iterable(value)):
        raise TypeError(f"{name} must be a list of names; got {value!r}.")


def check_pull(
    strength: Any, rate: float, optimizer: Optimizer = "sgd", name: str = "regularization"
) -> None:
    """Raise a ValueError if steps of a learning rate overshoot what they are pulled to.

    Distances to it are multiplied by ``1 - rate * strength`` in each step. Those of Adam have
    a size of their own.
    """
    check_between(name, strength, 0, LARGEST)
    limit = {"sgd": 2.0, "momentum": 2 * (1 + MOMENTUM), "adam": math.inf}[optimizer] / rate
    if strength >= limit:
        raise ValueError(
            f"{name} must be below {limit:g}, or the learning rate of its steps below "
            f"{rate * limit / float(strength):g}: they overshoot; got {strength!r} and {rate:g}."
        )


def check_arguments(rounds: Any) -> None:
    """Raise a ValueError if an argument that every learner has is wrong."""
    given = rounds.estimator
    check_count("n_rounds", given.n_rounds)
    check_count("local_steps", given.local_steps)
    check_rate("learning_rate", given.learning_rate)
    decay = check_positive("decay", given.decay)
    if decay != 1 and isinstance(given.learning_rate, RateSchedule):
        raise ValueError(f"decay must be 1 where learning_rate has a schedule; got {decay!r}.")
    if given.n_rounds * math.log(decay) > MOST_GROWTH:
        raise ValueError(f"decay must not let learning rates grow without end; got {decay!r}.")
    if given.batch_size is not None:
        check_count("batch_size", given.batch_size)
    if not LEAST_RATE <= check_positive("sample_rate", given.sample_rate) <= 1:
        raise ValueError(
            f"sample_rate must be between {LEAST_RATE:g} and 1; got {given.sample_rate!r}."
        )
    if given.sampling is not None and str(given.sampling) not in get_args(Sampling):
        raise ValueError(f"sampling must be one of {get_args(Sampling)}; got {given.sampling!r}.")
    precision_of(given)
    check_optimizer("optimizer", given.optimizer)
    check_pull(given.weight_decay, rounds.peak_rate, given.optimizer, "weight_decay")
    check_fine_tuning(rounds)
    if given.optimizer != "sgd" and not rounds.any_optimizer:
        raise ValueError(
            f"optimizer must be 'sgd' in {type(given).__name__}; got {given.optimizer!r}."
        )
    _check_validation(rounds)


def _check_validation(rounds: Any) -> None:
    given = rounds.estimator
    check_between("validation_fraction", given.validation_fraction, 0, 0.9)
    for name in ("evaluate_every", "early_stopping"):
        if getattr(given, name) is not None:
            check_count(name, getattr(given, name))
    if given.metric is not None and not callable(given.metric):
        raise TypeError(f"metric must be a function; got {given.metric!r}.")
    if given.evaluate_every is not None and not given.validation_fraction:
        raise ValueError(
            "evaluate_every needs rows that are held back: give validation_fraction, such as 0.2."
        )
    if given.early_stopping is None:
        return
    if given.evaluate_every is None:
        raise ValueError("early_stopping needs evaluate_every, the rounds between evaluations.")
    if given.privacy is not None:
        raise ValueError(
            "early_stopping is not for private fits: what rows that are held back say stays with "
            "their clients, and the server cannot stop by it."
        )
    if not rounds.exchange(1).sends_losses:
        raise ValueError(f"early_stopping is not for {type(given).__name__}: it sends nothing.")
