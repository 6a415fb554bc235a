"""Beta population of rates."""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma, psi

from ebfed.likelihoods import Binomial, Likelihood
from ebfed.priors import beta_binomial, robust
from ebfed.priors.base import OwnReports
from ebfed.priors.conjugate import ByColumn, ConjugatePosterior, Update
from ebfed.priors.count_regression import BetaRegression
from ebfed.priors.gibbs import dirichlet_draws
from ebfed.priors.posterior import Posterior
from ebfed.priors.two_moments import POINT_MASS, BetaDistribution
from ebfed.priors.weights import fit_weights
from ebfed.wire import WhenAsked

__all__ = ["CONTRADICTED", "Beta", "BetaPosterior", "is_contradicted", "of_any_shape", "updated"]


class BetaPosterior(ConjugatePosterior):
    """Posterior rates, with robust intervals where all clients have one population.

    Parameters
    ----------
    prior : Beta, fitted
        Population of all clients, or of each.
    likelihood : Binomial of n clients
    """

    def _robust_ends(self, level: float) -> tuple[NDArray, NDArray]:
        prior = self._prior
        if prior.slopes_ is not None or prior.mean_.ndim > 1:
            raise ValueError(
                "robust intervals are built around linear shrinkage to one population of rates; "
                "fit prior='beta' without covariates, by method 'ml' or 'moments', to get one."
            )
        if not self.sd.any():
            return self.mean, self.mean
        assert self.weight is not None
        weights = np.broadcast_to(self.weight, self.mean.shape)
        moments = zip(prior.mean_, prior.second_moment_, prior.fourth_moment_, strict=True)
        half = np.stack(
            [
                robust.binomial_half_width(self.likelihood.trials, weight, *each, level)
                for weight, each in zip(weights.T, moments, strict=True)
            ],
            axis=1,
        )
        return self.mean - half, self.mean + half


FITS = {
    "ml": beta_binomial.maximise,
    "moments": beta_binomial.moments,
    "paper": beta_binomial.paper_moments,
}


