"""Kinds of distributions that are given by mean and variance, and posteriors of such a kind.

The conjugate populations of rates, of rates of events and of logarithms of variances are beta,
gamma and log-gamma, and so are posteriors under them. What a population, its posteriors and their
mixtures need of these distributions is here, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import (
    betainc,
    betaincc,
    betaincinv,
    betaln,
    expit,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    gammaln,
    log_expit,
    logit,
    polygamma,
    psi,
    xlog1py,
    xlogy,
)

from ebfed.likelihoods.log_variance import inverse_trigamma
from ebfed.priors.posterior import Posterior

__all__ = [
    "POINT_MASS",
    "BetaDistribution",
    "Distribution",
    "GammaDistribution",
    "LogGammaDistribution",
    "Shared",
    "TwoMoments",
    "gamma_height",
]

# A concentration or shape this large is a point mass to every digit of float64.
POINT_MASS = 1e14
TINIEST = 1 / POINT_MASS
# Logits and logarithms beyond this are those of 0, of 1 or of infinity.
FURTHEST = 700.0
# Figures of mixtures that are in memory at a time.
BLOCK = 1_000_000
# Steps over so much of the probability of the smaller side are short: what a density adds over them
# is known to 12 digits by three nodes.
NEAR = 0.05
# Shapes of gammas from which two terms of Stirling's series are exact.
LARGE = 1e5
TINY = np.finfo(float).tiny


class Shared(NamedTuple):
    """Moments of clients whose parameters have an error in common.

    Attributes
    ----------
    mean, variance : ndarray of shape (n, d)
    common : ndarray of shape (n, d)
        Part of the variance that is due to the error.
    centre, doubt : ndarray that broadcasts to (n, d)
        The mean of the population, whose error it is, and its sampling variance.
    """

    mean: NDArray
    variance: NDArray
    common: NDArray
    centre: NDArray
    doubt: NDArray


class Distribution(ABC):
    """Distributions of one kind: an array of them, for their parameters are arrays.

    A kind is given by its mean and an overdispersion phi, which is zero where it is a point. It
    states functions: `to_line` and `from_line`, which map the support to the line and back;
    `steepness`, the derivative of the latter, of a value; `variance_of`, of a mean, which gives the
    variance over the share of phi in it, and its slope; `share_of`, of phi, and its inverse
    `dispersion_of`.
    """

    support: ClassVar[tuple[float, float]]
    to_line: ClassVar[Any]
    from_line: ClassVar[Any]
    steepness: ClassVar[Any]
    variance_of: ClassVar[Any]
    share_of: ClassVar[Any]
    dispersion_of: ClassVar[Any]

    @classmethod
    @abstractmethod
    def at(cls, mean: NDArray, dispersion: NDArray) -> Self:
        """Return those with this mean and a positive phi."""

    @classmethod
    def of(cls, mean: NDArray, variance: NDArray) -> Self:
        """Return those with these moments; any where the variance is zero, or impossible."""
        height = cls.variance_of(mean)[0]
        usable = (variance > 0) & (height > 0)
        share = np.divide(variance, height, out=np.full(usable.shape, 0.5), where=usable)
        with np.errstate(divide="ignore"):
            phi = cls.dispersion_of(share)
        return cls.at(
            np.where(height > 0, mean, 0.5), np.where((phi > 0) & (phi < np.inf), phi, 1.0)
        )

    @classmethod
    @abstractmethod
    def given(cls, clients: Shared, errors: NDArray) -> tuple[NDArray, NDArray]:
        """Means and variances given the error that clients share, of shape (size, n, d).

        Such that all in all moments are those of the clients. `errors` are standard normal draws,
        shape (size, 1 or n, d).
        """

    @abstractmethod
    def on_line(self, u: NDArray) -> tuple[NDArray, NDArray]:
        """Density on the line at u, and its slope."""

    @abstractmethod
    def logpdf(self, x: NDArray) -> NDArray:
        """Log-density."""

    @abstractmethod
    def below(self, x: ArrayLike) -> NDArray:
        """Probability of at most x."""

    @abstractmethod
    def above(self, x: ArrayLike) -> NDArray:
        """Probability of at least x, to all digits where it is small."""

    @abstractmethod
    def quantile(self, q: float) -> NDArray:
        """Return the `q`-quantile."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray:
        """Draw values, of a shape to which the parameters broadcast."""

    def log_masses(self, at: NDArray, middle: float) -> NDArray:
        """Log of the mass in the cell around each of k places, (k,), where this is the mean.

        Exact, for the density may be infinite at an end of the support.
        """
        low, high = self.support
        edges = np.concatenate(([low], (at[1:] + at[:-1]) / 2, [high]))
        n_below = max(int(np.searchsorted(edges, middle)), 1)
        below, above = self.below(edges[:n_below]), self.above(edges[n_below - 1 :])
        with np.errstate(divide="ignore"):  # the smaller tail keeps its digits
            return np.log(np.concatenate([np.diff(below), -np.diff(above)]))


