"""What a fit has learned of the population of coefficients, for estimates and reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.estimable import Estimable
from ebfed.priors import Posterior
from ebfed.regression.columns import Columns
from ebfed.report.view import Components, Parameter

__all__ = [
    "FittedPopulation",
    "NormalPopulation",
    "fixed_parameters",
    "residual_parameter",
    "spread_parameters",
]


class FittedPopulation(ABC):
    """A fitted population, made of learned attributes when it is needed.

    Attributes
    ----------
    centre : ndarray of shape (p,)
        Coefficients of a group without rows.
    n_parameters : int
        Number of fitted parameters.
    n_columns : int
        Number of columns of a design.
    fitted_by : str
        Method of the fit, in a few words.
    likelihood_kind : {"ML", "REML", "approximate"}
        Kind of the fit's likelihood; see `GroupView`.
    population : str
        Name of the population.
    """

    centre: NDArray
    n_parameters: int
    n_columns: int
    fitted_by: str
    likelihood_kind: str = "ML"
    population: str = "normal"

    @property
    def components(self) -> Components | None:
        """Components of a mixture."""
        return None

    @property
    def between(self) -> NDArray | None:
        """Covariance of the p coefficients between groups; None where there is not a single one."""
        return None

    @abstractmethod
    def posterior(self, block: Any) -> Posterior:
        """Posterior of the coefficients of each client of a block."""

    def posterior_given_spread(self, block: Any) -> Posterior:
        """Posterior if the spread of the population were known to be as fitted."""
        return self.posterior(block)

    def posterior_given_population(self, block: Any) -> Posterior:
        """Posterior if the population were known to be as fitted."""
        return self.posterior(block)

    @abstractmethod
    def parameters(self, terms: Sequence[str], group: str) -> list[Parameter]:
        """Rows of `tidy`.

        Parameters
        ----------
        terms : sequence of str
            Names of the coefficients.
        group : str
            Name of the groups.
        """

    def figures(self) -> dict[str, float]:
        """Return figures of the fit for `glance`."""
        return {}


@dataclass(frozen=True, kw_only=True)
class NormalPopulation(FittedPopulation):
    """A normal population of coefficients, of groups or of groups within groups.

    Attributes
    ----------
    columns : Columns
    mean : ndarray of shape (r,)
        p coefficients of columns, then q k products of the q that vary with k covariates.
    mean_covariance, covariance : ndarray of shape (r, r)
    estimable : Estimable
        Combinations of the mean's coefficients that rows identify.
    kind : {"spherical", "diag", "full"}
        Kind of the covariance.
    fitted : Factors, Clients or None
        Groups of the fit, which say what is known of their parents; None on a server.
    covariate_names : sequence of k str
    """

    columns: Columns
    mean: NDArray
    mean_covariance: NDArray
    covariance: NDArray
    estimable: Estimable
    kind: str
    fitted: Any = None
    covariate_names: Sequence[str] = ()

    @property
    def centre(self) -> NDArray:  # type: ignore[override]
        """Mean of all coefficients, at covariates of zero."""
        return self.mean

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        """Number of columns of a design."""
        return len(self.mean)

    @property
    def between(self) -> NDArray:
        """Covariance of the coefficients of columns between groups."""
        return self.covariance[: len(self.columns), : len(self.columns)]

    @property
    @abstractmethod
    def covariances(self) -> list[NDArray]:
        """Covariance of each level of groups, from the top."""

    @property
    def _errors(self) -> NDArray:
        """Standard errors of the mean."""
        return np.sqrt(np.diag(self.mean_covariance))

    @abstractmethod
    def _of_rows(self, mean: NDArray) -> list[Parameter]:
        """Rows of `tidy` for the noise of rows, or shapes of their family."""

    def parameters(self, terms: Sequence[str], group: str) -> list[Parameter]:
        p, columns = len(self.columns), self.columns
        levels = zip(
            columns.levels or [group], self.covariances, columns.terms_of_levels(), strict=True
        )
        correlated = self.kind == "full"
        spreads = [
            row
            for level, covariance, own in levels
            for row in spread_parameters(
                level, terms, covariance[:p, :p], own, correlated=correlated
            )
        ]
        known, names = self.estimable.coefficients, columns.of_mean(self.covariate_names)
        mean, errors = (np.where(known, each, np.nan) for each in (self.mean, self._errors))
        own = columns.fixed_places(len(self.covariate_names))
        fixed = fixed_parameters([names[j] for j in own], mean[own], errors[own])
        return [*fixed, *spreads, *self._of_rows(mean)]


def fixed_parameters(terms: Sequence[str], mean: NDArray, errors: NDArray) -> list[Parameter]:
    """Rows of `tidy` for the means of coefficients."""
    figures = zip(terms, mean, errors, strict=True)
    return [("fixed", "", term, value, error) for term, value, error in figures]


def spread_parameters(
    group: str,
    names: Sequence[str],
    covariance: NDArray,
    terms: Sequence[Sequence[int] | NDArray],
    *,
    correlated: bool,
) -> list[Parameter]:
    """Rows of `tidy` for the spread of coefficients between groups, at the places of each term."""
    spreads = np.sqrt(np.diag(covariance))
    places = [j for term in terms for j in term]
    rows = [("ran_pars", group, f"sd__{names[j]}", spreads[j], np.nan) for j in places]
    for term in terms if correlated else ():
        for a, j in enumerate(term):
            for k in term[:a]:
                both = spreads[j] * spreads[k]
                value = covariance[j, k] / both if both > 0 else np.nan
                rows.append(("ran_pars", group, f"cor__{names[k]}.{names[j]}", value, np.nan))
    return rows


def residual_parameter(noise_variance: float, level: str | None = None) -> Parameter:
    """Row of `tidy` for the noise of rows, or of those of one level."""
    term = "sd__Observation" if level is None else f"sd__Observation.{level}"
    return "ran_pars", "Residual", term, float(np.sqrt(noise_variance)), np.nan
