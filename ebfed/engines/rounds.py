"""The loop of rounds, written once: with any cohort, or with clients of this process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from numpy.typing import NDArray
from sklearn.base import clone

from ebfed.engines.base import Blocks, Cohort, Engine
from ebfed.engines.local import Local
from ebfed.engines.protocol import Rounds
from ebfed.streams import is_fixed, make_key, noise_key

__all__ = ["converse", "converse_here"]


def converse(
    protocol: Rounds,
    cohort: Cohort,
    key: NDArray | None = None,
    state: Any = None,
    *,
    before: Callable[[Any, Cohort], Any] | None = None,
    after: Callable[[Any, Cohort], None] | None = None,
) -> Any:
    """Hold a fit's rounds with clients, wherever they are; returns the last state.

    Parameters
    ----------
    protocol : Rounds
        Of the server's copy.
    cohort : Cohort
    key : ndarray of shape (2,), optional
        Key of what the server draws, in a simulation. None: privacy is real, so that the key is
        new, and the server's noise is that of the operating system, unless `random_state` is fixed.
    state : dict, optional
        State to go on from.
    before : callable, optional
        Called with the state and the cohort before clients are asked; returns the state.
    after : callable, optional
        Called with the state and the cohort when a round is over.
    """
    if state is None:
        real = key is None and not is_fixed(protocol.estimator.random_state)
        key = noise_key(protocol.estimator.random_state) if key is None else key
        state = cohort.begin(protocol, key)
        state = state | {"secure": True} if real else state
    with _bar(protocol, state) as bar:
        while not state["done"]:
            if before is not None:
                state = before(state, cohort)
            sent = protocol.broadcast(state)
            messages = cohort.ask(sent, state["round"], state["turn"])
            state = cohort.take(protocol, state, messages)
            if after is not None:
                after(state, cohort)
            if bar is not None:
                bar.update()
    return state


def _bar(protocol: Rounds, state: Any) -> Any:
    """Return a bar of the rounds, or a context of None where none is to be shown."""
    if not getattr(protocol.estimator, "verbose", 0):
        return nullcontext()
    from tqdm import tqdm

    name, expected = type(protocol.estimator).__name__, protocol.expected_rounds()
    return tqdm(desc=name, unit=" rounds", total=expected, initial=state["round"], leave=False)


def converse_here(
    protocol: Rounds,
    clients: Any,
    memory: Any,
    state: Any = None,
    *,
    private: bool = False,
    **hooks: Any,
) -> tuple[Any, Any]:
    """Hold the rounds with clients of this process; returns the last state, and their memory.

    Parameters
    ----------
    protocol : Rounds
    clients, memory
        As `Rounds.prepare` returns them.
    state : dict, optional
        State to go on from, with its key.
    private : bool
        Whether noise is to protect clients, so that its key must be new.
    **hooks
        Arguments of `converse`.

    Raises
    ------
    TypeError
        If the estimator's engine is none.
    """
    estimator = protocol.estimator
    engine = Local() if estimator.engine is None else estimator.engine
    if not isinstance(engine, Engine):
        raise TypeError(f"engine must be an ebfed.engines.Engine; got {engine!r}.")
    for name in ("_remarks", "_totals"):  # of an earlier fit, perhaps from a file
        estimator.__dict__.pop(name, None)
    # the worker carries neither the engine nor an earlier fit
    worker = clone(estimator)
    worker.engine = worker.random_state = None
    if state is None:
        key, goes_on = (noise_key if private else make_key)(estimator.random_state), False
    else:
        key, goes_on = state["key"], estimator._simulated
    estimator._simulated = goes_on or is_fixed(estimator.random_state)
    cohort = Blocks(engine, protocol, worker.protocol(), clients, memory, key)
    return converse(protocol, cohort, key, state, **hooks), cohort.memory
