"""Rows of ordered classes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from ebfed import kernels
from ebfed.kernels.responses import ORDINAL
from ebfed.regression.families.base import Base, ResponseFamily, Responses, check_rows
from ebfed.regression.families.lazy_predictors import LazyPredictors
from ebfed.report.view import Parameter
from ebfed.tables.scans import where

__all__ = ["Ordinal"]

MOST_CLASSES = 20


class Ordinal(ResponseFamily):
    """Rows of classes 1, …, K with ``P(y <= k) = 1 / (1 + e^(z - t_k))`` (McCullagh, 1980).

    The first threshold is ``t_1 = 0``; shapes are logarithms of the distances from one threshold to
    the next. In a class k between two thresholds ``l = -z + t_k + log(1 - e^(t_{k-1} - t_k)) -
    log(1 + e^(t_k - z)) - log(1 + e^(t_{k-1} - z))``.

    Examples
    --------
    >>> Ordinal().below(np.array([1.0, 2.0, 3.0]), np.zeros(3), np.zeros(1)).round(3)
    array([0.5  , 0.731, 1.   ])
    """

    name: ClassVar[str] = "ordinal"
    kind: ClassVar[int] = ORDINAL
    link: ClassVar[str] = "logit"
    classes: ClassVar[bool] = True
    n_figures: ClassVar[int] = MOST_CLASSES
    certain: ClassVar[bool] = True

    def check(self, y: NDArray, weight: NDArray) -> None:
        """Refuse what is no number of a class."""
        wrong = ~((y >= 1) & (y <= MOST_CLASSES)) | (y != np.floor(y))
        check_rows(wrong, y, f"y must be numbers of classes: whole, from 1 to {MOST_CLASSES}")

    def in_kernel(self, shapes: NDArray) -> NDArray[np.float64]:
        """Return exponentials of all thresholds but the first."""
        with np.errstate(over="ignore"):  # of thresholds that are nearly infinite
            return np.exp(np.cumsum(np.exp(shapes)))

    def base(self, rows: Responses, shapes: NDArray) -> Base:
        """Return the terms without z, and their derivatives in the shapes."""
        t = len(shapes)
        gap = np.exp(shapes)
        # of each class: the first has none, nor has the last
        value, slope = np.zeros(t + 2), np.zeros((t + 2, t))
        bend = np.zeros((t + 2, t * (t + 1) // 2))
        for j in range(t):
            more = gap[j] / np.expm1(gap[j])
            own = j * (j + 1) // 2 + j
            value[j + 1] = gap[: j + 1].sum() + np.log(-np.expm1(-gap[j]))
            slope[j + 1 : t + 1, j] = bend[j + 1 : t + 1, own] = gap[j]
            slope[j + 1, j] += more
            bend[j + 1, own] += more * (1 - gap[j] - more)
        place = rows.y.astype(np.int64) - 1
        weight = rows.weight
        return value[place] * weight, slope[place] * weight[:, None], bend[place] * weight[:, None]

    def turn(self, shapes: NDArray) -> NDArray[np.float64] | None:
        """Derivatives of the thresholds."""
        return np.tri(len(shapes)) * np.exp(shapes)

    def figures(self, rows: Responses) -> NDArray[np.float64]:
        """Whether a row is of each class."""
        return (rows.y[:, None] == np.arange(1, MOST_CLASSES + 1)) * rows.weight[:, None]

    def begin(self, figures: NDArray) -> tuple[float, NDArray[np.float64]]:
        """Intercept and thresholds that give the shares of all rows together."""
        last = int(np.flatnonzero(figures).max(initial=0)) + 1
        counts = figures[:last]
        if last == 1:
            raise ValueError("y is 1 in every row: there must be two classes or more.")
        if (counts == 0).any():
            absent = int(np.argmax(counts == 0)) + 1
            raise ValueError(
                f"y has classes up to {last}, and no row of class {absent}: number those that "
                "there are as 1, 2, …."
            )
        thresholds = logit(np.cumsum(counts)[:-1] / counts.sum())
        return float(-thresholds[0]), np.log(np.diff(thresholds))

    def bounds(self, X: NDArray, rows: Responses) -> NDArray[np.float64]:
        """Return bounds of coefficients, and of thresholds but the first, which is zero."""
        place, highest = rows.y.astype(np.int64), int(rows.y.max(initial=2))
        above, below = place > 1, place < highest
        thresholds = np.eye(highest - 1)[:, 1:]  # by number; of the first none
        return np.concatenate(
            [
                np.hstack([X[above], -thresholds[place[above] - 2]]),
                np.hstack([-X[below], thresholds[place[below] - 1]]),
            ]
        )

    def limited(self, rows: Responses) -> NDArray[np.bool_] | None:
        """Return whether a row is above the lowest class, and below the highest of these rows."""
        return np.column_stack([rows.y > 1, rows.y < rows.y.max(initial=2)])

    def _thresholds(self, shapes: NDArray) -> NDArray[np.float64]:
        """All K - 1 thresholds."""
        return np.concatenate(([0.0], np.cumsum(np.exp(shapes))))

    def _above(self, centre: NDArray, variance: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Probability of a class above each threshold, (n_rows, K - 1)."""
        away = centre[:, None] - self._thresholds(shapes)
        out = np.empty(away.size)
        spread = np.repeat(np.broadcast_to(variance, len(centre)), away.shape[1])
        kernels.log_logistic_normal(away.ravel(), spread, out)
        return np.exp(out).reshape(away.shape)

    def mean(self, centre: NDArray, variance: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Mean of the number of the class."""
        return 1 + self._above(centre, variance, shapes).sum(axis=1)

    def lazy_mean(self, rows: LazyPredictors, shapes: NDArray) -> Any:
        return sum(self._lazy_above(rows, shapes), start=1.0)

    def _lazy_above(self, rows: LazyPredictors, shapes: NDArray) -> list[Any]:
        return [rows.logistic(float(threshold)) for threshold in self._thresholds(shapes)]

    def inverse(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Mean of the number of the class."""
        return 1 + expit(z[:, None] - self._thresholds(shapes)).sum(axis=1)

    def probabilities(
        self, centre: NDArray, variance: NDArray, shapes: NDArray
    ) -> NDArray[np.float64]:
        n = len(centre)
        above = self._above(centre, variance, shapes)
        ends = np.column_stack([np.ones(n), above, np.zeros(n)])
        return np.maximum(ends[:, :-1] - ends[:, 1:], 0.0)

    def lazy_probabilities(self, rows: LazyPredictors, shapes: NDArray) -> list[Any]:
        """Return `probabilities` as expressions."""
        above = self._lazy_above(rows, shapes)
        ends = [1.0 - above[0], *(one - other for one, other in pairwise(above)), above[-1]]
        return [where(each > 0, each, 0.0) for each in ends]

    def below(self, y: NDArray, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Probability of a class up to y."""
        thresholds = np.concatenate(([-np.inf], self._thresholds(shapes), [np.inf]))
        place = np.clip(np.floor(y), 0, len(thresholds) - 1).astype(np.int64)
        return expit(thresholds[place] - z)

    def draw(
        self, z: NDArray, weight: NDArray, shapes: NDArray, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw a class of each row."""
        latent = z + rng.logistic(size=len(z))
        return 1.0 + (latent[:, None] > self._thresholds(shapes)).sum(axis=1)

    def spread(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Variance of the number of the class."""
        chances = self.probabilities(z, np.zeros(1), shapes)
        number = np.arange(1, chances.shape[1] + 1)
        away = number - (chances @ number)[:, None]
        return np.sum(chances * away**2, axis=1)

    def parameters(self, mean: NDArray, shapes: NDArray, covariance: NDArray) -> list[Parameter]:
        """Return thresholds as they are where the intercept is zero."""
        t, p = len(shapes), len(mean)
        turn = np.zeros((t + 1, p + t))
        turn[:, 0] = -1
        turn[1:, p:] = self.turn(shapes)
        errors = np.sqrt(np.maximum(np.diag(turn @ covariance @ turn.T), 0))
        values = self._thresholds(shapes) - mean[0]
        errors = np.where(np.isnan(values), np.nan, errors)
        return [
            ("ran_pars", "Residual", f"{k}|{k + 1}", float(value), float(error))
            for k, (value, error) in enumerate(zip(values, errors, strict=True), 1)
        ]
