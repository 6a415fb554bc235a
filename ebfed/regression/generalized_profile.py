"""The profile of the likelihood of a generalized linear model.

The log-likelihood at a value v of one parameter is the largest over all others. Twice what it is
below the largest of all is the square of a statistic that is about standard normal, so that the
interval is where that is at most ``z**2``, as lme4's ``confint(method = "profile")`` has it.

Parameters are the mean, entries of a root L of each covariance, and shapes of the family. The
coefficient whose spread is held at v comes first in the order of L, where ``v = L_11``; of a
correlation v, the first two rows are ``(a**2, 0)`` and ``s**2 (v, sqrt(1 - v**2))``, for one of
opposite signs were that of -v. Newton's method climbs in the others. Where one of the two spreads
is zero, every correlation has the same likelihood, which bounds its profile.

The other coefficients of the mean are relative to what is expected of them at a value of one that
is held, and steps are as long as what they change in the rows. Where the likelihood of no row falls
as a coefficient grows, the end of its interval is infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from ebfed.inference.profiles import (
    FEW,
    LOWER,
    OTHER_SIZES,
    SETTLED,
    Held,
    followed_end,
)
from ebfed.inference.sums import root_of_terms
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.numerics.quadrature_population import (
    HIGH,
    entries_of,
    square_of,
    turn_of,
)
from ebfed.regression.numerics.trust_region import climb, uncertainty
from ebfed.regression.posteriors import quadrature
from ebfed.regression.separation import bounds_of, unlimited_forms

__all__ = ["GeneralizedProfile"]

# Gain of log-likelihood at which a search is done, and what changes of rules may lose.
ENOUGH, NOISE, MOST_STEPS = 1e-9, 1e-6, 100
# Steps in succession without a gain: values and slopes differ by errors of the quadrature. Fewer
# where no gain is expected but what that is.
MOST_VAIN, FEW_VAIN = 8, 2
# Longest steps, where columns have unit size.
FIRST_RADIUS, RADIUS = 2.0, 16.0
# Share of the largest eigenvalue of columns of unit size that is rounding.
FLAT = 1e-13
# A dispersion that is none: negative binomial counts are Poisson ones.
POISSON = 1e-12
# First steps from an estimate: of a spread or shape, in its own size.
STEP, LEAST, LEAST_SHAPE = 0.4, 0.2, 1e-3
# A correlation of 1 in the search.
NEARLY_ONE = 1 - 1e-8
# Rounding of the log-likelihood beyond which no maximum can be found.
DIGITS = 1e-6


class GeneralizedProfile:
    """The log-likelihood of a generalized linear model, with one parameter held.

    Parameters
    ----------
    fit : GeneralizedEB or LogisticEB
        The rows, and parameters where the search begins.
    """

    def __init__(self, fit: RegressionEstimator):
        result, clients = fit._result, fit.clients_
        rounds: Any = fit.protocol()
        population: Any = fit._population()
        self.fit, self.clients = fit, clients
        self.fixed = fit._of_mean
        self.responses, self.family = population.responses(clients), rounds.family
        self.shapes: NDArray = result["shapes"]
        self.mode: NDArray | None = None
        self._searched = False
        self._highest: tuple[float, NDArray[np.float64]] | None = None
        self._without: dict[Held, float] = {}
        self._base_of = lambda shapes: rounds._base(clients, self.responses, shapes)
        square = np.mean(clients.X**2, axis=0)
        self.shared = fit.covariance == "spherical"
        if self.shared:
            square = np.full(len(square), square.mean())
        self.unit = 1 / np.sqrt(np.where(square > 0, square, 1.0))
        self.products = (clients.X * self.unit).T @ (clients.X * self.unit) / max(len(clients.X), 1)
        self._ways: dict[int | None, NDArray] = {}
        # coefficients that differ in each level, as `tidy` has them and as the fit had them
        self.named = fit._columns().places_of_levels()
        self.blocks = fit._columns().blocks_of_levels(fit.covariance)
        self.places = [
            places[square[places] > 0] if fit.covariance == "diag" else places
            for places in self.named
        ]
        self.places = [
            places if size else places[:0]
            for places, size in zip(self.places, result["sizes"], strict=True)
        ]
        self.covariances = [*result.get("above", ()), result["covariance"]]
        self.null = result["null"] / self.unit[:, None]
        covariance = result["mean_covariance"] / np.outer(self.unit, self.unit)
        self.errors = np.sqrt(np.diag(result["mean_covariance"]))
        self.origin = fit.mean_ / self.unit
        # how the others move with each coefficient that is held, a column for each
        variance = np.diag(covariance)
        self.tangents = covariance / np.where(variance > 0, variance, np.inf)
        np.fill_diagonal(self.tangents, 0.0)

    def every(self) -> list[Held | None]:
        """Parameters in the order of `tidy`; None for those that are not identified."""
        found: list[Held | None] = [Held("mean", first=j) for j in self.fixed.tolist()]
        for level, (named, used) in enumerate(zip(self.named, self.places, strict=True)):
            place = {int(each): j for j, each in enumerate(used)}
            found += [
                Held("spread", level, place[j]) if j in place else None for j in named.tolist()
            ]
            for a, j in enumerate(named.tolist() if not self.shared else []):
                found += [
                    Held("correlation", level, place[k], place[j]) if k in place else None
                    for k in named[:a][self.blocks[level, named[:a]] == self.blocks[level, j]]
                ]
        shapes = len(self.family.parameters(self.fit.mean_, self.shapes, self._no_errors))
        return [*found, *(Held("shape", first=j) for j in range(shapes))]

    @property
    def _no_errors(self) -> NDArray[np.float64]:
        return np.zeros((len(self.unit) + len(self.shapes),) * 2)

    def interval(self, held: Held, z: float) -> tuple[float, float]:
        """Return the ends of the interval of a parameter.

        Parameters
        ----------
        held : Held
        z : float
            Quantile of the standard normal distribution.
        """
        if not self._searched:  # the likelihood may have another maximum
            begun = self.best[1]
            tried = [self.highest(None, 0.0, at) for at in self._restarts(None, 0.0, begun)]
            self._highest = max([self.best, *tried], key=lambda each: each[0])
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
        """Return where twice the log-likelihood is ``z**2`` below the largest, or the limit."""
        if (
            held.kind in ("mean", "shape")
            and self._unlimited[held.kind][held.first, int(limit > 0)]
        ):
            return limit
        of_spread = held.kind == "spread" and limit > 0  # beyond the limit it is that at the limit
        end = followed_end(
            lambda value, at: self.profile(held, min(value, limit) if of_spread else value, at),
            lambda value, at: self._restarts(held, value, at),
            lambda deviance: float(np.sqrt(max(deviance + 2 * self.best[0], 0.0))) - z,
            centre,
            np.inf if of_spread else limit,
            step,
        )
        return float(np.sign(limit)) if held.kind == "correlation" and end == limit else end

    @cached_property
    def _unlimited(self) -> dict[str, NDArray[np.bool_]]:
        """Whether the log-likelihood of no row falls as a coefficient or threshold grows."""
        p, t = len(self.unit), len(self.shapes)
        found = np.zeros((p + t + 1, 2), bool)
        X = np.where(np.isin(np.arange(p), self.fixed), self.clients.X, 0.0)
        bounds = bounds_of(self.family, X, self.responses)
        if bounds is not None:
            bounds = np.pad(bounds, ((0, 0), (0, p + t - bounds.shape[1])))
            forms = np.insert(np.eye(p + t), p, 0.0, axis=0)
            forms[p:, 0] -= 1.0  # thresholds, the first of which is zero, less the intercept
            used = p + t + 1 if self.family.classes else p
            found[:used] = unlimited_forms(bounds, forms[:used])
        return {"mean": found[:p], "shape": found[p:]}

    def profile(
        self, held: Held, value: float, start: NDArray | None = None
    ) -> tuple[float, NDArray]:
        """Return the deviance of `highest`, of a correlation also that where a spread is zero.

        Where the likelihood is more than the largest so far, this is searched for again from there.
        """
        begin = self._inside(held, self.best[1]) if start is None else start
        found, at = self.highest(held, value, begin)
        if found > self.best[0] + LOWER:
            again = self.highest(None, 0.0, self._of_fit(held, self._whole(held, value, at)[0]))
            self._highest = max(again, self.best, key=lambda each: each[0])
        if held.kind == "correlation":
            for place in (held.first, held.second):
                none = Held("spread", held.level, place)
                if none not in self._without:
                    begin = self._inside(none, self.best[1])
                    self._without[none] = self.highest(none, 0.0, begin)[0]
                found = max(found, self._without[none])
        return -2 * found, at

    def _restarts(self, held: Held | None, value: float, at: NDArray) -> list[NDArray[np.float64]]:
        """Return starts at which one coefficient has another size, or correlations of other signs.

        With many groups the likelihood has one maximum.
        """
        if len(self.clients) > FEW:
            return []
        point, ends = self._whole(held, value, at)[0], self._ends
        starts = [] if held is None else [self._inside(held, self.best[1])]
        for level, places in enumerate(self.places):
            part = slice(ends[level], ends[level + 1])
            blocks = self.blocks[level, self._order(held, level)]
            if self.shared:
                turned = [point[part] * turn for turn in OTHER_SIZES if len(places)]
            else:
                low = entries_of(blocks)
                L, turned = np.zeros((len(places),) * 2), []
                L[low] = point[part]
                for j in range(len(places)):
                    alone = (blocks == blocks[j]).sum() == 1
                    for turn in OTHER_SIZES if alone else (*OTHER_SIZES, -1.0):
                        T = L * np.where(np.arange(len(L)) == j, turn, 1.0)[:, None]
                        turned.append(root_of_terms(T @ T.T, blocks)[low])
            for own in turned:
                starts.append(
                    self._free(held, np.concatenate([point[: part.start], own, point[part.stop :]]))
                )
        return starts

    def _of_fit(self, held: Held, point: NDArray) -> NDArray[np.float64]:
        """Return a whole point in the order of the fit, from that of what is held."""
        ends = self._ends
        roots = [
            self._root_of(level, self._covariance_at(point, level, held))
            for level in range(len(self.places))
        ]
        return np.concatenate([point[: ends[0]], *roots, point[ends[-2] :]])

    def highest(self, held: Held | None, value: float, start: NDArray) -> tuple[float, NDArray]:
        """Return the largest log-likelihood with a parameter at a value, and where it is.

        Parameters
        ----------
        held : Held or None
        value : float
        start : ndarray
            Parameters that are not held, where to begin.
        """
        best, at, radius, gain = -np.inf, start, FIRST_RADIUS, np.inf
        step = np.zeros(len(start))
        point, slope, second = start, np.zeros(len(start)), np.zeros((len(start),) * 2)
        turn, top, vain = self._even(held, len(start)), (-np.inf, start), 0
        for _ in range(MOST_STEPS):
            found, score, curvature = self._at(held, value, at)
            rise = found - best
            vain = 0 if found > top[0] + ENOUGH else vain + 1
            top = max(top, (found, at), key=lambda each: each[0])
            if not rise > -NOISE:
                radius = min(radius, float(np.linalg.norm(step))) / 4
            else:
                if rise > 0.75 * gain or gain < NOISE:
                    radius = min(2 * radius, RADIUS)
                elif rise < 0.25 * gain:
                    radius = radius / 4
                best, point, slope, second = found, at, score, curvature
            step, gain = climb(turn.T @ slope, turn.T @ second @ turn, radius)
            if (
                gain <= ENOUGH
                or radius < ENOUGH
                or vain >= (FEW_VAIN if gain < NOISE else MOST_VAIN)
            ):
                break
            at = point + turn @ step
        return top

    def _even(self, held: Held | None, size: int) -> NDArray[np.float64]:
        """Return directions in which parameters that are not held matter alike to the rows."""
        lost = self._lost_of_mean(held)
        kept = np.delete(np.arange(len(self.unit)), [] if lost is None else lost)
        own = np.flatnonzero(np.isin(kept, self.fixed))
        if lost not in self._ways:
            values, vectors = np.linalg.eigh(self.products[np.ix_(kept[own], kept[own])])
            known = values > FLAT * values.max(initial=0.0)
            self._ways[lost] = vectors / np.sqrt(np.where(known, values, 1.0))
        turn = np.eye(size)[:, np.concatenate([own, np.arange(len(kept), size)])]
        turn[own[:, None], np.arange(len(own))] = self._ways[lost]
        return turn

    def _lost_of_mean(self, held: Held | None) -> int | None:
        """Return the coefficient of the mean that is no parameter if this is held."""
        if held is None or held.kind not in ("mean", "shape"):
            return None
        return held.first if held.kind == "mean" else 0 if self.family.classes else None

    @property
    def rounds_off(self) -> bool:
        """Whether the log-likelihood is a difference of numbers too large for its digits.

        Whole numbers always scatter.
        """
        size = float(np.linalg.norm(self._base(self.shapes)[0]))
        return not self.family.whole and size * float(np.finfo(float).eps) > DIGITS

    def settled(self, since: float) -> bool:
        """Whether the largest log-likelihood is so near to an earlier one that ends stay."""
        return 2 * (self.best[0] - since) <= SETTLED

    @property
    def best(self) -> tuple[float, NDArray[np.float64]]:
        """Largest log-likelihood so far, and the whole point in the order of the fit."""
        if self._highest is None:
            roots = [self._root_of(level, G) for level, G in enumerate(self.covariances)]
            start = np.concatenate([self.fit.mean_ / self.unit, *roots, self.shapes])
            self._highest = self.highest(None, 0.0, start)
        return self._highest

    def covariance_given(self, mean: NDArray, covariances: Sequence[NDArray]) -> NDArray:
        """Sampling covariance of the mean if these were the covariances of the levels, (p, p).

        Parameters
        ----------
        mean : ndarray of shape (p,)
        covariances : sequence of ndarray of shape (p, p)
        """
        roots = [self._root_of(level, G) for level, G in enumerate(covariances)]
        point = np.concatenate([mean / self.unit, *roots, self.shapes])
        second, p = self._at(None, 0.0, point)[2], len(self.unit)
        kept = np.r_[:p, len(point) - len(self.shapes) : len(point)]
        turn = np.eye(len(kept))[:, np.concatenate([self.fixed, np.arange(p, len(kept))])]
        if self.null.shape[1]:  # along what rows identify, of which information is not rounding
            lost = np.pad(self.null, ((0, len(kept) - p), (0, 0)))
            turn = turn @ null_space(lost.T @ turn)
        known = turn @ uncertainty(turn.T @ second[np.ix_(kept, kept)] @ turn) @ turn.T
        return known[:p, :p] * np.outer(self.unit, self.unit)

    # Parameters -------------------------------------------------------------------------------

    def _sizes(self) -> list[int]:
        return [len(each) for each in self.places]

    def _root_of(self, level: int, G: NDArray, order: NDArray | None = None) -> NDArray[np.float64]:
        """Return the entries that are parameters of a root of a level's covariance."""
        places = self.places[level] if order is None else order
        if not len(places):
            return np.zeros(0)
        scaled = G[np.ix_(places, places)] / np.outer(self.unit[places], self.unit[places])
        if self.shared:
            return np.sqrt(np.mean(np.diag(scaled)) * np.ones(1))
        blocks = self.blocks[level, places]
        tiny = 1e-12 * max(float(np.trace(scaled)), 1e-6) * np.eye(len(places))
        return root_of_terms(scaled + tiny, blocks)[entries_of(blocks)]

    def _order(self, held: Held | None, level: int) -> NDArray[np.int64]:
        """Return the order of coefficients in a root: those that are held first."""
        places = self.places[level]
        if held is None or held.kind not in ("spread", "correlation") or held.level != level:
            return places
        first = [held.first] + ([held.second] if held.kind == "correlation" else [])
        return places[first + [j for j in range(len(places)) if j not in first]]

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Ends of the parameters of mean, root of each level, and shapes."""
        own = [len(self._root_of(j, G)) for j, G in enumerate(self.covariances)]
        return np.cumsum([len(self.unit), *own, len(self.shapes)])

    def _covariance_at(
        self, point: NDArray, level: int, held: Held | None = None
    ) -> NDArray[np.float64]:
        """Covariance of a level at a whole point in the order of the fit, or of this, (p, p)."""
        places, ends = self._order(held, level), self._ends
        own = point[ends[level] : ends[level + 1]]
        G = np.zeros((len(self.unit),) * 2)
        L, blocks = np.zeros((len(places),) * 2), self.blocks[level, places]
        L[entries_of(blocks, self.shared)] = turn_of(blocks, self.shared) @ own
        G[np.ix_(places, places)] = L @ L.T
        return G * np.outer(self.unit, self.unit)

    def _range(self, held: Held, best: NDArray) -> tuple[float, tuple[float, float], float]:
        """Return the value of a parameter at the maximum, its bounds, and a first step."""
        if held.kind == "mean":
            j = held.first
            step = float(self.errors[j]) or float(self.unit[j])
            return float(best[j] * self.unit[j]), (-np.inf, np.inf), step
        if held.kind == "shape":
            mean, shapes = best[: len(self.unit)] * self.unit, best[self._ends[-2] :]
            centre = self.family.parameters(mean, shapes, self._no_errors)[held.first][3]
            if self.family.classes:
                return centre, (-np.inf, np.inf), STEP
            return centre, (0.0, np.inf), STEP * max(centre, LEAST_SHAPE)
        G = self._covariance_at(best, held.level)
        places = self.places[held.level]
        j, k = places[held.first], places[held.second]
        if held.kind == "spread":
            centre, size = float(np.sqrt(G[j, j])), float(self.unit[j])
            return centre, (0.0, size * np.sqrt(HIGH)), STEP * max(centre, LEAST * size)
        both = float(np.sqrt(G[j, j] * G[k, k]))
        limits = -NEARLY_ONE, NEARLY_ONE
        return float(np.clip(G[j, k] / both, *limits)) if both > 0 else np.nan, limits, STEP

    def _inside(self, held: Held, best: NDArray) -> NDArray[np.float64]:
        """Return what is not held of the best parameters."""
        ends = self._ends
        parts = [
            self._root_of(level, self._covariance_at(best, level), self._order(held, level))
            for level in range(len(self.places))
        ]
        return self._free(held, np.concatenate([best[: ends[0]], *parts, best[ends[-2] :]]))

    def _free(self, held: Held | None, whole: NDArray) -> NDArray[np.float64]:
        """Return what is not held, of a whole point in the order of what is."""
        if held is None:
            return whole
        lost = self._lost(held)
        if held.kind == "correlation":
            spreads = [np.abs(whole[lost - 1]), np.hypot(whole[lost], whole[lost + 1])]
            whole = whole.copy()
            whole[[lost - 1, lost + 1]] = np.sqrt(spreads)
        if self._lost_of_mean(held) is not None:
            whole = whole.copy()
            whole[: len(self.unit)] -= self._expected(whole, lost)
        return np.delete(whole, lost)

    def _expected(self, whole: NDArray, lost: int) -> NDArray[np.float64]:
        """Return how others of the mean are expected to move with one that is held."""
        return self.tangents[:, lost] * (whole[lost] - self.origin[lost])

    def _lost(self, held: Held) -> int:
        """Return the place that is no parameter if this is held."""
        if held.kind == "mean":
            return held.first
        if held.kind == "shape":
            return 0 if self.family.classes else int(self._ends[-2]) + held.first
        return int(self._ends[held.level]) + (held.kind == "correlation")

    def _whole(self, held: Held | None, value: float, at: NDArray) -> tuple[NDArray, NDArray]:
        """Return all parameters, with the derivatives in those that are not held."""
        if held is None:
            return at, np.eye(len(at))
        lost = self._lost(held)
        point, turn = np.insert(at, lost, 0.0), np.delete(np.eye(len(at) + 1), lost, axis=1)
        ends = self._ends
        if held.kind == "mean":
            point[lost] = value / self.unit[lost]
            point[: len(self.unit)] += self._expected(point, lost)
        elif held.kind == "spread":
            point[lost] = value / self.unit[self.places[held.level][held.first]]
        elif held.kind == "correlation":
            both = np.array([value, np.sqrt(1 - value**2)])
            turn[lost - 1, lost - 1] = 2 * at[lost - 1]
            turn[lost : lost + 2, lost] = 2 * both * at[lost]
            point[lost - 1], point[lost : lost + 2] = at[lost - 1] ** 2, both * at[lost] ** 2
        elif self.family.classes:  # the intercept is what the threshold leaves
            shapes = point[ends[-2] :]
            nothing = np.zeros(len(self.unit))
            threshold = self.family.parameters(nothing, shapes, self._no_errors)[held.first][3]
            point[0] = (threshold - value) / self.unit[0]
            slopes = self.family.turn(shapes)
            if held.first and slopes is not None:
                turn[0, ends[-2] - 1 :] = slopes[held.first - 1] / self.unit[0]
            point[: len(self.unit)] += self._expected(point, 0)
            turn[: len(self.unit)] += np.outer(self.tangents[:, 0], turn[0])
        else:
            point[lost] = np.log(max(value, POISSON))
        return point, turn

    # Likelihood -------------------------------------------------------------------------------

    def _at(self, held: Held | None, value: float, at: NDArray) -> tuple[float, NDArray, NDArray]:
        """Return the log-likelihood with derivatives in the parameters that are not held."""
        point, turn = self._whole(held, value, at)
        nothing = -np.inf, np.zeros(len(at)), np.zeros((len(at),) * 2)
        if not np.isfinite(point).all():
            return nothing
        ends, sizes = self._ends, self._sizes()
        shapes, p = point[ends[-2] :], len(self.unit)
        orders = [self._order(held, level) for level in range(len(sizes))]
        places = np.concatenate(orders)
        owners = [self.blocks[level, own] + level * p for level, own in enumerate(orders)]
        blocks = np.concatenate(owners)
        entries, spread = entries_of(blocks, self.shared), turn_of(blocks, self.shared)
        root = np.zeros((sum(sizes),) * 2)
        root[entries] = spread @ point[ends[0] : ends[-2]]
        with np.errstate(over="ignore", invalid="ignore"):
            found = quadrature.derivatives(
                self.clients,
                self.responses,
                self.family,
                shapes,
                self._base(shapes),
                frame=np.diag(self.unit),
                mean=point[: ends[0]],
                root=root,
                places=places.astype(np.int64),
                sizes=sizes,
                entries=entries,
                accuracy="fine",
                start=self.mode,
                method=self.fit._result["method"],
            )
        evidence, score, curvature, mode = found
        if not (np.isfinite(evidence).all() and np.isfinite(curvature).all()):
            return nothing
        self.mode = mode
        t = len(shapes)
        whole = np.zeros((p + len(entries[0]) + t, len(point)))
        whole[:p, :p] = np.eye(p)
        whole[p : p + len(spread), p : ends[-2]] = spread
        whole[p + len(spread) :, ends[-2] :] = np.eye(t)
        slope = whole.T @ score.sum(axis=0)
        whole = whole @ turn
        second = whole.T @ square_of(curvature.sum(axis=0)) @ whole
        if held is not None and held.kind == "correlation":  # of the squares
            lost = self._lost(held)
            both = np.array([value, np.sqrt(1 - value**2)])
            second[lost - 1, lost - 1] += 2 * slope[lost - 1]
            second[lost, lost] += 2 * both @ slope[lost : lost + 2]
        return float(evidence.sum()), turn.T @ slope, second

    def _base(self, shapes: NDArray) -> quadrature.Base:
        """Return what log-likelihoods have besides their parts in predictors."""
        return self._base_of(shapes) if len(shapes) else self._constant

    @cached_property
    def _constant(self) -> quadrature.Base:
        return self._base_of(np.zeros(0))
