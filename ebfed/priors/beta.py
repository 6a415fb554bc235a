"""Beta population of rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.likelihoods import Binomial, Likelihood
from ebfed.priors import beta_binomial, beta_regression, beta_reports, robust
from ebfed.priors.base import OwnReports, Prior
from ebfed.priors.beta_binomial import POINT_MASS
from ebfed.priors.identification import ONE_GROUP
from ebfed.priors.plausible_regression import BetaRegression
from ebfed.priors.posterior import Posterior, mean_errors
from ebfed.priors.regression import Design, WithCovariates
from ebfed.priors.two_moments import TwoMoments
from ebfed.wire import WhenAsked

__all__ = ["Beta", "BetaPosterior", "beta_from_moments"]

FITS = {
    "ml": beta_binomial.maximise,
    "moments": beta_binomial.moments,
    "paper": beta_binomial.paper_moments,
}


class Beta(WithCovariates, Prior):
    """Population ``p ~ Beta(alpha, beta)``.

    Its density is ``p**(alpha-1) (1-p)**(beta-1) / B(alpha, beta)``; several columns of rates have
    independent populations. Fitted to counts by maximum likelihood of the beta-binomial in mean
    ``mu`` and overdispersion ``phi = 1 / (alpha + beta) >= 0``,

        sum_i [sum_{j<z_i} log(mu + j phi) + sum_{j<n_i-z_i} log(1-mu + j phi)
               - sum_{j<n_i} log(1 + j phi)],

    a form that is exact down to ``phi = 0``, where all groups have one rate.

    With covariates, client i comes from ``Beta(mu_i / phi, (1 - mu_i) / phi)`` with ``logit mu_i =
    w_i' beta``: beta-binomial regression, which at ``phi = 0`` is logistic.

    Where the spread is not known well, posteriors average over plausible populations, under a prior
    that is flat in the mean and, times ``r**(1/5)``, in the square root of the intraclass
    correlation ``r = phi / (1 + phi)``; with covariates, the means of as many groups as there are
    coefficients are uniform, whichever these are.

    Parameters
    ----------
    alpha, beta : float, optional
        Known parameters, both or neither; estimated if None.
    method : {"ml", "moments", "paper"}
        ``"moments"``: mean and variance of the rates, sampling noise removed. ``"paper"``: mean and
        variance of the raw proportions as in Ozkara et al. (2023), eq. (6), which counts sampling
        noise as spread and so shrinks too little; kept for replication.

    Attributes
    ----------
    alpha_, beta_ : ndarray of shape (d,)
        Parameters; infinite where the spread is zero.
    mean_, variance_ : ndarray of shape (d,)
    mean_variance_, variance_variance_ : ndarray of shape (d,)
        Sampling variances of `mean_` and `variance_`.
    concentration_ : ndarray of shape (d,)
        ``alpha + beta``, capped at 1e14.
    second_moment_, fourth_moment_ : ndarray of shape (d,)
        Central moments of the population, for robust intervals.
    coefficients_, coefficient_errors_ : ndarray of shape (1 + k, d)
        Intercept and coefficients of covariates on the scale of logits, and standard errors.
        `mean_`, `variance_`, `alpha_` and `beta_` are then those at average covariates.
    raw_ : dict
        Arguments of `beta_binomial.leave_one_out`, with ``method="paper"``.

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), section 2.2; Griffiths (1973) for the likelihood.

    Examples
    --------
    >>> counts = Binomial(np.array([[1], [4], [9], [5]]), np.array([10, 10, 10, 10]))
    >>> prior = Beta().fit(counts)
    >>> prior.alpha_.round(2), prior.beta_.round(2)
    (array([1.52]), array([1.65]))
    >>> prior.posterior(counts).mean.ravel().round(3)
    array([0.191, 0.419, 0.799, 0.495])
    """

    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    max_features: ClassVar[float] = np.inf
    second_moment_ = WhenAsked[NDArray]()
    fourth_moment_ = WhenAsked[NDArray]()
    _by_column = (*Prior._by_column, "alpha_", "beta_", "concentration_")

    def __init__(
        self,
        alpha: float | None = None,
        beta: float | None = None,
        *,
        method: Literal["ml", "moments", "paper"] = "ml",
    ):
        self.alpha = alpha
        self.beta = beta
        self.method = method

    @property
    def fits_raw_reports(self) -> bool:
        """Whether the method is the paper's, which takes reports for proportions (Theorem 4)."""
        return self.method == "paper"

    @property
    def estimates_spread(self) -> bool:
        """Whether the parameters are not given."""
        return self.alpha is None

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, d), shape (k,)."""
        from scipy.special import betaln, xlog1py, xlogy

        # of each client, where there are covariates
        alpha, beta = (each[..., None, :] for each in self._shape())
        density = xlogy(alpha - 1, theta) + xlog1py(beta - 1, -theta) - betaln(alpha, beta)
        return density.sum(axis=-1)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population, shape (size, d)."""
        alpha, beta = self._shape()
        return np.random.default_rng(random_state).beta(alpha, beta, (size, alpha.shape[-1]))

    def parameters(self, j: int = 0) -> dict[str, float]:
        """Return alpha and beta of coordinate j."""
        return {"alpha": float(self.alpha_[j]), "beta": float(self.beta_[j])}

    def _shape(self) -> tuple[NDArray, NDArray]:
        """Finite stand-ins for alpha and beta where the population is a point."""
        tiny = np.finfo(float).tiny
        alpha, beta = self.mean_ * self.concentration_, (1 - self.mean_) * self.concentration_
        return np.maximum(alpha, tiny), np.maximum(beta, tiny)

    def _log_masses(self, atoms: NDArray) -> NDArray:
        """Exact mass of the cell around each node: the density may be infinite at 0 and 1."""
        from scipy.special import betainc

        at = atoms[:, 0]
        edges = np.concatenate(([0.0], (at[1:] + at[:-1]) / 2, [1.0]))
        (alpha,), (beta,) = self._shape()
        n_below = max(int(np.searchsorted(edges, self.mean_[0])), 1)
        low, high = edges[:n_below], edges[n_below - 1 :]
        masses = np.diff(betainc(alpha, beta, low)), -np.diff(betainc(beta, alpha, 1 - high))
        with np.errstate(divide="ignore"):  # the smaller tail keeps its digits
            return np.log(np.concatenate(masses))

    def _fit(self, likelihood: Likelihood) -> None:
        if self.method not in FITS:
            raise ValueError(f"method must be 'ml', 'moments' or 'paper'; got {self.method!r}.")
        d = likelihood.n_features
        if (given := self._given("alpha", "beta")) is not None:
            total = sum(given)
            self._set(np.full(d, given[0] / total), np.full(d, 1 / total))
            self.n_parameters_ = 0
        elif isinstance(likelihood, Binomial):
            self._fit_counts([likelihood.column(j) for j in range(d)])
        elif likelihood.support == self.support:
            self._fit_reports(likelihood)
        else:
            super()._fit(likelihood)

    def _fit_with_covariates(self, likelihood: Likelihood, covariates: NDArray) -> None:
        """Fit a beta-binomial regression to each column of counts."""
        if self.method != "ml" or self.alpha is not None or self.beta is not None:
            raise ValueError("with covariates, method must be 'ml', and alpha and beta None.")
        if not isinstance(likelihood, Binomial):
            raise TypeError("covariates are for counts as they are, not for reports of rates.")
        has_data = likelihood.trials > 0
        beta_binomial.check_size(likelihood)
        design = Design.of(covariates, has_data)
        counts = likelihood.take(has_data)
        fits = [
            beta_regression.maximise(z, counts.trials, design.matrix[has_data])
            for z in counts.successes.T
        ]
        self._learn_coefficients(design, fits, np.ones(len(fits)))
        overdispersion = np.array([fit.overdispersion for fit in fits])
        self._set(beta_regression.logistic(self.predictor_), overdispersion)
        self.n_parameters_ = len(fits) * (2 + covariates.shape[1])
        spread = self.mean_ * (1 - self.mean_)
        self.mean_variance_ = spread**2 * self.coefficients_covariance_[:, 0, 0]
        # how the variances of proportions move with the correlation within groups, per unit
        growth = (counts.trials[:, None] - 1) / (
            1 + (counts.trials[:, None] - 1) * overdispersion / (1 + overdispersion)
        )
        if growth.any():
            self.variance_variance_ = 2 * spread**2 / (growth**2).sum(axis=0)
        separated = np.array([fit.separated for fit in fits])
        self.mean_variance_[separated] = 0.0  # its curvature there says nothing
        self.at_boundary_ = separated | (overdispersion == 0)
        if np.any(self._is_hardly_known() | separated):
            size, matrix = counts.trials.astype(float), design.matrix[has_data]
            tables = [BetaRegression(z, size, matrix) for z in counts.successes.T]
            self._find_later(Beta._hold_regressions, design, tables)
        if any(fit.separated for fit in fits):
            self._add_note(
                "Covariates separate successes from failures: some coefficients would grow without "
                "bound, and are stopped at odds of 1e13.",
                True,
            )
        elif counts.trials.max() == 1:
            self._add_note(
                "No group has two rows: the spread of the population is not identified and taken "
                "to be zero, so every estimate is that of a logistic regression.",
                True,
            )
        elif np.isinf(self.alpha_).any():
            self._add_note(
                "Estimated overdispersion is zero: groups differ no more than covariates and "
                "binomial noise explain, and every estimate is that of a logistic regression."
            )

    def at(self, covariates: NDArray) -> Self:
        """Return the population of clients with these covariates."""
        there = copy(self)
        predictor, variance = self._predict(covariates)
        there.mean_ = beta_regression.logistic(predictor)
        there.covariates_ = np.asarray(covariates, float)
        spread, average = there.mean_ * (1 - there.mean_), self.mean_ * (1 - self.mean_)
        there.mean_variance_ = spread**2 * variance
        there.variance_ = self.variance_ * spread / average
        there.variance_variance_ = self.variance_variance_ * (spread / average) ** 2
        there.alpha_ = np.where(np.isinf(self.alpha_), np.inf, there.mean_ * self.concentration_)
        there.beta_ = np.where(
            np.isinf(self.beta_), np.inf, (1 - there.mean_) * self.concentration_
        )
        return there

    def _fit_reports(self, likelihood: Likelihood) -> None:
        """Maximise the exact marginal likelihood of reports over mean and spread."""
        if self.method != "ml":
            raise ValueError(
                f"method must be 'ml' where a channel randomises reports; got {self.method!r}."
            )
        d = likelihood.n_features
        tables = [likelihood.column(j).compress() for j in range(d)]
        fits = [beta_reports.fit(*table) for table in tables]
        mean, correlation = np.array([point for point, _ in fits]).T
        self._set(mean, correlation / (1 - correlation))
        for j, (_, covariance) in enumerate(fits):
            spread = mean[j] * (1 - mean[j])
            slope = np.array([(1 - 2 * mean[j]) * correlation[j], spread])  # of the variance
            self.mean_variance_[j] = covariance[0, 0]
            self.variance_variance_[j] = slope @ covariance @ slope
        # the fourth moment is not known, the second has its standard error
        raised = self.variance_ + np.sqrt(self.variance_variance_)
        self.second_moment_ = np.minimum(raised, mean * (1 - mean))
        self.fourth_moment_ = self.second_moment_ * np.maximum(mean, 1 - mean) ** 2
        if not all(len(rows) for rows, _ in tables):
            self._add_note("No client has data: the population is unknown, taken as uniform.", True)
        else:
            self._note_if_open()
            misfits = [
                beta_reports.is_contradicted(*table, *point)
                for table, (point, _) in zip(tables, fits, strict=True)
            ]
            if any(misfits):
                self._add_note(beta_reports.CONTRADICTED)
            if any(misfits) or self._is_hardly_known().any():
                self._find_later(Beta._hold_reports, tables, misfits, [point for point, _ in fits])

    def _hold_reports(
        self, tables: Sequence[tuple[Likelihood, NDArray]], misfits: list[bool], points: list
    ) -> None:
        """Hold plausible means and overdispersions of columns of reports."""
        found = [
            beta_reports.of_any_shape(*table) if misfit else beta_reports.plausible(*table, *point)
            for table, misfit, point in zip(tables, misfits, points, strict=True)
        ]
        self._hold(("mean", "dispersion"), found)

    def fit_raw_reports(self, reports: NDArray) -> Self:
        """Take mean and variance of randomised reports for those of the rates (Theorem 4).

        For replication: the variance is that of the randomisation, and says nothing of the rates.

        Parameters
        ----------
        reports : ndarray of shape (n, d)
            Unbiased estimates of the clients' proportions.
        """
        self.notes_, self.noise_variance_ = [], None
        self.raw_ = {"less": 0.0, **_moments(reports)}
        # [E] Theorem 4
        mean = np.clip(reports.mean(axis=0), 1e-9, 1 - 1e-9)
        variance = reports.var(axis=0, ddof=1)
        self._set(mean, 1 / beta_binomial.concentration_from(mean, variance, less=0.0))
        return self

    def _fit_counts(self, columns: list[Binomial]) -> None:
        tables = [column.compress() for column in columns]
        if not len(tables[0][0]):
            self._add_note("No client has data: the population is unknown, taken as uniform.", True)
            self._set(np.full(len(tables), 0.5), np.full(len(tables), 0.5))
            return
        fit = FITS[self.method]
        if self.method == "paper":
            local = np.hstack([column.local for column in columns])
            self.raw_ = {"less": 1.0, **_moments(local[columns[0].trials > 0])}
        self._set(*np.array([fit(rows, counts) for rows, counts in tables]).T)
        for j, (rows, counts) in enumerate(tables):
            self._learn_precision(j, rows, counts)
            self._explain(j, rows, counts)
        names = "second_moment_", "fourth_moment_"
        self._learn_later(names, robust.moments_of_counts, tables, self.mean_)
        if self.method != "paper" and self._is_hardly_known().any():
            self._find_later(Beta._hold_counts, tables)

    def _hold_counts(self, tables: Sequence[tuple[Binomial, NDArray]]) -> None:
        """Hold plausible means and overdispersions of columns of counts."""
        dispersions = 1 / self.concentration_
        found = [
            beta_binomial.plausible(*table, float(dispersion))
            for table, dispersion in zip(tables, dispersions, strict=True)
        ]
        self._hold(("mean", "dispersion"), found)

    def _like(self, parameters: dict[str, NDArray]) -> Self:
        one = super()._like({})
        if "predictor_" in parameters:
            one._take_coefficients(parameters)
            one._set(beta_regression.logistic(one.predictor_), parameters["dispersion"])
        elif parameters:
            one._set(parameters["mean"], parameters["dispersion"])
        return one

    def _set(self, mean: NDArray, overdispersion: NDArray) -> None:
        """Set every attribute from mean and overdispersion 1 / (alpha + beta)."""
        with np.errstate(divide="ignore"):
            self.concentration_ = np.minimum(1 / overdispersion, POINT_MASS)
        spread = self.concentration_ < POINT_MASS
        self.alpha_ = np.where(spread, mean * self.concentration_, np.inf)
        self.beta_ = np.where(spread, (1 - mean) * self.concentration_, np.inf)
        self.mean_ = mean
        self.variance_ = mean * (1 - mean) * overdispersion / (1 + overdispersion)
        self.mean_variance_, self.variance_variance_ = np.zeros_like(mean), np.zeros_like(mean)
        self.second_moment_, self.fourth_moment_ = self.variance_, 3 * self.variance_**2
        self.n_parameters_ = 2 * len(mean)

    def _learn_precision(self, j: int, rows: Binomial, counts: NDArray) -> None:
        """Sampling variances of the mean and the variance."""
        mean, concentration, trials = self.mean_[j], self.concentration_[j], rows.trials
        spread = mean * (1 - mean)
        if spread > 0:
            variance = spread * (trials + concentration) / (trials * (1 + concentration))
            self.mean_variance_[j] = 1 / (counts / variance).sum()
            # how the variances of the proportions move with the population's, per unit of them
            growth = (trials - 1) / trials / variance
            if growth.any():
                self.variance_variance_[j] = 2 / (counts @ growth**2)

    def _explain(self, j: int, rows: Binomial, counts: NDArray) -> None:
        """Add a note on what the data do not identify."""
        if counts.sum() == 1:
            self._add_note(ONE_GROUP, True)
        elif rows.trials.max() == 1:
            self._add_note(
                "No group has two rows: the spread of the population is not identified and taken "
                "to be zero, so every estimate is the pooled rate.",
                True,
            )
        elif self.mean_[j] in (0.0, 1.0):
            self._add_note(
                f"Every outcome is {self.mean_[j]:.0f}: the spread of the population is not "
                "identified and taken to be zero.",
                True,
            )
        elif np.isinf(self.alpha_[j]):
            self._add_note(
                "Estimated overdispersion is zero: groups differ no more than binomial noise "
                "explains, and every estimate is the pooled rate."
            )

    def _start(self, rows: Likelihood, counts: NDArray) -> None:
        self._set(np.array([0.5]), np.array([0.5]))

    def _m_step(self, atoms: NDArray, masses: NDArray) -> None:
        """Maximum likelihood of a beta given expected log p and log (1 - p), by Newton's method."""
        from scipy.special import polygamma, psi

        rate = atoms[:, 0]
        share = masses / masses.sum()
        target = np.array([share @ np.log(rate), share @ np.log1p(-rate)])
        alpha_beta = np.concatenate(self._shape())
        for _ in range(100):
            gradient = target - psi(alpha_beta) + psi(alpha_beta.sum())
            hessian = polygamma(1, alpha_beta.sum()) - np.diag(polygamma(1, alpha_beta))
            step = np.linalg.solve(hessian, gradient)
            while np.any(alpha_beta - step <= 0):
                step /= 2
            alpha_beta = alpha_beta - step
            if np.all(np.abs(step) < 1e-12 * alpha_beta):
                break
        total = alpha_beta.sum()
        self._set(alpha_beta[:1] / total, 1 / np.array([total]))

    def _posterior(self, likelihood: Likelihood) -> Posterior:
        """Conjugate posterior for counts, quadrature for others."""
        if not isinstance(likelihood, Binomial):
            self._check_clients()
            return super()._posterior(likelihood)
        return BetaPosterior(
            likelihood,
            self.mean_,
            self.concentration_,
            self.mean_variance_,
            self.variance_variance_,
            (self.second_moment_, self.fourth_moment_) if self.slopes_ is None else None,
            partial(mean_errors, self),
        )

    @property
    def weighs_own_reports(self) -> bool:
        """Whether the method is the paper's, in which clients leave themselves out."""
        return hasattr(self, "raw_")

    def posterior_of_members(self, likelihood: Likelihood, own: OwnReports) -> Posterior:
        """Posterior of clients, each with a population fitted to all others as in eq. (6)."""
        raw = getattr(self, "raw_", None)
        if raw is None or raw["n_reporting"] < 3 or not isinstance(likelihood, Binomial):
            return self.posterior(likelihood)
        mean = np.repeat(self.mean_[None], len(likelihood), axis=0)
        concentration = np.repeat(self.concentration_[None], len(likelihood), axis=0)
        sent = ~np.isnan(own.value).any(axis=1)
        # [E] Theorem 3
        means, concentration[sent] = beta_binomial.leave_one_out(own.value[sent], **raw)
        mean[sent] = np.clip(means, 1e-9, 1 - 1e-9)
        return BetaPosterior(likelihood, mean, concentration)

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """Beta-binomial log-probability of each client's counts, shape (n,)."""
        check_is_fitted(self, "mean_")
        if not isinstance(likelihood, Binomial):
            self._check_clients()
            if likelihood.support == self.support:
                return likelihood.marginal(self.mean_, self.variance_)
            return super().log_marginal(likelihood)
        ordered = sum(
            beta_binomial.ordered_log_marginal(likelihood.column(j), mean, 1 / concentration)
            for j, (mean, concentration) in enumerate(
                zip(self.mean_.T, self.concentration_, strict=True)
            )
        )
        return ordered + likelihood.log_coefficient()


