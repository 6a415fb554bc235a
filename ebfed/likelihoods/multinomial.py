"""Multinomial messages: counts of the answers of a group, by category."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.base import Likelihood
from ebfed.likelihoods.binomial import Binomial, log_rising, overdispersion_of
from ebfed.likelihoods.distinct import number_rows

__all__ = ["Multinomial", "ReportedCategories", "truths"]


@dataclass(frozen=True)
class Multinomial(Likelihood):
    """Client i's message is ``counts[i] ~ Multinomial(n_i, theta_i)``, n_i their sum.

    The coordinates of theta are shares. They are divided by their sum where they do not add up
    to 1.

    Parameters
    ----------
    counts : int64 ndarray of shape (n, d)

    Examples
    --------
    >>> votes = Multinomial(np.array([[2, 1, 0], [0, 0, 0]]))
    >>> votes.logpdf(np.array([[0.5, 0.25, 0.25]])).ravel().round(4)  # log 3/16 and log 1
    array([-1.674,  0.   ])
    """

    counts: NDArray

    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    adds_up: ClassVar[bool] = True
    _of_clients = ("counts",)
    numbered = Likelihood._numbered

    @cached_property
    def trials(self) -> NDArray[np.int64]:
        """Number of answers of each client, shape (n,)."""
        return self.counts.sum(axis=1)

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-probability of the counts, multinomial coefficients included."""
        from scipy.special import xlogy

        total = self.log_coefficient()[:, None] - xlogy(self.trials[:, None], theta.sum(axis=1))
        for counts, share in zip(self.counts.T, theta.T, strict=True):
            total = total + xlogy(counts[:, None], share)
        return total

    def log_coefficient(self) -> NDArray:
        """Log-number of orders in which the answers behind the counts can stand, shape (n,)."""
        from scipy.special import gammaln

        return gammaln(self.trials + 1) - gammaln(self.counts + 1).sum(axis=1)

    def log_peak(self) -> NDArray:
        """Log-probability of the counts at their own shares."""
        from scipy.special import xlogy

        share = np.nan_to_num(self.local)
        return self.log_coefficient() + xlogy(self.counts, share).sum(axis=1)

    @property
    def _columns_of_messages(self) -> list[NDArray]:
        return list(self.counts.T[::-1])

    @property
    def local(self) -> NDArray:
        """Shares; NaN without answers."""
        return self.counts / np.where(self.trials > 0, self.trials, np.nan)[:, None]

    def nodes(self, k: int) -> NDArray:
        """Refuse: shares of several categories have no grid of one dimension."""
        raise TypeError("shares that add up to 1 have no grid; give likelihood.column(j).")

    def resampled(self, theta: NDArray, rng: np.random.Generator) -> Multinomial:
        """Draw counts of as many answers.

        Examples
        --------
        >>> votes = Multinomial(np.array([[2, 1]]))
        >>> votes.resampled(np.array([[0.0, 1.0]]), np.random.default_rng(0)).counts
        array([[0, 3]])
        """
        return Multinomial(rng.multinomial(self.trials, theta))

    def combine(self, weights: NDArray) -> NDArray:
        """Weighted counts over weighted numbers of answers."""
        total = weights.T @ self.trials.astype(float)
        return weights.T @ self.counts.astype(float) / np.where(total > 0, total, 1)[:, None]

    def ordered_log_marginal(self, mean: NDArray, overdispersion: float) -> NDArray:
        """Log-probability of a sequence of answers where theta is Dirichlet, shape (n,).

        Parameters
        ----------
        mean : ndarray of shape (d,)
        overdispersion : float
            One over the concentration.
        """
        total = -log_rising(1.0, self.trials, overdispersion)
        for counts, centre in zip(self.counts.T, mean, strict=True):
            total += log_rising(float(centre), counts, overdispersion)
        return total

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-probability of the counts where theta is Dirichlet, shape (n,).

        The Dirichlet has that mean, and variances that add up to those.
        """
        inside = float((mean * (1 - mean)).sum())
        correlation = float(variance.sum()) / inside if inside > 0 else 0.0
        step = float(overdispersion_of(0.5, correlation / 4))
        return self.ordered_log_marginal(mean, step) + self.log_coefficient()

    def dirichlet_scores(
        self, mean: NDArray, correlation: float
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Log-probability of the counts where theta is Dirichlet, and its derivatives.

        Parameters
        ----------
        mean : ndarray of shape (d,)
        correlation : float
            That of two answers of one client, ``1 / (1 + concentration)``, below 1.

        Returns
        -------
        log_marginal : ndarray of shape (n,)
        by_mean : ndarray of shape (n, d)
        by_correlation : ndarray of shape (n,)
        """
        mean = np.maximum(mean, 1e-12)
        step = correlation / (1 - correlation)
        value = self.ordered_log_marginal(mean, step) + self.log_coefficient()
        place = np.arange(int(self.trials.max(initial=0)))
        factors = mean[:, None] + place * step
        by_mean = np.stack(
            [_sums(1 / own)[z] for own, z in zip(factors, self.counts.T, strict=True)], axis=1
        )
        by_step = -_sums(place / (1 + place * step))[self.trials]
        for own, z in zip(factors, self.counts.T, strict=True):
            by_step += _sums(place / own)[z]
        return value, by_mean, by_step * (1 + step) ** 2

    def column(self, j: int) -> Binomial:  # type: ignore[override]
        """Answers of one category, out of all."""
        return Binomial(self.counts[:, [j]], self.trials)


