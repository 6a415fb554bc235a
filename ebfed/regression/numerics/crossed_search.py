"""The search for covariances of crossed factors at which a linear model's likelihood is largest.

Steps are of scoring with the average information, from moments; see
`ebfed.regression.numerics.descent`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, block_diag
from sklearn.exceptions import ConvergenceWarning

from ebfed.regression.numerics.crossed_model import CrossedSystem
from ebfed.regression.numerics.crossed_sums import CrossedSums
from ebfed.regression.numerics.descent import CovarianceSteps, descend

__all__ = ["CrossedBlocks", "Fitted", "maximise", "one_way", "triangular"]

# Roots end here. A search that does not, and ends beyond the second, has no noise to find.
FARTHEST, NOISELESS = 1e6, 1e3
# Twice how far the deviance is to be from its minimum, and may be without a note.
TOLERANCE, LEFT = 1e-8, 1e-4
# Coefficients of the dense equations up to which starts are compared: levels of many rows and of
# few may ask for different spreads, and there may be all but no noise.
FEW_LEVELS, STARTS = 1_000, (1.0, 0.1, 1e4)


@dataclass(frozen=True)
class CrossedBlocks:
    """Which coefficients of a level are correlated.

    Attributes
    ----------
    of_factors : list of list of (int, int)
        First coefficient, and end, of blocks of each factor that are correlated with each other,
        and with no others. Those in none have no variance.
    widths : sequence of int, of length n_factors
        Numbers of coefficients.
    """

    of_factors: Sequence[Sequence[Sequence[int]]]
    widths: Sequence[int] | NDArray[np.int64]

    @cached_property
    def starts(self) -> list[int]:
        """Place of the first coefficient of each factor among those of a level of all."""
        return [int(end) for end in np.cumsum([0, *self.widths])]

    @property
    def free(self) -> NDArray[np.int64]:
        """Coefficients in blocks, among those of a level of all factors."""
        parts = [
            np.arange(start + first, start + end)
            for start, blocks in zip(self.starts, self.of_factors, strict=False)
            for first, end in blocks
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @property
    def slices(self) -> list[slice]:
        """Blocks of all factors, among the coefficients in blocks."""
        ends = np.cumsum([0, *(end - first for each in self.of_factors for first, end in each)])
        return [slice(int(i), int(j)) for i, j in pairwise(ends)]

    @property
    def in_covariances(self) -> list[tuple[int, int, int]]:
        """Factor, row and column of the entries of blocks, one after the other."""
        return [
            (k, a, b)
            for k, blocks in enumerate(self.of_factors)
            for first, end in blocks
            for a in range(first, end)
            for b in range(first, end)
        ]

    @property
    def in_roots(self) -> list[tuple[int, int, int]]:
        """Factor, row and column of those of triangular roots."""
        return [(k, a, b) for k, a, b in self.in_covariances if a >= b]

    def split(self, matrix: NDArray) -> list[NDArray]:
        """Matrices of each factor, from that of the coefficients in blocks."""
        total, free = np.zeros((self.starts[-1],) * 2), self.free
        total[free[:, None], free] = matrix
        return [total[i:j, i:j].copy() for i, j in pairwise(self.starts)]

    def join(self, parts: Sequence[NDArray]) -> NDArray[np.float64]:
        """Matrix of the coefficients in blocks, from those of each factor."""
        total, free = block_diag(*parts), self.free
        return total[free[:, None], free]


class Fitted(NamedTuple):
    """The maximum of the likelihood."""

    system: CrossedSystem
    converged: bool
    history: list[dict[str, Any]]


def maximise(sums: CrossedSums, restricted: bool, blocks: CrossedBlocks) -> Fitted:
    """Maximise the likelihood in the covariances of the factors.

    Parameters
    ----------
    sums : CrossedSums
    restricted : bool
    blocks : CrossedBlocks

    Raises
    ------
    LinAlgError
        If the columns and the effects explain the response without any noise.
    """
    last: list[CrossedSystem] = []

    def system_at(root: NDArray) -> CrossedSystem:
        return CrossedSystem(sums, blocks.split(root), restricted)

    def criterion(root: NDArray) -> tuple[float, NDArray]:
        try:
            last[:] = [system_at(root)]
        except LinAlgError:
            return np.inf, np.zeros_like(root)
        return last[0].deviance, blocks.join(last[0].slope())

    def deviance(root: NDArray) -> float:
        try:
            return system_at(root).deviance
        except LinAlgError:
            return np.inf

    start = _start(sums, blocks)
    if sums.q <= FEW_LEVELS:
        start = min((size * start for size in STARTS), key=deviance)
    steps = CovarianceSteps(
        lambda: last[0].information(blocks.in_covariances), blocks.slices, FARTHEST
    )
    with warnings.catch_warnings():  # the fit has a note
        warnings.simplefilter("ignore", ConvergenceWarning)
        root, path, converged = descend(criterion, start, steps, TOLERANCE, LEFT)
    if not np.isfinite(path[-1]) or (not converged and np.abs(root).max() > NOISELESS):
        raise LinAlgError("nothing is left of the noise")
    roots = [triangular(each) for each in blocks.split(root)]
    if any((one != other).any() for one, other in zip(roots, last[0].roots, strict=True)):
        last[0] = CrossedSystem(sums, roots, restricted)
    return Fitted(last[0], converged, [{"criterion": value} for value in path])


def triangular(root: NDArray) -> NDArray[np.float64]:
    """Return the lower triangle that is a root of the same covariance."""
    R: Any = np.linalg.qr(root.T, mode="r")
    return R.T * np.where(np.diag(R) < 0, -1.0, 1.0) + 0.0


def one_way(weight: NDArray, response: NDArray, within: float) -> float:
    """Variance of levels by their weighed sums, over that of rows of weight 1, `within`."""
    weight, response = weight[weight > 0], response[weight > 0]
    m = max(len(weight) - 1, 1)
    between = float((response**2 / weight).sum()) / m
    each = (weight.sum() - (weight**2).sum() / weight.sum()) / m
    return max((between - within) / each / within, 0.05 / each) if each > 0 else 1.0


def _start(sums: CrossedSums, blocks: CrossedBlocks) -> NDArray[np.float64]:
    """Root of variances over the noise, by moments (Henderson 1953, his first method).

    Squares within the levels of a factor, and those of all rows, have expectations that are sums of
    the variances. Where these equations give none, each variance is that of a one-way analysis.
    """
    free = [(k, a) for k, a, b in blocks.in_covariances if a == b]
    n, total = sums.n_rows, float(sums.whole[-1, -1])
    weights = [sums.weights_of(k)[:, a] for k, a in free]
    totals = [sums.totals_of(k)[:, a, -1] for k, a in free]
    variance = np.array(
        [
            one_way(weight, each, max(total - _explained(weight, each), 1e-3 * total) / n)
            for weight, each in zip(weights, totals, strict=True)
        ]
    )
    if free and (sums.widths == 1).all():
        variance = _henderson(sums, free, weights, totals, variance)
    return np.diag(np.sqrt(variance))


def _explained(weight: NDArray, response: NDArray) -> float:
    known = weight > 0
    return float((response[known] ** 2 / weight[known]).sum())


def _henderson(
    sums: CrossedSums,
    free: Sequence[tuple[int, int]],
    weights: Sequence[NDArray],
    totals: Sequence[NDArray],
    alone: NDArray,
) -> NDArray[np.float64]:
    """Solve these equations for intercepts; `alone` has the variances of one-way analyses."""
    n, total, K = sums.n_rows, float(sums.whole[-1, -1]), len(free)
    between = [_explained(*each) for each in zip(weights, totals, strict=True)]
    m, all_weights = np.array([len(each) for each in weights]), weights[0].sum()
    expected = np.full((K + 1, K + 1), all_weights)
    expected[:K, :K] -= _shared(sums)[np.ix_([k for k, _ in free], [k for k, _ in free])]
    expected[:K, K], expected[K, K] = n - m, n - 1
    expected[K, :K] -= [each @ each / all_weights for each in weights]
    squares = total - np.array([*between, 0.0])
    found = np.linalg.lstsq(expected, squares, rcond=None)[0]
    usable = found[K] > 1e-3 * total / n
    return np.where(found[:K] > 0, found[:K] / found[K], alone) if usable else alone


def _shared(sums: CrossedSums) -> NDArray:
    """Sum, over pairs of levels of factors k and l, the squared shared weight over that of k's."""
    K = len(sums.sizes)
    weights = [sums.weights_of(k)[:, 0] for k in range(K)]
    inverse = [np.divide(1, w, out=np.zeros(len(w)), where=w > 0) for w in weights]
    first, others = inverse[0], np.concatenate(inverse[1:])
    owner = np.repeat(np.arange(1, K), sums.sizes[1:])
    pairs = sums.table._replace(values=sums.table.values**2)
    shared = np.zeros((K, K))
    shared[0] = np.bincount(owner, pairs.totals(first[:, None])[:, 0], K)
    shared[:, 0] = np.bincount(owner, pairs.totals(np.ones((len(first), 1)))[:, 0] * others, K)
    if K > 2:
        of_factors = np.eye(K - 1)[owner - 1]
        among = sums.pattern.whole(sums.among**2) @ of_factors
        shared[1:, 1:] = (of_factors * others[:, None]).T @ among
    shared[np.arange(K), np.arange(K)] = [each.sum() for each in weights]
    return shared