class BetaPosterior(TwoMoments):
    """``Beta(alpha + z_i, beta + n_i - z_i)``, the population's uncertainty included.

    The posterior mean is ``a_i z_i/n_i + (1-a_i) mean`` with ``a_i = n_i / (n_i + alpha + beta)``.
    As for a normal population (`NormalPosterior`), estimating mean and variance of the population
    adds ``(1 - a_i)**2 (Var(mean) + 2 Var(variance) / v_i)`` to the variance, ``v_i`` that of a
    proportion; the beta with that mean and variance is used for intervals and probabilities, kept
    from becoming U-shaped where it was not.

    Parameters
    ----------
    likelihood : Binomial
    mean, concentration : ndarray of shape (d,) or (n, d)
        Parameters of the prior; two dimensions give each client a prior of its own.
    mean_variance, variance_variance : ndarray of shape (d,), optional
        Sampling variances of the prior's mean and variance.
    moments : tuple of two ndarrays of shape (d,), optional
        Second and fourth central moment of the population, for robust intervals.
    mean_errors : callable, optional
        Function from a size and a Generator to draws of the error of the prior's mean, as
        `priors.posterior.mean_errors` gives them. Without it the mean is taken as known in
        `sample`, and clients are drawn independently.
    """

    def __init__(
        self,
        likelihood: Binomial,
        mean: NDArray,
        concentration: NDArray,
        mean_variance: NDArray | float = 0.0,
        variance_variance: NDArray | float = 0.0,
        moments: tuple[NDArray, NDArray] | None = None,
        mean_errors: Callable[[int, np.random.Generator], NDArray] | None = None,
    ):
        trials = likelihood.trials[:, None]
        total = trials + concentration
        self.weight = weight = trials / total
        self.mean = (likelihood.successes + mean * concentration) / total
        variance = self.mean * (1 - self.mean) / (total + 1)
        # (1 - a)**2 / v, in a form that holds without trials or spread
        spread = np.where(mean * (1 - mean) > 0, mean * (1 - mean), 1.0)
        odds = trials * (1 + concentration) * concentration**2 / (spread * total**3)
        added = (1 - weight) ** 2 * mean_variance + 2 * odds * variance_variance
        rarest = np.minimum(self.mean, 1 - self.mean)
        with np.errstate(divide="ignore"):
            widest = self.mean * (1 - self.mean) / (1 + np.minimum(total, 1 / rarest))
        alone = variance
        variance = np.minimum(variance + added, np.maximum(widest, variance))
        self.sd = np.sqrt(variance)
        # what all clients share, in variance: what the mean adds, if it was added
        self._common = np.minimum((1 - weight) ** 2 * mean_variance, variance - alone)
        self._mean_variance, self._mean_errors = mean_variance, mean_errors
        self._trials, self._centre, self._moments = likelihood.trials, mean, moments
        self._shape = beta_from_moments(self.mean, variance)

    def _of(self, mean: NDArray, sd: NDArray) -> Self:
        one = copy(self)
        one.mean, one.sd, one._shape = mean, sd, beta_from_moments(mean, sd**2)
        one.__dict__.pop("_log_scale", None)
        return one

    @cached_property
    def _log_scale(self) -> NDArray:
        from scipy.special import betaln

        return betaln(*self._shape)

    def _to_line(self, x: NDArray) -> NDArray:
        from scipy.special import logit

        return logit(x)

    def _from_line(self, u: NDArray) -> NDArray:
        from scipy.special import expit

        return expit(u)

    def _density(self, u: NDArray) -> tuple[NDArray, NDArray]:
        """Density of a rate's logit, and its slope."""
        from scipy.special import expit, log_expit

        alpha, beta = self._shape
        heights = np.exp(alpha * log_expit(u) + beta * log_expit(-u) - self._log_scale)
        return heights, heights * (alpha * expit(-u) - beta * expit(u))

    def _quantile(self, q: float) -> NDArray:
        from scipy.special import betaincinv

        alpha, beta = self._shape
        return np.where(self.sd > 0, betaincinv(alpha, beta, q), self.mean)

    def prob_below(self, threshold: ArrayLike) -> NDArray:
        """Probability that a rate is at most `threshold`, shape (n, 1)."""
        from scipy.special import betainc

        inside = betainc(*self._shape, np.clip(threshold, 0, 1))
        return np.where(self.sd > 0, inside, self.mean <= np.asarray(threshold))

    def _prob_from(self, threshold: ArrayLike) -> NDArray:
        from scipy.special import betainc

        alpha, beta = self._shape
        outside = betainc(beta, alpha, 1 - np.clip(threshold, 0, 1))
        return np.where(self.sd > 0, outside, self.mean >= np.asarray(threshold))

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's rate, shape (size, n, d).

        In each draw all clients have one mean of the population (with covariates, one beta), whose
        logit is normal. Given it, rates are betas of such concentration that all in all their
        means and variances are those of the posterior.
        """
        rng = np.random.default_rng(random_state)
        if self._mean_errors is None or not np.any(self._common):
            draws = rng.beta(*self._shape, (size, *self.mean.shape))
        else:
            draws = rng.beta(*self._given_mean(self._mean_errors(size, rng)))
        return np.where(self.sd > 0, draws, self.mean)

    def _given_mean(self, errors: NDArray) -> tuple[NDArray, NDArray]:
        """Parameters of the rates' betas where the population's mean has these errors."""
        from scipy.special import expit, logit

        centre = np.broadcast_to(self._centre, errors.shape[1:])
        spread = centre * (1 - centre)
        doubt = np.broadcast_to(np.sqrt(self._mean_variance), spread.shape)
        slope = np.divide(doubt, spread, out=np.zeros(spread.shape), where=spread > 0)
        # logits are normal; moments of what they are the logits of, by quadrature
        nodes, masses = np.polynomial.hermite_e.hermegauss(40)
        trial = expit(logit(centre) + slope * nodes[:, None, None])
        middle = np.average(trial, axis=0, weights=masses)
        length = np.sqrt(np.average((trial - middle) ** 2, axis=0, weights=masses))
        moved = expit(logit(centre) + slope * errors) - middle
        unit = np.divide(moved, length, out=np.zeros(moved.shape), where=length > 0)
        mean = np.clip(self.mean + np.sqrt(self._common) * unit, 0, 1)
        inside = self.mean * (1 - self.mean) - self._common  # the average of mean (1 - mean)
        own = self.sd**2 - self._common
        total = np.divide(inside, own, out=np.full(own.shape, 2.0), where=own > 0) - 1
        tiny = np.finfo(float).tiny
        return np.maximum(mean * total, tiny), np.maximum((1 - mean) * total, tiny)

    def _robust_ends(self, level: float) -> tuple[NDArray, NDArray]:
        if self._moments is None or self.weight is None:
            raise ValueError(
                "robust intervals are built around linear shrinkage to one population of rates; "
                "fit prior='beta' without covariates, by method 'ml' or 'moments', to get one."
            )
        if not self.sd.any():
            return self.mean, self.mean
        weights = np.broadcast_to(self.weight, self.mean.shape)
        columns = zip(weights.T, self._centre, *self._moments, strict=True)
        half = np.stack(
            [
                robust.binomial_half_width(self._trials, weight, mean, second, fourth, level)
                for weight, mean, second, fourth in columns
            ],
            axis=1,
        )
        return self.mean - half, self.mean + half

    def interval(self, level: float = 0.95, kind: Any = "eb") -> tuple[NDArray, NDArray]:
        """Interval within [0, 1]; see `Posterior.interval`."""
        lower, upper = super().interval(level, kind)
        return np.clip(lower, 0, 1), np.clip(upper, 0, 1)


def _moments(proportions: NDArray) -> dict[str, Any]:
    """Count, mean and scatter of proportions, or reports, of shape (n, d)."""
    centre = proportions.mean(axis=0) if len(proportions) else np.zeros(proportions.shape[1])
    scatter = ((proportions - centre) ** 2).sum(axis=0)
    return {"n_reporting": len(proportions), "centre": centre, "scatter": scatter}


def beta_from_moments(mean: NDArray, variance: NDArray) -> tuple[NDArray, NDArray]:
    """Parameters of the beta distribution with this mean and variance (harmless where zero).

    Examples
    --------
    >>> beta_from_moments(np.array([0.5]), np.array([0.05]))
    (array([2.]), array([2.]))
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        concentration = mean * (1 - mean) / variance - 1
    concentration = np.where(np.isfinite(concentration) & (concentration > 0), concentration, 1.0)
    tiny = np.finfo(float).tiny
    return np.maximum(mean * concentration, tiny), np.maximum((1 - mean) * concentration, tiny)
