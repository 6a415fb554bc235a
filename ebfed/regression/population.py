"""What a fit has learned of the population of coefficients, for estimates and reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors import Posterior
from ebfed.report.view import Components, Parameter

__all__ = [
    "FittedPopulation",
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
