"""Intervals of linear mixed models by the profile of their likelihood, and by parametric bootstrap.

The deviance at a value v of one parameter is the smallest over all others. Its excess over the
smallest of all is the square of a statistic that is about standard normal, so that the interval is
where it is at most ``z**2`` (Bates and others 2015, section 5.1), as lme4's
``confint(method = "profile")`` has it: of the likelihood, not the restricted one.

Covariances are searched by a root L of each, ``G = L L'``. The coefficient whose spread is held at
v comes first in the order of L, where ``v = L_11``; of a correlation v, the first two rows are
``(a**2, 0)`` and ``s**2 (v, sqrt(1 - v**2))``, for one of opposite signs were that of -v. The
search has no bounds then. Where one of the two spreads is zero, every correlation has the same
deviance, which bounds its profile. The slope of the deviance in G is from sums over groups
(`ebfed.inference.sums`), and no matrix has a row for each row.

The bootstrap draws factors of rows from the fit rather than rows: the projections of responses on
the columns of a group are normal, and what is left of them is ``noise`` times a chi-squared number
(Cochran's theorem).

References
----------
Bates, Maechler, Bolker, Walker (2015), Fitting linear mixed-effects models using lme4, J. Stat.
Softw. 67.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.sums import LinearMixedFit, entries_of_terms, root_of_terms

__all__ = ["Held", "MixedDeviance", "drawn", "followed_end", "profile_end"]

# Steps from an estimate, in its own size, by which an end is sought; they grow by GROWTH.
FIRST, GROWTH, STEPS = 0.25, 1.8, 40
# Share of the last step to which an end is found, and the slope at which a search is done.
PRECISE, FLAT = 1e-6, 1e-5
# Least entry of a root from which a search starts, in its own size.
AWAY = 0.05
# A correlation of 1 in the search.
NEARLY_ONE = 1 - 1e-10
# Bounds of what is sought, of the noise those of its logarithm.
LIMITS = {
    "mean": (-np.inf, np.inf),
    "spread": (0.0, np.inf),
    "correlation": (-NEARLY_ONE, NEARLY_ONE),
    "noise": (-np.inf, np.inf),
}
# By how much less a deviance is another minimum, not rounding of the search.
LOWER = 1e-6
# By how much less it has to be for ends to be sought again: they move by 1e-4 of their distance.
SETTLED = 2e-4
# Square roots of deviances that are the same, and minima between which an end may lie.
SAME, MOST_MINIMA = 1e-4, 6
# Sizes of a coefficient's spread from which minima are sought, and groups with which these are few.
OTHER_SIZES, FEW = (0.25, 4.0), 60


@dataclass(frozen=True)
class Held:
    """A parameter that is held at a value.

    Attributes
    ----------
    kind : {"mean", "spread", "correlation", "noise", "shape"}
        ``"noise"`` is the standard deviation of rows, and ``"shape"`` a parameter of their family.
    level : int
        Level of the groups, from the top.
    first, second : int
        Place of a coefficient: among all of the mean, or among those that differ in the level.
    """

    kind: str
    level: int = 0
    first: int = 0
    second: int = 0


class MixedDeviance:
    """The deviance of a linear mixed model as a function of roots of covariances, and noise.

    Parameters
    ----------
    fit : LinearMixedFit
        The rows, and parameters where the search begins.
    restricted : bool
        Whether it is that of the restricted likelihood.
    """

    def __init__(self, fit: LinearMixedFit, *, restricted: bool = False):
        self.fit, self.restricted = fit, restricted
        self._bend: dict[Held | None, NDArray] = {}
        self._without: dict[tuple[int, int], float] = {}
        self._searched = False
        self._lowest: tuple[float, NDArray[np.float64]] | None = None
        X = fit.rows[:, :, :-1]
        inside = np.einsum("nrp,nrp->p", X, X) / len(X)
        typical = np.sqrt(fit.noise / np.where(inside > 0, inside, np.inf))
        self.sizes = [
            np.maximum(np.sqrt(np.diag(G)), typical[each])
            for G, each in zip(fit.covariances, fit.places, strict=True)
        ]

    # Search -----------------------------------------------------------------------------------

    def least(
        self, held: Held | None = None, value: float = 0.0, start: NDArray | None = None
    ) -> tuple[float, NDArray[np.float64]]:
        """Return the smallest deviance with a parameter at a value, and where it is.

        Parameters
        ----------
        held : Held, optional
            None: nothing is held.
        value : float
        start : ndarray, optional
            Where to begin, as this function returned it for the same parameter.
        """
        from scipy.optimize import minimize

        begin = self._start(held) if start is None else self._off_zero(start, held)
        if not len(begin):
            return self._at(begin, held, value)[0], begin
        # searches at values nearby bend alike
        options = {"gtol": FLAT, "maxiter": 500, "hess_inv0": self._bend.get(held)}
        found = minimize(self._at, begin, (held, value), "BFGS", jac=True, options=options)
        bend = (found.hess_inv + found.hess_inv.T) / 2
        if np.isfinite(bend).all() and np.linalg.eigvalsh(bend)[0] > 0:
            self._bend[held] = bend
        return float(found.fun), found.x

    def interval(self, held: Held, z: float) -> tuple[float, float, float]:
        """Return the value of a parameter at the smallest deviance, and the ends of its interval.

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
            lowest = self.best
            centre = self.value(held, self._roots(lowest[1], None, 0.0))
            low, high = (self._end(held, centre, limit, z) for limit in LIMITS[held.kind])
            if lowest[0] - self.best[0] <= SETTLED:
                return centre, low, high

    def estimates(self, every: list[Held]) -> NDArray[np.float64]:
        """Return parameters at the smallest deviance."""
        roots = self._roots(self.best[1], None, 0.0)
        return np.array([self.value(held, roots) for held in every])

    @property
    def best(self) -> tuple[float, NDArray[np.float64]]:
        """The smallest deviance that was found so far, and where it is."""
        if self._lowest is None:
            self._lowest = self.least()
        return self._lowest

    def profile(
        self, held: Held, value: float, start: NDArray | None = None
    ) -> tuple[float, NDArray[np.float64]]:
        """Return what `least` does, and of a correlation also what it is if a spread is zero.

        Where that is less than the smallest deviance so far, this is searched for again from there.
        """
        begin = self._start(held, self.best[1]) if start is None else start
        deviance, found = self.least(held, value, begin)
        if deviance < self.best[0] - LOWER:
            roots = self._roots(found, held, value)
            again = self.least(None, 0.0, self._start(None, roots=roots))
            self._lowest = min(again, self.best, key=lambda each: each[0])
        if held.kind == "correlation":
            for place in (held.first, held.second):
                key = held.level, place
                if key not in self._without:
                    none = Held("spread", held.level, place)
                    self._without[key] = self.least(none, 0.0, self._start(none, self.best[1]))[0]
                deviance = min(deviance, self._without[key])
        return deviance, found

    def _end(self, held: Held, centre: float, limit: float, z: float) -> float:
        """Return where the deviance exceeds the smallest by ``z**2``; the limit if nowhere."""
        of = np.exp if held.kind == "noise" else float  # its deviance is even in the logarithm
        end = followed_end(
            lambda value, at: self.profile(held, float(of(value)), at),
            lambda value, at: self._restarts(held, float(of(value)), at),
            lambda deviance: float(np.sqrt(max(deviance - self.best[0], 0.0))) - z,
            float(np.log(centre)) if held.kind == "noise" else centre,
            limit,
            FIRST if held.kind == "noise" else FIRST * self._scale(held, centre),
        )
        if held.kind == "noise":
            return float(np.exp(end))
        return 1.0 * round(end) if held.kind == "correlation" and end == limit else end

    def _restarts(self, held: Held | None, value: float, at: NDArray) -> list[NDArray[np.float64]]:
        """Return starts at which one coefficient has another size, or correlations of other signs.

        With many groups the deviance has one minimum.
        """
        roots, noise = self._roots(at, held, value)
        turns = OTHER_SIZES + ((-1.0,) if self.fit.kind == "full" else ())
        starts = []
        for level, L in enumerate(roots):
            for j in range(len(L) if len(self.fit.n) <= FEW else 0):
                for turn in turns:
                    turned = L.copy()
                    turned[j] *= turn
                    others = [*roots[:level], turned, *roots[level + 1 :]]
                    starts.append(self._start(held, roots=(others, noise)))
        return starts

    def _scale(self, held: Held, centre: float) -> float:
        """Return a typical error of a parameter."""
        if held.kind == "mean":
            return 4 * float(np.sqrt(self.fit.mean_covariance[held.first, held.first]))
        if held.kind == "correlation":
            return 1.0
        return max(centre, float(self.sizes[held.level][held.first]))

    # Parameters -------------------------------------------------------------------------------

    def value(self, held: Held, roots: tuple[list[NDArray], float]) -> float:
        """Return the value of a parameter where roots and noise are these."""
        covariances = [L @ L.T for L in roots[0]]
        if held.kind == "noise":
            return float(np.sqrt(roots[1]))
        if held.kind == "mean":
            sums = self.fit.sums(covariances, roots[1])
            B = self.fit.basis[0]
            own = np.linalg.solve(sums.inner[:-1, :-1], sums.inner[:-1, -1])
            return float((self.fit.mean + B @ own)[held.first])
        G = covariances[held.level]
        j, k = held.first, held.second
        if held.kind == "spread":
            return float(np.sqrt(G[j, j]))
        both = np.sqrt(G[j, j] * G[k, k])
        return float(G[j, k] / both) if both > 0 else np.nan

    def _start(
        self,
        held: Held | None,
        best: NDArray | None = None,
        roots: tuple[list[NDArray], float] | None = None,
    ) -> NDArray[np.float64]:
        """Return where to begin: the parameters of the fit, of the smallest deviance, or these."""
        if best is not None:
            roots = self._roots(best, None, 0.0)
        if roots is None:
            noise = self.fit.noise
            covariances = [
                G + np.diag((0.1 * size) ** 2 * (np.diag(G) <= (0.01 * size) ** 2))
                for G, size in zip(self.fit.covariances, self.sizes, strict=True)
            ]
        else:
            noise = roots[1]
            covariances = [
                L @ L.T + np.diag((1e-3 * size) ** 2)
                for L, size in zip(roots[0], self.sizes, strict=True)
            ]
        parts: list[NDArray] = []
        for level, (G, size) in enumerate(zip(covariances, self.sizes, strict=True)):
            order = self._order(held, level)
            scaled = (G / np.outer(size, size))[np.ix_(order, order)]
            if not len(scaled):
                continue
            if self.fit.kind == "spherical":
                entries = np.sqrt(np.mean(np.diag(G))) / np.mean(size) * np.ones(1)
            elif self.fit.kind == "diag":
                entries = np.sqrt(np.diag(scaled))
            else:
                terms = self.fit.terms[level][order]
                entries = root_of_terms(scaled, terms)[entries_of_terms(terms)]
            parts.append(entries)
            if self._is(held, level, "spread"):
                parts[-1] = entries[1:]
            elif self._is(held, level, "correlation"):
                both = np.sqrt([entries[0], np.hypot(*entries[1:3])])
                parts[-1] = np.concatenate([both, entries[3:]])
        if held is None or held.kind != "noise":
            parts.append(np.array([np.log(noise / self.fit.noise)]))
        return np.concatenate([*parts, np.zeros(0)])

    def _off_zero(self, at: NDArray, held: Held | None) -> NDArray[np.float64]:
        """Move entries of roots away from zero, where the deviance has slope zero in them."""
        moved = np.where(np.abs(at) < AWAY, np.copysign(AWAY, at), at)
        if held is None or held.kind != "noise":
            moved[-1] = at[-1]  # the logarithm of the noise
        return moved

    @staticmethod
    def _is(held: Held | None, level: int, kind: str) -> bool:
        return held is not None and held.kind == kind and held.level == level

    def _order(self, held: Held | None, level: int) -> list[int]:
        """Return the order of coefficients in a root: those that are held first."""
        places = list(range(len(self.sizes[level])))
        moved = held is not None and held.kind in ("spread", "correlation") and held.level == level
        if held is None or not moved or self.fit.kind == "spherical":
            return places
        first = [held.first] + ([held.second] if held.kind == "correlation" else [])
        return first + [each for each in places if each not in first]

    def _roots(self, at: NDArray, held: Held | None, value: float) -> tuple[list[NDArray], float]:
        """Return the root of each covariance, and the variance of the noise."""
        roots, used = [], 0
        for level, size in enumerate(self.sizes):
            L, count = self._root(at[used:], held, value, level)
            order = self._order(held, level)
            back = np.zeros_like(L)
            back[order] = L
            roots.append(size[:, None] * back if self.fit.kind != "spherical" else back)
            used += count
        if self._is(held, 0, "noise"):
            return roots, value**2
        return roots, self.fit.noise * float(np.exp(np.clip(at[used], -60, 60)))

    def _root(
        self, at: NDArray, held: Held | None, value: float, level: int
    ) -> tuple[NDArray, int]:
        """Return the root of the scaled covariance of a level, in its order, and what it used."""
        size = self.sizes[level]
        q, kind = len(size), self.fit.kind
        if not q:
            return np.zeros((0, 0)), 0
        spread, correlation = (self._is(held, level, each) for each in ("spread", "correlation"))
        if kind == "spherical":
            root = value if spread else float(at[0]) * float(np.mean(size))
            return root * np.eye(q), 0 if spread else 1
        fixed = np.array([value / size[held.first]]) if spread and held is not None else np.zeros(0)
        if kind == "diag":
            count = q - len(fixed)
            return np.diag(np.concatenate([fixed, at[:count]])), count
        order = self._order(held, level)
        L, low = np.zeros((q, q)), entries_of_terms(self.fit.terms[level][order])
        if correlation:
            count = len(low[0]) - 1
            second = at[1] ** 2 * np.array([value, np.sqrt(1 - value**2)])
            L[low] = np.concatenate([at[:1] ** 2, second, at[2:count]])
            return L, count
        count = len(low[0]) - len(fixed)
        L[low] = np.concatenate([fixed, at[:count]])
        return L, count

    # Deviance ---------------------------------------------------------------------------------

    def _at(
        self, at: NDArray, held: Held | None, value: float
    ) -> tuple[float, NDArray[np.float64]]:
        """Return the deviance, but for a constant, and its slope."""
        fit = self.fit
        roots, noise = self._roots(at, held, value)
        try:
            sums = fit.sums([L @ L.T for L in roots], noise)
            inner, cross, square = sums.inner[:-1, :-1], sums.inner[:-1, -1], sums.inner[-1, -1]
            own, inverse = np.linalg.solve(inner, cross), np.linalg.inv(inner)
        except np.linalg.LinAlgError:  # a step so long that digits are lost: a shorter one is tried
            return np.inf, np.zeros(len(at))
        deviance = float(sums.log_det + square - cross @ own)
        if not np.isfinite(deviance):
            return np.inf, np.zeros(len(at))
        if held is not None and held.kind == "mean":
            along = fit.basis[0][held.first]
            variance = float(along @ inverse @ along)
            beyond = float(fit.mean[held.first] + along @ own - value)
            deviance += beyond**2 / variance
            own = own - inverse @ along * beyond / variance
        residual = np.append(-own, 1.0)
        slopes = sums.trace - np.einsum("i,aij,j->a", residual, sums.first, residual)
        if self.restricted:
            deviance += float(np.linalg.slogdet(inner)[1])
            slopes = slopes - np.einsum("ij,aji->a", inverse, sums.first[:, :-1, :-1])
        return deviance, self._chained(slopes, roots, noise, held, value, at)

    def _chained(
        self,
        slopes: NDArray,
        roots: list[NDArray],
        noise: float,
        held: Held | None,
        value: float,
        at: NDArray,
    ) -> NDArray[np.float64]:
        """Return the slope in what is searched, of that in the entries of covariances."""
        fit, parts = self.fit, []
        for level, (L, own, bases) in enumerate(zip(roots, fit.own, fit.bases, strict=True)):
            if not len(L):
                continue
            size, order = self.sizes[level], self._order(held, level)
            spread = self._is(held, level, "spread")
            if fit.kind == "spherical":
                along = 2 * slopes[own] * L[0, 0] * np.mean(size)
                parts.append(along[1:] if spread else along)
                continue
            # of a symmetric matrix: an entry off the diagonal has half of the slope
            halves = np.tensordot(slopes[own], bases * (1 + np.eye(len(L))) / 2, 1)
            by_root = (size[:, None] * (2 * halves @ L))[order]
            low = entries_of_terms(fit.terms[level][order])
            along = np.diag(by_root) if fit.kind == "diag" else by_root[low]
            if self._is(held, level, "correlation"):
                second = along[1] * value + along[2] * np.sqrt(1 - value**2)
                used = sum(map(len, parts))
                both = 2 * at[used : used + 2] * np.array([along[0], second])
                along = np.concatenate([both, along[3:]])
            parts.append(along[1:] if spread else along)
        if not self._is(held, 0, "noise"):
            parts.append(slopes[-1:] * noise)
        return np.concatenate([*parts, np.zeros(0)])


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


