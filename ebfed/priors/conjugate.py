"""Conjugate populations: how they are fitted to counts and to reports, updated, and averaged.

A client's count has a mean that depends on its parameter theta, and theta has a population of one
kind of `Distribution`, given by its mean and an overdispersion phi >= 0: groups are alike at zero.
The predictor of the mean is its image on the line, such as a logit, and may be linear in
covariates. A prior states how counts alone are fitted and what their posteriors are; the rest is
here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.likelihoods import Likelihood
from ebfed.priors.base import Prior
from ebfed.priors.count_regression import FURTHEST, CountRegression
from ebfed.priors.exploration import side_by_side
from ebfed.priors.identification import ONE_GROUP
from ebfed.priors.posterior import Posterior, mean_errors
from ebfed.priors.regression import Design, WithCovariates
from ebfed.priors.search import maximise
from ebfed.priors.two_moments import TINIEST, Distribution, Shared, TwoMoments

__all__ = ["ByColumn", "Conjugate", "ConjugatePosterior", "Update"]

EVEN = "{alike}: groups differ no more than {noise} explains, and every estimate is {pooled}."
EVEN_REGRESSION = (
    "{alike}: groups differ no more than covariates and {noise} explain, and every estimate is "
    "{regression}."
)
SEPARATED = (
    "Covariates separate {separated}: some coefficients would grow without bound, and are stopped "
    "at odds or ratios of 1e13."
)

Table = tuple[Any, NDArray]
"""Different messages, or what a fit needs of them, and how many clients sent each."""


class Update(NamedTuple):
    """What clients' own data make of the population, shape (n, d) each.

    Attributes
    ----------
    mean, variance : ndarray
        Moments of posteriors where the population is known.
    weight : ndarray or None
        Share of the own estimate in the mean, where this is linear in it.
    by_mean, by_variance : ndarray
        What a unit of the sampling variance of the population's mean, and of that of its variance,
        adds to the variance.
    most : ndarray or None
        Variance that is not exceeded by what they add, if there is one.
    """

    mean: NDArray
    variance: NDArray
    weight: NDArray | None
    by_mean: NDArray
    by_variance: NDArray
    most: NDArray | None = None


class ConjugatePosterior(TwoMoments):
    """Posteriors of the population's kind, its own uncertainty included.

    As for a normal population (`NormalPosterior`), estimating mean and variance of the population
    adds to the variances of posteriors; distributions of the population's kind with these moments
    are used for intervals and probabilities.

    Parameters
    ----------
    prior : Conjugate or Dirichlet, fitted
        Population of all clients, or of each.
    likelihood : Likelihood of n clients
    """

    def __init__(self, prior: Any, likelihood: Any):
        found = prior.update_of(likelihood)
        doubt = found.by_mean * prior.mean_variance_
        variance = found.variance + doubt + found.by_variance * prior.variance_variance_
        self._common = doubt  # what all clients share, in variance: what the mean adds
        if found.most is not None:
            variance = np.minimum(variance, np.maximum(found.most, found.variance))
            self._common = np.minimum(doubt, variance - found.variance)
        # below zero by rounding, where a share is one
        super().__init__(prior.kind, found.mean, np.sqrt(np.maximum(variance, 0.0)))
        self.weight, self._prior, self.likelihood = found.weight, prior, likelihood

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's parameter, shape (size, n, d).

        In each draw all clients have one error of the population's mean (with covariates, of one
        beta). Given it, their distributions are such that all in all means and variances are those
        of the posterior.
        """
        if not np.any(self._common):
            return super().sample(size, random_state)
        rng, prior = np.random.default_rng(random_state), self._prior
        errors = mean_errors(prior, size, rng)
        clients = Shared(self.mean, self.sd**2, self._common, prior.mean_, prior.mean_variance_)
        mean, variance = self.kind.given(clients, errors)
        draws = self.kind.of(mean, variance).draw(mean.shape, rng)
        return np.where(self.sd > 0, np.where(variance > 0, draws, mean), self.mean)


