"""Coefficients of the location and the log-spread of a normal population, and plausible ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Gaussian, StudentT
from ebfed.priors.exploration import TILT, reweighted, student_draws
from ebfed.priors.identification import NO_SPREAD

__all__ = ["LocationScaleFit"]

# Logarithm of a spread over a typical error below which it is negligible; longest step of one.
NONE, LONGEST = -9.0, 2.0
STEEP = (
    "The likelihood rises as the slopes of the spread grow without bound. They are taken from the "
    "peak of their posterior density."
)
# Logarithm of a spread over a typical error, beyond which it is not computed.
FURTHEST = 40.0
# Slope of the log-spread over a standard deviation of the covariates that is not believed.
STEEPEST = 4.0
# Rise of the log-likelihood that a step promises, below which it is the last.
DONE = 1e-11
# Numbers of plausible points (second of each pair) up to a number of messages (first).
SIZES = ((500, 256), (4000, 128), (np.inf, 48))
ROUNDS = 3  # of proposals


class Figures(NamedTuple):
    """Criterion at a point, its slope, expected information, and scores of each message."""

    value: float
    slope: NDArray
    information: NDArray
    scores: NDArray


@dataclass(frozen=True)
class LocationScaleFit:
    """Estimates ``x_i`` of ``theta_i ~ N(w_i' b, exp(2 z_i' c))``.

    Standardised by location and spread, a message has a population N(0, 1) and the log-density
    ``log f(u_i) - log s_i``. Its slopes are ``-f'/f / s_i`` in the location and, as a normal
    density solves the heat equation, ``f''/f`` in the log-spread.

    Attributes
    ----------
    rows : Gaussian or StudentT of n clients with data
    mean, spread : ndarray of shape (n, p) and (n, q)
        Columns of ones, and centred and scaled covariates.
    restricted : bool
        Whether b is integrated out.
    """

    rows: Gaussian | StudentT
    mean: NDArray
    spread: NDArray
    restricted: bool

    @cached_property
    def noise(self) -> NDArray:
        """Variances of the errors, shape (n,)."""
        return self.rows.sampling_variance(0.0, 1.0)

    @cached_property
    def typical(self) -> float:
        """Typical variance of the errors."""
        return float(np.median(self.noise))

    def at(self, point: NDArray, with_prior: bool = False) -> Figures:
        """Evaluate the criterion: (restricted) likelihood, or that with the prior."""
        p, c = self.mean.shape[1], point[self.mean.shape[1] :]
        scale, total, one, two = self._figures(point)
        precision = 1 / (1 + self.noise / scale**2)
        scores = np.hstack([self.mean * (one / scale)[:, None], self.spread * two[:, None]])
        weighted = self.mean * (precision / scale**2)[:, None]
        information = np.zeros((len(point), len(point)))
        information[:p, :p] = self.mean.T @ weighted
        information[p:, p:] = 2 * (self.spread.T * precision**2) @ self.spread
        slope = scores.sum(axis=0)
        if self.restricted and not with_prior:
            own = information[:p, :p]
            leverage = np.einsum("ij,ij->i", self.mean, np.linalg.solve(own, weighted.T).T)
            total -= 0.5 * np.linalg.slogdet(own)[1]
            slope[p:] += self.spread.T @ (leverage * precision)
        if with_prior:
            share = self._share(c)
            total += self._log_prior(c)
            slope[p] += 1 + 2 * TILT * share
            slope[p + 1 :] -= c[1:]
            bend = [4 * TILT * share * (1 - share)] + [1.0] * (len(c) - 1)
            information[p:, p:] += np.diag(bend)
        return Figures(total, slope, information, scores)

    def heights(self, points: NDArray) -> NDArray:
        """Log posterior density of points up to a constant, shape (k,)."""
        p = self.mean.shape[1]
        return np.array([self._figures(each)[1] + self._log_prior(each[p:]) for each in points])

    def _share(self, c: NDArray) -> float:
        """Share of typical errors in the variance of an estimate at average covariates."""
        return float(self.typical / (np.exp(2 * c[0]) + self.typical))

    def _log_prior(self, c: NDArray) -> float:
        return float(c[0] + TILT * np.log1p(-self._share(c)) - 0.5 * c[1:] @ c[1:])

    def _figures(self, point: NDArray) -> tuple[NDArray, float, NDArray, NDArray]:
        """Scales, log-likelihood, and ``-f'/f`` and ``f''/f`` of each message."""
        b, c = np.split(point, [self.mean.shape[1]])
        centre = 0.5 * np.log(self.typical)
        log_scale = np.clip(self.spread @ c, centre - FURTHEST, centre + FURTHEST)
        scale = np.exp(log_scale)
        away = (self.rows.values[:, 0] - self.mean @ b) / scale
        value, one, two = self._standardised(away, scale)
        return scale, float(value.sum() - log_scale.sum()), one, two

    def _standardised(self, away: NDArray, scale: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """``log f``, ``-f'/f`` and ``f''/f`` at standardised values, shape (n,) each."""
        noise = self.rows.variances[:, 0] / scale**2
        if isinstance(self.rows, StudentT):
            rows = StudentT(away[:, None], noise[:, None], self.rows.degrees)
            log, one, two = rows.derivatives(away, 1.0)[:3]
            return log, one, two
        precision = 1 / (1 + noise)
        one = away * precision
        log = -0.5 * (np.log(2 * np.pi / precision) + away * one)
        return log, one, one**2 - precision

    def start(self) -> NDArray:
        """Point without slopes of the spread: moments of residuals."""
        values = self.rows.values[:, 0]
        root = 1 / np.sqrt(self.noise + self.typical)
        b = np.linalg.lstsq(self.mean * root[:, None], values * root)[0]
        excess = np.mean((values - self.mean @ b) ** 2 - self.noise)
        c = np.zeros(self.spread.shape[1])
        c[0] = 0.5 * np.log(max(float(excess), 0.1 * self.typical))
        return np.concatenate([b, c])

    def climb(self, point: NDArray, with_prior: bool = False) -> tuple[NDArray, Figures, bool]:
        """Climb by scoring; also return whether the spread stays above none."""
        p = self.mean.shape[1]
        lowest = 0.5 * np.log(self.typical) + NONE
        figures = self.at(point, with_prior)
        for _ in range(500):
            step = np.linalg.lstsq(figures.information, figures.slope)[0]
            step *= min(1.0, LONGEST / max(np.abs(self.spread @ step[p:]).max(), 1e-300))
            for _ in range(40):
                tried = self.at(point + step, with_prior)
                if tried.value >= figures.value:
                    break
                step = step / 3
            else:
                return point, figures, True
            promised = float(figures.slope @ step)
            point, figures = point + step, tried
            if not (self.spread @ point[p:]).max() > lowest:
                return point, figures, False
            if not with_prior and (np.abs(point[p + 1 :]) > STEEPEST).any():
                return point, figures, True
            if promised < DONE:
                return point, figures, True
        return point, figures, True

    def likeliest(self) -> tuple[NDArray, str]:
        """Coefficients of (restricted) maximum likelihood, and a note where there is none."""
        point, _, has_spread = self.climb(self.start())
        p = self.mean.shape[1]
        if not has_spread:
            point[p:] = 0.0
            point[p] = 0.5 * np.log(self.typical) + NONE
            return point, NO_SPREAD
        if (np.abs(point[p + 1 :]) > STEEPEST).any():
            return self.climb(self.start(), with_prior=True)[0], STEEP
        return point, ""

    def restriction(self, point: NDArray) -> float:
        """What integrating b out adds to the log-likelihood, ``log |2 pi C| / 2``."""
        p = self.mean.shape[1]
        own = self.at(point).information[:p, :p]
        return float(0.5 * (p * np.log(2 * np.pi) - np.linalg.slogdet(own)[1]))

    def covariance(self, point: NDArray, robust: bool) -> NDArray:
        """Sampling covariance of a point; robust, whatever the shape of the population."""
        figures = self.at(point)
        inverse = np.linalg.pinv(figures.information, rcond=1e-12, hermitian=True)
        if not robust:
            return inverse
        return inverse @ (figures.scores.T @ figures.scores) @ inverse

    def plausible(self) -> tuple[NDArray, NDArray]:
        """Weighted points of the posterior distribution, under a normal shape."""
        centre, figures, _ = self.climb(self.start(), with_prior=True)
        root = np.linalg.cholesky(np.linalg.inv(figures.information))
        size = next(size for most, size in SIZES if len(self.rows) <= most)
        return reweighted(
            *student_draws(size, len(centre))[:2],
            lambda moved: centre + moved @ root.T,
            self.heights,
            ROUNDS,
        )
