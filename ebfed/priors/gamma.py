"""Gamma population of rates of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.likelihoods import Likelihood, NegativeBinomial, Poisson
from ebfed.priors import negative_binomial, overdispersed
from ebfed.priors.base import Prior
from ebfed.priors.count_regression import FURTHEST, log_masses_of, maximise_regression
from ebfed.priors.exploration import TILT, explore
from ebfed.priors.identification import ONE_GROUP
from ebfed.priors.plausible_regression import GammaRegression
from ebfed.priors.posterior import Posterior, mean_errors
from ebfed.priors.regression import Design, WithCovariates
from ebfed.priors.search import maximise
from ebfed.priors.two_moments import TwoMoments, gamma_height

__all__ = ["POINT_MASS", "Gamma", "GammaPosterior", "shape_of"]

# A shape this large is a point mass to every digit of float64.
POINT_MASS = 1e14


class Gamma(WithCovariates, Prior):
    """Population ``lambda ~ Gamma(shape a, mean mu)``.

    Its density is ``(a/mu)**a lambda**(a-1) exp(-a lambda/mu) / Gamma(a)``, its variance ``mu**2 /
    a``; several columns of rates have independent populations. Fitted to counts ``y_i ~ Poisson(E_i
    lambda_i)`` by maximum likelihood of the negative binomial in mean and overdispersion ``phi =
    1/a >= 0``, with ``M_i = E_i mu``,

        sum_i [sum_{j<y_i} log(1 + j phi) + y_i log M_i - (y_i + 1/phi) log(1 + phi M_i)
               - log y_i!],

    a form that is exact down to ``phi = 0``, where all groups have one rate.

    With covariates, client i comes from a gamma of mean ``mu_i``, ``log mu_i = w_i' beta``, and the
    same shape: negative binomial regression, which at ``phi = 0`` is Poisson regression.

    Where the spread is not known well, posteriors average over plausible populations, under a prior
    of Beta(.7, .7) for ``b = E / (E + a/mu)``, a group's weight of its own rate at the average
    exposure E, that is flat in the square root of means of less than an event and in the logarithm
    of larger ones. With covariates it is Beta(.7, 1), at the average number of events, and, given
    phi, Jeffreys' in beta.

    Parameters
    ----------
    mean, shape : float, optional
        Known parameters, both or neither; estimated if None.

    Attributes
    ----------
    shape_ : ndarray of shape (d,)
        Shape; infinite where the spread is zero.
    mean_, variance_ : ndarray of shape (d,)
    mean_variance_, variance_variance_ : ndarray of shape (d,)
        Sampling variances of `mean_` and `variance_`.
    coefficients_, coefficient_errors_ : ndarray of shape (1 + k, d)
        Intercept and coefficients of covariates for the log of the mean, and standard errors.
        `mean_` and `variance_` are then those at average covariates.

    References
    ----------
    Greenwood and Yule (1920), An inquiry into the nature of frequency distributions; Lawless
    (1987), Negative binomial and mixed Poisson regression.

    Examples
    --------
    >>> counts = Poisson(np.array([[0], [2], [9], [4]]), np.array([1.0, 1.0, 2.0, 2.0]))
    >>> prior = Gamma().fit(counts)
    >>> prior.mean_.round(2), prior.shape_.round(2)
    (array([2.35]), array([4.83]))
    >>> prior.posterior(counts).mean.ravel().round(2)
    array([1.58, 2.24, 3.41, 2.18])
    """

    support: ClassVar[tuple[float, float]] = (0.0, np.inf)
    max_features: ClassVar[float] = np.inf
    n_nodes: ClassVar[int] = 1600  # cells of roots are uneven: more of them for the same error
    _by_column = (*Prior._by_column, "shape_")

    shape_: NDArray

    def __init__(self, mean: float | None = None, shape: float | None = None):
        self.mean = mean
        self.shape = shape

    @property
    def estimates_spread(self) -> bool:
        """Whether the parameters are not given."""
        return self.shape is None

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, d), shape (k,)."""
        from scipy.special import gammaln, xlogy

        shape = self._finite_shape()
        rate = (shape / self.mean_)[..., None, :]  # of each client, where there are covariates
        density = xlogy(shape, rate) + xlogy(shape - 1, theta) - rate * theta - gammaln(shape)
        return density.sum(axis=-1)

    def parameters(self, j: int = 0) -> dict[str, float]:
        """Return the shape of coordinate j."""
        return {"shape": float(self.shape_[j])}

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population, shape (size, d)."""
        shape = self._finite_shape()
        rng = np.random.default_rng(random_state)
        return rng.gamma(shape, self.mean_ / shape, (size, len(shape)))

    def _finite_shape(self) -> NDArray:
        return np.minimum(self.shape_, POINT_MASS)

    def _log_masses(self, atoms: NDArray) -> NDArray:
        """Exact mass of the cell around each node: the density may be infinite at 0."""
        from scipy.special import gammainc, gammaincc

        at = atoms[:, 0]
        edges = np.concatenate(([0.0], (at[1:] + at[:-1]) / 2, [np.inf]))
        (shape,), (mean,) = self._finite_shape(), self.mean_
        n_below = max(int(np.searchsorted(edges, mean)), 1)
        low, high = (shape * part / mean for part in (edges[:n_below], edges[n_below - 1 :]))
        masses = np.diff(gammainc(shape, low)), -np.diff(gammaincc(shape, high))
        with np.errstate(divide="ignore"):  # the smaller tail keeps its digits
            return np.log(np.concatenate(masses))

    # Fitting ----------------------------------------------------------------------------------

    def _fit(self, likelihood: Likelihood) -> None:
        d = likelihood.n_features
        if (given := self._given("mean", "shape")) is not None:
            self._set(np.full(d, float(given[0])), np.full(d, 1 / given[1]))
            self.n_parameters_ = 0
        elif isinstance(likelihood, Poisson):
            self._fit_counts([likelihood.column(j) for j in range(d)])
        elif likelihood.support == self.support:
            self._fit_reports(likelihood)
        else:
            super()._fit(likelihood)

    def _fit_counts(self, columns: list[Poisson]) -> None:
        tables = [column.compress() for column in columns]
        if not len(tables[0][0]):
            self._add_note("No client has data: the population is unknown, taken as 1.", True)
            self._set(np.ones(len(tables)), np.ones(len(tables)))
            return
        self._set(*np.array([negative_binomial.maximise(*table) for table in tables]).T)
        for j, (rows, counts) in enumerate(tables):
            self._learn_precision(j, rows.exposure * self.mean_[j], counts)
            if counts.sum() == 1:
                self._add_note(ONE_GROUP, True)
            elif self.mean_[j] == 0:
                self._add_note(
                    "There are no events: the spread of the population is not identified and taken "
                    "to be zero.",
                    True,
                )
            elif np.isinf(self.shape_[j]):
                self._add_note(
                    "Estimated overdispersion is zero: groups differ no more than Poisson noise "
                    "explains, and every estimate is the pooled rate."
                )

        if self._is_hardly_known().any():
            self._find_later(Gamma._hold_plausible, tables)

    def _hold_plausible(self, tables: Sequence[tuple[Likelihood, NDArray]]) -> None:
        """Hold plausible means and overdispersions of columns without covariates."""
        likeliest = zip(self.mean_, 1 / self.shape_, strict=True)
        found = [
            _plausible(_log_likelihood_of(*table), *table, *near)
            for table, near in zip(tables, likeliest, strict=True)
        ]
        self._hold(("mean", "dispersion"), found)

    def _like(self, parameters: dict[str, NDArray]) -> Self:
        one = super()._like({})
        if "predictor_" in parameters:
            one._take_coefficients(parameters)
            one._set(np.exp(one.predictor_), parameters["dispersion"])
        elif parameters:
            one._set(parameters["mean"], parameters["dispersion"])
        return one

    def _learn_precision(self, j: int, expected: NDArray, counts: NDArray) -> None:
        """Sampling variances of mean and variance, from those of counts around ``expected``."""
        if not self.mean_[j] > 0:
            return
        dispersion = 1 / self.shape_[j]
        # Var(y / E) = (M + phi M**2) / E**2 in units of the mean, with E = M / mean
        relative = 1 / expected + dispersion
        self.mean_variance_[j] = self.mean_[j] ** 2 / (counts / relative).sum()
        self.variance_variance_[j] = 2 * self.mean_[j] ** 4 / (counts / relative**2).sum()

    def _set(self, mean: NDArray, overdispersion: NDArray) -> None:
        """Set every attribute from mean and overdispersion 1 / shape."""
        with np.errstate(divide="ignore"):
            shape = 1 / overdispersion
        self.shape_ = np.where(shape < POINT_MASS, shape, np.inf)
        self.mean_ = mean
        self.variance_ = mean**2 / self.shape_
        self.mean_variance_, self.variance_variance_ = np.zeros_like(mean), np.zeros_like(mean)
        self.n_parameters_ = 2 * len(mean)

    def _fit_with_covariates(self, likelihood: Likelihood, covariates: NDArray) -> None:
        """Fit a negative binomial regression to each column of counts."""
        if self.mean is not None or self.shape is not None:
            raise ValueError("with covariates, mean and shape must be None.")
        if not isinstance(likelihood, Poisson):
            raise TypeError("covariates are for counts as they are, not for reports of rates.")
        has_data = likelihood.exposure > 0
        design, rows = Design.of(covariates, has_data), likelihood.take(has_data)
        fits = [
            maximise_regression(counts, rows.exposure, design.matrix[has_data])
            for counts in rows.counts.T
        ]
        self._learn_coefficients(design, fits, np.ones(len(fits)))
        self._set(np.exp(self.predictor_), np.array([fit.overdispersion for fit in fits]))
        self.n_parameters_ = len(fits) * (2 + covariates.shape[1])
        for j, fit in enumerate(fits):
            expected = rows.exposure * np.exp(design.matrix[has_data] @ fit.coefficients)
            self._learn_precision(j, expected, np.ones(len(expected)))
            self.mean_variance_[j] = self.mean_[j] ** 2 * fit.covariance[0, 0]
        separated = np.array([fit.separated for fit in fits])
        self.mean_variance_[separated] = 0.0  # its curvature there says nothing
        self.at_boundary_ = separated | np.isinf(self.shape_)
        if np.any(self._is_hardly_known() | separated):
            matrix = design.matrix[has_data]
            tables = [GammaRegression(counts, rows.exposure, matrix) for counts in rows.counts.T]
            self._find_later(Gamma._hold_regressions, design, tables)
        if any(fit.separated for fit in fits):
            self._add_note(
                "Covariates separate groups with events from groups without: some coefficients "
                "would grow without bound, and are stopped at a ratio of 1e13.",
                True,
            )
        elif np.isinf(self.shape_).any():
            self._add_note(
                "Estimated overdispersion is zero: groups differ no more than covariates and "
                "Poisson noise explain, and every estimate is that of a Poisson regression."
            )

    def _fit_reports(self, likelihood: Likelihood) -> None:
        """Maximise the exact marginal likelihood of reports over mean and spread."""
        d = likelihood.n_features
        tables = [likelihood.column(j).compress() for j in range(d)]
        fits = [_fit_column(*table) for table in tables]
        mean, dispersion = np.array([point for point, _ in fits]).T
        self._set(mean, dispersion)
        for j, (_, covariance) in enumerate(fits):
            slope = np.array([2 * mean[j] * dispersion[j], mean[j] ** 2])  # of the variance
            self.mean_variance_[j] = covariance[0, 0]
            self.variance_variance_[j] = slope @ covariance @ slope
        if not all(len(rows) for rows, _ in tables):
            self._add_note("No client has data: the population is unknown, taken as 1.", True)
        else:
            self._note_if_open()
            if self._is_hardly_known().any():
                self._find_later(Gamma._hold_plausible, tables)

    def _start(self, rows: Likelihood, counts: NDArray) -> None:
        self._set(np.array([np.median(rows.nodes(self.n_nodes))]), np.ones(1))

    def _m_step(self, atoms: NDArray, masses: NDArray) -> None:
        """Maximum likelihood of a gamma given expected lambda and log lambda."""
        share = masses / masses.sum()
        mean = float(share @ atoms[:, 0])
        gap = np.log(mean) - float(share @ np.log(atoms[:, 0]))
        self._set(np.array([mean]), np.array([1 / shape_of(gap)]))

    # Using ------------------------------------------------------------------------------------

    def at(self, covariates: NDArray) -> Self:
        """Return the population of clients with these covariates."""
        there = copy(self)
        predictor, variance = self._predict(covariates)
        there.mean_ = np.exp(np.clip(predictor, -FURTHEST, FURTHEST))
        there.covariates_ = np.asarray(covariates, float)
        there.mean_variance_ = there.mean_**2 * variance
        there.variance_ = there.mean_**2 / self.shape_
        there.variance_variance_ = self.variance_variance_ * (there.mean_ / self.mean_) ** 4
        return there

    def _posterior(self, likelihood: Likelihood) -> Posterior:
        """Conjugate posterior for counts, quadrature for others."""
        if not isinstance(likelihood, Poisson):
            self._check_clients()
            return super()._posterior(likelihood)
        return GammaPosterior(
            likelihood,
            self.mean_,
            self.shape_,
            self.mean_variance_,
            self.variance_variance_,
            partial(mean_errors, self),
        )

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """Negative binomial log-probability of each client's counts, shape (n,)."""
        check_is_fitted(self, "mean_")
        if not isinstance(likelihood, Poisson):
            self._check_clients()
            if likelihood.support == self.support:
                return likelihood.marginal(self.mean_, self.variance_)
            return super().log_marginal(likelihood)
        total = np.zeros(len(likelihood))
        for counts, mean, shape in zip(likelihood.counts.T, self.mean_.T, self.shape_, strict=True):
            expected = likelihood.exposure * mean
            total += log_masses_of(counts, expected, 1 / shape)
        return total