def drawn(fit: LinearMixedFit, rng: np.random.Generator) -> Callable[[], LinearMixedFit]:
    """Return a function that draws the responses of all groups from a fit.

    Parameters
    ----------
    fit : LinearMixedFit
    rng : Generator

    Returns
    -------
    callable
        Without arguments; returns a `LinearMixedFit` with other responses.
    """
    m, _, width = fit.rows.shape
    p = width - 1
    upper = np.asarray(np.linalg.qr(fit.rows[:, :, :-1], mode="r"))
    r = upper.shape[1]
    # directions of a group's columns that its rows do have
    rank = np.linalg.matrix_rank(upper)
    left, inside = np.maximum(fit.n - rank, 0), np.arange(r) < rank[:, None]
    _, s, Vt = np.linalg.svd(upper, full_matrices=False)
    X = s[:, :, None] * Vt
    values = [np.linalg.eigh(G) for G in fit.covariances]
    halves = [vectors * np.sqrt(np.maximum(x, 0)) for x, vectors in values]

    def draw() -> LinearMixedFit:
        coefficients = np.zeros((1, p))
        for owner, places, half in zip(fit.owners, fit.places, halves, strict=True):
            coefficients = coefficients[owner]
            coefficients[:, places] += rng.normal(size=(len(owner), len(places))) @ half.T
        coefficients = coefficients + fit.mean
        noise = np.sqrt(fit.noise)
        z = np.einsum("nrp,np->nr", X, coefficients) + noise * rng.normal(size=(m, r)) * inside
        rest = noise * np.sqrt(rng.chisquare(np.maximum(left, 1)) * (left > 0))
        rows = np.zeros((m, r + 1, p + 1))
        rows[:, :r, :p], rows[:, :r, p], rows[:, r, p] = X, z, rest
        return replace(fit, rows=rows)

    return draw
