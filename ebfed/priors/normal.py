"""Normal population: the random-effects model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.likelihoods import Gaussian, Likelihood
from ebfed.priors import robust
from ebfed.priors.base import UNKNOWN_NOISE, Prior
from ebfed.priors.posterior import Posterior
from ebfed.priors.scan import minimise

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
    mean_variance_ : ndarray of shape (d,)
        Sampling variance of `mean_`, 0 if it was given.
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
        self.mean_variance_ = np.zeros(1)
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
        tables = [_Table.of(likelihood, j, noisy[j]) for j in range(d)]
        if self.mean is not None:
            for table, mean in zip(tables, np.broadcast_to(self.mean, d), strict=True):
                table.fixed_mean = float(mean)
        ratio, scale = np.ones(d), np.ones(d)
        if self.variance is not None:
            ratio[:] = self.variance
        elif self.covariance == "spherical":
            ratio[:], scale[:] = _components(tables, self.method)
        else:
            for j, table in enumerate(tables):
                ratio[j], scale[j] = _components([table], self.method)
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

    def _explain(self, likelihood: Gaussian, tables: list[_Table]) -> None:
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
            else:
                unit = variance[told].max()  # keeps fourth powers within range
                second, kurtosis = robust.gaussian_moments(
                    (value[told] - self.mean_[j]) / np.sqrt(unit), variance[told] / unit
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
    """``N(a_i x_i + (1 - a_i) mean, (1 - a_i) variance + (1 - a_i)**2 Var(mean))``.

    The second term of the variance is what the estimation of the population mean adds; with it the
    expected squared error of Theorem 1, ``d noise/n ((1 - a)/m + a)``, is met exactly.

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
        self.sd = np.sqrt((1 - weight) * prior.variance_ + (1 - weight) ** 2 * prior.mean_variance_)
        # weight**2 * noise without 0 * inf
        self._own_variance = weight * (1 - weight) * prior.variance_
        self._prior = prior

    def _quantile(self, q: float) -> NDArray:
        from scipy.special import ndtri

        return self.mean + ndtri(q) * self.sd

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


@dataclass
class _Profile:
    """Best mean given the ratio of variances, and what the criterion needs of it."""

    mean: float
    weight: float
    quadratic: float
    log_det: float
    slope_det: float
    slope_quadratic: float
    slope_weight: float


@dataclass
class _Table:
    """One coordinate's messages, those of equal variance merged: sufficient, and short.

    Attributes
    ----------
    variances, counts, means, scatters : ndarray of shape (r,)
        Of the messages with each distinct variance: how many, their mean, their scatter around it.
    scatter, degrees : within-group scatter, where the scale of `variances` is open
    """

    variances: NDArray
    counts: NDArray
    means: NDArray
    scatters: NDArray
    scatter: float | None
    degrees: int
    fixed_mean: float | None = None

    @classmethod
    def of(cls, likelihood: Gaussian, column: int, noisy: bool) -> _Table:
        """Merge the messages of one column; those without information or error are left out.

        One message of variance zero among others is enough to make a likelihood unbounded. Where
        all are without noise (or not `noisy`), values are the parameters themselves.
        """
        from ebfed.kernels import number_integers, summarise_rows

        variances = likelihood.variances[:, min(column, likelihood.variances.shape[1] - 1)]
        values = likelihood.values[:, column]
        scatter = None if likelihood.scatter is None else float(likelihood.scatter[column])
        told = np.isfinite(variances)
        if variances[told].any():
            told &= variances > 0
        if not told.all():
            variances, values = variances[told], values[told]
        if not noisy:
            variances, scatter = np.zeros_like(variances), None
        codes, first = number_integers(np.ascontiguousarray(variances).view(np.int64))
        merged = summarise_rows(np.ascontiguousarray(values), codes, 0, len(first))
        counts, means, scatters = merged.T
        degrees = likelihood.degrees if noisy else 0
        return cls(variances[first], counts, means, scatters, scatter, degrees)

    @property
    def size(self) -> float:
        """Number of messages."""
        return float(self.counts.sum())

    def profile(self, ratio: float) -> _Profile:
        """Evaluate mean, residual sum of squares and their slopes at this between-group variance.

        Where every variance is zero (equal messages), weights are equal.
        """
        total = self.variances + ratio
        total = total if total.any() else np.ones_like(total)
        weights = self.counts / total
        weight = float(weights.sum())
        mean = self.fixed_mean
        if mean is None:
            mean = float(weights @ self.means / weight) if weight else 0.0
        squares = self.scatters + self.counts * (self.means - mean) ** 2
        return _Profile(
            mean=mean,
            weight=weight if weight else np.inf,
            quadratic=float((squares / total).sum()),
            log_det=float(self.counts @ np.log(total)),
            slope_det=weight,
            slope_quadratic=-float((squares / total**2).sum()),
            slope_weight=-float((weights / total).sum()),
        )


