"""Which coefficients and overdispersions counts leave plausible, where means have covariates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ebfed.priors.count_regression import FURTHEST
from ebfed.priors.exploration import TILT, reweighted, student_draws

__all__ = ["BetaRegression", "CountRegression", "GammaRegression"]

# Logarithms of overdispersions stop here; so many of them are tried.
WIDEST, N_NODES = 12.0, 49
# Points, and points where clients are many and coefficients nearly normal.
SIZE, FEW, FEWER = 256, 4000, 64
DEPTH = 12.0  # log-densities this far below the highest are negligible
BLOCK = 1_000_000  # numbers in memory at a time


@dataclass(frozen=True)
class CountRegression(ABC):
    r"""Counts whose mean depends on covariates, by a linear predictor ``W beta``.

    The posterior distribution of beta and the overdispersion phi is represented by weighted points.
    For each phi of a lattice, a normal distribution of beta is found by Fisher scoring (Laplace's
    approximation). Points of a low-discrepancy sequence are turned into draws of phi and, by
    Student's t, of beta; weights are the quotients of posterior and proposed densities. A first
    round corrects mean and covariance of the second one's proposals. Nothing is random.

    The prior is flat in the square root of ``r = h phi / (1 + h phi)``, with h of the subclass,
    times ``r**(1/5)``: where groups differ little, in the standard deviation of the population.
    That of beta does not depend on the units of covariates, is what the class without covariates
    has where there are none, and makes the posterior proper for any counts, such as all zero: see
    the subclasses.

    Attributes
    ----------
    events, size : ndarray of shape (n,)
        Counts, and trials or exposures, which are positive.
    matrix : ndarray of shape (n, p)
        Covariates, the first a column of ones, centred and of about unit size.

    References
    ----------
    Tierney and Kadane (1986), Accurate approximations for posterior moments and marginal densities;
    Cappe, Guillin, Marin, Robert (2004), Population Monte Carlo.

    Examples
    --------
    >>> matrix = np.column_stack([np.ones(30), np.linspace(-1.7, 1.7, 30)])
    >>> zeros = BetaRegression(np.zeros(30), np.full(30, 10.0), matrix)
    >>> points, weights = zeros.plausible()
    >>> rate = 1 / (1 + np.exp(-points[:, 0]))
    >>> bool(0.001 < weights @ rate < 0.03)
    True
    """

    events: NDArray
    size: NDArray
    matrix: NDArray

    @abstractmethod
    def log_likelihood(self, predictor: NDArray, dispersion: NDArray) -> NDArray:
        """Log-likelihood up to a constant, (k,), of predictors (k, n) and dispersions (k,)."""

    @abstractmethod
    def log_prior(self, predictor: NDArray, dispersion: NDArray) -> NDArray:
        """Log-density of the coefficients up to a constant, shape (k,), given dispersions (k,)."""

    @abstractmethod
    def score(self, predictor: NDArray, dispersion: NDArray) -> tuple[NDArray, NDArray]:
        """Slope of the log-density in each predictor, and about its information, (k, n) each."""

    @property
    def typical(self) -> float:
        """Number h: a population with phi = 1/h is as spread as the noise of an average group.

        Half an event is added, as there may be none.
        """
        return float(self.events.mean() + 0.5)

    @cached_property
    def pooled(self) -> float:
        """Linear predictor of one rate for all."""
        rate = (self.events.sum() + 0.5) / (self.size.sum() + 1.0)
        return float(np.log(rate))

    def log_density(self, coefficients: NDArray, log_dispersion: NDArray) -> NDArray:
        """Log posterior density of (k, p) coefficients and (k,) log-dispersions, shape (k,)."""
        n_blocks = 1 + len(coefficients) * len(self.matrix) // BLOCK
        values = []
        for place in np.array_split(np.arange(len(coefficients)), n_blocks):
            predictor = np.clip(coefficients[place] @ self.matrix.T, -FURTHEST, FURTHEST)
            dispersion = np.exp(log_dispersion[place])
            value = self.log_likelihood(predictor, dispersion)
            values.append(value + self.log_prior(predictor, dispersion))
        return np.concatenate(values) + self.log_spread_prior(log_dispersion)

    def log_spread_prior(self, log_dispersion: NDArray) -> NDArray:
        """Log-density of the log-dispersion up to a constant, shape (k,)."""
        from scipy.special import log_expit

        logit = np.log(self.typical) + log_dispersion
        return (0.5 + TILT) * log_expit(logit) + log_expit(-logit)

    def plausible(self) -> tuple[NDArray, NDArray]:
        """Find weighted points.

        Returns
        -------
        points : ndarray of shape (k, p + 1)
            Coefficients and overdispersion.
        weights : ndarray of shape (k,)
            They sum to 1, the largest first.
        """
        n, p = self.matrix.shape
        nodes = np.linspace(-WIDEST, WIDEST, N_NODES)
        heights = self._laplace(nodes)[0]
        kept = np.flatnonzero(heights > heights.max() - DEPTH)
        nodes = np.linspace(
            nodes[max(kept[0] - 1, 0)], nodes[min(kept[-1] + 1, N_NODES - 1)], N_NODES
        )
        heights, centres, roots = self._laplace(nodes)
        # wider than the density, so that no weight is large
        shares = np.exp(0.7 * np.maximum(heights - heights.max(), -DEPTH))
        shares /= shares.sum()
        size, rounds = (SIZE, 2) if n <= FEW else (FEWER, 1)
        away, proposed, uniform = student_draws(size, p, 1)
        picked = np.minimum(np.searchsorted(np.cumsum(shares), uniform[:, 0]), N_NODES - 1)
        within = (uniform[:, 0] - (np.cumsum(shares) - shares)[picked]) / shares[picked]
        at = nodes[picked] + (nodes[1] - nodes[0]) * (within - 0.5)
        proposed += np.log(shares[picked]) - np.linalg.slogdet(roots[picked])[1]

        def place(moved: NDArray) -> NDArray:
            coefficients = centres[picked] + np.einsum("kij,kj->ki", roots[picked], moved)
            return np.column_stack([coefficients, at])

        def height(points: NDArray) -> NDArray:
            return self.log_density(points[:, :-1], points[:, -1])

        points, weights = reweighted(away, proposed, place, height, rounds)
        points[:, -1] = np.exp(points[:, -1])
        return points, weights

    def _laplace(self, nodes: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Log-density of log-dispersions; normal means (k, p) and roots of covariances of beta."""
        p, dispersion = self.matrix.shape[1], np.exp(nodes)
        coefficients = np.zeros((len(nodes), p))
        coefficients[:, 0] = self.pooled
        for _ in range(60):
            predictor = np.clip(coefficients @ self.matrix.T, -FURTHEST, FURTHEST)
            slope, weight = self.score(predictor, dispersion)
            information = self._information(weight)
            step = np.linalg.solve(information, (slope @ self.matrix)[:, :, None])[:, :, 0]
            longest = np.abs(step @ self.matrix.T).max(axis=1, keepdims=True)
            step *= np.minimum(1.0, 2.0 / np.maximum(longest, 1e-300))
            coefficients = coefficients + step
            if longest.max() < 1e-3:
                break
        roots = np.linalg.inv(np.linalg.cholesky(information)).swapaxes(1, 2)
        heights = self.log_density(coefficients, nodes) + np.linalg.slogdet(roots)[1]
        return heights, coefficients, roots

    def _log_information(self, weight: NDArray) -> NDArray:
        """``log |W' diag(weight) W|`` for weights of shape (k, n), shape (k,)."""
        return np.linalg.slogdet(self._information(weight))[1]

    def _information(self, weight: NDArray) -> NDArray:
        """``W' diag(weight) W`` for weights of shape (k, n), shape (k, p, p)."""
        return np.einsum("kn,ni,nj->kij", weight, self.matrix, self.matrix, optimize=True)


