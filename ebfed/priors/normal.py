"""Normal population: the random-effects model."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.likelihoods import Gaussian, Likelihood
from ebfed.priors import robust
from ebfed.priors.base import UNKNOWN_NOISE, Prior
from ebfed.priors.posterior import Posterior
from ebfed.priors.variance_components import Table, fit_components

__all__ = ["Normal"]


class Normal(Prior):
    """Population ``theta ~ N(mean, diag(variance))``.

    Fitted to Gaussian messages ``x_i ~ N(theta_i, s_i**2)`` by restricted maximum likelihood, with
    ``v_i = variance + s_i**2``, minimising

        sum_i [log v_i + (x_i - mean)**2 / v_i] + log sum_i 1 / v_i,

    and jointly over the noise variance where that is unknown (then ``s_i**2 = noise / n_i``). The
    criterion is profiled to one dimension, scanned, and its derivative solved, so that the answer
    is the global optimum; a variance of zero is a normal answer.

    Parameters
    ----------
    mean : array-like of shape (d,) or float, optional
        Known mean; estimated by precision weighting if None.
    variance : array-like of shape (d,) or float, optional
        Known variance; estimated if None.
    covariance : {"diag", "spherical"}
        Whether each column has its own variances or all share one.
    method : {"reml", "ml", "moments"}
        ``"moments"`` is the unbiased ANOVA (DerSimonian-Laird) estimate cut at zero.

    Attributes
    ----------
    mean_, variance_ : ndarray of shape (d,)
    mean_variance_, variance_variance_ : ndarray of shape (d,)
        Sampling variances of `mean_` and `variance_`, 0 if given.
    noise_variance_ : ndarray of shape (d,) or None
    kurtosis_, second_moment_ : ndarray of shape (d,)
        Moments of the population for robust intervals.

    References
    ----------
    Patterson and Thompson (1971); Ozkara, Girgis, Data, Diggavi (2023), Theorem 1.

    Examples
    --------
    >>> messages = Gaussian(np.array([[0.0], [2.0], [4.0]]), np.full((3, 1), 1.0))
    >>> prior = Normal().fit(messages)
    >>> prior.mean_, prior.variance_
    (array([2.]), array([3.]))
    >>> prior.posterior(messages).mean.ravel()
    array([0.5, 2. , 3.5])
    """

    max_features: ClassVar[float] = np.inf

    def __init__(
        self,
        mean: ArrayLike | None = None,
        variance: ArrayLike | None = None,
        *,
        covariance: Literal["diag", "spherical"] = "diag",
        method: Literal["reml", "ml", "moments"] = "reml",
    ):
        self.mean = mean
        self.variance = variance
        self.covariance = covariance
        self.method = method

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, d), shape (k,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.log(2 * np.pi * self.variance_) + (theta - self.mean_) ** 2 / self.variance_
        return -0.5 * terms.sum(axis=1)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population, shape (size, d)."""
        noise = np.random.default_rng(random_state).standard_normal((size, len(self.mean_)))
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
        self._check()
        if self.variance is not None:
            likelihood = self._settled(likelihood)
        if isinstance(likelihood, Gaussian):
            self._fit_messages(likelihood)
        else:
            super()._fit(likelihood)

    def _fit_messages(self, likelihood: Gaussian) -> None:
        d = likelihood.n_features
        noisy = np.ones(d, bool)  # where the scale of the variances is open and not zero
        if likelihood.scatter is not None:
            noisy = likelihood.scatter > 0
            if self.covariance == "spherical":
                noisy[:] = noisy.any()
        tables = [Table.of(likelihood, j, noisy[j]) for j in range(d)]
        if self.mean is not None:
            for table, mean in zip(tables, np.broadcast_to(self.mean, d), strict=True):
                table.fixed_mean = float(mean)
        ratio, scale = np.ones(d), np.ones(d)
        if self.variance is not None:
            ratio[:] = self.variance
        elif self.covariance == "spherical":
            ratio[:], scale[:] = fit_components(tables, self.method)
        else:
            for j, table in enumerate(tables):
                ratio[j], scale[j] = fit_components([table], self.method)
        self.variance_ = ratio * scale
        if likelihood.scatter is not None:
            self.noise_variance_ = np.where(noisy, scale, 0.0)
        profiles = [table.profile(t) for table, t in zip(tables, ratio, strict=True)]
        self.mean_ = np.array([profile.mean for profile in profiles])
        self.mean_variance_ = scale * np.array(
            [
                0.0 if table.fixed_mean is not None else 1 / profile.weight
                for table, profile in zip(tables, profiles, strict=True)
            ]
        )
        information = np.array([profile.information for profile in profiles])
        if self.covariance == "spherical":
            information[:] = information.sum()
        learned = self.variance is None and min(table.size for table in tables) > 1
        self.variance_variance_ = scale**2 / information if learned else np.zeros(d)
        n_variances = 1 if self.covariance == "spherical" else d
        self.n_parameters_ = d * (self.mean is None) + n_variances * (self.variance is None)
        self._explain(likelihood, tables)
        self._learn_moments(likelihood)

    def _check(self) -> None:
        if self.covariance not in ("diag", "spherical"):
            raise ValueError(f"covariance must be 'diag' or 'spherical'; {self.covariance!r} came.")
        if self.method not in ("reml", "ml", "moments"):
            raise ValueError(f"method must be 'reml', 'ml' or 'moments'; {self.method!r} came.")
        for name in ("mean", "variance"):
            value = getattr(self, name)
            if value is not None and not np.isfinite(value).all():
                raise ValueError(f"{name} must be finite; {value!r} came.")
        if self.variance is not None and np.min(self.variance) < 0:
            raise ValueError(f"variance must not be negative; {self.variance!r} came.")

    def _explain(self, likelihood: Gaussian, tables: list[Table]) -> None:
        """Say in a sentence what the data could not tell."""
        m = min(table.size for table in tables)
        if m == 0:
            self._say("No client has data: the population is unknown.", True)
        elif m == 1 and self.variance is None:
            self._say(
                "Only one group has data: the spread of the population is not identified and taken "
                "to be zero.",
                True,
            )
        elif likelihood.scatter is not None and likelihood.degrees == 0:
            self._say(UNKNOWN_NOISE, True)
        elif self.variance is None and np.any(self.variance_ == 0):
            self._say(
                "Estimated variance between groups is zero: groups differ no more than their noise "
                "explains, and every estimate is the population mean."
            )

    def _learn_moments(self, likelihood: Gaussian) -> None:
        if likelihood.scatter is not None and self.noise_variance_ is not None:
            likelihood = likelihood.scaled(self.noise_variance_)
        variances = np.broadcast_to(likelihood.variances, likelihood.values.shape)
        moments = []
        for j, (value, variance) in enumerate(zip(likelihood.values.T, variances.T, strict=True)):
            told = np.isfinite(variance) & (variance > 0)
            if told.sum() < 2:
                moments.append((self.variance_[j], 3.0))
                continue
            if not told.all():
                value, variance = value[told], variance[told]
            unit = variance.max()  # keeps fourth powers within range
            second, kurtosis = robust.gaussian_moments(
                (value - self.mean_[j]) / np.sqrt(unit), variance / unit, margin=1.0
            )
            moments.append((unit * second, kurtosis))
        self.second_moment_, self.kurtosis_ = np.array(moments).T

    def posterior(self, likelihood: Likelihood) -> Posterior:
        """Conjugate posterior for Gaussian messages, quadrature for others."""
        check_is_fitted(self, "mean_")
        if not isinstance(likelihood, Gaussian):
            return super().posterior(likelihood)
        return NormalPosterior(self, likelihood)

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """``log N(x_i; mean, variance + s_i**2)``, summed over coordinates, shape (n,)."""
        check_is_fitted(self, "mean_")
        if not isinstance(likelihood, Gaussian):
            return super().log_marginal(likelihood)
        total = likelihood.variances + self.variance_
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.log(2 * np.pi * total) + (likelihood.values - self.mean_) ** 2 / total
        # a variance of zero met exactly: infinite density
        terms = np.where(np.isnan(terms), -np.inf, terms)
        return -0.5 * np.where(np.isinf(total), 0.0, terms).sum(axis=1)


