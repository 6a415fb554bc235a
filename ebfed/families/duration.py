"""Rows that are durations until an event, some of them censored; a rate for every group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.families.base import Family
from ebfed.families.poisson import Poisson, RowsOfGroups
from ebfed.tables.clients import LARGEST, Summary

__all__ = ["Duration"]


@dataclass(frozen=True)
class Duration(Poisson):
    """Durations ``t_ij ~ Exponential(theta_i)``, of which an event or censoring is the end.

    `observed` is 1 where the event was observed, as it was in all rows if that is not given, and 0
    where the duration is censored. The density of a row is ``theta**observed exp(-theta t)``: the
    likelihood of theta is that of a Poisson number of events in the total time, its exposure, and
    only the base measure is another.

    Examples
    --------
    >>> times, labels = np.array([[1.5], [2.5], [4.0]]), np.array(["a", "a", "b"])
    >>> summary = Duration().summarise(times, labels, {"observed": np.array([1.0, 0.0, 1.0])})
    >>> summary.mean.ravel(), summary.weight
    (array([0.25, 0.25]), array([4., 4.]))
    """

    name: ClassVar[str] = "duration"
    has_density: ClassVar[bool] = True
    of_rows: ClassVar[tuple[str, ...]] = ("observed", "sample_weight")
    exact_only: ClassVar[str] = (
        "exposures are public in private fits, and the durations that add up to them are the data "
        "to be protected here"
    )

    def check_rows(self, values: NDArray) -> NDArray:
        """Refuse rows that are not one positive duration each."""
        if values.shape[1] != 1:
            raise ValueError(f"X must hold one column of durations; got {values.shape[1]}.")
        wrong = ~((values[:, 0] > 0) & (values[:, 0] < LARGEST))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"X must hold positive durations; row {row} has {values[row, 0]}.")
        return values

    def responses(
        self, values: NDArray, of_rows: Mapping[str, NDArray]
    ) -> tuple[NDArray, NDArray | None]:
        """Return whether the event was observed, and durations."""
        observed = of_rows.get("observed")
        events = np.ones_like(values) if observed is None else observed[:, None]
        return events, values[:, 0]

    def _sums(
        self, rows: RowsOfGroups, events: NDArray, exposure: NDArray | None
    ) -> dict[str, NDArray]:
        """Nothing: events and total times say all of the density of durations."""
        return {}

    def log_base_measure(self, summary: Summary) -> NDArray:
        """Log-density of durations beside the probability of their number of events."""
        return -self.likelihood(self.figures(summary)).log_coefficient()

    def blank(self, n: NDArray, n_features: int, weight: NDArray | None = None) -> Summary:
        """Return a summary of groups with so many rows, without events."""
        weight = n.astype(float) if weight is None else weight
        return Family.blank(self, n, n_features, weight)