class BetaRegression(CountRegression):
    """Successes of trials, whose rates are betas of mean ``expit(W beta)``.

    The prior density of beta is proportional to ``|W' diag(mu (1 - mu)) W|``: the rates of p
    clients that are chosen at random are uniform (Bedrick, Christensen and Johnson, 1996), p the
    number of coefficients. With an intercept alone, the mean is.
    """

    @property
    def typical(self) -> float:
        """One: ``phi / (1 + phi)`` is the intraclass correlation."""
        return 1.0

    @cached_property
    def pooled(self) -> float:
        """Logit of one rate for all."""
        return float(np.log((self.events.sum() + 1) / ((self.size - self.events).sum() + 1)))

    def log_likelihood(self, predictor: NDArray, dispersion: NDArray) -> NDArray:
        """Beta-binomial log-likelihood."""
        from scipy.special import expit, gammaln

        total = 1 / dispersion
        alpha, beta = expit(predictor) * total[:, None], expit(-predictor) * total[:, None]
        terms = gammaln(self.events + alpha) - gammaln(alpha)
        terms += gammaln(self.size - self.events + beta) - gammaln(beta)
        sizes, times = np.unique(self.size, return_counts=True)
        both = gammaln(sizes + total[:, None]) - gammaln(total)[:, None]
        return terms.sum(axis=1) - both @ times

    def log_prior(self, predictor: NDArray, dispersion: NDArray) -> NDArray:
        """Density of coefficients where p rates are uniform."""
        from scipy.special import expit

        return self._log_information(expit(predictor) * expit(-predictor))

    def score(self, predictor: NDArray, dispersion: NDArray) -> tuple[NDArray, NDArray]:
        """Those of proportions' means and variances, and of p uniform rates."""
        from scipy.special import expit

        n, p = self.matrix.shape
        correlation = (dispersion / (1 + dispersion))[:, None]
        factor = 1 / (1 + (self.size - 1) * correlation)
        rate = expit(predictor)
        slope = factor * (self.events - self.size * rate) + p / n * (1 - 2 * rate)
        return slope, (factor * self.size + 2 * p / n) * rate * expit(-predictor)


class GammaRegression(CountRegression):
    """Events of exposures, whose rates are gammas of mean ``exp(W beta)``.

    The prior density of beta given phi is ``|W' diag(E mu / (1 + phi E mu)) W|**(1/2)``, that of
    Jeffreys. With an intercept alone and a small phi, the square root of the mean is uniform.
    """

    def log_likelihood(self, predictor: NDArray, dispersion: NDArray) -> NDArray:
        """Negative binomial log-likelihood."""
        from scipy.special import gammaln

        shape = 1 / dispersion[:, None]
        x = dispersion[:, None] * self.size * np.exp(predictor)
        terms = gammaln(self.events + shape) - gammaln(shape) - (self.events + shape) * np.log1p(x)
        return (terms + self.events * np.log(x)).sum(axis=1)

    def log_prior(self, predictor: NDArray, dispersion: NDArray) -> NDArray:
        """Jeffreys' density."""
        expected = self.size * np.exp(predictor)
        return 0.5 * self._log_information(expected / (1 + dispersion[:, None] * expected))

    def score(self, predictor: NDArray, dispersion: NDArray) -> tuple[NDArray, NDArray]:
        """Those of counts' means and variances, and of the prior of an intercept."""
        n, p = self.matrix.shape
        expected = self.size * np.exp(predictor)
        factor = 1 / (1 + dispersion[:, None] * expected)
        slope = factor * (self.events - expected + p / (2 * n))
        return slope, factor * expected + p / (4 * n)
