"""Dirichlet population of shares that add up to 1."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, softmax, xlogy

from ebfed.likelihoods import Binomial, Joined, Likelihood, Multinomial, ReportedCategories
from ebfed.likelihoods.base import parts_of
from ebfed.priors import robust
from ebfed.priors.beta import Beta, BetaPosterior, updated
from ebfed.priors.beta_binomial import Tables, check_size, plausible_dispersions
from ebfed.priors.conjugate import Conjugate, Table, Update
from ebfed.priors.mixture_em import log_sum
from ebfed.priors.posterior import Posterior
from ebfed.priors.two_moments import POINT_MASS, BetaDistribution
from ebfed.tables.values import numbers
from ebfed.wire import Later, WhenAsked

__all__ = [
    "Climbed",
    "Dirichlet",
    "DirichletPosterior",
    "Mixture",
    "Reports",
    "dirichlet_sample",
    "dirichlet_scores",
]


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


class Dirichlet(Conjugate):
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
    couples_columns: ClassVar[bool] = True
    messages, kind, posteriors = Multinomial, BetaDistribution, DirichletPosterior
    arguments = ("alpha",)
    words: ClassVar[dict[str, str]] = {
        "nothing": "No client has data: the population is unknown, taken as uniform.",
        "single": (
            "No group has two answers: the spread of the population is not identified and taken to "
            "be zero, so every estimate is that of all answers together."
        ),
        "alike": "The estimated concentration is infinite",
        "noise": "multinomial noise",
        "pooled": "that of all answers together",
    }

    alpha_: NDArray
    concentration_: float
    second_moment_ = WhenAsked[NDArray]()
    fourth_moment_ = WhenAsked[NDArray]()

    def __init__(self, alpha: float | ArrayLike | None = None):
        self.alpha = alpha

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
        as_it_is = copy(self)
        one.notes_ = Later(lambda: list(as_it_is.notes_))
        for name in ("mean_variance_", "variance_variance_"):
            setattr(one, name, getattr(self, name)[[j]])
        for name in ("second_moment_", "fourth_moment_"):
            setattr(one, name, Later(partial(lambda name: getattr(as_it_is, name)[[j]], name)))
        if self._has_others:
            one.plausible_ = Later(partial(as_it_is._plausible_share, j))
        return one

    def _plausible_share(self, j: int) -> dict[str, NDArray] | None:
        """Plausible populations of the share of category j."""
        if (held := self.plausible_) is None:
            return None
        return {
            "mean": held["mean"][:, [j]],
            "dispersion": held["dispersion"][:, None],
            "weights": held["weights"][:, [j]],
        }

    # Fitting ----------------------------------------------------------------------------------

    def given_parameters(self, d: int) -> Sequence[NDArray] | None:
        if self.alpha is None:
            return None
        alpha = numbers(self.alpha, "alpha")
        if alpha.shape not in ((), (d,)):
            raise ValueError(
                f"alpha must be a number or one for each of {d} categories; it has shape "
                f"{alpha.shape}."
            )
        if not (np.all(alpha > 0) and np.isfinite(alpha).all()):
            raise ValueError(f"alpha must be positive; got {self.alpha!r}.")
        alpha = np.broadcast_to(alpha, d)
        return alpha / alpha.sum(), 1 / alpha.sum()

    def unknown_parameters(self, d: int) -> Sequence[NDArray]:
        return [np.full(d, 1 / d)] * 2

    def _set(self, mean: NDArray, dispersion: NDArray) -> None:
        """Set every attribute from mean and overdispersion, which is one for all categories."""
        super()._set(mean, np.ravel(dispersion)[:1])
        with np.errstate(divide="ignore"):
            self.concentration_ = float(np.minimum(1 / self.dispersion_[0], POINT_MASS))
        spread = self.concentration_ < POINT_MASS
        self.alpha_ = mean * self.concentration_ if spread else np.full(len(mean), np.inf)
        self.second_moment_, self.fourth_moment_ = self.variance_, 3 * self.variance_**2
        self.n_parameters_ = len(mean)

    def tables_of(self, likelihood: Any) -> list[Table]:
        if not isinstance(likelihood, Multinomial):
            reports = Reports.of(likelihood)
            return [(reports, reports.counts)]
        tables = Tables.of_categories(likelihood)
        return [(tables, tables.times)]

    def likeliest(self, rows: Tables, counts: NDArray) -> tuple[NDArray, float]:
        """Return mean shares and overdispersion of greatest likelihood."""
        return rows.maximise()

    def _fit_counts(self, likelihood: Any) -> None:
        super()._fit_counts(likelihood)
        if not likelihood.trials.any():
            return
        names = "second_moment_", "fourth_moment_"
        self._learn_later(names, robust.moments_of_counts, likelihood, self.mean_)
        empty = int((~likelihood.counts.any(axis=0)).sum())
        if empty and likelihood.n_features > 1:
            self._add_note(
                f"{empty} categor{'y has' if empty == 1 else 'ies have'} no answers; the estimate "
                "of a share is 0 there, and its interval says how large it may be."
            )

    def doubts(self, j: int, rows: Tables, counts: NDArray) -> tuple[NDArray, NDArray]:
        spread, sizes = self.mean_ * (1 - self.mean_), rows.sizes
        # how the variances of shares move with the correlation of two answers, per unit of them
        growth = (sizes - 1) * (1 + self.concentration_) / (sizes + self.concentration_)
        free = max(int((rows.events > 0).sum()) - 1, 1)
        known = free * (counts @ growth**2)
        doubt = 2 * spread**2 / known if known else np.zeros_like(spread)
        return spread / rows.information(1 / self.concentration_), doubt

    def unidentified(self, j: int, rows: Tables, estimate: str) -> str:
        if rows.sizes.max() == 1:
            return self.words["single"]
        if rows.pooled.max() == 1:
            return (
                "All answers are of one category: the spread of the population is not identified "
                "and taken to be zero."
            )
        return ""

    def shows_spread(self, rows: Reports) -> bool:
        return rows.shows_pairs

    def fits_of_reports(self, tables: list[Table]) -> list[tuple[NDArray, NDArray]]:
        reports = tables[0][0]
        mean, correlation = reports.maximise()
        whole = reports.covariance(mean, correlation)
        pairs = [np.ix_([j, -1], [j, -1]) for j in range(len(mean))]
        points = np.column_stack([mean, np.full(len(mean), correlation)])
        return [(point, whole[pair]) for point, pair in zip(points, pairs, strict=True)]

    def _fit_reports(self, likelihood: Likelihood) -> None:
        super()._fit_reports(likelihood)
        spread = self.mean_ * (1 - self.mean_)
        self.mean_variance_ = np.minimum(self.mean_variance_, spread / 2)
        # the fourth moment is not known, the second has its standard error
        self.second_moment_ = np.minimum(self.variance_ + np.sqrt(self.variance_variance_), spread)
        self.fourth_moment_ = self.second_moment_ * np.maximum(self.mean_, 1 - self.mean_) ** 2

    def _hold_plausible(self, tables: Sequence[Table]) -> None:
        rows: Tables | Reports = tables[0][0]
        dispersions, means, variances, weights = rows.plausible(1 / self.concentration_)
        self.plausible_ = {
            "mean": means,
            "mean_variance": np.maximum(variances, 0.0),  # below zero by rounding
            "dispersion": dispersions,
            "weights": np.repeat(weights[:, None], means.shape[1], axis=1),
        }

    def _take(self, mean: NDArray, mean_variance: NDArray, dispersion: NDArray) -> None:
        self._set(mean, dispersion)
        self.mean_variance_ = mean_variance

    # Estimates --------------------------------------------------------------------------------

    def _posterior(self, likelihood: Likelihood) -> Posterior:
        """Return the conjugate posterior of counts."""
        self._check(likelihood)
        return super()._posterior(likelihood)

    def update_of(self, likelihood: Multinomial) -> Update:
        """Update the beta of the share of each category."""
        return updated(
            Binomial(likelihood.counts, likelihood.trials), self.mean_, self.concentration_
        )

    def marginal_of(self, likelihood: Any) -> NDArray:
        """Log-probability of each client's counts, or of its report, shape (n,)."""
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


