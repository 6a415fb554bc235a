"""What results for studies and for small areas have in common: estimates around a regression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.location.estimates import Estimates
from ebfed.location.shrinkage import shrink
from ebfed.priors import Normal, Posterior
from ebfed.priors.regression import RandomEffects
from ebfed.report.summary import Text
from ebfed.tables.frames import Style, frame

__all__ = ["Synthesis"]


@dataclass(frozen=True, eq=False, repr=False)
class Synthesis(ABC):
    """A fit of `RandomEffects` to given estimates of units: studies or areas.

    Attributes
    ----------
    given : Estimates
        Estimates, standard errors, covariates and labels of the units.
    random_effects : RandomEffects
        The fit of the variance and the coefficients.
    method : str
    level : float
        Level of all intervals.
    """

    given: Estimates
    random_effects: RandomEffects
    method: str
    level: float

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().to_html()

    @abstractmethod
    def summary(self) -> Text:
        """Describe the fit."""

    @property
    def labels(self) -> NDArray:
        """Names of the units, shape (n,); they are numbered where they have none."""
        return self.given.ids

    @cached_property
    def posterior(self) -> Posterior:
        """Posterior of the true value of each unit, averaged over plausible variances."""
        return shrink(Normal(method=self.random_effects.method), self.given)  # type: ignore[arg-type]

    @property
    @abstractmethod
    def terms(self) -> list[str]:
        """Names of the coefficients."""

    @property
    def coefficients(self) -> NDArray:
        """Intercept and slopes of p covariates, shape (1 + p,); without any, the mean."""
        return self.random_effects.coefficients

    @property
    def covariance(self) -> NDArray:
        """Covariance of `coefficients`, shape (1 + p, 1 + p)."""
        return self._inflation * self.random_effects.covariance

    @property
    def statistics(self) -> NDArray:
        """Quotients of `coefficients` and their standard errors, shape (1 + p,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.coefficients / self._errors

    @property
    def p_values(self) -> NDArray:
        """Two-sided p-values of `coefficients`, shape (1 + p,)."""
        return 2 * self._law.sf(np.abs(self.statistics))

    @property
    def _errors(self) -> NDArray:
        return np.sqrt(np.diag(self.covariance))

    @property
    def _ends(self) -> tuple[NDArray, NDArray]:
        """Intervals of `coefficients`."""
        half = self._reach * self._errors
        return self.coefficients - half, self.coefficients + half

    @property
    def _inflation(self) -> float:
        """Factor of the variances of coefficients."""
        return 1.0

    @property
    def _law(self) -> Any:
        """Distribution of a coefficient over its standard error."""
        from scipy.stats import norm

        return norm

    @property
    def _reach(self) -> float:
        return float(self._law.ppf((1 + self.level) / 2))

    def _tidied(self, variance: str, shown: Any = np.asarray) -> Any:
        """Coefficients as `shown`, and the variance between units under this name."""
        low, high = self.random_effects.variance_interval(self.level)
        lower, upper = self._ends
        columns: dict[str, Any] = {
            "term": np.array([*self.terms, variance], object),
            "estimate": [*shown(self.coefficients), self.random_effects.variance],
            "std.error": [*self._errors, self.random_effects.variance_error],
            "statistic": [*self.statistics, np.nan],
            "p.value": [*self.p_values, np.nan],
            "conf.low": [*shown(lower), low],
            "conf.high": [*shown(upper), high],
        }
        return self._frame(columns)

    def _glanced(self, first: dict[str, Any], last: dict[str, Any]) -> Any:
        """Return a row: the number of estimates, `first`, of parameters, `last`, and likelihood."""
        n, npar = self.random_effects.size, len(self.coefficients) + 1
        value = self.random_effects.log_likelihood
        row = {"nobs": n, **first, "npar": npar, **last, "logLik": value}
        row |= {"AIC": 2 * npar - 2 * value, "BIC": npar * np.log(n) - 2 * value}
        return self._frame({name: np.array([each]) for name, each in row.items()})

    def _frame(self, columns: dict[str, Any]) -> Any:
        return frame(columns, Style(self.given.style.backend))