# Entries of the tables of some clients at a time, to bound memory.
MOST_ENTRIES = 4_000_000
# Shares that stand for 0, so that logarithms of products are finite.
TINY = 1e-12
# Odds of e**50 are certainty: the other probability is below the last digit of 1.
CERTAIN = 50.0


@dataclass(frozen=True)
class ReportedCategories(Likelihood):
    r"""Reports of clients that were asked for categories, or whether two answers are alike.

    Of a client with shares theta, ``m`` answers are independent draws from theta, whichever of its
    rows they are. Each is reported as category j with probability ``q_j = b + (a - b) theta_j``,
    so that the counts r of a report are multinomial with these. Over a Dirichlet population of mean
    mu and correlation rho of two answers, the probability of a report is the expectation of
    ``prod_j q_j**r_j``, a sum over which of the reported answers are true,

    .. math:: \sum_{t \le r} \prod_j \binom{r_j}{t_j} b^{r_j - t_j} (a - b)^{t_j}
        \; \frac{\prod_j \prod_{l < t_j} (\mu_j (1 - \rho) + l \rho)}
        {\prod_{l < |t|} (1 - \rho + l \rho)}.

    The last factor depends on ``|t|`` only. So the sum is a product of k polynomials, computed
    exactly with ``k m**2`` multiplications, and all of its terms are positive.

    Parameters
    ----------
    reports : int64 ndarray of shape (n, k + 2)
        Counts of reported categories, of "not alike" and of "alike".
    sizes : int64 ndarray of shape (n,)
        Numbers of rows; at 0 the report says nothing.
    epsilon : float
        Privacy of a report, over all of its answers.
    answers : int
        Number of answers of a report, if the client has so many.
    compare : float
        Share of the clients that were asked whether two answers are alike.

    Examples
    --------
    >>> said = ReportedCategories(np.array([[1, 0, 0, 0]]), np.array([5]), np.log(3), 1, 0.0)
    >>> np.exp(said.logpdf(np.array([[1.0, 0.0], [0.0, 1.0]]))).round(4)
    array([[0.75, 0.25]])
    """

    reports: NDArray
    sizes: NDArray
    epsilon: float
    answers: int
    compare: float

    _of_clients = ("reports", "sizes")
    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    is_noisy: ClassVar[bool] = True
    adds_up: ClassVar[bool] = True

    @property
    def adds_noise(self) -> bool:  # type: ignore[override]
        """No: reports are not local means."""
        return False

    @property
    def n_features(self) -> int:
        """Number of categories."""
        return self.reports.shape[1] - 2

    @cached_property
    def asked(self) -> NDArray[np.int64]:
        """Number of reported categories of each client, shape (n,)."""
        return self.reports[:, :-2].sum(axis=1)

    @cached_property
    def compared(self) -> NDArray[np.bool_]:
        """Whether a client stated if two of its answers are alike, shape (n,)."""
        return self.reports[:, -2:].sum(axis=1) > 0

    @property
    def shows_pairs(self) -> bool:
        """Whether some report is about two answers of one client."""
        return bool(self.compared.any() or np.any(self.asked > 1))

    def _log_coefficient(self) -> NDArray:
        """Log-probability of the question, and log-number of orders of the answers."""
        from scipy.special import gammaln

        question = np.where(self.compared, self.compare, 1 - self.compare)
        orders = gammaln(self.asked + 1) - gammaln(self.reports[:, :-2] + 1).sum(axis=1)
        return np.log(np.where(self.sizes > 1, question, 1.0)) + orders

    @property
    def _lie(self) -> float:
        """Probability that a comparer's bit is not the true one."""
        return 1 / (1 + math.exp(min(self.epsilon, CERTAIN)))

    def _alike(self, chance: NDArray) -> tuple[NDArray, float]:
        """Probability of each comparer's bit where two answers are alike with that chance.

        Returns
        -------
        probability : ndarray of shape (n, ...)
        slope : float
            Its change with the chance, for the bit "alike"; the negative of it for the other.
        """
        yes = self._lie + (slope := 1 - 2 * self._lie) * chance
        is_yes = (self.reports[:, -1] > 0).reshape(-1, *[1] * np.ndim(chance))
        return np.where(is_yes, yes, 1 - yes), slope

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-probability of the reports, shape (n, k)."""
        from scipy.special import xlogy

        shares = theta / theta.sum(axis=1, keepdims=True)
        truth, other = truths(self.epsilon, self.asked, self.n_features)
        total = np.zeros((len(self), len(theta)))
        for counts, share in zip(self.reports[:, :-2].T, shares.T, strict=True):
            chance = other[:, None] + (truth - other)[:, None] * share
            total += xlogy(counts[:, None], chance)
        both, _ = self._alike((shares**2).sum(axis=1))
        total += np.where(self.compared[:, None], np.log(both), 0.0)
        return total + self._log_coefficient()[:, None]

    @property
    def local(self) -> NDArray:
        """Likeliest shares; NaN without rows.

        Of two answers that were reported not to be alike, even ones; of two that were, one category
        has all: which one, the report does not say.
        """
        counts = self.reports[:, :-2].astype(float)
        k = counts.shape[1]
        truth, other = truths(self.epsilon, self.asked, k)
        floor = (other / (truth - other))[:, None]
        # as many reports of each category as explain its share, and none where noise explains more
        sorted_ = -np.sort(-counts, axis=1)
        level = sorted_.cumsum(axis=1) / (1 + floor * np.arange(1, k + 1))
        best = level.max(axis=1, keepdims=True)
        shares = np.maximum(counts / np.where(best > 0, best, 1.0) - floor, 0.0)
        shares[self.compared] = 1 / k
        shares[self.reports[:, -1] > 0] = np.arange(k) == 0
        shares = np.where(self.sizes[:, None] > 0, shares, np.nan)
        return shares / shares.sum(axis=1, keepdims=True)

    def log_peak(self) -> NDArray:
        """Log-probability of each report at its likeliest shares."""
        from scipy.special import xlogy

        best = np.nan_to_num(self.local, nan=1 / self.n_features)
        truth, other = (x[:, None] for x in truths(self.epsilon, self.asked, self.n_features))
        total = xlogy(self.reports[:, :-2], other + (truth - other) * best).sum(axis=1)
        # the likeliest bit is the true one, but two of many even shares may be alike
        ends = np.where(self.reports[:, -1] > 0, 1.0, 1 / self.n_features)
        yes = self._lie + (1 - 2 * self._lie) * ends
        both = np.where(self.reports[:, -1] > 0, yes, 1 - yes)
        return self._log_coefficient() + total + np.where(self.compared, np.log(both), 0.0)

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-probability of the reports where theta is Dirichlet, shape (n,).

        The Dirichlet has that mean, and variances that add up to those.
        """
        inside = float((mean * (1 - mean)).sum())
        correlation = float(variance.sum()) / inside if inside > 0 else 0.0
        return self.dirichlet_scores(mean, correlation)[0]

    def dirichlet_scores(
        self, mean: NDArray, correlation: float
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Log-probability of each report over a Dirichlet population, and its derivatives.

        Parameters
        ----------
        mean : ndarray of shape (k,)
        correlation : float
            That of two answers of one client, ``1 / (1 + concentration)``.

        Returns
        -------
        log_marginal : ndarray of shape (n,)
        by_mean : ndarray of shape (n, k)
        by_correlation : ndarray of shape (n,)
        """
        mean = np.maximum(mean, TINY)
        value, by_correlation = self._log_coefficient(), np.zeros(len(self))
        by_mean = np.zeros((len(self), len(mean)))
        if self.compared.any():
            squares = float((mean**2).sum())
            both, slope = self._alike(np.array((1 - correlation) * squares + correlation))
            signed = np.where(self.reports[:, -1] > 0, slope, -slope) / both
            signed = np.where(self.compared, signed, 0.0)
            value = value + np.where(self.compared, np.log(both), 0.0)
            by_mean += signed[:, None] * 2 * (1 - correlation) * mean
            by_correlation += signed * (1 - squares)
        most = int(self.asked.max(initial=0))
        if most:
            some = np.flatnonzero(self.asked)
            step = max(1, MOST_ENTRIES // ((most + 1) * len(mean)))
            for first in range(0, len(some), step):
                part = some[first : first + step]
                found = self._of_answers(part, mean, correlation, most)
                value[part] += found[0]
                by_mean[part] += found[1]
                by_correlation[part] += found[2]
        return value, by_mean, by_correlation

    def _of_answers(
        self, part: NDArray, mean: NDArray, correlation: float, most: int
    ) -> tuple[NDArray, NDArray, NDArray]:
        """`dirichlet_scores` of some clients that reported categories, in one order."""
        from scipy.special import gammaln

        counts, k = self.reports[part, :-2], len(mean)
        truth, other = (x[:, None, None] for x in truths(self.epsilon, self.asked[part], k))
        true = np.arange(most + 1)
        # factors of the expectation of a product of shares, and their derivatives
        steps = true[:-1] * correlation
        own = mean[:, None] * (1 - correlation) + steps
        rising = np.cumprod(np.column_stack([np.ones(k), own]), axis=1)
        by_mean = _sums((1 - correlation) / own)
        by_correlation = _sums((true[:-1] - mean[:, None]) / own)
        all_ = 1 - correlation + steps
        total = np.cumprod(np.append(1.0, all_))
        of_total = np.append(0.0, np.cumsum((true[:-1] - 1) / all_))
        # polynomials of the number of true answers, by category
        false = counts[:, :, None] - true
        at = np.maximum(false, 0)
        orders = gammaln(counts + 1)[:, :, None] - gammaln(at + 1) - gammaln(true + 1)
        with np.errstate(under="ignore"):
            terms = np.exp(orders + at * np.log(other / truth)) * ((truth - other) / truth) ** true
            terms = np.where(false >= 0, terms, 0.0) * rising
        before = [np.zeros((len(part), most + 1))]
        before[0][:, 0] = 1.0
        for j in range(k):
            before.append(_product(before[-1], terms[:, j]))
        after = before[0]
        place = true[:, None] + true
        weights = np.where(place <= most, 1 / total[np.minimum(place, most)], 0.0)
        chance = before[-1] @ (1 / total)
        slopes, bends = np.empty((len(part), k)), np.zeros(len(part))
        for j in reversed(range(k)):
            joint = terms[:, j] * (_product(before[j], after) @ weights)
            slopes[:, j] = joint @ by_mean[j]
            bends += joint @ by_correlation[j]
            after = _product(after, terms[:, j])
        bends -= before[-1] @ (of_total / total)
        chance = np.maximum(chance, np.finfo(float).tiny)
        value = np.log(chance) + self.asked[part] * np.log(truth[:, 0, 0])
        return value, slopes / chance[:, None], bends / chance

    def compress(self) -> tuple[Self, NDArray]:
        """Table of the distinct reports."""
        # numbers of rows matter as far as they limit answers
        sizes = np.minimum(self.sizes, max(self.answers, 2))
        _, first, times = number_rows([sizes, *self.reports.T])
        order = np.lexsort([sizes[first], *self.reports[first].T])  # whatever the order of clients
        order = order[sizes[first][order] > 0]
        return self.take(first[order]), times[order].astype(float)

    def nodes(self, k: int) -> NDArray:
        """Refuse: shares of several categories have no grid of one dimension."""
        raise TypeError("shares that add up to 1 have no grid.")

    def combine(self, weights: NDArray) -> NDArray:
        """Refuse: no mixture of shares is fitted to reports of categories."""
        raise TypeError("reports of categories are for Dirichlet populations.")

    def column(self, j: int) -> Self:
        """Refuse: a report of categories is about all shares at once."""
        raise TypeError("reports of categories are about all shares at once.")

    @classmethod
    def concatenated(cls, parts: Sequence[Self]) -> Self | None:
        """Put reports of one channel one after another."""
        law = {(part.epsilon, part.answers, part.compare) for part in parts}
        if len(law) > 1:
            return None
        reports = np.concatenate([part.reports for part in parts])
        return replace(parts[0], reports=reports, sizes=np.concatenate([x.sizes for x in parts]))


def truths(epsilon: float, answers: NDArray, k: int) -> tuple[NDArray, NDArray]:
    """Probabilities that an answer is reported as what it is, and as each other of k categories.

    Parameters
    ----------
    epsilon : float
        Privacy of all answers of a client together.
    answers : int ndarray
        Number of its answers, among which epsilon is divided evenly.
    k : int

    Examples
    --------
    >>> truth, other = truths(np.log(3), np.array([1]), 2)
    >>> truth, other
    (array([0.75]), array([0.25]))
    """
    lie = np.exp(-np.minimum(epsilon / np.maximum(answers, 1), CERTAIN))
    truth = 1 / (1 + (k - 1) * lie)
    return truth, lie * truth


def _product(one: NDArray, other: NDArray) -> NDArray:
    """Products of polynomials, coefficients along the last axis, up to the degree of the first."""
    found = np.zeros_like(one)
    for power in range(one.shape[1]):
        if other[:, power].any():
            found[:, power:] += one[:, : one.shape[1] - power] * other[:, [power]]
    return found


def _sums(terms: NDArray) -> NDArray:
    """Sums of the first 0, 1, ... terms along the last axis."""
    nothing = np.zeros((*terms.shape[:-1], 1))
    return np.concatenate([nothing, np.cumsum(terms, axis=-1)], axis=-1)
