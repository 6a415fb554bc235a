"""Fits of models of crossed factors, in the units of the columns of X."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve_triangular
from scipy.sparse import csr_matrix

from ebfed.inference.spread_degrees import NearbySpreads
from ebfed.kernels.threads import threads_for
from ebfed.regression.crossed_checks import LEAST, columns_at, places_of
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.numerics.crossed_doubt import Near, Surroundings, roots_near, spreads_near
from ebfed.regression.numerics.crossed_laplace import CrossedLaplace, LaplaceFit
from ebfed.regression.numerics.crossed_model import (
    CrossedEquations,
    CrossedInverse,
    CrossedSystem,
)
from ebfed.regression.numerics.crossed_patterns import CrossedTable, pattern_of
from ebfed.regression.numerics.crossed_search import CrossedBlocks, maximise, triangular
from ebfed.regression.numerics.crossed_sums import CrossedDesign, CrossedSums
from ebfed.regression.numerics.noiseless import FAR, Limit, limit_of_crossed
from ebfed.regression.numerics.spread_doubt import excess_noise

__all__ = [
    "CrossedFit",
    "CrossedProblem",
    "check_noise",
    "has_noise",
    "regressed",
    "scaled",
]

# Variance of effects over that of noise, beyond which differences of sums have no digits.
LITTLE_NOISE = 1e9
NO_MAXIMUM = (
    "y is explained by the columns and the levels up to rounding: the likelihood has no maximum, "
    "and nothing is known of the scatter of rows."
)


@dataclass(frozen=True)
class CrossedProblem:
    """The rows of a fit, with the levels of factors, the one with the most coefficients first.

    Attributes
    ----------
    codes : list of int64 ndarray of shape (n_rows,)
        Level of each row of each factor.
    names : list of str
        Names of the factors.
    sizes : list of int
        Numbers of levels.
    varying : list of list of list of str
        Terms of each factor whose coefficients its levels have, by blocks that are correlated.
    fixed : list of bool ndarray
        Terms of each factor, one block after the other, that have no variance; see `fixed_too`.
    design : ndarray of shape (n_rows, k)
    terms : list of k str
    columns : int64 ndarray of shape (p,)
        Columns of the design that are X, which have a coefficient of all rows.
    responses : Responses
    """

    codes: Sequence[NDArray[np.int64]]
    names: Sequence[str]
    sizes: Sequence[int]
    varying: Sequence[Sequence[Sequence[str]]]
    fixed: Sequence[NDArray[np.bool_]]
    design: NDArray
    terms: list[str]
    columns: NDArray[np.int64]
    responses: Responses

    @property
    def X(self) -> NDArray:
        """Columns that have a coefficient of all rows."""
        return self.design[:, self.columns]

    @property
    def of_columns(self) -> list[str]:
        """Their names."""
        return [self.terms[j] for j in self.columns]

    def turned(
        self, root: NDArray
    ) -> tuple[CrossedDesign, CrossedBlocks, list[list[int]], list[NDArray]]:
        """Turn columns so that their squares have a mean of 1, times `root` of shape (n_rows, 1).

        Returns
        -------
        design : CrossedDesign
        blocks : CrossedBlocks
            Coefficients without variance are the last of a factor, and in none.
        places : list of list of int
            Columns of the design of the terms of each factor; -1 is one of ones.
        maps : list of ndarray of shape (p_k, p_k)
            Coefficients of terms, by those of the equations.

        Raises
        ------
        ValueError
            If columns follow from each other.
        """
        places, maps, of_factors = [], [], []
        for name, blocks, lost in zip(self.names, self.varying, self.fixed, strict=True):
            every = [term for block in blocks for term in block]
            place, at = places_of(every, self.terms), 0
            basis, turn = columns_at(self.design, place) * root, np.zeros((len(every),) * 2)
            slices: list[list[int]] = []
            for block in blocks:
                own = [j for j in map(every.index, block) if not lost[j]]
                if own:
                    here = slice(at, at + len(own))
                    turn[own, here] = _map(name, [every[j] for j in own], basis[:, own])
                    slices.append([at, here.stop])
                    at = here.stop
            places.append(place)
            maps.append(turn)
            of_factors.append(slices)
        bases = [columns_at(self.design, place) @ T for place, T in zip(places, maps, strict=True)]
        turned = CrossedDesign(self.codes, np.array(self.sizes), bases)
        return turned, CrossedBlocks(of_factors, turned.widths), places, maps

    def fit(self, family: ResponseFamily | None, restricted: bool) -> CrossedFit:
        """Maximise the likelihood; None is the family of normal rows."""
        widths = [sum(map(len, blocks)) for blocks in self.varying]
        counts = np.array(self.sizes) * widths
        with threads_for(int(counts[1:].sum())):  # of the dense matrix
            if family is None:
                return CrossedFit.gaussian(self, restricted)
            return CrossedFit.laplace(self, family)

    def drawn(
        self, fit: CrossedFit, family: ResponseFamily | None, rng: np.random.Generator
    ) -> CrossedProblem:
        """Draw effects of levels, and responses of rows."""
        rows, pairs = self.responses, zip(self.sizes, self.codes, strict=True)
        levels = [(np.arange(n), own) for n, own in pairs]
        z = fit.fixed(self.design) + rows.offset + fit.renewed(self.design, levels, rng)
        if family is None:
            y = z + np.sqrt(fit.noise / rows.weight) * rng.standard_normal(len(z))
        else:
            y = family.draw(z, rows.weight, fit.shapes, rng)
        return replace(self, responses=replace(rows, y=y))


@dataclass(frozen=True)
class CrossedFit:
    """The maximum of a likelihood.

    Attributes
    ----------
    fixed_columns : int64 ndarray of shape (p,)
        Columns of the design that have a coefficient of all rows: X.
    equations : CrossedEquations
        With columns that are those of X, times the inverse of `triangle`.
    first, others : ndarray
        Spherical effects of the first factor, and of the levels of all others.
    places : list of list of int
        Columns of the design whose coefficients differ between the levels of each factor; -1 is
        one of ones.
    maps : list of ndarray of shape (p_k, p_k)
        Coefficients of these columns, by those of the equations.
    blocks : CrossedBlocks
        Which of those of the equations are correlated.
    triangle : ndarray of shape (p, p)
    mean, mean_covariance : ndarray
        Coefficients of X.
    noise : float
        Variance of rows of weight 1; of families without noise, 1.
    unit : float
        Variance that the equations are over: that of the noise. Where that is zero, a small share
        of the largest of the factors, which is then what rounding leaves.
    criterion : float
        -2 log-likelihood.
    converged : bool
    history : list of dict
    shapes : ndarray of shape (t,)
        Shapes of the family.
    known : ndarray of shape (p + t, p + t)
        Sampling covariance of coefficients and shapes.
    surroundings : Surroundings
        What is near the fitted spreads, of other rows than Gaussian ones.
    """

    fixed_columns: NDArray[np.int64]
    equations: CrossedEquations
    first: NDArray
    others: NDArray
    places: list[list[int]]
    maps: list[NDArray]
    blocks: CrossedBlocks
    triangle: NDArray
    mean: NDArray
    mean_covariance: NDArray
    noise: float
    unit: float
    criterion: float
    converged: bool
    history: list[dict[str, Any]]
    shapes: NDArray
    known: NDArray
    surroundings: Surroundings = field(default_factory=Surroundings)

    @classmethod
    def gaussian(cls, problem: CrossedProblem, restricted: bool) -> Self:
        """Maximise the likelihood of Gaussian rows, which is exact.

        Raises
        ------
        ValueError
            If columns are collinear, or nothing varies; slopes follow from each other.
        """
        own, rows = problem.columns, problem.responses
        triangle, least, columns = regressed(problem.X, problem.of_columns, rows)
        root = np.sqrt(rows.weight)[:, None]
        turned, blocks, places, maps = problem.turned(root)
        sums = turned.sums(rows.weight, columns)
        try:
            system, converged, history = maximise(sums, restricted, blocks)
            spread: NDArray | None = blocks.join([R @ R.T for R in system.roots])
        except (LinAlgError, OverflowError):
            spread = None
        limit = _limit(turned, blocks, rows.weight, columns, restricted, spread)
        if limit is not None:
            noise, unit = limit.noise, unit_of(limit)
            roots = [_root(each / unit) for each in blocks.split(limit.covariance)]
            system = CrossedSystem(sums, roots, restricted)
            beta, covariance = limit.beta, limit.beta_covariance
            converged, history = True, [{"criterion": _criterion_at(system, noise)}]
        else:
            noise = unit = system.noise
            beta, covariance = system.solution[2], noise * system.column_covariance(system.p)
        first, others, _ = system.solution
        if limit is not None and len(limit.effects) == len(maps):  # these have more digits
            pairs = zip(limit.effects, system.roots, strict=True)
            first, *rest = (_spherical(each, R) for each, R in pairs)
            others = np.concatenate([each.ravel() for each in rest])
        back = solve_triangular(triangle, np.eye(len(triangle)), lower=False)
        criterion = _criterion_at(system, noise) + restricted * log_det(triangle)
        criterion -= float(np.log(rows.weight).sum())
        mean, covariance = least + back @ beta, back @ covariance @ back.T
        covariance = covariance if limit is None else positive(covariance)
        found = (own, system, first, others, places, maps, blocks, triangle, mean, covariance)
        ended = noise, unit, criterion, converged, history
        return cls(*found, *ended, np.zeros(0), covariance)

    @classmethod
    def laplace(cls, problem: CrossedProblem, family: ResponseFamily) -> Self:
        """Maximise Laplace's approximation of the likelihood of rows of another family.

        Raises
        ------
        ValueError
            If columns are collinear, or all rows are alike.
        """
        X, rows = problem.X, problem.responses
        most = float(rows.weight.sum())
        if not rows.y.any() or (family.name == "binomial" and (rows.y == 1).all()):
            raise ValueError(f"y must vary; it is {float(rows.y[0]):g} in every row.")
        root = np.sqrt(rows.weight / most)[:, None]
        triangle = triangle_of(X * root, problem.of_columns)[1]
        turned, blocks, places, maps = problem.turned(root * np.sqrt(len(X)))
        model = CrossedLaplace(turned, scaled(X, triangle), family, rows, blocks)
        try:
            found = model.fit()
        except LinAlgError as error:
            raise ValueError(NO_MAXIMUM) from error
        back = solve_triangular(triangle, np.eye(len(triangle)), lower=False)
        whole = np.eye(len(found.covariance))
        whole[: len(back), : len(back)] = back
        known = whole @ found.covariance @ whole.T
        return cls(
            problem.columns,
            model.linearised(found.mode),
            found.mode.first,
            found.mode.others,
            places,
            maps,
            blocks,
            triangle,
            back @ model.beta(found.point),
            known[: len(back), : len(back)],
            1.0,
            1.0,
            found.mode.criterion,
            found.converged,
            [{"criterion": value} for value in found.path],
            model.shapes(found.point),
            known,
            Surroundings(lambda: _around(model, found, back)),
        )

    @property
    def system(self) -> CrossedSystem:
        """The equations of a linear model."""
        assert isinstance(self.equations, CrossedSystem)
        return self.equations

    @cached_property
    def inverse(self) -> CrossedInverse:
        """Inverse of the equations of the other factors and the columns of X."""
        return self.equations.inverse(len(self.mean))

    def _root(self, factor: int) -> NDArray:
        """Coefficients of the terms of a level, by spherical effects."""
        return self.maps[factor] @ self.equations.roots[factor]

    def population(self, factor: int) -> NDArray:
        """Covariance of the coefficients of the levels of a factor, shape (p_k, p_k)."""
        root = self._root(factor)
        return self.unit * root @ root.T

    def effects(self, factor: int) -> NDArray:
        """Coefficients of the levels of a factor, shape (n_levels, p_k)."""
        return self._effects(self.first, self.others)[factor]

    def _effects(self, first: NDArray, others: NDArray) -> list[NDArray]:
        spherical = [first, *self.equations.sums.split(others)]
        return [each @ self._root(k).T for k, each in enumerate(spherical)]

    @cached_property
    def around(self) -> list[tuple[float, Self]]:
        """Fits of spreads near the fitted ones, and their weights.

        Of other rows than Gaussian ones, by the normal approximation of their likelihood at the
        fitted mode.
        """
        sums, found = self.equations.sums, []
        linear = isinstance(self.equations, CrossedSystem)
        if linear:
            known = self.converged and self.unit == self.noise == self.system.noise
            near = roots_near(self.system, self.blocks) if known else []
        elif len(sums.whole) == len(self.mean):  # it has no response
            return []
        else:
            near = self.surroundings.found[1]
        restricted = linear and self.system.restricted
        fitted = self.triangle @ self.mean
        least = fitted - self.system.solution[2] if linear else 0.0
        for weight, roots in near:
            try:
                system = CrossedSystem(sums, roots, restricted)
            except LinAlgError:
                continue
            first, others, beta = system.solution
            mean = solve_triangular(self.triangle, least + beta, lower=False)
            unit = system.noise if linear else 1.0
            moved = {"first": first, "others": others, "mean": mean, "unit": unit}
            found.append((weight, replace(self, equations=system, **moved)))
        return found

    @property
    def excess_noise(self) -> float:
        """What the noise may be above the fitted one, as its share; see `spread_doubt`."""
        if not isinstance(self.equations, CrossedSystem) or self.unit != self.noise:
            return 0.0
        return excess_noise(self.equations.sums.n_rows - len(self.mean))

    def _averaged(self, spread: Callable[[Self], NDArray], mean: Callable[[Self], NDArray]) -> Any:
        """Covariances, or variances, including uncertainty in the spreads and the noise."""
        own, middle = spread(self), mean(self)
        more = self.excess_noise * own
        for weight, other in self.around:
            away = mean(other) - middle
            squares = away[..., :, None] * away[..., None, :] if own.ndim > away.ndim else away**2
            more += weight * (spread(other) - own + squares)
        if own.ndim == middle.ndim:
            return own + np.maximum(more, 0.0)
        values, vectors = np.linalg.eigh(more)
        return own + (vectors * np.maximum(values, 0.0)[..., None, :]) @ vectors.swapaxes(-1, -2)

    def covariances(self, factor: int, given_mean: bool) -> NDArray:
        """Posterior covariances of these coefficients, shape (n_levels, p_k, p_k).

        If not `given_mean`, nor are the spreads given.
        """
        turn = self.maps[factor]

        def given(fit: Self) -> NDArray:
            inverse = fit.equations.inverse(0) if given_mean else fit.inverse
            return fit.unit * turn @ fit.equations.covariances(factor, inverse) @ turn.T

        return given(self) if given_mean else self._averaged(given, lambda fit: fit.effects(factor))

    def errors_with(self, factor: int, design: NDArray) -> NDArray:
        """Posterior standard deviations of these, each plus a combination of the coefficients of X.

        Parameters
        ----------
        factor : int
        design : ndarray of shape (p_k, k)
            The combinations, of all columns of the design.

        Returns
        -------
        ndarray of shape (n_levels, p_k)
        """
        n, k = int(self.equations.sums.sizes[factor]), len(design)
        codes = [np.full(n * k, -1)] * len(self.maps)
        codes[factor] = np.repeat(np.arange(n), k)
        bases = [np.zeros((n * k, len(each))) for each in self.maps]
        bases[factor] = np.tile(self.maps[factor], (n, 1))
        columns = np.tile(self._scaled(design), (n, 1))
        rows = CrossedDesign(codes, self.equations.sums.sizes, bases)

        def given(fit: Self) -> NDArray:
            return (fit.unit * fit.equations.variances(rows, columns, fit.inverse)).reshape(n, k)

        return np.sqrt(self._averaged(given, lambda fit: fit.effects(factor) + fit.fixed(design)))

    def _along(
        self, design: NDArray, codes: NDArray, effects: Sequence[NDArray], mean: NDArray
    ) -> NDArray:
        total = design[:, self.fixed_columns] @ mean
        for own, place, values in zip(codes.T, self.places, effects, strict=True):
            part = np.einsum("np,np->n", columns_at(design, place), values[own])
            total = total + np.where(own >= 0, part, 0.0)
        return total

    def _scaled(self, design: NDArray) -> NDArray:
        """Columns of X as the equations have them."""
        return scaled(design[:, self.fixed_columns], self.triangle)

    def fixed(self, design: NDArray) -> NDArray:
        """Linear predictors of rows without effects."""
        return design[:, self.fixed_columns] @ self.mean

    def predictor(self, design: NDArray, codes: NDArray) -> NDArray:
        """Linear predictors of rows, whose levels are -1 where the fit had none."""
        return self._along(design, codes, self._effects(self.first, self.others), self.mean)

    def variance(self, design: NDArray, codes: NDArray, given: bool = True) -> NDArray:
        """Variances of these linear predictors; `given` is whether spreads are as fitted."""
        rows = CrossedDesign([*codes.T], self.equations.sums.sizes, self.bases(design))
        columns = self._scaled(design)

        def spread(fit: Self) -> NDArray:
            return fit.unit * fit.equations.variances(rows, columns, fit.inverse)

        if given:
            return spread(self)
        return self._averaged(spread, lambda fit: fit.predictor(design, codes))

    def bases(self, design: NDArray) -> list[NDArray]:
        """Columns of rows whose coefficients differ between levels, as the equations have them."""
        pairs = zip(self.places, self.maps, strict=True)
        return [columns_at(design, place) @ T for place, T in pairs]

    def spread(self, design: NDArray, codes: NDArray | None = None) -> NDArray:
        """Variances of the effects of rows of new levels: all, or where codes are -1."""
        total = np.zeros(len(design))
        for k, place in enumerate(self.places):
            basis = columns_at(design, place)
            variance = np.einsum("np,pq,nq->n", basis, self.population(k), basis)
            total += variance if codes is None else np.where(codes[:, k] < 0, variance, 0.0)
        return total

    def renewed(
        self,
        design: NDArray,
        levels: Sequence[tuple[NDArray, NDArray]],
        rng: np.random.Generator,
    ) -> NDArray:
        """Draw the effects of rows whose levels are new."""
        total = np.zeros(len(design))
        for k, (ids, own) in enumerate(levels):
            drawn = rng.standard_normal((len(ids), len(self.maps[k]))) @ self._root(k).T
            basis = columns_at(design, self.places[k])
            total += np.sqrt(self.unit) * np.einsum("np,np->n", basis, drawn[own])
        return total

    def drawn(self, design: NDArray, codes: NDArray, rng: np.random.Generator) -> NDArray:
        """Draw these linear predictors from their posterior, given the variances."""
        first, others, columns = self.equations.sample(len(self.mean), rng)
        root = np.sqrt(self.unit)
        effects = self._effects(self.first + root * first, self.others + root * others)
        mean = self.mean + root * solve_triangular(self.triangle, columns, lower=False)
        z = self._along(design, codes, effects, mean)
        return z + np.sqrt(self.spread(design, codes)) * rng.standard_normal(len(z))

    def with_rows(self, model: CrossedLaplace) -> Self:
        """Find the effects of levels from other rows, of `laplace_of`, the population kept."""
        roots = np.array([self.equations.roots[k][a, b] for k, a, b in model.entries])
        mode = model.mode(np.concatenate([roots, self.triangle @ self.mean, self.shapes]))
        return replace(self, equations=model.linearised(mode), first=mode.first, others=mode.others)

    def laplace_of(
        self,
        codes: Sequence[NDArray],
        sizes: Sequence[int],
        design: NDArray,
        rows: Responses,
        family: ResponseFamily,
    ) -> CrossedLaplace:
        """Laplace's approximation of rows, with the columns of the equations."""
        turned = CrossedDesign(codes, np.array(sizes), self.bases(design))
        return CrossedLaplace(turned, self._scaled(design), family, rows, self.blocks)

    def maximum(self) -> float:
        """Log-likelihood of the same linear model of the same rows, by maximum likelihood."""
        before = self.system
        best = maximise(before.sums, False, self.blocks)[0]
        of_weights = self.criterion - before.deviance - before.restricted * log_det(self.triangle)
        return -(best.deviance + of_weights) / 2

    def as_data(self) -> dict[str, Any]:
        """Return the sums over rows, the roots and what was learned with them, as plain data."""
        sums = self.equations.sums
        among = csr_matrix(sums.pattern.whole(sums.among))
        among.eliminate_zeros()
        linear = isinstance(self.equations, CrossedSystem)
        nearby, near = self.surroundings.found
        return {
            "roots": self.equations.roots,
            "linear": linear,
            "restricted": linear and self.system.restricted,
            "correlated": self.blocks.of_factors,
            "products": sums.blocks,
            "table": _of_sparse(sums.table.matrix),
            "outer": sums.outer,
            "among": _of_sparse(among),
            "below": sums.below,
            "whole": sums.whole,
            "sizes": sums.sizes,
            "widths": sums.widths,
            "n_rows": sums.n_rows,
            "nearby": None if nearby is None else nearby._asdict(),
            "near_weights": np.array([weight for weight, _ in near]),
            "near_roots": [list(roots) for _, roots in near],
            **{name: getattr(self, name) for name in OF_FIT},
        }

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Self:
        """Make a fit of plain data."""
        table, among = CrossedTable.of(_sparse(data["table"])), _sparse(data["among"])
        sizes, widths = data["sizes"], data["widths"]
        pattern = pattern_of(sizes[1:], widths[1:], table, among)
        sums = CrossedSums(
            data["products"],
            table,
            data["outer"],
            pattern.values_of(among),
            data["below"],
            data["whole"],
            pattern,
            sizes,
            widths,
            data["n_rows"],
        )
        equations: CrossedEquations
        if data["linear"]:
            equations = CrossedSystem(sums, data["roots"], data["restricted"])
        else:
            equations = CrossedEquations(sums, data["roots"])
        nearby = None if data["nearby"] is None else NearbySpreads(**data["nearby"])
        blocks = CrossedBlocks(data["correlated"], sums.widths)
        state = {name: data[name] for name in OF_FIT}
        near = list(zip(data["near_weights"].tolist(), data["near_roots"], strict=True))
        around = Surroundings(lambda: nearby and (nearby, near))
        return cls(equations=equations, blocks=blocks, surroundings=around, **state)


