"""Rows that count events which differ more than Poisson ones."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, gammaln, xlogy

from ebfed.kernels import rising_sums
from ebfed.kernels.responses import LARGE, NEGATIVE_BINOMIAL
from ebfed.likelihoods.counting import log_ways
from ebfed.regression.families.base import Base, Responses
from ebfed.regression.families.poisson import Poisson, check_counts
from ebfed.report.view import Parameter

__all__ = ["NegativeBinomial"]


class NegativeBinomial(Poisson):
    """Rows of mean ``m = e^z`` and variance ``m + m^2 / s``, s being the size.

    ``l = y z - (y + s) log(1 + e^z / s) + log G(y + s) - log G(s) - log y! - y log s``, where G is
    the gamma function. The shape is the logarithm of the dispersion 1 / s.

    Examples
    --------
    >>> NegativeBinomial().below(np.array([0.0]), np.array([0.0]), np.array([0.0]))
    array([0.5])
    """

    name: ClassVar[str] = "negative_binomial"
    kind: ClassVar[int] = NEGATIVE_BINOMIAL
    adds: ClassVar[bool] = False
    calm: ClassVar[tuple[float, ...]] = (float(np.log(0.02)),)

    def check(self, y: NDArray, weight: NDArray) -> None:
        check_counts(y)

    def in_kernel(self, shapes: NDArray) -> NDArray[np.float64]:
        """Return the size."""
        return np.exp(-shapes)

    def base(self, rows: Responses, shapes: NDArray) -> Base:
        """Return the terms without z, and their derivatives in the logarithm of the dispersion."""
        dispersion = float(np.exp(shapes[0]))
        y, place = np.unique(rows.y, return_inverse=True)
        # log G(y + s) - log G(s) - y log s, of which no digits are left where s is large
        log, inverse, square, weighted = rising_sums(np.ones(len(y)), y.astype(int), dispersion).T
        # of large counts also without y log s, which kernels have
        large, value = y > LARGE, log - gammaln(y + 1)
        value[large] = log_ways(y[large], np.array(1 / dispersion))
        slope = np.where(large, -inverse, dispersion * weighted)
        parts = np.column_stack([value, slope, inverse - square])
        parts = parts[place] * rows.weight[:, None]
        return parts[:, 0], parts[:, 1:2], parts[:, 2:]

    def begin(self, figures: NDArray) -> tuple[float, NDArray[np.float64]]:
        """Logarithm of the rate of all rows together, and a dispersion of 1/2."""
        return super().begin(figures)[0], np.array([np.log(0.5)])

    def below(self, y: NDArray, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        size, mean = float(np.exp(-shapes[0])), np.exp(z)
        known, total = np.maximum(y, 0) + 1, size + mean
        # of two equal forms, that whose ratio is not rounded to 1
        few = betaincc(known, size, mean / total)
        many = betainc(size, known, size / total)
        return np.where(y < 0, 0.0, np.where(mean < size, few, many))

    def draw(
        self, z: NDArray, weight: NDArray, shapes: NDArray, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw a count of each row, with a rate that is gamma."""
        size = float(np.exp(-shapes[0]))
        means = rng.gamma(size, np.exp(z) / size)
        return rng.poisson(np.minimum(means, 2.0**53)).astype(float)

    def spread(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """``m + dispersion m^2``."""
        mean = np.exp(z)
        return mean + np.exp(shapes[0]) * mean**2

    def deviance(self, y: NDArray, mean: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """``2 (y log(y / m) - (y + s) log((y + s) / (m + s)))``, s being the size."""
        size = float(np.exp(-shapes[0]))
        lost = xlogy(y, y) - xlogy(y, mean) - (y + size) * np.log1p((y - mean) / (mean + size))
        return 2 * np.maximum(lost, 0)

    def parameters(self, mean: NDArray, shapes: NDArray, covariance: NDArray) -> list[Parameter]:
        """Return the dispersion 1 / s."""
        dispersion = float(np.exp(shapes[0]))
        error = dispersion * float(np.sqrt(covariance[-1, -1]))
        return [("ran_pars", "Residual", "dispersion", dispersion, error)]
