"""Checks of arguments that learners have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, get_args

from ebfed.learning.fine_tuning import check_fine_tuning
from ebfed.learning.minibatches import precision_of
from ebfed.learning.optimizers import MOMENTUM, Optimizer, check_optimizer
from ebfed.learning.rates import RateSchedule, check_rate
from ebfed.learning.schedule import Sampling
from ebfed.privacy.calibration import as_float, check_count, check_positive
from ebfed.tables.clients import LARGEST

if TYPE_CHECKING:
    from ebfed.learning.base import Learner

__all__ = ["check_arguments", "check_between", "check_pull"]

MOST_GROWTH = math.log(LARGEST)
# Sums are divided by the expected number of clients: below this rate their noise has no bounds.
LEAST_RATE = 1e-9


def check_between(name: str, value: Any, low: float, high: float) -> None:
    """Raise a ValueError if an argument is not a number of an interval."""
    if not low <= as_float(value) <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}; got {value!r}.")


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


def check_arguments(learner: Learner) -> None:
    """Raise a ValueError if an argument that every learner has is wrong."""
    from ebfed.learning.privacy import ClientPrivacy

    check_count("n_rounds", learner.n_rounds)
    check_count("local_steps", learner.local_steps)
    check_rate("learning_rate", learner.learning_rate)
    decay = check_positive("decay", learner.decay)
    if decay != 1 and isinstance(learner.learning_rate, RateSchedule):
        raise ValueError(f"decay must be 1 where learning_rate has a schedule; got {decay!r}.")
    if learner.n_rounds * math.log(decay) > MOST_GROWTH:
        raise ValueError(f"decay must not let learning rates grow without end; got {decay!r}.")
    if learner.batch_size is not None:
        check_count("batch_size", learner.batch_size)
    if not LEAST_RATE <= check_positive("sample_rate", learner.sample_rate) <= 1:
        raise ValueError(
            f"sample_rate must be between {LEAST_RATE:g} and 1; got {learner.sample_rate!r}."
        )
    if learner.sampling is not None and str(learner.sampling) not in get_args(Sampling):
        raise ValueError(f"sampling must be one of {get_args(Sampling)}; got {learner.sampling!r}.")
    precision_of(learner)
    check_optimizer("optimizer", learner.optimizer)
    check_pull(learner.weight_decay, learner.peak_rate, learner.optimizer, "weight_decay")
    check_fine_tuning(learner)
    if learner.optimizer != "sgd" and not learner.any_optimizer:
        raise ValueError(
            f"optimizer must be 'sgd' in {type(learner).__name__}; got {learner.optimizer!r}."
        )
    _check_validation(learner)
    if learner.privacy is None and learner.requires_privacy:
        raise ValueError(
            f"privacy must be given to {type(learner).__name__}, such as "
            "privacy=ClientPrivacy(epsilon=1.0); got None."
        )
    if learner.privacy is not None:
        if not isinstance(learner.privacy, ClientPrivacy):
            raise TypeError(f"privacy must be a ClientPrivacy; got {learner.privacy!r}.")
        learner.privacy.check()


def _check_validation(learner: Learner) -> None:
    check_between("validation_fraction", learner.validation_fraction, 0, 0.9)
    for name in ("evaluate_every", "early_stopping"):
        if getattr(learner, name) is not None:
            check_count(name, getattr(learner, name))
    if learner.metric is not None and not callable(learner.metric):
        raise TypeError(f"metric must be a function; got {learner.metric!r}.")
    if learner.evaluate_every is not None and not learner.validation_fraction:
        raise ValueError(
            "evaluate_every needs rows that are held back: give validation_fraction, such as 0.2."
        )
    if learner.early_stopping is None:
        return
    if learner.evaluate_every is None:
        raise ValueError("early_stopping needs evaluate_every, the rounds between evaluations.")
    if learner.privacy is not None:
        raise ValueError(
            "early_stopping is not for private fits: what rows that are held back say stays with "
            "their clients, and the server cannot stop by it."
        )
    if not learner.exchange(1).sends_losses:
        raise ValueError(f"early_stopping is not for {type(learner).__name__}: it sends nothing.")