def _around(
    model: CrossedLaplace, fit: LaplaceFit, back: NDArray
) -> tuple[NearbySpreads, list[Near]] | None:
    """Find what `spreads_near` does, in the units of the columns of X."""
    with threads_for(fit.mode.equations.sums.q):
        found = spreads_near(model, fit)
    return found and (found[0].turned(back), found[1])


def _of_sparse(matrix: csr_matrix) -> dict[str, Any]:
    return {
        "shape": list(matrix.shape),
        "ends": matrix.indptr,
        "places": matrix.indices,
        "values": matrix.data,
    }


def _sparse(data: Mapping[str, Any]) -> csr_matrix:
    """Make a sparse matrix again; kernels do not check its places."""
    made = csr_matrix((data["values"], data["places"], data["ends"]), tuple(data["shape"]))
    made.check_format(full_check=True)
    return made


OF_FIT = (
    *("fixed_columns", "first", "others", "places", "maps", "triangle", "mean", "mean_covariance"),
    *("noise", "unit", "criterion", "converged", "history", "shapes", "known"),
)


def _limit(
    turned: CrossedDesign,
    blocks: CrossedBlocks,
    weight: NDArray,
    columns: NDArray,
    restricted: bool,
    spread: NDArray | None,
) -> Limit | None:
    """Limit of the fit where effects are far beyond the noise, with the coefficients of all levels.

    Blocks of coefficients are factors of their own there.
    """
    there = [(k, slice(*own)) for k, each in enumerate(blocks.of_factors) for own in each]
    codes = [turned.codes[k] for k, _ in there]
    bases, kinds = [turned.bases[k][:, own] for k, own in there], ["full"] * len(there)
    limit = limit_of_crossed(codes, bases, weight, columns, kinds, restricted, spread)
    if limit is None:
        return None
    effects = []
    if len(limit.effects) == len(there):
        effects = [
            np.zeros((int(size), int(width)))
            for size, width in zip(turned.sizes, turned.widths, strict=True)
        ]
        for (k, own), found in zip(there, limit.effects, strict=True):
            effects[k][:, own] = found.reshape(len(effects[k]), -1)
    return limit._replace(effects=effects)


