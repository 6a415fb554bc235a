"""Variance components from sums over messages, which a search asks for one after another.

With weights ``w_i = 1 / (variance_i + ratio)``, all that `MomentTable.profile` needs of the values
x_i is ``sum w x``, ``sum w x**2``, ``sum w**2 x`` and ``sum w**2 x**2``; variances are public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Gaussian
from ebfed.priors.unanswered import Unanswered
from ebfed.priors.variance_components import MomentTable, Profile, informative

__all__ = ["SummedGaussian", "SummedTable"]

Sums = Mapping[tuple[int, float], NDArray[np.float64]]
"""Four sums by column and ratio."""


@dataclass(frozen=True)
class SummedGaussian(Gaussian):
    """Messages whose values are not known, only sums of them.

    Attributes
    ----------
    values : ndarray of shape (n, d)
        NaN.
    centre : ndarray of shape (d,)
        Subtracted from values before they are summed up.
    sums : dict
        What is known: ``sum w x``, ``sum w x**2``, ``sum w**2 x`` and ``sum w**2 x**2`` by column
        and ratio.
    """

    centre: NDArray = field(default_factory=lambda: np.zeros(1))
    sums: Sums = field(default_factory=dict)


@dataclass
class SummedTable(MomentTable):
    """One coordinate's messages, of whose values only sums are known.

    Attributes
    ----------
    means, scatters : ndarray of shape (r,)
        NaN.
    column : int
    centre, sums : as in `SummedGaussian`
    """

    column: int = 0
    centre: float = 0.0
    sums: Sums = field(default_factory=dict)

    @classmethod
    def of(cls, likelihood: Gaussian, column: int, noisy: bool) -> Self:
        """Merge the variances of one column."""
        assert isinstance(likelihood, SummedGaussian)
        _, variances, _, scatter, degrees = informative(likelihood, column, noisy)
        distinct, counts = np.unique(variances, return_counts=True)
        nothing = np.full(len(distinct), np.nan)
        return cls(
            distinct,
            counts.astype(float),
            nothing,
            nothing,
            scatter,
            degrees,
            column=column,
            centre=float(likelihood.centre[column]),
            sums=likelihood.sums,
        )

    def coarse(self) -> Self:
        """Return itself: what is not known cannot be merged."""
        return self

    def known(self, ratio: Any) -> NDArray[np.float64]:
        """Sums at ratios, with four of them along the last axis.

        Raises
        ------
        Unanswered
            With a list of columns and ratios, if some are not known.
        """
        asked = [(self.column, float(each)) for each in np.ravel(ratio)]
        if unknown := [each for each in asked if each not in self.sums]:
            raise Unanswered(unknown)
        return np.array([self.sums[each] for each in asked]).reshape(*np.shape(ratio), 4)

    def profile(self, ratio: Any) -> Profile:
        total = self.totals(ratio)
        weights = self.counts / total
        weight, slope = weights.sum(axis=-1), (weights / total).sum(axis=-1)
        silent = weight == 0
        first, second, first_slope, second_slope = np.moveaxis(self.known(ratio), -1, 0)
        away = first / (weight + silent)
        if self.fixed_mean is not None:
            away = np.full_like(away, self.fixed_mean - self.centre)
        square = second - 2 * away * first + away**2 * weight
        square_slope = second_slope - 2 * away * first_slope + away**2 * slope
        return Profile(
            mean=self.centre + away,
            weight=np.where(silent, np.inf, weight),
            information=0.5 * np.where(slope == 0, np.inf, slope),
            quadratic=np.maximum(square, 0.0),
            log_det=np.log(total) @ self.counts,
            slope_det=np.where(silent, 0.0, weight),
            slope_quadratic=-np.maximum(square_slope, 0.0),
            slope_weight=-slope,
        )

    def largest_square(self) -> float:
        """Bound of the squared deviation of a message from the mean."""
        largest = self.variances.max(initial=0.0) or 1.0
        return float(largest * self.profile(0.0).quadratic)
