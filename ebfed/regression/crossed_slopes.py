"""Fits of models of crossed factors with slopes, in the units of the columns of X."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve_triangular
from scipy.linalg import block_diag as dense_blocks
from scipy.sparse import csr_matrix

from ebfed.priors.posterior import NormalMarginals
from ebfed.regression.columns import INTERCEPT
from ebfed.regression.crossed_fitting import (
    CrossedFit,
    criterion_at,
    log_det,
    positive,
    regressed,
    scaled,
    unit_of,
)
from ebfed.regression.families import Responses
from ebfed.regression.numerics.crossed_model import MOST_LEVELS, CrossedSystem, maximise
from ebfed.regression.numerics.crossed_slopes import SlopedSums, SlopedSystem, maximise_slopes
from ebfed.regression.numerics.noiseless import limit_of_crossed

__all__ = [
    "JointNormals",
    "SlopedFit",
    "check_coefficients",
    "columns_at",
    "correlated_of",
    "maximum_of",
    "places_of",
    "singular",
    "varying_of",
]

# Share of the squares of a column that others must leave, for it to be one of its own.
LEAST = 1e-10


class JointNormals(NormalMarginals):
    """Posterior whose coordinates are normal together.

    Parameters
    ----------
    mean : ndarray of shape (n, d)
    covariance : ndarray of shape (n, d, d)
    """

    def __init__(self, mean: NDArray, covariance: NDArray):
        self.mean, self.covariance = mean, covariance
        self.sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each coordinate, shape (size, n, d)."""
        rng = np.random.default_rng(random_state)
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
        return self.mean + np.einsum(
            "nij,snj->sni", root, rng.standard_normal((size, *self.mean.shape))
        )


def varying_of(varying: Any, names: Sequence[str], terms: Sequence[str]) -> list[list[str]]:
    """Return the terms that differ between the levels of each factor.

    Parameters
    ----------
    varying : mapping of str to sequence of str, or None
        The argument of the estimator; a factor that is not in it has an intercept.
    names : list of str
        Names of the factors.
    terms : list of str
        Names of the coefficients.

    Raises
    ------
    TypeError, ValueError
        If it names no factor, or no terms.
    """
    if varying is None:
        return [[INTERCEPT]] * len(names)
    if not isinstance(varying, Mapping):
        raise TypeError(
            f"varying must be a mapping of factors to lists of terms; got {type(varying).__name__}."
        )
    if unknown := [each for each in varying if each not in names]:
        raise ValueError(
            f"varying must have factors of {', '.join(map(repr, names))}; got {unknown[0]!r}."
        )
    known, found = [INTERCEPT, *(each for each in terms if each != INTERCEPT)], []
    for name in names:
        own = varying.get(name, [INTERCEPT])
        if isinstance(own, str) or not len(own) or len(set(own)) < len(own):
            raise ValueError(
                f"varying[{name!r}] must be a list of different terms, at least one; got {own!r}."
            )
        if wrong := [term for term in own if term not in known]:
            raise ValueError(
                f"varying[{name!r}] must be of {', '.join(map(repr, known))}; got {wrong[0]!r}."
            )
        found.append(list(own))
    return found


def correlated_of(covariance: Any, names: Sequence[str]) -> list[bool]:
    """Whether the coefficients of the levels of each factor are correlated.

    Raises
    ------
    ValueError
        If it is neither "full" nor "diag", nor a mapping of factors to these.
    """
    each = covariance if isinstance(covariance, Mapping) else dict.fromkeys(names, covariance)
    if not set(each) <= set(names) or not set(each.values()) <= {"full", "diag"}:
        raise ValueError(
            "covariance must be 'full' or 'diag', or a mapping of factors to these; got "
            f"{covariance!r}."
        )
    return [each.get(name, "full") == "full" for name in names]


def check_coefficients(
    names: Sequence[str], sizes: Sequence[int], widths: Sequence[int], n_rows: int
) -> None:
    """Refuse factors with more coefficients than rows can tell, or than there is room for.

    Raises
    ------
    ValueError
    """
    counts = [size * width for size, width in zip(sizes, widths, strict=True)]
    for name, size, count in zip(names, sizes, counts, strict=True):
        if count >= n_rows:
            raise ValueError(
                f"factor {name!r} has {count:,} coefficients of {size:,} levels for {n_rows:,} "
                "rows: they and the noise are the same."
            )
    others = sum(counts) - max(counts)
    if others > MOST_LEVELS:
        raise ValueError(
            f"the factors but the largest have {others:,} coefficients together; CrossedEB is "
            f"exact, and fits up to {MOST_LEVELS:,}."
        )


