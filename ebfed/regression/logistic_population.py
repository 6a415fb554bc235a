"""The fitted population of a logistic regression, by any of its methods."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.families import Responses
from ebfed.regression.generalized_population import GeneralizedPopulation
from ebfed.regression.logistic_rounds import Method
from ebfed.regression.numerics.normal_population import NormalPopulation
from ebfed.regression.posteriors.logistic import (
    Approximation,
    NormalCoefficients,
    WhiteRows,
)
from ebfed.tables.clients import Clients

__all__ = ["LogisticPopulation"]


@dataclass(frozen=True, kw_only=True)
class LogisticPopulation(GeneralizedPopulation):
    """A normal population of logistic coefficients.

    Attributes
    ----------
    classes : ndarray of shape (2,)
    method : str
        Method by which posteriors are found.
    """

    classes: NDArray
    method: Method

    @property
    def fitted_by(self) -> str:  # type: ignore[override]
        """Method of the fit, in a few words."""
        return {
            "aghq": "Gauss-Hermite quadrature",
            "ep": "expectation propagation",
            "laplace": "Laplace",
            "gradient": "gradient descent",
        }[self.method]

    @property
    def likelihood_kind(self) -> str:  # type: ignore[override]
        """Whether the likelihood of the fit is ``"ML"`` or ``"approximate"``."""
        return "ML" if self.method == "aghq" else "approximate"

    def responses(self, block: Clients) -> Responses:
        """Return 1 for rows of the second class, and 0 for the others."""
        y = (np.asarray(block.y) == self.classes[1]).astype(float)
        return Responses(y, np.ones(len(y)), np.zeros(len(y)))

    def observing(self, block: Clients, y: NDArray) -> Clients:
        """Return clients with other classes of their rows, numbered 0 and 1."""
        return replace(block, y=self.classes[y.astype(np.int64)])

    def _posterior(
        self, block: Clients, mean_covariance: NDArray, doubt: bool
    ) -> NormalCoefficients:
        if self.method == "aghq":
            return super()._posterior(block, mean_covariance, doubt)
        population = NormalPopulation(self.mean, self.root, np.ones(len(self.mean)))
        rows = WhiteRows.of(block, population, self.classes[1])
        how: Approximation = "corrected" if self.method == "ep" else "laplace"
        mean, covariance, _ = rows.approximate(how)
        return NormalCoefficients.of_white(population, mean, covariance, mean_covariance)
