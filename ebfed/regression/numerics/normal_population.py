"""A normal population of coefficients, learned from clients' posterior moments.

With ``theta_i = mean + root eta_i``, ``eta_i ~ N(0, I)`` before and mean ``a_i`` and covariance
``V_i`` after client i's rows, its scores, the slopes of its log marginal likelihood, are (Fisher's
identity)

    W' a_i                       in gamma,   mean -> mean + root W gamma,
    (V_i + a_i a_i' - I) / 2     in E,       root root' -> root exp(E) root',

whatever the likelihood of the rows. The information is the sum of squares of the scores (Berndt,
Hall, Hall, Hausman, 1974), which needs many clients, mixed with what it would be were the rows
normal: with ``A_i = I - V_i``, ``sum_i W' A_i W`` and ``E -> sum_i A_i E A_i / 2``. Steps with it
climb in some ten rounds where EM (which puts I for A_i) takes hundreds if clients have few rows.

The columns of ``root W`` are the directions in which the mean is to move, so scaled that all matter
alike: those of the root may be far from it where a diagonal covariance meets columns of large mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

__all__ = ["Covariance", "NormalPopulation", "Step", "root_of"]

Covariance = Literal["diag", "spherical", "full"]

# Bounds of variances, in units.
LOW, HIGH = 1e-6, 1e4
# No step changes the logarithm of a variance by more, or a mean by more along one of its ways.
LARGEST_STEP, LARGEST_SHIFT = 2.0, 4.0
CAUTION = 2.0


@dataclass(frozen=True)
class NormalPopulation:
    """``N(mean, root root')``.

    Attributes
    ----------
    mean : ndarray of shape (p,)
    root : ndarray of shape (p, p)
    unit : ndarray of shape (p,)
        Standard deviations of the coefficients that would matter as much as the rows' own noise.
    """

    mean: NDArray
    root: NDArray
    unit: NDArray

    @property
    def covariance(self) -> NDArray:
        """``root root'``, shape (p, p); what is at its lower bound is zero."""
        return np.outer(self.unit, self.unit) * self._scaled()

    def _scaled(self) -> NDArray:
        scaled = self.root / self.unit[:, None]
        square = scaled @ scaled.T
        values, vectors = np.linalg.eigh(square)
        values = np.where(values > 2 * LOW, values, 0.0)
        # what is diagonal stays so exactly
        return np.where(square == 0, 0.0, (vectors * values) @ vectors.T)

    def seen_from(self, frame: NDArray) -> tuple[NDArray, NDArray]:
        """Mean and a root of ``theta = frame eta``; of what is at its lower bound, zero."""
        return frame @ self.mean, frame @ (self.unit[:, None] * root_of(self._scaled()))

    def at_bounds(self, varies: NDArray) -> tuple[bool, bool]:
        """Whether a variance of what varies is at the lower bound, and one at the upper."""
        scaled = (self.root / self.unit[:, None])[varies]
        values = np.linalg.eigvalsh(scaled @ scaled.T)
        return bool(np.any(values <= 2 * LOW)), bool(np.any(values >= HIGH / 2))

    def step(
        self,
        means: NDArray,
        covariances: NDArray,
        kind: Covariance,
        *,
        ways: NDArray,
        spread: bool = True,
        varies: NDArray | None = None,
        caution: float = CAUTION,
        reach: float = 1.0,
    ) -> Step:
        """Find where scoring leads.

        Parameters
        ----------
        means : ndarray of shape (n, p)
            a_i.
        covariances : ndarray of shape (n, p, p)
            V_i.
        kind : {"diag", "spherical", "full"}
        ways : ndarray of shape (p, k)
            Directions of the mean: ``root W``. One unit of each is a large step.
        spread : bool
            Whether root is to be learned.
        varies : bool ndarray of shape (p,), optional
            Which variances of a diagonal covariance are to be learned; all if None.
        caution : float
            The information of normal rows weighs as much as so many clients for each parameter.
        reach : float
            Share of the largest step that is allowed.
        """
        (n, p), q = means.shape, ways.shape[1]
        scores, information = _mean_block(means, covariances, np.linalg.solve(self.root, ways))
        # information of the rows less what is missing (Louis, 1982), at a known spread
        mean_covariance = _inverse(information)
        if spread:
            spread_scores, spread_information = _spread_block(means, covariances, kind)
            scores = np.hstack([scores, spread_scores])
            information = block_diag(information, spread_information)
            if kind == "diag":  # variances at their lower bound that are to fall stay
                low = np.diag(self.root) ** 2 <= 1.01 * LOW * self.unit**2
                stay = low & (spread_scores.sum(axis=0) < 0)
                held = q + np.flatnonzero(stay if varies is None else stay | ~varies)
                scores[:, held] = information[held] = information[:, held] = 0.0
            mean_covariance = _shared(scores[:, :q], scores[:, q:], mean_covariance)
        slope, k = scores.sum(axis=0), scores.shape[1]
        few = 1 / (1 + n / (caution * k))
        inverse = _inverse((1 - few) * scores.T @ scores + few * information)
        move = inverse @ slope
        log_change = _symmetric(move[q:], p, kind) if spread else np.zeros((p, p))
        values, vectors = np.linalg.eigh(log_change)
        longest = reach * LARGEST_STEP
        # cut to length one by one, which may lead down where variances move together, or together
        cuts = (
            np.clip(values, -longest, longest),
            values * min(1, longest / max(abs(values).max(), 1e-300)),
        )
        shift = ways @ (move[:q] / max(np.abs(move[:q]).max() / (reach * LARGEST_SHIFT), 1.0))
        excess = 0.5 * (covariances.sum(axis=0) + means.T @ means - n * np.eye(p))
        best, rise = self, -np.inf
        for cut in cuts:
            moved = self.root @ (vectors * np.exp(cut / 2)) @ vectors.T
            new = NormalPopulation(self.mean + shift, self._bounded(moved, kind), self.unit)
            ratio = np.linalg.solve(self.root, new.root)  # what the bounds leave of the move
            along = float((excess * (ratio @ ratio.T - np.eye(p))).sum())
            if along > rise:
                best, rise = new, along
        gain = float(slope[:q] @ move[:q]) + rise
        return Step(best, 0.5 * abs(gain), ways @ mean_covariance @ ways.T)

    def _bounded(self, root: NDArray, kind: Covariance) -> NDArray:
        """Keep the variances within their bounds."""
        scaled = root / self.unit[:, None]
        if kind != "full":
            size = np.clip(np.sqrt((scaled**2).sum(axis=1)), np.sqrt(LOW), np.sqrt(HIGH))
            return np.diag(size * self.unit)
        values, vectors = np.linalg.eigh(scaled @ scaled.T)
        inside = (vectors * np.clip(values, LOW, HIGH)) @ vectors.T
        # one root of many: coordinates do not turn from round to round
        return self.unit[:, None] * np.linalg.cholesky(inside)

    def toward(self, other: NormalPopulation, share: float) -> NormalPopulation:
        """Return the population so far on the way to another."""
        ratio = np.linalg.solve(self.root, other.root)
        values, vectors = np.linalg.eigh(ratio @ ratio.T)
        root = self.root @ (vectors * np.maximum(values, 1e-300) ** (share / 2)) @ vectors.T
        return NormalPopulation(self.mean + share * (other.mean - self.mean), root, self.unit)


@dataclass(frozen=True)
class Step:
    """A step of scoring.

    Attributes
    ----------
    population : NormalPopulation
    gain : float
        Expected gain of log-likelihood.
    mean_covariance : ndarray of shape (p, p)
        Sampling covariance of the mean, before the step.
    """

    population: NormalPopulation
    gain: float
    mean_covariance: NDArray


def root_of(covariance: NDArray) -> NDArray:
    """Symmetric root of a covariance that may be singular; diagonal if that is."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T


def _inverse(information: NDArray) -> NDArray:
    """Invert in the directions that have information; zero in the others."""
    size = np.sqrt(np.maximum(np.diag(information), 0))
    size = np.where(size > 1e-140, size, 1.0)
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    known = values > 1e-9
    return (vectors[:, known] / values[known]) @ vectors[:, known].T / np.outer(size, size)


def _shared(mean: NDArray, spread: NDArray, covariance: NDArray) -> NDArray:
    """Covariance of the mean where the spread is fitted too.

    Scores of the mean that are explained by scores of the spread carry no information on it: with C
    their squared correlations, ``I (1 - C)`` is left of the information I.

    Parameters
    ----------
    mean, spread : ndarray of shape (n, k) and (n, s)
        Scores.
    covariance : ndarray of shape (k, k)
        ``I^-1``.
    """
    both = mean.T @ spread
    explained = both @ _inverse(spread.T @ spread) @ both.T
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    half, ways = np.linalg.eigh(_inverse(mean.T @ mean))
    white = ways * np.sqrt(np.maximum(half, 0)) @ ways.T
    shares, axes = np.linalg.eigh(white @ explained @ white)
    # as R squared is adjusted: of few clients, some is explained by chance
    n, k = mean.shape
    unexplained = np.clip((1 - shares) * n / max(n - k, 1), 0.1, 1.0)
    left = axes / unexplained @ axes.T
    return root @ left @ root


def _mean_block(means: NDArray, covariances: NDArray, white: NDArray) -> tuple[NDArray, NDArray]:
    """Scores in gamma, and their information were the rows normal; `white` is W."""
    return means @ white, white.T @ (np.eye(means.shape[1]) - covariances).sum(axis=0) @ white


def _spread_block(
    means: NDArray, covariances: NDArray, kind: Covariance
) -> tuple[NDArray, NDArray]:
    """Scores in the free entries of E, and their information were the rows normal."""
    p = means.shape[1]
    A = np.eye(p) - covariances
    if kind != "full":
        scores = 0.5 * (means**2 - np.einsum("npp->np", A))
        information = 0.5 * (A**2).sum(axis=0)
        if kind == "spherical":
            return scores.sum(axis=1, keepdims=True), information.sum(keepdims=True)
        return scores, information
    rows, columns = np.tril_indices(p)
    twice = np.where(rows == columns, 1.0, 2.0)  # an entry beside the diagonal is there twice
    scores = 0.5 * twice * (means[:, rows] * means[:, columns] - A[:, rows, columns])
    both = (A.reshape(len(A), -1).T @ A.reshape(len(A), -1)).reshape(p, p, p, p)
    # sum A_ij A_kl at (i, j, k, l): E_jk to (A E A)_il
    straight = both[rows[:, None], rows, columns, columns[:, None]]
    crossed = both[rows[:, None], columns, rows, columns[:, None]]
    return scores, 0.25 * np.outer(twice, twice) * (straight + crossed)


def _symmetric(entries: NDArray, p: int, kind: Covariance) -> NDArray:
    """Return the matrix E with these free entries."""
    if kind != "full":
        return np.diag(np.broadcast_to(entries, p))
    E = np.zeros((p, p))
    rows, columns = np.tril_indices(p)
    E[rows, columns] = E[columns, rows] = entries
    return E
