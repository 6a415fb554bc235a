"""What the faces of the generalized linear mixed model share, of numbers and of classes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.sums import Share
from ebfed.inference.degrees_of_freedom import FixedDegrees, Inference, Method
from ebfed.inference.spread_degrees import NearbySpreads, SpreadDegrees
from ebfed.regression.criteria import QuadratureCriterion
from ebfed.regression.diagnosis import renewed_predictors
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.generalized_population import GeneralizedPopulation, nodes_of
from ebfed.regression.generalized_rounds import GeneralizedRounds
from ebfed.regression.inferring import check_rows_of_all, has_rows_of_all
from ebfed.regression.intervals import check_drawn, check_not_restricted
from ebfed.regression.nested import NestedModel
from ebfed.regression.numerics.quadrature_population import Covariance
from ebfed.regression.posteriors.predictive import averaged_variance, variance_of_mean
from ebfed.regression.protocol import GeneralizedResult
from ebfed.regression.reading import posterior_of_rows, repeated
from ebfed.regression.separation import endless_terms
from ebfed.report.view import RegressionView
from ebfed.tables.clients import Clients

__all__ = ["ResponseRegression"]


class ResponseRegression(NestedModel):
    """A generalized linear mixed model: rounds by quadrature, and all that follows from its fit."""

    covariance: Covariance
    fixed: Sequence[str | int] | None
    method: Any
    share: Share
    n_rounds: int

    @property
    @abstractmethod
    def _family(self) -> ResponseFamily:
        """Family of rows."""

    def protocol(self) -> GeneralizedRounds:
        return GeneralizedRounds(
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
        self._learn_levels(result)
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

    def _criterion(self, method: str) -> QuadratureCriterion:
        check_not_restricted(method)
        check_rows_of_all(self, f"intervals by {method!r}")
        return QuadratureCriterion(self)

    def __ebfed_view__(self) -> RegressionView:
        """Return what reports and plots read of the fit."""
        again = self._by_laplace if has_rows_of_all(self) else None
        return replace(super().__ebfed_view__(), has_density=False, approximation=again)

    def _by_laplace(self) -> float:
        """Log-likelihood of the same model, fitted to the same rows by Laplace's approximation."""
        other = copy(self).set_params(method="laplace")._beginning_at(self)
        return other._fit(self.clients_, {}).log_likelihood_

    def _redraws(self, rng: np.random.Generator) -> Callable[[], Any]:
        """Return a function that draws responses of a family, and fits again."""
        check_rows_of_all(self, "intervals by 'bootstrap'")
        clients, population = self.clients_, self._population()
        if clients.weight is not None:  # rows that one stands for have responses of their own
            clients = repeated(clients, clients.weight)
        family, responses = population.family, population.responses(clients)
        check_drawn(family, responses)
        levels = [root @ root.T for root in (*population.roots_above, population.root)]
        places = np.repeat(np.arange(len(clients)), clients.n)
        renewed = renewed_predictors(clients.X, population.mean, clients.ids, places, levels)

        def again() -> Any:
            z = renewed(rng) + responses.offset
            y = family.draw(z, responses.weight, population.shapes, rng)
            return copy(self)._beginning_at(self)._fit(population.observing(clients, y), {})

        return again

    def _inference(self, ddf: Method | None) -> Inference:
        if ddf not in (None, "satterthwaite", "asymptotic"):
            raise ValueError(
                f"ddf must be 'satterthwaite' or 'asymptotic' for {type(self).__name__}; got "
                f"{ddf!r}."
            )
        if ddf == "satterthwaite":
            check_rows_of_all(self, f"ddf={ddf!r}")
        result = self._result
        if ddf == "satterthwaite" and "node_weights" not in result:
            raise ValueError(
                f"ddf={ddf!r} needs a fit whose likelihood has a maximum, not that of "
                "method='gradient'; 'asymptotic' is for z tests."
            )
        known = has_rows_of_all(self) and len(result.get("node_weights", ()))  # not of many groups
        if ddf == "asymptotic" or not known or not len(self._of_mean):
            return FixedDegrees(self.mean_, self.mean_covariance_, np.inf)
        return self._spread_degrees()

    def _spread_degrees(self) -> SpreadDegrees:
        """Degrees of freedom by what the fit says of nearby spreads."""
        result, criterion = self._result, QuadratureCriterion(self)
        covariances = []
        for k, mean in enumerate(result["node_means"]):
            roots = [each[k] for each in result["node_roots"]]
            covariances.append(criterion.covariance_given(mean, [root @ root.T for root in roots]))
        fitted = [*result.get("above", ()), result["covariance"]]
        nearby = NearbySpreads(
            criterion.covariance_given(self.mean_, fitted),
            result["node_weights"],
            result["node_parameters"],
            np.array(covariances),
            result["node_means"] - self.mean_,
        )
        return SpreadDegrees(self.mean_, nearby)
