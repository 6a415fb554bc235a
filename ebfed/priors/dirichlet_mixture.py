"""Mixture of Dirichlets: groups whose shares of categories come in a few kinds."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.likelihoods import Binomial, Likelihood, Multinomial
from ebfed.priors.base import Prior
from ebfed.priors.dirichlet import (
    Climbed,
    Dirichlet,
    Mixture,
    Reports,
    dirichlet_sample,
    dirichlet_scores,
)
from ebfed.priors.integrated import IntegratedPosterior
from ebfed.priors.mixture_em import kmeans, log_sum
from ebfed.priors.n_components import RULES, check_n_components, choose
from ebfed.priors.posterior import Posterior

__all__ = ["DirichletMixture"]

# Gain for each client at which the climb from a start stops, and that from the best of these.
ROUGH, FINE = 1e-6, 1e-10
# Points of which starts are clusters, and steps of EM for their weights.
POINTS, STEPS = 600, 100
# Concentration of groups that are alike: with more, densities lose the digits of probabilities.
ALIKE = 1e12


@dataclass(eq=False, repr=False)
class DirichletMixture(Prior):
    r"""Population ``theta ~ sum_l w_l Dirichlet(alpha_l)`` of shares of d categories.

    Fitted by marginal likelihood, to counts or to reports of randomised categories,

    .. math:: \sum_i \log \sum_l w_l\, p(x_i \mid \mu_l, \rho_l),

    at its mode in logits under a uniform prior: reports that tell little must not leave components
    without any spread. A component has mean shares mu_l and a correlation ``rho_l = 1 / (1 +
    concentration)`` of two answers of a client; probabilities p are those of `Multinomial` and
    `ReportedCategories`. The posterior of a client is a mixture of Dirichlets,

    .. math:: \sum_l r_{il}\, \mathrm{Dirichlet}(\alpha_l + z_i), \qquad
        r_{il} \propto w_l\, p(z_i \mid \mu_l, \rho_l).

    A single component is `Dirichlet`, with the populations that messages leave plausible beside it.

    Reports must show several answers of some clients: single answers tell the mean of the
    population only, and pairs its covariances.

    Parameters
    ----------
    n_components : int, "bic" or "heldout"
        Number of components, or how it is chosen from 1 to `max_components`: the least BIC, or the
        largest likelihood of clients that were held out; see `ebfed.priors.n_components`.
    max_components : int
    n_init : int
        Number of starts, of which the likeliest is kept: clusters of the points of a population
        that EM fits roughly.
    random_state : int, Generator or None
        Seed of the starts.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
    centres_, alphas_ : ndarray of shape (k, d)
        Mean shares and parameters of the components, in the order of the centres.
    concentrations_ : ndarray of shape (k,)
        Sums of `alphas_`, capped at 1e12.
    mean_, variance_ : ndarray of shape (d,)
        Of the population.
    criterion_ : ndarray
        For each number of components that was tried: its BIC, or with ``"heldout"`` minus twice the
        log-likelihood of held-out clients.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kinds = np.array([[8.0, 1.0, 1.0], [1.0, 1.0, 8.0]])[rng.integers(2, size=400)]
    >>> votes = Multinomial(rng.multinomial(20, [rng.dirichlet(2 * kind) for kind in kinds]))
    >>> prior = DirichletMixture(random_state=0).fit(votes)
    >>> prior.weights_.round(2), prior.centres_.round(2)
    (array([0.55, 0.45]), array([[0.1 , 0.1 , 0.8 ],
           [0.81, 0.1 , 0.09]]))
    """

    n_components: int | Literal["bic", "heldout"] = "bic"
    _: KW_ONLY
    max_components: int = 5
    n_init: int = 4
    random_state: Any = None

    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    max_features: ClassVar[float] = np.inf
    couples_columns: ClassVar[bool] = True

    @classmethod
    def known(cls, weights: NDArray, alphas: NDArray) -> Self:
        """Return a fitted population with these weights (k,) and parameters (k, d)."""
        prior, total = cls(len(weights)), alphas.sum(axis=1)
        prior.notes_, prior.noise_variance_, prior.plausible_ = [], None, None
        prior.n_parameters_ = 0
        prior._set(Mixture(weights, alphas / total[:, None], 1 / (1 + total)))
        return prior

    def accepts(self, likelihood: Likelihood) -> bool:
        """Return whether the coordinates are shares that add up to 1."""
        return likelihood.adds_up

    # Fitting ----------------------------------------------------------------------------------

    def _fit(self, likelihood: Likelihood) -> None:
        check_n_components(self.n_components, self.max_components)
        d, reports = likelihood.n_features, Reports.of(likelihood)
        if not len(reports):
            self._add_note("No client has data: the population is unknown, taken as uniform.", True)
            self._set(Mixture.single(np.full(d, 1 / d), 1 / (1 + d)))
            self.criterion_, self.n_parameters_ = np.zeros(1), 0
            return
        rng = np.random.default_rng(self.random_state)
        rule, numbers = "bic", list(range(1, self.max_components + 1))
        if self.n_components in RULES:
            rule = str(self.n_components)
        else:
            numbers = [int(self.n_components)]
        if not reports.shows_pairs:
            numbers = [1]

        def fit(k: int, counts: NDArray) -> tuple[Mixture, NDArray]:
            seen = np.flatnonzero(counts)
            best = self._climbed(Reports(reports.rows.take(seen), counts[seen]), k, rng)
            return best.mixture, np.array([best.log_likelihood])

        mixture, _, self.criterion_ = choose(
            rule,
            numbers,
            fit,
            lambda mixture: log_sum(reports.scores(mixture)[0]),
            lambda k: k * (d + 1) - 1,
            reports.counts,
            rng,
        )
        self.n_parameters_ = len(mixture.weights) * (d + 1) - 1
        if len(mixture.weights) == 1:
            self._become(Dirichlet().fit(likelihood))
            return
        self._set(mixture)
        self._add_note("Intervals take the mixture of Dirichlets as known.")

    def _become(self, one: Dirichlet) -> None:
        """Be the only component, with the populations that messages leave plausible beside it."""
        self._set(Mixture.single(one.mean_, 1 / (1 + one.concentration_)))
        self.mean_variance_, self.variance_variance_ = one.mean_variance_, one.variance_variance_
        self.plausible_ = one.plausible_
        self.notes_ += one.notes_

    def _take(self, mean: NDArray, mean_variance: NDArray, dispersion: NDArray) -> None:
        self._set(Mixture.single(mean, float(dispersion / (1 + dispersion))))
        self.mean_variance_, self.variance_variance_ = mean_variance, np.zeros_like(mean)

    def _climbed(self, reports: Reports, k: int, rng: np.random.Generator) -> Climbed:
        """Find the likeliest mixture of k, from several starts."""
        single = Mixture.single(*reports.maximise())
        if k == 1:
            return reports.climb(single)
        starts = _starts(reports, k, single, self.n_init, rng)
        tried = [reports.climb(start, prior=1.0, tol=ROUGH) for start in starts]
        best = max(tried, key=lambda each: each.log_likelihood)
        return reports.climb(best.mixture, prior=1.0, tol=FINE)

    def _set(self, mixture: Mixture) -> None:
        """Set every attribute of the population."""
        order = np.lexsort(mixture.means.T[::-1])
        self.weights_, self.centres_, correlations = (x[order] for x in mixture)
        with np.errstate(divide="ignore"):
            self.concentrations_ = np.minimum(1 / correlations - 1, ALIKE)
        self.alphas_ = self.centres_ * self.concentrations_[:, None]
        self.mean_ = self.weights_ @ self.centres_
        self.variance_ = self.weights_ @ (self.spreads_ + (self.centres_ - self.mean_) ** 2)

    _posterior_of_mean = Dirichlet._posterior_of_mean
    kind = Dirichlet.kind

    @property
    def n_components_(self) -> int:
        """Number of components."""
        return len(self.weights_)

    @property
    def spreads_(self) -> NDArray:
        """Variances of shares within the components, shape (k, d)."""
        return self.centres_ * (1 - self.centres_) * self._mixture.correlations[:, None]

    @property
    def _mixture(self) -> Mixture:
        return Mixture(self.weights_, self.centres_, 1 / (1 + self.concentrations_))

    # Estimates --------------------------------------------------------------------------------

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (m, d), with respect to all coordinates but one."""
        theta = theta if theta.shape[1] > 1 else np.hstack([theta, 1 - theta])
        each = [self._component(k).logpdf(theta) for k in range(len(self.weights_))]
        return log_sum(np.stack(each, axis=1) + np.log(self.weights_))

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population, shape (size, d); rows add up to 1."""
        rng = np.random.default_rng(random_state)
        alpha = self.alphas_[rng.choice(len(self.weights_), size, p=self.weights_)]
        draws = dirichlet_sample(np.maximum(alpha, np.finfo(float).tiny), rng)
        return draws[:, : len(self.mean_)]

    def column(self, j: int) -> Self:
        """Return the population of the share of category j, a mixture of betas."""
        one = self._like({})
        centre = self.centres_[:, [j]]
        one._set(self._mixture._replace(means=np.hstack([centre, 1 - centre])))
        one.mean_, one.variance_ = one.mean_[:1], one.variance_[:1]
        return one

    def _component(self, k: int) -> Dirichlet:
        return Dirichlet.known(self.centres_[k], 1 / self.concentrations_[k])

    def responsibilities(self, likelihood: Likelihood) -> NDArray:
        """Probability that each client is of each component, shape (n, k)."""
        logs = self._joint(likelihood)
        return np.exp(logs - log_sum(logs)[:, None])

    def _joint(self, likelihood: Likelihood) -> NDArray:
        check_is_fitted(self, "mean_")
        if isinstance(likelihood, Binomial):  # of one share
            both = [likelihood.successes, likelihood.trials[:, None] - likelihood.successes]
            likelihood = Multinomial(np.hstack(both))
        pairs = zip(self.centres_, self._mixture.correlations, strict=True)
        values = [dirichlet_scores(likelihood, *pair)[0] for pair in pairs]
        with np.errstate(divide="ignore"):
            return np.stack(values, axis=1) + np.log(self.weights_)

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """Log-probability of each client's counts, or of its report, shape (n,)."""
        return log_sum(self._joint(likelihood))

    def _posterior(self, likelihood: Likelihood) -> Posterior:
        """Return the mixture of the components' posteriors."""
        if len(self.weights_) == 1:
            only = self._component(0)
            for name in ("mean_variance_", "variance_variance_"):
                setattr(only, name, getattr(self, name, getattr(only, name)))
            return only._posterior(likelihood)
        # robust intervals are those of one Dirichlet with the same moments
        dispersion = self.variance_.sum() / (self.mean_ * (1 - self.mean_) - self.variance_).sum()
        one = Dirichlet.known(self.mean_, float(dispersion))
        one.fourth_moment_ = self.variance_ * np.maximum(self.mean_, 1 - self.mean_) ** 2
        fitted, parts = one._posterior(likelihood), partial(self._parts, likelihood)
        return IntegratedPosterior(fitted, parts, averages=True)

    def _parts(self, likelihood: Likelihood) -> tuple[list[Posterior], NDArray]:
        components = [self._component(k) for k in range(len(self.weights_))]
        parts = [component._posterior(likelihood) for component in components]
        return parts, self.responsibilities(likelihood).T[:, :, None]


