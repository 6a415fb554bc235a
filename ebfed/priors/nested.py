"""Populations within populations: groups of parents, such as counties of states.

The mean of group i is normal around that of its parent, the mean of a parent around that of its own
parent, and those at the top around one mean. All variances are fitted jointly, by
restricted maximum likelihood or not (`NestedTable`). Given them, estimates are the best linear
ones: precisions go up the tree, estimates come down (`descend`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from ebfed.likelihoods import Gaussian, Likelihood
from ebfed.priors.base import WELL_KNOWN, OwnReports, Prior, relative_likelihoods
from ebfed.priors.beta import Beta
from ebfed.priors.conjugate import ByColumn
from ebfed.priors.exploration import explore, explore_spreads, side_by_side, thinned
from ebfed.priors.gamma import Gamma
from ebfed.priors.identification import ONE_GROUP, ONE_ROW, UNKNOWN_NOISE
from ebfed.priors.integrated import IntegratedPosterior, integrated
from ebfed.priors.normal import Normal, NormalPosterior
from ebfed.priors.posterior import IndependentNormals, Posterior
from ebfed.priors.search import maximise
from ebfed.priors.two_moments import Distribution
from ebfed.priors.variance_components import informative
from ebfed.tables.labels import number_keys, number_parents

__all__ = [
    "NestedBeta",
    "NestedEstimates",
    "NestedFit",
    "NestedGamma",
    "NestedNormal",
    "NestedProfile",
    "NestedTable",
    "Tree",
    "descend",
    "fit_nested",
    "nested_estimates",
    "paths_of",
    "settled",
    "within",
]

# Variances of a level, over that of a typical message to it, from which the search may begin.
STARTS = (0.0, 0.1, 1.0, 10.0, 300.0)
# Largest such variance.
LARGEST = float(np.arcsinh(1e15))
# Step of the differences that approximate second derivatives.
STEP = 1e-5
# Plausible populations that a posterior averages over.
MANY = 40


@dataclass(frozen=True)
class Tree:
    """Which group has which parents, groups sorted so that those of one parent lie side by side.

    Attributes
    ----------
    order : int64 ndarray of shape (m,)
        Groups in that order.
    starts : list of int64 ndarrays
        For each level, from the top: the first child of each node of the level above; of the top
        level, which has one parent, 0.
    above : list of int64 ndarrays
        For each level, from the top: the parent of each node in the level above.
    """

    order: NDArray[np.int64]
    starts: list[NDArray[np.int64]]
    above: list[NDArray[np.int64]]

    @classmethod
    def of(cls, paths: NDArray[np.int64]) -> Self:
        """Sort groups by their parents.

        Parameters
        ----------
        paths : ndarray of shape (m, n_levels - 1)
            Numbers of each group's parents, from the top; those of parents need not differ between
            grandparents.

        Examples
        --------
        >>> tree = Tree.of(np.array([[1], [0], [1]]))
        >>> tree.order, tree.starts, tree.above
        (array([1, 0, 2]), [array([0]), array([0, 1])], [array([0, 0]), array([0, 1, 1])])
        """
        m, n_above = paths.shape
        order = np.lexsort(paths.T[::-1]) if n_above else np.arange(m)
        ordered = paths[order]
        begins = np.ones((m, n_above), bool)
        begins[1:] = np.logical_or.accumulate(ordered[1:] != ordered[:-1], axis=1)
        firsts = [np.zeros(1, np.int64), *map(np.flatnonzero, begins.T), np.arange(m)]
        starts, above = [], []
        for upper, lower in pairwise(firsts):
            first = np.searchsorted(lower, upper)
            starts.append(first)
            above.append(np.repeat(np.arange(len(upper)), np.diff(np.append(first, len(lower)))))
        return cls(order, starts, above)

    @property
    def sizes(self) -> list[int]:
        """Number of nodes of each level, from the top."""
        return [len(above) for above in self.above]


@dataclass(frozen=True)
class NestedProfile:
    """The criterion at ratios of variances, given the best mean and scale.

    Attributes
    ----------
    value : float
        -2 log-likelihood of the messages, up to a constant: restricted, if the table is.
    slope : ndarray of shape (n_levels,) or None
        Its derivatives in the ratios.
    scale : float
        Noise variance; 1 where it is known.
    log_det : float
        That of the messages' covariance, over the scale.
    quadratic : float
        Weighted sum of squares around the mean, that within groups included.
    """

    value: float
    slope: NDArray | None
    scale: float
    log_det: float
    quadratic: float


@dataclass(frozen=True)
class NestedTable:
    """Messages of groups in a tree.

    Message i is ``y_i ~ N(mean, scale V)``, where V has ``u_i`` on its diagonal and, between groups
    that share a parent of level l and all above, the ratios of the levels from the top to l. With
    ``w = 1 / (u + ratio)`` the groups of a parent have the sum of squares ``sum w (y - y_p)**2``
    around their mean y_p, which is the parent's message, with ``u = 1 / sum w``. So one evaluation
    takes one pass up the tree, to the mean at its root, and its slope one pass down: these sums of
    squares are all that is needed (Searle, Casella, McCulloch 1992, ch. 6; Bates et al. 2015).

    Attributes
    ----------
    tree : Tree
    variances, values : ndarray of shape (m,)
        ``u_i``, positive, and ``y_i``, in the order of the tree.
    scatter : float
        Sum of squares of rows around the means of their groups.
    degrees : int or None
        Degrees of freedom of `scatter`; None where the scale is known to be 1.
    restricted : bool
    free : bool ndarray of shape (n_levels,)
        Whether the variance of a level is open, rather than zero.
    """

    tree: Tree
    variances: NDArray
    values: NDArray
    scatter: float
    degrees: int | None
    restricted: bool
    free: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        tree: Tree,
        variances: NDArray,
        values: NDArray,
        scatter: float = 0.0,
        degrees: int | None = None,
        restricted: bool = True,
    ) -> Self:
        """Lay out the means of groups.

        A level is open if some parent has two groups in it: else all its variance may be that of
        the level above.
        """
        free = np.diff([1, *tree.sizes]) > 0
        ordered = variances[tree.order], values[tree.order]
        return cls(tree, *ordered, scatter, degrees, restricted, free)

    @property
    def n_levels(self) -> int:
        """Number of levels."""
        return len(self.free)

    @property
    def dof(self) -> float:
        """Degrees of freedom of the sum of squares."""
        return (self.degrees or 0) + len(self.variances) - self.restricted

    def profile(self, ratios: NDArray, slope: bool = True) -> NestedProfile:
        """Evaluate the scale and the criterion at these ratios, from the top."""
        variances, values = self.variances, self.values
        quadratic, log_det = self.scatter, 0.0
        passed = []
        for level in range(self.n_levels - 1, -1, -1):
            total = variances + ratios[level]
            weight = 1 / total
            starts, above = self.tree.starts[level], self.tree.above[level]
            heavy = np.add.reduceat(weight, starts)
            centre = np.add.reduceat(values * weight, starts) / heavy
            away = values - centre[above]
            weighted = away * weight
            quadratic += float(weighted @ away)
            log_det += np.log(total).sum()
            if level:
                log_det += np.log(heavy).sum()
            passed.append((weight, weighted, heavy, above))
            variances, values = 1 / heavy, centre
        value = log_det + (np.log(heavy[0]) if self.restricted else 0.0)  # of the mean at the root
        scale = 1.0
        if self.degrees is None:
            value += quadratic
        else:
            scale = quadratic / self.dof
            value += self.dof * np.log(quadratic) if quadratic else -np.inf
        slopes = None
        if slope:
            slopes, sums = np.empty(self.n_levels), np.zeros(1)
            own = np.zeros(1) if self.restricted else heavy
            for level, (weight, weighted, heavy, above) in enumerate(reversed(passed)):
                share = weight / heavy[above]
                sums = weighted + share * sums[above]
                own = weight - share * weight + share**2 * own[above]
                slopes[level] = own.sum() - sums @ sums / (scale or 1.0)
        return NestedProfile(float(value), slopes, scale, float(log_det), quadratic)

    # The search -------------------------------------------------------------------------------

    @cached_property
    def units(self) -> NDArray:
        """Variance of a typical message to each level, if levels below have no variance."""
        return self._typical(np.zeros(self.n_levels))

    def ratios_at(self, point: NDArray) -> NDArray:
        """Ratios of a point of the search, in which small ones are even and large ones logs."""
        ratios = np.zeros(self.n_levels)
        ratios[self.free] = self.units[self.free] * np.sinh(point)
        return ratios

    def best(self, near: Sequence[float] | None = None) -> tuple[NDArray, NDArray]:
        """Find the ratios of least criterion, and the sampling covariance of the open ones.

        Newton's method with the exact slope, from the best point of a coarse lattice, or near given
        ratios: variances of zero are bounds, where the slope is as useful as inside.
        """
        free = self.free
        n_free = int(free.sum())
        if not n_free:
            return np.zeros(self.n_levels), np.empty((0, 0))
        units = self.units[free]

        def height(point: NDArray) -> float:
            return -0.5 * self.profile(self.ratios_at(point), slope=False).value

        def slope(point: NDArray) -> NDArray:
            found = self.profile(self.ratios_at(point)).slope
            assert found is not None
            return -0.5 * found[free] * units * np.cosh(point)

        def derivatives(point: NDArray) -> tuple[NDArray, NDArray]:
            here = slope(point)
            second = np.array([slope(point + step) - here for step in STEP * np.eye(n_free)]) / STEP
            return here, (second + second.T) / 2

        if near is None:
            lattice = np.arcsinh(np.array(list(product(STARTS, repeat=n_free))))
            start = lattice[int(np.argmax([height(point) for point in lattice]))]
        else:
            start = np.arcsinh(np.asarray(near)[free] / units)
        low, high = np.zeros(n_free), np.full(n_free, LARGEST)
        point, covariance = maximise(height, start, low, high, derivatives)
        stretch = units * np.cosh(point)
        return self.ratios_at(point), covariance * np.outer(stretch, stretch)

    def plausible(self, ratios: NDArray, opened: NDArray[np.bool_]) -> tuple[NDArray, NDArray]:
        """Find ratios that the messages leave plausible, (K, n_levels), and their probabilities.

        The prior is flat in the mean, in the log of an open scale, and in the standard
        deviation of each level of `opened`, times the fifth root of its share of the variance of a
        typical message, as for one level (`variance_components.plausible_components`). The other
        ratios stay as they are.
        """
        table = self if self.restricted else replace(self, restricted=True)
        roots = np.sqrt(self._typical(ratios)[opened])

        def ratios_of(opened_ones: NDArray) -> NDArray:
            all_ = np.tile(ratios, (len(opened_ones), 1))
            all_[:, opened] = opened_ones
            return all_

        def height(opened_ones: NDArray) -> NDArray:
            values = [table.profile(each, slope=False).value for each in ratios_of(opened_ones)]
            return np.where((opened_ones < high).all(axis=1), -0.5 * np.array(values), -np.inf)

        # beyond it the density is a power of the ratio: of few parents, a low one
        high = np.arcsinh(1e4 * np.sqrt(1 + ratios[opened]) / roots) + 8.0
        high = (roots * np.sinh(high)) ** 2
        found, weights = explore_spreads(height, ratios[opened], roots, 0.3)
        if len(found) > MANY:
            found, weights = thinned(found, weights, MANY)
        return ratios_of(found), weights

    def _typical(self, ratios: NDArray) -> NDArray:
        """Variance of a typical message to each level, at these ratios of the levels below."""
        units, variances = [float(np.median(self.variances))], self.variances
        for starts, ratio in zip(self.tree.starts[:0:-1], ratios[:0:-1], strict=True):
            variances = 1 / np.add.reduceat(1 / (variances + ratio), starts)
            units.append(float(np.median(variances)))
        return np.array(units[::-1])


@dataclass(frozen=True)
class NestedFit:
    """Fitted variances of a tree.

    Attributes
    ----------
    variances : ndarray of shape (n_levels,)
        From the top.
    noise : float
        Factor of the messages' variances: the noise variance, or 1 where it is known, or 0.
    covariance : ndarray of shape (n_levels, n_levels)
        Sampling covariance of `variances`; zero where a variance is not open.
    profile : NestedProfile or None
        At the fit; None where the messages have neither noise nor spread.
    table : NestedTable or None
    sizes : list of int
        Number of nodes with data of each level, from the top.
    """

    variances: NDArray
    noise: float
    covariance: NDArray
    profile: NestedProfile | None
    table: NestedTable | None
    sizes: list[int]

    @property
    def ratios(self) -> list[float]:
        """Variances over the noise, where there is some."""
        return (self.variances / (self.noise or 1.0)).tolist()

    @property
    def n_free(self) -> int:
        """Number of variances that were fitted; not that of the noise."""
        if self.table is None:
            return 0
        return int(self.table.free.sum()) + (self.noise == 0)

    @property
    def log_likelihood(self) -> float:
        """Log-density of the messages; NaN where they have neither noise nor spread."""
        if self.table is None or self.profile is None:
            return np.nan
        profile, m = self.profile, len(self.table.variances)
        squares = profile.quadratic - self.table.scatter
        return -0.5 * float(
            profile.log_det + m * np.log(2 * np.pi * profile.scale) + squares / profile.scale
        )

    def hardly_known(self, limit: float) -> NDArray[np.bool_]:
        """Levels whose variance has a standard error of more than `limit` of it.

        At most three, the least known. A level with one degree of freedom is left out: it bounds no
        variance.
        """
        hardly = np.zeros(len(self.variances), bool)
        if self.table is None:
            return hardly
        some = np.flatnonzero(self.table.free & (np.diff([1, *self.table.tree.sizes]) > 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = np.sqrt(np.diag(self.covariance)[some]) / self.variances[some]
        errors = np.where(np.isnan(errors), np.inf, errors)
        chosen = np.argsort(-errors, kind="stable")[:3]
        hardly[some[chosen[errors[chosen] > limit]]] = True
        return hardly

    def plausible(self, opened: NDArray[np.bool_]) -> tuple[NDArray, NDArray]:
        """Find variances and noise that the messages leave plausible, (K, n_levels + 1).

        And their probabilities. Variances of levels that are not `opened` stay in proportion to the
        noise. See `NestedTable.plausible`.
        """
        if self.table is None or self.profile is None or not opened.any():
            return np.append(self.variances, self.noise)[None], np.ones(1)
        n, table = self.table.n_levels, self.table
        ratios = np.where(table.free, self.variances[:n] / self.profile.scale, 0.0)
        found, weights = table.plausible(ratios, opened[:n])
        scales = np.array([table.profile(each, slope=False).scale for each in found])
        points = np.zeros((len(found), len(self.variances) + 1))
        points[:, :n] = found * scales[:, None]
        # without noise, the spread of the lowest level is the scale
        points[:, -1 if self.noise else n - 1] = scales
        return points, weights


def fit_nested(
    likelihood: Gaussian,
    paths: NDArray[np.int64],
    method: str = "reml",
    *,
    alone_is_noise: bool = False,
    near: Sequence[float] | None = None,
) -> NestedFit:
    """Fit the variances of all levels and the noise jointly, to messages of one column.

    Where there is no noise, the groups' parameters are seen themselves, and their variance takes
    the place of the noise.

    Parameters
    ----------
    likelihood : Gaussian of n groups and one column
    paths : int64 ndarray of shape (n, n_levels - 1)
        Numbers of each group's parents, from the top.
    method : {"reml", "ml"}
    alone_is_noise : bool
        Whether rows that are alone in their groups are all noise, rather than without noise.
    near : sequence of float, optional
        Ratios of similar data, near which the search begins.

    Examples
    --------
    >>> counties = Gaussian(np.array([[1.0], [3.0], [6.0], [8.0]]), np.full((4, 1), 0.5))
    >>> fit_nested(counties, np.array([[0], [0], [1], [1]])).variances
    array([11.5,  1.5])
    """
    n_levels = paths.shape[1] + 1
    lone = alone_is_noise and likelihood.scatter is not None and likelihood.degrees == 0
    noisy = lone or bool(likelihood.has_scatter[0])
    has_data, variances, values, scatter, degrees = informative(likelihood, 0, noisy)
    tree, restricted = Tree.of(paths[has_data]), method == "reml"
    sizes, shape = tree.sizes, (n_levels, n_levels)
    nothing = NestedFit(np.zeros(n_levels), float(noisy), np.zeros(shape), None, None, sizes)
    if not len(values):
        return nothing
    centre = values.mean()
    if variances.any():
        open_degrees = None if scatter is None else degrees
        table = NestedTable.of(
            tree, variances, values - centre, scatter or 0.0, open_degrees, restricted
        )
        table.free[-1] &= not lone
        if table.dof <= 0 or table.profile(np.zeros(n_levels), slope=False).quadratic == 0:
            # one row, or rows that are all alike
            return replace(nothing, noise=float(table.dof <= 0))
        return _fitted(table, near)
    # parameters themselves: levels whose nodes agree with their parents have no spread
    size, left = np.ptp(values), values
    for level in range(n_levels - 1, -1, -1):
        ones = np.ones(len(left))
        table = NestedTable.of(tree, ones, left - centre, 0.0, 0, restricted)
        table.free[-1] = False
        if table.dof <= 0:  # one number is left
            return replace(nothing, noise=0.0)
        spread = table.profile(np.zeros(level + 1), slope=False)
        apart = tree.sizes[-1] > (tree.sizes[-2] if level else 1)
        if apart and _squares_within(table) > 1e-24 * size**2:
            found = _fitted(table, None)
            variances = np.zeros(n_levels)
            variances[: level + 1] = found.variances
            variances[level] = found.noise
            covariance = np.zeros(shape)
            covariance[:level, :level] = found.covariance[:level, :level]
            covariance[level, level] = 2 * found.noise**2 / max(table.dof, 1)
            return replace(
                found, variances=variances, noise=0.0, covariance=covariance, sizes=sizes
            )
        if not level or spread.scale == 0:
            return replace(nothing, noise=0.0)
        starts = tree.starts[-1]
        left = np.add.reduceat(left[tree.order], starts) / np.diff(np.append(starts, len(left)))
        tree = Tree(np.arange(len(starts)), tree.starts[:-1], tree.above[:-1])
    raise AssertionError  # the loop ends at the top


def _squares_within(table: NestedTable) -> float:
    """Sum of squares of the response of the lowest nodes around their parents' means."""
    y, above = table.values, table.tree.above[-1]
    means = np.bincount(above, y) / np.bincount(above)
    return float(((y - means[above]) ** 2).sum())