@dataclass
class BetaDistribution(Distribution):
    """Betas.

    Examples
    --------
    >>> BetaDistribution.of(np.array([0.5]), np.array([0.05]))
    BetaDistribution(alpha=array([2.]), beta=array([2.]))
    """

    alpha: NDArray
    beta: NDArray

    support = (0.0, 1.0)
    to_line, from_line = logit, expit
    steepness = staticmethod(lambda mean: mean * (1 - mean))
    variance_of = staticmethod(lambda mean: (mean * (1 - mean), 1 - 2 * mean))
    share_of = staticmethod(lambda dispersion: dispersion / (1 + dispersion))
    dispersion_of = staticmethod(lambda share: share / (1 - share))

    @classmethod
    def at(cls, mean: NDArray, dispersion: NDArray) -> Self:
        """Return those with this mean and a positive phi, ``1 / (alpha + beta)``."""
        return cls(np.maximum(mean / dispersion, TINY), np.maximum((1 - mean) / dispersion, TINY))

    @classmethod
    def given(cls, clients: Shared, errors: NDArray) -> tuple[NDArray, NDArray]:
        """Means and variances given the error of the population's mean, whose logit is normal."""
        mean, variance, common, centre, doubt = clients
        centre = np.broadcast_to(centre, errors.shape[1:])
        spread = centre * (1 - centre)
        doubt = np.broadcast_to(np.sqrt(doubt), spread.shape)
        slope = np.divide(doubt, spread, out=np.zeros(spread.shape), where=spread > 0)
        # moments of what normal numbers are the logits of, by quadrature
        nodes, masses = np.polynomial.hermite_e.hermegauss(40)
        trial = expit(logit(centre) + slope * nodes[:, None, None])
        middle = np.average(trial, axis=0, weights=masses)
        length = np.sqrt(np.average((trial - middle) ** 2, axis=0, weights=masses))
        moved = expit(logit(centre) + slope * errors) - middle
        unit = np.divide(moved, length, out=np.zeros(moved.shape), where=length > 0)
        means = np.clip(mean + np.sqrt(common) * unit, 0, 1)
        inside = mean * (1 - mean) - common  # the average of means (1 - means)
        own = np.divide(variance - common, inside, out=np.zeros(inside.shape), where=inside > 0)
        return means, means * (1 - means) * own

    @cached_property
    def _log_scale(self) -> NDArray:
        return betaln(self.alpha, self.beta)

    def on_line(self, u: NDArray) -> tuple[NDArray, NDArray]:
        alpha, beta = self.alpha, self.beta
        heights = np.exp(alpha * log_expit(u) + beta * log_expit(-u) - self._log_scale)
        return heights, heights * (alpha * expit(-u) - beta * expit(u))

    def logpdf(self, x: NDArray) -> NDArray:
        return xlogy(self.alpha - 1, x) + xlog1py(self.beta - 1, -x) - self._log_scale

    def below(self, x: ArrayLike) -> NDArray:
        return betainc(self.alpha, self.beta, np.clip(x, 0, 1))

    def above(self, x: ArrayLike) -> NDArray:
        return betaincc(self.alpha, self.beta, np.clip(x, 0, 1))

    def quantile(self, q: float) -> NDArray:
        return betaincinv(self.alpha, self.beta, q)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray:
        return rng.beta(self.alpha, self.beta, shape)


