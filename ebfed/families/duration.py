"""Rows that are durations until an event, some of them censored; a rate for every group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.families.base import Family, Figures
from ebfed.families.poisson import Poisson, RowsOfGroups
from ebfed.likelihoods import Durations
from ebfed.tables.clients import LARGEST, SMALLEST, Summary
from ebfed.tables.of_rows import NOTHING

__all__ = ["Duration", "EndedDuration"]


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

    def check_rows(self, values: NDArray) -> NDArray:
        """Refuse rows that are not one positive duration each."""
        if values.shape[1] != 1:
            raise ValueError(f"X must hold one column of durations; got {values.shape[1]}.")
        wrong = ~((values[:, 0] > SMALLEST) & (values[:, 0] < LARGEST))
        if wrong.any():
            row = int(np.argmax(wrong))
            sizes = f", between {SMALLEST:g} and {LARGEST:g}" if values[row, 0] > 0 else ""
            raise ValueError(
                f"X must hold positive durations{sizes}; row {row} has {values[row, 0]}."
            )
        return values

    def figures_of_rows(
        self, value: Any, of_rows: Mapping[str, Any], once: Callable[[Any], Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return observed events and durations of rows; what must hold of them."""
        observed = of_rows.get("observed")
        size = f"X must hold positive durations, between {SMALLEST:g} and {LARGEST:g}"
        rules = {size: (value > SMALLEST) & (value < LARGEST)}
        if observed is None:
            return {"events": value * 0.0 + 1.0, "exposure": value}, rules
        text = "observed must be 1 where the event ended a duration and 0 where that is censored"
        rules[text] = (observed == 0) | (observed == 1)
        return {"events": observed, "exposure": value}, rules

    def responses(
        self, values: NDArray, of_rows: Mapping[str, NDArray]
    ) -> tuple[NDArray, NDArray | None]:
        """Return whether the event was observed, and durations."""
        observed = of_rows.get("observed")
        events = np.ones_like(values) if observed is None else observed[:, None]
        return events, values[:, 0]

    def times_column(self, value: str, of_rows: Mapping[str, Any]) -> str | None:
        """Return the column of durations."""
        return value

    def _sums(
        self, rows: RowsOfGroups, events: NDArray, exposure: NDArray | None
    ) -> dict[str, NDArray]:
        """Nothing: events and total times say all of the density of durations."""
        return {}

    def log_base_measure(self, summary: Summary) -> NDArray:
        """Log-density of durations beside the probability of their number of events."""
        return -self.likelihood(self.figures(summary)).log_coefficient()

    def blank(self, n: NDArray, n_features: int, weight: NDArray | None = None) -> Summary:
        weight = n.astype(float) if weight is None else weight
        return Family.blank(self, n, n_features, weight)


@dataclass(frozen=True)
class EndedDuration(Duration):
    """Durations that all ended with the event: their number is public, and their sum is not.

    A group's own estimate is the rate ``n_i / T_i``, an average over ``n_i`` durations. Channels
    report it, and have a likelihood: ``theta_i T_i`` has a gamma distribution of shape ``n_i``.
    Where rows may be censored, the law of ``T_i`` depends on what censors them.

    Examples
    --------
    >>> times, labels = np.array([[1.5], [2.5], [4.0]]), np.array(["a", "a", "b"])
    >>> summary = EndedDuration().summarise(times, labels)
    >>> summary.mean.ravel(), summary.weight is None
    (array([0.5 , 0.25]), True)
    """

    takes_exposure: ClassVar[bool] = False

    def check_summary(self, summary: Summary) -> None:
        """Refuse summaries of other rows than durations."""
        if not (summary.mean[summary.n > 0] > 0).all():
            raise ValueError("X must summarise durations that ended with the event.")

    def summarise(
        self,
        values: NDArray,
        labels: NDArray | None,
        of_rows: Mapping[str, NDArray] = NOTHING,
    ) -> Summary:
        """Add up durations; refuse censored ones."""
        observed = of_rows.get("observed", np.ones(len(values)))
        if not (observed == 1).all():
            row = int(np.argmin(observed))
            raise ValueError(
                "observed must be 1 in all rows where channel hides them: what a censored duration "
                f"says depends on what censors it; row {row} has 0. Leave observed= out, or use "
                "channels.Exact()."
            )
        return replace(super().summarise(values, labels, of_rows), weight=None)

    def figures_of_rows(
        self, value: Any, of_rows: Mapping[str, Any], once: Callable[[Any], Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return durations of rows, of which none is censored."""
        figures, rules = super().figures_of_rows(value, of_rows, once)
        if "observed" in of_rows:
            rules["observed must be 1 in all rows where channel hides them"] = figures["events"] > 0
        return figures, rules

    def converted(self, summary: Summary) -> Summary:
        """Leave out total times, which follow from numbers of rows and rates."""
        return super().converted(replace(summary, weight=None))

    def merge(self, one: Summary, other: Summary) -> Summary:
        parts = [
            replace(each, weight=self.likelihood(self.figures(each)).exposure)
            for each in (one, other)
        ]
        return replace(super().merge(*parts), weight=None)

    def likelihood(self, figures: Figures) -> Durations:
        """``T_i ~ Gamma(n_i, rate theta_i)``; a mean of 0 is a blank, as if T_i were n_i."""
        n, mean = figures["n"], figures["mean"][:, 0]
        return Durations(n[:, None], n / np.where(mean > 0, mean, 1.0))

    def sampling_variance(self, theta: Any, size: Any, column: int = 0) -> Any:
        """``theta**2 / n``, of many durations."""
        return theta**2 / size

    def simulate(
        self, theta: NDArray, size: NDArray, rng: np.random.Generator, column: int = 0
    ) -> NDArray:
        """Draw rates, ``n`` durations over their sum."""
        return theta * size / rng.standard_gamma(np.broadcast_to(size, np.shape(theta)))

    def outcomes(self, size: float, highest: float) -> NDArray:
        """Refuse: rates from durations are not a list of values."""
        return Family.outcomes(self, size, highest)

    def blank(self, n: NDArray, n_features: int, weight: NDArray | None = None) -> Summary:
        """Return a summary of groups with so many rows, of unknown durations."""
        return Family.blank(self, n, n_features)