def _fitted(table: NestedTable, near: Sequence[float] | None) -> NestedFit:
    """Fit a table."""
    ratios, known = table.best(near)
    profile = table.profile(ratios, slope=False)
    covariance = np.zeros((table.n_levels, table.n_levels))
    covariance[np.ix_(table.free, table.free)] = profile.scale**2 * known
    variances, sizes = ratios * profile.scale, table.tree.sizes
    return NestedFit(variances, profile.scale, covariance, profile, table, sizes)


@dataclass(frozen=True)
class NestedEstimates:
    """Estimates of groups, of their parents, and so on up.

    Attributes
    ----------
    centre : float
        The mean of all.
    doubt : float
        Its variance.
    levels, variances : list of ndarrays
        Estimates of each level, from the top, and their variances.
    pulls : list of ndarrays
        Share of the parent's estimate in each.
    ratios : list of float
        Variance between the groups of each level, over that of the noise where there is some.
    """

    centre: float
    doubt: float
    levels: list[NDArray]
    variances: list[NDArray]
    pulls: list[NDArray]
    ratios: list[float]


def nested_estimates(
    likelihood: Gaussian,
    parents: Sequence[NDArray[np.int64]],
    near: Sequence[float] | None = None,
) -> NestedEstimates:
    """Fit variances by REML, and estimate the means of groups, of their parents, and so on up.

    Parameters
    ----------
    likelihood : Gaussian of n groups and one column
        The scale of the variances may be open; a group without data has an infinite variance.
    parents : sequence of int64 ndarrays
        From the top: for each group of a level the number of its parent in the level above. Empty,
        if there is one level.
    near : sequence of float, optional
        Ratios of variances in similar data, near which the search begins.

    Examples
    --------
    >>> counties = Gaussian(np.array([[1.0], [3.0], [6.0], [8.0]]), np.full((4, 1), 0.5))
    >>> found = nested_estimates(counties, [np.array([0, 0, 1, 1])])
    >>> round(found.centre, 2), found.levels[0].round(1), found.levels[1].round(1)
    (4.5, array([2.2, 6.8]), array([1.3, 2.8, 6.2, 7.7]))
    """
    paths = paths_of(parents, len(likelihood))
    fit = fit_nested(likelihood, paths, alone_is_noise=True, near=near)
    variances = settled(likelihood.variances[:, 0], fit.noise)
    found = descend(likelihood.values[:, 0], variances, parents, fit.variances)
    return replace(found, ratios=fit.ratios)


