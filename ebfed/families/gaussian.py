"""Rows that are normal around the mean of their group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.families.base import IDENTITY, Family, Figures, Link
from ebfed.likelihoods import Gaussian as GaussianLikelihood
from ebfed.tables.clients import LARGEST, SMALLEST, Summary
from ebfed.tables.values import numbers

__all__ = ["Gaussian"]


@dataclass(frozen=True)
class Gaussian(Family):
    """Rows ``x_ij ~ N(theta_i, noise / w_ij)``, column by column; weights w_ij are 1 if not given.

    Parameters
    ----------
    variances : float or array-like of shape (d,), optional
        Known noise variance of one row. None: it is learned from the scatter within groups.
    learned : bool
        Whether the variances are estimates, which may have any size.

    Examples
    --------
    >>> summary = Summary.from_rows([1.0, 3.0, 8.0], groups=["a", "a", "b"])
    >>> Gaussian(2.0).likelihood(Gaussian.figures(summary)).variances.ravel()
    array([1., 2.])
    """

    variances: ArrayLike | None = None
    learned: bool = False

    name: ClassVar[str] = "gaussian"
    parameter: ClassVar[str] = "mean"
    support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    link: ClassVar[Link] = IDENTITY
    has_density: ClassVar[bool] = True
    conjugate: ClassVar[str] = "Normal"

    def check_figures(self, figures: Figures) -> None:
        """Refuse columns whose squares underflow."""
        size = np.maximum(np.abs(figures["mean"]), np.sqrt(figures["scatter"]))
        size = size.max(axis=0, initial=0.0)
        if np.any((size > 0) & (size < SMALLEST)):
            raise ValueError(
                f"X holds a column of values too small for float64 arithmetic (below "
                f"{SMALLEST:g}): their squares underflow. Rescale the data."
            )

    def check_summary(self, summary: Summary) -> None:
        """Refuse sums of weights without those of their logarithms."""
        if summary.weight is not None and "log_weight" not in summary.sums:
            raise ValueError(
                "X must summarise rows with or without weights; got a weight and no "
                "sums['log_weight'], as of counts. Summary.from_rows(X, groups, weight) has both."
            )

    def likelihood(self, figures: Figures) -> GaussianLikelihood:
        """``mean_i ~ N(theta_i, noise / w_i)``, the noise open if it is not known.

        ``w_i`` is the sum of the weights of rows, or their number.
        """
        n, mean = figures["n"], figures["mean"]
        with np.errstate(divide="ignore"):
            variances = 1 / figures.get("weight", n)[:, None]
        if self.variances is None:
            scatter = figures["scatter"].sum(axis=0)
            return GaussianLikelihood(mean, variances, scatter, int(np.maximum(n - 1, 0).sum()))
        return GaussianLikelihood(mean, variances).scaled(self.noise_variance(mean.shape[1]))

    def noise_variance(self, n_features: int) -> NDArray[np.float64]:
        """Noise variance of each column, shape (d,).

        Raises
        ------
        TypeError, ValueError
            If the variances are not numbers, one or one per column, or out of range.
        """
        variances = numbers(self.variances, "variances")
        if variances.shape not in ((), (1,), (n_features,)):
            raise ValueError(
                f"variances must be a number or one per column of X ({n_features}); it has shape "
                f"{variances.shape}."
            )
        if self.learned:
            return np.broadcast_to(variances, n_features)
        if not np.all((variances == 0) | ((variances > SMALLEST) & (variances < LARGEST))):
            raise ValueError(
                f"variances must be 0 or between {SMALLEST:g} and {LARGEST:g}; "
                f"got {self.variances!r}."
            )
        return np.broadcast_to(variances, n_features)

    def log_base_measure(self, summary: Summary) -> NDArray:
        """Log-density of deviations from the means of the groups.

        Raises
        ------
        ValueError
            If rows have no noise, so that rows of one group have no joint density.
        """
        noise, n = self.noise_variance(summary.n_features), summary.n[:, None]
        total = summary.size[:, None]
        if np.any(noise == 0):
            if np.any(n > 1):
                raise ValueError(
                    "the noise variance is zero, so rows of one group have no joint density."
                )
            return np.zeros(len(n))
        seen = np.maximum(n, 1)
        log_density = (
            -0.5 * (seen - 1) * np.log(2 * np.pi * noise)
            - 0.5 * np.log(np.where(n > 0, total, 1))
            - 0.5 * summary.scatter / noise
        )
        if "log_weight" in summary.sums:
            log_density += 0.5 * summary.sums["log_weight"]
        return np.where(n > 0, log_density, 0.0).sum(axis=1)

    def sampling_variance(self, theta: Any, size: Any, column: int = 0) -> Any:
        """``noise / n``."""
        return np.atleast_1d(np.asarray(self.variances, float))[column] / size

    def simulate(
        self, theta: NDArray, size: NDArray, rng: np.random.Generator, column: int = 0
    ) -> NDArray:
        """Draw means of normal rows."""
        return rng.normal(theta, np.sqrt(self.sampling_variance(theta, size, column)))

    def draw_population(
        self, mean: float, variance: float, size: int, rng: np.random.Generator
    ) -> NDArray:
        """Draw from a normal distribution."""
        return rng.normal(mean, np.sqrt(variance), size)

    @property
    def needs_scatter(self) -> bool:
        """Whether the noise variance is to be learned."""
        return self.variances is None

    def settled(self, noise_variance: NDArray | None) -> Self:
        """Return the family with the noise variance that a fit has learned."""
        return self if noise_variance is None else type(self)(noise_variance, learned=True)

    def pooled(self, messages: Sequence[Figures]) -> NDArray | None:
        """Pooled variance within the groups that show their scatter, shape (d,)."""
        degrees = sum(int(np.maximum(message["n"] - 1, 0).sum()) for message in messages)
        if not degrees:
            return None
        return np.sum([message["scatter"].sum(axis=0) for message in messages], axis=0) / degrees
