"""Normal population: the random-effects model."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.blocks import blocks
from ebfed.kernels import shrink
from ebfed.likelihoods import Gaussian, Joined, Likelihood, StudentT
from ebfed.priors.base import WELL_KNOWN, OwnReports, Prior
from ebfed.priors.exploration import side_by_side
from ebfed.priors.identification import NO_SPREAD, ONE_GROUP, ONE_ROW, UNKNOWN_NOISE
from ebfed.priors.integrated import integrated
from ebfed.priors.posterior import NormalMarginals, Posterior, mean_errors
from ebfed.priors.regression import Design, WithCovariates, table_of
from ebfed.priors.reported_moments import fit_moments, plausible_moments
from ebfed.priors.robust import half_widths, moments_around
from ebfed.priors.search import together
from ebfed.priors.student_normal import StudentPosterior, fit_student
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

__all__ = ["Normal", "NormalPosterior"]


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
        away = theta - self.mean_[..., None, :]  # of each client, where there are covariates
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.log(2 * np.pi * self.variance_) + away**2 / self.variance_
        return -0.5 * terms.sum(axis=-1)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
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
                information(table, profile, self.method, float(t))
                for table, profile, t in zip(tables, profiles, ratio, strict=True)
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
        shape, none = likelihood.values.shape, np.nan
        given: list[Any] = [likelihood.values, likelihood.variances, prior.mean_]
        given += [prior.mean_variance_, own]
        given += [none if each is None else each for each in (noise, share, weight)]
        given += [prior.variance_, prior.variance_variance_]
        given = [np.broadcast_to(np.asarray(each, float), shape) for each in given]
        # Exact messages:
        # [E] Theorem 1
        # Noisy ones:
        # [E] Theorem 2
        results = [np.empty(shape) for _ in range(4)]
        for block in blocks(shape[0]):
            shrink(*(each[block].ravel() for each in given + results))
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
