"""Normal population of estimates with Student-t errors: its fit, and posteriors under it.

The marginal density of an estimate is a short mixture of normals (`likelihoods.StudentT`), with
derivatives in closed form. The variance maximises the likelihood with the mean (or the coefficients
of covariates) integrated out, to second order: ``l(beta^, t) - log |-l_bb(beta^, t)| / 2``, where
beta^ is the best for t, and ``l_bb`` has the second derivatives in beta (Cox and Reid, 1987). For
normal errors this is REML exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import student_moments, student_sizes
from ebfed.likelihoods import StudentT
from ebfed.priors.exploration import explore_spreads, thinned
from ebfed.priors.mixture_posterior import N_NORMALS, NOTHING, Components, MixturePosterior
from ebfed.priors.posterior import mean_errors
from ebfed.priors.regression import Design

__all__ = ["StudentPosterior", "fit_student"]

FEW = 2000  # messages that a start is found with
N_POPULATIONS = 12  # plausible ones, of more messages


class Coefficients(NamedTuple):
    """Coefficients of a scaled design and their covariance."""

    coefficients: NDArray
    covariance: NDArray


class Point(NamedTuple):
    """The criterion at a variance t and the best coefficients for it.

    Of the second derivatives there is about minus that in t; `follows` is how beta moves with t,
    and `lack` twice what the likelihood still lacks at these coefficients.
    """

    t: float
    beta: NDArray
    value: float
    slope: float
    curvature: float
    covariance: NDArray
    follows: NDArray
    lack: float


@dataclass(frozen=True)
class Errors:
    """Messages with rows of a design, in units in which the smallest scale is near 1.

    Attributes
    ----------
    rows : StudentT of n clients with data
    design : ndarray of shape (n, p)
    restricted : bool
        Whether the coefficients are integrated out.
    weights : ndarray of shape (n,)
        Clients that each row stands for; negative at some nodes of a lattice.
    typical : float
        Median of the squares of the scales of all clients.
    few : tuple, optional
        Fewer rows that stand for all, and their weights, where `rows` are nodes of a lattice.
    tilt : float
        Of ``tilt log(t + typical)``, which is added where rows stand for more clients than
        themselves, so that the slope is that of all.
    """

    rows: StudentT
    design: NDArray
    restricted: bool
    weights: NDArray
    typical: float
    few: tuple[StudentT, NDArray] | None = None
    tilt: float = 0.0

    @cached_property
    def size(self) -> float:
        """Unit of differences of log-likelihood, which rounding makes larger for many rows."""
        return max(1.0, float(self.weights.sum()) / FEW)

    @cached_property
    def s2(self) -> NDArray:
        """Squares of the scales, shape (n,)."""
        return self.rows.variances[:, 0]

    def nearest(self) -> NDArray:
        """Coefficients by least squares, as if errors were normal."""
        size = np.sqrt(self.s2 / self.weights)
        return np.linalg.lstsq(self.design / size[:, None], self.rows.values[:, 0] / size)[0]

    def thinned(self, size: int) -> Errors:
        """Every so many-th row, in the order of their values, to stand for all; or the few rows."""
        if self.few is not None:
            rows, weights = self.few
            design = np.repeat(self.design[:1], len(rows), axis=0)
            return replace(self, rows=rows, design=design, weights=weights, few=None)
        step = -(-len(self.rows) // size)
        some = np.argsort(self.rows.values[:, 0], kind="stable")[step // 2 :: step]
        weights = np.full(len(some), len(self.rows) / len(some))
        return replace(self, rows=self.rows.take(some), design=self.design[some], weights=weights)

    def at(self, t: float, beta: NDArray, tol: float = 1e-8) -> Point:
        """Climb to the best coefficients for t, until `lack` is below `tol`.

        More clients than `FEW` leave more to rounding.
        """
        best = -np.inf
        step = np.zeros(len(beta))
        for _ in range(100):
            tried = beta + step
            figures = self.rows.derivatives(self.rows.values[:, 0] - self.design @ tried, t)
            value = float(self.weights @ figures[0])
            if value < best - 1e-9 * (1 + abs(best)) and np.abs(step).max(initial=0.0) > 0:
                step = step / 4
                continue
            beta, best = tried, value
            one, two, _, _, precision = figures[1:]
            weighted = self.design.T * self.weights
            slope = weighted @ one
            bend = (weighted * (one**2 - two)) @ self.design
            safe = (weighted * precision) @ self.design  # of reweighted least squares
            is_peak = np.linalg.eigvalsh(bend).min(initial=np.inf) > 1e-3 * np.linalg.norm(safe)
            step = np.linalg.solve(bend if is_peak else safe, slope)
            if slope @ step < tol * self.size:
                break
        return self._point(t, beta, best, figures, bend if is_peak else safe, step)

    def _point(
        self,
        t: float,
        beta: NDArray,
        value: float,
        figures: NDArray,
        bend: NDArray,
        step: NDArray,
    ) -> Point:
        """Slope and curvature in t, where beta follows it; `step` is what beta still lacks."""
        one, two, three, four = figures[1:5]
        design, weights, inverse = self.design, self.weights, np.linalg.inv(bend)
        by_both = 0.5 * design.T @ (weights * (three - one * two))
        follows = inverse @ by_both  # how beta moves with t
        slope = 0.5 * float(weights @ two) + float(by_both @ step)
        curvature = 0.25 * weights @ (two**2 - four) - by_both @ follows
        if self.restricted:
            # of the information: a direct change with t, and that by way of beta
            direct = 0.5 * (four - two**2) - one * three + one**2 * two
            turn = (three - 3 * one * two + 2 * one**3) * (design @ follows)
            leverage = ((design @ inverse) * design).sum(axis=1) * weights
            slope += 0.5 * float(leverage @ (direct + turn))
            value -= 0.5 * float(np.linalg.slogdet(bend)[1])
        if not curvature > 0:  # that of normal errors
            curvature = 0.5 * float(weights @ figures[5] ** 2)
        far = t + self.typical
        value += self.tilt * np.log(far)
        slope += self.tilt / far
        lack = float(step @ bend @ step)
        return Point(t, beta + step, value, slope, curvature, inverse, follows, lack)

    def scan(self) -> Point:
        """Peaks of the criterion over a wide range of variances."""
        beta, s2 = self.nearest(), self.s2
        furthest = float(((self.rows.values[:, 0] - self.design @ beta) ** 2).max(initial=0.0))
        low = 0.01 * float(s2.min())
        steps = int(np.ceil(np.log2(max(4 * furthest / low, 4)) / 2))
        trials = []
        for t in [*(low * 4.0 ** np.arange(steps, -1, -1)), 0.0]:
            trials.append(self.at(t, beta))
            beta = trials[-1].beta
        best = max(trials, key=lambda point: point.value)
        return self.climb(best)

    def climb(self, start: Point) -> Point:
        """Newton steps in t to where the slope is zero, or to t = 0 where it is not positive."""
        here, low, high = start, 0.0, np.inf
        tiny = 1e-9 * self.typical
        for _ in range(100):
            if here.slope > 0:
                low = here.t
            elif here.t == 0:
                return here
            else:
                high = here.t
            step = here.slope / here.curvature
            t = here.t + step
            is_near = abs(step) < max(1e-4 * here.t, tiny) and here.lack < 1e-8 * self.size
            if is_near:  # a further step would be of the square of this
                return here._replace(t=max(t, 0.0), beta=here.beta + here.follows * step)
            if not low < t < high or t > 10 * here.t + 10 * self.typical:
                if np.isinf(high):
                    t = min(t, 10 * here.t + 10 * self.typical)
                else:
                    t = low / 2 + high / 2 if low > 0 else high / 10
            if t < tiny:
                zero = self.at(0.0, here.beta)
                if zero.slope <= 0:
                    return zero
                t = tiny if here.t > 2 * tiny else 10 * tiny
            here = self.at(t, here.beta + here.follows * (t - here.t), 1.0)
        return here


def fit_student(prior: Any, likelihood: StudentT, design: Design) -> None:
    """Fit mean (or coefficients) and variance of a normal population.

    Parameters
    ----------
    prior : Normal
        Its `mean` and `variance` are known where they are not None.
    likelihood : StudentT of n clients
        All have data.
    design : Design of the clients
    """
    unit = float(2.0 ** (np.frexp(np.sqrt(likelihood.variances.min()))[1] - 1))
    typical = float(np.median(likelihood.variances)) / unit**2
    centre = 0.0 if prior.mean is None else float(np.ravel(prior.mean)[0])
    few = None
    if not design.has_covariates and likelihood.lattice is not None:
        few = _in_units(*likelihood.condensed(np.ones(len(likelihood))), centre, unit)
        likelihood, weights = likelihood.summed()
    else:
        weights = np.ones(len(likelihood))
    matrix = np.ones((len(likelihood), int(prior.mean is None)))
    matrix = design.matrix if design.has_covariates else matrix
    rows, weights, matrix = _in_units(likelihood, weights, centre, unit, matrix)
    whole = Errors(rows, matrix, prior.method == "reml", weights, typical, few)
    learned = prior.variance is None and weights.sum() > max(matrix.shape[1], 1)
    if learned:
        found = whole.thinned(FEW).scan()
        for size in (10 * FEW, len(rows)):
            if FEW < size <= len(rows):
                some = whole.thinned(size) if size < len(rows) else whole
                found = some.climb(some.at(found.t, found.beta, 10.0))
    else:
        t = 0.0 if prior.variance is None else float(np.ravel(prior.variance)[0]) / unit**2
        found = whole.at(t, whole.thinned(FEW).nearest())

    def take(one: Any, point: Point) -> None:
        """Give a population the figures of a point, in the units of the messages."""
        first = unit * point.beta[0] if len(point.beta) else 0.0
        variance = unit**2 * point.covariance[0, 0] if len(point.beta) else 0.0
        one.mean_, one.mean_variance_ = np.array([centre + first]), np.array([variance])
        one.variance_ = np.array([unit**2 * point.t])
        profile = Coefficients(unit * point.beta, unit**2 * point.covariance)
        one._learn_coefficients(design, [profile], np.ones(1))

    take(prior, found)
    error = unit**4 / found.curvature if learned else 0.0
    prior.variance_variance_ = np.array([error])
    if learned and prior._is_hardly_known().any() and len(rows) >= matrix.shape[1] + 2:
        _learn_plausible(prior, whole, found, take)


def _in_units(
    rows: StudentT, weights: NDArray, centre: float, unit: float, matrix: NDArray | None = None
) -> Any:
    """Rows less a centre, in a unit, with their weights and rows of a matrix, if that is given.

    Nodes of equal degrees of freedom are the same, and computed once for neighbours.
    """
    order = np.argsort(rows.degrees, kind="stable")
    rows, weights = rows.take(order), weights[order]
    rows = StudentT((rows.values - centre) / unit, rows.variances / unit**2, rows.degrees)
    return (rows, weights) if matrix is None else (rows, weights, matrix[order])


def _learn_plausible(
    prior: Any, whole: Errors, found: Point, take: Callable[[Any, Point], None]
) -> None:
    """Find variances that the messages leave plausible, each with its coefficients.

    The prior is that of `variance_components.plausible_components`. Of many messages some stand for
    all, with the slope of all (Jordan, Lee, Yang 2019).
    """
    some = whole
    if len(whole.rows) > FEW:
        some = whole.thinned(FEW)
        lacking = found.slope - some.at(found.t, found.beta).slope
        tilt = lacking * (found.t + some.typical)
        some = replace(some, tilt=tilt)
    typical = float(np.sqrt(whole.typical))
    known: dict[float, Point] = {}

    def nearest(t: float) -> Point:
        return known[min(known, key=lambda at: abs(at - t))] if known else found

    def height(variances: NDArray) -> NDArray:
        heights = np.empty(len(variances))
        for i in np.argsort(variances[:, 0]):
            t = float(variances[i, 0])
            known[t] = some.at(t, nearest(t).beta)
            heights[i] = known[t].value
        return heights

    variances, weights = explore_spreads(height, [found.t], [typical])
    if len(whole.rows) > FEW:
        variances, weights = thinned(variances, weights, N_POPULATIONS)
    populations = []
    for t in variances[:, 0].tolist():
        one = copy(prior)
        take(one, nearest(t) if some is whole else found._replace(t=t))
        one.variance_variance_ = np.zeros(1)
        populations.append(one)
    prior._hold_populations(populations, weights[:, None])


class StudentPosterior(MixturePosterior):
    r"""Posterior of a normal population ``N(mean_i, t)`` under t errors: a mixture of normals.

    An error that is normal of variance v has the posterior of normal errors, with the weight ``a =
    t / (t + v)`` of the estimate and the variance

    .. math:: a v + (1 - a)^2 (Var(mean_i) + 2 Var(t) / (t + v)),

    whose last terms are what is not known of the population (`normal.NormalPosterior`). The
    posterior averages over v, with the weights that the estimate leaves plausible: an outlier is
    either that of its error or of its parameter, so that a posterior can have two peaks.

    Parameters
    ----------
    prior : Normal, fitted
    likelihood : StudentT of n clients
    """

    _has_points = False
    likelihood: Any

    def __init__(self, prior: Any, likelihood: StudentT):
        self._prior, self.likelihood, self.n_components = prior, likelihood, N_NORMALS
        t, doubt = float(prior.variance_[0]), float(prior.variance_variance_[0])
        mean, error = (
            np.broadcast_to(each, (len(likelihood), 1))[:, 0]
            for each in (prior.mean_, prior.mean_variance_)
        )
        x, s2 = likelihood.values[:, 0], likelihood.variances[:, 0]
        has_data, noisy = np.isfinite(s2), np.isfinite(s2) & (s2 > 0)
        away = np.where(has_data, x - mean, 0.0)
        order = np.argsort(likelihood.degrees, kind="stable")
        errors = np.where(noisy, s2, 1.0)[order], likelihood.degrees[order]
        sizes = student_sizes(away[order], *errors, t, t)
        moments = np.empty((2, len(x)))
        moments[:, order] = student_moments(away[order], *errors, sizes, t, error[order], doubt)
        shift, variance = moments
        estimate = np.where(noisy, mean + shift, np.where(has_data, x, mean))
        spread = np.where(has_data, 0.0, t + error)
        self.mean = estimate[:, None]
        self.sd = np.sqrt(np.where(noisy, variance, spread))[:, None]

    def _blocks(self) -> Iterator[Components]:
        return (components for components, _ in self._pairs())

    def _pairs(self) -> Iterator[tuple[Components, NDArray]]:
        """Components and shares ``1 - a`` of the mean, a block of clients at a time."""
        likelihood, n = self.likelihood, len(self.likelihood)
        edges = np.linspace(0, n, 2 + n * self.n_components // 200_000).astype(int)
        mean = np.broadcast_to(self._prior.mean_, (n, 1))[:, 0]
        error = np.broadcast_to(self._prior.mean_variance_, (n, 1))[:, 0]
        for first, last in pairwise(edges):
            block = slice(int(first), int(last))
            yield self._parts(likelihood.take(block), mean[block], error[block])

    def _parts(
        self, likelihood: StudentT, mean: NDArray, error: NDArray
    ) -> tuple[Components, NDArray]:
        prior = self._prior
        t, doubt = float(prior.variance_[0]), float(prior.variance_variance_[0])
        x, s2 = likelihood.values[:, 0], likelihood.variances[:, 0]
        has_data, exact = np.isfinite(s2), s2 == 0
        noisy = has_data & ~exact
        away = np.where(has_data, x - mean, 0.0)
        s2 = np.where(noisy, s2, 1.0)
        logs, noise = likelihood.normals(np.where(noisy, away, 0.0), s2, t, t)
        total = t + noise
        logs = logs - 0.5 * (np.log(total) + away**2 / total)
        logs -= logs.max(axis=0)
        weights = np.exp(logs, out=logs)
        weights /= weights.sum(axis=0)
        weights[weights < NOTHING] = 0.0
        rest = noise / total
        spread = rest * t + rest**2 * (error + 2 * doubt / total)
        anchors = mean + (1 - rest) * away
        for own, scale2, share, part in (
            (~has_data, t + error, 1.0, mean),
            (exact, np.zeros(len(x)), 0.0, x),
        ):
            if own.any():
                spread[:, own], rest[:, own] = scale2[own], share
                anchors[:, own] = part[own]
                weights[:, own] = np.arange(len(weights))[:, None] == 0
        starts, sides = np.zeros_like(weights), np.zeros(len(weights), np.int64)
        return Components(weights, anchors, np.sqrt(spread), starts, sides), rest

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's parameter, shape (size, n, 1).

        The error of the mean is that of one mean in each draw (with covariates, of one beta).
        """
        rng = np.random.default_rng(random_state)
        shared = mean_errors(self._prior, size, rng)[:, :, 0]
        variance = np.broadcast_to(self._prior.mean_variance_, self.mean.shape)[:, 0]
        draws, first = [], 0
        for block, rest in self._pairs():
            last = first + rest.shape[1]
            picked = block.pick(size, rng)
            anchor, scale, own = (
                np.take_along_axis(each, picked, axis=0)
                for each in (block.anchors, block.scales, rest)
            )
            common = own**2 * variance[first:last]
            error = shared if shared.shape[1] == 1 else shared[:, first:last]
            noise = np.sqrt(np.maximum(scale**2 - common, 0.0))
            noise = noise * rng.standard_normal(picked.shape)
            draws.append(anchor + np.sqrt(common) * error + noise)
            first = last
        return np.concatenate(draws, axis=1)[:, :, None]