def unit_of(limit: Limit) -> float:
    """Variance that equations are over at a limit; see `CrossedFit`."""
    return limit.noise if limit.noise > 0 else float(limit.covariance.max()) / FAR**2


def _root(covariance: NDArray) -> NDArray[np.float64]:
    """Lower triangle that is the root of a covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return triangular(vectors * np.sqrt(np.maximum(values, 0)))


def _spherical(effects: NDArray, root: NDArray) -> NDArray[np.float64]:
    """Spherical effects of levels, of the least length where the root is singular."""
    return effects @ np.linalg.pinv(root).T


def has_noise(fit: Any) -> bool:
    """Whether noise is not so far below the spread of effects that tests have no digits.

    Effects are those of columns that are orthogonal, with a mean square of 1: units of covariates,
    and where these are zero, do not matter.
    """
    found: CrossedFit = fit._fit
    most = max((root**2).sum(axis=1).max(initial=0.0) for root in found.equations.roots)
    return bool(found.unit * most <= LITTLE_NOISE * fit.noise_variance_)


def check_noise(fit: Any, what: str) -> None:
    """Refuse what needs noise.

    Raises
    ------
    ValueError
    """
    if not has_noise(fit):
        raise ValueError(f"{what} need noise; the effects explain all rows of this fit.")


def positive(covariance: NDArray) -> NDArray[np.float64]:
    """Return a covariance without what rounding leaves below zero."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def _criterion_at(system: Any, noise: float) -> float:
    """-2 log-likelihood at a noise whose rows it explains; NaN if that is zero."""
    if noise == 0:
        return np.nan
    return float(system.deviance + system.degrees * np.log(noise / system.noise))


