"""Posteriors of clients' coefficients under Laplace's distribution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.numerics.evidence import MixturePopulation, rotate
from ebfed.regression.numerics.laplace_population import Approximation, approximate
from ebfed.regression.posteriors.component import ComponentPosterior
from ebfed.tables.factors import Factors

__all__ = ["LaplacePosterior", "approximations"]


def approximations(block: Factors, population: MixturePopulation) -> list[Approximation]:
    """Approximate the coefficients of clients, component by component."""
    rows = rotate(block.rows, block.n)
    variances = np.broadcast_to(population.variances, population.means.shape)
    # a component without any spread is one of hardly any
    least = 1e-12 * max(variances.max(), (population.means**2).max(), population.noise)
    scales = np.sqrt(np.maximum(variances, least) / 2)
    parts = zip(population.means, scales, strict=True)
    return [approximate(rows, *part, population.noise) for part in parts]


class LaplacePosterior(ComponentPosterior):
    """``sum_l r_il N(mu_l + m_il, V_il + A Cov(mu_l) A')``: see `laplace_population`.

    ``A = V_il diag(tau_il)`` is what a step of the mean moves the estimate by. Parameters are those
    of `ComponentPosterior`, of which `weigh` is `approximations`.
    """

    def _read(self, found: Sequence[Approximation]) -> tuple[NDArray, NDArray]:
        return np.stack([x.log for x in found], axis=1), np.stack([x.mean for x in found])

    def _covariances(self, found: Sequence[Approximation]) -> Iterator[NDArray]:
        for each, covariance in zip(found, self._means_covariance, strict=True):
            moved = each.covariance * each.precision[:, None, :]
            yield each.covariance + moved @ covariance @ moved.swapaxes(1, 2)
