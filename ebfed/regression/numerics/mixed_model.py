"""The linear mixed model, fitted by REML or ML to clients' triangular factors.

Client i's rows are ``y_i = X_i beta + Z_i u_i + e_i`` with ``u_i ~ N(0, sigma**2 T)`` and
``e_i ~ N(0, sigma**2 I)``; columns of Z_i may be among those of X_i or not: where a column has no
fixed coefficient, that entry of beta is zero. With
``T = root root'`` and ``V_i = I + Z_i T Z_i'``, beta and sigma**2 are profiled out, and what is
left to minimise over `root` is (Bates, Maechler, Bolker, Walker, 2015, eqs. 35 and 42)

    sum_i log|V_i| + [log|H|] + dof (1 + log(2 pi Q / dof)),
    H = sum_i X_i' V_i^-1 X_i,   Q = sum_i (y_i - X_i beta)' V_i^-1 (y_i - X_i beta),

with log|H| and dof = N - rank for REML, without and dof = N for ML. All of it comes from the rows
whitened by the Cholesky factor of V_i: one pass of compiled code over the clients, and products of
matrices. The slope in T is, with Z~, X~, e~ whitened,

    sum_i Z~_i' Z~_i  -  [sum_i Z~_i' X~_i H^-1 X~_i' Z~_i]  -  dof / Q sum_i Z~_i' e~_i e~_i' Z~_i.

A root of zero is where a variance of zero lies: there the criterion is smooth and even in the
root, so that a variance of zero needs no care. A T that may be any and is singular does: its
entries are sought instead of those of a root; see `descent`.

With an intercept, columns are centred first; means that dwarf the spread would cost digits.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from ebfed import kernels
from ebfed.inference.estimable import null_of
from ebfed.kernels.factors import BATCH
from ebfed.regression.numerics.descent import CovarianceSteps, QuasiNewtonSteps, descend
from ebfed.regression.numerics.noiseless import (
    FAR,
    NOTHING,
    Between,
    Limit,
    limit_of,
    limit_of_far,
)
from ebfed.regression.numerics.roots import (
    DiagonalRoot,
    best_size,
    raised_inverse,
    sizes_near,
    sound_factor,
)

__all__ = [
    "CommonProblem",
    "Covariance",
    "Fit",
    "Problem",
    "Profile",
    "column_products",
]

Covariance = Literal["spherical", "diag", "full"]

# Standard deviations of the search, in units of that of the noise: the largest, also where T may be
# any, and that of groups of few rows and of many at a second minimum.
LARGEST_ROOT, LARGEST_OF_ANY, SECOND_ROOT, SMALL_ROOT = 1e7, 1e9, 0.7, 0.05

# What is left of a column that is constant, by rounding, in units of its size.
FLAT = 1e-13

# A sum of squares of residuals, by that of y, of which the difference of sums has few digits.
FEW_DIGITS = 1e-6

BLOCK = 2048  # rows that stay in the processor's cache


@dataclass
class Fit:
    """A fitted mixed model.

    Attributes
    ----------
    mean : ndarray of shape (p,)
        beta.
    mean_covariance : ndarray of shape (p, p)
    covariances : ndarray of shape (n_levels, p, p)
        ``sigma**2 T`` of each level, from the top; zero for columns that do not vary.
    covariance_errors : ndarray of shape (n_levels, p, p)
        Sampling error of each: sampling covariance of its diagonal; where it is full, the average
        over the level's groups of ``Z_i' V_i^-1 Z_i / sigma**2``, inverted.
    noise_variance : float
        ``sigma**2``.
    criterion : float
        -2 log-likelihood, restricted for REML.
    path : list of float
        The criterion at each step.
    rank : int
        Rank of all clients' X together.
    converged : bool
    null : ndarray of shape (p, p - rank)
        Combinations of columns of X that are zero in all rows.
    confounded : bool ndarray of shape (q,)
        Of a fit by sums, which effects are fixed too, and were taken to have no variance.
    """

    mean: NDArray
    mean_covariance: NDArray
    covariances: NDArray
    covariance_errors: NDArray
    noise_variance: float
    criterion: float
    path: list[float]
    rank: int
    converged: bool
    null: NDArray
    confounded: NDArray = field(default_factory=lambda: np.zeros(0, bool))


class Problem:
    """The criterion as a function of the free entries of the root.

    Clients lie along the last axis of all arrays; columns have unit mean square. Those of X and y
    are centred where there is an intercept; those of Z only where T may be any, for a diagonal T
    means something else then.
    """

    def __init__(
        self,
        rows: Any,
        n_rows: int,
        varying: NDArray,
        covariance: Covariance,
        method: str,
        intercept: bool,
        terms: Sequence[Sequence[int]] | None = None,
        fixed: NDArray | None = None,
    ):
        self.n_clients, width = self.size_of(rows)
        self.n_rows, self.varying = n_rows, varying
        self.covariance, self.restricted = covariance, method == "reml"
        self.p, q = width - 1, len(varying)
        self.fixed = np.arange(self.p) if fixed is None else fixed
        intercept = intercept and 0 in self.fixed  # without its mean, others are not centred
        # of T: those of levels, and of the terms of all levels
        terms = [[q]] if terms is None else terms
        self.spans = _slices([sum(each) for each in terms])
        self.blocks = _slices([size for each in terms for size in each])
        self.centre = np.zeros(width)
        self.centred = np.zeros(q, bool)
        for block in self.blocks:  # centring is a change of coordinates
            self.centred[block] = covariance == "full" and 0 in varying[block]
        self.measure(rows, intercept)
        # Z = [X y]' map
        self.map = np.zeros((width, q))
        self.map[varying, np.arange(q)] = self.units[varying] / self.own_units
        if intercept:
            moved = self.centre[varying] / self.own_units * self.units[0]
            self.map[0] += np.where(self.centred, 0.0, moved)
        products = self.begin()
        self.basis, self.lost = self.directions(products)
        self.rank = self.basis.shape[1]
        self.of_effects = self.map.T @ products @ self.map / max(n_rows, 1)
        left_over = n_rows - self.rank
        self.dof = max(left_over if self.restricted else n_rows, 1)
        self.last: tuple[bytes, Profile] | None = None
        self.converged = True
        pooled = self.solve(0.0, products)
        if pooled.has_few_digits:
            pooled = self.whiten(np.zeros((q, q)))
        # what rounding leaves of a perfect fit is no noise
        self.noisy = left_over > 0 and pooled.quadratic > 1e-24 * n_rows**2

    def size_of(self, rows: NDArray) -> tuple[int, int]:
        """Number of clients that have rows, and of columns."""
        return int(np.count_nonzero(rows.any(axis=(1, 2)))), rows.shape[2]

    def directions(self, products: NDArray) -> tuple[NDArray, NDArray]:
        """Directions of beta that rows identify, shape (p, rank), and those that they do not."""
        known, lost = _basis(products[np.ix_(self.fixed, self.fixed)])
        place = np.eye(self.p)[:, self.fixed]
        return place @ known, place @ lost

    def measure(self, rows: NDArray, intercept: bool) -> None:
        """Centre columns, and divide them by their sizes."""
        self.rows = self.laid_out(rows)
        Z, squares = self.rows[self.varying], _squares(self.rows)
        if intercept:
            ones = self.rows[0].copy()
            self.centre[1:] = means_of(self.rows.reshape(self.p + 1, -1) @ ones.ravel())
            whole = self.sizes(squares)
            self.rows -= self.centre[:, None, None] * ones
            # of what is constant, rounding is left
            squares = _squares(self.rows)
            flat = self.sizes(squares) < FLAT * whole
            self.rows[flat] = squares[flat] = 0.0
        Z[self.centred] = self.rows[self.varying[self.centred]]
        self.units = self.sizes(squares)
        self.own_units = self.own(self.sizes(_squares(Z)))
        self.rows /= self.units[:, None, None]
        self.Z = Z / self.own_units[:, None, None]

    def sizes(self, squares: NDArray) -> NDArray:
        """Root mean squares of columns, from sums of squares."""
        size = np.sqrt(squares / max(self.n_rows, 1))
        return np.where(size > 0, size, 1.0)

    def own(self, sizes: NDArray) -> NDArray:
        """Units of the columns that vary; they share one if they share a variance."""
        if self.covariance == "spherical":
            for block in self.blocks:
                if len(sizes[block]):
                    sizes[block] = np.sqrt(np.mean(sizes[block] ** 2))
        return sizes

    def fit(self) -> Fit:
        """Minimise the criterion."""
        root = np.zeros((len(self.varying), len(self.varying)))
        path: list[float] = []
        if self.noisy and len(self.varying):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    root, path = self.minimise()
                    failed = None
                except np.linalg.LinAlgError as error:  # of numbers out of range
                    failed = error
            # effects as rows show them: those of nearly collinear columns may be large, and cancel
            shown = root.T @ self.of_effects @ root
            far = np.trace(shown) > FAR**2 and np.linalg.eigvalsh(shown)[-1] > FAR**2
            if failed or far:
                limit = self.without_noise(root)
                if limit is not None:
                    self.converged = True
                    return self.at_limit(limit, path)
                if failed:
                    raise failed
            for each in caught:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return self.conclude(root, path)

    def between(self, columns: NDArray) -> Between | None:
        """What rows say of some of the effects without noise; None of too many."""
        found = Between.of(self.rows.transpose(2, 1, 0), self.Z[columns].transpose(2, 1, 0))
        kept = [np.flatnonzero((b.start <= columns) & (columns < b.stop)) for b in self.blocks]
        kept = [each for each in kept if len(each)]
        [solved], [null] = found.solved, found.null
        parts = [solved[:, :, each] for each in kept], [null[:, :, each] for each in kept]
        return found._replace(solved=parts[0], null=parts[1], counts=[*found.counts] * len(kept))

    def without_noise(self, root: NDArray) -> Limit | None:
        """Limit as the noise goes to zero, of effects that are far beyond it; None if not known.

        Effects near the noise keep their spread, in units of it.
        """
        owner = np.repeat(np.arange(len(self.blocks)), [b.stop - b.start for b in self.blocks])
        kinds = [self.covariance] * len(self.blocks)
        of_rows = self.n_rows, self.basis, self.restricted
        return limit_of_far(
            self.between, np.arange(len(root)), owner, kinds, root @ root.T, *of_rows
        )

    def at_limit(self, limit: Limit, path: list[float]) -> Fit:
        """Put a limit into the units of the data."""
        T = limit.covariance
        size = float(np.trace(T))
        root = np.zeros_like(T)
        for block in self.blocks:
            values, vectors = np.linalg.eigh(T[block, block] / size)
            root[block, block] = vectors * np.sqrt(np.maximum(values, 0))
        values, vectors = np.linalg.eigh(limit.beta_covariance / size)
        half = (vectors * np.sqrt(np.maximum(values, 0))).T
        profile = Profile(0.0, 0.0, np.zeros((0, 0)), half, limit.beta, size * self.dof)
        fit = self.conclude(root, path, profile, limit.error)
        fit.noise_variance, fit.criterion = float(self.units[-1] ** 2 * limit.noise), np.nan
        if limit.noise > 0:
            at = self.whiten(root * np.sqrt(size / limit.noise))
            at.quadratic = limit.noise * self.dof
            fit.criterion = float(self.value(at) + self.offset())
        return fit

    def laid_out(self, rows: NDArray) -> NDArray:
        """Copy rows to an array with axes of columns, rows and clients."""
        n_clients, r, width = rows.shape
        result = np.zeros((width, r, -(-n_clients // BATCH) * BATCH))
        result[:, :, :n_clients] = rows.transpose(2, 1, 0)
        return result

    def begin(self) -> NDArray:
        """Make what all whitenings share; returns products of the columns."""
        self.white = np.zeros_like(self.rows)
        return column_products(self.rows)

    def weigh(self, root: NDArray) -> tuple[float, NDArray]:
        """Whiten the rows: sum of ``log|V_i|``, and products of the columns."""
        return kernels.whitened_products(self.rows, self.Z, self.varying, root, self.white)

    def squares_left(self, beta: NDArray) -> float:
        """Sum of squares of the residuals of the rows that were whitened last."""
        white = self.white.reshape(self.p + 1, -1)
        residual = white[-1] - beta @ white[:-1]
        return float(residual @ residual)

    def whiten(self, root: NDArray) -> Profile:
        """Whiten the rows, and solve for beta."""
        known = root.tobytes()
        if self.last is not None and known == self.last[0]:
            return self.last[1]
        profile = self.solve(*self.weigh(root))
        if profile.has_few_digits:
            profile.quadratic = max(self.squares_left(profile.beta), 1e-300)
        self.last = known, profile
        return profile

    def solve(self, log_det: float, products: NDArray) -> Profile:
        """Solve for beta, given products of whitened columns."""
        half, beta, quadratic, of_mean = kernels.least_squares(products, self.basis)
        if math.isnan(of_mean):
            raise np.linalg.LinAlgError("columns of X are collinear, once rows are whitened")
        of_mean = of_mean if self.restricted else 0.0
        return Profile(log_det, of_mean, products, half, beta, max(quadratic, 1e-300))

    def value(self, profile: Profile) -> float:
        """The criterion."""
        noise = 2 * math.pi * profile.quadratic / self.dof
        return profile.log_det + profile.of_mean + self.dof * (1 + math.log(noise))

    def value_at(self, diagonal: NDArray) -> float:
        """The criterion at a diagonal root."""
        return self.value(self.whiten(np.diag(diagonal)))

    @cached_property
    def shares(self) -> list[tuple[NDArray, NDArray, NDArray]]:
        """Of each level: columns of its effects, and what these have of them and of the first."""
        return [self.share_of(level) for level in self.spans]

    def share_of(self, block: slice) -> tuple[NDArray, NDArray, NDArray]:
        """Columns of a level's effects, and what these have of them and of the first column."""
        varying, own = self.varying[block], self.map[:, block]
        return varying, own[varying, np.arange(len(varying))], own[0] * (varying > 0)

    def effects_of(self, level: int, rows: NDArray) -> NDArray:
        """Z of a level, from rows that may be whitened."""
        varying, share, shift = self.shares[level]
        Z = rows.take(varying, axis=0)
        Z *= share[:, None, None]
        if shift.any():
            Z += shift[:, None, None] * rows[0]
        return Z

    def slope(self, profile: Profile) -> NDArray:
        """Slope of the criterion in T, at the rows that were whitened last."""
        half, weight = profile.half if self.restricted else profile.half[:0], self.dof
        given = half, profile.beta, weight / profile.quadratic
        return kernels.slope_in_covariance(self.white, *self.shares[0], *given)

    def minimise(self) -> tuple[NDArray, list[float]]:
        """Two steps of Fisher scoring for a diagonal T, then descent from there."""
        # far from zero groups count about alike: at zero, those of many rows would count for all
        first = self.near(self.score(np.full(len(self.varying), SECOND_ROOT)))
        # nearer, the metric is right: without this step, slopes took up to four times as many more
        first = min((first, self.score(first)), key=self.value_at)
        if self.covariance == "spherical":
            sizes = [len(first[b]) for b in self.blocks if len(first[b])]
            return self.descend(DiagonalRoot(sizes), np.diag(first))
        if self.covariance == "diag":
            return self.descend(DiagonalRoot([1] * len(first)), np.diag(first))
        return self.descend_in_any(first)

    def descend_in_any(self, first: NDArray) -> tuple[NDArray, list[float]]:
        """Descend in T of any kind, along the directions of effects that rows tell apart.

        Along others, of collinear columns, the criterion is flat: a search would drift there.
        """
        ways = [_basis(self.of_effects[b, b])[0] for b in self.blocks]
        blocks = _slices([each.shape[1] for each in ways])
        one, enough = len(self.blocks) == 1, self.enough()

        def curvature() -> NDArray:
            found = self.whole_curvature()
            return found if one else found[np.ix_(self.entries, self.entries)]

        if blocks == self.blocks:
            steps = CovarianceSteps(curvature, blocks, LARGEST_OF_ANY)
            ended = descend(self.value_and_slope, np.diag(first), steps, *enough)
            root, path, self.converged = ended
            return root, path
        along, turned = block_diag(*ways), block_diag(*(np.kron(each, each) for each in ways))

        def whole(root: NDArray) -> NDArray:
            root, found = along @ root, np.zeros((len(first), len(first)))
            for b, own in zip(self.blocks, blocks, strict=True):
                found[b, b.start : b.start + own.stop - own.start] = root[b, own]
            return found

        def value_and_slope(root: NDArray) -> tuple[float, NDArray]:
            value, slope = self.value_and_slope(whole(root))
            return value, along.T @ slope @ along

        def curvature_along() -> NDArray:
            return turned.T @ curvature() @ turned

        root = np.linalg.qr((np.linalg.pinv(along) * first).T)[1].T
        steps = CovarianceSteps(curvature_along, blocks, LARGEST_OF_ANY)
        root, path, self.converged = descend(value_and_slope, root, steps, *enough)
        return whole(root), path

    def enough(self) -> tuple[float, float]:
        """What is left to fall at the end, twice, and how much of it calls for a warning."""
        # to some 1e-5 of the variances, whose errors are about 1 / sqrt(n_clients) of them
        tolerance = min(1e-12 * self.n_clients**2, 1e-6)
        if self.covariance == "full":  # a step more: means move with covariances
            tolerance = min(0.1 * tolerance, 1e-8)
        return tolerance, 1e-4

    def near(self, first: NDArray) -> NDArray:
        """Return the best of several diagonals, as groups of many rows may have another minimum."""
        return min(self.tried(first), key=self.value_at)

    def tried(self, first: NDArray) -> list[NDArray]:
        """Diagonals that are compared: effects near the noise's size, small ones, and `first`.

        The last is the best as a rule, and its rows are whitened then. With several levels, small
        effects of all of them have led away from the best minimum rather than to it.
        """
        small = [np.full(len(first), SMALL_ROOT)] if len(self.blocks) == 1 else []
        return [np.full(len(first), SECOND_ROOT), *small, first]

    def descend(self, entries: DiagonalRoot, root: NDArray) -> tuple[NDArray, list[float]]:
        """Descend in the free entries of a root."""

        def criterion(free: NDArray) -> tuple[float, NDArray]:
            root = entries.root(free)
            profile = self.whiten(root)
            return self.value(profile), entries.of(2 * self.slope(profile) @ root)

        def metric() -> NDArray:
            return entries.metric(root.diagonal(), self.expected())

        start, steps = entries.free(root), QuasiNewtonSteps(metric, LARGEST_ROOT)
        free, path, self.converged = descend(criterion, start, steps, *self.enough())
        # a root on its way to zero arrives there slowly
        at_zero = np.where(np.abs(free) < 1e-2 * np.abs(free).max(initial=1.0), 0.0, free)
        if not at_zero.all() and criterion(at_zero)[0] <= path[-1] + self.enough()[0]:
            free = at_zero
        return entries.root(free), path

    def value_and_slope(self, root: NDArray) -> tuple[float, NDArray]:
        """The criterion at a root, and its slope in T."""
        profile = self.whiten(root)
        return self.value(profile), self.slope(profile)

    @cached_property
    def entries(self) -> NDArray[np.int64]:
        """Places of the entries of blocks of T among those of its levels, one after another."""
        found, at = [], 0
        for level in self.spans:
            q = level.stop - level.start
            for block in self.blocks:
                if level.start <= block.start and block.stop <= level.stop:
                    own = np.arange(block.start, block.stop) - level.start
                    found.append(at + (own[:, None] * q + own).ravel())
            at += q * q
        return np.concatenate(found)

    def whole_curvature(self) -> NDArray:
        """Expected curvature of the criterion in all entries of T of each level, one after another.

        It is ``sum_i tr(K D K E)`` along D and E, with ``K = Z~_i' Z~_i``, at the rows whitened
        last, less what sharing sigma**2 takes away.
        """
        return kernels.curvature_in_covariance(self.white, *self.shares[0], self.n_rows, True)

    def score(self, diagonal: NDArray) -> NDArray:
        """One step of Fisher scoring for a diagonal T, from the diagonal of a root to another."""
        slope = self.slope(self.whiten(np.diag(diagonal))).diagonal()
        curvature = self.expected()
        bend = curvature.diagonal()
        if self.covariance == "spherical":
            step, bend = np.empty_like(slope), np.empty_like(slope)
            for block in self.blocks:
                bend[block] = max(curvature[block, block].sum(), 1e-300)
                step[block] = slope[block].sum() / bend[block]
        else:
            step = raised_inverse(curvature) @ slope
        least = np.where(bend > 0, 0.1 / np.sqrt(np.where(bend > 0, bend, 1.0)), 0.0)
        return np.sqrt(np.maximum(diagonal**2 - step, least))

    def expected(self) -> NDArray:
        """About `curvature`, where `slope` was taken last."""
        return self.curvature()

    def curvature(self) -> NDArray:
        """Expected curvature of the criterion in the diagonal of T, at the rows whitened last.

        It is ``sum_i (Z~_i' Z~_i)_jk**2``, less what sharing sigma**2 takes away.
        """
        return kernels.curvature_in_covariance(self.white, *self.shares[0], self.n_rows, False)

    def conclude(
        self,
        root: NDArray,
        path: list[float],
        profile: Profile | None = None,
        error: NDArray | None = None,
    ) -> Fit:
        """Put the optimum into the units of the data.

        Parameters
        ----------
        root : ndarray of shape (q, q)
        path : list of float
        profile, error : optional
            Figures there, and the sampling error of T; those of the rows if None.
        """
        profile = self.whiten(root) if profile is None else profile
        units, unit = self.units[:-1], self.units[-1]
        noise = unit**2 * profile.quadratic / self.dof if self.noisy else 0.0
        back = np.eye(self.p)  # from centred columns
        back[0, 1:] -= self.centre[1:-1]
        mean = back @ (unit * profile.beta / units)
        mean[0] += self.centre[-1]
        half = profile.half / units @ back.T
        own = np.zeros((self.p, len(self.varying)))
        own[self.varying, np.arange(len(self.varying))] = 1 / self.own_units
        own = np.where(self.centred, back @ own, own)
        known = self.covariance_error(profile, noise) if error is None else self.in_units(error)
        levels = [(own[:, b], root[b, b], known[b, b]) for b in self.spans]
        offset = self.offset() if self.noisy else 0.0
        criterion = float(self.value(profile) + offset) if self.noisy else np.nan
        return Fit(
            mean=mean,
            mean_covariance=_symmetric(noise * half.T @ half),
            # root by root, for a product of the middle two would cost digits
            covariances=np.array([_symmetric(noise * Z @ R @ R.T @ Z.T) for Z, R, _ in levels]),
            covariance_errors=np.array([_symmetric(Z @ E @ Z.T) for Z, _, E in levels]),
            noise_variance=float(noise),
            criterion=criterion,
            path=[value + offset for value in path],
            rank=self.rank,
            converged=self.converged,
            null=null_of(self.lost, units, self.centre[:-1]),
        )

    def offset(self) -> float:
        """What the criterion gains where columns are in their own units."""
        offset = 2 * self.dof * np.log(self.units[-1])
        return float(offset + self.of_units(self.units[:-1]) if self.restricted else offset)

    def in_units(self, error: NDArray) -> NDArray:
        """Sampling error of a limit, from units of y and the columns."""
        if self.covariance == "full":
            return self.units[-1] ** 2 * error
        return self.units[-1] ** 4 * error / np.outer(self.own_units, self.own_units)

    def of_units(self, units: NDArray) -> float:
        """What ``log|H|`` gains where X is in its own units, without columns that others imply.

        Of columns that are collinear the first are kept, as lme4 does.
        """
        if self.rank == self.p:
            return float(2 * np.log(units).sum())
        units = units[self.fixed]
        moves = np.linalg.inv(np.column_stack([self.basis, self.lost])[self.fixed])[: self.rank]
        kept: list[int] = []
        for j in range(len(units)):
            if np.linalg.matrix_rank(moves[:, [*kept, j]], 1e-6 * np.abs(moves).max()) > len(kept):
                kept.append(j)
        log_det = np.linalg.slogdet(moves[:, kept])[1]
        return float(2 * (log_det + np.log(units[kept]).sum()))

    def covariance_error(self, profile: Profile, noise: float) -> NDArray:
        """Sampling error of T, in its own units; see `Fit`."""
        q = len(self.varying)
        if not self.noisy or not q:
            return np.zeros((q, q))
        if self.covariance == "full":
            error, inner = np.zeros((q, q)), self.mean_information(profile)
            for block in self.blocks:
                error[block, block] = noise * raised_inverse(inner[block, block])
            return error
        curvature = self.curvature()
        if self.covariance == "spherical":
            some = [block for block in self.blocks if block.stop > block.start]
            sums = np.array([[curvature[a, b].sum() for b in some] for a in some])
            variances = np.zeros((q, q))
            for block, variance in zip(some, np.diag(2 * raised_inverse(sums)), strict=True):
                variances[block, block] = variance
        else:
            variances = 2 * raised_inverse(curvature)
        # the units of a variance are squares: `own` brings them in once
        return noise**2 * variances / np.outer(self.own_units, self.own_units)

    def mean_information(self, profile: Profile) -> NDArray:
        """Average of ``Z~_i' Z~_i`` over clients that have rows."""
        return self.map.T @ profile.products @ self.map / self.n_clients