def paths_of(parents: Sequence[NDArray[np.int64]], n: int) -> NDArray[np.int64]:
    """Numbers of each group's parents, from the top, shape (n, n_levels - 1).

    Examples
    --------
    >>> paths_of([np.array([0, 0, 1]), np.array([2, 1])], 2)
    array([[1, 2],
           [0, 1]])
    """
    paths, at = [], np.arange(n)
    for above in reversed(parents):
        at = above[at]
        paths.append(at)
    return np.stack(paths[::-1], axis=1) if paths else np.empty((n, 0), np.int64)


def settled(variances: NDArray, noise: float) -> NDArray:
    """Variances of messages; those of groups without data are infinite, whatever the noise.

    Examples
    --------
    >>> settled(np.array([0.5, np.inf]), 0.0)
    array([ 0., inf])
    """
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(variances), np.inf, variances * noise)


def descend(
    values: NDArray,
    variances: NDArray,
    parents: Sequence[NDArray[np.int64]],
    between: Sequence[float] | NDArray,
) -> NestedEstimates:
    """Estimate the means of groups, of their parents, and so on up, given all variances.

    Level l has means ``theta_i ~ N(theta_parent(i), t_l)``, the top ``theta_i ~ N(mu, t_0)``, and
    group i the message ``x_i ~ N(theta_i, v_i)``. A parent has the message
    ``x = sum_i w_i x_i / sum_i w_i`` of variance ``1 / sum_i w_i``, ``w_i = 1 / (t + v_i)``. Then,
    from the top, with ``b_i = t / (t + v_i)``,

        theta_i^ = b_i x_i + (1 - b_i) theta_parent(i)^,
        Var(theta_i) = b_i v_i + (1 - b_i)**2 Var(theta_parent(i)).

    Parameters
    ----------
    values, variances : ndarray of shape (n,)
        Messages of the lowest level; variances may be 0, or infinite.
    parents : sequence of int64 ndarrays
        As for `nested_estimates`.
    between : sequence of n_levels floats
        Variances t_l, from the top.

    References
    ----------
    Jewell (1975), The use of collateral data in credibility theory: a hierarchical model; Robinson
    (1991), That BLUP is a good thing.
    """
    messages = []
    for level in range(len(parents), -1, -1):
        messages.append((values, variances, float(between[level])))
        above = parents[level - 1] if level else np.zeros(len(values), np.int64)
        values, variances = _upwards(values, variances, float(between[level]), above)
    centre, doubt = float(values[0]), float(variances[0])
    estimates: list[NDArray] = []
    spreads: list[NDArray] = []
    pulls: list[NDArray] = []
    for level, (own, variance, t) in enumerate(reversed(messages)):
        prior, above_variance = np.full(len(own), centre), np.full(len(own), doubt)
        if level:
            prior, above_variance = (each[-1][parents[level - 1]] for each in (estimates, spreads))
        total = t + variance
        weight = np.divide(t, total, out=np.zeros(len(own)), where=total > 0)
        kept = np.where(np.isinf(variance), t, weight * np.where(weight > 0, variance, 0.0))
        estimates.append(prior + weight * (own - prior))
        spreads.append(kept + (1 - weight) ** 2 * above_variance)
        pulls.append(1 - weight)
    return NestedEstimates(centre, doubt, estimates, spreads, pulls, [])


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


