"""Generalized linear models of crossed factors: Laplace's approximation of their likelihood.

A row has the linear predictor ``x' beta + sum_k z_k' R_k b_k + offset``, with ``b_k ~ N(0, I)`` of
its level of factor k. The likelihood integrates over all b, which has no closed form; Laplace's
method takes the normal integrand with the same mode and the same second derivatives there (Bates et
al. 2015; lme4's `glmer` with ``nAGQ=1``):

    -2 log L = -2 l(eta) + |b|**2 + log det(I + R' Z' W Z R),   at the mode of b.

The mode, the determinant, and the slope of this in the roots R, beta and the shapes of the family
are exact: the equations are those of a linear model with weights W, see
`ebfed.regression.numerics.crossed_model`. The mode moves with the parameters, and W with the mode;
one more solution of the equations has the slope of both (the adjoint).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from sklearn.exceptions import ConvergenceWarning

from ebfed.kernels import predictor_rows, shape_rows, twist_rows
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.numerics.crossed_model import CrossedEquations, CrossedInverse
from ebfed.regression.numerics.crossed_search import CrossedBlocks, one_way
from ebfed.regression.numerics.crossed_sums import CrossedDesign
from ebfed.regression.numerics.descent import QuasiNewtonSteps, are_few, descend

__all__ = ["FARTHEST", "CrossedLaplace", "LaplaceFit", "Mode"]

Criterion = Callable[[NDArray], tuple[float, NDArray]]

# Spreads, and coefficients of columns whose squares have the mean 1, stay below this.
FARTHEST = 60.0
# Newton's steps to the mode end where one is of less than the root of this, for a row; or after one
# of less than that of the second, whose square is below the first.
CLOSE, QUADRATIC = 1e-16, 1e-10
# The objective of the modes may be above that of the last one by this, where the last one leads.
FARTHER = 10.0
# What a quadratic has left to fall, of the criterion, where the search ends.
TOLERANCE = 1e-8
# Weights of rows are above this at the start, also where columns separate rows.
LEAST = 1e-8
# Share of the largest weight that others have at least, where equations would be singular.
LIGHT = 1e-10
# Step of differences of slopes, as a share of standard errors, and of shapes at the start.
STEP, SHAPE_STEP = 1e-2, 1e-2
# Entries of roots below this are tried as zeros.
SMALL = 0.02
# Spreads from which a second search begins, and what it is to gain, twice.
APART, GAIN = 1.0, 2e-6
# Share of the largest curvature in entries of roots that others have at least, at the start.
FLAT = 1e-3


@dataclass(frozen=True)
class Mode:
    """The mode of the effects at some parameters.

    Attributes
    ----------
    equations : CrossedEquations
        With the weights of rows there.
    first : ndarray of shape (n_1, p_1)
    others : ndarray of shape (q,)
        Spherical effects.
    predictor : ndarray of shape (n_rows,)
    found : ndarray of shape (2, n_rows)
        Slopes of rows, and their weights.
    criterion : float
        -2 log-likelihood.
    """

    equations: CrossedEquations
    first: NDArray
    others: NDArray
    predictor: NDArray
    found: NDArray
    criterion: float


class LaplaceFit(NamedTuple):
    """The maximum of the approximate likelihood.

    Attributes
    ----------
    point : ndarray of shape (d,)
        Entries of roots, coefficients and shapes.
    covariance : ndarray of shape (p + t, p + t)
        Sampling covariance of coefficients and shapes.
    known : ndarray of shape (d, d) or None
        That of all, zero where an entry of a root is; None where second derivatives have no
        inverse.
    """

    mode: Mode
    point: NDArray
    covariance: NDArray
    converged: bool
    path: list[float]
    known: NDArray | None


class CrossedLaplace:
    """The approximate likelihood of rows.

    Parameters
    ----------
    design : CrossedDesign
        With columns whose squares have a mean of about 1.
    columns : ndarray of shape (n_rows, p)
        Columns of X, likewise.
    family : ResponseFamily
    rows : Responses
    blocks : CrossedBlocks
    """

    def __init__(
        self,
        design: CrossedDesign,
        columns: NDArray,
        family: ResponseFamily,
        rows: Responses,
        blocks: CrossedBlocks,
    ):
        self.design, self.columns, self.blocks = design, columns, blocks
        self._family, self._responses = family, rows
        self.entries = blocks.in_roots
        self.n_entries, self.p = len(self.entries), columns.shape[1]
        self._start, self._shapes = family.begin(family.figures(rows).sum(axis=0))
        self._base = None if len(self._shapes) else self._of_base(self._shapes)
        self._shape = int(design.sizes[0]), int(design.widths[0])
        self._count = int((design.sizes * design.widths)[1:].sum())
        self._last: tuple[Sequence[NDArray], NDArray, NDArray, Mode, float] | None = None

    # Rows -------------------------------------------------------------------------------------

    def _of_base(self, shapes: NDArray) -> float:
        return -2 * float(self._family.base(self._responses, shapes)[0].sum())

    def _rows(self, predictor: NDArray, shapes: NDArray) -> tuple[float, NDArray]:
        found, rows = np.empty((2, len(predictor))), self._responses
        value = predictor_rows(
            self._family.kind, rows.y, rows.weight, predictor, self._family.in_kernel(shapes), found
        )
        return -2 * value, found

    def _by_shape(self, predictor: NDArray, shapes: NDArray) -> NDArray:
        """Slopes in shapes of log-likelihoods, their slopes and weights, shape (3, n_rows, t)."""
        family, rows = self._family, self._responses
        found = np.empty((3, len(predictor), len(shapes)))
        shape_rows(family.kind, rows.y, rows.weight, predictor, family.in_kernel(shapes), found)
        turn = family.turn(shapes)
        found = found if turn is None else found @ turn
        found[0] += family.base(rows, shapes)[1]
        return found

    # Parameters -------------------------------------------------------------------------------

    def roots(self, point: NDArray) -> list[NDArray]:
        """Roots of the factors' covariances, lower triangles."""
        made = [np.zeros((int(p), int(p))) for p in self.design.widths]
        for (k, a, b), value in zip(self.entries, point, strict=False):
            made[k][a, b] = value
        return made

    def shapes(self, point: NDArray) -> NDArray:
        """Shapes of the family."""
        return point[self.n_entries + self.p :]

    def beta(self, point: NDArray) -> NDArray:
        """Coefficients of columns."""
        return point[self.n_entries : self.n_entries + self.p]

    def _alone(self) -> NDArray:
        """Coefficients without any effects, by Newton's method."""
        shapes, offset = self._shapes, self._responses.offset
        beta = np.zeros(self.p)
        value, found = self._rows(self.columns @ beta + offset, shapes)
        for _ in range(50):
            bend = self.columns.T @ (found[1][:, None] * self.columns)
            bend[np.diag_indices(len(beta))] += 1e-9 * len(offset)
            slope = self.columns.T @ found[0]
            step = np.linalg.solve(bend, slope)
            fall = float(step @ slope)
            for _ in range(40):
                moved = np.clip(beta + step, -FARTHEST / 2, FARTHEST / 2)
                reached, there = self._rows(self.columns @ moved + offset, shapes)
                if reached <= value:
                    break
                step = step / 2
            beta, value, found = moved, reached, there
            if fall < 1e-6:
                break
        return beta

    def start(self) -> NDArray:
        """Spreads by one-way analyses of working responses, and coefficients without effects."""
        beta, none = self._alone(), np.zeros((len(self.columns), 0))
        _, found = self._rows(self.columns @ beta + self._responses.offset, self._shapes)
        sums = self.design.sums(np.maximum(found[1], LEAST), none)
        first, others = self.design.totals(found[0][:, None])
        slopes = [first.reshape(self._shape), *sums.split(others[:, 0])]
        spreads = [
            np.sqrt(np.clip(one_way(sums.weights_of(k)[:, a], slopes[k][:, a], 1.0), 1e-4, 25.0))
            if a == b
            else 0.0
            for k, a, b in self.entries
        ]
        return np.concatenate([spreads, beta, self._shapes])

    # The mode ---------------------------------------------------------------------------------

    def mode(self, point: NDArray) -> Mode:
        """Find the mode at these parameters."""
        return self.mode_at(self.roots(point), self.beta(point), self.shapes(point))

    def mode_at(self, roots: Sequence[NDArray], beta: NDArray, shapes: NDArray) -> Mode:
        """Find the mode by Newton's method, from where the last one leads, or from zero."""
        design, none = self.design, np.zeros((len(self.columns), 0))
        first, others, value, found, predictor = self._begin(roots, beta, shapes)
        fixed, close = self.columns @ beta + self._responses.offset, False
        for _ in range(100):
            equations = CrossedEquations(design.sums(found[1], none), roots)
            if close:
                break
            top, bottom = self._spherical(equations, found[0])
            top, bottom = top - first, bottom - others
            move = equations.solve(top, bottom)
            size = float(np.vdot(top, move[0]) + bottom @ move[1])
            if size < CLOSE * len(fixed):
                break
            length = 1.0
            while True:
                trial = first + length * move[0], others + length * move[1]
                reached = self._inner(fixed, roots, shapes, *trial)
                if reached[0] <= value + 1e-12 * abs(value) or length < 1e-8:
                    break
                length /= 2
            first, others = trial
            value, found, predictor = reached
            close = length == 1.0 and size < QUADRATIC * len(fixed)
        criterion = value + equations.log_det
        criterion += self._of_base(shapes) if self._base is None else self._base
        mode = Mode(equations, first, others, predictor, found, criterion)
        self._last = roots, beta, shapes, mode, value
        return mode

    def _inner(
        self, fixed: NDArray, roots: Sequence[NDArray], shapes: NDArray, *effects: NDArray
    ) -> tuple[float, NDArray, NDArray]:
        """Return what the mode minimises, slopes and weights of rows, and their predictors."""
        first, others = effects
        pairs = zip(self.design.spans, roots[1:], strict=True)
        parts = [others[own].reshape(-1, len(R)) @ R.T for own, R in pairs]
        predictor = fixed + self.design.predictor([first @ roots[0].T, *parts])
        value, found = self._rows(predictor, shapes)
        return value + float(np.vdot(first, first) + others @ others), found, predictor

    def _begin(
        self, roots: Sequence[NDArray], beta: NDArray, shapes: NDArray
    ) -> tuple[NDArray, NDArray, float, NDArray, NDArray]:
        """Effects where the last mode leads; the last ones, or zeros, where these are better."""
        fixed = self.columns @ beta + self._responses.offset
        zero = np.zeros(self._shape), np.zeros(self._count)
        if self._last is None:
            return *zero, *self._inner(fixed, roots, shapes, *zero)
        old_roots, old_beta, old_shapes, last, least = self._last
        own = last.first, last.others
        away = [one - other for one, other in zip(roots, old_roots, strict=True)]
        moves = self._tangent(last, away, beta - old_beta, shapes - old_shapes, old_shapes)
        best = own[0] + moves[0], own[1] + moves[1]
        reached = self._inner(fixed, roots, shapes, *best)
        if not reached[0] < least + FARTHER:
            for each in (own, zero):
                beside = self._inner(fixed, roots, shapes, *each)
                if beside[0] < reached[0] or not np.isfinite(reached[0]):
                    reached, best = beside, each
        return *best, *reached

    def _tangent(
        self,
        mode: Mode,
        roots: Sequence[NDArray],
        beta: NDArray,
        move: NDArray,
        shapes: NDArray,
    ) -> tuple[NDArray, NDArray]:
        """How the mode moves with the parameters, by these changes of them; `shapes` are its own.

        The equations ``R' Z' s = b`` of the mode, differentiated.
        """
        equations, split = mode.equations, mode.equations.sums.split
        slopes, weight = mode.found
        parts = [
            each @ root.T
            for each, root in zip([mode.first, *split(mode.others)], roots, strict=True)
        ]
        turn = -weight * (self.columns @ beta + self.design.predictor(parts))
        if len(move) and move.any():
            turn += self._by_shape(mode.predictor, shapes)[1] @ move
        if not any(root.any() for root in roots):
            return equations.solve(*self._spherical(equations, turn))
        top, bottom = self.design.totals(np.stack([turn, slopes], axis=1))
        top = top.reshape(*mode.first.shape, 2)
        own = top[..., 0] @ equations.roots[0] + top[..., 1] @ roots[0]
        pairs = zip(split(bottom), equations.roots[1:], roots[1:], strict=True)
        rest = [(each[..., 0] @ R + each[..., 1] @ dR).ravel() for each, R, dR in pairs]
        return equations.solve(own, np.concatenate(rest))

    def _spherical(self, equations: CrossedEquations, values: NDArray) -> tuple[NDArray, NDArray]:
        """``R' Z'`` times values of rows."""
        top, bottom = self.design.totals(values[:, None])
        own = top.reshape(self._shape) @ equations.roots[0]
        return own, equations.spherical(bottom[:, 0])

    def _along(self, equations: CrossedEquations, first: NDArray, others: NDArray) -> NDArray:
        """``Z R`` times spherical effects."""
        parts = equations.sums.split(equations.natural(others))
        return self.design.predictor([first @ equations.roots[0].T, *parts])

    def slope(self, point: NDArray, mode: Mode) -> NDArray:
        """Slope of the criterion in all parameters."""
        by_root, *others = self.slopes_at(mode, self.shapes(point))
        return np.concatenate([[by_root[k][a, b] for k, a, b in self.entries], *others])

    def slopes_at(self, mode: Mode, shapes: NDArray) -> tuple[list[NDArray], NDArray, NDArray]:
        """Slopes of the criterion in the roots, in the coefficients of columns, and in shapes."""
        equations = mode.equations
        (slopes, weight), family, rows = mode.found, self._family, self._responses
        third = twist_rows(
            family.kind, rows.y, rows.weight, mode.predictor, family.in_kernel(shapes), weight
        )
        inverse = equations.inverse(0)
        spread = self._spreads(equations, inverse)
        turn = third * spread
        first, others = equations.solve(*self._spherical(equations, turn))
        along = self._along(equations, first, others)
        turn -= weight * along
        by_beta = self.columns.T @ (turn - 2 * slopes)
        top, bottom = self.design.totals(np.stack([slopes, turn], axis=1))
        split, p = equations.sums.split, top.shape[1]
        scores = [top.reshape(*mode.first.shape, p), *split(bottom)]
        effects, adjoint = [mode.first, *split(mode.others)], [first, *split(others)]
        by_root = []
        for k, (score, b, u) in enumerate(zip(scores, effects, adjoint, strict=True)):
            s, t = score[..., 0], score[..., 1]
            U = equations.precisions(k, inverse).sum(axis=0)
            by_root.append((t - 2 * s).T @ b + s.T @ u + 2 * U @ equations.roots[k])
        if not len(shapes):
            return by_root, by_beta, np.zeros(0)
        value, rise, bend = self._by_shape(mode.predictor, shapes)
        return by_root, by_beta, spread @ bend - 2 * value.sum(axis=0) + along @ rise

    def _spreads(self, equations: CrossedEquations, inverse: CrossedInverse) -> NDArray:
        """Variances of the effects of rows."""
        design, share = self.design, equations.share
        forms, products = equations.first_forms(inverse)
        own, basis = design.codes[0], design.bases[0]
        ahead = (
            (share[own] @ basis[:, :, None])[:, :, 0]
            if basis.shape[1] > 1
            else (basis * share[own, 0])
        )
        found = np.einsum("na,na->n", basis, ahead)
        if basis.shape[1] > 1:
            found += np.einsum("na,nab,nb->n", ahead, forms[own], ahead)
        else:
            found += ahead[:, 0] ** 2 * forms[own, 0, 0]
        entries = [
            (codes * len(values.T) + span.start + b, values[:, b])
            for codes, values, span in zip(
                design.codes[1:], design.bases[1:], design.spans, strict=True
            )
            for b in range(values.shape[1])
        ]
        table = design.places
        for k, values in enumerate(design.bases[1:]):
            slots = design.among[k + 1, 0].slots
            first, length = table.first[k][slots], table.length[k][slots]
            for b, column in enumerate(values.T):
                for a, each in enumerate(ahead.T):
                    found -= 2 * each * column * products[first + a * length + b]
        at = equations.sums.pattern.at
        for i, (places, column) in enumerate(entries):
            found += column**2 * at(inverse.values, places, places)
            for others, other in entries[:i]:
                found += 2 * column * other * at(inverse.values, places, others)
        return found

    # The search -------------------------------------------------------------------------------

    def fit(self) -> LaplaceFit:
        """Maximise the approximate likelihood in all parameters."""
        K, last = self.n_entries, list[Mode]()

        def criterion(point: NDArray) -> tuple[float, NDArray]:
            try:
                with np.errstate(over="ignore", invalid="ignore"):
                    mode = self.mode(point)
                    slope = self.slope(point, mode)
                sound = np.isfinite(mode.criterion)
            except LinAlgError:
                sound = False
            if not sound:  # far from the maximum
                return np.inf, np.zeros(len(point))
            last[:] = [mode]
            return mode.criterion, slope

        def metric(point: NDArray) -> NDArray:
            mode = last[0]
            found = self._metric(mode)
            shapes = range(K + self.p, len(point))
            slope = criterion(point)[1] if shapes else np.zeros(0)
            for t in shapes:
                moved = point.copy()
                moved[t] += SHAPE_STEP
                bend = abs(criterion(moved)[1][t] - slope[t]) / SHAPE_STEP
                found[t, t] = 1 / max(bend, 1e-3 * len(self.columns))
            return found

        def descended(start: NDArray) -> tuple[NDArray, list[float], bool]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the answer has it, too
                steps = QuasiNewtonSteps(lambda: metric(start), FARTHEST)
                point, path, converged = descend(criterion, start, steps, TOLERANCE)
            return self._without(point, path[-1]), path, converged

        point, path, converged = descended(self.start())
        if (start := self._second_start(point)) is not None:
            other = descended(start)
            if other[1][-1] < path[-1] - GAIN:
                point, path, converged = other
        mode = self.mode(point)
        slope = self.slope(point, mode)
        free = np.flatnonzero((point != 0) | (np.arange(len(point)) >= K))
        sizes = np.sqrt(2 * np.abs(np.diag(self._metric(mode))))
        bends = self._bends(criterion, point, free, np.where(sizes > 0, sizes, 1.0))
        inverse, known = _inverse(bends), None
        if inverse is not None:
            known = np.zeros((len(point),) * 2)
            known[np.ix_(free, free)] = 2 * inverse
            moved = point.copy()
            moved[free] -= inverse @ slope[free]
            least = path[-1] + 1e-9 * abs(path[-1])
            if (moved[:K] * point[:K] >= 0).all() and self.mode(moved).criterion <= least:
                point = moved
        point = self._positive(point)
        mode = self.mode(point)
        path.append(mode.criterion)
        covariance = known[K:, K:] if known is not None else self._given_spreads(point, mode)
        ended = converged and known is not None
        return LaplaceFit(mode, point, covariance, ended, path, known)

    def _second_start(self, point: NDArray) -> NDArray | None:
        """Where to search again, if there may be a higher maximum.

        Beside a maximum where rows scatter, there can be one where they hardly do, and levels
        differ that do not in the first; or, of few levels, one that has few rows from the others.
        Slopes of such levels can have several maxima too.
        """
        calm, design, again = self._family.calm, self.design, set[int]()
        alike = {k for m, (k, a, b) in enumerate(self.entries) if a == b and point[m] == 0}
        for k, codes in enumerate(design.codes):
            if not (calm or design.widths[k] > 1):
                continue
            n = np.bincount(codes, minlength=int(design.sizes[k]))
            if are_few(n) or (calm and k in alike):
                again.add(k)
        if not again:
            return None
        start = point.copy()
        for m, (k, a, b) in enumerate(self.entries):
            if k in again:
                start[m] = APART if a == b else 0.0
        if calm:
            start[self.n_entries + self.p :] = calm
        return start

    def _metric(self, mode: Mode) -> NDArray:
        """About the inverse of the second derivatives in roots and coefficients.

        In a covariance T it is the expected curvature, ``tr(U_j dT U_j dT)`` of levels j.
        """
        equations, K = mode.equations, self.n_entries
        inverse = equations.inverse(0)
        bends = np.zeros((K, K))
        for k, root in enumerate(equations.roots):
            U, own = (
                equations.precisions(k, inverse),
                [(m, a, b) for m, (factor, a, b) in enumerate(self.entries) if factor == k],
            )
            moves = []
            for _, a, b in own:
                moved = np.zeros_like(root)
                moved[a] = root[:, b]
                moves.append(U @ (moved + moved.T))
            for i, one in enumerate(moves):
                for j, other in enumerate(moves):
                    bends[own[i][0], own[j][0]] = np.einsum("nab,nba->", one, other)
        values, vectors = np.linalg.eigh(bends)
        values = np.maximum(values, max(FLAT * values.max(initial=0.0), 1e-2))
        found = np.zeros((K + self.p + len(self._shapes),) * 2)
        found[:K, :K] = (vectors / values) @ vectors.T
        of_columns = slice(K, K + self.p)
        found[of_columns, of_columns] = self.given_spreads(mode) / 2
        return found

    def _given_spreads(self, point: NDArray, mode: Mode) -> NDArray:
        found = np.full((self.p + len(self._shapes),) * 2, np.nan)
        found[: self.p, : self.p] = self.given_spreads(mode)
        return found

    def given_spreads(self, mode: Mode) -> NDArray:
        """Covariance of the coefficients of columns where spreads are known: that of `mode`."""
        return self.with_columns(mode).column_covariance(self.p)

    def with_columns(self, mode: Mode) -> CrossedEquations:
        """Equations at a mode of effects and coefficients of columns together.

        Where columns separate rows, the weights of these go to zero, and the equations are singular
        but for `LIGHT`.
        """
        weight, roots = mode.found[1], mode.equations.roots
        try:
            return CrossedEquations(self.design.sums(weight, self.columns), roots)
        except LinAlgError:
            weight = np.maximum(weight, LIGHT * weight.max())
            return CrossedEquations(self.design.sums(weight, self.columns), roots)

    def linearised(self, mode: Mode) -> CrossedEquations:
        """These equations with a response: what a step of Newton's is fitted to.

        That is the predictor without its offset, and the slope of a row over its weight. Without
        it, where the equations are singular.
        """
        slopes, weight = mode.found
        weight = np.maximum(weight, LIGHT * weight.max())
        response = mode.predictor - self._responses.offset + slopes / weight
        columns = np.column_stack([self.columns, response])
        try:
            return CrossedEquations(self.design.sums(weight, columns), mode.equations.roots)
        except LinAlgError:
            return self.with_columns(mode)

    def _without(self, point: NDArray, least: float) -> NDArray:
        """Set small entries of roots to zero where the criterion is as low there."""
        for j in np.flatnonzero(np.abs(point[: self.n_entries]) < SMALL):
            trial = point.copy()
            trial[j] = 0.0
            if self.mode(trial).criterion <= least + 1e-6:
                point = trial
        return point

    def _positive(self, point: NDArray) -> NDArray:
        """Turn columns of roots so that diagonals are positive."""
        point, moved = point.copy(), False
        place = {entry: m for m, entry in enumerate(self.entries)}
        for (k, a, b), m in place.items():
            if a == b and point[m] < 0:
                for (factor, _, column), other in place.items():
                    if (factor, column) == (k, b):
                        point[other] *= -1
                        moved = True
        if moved:  # the mode has other signs
            self._last = None
        return point

    def _bends(
        self, criterion: Criterion, point: NDArray, free: NDArray, errors: NDArray
    ) -> NDArray:
        """Second derivatives, by differences of slopes; modes are sought from that at `point`."""
        bends, last = np.empty((len(free),) * 2), self._last
        for row, j in enumerate(free):
            step = np.zeros(len(point))
            step[j] = STEP * errors[j]
            if j < self.n_entries:
                step[j] = min(step[j], abs(point[j]) / 2)
            slopes = []
            for s in (1, -1):
                self._last = last
                slopes.append(criterion(point + s * step)[1][free])
            bends[row] = (slopes[0] - slopes[1]) / (2 * step[j])
        self._last = last
        return (bends + bends.T) / 2


def _inverse(bends: NDArray) -> NDArray | None:
    """Invert second derivatives; None where they are not positive definite."""
    size = np.sqrt(np.abs(np.diag(bends)))
    if not (np.isfinite(bends).all() and (size > 0).all()):
        return None
    values, vectors = np.linalg.eigh(bends / np.outer(size, size))
    if len(values) and values[0] <= 1e-9:
        return None
    return (vectors / values) @ vectors.T / np.outer(size, size)