def singular(covariance: NDArray) -> bool:
    """Whether a combination of coefficients has no variance, in units of their own."""
    sd = np.sqrt(np.diag(covariance))
    if (sd == 0).any():
        return True
    return bool(np.linalg.eigvalsh(covariance / np.outer(sd, sd))[0] < 1e-8)


@dataclass(frozen=True)
class SlopedFit:
    """The maximum of the likelihood of Gaussian rows; see `CrossedFit`, which has intercepts alone.

    Attributes
    ----------
    system : SlopedSystem
        With columns that are those of X, times the inverse of `triangle`.
    places : list of list of int
        Columns of X that differ between the levels of each factor; -1 is the intercept.
    maps : list of ndarray of shape (p_k, p_k)
        Coefficients of these columns, by those of the equations.
    triangle, mean, mean_covariance, noise, unit, criterion, converged, history
        As in `CrossedFit`.
    """

    system: SlopedSystem
    places: list[list[int]]
    maps: list[NDArray]
    triangle: NDArray
    mean: NDArray
    mean_covariance: NDArray
    noise: float
    unit: float
    criterion: float
    converged: bool
    history: list[dict[str, Any]]

    @classmethod
    def gaussian(
        cls,
        codes: Sequence[NDArray],
        named: Mapping[str, NDArray],
        varying: Sequence[Sequence[str]],
        correlated: Sequence[bool],
        design: NDArray,
        terms: Sequence[str],
        rows: Responses,
        restricted: bool,
        fixed: Sequence[NDArray],
    ) -> Self:
        """Maximise the likelihood.

        Parameters
        ----------
        codes : list of int64 ndarray of shape (n_rows,)
            Level of each row of each factor.
        named : mapping of str to ndarray
            Labels of the levels of each factor.
        varying, correlated : list
            Terms of each factor, and whether they are correlated.
        design : ndarray of shape (n_rows, p)
        terms : list of str
        rows : Responses
        restricted : bool
        fixed : list of bool ndarray
            Terms of each factor that have no variance; see `fixed_too`.

        Raises
        ------
        ValueError
            If columns are collinear, or nothing varies; slopes follow from each other.
        """
        triangle, least, columns = regressed(design, terms, rows)
        root = np.sqrt(rows.weight)
        places = [places_of(own, terms) for own in varying]
        sizes, maps = [len(each) for each in named.values()], []
        parts = zip(named, varying, places, correlated, fixed, strict=True)
        for name, own, place, full, lost in parts:
            basis, known = columns_at(design, place) * root[:, None], np.flatnonzero(~lost)
            maps.append(np.zeros((len(own), len(own))))
            if len(known):
                terms_known = [own[j] for j in known.tolist()]
                maps[-1][np.ix_(known, known)] = _map(name, terms_known, basis[:, known], full)
        bases = [columns_at(design, place) @ T for place, T in zip(places, maps, strict=True)]
        sums = SlopedSums.of(codes, sizes, bases, rows.weight, columns)
        try:
            system, converged, history = maximise_slopes(sums, restricted, correlated)
            spread: NDArray | None = dense_blocks(*(root @ root.T for root in system.roots))
        except LinAlgError:
            spread = None
        kinds = ["full" if full else "diag" for full in correlated]
        limit = limit_of_crossed(codes, bases, rows.weight, columns, kinds, restricted, spread)
        if limit is not None:
            noise, unit = limit.noise, unit_of(limit)
            system = SlopedSystem(sums, _roots(limit.covariance / unit, bases), restricted)
            beta, covariance = limit.beta, limit.beta_covariance
            converged, history = True, [{"criterion": criterion_at(system, noise)}]
        else:
            noise = unit = system.noise
            beta, covariance = system.solution[1], noise * system.column_covariance()
        back = solve_triangular(triangle, np.eye(len(triangle)), lower=False)
        criterion = criterion_at(system, noise) + restricted * log_det(triangle)
        criterion -= float(np.log(rows.weight).sum())
        mean, covariance = least + back @ beta, back @ covariance @ back.T
        covariance = covariance if limit is None else positive(covariance)
        fitted = (triangle, mean, covariance, noise, unit, criterion, converged, history)
        return cls(system, places, maps, *fitted)

    def population(self, factor: int) -> NDArray:
        """Covariance of the coefficients of the levels of a factor."""
        root = self.maps[factor] @ self.system.roots[factor]
        return self.unit * root @ root.T

    def effects(self, factor: int) -> NDArray:
        """Coefficients of the levels of a factor, shape (n_levels, p_k)."""
        return self._in_units(self.system.solution[0][factor], factor)

    def _in_units(self, spherical: NDArray, factor: int) -> NDArray:
        return spherical @ (self.maps[factor] @ self.system.roots[factor]).T

    def covariances(self, factor: int, given_mean: bool) -> NDArray:
        """Posterior covariances of these coefficients."""
        root = self.maps[factor] @ self.system.roots[factor]
        inner = self.system.covariances(factor, 0 if given_mean else len(self.mean))
        return self.unit * root @ inner @ root.T

    def errors_with(self, factor: int, design: NDArray) -> NDArray:
        """Posterior standard deviations of these, each plus a combination of the coefficients.

        Parameters
        ----------
        factor : int
        design : ndarray of shape (p_k, p)
            The combinations.

        Returns
        -------
        ndarray of shape (n_levels, p_k)
        """
        n, k = int(self.system.sums.sizes[factor]), len(design)
        none = np.full(n * k, -1)
        codes = [none] * len(self.maps)
        codes[factor] = np.repeat(np.arange(n), k)
        bases = [np.zeros((n * k, len(each))) for each in self.maps]
        bases[factor] = np.tile(self.maps[factor], (n, 1))
        columns = np.tile(scaled(design, self.triangle), (n, 1))
        variance = self.unit * self.system.variances(codes, bases, columns)
        return np.sqrt(variance).reshape(n, k)

    def _along(
        self, design: NDArray, codes: NDArray, effects: Sequence[NDArray], mean: NDArray
    ) -> NDArray:
        total = design @ mean
        for own, place, values in zip(codes.T, self.places, effects, strict=True):
            part = np.einsum("np,np->n", columns_at(design, place), values[own])
            total = total + np.where(own >= 0, part, 0.0)
        return total

    def predictor(self, design: NDArray, codes: NDArray) -> NDArray:
        """Linear predictors of rows, whose levels are -1 where the fit had none."""
        effects = [self.effects(k) for k in range(len(self.places))]
        return self._along(design, codes, effects, self.mean)

    def variance(self, design: NDArray, codes: NDArray) -> NDArray:
        """Variances of these linear predictors."""
        columns = scaled(design, self.triangle)
        return self.unit * self.system.variances([*codes.T], self.bases(design), columns)

    def bases(self, design: NDArray) -> list[NDArray]:
        """Columns of rows whose coefficients differ between levels, as the equations have them."""
        pairs = zip(self.places, self.maps, strict=True)
        return [columns_at(design, place) @ T for place, T in pairs]

    def spread(self, design: NDArray) -> NDArray:
        """Variances of the effects of rows of new levels."""
        total = np.zeros(len(design))
        for k, place in enumerate(self.places):
            basis = columns_at(design, place)
            total += np.einsum("np,pq,nq->n", basis, self.population(k), basis)
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
            drawn = rng.standard_normal((len(ids), len(self.maps[k])))
            drawn = np.sqrt(self.unit) * self._in_units(drawn, k)
            total += np.einsum("np,np->n", columns_at(design, self.places[k]), drawn[own])
        return total

    def drawn(self, design: NDArray, codes: NDArray, rng: np.random.Generator) -> NDArray:
        """Draw these linear predictors from their posterior, given the variances."""
        moved, columns = self.system.sample(rng)
        root = np.sqrt(self.unit)
        effects = [self.effects(k) + root * self._in_units(b, k) for k, b in enumerate(moved)]
        mean = self.mean + root * solve_triangular(self.triangle, columns, lower=False)
        z = self._along(design, codes, effects, mean)
        new = np.zeros(len(design))
        for k, place in enumerate(self.places):
            basis = columns_at(design, place)
            variance = np.einsum("np,pq,nq->n", basis, self.population(k), basis)
            new += np.where(codes[:, k] < 0, variance, 0.0)
        return z + np.sqrt(new) * rng.standard_normal(len(z))

    def as_data(self) -> dict[str, Any]:
        """Return the sums over rows, the roots and what was learned with them, as plain data."""
        sums = self.system.sums
        table = sums.table
        return {
            "slopes": {
                "roots": self.system.roots,
                "restricted": self.system.restricted,
                "places": self.places,
                "maps": self.maps,
                "blocks": sums.blocks,
                "table": [table.indptr, table.indices, table.data],
                "outer": sums.outer,
                "inner": sums.inner,
                "sizes": sums.sizes,
                "widths": sums.widths,
                "n_rows": sums.n_rows,
            },
            **{name: getattr(self, name) for name in OF_FIT},
        }

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Self:
        """Make a fit of plain data."""
        own = data["slopes"]
        ends, columns, values = own["table"]
        shape = len(own["outer"]), len(own["inner"]) - own["outer"].shape[1]
        table = csr_matrix((values, columns, ends), shape)
        table.check_format(full_check=True)
        sums = SlopedSums(
            own["blocks"],
            table,
            own["outer"],
            own["inner"],
            own["sizes"],
            own["widths"],
            own["n_rows"],
        )
        system = SlopedSystem(sums, own["roots"], own["restricted"])
        return cls(system, own["places"], own["maps"], *(data[name] for name in OF_FIT))


