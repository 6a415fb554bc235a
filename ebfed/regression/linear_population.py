"""The fitted population of a linear regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.population import NormalPopulation, residual_parameter
from ebfed.regression.posteriors.linear import CoefficientPosterior, Doubt
from ebfed.regression.posteriors.parents import posterior_of_levels, with_relatives
from ebfed.report.view import Parameter
from ebfed.tables.factors import Factors

__all__ = ["DESCENT", "LinearPopulation"]

# How the solver of Algorithm 4 is called.
DESCENT = "gradient descent"


@dataclass(frozen=True, kw_only=True)
class LinearPopulation(NormalPopulation):
    """A normal population of linear coefficients, those of covariates among them.

    Attributes
    ----------
    covariance_error : Doubt or None
        What is not known of the covariance.
    noise_variance : float
        Of rows over the ratios of their noise, where that has levels.
    criterion : float or None
        Restricted criterion, where that was minimised.
    n_parameters : int
    fitted_by : str
    above : sequence of tuple
        Covariance of each level above the groups, from the top, and its sampling error.
    noise_variances : dict of float
        Noise of each level of rows; empty where all have one.
    """

    covariance_error: Doubt | None
    noise_variance: float
    criterion: float | None
    n_parameters: int
    fitted_by: str
    above: Sequence[tuple[NDArray, Doubt | None]] = ()
    noise_variances: Mapping[str, float] = field(default_factory=dict)

    @property
    def covariances(self) -> list[NDArray]:
        return [*(covariance for covariance, _ in self.above), self.covariance]

    @property
    def _errors(self) -> NDArray:
        # gradient descent has no error of the mean
        return super()._errors * (np.nan if self.fitted_by == DESCENT else 1.0)

    @property
    def likelihood_kind(self) -> str:  # type: ignore[override]
        """Kind of the likelihood that was maximised."""
        return "ML" if self.criterion is None else "REML"

    def posterior(self, block: Factors) -> CoefficientPosterior:
        """Posterior of all coefficients, those of products with covariates among them."""
        return self.posteriors(block)[-1][0]

    def posterior_given_spread(self, block: Factors) -> CoefficientPosterior:
        return self.posteriors(block, doubt=False)[-1][0]

    def posterior_given_population(self, block: Factors) -> CoefficientPosterior:
        nothing = np.zeros_like(self.mean_covariance)
        return self.posteriors(block, nothing, doubt=False)[-1][0]

    def posteriors(
        self, block: Factors, mean_covariance: NDArray | None = None, *, doubt: bool = True
    ) -> list[tuple[CoefficientPosterior, Factors]]:
        """Posteriors of groups and of their parents, by level from the top, with their factors.

        Parameters
        ----------
        block : Factors
        mean_covariance : ndarray of shape (r, r), optional
            Sampling covariance of the mean; that of the fit if None.
        doubt : bool
            Whether variances include the uncertainty of the population's covariances.
        """
        levels: list[tuple[NDArray, Doubt | None]]
        levels = [*self.above, (self.covariance, self.covariance_error)]
        levels = levels if doubt else [(covariance, None) for covariance, _ in levels]
        known = self.mean_covariance if mean_covariance is None else mean_covariance
        whole = with_relatives(block, self.fitted) if self.above else block
        return posterior_of_levels(block, whole, self.mean, known, levels, self.noise_variance)

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

    def _of_rows(self, mean: NDArray) -> list[Parameter]:
        if not self.noise_variances:
            return [residual_parameter(self.noise_variance)]
        return [residual_parameter(x, level) for level, x in self.noise_variances.items()]

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
    def total(self) -> NDArray:
        """Covariance of the coefficients of a group of any parent."""
        return sum(self.covariances[:-1], self.covariance)
