"""The fitted population of a logistic regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.columns import Columns
from ebfed.regression.logistic_rounds import Method
from ebfed.regression.numerics.normal_population import Covariance, NormalPopulation
from ebfed.regression.population import (
    FittedPopulation,
    fixed_parameters,
    reliability,
    spread_parameters,
)
from ebfed.regression.posteriors import quadrature
from ebfed.regression.posteriors.logistic import (
    Approximation,
    DrawnCoefficients,
    NormalCoefficients,
    WhiteRows,
)
from ebfed.report.view import Parameter
from ebfed.streams import Stream, make_key
from ebfed.tables.clients import Clients

__all__ = ["LogisticPopulation"]

# Sweeps of Gibbs sampling before the first draw.
BURN = 50


@dataclass(frozen=True)
class LogisticPopulation(FittedPopulation):
    """A normal population of logistic coefficients.

    Attributes
    ----------
    columns : Columns
    classes : ndarray of shape (2,)
    mean : ndarray of shape (p,)
    mean_covariance, covariance : ndarray of shape (p, p)
    mean_errors : ndarray of shape (p,)
        Standard errors of the mean; NaN where it is not identified.
    root : ndarray of shape (p, k)
        Root of the covariance.
    kind : {"diag", "spherical", "full"}
        Kind of the covariance.
    method : str
        Method by which posteriors are found.
    n_draws, seed : int
        Number and seed of the draws of ``"polya-gamma"``.
    """

    columns: Columns
    classes: NDArray
    mean: NDArray
    mean_covariance: NDArray
    mean_errors: NDArray
    covariance: NDArray
    root: NDArray
    kind: Covariance
    method: Method
    n_draws: int
    seed: int
    population = "logit-normal"

    @property
    def centre(self) -> NDArray:  # type: ignore[override]
        """Mean of the population."""
        return self.mean

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        """Number of columns of a design."""
        return len(self.mean)

    @property
    def fitted_by(self) -> str:  # type: ignore[override]
        """Method of the fit, in a few words."""
        return {
            "aghq": "Gauss-Hermite quadrature",
            "ep": "expectation propagation",
            "polya-gamma": "Pólya-Gamma sampling",
            "laplace": "Laplace",
            "gradient": "gradient descent",
        }[self.method]

    @property
    def likelihood_kind(self) -> str:  # type: ignore[override]
        """Whether the likelihood of the fit is ``"ML"`` or ``"approximate"``."""
        return "ML" if self.method == "aghq" else "approximate"

    @property
    def n_parameters(self) -> int:  # type: ignore[override]
        """Number of fitted parameters: means, variances, covariances."""
        p, q = len(self.mean), len(self.columns.varying_places())
        return p + {"spherical": 1, "diag": q, "full": p * (p + 1) // 2}[self.kind]

    def posterior(self, block: Clients) -> NormalCoefficients | DrawnCoefficients:
        """Posterior of the coefficients of each client of a block."""
        return self._posterior(block, self.mean_covariance)

    def posterior_given_population(self, block: Clients) -> NormalCoefficients | DrawnCoefficients:
        """Posterior if the population were known to be as fitted."""
        return self._posterior(block, np.zeros_like(self.mean_covariance))

    def _posterior(
        self, block: Clients, mean_covariance: NDArray
    ) -> NormalCoefficients | DrawnCoefficients:
        if self.method == "aghq":
            return quadrature.posterior(
                block, self.classes[1], self.mean, self.root, mean_covariance
            )
        population = NormalPopulation(self.mean, self.root, np.ones(len(self.mean)))
        rows = WhiteRows.of(block, population, self.classes[1])
        if self.method != "polya-gamma":
            how: Approximation = "corrected" if self.method == "ep" else "laplace"
            mean, covariance, _ = rows.approximate(how)
            return NormalCoefficients.of_white(population, mean, covariance, mean_covariance)
        drawn = rows.sample(Stream(make_key(self.seed), 0), BURN, self.n_draws)
        return DrawnCoefficients(population, *drawn, mean_covariance, self.seed)

    def parameters(self, terms: Sequence[str], group: str) -> list[Parameter]:
        """Rows of `tidy`."""
        varying = self.columns.varying_places()
        return [
            *fixed_parameters(terms, self.mean, self.mean_errors),
            *spread_parameters(
                group, terms, self.covariance, varying, correlated=self.kind == "full"
            ),
        ]

    def reliability(self, terms: Sequence[str], sd: NDArray) -> dict[str, NDArray]:
        """Share of each coefficient's variance that a group's own rows explain."""
        return reliability(terms, sd, self.covariance)