def shape_of(gap: float) -> float:
    """Shape of the gamma variable whose log of E exceeds E of log by a positive `gap`.

    It solves ``log a - psi(a) = gap`` by Newton's method.

    Examples
    --------
    >>> float(round(shape_of(0.5772156649015329), 9))
    1.0
    """
    from scipy.special import polygamma, psi

    shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(20):
        step = (np.log(shape) - psi(shape) - gap) / (1 / shape - polygamma(1, shape))
        shape = max(shape - step, shape / 2)
        if abs(step) < 1e-12 * shape:
            break
    return shape


LogLikelihood = Callable[[NDArray, NDArray], NDArray]


def _log_likelihood_of(rows: Likelihood, counts: NDArray) -> LogLikelihood:
    """Log-likelihood of means and overdispersions, shape (k,) each, up to a constant."""
    if isinstance(rows, Poisson):
        return negative_binomial.log_likelihood_of(rows, counts)
    if isinstance(rows, NegativeBinomial):
        return overdispersed.log_likelihood_of(rows, counts)
    return lambda mean, dispersion: np.array(
        [
            counts @ rows.marginal(one[None], (phi * one**2)[None])
            for one, phi in zip(mean, dispersion, strict=True)
        ]
    )


def _plausible(
    log_likelihood: LogLikelihood,
    rows: Likelihood,
    counts: NDArray,
    mean: float,
    dispersion: float,
) -> tuple[NDArray, NDArray]:
    """Find means and overdispersions that the messages leave plausible, and their probabilities.

    The weight of a group's own rate at the average exposure E, ``b = E / (E + shape / mean)``, has
    the prior Beta(.7, .7) (Christiansen and Morris, 1997, have one flat in b). Where groups differ
    little, it is flat in their standard deviation, times ``b**(1/5)``; where they differ much, a
    smaller second number would leave means open without any event. The prior is flat in the square
    root of the mean where less than an event is expected, and in its logarithm where more are. The
    posterior is proper without any event. For reports, E is the exposure in which one event is
    expected. The search begins at the likeliest `mean` and `dispersion`.
    """
    from scipy.special import log_expit

    if isinstance(rows, Poisson):
        events, exposure = float(counts @ rows.counts[:, 0]), float(counts @ rows.exposure)
        centre, reach = np.log((events + 0.5) / exposure), np.inf
        typical = np.log(exposure / counts.sum())
    else:
        nodes = rows.nodes(60)
        # reports beyond the range of nodes are all clipped and exclude nothing
        centre, reach = float(np.log(np.median(nodes))), 7.0
        typical = -centre

    def log_density(points: NDArray) -> NDArray:
        log_mean, logit = points.T  # of b
        values = log_likelihood(np.exp(log_mean), np.exp(logit - typical - log_mean))
        # densities of the logarithm of the mean, and of the logit of b
        values += 0.5 * log_expit(typical + log_mean)
        values += (0.5 + TILT) * (log_expit(logit) + log_expit(-logit))
        return np.where(np.abs(log_mean - centre) <= reach, values, -np.inf)

    # the search begins where the density is positive
    log_mean = np.clip(
        np.log(mean) if mean > 0 else centre, centre - 0.9 * reach, centre + 0.9 * reach
    )
    logit = np.log(dispersion) + typical + log_mean if dispersion > 0 else -2.0
    points, weights = explore(log_density, [log_mean, logit])
    log_means, logits = points.T
    return np.exp(np.column_stack([log_means, logits - typical - log_means])), weights