class Beta(ByColumn):
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
    messages, kind, regression = Binomial, BetaDistribution, BetaRegression
    posteriors = BetaPosterior
    arguments, unknown = ("alpha", "beta"), (0.5, 0.5)
    words: ClassVar[dict[str, str]] = {
        "nothing": "No client has data: the population is unknown, taken as uniform.",
        "messages": "counts as they are, not for reports of rates",
        "alike": "Estimated overdispersion is zero",
        "noise": "binomial noise",
        "pooled": "the pooled rate",
        "regression": "that of a logistic regression",
        "separated": "successes from failures",
    }
    _by_column = (*ByColumn._by_column, "alpha_", "beta_", "concentration_")

    second_moment_ = WhenAsked[NDArray]()
    fourth_moment_ = WhenAsked[NDArray]()

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

    def parameters(self, j: int = 0) -> dict[str, float]:
        """Return alpha and beta of coordinate j."""
        return {"alpha": float(self.alpha_[j]), "beta": float(self.beta_[j])}

    # The population -----------------------------------------------------------------------------

    def parameters_of(self, first: float, second: float) -> tuple[float, float]:
        """Return mean and overdispersion of alpha and beta."""
        return first / (first + second), 1 / (first + second)

    def _set(self, mean: NDArray, dispersion: NDArray) -> None:
        super()._set(mean, dispersion)
        with np.errstate(divide="ignore"):
            total = self.concentration_ = np.minimum(1 / self.dispersion_, POINT_MASS)
        spread = total < POINT_MASS
        self.alpha_ = np.where(spread, mean * total, np.inf)
        self.beta_ = np.where(spread, (1 - mean) * total, np.inf)
        self.second_moment_, self.fourth_moment_ = self.variance_, 3 * self.variance_**2

    # Fitting ------------------------------------------------------------------------------------

    def _fit(self, likelihood: Likelihood) -> None:
        if self.method not in FITS:
            raise ValueError(f"method must be 'ml', 'moments' or 'paper'; got {self.method!r}.")
        super()._fit(likelihood)

    def likeliest(self, rows: Binomial, counts: NDArray) -> tuple[float, float]:
        """Return mean and overdispersion by the `method`."""
        return FITS[self.method](rows, counts)

    def _fit_counts(self, likelihood: Any) -> None:
        super()._fit_counts(likelihood)
        some = likelihood.trials > 0
        if not some.any():
            return
        names = "second_moment_", "fourth_moment_"
        self._learn_later(names, robust.moments_of_counts, likelihood, self.mean_)
        if self.method == "paper":
            self.raw_ = {"less": 1.0, **_moments(likelihood.local[some])}
            self.plausible_ = None

    def doubts(self, j: int, rows: Binomial, counts: NDArray) -> tuple[float, float]:
        mean, trials = self.mean_[j], rows.trials
        if mean in (0.0, 1.0):
            return 0.0, 0.0
        correlation = self.kind.share_of(self.dispersion_[j])
        variance = mean * (1 - mean) * (1 + (trials - 1) * correlation) / trials
        # how the variances of the proportions move with the population's, per unit of them
        growth = (trials - 1) / trials / variance
        doubt = 2 / float(counts @ growth**2) if growth.any() else 0.0
        return 1 / float((counts / variance).sum()), doubt

    def unidentified(self, j: int, rows: Binomial, estimate: str) -> str:
        """Return why the spread of column j is not identified; empty if it is."""
        if rows.trials.max() == 1:
            return (
                "No group has two rows: the spread of the population is not identified and taken "
                f"to be zero, so every estimate is {estimate}."
            )
        if self.mean_[j] in (0.0, 1.0):
            return (
                f"Every outcome is {self.mean_[j]:.0f}: the spread of the population is not "
                "identified and taken to be zero."
            )
        return ""

    def _fit_reports(self, likelihood: Likelihood) -> None:
        if self.method != "ml":
            raise ValueError(
                f"method must be 'ml' where a channel randomises reports; got {self.method!r}."
            )
        super()._fit_reports(likelihood)
        # the fourth moment is not known, the second has its standard error
        mean, raised = self.mean_, self.variance_ + np.sqrt(self.variance_variance_)
        self.second_moment_ = np.minimum(raised, mean * (1 - mean))
        self.fourth_moment_ = self.second_moment_ * np.maximum(mean, 1 - mean) ** 2

    def misfit_of_reports(self, rows: Likelihood, counts: NDArray, point: NDArray) -> str:
        """Return a sentence if reports contradict every beta population."""
        height = self._log_likelihood_of_reports(rows, counts, point[None])[0]
        return CONTRADICTED * is_contradicted(rows, counts, height)

    def trials_of_reports(self, rows: Likelihood) -> tuple[NDArray, NDArray, NDArray]:
        """Return means and correlations near which the best may be, and the ends of both."""
        means = np.array([0.001, 0.01, *np.linspace(0.05, 0.95, 19), 0.99, 0.999])
        correlations = np.array([0.0, 0.01, 0.03, 0.1, 0.25, 0.5, 0.8])
        return means, correlations, np.array([[1e-9, 0.0], [1 - 1e-9, 1 - 1e-6]])

    def plausible(
        self, rows: Any, counts: NDArray, mean: float, dispersion: float
    ) -> tuple[NDArray, NDArray]:
        """Find plausible means and overdispersions; of reports also of populations of any shape."""
        if isinstance(rows, Binomial):
            return beta_binomial.plausible(rows, counts, dispersion)
        if self.misfit_of_reports(rows, counts, np.array([mean, self.kind.share_of(dispersion)])):
            return of_any_shape(rows, counts)

        def log_likelihood(mean: NDArray, dispersion: NDArray) -> NDArray:
            points = np.column_stack([mean, self.kind.share_of(dispersion)])
            return self._log_likelihood_of_reports(rows, counts, points)

        return beta_binomial.weigh(log_likelihood, float(np.clip(mean, 1e-3, 1 - 1e-3)), dispersion)

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

    def _start(self, rows: Likelihood, counts: NDArray) -> None:
        self._set(np.array([0.5]), np.array([0.5]))

    def _m_step(self, atoms: NDArray, masses: NDArray) -> None:
        """Maximum likelihood of a beta given expected log p and log (1 - p), by Newton's method."""
        rate = atoms[:, 0]
        share = masses / masses.sum()
        target = np.array([share @ np.log(rate), share @ np.log1p(-rate)])
        here: Any = self._with_mean(self.mean_)
        alpha_beta = np.concatenate([here.alpha, here.beta])
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

    # Using --------------------------------------------------------------------------------------

    def update_of(self, likelihood: Binomial) -> Update:
        """Return moments of ``Beta(alpha + z_i, beta + n_i - z_i)``; see `updated`."""
        return updated(likelihood, self.mean_, self.concentration_)

    @property
    def weighs_own_reports(self) -> bool:
        """Whether the method is the paper's, in which clients leave themselves out."""
        return hasattr(self, "raw_")

    def posterior_of_members(self, likelihood: Likelihood, own: OwnReports) -> Posterior:
        """Posterior of clients, each with a population fitted to all others as in eq. (6)."""
        raw = getattr(self, "raw_", None)
        if raw is None or raw["n_reporting"] < 3 or not isinstance(likelihood, Binomial):
            return self.posterior(likelihood)
        mean, dispersion = (
            np.repeat(each[None], len(likelihood), axis=0)
            for each in (self.mean_, self.dispersion_)
        )
        sent = ~np.isnan(own.value).any(axis=1)
        # [E] Theorem 3
        means, concentration = beta_binomial.leave_one_out(own.value[sent], **raw)
        mean[sent], dispersion[sent] = np.clip(means, 1e-9, 1 - 1e-9), 1 / concentration
        there = copy(self)
        there._set(mean, dispersion)
        return BetaPosterior(there, likelihood)


