"""Inverse gamma population of variances, on the scale of their logarithms."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtr, chdtrc, expit, fdtr, fdtrc, polygamma, psi

from ebfed.likelihoods import Likelihood, LogVariance, ReportedLogVariances
from ebfed.likelihoods.base import parts_of
from ebfed.likelihoods.distinct import number_rows
from ebfed.priors.conjugate import ByColumn, ConjugatePosterior, Table, Update
from ebfed.priors.count_regression import SquaresRegression
from ebfed.priors.discrete_posterior import DiscretePosterior
from ebfed.priors.gamma import shape_of
from ebfed.priors.integrated import IntegratedPosterior
from ebfed.priors.negative_binomial import log_rising, maximise_squares, moments_of_squares
from ebfed.priors.posterior import Posterior
from ebfed.priors.reported_moments import plausible_moments
from ebfed.priors.two_moments import POINT_MASS, LogGammaDistribution

__all__ = ["InverseGamma", "LogVariancePosterior", "VariancePosterior"]

SHAPES = (
    "The sample variances are not distributed as under an inverse gamma population. Intervals of "
    "groups unlike most may cover too little: prior='log_spline' and 'npmle' take any shape."
)


class LogVariancePosterior(ConjugatePosterior):
    """Posterior of logarithms of variances.

    Parameters
    ----------
    prior : InverseGamma, fitted
    likelihood : LogVariance of n clients

    Attributes
    ----------
    mean_precision, own_share : ndarray of shape (n, d)
        ``E exp(-theta)`` where the population is known, and the share of the own sample variance in
        ``1 / E exp(-theta)``.
    """

    def __init__(self, prior: Any, likelihood: LogVariance):
        super().__init__(prior, likelihood)
        half, squared = likelihood._half, likelihood.squares / 2
        phi = prior.dispersion_
        self.own_share = phi * half / (1 + phi * half)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            pooled = np.where(half > 0, squared / half, 0.0)
            estimate = self.own_share * pooled + (1 - self.own_share) * prior.scale_
            self.mean_precision = 1 / estimate


class InverseGamma(ByColumn):
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
    prior that is nearly flat in the standard deviation of theta: see `SquaresRegression`.
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

    n_nodes: ClassVar[int] = 800  # of skewed laws: more of them for the same error
    messages, kind, regression = LogVariance, LogGammaDistribution, SquaresRegression
    posteriors = LogVariancePosterior
    arguments, infinite = ("df", "variance"), "df"
    unknown = (float(-psi(1.0)), 1.0)
    words: ClassVar[dict[str, str]] = {
        "nothing": "No group shows a variance: the population is unknown, its variance taken as 1.",
        "messages": "variances as they are, not for reports of them",
        "alike": "Prior degrees of freedom are infinite",
        "noise": "sampling",
        "pooled": "the pooled variance",
        "regression": "that of the regression",
        "separated": "variances",
    }

    _by_column = (*ByColumn._by_column, "df_", "scale_")

    def __init__(self, df: float | None = None, variance: float | None = None, method: str = "ml"):
        self.df = df
        self.variance = variance
        self.method = method

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

    def parameters(self, j: int = 0) -> dict[str, float]:
        """Return the prior degrees of freedom and the prior variance of coordinate j."""
        return {"df": float(self.df_[j]), "scale": float(self.scale_[j])}

    # The population -----------------------------------------------------------------------------

    def parameters_of(self, first: float, second: float) -> tuple[float, float]:
        """Return mean and overdispersion of degrees of freedom and variance."""
        return float(np.log(second) + _distance(2 / first)), 2 / first

    def _set(self, mean: NDArray, dispersion: NDArray) -> None:
        super()._set(mean, dispersion)
        with np.errstate(divide="ignore"):
            self.df_ = 2 / self.dispersion_
        self.scale_ = np.exp(mean - _distance(self.dispersion_))

    def _range(self) -> tuple[float, float]:
        """Range of practically all of the population, whose upper tail is long."""
        each: Any = self._with_mean(self.mean_)
        high = np.minimum(each.quantile(1 - 1e-12), each.centre + 690.0)
        return self.mean_[0] - 9 * np.sqrt(self.variance_[0]), float(high[0])

    def _log_masses(self, atoms: NDArray) -> NDArray:
        """Density times width, which of a smooth density on the line is more exact than masses."""
        return self._log_masses_of_density(atoms)

    # Fitting ------------------------------------------------------------------------------------

    def _fit(self, likelihood: Likelihood) -> None:
        if self.method not in ("ml", "moments"):
            raise ValueError(f"method must be 'ml' or 'moments'; got {self.method!r}.")
        super()._fit(likelihood)

    def table_of(self, column: Any) -> Table:
        """Return the messages of one column, none if no sum of squares is positive."""
        if not isinstance(column, LogVariance):
            rows, counts = column.compress()
            return _Reports(rows), counts
        rows = column.take((column.degrees > 0) & (column.squares > 0).any())
        return rows, np.ones(len(rows))

    def likeliest(self, rows: LogVariance, counts: NDArray) -> tuple[float, float]:
        """Return mean and overdispersion by the `method`."""
        find = moments_of_squares if self.method == "moments" else maximise_squares
        eta, dispersion = find(rows, counts)
        return float(_distance(dispersion) - eta), dispersion

    def from_counts(self, coefficients: NDArray, dispersion: NDArray) -> NDArray:
        """Coefficients of the mean of theta, from those of the logarithm of the mean precision."""
        turned = -coefficients
        turned[..., 0, :] += _distance(dispersion)
        return turned

    def plausible(
        self, rows: Any, counts: NDArray, mean: float, dispersion: float
    ) -> tuple[NDArray, NDArray]:
        """Find plausible means and overdispersions; see `InverseGamma` for their prior."""
        if isinstance(rows, LogVariance):
            points, weights = self.regression.of(rows, np.ones((len(rows), 1))).plausible()
            points[:, 0] = _distance(points[:, 1]) - points[:, 0]
            return points, weights
        near = mean, float(self.kind.share_of(dispersion))
        points, weights = plausible_moments(rows, counts, (np.nan, np.nan), near)
        # Reports say little against any width, and logarithms so wide are of no variances: the
        # populations are those among which the likeliest is looked for.
        low, high = self.trials_of_reports(rows)[2]
        kept = ((points >= low) & (points <= high)).all(axis=1)
        points, weights = points[kept], weights[kept] / weights[kept].sum()
        return np.column_stack([points[:, 0], self.kind.dispersion_of(points[:, 1])]), weights

    def doubts(self, j: int, rows: LogVariance, counts: NDArray) -> tuple[float, float]:
        """Return the sampling variances of mean and variance, by the outer product of scores."""
        phi = self.dispersion_[j]
        if phi == 0 or len(rows) < 3:
            return 0.0, 0.0
        half, shape = rows.degrees / 2, 1 / phi
        x = phi * rows.squares[:, 0] / (2 * self.scale_[j])
        by_eta = (half - x / phi) / (1 + x)
        codes, first, _ = number_rows([half])
        by_phi = log_rising(half[first], phi)[1][codes]
        by_phi = by_phi + np.log1p(x) / phi**2 - (half + 1 / phi) * x / (phi * (1 + x))
        scores = np.column_stack([by_eta, by_phi])
        covariance = np.linalg.pinv(scores.T @ scores, hermitian=True)
        # of the mean: -eta + log a - psi(a); of the variance: trigamma(a)
        to_mean = np.array([-1.0, -(1 / shape - polygamma(1, shape)) / phi**2])
        to_variance = np.array([0.0, -polygamma(2, shape) / phi**2])
        return to_mean @ covariance @ to_mean, to_variance @ covariance @ to_variance

    def doubt_of_mean(self, own: float, given_dispersion: float) -> float:
        """Return the larger one: the overdispersion moves the mean."""
        return max(own, given_dispersion)

    def at_average(self, rows: LogVariance, ratios: NDArray) -> LogVariance:
        return LogVariance(rows.squares * ratios[:, None], rows.degrees)

    def check_shape(self, j: int, rows: LogVariance) -> None:
        """Compare sample variances with their fitted law, ``scale * F(degrees, df)``."""
        if self.method != "ml":  # moments may be far from the law of the best shape
            return
        df, degrees, ratio = self.df_[j], rows.degrees, rows.squares[:, 0] / self.scale_[j]
        if np.isinf(df):
            below, above = chdtr(degrees, ratio), chdtrc(degrees, ratio)
        else:
            below = fdtr(degrees, df, ratio / degrees)
            above = fdtrc(degrees, df, ratio / degrees)
        seen = ratio > 0  # sums of zero are due to rounding
        self._note_if_misfit(below[seen], above[seen], SHAPES)

    def trials_of_reports(self, rows: Any) -> tuple[NDArray, NDArray, NDArray]:
        """Return means and variances near which the best may be, and the ends of both."""
        low, high = rows.nodes(100)[[0, -1]]
        reach = high - low
        variances = np.append(0.0, reach * np.geomspace(1e-3, 0.5, 9)) ** 2
        ends = np.array([[low - reach, 0.0], [high + reach, reach**2]])
        return np.linspace(low, high, 17)[1:-1], variances, ends

    def has_marginal(self, likelihood: Likelihood) -> bool:
        """Return whether all messages are on variances, some through a channel."""
        kinds = LogVariance | ReportedLogVariances
        return all(isinstance(part, kinds) for part in parts_of(likelihood))

    def marginal_of(self, likelihood: Any) -> NDArray:
        """Log-density of each client's message, shape (n,)."""
        if isinstance(likelihood, LogVariance):
            return self._marginal_of_squares(likelihood)
        return _Reports(likelihood).marginal(self.mean_, self.variance_)

    def _start(self, rows: Likelihood, counts: NDArray) -> None:
        nodes = rows.nodes(self.n_nodes)
        self._set(np.array([np.median(nodes)]), self.kind.dispersion_of(np.ones(1)))

    def _m_step(self, atoms: NDArray, masses: NDArray) -> None:
        """Maximum likelihood of a gamma given expected precisions and their logarithms."""
        share = masses / masses.sum()
        centre = float(share @ atoms[:, 0])
        gap = np.log(float(share @ np.exp(centre - atoms[:, 0])))
        dispersion = np.array([1 / shape_of(gap)])
        self._set(centre - gap + _distance(dispersion), dispersion)

    # Using --------------------------------------------------------------------------------------

    def update_of(self, likelihood: LogVariance) -> Update:
        """Return moments of theta where ``1 / sigma**2`` is gamma.

        What is not known of the population is added by the delta method.
        """
        half, squared = likelihood._half, likelihood.squares / 2
        phi, variance = self.dispersion_, self.variance_
        mean = _mean_of(self.mean_, phi, half, squared)
        slope, unit = np.zeros_like(mean), np.minimum(1e-4, variance / 10)
        if np.any(self.variance_variance_ > 0):
            low, high = (
                _mean_of(self.mean_, self.kind.dispersion_of(variance + side), half, squared)
                for side in (-unit, unit)
            )
            slope = np.where(variance > 0, (high - low) / np.where(unit > 0, 2 * unit, 1.0), 0.0)
        with np.errstate(divide="ignore"):
            own = np.log(squared) - self.mean_ - psi(_shape_at(phi))
        # share of the population's mean in the estimate, of populations of any width
        share = expit(-own) ** 2
        return Update(
            mean, self.kind.share_of(phi / (1 + phi * half)), None, share + 0 * mean, slope**2
        )

    def _marginal_of_squares(self, likelihood: LogVariance) -> NDArray:
        total, half = likelihood._log_base(), likelihood.degrees / 2
        log_scales = np.broadcast_to(
            self.mean_ - _distance(self.dispersion_), likelihood.squares.shape
        )
        columns = zip(likelihood.squares.T, -log_scales.T, self.dispersion_, strict=True)
        for squared, eta, phi in columns:
            if phi == 0:
                total = total + half * eta - squared / 2 * np.exp(eta)
                continue
            with np.errstate(divide="ignore"):  # scales of wide populations may be no numbers
                log_x = np.log(squared) + np.log(phi / 2) + eta
            rising = log_rising(half, phi)[0]
            total = total + rising + half * eta - (half + 1 / phi) * np.logaddexp(0.0, log_x)
        return total


