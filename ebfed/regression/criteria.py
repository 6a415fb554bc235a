"""The deviances of mixed models, of which profiles are taken: see `ebfed.inference.profiles`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space, solve_triangular

from ebfed.inference.profiles import Criterion, Entries, Held, Level, Point
from ebfed.inference.sums import GroupSums, LinearMixedFit
from ebfed.inference.trust_region import uncertainty
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.notes import UNBOUNDED
from ebfed.regression.numerics.crossed_laplace import FARTHEST
from ebfed.regression.numerics.crossed_model import CrossedSystem
from ebfed.regression.numerics.quadrature_population import HIGH, square_of
from ebfed.regression.posteriors import quadrature
from ebfed.regression.separation import bounds_of, unlimited_forms

__all__ = [
    "CrossedCriterion",
    "CrossedLaplaceCriterion",
    "LinearCriterion",
    "QuadratureCriterion",
]

# A dispersion that is none: negative binomial counts are Poisson ones.
POISSON = 1e-12
# Logarithms of noise by which a search may go astray.
FAR = 60.0
# Rounding of the log-likelihood beyond which no maximum can be found.
DIGITS = 1e-6
# Spread of a column, as a share of its mean, that is rounding.
CONSTANT = 1e-10
# Share of the information of columns of unit size that is rounding.
ROUNDING = 1e-13


class _OfNormalRows(Criterion):
    """Rows with a noise, whose mean is solved for; the shape is the logarithm of its variance."""

    n_shown = 1
    # whether the deviance is that of the restricted likelihood, in which the mean has no value
    restricted: bool

    def shape_at(self, number: int, mean: NDArray, shapes: NDArray) -> float:
        """Standard deviation of the noise."""
        return float(np.exp(shapes[0] / 2))

    def searched_shape(self, value: float) -> float:
        """Logarithm of its square."""
        return 2 * float(np.log(value)) if value > 0 else -np.inf

    def noise(self, shapes: NDArray) -> float:
        """Variance of the noise, which a step of the search may take far away."""
        return float(np.exp(np.clip(shapes[0], self.shapes[0] - FAR, self.shapes[0] + FAR)))


class LinearCriterion(_OfNormalRows):
    """The deviance of a linear mixed model of groups within groups, from sums over groups.

    Parameters
    ----------
    fit : LinearMixedFit
        The rows, and parameters where the search begins.
    terms : sequence of sequence of ndarray
        Columns of each term that differs, of each level.
    restricted : bool
    """

    def __init__(
        self, fit: LinearMixedFit, terms: Sequence[Sequence[NDArray]], restricted: bool = False
    ):
        self.restricted = restricted
        self.fit, self._turn, self._back = fit.centred(), fit.centring, fit.of_centred
        known = fit.identified(np.eye(len(fit.mean)))
        self.means = [j if known[j] else None for j in fit.fixed.tolist()]
        covariance = self._turn @ self.fit.mean_covariance @ self._turn.T
        self.errors = np.sqrt(np.diag(covariance))
        self.shapes, self.n_groups = np.array([np.log(fit.noise)]), len(fit.n)
        X = fit.rows[:, :, :-1]
        inside = np.einsum("nrp,nrq->pq", X, X) / (len(X) * fit.noise)
        self.levels = []
        parts = zip(fit.covariances, fit.places, fit.terms, terms, strict=True)
        for G, places, owners, shown in parts:
            full, shared = fit.kind == "full", fit.kind == "spherical"
            blocks = owners if full else np.arange(len(places))
            typical = _unknown(inside[np.ix_(places, places)], blocks)
            named = _places_among(places, shown)
            self.levels.append(Level(G, typical, blocks, named, shared, full))

    def at(self, point: Point) -> tuple[float, NDArray, NDArray | None]:
        """Return the deviance, with the mean at its least one, and its slope."""
        fit, noise, held = self.fit, self.noise(point.shapes), point.held
        roots, sums = self._sums(point)
        inner, cross, square = sums.inner[:-1, :-1], sums.inner[:-1, -1], sums.inner[-1, -1]
        own = np.linalg.solve(inner, cross)
        deviance = float(sums.log_det + square - cross @ own)
        if held is not None:
            along = self._turn[held[0]] @ fit.basis[0]
            moved = np.linalg.solve(inner, along)
            variance = float(along @ moved)
            beyond = float(self._turn[held[0]] @ fit.mean + along @ own - held[1])
            deviance += beyond**2 / variance
            own = own - moved * beyond / variance
        residual = np.append(-own, 1.0)
        slopes = sums.trace - np.einsum("i,aij,j->a", residual, sums.first, residual)
        if self.restricted:
            deviance += np.linalg.slogdet(inner)[1]
            slopes -= np.einsum("aij,ji->a", sums.first[:, :-1, :-1], np.linalg.inv(inner))
        parts: list[NDArray] = []
        levels = zip(roots, self._back, fit.own, fit.bases, point.entries, strict=True)
        for L, back, own_slopes, bases, some in levels:
            if not len(L):
                continue
            # of a symmetric matrix: an entry off the diagonal has half of the slope
            halves = np.tensordot(slopes[own_slopes], bases * (1 + np.eye(len(L))) / 2, 1)
            halves = halves / len(L) if fit.kind == "spherical" else halves
            parts.append((2 * back.T @ halves @ L)[some])
        return deviance, np.concatenate([*parts, slopes[-1:] * noise]), None

    def mean_at(self, place: int, point: Point) -> float:
        sums = self._sums(point)[1]
        own = np.linalg.solve(sums.inner[:-1, :-1], sums.inner[:-1, -1])
        return float(self._turn[place] @ (self.fit.mean + self.fit.basis[0] @ own))

    def _sums(self, point: Point) -> tuple[list[NDArray], GroupSums]:
        """Roots of the covariances of the centred columns, and the sums at these."""
        roots = [back @ L for back, L in zip(self._back, point.roots, strict=True)]
        return roots, self.fit.sums([L @ L.T for L in roots], self.noise(point.shapes))


def _places_among(places: NDArray, terms: Sequence[NDArray]) -> list[list[int | None]]:
    """Places of the columns of each term among these; None where they are not."""
    place = {column: j for j, column in enumerate(places.tolist())}
    return [[place.get(column) for column in term.tolist()] for term in terms]


def _unknown(products: NDArray, blocks: NDArray) -> NDArray[np.float64]:
    """Invert information on coefficients, block by block; zero for those without information.

    What is rounding is as good as the least that is not.
    """
    found = np.zeros_like(products)
    sizes = np.sqrt(np.diag(products))
    for each in np.unique(blocks):
        own = np.flatnonzero((blocks == each) & (sizes > 0))
        scale = np.outer(sizes[own], sizes[own])
        values, vectors = np.linalg.eigh(products[np.ix_(own, own)] / scale)
        inverse = vectors / np.maximum(values, ROUNDING * len(own)) @ vectors.T
        found[np.ix_(own, own)] = inverse / scale
    return found


class _OfFamily(Criterion):
    """Rows of a family, of groups or of crossed factors.

    Parameters
    ----------
    family : ResponseFamily
    shapes : ndarray of shape (t,)
    X : ndarray of shape (n_rows, p)
        Columns of the coefficients of the mean; zeros of those that it does not have.
    responses : Responses
    """

    def __init__(self, family: ResponseFamily, shapes: NDArray, X: NDArray, responses: Responses):
        self.family, self.shapes, self.classes = family, shapes, family.classes
        self._X, self._responses = X, responses
        self.n_shown = len(self._shown(np.zeros(X.shape[1]), shapes))

    def _shown(self, mean: NDArray, shapes: NDArray) -> list[float]:
        covariance = np.zeros((len(mean) + len(shapes),) * 2)
        return [value for *_, value, _ in self.family.parameters(mean, shapes, covariance)]

    def shape_at(self, number: int, mean: NDArray, shapes: NDArray) -> float:
        """Return a dispersion, a shape, or a threshold."""
        return self._shown(mean, shapes)[number]

    def searched_shape(self, value: float) -> float:
        """Logarithm of a dispersion or a shape."""
        return float(np.log(max(value, POISSON)))

    def turn_of_shapes(self, shapes: NDArray) -> NDArray[np.float64] | None:
        """Return derivatives of thresholds."""
        return self.family.turn(shapes)

    def unlimited(self, held: Held, up: bool) -> bool:
        place = held.first + (self._X.shape[1] if held.kind == "shape" else 0)
        return bool(self._unlimited[place, int(up)])

    @cached_property
    def _unlimited(self) -> NDArray[np.bool_]:
        p, t = self._X.shape[1], len(self.shapes)
        found = np.zeros((p + t + 1, 2), bool)
        bounds = bounds_of(self.family, self._X, self._responses)
        if bounds is not None:
            bounds = np.pad(bounds, ((0, 0), (0, p + t - bounds.shape[1])))
            forms = np.insert(np.eye(p + t), p, 0.0, axis=0)
            forms[p:, 0] -= 1.0  # thresholds, the first of which is zero, less the intercept
            used = p + t + 1 if self.family.classes else p
            found[:used] = unlimited_forms(bounds, forms[:used])
        return found


class QuadratureCriterion(_OfFamily):
    """The deviance of a generalized linear model of groups, by the method of its fit.

    Parameters
    ----------
    fit : GeneralizedEB or LogisticEB
        The rows, and parameters where the search begins.
    """

    curved = True
    largest = float(np.sqrt(HIGH))

    def __init__(self, fit: Any):
        result, clients, columns = fit._result, fit.clients_, fit._columns()
        rounds, population = fit.protocol(), fit._population()
        responses, self._method = population.responses(clients), result["method"]
        self.clients, self.n_groups = clients, len(clients)
        self.mode: NDArray | None = None
        self._unbounded = UNBOUNDED in fit.notes_
        X = np.where(np.isin(np.arange(clients.X.shape[1]), fit._of_mean), clients.X, 0.0)
        super().__init__(rounds.family, result["shapes"], X, responses)
        self._base_of = lambda shapes: rounds._base(clients, responses, shapes)
        square, shared = np.mean(clients.X**2, axis=0), fit.covariance == "spherical"
        if shared:
            square = np.full(len(square), square.mean())
        self.units = 1 / np.sqrt(np.where(square > 0, square, 1.0))
        scaled = clients.X * self.units
        self.products = scaled.T @ scaled / max(len(scaled), 1)
        self.mean, self.mean_covariance = fit.mean_, result["mean_covariance"]
        self.errors = np.sqrt(np.diag(self.mean_covariance))
        self.searched, known = fit._of_mean, fit._estimable.coefficients
        self.means = [j if known[j] else None for j in fit._of_mean.tolist()]
        self._null = result["null"]
        blocks, self.places, self.levels = columns.blocks_of_levels(fit.covariance), [], []
        terms = columns.terms_of_levels()
        sizes = result.get("sizes", [1] * len(terms))
        covariances = [*result.get("above", ()), result["covariance"]]
        inside = self.products / np.outer(self.units, self.units)
        for own, level_terms, size, G in zip(blocks, terms, sizes, covariances, strict=True):
            places = np.concatenate(level_terms)
            if fit.covariance == "diag":
                places = places[square[places] > 0]
            places = places if size else places[:0]
            self.places.append(places)
            named = _places_among(places, level_terms)
            kinds = shared, fit.covariance == "full"
            differing = np.ix_(places, places)
            typical = _unknown(inside[differing], own[places])
            self.levels.append(Level(G[differing], typical, own[places], named, *kinds))

    def refusal(self) -> str:
        """Return why there is no profile: no maximum, or one that is rounding.

        It is where it is a difference of numbers too large for its digits; whole numbers always
        scatter.
        """
        if self._method == "gradient":
            return (
                "method='profile' needs a fit whose likelihood has a maximum, not that of "
                "LogisticEB's method='gradient'."
            )
        if self._unbounded:
            return (
                "method='profile' needs a likelihood with a maximum; that of this fit rises as a "
                "variance between groups grows."
            )
        size = float(np.linalg.norm(self._base(self.shapes)[0]))
        if not self.family.whole and size * float(np.finfo(float).eps) > DIGITS:
            return (
                "method='profile' needs noise; responses vary so little that rounding is most of "
                "what their log-likelihood changes by."
            )
        return ""

    def at(
        self, point: Point, frame: NDArray | None = None
    ) -> tuple[float, NDArray, NDArray | None]:
        """Return the deviance, its slope and its second derivatives.

        Those of the mean are in its own units, or those of ``frame^-1 mean`` if that is given;
        those of roots have no meaning then.
        """
        places, sizes = np.concatenate(self.places), [len(each) for each in self.places]
        ends = np.cumsum([0, *sizes])
        root = np.zeros((len(places),) * 2)
        for L, first, last in zip(point.roots, ends[:-1], ends[1:], strict=True):
            own = places[first:last]
            root[first:last, first:last] = (
                L / self.units[own, None]
                if frame is None
                else np.linalg.solve(frame[np.ix_(own, own)], L)
            )
        pairs = list(zip(point.entries, ends[:-1], strict=True))
        rows, columns = (
            np.concatenate([own[k] + first for own, first in pairs]).astype(np.int64)
            for k in range(2)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            evidence, score, curvature, mode = quadrature.derivatives(
                self.clients,
                self._responses,
                self.family,
                point.shapes,
                self._base(point.shapes),
                frame=np.diag(self.units) if frame is None else frame,
                mean=point.mean / self.units
                if frame is None
                else np.linalg.solve(frame, point.mean),
                root=root,
                places=places.astype(np.int64),
                sizes=sizes,
                entries=(rows, columns),
                accuracy="fine",
                start=self.mode,
                method=self._method,
            )
        if np.isfinite(evidence).all() and np.isfinite(curvature).all():
            self.mode = mode
        own = self.units if frame is None else np.ones(len(self.units))
        scale = np.concatenate([own, self.units[places[rows]], np.ones(len(point.shapes))])
        second = square_of(curvature.sum(axis=0)) / np.outer(scale, scale)
        return -2 * float(evidence.sum()), -2 * score.sum(axis=0) / scale, -2 * second

    def covariance_given(self, mean: NDArray, covariances: Sequence[NDArray]) -> NDArray:
        """Sampling covariance of the mean if these were the covariances of the levels, (p, p).

        Parameters
        ----------
        mean : ndarray of shape (p,)
        covariances : sequence of ndarray of shape (p, p)
        """
        searched = [level.coordinates(range(len(level.blocks))) for level in self.levels]
        entries = [each.entries for each in searched]
        roots = [
            each.root(each.searched(G[np.ix_(own, own)]))
            for each, G, own in zip(searched, covariances, self.places, strict=True)
        ]
        frame = self.frame
        second, p = self.at(Point(mean, roots, self.shapes, entries), frame)[2], len(mean)
        assert second is not None
        whole, t = len(second), len(self.shapes)
        kept = np.r_[:p, whole - t : whole]
        inside = -second[np.ix_(kept, kept)] / 2
        turn = np.eye(len(kept))[:, np.concatenate([self.searched, np.arange(p, len(kept))])]
        if self._null.shape[1]:  # along what rows identify, of which information is not rounding
            lost = np.pad(np.linalg.solve(frame, self._null), ((0, t), (0, 0)))
            turn = turn @ null_space(lost.T @ turn)
        known = turn @ uncertainty(turn.T @ inside @ turn) @ turn.T
        return frame @ known[:p, :p] @ frame.T

    @cached_property
    def frame(self) -> NDArray[np.float64]:
        """Coordinates of the mean, shape (p, p): of columns less their means, beside a constant.

        What the rows say of columns far from zero, and not of the constant, would be rounding. A
        column that varies where the constant does not stays as it is.
        """
        X, found = self.clients.X, np.diag(self.units)
        if 0 not in self.searched or not len(X) or np.ptp(X[:, 0]) or X[0, 0] != 1:
            return found
        centre, spread = X.mean(axis=0), X.std(axis=0)
        free = np.isin(np.arange(X.shape[1]), self.searched) & (spread > CONSTANT * np.abs(centre))
        for own in self.places:
            free[own] &= 0 in own
        free[0] = False
        found[free, free] = 1 / spread[free]
        found[0, free] = -centre[free] / spread[free]
        return found

    def _base(self, shapes: NDArray) -> quadrature.Base:
        """Return what log-likelihoods have besides their parts in predictors."""
        return self._base_of(shapes) if len(shapes) else self._constant

    @cached_property
    def _constant(self) -> quadrature.Base:
        return self._base_of(np.zeros(0))


class _OfFactors(Criterion):
    """Crossed factors: coefficients of levels, by those of the equations.

    Parameters
    ----------
    fit : CrossedEB
    typical : callable
        Of the place of a factor in the equations: typical variances of its coefficients there.
    """

    def __init__(self, estimator: Any, typical: Any):
        fit, known = estimator._fit, estimator._estimable.coefficients
        place = {column: j for j, column in enumerate(fit.fixed_columns.tolist())}
        self.means = [place.get(j) if known[j] else None for j in estimator._of_mean.tolist()]
        self.errors = np.sqrt(np.diag(fit.mean_covariance))
        self.n_groups = int(fit.equations.sums.sizes.max())
        self.n_dense = fit.equations.sums.q
        self.levels = []
        self._maps = [np.zeros((0, 0))] * len(fit.maps)
        parts = zip(estimator._kept["varying"], estimator._kept["fixed"], strict=True)
        self._order = [estimator._order.index(number) for number in range(len(fit.maps))]
        for k, (blocks, lost) in zip(self._order, parts, strict=True):
            T, G = fit.maps[k], fit.population(k)
            active = np.delete(np.arange(len(T)), lost)
            owners = np.repeat(np.arange(len(blocks)), list(map(len, blocks)))
            ends = np.cumsum([0, *map(len, blocks)])
            named = _places_among(active, [np.arange(a, b) for a, b in pairwise(ends)])
            own = np.ix_(active, active)
            unknown = (T * typical(k) @ T.T)[own]
            self.levels.append(Level(G[own], unknown, owners[active], named))
            self._maps[k] = np.linalg.pinv(T)[:, active]

    def roots_of(self, roots: Sequence[NDArray]) -> list[NDArray]:
        """Roots of the equations, by factor, from those of coefficients."""
        found = [np.zeros((0, 0))] * len(self._maps)
        for k, L in zip(self._order, roots, strict=True):
            T = self._maps[k]
            found[k] = np.pad(T @ L, ((0, 0), (0, len(T) - len(L))))
        return found

    def along(self, slopes: Sequence[NDArray], entries: Sequence[Entries]) -> list[NDArray]:
        """Slopes in entries of roots of coefficients, from those in roots of the equations."""
        pairs = zip(self._order, entries, strict=True)
        return [(self._maps[k].T @ slopes[k])[some] for k, some in pairs]


class CrossedCriterion(_OfFactors, _OfNormalRows):
    """The deviance of a linear model of crossed factors, from its sums over rows.

    Parameters
    ----------
    estimator : CrossedEB
    restricted : bool
    """

    def __init__(self, estimator: Any, restricted: bool = False):
        self.restricted = restricted
        fit = estimator._fit
        sums, noise = fit.system.sums, fit.noise
        super().__init__(estimator, lambda k: noise / np.maximum(sums.weights_of(k).mean(0), 1e-9))
        self.fit, self.shapes = fit, np.array([np.log(noise)])
        triangle = fit.triangle
        self._back = solve_triangular(triangle, np.eye(len(triangle)), lower=False)

    def _system(
        self, roots: Sequence[NDArray], noise: float, held: tuple[int, float] | None = None
    ) -> CrossedSystem:
        sums, p = self.fit.system.sums, len(self._back)
        if held is not None:  # columns with all other coefficients, and what this leaves of y
            along = self._back[held[0]]
            turn = np.zeros((p + 1, p))
            turn[:p, :-1] = null_space(along[None])
            left = held[1] - self.fit.mean[held[0]] + along @ self.fit.system.solution[2]
            turn[:p, -1], turn[p, -1] = -along * left / (along @ along), 1.0
            sums = sums.combined(turn)
        own = [R / np.sqrt(noise) for R in self.roots_of(roots)]
        return CrossedSystem(sums, own, self.restricted)

    def at(self, point: Point) -> tuple[float, NDArray, NDArray | None]:
        """Return the deviance, with the mean at its least one, and its slope."""
        noise = self.noise(point.shapes)
        system = self._system(point.roots, noise, point.held)
        n, squares = system.degrees, system.squares
        by_root = [2 * S @ R for S, R in zip(system.slope(noise), system.roots, strict=True)]
        # roots over the noise fall as it grows
        inside = sum(float(np.vdot(S, R)) for S, R in zip(by_root, system.roots, strict=True))
        by_entry = [each / np.sqrt(noise) for each in self.along(by_root, point.entries)]
        by_noise = n - squares / noise - inside / 2
        return system.deviance_at(noise), np.concatenate([*by_entry, [by_noise]]), None

    def mean_at(self, place: int, point: Point) -> float:
        there = self._system(point.roots, self.noise(point.shapes)).solution[2]
        own = self._back[place] @ (there - self.fit.system.solution[2])
        return float(self.fit.mean[place] + own)


class CrossedLaplaceCriterion(_OfFactors, _OfFamily):
    """Laplace's approximation of the deviance of crossed factors.

    Parameters
    ----------
    estimator : CrossedEB
    """

    largest = FARTHEST

    def __init__(self, estimator: Any):
        fit, rows, family = estimator._fit, estimator._problem, estimator._family
        _OfFactors.__init__(self, estimator, lambda k: np.ones(len(fit.maps[k])))
        X = rows.design[:, fit.fixed_columns]
        _OfFamily.__init__(self, family, fit.shapes, X, rows.responses)
        own = rows.codes, rows.sizes, rows.design, rows.responses, family
        self.model, self._triangle = fit.laplace_of(*own), fit.triangle
        self.mean, self.mean_covariance = fit.mean, fit.mean_covariance
        self.searched = np.arange(len(fit.mean))
        products = fit.triangle.T @ fit.triangle
        self.units = 1 / np.sqrt(np.diag(products))
        self.products = products * np.outer(self.units, self.units)

    def at(self, point: Point) -> tuple[float, NDArray, NDArray | None]:
        """Return the deviance and its slope."""
        roots, beta = self.roots_of(point.roots), self._triangle @ point.mean
        mode = self.model.mode_at(roots, beta, point.shapes)
        by_root, by_beta, by_shape = self.model.slopes_at(mode, point.shapes)
        parts = [self._triangle.T @ by_beta, *self.along(by_root, point.entries), by_shape]
        return mode.criterion, np.concatenate(parts), None
