"""Regression of counts of events whose rates are gammas: coefficients and overdispersion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.counting import POISSON, log_masses
from ebfed.priors.negative_binomial import DISPERSIONS
from ebfed.priors.search import minimise

__all__ = ["FURTHEST", "Counts", "Fitted", "log_masses_of", "maximise_regression"]

# Linear predictors stop here: covariates separate groups with events from groups without, at ratios
# of 1e13.
FURTHEST = 30.0


def log_masses_of(counts: NDArray, expected: NDArray, dispersion: float) -> NDArray:
    """Negative binomial log-probabilities of n counts, exact down to a dispersion of zero.

    Of one mean of each, or of several, shape (k, n).
    """
    sizes = np.full(len(counts), 1 / max(dispersion, 1 / POISSON))
    return log_masses(counts, sizes, np.atleast_2d(expected).T).T.reshape(expected.shape)


def _rising(counts: NDArray, dispersion: float) -> tuple[NDArray, NDArray]:
    """``sum_{j<y} log(1 + j phi)`` and its slope in phi, shape (n,) each."""
    from ebfed.kernels import rising_sums

    counts = np.ascontiguousarray(counts, np.int64)
    sums = rising_sums(np.ones(len(counts)), counts, dispersion)
    return sums[:, 0], sums[:, 3]


def _log1p_over(x: NDArray) -> NDArray:
    """``log(1 + x) / x``, 1 at 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x > 1e-8, np.log1p(x) / x, 1 - x / 2)


def _log1p_slope(x: NDArray) -> NDArray:
    """Derivative of ``log(1 + x) / x``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = (x / (1 + x) - np.log1p(x)) / x**2
    return np.where(x > 1e-4, exact, -0.5 + 2 * x / 3 - 0.75 * x**2)


@dataclass(frozen=True)
class Counts:
    """Distinct counts with exposures, rows of a design, and how many groups have each."""

    counts: NDArray
    exposure: NDArray
    matrix: NDArray
    times: NDArray

    def evaluate(
        self, coefficients: NDArray, dispersion: float
    ) -> tuple[float, NDArray, NDArray, float]:
        """Log-likelihood, gradient, negative second derivatives; slope in the dispersion."""
        expected = self.exposure * np.exp(self.matrix @ coefficients)
        rising, rising_slope = self.rising(dispersion)
        x = dispersion * expected
        value = rising + self.counts * (np.log(expected) - np.log1p(x))
        value = self.times @ (value - expected * _log1p_over(x))
        slope = rising_slope - self.counts * expected / (1 + x) - expected**2 * _log1p_slope(x)
        away = (self.counts - expected) / (1 + x)
        bend = expected * (1 + dispersion * self.counts) / (1 + x) ** 2
        gradient = self.matrix.T @ (self.times * away)
        hessian = (self.matrix.T * (self.times * bend)) @ self.matrix
        return float(value), gradient, hessian, float(self.times @ slope)

    def rising(self, dispersion: float) -> tuple[NDArray, NDArray]:
        """``log(Gamma(y + 1/phi) phi**y / Gamma(1/phi))`` and its slope in phi, shape (n,) each."""
        return _rising(self.counts, dispersion)

    def climb(self, coefficients: NDArray, dispersion: float) -> tuple[NDArray, float, float, bool]:
        """Maximise over coefficients by Newton's method; the likelihood is concave in them.

        Returns
        -------
        coefficients, log-likelihood, its slope in the dispersion, and whether the coefficients
        were held back
        """
        value, gradient, hessian, slope = self.evaluate(coefficients, dispersion)
        held = False
        for _ in range(200):
            step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
            longest = np.abs(self.matrix @ step).max()
            step = step * min(1.0, 5.0 / max(longest, 1e-300))
            if np.abs(self.matrix @ (coefficients + step - self._pooled())).max() > FURTHEST:
                held = True
                break
            while True:
                there = self.evaluate(coefficients + step, dispersion)
                if there[0] >= value - 1e-13 * abs(value) or np.abs(step).max() < 1e-13:
                    break
                step = step / 2
            coefficients, (value, gradient, hessian, slope) = coefficients + step, there
            if np.abs(step).max() < 1e-10:  # the error is that squared
                break
        return coefficients, value, slope, held

    def _pooled(self) -> NDArray:
        """Coefficients of one rate for all groups."""
        start = np.zeros(self.matrix.shape[1])
        start[0] = np.log(self.times @ self.counts / (self.times @ self.exposure))
        return start

    def fit(self) -> Fitted:
        """Maximise over coefficients and dispersion: one profiled out of the other."""
        start = self._pooled()

        def criterion(dispersion: float) -> tuple[float, float]:
            nonlocal start  # each step of the scan begins where the one before ended
            start, value, slope, _ = self.climb(start, dispersion)
            return -value, -slope

        dispersion = 0.0
        if self.times.sum() > self.matrix.shape[1]:
            dispersion = minimise(criterion, DISPERSIONS)
        coefficients, *_, held = self.climb(start, dispersion)
        expected = self.exposure * np.exp(self.matrix @ coefficients)
        weights = self.times * expected / (1 + dispersion * expected)
        covariance = np.linalg.pinv((self.matrix.T * weights) @ self.matrix, hermitian=True)
        return Fitted(coefficients, covariance, dispersion, held)


@dataclass(frozen=True)
class Fitted:
    """Coefficients of greatest likelihood, (1 + k,), and their covariance; the overdispersion.

    `separated` says whether some coefficients would have grown without bound.
    """

    coefficients: NDArray
    covariance: NDArray
    overdispersion: float
    separated: bool


def maximise_regression(counts: NDArray, exposure: NDArray, matrix: NDArray) -> Fitted:
    """Coefficients and overdispersion of greatest negative binomial likelihood."""
    if not counts.any():
        k = matrix.shape[1]
        coefficients = np.append(-FURTHEST, np.zeros(k - 1))
        return Fitted(coefficients, np.zeros((k, k)), 0.0, True)
    return Counts(counts, exposure, matrix, np.ones(len(counts))).fit()