def dirichlet_sample(alpha: NDArray, rng: np.random.Generator) -> NDArray:
    """Draw from Dirichlet distributions along the last axis, however small alpha is."""
    # a gamma of a small shape is below the smallest float: its logarithm is not
    logs = np.log(rng.standard_gamma(alpha + 1)) + np.log(rng.random(alpha.shape)) / alpha
    logs -= logs.max(axis=-1, keepdims=True)
    shares = np.exp(logs)
    return shares / shares.sum(axis=-1, keepdims=True)


# Correlations of two answers of a client from which the likelihood is climbed.
STARTS = (0.02, 0.2, 0.6)
# Largest correlation, and largest absolute logit of a mean share.
MOST, REACH = 1 - 1e-6, 30.0


def dirichlet_scores(
    likelihood: Likelihood, mean: NDArray, correlation: float
) -> tuple[NDArray, NDArray, NDArray]:
    """Log-probability of each message over a Dirichlet population, and its derivatives.

    See `ReportedCategories.dirichlet_scores`.

    Raises
    ------
    TypeError
        If messages are neither counts nor reports of categories.
    """
    if isinstance(likelihood, Joined):
        found = [dirichlet_scores(part, mean, correlation) for part in likelihood.parts]
        value, by_mean, by_correlation = zip(*found, strict=True)
        joined = (np.concatenate(each) for each in (value, by_mean, by_correlation))
        return next(joined), next(joined), next(joined)
    if not isinstance(likelihood, Multinomial | ReportedCategories):
        raise TypeError(f"{type(likelihood).__name__} messages are not of categories.")
    return likelihood.dirichlet_scores(mean, correlation)


