"""Shares and overdispersion of counts ``z_i ~ DirichletMultinomial(n_i, shares, overdispersion)``.

Overdispersion is one over the concentration; zero means that all groups have the same shares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_expit, xlogy

from ebfed.kernels import dirichlet_profile
from ebfed.likelihoods import Multinomial
from ebfed.likelihoods.distinct import number_rows
from ebfed.priors import beta_binomial
from ebfed.priors.exploration import TILT, explore
from ebfed.priors.search import minimise

__all__ = ["Tables", "plausible_dispersions"]


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
