"""What is known of clients' regression coefficients: normal, and correlated within a client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.sums import whitening
from ebfed.priors.posterior import IndependentNormals, NormalMarginals
from ebfed.regression.numerics.spread_doubt import MANY, variance_nodes
from ebfed.tables.factors import Factors

__all__ = ["CoefficientPosterior", "Doubt", "blocks_of_terms", "mean_shifts"]


@dataclass(frozen=True, eq=False)
class Doubt:
    """What n clients do not tell of a covariance.

    Parameters
    ----------
    covariance : ndarray of shape (p, p)
    known : ndarray of shape (p, p)
        Sampling covariance of its diagonal; or, of a full one, B of all terms.
    terms : sequence of ndarray or None
        Coefficients of each term of a full covariance; None of one that is diagonal.
    n : int
    noise : float
        What the noise of rows may be above the fitted one, as its share.
    """

    covariance: NDArray
    known: NDArray
    terms: Sequence[NDArray] | None
    n: int
    noise: float = 0.0

    @cached_property
    def of_terms(self) -> NDArray[np.float64]:
        """B of each term of a full covariance, shape (k, p, p)."""
        assert self.terms is not None
        return blocks_of_terms(self.known, self.terms)

    @cached_property
    def excess(self) -> NDArray[np.float64]:
        """Average of covariances that the rows do not tell from the fitted one, less this, (p, p).

        Of a full one, in coordinates where it and B are diagonal: it does not depend on which
        combinations are the coefficients, or on where a covariate is zero.
        """
        if self.terms is None:
            known, n = np.diag(self.known), max(self.n, 1)
            return np.diag(self._above(np.diag(self.covariance), np.sqrt(known * n / 2)))
        found = np.zeros_like(self.covariance)
        for B, own in zip(self.of_terms, self.terms, strict=True):
            place = np.ix_(own, own)
            back, turn = whitening(B[place])
            values, vectors = np.linalg.eigh(back @ self.covariance[place] @ back.T)
            turned = turn @ vectors
            found[place] = turned * self._above(values, np.ones(len(values))) @ turned.T
        return found

    def _above(self, variances: NDArray, totals: NDArray) -> NDArray[np.float64]:
        """Excess of variances; `totals` are of these, and of what a client's rows leave unknown."""
        excess = np.zeros(len(variances))
        for j in np.flatnonzero(totals > 0) if 1 < self.n < MANY else ():
            noise = max(totals[j] - variances[j], 0.0)
            nodes = variance_nodes(noise, max(totals[j], variances[j]), self.n - 1, 0)
            excess[j] = max(nodes[1] @ nodes[0] - variances[j], 0.0)
        return excess


