"""Rows that count events, each with an exposure; a rate of events for every group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.families.base import LOG, TINY, Family, Figures, Link
from ebfed.likelihoods import Poisson as PoissonLikelihood
from ebfed.tables.clients import LARGEST, SMALLEST, Summary
from ebfed.tables.labels import numbered_rows
from ebfed.tables.of_rows import NOTHING, check_whole
from ebfed.tables.scans import where

__all__ = ["Poisson", "RowsOfGroups", "log_factorial", "of_counts"]

LOG_ROOT = 0.5 * np.log(2 * np.pi)
# Coefficients, of the highest power first, of the polynomials in x of which the ratio is
# log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2, by interpolation at Chebyshev's points in 1/x.
REMAINDER = (
    (
        0.08333333333442508,
        0.21907800948555362,
        0.32603673646733444,
        0.22294567571040977,
        0.07117280604219456,
        0.002002469881302594,
    ),
    (
        1.0,
        2.6289361176334505,
        3.9457739782699486,
        2.762983322733386,
        0.9760304208289934,
        0.09140705545829968,
        0.0006463192444214104,
    ),
)


@dataclass(frozen=True)
class RowsOfGroups:
    """Which of m groups each row belongs to.

    Parameters
    ----------
    codes : int64 ndarray of shape (n_rows,)
    times : ndarray of shape (n_rows,), optional
        How many equal rows each stands for.
    m : int

    Examples
    --------
    >>> RowsOfGroups(np.array([0, 1, 0]), None, 2).total(np.array([1.0, 2.0, 4.0]))
    array([5., 2.])
    """

    codes: NDArray[np.int64]
    times: NDArray | None
    m: int

    def total(self, column: NDArray) -> NDArray:
        """Add up a figure of rows by group, shape (m,)."""
        column = column if self.times is None else self.times * column
        return np.bincount(self.codes, column, minlength=self.m)

    def totals(self, columns: NDArray) -> NDArray:
        """Add up several, (n_rows, d), shape (m, d)."""
        return np.stack([self.total(column) for column in columns.T], axis=1)


def of_counts(function: Callable[[NDArray], NDArray], counts: NDArray) -> NDArray:
    """Return a function of counts, by a table of all up to the largest if that is shorter.

    Examples
    --------
    >>> of_counts(log_factorial, np.array([[3.0], [0.0], [3.0]])).ravel().round(4)
    array([1.7918, 0.    , 1.7918])
    """
    largest = counts.max(initial=0)
    if largest >= counts.size:
        return function(counts)
    return function(np.arange(largest + 1))[counts.astype(np.int64)]


def log_factorial(counts: NDArray) -> NDArray:
    """Logarithm of ``y!``."""
    from scipy.special import gammaln

    return gammaln(counts + 1.0)


def lazy_log_gamma(x: Any) -> Any:
    """Logarithm of ``Gamma(x)`` at whole numbers, as expressions of engines have it.

    Stirling's formula, the remainder of which is a ratio of polynomials in x: the error is below
    5e-14, or 5e-14 of the value. Spark does not compile long expressions. Of most counts y, x = y +
    1 is small, and engines need not compute those of 1 and 2.

    Examples
    --------
    >>> import narwhals as nw, polars as pl
    >>> from ebfed.tables.values import wrapped
    >>> rows = wrapped(pl.DataFrame({"x": [1.0, 2.0, 6.0]}))
    >>> rows.select(x=lazy_log_gamma(nw.col("x")).round(9))["x"].to_list()
    [0.0, 0.0, 4.787491743]
    """
    above, below = (reduce(lambda sum_, each: sum_ * x + each, own) for own in REMAINDER)
    return where(x > 2, (x - 0.5) * x.log() - x + above / below + LOG_ROOT, 0.0)


@dataclass(frozen=True)
class Poisson(Family):
    """Rows ``y_ij ~ Poisson(e_ij theta_i)`` with known exposures ``e_ij``, 1 if none are given.

    A group is summarised by its events over its exposure, ``sum_j y_ij / sum_j e_ij``, and by the
    log base measure ``sum_j (y_ij log e_ij - log y_ij!)`` of its rows.

    Examples
    --------
    >>> rows, labels = np.array([[2.0], [4.0], [1.0]]), np.array(["a", "a", "b"])
    >>> summary = Poisson().summarise(rows, labels, {"exposure": np.array([1.0, 2.0, 4.0])})
    >>> summary.mean.ravel(), summary.weight
    (array([2.  , 0.25]), array([3., 4.]))
    """

    name: ClassVar[str] = "poisson"
    parameter: ClassVar[str] = "rate"
    support: ClassVar[tuple[float, float]] = (0.0, np.inf)
    link: ClassVar[Link] = LOG
    has_density: ClassVar[bool] = False
    conjugate: ClassVar[str] = "Gamma"
    has_rates: ClassVar[bool] = True
    takes_exposure: ClassVar[bool] = True
    of_rows: ClassVar[tuple[str, ...]] = ("exposure", "sample_weight")
    weights: ClassVar[Literal["precision", "frequency"]] = "frequency"

    def check_rows(self, values: NDArray) -> NDArray:
        """Refuse rows that are not whole numbers from 0 on."""
        other = ~((values >= 0) & (values == np.floor(values)) & (values <= 2**53)).all(axis=1)
        if other.any():
            row = int(np.argmax(other))
            most = " to 2**53" if (values[row] > 2**53).any() else ""
            raise ValueError(
                f"X must hold counts, whole numbers from 0{most}; "
                f"row {row} has {values[row].tolist()}."
            )
        return values

    def check_summary(self, summary: Summary) -> None:
        """Refuse summaries of other rows than counts."""
        counts = summary.mean * summary.size[:, None]
        whole = np.abs(counts - np.rint(counts)) < 1e-6 * (1 + counts)
        if not (whole & (summary.mean >= 0)).all():
            raise ValueError("X must summarise counts; got other numbers.")

    def summarise(
        self,
        values: NDArray,
        labels: NDArray | None,
        of_rows: Mapping[str, NDArray] = NOTHING,
    ) -> Summary:
        """Add up events, exposures and the base measure of the rows of each group."""
        events, exposure = self.responses(values, of_rows)
        n_rows, d = events.shape
        ids, codes = numbered_rows(labels, n_rows)
        n = np.bincount(codes, minlength=len(ids))
        if not n.all():
            there = n > 0
            ids, codes, n = ids[there], (np.cumsum(there) - 1)[codes], n[there]
        times = of_rows.get("sample_weight")
        if times is not None:
            check_whole(times, self.name)
            n = np.bincount(codes, times, minlength=len(ids))
        rows = RowsOfGroups(codes, times, len(ids))
        weight = n.astype(float) if exposure is None else rows.total(exposure)
        total, sums = rows.totals(events), self._sums(rows, events, exposure)
        return Summary(
            ids,
            n.astype(np.int64),
            total / (weight if times is None else np.where(weight > 0, weight, 1.0))[:, None],
            np.zeros((len(ids), d)),
            weight=weight,
            sums=sums,
        )

    def figures_of_rows(
        self, value: Any, of_rows: Mapping[str, Any], once: Callable[[Any], Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return events, exposures and log base measures of rows; what must hold of them."""
        # of wrong rows, which are refused, there are logarithms too
        exposure, base = of_rows.get("exposure"), 0 - lazy_log_gamma(once(value.abs() + 1.0))
        rules = {
            "X must hold counts, whole numbers from 0": (value >= 0)
            & (value == value.floor())
            & (value <= 2**53)
        }
        if exposure is not None:
            base = base + value * once(exposure.abs() + TINY).log()
            positive = (exposure > SMALLEST) & (exposure < LARGEST)
            rules[f"exposure must be between {SMALLEST:g} and {LARGEST:g}"] = positive
        return {"events": value, "exposure": exposure, "log_base": base}, rules

    def responses(
        self, values: NDArray, of_rows: Mapping[str, NDArray]
    ) -> tuple[NDArray, NDArray | None]:
        """Return events, and exposures."""
        return values, of_rows.get("exposure")

    def times_column(self, value: str, of_rows: Mapping[str, Any]) -> str | None:
        """Return the column of exposures."""
        return of_rows.get("exposure")

    def _sums(
        self, rows: RowsOfGroups, events: NDArray, exposure: NDArray | None
    ) -> dict[str, NDArray]:
        """Sums of log base measures over the rows of each group, shape (m, d), by name."""
        from scipy.special import xlogy

        base = -of_counts(log_factorial, events)
        if exposure is not None:
            base += xlogy(events, exposure[:, None])
        return {"log_base": rows.totals(base)}

    def likelihood(self, figures: Figures) -> PoissonLikelihood:
        """``y_i ~ Poisson(E_i theta_i)``."""
        exposure = np.asarray(figures.get("weight", figures["n"]), float)
        counts = np.rint(figures["mean"] * exposure[:, None]).astype(np.int64)
        return PoissonLikelihood(counts, exposure)

    def log_base_measure(self, summary: Summary) -> NDArray:
        """Log-probability of how the events of a group are spread over its rows."""
        likelihood = self.likelihood(self.figures(summary))
        if "log_base" not in summary.sums:  # one row of all the exposure
            return np.zeros(len(summary))
        return summary.sums["log_base"].sum(axis=1) - likelihood.log_coefficient()

    def sampling_variance(self, theta: Any, size: Any, column: int = 0) -> Any:
        """``theta / E``."""
        return theta / size

    def simulate(
        self, theta: NDArray, size: NDArray, rng: np.random.Generator, column: int = 0
    ) -> NDArray:
        """Draw events over exposures."""
        return rng.poisson(theta * size) / size

    def draw_population(
        self, mean: float, variance: float, size: int, rng: np.random.Generator
    ) -> NDArray:
        """Draw from a gamma distribution."""
        return rng.gamma(mean**2 / variance, variance / mean, size)

    def outcomes(self, size: float, highest: float) -> NDArray:
        """List the rates ``0, 1/E, 2/E, ...`` up to the highest."""
        return np.arange(int(np.ceil(highest * size)) + 1) / size

    def blank(self, n: NDArray, n_features: int, weight: NDArray | None = None) -> Summary:
        """Return a summary of groups with so many rows, without events."""
        weight = n.astype(float) if weight is None else weight
        summary = super().blank(n, n_features, weight)
        return replace(summary, sums={"log_base": np.zeros((len(n), n_features))})
