"""Posterior that is a Student-t distribution: what an estimate with t errors says alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from ebfed.likelihoods import StudentT
from ebfed.priors.posterior import Posterior

__all__ = ["FlatStudentPosterior"]


class FlatStudentPosterior(Posterior):
    """Posterior under a population of any spread: ``x_i + scale_i T``; `mean` without an estimate.

    Parameters
    ----------
    likelihood : StudentT of n clients
    mean : ndarray of shape (1,)
        Mean of the population.

    Examples
    --------
    >>> x = StudentT(np.array([[3.0]]), np.array([[4.0]]), np.array([2.0]))
    >>> [end.round(1).item() for end in FlatStudentPosterior(x, np.zeros(1)).interval()]
    [-5.6, 11.6]
    """

    def __init__(self, likelihood: StudentT, mean: NDArray):
        variances = likelihood.variances
        self.mean = np.where(np.isfinite(variances), likelihood.values, mean)
        self._scale, self._degrees = np.sqrt(variances), likelihood.degrees[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            more = np.where(np.isinf(self._degrees), 1.0, self._degrees / (self._degrees - 2))
            self.sd = np.where(self._degrees > 2, self._scale * np.sqrt(more), np.inf)
        self.sd = np.where(variances == 0, 0.0, self.sd)

    def _quantile(self, q: float) -> NDArray:
        finite = np.where(np.isinf(self._degrees), 1.0, self._degrees)
        # SciPy's quantile of 0 is the upper end
        of_t = stdtrit(finite, q) if q > 0 else -np.inf
        unit = np.where(np.isinf(self._degrees), ndtri(q), of_t)
        with np.errstate(invalid="ignore"):  # infinity times zero
            reach = unit * self._scale
        return self.mean + np.where(np.isnan(reach), 0.0, reach)

    def prob_below(self, threshold: ArrayLike) -> NDArray:
        return self._below(np.asarray(threshold) - self.mean)

    def _prob_from(self, threshold: ArrayLike) -> NDArray:
        return self._below(self.mean - np.asarray(threshold))

    def _below(self, distance: NDArray) -> NDArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            z = distance / self._scale
        finite = np.where(np.isinf(self._degrees), 1.0, self._degrees)
        below = np.where(np.isinf(self._degrees), ndtr(z), stdtr(finite, z))
        return np.where(self._scale > 0, below, distance >= 0)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng = np.random.default_rng(random_state)
        finite = np.where(np.isinf(self._degrees), 1.0, self._degrees)
        squares = rng.chisquare(finite, (size, *self.mean.shape)) / finite
        squares = np.where(np.isinf(self._degrees), 1.0, squares)
        return self.mean + self._scale * rng.standard_normal(squares.shape) / np.sqrt(squares)
