"""Beta-binomial regression: overdispersed counts whose mean depends on covariates.

With ``phi = 1 / (alpha + beta) >= 0`` and ``logit mu_i = w_i' gamma``, the log-likelihood

    sum_i [sum_{j<z_i} log(mu_i + j phi) + sum_{j<n_i-z_i} log(1-mu_i + j phi)
           - sum_{j<n_i} log(1 + j phi)]

is exact down to ``phi = 0``, where it is that of a logistic regression. gamma is profiled out by
Newton's method, and the profile scanned and solved for phi.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import rising_sums
from ebfed.priors.count_regression import FURTHEST, Fitted
from ebfed.priors.search import minimise

__all__ = ["logistic", "maximise"]


def maximise(successes: NDArray, trials: NDArray, matrix: NDArray) -> Fitted:
    """Maximise the likelihood over coefficients and overdispersion.

    Parameters
    ----------
    successes, trials : int64 ndarray of shape (n,)
        Counts of clients with at least one trial each.
    matrix : ndarray of shape (n, 1 + k)
        Covariates, the first a column of ones, centred and of about unit size.
    """
    table = np.column_stack([successes, trials, matrix])
    table, counts = np.unique(table, axis=0, return_counts=True)
    successes, trials = np.ascontiguousarray(table[:, :2].T).astype(np.int64)
    rows = _CountRows(successes, trials, table[:, 2:], counts.astype(float))
    share = counts @ successes / (counts @ trials)
    pooled = np.clip(share, 1e-9, 1 - 1e-9)
    start = np.zeros(matrix.shape[1])
    start[0] = np.log(pooled / (1 - pooled))

    def criterion(overdispersion: float) -> tuple[float, float]:
        nonlocal start  # each step of the scan begins where the one before ended
        start, value, slope, _ = rows.climb(start, overdispersion)
        return -value, -slope

    overdispersion = 0.0
    if trials.max() > 1 and 0 < share < 1:
        overdispersion = minimise(criterion, np.append(0.0, np.geomspace(1e-6, 1e4, 21)))
    coefficients, *_, separated = rows.climb(start, overdispersion)
    return Fitted(
        coefficients, rows.covariance(coefficients, overdispersion), overdispersion, separated
    )


@dataclass(frozen=True)
class _CountRows:
    """Distinct clients, and how many there are of each."""

    successes: NDArray
    trials: NDArray
    matrix: NDArray
    counts: NDArray

    @cached_property
    def _sizes(self) -> tuple[NDArray, NDArray]:
        """Distinct numbers of trials, and how many clients have them."""
        sizes, place = np.unique(self.trials, return_inverse=True)
        return sizes, np.bincount(place, self.counts)

    def evaluate(
        self, coefficients: NDArray, overdispersion: float
    ) -> tuple[float, NDArray, NDArray, float]:
        """Log-likelihood, its gradient and negative second derivatives; slope in overdispersion."""
        mean, rest = _rates(self.matrix @ coefficients)
        up = rising_sums(mean, self.successes, overdispersion)
        down = rising_sums(rest, self.trials - self.successes, overdispersion)
        sizes, times = self._sizes
        both = rising_sums(np.ones(len(sizes)), sizes, overdispersion)
        value, _, _, slope = self.counts @ (up + down) - times @ both
        spread, steep = mean * rest, up[:, 1] - down[:, 1]
        gradient = self.matrix.T @ (self.counts * spread * steep)
        bend = spread**2 * (up[:, 2] + down[:, 2]) - spread * (rest - mean) * steep
        return value, gradient, (self.matrix.T * (self.counts * bend)) @ self.matrix, slope

    def climb(
        self, coefficients: NDArray, overdispersion: float
    ) -> tuple[NDArray, float, float, bool]:
        """Maximise over coefficients by Newton's method.

        Returns
        -------
        coefficients, log-likelihood, its slope in the overdispersion, and whether the coefficients
        were held back
        """
        value, gradient, bend, slope = self.evaluate(coefficients, overdispersion)
        for _ in range(100):
            sizes, axes = np.linalg.eigh(bend)
            least = 1e-12 * max(np.abs(sizes).max(), 1e-300)
            step = axes @ ((axes.T @ gradient) / np.maximum(np.abs(sizes), least))
            if np.abs(self.matrix @ (coefficients + step)).max() > FURTHEST:
                step = self._shortened(coefficients, step)
                if np.abs(self.matrix @ step).max() < 1e-6:
                    return coefficients, value, slope, True
            while True:
                candidate = coefficients + step
                there = self.evaluate(candidate, overdispersion)
                if there[0] >= value - 1e-12 * abs(value) or np.abs(step).max() < 1e-12:
                    break
                step = step / 2
            coefficients, (value, gradient, bend, slope) = candidate, there
            if np.abs(step).max() < 1e-8:  # the error is that squared
                break
        return coefficients, value, slope, False

    def _shortened(self, coefficients: NDArray, step: NDArray) -> NDArray:
        """As much of a step as keeps every linear predictor within bounds."""
        at, move = self.matrix @ coefficients, self.matrix @ step
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(move != 0, (FURTHEST - np.sign(move) * at) / np.abs(move), np.inf)
        return step * max(float(room.min()), 0.0)

    def covariance(self, coefficients: NDArray, overdispersion: float) -> NDArray:
        """Invert the information of the proportions' means and variances (quasi-likelihood)."""
        mean, rest = _rates(self.matrix @ coefficients)
        shrunk = (1 + overdispersion) * self.trials / (1 + overdispersion * self.trials)
        weights = self.counts * mean * rest * shrunk
        return np.linalg.pinv((self.matrix.T * weights) @ self.matrix, hermitian=True)


def _rates(predictor: NDArray) -> tuple[NDArray, NDArray]:
    """Rates and their complements, both to full precision."""
    return logistic(predictor), logistic(-predictor)


def logistic(predictor: NDArray) -> NDArray:
    """``1 / (1 + exp(-predictor))``, within the bounds of linear predictors."""
    from scipy.special import expit

    return expit(np.clip(predictor, -FURTHEST, FURTHEST))
