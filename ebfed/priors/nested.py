"""Populations within populations: groups of parents, such as counties of states.

The mean of group i is normal around that of its parent, the mean of a parent around that of its own
parent, and those at the top around one mean. Given the variances, estimates are the best linear
ones: precisions go up the tree, estimates come down. Variances are fitted level by level, from
below, by restricted maximum likelihood around the means of all parents (`NestedTable`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import summarise_rows
from ebfed.likelihoods import Gaussian
from ebfed.priors.variance_components import MomentTable, Profile, fit_components, informative
from ebfed.tables.labels import number_integers

__all__ = ["NestedEstimates", "NestedTable", "nested_estimates"]


@dataclass
class NestedProfile(Profile):
    """Best mean of each parent given the ratio of variances; `weight` is that of each."""

    @property
    def log_weight(self) -> Any:
        """Log-determinant of the information about the means."""
        return np.log(self.weight).sum(axis=-1)

    @property
    def slope_log_weight(self) -> Any:
        """Its slope."""
        return (self.slope_weight / self.weight).sum(axis=-1)


@dataclass
class NestedTable(MomentTable):
    """One coordinate's messages, those of equal variance and one parent merged.

    Attributes
    ----------
    parents : int64 ndarray of shape (r,)
        The parent of each merged message, numbered from 0 without gaps.

    Examples
    --------
    >>> messages = Gaussian(np.array([[1.0], [3.0], [8.0], [8.0]]), np.ones((4, 1)))
    >>> table = NestedTable.within(messages, np.array([0, 0, 1, 1]))
    >>> table.profile(1.0).mean, fit_components([table], "reml")
    (array([2., 8.]), (0.0, 1.0))
    """

    parents: NDArray[np.int64] = field(kw_only=True)

    @classmethod
    def within(cls, likelihood: Gaussian, parents: NDArray, noisy: bool = True) -> Self:
        """Merge the messages of one column by parent; those without information are left out."""
        has_data, variances, values, scatter, degrees = informative(likelihood, 0, noisy)
        _, parents = np.unique(parents[has_data], return_inverse=True)
        sizes, of_size = number_integers(np.ascontiguousarray(variances).view(np.int64))
        codes, first = number_integers(parents * len(of_size) + sizes)
        merged = summarise_rows(np.ascontiguousarray(values), codes, 0, len(first))
        counts, means, scatters = merged.T
        return cls(
            variances[first], counts, means, scatters, scatter, degrees, parents=parents[first]
        )

    @property
    def n_means(self) -> int:
        """Number of parents."""
        return int(self.parents.max()) + 1

    def profile(self, ratio: Any) -> NestedProfile:
        """Evaluate means of parents, residual sum of squares and their slopes; see `Profile`."""
        if np.ndim(ratio):
            each = [vars(self.profile(one)) for one in ratio]
            return NestedProfile(
                **{name: np.array([one[name] for one in each]) for name in each[0]}
            )
        total = self.totals(ratio)
        weights = self.counts / total
        add = partial(np.bincount, self.parents)
        weight = add(weights)
        mean = add(weights * self.means) / weight
        squares = (self.scatters + self.counts * (self.means - mean[self.parents]) ** 2) / total
        slope = add(weights / total)
        return NestedProfile(
            mean=mean,
            weight=weight,
            information=0.5 * slope.sum(),
            quadratic=squares.sum(),
            log_det=np.log(total) @ self.counts,
            slope_det=weight.sum(),
            slope_quadratic=-(squares / total).sum(),
            slope_weight=-slope,
        )

    def largest_square(self) -> float:
        """Largest squared deviation of a message from the mean of its parent."""
        around = self.means - self.profile(0.0).mean[self.parents]
        return float(np.max(self.scatters + self.counts * around**2))


@dataclass(frozen=True)
class NestedEstimates:
    """Estimates of groups, of their parents, and so on up.

    Attributes
    ----------
    centre : float
        The mean of all.
    levels : list of ndarrays
        Estimates of each level, from the top.
    ratios : list of float
        Variance between the groups of each level, over that of the noise where that is estimated.
    """

    centre: float
    levels: list[NDArray]
    ratios: list[float]


def nested_estimates(
    likelihood: Gaussian,
    parents: Sequence[NDArray[np.int64]],
    near: Sequence[float] | None = None,
) -> NestedEstimates:
    """Estimate the means of groups, of their parents, and so on up.

    Level l has means ``theta_i ~ N(theta_parent(i), t_l)``, the top ``theta_i ~ N(mu, t_0)``, and
    group i the message ``x_i ~ N(theta_i, v_i)``. A parent has the message
    ``x = sum_i w_i x_i / sum_i w_i`` of variance ``1 / sum_i w_i``, ``w_i = 1 / (t + v_i)``. Then,
    from the top, ``theta_i^ = b_i x_i + (1 - b_i) theta_parent(i)^`` with ``b_i = t / (t + v_i)``.

    Parameters
    ----------
    likelihood : Gaussian of n groups and one column
        The scale of the variances may be open; a group without data has an infinite variance.
    parents : sequence of int64 ndarrays
        From the top: for each group of a level the number of its parent in the level above. Empty,
        if there is one level.
    near : sequence of float, optional
        Ratios of variances in similar data, from which searches begin.

    References
    ----------
    Jewell (1975), The use of collateral data in credibility theory: a hierarchical model; Robinson
    (1991), That BLUP is a good thing.

    Examples
    --------
    >>> counties = Gaussian(np.array([[1.0], [3.0], [6.0], [8.0]]), np.full((4, 1), 0.5))
    >>> found = nested_estimates(counties, [np.array([0, 0, 1, 1])])
    >>> round(found.centre, 2), found.levels[0].round(1), found.levels[1].round(1)
    (4.5, array([2.2, 6.8]), array([1.3, 2.8, 6.2, 7.7]))
    """
    values, variances = likelihood.values[:, 0], likelihood.variances[:, 0]
    messages, ratios = [], []
    for level in range(len(parents), -1, -1):
        above = parents[level - 1] if level else np.zeros(len(values), np.int64)
        noise, ratio = _components(likelihood, above, None if near is None else near[level])
        between = ratio * (noise or 1.0)
        with np.errstate(invalid="ignore"):  # 0 * inf: no data, whatever the noise
            variances = np.where(np.isinf(variances), np.inf, variances * noise)
        messages.append((values, variances, between))
        ratios.append(ratio)
        values, variances = _upwards(values, variances, between, above)
        likelihood = Gaussian(values[:, None], variances[:, None])
    centre = float(values[0])
    estimates: list[NDArray] = []
    for level, (own, variance, between) in enumerate(reversed(messages)):
        prior = estimates[-1][parents[level - 1]] if level else centre
        total = between + variance
        weight = np.divide(between, total, out=np.zeros(len(own)), where=total > 0)
        estimates.append(prior + weight * (own - prior))
    return NestedEstimates(centre, estimates, ratios[::-1])


def _components(likelihood: Gaussian, parents: NDArray, near: float | None) -> tuple[float, float]:
    """Noise variance (1 where it is known), and the variance between groups over it.

    Without noise, 0 and the variance itself.
    """
    noisy = likelihood.scatter is None or bool(likelihood.scatter[0] > 0)
    flat = partial(MomentTable.of, likelihood, 0, noisy)
    table = NestedTable.within(likelihood, parents, noisy) if parents.any() else flat()
    if likelihood.scatter is not None and likelihood.degrees == 0:
        # rows that are alone in their groups: their spread may be all noise
        table = table if table.size > table.n_means else flat()
        free = table.size - table.n_means
        return (float(table.profile(0.0).quadratic) / free if free else 1.0), 0.0
    if table.size == table.n_means:  # groups that are alone have the mean of their parent
        return (1.0 if likelihood.scatter is None else float(likelihood.noise_variance[0])), 0.0
    ratio, scale = fit_components([table], "reml", near)
    return (scale, ratio) if noisy else (0.0, ratio)


def _upwards(
    values: NDArray, variances: NDArray, between: float, parents: NDArray
) -> tuple[NDArray, NDArray]:
    """Messages of parents: precision-weighted means of their groups, and their variances."""
    total = between + variances
    exact = total == 0  # known without error: they alone count
    precision = np.where(exact, 1.0, 0.0) if exact.any() else 1 / total
    weight = np.bincount(parents, precision)
    sums = np.bincount(parents, precision * values)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(weight > 0, sums / weight, 0.0)
        return mean, np.where(exact.any() & (weight > 0), 0.0, 1 / weight)