def _components(tables: list[_Table], method: str) -> tuple[float, float]:
    """Between-group variance over scale, and scale (1 where the variances are known).

    Parameters
    ----------
    tables : the coordinates that share these two
    method : {"reml", "ml", "moments"}
    """
    open_scale = tables[0].scatter is not None
    if sum(table.size for table in tables) <= len(tables):
        scale = _pooled(tables) if open_scale else 1.0
        return 0.0, scale
    if method == "moments":
        scale = _pooled(tables) if open_scale else 1.0
        return _moments(tables, scale) / scale, scale
    restricted = [method == "reml" and table.fixed_mean is None for table in tables]
    scatter = sum(table.scatter or 0.0 for table in tables)
    degrees = sum(
        table.degrees + table.size - lost for table, lost in zip(tables, restricted, strict=True)
    )
    if not any(table.variances.any() for table in tables):  # parameters seen without noise
        return sum(table.profile(0.0).quadratic for table in tables) / degrees, 1.0

    def criterion(ratio: float) -> tuple[float, float]:
        profiles = [table.profile(ratio) for table in tables]
        quadratic = scatter + sum(profile.quadratic for profile in profiles)
        slope_quadratic = sum(profile.slope_quadratic for profile in profiles)
        value = sum(profile.log_det for profile in profiles)
        slope = sum(profile.slope_det for profile in profiles)
        for profile, lost in zip(profiles, restricted, strict=True):
            if lost:
                value += np.log(profile.weight)
                slope += profile.slope_weight / profile.weight
        if open_scale:
            return (
                value + degrees * np.log(quadratic),
                slope + degrees * slope_quadratic / quadratic,
            )
        return value + quadratic, slope + slope_quadratic

    largest = _largest_ratio(tables, _pooled(tables) if open_scale else 1.0)
    if largest == 0:  # all values equal
        return 0.0, _pooled(tables) if open_scale else 1.0
    grid = np.concatenate(([0.0], np.geomspace(1e-12 * largest, largest, 120)))
    ratio = minimise(criterion, grid)
    if not open_scale:
        return ratio, 1.0
    return ratio, (scatter + sum(table.profile(ratio).quadratic for table in tables)) / degrees


def _pooled(tables: list[_Table]) -> float:
    """Pooled within-group variance."""
    return sum(table.scatter or 0.0 for table in tables) / max(
        1, sum(table.degrees for table in tables)
    )


def _largest_ratio(tables: list[_Table], scale: float) -> float:
    """Find a bound on the optimum: the largest squared deviation, over the scale."""
    squares = [
        np.max(table.scatters + table.counts * (table.means - table.profile(0.0).mean) ** 2)
        for table in tables
    ]
    return 10 * float(max(squares)) / scale


def _moments(tables: list[_Table], scale: float) -> float:
    """ANOVA (DerSimonian-Laird) estimate, cut at zero."""
    excess, unit = 0.0, 0.0
    for table in tables:
        if not table.variances.all():  # noiseless messages: their plain variance
            weights, noise = table.counts, 0.0
        else:
            weights, noise = table.counts / table.variances, scale
        total = weights.sum()
        mean = table.fixed_mean
        lost = mean is None
        mean = weights @ table.means / total if lost else mean
        each = weights / table.counts
        excess += (each * table.scatters + weights * (table.means - mean) ** 2).sum()
        excess -= noise * (table.size - lost)
        unit += total - lost * (weights * each).sum() / total
    return max(0.0, float(excess / unit))