class CommonProblem(Problem):
    """The criterion where all coefficients that vary share a variance.

    ``V_i = I + size**2 Z_i Z_i'`` has the same axes whatever the size: once rows are turned into
    them, V_i is diagonal, and every row has a weight.
    """

    def laid_out(self, rows: NDArray) -> NDArray:
        """Copy rows, to be seen with axes of columns, rows and clients."""
        return rows.copy().transpose(2, 1, 0)

    def begin(self) -> NDArray:
        """Turn each client's rows into the axes of ``Z_i Z_i'``."""
        Z: Any = np.ascontiguousarray(self.Z.transpose(2, 1, 0))
        if Z.shape[1] < Z.shape[2]:  # a triangle has the same axes
            Z = np.linalg.qr(Z.swapaxes(1, 2), mode="r")
            Z = Z.swapaxes(1, 2)
        axes, sizes, _ = np.linalg.svd(Z)
        spread = np.zeros(axes.shape[:2])
        spread[:, : sizes.shape[1]] = sizes**2
        turned = axes.swapaxes(1, 2) @ self.rows.transpose(2, 1, 0)
        self.turned, self.spread = turned.reshape(-1, self.p + 1), spread.ravel()
        del self.Z, self.rows
        self.weights = np.ones_like(self.spread)
        return self.products(self.weights)

    def weigh(self, root: NDArray) -> tuple[float, NDArray]:
        """Sum of ``log|V_i|``, and products of the columns, weighted."""
        V = 1 + root[0, 0] ** 2 * self.spread
        self.weights = 1 / V
        return float(np.log(V).sum()), self.products(np.sqrt(self.weights))

    def without_noise(self, root: NDArray) -> Limit | None:
        """Limit as the noise goes to zero: turned rows are independent, with a spread each."""
        reached = self.spread > NOTHING**2 * self.spread.max(initial=0.0)
        size = np.sqrt(self.spread[reached])
        solved = (self.turned[reached] / size[:, None])[:, None, None, :]
        n, none = len(solved), np.zeros((len(solved), 1, 1, 0))
        between = Between(self.turned[~reached], [solved], [none], [n], n)
        found = limit_of(between, self.n_rows, self.basis, ["diag"], self.restricted)
        if found is None:
            return None
        q = len(self.varying)
        spread, error = found.covariance[0, 0] * np.eye(q), found.error[0, 0] * np.eye(q)
        return found._replace(covariance=spread, error=error)

    def products(self, weights: NDArray) -> NDArray:
        """Products of the columns of rows times weights; some rows at a time, in the cache."""
        n, width = self.turned.shape
        total, block = np.zeros((width, width)), np.empty((min(n, BLOCK), width))
        for at in range(0, n, BLOCK):
            rows = self.turned[at : at + BLOCK]
            own = np.multiply(rows, weights[at : at + BLOCK, None], out=block[: len(rows)])
            total += own.T @ own
        return total

    def squares_left(self, beta: NDArray) -> float:
        """Sum of squares of the residuals, weighted."""
        residual = self.turned[:, -1] - self.turned[:, :-1] @ beta
        return float(self.weights @ residual**2)

    def near(self, first: NDArray) -> NDArray:
        """Search all sizes: columns of different sizes may give several minima."""
        return best_size(lambda root: self.value(self.whiten(root)), sizes_near(first), len(first))

    def slope(self, profile: Profile) -> NDArray:
        """Slope of the criterion in T, of which only the trace is right."""
        share = self.spread * self.weights
        moved = self.products(np.sqrt(share * self.weights))
        away = np.append(profile.beta, -1.0)
        slope = share.sum() - self.dof / profile.quadratic * away @ moved @ away
        if self.restricted:
            slope -= np.sum(profile.half @ moved[:-1, :-1] * profile.half)
        q = len(self.varying)
        return slope / q * np.eye(q)

    def curvature(self) -> NDArray:
        """Expected curvature of the criterion in T, of which only the sum is right."""
        share = self.spread * self.weights
        mean, q = share.sum() / self.n_rows, len(self.varying)
        # far beyond the noise shares are all but equal: a difference of sums would have no digits
        away = np.sum((share - mean) ** 2) + (self.n_rows - len(share)) * mean**2
        return np.full((q, q), away / q**2)


