"""Posteriors of clients' coefficients under Laplace's distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.numerics.evidence import (
    Evidence,
    MixturePopulation,
    responsibilities,
    rotate,
)
from ebfed.regression.numerics.laplace_population import Approximation, approximate
from ebfed.regression.posteriors.component import ComponentPosterior

__all__ = ["LaplacePosterior"]


class LaplacePosterior(ComponentPosterior):
    """``sum_l r_il N(mu_l + m_il, V_il + A Cov(mu_l) A')``: see `laplace_population`.

    ``A = V_il diag(tau_il)`` is what a step of the mean moves the estimate by. Parameters are those
    of `ComponentPosterior`.
    """

    def __init__(
        self,
        block: Any,
        weigh: Callable[[Any, MixturePopulation], Evidence],
        population: MixturePopulation,
        means_covariance: NDArray,
    ):
        self._block, self._weigh, self._population = block, weigh, population
        self._means_covariance = means_covariance
        places, found = zip(*self._blocks(), strict=True)
        logs = np.concatenate([np.stack([x.log for x in each], axis=1) for each in found])
        self.log_evidence, self.responsibilities = responsibilities(logs, population.weights)
        self._means = np.empty((len(population.weights), len(block), population.means.shape[1]))
        for place, each in zip(places, found, strict=True):
            for own, mean, one in zip(self._means, population.means, each, strict=True):
                own[place] = mean + one.mean
        self.mean = (self.responsibilities.T[:, :, None] * self._means).sum(axis=0)

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        """Places of clients and approximations of each component, a block at a time."""
        population = self._population
        p = population.means.shape[1]
        first = 0
        for block in self._block.split(1 + len(self._block) * p * p // 2_000_000):
            rows, last = rotate(block.rows, block.n), first + len(block)
            variances = np.broadcast_to(population.variances, population.means.shape)
            # a component without any spread is one of hardly any
            least = 1e-12 * max(variances.max(), (population.means**2).max(), population.noise)
            scales = np.sqrt(np.maximum(variances, least) / 2)
            parts = zip(population.means, scales, strict=True)
            yield (
                slice(first, last),
                [approximate(rows, *part, population.noise) for part in parts],
            )
            first = last

    def _covariances(self, found: Any) -> Iterator[NDArray]:
        each: Approximation
        for each, covariance in zip(found, self._means_covariance, strict=True):
            moved = each.covariance * each.precision[:, None, :]
            yield each.covariance + moved @ covariance @ moved.swapaxes(1, 2)