OF_FIT = (
    *("triangle", "mean", "mean_covariance"),
    *("noise", "unit", "criterion", "converged", "history"),
)


def _roots(spread: NDArray, bases: Sequence[NDArray]) -> list[NDArray]:
    """Lower triangles that are roots of the blocks of covariances, which may be singular."""
    found, ends = [], np.cumsum([0, *(each.shape[1] for each in bases)])
    for i, j in pairwise(ends.tolist()):
        values, vectors = np.linalg.eigh(spread[i:j, i:j])
        R: Any = np.linalg.qr((vectors * np.sqrt(np.maximum(values, 0))).T, mode="r")
        root = R.T
        found.append(root * np.where(np.diag(root) < 0, -1.0, 1.0))
    return found


def places_of(varying: Sequence[str], terms: Sequence[str]) -> list[int]:
    """Places of terms among the columns of X; -1 for an intercept that is not among them.

    Raises
    ------
    ValueError
        If a column follows from others, so that its coefficients are not identified.
    """
    known = [*terms, INTERCEPT]
    if lost := [term for term in varying if term not in known]:
        raise ValueError(
            f"columns whose coefficients differ between levels must not be collinear; {lost[0]!r} "
            "follows from the others."
        )
    return [list(terms).index(term) if term in terms else -1 for term in varying]


