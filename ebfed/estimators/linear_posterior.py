"""What is known of clients' regression coefficients: normal, and correlated within a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.factors import Factors
from ebfed.priors import Posterior

__all__ = ["CoefficientPosterior"]


class CoefficientPosterior(Posterior):
    """Normal posteriors of clients' coefficients, correlated within a client.

    With ``D_i = I - S Z_i' V_i^-1 X_i / noise`` the mean is ``D_i mean + S Z_i' V_i^-1 y_i /
    noise`` and the covariance

        S - S Z_i' V_i^-1 Z_i S / noise + D_i Cov(mean) D_i',

    where ``noise V_i`` is the covariance of y_i given the mean: conditional variance, and what not
    knowing the mean adds (Henderson 1975). The variances are taken as known.

    Parameters
    ----------
    block : Factors of n clients
    mean : ndarray of shape (p,)
    mean_covariance, covariance : ndarray of shape (p, p)
    noise_variance : float
    maps : ndarray of shape (n, k, p), optional
        Which k combinations of its coefficients each client is asked for; the coefficients
        themselves if None.
    """

    def __init__(
        self,
        block: Factors,
        mean: NDArray,
        mean_covariance: NDArray,
        covariance: NDArray,
        noise_variance: float,
        maps: NDArray | None = None,
    ):
        self._block, self._mean, self._mean_covariance = block, mean, mean_covariance
        self._covariance, self._noise, self._maps = covariance, noise_variance, maps
        figures = [
            (shift, np.sqrt(np.maximum(np.einsum("npp->np", each), 0)))
            for shift, each in self._blocks()
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
            maps,
        )

    def _blocks(self) -> Iterator[tuple[NDArray, NDArray]]:
        """Mean and covariance of the clients, a block at a time."""
        p = len(self._mean)
        n_blocks = 1 + len(self._block) * p * p // 4_000_000
        first = 0
        for block in self._block.split(n_blocks):
            mean, covariance = self._figures(block)
            if self._maps is not None:
                maps = self._maps[first : first + len(block)]
                mean = np.einsum("nkp,np->nk", maps, mean)
                covariance = maps @ covariance @ maps.swapaxes(1, 2)
            yield mean, covariance
            first += len(block)

    def _figures(self, block: Factors) -> tuple[NDArray, NDArray]:
        p, rows = len(self._mean), block.rows
        X, y = rows[:, :, :-1], rows[:, :, -1]
        if self._noise > 0:
            between = X @ self._covariance
            V = between @ X.swapaxes(1, 2)
            V[:, np.arange(rows.shape[1]), np.arange(rows.shape[1])] += self._noise
            weights = np.linalg.solve(V, between).swapaxes(1, 2)  # S X' V^-1, (n, p, r)
        else:  # rows without noise: their least-squares coefficients where those vary
            root = _root(self._covariance)
            weights = root @ np.linalg.pinv(X @ root)
        away = np.eye(p) - weights @ X
        mean = away @ self._mean + np.einsum("npr,nr->np", weights, y)
        covariance = away @ self._covariance + away @ self._mean_covariance @ away.swapaxes(1, 2)
        return mean, (covariance + covariance.swapaxes(1, 2)) / 2

    @property
    def covariance(self) -> NDArray:
        """Posterior covariance of each client's coefficients, shape (n, p, p)."""
        return np.concatenate([each for _, each in self._blocks()])

    def variance_along(self, rows: NDArray, codes: NDArray) -> NDArray:
        """Variance of ``x' theta`` for rows x of these clients, shape (n_rows,)."""
        out = np.empty(len(rows))
        first = 0
        for _, covariance in self._blocks():
            mine = (codes >= first) & (codes < first + len(covariance))
            x = rows[mine]
            out[mine] = np.einsum("np,npq,nq->n", x, covariance[codes[mine] - first], x)
            first += len(covariance)
        return np.maximum(out, 0)

    def _quantile(self, q: float) -> NDArray:
        from scipy.special import ndtri

        with np.errstate(invalid="ignore"):  # infinity times an sd of zero
            return np.where(self.sd > 0, self.mean + ndtri(q) * self.sd, self.mean)

    def prob_below(self, threshold: float) -> NDArray:
        """Probability that a coordinate is at most `threshold`, shape (n, p)."""
        from scipy.special import ndtr

        with np.errstate(divide="ignore", invalid="ignore"):
            z = (threshold - self.mean) / self.sd
        return np.where(self.sd > 0, ndtr(z), self.mean <= threshold)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` coefficient vectors of each client, shape (size, n, p)."""
        rng = np.random.default_rng(random_state)
        draws = []
        for mean, covariance in self._blocks():
            noise = rng.standard_normal((size, *mean.shape))
            draws.append(mean + np.einsum("npq,snq->snp", _root(covariance), noise))
        return np.concatenate(draws, axis=1)


def _root(covariance: NDArray) -> NDArray:
    """Symmetric root of covariances that may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    root = np.sqrt(np.maximum(values, 0))
    return (vectors * root[..., None, :]) @ vectors.swapaxes(-1, -2)