class CoefficientPosterior(NormalMarginals):
    """Normal posteriors of clients' coefficients, correlated within a client.

    With ``D_i = I - S Z_i' V_i^-1 X_i / noise`` the mean is ``D_i mean + S Z_i' V_i^-1 y_i /
    noise`` and the covariance

        C_i + D_i Cov(mean) D_i',    C_i = S - S A_i S + D_i (U_i^-1 + A_i)^-1 D_i',
        U_i = E[dS A_i dS] + E[S] - S,

    where ``noise V_i`` is the covariance of y_i given the mean, and ``A_i = Z_i' V_i^-1 Z_i /
    noise``: the conditional variance with the error of S, and the error of the mean of the
    population (Henderson 1975). The posterior mean moves with S, and ``S - S A_i S`` at the
    estimate is too small, of many groups by as much again (Prasad and Rao 1990). ``E[S] - S`` is
    that: S averaged over variances that the rows do not tell from it, which also is what is not
    known of a group without rows. C_i is the conditional variance if S were ``S + U_i``: no more
    than is known from the client's rows alone, however little is known of S. Not knowing the noise
    adds its share of ``C_i Z_i' Z_i C_i / noise``. For a diagonal S, ``E[dS A dS]`` is the
    elementwise product of A with the sampling covariance of the variances; for a full one, with B
    the inverse of the average A_i of m clients, ``(B A B + tr(A B) B) / m``, and the sum of these
    over terms of coefficients which are independent of each other, B of each.

    Parameters
    ----------
    block : Factors of n clients
    mean : ndarray of shape (p,)
    mean_covariance, covariance : ndarray of shape (p, p)
    noise_variance : float
    doubt : Doubt, optional
        What is not known of `covariance`. None: it is known.
    maps : ndarray of shape (n, k, p), optional
        The k combinations of its coefficients that are asked of each client; the coefficients
        themselves if None.
    parents : tuple, optional
        Where clients belong to parents: posterior of the coefficients of these, given all their
        clients, and the place of each client's. Mean and covariance of the client's parent then
        replace `mean` and `mean_covariance`.
    """

    _parents: tuple[CoefficientPosterior, NDArray[np.int64]] | None = None
    _of_parents: NDArray | None = None
    _maps: NDArray | None = None

    def __init__(
        self,
        block: Factors,
        mean: NDArray,
        mean_covariance: NDArray,
        covariance: NDArray,
        noise_variance: float,
        doubt: Doubt | None = None,
        maps: NDArray | None = None,
        parents: tuple[CoefficientPosterior, NDArray[np.int64]] | None = None,
    ):
        self._block, self._mean, self._mean_covariance = block, mean, mean_covariance
        self._covariance, self._noise, self._maps = covariance, noise_variance, maps
        self._doubt, self._parents = doubt, parents
        self._of_parents = None if parents is None else parents[0].covariance
        figures = [
            (shift, np.sqrt(np.maximum(np.einsum("npp->np", each), 0)))
            for shift, each in self.blocks()
        ]
        self.mean = np.concatenate([shift for shift, _ in figures])
        self.sd = np.concatenate([sd for _, sd in figures])

    def of(self, maps: NDArray) -> CoefficientPosterior:
        """Posterior of combinations of the coefficients."""
        return type(self)(
            self._block,
            self._mean,
            self._mean_covariance,
            self._covariance,
            self._noise,
            self._doubt,
            maps,
            self._parents,
        )

    def around_parents(self) -> IndependentNormals | None:
        """Posterior of how each client differs from its parent.

        A client's coefficients have the slope D in those of its parent, their difference ``D - I``.
        """
        if self._parents is None or self._of_parents is None:
            return None
        parents, places = self._parents
        means: list[NDArray] = []
        variances: list[NDArray] = []
        for mean, own, away in self._parts():
            here = slice(len(means), len(means) + len(mean))
            still = np.eye(own.shape[1]) if self._maps is None else self._maps[here]
            slope, above = away - still, self._of_parents[places[here]]
            means.extend(mean - (still @ parents.mean[places[here], :, None])[:, :, 0])
            variance = np.einsum("nkp,npq,nkq->nk", slope, above, slope)
            variances.extend(variance + np.einsum("nkk->nk", own))
        return IndependentNormals(np.array(means), np.sqrt(np.maximum(variances, 0)))

    def blocks(self) -> Iterator[tuple[NDArray, NDArray]]:
        """Mean and covariance of the clients, a block at a time."""
        first = 0
        for mean, own, away in self._parts():
            known = self._mean_covariance
            if self._of_parents is not None and self._parents is not None:
                known = self._of_parents[self._parents[1][first : first + len(mean)]]
            covariance = own + away @ known @ away.swapaxes(1, 2)
            yield mean, (covariance + covariance.swapaxes(1, 2)) / 2
            first += len(mean)

    def _parts(self) -> Iterator[tuple[NDArray, NDArray, NDArray]]:
        """Mean, covariance if the population's mean were known, and slope in that mean."""
        p = len(self._mean)
        n_blocks = 1 + len(self._block) * p * p // 4_000_000
        first = 0
        for block in self._block.split(n_blocks):
            mean, own, away = self._figures(block, first)
            if self._maps is not None:
                maps = self._maps[first : first + len(block)]
                mean = np.einsum("nkp,np->nk", maps, mean)
                own, away = maps @ own @ maps.swapaxes(1, 2), maps @ away
            yield mean, own, away
            first += len(block)

    def _figures(self, block: Factors, first: int) -> tuple[NDArray, NDArray, NDArray]:
        p, rows = len(self._mean), block.rows
        X, y = rows[:, :, :-1], rows[:, :, -1]
        if self._noise > 0:
            between = X @ self._covariance
            V = between @ X.swapaxes(1, 2)
            V[:, np.arange(rows.shape[1]), np.arange(rows.shape[1])] += self._noise
            solved = np.linalg.solve(V, X)
            A = X.swapaxes(1, 2) @ solved
            weights = self._covariance @ solved.swapaxes(1, 2)  # S X' V^-1, (n, p, r)
        else:  # rows without noise: their least-squares coefficients where those vary
            root = _root(self._covariance)
            weights = root @ np.linalg.pinv(X @ root)
            A = np.zeros((len(block), p, p))
        away = np.eye(p) - weights @ X
        # [E] Theorem 7
        centre = away @ self._mean
        if self._parents is not None:
            places = self._parents[1][first : first + len(block)]
            centre = np.einsum("npq,nq->np", away, self._parents[0].mean[places])
        mean = centre + np.einsum("npr,nr->np", weights, y)
        unknown = self._unknown(A)
        unknown = np.linalg.solve(np.eye(p) + unknown @ A, unknown)
        own = away @ self._covariance + away @ unknown @ away.swapaxes(1, 2)
        if self._doubt is not None and self._noise > 0:
            seen = X @ own
            own += self._doubt.noise / self._noise * seen.swapaxes(1, 2) @ seen
        return mean, (own + own.swapaxes(1, 2)) / 2, away

    def _unknown(self, A: NDArray) -> NDArray:
        """``E[dS A dS] + E[S] - S`` for each client, shape (n, p, p)."""
        if self._doubt is None:
            return np.zeros_like(A)
        if self._doubt.terms is None:
            return A * self._doubt.known + self._doubt.excess
        found = np.zeros_like(A)
        for term in self._doubt.of_terms:
            product = A @ term
            found += term @ product + np.einsum("npp->n", product)[:, None, None] * term
        return found / self._doubt.n + self._doubt.excess

    @property
    def covariance(self) -> NDArray:
        """Posterior covariance of each client's coefficients, shape (n, p, p)."""
        return np.concatenate([each for _, each in self.blocks()])

    def variance_along(self, rows: NDArray, codes: NDArray) -> NDArray:
        """Variance of ``x' theta`` for rows x of these clients, shape (n_rows,)."""
        out = np.empty(len(rows))
        first = 0
        for _, covariance in self.blocks():
            here = np.flatnonzero((codes >= first) & (codes < first + len(covariance)))
            at_once = max(1, 4_000_000 // rows.shape[1] ** 2)
            for some in np.array_split(here, 1 + len(here) // at_once):
                x = rows[some]
                out[some] = np.einsum("np,npq,nq->n", x, covariance[codes[some] - first], x)
            first += len(covariance)
        return np.maximum(out, 0)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` coefficient vectors of each client, shape (size, n, p).

        In each draw all clients have one mean of the population, that of `mean_covariance`; those
        of one parent have its coefficients.
        """
        rng = np.random.default_rng(random_state)
        if self._parents is None:
            shifts = mean_shifts(self._mean_covariance, size, rng)[:, None]
            places = np.zeros(len(self.mean), np.int64)
        else:
            parents, places = self._parents
            shifts = parents.sample(size, rng) - parents.mean
        draws, first = [], 0
        for mean, own, away in self._parts():
            noise = rng.standard_normal((size, *mean.shape))
            each = np.einsum("npq,snq->snp", _root(own), noise)
            shift = shifts[:, places[first : first + len(mean)]]
            draws.append(mean + each + np.einsum("npq,snq->snp", away, shift))
            first += len(mean)
        return np.concatenate(draws, axis=1)


def blocks_of_terms(matrix: NDArray, terms: Sequence[NDArray]) -> NDArray[np.float64]:
    """Split a matrix into those of each term, with other entries zero, shape (k, p, p).

    >>> blocks_of_terms(np.diag([1.0, 2.0]), [np.array([0]), np.array([1])])[1]
    array([[0., 0.],
           [0., 2.]])
    """
    parts = np.zeros((len(terms), *matrix.shape))
    for part, own in zip(parts, terms, strict=True):
        part[np.ix_(own, own)] = matrix[np.ix_(own, own)]
    return parts


def mean_shifts(covariance: NDArray, size: int, rng: np.random.Generator) -> NDArray:
    """Draw errors of the population's mean, shape (size, p)."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 0))
    outer = np.outer(scale, scale)  # so that the columns' units do not matter
    unit = np.divide(covariance, outer, out=np.eye(len(scale)), where=outer > 0)
    return scale * (rng.standard_normal((size, len(scale))) @ _root(unit))


def _root(covariance: NDArray) -> NDArray:
    """Symmetric root of covariances that may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    root = np.sqrt(np.maximum(values, 0))
    return (vectors * root[..., None, :]) @ vectors.swapaxes(-1, -2)
