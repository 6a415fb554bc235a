"""Degrees of freedom of the mean of a generalized linear model with few groups.

The variance V of an estimate follows from the spread of the population, of which few groups say
little, and whose likeliest value is too small: by one group in n for each coefficient that is
fitted to them. Over populations that the rows do not tell from the fitted one (see
`ebfed.regression.numerics.spread_doubt`), 1/V is about a chi-squared variable over its degrees of
freedom, times a constant. Both follow from its mean and variance, as in Satterthwaite (1946):

    1 / s**2 = E[1/V],    df = 2 E[1/V]**2 / var(1/V),

and the estimate is Student's t with standard error s (of several estimates, V and ``s**2`` are
matrices). Of normal coefficients of n groups with
equal errors, to which k coefficients of the mean are fitted, these are the restricted estimate and
n - k.

V at a population is the inverse of the information on the mean (and shapes) there. How far the
likeliest mean moves with the spread, as it does where the link is a logarithm, adds its square to
``s**2``, which is taken as known. Spreads of several levels or coefficients are taken one after the
other: factors of the variance multiply (logarithms of matrices add), and the relative variances of
1/V add.

References
----------
Satterthwaite (1946), An approximate distribution of estimates of variance components, Biometrics
Bulletin 2. Box, Tiao (1973), Bayesian Inference in Statistical Analysis, section 2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.degrees_of_freedom import Inference

__all__ = ["NearbySpreads", "SpreadDegrees"]

# Relative variance of 1/V below which degrees of freedom are infinite.
KNOWN = 1e-6
# Shares that are rounding.
ROUNDING = 1e-9
# Share of a variance that is rounding of its own sum.
TINY = 1e-13


class NearbySpreads(NamedTuple):
    """Spreads near the fitted ones, which the rows do not tell from these.

    Attributes
    ----------
    fitted : ndarray of shape (p, p)
        Covariance of the mean if the spread is as fitted.
    weights : ndarray of shape (k,)
        Those along a variance sum to 1; along a covariance, the fitted spread has the rest.
    parameters : int64 ndarray of shape (k,)
        Parameter of the spread along which each is.
    covariances : ndarray of shape (k, p, p)
        Covariances of the mean there.
    shifts : ndarray of shape (k, p)
        How far the likeliest mean is from the fitted one.
    """

    fitted: NDArray
    weights: NDArray
    parameters: NDArray[np.int64]
    covariances: NDArray
    shifts: NDArray

    def taken(self, some: NDArray[np.bool_]) -> NearbySpreads:
        """Some of these spreads; the fitted one has the weights of the others."""
        return NearbySpreads(self.fitted, *(each[some] for each in self[1:]))

    def turned(self, turn: NDArray) -> NearbySpreads:
        """Those of combinations of the mean, shape (m, p)."""
        return self._replace(
            fitted=turn @ self.fitted @ turn.T,
            covariances=turn @ self.covariances @ turn.T,
            shifts=self.shifts @ turn.T,
        )


class SpreadDegrees(Inference):
    """Standard errors and degrees of freedom over spreads near the fitted ones.

    Parameters
    ----------
    mean : ndarray of shape (p,)
    nearby : NearbySpreads
        With one spread or more.
    """

    def __init__(self, mean: NDArray, nearby: NearbySpreads):
        super().__init__(mean)
        self._nearby = nearby
        size = np.sqrt(np.diag(nearby.fitted))  # so that units of columns do not matter
        size = np.where(size > 0, size, 1.0)
        apart = _apart(nearby.fitted / np.outer(size, size))
        values, vectors = np.linalg.eigh(apart @ (nearby.fitted / np.outer(size, size)) @ apart.T)
        kept = values > ROUNDING * values[-1]
        turned = np.linalg.solve(apart, vectors[:, kept])
        self._root = size[:, None] * turned * np.sqrt(values[kept])
        back = apart.T @ (vectors[:, kept] / np.sqrt(values[kept])) / size[:, None]
        inside = back.T @ nearby.covariances @ back
        sound = _invertible(inside)
        self._nearby = nearby.taken(sound)
        self._precisions = np.linalg.inv(inside[sound])

    def _by_parameter(self) -> Iterator[tuple[NDArray, NDArray]]:
        """Weights along each parameter, and inverses of covariances over that as fitted."""
        for each in np.unique(self._nearby.parameters):
            along = self._nearby.parameters == each
            own, precisions = self._nearby.weights[along], self._precisions[along]
            if own.sum() < 1 - ROUNDING:  # the fitted spread has the rest
                own = np.append(own, 1 - own.sum())
                precisions = np.concatenate([precisions, np.eye(precisions.shape[1])[None]])
            yield own, precisions

    @cached_property
    def _given_spread(self) -> NDArray[np.float64]:
        """Sampling covariance of the mean, averaged over spreads, shape (p, p)."""
        total = np.zeros(self._precisions.shape[1:])
        for weights, precisions in self._by_parameter():
            values, vectors = np.linalg.eigh(np.tensordot(weights, precisions, 1))
            total += (vectors * np.log(values)) @ vectors.T
        values, vectors = np.linalg.eigh(total)
        half = self._root @ (vectors * np.exp(-values / 2))
        return half @ half.T

    @cached_property
    def covariance(self) -> NDArray:
        """Sampling covariance of the mean, what not knowing the spread adds included."""
        shifts = self._nearby.shifts
        return self._given_spread + shifts.T @ (self._nearby.weights[:, None] * shifts)

    def df(self, contrasts: NDArray) -> NDArray:
        along = contrasts @ self._root
        doubt = np.zeros(len(along))
        for weights, precisions in self._by_parameter():
            V = np.einsum("np,kpq,nq->kn", along, np.linalg.inv(precisions), along)
            known = (V > 0).all(axis=0)
            inverse = 1 / np.where(known, V, 1.0)
            mean = weights @ inverse
            doubt += np.maximum(weights @ (inverse / mean - 1) ** 2, 0.0)
        own, whole = (
            np.einsum("np,pq,nq->n", contrasts, each, contrasts)
            for each in (self._given_spread, self.covariance)
        )
        doubt *= np.divide(own, whole, out=np.ones(len(own)), where=whole > 0) ** 2
        return np.divide(2, doubt, out=np.full(len(doubt), np.inf), where=doubt > KNOWN)


def _apart(covariance: NDArray) -> NDArray[np.float64]:
    """Return what makes the first coefficient one that is not correlated with the others.

    If it is the constant, and columns are far from zero, the two are known far less well than where
    the columns are.
    """
    found = np.eye(len(covariance))
    if len(covariance) < 2:
        return found
    values, vectors = np.linalg.eigh(covariance[1:, 1:])
    kept = values > ROUNDING * values[-1]
    slope = vectors[:, kept] @ (vectors[:, kept].T @ covariance[1:, 0] / values[kept])
    rest = covariance[0, 0] - covariance[0, 1:] @ slope
    if rest > TINY * covariance[0, 0]:
        found[0, 1:] = -slope
        found[0] /= np.sqrt(rest)
    return found


def _invertible(covariances: NDArray) -> NDArray[np.bool_]:
    """Whether these are covariances of as many combinations as the fitted one.

    At a spread far from the fitted one, the rows may tell less of the mean, as of columns that are
    collinear or separate classes.
    """
    sound = np.isfinite(covariances).all(axis=(1, 2))
    values = np.linalg.eigvalsh(np.where(sound[:, None, None], covariances, 0.0))
    # of no combinations there is nothing to compare
    return sound & (values.min(axis=1, initial=np.inf) > ROUNDING * values.max(axis=1, initial=0.0))
