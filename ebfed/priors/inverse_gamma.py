"""Inverse gamma population of variances, on the scale of their logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.likelihoods import Joined, Likelihood, LogVariance, ReportedLogVariances
from ebfed.likelihoods.distinct import number_rows
from ebfed.likelihoods.log_variance import inverse_trigamma
from ebfed.priors import squares
from ebfed.priors.base import Prior
from ebfed.priors.exploration import side_by_side
from ebfed.priors.gamma import POINT_MASS, shape_of
from ebfed.priors.identification import ONE_GROUP
from ebfed.priors.posterior import Posterior
from ebfed.priors.regression import Design, WithCovariates
from ebfed.priors.reported_moments import fit_moments, plausible_moments
from ebfed.priors.squares import Squares, SquaresRegression
from ebfed.priors.two_moments import TwoMoments, gamma_height

__all__ = ["InverseGamma", "LogVariancePosterior"]


SHAPES = (
    "The sample variances are not distributed as under an inverse gamma population. Intervals of "
    "groups unlike most may cover too little: prior='log_spline' and 'npmle' take any shape."
)


class InverseGamma(WithCovariates, Prior):
    r"""Population of ``theta = log sigma**2``, where ``1 / sigma**2`` is gamma.

    With prior degrees of freedom :math:`d_0` and prior variance :math:`s_0^2`,

    .. math:: 1/\sigma_i^2 \sim \chi^2_{d_0} / (d_0 s_0^2), \qquad
        s_i^2 \mid \sigma_i \sim \sigma_i^2 \chi^2_{d_i} / d_i,

    so that the sample variance is :math:`s_0^2 F(d_i, d_0)`, and given it, :math:`1/\sigma_i^2` is
    gamma with mean :math:`(d_0 + d_i) / (d_0 s_0^2 + d_i s_i^2)` (Smyth 2004). Fitted by maximum
    likelihood, or by moments of ``log s_i**2``. If all groups have one variance, :math:`d_0` is
    infinite. Several columns have independent populations.

    The logarithm has finite moments for every :math:`d_0`; the variance itself has a mean only if
    it is more than 2.

    With covariates, the mean of theta is ``w_i' beta``, and :math:`d_0` the same for all groups.
    Where :math:`d_0` is not known well, posteriors average over plausible populations, under a
    prior that is nearly flat in the standard deviation of theta: see `squares.SquaresRegression`.
    Sample variances of another shape than the fitted F distribution, such as those of two kinds of
    groups, are noted in `notes_`, where the fit is by maximum likelihood.

    Parameters
    ----------
    df, variance : float, optional
        Known parameters :math:`d_0` and :math:`s_0^2`, both or neither; estimated if None.
    method : {"ml", "moments"}
        Moments are those of the R package limma (``squeezeVar``), and refused where a channel hides
        sample variances.

    Attributes
    ----------
    df_, scale_ : ndarray of shape (d,)
        :math:`d_0`, infinite where groups do not differ, and :math:`s_0^2`.
    mean_, variance_ : ndarray of shape (d,)
        Mean and variance of theta, the logarithm of a variance.
    mean_variance_, variance_variance_ : ndarray of shape (d,)
        Sampling variances of `mean_` and `variance_`.

    References
    ----------
    Smyth (2004), Linear models and empirical Bayes methods for assessing differential expression in
    microarray experiments.

    Examples
    --------
    >>> squares = np.array([[2.0], [5.0], [11.0], [3.0], [40.0]])
    >>> messages = LogVariance(squares, np.full(5, 4.0))
    >>> prior = InverseGamma().fit(messages)
    >>> prior.df_.round(2), prior.scale_.round(2)
    (array([3.53]), array([1.54]))
    >>> np.exp(prior.posterior(messages).mean).ravel().round(2)
    array([1.13, 1.59, 2.51, 1.28, 6.93])
    """

    max_features: ClassVar[float] = np.inf
    n_nodes: ClassVar[int] = 800  # of skewed laws: more of them for the same error
    _by_column = (*Prior._by_column, "df_", "scale_")

    df_: NDArray
    scale_: NDArray

    def __init__(self, df: float | None = None, variance: float | None = None, method: str = "ml"):
        self.df = df
        self.variance = variance
        self.method = method

    @property
    def estimates_spread(self) -> bool:
        """Whether the parameters are not given."""
        return self.df is None

    def accepts(self, likelihood: Likelihood) -> bool:
        """Return whether theta is on the line; moments are of sample variances as they are."""
        of_any = self.method != "moments" or self.df is not None
        return super().accepts(likelihood) and (of_any or isinstance(likelihood, LogVariance))

    def fit(self, likelihood: Likelihood, covariates: NDArray | None = None) -> Self:
        """Estimate the population by `method`; see `Prior.fit`."""
        if super().accepts(likelihood) and not self.accepts(likelihood):
            raise TypeError(
                "InverseGamma(method='moments') is for sample variances as they are; got "
                f"{type(likelihood).__name__} messages. Choose method='ml'."
            )
        return super().fit(likelihood, covariates)

    # The law ----------------------------------------------------------------------------------

    @property
    def _shape(self) -> NDArray:
        return np.minimum(self.df_ / 2, POINT_MASS)

    @property
    def _log_scale(self) -> NDArray:
        """Logarithm of the prior variance, ``1 / E(1 / sigma**2)``, shape (d,) or (n, d)."""
        from scipy.special import psi

        return self.mean_ - np.log(self._shape) + psi(self._shape)

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, d), shape (k,)."""
        from scipy.special import gammaln

        shape = self._shape
        away = self._log_scale[..., None, :] - theta
        density = shape * (away - np.exp(np.minimum(away, 700.0)) + np.log(shape))
        return (density - gammaln(shape)).sum(axis=-1)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population, shape (size, d)."""
        rng = np.random.default_rng(random_state)
        shape = self._shape
        return self._log_scale - np.log(rng.gamma(shape, 1 / shape, (size, len(shape))))

    def parameters(self, j: int = 0) -> dict[str, float]:
        """Return the prior degrees of freedom and the prior variance of coordinate j."""
        return {"df": float(self.df_[j]), "scale": float(self.scale_[j])}

    def _range(self) -> tuple[float, float]:
        """Range of practically all of the population, whose upper tail is long."""
        from scipy.special import gammaincinv

        shape = self._shape[0]
        lowest = float(gammaincinv(shape, 1e-12)) if shape > 0 else 0.0
        high = self._log_scale[0] + np.log(shape) - np.log(max(lowest, 1e-300))
        return self.mean_[0] - 9 * np.sqrt(self.variance_[0]), float(high)

    # Fitting ----------------------------------------------------------------------------------

    def _fit(self, likelihood: Likelihood) -> None:
        if self.method not in ("ml", "moments"):
            raise ValueError(f"method must be 'ml' or 'moments'; got {self.method!r}.")
        d = likelihood.n_features
        if (given := self._given("df", "variance", infinite="df")) is not None:
            self._set(np.full(d, -np.log(given[1])), np.full(d, 2 / given[0]))
            self.n_parameters_ = 0
        elif isinstance(likelihood, LogVariance):
            self._fit_squares([likelihood.column(j) for j in range(d)])
        elif _is_reported(likelihood):
            self._fit_reports(likelihood)
        else:
            super()._fit(likelihood)

    def _fit_squares(self, columns: Sequence[LogVariance]) -> None:
        rows = [column.take(column.degrees > 0) for column in columns]
        if not all((each.squares > 0).any() for each in rows):
            self._add_note(
                "No group shows a variance: the population is unknown, its variance taken as 1.",
                True,
            )
            self._set(np.zeros(len(rows)), np.ones(len(rows)))
            return
        find = squares.moments if self.method == "moments" else squares.maximise
        fits = [find(each, np.ones(len(each))) for each in rows]
        self._set(*np.array(fits).T)
        for j, each in enumerate(rows):
            self._learn_precision(j, each)
            if self.method == "ml":  # moments may be far from the law of the best shape
                self._check_shape(j, each)
        if len(rows[0]) == 1:
            self._add_note(ONE_GROUP, True)
        elif np.isinf(self.df_).any():
            self._add_note(
                "Prior degrees of freedom are infinite: groups differ no more than sampling "
                "explains, and every estimate is the pooled variance."
            )
        if self._is_hardly_known().any():
            matrices = [np.ones((len(each), 1)) for each in rows]
            tables = list(zip(rows, matrices, strict=True))
            self._find_later(InverseGamma._hold_of, tables, np.ones(0))

    def _hold_of(self, tables: list[tuple[LogVariance, NDArray]], scale: NDArray) -> None:
        """Hold plausible means (and slopes) and variances of theta of each column."""
        found = []
        for rows, matrix in tables:
            unit = rows.squares.sum() / rows.degrees.sum()  # the search is near 1
            table = SquaresRegression(rows.degrees / 2, squares.halves(rows) / unit, matrix)
            points, weights = table.plausible()
            mean, variance = _moments_of(points[:, 0] - np.log(unit), points[:, -1])
            found.append((np.column_stack([mean, -points[:, 1:-1], variance]), weights))
        points, weights = side_by_side(found)
        self.plausible_ = {"variance_": points[:, -1], "weights": weights}
        if len(scale):
            self.plausible_["slopes_"] = points[:, 1:-1] / scale[:, None]
        self.plausible_["predictor_" if len(scale) else "mean_"] = points[:, 0]

    def _like(self, parameters: dict[str, NDArray]) -> Self:
        one = super()._like({})
        if "predictor_" in parameters:
            one._take_coefficients(parameters)
            one._set_moments(one.predictor_, parameters["variance_"])
        elif parameters:
            one._set_moments(parameters["mean_"], parameters["variance_"])
        return one

    def _set(self, eta: NDArray, dispersion: NDArray) -> None:
        """Set every attribute from the log of the mean precision and ``phi = 2 / df``."""
        with np.errstate(divide="ignore"):
            shape = np.where(dispersion > 1 / POINT_MASS, 1 / dispersion, np.inf)
        self.df_, self.scale_ = 2 * shape, np.exp(-eta)
        self.mean_, self.variance_ = _moments_of(eta, dispersion)
        self.mean_variance_, self.variance_variance_ = np.zeros_like(eta), np.zeros_like(eta)
        self.n_parameters_ = 2 * len(eta)

    def _set_moments(self, mean: NDArray, variance: NDArray) -> None:
        """Set every attribute from the moments of theta."""
        from scipy.special import psi

        shape = inverse_trigamma(np.maximum(variance, 1 / POINT_MASS))
        eta = -mean + np.log(shape) - psi(shape)
        self._set(eta, np.where(variance > 1 / POINT_MASS, 1 / shape, 0.0))

    def _learn_precision(self, j: int, rows: LogVariance) -> None:
        """Sampling variances of mean and variance of theta, by the outer product of scores."""
        from scipy.special import polygamma

        if np.isinf(self.df_[j]) or len(rows) < 3:
            return
        phi, half = 2 / self.df_[j], rows.degrees / 2
        x = phi * rows.squares[:, 0] / (2 * self.scale_[j])
        by_eta = (half - x / phi) / (1 + x)
        codes, first, _ = number_rows([half])
        by_phi = squares.log_rising(half[first], phi)[1][codes]
        by_phi = by_phi + np.log1p(x) / phi**2 - (half + 1 / phi) * x / (phi * (1 + x))
        scores = np.column_stack([by_eta, by_phi])
        covariance = np.linalg.pinv(scores.T @ scores, hermitian=True)
        shape = 1 / phi
        # of the mean: -eta + log a - psi(a); of the variance: trigamma(a)
        to_mean = np.array([-1.0, -(1 / shape - polygamma(1, shape)) / phi**2])
        to_variance = np.array([0.0, -polygamma(2, shape) / phi**2])
        self.mean_variance_[j] = to_mean @ covariance @ to_mean
        self.variance_variance_[j] = to_variance @ covariance @ to_variance

    def _check_shape(self, j: int, rows: LogVariance) -> None:
        """Compare sample variances with their fitted law, ``scale * F(degrees, df)``."""
        from scipy.special import chdtr, chdtrc, fdtr, fdtrc

        df, squares, degrees = self.df_[j], rows.squares[:, 0], rows.degrees
        ratio = squares / self.scale_[j]
        if np.isinf(df):
            below, above = chdtr(degrees, ratio), chdtrc(degrees, ratio)
        else:
            below = fdtr(degrees, df, ratio / degrees)
            above = fdtrc(degrees, df, ratio / degrees)
        seen = squares > 0  # sums of zero are due to rounding
        self._note_if_misfit(below[seen], above[seen], SHAPES)

    def _fit_with_covariates(self, likelihood: Likelihood, covariates: NDArray) -> None:
        """Regress log variances on covariates, by maximum likelihood."""
        if self.df is not None or self.variance is not None or self.method != "ml":
            raise ValueError("with covariates, df and variance must be None and method 'ml'.")
        if not isinstance(likelihood, LogVariance):
            raise TypeError("covariates are for variances as they are, not for reports of them.")
        has_data = likelihood.degrees > 0
        design, rows = Design.of(covariates, has_data), likelihood.take(has_data)
        matrix = design.matrix[has_data]
        columns = [rows.column(j) for j in range(rows.n_features)]
        half, once = rows.degrees / 2, np.ones(len(rows))
        fits = [Squares(half, squares.halves(each), matrix, once).fit() for each in columns]
        self._learn_coefficients(design, fits, np.ones(len(fits)))
        self.slopes_ = -self.slopes_  # type: ignore[operator]
        self._set(self.predictor_, np.array([fit.overdispersion for fit in fits]))
        self.predictor_ = self.mean_
        self.n_parameters_ = len(fits) * (2 + covariates.shape[1])
        for j, each in enumerate(columns):
            # as if all groups had average covariates
            ratio = self.scale_[j] * np.exp(matrix @ fits[j].coefficients)
            at_average = LogVariance(each.squares * ratio[:, None], each.degrees)
            self._learn_precision(j, at_average)
            self._check_shape(j, at_average)
            self.mean_variance_[j] = max(self.mean_variance_[j], fits[j].covariance[0, 0])
        self.at_boundary_ = np.isinf(self.df_)
        if self._is_hardly_known().any():
            tables = [(each, matrix) for each in columns]
            self._find_later(InverseGamma._hold_of, tables, design.scale)

    def _fit_reports(self, likelihood: Likelihood) -> None:
        """Maximise the exact marginal likelihood of reports over mean and variance of theta."""
        tables = []
        for j in range(likelihood.n_features):
            rows, counts = likelihood.column(j).compress()
            tables.append((_Reports(rows), counts))
        fits = np.array([fit_moments(*table, np.nan, np.nan) for table in tables]).T  # type: ignore[arg-type]
        self._set_moments(fits[0], fits[1])
        self.mean_variance_, self.variance_variance_ = fits[2], fits[3]
        if not all(len(rows) for rows, _ in tables):
            self._add_note("No client has data: the population is unknown.", True)
            return
        self._note_if_open()
        if self._is_hardly_known().any():
            found = [
                plausible_moments(*table, (np.nan, np.nan), fit)  # type: ignore[arg-type]
                for table, fit in zip(tables, fits[:2].T, strict=True)
            ]
            self._hold(("mean_", "variance_"), found)

    def _start(self, rows: Likelihood, counts: NDArray) -> None:
        nodes = rows.nodes(self.n_nodes)
        self._set_moments(np.array([np.median(nodes)]), np.ones(1))

    def _m_step(self, atoms: NDArray, masses: NDArray) -> None:
        """Maximum likelihood of a gamma given expected precisions and their logarithms."""
        share = masses / masses.sum()
        centre = float(share @ atoms[:, 0])
        precision = float(share @ np.exp(centre - atoms[:, 0]))
        gap = np.log(precision)
        self._set(np.array([gap - centre]), np.array([1 / shape_of(gap)]))

    # Using ------------------------------------------------------------------------------------

    def at(self, covariates: NDArray) -> Self:
        """Return the population of clients with these covariates."""
        there = copy(self)
        there.mean_, there.mean_variance_ = self._predict(covariates)
        there.covariates_ = np.asarray(covariates, float)
        return there

    def _posterior(self, likelihood: Likelihood) -> Posterior:
        """Conjugate posterior for sums of squares, quadrature for others."""
        if not isinstance(likelihood, LogVariance):
            return super()._posterior(likelihood)
        return LogVariancePosterior.of(likelihood, self)

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """Log-density of each client's message, shape (n,)."""
        check_is_fitted(self, "mean_")
        if not isinstance(likelihood, LogVariance):
            if _is_reported(likelihood):
                return _Reports(likelihood).marginal(self.mean_, self.variance_)
            return super().log_marginal(likelihood)
        total = likelihood._log_base()
        eta = np.broadcast_to(-self._log_scale, likelihood.squares.shape)
        half = likelihood.degrees / 2
        for j, shape in enumerate(self._shape):
            if np.isinf(self.df_[j]):
                total = total + half * eta[:, j] - likelihood.squares[:, j] / 2 * np.exp(eta[:, j])
                continue
            with np.errstate(divide="ignore"):  # scales of wide populations may be no numbers
                log_x = np.log(likelihood.squares[:, j]) - np.log(2 * shape) + eta[:, j]
            rising = squares.log_rising(half, 1 / shape)[0]
            total = total + rising + half * eta[:, j] - (half + shape) * np.logaddexp(0.0, log_x)
        return total