def _fit_column(rows: Likelihood, counts: NDArray) -> tuple[NDArray, NDArray]:
    """Mean and overdispersion of rates from reports, and their covariance."""
    if not len(rows):
        return np.ones(2), np.zeros((2, 2))
    if isinstance(rows, NegativeBinomial):
        return overdispersed.maximise(rows, counts)
    nodes = rows.nodes(60)

    def log_likelihood(point: NDArray) -> float:
        mean, dispersion = point
        return float(counts @ rows.marginal(np.array([mean]), np.array([dispersion * mean**2])))

    grid = [
        np.array([mean, dispersion])
        for mean in nodes[1::3]
        for dispersion in (0.0, 0.01, 0.05, 0.2, 0.5, 1.0, 3.0)
    ]
    best = max(grid, key=log_likelihood)
    unit = np.array([best[0], best[1] + 0.05]) / 3
    low, high = np.array([1e-9 * best[0], 0.0]), np.array([1e3 * best[0], 1e4])
    point, covariance = maximise(
        lambda x: log_likelihood(x * unit), best / unit, low / unit, high / unit
    )
    return point * unit, covariance * np.outer(unit, unit)


class GammaPosterior(TwoMoments):
    """``Gamma(a + y_i, rate a/mu + E_i)``, the population's uncertainty included.

    The posterior mean is ``b_i y_i/E_i + (1-b_i) mu`` with ``b_i = E_i / (E_i + a/mu)``. As for a
    normal population (`NormalPosterior`), estimating mean and variance of the population adds
    ``(1 - b_i)**2 (Var(mean) + 2 Var(variance) / v_i)`` to the variance, ``v_i`` that of a group's
    own rate; the gamma with that mean and variance is used for intervals and probabilities.

    Parameters
    ----------
    likelihood : Poisson
    mean : ndarray of shape (d,) or (n, d)
        Mean of the prior; two dimensions give each client a prior of its own.
    shape : ndarray of shape (d,)
    mean_variance, variance_variance : ndarray
        Sampling variances of the prior's mean and variance.
    mean_errors : callable
        Function from a size and a Generator to draws of the error of the prior's mean, as
        `priors.posterior.mean_errors` gives them.
    """

    def __init__(
        self,
        likelihood: Poisson,
        mean: NDArray,
        shape: NDArray,
        mean_variance: NDArray | float,
        variance_variance: NDArray | float,
        mean_errors: Callable[[int, np.random.Generator], NDArray],
    ):
        exposure = likelihood.exposure[:, None]
        # in units of the mean: finite where the population is a point, or at zero
        finite = np.minimum(shape, POINT_MASS)
        expected = exposure * mean
        total = finite + expected
        self.weight = weight = expected / total
        self.mean = mean * (finite + likelihood.counts) / total
        variance = self.mean * mean / total
        positive = np.where(mean > 0, mean, 1.0)
        # (1 - b)**2 / v, in a form that holds without exposure
        steep = (1 - weight) ** 2 * expected / (positive**2 * (1 + expected / finite))
        added = (1 - weight) ** 2 * mean_variance + 2 * steep * variance_variance
        added = np.where(mean > 0, added, 0.0)
        self.sd = np.sqrt(variance + added)
        self._common = np.broadcast_to((1 - weight) ** 2 * mean_variance, self.sd.shape)
        self._mean_errors = mean_errors

    @property
    def _gamma(self) -> tuple[NDArray, NDArray]:
        """Shape and scale of the gammas with these means and variances (harmless where zero)."""
        spread = (self.sd > 0) & (self.mean > 0)
        mean, variance = np.where(spread, self.mean, 1.0), np.where(spread, self.sd**2, 1.0)
        return mean**2 / variance, variance / mean

    def _of(self, mean: NDArray, sd: NDArray) -> Self:
        one = copy(self)
        one.mean, one.sd = mean, sd
        return one

    def _to_line(self, x: NDArray) -> NDArray:
        return np.log(x)

    def _from_line(self, u: NDArray) -> NDArray:
        return np.exp(u)

    def _density(self, u: NDArray) -> tuple[NDArray, NDArray]:
        """Density of a rate's logarithm, and its slope."""
        shape, scale = self._gamma
        away = u - np.log(shape * scale)
        heights = gamma_height(shape, away)
        return heights, -heights * shape * np.expm1(away)

    def _quantile(self, q: float) -> NDArray:
        from scipy.special import gammaincinv

        shape, scale = self._gamma
        return np.where(self.sd > 0, scale * gammaincinv(shape, q), self.mean)

    def prob_below(self, threshold: ArrayLike) -> NDArray:
        """Probability that a rate is at most `threshold`, shape (n, d)."""
        from scipy.special import gammainc

        shape, scale = self._gamma
        inside = gammainc(shape, np.maximum(threshold, 0.0) / scale)
        return np.where(self.sd > 0, inside, self.mean <= np.asarray(threshold))

    def _prob_from(self, threshold: ArrayLike) -> NDArray:
        from scipy.special import gammaincc

        shape, scale = self._gamma
        outside = gammaincc(shape, np.maximum(threshold, 0.0) / scale)
        return np.where(self.sd > 0, outside, self.mean >= np.asarray(threshold))

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's rate, shape (size, n, d).

        In each draw all clients have one error of the population's mean, a factor of mean one.
        Given it, rates are gammas of such shape that all in all their means and variances are those
        of the posterior.
        """
        rng = np.random.default_rng(random_state)
        common = np.where(self.mean > 0, self._common, 0.0)
        if not np.any(common):
            shape, scale = self._gamma
            draws = rng.gamma(shape, scale, (size, *self.mean.shape))
            return np.where(self.sd > 0, draws, self.mean)
        positive = np.where(self.mean > 0, self.mean, 1.0)
        relative = common / positive**2  # squared coefficient of variation of the shared factor
        spread = np.log1p(relative)
        factor = np.exp(np.sqrt(spread) * self._mean_errors(size, rng) - spread / 2)
        own = np.maximum(self.sd**2 - common, 0.0) / (positive**2 * (1 + relative))
        shape = np.where(own > 0, 1 / np.where(own > 0, own, 1.0), 1.0)
        draws = np.where(own > 0, rng.gamma(shape, 1 / shape, factor.shape), 1.0)
        return np.where(self.sd > 0, self.mean * factor * draws, self.mean)

    def interval(self, level: float = 0.95, kind: Any = "eb") -> tuple[NDArray, NDArray]:
        """Interval of positive rates; see `Posterior.interval`."""
        lower, upper = super().interval(level, kind)
        return np.maximum(lower, 0.0), upper