class Conjugate(Prior):
    """Base of the populations that are conjugate to counts; see the head of this file.

    Attributes
    ----------
    dispersion_ : ndarray of shape (d,)
        Overdispersion phi.
    """

    max_features: ClassVar[float] = np.inf
    _by_column: ClassVar[tuple[str, ...]] = (*Prior._by_column, "dispersion_")

    # Messages that have the closed form; what a population and a posterior are.
    messages: ClassVar[type[Likelihood]]
    kind: ClassVar[type[Distribution]]
    posteriors: ClassVar[type[ConjugatePosterior]] = ConjugatePosterior
    # Arguments that are the known parameters, and that of them which may be infinite.
    arguments: ClassVar[tuple[str, ...]]
    infinite: ClassVar[str] = ""
    # What is said without data, of reports with covariates or without spread, and in the sentences
    # above.
    words: ClassVar[Mapping[str, str]]

    method: str = "ml"
    dispersion_: NDArray

    # What a population states ------------------------------------------------------------------

    @abstractmethod
    def given_parameters(self, d: int) -> Sequence[NDArray] | None:
        """Return mean and overdispersion of d columns that are given; None if they are not."""

    @abstractmethod
    def unknown_parameters(self, d: int) -> Sequence[NDArray]:
        """Return mean and overdispersion of d columns that are taken without any data."""

    @abstractmethod
    def tables_of(self, likelihood: Any) -> list[Table]:
        """Tabulate the messages of each column, or of all where these have one population."""

    @abstractmethod
    def likeliest(self, rows: Any, counts: NDArray) -> tuple[Any, Any]:
        """Return mean and overdispersion that fit a table of counts best."""

    @abstractmethod
    def fits_of_reports(self, tables: list[Table]) -> list[tuple[NDArray, NDArray]]:
        """Return mean and share of phi of each column that fit reports best, and their covariance.

        Shapes are (2,) and (2, 2).
        """

    @abstractmethod
    def doubts(self, j: int, rows: Any, counts: NDArray) -> tuple[Any, Any]:
        """Return the sampling variances of mean and variance of table j."""

    @abstractmethod
    def _hold_plausible(self, tables: Sequence[Table]) -> None:
        """Hold plausible means and overdispersions, without covariates."""

    @abstractmethod
    def update_of(self, likelihood: Any) -> Update:
        """Update the population by messages that have the closed form."""

    def marginal_of(self, likelihood: Any) -> NDArray:
        """Log-probability of messages that have a closed form, shape (n,)."""
        return likelihood.marginal(self.mean_, self.variance_)

    def has_marginal(self, likelihood: Likelihood) -> bool:
        """Return whether `marginal_of` serves these messages."""
        return likelihood.support == self.support

    def unidentified(self, j: int, rows: Any, estimate: str) -> str:
        """Return why the spread of table j is not identified, and every estimate is such a one."""
        return ""

    def shows_spread(self, rows: Any) -> bool:
        """Return whether reports say anything of the spread."""
        return True

    def check_shape(self, j: int, rows: Any) -> None:
        """Note messages of table j that are not distributed as under the fitted population."""

    def misfit_of_reports(self, rows: Any, counts: NDArray, point: NDArray) -> str:
        """Return what is wrong with the best mean and share of phi; empty if nothing is."""
        return ""

    # The population -----------------------------------------------------------------------------

    @classmethod
    def known(cls, mean: Any, dispersion: float) -> Self:
        """Return a fitted population whose mean, or that of each client, is not an estimate."""
        one = cls()
        one.notes_, one.noise_variance_ = [], None
        one._set(np.atleast_1d(np.asarray(mean, float)), np.array([dispersion]))
        return one

    @property
    def estimates_spread(self) -> bool:
        """Whether the parameters are not given."""
        return getattr(self, self.arguments[0]) is None

    @property
    def _line_of_means(self) -> Any:
        return self.kind.to_line, self.kind.from_line

    def _posterior_of_mean(self) -> Posterior:
        return TwoMoments(self.kind, self.mean_[None], np.sqrt(self.mean_variance_)[None])

    def _with_mean(self, mean: NDArray) -> Distribution:
        return self.kind.at(mean, np.maximum(self.dispersion_, TINIEST))

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, d), shape (k,); of given covariates, (n, k)."""
        return self._with_mean(self.mean_[..., None, :]).logpdf(theta).sum(axis=-1)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        shape = (size, self.mean_.shape[-1])
        return self._with_mean(self.mean_).draw(shape, np.random.default_rng(random_state))

    def _log_masses(self, atoms: NDArray) -> NDArray:
        return self._with_mean(self.mean_).log_masses(atoms[:, 0], self.mean_[0])

    def _set(self, mean: NDArray, dispersion: NDArray) -> None:
        """Set every attribute from mean and overdispersion."""
        self.mean_ = mean
        self.dispersion_ = np.where(dispersion > 2 * TINIEST, dispersion, 0.0)
        self.variance_ = self.kind.variance_of(mean)[0] * self.kind.share_of(self.dispersion_)
        self.mean_variance_, self.variance_variance_ = np.zeros_like(mean), np.zeros_like(mean)
        self.n_parameters_ = 2 * len(mean)

    # Fitting ------------------------------------------------------------------------------------

    def _fit(self, likelihood: Likelihood) -> None:
        if (given := self.given_parameters(likelihood.n_features)) is not None:
            self._set(*given)
            self.n_parameters_ = 0
        elif isinstance(likelihood, self.messages):
            self._fit_counts(likelihood)
        elif self.has_marginal(likelihood):
            self._fit_reports(likelihood)
        else:
            super()._fit(likelihood)

    def _tables(self, likelihood: Likelihood) -> list[Table]:
        """Tables of messages; where one is empty, the population is taken as unknown."""
        tables = self.tables_of(likelihood)
        if all(len(rows) for rows, _ in tables):
            return tables
        self._add_note(self.words["nothing"], True)
        self._set(*self.unknown_parameters(likelihood.n_features))
        return []

    def _fit_counts(self, likelihood: Likelihood) -> None:
        """Fit mean and overdispersion of each table of counts."""
        if not (tables := self._tables(likelihood)):
            return
        found = zip(*(self.likeliest(*table) for table in tables), strict=True)
        self._set(*map(np.hstack, found))
        for j, table in enumerate(tables):
            columns = slice(None) if self.couples_columns else j
            doubts = self.doubts(j, *table)
            self.mean_variance_[columns], self.variance_variance_[columns] = doubts
            self.check_shape(j, table[0])
            if table[1].sum() == 1:
                self._add_note(ONE_GROUP, True)
            elif why := self.unidentified(j, table[0], self.words["pooled"]):
                self._add_note(why, True)
            elif self.dispersion_[j] == 0:
                self._add_note(EVEN.format(**self.words))
        if self._is_hardly_known().any():
            self._find_later(type(self)._hold_plausible, tables)

    def _fit_reports(self, likelihood: Likelihood) -> None:
        """Maximise the exact marginal likelihood of reports over mean and spread."""
        if not (tables := self._tables(likelihood)):
            return
        fits = self.fits_of_reports(tables)
        mean, share = np.array([point for point, _ in fits]).T
        self._set(mean, self.kind.dispersion_of(share))
        height, slope = self.kind.variance_of(mean)
        for j, (_, covariance) in enumerate(fits):
            slopes = np.array([slope[j] * share[j], height[j]])  # of the variance
            self.mean_variance_[j] = covariance[0, 0]
            self.variance_variance_[j] = slopes @ covariance @ slopes
        if all(self.shows_spread(rows) for rows, _ in tables):
            self._note_if_open()
        else:
            self._add_note(self.words["single"], True)
        pairs = zip(tables, fits, strict=not self.couples_columns)
        misfits = {self.misfit_of_reports(*table, point) for table, (point, _) in pairs} - {""}
        for misfit in misfits:
            self._add_note(misfit)
        if misfits or self._is_hardly_known().any():
            self._find_later(type(self)._hold_plausible, tables)

    # Using --------------------------------------------------------------------------------------

    def _posterior(self, likelihood: Likelihood) -> Posterior:
        """Conjugate posterior for counts, quadrature for others."""
        if isinstance(likelihood, self.messages):
            return self.posteriors(self, likelihood)
        self._check_clients()
        return super()._posterior(likelihood)

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        check_is_fitted(self, "mean_")
        if not isinstance(likelihood, self.messages):
            self._check_clients()
        if self.has_marginal(likelihood):
            return self.marginal_of(likelihood)
        return super().log_marginal(likelihood)


class ByColumn(WithCovariates, Conjugate):
    """Base of conjugate populations whose columns each have one, which may depend on covariates."""

    # What a regression is; mean and overdispersion that are taken without any data.
    regression: ClassVar[type[CountRegression]]
    unknown: ClassVar[tuple[float, float]]

    @abstractmethod
    def parameters_of(self, first: float, second: float) -> tuple[float, float]:
        """Return mean and overdispersion of the known parameters."""

    @abstractmethod
    def plausible(
        self, rows: Any, counts: NDArray, mean: float, dispersion: float
    ) -> tuple[NDArray, NDArray]:
        """Find means and overdispersions that messages leave plausible, (K, 2), and their weights.

        The search begins at likely ones.
        """

    @abstractmethod
    def trials_of_reports(self, rows: Likelihood) -> tuple[NDArray, NDArray, NDArray]:
        """Return means and shares of phi near which the best may be, and their ends, (2, 2)."""

    def table_of(self, column: Any) -> Table:
        """Tabulate the messages of one column."""
        return column.compress()

    def at_average(self, rows: Any, ratios: NDArray) -> Any:
        """Return messages as if means were the average one, to which they have these ratios."""
        return rows

    def doubt_of_mean(self, own: float, of_regression: float) -> float:
        """Return the sampling variance of the mean at average covariates, of two."""
        return of_regression

    def given_parameters(self, d: int) -> Sequence[NDArray] | None:
        given = self._given(*self.arguments, infinite=self.infinite)
        if given is None:
            return None
        return [np.full(d, each) for each in self.parameters_of(*given)]

    def unknown_parameters(self, d: int) -> Sequence[NDArray]:
        return [np.full(d, each) for each in self.unknown]

    def tables_of(self, likelihood: Any) -> list[Table]:
        return [self.table_of(likelihood.column(j)) for j in range(likelihood.n_features)]

    def fits_of_reports(self, tables: list[Table]) -> list[tuple[NDArray, NDArray]]:
        return [self.likeliest_of_reports(*table) for table in tables]

    def _take(
        self, dispersion: NDArray, mean: NDArray | None = None, **coefficients: NDArray
    ) -> None:
        if mean is None:
            self._take_coefficients(**coefficients)
            mean = self._mean_at(self.predictor_)
        self._set(mean, dispersion)

    def _hold_plausible(self, tables: Sequence[Table]) -> None:
        points = zip(tables, self.mean_, self.dispersion_, strict=True)
        found = [self.plausible(*table, *map(float, point)) for table, *point in points]
        self._hold(("mean", "dispersion"), found)

    def likeliest_of_reports(self, rows: Any, counts: NDArray) -> tuple[NDArray, NDArray]:
        """Return mean and share of phi that fit reports best, (2,), and their covariance."""
        height = partial(self._log_likelihood_of_reports, rows, counts)
        means, shares, ends = self.trials_of_reports(rows)
        grid = np.stack(np.meshgrid(means, shares, indexing="ij"), axis=2).reshape(-1, 2)
        best = grid[np.argmax(height(grid))]
        unit = np.array([np.sqrt(self.kind.variance_of(best[0])[0]), best[1] + 0.05]) / 3
        least, most = ends
        return maximise(lambda x: float(height(x[None])[0]), best, least, most, unit=unit)

    def _log_likelihood_of_reports(
        self, rows: Likelihood, counts: NDArray, points: NDArray
    ) -> NDArray:
        """Log-likelihood of means and shares of phi, shape (k, 2), shape (k,)."""
        mean, share = points.T
        variance = share * self.kind.variance_of(mean)[0]
        return counts @ rows.marginals(mean[:, None], variance[:, None])

    # Covariates ---------------------------------------------------------------------------------

    def _mean_at(self, predictor: NDArray) -> NDArray:
        """Mean of predictors, kept within bounds around that of average covariates."""
        low, high = self.predictor_ - FURTHEST, self.predictor_ + FURTHEST
        return self.kind.from_line(np.clip(predictor, low, high))

    def from_counts(self, coefficients: NDArray, dispersion: NDArray) -> NDArray:
        """Coefficients of the predictor, the first of average covariates, of those of counts.

        Both have shape (..., 1 + k, d), and dispersions shape (..., d).
        """
        return coefficients

    def _fit_with_covariates(self, likelihood: Likelihood, covariates: NDArray) -> None:
        """Fit a regression to each column of counts."""
        if self.method != "ml" or any(getattr(self, name) is not None for name in self.arguments):
            raise ValueError(
                f"with covariates, method must be 'ml', and {' and '.join(self.arguments)} None."
            )
        if not isinstance(likelihood, self.messages):
            raise TypeError(f"covariates are for {self.words['messages']}.")
        has_data = np.isfinite(likelihood.local).all(axis=1)
        design, rows = Design.of(covariates, has_data), likelihood.take(has_data)
        matrix = design.matrix[has_data]
        columns = [rows.column(j) for j in range(rows.n_features)]
        tables = [self.regression.of(column, matrix) for column in columns]
        fits = [table.fit() for table in tables]
        dispersion = np.array([fit.dispersion for fit in fits])
        self._learn_coefficients(design, fits, np.ones(len(fits)))
        turned = np.vstack([self.predictor_, *self.slopes_])  # type: ignore[misc]
        turned = self.from_counts(turned, dispersion)
        self.predictor_, self.slopes_ = turned[0], turned[1:]
        self._set(self._mean_at(self.predictor_), dispersion)
        self.n_parameters_ = len(fits) * (2 + covariates.shape[1])
        steep = self.kind.steepness(self.mean_)
        for j, (fit, column) in enumerate(zip(fits, columns, strict=True)):
            column = self.at_average(column, np.exp(matrix[:, 1:] @ fit.coefficients[1:]))
            own, self.variance_variance_[j] = self.doubts(j, column, np.ones(len(column)))
            of_regression = steep[j] ** 2 * fit.covariance[0, 0]
            self.mean_variance_[j] = self.doubt_of_mean(own, of_regression)
            self.check_shape(j, column)
        separated = np.array([fit.separated for fit in fits])
        self.mean_variance_[separated] = 0.0  # its curvature there says nothing
        self.at_boundary_ = separated | (dispersion == 0)
        if np.any(self._is_hardly_known() | separated):
            self._find_later(type(self)._hold_regressions, design, tables)
        if separated.any():
            self._add_note(SEPARATED.format(**self.words), True)
        elif why := self.unidentified(0, rows, self.words["regression"]):
            self._add_note(why, True)
        elif (dispersion == 0).any():
            self._add_note(EVEN_REGRESSION.format(**self.words))

    def _hold_regressions(self, design: Design, tables: Sequence[CountRegression]) -> None:
        """Hold plausible coefficients and overdispersions of each column of counts."""
        points, weights = side_by_side([table.plausible() for table in tables])
        coefficients = self.from_counts(points[:, :-1], points[:, -1])
        self.plausible_ = {
            "predictor_": coefficients[:, 0],
            "slopes_": coefficients[:, 1:] / design.scale[:, None],
            "dispersion": points[:, -1],
            "weights": weights,
        }

    def at(self, covariates: NDArray) -> Self:
        there = copy(self)
        predictor, variance = self._predict(covariates)
        there._set(self._mean_at(predictor), self.dispersion_)
        there.n_parameters_, there.covariates_ = self.n_parameters_, np.asarray(covariates, float)
        there.mean_variance_ = self.kind.steepness(there.mean_) ** 2 * variance
        there.variance_variance_ = (
            self.variance_variance_
            * (self.kind.variance_of(there.mean_)[0] / self.kind.variance_of(self.mean_)[0]) ** 2
        )
        return there
