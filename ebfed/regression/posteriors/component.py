"""Posteriors of clients' coefficients under a mixture of regressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.priors.gaussian_mixture import GaussianMixturePosterior
from ebfed.regression.numerics.evidence import MixturePopulation, responsibilities

__all__ = ["ComponentPosterior"]


class ComponentPosterior(GaussianMixturePosterior):
    """``sum_l r_il N(m_il, C_il)``, a mixture of Gaussians for each client's coefficients.

    With g and P of `evidence`, ``m_il = mu_l + D_l g`` and ``C_il = D_l - D_l P D_l + A Cov(mu_l)
    A'`` with ``A = I - D_l P``: conditional covariance, and what not knowing the mean adds. r_il
    are the client's responsibilities. Weights and variances are taken as known.

    Parameters
    ----------
    block : block of n clients
    weigh : callable
        Function from a block and a population to what the rows of its clients say: `Evidence`.
    population : MixturePopulation
    means_covariance : ndarray of shape (k, p, p)
    """

    def __init__(
        self,
        block: Any,
        weigh: Callable[[Any, MixturePopulation], Any],
        population: MixturePopulation,
        means_covariance: NDArray,
    ):
        self._block, self._weigh, self._population = block, weigh, population
        self._means_covariance = means_covariance
        (n, k), p = (len(block), len(population.weights)), population.means.shape[1]
        self.responsibilities, self.log_evidence = np.empty((n, k)), np.empty(n)
        self._means = np.empty((k, n, p))
        for place, found in self._blocks():
            logs, moves = self._read(found)
            self.log_evidence[place], self.responsibilities[place] = responsibilities(
                logs, population.weights
            )
            self._means[:, place] = population.means[:, None] + moves
        shares = self.responsibilities.T[:, :, None]
        self.mean = (shares * self._means).sum(axis=0)

    @cached_property
    def sd(self) -> NDArray:  # type: ignore[override]
        """Standard deviations, shape (n, p)."""
        square = np.zeros_like(self.mean)
        for share, mean, sd in self._components():
            square += share * (sd**2 + (mean - self.mean) ** 2)
        return np.sqrt(square)

    @cached_property
    def _sds(self) -> NDArray:
        """Standard deviations in each component, shape (k, n, p)."""
        sds = np.empty_like(self._means)
        for place, found in self._blocks():
            for j, covariance in enumerate(self._covariances(found)):
                variances = np.diagonal(covariance, axis1=1, axis2=2)
                sds[j, place] = np.sqrt(np.maximum(variances, 0))
        return sds

    def _read(self, found: Any) -> tuple[NDArray, NDArray]:
        """Log evidence (n, k), and means less those of the components, (k, n, p)."""
        return found.log, self._population.variances[:, None, :] * found.mean.swapaxes(0, 1)

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        """Places of clients and what their rows say, a block at a time."""
        p = len(self._means_covariance[0])
        n_blocks = 1 + len(self._block) * p * p // 2_000_000
        first = 0
        for block in self._block.split(n_blocks):
            last = first + len(block)
            yield slice(first, last), self._weigh(block, self._population)
            first = last

    def _covariances(self, found: Any) -> Iterator[NDArray]:
        """Covariance of the coefficients, shape (n, p, p), component by component."""
        p = len(self._means_covariance[0])
        for white, scale, variances, covariance in zip(
            found.white,
            found.scale,
            self._population.variances,
            self._means_covariance,
            strict=True,
        ):
            W = white * scale[:, :, None]
            D = np.broadcast_to(variances, p)
            remaining = -(W.swapaxes(1, 2) @ W) * D[:, None]
            remaining[:, np.arange(p), np.arange(p)] += 1.0
            yield remaining * D + remaining @ covariance @ remaining.swapaxes(1, 2)

    def _components(self) -> Iterator[tuple[NDArray, NDArray, NDArray]]:
        for share, mean, sd in zip(self.responsibilities.T, self._means, self._sds, strict=True):
            yield share[:, None], mean, sd

    def along(self, rows: NDArray, codes: NDArray) -> Iterator[tuple[NDArray, NDArray, NDArray]]:
        """Share, mean and variance of ``x' theta`` in each component, each of shape (n_rows,).

        Parameters
        ----------
        rows : ndarray of shape (n_rows, p)
        codes : ndarray of shape (n_rows,)
            The client of each row.
        """
        variances = np.empty((len(self._means), len(rows)))
        for place, found in self._blocks():
            here = (codes >= place.start) & (codes < place.stop)
            x = rows[here]
            for j, covariance in enumerate(self._covariances(found)):
                turned = covariance[codes[here] - place.start] @ x[:, :, None]
                variances[j, here] = np.maximum((x * turned[:, :, 0]).sum(axis=1), 0)
        for share, mean, variance in zip(
            self.responsibilities.T, self._means, variances, strict=True
        ):
            yield share[codes], (rows * mean[codes]).sum(axis=1), variance

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` coefficient vectors of each client, shape (size, n, p)."""
        rng = np.random.default_rng(random_state)
        below = np.cumsum(self.responsibilities, axis=1)[:, :-1]
        picked = (rng.random((size, len(self), 1)) > below).sum(axis=2)
        noise = rng.standard_normal((size, *self.mean.shape))
        draws = np.empty_like(noise)
        for place, found in self._blocks():
            for j, covariance in enumerate(self._covariances(found)):
                values, vectors = np.linalg.eigh((covariance + covariance.swapaxes(1, 2)) / 2)
                root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
                own = self._means[j, place] + np.einsum("npq,snq->snp", root, noise[:, place])
                here = (picked[:, place] == j)[:, :, None]
                draws[:, place] = np.where(here, own, draws[:, place])
        return draws