NO_SPREAD = (
    "Estimated variance between groups of one {parent} is zero: they differ no more than their "
    "noise explains, and every estimate is that of the {parent}."
)
NO_SPREAD_ABOVE = (
    "Estimated variance between groups of level {name!r} is zero: they differ no more than the "
    "levels below explain."
)
ALONE = (
    "No parent has two groups of level {name!r}: its variance is not identified apart, and taken "
    "to be zero."
)
ALONE_BELOW = (
    "Every {name} has one group: variances within and between them are not identified apart, and "
    "taken to be that of the {name} alone."
)
FEW = (
    "Level {name!r} has {n} groups with data: its variance is hardly known. Standard deviations "
    "and intervals take it to be as estimated."
)


# Learned attributes that differ between plausible populations.
OF_EACH = (
    *("variance_", "above_", "mean_", "mean_variance_", "centre_", "centre_variance_"),
    *("node_means_", "node_variances_", "node_pulls_"),
)


class Nested(Prior):
    """Base of populations within populations: the parents of groups stand for covariates."""

    takes_covariates: ClassVar[bool] = True

    names: Sequence[str]
    node_keys_: NDArray

    def _fit(self, likelihood: Likelihood) -> None:
        raise ValueError("the parents of groups must be given.")

    @property
    def _n_covariates(self) -> int:
        return len(self.names)

    @property
    def weighs_own_reports(self) -> bool:
        """Whether a group's exact data replace its own message in what is known of its parent."""
        return True


