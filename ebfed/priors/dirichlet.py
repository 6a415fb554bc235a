"""Dirichlet population of shares that add up to 1."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, xlogy
from sklearn.utils.validation import check_is_fitted

from ebfed.likelihoods import Binomial, Likelihood, Multinomial
from ebfed.priors import robust
from ebfed.priors.base import WELL_KNOWN, Prior
from ebfed.priors.beta import Beta, BetaPosterior, updated
from ebfed.priors.conjugate import Update
from ebfed.priors.dirichlet_multinomial import Reports, Tables, dirichlet_scores
from ebfed.priors.identification import ONE_GROUP
from ebfed.priors.posterior import Posterior
from ebfed.priors.two_moments import POINT_MASS, BetaDistribution, TwoMoments
from ebfed.tables.values import numbers
from ebfed.wire import WhenAsked

__all__ = ["Dirichlet", "DirichletPosterior", "dirichlet_sample"]

SINGLE = (
    "No group has two answers: the spread of the population is not identified and taken to be "
    "zero, so every estimate is that of all answers together."
)


class Dirichlet(Prior):
    r"""Population ``theta ~ Dirichlet(alpha)`` of shares of d categories.

    Its density is proportional to ``prod_j theta_j**(alpha_j - 1)``; the share of one category is
    ``Beta(alpha_j, A - alpha_j)``, with A the sum of alpha. Fitted to counts by maximum likelihood
    of the Dirichlet-multinomial in mean shares ``mu`` and overdispersion ``phi = 1 / A >= 0``,

    .. math:: \sum_i \Big[\sum_j \sum_{l < z_{ij}} \log(\mu_j + l \phi)
        - \sum_{l < n_i} \log(1 + l \phi)\Big],

    a form that is exact down to ``phi = 0``, where all groups have the same shares. With two
    categories it is the beta-binomial of `Beta`. To reports of randomised categories it is fitted
    by their own exact marginal likelihood; see `ReportedCategories`.

    Where the spread is not known well, or a category has no answers, posteriors average over
    plausible values of phi, under the prior that `Beta` has. Given phi, the mean shares are
    Dirichlet, as after a flat prior and as many answers as the counts are worth.

    Parameters
    ----------
    alpha : float or array-like of shape (d,), optional
        Known parameters, one for all categories or one for each; estimated if None.

    Attributes
    ----------
    alpha_ : ndarray of shape (d,)
        Parameters; infinite where the spread is zero.
    concentration_ : float
        Sum of `alpha_`, capped at 1e14.
    mean_, variance_ : ndarray of shape (d,)
    mean_variance_, variance_variance_ : ndarray of shape (d,)
        Sampling variances of `mean_` and `variance_`.
    second_moment_, fourth_moment_ : ndarray of shape (d,)
        Central moments of the population, for robust intervals.

    References
    ----------
    Mosimann (1962), On the compound multinomial distribution; Minka (2000), Estimating a Dirichlet
    distribution, for Newton's method.

    Examples
    --------
    >>> votes = Multinomial(np.array([[9, 1, 0], [2, 4, 4], [5, 0, 5], [1, 9, 0]]))
    >>> prior = Dirichlet().fit(votes)
    >>> prior.alpha_.round(2), prior.mean_.round(2)
    (array([0.83, 0.57, 0.36]), array([0.47, 0.32, 0.21]))
    >>> prior.posterior(votes).mean.round(2)[0]
    array([0.84, 0.13, 0.03])
    """

    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    max_features: ClassVar[float] = np.inf
    couples_columns: ClassVar[bool] = True
    kind: ClassVar[type[BetaDistribution]] = BetaDistribution

    alpha_: NDArray
    concentration_: float
    second_moment_ = WhenAsked[NDArray]()
    fourth_moment_ = WhenAsked[NDArray]()

    def __init__(self, alpha: float | ArrayLike | None = None):
        self.alpha = alpha

    @property
    def estimates_spread(self) -> bool:
        """Whether the parameters are not given."""
        return self.alpha is None

    def accepts(self, likelihood: Likelihood) -> bool:
        """Return whether the coordinates are shares that add up to 1."""
        return likelihood.adds_up

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, d), with respect to all coordinates but one."""
        alpha = self._finite_alpha()
        constant = gammaln(alpha.sum()) - gammaln(alpha).sum()
        return xlogy(alpha - 1, theta).sum(axis=1) + constant

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population, shape (size, d); rows add up to 1."""
        rng = np.random.default_rng(random_state)
        return dirichlet_sample(np.broadcast_to(self._finite_alpha(), (size, len(self.mean_))), rng)

    def parameters(self, j: int = 0) -> dict[str, float]:
        """Return alpha of category j."""
        return {"alpha": float(self.alpha_[j])}

    def _finite_alpha(self) -> NDArray:
        return np.maximum(self.mean_ * self.concentration_, np.finfo(float).tiny)

    def column(self, j: int) -> Beta:
        """Return the population of the share of category j, a beta.

        Examples
        --------
        >>> votes = Multinomial(np.array([[9, 1, 0], [2, 4, 4], [5, 0, 5], [1, 9, 0]]))
        >>> share = Dirichlet([1.0, 2.0, 3.0]).fit(votes).column(1)
        >>> share.alpha_, share.beta_
        (array([2.]), array([4.]))
        """
        one = Beta.known(self.mean_[[j]], 1 / self.concentration_)
        one.notes_ = list(self.notes_)
        for name in ("mean_variance_", "variance_variance_", "second_moment_", "fourth_moment_"):
            setattr(one, name, getattr(self, name)[[j]])
        if self.plausible_ is not None:
            held = self.plausible_
            one.plausible_ = {
                "mean": held["mean"][:, [j]],
                "dispersion": held["dispersion"][:, None],
                "weights": held["weights"][:, [j]],
            }
        return one

    # Fitting ----------------------------------------------------------------------------------

    def _fit(self, likelihood: Likelihood) -> None:
        d = likelihood.n_features
        if self.alpha is not None:
            alpha = numbers(self.alpha, "alpha")
            if alpha.shape not in ((), (d,)):
                raise ValueError(
                    f"alpha must be a number or one for each of {d} categories; it has shape "
                    f"{alpha.shape}."
                )
            if not (np.all(alpha > 0) and np.isfinite(alpha).all()):
                raise ValueError(f"alpha must be positive; got {self.alpha!r}.")
            alpha = np.broadcast_to(alpha, d)
            self._set(alpha / alpha.sum(), 1 / alpha.sum())
            self.n_parameters_ = 0
            return
        self.n_parameters_ = d
        if not isinstance(likelihood, Multinomial):
            self._fit_reports(Reports.of(likelihood))
            return
        tables = Tables.of(likelihood)
        if not tables.n_groups:
            self._set_unknown(d)
            return
        mean, overdispersion = tables.maximise()
        self._set(mean, overdispersion)
        self._learn_precision(likelihood, tables)
        self._explain(tables)
        self._find_later(Dirichlet._hold_if_open, tables)

    def _hold_if_open(self, tables: Tables | Reports) -> None:
        """Hold plausible populations, where the spread of the fitted one is not known well."""
        doubt = np.sqrt(self.variance_variance_) > WELL_KNOWN * self.variance_
        if np.any(doubt | (self.variance_ == 0)):
            dispersions, means, variances, weights = tables.plausible(1 / self.concentration_)
            self.plausible_ = {
                "mean": means,
                "mean_variance": variances,
                "dispersion": dispersions,
                "weights": np.repeat(weights[:, None], means.shape[1], axis=1),
            }

    def _set_unknown(self, d: int) -> None:
        """Take the population as uniform."""
        self._add_note("No client has data: the population is unknown, taken as uniform.", True)
        self._set(np.full(d, 1 / d), 1 / d)

    def _fit_reports(self, reports: Reports) -> None:
        """Maximise the exact marginal likelihood of reports over mean and correlation."""
        if not len(reports.rows):
            self._set_unknown(reports.rows.n_features)
            return
        mean, correlation = reports.maximise()
        self._set(mean, correlation / (1 - correlation))
        spread = mean * (1 - mean)
        covariance = reports.covariance(mean, correlation)
        self.mean_variance_ = np.minimum(np.diag(covariance)[:-1], spread / 2)
        for j in range(len(mean)):
            slope = np.array([(1 - 2 * mean[j]) * correlation, spread[j]])  # of the variance
            own = covariance[np.ix_([j, -1], [j, -1])]
            self.variance_variance_[j] = slope @ own @ slope
        # the fourth moment is not known, the second has its standard error
        self.second_moment_ = np.minimum(self.variance_ + np.sqrt(self.variance_variance_), spread)
        self.fourth_moment_ = self.second_moment_ * np.maximum(mean, 1 - mean) ** 2
        if not reports.shows_pairs:
            self._add_note(SINGLE, True)
        else:
            self._note_if_open()
        self._find_later(Dirichlet._hold_if_open, reports)

    def _set(self, mean: NDArray, overdispersion: float) -> None:
        """Set every attribute from mean and overdispersion 1 / concentration."""
        with np.errstate(divide="ignore"):
            self.concentration_ = float(np.minimum(np.divide(1.0, overdispersion), POINT_MASS))
        self.mean_ = mean
        spread = self.concentration_ < POINT_MASS
        self.alpha_ = mean * self.concentration_ if spread else np.full(len(mean), np.inf)
        self.variance_ = mean * (1 - mean) * overdispersion / (1 + overdispersion)
        self.mean_variance_, self.variance_variance_ = np.zeros_like(mean), np.zeros_like(mean)
        self.second_moment_, self.fourth_moment_ = self.variance_, 3 * self.variance_**2

    def _learn_precision(self, likelihood: Multinomial, tables: Tables) -> None:
        """Sampling variances of mean and variance, and moments for robust intervals."""
        spread, sizes = self.mean_ * (1 - self.mean_), tables.sizes
        self.mean_variance_ = spread / tables.information(1 / self.concentration_)
        # how the variances of shares move with the correlation of two answers, per unit of them
        growth = (sizes - 1) * (1 + self.concentration_) / (sizes + self.concentration_)
        free = max(int((tables.events > 0).sum()) - 1, 1)
        if growth.any():
            self.variance_variance_ = 2 * spread**2 / (free * (tables.times @ growth**2))
        names = "second_moment_", "fourth_moment_"
        self._learn_later(names, robust.moments_of_counts, likelihood, self.mean_)

    def _explain(self, tables: Tables) -> None:
        """Add a note on what the data do not identify."""
        if tables.n_groups == 1:
            self._add_note(ONE_GROUP, True)
        elif tables.sizes.max() == 1:
            self._add_note(SINGLE, True)
        elif tables.pooled.max() == 1:
            self._add_note(
                "All answers are of one category: the spread of the population is not identified "
                "and taken to be zero.",
                True,
            )
        elif np.isinf(self.alpha_).any():
            self._add_note(
                "The estimated concentration is infinite: groups differ no more than multinomial "
                "noise explains, and every estimate is that of all answers together."
            )
        if (empty := int((tables.events == 0).sum())) and len(tables.events) > 1:
            self._add_note(
                f"{empty} categor{'y has' if empty == 1 else 'ies have'} no answers; the estimate "
                "of a share is 0 there, and its interval says how large it may be."
            )

    def _take(self, mean: NDArray, mean_variance: NDArray, dispersion: NDArray) -> None:
        self._set(mean, float(dispersion))
        self.mean_variance_ = mean_variance

    def _posterior_of_mean(self) -> Posterior:
        return TwoMoments(self.kind, self.mean_[None], np.sqrt(self.mean_variance_)[None])

    # Estimates --------------------------------------------------------------------------------

    def _posterior(self, likelihood: Likelihood) -> Posterior:
        """Return the conjugate posterior of counts."""
        self._check(likelihood)
        assert isinstance(likelihood, Multinomial)
        return DirichletPosterior(self, likelihood)

    def update_of(self, likelihood: Multinomial) -> Update:
        """Update the beta of the share of each category."""
        return updated(
            Binomial(likelihood.counts, likelihood.trials), self.mean_, self.concentration_
        )

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """Log-probability of each client's counts, or of its report, shape (n,)."""
        check_is_fitted(self, "mean_")
        if not isinstance(likelihood, Multinomial):
            return dirichlet_scores(likelihood, self.mean_, 1 / (1 + self.concentration_))[0]
        self._check(likelihood)
        ordered = likelihood.ordered_log_marginal(self.mean_, 1 / self.concentration_)
        return ordered + likelihood.log_coefficient()

    def _check(self, likelihood: Likelihood) -> None:
        """Refuse other messages than counts of these categories."""
        if not isinstance(likelihood, Multinomial) or likelihood.n_features != len(self.mean_):
            raise TypeError(
                f"a Dirichlet population of {len(self.mean_)} categories needs Multinomial counts "
                f"of as many; got {type(likelihood).__name__} of {likelihood.n_features}."
            )


