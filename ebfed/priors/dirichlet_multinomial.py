"""Shares and overdispersion of counts ``z_i ~ DirichletMultinomial(n_i, shares, overdispersion)``.

`Tables` fits them to counts, and `Reports` to messages that a channel randomised, by the
correlation of two answers ``overdispersion / (1 + overdispersion)``, one Dirichlet or a mixture.
Overdispersion is one over the concentration; zero means that all groups have the same shares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_expit, softmax, xlogy

from ebfed.kernels import dirichlet_profile
from ebfed.likelihoods import Joined, Likelihood, Multinomial, ReportedCategories
from ebfed.likelihoods.distinct import number_rows
from ebfed.priors import beta_binomial
from ebfed.priors.exploration import TILT, explore
from ebfed.priors.mixture_em import log_sum
from ebfed.priors.search import minimise

__all__ = ["Climbed", "Mixture", "Reports", "Tables", "dirichlet_scores", "plausible_dispersions"]


@dataclass(frozen=True)
class Tables:
    """What a fit needs of counts: how many groups exceed each number, by category.

    Attributes
    ----------
    events : ndarray of shape (d,)
        Answers of each category.
    sizes, times : ndarray of shape (k,)
        Distinct numbers of answers of a group, and how many groups have each.
    tallies : list of tuple
        Of each category with answers, and of all together at the end; see `beta_binomial.tally`.

    Examples
    --------
    >>> tables = Tables.of(Multinomial(np.array([[9, 1, 0], [2, 4, 4], [5, 0, 5], [1, 9, 0]])))
    >>> shares, overdispersion = tables.maximise()
    >>> shares.round(3), round(overdispersion, 3)
    (array([0.471, 0.324, 0.205]), 0.565)
    """

    events: NDArray
    sizes: NDArray
    times: NDArray
    tallies: list[tuple[NDArray, NDArray, NDArray]]

    @classmethod
    def of(cls, counts: Multinomial) -> Tables:
        """Tabulate the counts of groups."""
        sizes, times = _distinct(counts.trials)
        beta_binomial.check_size(counts.column(0))
        seen, times = sizes > 0, times.astype(float)
        events = counts.counts.sum(axis=0).astype(float)
        tables = [_distinct(column) for column in counts.counts.T[events > 0]]
        tables.append((sizes, times))
        tallies = [beta_binomial.tally(values, many.astype(float)) for values, many in tables]
        return cls(events, sizes[seen], times[seen], tallies)

    @property
    def n_groups(self) -> float:
        """Number of groups that have answers."""
        return float(self.times.sum())

    @property
    def pooled(self) -> NDArray:
        """Shares of all answers, shape (d,)."""
        return self.events / self.events.sum()

    def maximise(self) -> tuple[NDArray, float]:
        """Shares and overdispersion of greatest likelihood.

        Given the overdispersion the log-likelihood is concave in the shares, which are profiled
        out; categories without answers have a share of zero.
        """
        shares = self.pooled
        if shares.max() == 1 or self.sizes.max() == 1 or self.n_groups == 1:
            return shares, 0.0

        def criterion(overdispersion: float) -> tuple[float, float]:
            _, value, slope = self.profile(overdispersion)
            return -value, -slope

        overdispersion = minimise(criterion, beta_binomial.OVERDISPERSIONS)
        return self.profile(overdispersion)[0], overdispersion

    def profile(self, overdispersion: float) -> tuple[NDArray, float, float]:
        """Best shares given the overdispersion, log-likelihood there, and slope of that."""
        some = self.events > 0
        found, value, slope = dirichlet_profile(overdispersion, self.pooled[some], *self._joined)
        shares = np.zeros(len(some))
        shares[some] = found
        return shares, value, slope

    @cached_property
    def _joined(self) -> tuple[Any, ...]:
        """Tallies of all categories one after another, as `dirichlet_profile` takes them."""
        *parts, all_ = self.tallies
        exceeding, values, times = (np.concatenate([part[i] for part in parts]) for i in range(3))
        edges, ends = (np.cumsum([0, *(len(part[i]) for part in parts)]) for i in (0, 1))
        return exceeding, edges, values, times, ends, all_

    def information(self, overdispersion: float) -> float:
        """Number of independent answers that would say as much of the population's shares."""
        each = self.sizes * (1 + overdispersion) / (1 + self.sizes * overdispersion)
        return float(self.times @ each)

    def plausible(self, near: float) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Find overdispersions that counts leave plausible, with the shares given each.

        Given the overdispersion, shares have a Dirichlet distribution, as after as many
        independent answers as the counts are worth (`information`), with a flat prior.

        Parameters
        ----------
        near : float
            Likeliest overdispersion, with which the search begins.

        Returns
        -------
        overdispersions : ndarray of shape (K,)
        means, variances : ndarray of shape (K, d)
            Moments of the shares.
        weights : ndarray of shape (K,)
        """

        def height(overdispersion: float) -> float:
            shares, value, _ = self.profile(overdispersion)
            many = self.information(overdispersion)
            # the likelihood around the best shares, integrated over all shares
            value += gammaln(many * shares + 1).sum() - gammaln(many + len(shares))
            return float(value - many * xlogy(shares, shares).sum())

        overdispersions, weights = plausible_dispersions(height, near)
        many = np.array([[self.information(each)] for each in overdispersions])
        best = np.array([self.profile(each)[0] for each in overdispersions])
        total = many + len(self.events)
        means = (many * best + 1) / total
        return overdispersions, means, means * (1 - means) / (total + 1), weights


def plausible_dispersions(height: Callable[[float], float], near: float) -> tuple[NDArray, NDArray]:
    """Find overdispersions of high likelihood, shape (K,), and their probabilities.

    The prior is that of `beta_binomial.plausible`. The search begins at the likeliest one.
    """

    def log_density(points: NDArray) -> NDArray:
        at = points[:, 0]
        # derivative of the root of the correlation by its logit
        prior = (0.5 + TILT) * log_expit(at) + log_expit(-at)
        return prior + np.array([height(float(each)) for each in np.exp(at)])

    points, weights = explore(log_density, [np.log(near) if near > 0 else -2.0])
    return np.exp(points[:, 0]), weights


def _distinct(values: NDArray) -> tuple[NDArray, NDArray]:
    """Distinct numbers, and how often each occurs."""
    _, first, times = number_rows([values])
    return values[first], times


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
        for part in likelihood.parts if isinstance(likelihood, Joined) else [likelihood]:
            if isinstance(part, Multinomial) and len(part):
                beta_binomial.check_size(part.column(0))
        return cls(*likelihood.compress())

    @property
    def shows_pairs(self) -> bool:
        """Whether some message is about two answers of one client."""
        parts = self.rows.parts if isinstance(self.rows, Joined) else [self.rows]
        return any(
            bool(np.any(part.trials > 1)) if isinstance(part, Multinomial) else part.shows_pairs
            for part in parts
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
