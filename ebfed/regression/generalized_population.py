"""The fitted population of a generalized linear model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.columns import Columns
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.numerics.normal_population import Covariance
from ebfed.regression.population import (
    FittedPopulation,
    fixed_parameters,
    reliability,
    spread_parameters,
)
from ebfed.regression.posteriors import quadrature
from ebfed.report.view import Parameter
from ebfed.tables.clients import Clients

__all__ = ["GeneralizedPopulation"]


@dataclass(frozen=True, kw_only=True)
class GeneralizedPopulation(FittedPopulation):
    """A normal population of coefficients.

    Attributes
    ----------
    columns : Columns
    family : ResponseFamily
    shapes : ndarray of shape (t,)
        Parameters of the family.
    shape_covariance : ndarray of shape (p + t, p + t)
        Sampling covariance of mean and shapes.
    mean : ndarray of shape (p,)
    mean_covariance, covariance : ndarray of shape (p, p)
    mean_errors : ndarray of shape (p,)
        Standard errors of the mean; NaN where it is not identified.
    root : ndarray of shape (p, k)
        Root of the covariance.
    kind : {"diag", "spherical", "full"}
        Kind of the covariance.
    """

    columns: Columns
    family: ResponseFamily
    shapes: NDArray
    shape_covariance: NDArray
    mean: NDArray
    mean_covariance: NDArray
    mean_errors: NDArray
    covariance: NDArray
    root: NDArray
    kind: Covariance

    @property
    def _approximate(self) -> bool:
        return self.root.shape[1] > quadrature.MOST_INTEGRATED

    @property
    def fitted_by(self) -> str:  # type: ignore[override]
        """Method of the fit."""
        return "Laplace's approximation" if self._approximate else "Gauss-Hermite quadrature"

    @property
    def likelihood_kind(self) -> str:  # type: ignore[override]
        """Whether the likelihood was integrated or approximated."""
        return "approximate" if self._approximate else "ML"

    @property
    def population(self) -> str:  # type: ignore[override]
        """Name of the population, on the scale of responses."""
        return f"{self.family.link}-normal"

    @property
    def centre(self) -> NDArray:  # type: ignore[override]
        """Mean of the population."""
        return self.mean

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        """Number of columns of a design."""
        return len(self.mean)

    @property
    def n_parameters(self) -> int:  # type: ignore[override]
        """Number of fitted parameters: means, variances, covariances, shapes."""
        p, q = len(self.mean), len(self.columns.varying_places())
        spread = {"spherical": 1, "diag": q, "full": q * (q + 1) // 2}[self.kind]
        return p + spread + len(self.shapes)

    def responses(self, block: Clients) -> Responses:
        """Return what was observed in the rows of clients."""
        return Responses.of(block)

    def posterior(self, block: Clients) -> Any:
        """Posterior of the coefficients of each client of a block."""
        return self._posterior(block, self.mean_covariance)

    def posterior_given_population(self, block: Clients) -> Any:
        """Posterior if the population were known to be as fitted."""
        return self._posterior(block, np.zeros_like(self.mean_covariance))

    def _posterior(self, block: Clients, mean_covariance: NDArray) -> Any:
        known = self.responses(block), self.family, self.shapes
        return quadrature.posterior(block, *known, self.mean, self.root, mean_covariance)

    def parameters(self, terms: Sequence[str], group: str) -> list[Parameter]:
        """Rows of `tidy`."""
        varying = self.columns.varying_places()
        return [
            *fixed_parameters(terms, self.mean, self.mean_errors),
            *spread_parameters(
                group, terms, self.covariance, varying, correlated=self.kind == "full"
            ),
            *self.family.parameters(self.mean, self.shapes, self.shape_covariance),
        ]

    def reliability(self, terms: Sequence[str], sd: NDArray) -> dict[str, NDArray]:
        """Share of each coefficient's variance that a group's own rows explain."""
        return reliability(terms, sd, self.covariance)