class Mixture(NamedTuple):
    """Weights (k,), mean shares (k, d) and correlations of two answers (k,) of k Dirichlets."""

    weights: NDArray
    means: NDArray
    correlations: NDArray

    @classmethod
    def single(cls, shares: NDArray, correlation: float) -> Mixture:
        """Return the mixture of one."""
        return cls(np.ones(1), shares[None], np.array([correlation]))


class Climbed(NamedTuple):
    """A maximum, and the log-likelihood there."""

    mixture: Mixture
    log_likelihood: float


@dataclass(frozen=True)
class Reports:
    """Different messages about shares of d categories, and how many clients sent each.

    Some may be exact counts.

    Examples
    --------
    >>> votes = Multinomial(np.array([[9, 1, 0], [2, 4, 4], [5, 0, 5], [1, 9, 0]]))
    >>> shares, correlation = Reports.of(votes).maximise()
    >>> shares.round(3), round(correlation / (1 - correlation), 3)
    (array([0.471, 0.324, 0.205]), 0.565)
    """

    rows: Likelihood
    counts: NDArray

    @classmethod
    def of(cls, likelihood: Likelihood) -> Reports:
        """Tabulate the messages of clients."""
        for part in parts_of(likelihood):
            if isinstance(part, Multinomial) and len(part):
                check_size(part.column(0))
        return cls(*likelihood.compress())

    def __len__(self) -> int:
        """Count the different messages."""
        return len(self.rows)

    @property
    def shows_pairs(self) -> bool:
        """Whether some message is about two answers of one client."""
        return any(
            bool(np.any(part.trials > 1)) if isinstance(part, Multinomial) else part.shows_pairs
            for part in parts_of(self.rows)
            if isinstance(part, Multinomial | ReportedCategories)
        )

    def maximise(self) -> tuple[NDArray, float]:
        """Mean shares, and correlation of two answers of a client, of greatest likelihood."""
        d = self.rows.n_features
        starts = STARTS if self.shows_pairs else (0.0,)
        found = [self.climb(Mixture.single(np.full(d, 1 / d), start)) for start in starts]
        best = max(found, key=lambda each: each.log_likelihood).mixture
        return best.means[0], float(best.correlations[0])

    def climb(
        self, mixture: Mixture, fixed: bool = False, prior: float = 0.0, tol: float = 1e-14
    ) -> Climbed:
        """Climb to a maximum over mixtures of Dirichlets.

        Parameters
        ----------
        mixture : Mixture
            Where to begin.
        fixed : bool
            Whether correlations are kept.
        prior : float
            Weight of a uniform prior of weights, shares and correlations: the maximum is the mode
            of their logits, which is never at an end.
        tol : float
            Gain in log-likelihood for each client at which it stops.
        """
        from scipy.optimize import minimize

        weights, shares, correlations = mixture
        k, total = len(weights), self.counts.sum()
        fixed = fixed or not correlations.any()

        def parts(x: NDArray) -> Mixture:
            means = softmax(x[k:-k].reshape(shares.shape), axis=1)
            return Mixture(softmax(x[:k]), means, correlations if fixed else x[-k:])

        def loss(x: NDArray) -> tuple[float, NDArray]:
            at = parts(x)
            logs, by_mean, by_correlation = self.scores(at)
            value = log_sum(logs)
            own = self.counts[:, None] * np.exp(logs - value[:, None])
            slopes = np.einsum("il,lij->lj", own, by_mean)
            slopes = at.means * (slopes - (at.means * slopes).sum(axis=1, keepdims=True))
            bends = np.zeros(k) if fixed else np.einsum("il,li->l", own, by_correlation)
            of_weights = own.sum(axis=0) - total * at.weights
            height = float(self.counts @ value)
            if prior:
                height += prior * sum(np.log(each).sum() for each in (*at, 1 - at.correlations))
                of_weights += prior * (1 - k * at.weights)
                slopes += prior * (1 - shares.shape[1] * at.means)
                bends += prior * (1 / at.correlations - 1 / (1 - at.correlations))
            slope = np.concatenate([of_weights, slopes.ravel(), bends])
            return -height / total, -slope / total

        logs = [np.log(np.maximum(x, np.exp(-REACH / 2))).ravel() for x in (weights, shares)]
        best = minimize(
            loss,
            np.concatenate([*logs, correlations]),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-REACH, REACH)] * (k + shares.size) + [(1e-6 * bool(prior), MOST)] * k,
            options={"ftol": tol, "gtol": min(1e5 * tol, 1e-4), "maxiter": 500},
        )
        found = parts(best.x)
        return Climbed(found, float(self.counts @ log_sum(self.scores(found)[0])))

    def scores(self, mixture: Mixture) -> tuple[NDArray, NDArray, NDArray]:
        """Log-probabilities of messages and components, (n, k), and derivatives of each.

        These are by the shares, (k, n, d), and by the correlation of a component, (k, n).
        """
        pairs = zip(mixture.means, mixture.correlations, strict=True)
        found = [dirichlet_scores(self.rows, *pair) for pair in pairs]
        values, by_mean, by_correlation = (np.array(x) for x in zip(*found, strict=True))
        with np.errstate(divide="ignore"):
            return values.T + np.log(mixture.weights), by_mean, by_correlation

    def covariance(self, mean: NDArray, correlation: float, both: bool = True) -> NDArray:
        """Covariance of mean shares, and of the correlation at the end if that is open too.

        It is the inverse of the sum of squared scores, to which flat priors add what they know:
        of directions that messages say nothing about.
        """
        d = len(mean)
        _, by_mean, by_correlation = dirichlet_scores(self.rows, mean, correlation)
        scores = np.column_stack([by_mean, by_correlation]) if both else by_mean
        # moves of shares leave their sum as it is
        free = np.linalg.svd(np.ones((1, d)))[2][1:].T
        basis = np.zeros((scores.shape[1], d - 1 + both))
        basis[:d, : d - 1] = free
        if both:
            basis[-1, -1] = 1.0
        inside = scores @ basis
        known = np.append(np.full(d - 1, d * (d + 1.0)), [12.0] * both)
        information = (inside * self.counts[:, None]).T @ inside + np.diag(known)
        return basis @ np.linalg.inv(information) @ basis.T

    def plausible(self, near: float) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Find overdispersions that messages leave plausible, with the shares given each.

        As of `Tables.plausible`. Given the overdispersion, shares have a flat prior and are
        integrated out by Laplace's method.
        """
        d = self.rows.n_features
        last, held = np.full(d, 1 / d), {}

        def given(dispersion: float) -> tuple[float, NDArray, NDArray]:
            nonlocal last
            if dispersion not in held:
                correlation = min(dispersion / (1 + dispersion), MOST)
                best, value = self.climb(Mixture.single(last, correlation), fixed=True)
                shares = best.means[0]
                covariance = self.covariance(shares, correlation, both=False)
                roots = np.linalg.eigvalsh(covariance)[1:]  # the first is that of the sum
                last = shares
                held[dispersion] = value + 0.5 * np.log(roots).sum(), shares, np.diag(covariance)
            return held[dispersion]

        dispersions, weights = plausible_dispersions(lambda each: given(each)[0], near)
        shares, variances = (np.array([given(float(x))[k] for x in dispersions]) for k in (1, 2))
        # as the average of shares whose likeliest may be 0
        many = (shares * (1 - shares)).sum(axis=1) / variances.sum(axis=1)
        means = (many[:, None] * shares + 1) / (many[:, None] + d)
        variances = np.minimum(variances, means * (1 - means) / 2)
        return dispersions, means, variances, weights