class NormalPosterior(Posterior):
    """``N(a_i x_i + (1 - a_i) mean, g_1 + g_2 + 2 g_3)``, the population's uncertainty included.

    With ``v_i = variance + s_i**2`` and ``a_i = variance / v_i``,

        g_1 = (1 - a_i) variance,   g_2 = (1 - a_i)**2 Var(mean),
        g_3 = (1 - a_i)**2 Var(variance) / v_i.

    The first is the posterior variance if the population were known, the second what estimating
    its mean adds: together they are the expected squared error of Theorem 1, ``d noise/n ((1 - a)/m
    + a)``, exactly. The third is what estimating its variance adds; it counts twice, since ``g_1``
    at the estimate is too small by as much again (Prasad and Rao, 1990; Datta and Lahiri, 2000).

    Parameters
    ----------
    prior : Normal, fitted
    likelihood : Gaussian
        A variance of 0 gives back the value, an infinite one the prior.
    """

    def __init__(self, prior: Normal, likelihood: Gaussian):
        values = likelihood.values
        noise = np.broadcast_to(likelihood.variances, values.shape)
        with np.errstate(invalid="ignore"):
            weight = np.where(noise == 0, 1.0, prior.variance_ / (prior.variance_ + noise))
        self.weight = self._weight = weight
        self.mean = weight * values + (1 - weight) * prior.mean_
        total = np.where(weight < 1, prior.variance_ + noise, 1.0)
        uncertain = prior.mean_variance_ + 2 * prior.variance_variance_ / total
        self.sd = np.sqrt((1 - weight) * prior.variance_ + (1 - weight) ** 2 * uncertain)
        # weight**2 * noise without 0 * inf
        self._own_variance = weight * (1 - weight) * prior.variance_
        self._prior = prior

    def _quantile(self, q: float) -> NDArray:
        from scipy.special import ndtri

        with np.errstate(invalid="ignore"):  # infinity times an sd of zero
            return np.where(self.sd > 0, self.mean + ndtri(q) * self.sd, self.mean)

    def prob_below(self, threshold: float) -> NDArray:
        """Probability that a coordinate is at most `threshold`, shape (n, d)."""
        from scipy.special import ndtr

        with np.errstate(divide="ignore", invalid="ignore"):
            z = (threshold - self.mean) / self.sd
        return np.where(self.sd > 0, ndtr(z), self.mean <= threshold)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's parameter, shape (size, n, d)."""
        rng = np.random.default_rng(random_state)
        return self.mean + self.sd * rng.standard_normal((size, *self.mean.shape))

    def _robust_half_width(self, level: float) -> NDArray:
        """``s * cva((1 - a)**2 mu_2 / s**2, kappa)``; s**2 the variance of the estimate."""
        prior, away = self._prior, 1 - self._weight
        bias = away**2 * prior.second_moment_
        # the floor keeps m2 finite where the estimate is all prior mean
        variance = np.maximum(self._own_variance + away**2 * prior.mean_variance_, 1e-6 * bias)
        ratio = np.divide(bias, variance, out=np.zeros_like(bias), where=variance > 0)
        critical = [
            robust.gaussian_critical_value(column, kurtosis, level)
            for column, kurtosis in zip(ratio.T, prior.kurtosis_, strict=True)
        ]
        return np.sqrt(variance) * np.stack(critical, axis=1)