class NestedNormal(Nested):
    """Populations within populations: ``theta_i ~ N(mu_s, variance)``, ``mu_s ~ N(mean, above)``.

    Group i belongs to the parent s, such as a county to a state, and a parent may belong to another
    one. Fitted to Gaussian messages, the variances of all levels and the noise maximise one joint
    restricted likelihood (`priors.nested`), as lme4's ``(1 | state/county)``; variances of zero are
    normal answers. A level in which no parent has two groups shares its variance with the one
    above: that has it all.

    A group of a known parent comes from ``N(mu_s^, variance)``, where what is not known of mu_s
    given all data is part of its standard deviation; a group of an unknown one comes from the
    population of parents.

    Where variances are not known well, posteriors average over plausible ones of all such levels,
    under a prior that is flat in the standard deviation of each level, times the fifth root of its
    share of the variance of a typical message; else terms of second order are added, for the lowest
    level. A level with two parents has no interval of its own for its variance: that is taken as
    estimated, and said.

    Parameters
    ----------
    names : sequence of str
        Names of the levels above the groups, from the top.
    method : {"reml", "ml"}

    Attributes
    ----------
    mean_, centre_ : ndarray of shape (d,)
        Mean of all; `mean_` is that of each group's parent, where this is the population `at` it.
    variance_ : ndarray of shape (d,)
        Variance of groups around their parent.
    above_ : ndarray of shape (n_above, d)
        Variances of the levels above, from the top.
    mean_variance_, centre_variance_, variance_variance_ : ndarray of shape (d,)
        Sampling variances of `mean_`, `centre_` and `variance_`.
    noise_variance_ : ndarray of shape (d,) or None
    node_keys_ : ndarray of shape (n_nodes, n_above)
        Numbers of each parent and those above it, from the top; NaN below its own level.
    node_means_, node_variances_ : ndarray of shape (n_nodes, d)
        Estimates of the parents, and their variances.

    References
    ----------
    Searle, Casella and McCulloch (1992), Variance components; Bates, Maechler, Bolker, Walker
    (2015), Fitting linear mixed-effects models using lme4, J. Stat. Softw. 67; Gelman (2006), Prior
    distributions for variance parameters in hierarchical models.

    Examples
    --------
    >>> counties = Gaussian(np.array([[1.0], [3.0], [6.0], [8.0]]), np.full((4, 1), 0.5))
    >>> states = np.array([[48.0], [48.0], [12.0], [12.0]])
    >>> prior = NestedNormal(["state"]).fit(counties, states)
    >>> prior.mean_, prior.variance_, prior.above_.ravel()
    (array([4.5]), array([1.5]), array([11.5]))
    >>> prior.at(np.array([[48.0], [99.0]])).mean_.ravel().round(2)
    array([2.2, 4.5])
    """

    max_features: ClassVar[float] = np.inf
    _is_linear: ClassVar[bool] = True
    _by_column: ClassVar[tuple[str, ...]] = ("mean_variance_", "variance_variance_", "above_")

    kurtosis_: NDArray
    second_moment_: NDArray
    node_means_: NDArray
    node_variances_: NDArray
    node_pulls_: NDArray
    node_above_: NDArray[np.int64]
    above_: NDArray
    centre_: NDArray
    centre_variance_: NDArray

    def __init__(
        self, names: Sequence[str] = ("parent",), *, method: Literal["reml", "ml"] = "reml"
    ):
        self.names = names
        self.method = method

    # Fitting ----------------------------------------------------------------------------------

    def _fit_with_covariates(self, likelihood: Likelihood, covariates: NDArray) -> None:
        if self.method not in ("reml", "ml"):
            raise ValueError(f"method must be 'reml' or 'ml' with levels; got {self.method!r}.")
        if not isinstance(likelihood, Gaussian):
            raise TypeError(
                "levels are for Gaussian messages: means as they are, or with Gaussian noise."
            )
        if covariates.shape[1] != len(self.names):
            raise ValueError(
                f"the parents of groups must have shape (n, {len(self.names)}); got "
                f"{covariates.shape}."
            )
        self.node_keys_, parents = number_parents(covariates)
        self.node_above_ = _above(parents)
        columns = [likelihood.column(j) for j in range(likelihood.n_features)]
        paths = paths_of(parents, len(likelihood))
        fits = [fit_nested(column, paths, self.method) for column in columns]
        self._set(columns, parents, [(fit.variances, fit.noise) for fit in fits])
        self.spreads_above_ = dict(zip(map(str, self.names), np.sqrt(self.above_), strict=True))
        if likelihood.scatter is not None:
            self.noise_variance_ = np.array([fit.noise for fit in fits])
        self.variance_variance_ = np.array([fit.covariance[-1, -1] for fit in fits])
        # fourth moments around estimates of parents are not those around the parents
        self.kurtosis_ = np.full(len(fits), np.inf)
        self.second_moment_ = self.variance_ + np.sqrt(self.variance_variance_)
        self.n_parameters_ = len(fits) + sum(fit.n_free for fit in fits)
        self.joint_log_marginal_ = sum(fit.log_likelihood for fit in fits)
        if self.method == "reml":
            with np.errstate(divide="ignore"):
                value = float(np.log(2 * np.pi * self.mean_variance_).sum() / 2)
            self.restriction_ = value if np.isfinite(value) else None
        self._explain(likelihood, fits)
        self._find_later(NestedNormal._learn_plausible, columns, parents, fits)

    def _set(
        self,
        columns: Sequence[Gaussian],
        parents: list[NDArray[np.int64]],
        found: Sequence[tuple[NDArray, float]],
    ) -> None:
        """Set the population with these variances and noise: best means of all parents."""
        whole = [
            descend(column.values[:, 0], settled(column.variances[:, 0], noise), parents, between)
            for column, (between, noise) in zip(columns, found, strict=True)
        ]
        self.mean_ = self.centre_ = np.array([each.centre for each in whole])
        self.mean_variance_ = self.centre_variance_ = np.array([each.doubt for each in whole])
        for name, parts in (
            ("node_means_", [each.levels for each in whole]),
            ("node_variances_", [each.variances for each in whole]),
            ("node_pulls_", [each.pulls for each in whole]),
        ):
            setattr(self, name, np.array([np.concatenate(part[:-1]) for part in parts]).T)
        variances = np.array([between for between, _ in found]).T
        self.above_, self.variance_ = variances[:-1], variances[-1]

    def _learn_plausible(
        self, columns: Sequence[Gaussian], parents: list[NDArray[np.int64]], fits: list[NestedFit]
    ) -> None:
        """Find variances of all levels that the messages leave plausible, each with its means."""
        searches = [fit.plausible(fit.hardly_known(WELL_KNOWN)) for fit in fits]
        if all(len(weights) == 1 for _, weights in searches):
            return
        points, weights = side_by_side(searches)  # shape (K, n_levels + 1, d)
        populations = [copy(self) for _ in points]
        for one, each in zip(populations, points, strict=True):
            one._set(columns, parents, [(column[:-1], float(column[-1])) for column in each.T])
        self.plausible_ = {
            name: np.array([getattr(one, name) for one in populations]) for name in OF_EACH
        }
        self.plausible_["variance_variance_"] = np.zeros(self.plausible_["variance_"].shape)
        self.plausible_["weights"] = weights

    def _explain(self, likelihood: Gaussian, fits: list[NestedFit]) -> None:
        """Add notes on what the data do not identify, or is at a boundary."""
        sizes = np.max([fit.sizes for fit in fits], axis=0)
        if sizes[-1] < 2:
            self._add_note(ONE_GROUP, True)
            if likelihood.scatter is not None and likelihood.degrees == 0:
                self._add_note(ONE_ROW)
            return
        if likelihood.scatter is not None and likelihood.degrees == 0:
            self.noise_is_unknown_ = True
            self._add_note(UNKNOWN_NOISE, True)
        more = np.diff([1, *sizes])
        for level, name in enumerate(self.names):
            if not more[level]:
                self._add_note(ALONE.format(name=name))
            elif more[level] < 2:
                self._add_note(FEW.format(name=name, n=sizes[level]))
            elif np.any(self.above_[level] == 0):
                self._add_note(NO_SPREAD_ABOVE.format(name=name))
        if not more[-1]:
            self._add_note(ALONE_BELOW.format(name=self.names[-1]))
        elif np.any(self.variance_ == 0):
            self._add_note(NO_SPREAD.format(parent=self.names[-1]))

    # Populations ------------------------------------------------------------------------------

    def at(self, covariates: NDArray) -> Self:
        """Return the population of groups of these parents, numbers of shape (n, n_above).

        Of a parent that was not in the fit, all that is known is its own parent, or the mean.
        """
        there = copy(self)
        there.covariates_ = np.asarray(covariates, float)
        place, known = self._places(there.covariates_)
        seen = (place >= 0)[:, None]
        there.mean_ = np.where(seen, self.node_means_[place], self.centre_)
        extra = np.array([self.above_[n:].sum(axis=0) for n in range(len(self.names) + 1)])
        doubt = np.where(seen, self.node_variances_[place], self.centre_variance_)
        there.mean_variance_ = doubt + extra[known]
        return there

    def _places(self, keys: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the lowest known parent of each group, -1 for none, and how many are known."""
        place, known = np.full(len(keys), -1), np.zeros(len(keys), np.int64)
        depth = np.isfinite(self.node_keys_).sum(axis=1)
        for level in range(1, len(self.names) + 1):
            nodes = np.flatnonzero(depth == level)
            codes = number_keys(np.vstack([self.node_keys_[nodes, :level], keys[:, :level]]))
            table = np.full(codes.max(initial=0) + 1, -1)
            table[codes[: len(nodes)]] = nodes
            found = table[codes[len(nodes) :]]
            place, known = np.where(found >= 0, found, place), known + (found >= 0)
        return place, known

    def _posterior(
        self, likelihood: Likelihood, own: ArrayLike = 0.0, noise: ArrayLike | None = None
    ) -> Posterior:
        """Conjugate posterior; see `NormalPosterior`."""
        if not isinstance(likelihood, Gaussian):
            raise TypeError("levels are for Gaussian messages.")
        return NestedPosterior(self, likelihood, own, noise)

    def posterior_of_members(self, likelihood: Likelihood, own: OwnReports) -> Posterior:
        """Weigh by what each group's own message left in the mean of its parent."""
        fitted = self._posterior(likelihood, own.variance, own.error)
        return integrated(self, likelihood, fitted, own.variance, own.error)

    def without_doubt(self) -> Self:
        """Return the population as if variances and the mean of all were known.

        What is not known of parents stays: they are no parameters of the population.
        """
        known = self._like({})
        shares = np.ones_like(self.node_pulls_)
        for node, above in enumerate(self.node_above_):  # parents come first
            shares[node] = self.node_pulls_[node] * (shares[above] if above >= 0 else 1.0)
        left = self.node_variances_ - shares**2 * self.centre_variance_
        known.node_variances_ = np.maximum(left, 0.0)
        known.variance_variance_ = known.centre_variance_ = np.zeros_like(self.centre_variance_)
        known.mean_, known.mean_variance_ = self.centre_, known.centre_variance_
        return known.at(self.covariates_) if self.mean_.ndim > 1 else known

    def errors_of_means(self, size: int, rng: np.random.Generator) -> NDArray:
        """Draw the error of the mean of each group's parent, shape (size, n, d)."""
        d = len(self.centre_)
        centre = np.sqrt(self.centre_variance_) * rng.standard_normal((size, 1, d))
        if self.mean_.ndim == 1:
            return centre
        nodes = np.empty((size, len(self.node_means_), d))
        depth = np.isfinite(self.node_keys_).sum(axis=1)
        for level in range(1, len(self.names) + 1):
            some = np.flatnonzero(depth == level)
            above, pull = self.node_above_[some], self.node_pulls_[some]
            error = nodes[:, above] if level > 1 else centre
            spread = self.node_variances_[above] if level > 1 else self.centre_variance_
            own = np.sqrt(np.maximum(self.node_variances_[some] - pull**2 * spread, 0.0))
            nodes[:, some] = pull * error + own * rng.standard_normal((size, len(some), d))
        place, _ = self._places(self.covariates_)
        seen = (place >= 0)[:, None]
        errors = np.where(seen, nodes[:, place], centre)
        doubt = np.where(seen, self.node_variances_[place], self.centre_variance_)
        extra = np.sqrt(np.maximum(self.mean_variance_ - doubt, 0.0))
        return errors + extra * rng.standard_normal(errors.shape)

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, d), shape (k,); of given parents, (n, k)."""
        away = theta - self.mean_[..., None, :]
        variance = self._total()[..., None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.log(2 * np.pi * variance) + away**2 / variance
        return -0.5 * terms.sum(axis=-1)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population: of unknown parents, or one of each given, shape (size, d)."""
        noise = np.random.default_rng(random_state).standard_normal((size, self.mean_.shape[-1]))
        return self.mean_ + np.sqrt(self._total()) * noise

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """Log-density of each message by itself: of its parent as estimated, or of any, (n,)."""
        if not isinstance(likelihood, Gaussian):
            raise TypeError("levels are for Gaussian messages.")
        return likelihood.marginal(self.mean_, self._total())

    def _total(self) -> NDArray:
        """Variance of a group's parameter."""
        if self.mean_.ndim > 1:
            return self.variance_ + self.mean_variance_
        return self.variance_ + self.above_.sum(axis=0)