def columns_at(design: NDArray, places: Sequence[int]) -> NDArray[np.float64]:
    """Columns of X, of which -1 is that of ones, shape (n, k)."""
    ones = np.ones((len(design), 1))
    return np.hstack([ones if place < 0 else design[:, [place]] for place in places])


def _map(name: str, terms: Sequence[str], basis: NDArray, correlated: bool) -> NDArray:
    """Return the map to columns of squares of a mean of 1, orthogonal where they are correlated."""
    n, length = len(basis), np.linalg.norm(basis, axis=0)
    R = np.linalg.qr(basis, mode="r")
    short = ~(np.abs(np.diag(R)) > LEAST * length) | ~np.isfinite(length)
    if short.any():
        term = terms[int(np.argmax(short))]
        raise ValueError(
            f"slopes must not be collinear; {term!r} of factor {name!r} follows from the others."
        )
    if not correlated:
        return np.diag(np.sqrt(n) / length)
    return np.sqrt(n) * solve_triangular(R, np.eye(len(R)), lower=False)


def maximum_of(fit: CrossedFit | SlopedFit, correlated: Sequence[bool]) -> float:
    """Log-likelihood of the same linear model of the same rows, fitted by maximum likelihood.

    Parameters
    ----------
    fit : CrossedFit or SlopedFit
    correlated : list of bool
        Whether the coefficients of each factor are, in the order of the fit.
    """
    before = fit.system
    best: CrossedSystem | SlopedSystem
    if isinstance(before, SlopedSystem):
        best = maximise_slopes(before.sums, False, correlated)[0]
    else:
        best = maximise(before.sums, False)[0]
    of_weights = fit.criterion - before.deviance - before.restricted * log_det(fit.triangle)
    return -(best.deviance + of_weights) / 2
