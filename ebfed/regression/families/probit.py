"""Rows of successes with a probit link."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from ebfed.kernels.responses import PROBIT
from ebfed.regression.families.binomial import Binomial, BinomialLink
from ebfed.regression.families.lazy_predictors import LazyPredictors

__all__ = ["Probit"]


class Probit(Binomial):
    """Rows of successes, ``P(success) = Phi(z)``, the normal distribution function.

    A success is a normal number above zero: one of mean z and variance 1.

    Examples
    --------
    >>> Probit().mean(np.array([1.0]), np.array([3.0]), np.zeros(0)).round(3)
    array([0.691])
    """

    kind: ClassVar[int] = PROBIT
    link: ClassVar[BinomialLink] = "probit"

    def mean(self, centre: NDArray, variance: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Average of the distribution function, ``Phi(m / sqrt(1 + v))``."""
        return ndtr(centre / np.sqrt(1 + variance))

    def log_probabilities(self, centre: NDArray, variance: NDArray) -> NDArray[np.float64]:
        """Logarithm of the average probability of a failure, and of a success, (n_rows, 2)."""
        z = centre / np.sqrt(1 + variance)
        return np.column_stack([log_ndtr(-z), log_ndtr(z)])

    def lazy_mean(self, rows: LazyPredictors, shapes: NDArray) -> Any:
        """Return nothing: engines of tables lack the function."""
        raise ValueError("predictions with link='probit' need the rows of X in memory.")

    def inverse(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """``Phi(z)``."""
        return ndtr(z)

    def failure(self, z: NDArray) -> NDArray[np.float64]:
        """``Phi(-z)``."""
        return ndtr(-z)
