"""Penalised maximum likelihood of a population ``exp(Q a - phi(a))`` on a grid (Efron 2016).

Over nodes theta_k of width w_k, the population has masses ``g_k = w_k exp(Q_k' a)``, which sum to 1
after division, and client i has the marginal likelihood ``f_i = sum_k L_i(theta_k) g_k``. With
``D_k = Q_k - sum_l g_l Q_l``, the score of a client is ``S_i = sum_k g_k L_i(theta_k) D_k / f_i``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Likelihood
from ebfed.priors.exploration import TILT

__all__ = ["GModel", "Maximum", "natural_basis"]

MOST_ENTRIES = 20_000_000  # of likelihoods that are kept; more are computed in each step
# Under the Cauchy prior alone, the density of a narrow population's standard deviation falls like
# its power -.4; under those of other priors it rises like `2 * TILT`, with a shape that is given.
# With 2 or 3 in place of 4, intervals of 2000 rates of small spread are too narrow.
NARROW = 4 * TILT
EVEN = 1 / 12  # variance of the uniform population, in squares of the range
ROUGH = 1e-2  # gain of a Newton step, twice, that a start lacks
MANY = 5_000  # messages beyond which a part of them gives the start


def natural_basis(knots: NDArray, at: NDArray) -> NDArray:
    """Evaluate natural cubic splines on [0, 1] of mean 0, orthonormal under the uniform law.

    They span the splines with these knots whose second derivative is 0 at both ends, but for the
    constant; the first is linear.

    Parameters
    ----------
    knots : increasing ndarray of shape (p + 1,), from 0 to 1
    at : ndarray of shape (k,)

    Returns
    -------
    ndarray of shape (k, p)

    Examples
    --------
    >>> natural_basis(np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.25, 1.0])).round(3)
    array([[-1.732, -2.027],
           [-0.866,  0.203],
           [ 1.732, -2.027]])
    """
    from scipy.interpolate import CubicSpline

    cardinal = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")

    def columns(at: NDArray) -> NDArray:
        return np.column_stack([np.ones(len(at)), at, cardinal(at)[:, 1:-1]])

    # Gauss-Legendre between knots integrates products of cubics exactly
    nodes, weights = np.polynomial.legendre.leggauss(4)
    half = np.diff(knots)[:, None] / 2
    places = ((knots[1:] + knots[:-1])[:, None] / 2 + half * nodes).ravel()
    triangle = np.linalg.qr(np.sqrt((half * weights).reshape(-1, 1)) * columns(places), mode="r")
    triangle *= np.sign(np.diag(triangle))[:, None]
    return np.linalg.solve(triangle.T, columns(at).T).T[:, 1:]


class Maximum(NamedTuple):
    """Coefficients of greatest penalised log-likelihood, shape (p,), and that, but for a constant.

    A next Newton step would gain half the `decrement`.
    """

    coefficients: NDArray
    value: float
    decrement: float


@dataclass(frozen=True)
class _Figures:
    """Value, slope and second derivatives of the log-likelihood; information by scores."""

    value: float
    slope: NDArray
    bend: NDArray
    information: NDArray


@dataclass(frozen=True)
class GModel:
    """Log-likelihood of messages in the coefficients of a population on a grid.

    Parameters
    ----------
    rows : Likelihood of n distinct messages
    counts : ndarray of shape (n,)
    nodes, widths : ndarray of shape (k,)
    basis : ndarray of shape (k, p)
    c0 : float
        Size of the penalty.
    few : tuple, optional
        Fewer messages, which stand for all, and their counts. They give the start, and what is said
        of coefficients relative to others.
    tol : float
        What a next Newton step may gain, twice.
    """

    rows: Likelihood
    counts: NDArray
    nodes: NDArray
    widths: NDArray
    basis: NDArray
    c0: float
    few: tuple[Likelihood, NDArray] | None = None
    tol: float = 1e-9

    def rebased(self, basis: NDArray) -> GModel:
        """Return the log-likelihood in coefficients of another basis, from the same likelihoods.

        The search for its maximum begins near that in the basis of before.
        """
        other = replace(self, basis=basis)
        shared: dict[str, Any] = {"_part": None}
        if self._part is not None:
            shared["_part"] = self._part.rebased(basis)
        else:
            shared["_near"] = self.basis @ self._peak.coefficients
            shared["_log_density_of_em"] = self._log_density_of_em
        if len(self.rows) * len(self.nodes) <= MOST_ENTRIES:
            shared["_all"] = self._all
        other.__dict__.update(shared)
        return other

    @cached_property
    def _part(self) -> GModel | None:
        """Log-likelihood of few messages in the place of many; None if they are few.

        They are a part of them, evenly spread, unless others are given.
        """
        if self.few is not None:
            return replace(self, rows=self.few[0], counts=self.few[1], few=None, tol=ROUGH)
        if len(self.rows) <= MANY:
            return None
        step = 2 * len(self.rows) // MANY
        some = np.argsort(self.rows.local[:, 0], kind="stable")[step // 2 :: step]
        share = self.counts.sum() / self.counts[some].sum()
        return replace(self, rows=self.rows.take(some), counts=share * self.counts[some])

    def maximise(self) -> Maximum:
        """Find the highest point above several starts."""
        return self._peak

    @cached_property
    def _peak(self) -> Maximum:
        if self._part is not None:
            starts = [self._part._peak.coefficients]
        elif self._near is not None:
            projected = [self._projected(self._near), self._projected(self._log_density_of_em)]
            starts = [max(projected, key=lambda a: self._penalised(a, self.figures(a)))]
        else:
            starts = self._starts()
        zero = np.zeros(self.basis.shape[1])
        best = Maximum(zero, self.figures(zero).value, 0.0)
        climbs = [self._climb(start) for start in starts if start.any()]
        return max([best, *climbs], key=lambda climb: climb.value)

    def criterion(self) -> float:
        """Log-likelihood at the maximum, less ``log(m) / 2`` for each of p coefficients.

        That is Schwarz's criterion (BIC) of m clients, over -2; of fewer messages, if they stand
        for all.
        """
        if self.few is not None and self._part is not None:
            return self._part.criterion()
        a = self._peak.coefficients
        return self.figures(a).value - len(a) / 2 * float(np.log(self.counts.sum()))

    def _starts(self) -> list[NDArray]:
        """Best point along the score at 0, and the splines next to a few steps of EM."""
        slope = self.figures(np.zeros(self.basis.shape[1])).slope
        steepest = float(np.linalg.norm(slope))
        starts = []
        if steepest > 0:
            line = [size * slope / steepest for size in np.geomspace(0.05, 10, 12)]
            starts.append(max(line, key=lambda a: self._penalised(a, self.figures(a))))
        starts.append(self._projected(self._log_density_of_em))
        return starts

    @cached_property
    def _near(self) -> NDArray | None:
        """Log-density at the nodes of the maximum in another basis, where that is known."""
        return None

    @cached_property
    def _log_density_of_em(self) -> NDArray:
        """Log-density at the nodes after a few steps of EM, of no shape."""
        g = self.widths / self.widths.sum()
        for _ in range(20):
            masses = np.zeros(len(g))
            for likelihoods, counts in self._blocks():
                masses += (counts / np.maximum(likelihoods @ g, 1e-300)) @ likelihoods
            g = g * masses / self.counts.sum()
        logs = np.log(np.maximum(g, 1e-300) / np.maximum(self.widths, 1e-300))
        return np.maximum(logs - logs.max(), -20.0)  # less is none

    def _projected(self, logs: NDArray) -> NDArray:
        """Coefficients of the splines next to a log-density at the nodes."""
        share = self.widths / self.widths.sum()
        return (self.basis.T * share) @ (logs - share @ logs)

    def figures(self, a: NDArray) -> _Figures:
        """Log-likelihood of all clients at coefficients a, with derivatives."""
        logs = np.log(self.widths) + self.basis @ a
        g = np.exp(logs - logs.max())
        g /= g.sum()
        away = self.basis - g @ self.basis
        columns = g[:, None] * np.column_stack([np.ones(len(g)), away])
        p = self.basis.shape[1]
        value, slope, information, masses = 0.0, np.zeros(p), np.zeros((p, p)), np.zeros(len(g))
        for likelihoods, counts in self._blocks():
            joint = likelihoods @ columns
            evidence = np.maximum(joint[:, 0], 1e-300)
            scores = joint[:, 1:] / evidence[:, None]
            value += float(counts @ np.log(evidence))
            slope += counts @ scores
            information += (scores.T * counts) @ scores
            masses += (counts / evidence) @ likelihoods
        excess = g * (masses - self.counts.sum())  # expected numbers of clients, less those of g
        return _Figures(value, slope, (away.T * excess) @ away - information, information)

    def _blocks(self) -> Iterator[tuple[NDArray, NDArray]]:
        """Likelihoods over those at their peaks, and the counts, some messages at a time."""
        if len(self.rows) * len(self.nodes) <= MOST_ENTRIES:
            yield self._all, self.counts
            return
        n_blocks = 1 + len(self.rows) * len(self.nodes) // 4_000_000
        done = 0
        for block in self.rows.split(n_blocks):
            yield block.relative(self.nodes[:, None]), self.counts[done : done + len(block)]
            done += len(block)

    @cached_property
    def _all(self) -> NDArray:
        return self.rows.relative(self.nodes[:, None])

    def log_posterior(self, several: NDArray) -> NDArray:
        """Log posterior density of coefficients, shape (K, p), up to a constant, shape (K,).

        Fewer messages serve, if they stand for all.
        Their prior is Cauchy's in p dimensions, of scale ``1 / (2 c0 sqrt(p))``, times the power
        4/5 of ``v / (v + u)``, v the population's variance and u that of the uniform one. The
        median of ``c0 |a|`` is .7 under the first. Under a density ``exp(-c0 |a|)`` it would be
        about p, so that populations would be narrow where messages leave them open.
        """
        if self.few is not None and self._part is not None:
            return self._part.log_posterior(several)
        logs = np.log(self.widths)[:, None] + self.basis @ several.T
        masses = np.exp(logs - logs.max(axis=0))
        masses /= masses.sum(axis=0)
        p = self.basis.shape[1]
        values: NDArray = -(p + 1) / 2 * np.log1p(4 * p * self.c0**2 * (several**2).sum(axis=1))
        unit = (self.nodes - self.nodes[0]) / (self.nodes[-1] - self.nodes[0])
        variances = unit**2 @ masses - (unit @ masses) ** 2
        values += NARROW * np.log(np.maximum(variances / (variances + EVEN), 1e-300))
        for likelihoods, counts in self._blocks():
            values += counts @ np.log(np.maximum(likelihoods @ masses, 1e-300))
        return values

    def _penalised(self, a: NDArray, figures: _Figures) -> float:
        return figures.value - self.c0 * float(np.linalg.norm(a))

    def _climb(self, a: NDArray) -> Maximum:
        """Newton steps; directions of wrong curvature by its size, and halved until they gain."""
        here = self.figures(a)
        value = self._penalised(a, here)
        for _ in range(200):
            size = float(np.linalg.norm(a))
            slope = here.slope - self.c0 * a / size
            values, vectors = np.linalg.eigh(self._bend(a, size) - here.bend)
            values = np.maximum(np.abs(values), 1e-8 * np.abs(values).max())
            step = vectors @ ((vectors.T @ slope) / values)
            decrement = float(slope @ step)
            # the error is that squared; near 0, where the penalty has a kink, 0 itself is compared
            if decrement < self.tol or size < 1e-3:
                break
            step *= min(1.0, max(size, 1.0) / float(np.linalg.norm(step)))
            for _ in range(40):
                there = self.figures(a + step)
                reached = self._penalised(a + step, there)
                if reached >= value:
                    break
                step = step / 2
            else:
                break  # rounding hides what is left to gain
            a, here, value = a + step, there, reached
        return Maximum(a, value, decrement)

    def covariance(self, a: NDArray) -> NDArray:
        """Efron's (2016) covariance of the coefficients, from the scores and the penalty."""
        information, inverse = self._curvature(a)
        return inverse @ information @ inverse

    def posterior_covariance(self, a: NDArray) -> NDArray:
        """Covariance of coefficients near `a` whose prior density is that of the penalty."""
        return self._curvature(a)[1]

    def _curvature(self, a: NDArray) -> tuple[NDArray, NDArray]:
        """Information of the scores, and the inverse of it with the penalty's."""
        information = self.figures(a).information
        size = max(float(np.linalg.norm(a)), len(a) / self.c0)
        return information, np.linalg.pinv(information + self._bend(a, size), hermitian=True)

    def _bend(self, a: NDArray, size: float) -> NDArray:
        """Second derivatives of ``c0 |a|`` where `size` is ``|a|``; beyond, of a bowl like it."""
        return self.c0 / size * (np.eye(len(a)) - np.outer(a, a) / size**2)
