"""Checks of rows of several trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.report.diagnostics import Diagnostics

__all__ = ["of_trials"]


def of_trials(
    found: Diagnostics, won: NDArray, trials: NDArray, times: NDArray | None, fitted: NDArray
) -> Diagnostics:
    """Return rows of several trials each, of what a fit says of the single trials.

    Rows without trials have no response.
    """
    first = np.minimum(np.cumsum(trials) - trials, len(found.response) - 1)
    weight = trials * (1.0 if times is None else times)

    def smoothed(values: NDArray) -> tuple[NDArray, NDArray]:
        ones = np.rint(values * trials).astype(np.int64)
        outcomes = np.tile([1.0, 0.0], len(trials))
        assert found.smoothed is not None
        again = found.smoothed(np.repeat(outcomes, np.column_stack([ones, trials - ones]).ravel()))
        return again[0][first], again[1][first]

    law: Any = found.law  # a dataclass
    return replace(
        found,
        response=np.where(trials > 0, won / np.maximum(trials, 1), np.nan),
        fitted=fitted,
        expected=found.expected[first],
        predictor=found.predictor[first],
        unknown=(found.unknown[0][first], found.unknown[1][first]),
        law=replace(law, weight=weight, plain=times is None or bool((times == 1).all())),
        drawn=lambda rng: found.drawn(rng)[first],
        renewed=lambda rng: found.renewed(rng)[first],
        smoothed=smoothed,
    )