@dataclass
class GammaDistribution(Distribution):
    """Gammas; a scale is the mean over the shape."""

    shape: NDArray
    scale: NDArray

    support = (0.0, np.inf)
    to_line, from_line, steepness = np.log, np.exp, np.positive
    variance_of = staticmethod(lambda mean: (mean**2, 2 * mean))
    share_of = dispersion_of = np.positive

    @classmethod
    def at(cls, mean: NDArray, dispersion: NDArray) -> Self:
        """Return those with this mean and a positive phi, the inverse of the shape."""
        return cls(1 / dispersion, mean * dispersion)

    @classmethod
    def given(cls, clients: Shared, errors: NDArray) -> tuple[NDArray, NDArray]:
        """Means and variances given the error, which is a factor whose logarithm is normal."""
        positive = np.where(clients.mean > 0, clients.mean, 1.0)
        relative = clients.common / positive**2  # squared coefficient of variation of the factor
        spread = np.log1p(relative)
        means = clients.mean * np.exp(np.sqrt(spread) * errors - spread / 2)
        own = np.maximum(clients.variance - clients.common, 0.0) / (positive**2 * (1 + relative))
        return means, means**2 * own

    def on_line(self, u: NDArray) -> tuple[NDArray, NDArray]:
        away = u - np.log(self.shape * self.scale)
        heights = gamma_height(self.shape, away)
        return heights, -heights * self.shape * np.expm1(away)

    def logpdf(self, x: NDArray) -> NDArray:
        density = xlogy(self.shape - 1, x) - x / self.scale - xlogy(self.shape, self.scale)
        return density - gammaln(self.shape)

    def below(self, x: ArrayLike) -> NDArray:
        return gammainc(self.shape, np.maximum(x, 0.0) / self.scale)

    def above(self, x: ArrayLike) -> NDArray:
        return gammaincc(self.shape, np.maximum(x, 0.0) / self.scale)

    def quantile(self, q: float) -> NDArray:
        return self.scale * gammaincinv(self.shape, q)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray:
        return rng.gamma(self.shape, self.scale, shape)


@dataclass
class LogGammaDistribution(Distribution):
    """Distributions of ``centre - log G``, where G is gamma with this shape and a scale of 1."""

    shape: NDArray
    centre: NDArray

    support = (-np.inf, np.inf)
    to_line, from_line, steepness = np.positive, np.positive, staticmethod(np.ones_like)
    variance_of = staticmethod(lambda mean: (np.ones_like(mean), np.zeros_like(mean)))

    @staticmethod
    def share_of(dispersion: Any) -> Any:
        """Return the variance."""
        return np.where(dispersion > 0, polygamma(1, 1 / np.maximum(dispersion, TINIEST)), 0.0)

    @staticmethod
    def dispersion_of(share: Any) -> Any:
        """Return phi of a variance."""
        return np.where(share > 0, 1 / inverse_trigamma(np.maximum(share, TINIEST)), 0.0)

    @classmethod
    def at(cls, mean: NDArray, dispersion: NDArray) -> Self:
        """Return those with this mean and a positive phi, the inverse of the shape."""
        shape = 1 / np.maximum(dispersion, TINIEST)
        return cls(shape, mean + psi(shape))

    @classmethod
    def given(cls, clients: Shared, errors: NDArray) -> tuple[NDArray, NDArray]:
        """Means and variances given the error, which is added."""
        means = clients.mean + np.sqrt(clients.common) * errors
        own = np.maximum(clients.variance - clients.common, 0.0)
        return means, np.broadcast_to(own, means.shape)

    def on_line(self, u: NDArray) -> tuple[NDArray, NDArray]:
        away = np.minimum(self.centre - u - np.log(self.shape), FURTHEST)  # of the log of G
        heights = gamma_height(self.shape, away)
        return heights, heights * self.shape * np.expm1(away)

    def logpdf(self, x: NDArray) -> NDArray:
        away = self.centre - np.log(self.shape) - x
        density = away - np.exp(np.minimum(away, FURTHEST)) + np.log(self.shape)
        return self.shape * density - gammaln(self.shape)

    def _value(self, x: ArrayLike) -> NDArray:
        """Value of G at x."""
        return np.exp(np.clip(self.centre - np.asarray(x), -FURTHEST, FURTHEST))

    def below(self, x: ArrayLike) -> NDArray:
        return gammaincc(self.shape, self._value(x))

    def above(self, x: ArrayLike) -> NDArray:
        return gammainc(self.shape, self._value(x))

    def quantile(self, q: float) -> NDArray:
        with np.errstate(divide="ignore"):
            return self.centre - np.log(gammainccinv(self.shape, q))

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray:
        return self.centre - np.log(rng.gamma(self.shape, 1.0, shape))