def updated(likelihood: Binomial, mean: NDArray, concentration: NDArray | float) -> Update:
    """Return moments of ``Beta(alpha + z_i, beta + n_i - z_i)``.

    The mean is ``a_i z_i/n_i + (1-a_i) mean`` with ``a_i = n_i / (n_i + alpha + beta)``. What is
    not known of the population adds ``(1 - a_i)**2 (Var(mean) + 2 Var(variance) / v_i)``, ``v_i``
    the variance of a proportion; betas are kept from becoming U-shaped where they were not.

    Parameters
    ----------
    likelihood : Binomial of n clients
    mean, concentration : ndarray that broadcasts to (n, d)
        ``alpha / (alpha + beta)`` and ``alpha + beta``.
    """
    trials = likelihood.trials[:, None]
    total = trials + concentration
    weight = trials / total
    found = (likelihood.successes + mean * concentration) / total
    # (1 - a)**2 / v, in a form that holds without trials or spread
    spread = np.where(mean * (1 - mean) > 0, mean * (1 - mean), 1.0)
    odds = trials * (1 + concentration) * concentration**2 / (spread * total**3)
    own = found * (1 - found)
    with np.errstate(divide="ignore"):
        most = own / (1 + np.minimum(total, 1 / np.minimum(found, 1 - found)))
    return Update(found, own / (total + 1), weight, (1 - weight) ** 2, 2 * odds, most)


def _moments(proportions: NDArray) -> dict[str, Any]:
    """Count, mean and scatter of proportions, or reports, of shape (n, d)."""
    centre = proportions.mean(axis=0) if len(proportions) else np.zeros(proportions.shape[1])
    scatter = ((proportions - centre) ** 2).sum(axis=0)
    return {"n_reporting": len(proportions), "centre": centre, "scatter": scatter}


CONTRADICTED = (
    "Reports contradict every beta population. Estimates and intervals use betas with means and "
    "variances of nonparametric fits; prior='npmle' or 'log_spline' may serve better."
)

# Twice the gain in log-likelihood of the nonparametric fit, beyond which a beta is contradicted.
# Where the population was a beta, it was below 10 in 72 fits (eight levels, 5000 clients).
CONTRADICTION = 12.0

N_NODES, N_DRAWS = 120, 50


def is_contradicted(rows: Likelihood, counts: NDArray, best: float) -> bool:
    """Whether some population explains reports far better than the likeliest beta.

    Parameters
    ----------
    rows : Likelihood of n different reports on one coordinate
    counts : ndarray of shape (n,)
    best : float
        Log-likelihood of that beta.
    """
    _, relative, weights = _nonparametric(rows, counts)
    free = counts @ (np.log(relative @ weights) + rows.log_peak())
    return bool(2 * (free - best) > CONTRADICTION)


def _nonparametric(rows: Likelihood, counts: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Nodes, relative likelihoods at them, and their likeliest weights."""
    nodes = rows.nodes(N_NODES)
    relative = rows.relative(nodes[:, None])
    weights, _ = fit_weights(relative, counts, np.full(len(nodes), 1 / len(nodes)), 0.01)
    return nodes, relative, weights


def of_any_shape(rows: Likelihood, counts: NDArray) -> tuple[NDArray, NDArray]:
    """Find means and overdispersions, (K, 2), of plausible populations of any shape, and weights.

    A beta with the right mean and variance gives the best estimates that are linear in proportions.
    """
    nodes, relative, weights = _nonparametric(rows, counts)
    shapes = np.full(len(nodes), np.log1p(counts.sum()) / 2 / len(nodes))
    start = 0.999 * weights + 0.001 / len(nodes)
    draws = dirichlet_draws(relative, counts, shapes, start, N_DRAWS)
    mean = draws @ nodes
    correlation = (draws @ nodes**2 - mean**2) / (mean * (1 - mean))
    correlation = np.clip(correlation, 1e-6, 1 - 1e-6)
    points = np.column_stack([mean, correlation / (1 - correlation)])
    return points, np.full(N_DRAWS, 1 / N_DRAWS)
