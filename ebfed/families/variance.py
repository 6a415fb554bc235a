"""Rows whose variance within the group is of interest, whatever their mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.families.base import IDENTITY, Family, Figures, Link
from ebfed.likelihoods import LogVariance
from ebfed.tables.clients import Summary
from ebfed.tables.of_rows import NOTHING

__all__ = ["Variance"]

# Logarithm of a sample variance of zero: a channel clips it to the end of its range.
LOG_ZERO = -690.0


@dataclass(frozen=True)
class Variance(Family):
    """Rows ``x_ij ~ N(mu_i, exp(theta_i) / w_ij)``, theta the logarithm of the variance.

    Weights w_ij are 1 if not given.

    The own estimate of a group is ``log s_i**2``, with s_i**2 the sample variance on ``n_i - 1``
    degrees of freedom. Groups of one row say nothing. The means of groups are kept to merge
    summaries.

    Examples
    --------
    >>> rows = Summary.from_rows([1.0, 3.0, 8.0], groups=["a", "a", "b"])
    >>> summary = Variance().converted(rows)
    >>> np.exp(summary.mean).ravel(), Variance().likelihood(Variance.figures(summary)).degrees
    (array([2., 1.]), array([1, 0]))
    """

    name: ClassVar[str] = "variance"
    parameter: ClassVar[str] = "log variance"
    support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    link: ClassVar[Link] = IDENTITY
    has_density: ClassVar[bool] = True
    conjugate: ClassVar[str] = "InverseGamma"
    is_transformed: ClassVar[bool] = True

    def summarise(
        self,
        values: NDArray,
        labels: NDArray | None,
        of_rows: Mapping[str, NDArray] = NOTHING,
    ) -> Summary:
        return self.converted(super().summarise(values, labels, of_rows))

    def converted(self, summary: Summary) -> Summary:
        """Put the log sample variances in place of the means, which are kept as ``centre``."""
        if "centre" in summary.sums:
            return summary
        degrees = np.maximum(summary.n - 1, 1)[:, None]
        with np.errstate(divide="ignore"):
            own = np.log(summary.scatter / degrees)
        own = np.where(summary.n[:, None] > 1, np.maximum(own, LOG_ZERO), 0.0)
        return replace(summary, mean=own, sums={**summary.sums, "centre": summary.mean})

    def averaged_over(self, summary: Summary) -> NDArray:
        """Return numbers of rows: with them comes what is known of a variance."""
        return summary.n

    def merge(self, one: Summary, other: Summary) -> Summary:
        first, second = (
            replace(
                each,
                mean=each.sums["centre"],
                sums={name: x for name, x in each.sums.items() if name != "centre"},
            )
            for each in (one, other)
        )
        return self.converted(first.merge(second))

    def likelihood(self, figures: Figures) -> LogVariance:
        """``scatter_i ~ exp(theta_i) chi2(n_i - 1)``."""
        return LogVariance(figures["scatter"], np.maximum(figures["n"] - 1, 0))

    def log_base_measure(self, summary: Summary) -> NDArray:
        """Log-density of rows given their scatter, where group means are flat a priori."""
        from scipy.special import gammaln

        n = np.maximum(summary.n, 1)[:, None]
        half = (n - 1) / 2
        scatter = np.where(summary.scatter > 0, summary.scatter, 2.0)
        total = np.where(summary.n > 0, summary.size, 1)[:, None]
        base = gammaln(np.maximum(half, 0.5)) - half * np.log(np.pi) - 0.5 * np.log(total)
        if "log_weight" in summary.sums:
            base = base + 0.5 * summary.sums["log_weight"]
        return np.where(half > 0, base - half * np.log(scatter), 0.0).sum(axis=1)

    def sampling_variance(self, theta: Any, size: Any, column: int = 0) -> Any:
        """``trigamma((n - 1) / 2)``, whatever theta is."""
        from scipy.special import polygamma

        return polygamma(1, np.maximum(np.asarray(size, float) - 1, 1e-3) / 2) + 0 * theta

    def simulate(
        self, theta: NDArray, size: NDArray, rng: np.random.Generator, column: int = 0
    ) -> NDArray:
        """Draw logarithms of sample variances."""
        degrees = np.maximum(size - 1, 1)
        return theta + np.log(rng.chisquare(degrees, np.shape(theta)) / degrees)

    def draw_population(
        self, mean: float, variance: float, size: int, rng: np.random.Generator
    ) -> NDArray:
        """Draw from a normal distribution, as `LogVariance.marginal` has it."""
        return rng.normal(mean, np.sqrt(variance), size)

    def blank(self, n: NDArray, n_features: int, weight: NDArray | None = None) -> Summary:
        summary = super().blank(n, n_features, weight)
        return replace(summary, sums={**summary.sums, "centre": np.zeros((len(n), n_features))})
