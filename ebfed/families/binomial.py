"""Rows of 0 and 1, with a rate for every group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.blocks import blocks
from ebfed.families.base import LOGIT, TINY, Family, Figures, Link
from ebfed.likelihoods import Binomial as BinomialLikelihood
from ebfed.tables.clients import Summary
from ebfed.tables.labels import numbered_rows
from ebfed.tables.of_rows import (
    NOTHING,
    ROUNDED,
    WHOLE_SUCCESSES,
    are_shares,
    check_whole,
    won_of_shares,
)

__all__ = ["Binomial"]


@dataclass(frozen=True)
class Binomial(Family):
    """Rows that are 1 with probability ``theta_i``, else 0.

    Examples
    --------
    >>> summary = Summary.from_counts([3, 0], [4, 4])
    >>> Binomial().likelihood(Binomial.figures(summary)).successes.ravel()
    array([3, 0])
    """

    name: ClassVar[str] = "binomial"
    parameter: ClassVar[str] = "rate"
    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    link: ClassVar[Link] = LOGIT
    has_density: ClassVar[bool] = False
    conjugate: ClassVar[str] = "Beta"
    weights: ClassVar[Literal["precision", "frequency"]] = "frequency"

    def check_rows(self, values: NDArray) -> NDArray:
        """Refuse rows that are neither 0 or 1 nor shares between."""
        for block in blocks(len(values)):
            self._refuse(~((values[block] >= 0) & (values[block] <= 1)), values, block.start)
        return values

    def check_whole_rows(self, values: NDArray) -> None:
        """Refuse shares: without weights, rows have no number of trials."""
        for block in blocks(len(values)):
            self._refuse((values[block] > 0) & (values[block] < 1), values, block.start)

    @staticmethod
    def _refuse(wrong: NDArray, values: NDArray, start: int = 0) -> None:
        if wrong.any():
            row = start + int(np.argmax(wrong.any(axis=1)))
            raise ValueError(
                f"X must hold only 0 and 1; row {row} has {values[row].tolist()}. Shares of trials "
                "need sample_weight=, the numbers of trials; for a table of counts use "
                "Summary.from_counts; to cut numbers at a threshold give binarize=."
            )

    def summarise(
        self,
        values: NDArray,
        labels: NDArray | None,
        of_rows: Mapping[str, NDArray] = NOTHING,
    ) -> Summary:
        """Count rows and ones of each group, as `Summary.from_counts` has them.

        Shares are of as many trials as the weight of their row says.
        """
        weight = of_rows.get("sample_weight")
        if labels is None and weight is None:
            return super().summarise(values, labels)
        ids, codes = numbered_rows(labels, len(values))
        rows = n = np.bincount(codes, minlength=len(ids))
        if weight is not None:
            check_whole(weight, self.name)
            n = np.bincount(codes, weight, minlength=len(ids)).astype(np.int64)
        ones = np.empty((len(ids), values.shape[1]))
        for j, column in enumerate(values.T):
            if weight is not None:
                shares = are_shares(column)
                column = won_of_shares(column, weight, "X") if shares else weight * column
            ones[:, j] = np.bincount(codes, column, minlength=len(ids))
        if not rows.all():
            some = np.flatnonzero(rows)
            ids, n, ones = ids[some], n[some], ones[some]
        rate = ones / (n if weight is None else np.maximum(n, 1))[:, None]
        return Summary(ids, n, rate, n[:, None] * rate * (1 - rate))

    def figures_of_rows(
        self, value: Any, of_rows: Mapping[str, Any], once: Callable[[Any], Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return ones of rows, of shares per trial, and their squares; what must hold of them."""
        trials = of_rows.get("sample_weight")
        if trials is None:
            rules = {"X must hold only 0 and 1": (value == 0) | (value == 1)}
        else:
            rules = {"X must hold 0 and 1, or shares between": (value >= 0) & (value <= 1)}
            won = (value * trials + 0.5).floor()
            rules[f"X {WHOLE_SUCCESSES}"] = (value * trials - won).abs() <= ROUNDED
            value = won / (trials + TINY)  # of no trials too
        return {"events": value, "squares": value}, rules

    def converted(self, summary: Summary) -> Summary:
        """Count the rows of a summary by their weights."""
        if summary.weight is not None and "log_weight" in summary.sums:
            check_whole(summary.weight, self.name)
            n = summary.weight.astype(np.int64)
            summary = Summary(summary.ids, n, summary.mean, summary.scatter)
        return super().converted(summary)

    def check_summary(self, summary: Summary) -> None:
        """Refuse summaries of other rows than 0 and 1."""
        for block in blocks(len(summary)):
            n, rate, scatter = summary.n[block, None], summary.mean[block], summary.scatter[block]
            count = n * rate
            whole = np.abs(count - np.rint(count)) < 1e-6
            binary = np.abs(scatter - count * (1 - rate)) < 1e-6 * (1 + n)
            if not (whole & binary & (rate >= 0) & (rate <= 1)).all():
                raise ValueError("X must summarise rows of 0 and 1; got other numbers.")

    def likelihood(self, figures: Figures) -> BinomialLikelihood:
        """``z_i ~ Binomial(n_i, theta_i)``."""
        successes = np.rint(figures["mean"] * figures["n"][:, None]).astype(np.int64)
        return BinomialLikelihood(successes, figures["n"])

    def log_base_measure(self, summary: Summary) -> NDArray:
        """Minus the log-number of orders in which the rows of a count can stand."""
        return -self.likelihood(self.figures(summary)).log_coefficient()

    def sampling_variance(self, theta: Any, size: Any, column: int = 0) -> Any:
        """``theta (1 - theta) / n``."""
        return theta * (1 - theta) / np.maximum(size, 1.0)

    def simulate(
        self, theta: NDArray, size: NDArray, rng: np.random.Generator, column: int = 0
    ) -> NDArray:
        """Draw proportions."""
        return rng.binomial(size, theta) / size

    def draw_population(
        self, mean: float, variance: float, size: int, rng: np.random.Generator
    ) -> NDArray:
        """Draw from a beta distribution."""
        concentration = mean * (1 - mean) / variance - 1
        return rng.beta(mean * concentration, (1 - mean) * concentration, size)

    def outcomes(self, size: float, highest: float) -> NDArray:
        """List the proportions ``0, 1/n, ..., 1``."""
        return np.arange(int(size) + 1) / max(int(size), 1)