def _moments_of(eta: NDArray, dispersion: NDArray) -> tuple[NDArray, NDArray]:
    """Mean and variance of theta, from the log of the mean precision and ``phi = 2 / df``."""
    from scipy.special import polygamma, psi

    shape = 1 / np.maximum(dispersion, 1 / POINT_MASS)
    variance = np.where(dispersion > 1 / POINT_MASS, polygamma(1, shape), 0.0)
    return -eta + np.log(shape) - psi(shape), variance


def _is_reported(likelihood: Likelihood) -> bool:
    """Return whether all messages are on variances, some through a channel."""
    parts = likelihood.parts if isinstance(likelihood, Joined) else (likelihood,)
    return all(isinstance(part, LogVariance | ReportedLogVariances) for part in parts)


class _Reports:
    """Messages on variances, whose marginal likelihood is that of an inverse gamma population."""

    def __init__(self, likelihood: Likelihood):
        self.likelihood = likelihood
        self.nodes = likelihood.nodes

    def __len__(self) -> int:
        return len(self.likelihood)

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-density of the messages where theta has these moments, shape (n,)."""
        known = InverseGamma()
        known._set_moments(mean, variance)
        parts = self.likelihood.parts if isinstance(self.likelihood, Joined) else (self.likelihood,)
        found = [
            part.inverse_gamma_marginal(mean, variance)
            if isinstance(part, ReportedLogVariances)
            else known.log_marginal(part)
            for part in parts
        ]
        return np.concatenate(found)


class LogVariancePosterior(TwoMoments):
    """``theta = log sigma**2`` where ``1 / sigma**2`` is gamma, with these means and sds of theta.

    Uncertainty of the population is added to the variance by the delta method; the member with that
    mean and variance is used for intervals and probabilities.

    Parameters
    ----------
    mean, sd : ndarray of shape (n, d)
        A point where sd is 0.

    Attributes
    ----------
    mean_precision, own_share : ndarray of shape (n, d)
        ``E exp(-theta)`` without that uncertainty, and the share of the own sample variance in
        ``1 / E exp(-theta)``; only of a posterior that `of` has made.

    Examples
    --------
    >>> posterior = LogVariancePosterior(np.array([[0.0]]), np.array([[0.5]]))
    >>> posterior.quantile(0.5).round(3), posterior.prob_below(0.0).round(3)
    (array([[-0.04]]), array([[0.532]]))
    """

    mean_precision: NDArray
    own_share: NDArray

    def __init__(self, mean: NDArray, sd: NDArray):
        self.mean, self.sd = mean, sd

    @classmethod
    def of(cls, likelihood: LogVariance, prior: InverseGamma) -> Self:
        """Posterior of clients' own sums of squares under a fitted population."""
        from scipy.special import expit, polygamma

        half, squared = likelihood._half, likelihood.squares / 2
        shape, log_scale = prior._shape, prior._log_scale
        mean = _mean_of(shape, log_scale, half, squared)
        unit = np.minimum(1e-4, prior.variance_ / 10)
        slope = np.zeros_like(mean)
        open_ = np.broadcast_to(prior.variance_ > 0, mean.shape)
        if np.any(prior.variance_variance_ > 0):
            ends = []
            for side in (-1.0, 1.0):
                moved = copy(prior)
                moved._set_moments(np.zeros_like(shape), prior.variance_ + side * unit)
                shift = moved._log_scale + prior.mean_
                ends.append(_mean_of(moved._shape, shift, half, squared))
            slope = np.where(open_, (ends[1] - ends[0]) / np.where(unit > 0, 2 * unit, 1.0), 0.0)
        with np.errstate(divide="ignore"):
            own = np.log(squared) - log_scale - np.log(shape)
        # share of the population's mean in the estimate, of populations of any width
        common = prior.mean_variance_ * expit(-own) ** 2
        variance = np.where(np.isinf(prior.df_), 0.0, polygamma(1, shape + half))
        found = cls(mean, np.sqrt(variance + common + slope**2 * prior.variance_variance_))
        own_share = np.where(np.isinf(prior.df_), 0.0, half / (shape + half))
        scale = np.exp(log_scale)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            pooled = np.where(half > 0, squared / half, 0.0)
            estimate = own_share * pooled + (1 - own_share) * scale
            found.mean_precision, found.own_share = 1 / estimate, own_share
        return found

    @cached_property
    def _gamma(self) -> tuple[NDArray, NDArray]:
        """Shape, and centre c with ``theta = c - log G``; harmless at points."""
        from scipy.special import psi

        variance = np.where(self.sd > 0, np.maximum(self.sd**2, 1 / POINT_MASS), 1.0)
        shape = inverse_trigamma(variance)
        return shape, self.mean + psi(shape)

    def _of(self, mean: NDArray, sd: NDArray) -> Self:
        return type(self)(mean, sd)

    def _to_line(self, x: NDArray) -> NDArray:
        return x

    def _from_line(self, u: NDArray) -> NDArray:
        return u

    def _density(self, u: NDArray) -> tuple[NDArray, NDArray]:
        shape, centre = self._gamma
        away = np.minimum(centre - u - np.log(shape), 700.0)  # of the logarithm of G
        heights = gamma_height(shape, away)
        return heights, heights * shape * np.expm1(away)

    def _quantile(self, q: float) -> NDArray:
        from scipy.special import gammainccinv

        shape, centre = self._gamma
        with np.errstate(divide="ignore"):
            found = centre - np.log(gammainccinv(shape, q))
        return np.where(self.sd > 0, found, self.mean)

    def prob_below(self, threshold: ArrayLike) -> NDArray:
        """Probability that the logarithm of a variance is at most `threshold`, shape (n, d)."""
        from scipy.special import gammaincc

        shape, centre = self._gamma
        inside = gammaincc(shape, np.exp(np.clip(centre - threshold, -700, 700)))
        return np.where(self.sd > 0, inside, self.mean <= np.asarray(threshold))

    def _prob_from(self, threshold: ArrayLike) -> NDArray:
        from scipy.special import gammainc

        shape, centre = self._gamma
        outside = gammainc(shape, np.exp(np.clip(centre - threshold, -700, 700)))
        return np.where(self.sd > 0, outside, self.mean >= np.asarray(threshold))

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's log variance, shape (size, n, d)."""
        rng = np.random.default_rng(random_state)
        shape, centre = self._gamma
        draws = centre - np.log(rng.gamma(shape, 1.0, (size, *self.mean.shape)))
        return np.where(self.sd > 0, draws, self.mean)


def _mean_of(shape: NDArray, log_scale: NDArray, half: NDArray, squared: NDArray) -> NDArray:
    """Posterior mean of theta: ``log(a s0**2 + squares / 2) - psi(a + degrees / 2)``."""
    from scipy.special import psi

    with np.errstate(divide="ignore"):
        total = np.logaddexp(np.log(shape) + log_scale, np.log(squared))
    return total - psi(shape + half)
