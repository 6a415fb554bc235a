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
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.degrees_of_freedom import Inference
from ebfed.regression.generalized_profile import GeneralizedProfile

if TYPE_CHECKING:
    from ebfed.regression.generalized import GeneralizedEB
    from ebfed.regression.logistic import LogisticEB

__all__ = ["SpreadDegrees"]

# Relative variance of 1/V below which degrees of freedom are infinite.
KNOWN = 1e-6
# Shares that are rounding.
ROUNDING = 1e-9


class SpreadDegrees(Inference):
    """Standard errors and degrees of freedom over populations near the fitted one.

    Parameters
    ----------
    fit : GeneralizedEB or LogisticEB
        A fit by quadrature or Laplace's approximation, with its rows.
    """

    def __init__(self, fit: GeneralizedEB | LogisticEB):
        super().__init__(fit.mean_)
        self._fit = fit

    @cached_property
    def _nearby(self) -> tuple[NDArray, NDArray]:
        """Root R of the covariance of the mean if the spread is as fitted, and ``R^-1 V^-1 R'^-1``.

        Of shapes (p, r) and (k, r, r), V being the covariance if the spread is as in the k-th of
        the populations near the fitted one.
        """
        profile, result = GeneralizedProfile(self._fit), self._fit._result
        values, vectors = np.linalg.eigh(profile.covariance_given(self.mean, profile.covariances))
        kept = values > ROUNDING * values[-1]
        root, back = (vectors * np.sqrt(values))[:, kept], (vectors / np.sqrt(values))[:, kept]
        precisions = np.zeros((len(result["node_weights"]), kept.sum(), kept.sum()))
        for k, mean in enumerate(result["node_means"]):
            roots = [each[k] for each in result["node_roots"]]
            V = profile.covariance_given(mean, [each @ each.T for each in roots])
            precisions[k] = np.linalg.inv(back.T @ V @ back)
        return root, precisions

    def _by_parameter(self) -> Iterator[tuple[NDArray, NDArray]]:
        """Weights and precisions of populations along each parameter of the spread."""
        result = self._fit._result
        weights, owner = result["node_weights"], result["node_parameters"]
        for each in np.unique(owner):
            own, precisions = weights[owner == each], self._nearby[1][owner == each]
            if own.sum() < 1 - ROUNDING:  # the fitted population has the rest
                own = np.append(own, 1 - own.sum())
                precisions = np.concatenate([precisions, np.eye(precisions.shape[1])[None]])
            yield own, precisions

    @cached_property
    def _moved(self) -> NDArray[np.float64]:
        """Mean of the squares by which the mean moves with the spread, shape (p, p)."""
        shift = self._fit._result["node_means"] - self.mean
        return shift.T @ (self._fit._result["node_weights"][:, None] * shift)

    @cached_property
    def _given_spread(self) -> NDArray[np.float64]:
        """Sampling covariance of the mean, averaged over spreads, shape (p, p)."""
        root, total = self._nearby[0], np.zeros(self._nearby[1].shape[1:])
        for weights, precisions in self._by_parameter():
            values, vectors = np.linalg.eigh(np.tensordot(weights, precisions, 1))
            total += (vectors * np.log(values)) @ vectors.T
        values, vectors = np.linalg.eigh(total)
        half = root @ (vectors * np.exp(-values / 2))
        return half @ half.T

    @cached_property
    def covariance(self) -> NDArray:
        """Sampling covariance of the mean, what not knowing the spread adds included."""
        if not len(self._fit._result["node_weights"]):
            return self._fit.mean_covariance_
        return self._given_spread + self._moved

    def df(self, contrasts: NDArray) -> NDArray:
        """Degrees of freedom of each contrast."""
        if not len(self._fit._result["node_weights"]):
            return np.full(len(contrasts), np.inf)
        along = contrasts @ self._nearby[0]
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
