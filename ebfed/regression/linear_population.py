"""The fitted population of a linear regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.estimable import Estimable
from ebfed.regression.columns import Columns
from ebfed.regression.numerics.mixed_model import Covariance
from ebfed.regression.population import (
    FittedPopulation,
    fixed_parameters,
    residual_parameter,
    spread_parameters,
)
from ebfed.regression.posteriors.linear import CoefficientPosterior, Doubt
from ebfed.regression.posteriors.parents import posterior_of_levels, with_relatives
from ebfed.report.view import Parameter
from ebfed.tables.factors import Factors

__all__ = ["LinearPopulation"]


@dataclass(frozen=True)
class LinearPopulation(FittedPopulation):
    """A normal population of linear coefficients, those of covariates among them.

    Attributes
    ----------
    columns : Columns
    mean : ndarray of shape (r,)
        p coefficients of columns, then q k products of the q that vary with k covariates.
    mean_covariance, covariance : ndarray of shape (r, r)
    covariance_error : Doubt or None
        What is not known of the covariance.
    estimable : Estimable
        Combinations of the mean's coefficients that rows identify.
    noise_variance : float
        Of rows over the ratios of their noise, where that has levels.
    kind : {"spherical", "diag", "full"}
        Kind of the covariance.
    covariate_names : sequence of k str
    criterion : float or None
        Restricted criterion, where that was minimised.
    n_parameters : int
    fitted_by : str
    above : sequence of tuple
        Covariance of each level above the groups, from the top, and its sampling error.
    fitted : Factors or None
        Groups of the fit, which say what is known of their parents; None on a server.
    noise_variances : dict of float
        Noise of each level of rows; empty where all have one.
    """

    columns: Columns
    mean: NDArray
    mean_covariance: NDArray
    covariance: NDArray
    covariance_error: Doubt | None
    estimable: Estimable
    noise_variance: float
    kind: Covariance
    covariate_names: Sequence[str]
    criterion: float | None
    n_parameters: int
    fitted_by: str
    above: Sequence[tuple[NDArray, Doubt | None]] = ()
    fitted: Factors | None = None
    noise_variances: Mapping[str, float] = field(default_factory=dict)

    @property
    def centre(self) -> NDArray:  # type: ignore[override]
        """Mean of all coefficients, at covariates of zero."""
        return self.mean

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        """Number of columns of a design."""
        return len(self.mean)

    @property
    def likelihood_kind(self) -> str:  # type: ignore[override]
        """Kind of the likelihood that was maximised."""
        return "ML" if self.criterion is None else "REML"

    def posterior(self, block: Factors) -> CoefficientPosterior:
        """Posterior of all coefficients, those of products with covariates among them."""
        return self.posteriors(block)[-1][0]

    def posterior_given_population(self, block: Factors) -> CoefficientPosterior:
        return self.posteriors(block, known=True)[-1][0]

    def posteriors(
        self, block: Factors, known: bool = False
    ) -> list[tuple[CoefficientPosterior, Factors]]:
        """Posteriors of groups and of their parents, by level from the top, with their factors.

        Parameters
        ----------
        block : Factors
        known : bool
            Whether the population is taken to be as fitted.
        """
        levels: list[tuple[NDArray, Doubt | None]]
        levels = [*self.above, (self.covariance, self.covariance_error)]
        mean_covariance = self.mean_covariance
        if known:
            levels = [(covariance, None) for covariance, _ in levels]
            mean_covariance = np.zeros_like(mean_covariance)
        whole = with_relatives(block, self.fitted) if self.above else block
        return posterior_of_levels(
            block, whole, self.mean, mean_covariance, levels, self.noise_variance
        )

    def maps(self, covariates: NDArray) -> NDArray[np.float64]:
        """Maps from all coefficients to those of each group, shape (n, p, r).

        Parameters
        ----------
        covariates : ndarray of shape (n, k)
        """
        p = len(self.columns)
        maps = np.zeros((len(covariates), p, len(self.mean)))
        maps[:, np.arange(p), np.arange(p)] = 1
        for a, j in enumerate(self.columns.varying_places()):
            first = p + a * covariates.shape[1]
            maps[:, j, first : first + covariates.shape[1]] = covariates
        return maps

    def parameters(self, terms: Sequence[str], group: str) -> list[Parameter]:
        p = len(self.columns)
        covariances = [*(covariance for covariance, _ in self.above), self.covariance]
        levels = zip(
            self.columns.levels or [group],
            covariances,
            self.columns.terms_of_levels(),
            strict=True,
        )
        correlated = self.kind == "full"
        spreads = [
            row
            for level, covariance, own_terms in levels
            for row in spread_parameters(
                level, terms, covariance[:p, :p], own_terms, correlated=correlated
            )
        ]
        known, names = self.estimable.coefficients, self.columns.of_mean(self.covariate_names)
        mean = np.where(known, self.mean, np.nan)
        errors = np.where(known, np.sqrt(np.diag(self.mean_covariance)), np.nan)
        own = self.columns.fixed_places(len(self.covariate_names))
        return [
            *fixed_parameters([names[j] for j in own], mean[own], errors[own]),
            *spreads,
            *(residual_parameter(x, level) for level, x in self.noise_variances.items()),
            *([] if self.noise_variances else [residual_parameter(self.noise_variance)]),
        ]

    def figures(self) -> dict[str, float]:
        """Return sigma, the restricted criterion, and the intraclass correlation."""
        figures = {} if self.noise_variances else {"sigma": np.sqrt(self.noise_variance)}
        if self.criterion is not None:
            figures["REMLcrit"] = self.criterion
        if self.noise_variances:  # no one noise, nor one correlation of rows
            return figures
        if self.columns.intercept and self.columns.varying_places().tolist() == [0]:
            between = self.total[0, 0]
            total = between + self.noise_variance
            figures["icc"] = between / total if total > 0 else np.nan
        return figures

    @property
    def between(self) -> NDArray:
        """Covariance of the coefficients of columns between groups."""
        return self.covariance[: len(self.columns), : len(self.columns)]

    @property
    def total(self) -> NDArray:
        """Covariance of the coefficients of a group of any parent."""
        return sum((covariance for covariance, _ in self.above), self.covariance)