class _Reports:
    """Messages on variances, whose marginal likelihood is that of an inverse gamma population."""

    def __init__(self, likelihood: Likelihood):
        self.likelihood = likelihood
        self.nodes = likelihood.nodes

    marginals = Likelihood.marginals

    def __len__(self) -> int:
        return len(self.likelihood)

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-density of the messages where theta has these moments, shape (n,)."""
        known = InverseGamma()
        known._set(mean, known.kind.dispersion_of(variance))
        found = [
            part.inverse_gamma_marginal(mean, variance)
            if isinstance(part, ReportedLogVariances)
            else known.log_marginal(part)
            for part in parts_of(self.likelihood)
        ]
        return np.concatenate(found)


def _shape_at(dispersion: Any) -> NDArray:
    """Shape of the precisions, finite where they do not differ."""
    return 1 / np.maximum(dispersion, 1 / POINT_MASS)


def _distance(dispersion: Any) -> NDArray:
    """Distance of the mean of theta from the logarithm of the prior variance."""
    shape = _shape_at(dispersion)
    return np.log(shape) - psi(shape)


def _mean_of(mean: NDArray, dispersion: NDArray, half: NDArray, squared: NDArray) -> NDArray:
    """Posterior mean of theta: ``log(a s0**2 + squares / 2) - psi(a + degrees / 2)``."""
    shape = _shape_at(dispersion)
    with np.errstate(divide="ignore"):
        total = np.logaddexp(mean + psi(shape), np.log(squared))
    return total - psi(shape + half)


class VariancePosterior(Posterior):
    """Posterior of variances ``exp(theta)``.

    The estimate (`mean`) is ``1 / E(1 / variance)``, as in limma: the mean itself may be infinite.
    With an inverse gamma population it is ``(d0 s0**2 + d s**2) / (d0 + d)``. Where messages are
    reports of a channel, it is the average of this over the plausible populations. `sd` is the
    standard deviation of the logarithm times the estimate. Quantiles, intervals and probabilities
    are exact.

    Parameters
    ----------
    logs : Posterior
        Posterior of the logarithms.

    Examples
    --------
    >>> from ebfed.likelihoods import LogVariance
    >>> from ebfed.priors import InverseGamma
    >>> messages = LogVariance(np.array([[8.0], [40.0]]), np.array([4.0, 4.0]))
    >>> prior = InverseGamma(df=4.0, variance=4.0).fit(messages)
    >>> VariancePosterior(prior.posterior(messages)).mean.ravel()  # (16 + 8) / 8, (16 + 40) / 8
    array([3., 7.])
    """

    def __init__(self, logs: Posterior):
        self.logs = logs
        self._has_points, self.prior = logs._has_points, logs.prior
        local = {name: np.exp(logs._columns[name]) for name in ("local",) if name in logs._columns}
        self.labelled(logs._ids, {**logs._columns, **local}, logs._style, logs._terms)
        self.mean = _estimate(logs)
        self.weight = getattr(getattr(logs, "_fitted", logs), "own_share", None)

    @property
    def sd(self) -> NDArray:  # type: ignore[override]
        """Standard deviation of the logarithm times the estimate, shape (n, d)."""
        return self.mean * self.logs.sd

    def _quantile(self, q: float) -> NDArray:
        return np.exp(self.logs.quantile(q))

    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        return self.logs._prob_to(_log(threshold), sign)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        return np.exp(self.logs.sample(size, random_state))


def _log(threshold: ArrayLike) -> NDArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(threshold, float) > 0, np.log(threshold), -np.inf)


def _estimate(logs: Posterior) -> NDArray:
    """``1 / E exp(-theta)`` under the fitted population, or averaged as estimates are.

    Of groups without rows the precision has no mean under the widest plausible populations.
    """
    if isinstance(logs, IntegratedPosterior):
        return logs.of_estimates(_estimate)
    if isinstance(logs, LogVariancePosterior):
        with np.errstate(divide="ignore"):
            return 1 / logs.mean_precision
    if isinstance(logs, DiscretePosterior):
        precisions = np.exp(-logs.atoms)
        return 1 / logs._rows(lambda weights: np.einsum("ij,jd->id", weights, precisions))
    raise TypeError(f"{type(logs).__name__} has no estimate of a variance.")