@dataclass
class Profile:
    """Figures of the whitened rows.

    Attributes
    ----------
    log_det, of_mean : float
        Sum of ``log|V_i|``; for REML, ``log|H|``.
    products : ndarray of shape (p + 1, p + 1)
        Products of the columns of ``[X y]``, whitened.
    half : ndarray of shape (rank, p)
        ``H^-1 = half' half``.
    beta : ndarray of shape (p,)
    quadratic : float
        Q.
    """

    log_det: float
    of_mean: float
    products: NDArray
    half: NDArray
    beta: NDArray
    quadratic: float

    @property
    def has_few_digits(self) -> bool:
        """Whether Q is a difference of sums that are much larger."""
        return bool(self.quadratic < FEW_DIGITS * self.products[-1, -1])


def column_products(columns: NDArray) -> NDArray:
    """Products of a few columns; of two arrays, for BLAS is slow at those of one with itself."""
    flat = columns.reshape(len(columns), -1)
    return flat @ flat.copy().T


def _slices(sizes: Sequence[int]) -> list[slice]:
    """Slices of these sizes, one after another."""
    return [slice(*each) for each in pairwise(accumulate(sizes, initial=0))]


def means_of(products: NDArray) -> NDArray:
    """Means of all columns but the first, from products with that, the constant.

    Its own product is the sum of weights, which is the number of rows if they have none.
    """
    return products[1:] / (products[0] or 1.0)


def _squares(columns: NDArray) -> NDArray:
    return np.array([np.vdot(each, each) for each in columns], float)


def _symmetric(matrix: NDArray) -> NDArray:
    return (matrix + matrix.T) / 2


def _basis(products: NDArray) -> tuple[NDArray, NDArray]:
    """Directions of coefficients that X identifies, shape (p, rank), and those that it does not."""
    size = np.sqrt(products.diagonal())
    size = np.where(size > 0, size, 1.0)
    products = products / np.outer(size, size)
    whole = np.eye(len(products)), np.empty((len(products), 0))
    if sound_factor(products, 1e-11) is not None:
        return whole
    values, vectors = np.linalg.eigh(products)
    known = values > 1e-11 * max(values.max(initial=0.0), 1e-300)
    if known.all():
        return whole
    return vectors[:, known] / size[:, None], vectors[:, ~known] / size[:, None]
