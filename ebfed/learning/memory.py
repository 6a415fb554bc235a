"""What clients keep between rounds: own parameters, and the losses that the history is made of."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import LearningMemory, LearningSent

__all__ = ["losses", "remember", "writable"]


def writable(values: NDArray) -> NDArray:
    """Return an array that may be written into: a copy, if it was read from a wire."""
    return values if values.flags.writeable else values.copy()


def remember(sent: LearningSent, memory: LearningMemory, m: int) -> LearningMemory:
    """Return what m clients keep, with a place for all that this round will write."""
    if "own" not in memory:
        own = {name: np.repeat(value[None], m, axis=0) for name, value in sent["own"].items()}
        nothing = np.full((m, 0), np.nan, np.float32)
        trained = np.zeros(m, bool)
        memory = memory | {"own": own, "trained": trained, "loss": nothing, "score": nothing}
    short = sent["records"] - memory["loss"].shape[1]
    if short > 0:
        more = np.full((m, short), np.nan, np.float32)
        loss, score = (np.hstack([each, more]) for each in (memory["loss"], memory["score"]))
        memory = memory | {"loss": loss, "score": score}
    if sent["evaluations"] or "validation" in memory:
        seen = memory.get("validation", np.full((m, 0), np.nan, np.float32))
        more = np.full((m, max(sent["evaluations"] - seen.shape[1], 0)), np.nan, np.float32)
        memory = memory | {"validation": writable(np.hstack([seen, more]))}
    return memory | {
        "own": {name: writable(value) for name, value in memory["own"].items()},
        "trained": writable(memory["trained"]),
        "loss": writable(memory["loss"]),
        "score": writable(memory["score"]),
    }


def losses(
    memory: LearningMemory | None,
    name: Literal["loss", "score", "validation"],
    n_rounds: int,
    every: int,
) -> list[float]:
    """Average over clients what they recorded in each round; NaN where nothing was."""
    mean = np.full(n_rounds, np.nan)
    if memory is not None:
        values = memory[name]
        count = np.isfinite(values).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.nansum(values.astype(np.float64), axis=0) / count
        mean[: len(each) * every : every] = each[: len(mean[::every])]
    return mean.tolist()
