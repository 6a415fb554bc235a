"""Fits of models of crossed factors, in the units of the columns of X."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve_triangular

from ebfed.inference.spread_degrees import NearbySpreads
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.numerics.crossed_doubt import spreads_near
from ebfed.regression.numerics.crossed_laplace import CrossedLaplace
from ebfed.regression.numerics.crossed_model import (
    MOST_LEVELS,
    CrossedEquations,
    CrossedSystem,
    maximise,
)
from ebfed.regression.numerics.crossed_sums import CrossedLevels
from ebfed.regression.numerics.noiseless import FAR, Limit, limit_of_crossed

__all__ = [
    "CrossedFit",
    "check_factors",
    "check_noise",
    "criterion_at",
    "fixed_too",
    "has_noise",
    "independent_columns",
    "log_det",
    "positive",
    "regressed",
    "scaled",
    "unit_of",
]

# Share of a column's length, less which it follows from others.
LEAST = 1e-10
# Variance of effects over that of noise, beyond which differences of sums have no digits.
LITTLE_NOISE = 1e9


@dataclass(frozen=True)
class CrossedFit:
    """The maximum of a likelihood.

    Attributes
    ----------
    equations : CrossedEquations
        With columns that are those of X, times the inverse of `triangle`.
    first, others : ndarray
        Spherical effects of the first factor, and of the levels of all others.
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
    nearby : NearbySpreads or None
        Spreads near the fitted ones, and the coefficients there; None of Gaussian rows, and without
        a maximum.
    """

    equations: CrossedEquations
    first: NDArray
    others: NDArray
    triangle: NDArray
    mean: NDArray
    mean_covariance: NDArray
    noise: float
    unit: float
    criterion: float
    converged: bool
    history: list[dict[str, Any]]
    nearby: NearbySpreads | None = None

    @classmethod
    def gaussian(
        cls,
        levels: CrossedLevels,
        design: NDArray,
        terms: list[str],
        rows: Responses,
        restricted: bool,
        fixed: Sequence[NDArray],
    ) -> Self:
        """Maximise the likelihood of Gaussian rows, which is exact.

        `fixed` is as `fixed_too` returns it: these factors have no variance.

        Raises
        ------
        ValueError
            If columns are collinear, or nothing varies.
        """
        triangle, least, columns = regressed(design, terms, rows)
        sums, known = levels.sums(rows.weight, columns), np.array([not each[0] for each in fixed])
        try:
            system, converged, history = maximise(sums, restricted, known)
            spread: NDArray | None = np.diag(system.gamma)
        except (LinAlgError, OverflowError):
            spread = None
        bases = [np.full((len(design), 1), float(each)) for each in known]
        limit = limit_of_crossed(
            levels.by_factor, bases, rows.weight, columns, ["diag"] * len(known), restricted, spread
        )
        if limit is not None:
            noise, unit = limit.noise, unit_of(limit)
            system = CrossedSystem(sums, np.diag(limit.covariance) / unit, restricted)
            beta, covariance = limit.beta, limit.beta_covariance
            converged, history = True, [{"criterion": criterion_at(system, noise)}]
        else:
            noise = unit = system.noise
            beta, covariance = system.solution[2], noise * system.covariance(system.p)
        first, others, _ = system.solution
        far = np.flatnonzero(system.gamma).tolist()
        if limit is not None and len(limit.effects) == len(far):  # these have more digits
            known_effects = dict(zip(far, limit.effects, strict=True))
            own = [
                known_effects[k].ravel() / system.theta[k] if k in far else np.zeros(size)
                for k, size in enumerate(levels.sizes.tolist())
            ]
            first, others = own[0], np.concatenate(own[1:])
        back = solve_triangular(triangle, np.eye(len(triangle)), lower=False)
        criterion = criterion_at(system, noise) + restricted * log_det(triangle)
        criterion -= float(np.log(rows.weight).sum())
        mean, covariance = least + back @ beta, back @ covariance @ back.T
        covariance = covariance if limit is None else positive(covariance)
        fitted = (triangle, mean, covariance, noise, unit, criterion, converged, history)
        return cls(system, first, others, *fitted)

    @classmethod
    def laplace(
        cls,
        levels: CrossedLevels,
        design: NDArray,
        terms: list[str],
        rows: Responses,
        family: ResponseFamily,
    ) -> Self:
        """Maximise Laplace's approximation of the likelihood of rows of another family.

        Raises
        ------
        ValueError
            If columns are collinear, or all rows are alike.
        """
        total, most = float(rows.weight @ rows.y), float(rows.weight.sum())
        if total == 0 or (family.name == "binomial" and total == most):
            raise ValueError(f"y must vary; it is {float(rows.y[0]):g} in every row.")
        triangle = triangle_of(design * np.sqrt(rows.weight / most)[:, None], terms)[1]
        model = CrossedLaplace(
            levels, scaled(design, triangle), family.kind, rows.y, rows.weight, rows.offset
        )
        found = model.fit()
        back = solve_triangular(triangle, np.eye(len(triangle)), lower=False)
        base = -2 * float(family.base(rows, np.zeros(0))[0].sum())
        nearby = spreads_near(model, found)
        return cls(
            model.with_columns(found.mode),
            found.mode.first,
            found.mode.others,
            triangle,
            back @ found.beta,
            back @ found.covariance @ back.T,
            1.0,
            1.0,
            found.mode.criterion + base,
            found.converged,
            [{"criterion": value + base} for value in found.path],
            None if nearby is None else nearby.turned(back),
        )

    @property
    def system(self) -> CrossedSystem:
        """The equations of a linear model."""
        assert isinstance(self.equations, CrossedSystem)
        return self.equations

    @cached_property
    def inverse(self) -> NDArray:
        """Inverse of the equations of the other factors and the columns of X."""
        return self.equations.inverse(len(self.mean))

    @property
    def starts(self) -> NDArray:
        """Place of the first level of each factor but the first, among all of these."""
        return np.concatenate(([0], np.cumsum(self.equations.sums.sizes[1:-1])))

    def population(self, factor: int) -> NDArray:
        """Covariance of the effect of a level of a factor, shape (1, 1)."""
        return np.array([[self.equations.gamma[factor] * self.unit]])

    def effects(self, factor: int) -> NDArray:
        """Effects of the levels of a factor."""
        theta = self.equations.theta[factor]
        return theta * (
            self.first if factor == 0 else self.others[self.equations.sums.owner == factor]
        )

    def covariances(self, factor: int, given_mean: bool) -> NDArray:
        """Posterior variances of these effects, shape (n_levels, 1, 1)."""
        columns = None if given_mean else np.zeros(len(self.mean))
        return self._variances(factor, columns)[:, None, None]

    def errors_with(self, factor: int, design: NDArray) -> NDArray:
        """Posterior standard deviations of these effects plus a combination of the coefficients.

        Parameters
        ----------
        factor : int
        design : ndarray of shape (1, p)
            The combination.

        Returns
        -------
        ndarray of shape (n_levels, 1)
        """
        return np.sqrt(self._variances(factor, scaled(design, self.triangle)[0]))[:, None]

    def _variances(self, factor: int, columns: NDArray | None) -> NDArray:
        """Variances of effects, with so much of the columns of the equations; None: these given."""
        n = int(self.equations.sums.sizes[factor])
        rows, others = np.full(n, -1), np.full((n, 1), -1)
        if factor == 0:
            rows = np.arange(n)
        else:
            others = np.flatnonzero(self.equations.sums.owner == factor)[:, None]
        inverse = self.equations.inverse(0) if columns is None else self.inverse
        along = None if columns is None else np.tile(columns, (n, 1))
        return self.unit * self.equations.variances(rows, others, np.zeros(n), along, inverse)

    def predictor(self, design: NDArray, codes: NDArray) -> NDArray:
        """Linear predictors of rows, whose levels are -1 where the fit had none."""
        total = design @ self.mean
        for factor, own in enumerate(codes.T):
            total = total + np.where(own >= 0, self.effects(factor)[own], 0.0)
        return total

    def drawn(self, design: NDArray, codes: NDArray, rng: np.random.Generator) -> NDArray:
        """Draw these linear predictors from their posterior, given the variances."""
        first, others, columns = self.equations.sample(len(self.mean), rng)
        root = np.sqrt(self.unit)
        moved = replace(
            self,
            first=self.first + root * first,
            others=self.others + root * others,
            mean=self.mean + root * solve_triangular(self.triangle, columns, lower=False),
        )
        z = moved.predictor(design, codes)
        new = np.sqrt(self.unit * ((codes < 0) @ self.equations.gamma))
        return z + new * rng.standard_normal(len(z))

    def spread(self, design: NDArray) -> NDArray:
        """Variances of the effects of rows of new levels."""
        return np.full(len(design), (self.unit * self.equations.gamma).sum())

    def renewed(
        self,
        design: NDArray,
        levels: Sequence[tuple[NDArray, NDArray]],
        rng: np.random.Generator,
    ) -> NDArray:
        """Draw the effects of rows whose levels are new."""
        total = np.zeros(len(design))
        for (ids, own), gamma in zip(levels, self.equations.gamma, strict=True):
            total += np.sqrt(self.unit * gamma) * rng.standard_normal(len(ids))[own]
        return total

    def with_rows(
        self,
        levels: CrossedLevels,
        design: NDArray,
        rows: Responses,
        family: ResponseFamily,
    ) -> Self:
        """Find the effects of levels from other responses, the variances and coefficients kept."""
        columns = scaled(design, self.triangle)
        model = CrossedLaplace(levels, columns, family.kind, rows.y, rows.weight, rows.offset)
        mode = model.mode(np.concatenate([self.equations.theta, self.triangle @ self.mean]))
        return replace(
            self, equations=model.with_columns(mode), first=mode.first, others=mode.others
        )

    def variance(self, design: NDArray, codes: NDArray) -> NDArray:
        """Variances of these linear predictors."""
        others = np.where(codes[:, 1:] >= 0, codes[:, 1:] + self.starts, -1)
        new = (codes < 0) @ self.equations.gamma
        columns = scaled(design, self.triangle)
        return self.unit * self.equations.variances(codes[:, 0], others, new, columns, self.inverse)


def unit_of(limit: Limit) -> float:
    """Variance that equations are over at a limit; see `CrossedFit`."""
    return limit.noise if limit.noise > 0 else float(limit.covariance.max()) / FAR**2


def has_noise(fit: Any) -> bool:
    """Whether noise is not so far below the spread of effects that tests have no digits."""
    most = max(np.diag(each).max(initial=0.0) for each in fit.covariances_.values())
    return bool(most <= LITTLE_NOISE * fit.noise_variance_)


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


def criterion_at(system: Any, noise: float) -> float:
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


def independent_columns(design: NDArray) -> tuple[NDArray[np.int64], NDArray]:
    """Find columns that do not follow from those before them, as lme4 keeps them.

    Returns
    -------
    kept : int64 ndarray of shape (rank,)
    null : ndarray of shape (p, p - rank)
        Combinations of columns that are zero in all rows: each of a column left out and those kept.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 4.0])
    >>> kept, null = independent_columns(np.column_stack([np.ones(3), x, 2 * x + 1]))
    >>> kept, null.round(6).ravel()
    (array([0, 1]), array([-1., -2.,  1.]))
    """
    R: Any = np.linalg.qr(design, mode="r")
    p, kept, axes, out = design.shape[1], [], np.zeros((len(R), 0)), []
    for j, column in enumerate(R.T):
        left = column
        for _ in range(2):  # once more, for digits
            left = left - axes @ (axes.T @ left)
        size = np.linalg.norm(left)
        if size > LEAST * np.linalg.norm(column):
            kept.append(j)
            axes = np.column_stack([axes, left / size])
        else:
            out.append(j)
    null = np.zeros((p, len(out)))
    null[out, np.arange(len(out))] = 1.0
    if kept and out:
        null[kept] = -np.linalg.lstsq(R[:, kept], R[:, out], rcond=None)[0]
    return np.array(kept, np.int64), null


def fixed_too(
    design: NDArray, weight: NDArray, codes: Sequence[NDArray], bases: Sequence[NDArray]
) -> list[NDArray[np.bool_]]:
    """Whether effects of factors are fixed too: at every level they lie within the span of X.

    The rows do not tell the variance of such effects.

    Parameters
    ----------
    design : ndarray of shape (n, p)
        Columns that are not collinear.
    weight : ndarray of shape (n,)
    codes : sequence of int64 ndarray of shape (n,)
        Level of each row of each factor.
    bases : sequence of ndarray of shape (n, q_k)
        Columns whose coefficients differ between levels.
    """
    found = [np.zeros(basis.shape[1], bool) for basis in bases]
    sizes = [int(own.max()) + 1 for own in codes]
    if min(sizes) > design.shape[1]:  # more levels than columns are not within their span
        return found
    root = np.sqrt(weight)[:, None]
    Q = np.linalg.qr(design * root)[0]
    for own, basis, size, lost in zip(codes, bases, sizes, found, strict=True):
        for j, column in enumerate((basis * root).T if size <= design.shape[1] else ()):
            whole = np.bincount(own, column**2, size)
            along = np.zeros((size, Q.shape[1]))
            np.add.at(along, own, column[:, None] * Q)
            lost[j] = (whole - np.sum(along**2, axis=1) <= 1e-9 * whole).all()
    return found


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


def check_factors(
    names: Sequence[str], sizes: Sequence[int], n_rows: int, alone: bool = False
) -> None:
    """Refuse factors whose variances rows cannot tell, or that are too large.

    A level of one row is enough where `alone`: the noise of a count is known.

    Raises
    ------
    ValueError
    """
    if not names:
        raise ValueError("groups must be of two factors or more, such as ['student', 'lecturer'].")
    if twice := {name for name in names if list(names).count(name) > 1}:
        raise ValueError(f"factors must have different names; {min(twice)!r} is there twice.")
    for name, size in zip(names, sizes, strict=True):
        if size < 2:
            raise ValueError(f"factor {name!r} must have two levels or more; it has {size}.")
        if size >= n_rows and not alone:
            raise ValueError(
                f"factor {name!r} has {size:,} levels for {n_rows:,} rows: its effects and the "
                "noise are the same."
            )
    others = sum(sizes) - max(sizes)
    if others > MOST_LEVELS:
        raise ValueError(
            f"the factors but the largest have {others:,} levels together; CrossedEB is exact, and "
            f"fits up to {MOST_LEVELS:,}."
        )
