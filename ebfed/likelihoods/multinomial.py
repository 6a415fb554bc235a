"""Multinomial messages: counts of the answers of a group, by category."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.base import Likelihood
from ebfed.likelihoods.binomial import Binomial, log_rising, overdispersion_of

__all__ = ["Multinomial"]


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


def _sums(terms: NDArray) -> NDArray:
    """Sums of the first 0, 1, ... terms."""
    return np.append(0.0, np.cumsum(terms))
