"""What the faces of the generalized linear mixed model share, of numbers and of classes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.sums import Share
from ebfed.priors import Posterior
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.criteria import QuadratureCriterion
from ebfed.regression.diagnosis import residuals_of_rows
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.generalized_inference import degrees_of_generalized
from ebfed.regression.generalized_population import GeneralizedPopulation, nodes_of
from ebfed.regression.generalized_rounds import GeneralizedRounds
from ebfed.regression.inferring import (
    check_rows_of_all,
    coefficient_tests,
    errors_and_degrees,
    inference_of_fit,
)
from ebfed.regression.influence import (
    LeftOut,
    fit_without,
    groups_of_level,
    influence_of_groups,
)
from ebfed.regression.intervals import confint_of_rows, redraws_of_generalized
from ebfed.regression.levelled import (
    learn_levels,
    posterior_of_level,
    ranef_of_levels,
    view_of_levels,
)
from ebfed.regression.numerics.quadrature_population import Covariance
from ebfed.regression.posteriors.predictive import averaged_variance, variance_of_mean
from ebfed.regression.protocol import GeneralizedResult
from ebfed.regression.reading import posterior_of_rows
from ebfed.regression.separation import endless_terms
from ebfed.report.view import RegressionView
from ebfed.tables.clients import Clients

__all__ = ["ResponseRegression"]


class ResponseRegression(RegressionEstimator):
    """A generalized linear mixed model: rounds by quadrature, and all that follows from its fit."""

    covariance: Covariance
    fixed: Sequence[str | int] | None
    method: Any
    share: Share
    n_rounds: int

    _takes_levels = True
    # What clients and server do in rounds.
    _rounds: type[GeneralizedRounds] = GeneralizedRounds

    @property
    @abstractmethod
    def _family(self) -> ResponseFamily:
        """Family of rows."""

    def protocol(self) -> GeneralizedRounds:
        return self._rounds(
            family=self._family,
            covariance=self.covariance,
            varying=self.varying,
            fixed=self.fixed,
            fit_intercept=bool(self.fit_intercept),
            method=self.method,
            n_rounds=self.n_rounds,
            share=self.share,
            endless=self._endless,
            estimator=self,
        )

    def _observed(self, clients: Clients) -> Responses:
        """Return what was observed in the rows of a fit."""
        return Responses.of(clients)

    def _fit(self, clients: Clients, memory: Any) -> Self:
        columns = self._columns()
        own = columns.fixed_places()
        names = [columns.terms[j] for j in own]
        observed = self._observed(clients)
        self._endless = endless_terms(self._family, clients.X[:, own], observed, names)
        try:
            return super()._fit(clients, memory)
        finally:
            self._endless = None

    def _sizes(self) -> NDArray:
        return self._n if self._is_server else self.clients_.totals()

    def _learn(self, result: GeneralizedResult) -> None:
        self._result, self.notes_ = result, result["notes"]
        learn_levels(self, result)
        self.mean_, self.covariance_ = result["mean"], result["covariance"]
        self.mean_covariance_, self.method_ = result["mean_covariance"], result["method"]

    def _population(self) -> GeneralizedPopulation:
        result = self._result
        return GeneralizedPopulation(
            columns=self._columns(),
            family=self._family,
            shapes=result["shapes"],
            shape_covariance=result["shape_covariance"],
            mean=self.mean_,
            # gradient descent has no error of the mean
            mean_covariance=np.nan_to_num(self.mean_covariance_),
            estimable=self._estimable,
            covariance=result["covariance"],
            root=result["root"],
            roots_above=result.get("roots_above", ()),
            fitted=None if self._is_server else getattr(self, "clients_", None),
            kind=self.covariance,
            method=result["method"],
            classes=result.get("classes"),
            **nodes_of(result),
        )

    def _posterior_at(self, block: Clients, level: str | None) -> Posterior:
        """Posterior of the groups of a block, or of those of a level above them."""
        if level is not None and level != self._style_.group:
            return posterior_of_level(self, block, level)
        return self._posterior_of(block)

    def _without_offset(
        self, X: Any, groups: Any, averaged: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Posterior mean and variance of the linear predictor of each row, but for its offset.

        `averaged` is whether responses are averaged over them, as in `RowPredictions`.
        """
        rows, codes, posterior = posterior_of_rows(self, X, groups, given_spread=averaged)
        mean = np.einsum("np,np->n", rows, posterior.mean[codes])
        variance = posterior.variance_along(rows, codes)
        if averaged:
            variance = averaged_variance(variance, variance_of_mean(rows, self.mean_covariance_))
        return mean, variance

    ranef = ranef_of_levels
    residuals = residuals_of_rows
    influence = influence_of_groups
    _groups_of = groups_of_level
    _without = fit_without
    inference = inference_of_fit
    _inference = degrees_of_generalized
    tests = coefficient_tests
    confint = confint_of_rows
    _redraws = redraws_of_generalized

    def _changes_without(self, groups: LeftOut) -> None:
        """Nothing is known without a fit."""

    def _criterion(self, method: str) -> QuadratureCriterion:
        check_rows_of_all(self, f"intervals by {method!r}")
        return QuadratureCriterion(self)

    def __ebfed_view__(self) -> RegressionView:
        """Return what reports and plots read of the fit."""
        view = view_of_levels(self, super().__ebfed_view__())
        return replace(view, has_density=False, degrees=errors_and_degrees(self))