def _starts(
    reports: Reports, k: int, single: Mixture, n_init: int, rng: np.random.Generator
) -> list[Mixture]:
    """Cluster a population of points, which a few steps of EM have weighted, several times."""
    d, rows = reports.rows.n_features, reports.rows
    wide = min(1 / max(float(single.correlations[0]), 1e-3) - 1, float(d))
    alpha = np.where(np.arange(POINTS)[:, None] % 2, 1.0, np.maximum(wide * single.means, 1e-3))
    points = dirichlet_sample(np.broadcast_to(alpha, (POINTS, d)), rng)
    logs = np.concatenate([block.logpdf(points) for block in rows.split(1 + len(rows) // 10_000)])
    chances, weights = np.exp(logs - logs.max(axis=1, keepdims=True)), np.full(POINTS, 1 / POINTS)
    for _ in range(STEPS):
        weights = weights * ((reports.counts / (chances @ weights)) @ chances)
        weights /= weights.sum()
    found = []
    for _ in range(n_init):
        drawn = points[rng.choice(POINTS, POINTS, p=weights)]
        labels, centres = kmeans(drawn, k, np.random.RandomState(rng.integers(2**31)))
        member = (labels[:, None] == np.arange(k)).T / POINTS
        within = (member @ drawn**2).sum(axis=1) / np.maximum(member.sum(axis=1), 1e-9)
        inside = 1 - (centres**2).sum(axis=1)
        correlations = np.clip(1 - (1 - within) / inside, 0.01, 0.5)
        found.append(Mixture((member.sum(axis=1) + 0.01) / (1 + 0.01 * k), centres, correlations))
    return found