def scaled(design: NDArray, triangle: NDArray) -> NDArray:
    """Columns of X, times the inverse of a triangular factor."""
    # rows that are not identified are NaN
    return solve_triangular(triangle, design.T, trans="T", lower=False, check_finite=False).T


def regressed(
    design: NDArray, terms: Sequence[str], rows: Responses
) -> tuple[NDArray, NDArray, NDArray]:
    """Regress responses on columns of X alone.

    Returns
    -------
    triangle : ndarray of shape (p, p)
        Triangular factor of the columns, times the roots of the weights.
    least : ndarray of shape (p,)
        Coefficients of least squares.
    columns : ndarray of shape (n, p + 1)
        Columns of X, times the inverse of the triangle, and what they leave of the response.

    Raises
    ------
    ValueError
        If columns are collinear, or they explain the response.
    """
    response, root = rows.y - rows.offset, np.sqrt(rows.weight)
    Q, triangle = triangle_of(design * root[:, None], terms)
    least = solve_triangular(triangle, Q.T @ (response * root), lower=False)
    left = response - design @ least
    if not float(rows.weight @ left**2) > 1e-20 * float(rows.weight @ response**2):
        raise ValueError("y must vary beyond what the columns of X explain.")
    return triangle, least, np.column_stack([scaled(design, triangle), left])


