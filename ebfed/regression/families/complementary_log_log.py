"""Rows of successes with a complementary log-log link."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ebfed.kernels.responses import CLOGLOG
from ebfed.regression.families.binomial import Binomial, BinomialLink
from ebfed.regression.families.lazy_predictors import LazyPredictors

__all__ = ["ComplementaryLogLog"]

# Nodes of averages over a normal predictor, and a standard deviation from which the average is over
# the other of two random numbers.
NODES, WIDE = 40, 1.0
# Where the logarithm of an exponential number is: beyond, it has a probability of 1e-17; and steps.
LOWEST, HIGHEST, STEP = -40.0, 4.0, 0.1


class ComplementaryLogLog(Binomial):
    """Rows of successes, ``P(success) = 1 - e^(-e^z)``: whether any event occurred at a rate e^z.

    An offset may be the logarithm of an exposure, as of counts.

    Examples
    --------
    >>> family, z, none = ComplementaryLogLog(), np.array([0.0]), np.zeros(0)
    >>> family.inverse(z, none).round(3), family.mean(z, np.array([4.0]), none).round(3)
    (array([0.632]), array([0.588]))
    """

    kind: ClassVar[int] = CLOGLOG
    link: ClassVar[BinomialLink] = "cloglog"

    def mean(self, centre: NDArray, variance: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Average of the probability.

        That is the probability that the logarithm G of an exponential number is below the
        predictor Z. If the deviation of Z is small, it is an average over Z; else over G, of which
        the density is ``e^(g - e^g)``.
        """
        sd, out = np.sqrt(variance), np.empty(len(centre))
        narrow = ~(sd >= WIDE)
        t, weights = _normal_rule()
        out[narrow] = self.inverse(centre[narrow, None] + sd[narrow, None] * t, shapes) @ weights
        g = np.arange(LOWEST, HIGHEST, STEP)
        density, wide = STEP * np.exp(g - np.exp(g)), ~narrow
        out[wide] = ndtr((centre[wide, None] - g) / sd[wide, None]) @ density
        return out

    def log_probabilities(self, centre: NDArray, variance: NDArray) -> NDArray[np.float64]:
        """Logarithm of the average probability of a failure, and of a success, (n_rows, 2)."""
        won = np.clip(self.mean(centre, variance, np.zeros(0)), 0.0, 1.0)
        with np.errstate(divide="ignore"):
            return np.column_stack([np.log1p(-won), np.log(won)])

    def lazy_mean(self, rows: LazyPredictors, shapes: NDArray) -> Any:
        """Return nothing: averages are no expression of engines of tables."""
        raise ValueError("predictions with link='cloglog' need the rows of X in memory.")

    def inverse(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """``1 - e^(-e^z)``."""
        return -np.expm1(-self._rate(z))

    def failure(self, z: NDArray) -> NDArray[np.float64]:
        """``e^(-e^z)``."""
        return np.exp(-self._rate(z))

    @staticmethod
    def _rate(z: NDArray) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):  # of ends of intervals where z has no limit
            return np.exp(z)


@cache
def _normal_rule() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights of averages over the standard normal distribution."""
    from scipy.special import roots_hermitenorm

    t, weights = roots_hermitenorm(NODES)
    return t, weights / weights.sum()