class NestedPosterior(NormalPosterior):
    """`NormalPosterior` whose draws have one error of the mean for all groups of a parent."""

    _prior: Any

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng, prior = np.random.default_rng(random_state), self._prior
        pull = 1 - self._weight
        common = np.minimum(pull**2 * prior.mean_variance_, self.sd**2)
        draws = pull * prior.errors_of_means(size, rng)
        draws = draws + np.sqrt(self.sd**2 - common) * rng.standard_normal((size, *self.mean.shape))
        return self.mean + draws

    def around_parents(self) -> IndependentNormals:
        prior, own = self._prior, self._weight
        variance = self.sd**2 + (own**2 - (1 - own) ** 2) * prior.mean_variance_
        return IndependentNormals(self.mean - prior.mean_, np.sqrt(np.maximum(variance, 0)))


def _above(parents: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Place of each node's parent among the nodes; -1 at the top."""
    n_top = (parents[0].max() if len(parents) else 0) + 1
    above, first = [np.full(n_top, -1)], 0
    for of_level in parents[:-1]:
        above.append(of_level + first)
        first += len(above[-2])
    return np.concatenate(above)


# Nodes of the first look at the parents; least and most of those after it; those of a posterior.
FIRST, FEWEST, MOST, SHOWN = 60, 60, 400, 15
# Nodes within the error of the parent that is known best.
PER_ERROR = 3.0
# Log of dispersions: of the least, which is taken for none, and of the largest.
LEAST, LARGEST_LOG = np.log(1e-7), np.log(1e3)
# How far from the mean of all groups those of parents are sought on the line.
REACH = 9.2
# Chances below it count as it.
TINY = 1e-300
# Log-likelihoods that far below the best say that a parent's mean is not there.
DEPTH = 25.0

NO_SPREAD_OF_RATES = (
    "Estimated spread between groups of one {name} is zero: they differ by chance alone."
)
NO_SPREAD_OF_RATES_ABOVE = "Estimated spread between groups of level {name!r} is zero."


class NestedConjugate(Nested):
    """Base of populations within populations of rates; see `NestedBeta`.

    Parameters
    ----------
    names : sequence of one str
        Name of the level above the groups.

    Attributes
    ----------
    mean_ : ndarray of shape (1,)
        Mean of the population of parents; of each group's parent, where this is `at` it.
    variance_ : ndarray of shape (1,)
        Expected variance of groups around their parent.
    dispersion_, dispersion_above_ : float
        Of groups around their parent, and of parents: 1 over the concentration or shape.
    nodes_ : ndarray of shape (k,)
        Means that a parent may have.
    shares_ : ndarray of shape (n_parents, k)
        Probability of each for each parent, given all data.
    population_shares_ : ndarray of shape (k,)
        The same for parents without data.
    node_keys_ : ndarray of shape (n_parents,)
        Numbers of the parents, sorted.
    """

    of: ClassVar[type[ByColumn]]

    def __init__(self, names: Sequence[str] = ("parent",)):
        self.names = names

    # Fitting ----------------------------------------------------------------------------------

    def _fit_with_covariates(self, likelihood: Likelihood, covariates: NDArray) -> None:
        if covariates.shape[1] != 1 or len(self.names) != 1:
            raise ValueError(
                f"{type(self).__name__} has one level above the groups, {list(self.names)}; got "
                f"{covariates.shape[1]}."
            )
        self.node_keys_, parents = np.unique(covariates[:, 0], return_inverse=True)
        pooled = self.of().fit(likelihood)
        n_parents = len(self.node_keys_)
        alike = not self.of.kind.variance_of(pooled.mean_)[0] > 0
        if alike:
            self.notes_ += pooled.notes_
            found = _alike(float(pooled.mean_[0]), n_parents)
        else:
            found = _ParentTable.of(self, likelihood, parents.ravel(), n_parents, pooled).fit()
        self.__dict__.update(found)
        heights = self.of.kind.variance_of(self.nodes_)[0] @ self.known_population_
        self.variance_ = np.array([heights * self.of.kind.share_of(self.dispersion_)])
        above = self.nodes_**2 @ self.known_population_
        above -= (self.nodes_ @ self.known_population_) ** 2
        self.spreads_above_ = {str(self.names[0]): np.sqrt([max(above, 0.0)])}
        self.n_parameters_ = 3
        if alike:
            return
        if self.dispersion_ == 0:
            self._add_note(NO_SPREAD_OF_RATES.format(name=self.names[0]))
        if self.dispersion_above_ == 0:
            self._add_note(NO_SPREAD_OF_RATES_ABOVE.format(name=self.names[0]))

    @property
    def _positive_dispersion(self) -> float:
        """Dispersion of groups around their parent, of which the least is not zero."""
        return max(self.dispersion_, float(np.exp(LEAST)))

    # Populations ------------------------------------------------------------------------------

    def at(self, covariates: NDArray) -> Self:
        """Return the population of groups of these parents, numbers of shape (n, 1)."""
        there = copy(self)
        there.covariates_ = np.asarray(covariates, float)
        keys = there.covariates_[:, 0]
        place = np.minimum(np.searchsorted(self.node_keys_, keys), len(self.node_keys_) - 1)
        seen = self.node_keys_[place] == keys
        table = there.table_ = np.vstack([self.shares_, self.population_shares_])
        place = there.places_ = np.where(seen, place, len(table) - 1)
        there.mean_ = (table @ self.nodes_)[place, None]
        squares = (table @ self.nodes_**2)[place, None]
        there.mean_variance_ = np.maximum(squares - there.mean_**2, 0.0)
        return there

    def without_doubt(self) -> Self:
        """Return the population as if its parameters were known; means of parents are not."""
        known = self._like({})
        known.shares_, known.population_shares_ = self.known_shares_, self.known_population_
        return known.at(self.covariates_) if self.mean_.ndim > 1 else known

    def _table(self, n: int) -> tuple[NDArray, NDArray[np.int64]]:
        """Probabilities of nodes, one row for each parent, and the row of each group."""
        if self.mean_.ndim > 1:
            return self.table_, self.places_
        return self.population_shares_[None], np.zeros(n, np.int64)

    def _weights(self, n: int) -> NDArray:
        table, place = self._table(n)
        return table[place]

    def _logs(self, likelihood: Likelihood) -> NDArray:
        """Log-probability of each group's data at each node, shape (n, k)."""
        return _log_marginals(self.of, likelihood, self.nodes_, self._positive_dispersion)

    def _posterior(self, likelihood: Likelihood, is_new: NDArray | None = None) -> Posterior:
        """Mixture of conjugate posteriors, by the probabilities of the parent's means.

        Parameters
        ----------
        likelihood : Likelihood
        is_new : bool ndarray of shape (n,), optional
            Groups whose data were not in the fit, and say something of the parent's mean too; none,
            if None.
        """
        n = len(likelihood)
        table, place = self._table(n)
        if is_new is not None and is_new.any():
            with np.errstate(divide="ignore"):
                logs = np.log(table[place[is_new]]) + self._logs(likelihood.take(is_new))
            own = np.arange(len(table), len(table) + len(logs))
            table, place = np.vstack([table, softmax(logs, axis=1)]), place.copy()
            place[is_new] = own
        used, place = np.unique(place, return_inverse=True)
        means, parents = _quantile_means(self.nodes_, table[used])
        means, parents = means[:, place], parents[place]
        populations = [self.of.known(mean[:, None], self._positive_dispersion) for mean in means]
        parts = [one.posterior(likelihood, integrate=False) for one in populations]
        return ParentMixture(parts, parents)

    def posterior_of_members(self, likelihood: Likelihood, own: OwnReports) -> Posterior:
        """Posterior of groups, those that sent nothing beside those of the fit."""
        return self._posterior(likelihood, np.isinf(own.variance[:, 0]))

    def log_marginal(self, likelihood: Likelihood) -> NDArray:
        """Log-probability of each group's data by itself, of its parent as estimated, (n,)."""
        with np.errstate(divide="ignore"):
            logs = np.log(self._weights(len(likelihood)))
        return logsumexp(logs + self._logs(likelihood), axis=1)

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density at theta of shape (k, 1), shape (k,): of a group of an unknown parent."""
        logs = self.of.kind.at(self.nodes_, np.array([self._positive_dispersion])).logpdf(theta)
        with np.errstate(divide="ignore"):
            return logsumexp(logs + np.log(self._weights(1).mean(axis=0)), axis=1)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population: of unknown parents, or one of each given, shape (size, 1)."""
        rng = np.random.default_rng(random_state)
        below = np.cumsum(self._weights(size), axis=1)
        picked = (rng.random((size, 1)) > below[:, :-1]).sum(axis=1)
        own = self.of.kind.at(self.nodes_[picked], np.array([self._positive_dispersion]))
        draws = own.draw((size,), rng) if self.dispersion_ else self.nodes_[picked]
        return draws[:, None]


class ParentMixture(IntegratedPosterior):
    """Mixture of posteriors under means of parents, each as likely.

    Parameters
    ----------
    parts : list of Posterior of n groups
    parents : int64 ndarray of shape (n,)
        Number of each group's parent: in a draw, its groups have one mean.
    """

    def __init__(self, parts: list[Posterior], parents: NDArray[np.int64]):
        self._parents = parents
        shares = np.full((len(parts), 1, 1), 1 / len(parts))
        super().__init__(parts[len(parts) // 2], lambda: (parts, shares), True)

    def _picks(self, size: int, rng: np.random.Generator) -> NDArray[np.int32]:
        n_parents = int(self._parents.max(initial=0)) + 1
        of_parents = rng.integers(SHOWN, size=(size, n_parents), dtype=np.int32)
        return of_parents[:, self._parents, None]


class NestedBeta(NestedConjugate):
    """Rates of groups of parents: ``theta_i ~ Beta(mean mu_s, k)``, ``mu_s ~ Beta(mean mu, k_2)``.

    Group i belongs to the parent s, such as a county to a state. mu, k_2 and the concentration k
    maximise the marginal likelihood, in which each mu_s is integrated out on a grid of logits as
    fine as a third of the error of the parent that is known best; given mu_s groups are
    beta-binomial. The posterior of a group is a mixture of beta distributions, by the probabilities
    of mu_s given all data. What is not known of mu and k_2 is part of it, under a prior that is
    flat in mu and in the standard deviation of parents; k is taken to be as estimated, which
    matters where there are few groups.

    Examples
    --------
    >>> from ebfed.likelihoods import Binomial
    >>> counts = Binomial(np.array([[1], [2], [8], [9]]), np.full(4, 10))
    >>> prior = NestedBeta(["state"]).fit(counts, np.array([[0.0], [0.0], [1.0], [1.0]]))
    >>> prior.at(np.array([[0.0], [1.0], [2.0]])).mean_.ravel().round(1)
    array([0.2, 0.8, 0.5])
    """

    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    of: ClassVar[type[ByColumn]] = Beta


class NestedGamma(NestedConjugate):
    """Rates of events of groups of parents, gamma within gamma; see `NestedBeta`.

    ``theta_i ~ Gamma(mean mu_s, shape k)``, ``mu_s ~ Gamma(mean mu, shape k_2)``.

    Examples
    --------
    >>> from ebfed.likelihoods import Poisson
    >>> counts = Poisson(np.array([[1], [2], [18], [19]]), np.full(4, 10.0))
    >>> prior = NestedGamma(["state"]).fit(counts, np.array([[0.0], [0.0], [1.0], [1.0]]))
    >>> prior.at(np.array([[0.0], [1.0]])).mean_.ravel().round(1)
    array([0.2, 1.8])
    """

    support: ClassVar[tuple[float, float]] = (0.0, np.inf)
    of: ClassVar[type[ByColumn]] = Gamma


class _ParentTable:
    """Messages of groups, and the nodes at which their parents' means may be.

    Attributes
    ----------
    nodes : ndarray of shape (k,)
    start : float
        Log of the dispersion of all groups together.
    nearest : list of ndarray
        The population of parents that was found last.
    """

    def __init__(self, prior: NestedConjugate, rows: Likelihood, times: Any):
        self.prior, self.rows, self.times = prior, rows, times
        self.nodes, self.start = np.empty(0), 0.0
        self.nearest: list[NDArray] = []

    @classmethod
    def of(
        cls,
        prior: NestedConjugate,
        likelihood: Likelihood,
        parents: NDArray,
        n_parents: int,
        pooled: Any,
    ) -> Self:
        """Count the different messages of the groups of each parent, and choose nodes."""
        from scipy.sparse import coo_array

        rows, place = likelihood.numbered() or (likelihood, np.arange(len(likelihood)))
        shape = (n_parents, len(rows))
        table = cls(prior, rows, coo_array((np.ones(len(place)), (parents, place)), shape).tocsr())
        kind = prior.of.kind
        centre = float(kind.to_line(pooled.mean_[0]))
        first, last = centre - REACH, centre + REACH
        # of all groups together; not quite none
        dispersion = float(np.clip(pooled.dispersion_[0], 1e-4, 1e2))
        for size in (FIRST, 4 * FIRST):  # where parents may be, and how well they are known
            table.nodes = kind.from_line(np.linspace(first, last, size))
            logs = table.logs(dispersion)
            near = logs > logs.max(axis=1, keepdims=True) - DEPTH
            some = np.flatnonzero(near.any(axis=0))
            line = kind.to_line(table.nodes)
            step = line[1] - line[0]
            first, last = line[some[0]] - step, line[some[-1]] + step
        density = softmax(logs, axis=1)
        centre = density @ line
        error = np.sqrt(np.maximum(density @ line**2 - centre**2, step**2 / 12))
        wanted = PER_ERROR * (last - first) / error.min()
        n_nodes = int(np.clip(wanted, FEWEST, MOST))
        table.nodes = kind.from_line(np.linspace(first, last, n_nodes))
        table.start = float(np.log(dispersion))
        return table

    def logs(self, dispersion: float) -> NDArray:
        """Log-likelihood of each parent's mean at each node, shape (n_parents, k)."""
        dispersion = max(dispersion, float(np.exp(LEAST)))
        return self.times @ _log_marginals(self.prior.of, self.rows, self.nodes, dispersion)

    @property
    def kind(self) -> type[Distribution]:
        """Kind of both populations."""
        return self.prior.of.kind

    def masses(self, point: NDArray) -> NDArray:
        """Log-probabilities of nodes for a mean on the line and the log of a dispersion."""
        mean = self.kind.from_line(point[0])
        with np.errstate(invalid="ignore"):  # differences of tails, below zero by rounding
            masses = self.kind.at(mean, np.exp(point[1])).log_masses(self.nodes, mean)
        return np.where(np.isnan(masses), -np.inf, masses)

    def above(self, logs: NDArray) -> tuple[NDArray, NDArray, float]:
        """Fit the population of parents: point, covariance and log-likelihood."""
        likelihoods, scale = relative_likelihoods(logs)

        def height(point: NDArray) -> float:
            chances = likelihoods @ np.exp(self.masses(point))
            return float(np.log(np.maximum(chances, TINY)).sum() + scale.sum())

        ends = self.kind.to_line(self.nodes[[0, -1]])
        low, high = np.array([ends[0], LEAST]), np.array([ends[1], LARGEST_LOG])
        best = self.kind.to_line(self.nodes)[logs.argmax(axis=1)]
        starts = [np.array([np.median(best), start]) for start in (-8.0, -4.0, -1.5)]
        start = max(starts + self.nearest, key=height)
        point, covariance = maximise(height, start, low, high)
        self.nearest = [point]
        return point, covariance, height(point)

    def fit(self) -> dict[str, Any]:
        """Maximise the marginal likelihood; return the attributes of the population."""
        result = minimize_scalar(
            lambda x: -self.above(self.logs(np.exp(x)))[2],
            bounds=(max(LEAST, self.start - 8), min(LARGEST_LOG, self.start + 3)),
            method="bounded",
            options={"xatol": 1e-5},
        )
        at = float(result.x)
        at = LEAST if at < LEAST + 0.5 or at < self.start - 7.5 else at
        logs = self.logs(np.exp(at))
        point, covariance, value = self.above(logs)
        mean = float(self.kind.from_line(point[0]))
        slope = self.kind.steepness(mean)
        # what is not known of the population of parents
        points, weights = self._plausible(logs, point)
        masses = np.array([self.masses(each) for each in points])
        shares = np.zeros(logs.shape)
        for weight, mass in zip(weights, masses, strict=True):
            shares += weight * softmax(logs + mass, axis=1)
        return {
            "nodes_": self.nodes,
            "joint_log_marginal_": value,
            "mean_": np.array([mean]),
            "mean_variance_": np.array([slope**2 * covariance[0, 0]]),
            "dispersion_above_": 0.0 if point[1] < LEAST + 0.5 else float(np.exp(point[1])),
            "dispersion_": 0.0 if at == LEAST else float(np.exp(at)),
            "shares_": shares,
            "known_shares_": softmax(logs + self.masses(point), axis=1),
            "population_shares_": weights @ np.exp(masses),
            "known_population_": np.exp(self.masses(point)),
        }

    def _plausible(self, logs: NDArray, point: NDArray) -> tuple[NDArray, NDArray]:
        """Find populations of parents that are plausible beside the best one."""
        ends = self.kind.to_line(self.nodes[[0, -1]])
        likelihoods, _ = relative_likelihoods(logs)

        def log_density(points: NDArray) -> NDArray:
            # flat in the mean and in the standard deviation of parents
            share = self.kind.share_of(np.exp(points[:, 1]))
            steepness = self.kind.steepness(self.kind.from_line(points[:, 0]))
            prior = np.log(steepness) + 1.5 * np.log(share) - points[:, 1]
            chances = likelihoods @ np.exp([self.masses(each) for each in points]).T
            values = prior + np.log(np.maximum(chances, TINY)).sum(axis=0)
            return np.where(((low <= points) & (points <= high)).all(axis=1), values, -np.inf)

        low, high = np.array([ends[0], LEAST]), np.array([ends[1], np.log(1e2)])
        return explore(log_density, np.clip(point, low, high))


def _alike(mean: float, n_parents: int) -> dict[str, Any]:
    """Attributes of the population where all outcomes are the same."""
    one = np.ones((n_parents, 1))
    found: dict[str, Any] = {"nodes_": np.array([mean]), "mean_": np.array([mean])}
    found |= dict.fromkeys(("shares_", "known_shares_"), one)
    found |= dict.fromkeys(("population_shares_", "known_population_"), one[0])
    found |= dict.fromkeys(("joint_log_marginal_", "dispersion_", "dispersion_above_"), 0.0)
    return found | {"mean_variance_": np.zeros(1)}


def _log_marginals(
    of: type[ByColumn], rows: Likelihood, nodes: NDArray, dispersion: float
) -> NDArray:
    """Log-probability of each row at each node, shape (n, k)."""
    variances = of.kind.variance_of(nodes)[0] * of.kind.share_of(dispersion)
    return rows.marginals(nodes[:, None], variances[:, None])


def _quantile_means(nodes: NDArray, weights: NDArray) -> tuple[NDArray, NDArray[np.int64]]:
    """Means of a parent between quantiles of equal distance, each as likely; shape (SHOWN, n).

    And the number of each group's parent: groups with equal weights have one.
    """
    _, first, place = np.unique(weights @ nodes, return_index=True, return_inverse=True)
    ends = np.linspace(0, 1, SHOWN + 1)
    means = np.empty((SHOWN, len(first)))
    for j, i in enumerate(first):
        below = np.concatenate(([0.0], np.cumsum(weights[i])))
        # the mean up to each quantile is a broken line
        sums = np.concatenate(([0.0], np.cumsum(weights[i] * nodes)))
        means[:, j] = np.diff(np.interp(ends * below[-1], below, sums)) * SHOWN / below[-1]
    return np.clip(means, nodes[0], nodes[-1])[:, place.ravel()], place.ravel()


def within(prior: Prior, names: Sequence[str]) -> Prior:
    """Return the population of groups of parents that has the form of a population of groups.

    Parameters
    ----------
    prior : Prior
    names : sequence of str
        Names of the levels above the groups, from the outermost.

    Raises
    ------
    TypeError
        If populations of this form have no parents.
    ValueError
        If it has arguments that a population of parents has not.

    Examples
    --------
    >>> within(Normal(), ["state"])
    NestedNormal(names=['state'])
    """
    if isinstance(prior, Nested):
        return prior.unfitted().set_params(names=list(names))
    if isinstance(prior, Normal):
        if prior.mean is not None or prior.variance is not None or prior.covariance != "diag":
            raise ValueError(
                "levels of groups are for priors.Normal() whose mean and variance are estimated, "
                f"each column with its own; got {prior!r}."
            )
        return NestedNormal(list(names), method=prior.method)  # type: ignore[arg-type]
    if isinstance(prior, Beta) and prior.alpha is None and prior.method == "ml":
        return NestedBeta(list(names))
    if isinstance(prior, Gamma) and prior.shape is None:
        return NestedGamma(list(names))
    if isinstance(prior, Beta | Gamma):
        raise ValueError(
            f"levels of groups are for priors.{type(prior).__name__}() fitted by maximum "
            f"likelihood; got {prior!r}."
        )
    raise TypeError(
        f"{prior!r} is one population for all groups; levels of groups are for "
        "priors.Normal ('normal'), priors.Beta ('beta') and priors.Gamma ('gamma')."
    )
