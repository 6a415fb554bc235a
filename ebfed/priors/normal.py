"""Normal population: the random-effects model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.blocks import blocks
from ebfed.kernels import student_moments, student_sizes
from ebfed.likelihoods import Gaussian, Joined, Likelihood, StudentT
from ebfed.priors.base import FEWEST, WELL_KNOWN, OwnReports, Prior
from ebfed.priors.exploration import TILT, explore, side_by_side, thinned
from ebfed.priors.identification import NO_SPREAD, ONE_GROUP, ONE_ROW, UNKNOWN_NOISE
from ebfed.priors.integrated import IntegratedPosterior, integrated
from ebfed.priors.mixture_posterior import N_NORMALS, NOTHING, Components, MixturePosterior
from ebfed.priors.posterior import NormalMarginals, Posterior, mean_errors, root_of
from ebfed.priors.regression import Design, RegressionTable, WithCovariates, table_of
from ebfed.priors.robust import half_widths, moments_around
from ebfed.priors.search import maximise, together
from ebfed.priors.variance_components import (
    MomentTable,
    Profile,
    SummedGaussian,
    SummedTable,
    fit_components,
    information,
    informative,
    plausible_components,
)
from ebfed.tables.values import numbers
from ebfed.wire import WhenAsked

__all__ = [
    "CorrelatedPosterior",
    "IntegratedJointly",
    "Normal",
    "StudentPosterior",
    "fit_moments",
    "fit_student",
    "plausible_moments",
    "shrink_jointly",
]


class Normal(WithCovariates, Prior):
    """Population ``theta ~ N(mean, diag(variance))``.

    Fitted to Gaussian messages ``x_i ~ N(theta_i, s_i**2)`` by restricted maximum likelihood, with
    ``v_i = variance + s_i**2``, minimising

        sum_i [log v_i + (x_i - mean)**2 / v_i] + log sum_i 1 / v_i,

    and jointly over the noise variance where that is unknown (then ``s_i**2 = noise / n_i``). The
    criterion is profiled to one dimension, scanned, and its derivative solved, so that the answer
    is the global optimum; a variance of zero is a normal answer. Fitted to reports of a channel
    that clips, rounds or randomises, mean and variance maximise the reports' exact marginal
    likelihood, whatever the `method`.

    With covariates, client i comes from ``N(w_i' beta, variance)``: beta takes the place of the
    mean, by weighted least squares, and ``log |sum_i w_i w_i' / v_i|`` that of the last term. This
    is the model of Fay and Herriot where the noise is known, and lme4's ``y ~ w + (1 | group)``
    where it is not.

    Under Student-t errors the mean is integrated out to second order, which is REML where they are
    normal, and posteriors are mixtures of normals (`priors.normal`).

    Where the variance is not known well, posteriors average over plausible ones, under a prior that
    is flat in the mean (or beta) and, times ``(variance / (variance + s**2))**(1/5)`` with s a
    typical error, in the standard deviation (Gelman, 2006). For reports of a channel the priors of
    both are Cauchy's, with a quarter of the range's width as scale, the second times the same power
    with that scale in place of s.

    Parameters
    ----------
    mean : array-like of shape (d,) or float, optional
        Known mean; estimated by precision weighting if None.
    variance : array-like of shape (d,) or float, optional
        Known variance; estimated if None.
    covariance : {"diag", "spherical"}
        Whether each column has its own variances or all share one.
    method : {"reml", "ml", "moments", "paule_mandel"}
        ``"moments"`` is the unbiased ANOVA (DerSimonian-Laird) estimate cut at zero.
        ``"paule_mandel"`` is the variance at which ``sum_i (x_i - mean)**2 / v_i`` is its own
        expectation; Fay and Herriot (1979) use it.

    Attributes
    ----------
    mean_, variance_ : ndarray of shape (d,)
    mean_variance_, variance_variance_ : ndarray of shape (d,)
        Sampling variances of `mean_` and `variance_`, 0 if given.
    noise_variance_ : ndarray of shape (d,) or None
    restriction_ : float or None
        Of a fit by REML, restricted log-likelihood less the marginal one, ``log|2 pi C| / 2`` with
        C the sampling covariance of the mean's coefficients; None of other fits.
    kurtosis_, second_moment_ : ndarray of shape (d,)
        Moments of the population for robust intervals.
    coefficients_, coefficient_errors_ : ndarray of shape (1 + k, d)
        Intercept and coefficients of covariates, and standard errors; `mean_` is then the mean at
        average covariates, and `variance_` the variance around ``w_i' beta``.

    References
    ----------
    Patterson and Thompson (1971); Fay and Herriot (1979), Estimates of income for small places;
    Ozkara, Girgis, Data, Diggavi (2023), Theorem 1; Gelman (2006), Prior distributions for variance
    parameters in hierarchical models.

    Examples
    --------
    >>> messages = Gaussian(np.array([[0.0], [2.0], [4.0]]), np.full((3, 1), 1.0))
    >>> prior = Normal().fit(messages)
    >>> prior.mean_, prior.variance_
    (array([2.]), array([3.]))
    >>> prior.posterior(messages).mean.ravel()
    array([0.5, 2. , 3.5])
    """

    kurtosis_ = WhenAsked[NDArray]()
    second_moment_ = WhenAsked[NDArray]()
    max_features: ClassVar[float] = np.inf
    _is_linear: ClassVar[bool] = True

    def __init__(
        self,
        mean: ArrayLike | None = None,
        variance: ArrayLike | None = None,
        *,
        covariance: Literal["diag", "spherical"] = "diag",
        method: Literal["reml", "ml", "moments", "paule_mandel"] = "reml",
    ):
        self.mean = mean
        self.variance = variance
        self.covariance = covariance
        self.method = method

    @classmethod
    def known(cls, variance: NDArray, mean: ArrayLike = 0.0) -> Self:
        """Return a fitted population whose mean and variance, shape (d,), are not estimates."""
        prior = cls(mean, variance)
        prior.mean_ = np.broadcast_to(np.asarray(mean, float), variance.shape)
        prior.variance_ = prior.second_moment_ = np.asarray(variance, float)
        prior.mean_variance_ = prior.variance_variance_ = np.zeros(variance.shape)
        prior.kurtosis_ = np.full(variance.shape, 3.0)
        prior.n_parameters_, prior.notes_, prior.noise_variance_ = 0, [], None
        return prior

    @property
    def estimates_spread(self) -> bool:
        """Whether the variance is not given."""
        return self.variance is None

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, d), shape (k,)."""
        away = theta - self.mean_[..., None, :]  # of each client, where there are covariates
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.log(2 * np.pi * self.variance_) + away**2 / self.variance_
        return -0.5 * terms.sum(axis=-1)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population, shape (size, d)."""
        noise = np.random.default_rng(random_state).standard_normal((size, self.mean_.shape[-1]))
        return self.mean_ + np.sqrt(self.variance_) * noise

    def _start(self, rows: Likelihood, counts: NDArray) -> None:
        self._m_step(rows.nodes(self.n_nodes)[:, None], np.ones(1))

    def _m_step(self, atoms: NDArray, masses: NDArray) -> None:
        total = np.broadcast_to(masses, len(atoms)).sum()
        mean = (atoms[:, 0] * masses).sum() / total if self.mean is None else self.mean
        self.mean_ = np.atleast_1d(np.asarray(mean, float))
        spread = (masses * (atoms[:, 0] - self.mean_) ** 2).sum() / total
        spread = spread if self.variance is None else self.variance
        self.variance_ = np.atleast_1d(np.asarray(spread, float))
        self.mean_variance_ = self.variance_variance_ = np.zeros(1)
        self.n_parameters_ = (self.mean is None) + (self.variance is None)

    def _fit(self, likelihood: Likelihood) -> None:
        self._fit_any(likelihood)

    def _fit_with_covariates(self, likelihood: Likelihood, covariates: NDArray) -> None:
        if self.mean is not None:
            raise ValueError("mean must be None with covariates, on which the mean depends.")
        self._fit_any(likelihood, covariates)

    def _fit_any(self, likelihood: Likelihood, covariates: NDArray | None = None) -> None:
        self._check()
        if self.variance is not None or (covariates is None and isinstance(likelihood, Joined)):
            likelihood = self._settled(likelihood)
        if isinstance(likelihood, Gaussian):
            self._fit_messages(likelihood, covariates)
        elif isinstance(likelihood, StudentT):
            self._fit_student(likelihood, covariates)
        elif covariates is None:
            self._fit_reports(likelihood)
        else:
            raise TypeError(
                "covariates are for Gaussian messages: means as they are, or with Gaussian noise."
            )

    def _fit_messages(self, likelihood: Gaussian, covariates: NDArray | None) -> None:
        d = likelihood.n_features
        noisy = likelihood.has_scatter  # where the scale of the variances is open and not zero
        if self.covariance == "spherical":
            noisy[:] = noisy.any()
        design = Design.of(None, np.ones(0, bool))
        if covariates is not None:
            has_data = [informative(likelihood, j, noisy[j])[0] for j in range(d)]
            design = Design.of(covariates, np.all(has_data, axis=0))
        tables = [table_of(likelihood, j, noisy[j], design) for j in range(d)]
        if self.mean is not None:
            for table, mean in zip(tables, np.broadcast_to(self.mean, d), strict=True):
                table.fixed_mean = float(mean)
        self._fit_tables(tables, design, None if likelihood.scatter is None else noisy)
        self._explain(likelihood, tables)
        centre = self.mean_ if covariates is None else self._predict(covariates)[0]
        self._learn_moments(likelihood, centre)

    def _fit_tables(
        self, tables: list[MomentTable], design: Design, noisy: NDArray[np.bool_] | None = None
    ) -> None:
        """Fit variances, and means or coefficients given these.

        `noisy` says which columns have an open noise variance that is not zero, if it is open.
        """
        d = len(tables)
        ratio, scale = np.ones(d), np.ones(d)
        if self.variance is not None:
            ratio[:] = self.variance
        elif self.covariance == "spherical":
            ratio[:], scale[:] = fit_components(tables, self.method)
        else:
            searches = (partial(fit_components, [table], self.method) for table in tables)
            ratio[:], scale[:] = np.array(together(searches)).T
        profiles = self._set(tables, ratio, scale, design)
        if noisy is not None:
            self.noise_variance_ = np.where(noisy, scale, 0.0)
            # rows that are all alike leave no doubt
            alike = ~noisy & (self.variance_ == 0)
            self.mean_variance_[alike] = 0.0
            if design.has_covariates:
                self.coefficients_covariance_[alike] = 0.0
        if self.method == "reml" and self.mean is None and self.variance is None:
            self.restriction_ = self._restriction()
        known = np.array(
            [
                information(table, profile, self.method)
                for table, profile in zip(tables, profiles, strict=True)
            ]
        )
        if self.covariance == "spherical":
            known[:] = known.sum()
        learned = self.variance is None and min(table.size for table in tables) > 1
        self.variance_variance_ = scale**2 / known if learned else np.zeros(d)
        n_variances = 1 if self.covariance == "spherical" else d
        n_means = tables[0].n_means * (self.mean is None)
        self.n_parameters_ = d * n_means + n_variances * (self.variance is None)
        if self.variance is None:
            if isinstance(tables[0], SummedTable):  # whose clients are asked for sums now
                self._learn_plausible(tables, design, ratio)
            else:
                self._find_later(Normal._learn_plausible, tables, design, ratio)

    def _fit_student(self, likelihood: StudentT, covariates: NDArray | None) -> None:
        """Fit to estimates with t errors; those without noise count if all are without."""
        if self.method not in ("reml", "ml"):
            raise ValueError("method must be 'reml' or 'ml' where errors have a t distribution.")
        noisy = np.isfinite(likelihood.variances[:, 0]) & (likelihood.variances[:, 0] > 0)
        if not noisy.any():
            self._fit_messages(Gaussian(likelihood.values, likelihood.variances), covariates)
            return
        rows = likelihood.take(noisy)
        known = None if covariates is None else covariates[noisy]
        design = Design.of(known, np.ones(len(rows), bool))
        fit_student(self, rows, design)
        self._leave_kurtosis_open()
        self.n_parameters_ = design.matrix.shape[1] * (self.mean is None) + (self.variance is None)
        if self.method == "reml" and self.mean is None and self.variance is None:
            self.restriction_ = self._restriction()
        if self.variance is None and len(rows) == 1:
            self._add_note(ONE_GROUP, True)
        elif self.variance is None and self.variance_[0] == 0:
            self._add_note(NO_SPREAD)

    def _set(
        self, tables: list[MomentTable], ratio: NDArray, scale: NDArray, design: Design
    ) -> list[Profile]:
        """Set the population with these variances: its best mean or coefficients."""
        self.variance_ = ratio * scale
        profiles = together(
            partial(table.profile, float(t)) for table, t in zip(tables, ratio, strict=True)
        )
        self.mean_ = np.array([profile.mean for profile in profiles])
        variance = [0.0 if self.mean is not None else profile.mean_variance for profile in profiles]
        self.mean_variance_ = scale * np.array(variance)
        self._learn_coefficients(design, profiles, scale)
        return profiles

    def _learn_plausible(self, tables: list[MomentTable], design: Design, fitted: NDArray) -> None:
        """Find variances that the messages leave plausible, each with its means.

        Those of columns are independent, so that population k has the k-th of each. A variance that
        is well known changes posteriors by terms of second order, which `NormalPosterior` has in
        closed form.
        """
        if min(table.size - table.n_means for table in tables) < 2:
            return
        noisy = np.array([table.variances.any() for table in tables])
        if not np.any(noisy & self._is_hardly_known()):
            return
        if self.covariance == "spherical":
            found = [plausible_components(tables, float(fitted[0]))] * len(tables)
        else:
            searches = [
                partial(plausible_components, [table], float(near))
                for table, near in zip(tables, fitted, strict=True)
            ]
            for j in np.flatnonzero(~noisy):  # a column without noise shows its own variance
                only = np.array([[self.variance_[j], 1.0]]), np.ones(1)
                searches[j] = partial(lambda points: points, only)
            found = together(searches)
        points, weights = side_by_side(found)
        ratios, scales = points[:, 0], points[:, 1]
        together(partial(table.profile, own) for table, own in zip(tables, ratios.T, strict=True))
        populations = [copy(self) for _ in ratios]
        for one, ratio, scale in zip(populations, ratios, scales, strict=True):
            one._set(tables, ratio, scale, design)
            one.variance_variance_ = np.zeros_like(ratio)
        self._hold_populations(populations, weights)

    def _restriction(self) -> float | None:
        """What integrating the mean out adds to the log-likelihood."""
        covariances = self.mean_variance_[:, None, None]
        if self.slopes_ is not None:
            covariances = self.coefficients_covariance_
        with np.errstate(divide="ignore"):
            value = float(np.linalg.slogdet(2 * np.pi * covariances)[1].sum() / 2)
        return value if np.isfinite(value) else None

    def _fit_reports(self, likelihood: Likelihood) -> None:
        """Maximise the exact marginal likelihood of reports over mean and variance."""
        d = likelihood.n_features
        if self.method not in ("reml", "ml"):
            raise ValueError("method must be 'reml' or 'ml' where a channel randomises reports.")
        if self.covariance == "spherical" and d > 1 and self.variance is None:
            raise ValueError("covariance must be 'diag' where a channel randomises reports.")
        known = [
            np.full(d, np.nan) if value is None else np.broadcast_to(value, d).astype(float)
            for value in (self.mean, self.variance)
        ]
        tables = [likelihood.column(j).compress() for j in range(d)]
        fits = [
            fit_moments(*table, *(float(value[j]) for value in known))
            for j, table in enumerate(tables)
        ]
        self.mean_, self.variance_, self.mean_variance_, self.variance_variance_ = np.array(fits).T
        if self.variance is not None:
            self.variance_ = known[1]
        self._leave_kurtosis_open()
        self.n_parameters_ = d * ((self.mean is None) + (self.variance is None))
        if not all(len(rows) for rows, _ in tables):
            self._add_note("No client has data: the population is unknown.", True)
            return
        if self.variance is None:
            self._note_if_open()
        if self._is_open(likelihood):
            found = [
                plausible_moments(*table, of, fit[:2])
                for table, of, fit in zip(tables, np.transpose(known), fits, strict=True)
            ]
            # in each population mean and variance are known: their sampling variances are zero
            found = [(np.pad(points, ((0, 0), (0, 2))), weights) for points, weights in found]
            self._hold(("mean_", "variance_", "mean_variance_", "variance_variance_"), found)

    def _leave_kurtosis_open(self) -> None:
        """Set moments where the fourth is not known, and the second has its standard error."""
        self.kurtosis_ = np.full(self.variance_.shape, np.inf)
        self.second_moment_ = self.variance_ + np.sqrt(self.variance_variance_)

    def _is_open(self, likelihood: Likelihood) -> bool:
        """Whether reports leave the spread of some column open or, where it is given, the mean.

        With a given spread and noise that was added, the likelihood of the mean is nearly normal,
        and the closed form that of Ozkara et al. (2023), Theorem 2.
        """
        if self.variance is None:
            return bool(self._is_hardly_known().any())
        vague = np.sqrt(self.mean_variance_) > WELL_KNOWN * np.sqrt(self.variance_)
        return bool(np.any(vague)) and not likelihood.adds_noise

    def _check(self) -> None:
        if self.covariance not in ("diag", "spherical"):
            raise ValueError(f"covariance must be 'diag' or 'spherical'; got {self.covariance!r}.")
        if self.method not in ("reml", "ml", "moments", "paule_mandel"):
            raise ValueError(
                f"method must be 'reml', 'ml', 'moments' or 'paule_mandel'; got {self.method!r}."
            )
        for name in ("mean", "variance"):
            value = getattr(self, name)
            if value is not None and not np.isfinite(numbers(value, name)).all():
                raise ValueError(f"{name} must be finite; got {value!r}.")
        if self.variance is not None and np.min(self.variance) < 0:
            raise ValueError(f"variance must not be negative; got {self.variance!r}.")

    def _explain(self, likelihood: Gaussian, tables: list[MomentTable]) -> None:
        """Add a note on what the data do not identify."""
        m = min(table.size for table in tables)
        if m == 0:
            self._add_note("No client has data: the population is unknown.", True)
        elif m == 1 and self.variance is None:
            self._add_note(ONE_GROUP, True)
            if likelihood.scatter is not None and likelihood.degrees == 0:
                self._add_note(ONE_ROW)
        elif likelihood.scatter is not None and likelihood.degrees == 0:
            self.noise_is_unknown_ = True
            self._add_note(UNKNOWN_NOISE, True)
        elif self.variance is None and np.any(self.variance_ == 0):
            self._add_note(NO_SPREAD)

    def _learn_moments(self, likelihood: Gaussian, centre: NDArray) -> None:
        if isinstance(likelihood, SummedGaussian):  # fourth powers are not among the sums
            self._leave_kurtosis_open()
            return
        if likelihood.scatter is not None and self.noise_variance_ is not None:
            likelihood = likelihood.scaled(self.noise_variance_)
        names = "second_moment_", "kurtosis_"
        self._learn_later(names, _moments, likelihood, centre, self.variance_)

    def at(self, covariates: NDArray) -> Self:
        """Return the population ``N(w_i' beta, variance)`` of clients with these covariates."""
        there = copy(self)
        there.mean_, there.mean_variance_ = self._predict(covariates)
        there.covariates_ = np.asarray(covariates, float)
        return there

    def _posterior(
        self, likelihood: Likelihood, own: ArrayLike = 0.0, noise: ArrayLike | None = None
    ) -> Posterior:
        """Conjugate posterior for Gaussian messages, quadrature for others.

        Parameters
        ----------
        likelihood : Likelihood
        own : array-like that broadcasts to (n, d)
            Variance that the channel added to each client's own message when the population was
            fitted; infinite for clients that sent none. See `NormalPosterior`.
        noise : array-like that broadcasts to (n, d), optional
            Noise that the channel added, where a client knows it; NaN where not.
        """
        if isinstance(likelihood, StudentT):
            return StudentPosterior(self, likelihood)
        if not isinstance(likelihood, Gaussian):
            self._check_clients()
            return super()._posterior(likelihood)
        return NormalPosterior(self, likelihood, own, noise)

    @property
    def shares_scale(self) -> bool:
        """Whether a spherical covariance is estimated."""
        return self.covariance == "spherical" and self.variance is None

    @property
    def weighs_own_reports(self) -> bool:
        """Whether a client's exact mean replaces its own message in the fitted mean."""
        return True

    def posterior_of_members(self, likelihood: Likelihood, own: OwnReports) -> Posterior:
        """Weigh by what each client's own message left in the fitted mean."""
        if not isinstance(likelihood, Gaussian):
            return self.posterior(likelihood)
        fitted = self._posterior(likelihood, own.variance, own.error)
        return integrated(self, likelihood, fitted, own.variance, own.error)

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """``log N(x_i; mean, variance + s_i**2)``, summed over coordinates, shape (n,)."""
        check_is_fitted(self, "mean_")
        if not isinstance(likelihood, Gaussian | StudentT):
            self._check_clients()
        if likelihood.support != self.support:
            return super().log_marginal(likelihood)
        return likelihood.marginal(self.mean_, self.variance_)


class NormalPosterior(NormalMarginals):
    """``N(a_i x_i + (1 - a_i) mean_i, g_1 + 2 g_3)``, the population's uncertainty included.

    Let t be the population's variance, v_i that of x_i around theta_i, q_i what the channel added
    to the client's own message, ``h_i`` the weight of that message in the mean, which is by
    precision unless `share` says otherwise: ``Var(mean) / (t + v_i + q_i)``. (With covariates,
    mean_i is ``w_i' beta``, of variance ``Var(mean)_i = w_i' Var(beta) w_i``, and h_i the leverage;
    all else is the same.) Then

        a_i = s_i / (s_i + v_i),   s_i = t + r_i + (Var(mean) - h_i (t + v_i + q_i)) / (1 - h_i),
        g_1 = a_i**2 v_i + (1 - a_i)**2 (1 - h_i) s_i + (1 - a_i**2) h_i v_i,
        g_3 = (1 - a_i)**2 Var(t) / (s_i + v_i).

    A client that knows the noise that the channel added takes it out of the mean (``mean_i = mean -
    h_i noise_i``); then ``r_i = q_i h_i``, and with weights by precision the estimate is the Bayes
    estimate from all messages and its own data. Others use the mean as it is, with ``r_i = q_i h_i
    / (1 - h_i)``. Either a_i is the best weight, and g_1 the expected squared error, exactly
    (Ozkara et al. 2023, Theorem 2, for unequal clients; r_i is 0 for exact messages, Theorem 1, and
    the last term of s_i is Var(mean) for clients that sent none), for the data that a client had
    when the population was fitted. g_3 is what estimating t adds; it counts twice, since g_1 at the
    estimate is too small by as much again (Prasad and Rao, 1990; Datta and Lahiri, 2000).

    Parameters
    ----------
    prior : Normal, fitted
    likelihood : Gaussian
        Likelihood of own data. A variance of 0 returns the value, an infinite one the prior.
    own : array-like that broadcasts to (n, d)
        Variance q_i; infinite for clients that sent no message.
    noise : array-like that broadcasts to (n, d), optional
        Noise that the channel added, NaN where the client does not know it.
    share : array-like that broadcasts to (n, d), optional
        Share h_i, where the mean was not weighted by precision.
    weight : array-like that broadcasts to (n, d), optional
        Weight a_i, where another than the best is wanted.
    """

    def __init__(
        self,
        prior: Normal,
        likelihood: Gaussian,
        own: ArrayLike = 0.0,
        noise: ArrayLike | None = None,
        *,
        share: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ):
        values = likelihood.values
        given: list[Any] = [likelihood.variances, prior.mean_, prior.mean_variance_, own]
        given += [noise, share, weight]
        given = [each if each is None else np.broadcast_to(each, values.shape) for each in given]
        results = [np.empty(values.shape) for _ in range(4)]
        for block in blocks(len(values)):
            some: Any = [each if each is None else each[block] for each in given]
            parts = _shrunk(prior, values[block], *some)
            for result, part in zip(results, parts, strict=True):
                result[block] = part
        self._weight, self.mean, self._own_variance, self.sd = results
        self.weight, self._prior = self._weight, prior

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's parameter, shape (size, n, d).

        The error of the mean, ``(1 - a_i) (mean_i - E mean_i)``, is that of one mean (with
        covariates, of one beta) in each draw. What not knowing t adds is not correlated between
        clients: it is proportional to ``x_i - mean_i``, whose signs differ.
        """
        rng = np.random.default_rng(random_state)
        common = (1 - self._weight) ** 2 * self._prior.mean_variance_
        common = np.minimum(common, self.sd**2)  # with weights that are not the best
        draws = np.sqrt(common) * mean_errors(self._prior, size, rng)
        draws += np.sqrt(self.sd**2 - common) * rng.standard_normal((size, *self.mean.shape))
        return self.mean + draws

    def _robust_ends(self, level: float) -> tuple[NDArray, NDArray]:
        prior = self._prior
        moments = {
            "mean_variance": prior.mean_variance_,
            "second": prior.second_moment_,
            "kurtosis": prior.kurtosis_,
        }
        half = half_widths(self._own_variance, 1 - self._weight, moments, level)
        return self.mean - half, self.mean + half


def _moments(likelihood: Gaussian, centre: NDArray, spread: NDArray) -> NDArray:
    """Second moment of each column and its kurtosis, shape (2, d)."""
    variances = np.broadcast_to(likelihood.variances, likelihood.values.shape)
    moments = []
    deviations = likelihood.values - centre
    for j, (deviation, variance) in enumerate(zip(deviations.T, variances.T, strict=True)):
        has_data = np.isfinite(variance) & (variance > 0)
        if has_data.sum() < 2:
            moments.append((spread[j], 3.0))
            continue
        if not has_data.all():
            deviation, variance = deviation[has_data], variance[has_data]
        moments.append(moments_around(deviation, variance))
    return np.array(moments).T


def _shrunk(
    prior: Normal,
    values: NDArray,
    variance: NDArray,
    mean: NDArray,
    uncertain: NDArray,
    own: NDArray,
    noise: NDArray | None,
    share: NDArray | None,
    weight: NDArray | None,
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Weight, mean, variance of the own estimate's part, and sd; see `NormalPosterior`."""
    t = prior.variance_
    own = np.where(np.isinf(variance), np.inf, own)
    silent = np.isinf(own)
    added = np.where(silent, 0.0, own)
    finite = np.where(np.isinf(variance), 0.0, variance)
    with np.errstate(invalid="ignore", divide="ignore"):
        if share is None:
            share = np.where(silent, 0.0, uncertain / (t + finite + added))
            share = np.clip(np.nan_to_num(share), 0, 1)
            excess = np.where(silent, uncertain, 0.0)
        else:
            share = np.where(silent, 0.0, share)
            excess = uncertain - share * (t + finite + added)
        rest = np.maximum(1 - share, 1e-9)  # 0 for a single client
        known = np.zeros(values.shape, bool)
        if noise is not None:
            known = ~np.isnan(noise) & ~silent
            mean = mean - np.where(known, share * noise, 0.0)
        # [E] Theorem 2
        spread = t + np.where(known, share, share / rest) * added + excess / rest
        # [E] Theorem 1
        best = np.where(variance == 0, 1.0, spread / (spread + variance))
        best = np.where(np.isinf(variance), 0.0, best)
    weight = best if weight is None else np.where(silent, best, weight)
    total = np.where(weight < 1, spread + variance, 1.0)
    more = 2 * (1 - weight) ** 2 * prior.variance_variance_ / total
    own_variance = weight**2 * finite
    between = (1 - weight) ** 2 * rest * spread + (1 - weight**2) * share * finite
    sd = np.sqrt(own_variance + between + more)
    return weight, weight * values + (1 - weight) * mean, own_variance, sd


def fit_moments(
    rows: Likelihood, counts: NDArray, mean: float, variance: float
) -> tuple[float, float, float, float]:
    """Fit mean and variance (each if NaN) to reports on one coordinate.

    Returns
    -------
    mean, variance, and their sampling variances
    """
    if not len(rows):
        return np.nan_to_num(mean), np.nan_to_num(variance), 0.0, 0.0
    free = np.isnan([mean, variance])

    def log_likelihood(point: NDArray) -> float:
        return float(counts @ rows.marginal(point[:1], point[1:]))

    nodes = rows.nodes(100)
    reach = nodes[-1] - nodes[0]
    if not free.any():
        return mean, variance, 0.0, 0.0
    best = np.where(free, [nodes[len(nodes) // 2], (reach / 10) ** 2], [mean, variance])
    means = np.linspace(nodes[0], nodes[-1], 41)[1:-1]
    spreads = np.append(0.0, reach * np.geomspace(1e-3, 0.5, 13)) ** 2
    for j, values in ((0, means), (1, spreads)):  # one after the other: each has one peak
        if free[j]:
            trials = [np.where(np.arange(2) == j, value, best) for value in values]
            best = max(trials, key=log_likelihood)
    # units in which the likelihood is about as curved as that of one client
    unit = np.array([np.sqrt(best[1] + (reach / 30) ** 2), best[1] + (reach / 30) ** 2])
    low = np.array([nodes[0] - reach, 0.0])
    high = np.array([nodes[-1] + reach, reach**2])

    def with_free(point: NDArray) -> float:
        full = best.copy()
        full[free] = point
        return log_likelihood(full)

    errors = np.zeros(2)
    best[free], covariance = maximise(with_free, best[free], low[free], high[free], unit=unit[free])
    errors[free] = np.diag(covariance)
    return float(best[0]), float(best[1]), float(errors[0]), float(errors[1])


def plausible_moments(
    rows: Likelihood, counts: NDArray, known: Sequence[float], fitted: Sequence[float]
) -> tuple[NDArray, NDArray]:
    """Find means and variances that reports leave plausible, (K, 2), and their probabilities.

    The prior is Cauchy's for the mean, around the centre of the reports' range, and half of
    Cauchy's for the standard deviation (Gelman, 2006), times the fifth root of ``variance /
    (variance + scale**2)``, unless one is known. Their scale is a quarter of the width of the
    range. A flat prior would have nearly all its mass beyond the range, where reports are all
    clipped and exclude nothing; without the root, intervals are too narrow where the variance is
    two standard errors or so (500 groups, `Piecewise(4.)`: they cover .92 in place of .95, and .94
    with it). With a larger power they cover more, but estimates are worse than under the fitted
    population where the variance is within one standard error of zero (500 groups, `Hybrid(2.)`: a
    power of .35 adds 3 % to their mean squared error).

    Parameters
    ----------
    rows : Likelihood of n reports on one coordinate
    counts : ndarray of shape (n,)
    known : (float, float)
        Mean and variance, NaN where not known.
    fitted : (float, float)
        Those of greatest likelihood.
    """
    nodes = rows.nodes(100)
    reach, centre = nodes[-1] - nodes[0], (nodes[0] + nodes[-1]) / 2
    scale, unit = reach / 4, reach / 30
    is_open = np.isnan(known)

    def parameters(points: NDArray) -> NDArray:
        means = centre + scale * np.sinh(points[:, 0])
        variances = (unit * np.sinh(points[:, -1])) ** 2
        return np.where(is_open, np.column_stack([means, variances]), known)

    def log_density(points: NDArray) -> NDArray:
        at = parameters(points)
        values = np.array([counts @ rows.marginal(each[:1], each[1:]) for each in at])
        if is_open[0]:
            values -= np.log(np.cosh(points[:, 0]))
        if is_open[1]:
            # a power of the share of the variance, of which `scale` has the other part
            values += np.log(np.cosh(points[:, -1])) - np.log1p(at[:, 1] / scale**2)
            values -= TILT * np.log1p(scale**2 / at[:, 1])
        return values

    spread = max(np.sqrt(fitted[1]) / unit, 0.01)
    start = np.arcsinh([(fitted[0] - centre) / scale, spread])
    points, weights = explore(log_density, start[is_open], np.array([False, True])[is_open])
    return parameters(points), weights


# Under Student-t errors the marginal density of an estimate is a short mixture of normals, with
# derivatives in closed form. The variance t maximises the likelihood with the mean (or
# coefficients) integrated out, to second order: ``l(beta^, t) - log |-l_bb(beta^, t)| / 2``,
# where beta^ is the best for t, and ``l_bb`` has the second derivatives in beta (Cox and Reid,
# 1987): REML of normal errors.

FEW = 2000  # messages that a start is found with
N_POPULATIONS = 12  # plausible ones, of more messages


class Coefficients(NamedTuple):
    """Coefficients of a scaled design and their covariance."""

    coefficients: NDArray
    covariance: NDArray


class Point(NamedTuple):
    """The criterion at a variance t and the best coefficients for it.

    Of the second derivatives there is about minus that in t; `follows` is how beta moves with t,
    and `lack` twice what the likelihood still lacks at these coefficients.
    """

    t: float
    beta: NDArray
    value: float
    slope: float
    curvature: float
    covariance: NDArray
    follows: NDArray
    lack: float


@dataclass(frozen=True)
class Errors:
    """Messages with rows of a design, in units in which the smallest scale is near 1.

    Attributes
    ----------
    rows : StudentT of n clients with data
    design : ndarray of shape (n, p)
    restricted : bool
        Whether the coefficients are integrated out.
    weights : ndarray of shape (n,)
        Clients that each row stands for; negative at some nodes of a lattice.
    typical : float
        Median of the squares of the scales of all clients.
    few : tuple, optional
        Fewer rows that stand for all, and their weights, where `rows` are nodes of a lattice.
    tilt : float
        Of ``tilt log(t + typical)``, which is added where rows stand for more clients than
        themselves, so that the slope is that of all.
    """

    rows: StudentT
    design: NDArray
    restricted: bool
    weights: NDArray
    typical: float
    few: tuple[StudentT, NDArray] | None = None
    tilt: float = 0.0

    @cached_property
    def size(self) -> float:
        """Unit of differences of log-likelihood, which rounding makes larger for many rows."""
        return max(1.0, float(self.weights.sum()) / FEW)

    @cached_property
    def s2(self) -> NDArray:
        """Squares of the scales, shape (n,)."""
        return self.rows.variances[:, 0]

    def nearest(self) -> NDArray:
        """Coefficients by least squares, as if errors were normal."""
        size = np.sqrt(self.s2 / self.weights)
        return np.linalg.lstsq(self.design / size[:, None], self.rows.values[:, 0] / size)[0]

    def thinned(self, size: int) -> Errors:
        """Every so many-th row, in the order of their values, to stand for all; or the few rows."""
        if self.few is not None:
            rows, weights = self.few
            design = np.repeat(self.design[:1], len(rows), axis=0)
            return replace(self, rows=rows, design=design, weights=weights, few=None)
        step = -(-len(self.rows) // size)
        some = np.argsort(self.rows.values[:, 0], kind="stable")[step // 2 :: step]
        weights = np.full(len(some), len(self.rows) / len(some))
        return replace(self, rows=self.rows.take(some), design=self.design[some], weights=weights)

    def at(self, t: float, beta: NDArray, tol: float = 1e-8) -> Point:
        """Climb to the best coefficients for t, until `lack` is below `tol`.

        More clients than `FEW` leave more to rounding.
        """
        best = -np.inf
        step = np.zeros(len(beta))
        for _ in range(100):
            tried = beta + step
            figures = self.rows.derivatives(self.rows.values[:, 0] - self.design @ tried, t)
            value = float(self.weights @ figures[0])
            if value < best - 1e-9 * (1 + abs(best)) and np.abs(step).max(initial=0.0) > 0:
                step = step / 4
                continue
            beta, best = tried, value
            one, two, _, _, precision = figures[1:]
            weighted = self.design.T * self.weights
            slope = weighted @ one
            bend = (weighted * (one**2 - two)) @ self.design
            safe = (weighted * precision) @ self.design  # of reweighted least squares
            is_peak = np.linalg.eigvalsh(bend).min(initial=np.inf) > 1e-3 * np.linalg.norm(safe)
            step = np.linalg.solve(bend if is_peak else safe, slope)
            if slope @ step < tol * self.size:
                break
        return self._point(t, beta, best, figures, bend if is_peak else safe, step)

    def _point(
        self,
        t: float,
        beta: NDArray,
        value: float,
        figures: NDArray,
        bend: NDArray,
        step: NDArray,
    ) -> Point:
        """Slope and curvature in t, where beta follows it; `step` is what beta still lacks."""
        one, two, three, four = figures[1:5]
        design, weights, inverse = self.design, self.weights, np.linalg.inv(bend)
        by_both = 0.5 * design.T @ (weights * (three - one * two))
        follows = inverse @ by_both  # how beta moves with t
        slope = 0.5 * float(weights @ two) + float(by_both @ step)
        curvature = 0.25 * weights @ (two**2 - four) - by_both @ follows
        if self.restricted:
            # of the information: a direct change with t, and that by way of beta
            direct = 0.5 * (four - two**2) - one * three + one**2 * two
            turn = (three - 3 * one * two + 2 * one**3) * (design @ follows)
            leverage = ((design @ inverse) * design).sum(axis=1) * weights
            slope += 0.5 * float(leverage @ (direct + turn))
            value -= 0.5 * float(np.linalg.slogdet(bend)[1])
        if not curvature > 0:  # that of normal errors
            curvature = 0.5 * float(weights @ figures[5] ** 2)
        far = t + self.typical
        value += self.tilt * np.log(far)
        slope += self.tilt / far
        lack = float(step @ bend @ step)
        return Point(t, beta + step, value, slope, curvature, inverse, follows, lack)

    def scan(self) -> Point:
        """Peaks of the criterion over a wide range of variances."""
        beta, s2 = self.nearest(), self.s2
        furthest = float(((self.rows.values[:, 0] - self.design @ beta) ** 2).max(initial=0.0))
        low = 0.01 * float(s2.min())
        steps = int(np.ceil(np.log2(max(4 * furthest / low, 4)) / 2))
        trials = []
        for t in [*(low * 4.0 ** np.arange(steps, -1, -1)), 0.0]:
            trials.append(self.at(t, beta))
            beta = trials[-1].beta
        best = max(trials, key=lambda point: point.value)
        return self.climb(best)

    def climb(self, start: Point) -> Point:
        """Newton steps in t to where the slope is zero, or to t = 0 where it is not positive."""
        here, low, high = start, 0.0, np.inf
        tiny = 1e-9 * self.typical
        for _ in range(100):
            if here.slope > 0:
                low = here.t
            elif here.t == 0:
                return here
            else:
                high = here.t
            step = here.slope / here.curvature
            t = here.t + step
            is_near = abs(step) < max(1e-4 * here.t, tiny) and here.lack < 1e-8 * self.size
            if is_near:  # a further step would be of the square of this
                return here._replace(t=max(t, 0.0), beta=here.beta + here.follows * step)
            if not low < t < high or t > 10 * here.t + 10 * self.typical:
                if np.isinf(high):
                    t = min(t, 10 * here.t + 10 * self.typical)
                else:
                    t = low / 2 + high / 2 if low > 0 else high / 10
            if t < tiny:
                zero = self.at(0.0, here.beta)
                if zero.slope <= 0:
                    return zero
                t = tiny if here.t > 2 * tiny else 10 * tiny
            here = self.at(t, here.beta + here.follows * (t - here.t), 1.0)
        return here


def fit_student(prior: Any, likelihood: StudentT, design: Design) -> None:
    """Fit mean (or coefficients) and variance of a normal population.

    Parameters
    ----------
    prior : Normal
        Its `mean` and `variance` are known where they are not None.
    likelihood : StudentT of n clients
        All have data.
    design : Design of the clients
    """
    unit = float(2.0 ** (np.frexp(np.sqrt(likelihood.variances.min()))[1] - 1))
    typical = float(np.median(likelihood.variances)) / unit**2
    centre = 0.0 if prior.mean is None else float(np.ravel(prior.mean)[0])
    few = None
    if not design.has_covariates and likelihood.lattice is not None:
        few = _in_units(*likelihood.condensed(np.ones(len(likelihood))), centre, unit)
        likelihood, weights = likelihood.summed()
    else:
        weights = np.ones(len(likelihood))
    matrix = np.ones((len(likelihood), int(prior.mean is None)))
    matrix = design.matrix if design.has_covariates else matrix
    rows, weights, matrix = _in_units(likelihood, weights, centre, unit, matrix)
    whole = Errors(rows, matrix, prior.method == "reml", weights, typical, few)
    learned = prior.variance is None and weights.sum() > max(matrix.shape[1], 1)
    if learned:
        found = whole.thinned(FEW).scan()
        for size in (10 * FEW, len(rows)):
            if FEW < size <= len(rows):
                some = whole.thinned(size) if size < len(rows) else whole
                found = some.climb(some.at(found.t, found.beta, 10.0))
    else:
        t = 0.0 if prior.variance is None else float(np.ravel(prior.variance)[0]) / unit**2
        found = whole.at(t, whole.thinned(FEW).nearest())

    def take(one: Any, point: Point) -> None:
        """Give a population the figures of a point, in the units of the messages."""
        first = unit * point.beta[0] if len(point.beta) else 0.0
        variance = unit**2 * point.covariance[0, 0] if len(point.beta) else 0.0
        one.mean_, one.mean_variance_ = np.array([centre + first]), np.array([variance])
        one.variance_ = np.array([unit**2 * point.t])
        profile = Coefficients(unit * point.beta, unit**2 * point.covariance)
        one._learn_coefficients(design, [profile], np.ones(1))

    take(prior, found)
    error = unit**4 / found.curvature if learned else 0.0
    prior.variance_variance_ = np.array([error])
    if learned and prior._is_hardly_known().any() and len(rows) >= matrix.shape[1] + 2:
        _learn_plausible(prior, whole, found, take)


def _in_units(
    rows: StudentT, weights: NDArray, centre: float, unit: float, matrix: NDArray | None = None
) -> Any:
    """Rows less a centre, in a unit, with their weights and rows of a matrix, if that is given.

    Nodes of equal degrees of freedom are the same, and computed once for neighbours.
    """
    order = np.argsort(rows.degrees, kind="stable")
    rows, weights = rows.take(order), weights[order]
    rows = StudentT((rows.values - centre) / unit, rows.variances / unit**2, rows.degrees)
    return (rows, weights) if matrix is None else (rows, weights, matrix[order])


def _learn_plausible(
    prior: Any, whole: Errors, found: Point, take: Callable[[Any, Point], None]
) -> None:
    """Find variances that the messages leave plausible, each with its coefficients.

    The prior is that of `variance_components.plausible_components`. Of many messages some stand for
    all, with the slope of all (Jordan, Lee, Yang 2019).
    """
    some = whole
    if len(whole.rows) > FEW:
        some = whole.thinned(FEW)
        lacking = found.slope - some.at(found.t, found.beta).slope
        tilt = lacking * (found.t + some.typical)
        some = replace(some, tilt=tilt)
    typical = float(np.sqrt(whole.typical))
    known: dict[float, Point] = {}

    def log_density(points: NDArray) -> NDArray:
        heights = np.empty(len(points))
        for i in np.argsort(points[:, 0]):
            t = (typical * float(np.sinh(points[i, 0]))) ** 2
            nearest = min(known, key=lambda at: abs(at - t), default=None)
            start = found.beta if nearest is None else known[nearest].beta
            known[t] = some.at(t, start)
            heights[i] = known[t].value
        at = points[:, 0]
        return heights + np.log(np.cosh(at)) + 2 * TILT * np.log(np.tanh(at))

    start = max(float(np.arcsinh(np.sqrt(found.t) / typical)), 0.1)
    points, weights = explore(log_density, [start], positive=True)
    if len(whole.rows) > FEW:
        points, weights = thinned(points, weights, N_POPULATIONS)
    populations = []
    for at in points[:, 0]:
        t = (typical * float(np.sinh(at))) ** 2
        one = copy(prior)
        take(one, known[t] if some is whole else found._replace(t=t))
        one.variance_variance_ = np.zeros(1)
        populations.append(one)
    prior._hold_populations(populations, weights[:, None])


class StudentPosterior(MixturePosterior):
    r"""Posterior of a normal population ``N(mean_i, t)`` under t errors: a mixture of normals.

    An error that is normal of variance v has the posterior of normal errors, with the weight ``a =
    t / (t + v)`` of the estimate and the variance

    .. math:: a v + (1 - a)^2 (Var(mean_i) + 2 Var(t) / (t + v)),

    whose last terms are what is not known of the population (`normal.NormalPosterior`). The
    posterior averages over v, with the weights that the estimate leaves plausible: an outlier is
    either that of its error or of its parameter, so that a posterior can have two peaks.

    Parameters
    ----------
    prior : Normal, fitted
    likelihood : StudentT of n clients
    """

    _has_points = False
    likelihood: Any

    def __init__(self, prior: Any, likelihood: StudentT):
        self._prior, self.likelihood, self.n_components = prior, likelihood, N_NORMALS
        t, doubt = float(prior.variance_[0]), float(prior.variance_variance_[0])
        mean, error = (
            np.broadcast_to(each, (len(likelihood), 1))[:, 0]
            for each in (prior.mean_, prior.mean_variance_)
        )
        x, s2 = likelihood.values[:, 0], likelihood.variances[:, 0]
        has_data, noisy = np.isfinite(s2), np.isfinite(s2) & (s2 > 0)
        away = np.where(has_data, x - mean, 0.0)
        order = np.argsort(likelihood.degrees, kind="stable")
        errors = np.where(noisy, s2, 1.0)[order], likelihood.degrees[order]
        sizes = student_sizes(away[order], *errors, t, t)
        moments = np.empty((2, len(x)))
        moments[:, order] = student_moments(away[order], *errors, sizes, t, error[order], doubt)
        shift, variance = moments
        estimate = np.where(noisy, mean + shift, np.where(has_data, x, mean))
        spread = np.where(has_data, 0.0, t + error)
        self.mean = estimate[:, None]
        self.sd = np.sqrt(np.where(noisy, variance, spread))[:, None]

    def _blocks(self) -> Iterator[Components]:
        return (components for components, _ in self._pairs())

    def _pairs(self) -> Iterator[tuple[Components, NDArray]]:
        """Components and shares ``1 - a`` of the mean, a block of clients at a time."""
        likelihood, n = self.likelihood, len(self.likelihood)
        edges = np.linspace(0, n, 2 + n * self.n_components // 200_000).astype(int)
        mean = np.broadcast_to(self._prior.mean_, (n, 1))[:, 0]
        error = np.broadcast_to(self._prior.mean_variance_, (n, 1))[:, 0]
        for first, last in pairwise(edges):
            block = slice(int(first), int(last))
            yield self._parts(likelihood.take(block), mean[block], error[block])

    def _parts(
        self, likelihood: StudentT, mean: NDArray, error: NDArray
    ) -> tuple[Components, NDArray]:
        prior = self._prior
        t, doubt = float(prior.variance_[0]), float(prior.variance_variance_[0])
        x, s2 = likelihood.values[:, 0], likelihood.variances[:, 0]
        has_data, exact = np.isfinite(s2), s2 == 0
        noisy = has_data & ~exact
        away = np.where(has_data, x - mean, 0.0)
        s2 = np.where(noisy, s2, 1.0)
        logs, noise = likelihood.normals(np.where(noisy, away, 0.0), s2, t, t)
        total = t + noise
        logs = logs - 0.5 * (np.log(total) + away**2 / total)
        logs -= logs.max(axis=0)
        weights = np.exp(logs, out=logs)
        weights /= weights.sum(axis=0)
        weights[weights < NOTHING] = 0.0
        rest = noise / total
        spread = rest * t + rest**2 * (error + 2 * doubt / total)
        anchors = mean + (1 - rest) * away
        for own, scale2, share, part in (
            (~has_data, t + error, 1.0, mean),
            (exact, np.zeros(len(x)), 0.0, x),
        ):
            if own.any():
                spread[:, own], rest[:, own] = scale2[own], share
                anchors[:, own] = part[own]
                weights[:, own] = np.arange(len(weights))[:, None] == 0
        starts, sides = np.zeros_like(weights), np.zeros(len(weights), np.int64)
        return Components(weights, anchors, np.sqrt(spread), starts, sides), rest

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's parameter, shape (size, n, 1).

        The error of the mean is that of one mean in each draw (with covariates, of one beta).
        """
        rng = np.random.default_rng(random_state)
        shared = mean_errors(self._prior, size, rng)[:, :, 0]
        variance = np.broadcast_to(self._prior.mean_variance_, self.mean.shape)[:, 0]
        draws, first = [], 0
        for block, rest in self._pairs():
            last = first + rest.shape[1]
            picked = block.pick(size, rng)
            anchor, scale, own = (
                np.take_along_axis(each, picked, axis=0)
                for each in (block.anchors, block.scales, rest)
            )
            common = own**2 * variance[first:last]
            error = shared if shared.shape[1] == 1 else shared[:, first:last]
            noise = np.sqrt(np.maximum(scale**2 - common, 0.0))
            noise = noise * rng.standard_normal(picked.shape)
            draws.append(anchor + np.sqrt(common) * error + noise)
            first = last
        return np.concatenate(draws, axis=1)[:, :, None]


# Estimates that are correlated, as those of one regression are: with ``x ~ N(theta, V)`` and
# ``theta ~ N(W beta, t I)`` the eigenvectors U of V turn everything into independent rows: ``U'x
# ~ N(U'theta, diag(l))`` and ``U'theta ~ N(U'W beta, t I)``. So `RegressionTable` fits t, without
# a column of ones.


class CorrelatedPosterior(NormalMarginals):
    """Normal posterior of all parameters together, the population's uncertainty included.

    With ``A = t (t I + V)^-1`` and ``D = I - A``, the mean is ``A x + D W beta`` and the covariance

        A V  +  D W Cov(beta) W' D'  +  2 Var(t) D (t I + V)^-1 D',

    which for a diagonal V are the figures of `NormalPosterior`: the last term is what not knowing t
    adds, and counts twice (Prasad and Rao, 1990).

    Parameters
    ----------
    values : ndarray of shape (n,)
        Estimates x.
    centre : ndarray of shape (n,)
        Means ``W beta``.
    eigenvalues : ndarray of shape (n,)
        Eigenvalues of V, all positive.
    axes : ndarray of shape (n, n)
        Eigenvectors of V.
    variance, doubt : float
        Variance t, which may be infinite, and ``Var(t)``.
    root : ndarray of shape (n, p)
        Root ``W Cov(beta)**(1/2)``.

    Attributes
    ----------
    covariance : ndarray of shape (n, n)
    weight : ndarray of shape (n, 1)
        Diagonal of A: the weight of an estimate in its own posterior mean.
    """

    def __init__(
        self,
        values: NDArray,
        centre: NDArray,
        eigenvalues: NDArray,
        axes: NDArray,
        variance: float,
        doubt: float,
        root: NDArray,
    ):
        total = variance + eigenvalues
        own = variance / total if variance < np.inf else np.ones_like(total)
        away = eigenvalues / total
        self._axes = axes
        self._spread = own * eigenvalues + 2 * doubt * away**2 / total
        self._common = axes @ (away[:, None] * (axes.T @ root))
        self.mean = (centre + axes @ (own * (axes.T @ (values - centre))))[:, None]
        self.weight = (axes**2 @ own)[:, None]
        variances = axes**2 @ self._spread + (self._common**2).sum(axis=1)
        self.sd = np.sqrt(variances)[:, None]

    @property
    def covariance(self) -> NDArray:
        """Posterior covariance of the parameters, shape (n, n)."""
        return (self._axes * self._spread) @ self._axes.T + self._common @ self._common.T

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` vectors of all parameters, shape (size, n, 1)."""
        loadings = np.hstack([self._axes * np.sqrt(self._spread), self._common])
        noise = np.random.default_rng(random_state).standard_normal((size, loadings.shape[1]))
        return (self.mean[:, 0] + noise @ loadings.T)[:, :, None]

    def _robust_ends(self, level: float) -> tuple[NDArray, NDArray]:
        raise ValueError(
            "robust intervals are for estimates that are not correlated: give standard errors in "
            "place of a covariance."
        )


class IntegratedJointly(IntegratedPosterior):
    """Posterior of all parameters together, whose population is one of several."""

    @property
    def covariance(self) -> NDArray:
        """Posterior covariance of the parameters, shape (n, n)."""
        parts, weights = self._mixture
        centre = self.expectation[:, 0]
        total = np.zeros((len(centre), len(centre)))
        for part, weight in zip(parts, weights[:, 0, 0], strict=True):
            assert isinstance(part, CorrelatedPosterior)
            away = part.mean[:, 0] - centre
            total += weight * (part.covariance + np.outer(away, away))
        return total


def shrink_jointly(
    prior: Normal,
    values: NDArray,
    covariance: NDArray,
    covariates: NDArray | None = None,
    integrate: bool = True,
) -> Posterior:
    """Fit a normal population to correlated estimates, and shrink these.

    Parameters
    ----------
    prior : Normal
        Population with the settings of its fit; it is fitted in place, unless it is of another fit
        and reused.
    values : ndarray of shape (n,)
    covariance : ndarray of shape (n, n)
        Covariance of the values, symmetric and positive definite.
    covariates : ndarray of shape (n, k), optional
    integrate : bool
        Whether what is not known of the population is part of standard deviations, intervals and
        draws, as in `Prior.posterior`.

    Returns
    -------
    CorrelatedPosterior or IntegratedJointly

    Raises
    ------
    ValueError
        If `prior` has a mean of its own besides covariates.

    Examples
    --------
    Three contrasts with one reference, each level with an error variance of 1:

    >>> prior, V = Normal(variance=3.0), np.eye(3) + 1
    >>> shrink_jointly(prior, np.array([0.0, 2.0, 4.0]), V).mean.ravel()
    array([0.5, 2. , 3.5])
    >>> prior.mean_, prior.mean_variance_.round(2)
    (array([2.]), array([2.33]))
    """
    along = np.linalg.eigh(covariance)
    if not prior.is_reused_:
        _fit_jointly(prior, values, covariance, covariates, *along)
    rows = np.ones((len(values), 1))
    if covariates is not None:
        rows = np.hstack([rows, covariates - prior.covariates_mean_])

    def under(one: Normal) -> CorrelatedPosterior:
        beta, doubt = one.mean_, one.mean_variance_[:, None] * integrate
        if one.slopes_ is not None:
            beta = np.append(one.predictor_, one.slopes_)
            doubt = one.coefficients_covariance_[0] * integrate
        t, spread = float(one.variance_[0]), float(one.variance_variance_[0]) * integrate
        if prior.is_reused_:  # these estimates say something of coefficients too
            total = covariance + t * np.eye(len(values)) + rows @ doubt @ rows.T
            gain = np.linalg.solve(total, rows @ doubt).T
            centre = rows @ (beta + gain @ (values - rows @ beta))
            root = rows @ root_of(doubt - gain @ rows @ doubt)
        else:
            centre = rows @ beta
            root = rows @ np.linalg.cholesky(doubt) if doubt.any() else rows[:, :0]
        return CorrelatedPosterior(values, centre, *along, t, spread, root)

    fitted = under(prior)
    if integrate and prior.spread_is_unknown_:  # what the estimates say, no more
        alone = CorrelatedPosterior(values, values, *along, np.inf, 0.0, rows[:, :0])
        return IntegratedJointly(fitted, lambda: ([alone], np.ones((1, 1, 1))))
    if not integrate or prior.plausible_ is None:
        return fitted
    populations, weights = prior.populations()
    return IntegratedJointly(
        fitted, lambda: ([under(one) for one in populations], weights[:, None, :])
    )


def _fit_jointly(
    prior: Normal,
    values: NDArray,
    covariance: NDArray,
    covariates: NDArray | None,
    eigenvalues: NDArray,
    axes: NDArray,
) -> None:
    """Fit a normal population to estimates along the eigenvectors of their covariance."""
    prior._check()
    if covariates is not None and prior.mean is not None:
        raise ValueError("mean must be None with covariates, on which the mean depends.")
    prior.notes_, prior.noise_variance_, prior.slopes_ = [], None, None
    prior.plausible_ = None
    n = len(values)
    design = Design.of(covariates, np.ones(n, bool))
    shift = float(values.mean() if prior.mean is None else np.ravel(prior.mean)[0])
    rows = (eigenvalues, np.ones(n), axes.T @ (values - shift), np.zeros(n), None, 0)
    if prior.mean is None:
        table: MomentTable = RegressionTable(*rows, matrix=axes.T @ design.matrix, shift=shift)
    else:
        table = MomentTable(*rows, fixed_mean=0.0)
    prior._fit_tables([table], design)
    prior._leave_kurtosis_open()
    if prior.mean is not None:
        prior.mean_ = prior.mean_ + shift
        if prior.plausible_ is not None:
            prior.plausible_["mean_"] += shift
    prior._explain(Gaussian(values[:, None], np.diag(covariance)[:, None]), [table])
    prior.n_seen_ = n
    prior.spread_is_unknown_ = prior.estimates_spread and n < FEWEST
