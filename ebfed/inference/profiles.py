"""Intervals of mixed models by the profile of their likelihood.

The deviance at a value v of one parameter is the smallest over all others. Its excess over the
smallest of all is the square of a statistic that is about standard normal, so that the interval is
where it is at most ``z**2`` (Bates and others 2015, section 5.1), as lme4's
``confint(method = "profile")`` has it of the likelihood, not the restricted one. A model gives its
deviance, of either, with slopes, as a `Criterion`; which parameters there are, and how one is held,
is here.

Covariances are searched by a root L of each, ``G = L L'``. The coefficient whose spread is held at
v comes first in the order of L, where ``v = L_11``; of a correlation v, the first two rows are
``(a**2, 0)`` and ``s**2 (v, sqrt(1 - v**2))``, for one of opposite signs were that of -v. The
search has no bounds then; ends of correlations are sought by their inverse hyperbolic tangent.
Where one of the two spreads is zero, every correlation has the same deviance, which bounds its
profile. A coefficient below the rows that are held is searched as its difference from a regression
on those above it, of errors as the rows leave them: it does not matter where a covariate is zero.

The other coefficients of the mean are relative to what is expected of them at a value of one that
is held, and steps are as long as what they change in the rows. Where the likelihood of no row falls
as a coefficient grows, the end of its interval is infinite. A criterion with second derivatives is
searched by Newton's method, others by the quasi-Newton method of Broyden, Fletcher, Goldfarb and
Shanno.

References
----------
Bates, Maechler, Bolker, Walker (2015), Fitting linear mixed-effects models using lme4, J. Stat.
Softw. 67.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from ebfed.inference.sums import entries_of_terms, root_of_terms, turned_back
from ebfed.inference.trust_region import climb

__all__ = [
    "Criterion",
    "Entries",
    "Held",
    "Level",
    "Point",
    "Profile",
    "followed_end",
    "profile_end",
]

# Rows and columns of the entries of a root that are searched.
Entries = tuple[NDArray[np.int64], NDArray[np.int64]]

# Factor by which steps from an estimate grow until an end is passed, and most steps.
GROWTH, STEPS = 1.8, 40
# Share of the last step to which an end is found, and the slope at which a search is done.
PRECISE, FLAT = 1e-6, 1e-5
# Smallest curvature that the next search begins with, over the largest.
LEAST_BEND = 1e-12
# Least entry of a root from which a search by slopes starts, in its own size.
AWAY = 0.05
# A correlation of 1 in the search.
NEARLY_ONE = 1 - 1e-8
# First steps from an estimate: of a spread or shape, in its own size.
STEP, LEAST, LEAST_SHAPE = 0.4, 0.2, 1e-3
# By how much less a deviance is another minimum, not rounding of the search.
LOWER = 1e-6
# By how much less it has to be for ends to be sought again: they move by 1e-4 of their distance.
SETTLED = 2e-4
# Square roots of deviances that are the same, and minima between which an end may lie.
SAME, MOST_MINIMA = 1e-4, 6
# Sizes of a coefficient's spread from which minima are sought, and groups with which these are few.
OTHER_SIZES, FEW = (0.25, 4.0), 60
# Fall of the deviance at which Newton's search is done, and what changes of rules may lose.
ENOUGH, NOISE, MOST_STEPS = 2e-9, 2e-6, 100
# Steps in succession without a fall: values and slopes differ by errors of the quadrature. Fewer
# where no fall is expected but what that is.
MOST_VAIN, FEW_VAIN = 8, 2
# Longest steps, where columns have unit size.
FIRST_RADIUS, RADIUS = 2.0, 16.0
# Share of the largest eigenvalue of columns of unit size that is rounding.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Held:
    """A parameter that is held at a value.

    Attributes
    ----------
    kind : {"mean", "spread", "correlation", "shape"}
        A shape is a parameter of the distribution of rows, such as the noise of normal ones.
    level : int
        Level of the groups, or factor.
    first, second : int
        Place of a coefficient: among all of the mean, or among those that differ in the level.
    """

    kind: str
    level: int = 0
    first: int = 0
    second: int = 0


@dataclass(frozen=True)
class Level:
    """Coefficients that differ between the groups of a level, or the levels of a factor.

    Attributes
    ----------
    covariance : ndarray of shape (q, q)
        Of the coefficients, at the fit.
    typical : ndarray of shape (q, q)
        A covariance of what rows leave unknown of them, which says in which coordinates and units
        covariances are searched: slopes in a covariate far from zero, such as years, go with the
        intercept.
    blocks : int64 ndarray of shape (q,)
        Those of different blocks are independent.
    terms : sequence of sequence of (int or None)
        Coefficients of each term, in the order of `tidy`; None has no spread that is identified.
    shared : bool
        Whether all are independent, and share a variance.
    correlated : bool
        Whether the coefficients of a term are correlated.
    """

    covariance: NDArray
    typical: NDArray
    blocks: NDArray[np.int64]
    terms: Sequence[Sequence[int | None]]
    shared: bool = False
    correlated: bool = True

    def coordinates(self, order: Sequence[int], paired: bool = False) -> Coordinates:
        """Return how its covariance is searched.

        Parameters
        ----------
        order : sequence of int
            Of the coefficients, in which the root is lower triangular.
        paired : bool
            Whether the first two are held: the second is not less its regression on the first.
        """
        places = np.array(order, np.int64)
        own = np.ix_(places, places)
        blocks = np.arange(len(places)) if self.shared else self.blocks[places]
        known = root_of_terms(self.typical[own], blocks)
        lengths = np.diag(known)
        turn = np.where(
            lengths > 0, known / np.where(lengths > 0, lengths, 1.0), np.eye(len(known))
        )
        if paired:
            turn[:, 0] -= turn[1, 0] * turn[:, 1]
        both = [turned_back(turn, G[own]) for G in (self.covariance, self.typical)]
        sizes = np.sqrt(np.maximum(*map(np.diag, both)))
        sizes = np.full(len(sizes), sizes.mean()) if self.shared and len(sizes) else sizes
        return Coordinates(places, blocks, turn * np.where(sizes > 0, sizes, 1.0), self.shared)


@dataclass(frozen=True)
class Coordinates:
    """How the covariance of a level is searched: by N, lower triangular, of a root ``turn @ N``.

    Attributes
    ----------
    order : int64 ndarray of shape (q,)
        Coefficients, in the order of the rows of N.
    blocks : int64 ndarray of shape (q,)
        Of each row.
    turn : ndarray of shape (q, q)
        Lower triangular.
    shared : bool
        Whether N is a number times the unit matrix.
    """

    order: NDArray[np.int64]
    blocks: NDArray[np.int64]
    turn: NDArray
    shared: bool = False

    @cached_property
    def entries(self) -> Entries:
        """Rows, by coefficient, and columns of the entries of a root that are not zero."""
        rows, columns = entries_of_terms(self.blocks)
        return self.order[rows], columns

    @cached_property
    def derivatives(self) -> NDArray[np.float64]:
        """Derivatives of these in what is searched."""
        rows, columns = entries_of_terms(self.blocks)
        found = self.turn[np.ix_(rows, rows)] * (columns[:, None] == columns)
        return found.sum(axis=1, keepdims=True) if self.shared and len(found) else found

    def root(self, searched: NDArray) -> NDArray[np.float64]:
        """Return a root of the covariance, of what is searched."""
        found = np.zeros((len(self.order),) * 2)
        found[self.entries] = self.derivatives @ searched
        return found

    def searched(self, G: NDArray) -> NDArray[np.float64]:
        """Return what is searched of a covariance."""
        if not len(G):
            return np.zeros(0)
        scaled = turned_back(self.turn, G[np.ix_(self.order, self.order)])
        if self.shared:
            return np.sqrt(np.mean(np.diag(scaled)) * np.ones(1))
        tiny = 1e-12 * max(float(np.trace(scaled)), 1e-6) * np.eye(len(scaled))
        return root_of_terms(scaled + tiny, self.blocks)[entries_of_terms(self.blocks)]


class Point(NamedTuple):
    """Parameters at which a deviance is asked for.

    Attributes
    ----------
    mean : ndarray of shape (p,)
    roots : sequence of ndarray of shape (q, q)
        A root of the covariance of each level.
    shapes : ndarray of shape (t,)
    entries : sequence of tuple of int64 ndarray
        Entries of the roots, in which derivatives are taken after those in the mean, and before
        those in the shapes.
    held : tuple of int and float, optional
        A coefficient that is not searched, and its value; None: that of the least deviance.
    """

    mean: NDArray
    roots: Sequence[NDArray]
    shapes: NDArray
    entries: Sequence[Entries] = ()
    held: tuple[int, float] | None = None


class Criterion(ABC):
    """The deviance of a mixed model as a function of its parameters, but for a constant.

    Attributes
    ----------
    levels : sequence of Level
    means : sequence of (int or None)
        Coefficients of the mean in the order of `tidy`; None is not identified.
    errors : ndarray
        Their standard errors, by place.
    mean : ndarray of shape (p,)
        Coefficients of the mean that are searched, at the fit; none where the others say them.
    mean_covariance : ndarray of shape (p, p)
    units : ndarray of shape (p,)
        Sizes of coefficients that matter alike to rows.
    products : ndarray of shape (p, p)
        Mean products of their columns, times these.
    searched : int64 ndarray
        Coefficients among the p that may differ from zero.
    shapes : ndarray of shape (t,)
    n_shown : int
        Number of shapes that `tidy` shows.
    n_groups : int
    largest : float
        Largest spread in units; at others the deviance is as there. First steps from a coefficient
        are of no more units: its error says nothing where the likelihood rises without end.
    curved : bool
        Whether there are second derivatives.
    n_dense : int
        Size of the dense matrices of an evaluation, if they are large.
    classes : bool
        Whether shapes are thresholds, from which the first coefficient is subtracted.
    """

    levels: Sequence[Level]
    means: Sequence[int | None]
    errors: NDArray
    mean: NDArray = np.zeros(0)
    mean_covariance: NDArray = np.zeros((0, 0))
    units: NDArray = np.zeros(0)
    products: NDArray = np.zeros((0, 0))
    searched: NDArray[np.int64] = np.zeros(0, np.int64)
    shapes: NDArray
    n_shown: int
    n_groups: int
    largest: float = np.inf
    curved: bool = False
    n_dense: int = 0
    classes: bool = False

    @abstractmethod
    def at(self, point: Point) -> tuple[float, NDArray, NDArray | None]:
        """Return the deviance, its slope, and second derivatives if there are any.

        Raises
        ------
        LinAlgError
            If there is no likelihood.
        """

    def mean_at(self, place: int, point: Point) -> float:
        """Return a coefficient of the mean where the deviance is least at these parameters."""
        return float(point.mean[place])

    @abstractmethod
    def shape_at(self, number: int, mean: NDArray, shapes: NDArray) -> float:
        """Return a shape as `tidy` shows it."""

    @abstractmethod
    def searched_shape(self, value: float) -> float:
        """Return a shape as it is searched, of what `tidy` shows; not of thresholds."""

    def turn_of_shapes(self, shapes: NDArray) -> NDArray[np.float64] | None:
        """Return derivatives of all thresholds but the first in the shapes."""
        return None

    def unlimited(self, held: Held, up: bool) -> bool:
        """Whether the likelihood of no row falls as a coefficient or threshold grows."""
        return False

    def refusal(self) -> str:
        """Return why it has no profile; empty if it has one."""
        return ""


class Profile:
    """The smallest deviance with one parameter held.

    Parameters
    ----------
    criterion : Criterion
    """

    def __init__(self, criterion: Criterion):
        self.criterion = criterion
        self._without: dict[tuple[int, int], float] = {}
        self._bend: dict[Held | None, NDArray] = {}
        self._ways: dict[int | None, NDArray] = {}
        self._searched = False
        self._lowest: tuple[float, NDArray[np.float64]] | None = None
        self.p = len(criterion.mean)
        self._coordinates: dict[tuple[int, tuple[int, ...]], Coordinates] = {}
        own = [self._of_level(k).derivatives.shape[1] for k in range(len(criterion.levels))]
        self._ends = np.cumsum([self.p, *own, len(criterion.shapes)])
        # how the others move with each coefficient that is held, a column for each
        covariance = criterion.mean_covariance / np.outer(criterion.units, criterion.units)
        variance = np.diag(covariance)
        self._tangents = covariance / np.where(variance > 0, variance, np.inf)
        np.fill_diagonal(self._tangents, 0.0)

    def every(self) -> list[Held | None]:
        """Parameters in the order of `tidy`; None for those that are not identified."""
        criterion = self.criterion
        found: list[Held | None] = [
            None if j is None else Held("mean", first=j) for j in criterion.means
        ]
        for number, level in enumerate(criterion.levels):
            found += [
                None if j is None else Held("spread", number, j)
                for term in level.terms
                for j in term
            ]
            found += [
                None if j is None or k is None else Held("correlation", number, k, j)
                for term in (level.terms if level.correlated else ())
                for a, j in enumerate(term)
                for k in term[:a]
            ]
        known = not criterion.classes or 0 in criterion.means  # thresholds less the intercept
        shapes = range(criterion.n_shown)
        return [*found, *(Held("shape", first=j) if known else None for j in shapes)]

    # Search -----------------------------------------------------------------------------------

    @property
    def best(self) -> tuple[float, NDArray[np.float64]]:
        """The smallest deviance that was found so far, and the whole point where it is."""
        if self._lowest is None:
            given = self.criterion
            roots = [
                self._of_level(k).searched(level.covariance) for k, level in enumerate(given.levels)
            ]
            start = np.concatenate([given.mean / given.units, *roots, given.shapes])
            self._lowest = self.least(None, 0.0, start)
        return self._lowest

    def settled(self, since: float) -> bool:
        """Whether the smallest deviance is so near to an earlier one that ends stay."""
        return since - self.best[0] <= SETTLED

    def interval(self, held: Held, z: float) -> tuple[float, float]:
        """Return the ends of the interval of a parameter.

        Parameters
        ----------
        held : Held
        z : float
            Quantile of the standard normal distribution.
        """
        if not self._searched:  # the deviance may have another minimum
            begun = self.best[1]
            tried = [self.least(None, 0.0, at) for at in self._restarts(None, 0.0, begun)]
            self._lowest = min([self.best, *tried], key=lambda each: each[0])
            self._searched = True
        while True:
            best = self.best
            centre, limits, step = self._range(held, best[1])
            if not np.isfinite(centre):
                return np.nan, np.nan
            low, high = (self._end(held, centre, limit, step, z) for limit in limits)
            if self.settled(best[0]):
                return low, high

    def _end(self, held: Held, centre: float, limit: float, step: float, z: float) -> float:
        """Return where the deviance exceeds the smallest by ``z**2``; the limit if nowhere."""
        if held.kind in ("mean", "shape") and self.criterion.unlimited(held, limit > 0):
            return limit
        of_spread = held.kind == "spread" and limit > 0  # beyond the limit it is that at the limit
        bent, back = (np.arctanh, np.tanh) if held.kind == "correlation" else (float, float)
        bound = np.inf if of_spread else bent(limit)

        def natural(value: float) -> float:
            return min(float(back(value)), limit) if of_spread else float(back(value))

        end = followed_end(
            lambda value, at: self.profile(held, natural(value), at),
            lambda value, at: self._restarts(held, natural(value), at),
            lambda deviance: float(np.sqrt(max(deviance - self.best[0], 0.0))) - z,
            float(bent(centre)),
            float(bound),
            step,
        )
        if held.kind == "correlation" and end == bound:
            return float(np.sign(limit))
        return float(back(end))

    def profile(
        self, held: Held, value: float, start: NDArray | None = None
    ) -> tuple[float, NDArray]:
        """Return what `least` does, and of a correlation also what it is if a spread is zero.

        Where that is less than the smallest deviance so far, this is searched for again from there.
        """
        begin = self._inside(held, self.best[1]) if start is None else start
        found, at = self.least(held, value, begin)
        if found < self.best[0] - LOWER:
            again = self.least(None, 0.0, self._in_order(held, self._whole(held, value, at)[0]))
            self._lowest = min(again, self.best, key=lambda each: each[0])
        if held.kind == "correlation":
            for place in (held.first, held.second):
                key = held.level, place
                if key not in self._without:
                    none = Held("spread", held.level, place)
                    begin = self._inside(none, self.best[1])
                    self._without[key] = self.least(none, 0.0, begin)[0]
                found = min(found, self._without[key])
        return found, at

    def _restarts(self, held: Held | None, value: float, at: NDArray) -> list[NDArray[np.float64]]:
        """Return starts at which one coefficient has another size, or correlations of other signs.

        With many groups the deviance has one minimum.
        """
        if self.criterion.n_groups > FEW:
            return []
        point = self._whole(held, value, at)[0]
        starts = [] if held is None else [self._inside(held, self.best[1])]
        for number, level in enumerate(self.criterion.levels):
            part = slice(self._ends[number], self._ends[number + 1])
            own = self._of_level(number, held)
            rows = np.zeros(1, int) if level.shared else own.entries[0]
            blocks = rows if level.shared else level.blocks
            for j in np.unique(rows):
                alone = (blocks == blocks[j]).sum() == 1
                for size in OTHER_SIZES if alone else (*OTHER_SIZES, -1.0):
                    T = own.root(point[part] * np.where(rows == j, size, 1.0))
                    other = own.searched(T @ T.T)
                    whole = np.concatenate([point[: part.start], other, point[part.stop :]])
                    starts.append(self._free(held, whole))
        return starts

    def least(
        self, held: Held | None, value: float, start: NDArray
    ) -> tuple[float, NDArray[np.float64]]:
        """Return the smallest deviance with a parameter at a value, and where it is.

        Parameters
        ----------
        held : Held or None
        value : float
        start : ndarray
            Parameters that are not held, where to begin.
        """
        if not len(start):
            return self._at(held, value, start)[0], start
        turn = self._even(held, len(start))
        search = self._newton if self.criterion.curved else self._quasi_newton
        return search(held, value, start, turn)

    def _quasi_newton(
        self, held: Held | None, value: float, start: NDArray, turn: NDArray
    ) -> tuple[float, NDArray[np.float64]]:
        from scipy.optimize import minimize

        # entries of roots away from zero, where the deviance has slope zero in them
        near = (np.abs(start) < AWAY) & self._free(held, self._of_roots, moved=False)
        begin = np.where(near, np.copysign(AWAY, start), start)

        def along(x: NDArray) -> tuple[float, NDArray]:
            deviance, slope, _ = self._at(held, value, begin + turn @ x)
            return deviance, turn.T @ slope

        # searches at values nearby bend alike
        options = {"gtol": FLAT, "maxiter": 500, "hess_inv0": self._bend.get(held)}
        found = minimize(along, np.zeros(turn.shape[1]), method="BFGS", jac=True, options=options)
        bend = (found.hess_inv + found.hess_inv.T) / 2
        curved = np.linalg.eigvalsh(bend) if np.isfinite(bend).all() else np.full(1, np.nan)
        if curved[0] > LEAST_BEND * curved[-1]:  # of less, factors of it round to nothing
            self._bend[held] = bend
        return float(found.fun), begin + turn @ found.x

    def _newton(
        self, held: Held | None, value: float, start: NDArray, turn: NDArray
    ) -> tuple[float, NDArray[np.float64]]:
        best, at, radius, fall = np.inf, start, FIRST_RADIUS, np.inf
        step = np.zeros(len(start))
        point, slope, second = start, np.zeros(len(start)), np.zeros((len(start),) * 2)
        low, vain = (np.inf, start), 0
        for _ in range(MOST_STEPS):
            found, by_point, bend = self._at(held, value, at)
            risen = found - best if np.isfinite(found) else np.inf
            vain = 0 if found < low[0] - ENOUGH else vain + 1
            low = min(low, (found, at), key=lambda each: each[0])
            if not risen < NOISE:
                radius = min(radius, float(np.linalg.norm(step))) / 4
            else:
                if -risen > 0.75 * fall or fall < NOISE:
                    radius = min(2 * radius, RADIUS)
                elif -risen < 0.25 * fall:
                    radius = radius / 4
                assert bend is not None
                best, point, slope, second = found, at, by_point, bend
            step, gain = climb(-turn.T @ slope / 2, -turn.T @ second @ turn / 2, radius)
            fall = 2 * gain
            vainest = FEW_VAIN if fall < NOISE else MOST_VAIN
            if fall <= ENOUGH or radius < ENOUGH / 2 or vain >= vainest:
                break
            at = point + turn @ step
        return low

    def _even(self, held: Held | None, size: int) -> NDArray[np.float64]:
        """Return directions in which parameters that are not held matter alike to the rows."""
        lost, given = self._lost_of_mean(held), self.criterion
        kept = np.delete(np.arange(self.p), [] if lost is None else lost)
        own = np.flatnonzero(np.isin(kept, given.searched))
        if lost not in self._ways:
            values, vectors = np.linalg.eigh(given.products[np.ix_(kept[own], kept[own])])
            known = values > ROUNDING * values.max(initial=0.0)
            self._ways[lost] = vectors / np.sqrt(np.where(known, values, 1.0))
        turn = np.eye(size)[:, np.concatenate([own, np.arange(len(kept), size)])]
        turn[own[:, None], np.arange(len(own))] = self._ways[lost]
        return turn

    # Parameters -------------------------------------------------------------------------------

    @cached_property
    def _of_roots(self) -> NDArray[np.bool_]:
        """Which parameters are entries of roots."""
        places = np.arange(self._ends[-1])
        return (places >= self._ends[0]) & (places < self._ends[-2])

    def _lost_of_mean(self, held: Held | None) -> int | None:
        """Return the coefficient of the mean that is no parameter if this is held."""
        if held is None or held.kind not in ("mean", "shape") or not self.p:
            return None
        return held.first if held.kind == "mean" else 0 if self.criterion.classes else None

    def _lost(self, held: Held | None) -> int | None:
        """Return the place that is no parameter if this is held."""
        if held is None or (held.kind == "mean" and not self.p):
            return None
        if held.kind == "mean":
            return held.first
        if held.kind == "shape":
            return 0 if self.criterion.classes else int(self._ends[-2]) + held.first
        return int(self._ends[held.level]) + (held.kind == "correlation")

    def _of_level(self, number: int, held: Held | None = None) -> Coordinates:
        """Return how the covariance of a level is searched: what is held comes first."""
        level = self.criterion.levels[number]
        first: tuple[int, ...] = ()
        if held is not None and held.level == number and not level.shared:
            if held.kind in ("spread", "correlation"):
                first = (held.first,)
            if held.kind == "correlation":
                first += (held.second,)
        if (number, first) not in self._coordinates:
            order = [*first, *(j for j in range(len(level.blocks)) if j not in first)]
            self._coordinates[number, first] = level.coordinates(order, len(first) == 2)
        return self._coordinates[number, first]

    def _root(self, point: NDArray, number: int, held: Held | None) -> NDArray[np.float64]:
        """Return the root of the covariance of a level at a whole point, shape (q, q)."""
        own = point[self._ends[number] : self._ends[number + 1]]
        return self._of_level(number, held).root(own)

    def _roots(self, point: NDArray, held: Held | None) -> list[NDArray[np.float64]]:
        return [self._root(point, k, held) for k in range(len(self.criterion.levels))]

    def _range(self, held: Held, best: NDArray) -> tuple[float, tuple[float, float], float]:
        """Return the value of a parameter at the least deviance, its bounds, and a first step."""
        given, anywhere = self.criterion, (-np.inf, np.inf)
        mean, shapes = best[: self.p] * given.units, best[self._ends[-2] :]
        if held.kind == "mean":
            centre = given.mean_at(held.first, Point(mean, self._roots(best, None), shapes))
            step, unit = float(given.errors[held.first]), given.units[held.first] if self.p else 1.0
            return centre, anywhere, float(min(step or unit, given.largest * unit))
        if held.kind == "shape":
            centre = given.shape_at(held.first, mean, shapes)
            if given.classes:
                return centre, anywhere, STEP
            return centre, (0.0, np.inf), STEP * max(centre, LEAST_SHAPE)
        L = self._root(best, held.level, None)
        G, j, k = L @ L.T, held.first, held.second
        if held.kind == "spread":
            centre, size = np.sqrt([G[j, j], given.levels[held.level].typical[j, j]]).tolist()
            return centre, (0.0, size * given.largest), STEP * max(centre, LEAST * size)
        both = float(np.sqrt(G[j, j] * G[k, k]))
        limits = -NEARLY_ONE, NEARLY_ONE
        return float(np.clip(G[j, k] / both, *limits)) if both > 0 else np.nan, limits, STEP

    def _inside(self, held: Held, best: NDArray) -> NDArray[np.float64]:
        """Return what is not held of a whole point in the order of the fit."""
        return self._free(held, self._moved(best, None, held))

    def _in_order(self, held: Held, point: NDArray) -> NDArray[np.float64]:
        """Return a whole point in the order of the fit, from that of what is held."""
        return self._moved(point, held, None)

    def _moved(
        self, point: NDArray, before: Held | None, after: Held | None
    ) -> NDArray[np.float64]:
        """Return a whole point with roots in the order of another parameter that is held."""
        parts = [
            self._of_level(number, after).searched(L @ L.T)
            for number, L in enumerate(self._roots(point, before))
        ]
        return np.concatenate([point[: self.p], *parts, point[self._ends[-2] :]])

    def _free(self, held: Held | None, whole: NDArray, *, moved: bool = True) -> NDArray:
        """Return what is not held, of a whole point in the order of what is.

        `moved` is whether values are put on the scales on which they are searched.
        """
        lost = self._lost(held)
        if held is None or lost is None:
            return whole
        if moved and held.kind == "correlation":
            spreads = [np.abs(whole[lost - 1]), np.hypot(whole[lost], whole[lost + 1])]
            whole = whole.copy()
            whole[[lost - 1, lost + 1]] = np.sqrt(spreads)
        if moved and self._lost_of_mean(held) is not None:
            whole = whole.copy()
            whole[: self.p] -= self._expected(whole, lost)
        return np.delete(whole, lost)

    def _expected(self, whole: NDArray, lost: int) -> NDArray[np.float64]:
        """Return how others of the mean are expected to move with one that is held."""
        given = self.criterion
        return self._tangents[:, lost] * (whole[lost] - given.mean[lost] / given.units[lost])

    def _whole(self, held: Held | None, value: float, at: NDArray) -> tuple[NDArray, NDArray]:
        """Return all parameters, with the derivatives in those that are not held."""
        lost, given, ends = self._lost(held), self.criterion, self._ends
        if held is None or lost is None:
            return at, np.eye(len(at))
        point, turn = np.insert(at, lost, 0.0), np.delete(np.eye(len(at) + 1), lost, axis=1)
        if held.kind == "mean":
            point[lost] = value / given.units[lost]
            point[: self.p] += self._expected(point, lost)
        elif held.kind == "spread":
            point[lost] = value / self._of_level(held.level, held).turn[0, 0]
        elif held.kind == "correlation":
            both = np.array([value, np.sqrt(1 - value**2)])
            turn[lost - 1, lost - 1] = 2 * at[lost - 1]
            turn[lost : lost + 2, lost] = 2 * both * at[lost]
            point[lost - 1], point[lost : lost + 2] = at[lost - 1] ** 2, both * at[lost] ** 2
        elif given.classes:  # the intercept is what the threshold leaves
            shapes = point[ends[-2] :]
            threshold = given.shape_at(held.first, np.zeros(self.p), shapes)
            point[0] = (threshold - value) / given.units[0]
            slopes = given.turn_of_shapes(shapes)
            if held.first and slopes is not None:
                turn[0, ends[-2] - 1 :] = slopes[held.first - 1] / given.units[0]
            point[: self.p] += self._expected(point, 0)
            turn[: self.p] += np.outer(self._tangents[:, 0], turn[0])
        else:
            point[lost] = given.searched_shape(value)
        return point, turn

    # Deviance ---------------------------------------------------------------------------------

    def _at(
        self, held: Held | None, value: float, at: NDArray
    ) -> tuple[float, NDArray, NDArray | None]:
        """Return the deviance with derivatives in the parameters that are not held."""
        given, ends, p = self.criterion, self._ends, self.p
        nothing = np.inf, np.zeros(len(at)), None
        point, turn = self._whole(held, value, at)
        if not np.isfinite(point).all():
            return nothing
        searched = [self._of_level(number, held) for number in range(len(given.levels))]
        alone = (held.first, value) if held is not None and held.kind == "mean" and not p else None
        mean, shapes = point[:p] * given.units, point[ends[-2] :]
        try:
            entries = [each.entries for each in searched]
            asked = Point(mean, self._roots(point, held), shapes, entries, alone)
            deviance, slope, second = given.at(asked)
        except np.linalg.LinAlgError:  # a step so long that digits are lost: a shorter one is tried
            return nothing
        bend = 0.0 if second is None else second
        if not (np.isfinite(deviance) and np.isfinite(slope).all() and np.isfinite(bend).all()):
            return nothing
        turns = [np.diag(given.units), *(each.derivatives for each in searched)]
        whole = block_diag(*turns, np.eye(len(shapes)))
        slope = whole.T @ slope
        if second is not None:
            second = (whole @ turn).T @ second @ (whole @ turn)
            if held is not None and held.kind == "correlation":  # of the squares
                lost = self._lost(held)
                assert lost is not None
                both = np.array([value, np.sqrt(1 - value**2)])
                second[lost - 1, lost - 1] += 2 * slope[lost - 1]
                second[lost, lost] += 2 * both @ slope[lost : lost + 2]
        return deviance, turn.T @ slope, second


def profile_end(
    excess: Callable[[float], float], centre: float, limit: float, step: float
) -> float:
    """Return where a function of a parameter crosses zero; the limit if nowhere.

    Parameters
    ----------
    excess : callable
        Negative at the centre, and rising away from it.
    centre, limit : float
        Where the search begins, and the bound of the parameter on the side of the end.
    step : float
        First step.

    Examples
    --------
    >>> round(profile_end(lambda x: x**2 - 2, 0.0, np.inf, 0.5), 4)
    1.4142
    >>> profile_end(lambda x: -1.0, 0.3, 0.0, 0.1)
    0.0
    """
    from scipy.optimize import brentq

    sign = 1.0 if limit > centre else -1.0
    if centre == limit or not np.isfinite(centre):
        return centre
    known = cache(excess)  # the root is sought from ends that the steps have seen
    if np.isfinite(limit) and known(limit) < 0:
        return limit
    inner = centre
    for _ in range(STEPS):
        outer = inner + sign * step
        if sign * (outer - limit) >= 0:
            outer = limit
        while np.isinf(known(outer)) and abs(outer - inner) > PRECISE * step:
            outer = (inner + outer) / 2  # at a limit where there is no likelihood
        if known(outer) >= 0:
            if known(inner) >= 0:  # the search at the centre found less than the smallest deviance
                return inner
            width = abs(outer - inner)
            return float(brentq(known, inner, outer, xtol=PRECISE * width, rtol=PRECISE))
        inner, step = outer, step * GROWTH
    return sign * np.inf


def followed_end(
    least: Callable[[float, NDArray | None], tuple[float, NDArray]],
    restarts: Callable[[float, NDArray], list[NDArray]],
    excess: Callable[[float], float],
    centre: float,
    limit: float,
    step: float,
) -> float:
    """Return where a profile crosses zero, of minima that are followed along a parameter.

    Where another minimum is lower at the end that was found, the end is sought from there.

    Parameters
    ----------
    least : callable
        Of a value and where to begin: the smallest deviance, and where it is.
    restarts : callable
        Of a value and a minimum: where others may be sought from.
    excess : callable
        Of a deviance: what is to be zero.
    centre, limit, step : float
        As in `profile_end`.
    """
    seen: dict[float, tuple[float, NDArray]] = {}

    def height(value: float) -> float:
        if value not in seen:
            near = min((x for x in seen if x != limit), key=lambda x: abs(x - value), default=None)
            seen[value] = least(value, None if near is None else seen[near][1])
        return excess(seen[value][0])

    end = centre
    for _ in range(MOST_MINIMA):
        end = profile_end(height, end, limit, step)
        if end == limit or not np.isfinite(end):
            break
        height(end)
        tried = [least(end, at) for at in restarts(end, seen[end][1])]
        lowest = min([seen[end], *tried], key=lambda each: each[0])
        if not excess(lowest[0]) < -SAME:
            break
        seen.clear()
        seen[end] = lowest
    return end
