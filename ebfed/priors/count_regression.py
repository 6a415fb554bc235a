"""Regression of counts on covariates, where rates of groups are of a conjugate population.

Beside coefficients beta of the predictor ``w_i' beta`` there is an overdispersion phi >= 0: at zero
the regression is logistic, or Poisson. Maxima of likelihood, and what counts leave plausible, are
found by one class; its subclasses state how counts are distributed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln, log_expit, polygamma

from ebfed.kernels import rising_sums
from ebfed.priors.beta_binomial import check_size
from ebfed.priors.exploration import TILT, reweighted, student_draws
from ebfed.priors.negative_binomial import DISPERSIONS, halves, log_rising
from ebfed.priors.search import minimise

__all__ = ["BetaRegression", "CountRegression", "GammaRegression", "Likeliest", "SquaresRegression"]

# Predictors stop here: covariates separate groups with events from groups without, at ratios or
# odds of 1e13. Longest step of one.
FURTHEST, LONGEST = 30.0, 5.0
# Logarithms of overdispersions that are plausible stop here; so many of them are tried.
WIDEST, N_NODES = 12.0, 49
# Points, and points where clients are many and coefficients nearly normal.
SIZE, FEW, FEWER = 256, 4000, 64
DEPTH = 12.0  # log-densities this far below the highest are negligible
BLOCK = 1_000_000  # numbers in memory at a time
# Scale of Cauchy's density, in standard deviations of a typical log sample variance.
WIDE = 5.0


class Likeliest(NamedTuple):
    """Coefficients of greatest likelihood, (p,), and their covariance; the overdispersion.

    `separated` says whether some coefficients would have grown without bound.
    """

    coefficients: NDArray
    covariance: NDArray
    dispersion: float
    separated: bool


class Terms(NamedTuple):
    """Log-likelihoods of counts, shape (n,), up to a constant, and their derivatives.

    `slope` and `bend` are first and negative second derivatives in the predictor, `steep` is the
    first one in the overdispersion.
    """

    value: NDArray
    slope: NDArray
    bend: NDArray
    steep: NDArray


class Moments(NamedTuple):
    """Expected counts, their variances without overdispersion, and the inverse of its factor."""

    expected: NDArray
    noise: NDArray
    factor: NDArray


@dataclass(frozen=True)
class CountRegression(ABC):
    r"""Counts whose mean depends on covariates, by a linear predictor ``W beta``.

    The likelihood is exact down to ``phi = 0``. beta is profiled out by Newton's method, and the
    profile scanned and solved for phi.

    The posterior distribution of beta and phi is represented by weighted points. For each phi of a
    lattice, a normal distribution of beta is found by Fisher scoring (Laplace's approximation).
    Points of a low-discrepancy sequence are turned into draws of phi and, by Student's t, of beta;
    weights are the quotients of posterior and proposed densities. A first round corrects mean and
    covariance of the second one's proposals. Nothing is random.

    The prior is flat in the square root of ``r = h phi / (1 + h phi)``, with h of the subclass,
    times ``r**(1/5)``: where groups differ little, in the standard deviation of the population.
    That of beta is a power of ``|W' diag(v) W|``, v the information of a count about its predictor.
    It does not depend on the units of covariates, is what the population without covariates has
    where there are none, and makes the posterior proper for any counts, such as all zero.

    Attributes
    ----------
    events, size : ndarray of shape (n,)
        Counts, and trials or exposures, which are positive.
    matrix : ndarray of shape (n, p)
        Covariates, the first a column of ones, centred and of about unit size.
    times : ndarray of shape (n,) or float
        How many groups have each, in the search for the likeliest.

    References
    ----------
    Tierney and Kadane (1986), Accurate approximations for posterior moments and marginal densities;
    Cappe, Guillin, Marin, Robert (2004), Population Monte Carlo.

    Examples
    --------
    >>> matrix = np.column_stack([np.ones(30), np.linspace(-1.7, 1.7, 30)])
    >>> zeros = BetaRegression(np.zeros(30), np.full(30, 10.0), matrix)
    >>> points, weights = zeros.plausible()
    >>> rate = expit(points[:, 0])
    >>> bool(0.001 < weights @ rate < 0.03)
    True
    """

    events: NDArray
    size: NDArray
    matrix: NDArray
    times: Any = 1.0

    dispersions: ClassVar[NDArray] = DISPERSIONS  # where the profile is scanned
    power: ClassVar[float]  # of the prior of beta

    @classmethod
    @abstractmethod
    def of(cls, rows: Any, matrix: NDArray) -> Self:
        """Return that of one column of messages."""

    @abstractmethod
    def terms(self, predictor: NDArray, dispersion: float) -> Terms:
        """Log-likelihoods and derivatives at predictors, shape (n,)."""

    @abstractmethod
    def log_likelihood(self, predictor: NDArray, dispersion: NDArray) -> NDArray:
        """Log-likelihood up to a constant, (k,), of predictors (k, n) and dispersions (k,)."""

    @abstractmethod
    def moments(self, predictor: NDArray, dispersion: Any) -> Moments:
        """Moments of counts at predictors, (n,) or (k, n), and at dispersions."""

    @abstractmethod
    def known(self, moments: Moments) -> NDArray:
        """Information about predictors that the prior of beta has."""

    @abstractmethod
    def slopes(self, moments: Moments) -> tuple[NDArray, Any]:
        """Slope of its logarithm, and about minus the second derivative."""

    @property
    def has_spread(self) -> bool:
        """Whether counts say something of the overdispersion."""
        return bool(self.events.any())

    @property
    def typical(self) -> float:
        """Number h: a population with phi = 1/h is as spread as the noise of an average group.

        Half an event is added, as there may be none.
        """
        return float(self.events.mean() + 0.5)

    @cached_property
    def pooled(self) -> float:
        """Predictor of one rate for all, with half an event more."""
        return float(np.log((self._sum(self.events) + 0.5) / self._sum(self.size)))

    def _sum(self, figures: NDArray) -> float:
        return float((self.times * figures).sum())

    def _clipped(self, predictor: NDArray) -> NDArray:
        return np.clip(predictor, self.pooled - FURTHEST, self.pooled + FURTHEST)

    # The likeliest ----------------------------------------------------------------------------

    def fit(self) -> Likeliest:
        """Maximise the likelihood over coefficients and overdispersion."""
        table = np.column_stack([self.events, self.size, self.matrix])
        table, times = np.unique(table, axis=0, return_counts=True)
        events, size = table[:, 0].astype(self.events.dtype), table[:, 1].astype(self.size.dtype)
        merged = replace(self, events=events, size=size, matrix=table[:, 2:], times=times)
        start = np.append(self.pooled, np.zeros(self.matrix.shape[1] - 1))

        def criterion(dispersion: float) -> tuple[float, float]:
            nonlocal start  # each step of the scan begins where the one before ended
            start, value, steep, _ = merged.climb(start, dispersion)
            return -value, -steep

        dispersion = minimise(criterion, self.dispersions) if self.has_spread else 0.0
        coefficients, *_, separated = merged.climb(start, dispersion)
        moments = merged.moments(merged.matrix @ coefficients, dispersion)
        weights = times * moments.factor * moments.noise
        covariance = np.linalg.pinv((merged.matrix.T * weights) @ merged.matrix, hermitian=True)
        return Likeliest(coefficients, covariance, dispersion, separated)

    def climb(self, coefficients: NDArray, dispersion: float) -> tuple[NDArray, float, float, bool]:
        """Maximise over coefficients by Newton's method.

        Returns
        -------
        coefficients, log-likelihood, its slope in the dispersion, and whether the coefficients
        were held back
        """
        here = self.terms(self.matrix @ coefficients, dispersion)
        for _ in range(200):
            gradient = self.matrix.T @ (self.times * here.slope)
            sizes, axes = np.linalg.eigh((self.matrix.T * (self.times * here.bend)) @ self.matrix)
            least = 1e-12 * max(np.abs(sizes).max(), 1e-300)
            step = axes @ ((axes.T @ gradient) / np.maximum(np.abs(sizes), least))
            step = self._shortened(coefficients, step)
            if step is None:
                return coefficients, self._sum(here.value), self._sum(here.steep), True
            height = self._sum(here.value)
            while True:
                there = self.terms(self.matrix @ (coefficients + step), dispersion)
                rises = self._sum(there.value) >= height - 1e-13 * abs(height)
                if rises or np.abs(step).max() < 1e-12:
                    break
                step = step / 2
            coefficients, here = coefficients + step, there
            if np.abs(step).max() < 1e-9:  # the error is that squared
                break
        return coefficients, self._sum(here.value), self._sum(here.steep), False

    def _shortened(self, coefficients: NDArray, step: NDArray) -> NDArray | None:
        """As much of a step as keeps predictors within bounds; None if that is nothing."""
        at, move = self.matrix @ coefficients - self.pooled, self.matrix @ step
        longest = np.abs(move).max()
        share = min(1.0, LONGEST / max(longest, 1e-300))
        if np.abs(at + share * move).max() <= FURTHEST:
            return share * step
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(move != 0, (FURTHEST - np.sign(move) * at) / np.abs(move), np.inf)
        share = min(share, max(float(room.min()), 0.0))
        return share * step if share * longest > 1e-6 else None

    # What is plausible ------------------------------------------------------------------------

    def score(self, predictor: NDArray, dispersion: NDArray) -> tuple[NDArray, NDArray]:
        """Slope of the log-density in each predictor, and about its information, (k, n) each.

        Those of counts' means and variances, and of the prior of an intercept.
        """
        n, p = self.matrix.shape
        moments = self.moments(predictor, dispersion[:, None])
        slope, bend = self.slopes(moments)
        share = self.power * p / n
        slope = moments.factor * (self.events - moments.expected) + share * slope
        return slope, moments.factor * moments.noise + share * bend

    def log_density(self, coefficients: NDArray, log_dispersion: NDArray) -> NDArray:
        """Log posterior density of (k, p) coefficients and (k,) log-dispersions, shape (k,)."""
        n_blocks = 1 + len(coefficients) * len(self.matrix) // BLOCK
        values = []
        for place in np.array_split(np.arange(len(coefficients)), n_blocks):
            predictor = self._clipped(coefficients[place] @ self.matrix.T)
            dispersion = np.exp(log_dispersion[place])
            known = self.known(self.moments(predictor, dispersion[:, None]))
            prior = self.power * np.linalg.slogdet(self._information(known))[1]
            values.append(self.log_likelihood(predictor, dispersion) + prior)
        return np.concatenate(values) + self.log_spread_prior(log_dispersion)

    def log_spread_prior(self, log_dispersion: NDArray) -> NDArray:
        """Log-density of the log-dispersion up to a constant, shape (k,)."""
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
            predictor = self._clipped(coefficients @ self.matrix.T)
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

    def _information(self, weight: NDArray) -> NDArray:
        """``W' diag(weight) W`` for weights of shape (k, n), shape (k, p, p)."""
        p = self.matrix.shape[1]
        return (weight @ self._products).reshape(len(weight), p, p)

    @cached_property
    def _products(self) -> NDArray:
        """Products of covariates, shape (n, p * p)."""
        return (self.matrix[:, :, None] * self.matrix[:, None, :]).reshape(len(self.matrix), -1)


class BetaRegression(CountRegression):
    r"""Successes of trials, whose rates are betas of mean ``expit(W beta)``.

    The log-likelihood is that of the beta-binomial,

    .. math:: \sum_i \Big[\sum_{j<z_i} \log(\mu_i + j \phi)
        + \sum_{j<n_i-z_i} \log(1 - \mu_i + j \phi) - \sum_{j<n_i} \log(1 + j \phi)\Big].

    The prior density of beta is proportional to ``|W' diag(mu (1 - mu)) W|``: the rates of p
    clients that are chosen at random are uniform (Bedrick, Christensen and Johnson, 1996), p the
    number of coefficients. With an intercept alone, the mean is.
    """

    dispersions = np.append(0.0, np.geomspace(1e-6, 1e4, 21))
    power = 1.0

    @classmethod
    def of(cls, rows: Any, matrix: NDArray) -> Self:
        check_size(rows)
        return cls(np.ascontiguousarray(rows.successes[:, 0]), rows.trials, matrix)

    @property
    def has_spread(self) -> bool:
        """Whether some group has two rows, and not all rows are alike."""
        return bool(self.size.max() > 1 and 0 < self.events.sum() < self.size.sum())

    @property
    def typical(self) -> float:
        """One: ``phi / (1 + phi)`` is the intraclass correlation."""
        return 1.0

    @cached_property
    def pooled(self) -> float:
        """Logit of one rate for all, with a success and a failure more."""
        events, failures = self._sum(self.events), self._sum(self.size - self.events)
        return float(np.log((events + 1) / (failures + 1)))

    @cached_property
    def _sizes(self) -> tuple[NDArray, NDArray]:
        """Distinct numbers of trials, and which of them each has."""
        return np.unique(self.size, return_inverse=True)

    def terms(self, predictor: NDArray, dispersion: float) -> Terms:
        mean, rest = expit(predictor), expit(-predictor)
        sizes, place = self._sizes
        up = rising_sums(mean, self.events, dispersion)
        down = rising_sums(rest, self.size - self.events, dispersion)
        both = rising_sums(np.ones(len(sizes)), sizes, dispersion)[place]
        value, _, _, steep = (up + down - both).T
        spread, slope = mean * rest, up[:, 1] - down[:, 1]
        bend = spread**2 * (up[:, 2] + down[:, 2]) - spread * (rest - mean) * slope
        return Terms(value, spread * slope, bend, steep)

    def log_likelihood(self, predictor: NDArray, dispersion: NDArray) -> NDArray:
        total = 1 / dispersion[:, None]
        alpha, beta = expit(predictor) * total, expit(-predictor) * total
        found = gammaln(self.events + alpha) - gammaln(alpha)
        found += gammaln(self.size - self.events + beta) - gammaln(beta)
        sizes, place = self._sizes
        both = gammaln(sizes + total) - gammaln(total)
        return found.sum(axis=1) - both @ np.bincount(place)

    def moments(self, predictor: NDArray, dispersion: Any) -> Moments:
        """Moments of counts; the factor is that of the intraclass correlation."""
        rate, correlation = expit(predictor), dispersion / (1 + dispersion)
        factor = 1 / (1 + (self.size - 1) * correlation)
        return Moments(self.size * rate, self.size * rate * expit(-predictor), factor)

    def known(self, moments: Moments) -> NDArray:
        """Information of one trial."""
        return moments.noise / self.size

    def slopes(self, moments: Moments) -> tuple[NDArray, Any]:
        """Derivatives of its logarithm."""
        return 1 - 2 * moments.expected / self.size, 2 * self.known(moments)


class GammaRegression(CountRegression):
    """Events of exposures, whose rates are gammas of mean ``exp(W beta)``.

    The log-likelihood is negative binomial. The prior density of beta given phi is ``|W' diag(E mu
    / (1 + phi E mu)) W|**(1/2)``, that of Jeffreys. With an intercept alone and a small phi, the
    square root of the mean is uniform.
    """

    power = 0.5

    @classmethod
    def of(cls, rows: Any, matrix: NDArray) -> Self:
        return cls(np.ascontiguousarray(rows.counts[:, 0]), rows.exposure, matrix)

    @cached_property
    def _counts(self) -> tuple[NDArray, NDArray]:
        """Distinct counts, and which of them each has."""
        return np.unique(self.events, return_inverse=True)

    def rising(self, counts: NDArray, dispersion: float) -> tuple[NDArray, NDArray]:
        """``log(Gamma(y + 1/phi) phi**y / Gamma(1/phi))`` and its slope in phi, shape (n,) each."""
        sums = rising_sums(np.ones(len(counts)), counts, dispersion)
        return sums[:, 0], sums[:, 3]

    def terms(self, predictor: NDArray, dispersion: float) -> Terms:
        counts, place = self._counts
        rising, rising_slope = (each[place] for each in self.rising(counts, dispersion))
        expected = self.size * np.exp(predictor)
        x = dispersion * expected
        with np.errstate(divide="ignore", invalid="ignore"):
            over = np.where(x > 1e-8, np.log1p(x) / x, 1 - x / 2)
            exact = (x / (1 + x) - np.log1p(x)) / x**2
        slope_of_over = np.where(x > 1e-4, exact, -0.5 + 2 * x / 3 - 0.75 * x**2)
        value = rising + self.events * (np.log(expected) - np.log1p(x)) - expected * over
        steep = rising_slope - self.events * expected / (1 + x) - expected**2 * slope_of_over
        bend = expected * (1 + dispersion * self.events) / (1 + x) ** 2
        return Terms(value, (self.events - expected) / (1 + x), bend, steep)

    def log_likelihood(self, predictor: NDArray, dispersion: NDArray) -> NDArray:
        counts, place = self._counts
        shape = 1 / dispersion[:, None]
        x = self.size * np.exp(predictor) * dispersion[:, None]
        found = self.events * np.log(x) - (self.events + shape) * np.log1p(x)
        rising = gammaln(counts + shape) - gammaln(shape)
        return found.sum(axis=1) + rising @ np.bincount(place)

    def moments(self, predictor: NDArray, dispersion: Any) -> Moments:
        expected = self.size * np.exp(predictor)
        return Moments(expected, expected, 1 / (1 + dispersion * expected))

    def known(self, moments: Moments) -> NDArray:
        """Information of a count."""
        return moments.factor * moments.noise

    def slopes(self, moments: Moments) -> tuple[NDArray, Any]:
        """Slope of its logarithm, and the most that the second derivative is."""
        return moments.factor, 0.5


class SquaresRegression(GammaRegression):
    """Sums of squares whose precisions are gammas of mean ``exp(W beta)``.

    `events` are halves of degrees of freedom, and `size` are halves of the sums: with precisions
    for rates these have the likelihood of negative binomial counts.

    The prior of the dispersion is that of a standard deviation, here of the logarithm of variances:
    t has Cauchy's density of five times s, the standard deviation of a typical log sample variance,
    times ``(t**2 / (t**2 + s**2))**(1/5)``. It is nearly flat in t, as for normal populations: the
    prior of counts is for a spread beside their mean, and would hold that of variances too small.
    """

    @classmethod
    def of(cls, rows: Any, matrix: NDArray) -> Self:
        return cls(rows.degrees / 2, halves(rows), matrix)

    def rising(self, counts: NDArray, dispersion: float) -> tuple[NDArray, NDArray]:
        return log_rising(counts, dispersion)

    def log_spread_prior(self, log_dispersion: NDArray) -> NDArray:
        shape = np.exp(-log_dispersion)
        squared, noise = polygamma(1, shape), float(polygamma(1, self.events.mean()))
        slope = -polygamma(2, shape) * shape / (2 * np.sqrt(squared))
        wide = np.log1p(squared / (WIDE**2 * noise))
        return np.log(slope) + TILT * np.log(squared / (squared + noise)) - wide