class TwoMoments(Posterior):
    """Posterior of clients whose every coordinate has a distribution of one kind.

    Parameters
    ----------
    kind : type of Distribution
    mean, sd : ndarray of shape (n, d)
        A point where sd is 0.

    Examples
    --------
    >>> posterior = TwoMoments(LogGammaDistribution, np.array([[0.0]]), np.array([[0.5]]))
    >>> posterior.quantile(0.5).round(3), posterior.prob_below(0.0).round(3)
    (array([[-0.04]]), array([[0.532]]))
    """

    def __init__(self, kind: type[Distribution], mean: NDArray, sd: NDArray):
        self.kind, self.mean, self.sd = kind, mean, sd

    @cached_property
    def _each(self) -> Distribution:
        return self.kind.of(self.mean, self.sd**2)

    def _quantile(self, q: float) -> NDArray:
        return np.where(self.sd > 0, self._each.quantile(q), self.mean)

    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        inside = (self._each.below if sign > 0 else self._each.above)(threshold)
        return np.where(self.sd > 0, inside, sign * self.mean <= sign * np.asarray(threshold))

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng = np.random.default_rng(random_state)
        draws = self._each.draw((size, *self.mean.shape), rng)
        return np.where(self.sd > 0, draws, self.mean)

    def interval(
        self, level: float = 0.95, kind: Literal["eb", "robust"] = "eb"
    ) -> tuple[NDArray, NDArray]:
        """Interval within the support; see `Posterior.interval`."""
        lower, upper = super().interval(level, kind)
        low, high = self.kind.support
        return np.clip(lower, low, high), np.clip(upper, low, high)

    def _quantile_together(
        self, parts: Sequence[Posterior], weights: NDArray, q: float
    ) -> NDArray | None:
        """Quantiles of mixtures; None where some of their components are points."""
        if not all((part.sd > 0).all() for part in parts):
            return None
        size = self.mean.size
        flat = [(part.mean.ravel(), part.sd.ravel()) for part in parts]
        shares = weights.reshape(len(parts), size)
        result = np.empty(size)
        for block in np.array_split(np.arange(size), 1 + size * len(parts) // BLOCK):
            mean, sd = (np.array([each[j][block] for each in flat]) for j in (0, 1))
            found = _quantiles(self.kind, mean, sd, shares[:, block], q)
            if found is None:
                return None
            result[block] = found
        return result.reshape(self.mean.shape)


def _quantiles(
    kind: type[Distribution], mean: NDArray, sd: NDArray, weights: NDArray, q: float
) -> NDArray | None:
    """Quantiles of mixtures of one kind of distributions, whose means and sds have shape (K, n).

    Halley's method for the logit of the probability, on the kind's line, from the quantile of one
    member with the moments of the mixture. Densities are cheap beside probabilities. Mixtures that
    are the same are solved once. None where a mixture takes too many steps.
    """
    rows = np.concatenate([mean, sd, weights]).T.copy()
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, first, codes = np.unique(keys, return_index=True, return_inverse=True)
    mean, sd, weights = (each[:, first] for each in (mean, sd, weights))
    centre = (weights * mean).sum(axis=0)
    spread = np.sqrt((weights * (sd**2 + (mean - centre) ** 2)).sum(axis=0))
    with np.errstate(divide="ignore"):
        at = kind.to_line(kind.of(centre, spread**2).quantile(q))
    at = np.clip(at, -FURTHEST, FURTHEST)
    low, high = np.full(at.shape, -np.inf), np.full(at.shape, np.inf)
    result, open_ = np.empty(at.shape), np.arange(len(at))
    probability = np.full(at.shape, np.nan)  # at these places, where it is known
    for _ in range(40):
        asked = open_[np.isnan(probability[open_])]
        if len(asked):
            each = kind.of(mean[:, asked], sd[:, asked] ** 2).below(kind.from_line(at[asked]))
            probability[asked] = (weights[:, asked] * each).sum(axis=0)
        share, parts = weights[:, open_], kind.of(mean[:, open_], sd[:, open_] ** 2)
        u, below = at[open_], probability[open_]
        height, slope = ((share * each).sum(axis=0) for each in parts.on_line(u))
        low[open_], high[open_] = (
            np.where(below < q, u, low[open_]),
            np.where(below < q, high[open_], u),
        )
        step = _halley(below, height, slope, q)
        # a step may be lost in the rounding of the place, which is then an end
        inside = (u + step >= low[open_]) & (u + step <= high[open_])
        near = np.isfinite(low[open_]) & np.isfinite(high[open_])
        far = np.where(below < q, 1.0, -1.0) * np.maximum(1, np.abs(u))
        step = np.where(inside, step, np.where(near, (low[open_] + high[open_]) / 2 - u, far))
        step = np.clip(u + step, -FURTHEST, FURTHEST) - u
        at[open_] = u + step
        # what the density adds between the two, by Gauss's rule
        added = sum(
            mass * (share * parts.on_line(u + (1 + node) / 2 * step)[0]).sum(axis=0)
            for node, mass in zip(*np.polynomial.legendre.leggauss(3), strict=True)
        )
        reached = below + step / 2 * added
        short = np.abs(below - q) < NEAR * q * (1 - q)
        done = (np.abs(reached - q) < 1e-11) & short
        probability[open_] = np.where(short, reached, np.nan)
        done |= step == 0
        result[open_[done]] = at[open_[done]]
        open_ = open_[~done]
        if not len(open_):
            return kind.from_line(result)[codes]
    return None


def gamma_height(shape: NDArray, away: NDArray) -> NDArray:
    """Density of the logarithm of a gamma variable at a distance from that of its mean.

    Terms of a large shape would cancel: Stirling's series has their difference.

    Examples
    --------
    >>> gamma_height(np.array([1.0, 1e16]), np.zeros(2)).round(3).tolist()
    [0.368, 39894228.04]
    """
    large = np.maximum(shape, LARGE)
    constant = np.where(
        shape < LARGE,
        shape * np.log(shape) - shape - gammaln(shape),
        np.log(large / (2 * np.pi)) / 2 - 1 / (12 * large),
    )
    with np.errstate(over="ignore"):
        return np.exp(constant - shape * (np.expm1(away) - away))


def _halley(below: NDArray, height: NDArray, slope: NDArray, q: float) -> NDArray:
    """Step towards the place where the logit of the probability `below` is that of q."""
    with np.errstate(all="ignore"):
        inner = below * (1 - below)
        excess = np.log(below / (1 - below)) - np.log(q / (1 - q))
        first = height / inner
        second = slope / inner - first**2 * (1 - 2 * below)
        return -2 * excess * first / (2 * first**2 - excess * second)
