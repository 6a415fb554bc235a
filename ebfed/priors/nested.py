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

from ebfed.likelihoods import Gaussian, Likelihood
from ebfed.priors.base import WELL_KNOWN, OwnReports, Prior
from ebfed.priors.exploration import TILT, explore, side_by_side, thinned
from ebfed.priors.identification import ONE_GROUP, ONE_ROW, UNKNOWN_NOISE
from ebfed.priors.integrated import integrated
from ebfed.priors.normal import NormalPosterior
from ebfed.priors.posterior import IndependentNormals, Posterior
from ebfed.priors.search import maximise
from ebfed.priors.variance_components import informative
from ebfed.tables.labels import number_keys, number_parents

__all__ = [
    "NestedEstimates",
    "NestedFit",
    "NestedNormal",
    "NestedProfile",
    "NestedTable",
    "Tree",
    "descend",
    "fit_nested",
    "nested_estimates",
    "paths_of",
    "settled",
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

    def without_lowest(self) -> Tree:
        """Return the tree of parents."""
        return Tree(np.arange(len(self.starts[-1])), self.starts[:-1], self.above[:-1])


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

        def ratios_of(point: NDArray) -> NDArray:
            found = ratios.copy()
            found[opened] = (roots * np.sinh(point)) ** 2
            return found

        def log_density(points: NDArray) -> NDArray:
            prior = np.log(np.cosh(points)) + 2 * TILT * np.log(np.tanh(points))
            values = [table.profile(ratios_of(point), slope=False).value for point in points]
            possible = (points < high).all(axis=1)
            return np.where(possible, prior.sum(axis=1) - 0.5 * np.array(values), -np.inf)

        # beyond it the density is a power of the ratio: of few parents, a low one
        high = np.arcsinh(1e4 * np.sqrt(1 + ratios[opened]) / roots) + 8.0
        start = np.clip(np.arcsinh(np.sqrt(ratios[opened]) / roots), 0.3, None)
        points, weights = explore(log_density, start, positive=True)
        if len(points) > MANY:
            points, weights = thinned(points, weights, MANY)
        return np.array([ratios_of(point) for point in points]), weights

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
        tree = tree.without_lowest()
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


class NestedNormal(Prior):
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

    takes_covariates: ClassVar[bool] = True
    max_features: ClassVar[float] = np.inf
    _is_linear: ClassVar[bool] = True
    _by_column: ClassVar[tuple[str, ...]] = ("mean_variance_", "variance_variance_", "above_")

    kurtosis_: NDArray
    second_moment_: NDArray
    node_keys_: NDArray
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

    def _fit(self, likelihood: Likelihood) -> None:
        raise ValueError("the parents of groups must be given.")

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

    @property
    def _n_covariates(self) -> int:
        return len(self.names)

    @property
    def weighs_own_reports(self) -> bool:
        """Whether a group's exact mean replaces its own message in that of its parent."""
        return True

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
        """Draw `size` values of each group's parameter, shape (size, n, d)."""
        rng, prior = np.random.default_rng(random_state), self._prior
        pull = 1 - self._weight
        common = np.minimum(pull**2 * prior.mean_variance_, self.sd**2)
        draws = pull * prior.errors_of_means(size, rng)
        draws = draws + np.sqrt(self.sd**2 - common) * rng.standard_normal((size, *self.mean.shape))
        return self.mean + draws

    def around_parents(self) -> IndependentNormals:
        """Posterior of how each group differs from its parent."""
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