class DirichletPosterior(BetaPosterior):
    """``Dirichlet(alpha + z_i)``, the population's uncertainty included.

    Single shares are beta, with moments as in `BetaPosterior`. Draws are of all shares together,
    and add up to 1.

    Parameters
    ----------
    prior : Dirichlet, fitted
    likelihood : Multinomial
    """

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's shares, shape (size, n, d).

        In each draw all clients have one mean of the population, which is Dirichlet. Given it,
        shares are Dirichlet with such a concentration that all in all their variances add up to
        those of the posterior.
        """
        rng = np.random.default_rng(random_state)
        prior = self._prior
        centre, doubt, concentration = prior.mean_, prior.mean_variance_, prior.concentration_
        draws = np.empty((size, *self.mean.shape))
        # what is not known of the mean adds the same share of m (1 - m) in each category
        added = doubt.sum() / max((centre * (1 - centre)).sum(), np.finfo(float).tiny)
        total = self.likelihood.trials[:, None] + concentration
        inside = (self.mean * (1 - self.mean) - self._common).sum(axis=1, keepdims=True)
        own = (self.sd**2 - self._common).sum(axis=1, keepdims=True)
        many = np.divide(inside, own, out=np.full(own.shape, POINT_MASS), where=own > 0) - 1
        many = np.maximum(many, np.finfo(float).tiny)
        for draw in draws:
            mean = centre
            if 0 < added < 1:
                mean = dirichlet_sample(
                    np.maximum(centre * (1 / added - 1), np.finfo(float).tiny), rng
                )
            each = (self.likelihood.counts + concentration * mean) / total
            draw[:] = dirichlet_sample(np.maximum(each * many, np.finfo(float).tiny), rng)
        return draws


def dirichlet_sample(alpha: NDArray, rng: np.random.Generator) -> NDArray:
    """Draw from Dirichlet distributions along the last axis, however small alpha is."""
    # a gamma of a small shape is below the smallest float: its logarithm is not
    logs = np.log(rng.standard_gamma(alpha + 1)) + np.log(rng.random(alpha.shape)) / alpha
    logs -= logs.max(axis=-1, keepdims=True)
    shares = np.exp(logs)
    return shares / shares.sum(axis=-1, keepdims=True)
