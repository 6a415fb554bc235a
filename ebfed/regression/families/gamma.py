"""Rows that are positive numbers, with a constant coefficient of variation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammainc, gammaln, polygamma

from ebfed.kernels.responses import GAMMA
from ebfed.regression.families.base import Base, LogLink, Responses, check_rows
from ebfed.report.view import Parameter

__all__ = ["Gamma"]


class Gamma(LogLink):
    """Rows of mean ``m = e^z`` and variance ``m^2 / k``, k being the shape.

    ``l = -k z - k y e^-z + (k - 1) log y + k log k - log G(k)``, where G is the gamma function. The
    parameter is the logarithm of k.

    Examples
    --------
    >>> Gamma().below(np.array([1.0]), np.array([0.0]), np.array([0.0])).round(3)
    array([0.632])
    """

    name: ClassVar[str] = "gamma"
    kind: ClassVar[int] = GAMMA
    n_figures: ClassVar[int] = 2
    whole: ClassVar[bool] = False
    calm: ClassVar[tuple[float, ...]] = (float(np.log(50.0)),)

    def check(self, y: NDArray, weight: NDArray) -> None:
        """Refuse what is not positive."""
        check_rows(~((y > 1e-100) & (y < 1e100)), y, "y must lie between 1e-100 and 1e100")

    def in_kernel(self, shapes: NDArray) -> NDArray[np.float64]:
        """Return k."""
        return np.exp(shapes)

    def base(self, rows: Responses, shapes: NDArray) -> Base:
        """Return the terms without z, and their derivatives in the logarithm of k."""
        k = float(np.exp(shapes[0]))
        log_y = np.log(rows.y)
        value = (k - 1) * log_y + k * shapes[0] - gammaln(k)
        slope = k * (log_y + shapes[0] + 1 - digamma(k))
        bend = slope + k * (1 - k * polygamma(1, k))
        parts = np.column_stack([value, slope, bend]) * rows.weight[:, None]
        return parts[:, 0], parts[:, 1:2], parts[:, 2:]

    def figures(self, rows: Responses) -> NDArray[np.float64]:
        """Responses over their offsets, and weights."""
        return np.column_stack([rows.y * np.exp(-rows.offset) * rows.weight, rows.weight])

    def begin(self, figures: NDArray) -> tuple[float, NDArray[np.float64]]:
        """Logarithm of the mean of all rows, and a shape of 1."""
        return float(np.log(figures[0] / figures[1])), np.zeros(1)

    def below(self, y: NDArray, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        k = float(np.exp(shapes[0]))
        return gammainc(k, k * np.maximum(y, 0) * np.exp(-z))

    def draw(
        self, z: NDArray, weight: NDArray, shapes: NDArray, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw a positive number of each row."""
        k = float(np.exp(shapes[0]))
        return rng.gamma(k, np.exp(z) / k)

    def spread(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """``m^2 / k``."""
        return np.exp(2 * z - shapes[0])

    def deviance(self, y: NDArray, mean: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """``2 (y / m - 1 - log(y / m))``, as for a shape of 1."""
        return 2 * np.maximum(y / mean - 1 - np.log(y / mean), 0)

    def parameters(self, mean: NDArray, shapes: NDArray, covariance: NDArray) -> list[Parameter]:
        """Return the shape k."""
        k = float(np.exp(shapes[0]))
        return [("ran_pars", "Residual", "shape", k, k * float(np.sqrt(covariance[-1, -1])))]
