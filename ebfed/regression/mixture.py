"""Mixtures of regressions: their settings, and what a fit has learned of their population."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.engines import Engine
from ebfed.priors.n_components import check_n_components
from ebfed.privacy.calibration import check_count, is_number
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.levels import open_levels
from ebfed.regression.numerics.evidence import Evidence, MixturePopulation, rotate, weigh
from ebfed.regression.population import (
    FittedPopulation,
    fixed_parameters,
    residual_parameter,
)
from ebfed.regression.posteriors.component import ComponentPosterior
from ebfed.regression.protocol import MixtureResult, RegressionFacts
from ebfed.report.view import Components, Parameter
from ebfed.tables.factors import Factors
from ebfed.tables.frames import frame

__all__ = [
    "FittedMixture",
    "MixtureRegression",
    "MixtureSettings",
]


@dataclass(frozen=True)
class MixtureSettings:
    """Arguments that mixtures of regressions have in common.

    Parameters
    ----------
    title : str
        Name of the estimator, for warnings.
    n_components : int, "bic" or "heldout"
    max_components : int
        Largest number of components that is tried where `n_components` is a rule.
    fit_intercept : bool
    n_rounds : int or None
        Largest number of rounds; None for the default.
    default_rounds : int
        Largest number of rounds where `n_rounds` is None.
    n_init : int
    tol : float
    noise_variance : float or None
        Estimated if None.
    one_variance : bool
        Whether the coefficients of a component share a variance.
    has_variances, has_noise : bool
        Whether components have variances, and rows have noise.
    least_variance : float
        Lower bound on variances, in units of the columns.
    ridge : float
        Least information on a mean, in units of the columns.
    shape : str
        What components are, in the plural.
    """

    title: str
    n_components: int | str
    max_components: int
    fit_intercept: bool
    n_rounds: int | None
    n_init: int
    tol: float
    noise_variance: float | None
    one_variance: bool = True
    has_variances: bool = True
    has_noise: bool = True
    least_variance: float = 0.0
    ridge: float = 0.0
    shape: str = "normals"
    default_rounds: int = 300

    @property
    def chooses(self) -> bool:
        """Whether the number of components is chosen, not given."""
        return isinstance(self.n_components, str)

    @property
    def given_number(self) -> int:
        """Number of components of clients that send coefficients; these have no likelihood."""
        if isinstance(self.n_components, str):
            raise ValueError(
                "n_components must be a whole number where clients send coefficients; "
                f"got {self.n_components!r}."
            )
        return self.n_components

    @property
    def numbers(self) -> range:
        """Numbers of components that are tried."""
        if isinstance(self.n_components, str):
            return range(1, self.max_components + 1)
        return range(self.n_components, self.n_components + 1)

    @property
    def most_rounds(self) -> int:
        """Largest number of rounds."""
        return self.default_rounds if self.n_rounds is None else self.n_rounds

    def check(self) -> None:
        """Raise a ValueError if an argument is wrong."""
        check_n_components(self.n_components, self.max_components)
        for name in ("n_init", "n_rounds"):
            value = getattr(self, name)
            if name != "n_rounds" or value is not None:
                check_count(name, value)
        if not (is_number(self.tol) and 0 <= self.tol < np.inf):
            raise ValueError(f"tol must be a number from 0; got {self.tol!r}.")
        noise = self.noise_variance
        if noise is not None and not (is_number(noise) and 0 < noise < np.inf):
            raise ValueError(f"noise_variance must be above 0, or None; got {noise!r}.")

    def open_questions(self, facts: RegressionFacts) -> list[str]:
        """Note what the numbers of rows alone do not identify.

        Raises
        ------
        ValueError
            If there are more components than groups with rows.
        """
        has_data = facts["n"][facts["n"] > 0]
        if len(has_data) and self.numbers[0] > len(has_data):
            raise ValueError(
                f"n_components={self.n_components} is more than there are groups with rows: "
                f"n_samples={len(has_data)} of them."
            )
        open_ = open_levels(facts["n"], [], (), [np.arange(self.has_variances)])
        return [note for note in open_ if note]


def weigh_factors(block: Factors, population: MixturePopulation) -> Evidence:
    """Weigh the rows behind triangular factors, in the units of the data."""
    return weigh(rotate(block.rows, block.n), population)


@dataclass(frozen=True)
class FittedMixture(FittedPopulation):
    """A mixture of normal populations, or of points.

    Attributes
    ----------
    settings : MixtureSettings
    result : MixtureResult
        Result of the server.
    n_columns : int
        Number of columns of a design.
    fitted_by : str
    weigh : callable
        As of `ComponentPosterior`.
    kind : type
        Kind of the posteriors.
    likelihood_kind : {"ML", "approximate"}
    """

    settings: MixtureSettings
    result: MixtureResult
    n_columns: int
    fitted_by: str
    weigh: Callable[[Any, MixturePopulation], Any] = weigh_factors
    kind: type[ComponentPosterior] = ComponentPosterior
    likelihood_kind: str = "ML"

    @property
    def population(self) -> str:  # type: ignore[override]
        """Name of the population."""
        k = len(self.result["weights"])
        return (
            f"mixture of {k} {self.settings.shape}"
            if self.settings.has_variances
            else f"{k} points"
        )

    @property
    def centre(self) -> NDArray:  # type: ignore[override]
        """Mean of the population."""
        return self.result["weights"] @ self.result["means"]

    @property
    def n_parameters(self) -> int:  # type: ignore[override]
        """Number of fitted parameters: weights, means, variances, noise."""
        return self.result["n_parameters"]

    @property
    def components(self) -> Components | None:
        """Components of the mixture, if they are normal or points."""
        if self.settings.shape != "normals":
            return None
        return Components(self.result["weights"], self.result["means"], self.result["variances"])

    def posterior(self, block: Any) -> ComponentPosterior:
        result = self.result
        variances = result["variances"]
        population = MixturePopulation(
            result["weights"],
            result["means"],
            variances[:, :1] if self.settings.one_variance else variances,
            max(result["noise_variance"], result["least_noise"]),
        )
        return self.kind(block, self.weigh, population, result["means_covariance"])

    def parameters(self, terms: Sequence[str], group: str) -> list[Parameter]:
        means, variances = self.result["means"], self.result["variances"]
        rows = fixed_parameters(terms, self.centre, np.full(len(terms), np.nan))
        for j, weight in enumerate(self.result["weights"]):
            name = f"component {j}"
            rows.append(("component", name, "weight", weight, np.nan))
            errors = np.sqrt(np.diag(self.result["means_covariance"][j]))
            rows += [
                ("component", name, *each) for each in zip(terms, means[j], errors, strict=True)
            ]
            if self.settings.has_variances:
                shown = ["all"] if self.settings.one_variance else terms
                rows += [
                    ("component", name, f"sd__{term}", np.sqrt(variance), np.nan)
                    for term, variance in zip(shown, variances[j], strict=False)
                ]
        if not self.settings.has_noise:
            return rows
        return [*rows, residual_parameter(self.result["noise_variance"])]


@dataclass(eq=False, repr=False)
class MixtureRegression(RegressionEstimator):
    """An estimator whose population is a mixture; it has the arguments of `MixtureSettings`."""

    n_components: int | Literal["bic", "heldout"] = 2
    _: KW_ONLY
    max_components: int = 10
    fit_intercept: bool = True
    n_rounds: int | None = None
    n_init: int = 4
    tol: float = 1e-8
    engine: Engine | None = None
    verbose: int = 0
    random_state: Any = None

    @abstractmethod
    def _settings(self) -> MixtureSettings:
        """Return the settings of the mixture."""

    def _with_settings(self, **others: Any) -> MixtureSettings:
        """Return settings that are arguments, and others."""
        shared = ("n_components", "max_components", "fit_intercept", "n_rounds", "n_init", "tol")
        given = {name: getattr(self, name) for name in shared} | others
        return MixtureSettings(title=type(self).__name__, **given)

    def _learn(self, result: MixtureResult) -> None:
        self._result, self.notes_ = result, result["notes"]
        self.weights_, self.means_ = result["weights"], result["means"]
        self.variances_, self.noise_variance_ = result["variances"], result["noise_variance"]
        self.means_covariance_, self.criterion_ = result["means_covariance"], result["criterion"]
        self.mean_ = self.weights_ @ self.means_
        self.variance_ = self.weights_ @ (self.variances_ + (self.means_ - self.mean_) ** 2)

    def _mixture(self, fitted_by: str, *how: Any) -> FittedMixture:
        """Return the population, by learned attributes as they are now: a user may set them."""
        learned = self._result | {
            "weights": self.weights_,
            "means": self.means_,
            "means_covariance": self.means_covariance_,
            "variances": self.variances_,
            "noise_variance": self.noise_variance_,
        }
        return FittedMixture(self._settings(), learned, len(self._columns()), fitted_by, *how)

    @property
    def n_components_(self) -> int:
        """Number of components."""
        check_is_fitted(self, "mean_")
        return len(self.weights_)

    def responsibilities(self, X: Any = None, y: Any = None, *, groups: Any = None) -> Any:
        """Probability that each group belongs to each component.

        Parameters
        ----------
        X, y, groups : as in `posterior`

        Returns
        -------
        DataFrame
            Group label, then ``component_0``, ``component_1``, …
        """
        posterior = self.posterior(X, y, groups=groups)
        assert isinstance(posterior, ComponentPosterior)
        columns = {f"component_{j}": x for j, x in enumerate(posterior.responsibilities.T)}
        return frame({self._style_.group: posterior.ids} | columns, self._style_)