def log_det(triangle: NDArray) -> float:
    """Logarithm of the determinant of what a triangular factor is the root of."""
    return 2 * float(np.log(np.abs(np.diag(triangle))).sum())


def triangle_of(design: NDArray, terms: Sequence[str]) -> tuple[NDArray, NDArray]:
    """Return the orthogonal and the triangular factor of columns."""
    if len(design) <= design.shape[1]:
        raise ValueError(f"X has {len(design)} rows for {design.shape[1]} coefficients.")
    Q, R = np.linalg.qr(design)
    short = np.abs(np.diag(R)) <= LEAST * np.linalg.norm(design, axis=0)
    if short.any():
        name = terms[int(np.argmax(short))]
        raise ValueError(f"columns of X must not be collinear; {name!r} follows from the others.")
    return Q, R


def _map(name: str, terms: Sequence[str], basis: NDArray) -> NDArray:
    """Return the map to orthogonal columns whose squares have a mean of 1."""
    n, length = len(basis), np.linalg.norm(basis, axis=0)
    R = np.linalg.qr(basis, mode="r")
    short = ~(np.abs(np.diag(R)) > LEAST * length) | ~np.isfinite(length)
    if short.any():
        term = terms[int(np.argmax(short))]
        raise ValueError(
            f"slopes must not be collinear; {term!r} of factor {name!r} follows from the others."
        )
    return np.sqrt(n) * solve_triangular(R, np.eye(len(R)), lower=False)
