"""The nonparametric maximum likelihood estimate of a population on the line.

A constrained Newton method (Wang 2007) finds a population that maximises the likelihood. The
clients' marginal likelihoods f_i at the maximum are unique, as the log-likelihood is strictly
concave in them. Several populations can have the same f_i. They do where the gradient

    D(theta) = sum_i L_i(theta) / f_i - n

is zero for every theta: counts of few trials, or reports of few kinds, fix some moments of the
population and no more. Rounding would then decide which maximiser is found. The answer is their
analytic centre instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Likelihood
from ebfed.priors.weights import FLAT, analytic_centre, gradient, newton

__all__ = ["npmle"]

MANY = 20_000  # clients beyond which a tenth of them is used first
MOST_ATOMS = 100  # of a quadrature


class Maximiser(NamedTuple):
    """A population of maximal likelihood.

    `atoms` and `weights` have shape (k,); the log-likelihood is at most `gap` below its maximum,
    and `lowest` is the least gradient at any node.
    """

    atoms: NDArray
    weights: NDArray
    gap: float
    lowest: float


def npmle(rows: Likelihood, counts: NDArray, n_nodes: int, tol: float) -> Maximiser:
    """Return the NPMLE, and its analytic centre where there are several.

    Parameters
    ----------
    rows : Likelihood of n distinct messages
    counts : ndarray of shape (n,)
    n_nodes : int
        Least number of nodes at which the gradient is evaluated.
    tol : float
        Largest duality gap, in units of log-likelihood.

    Returns
    -------
    Maximiser
    """
    found = _likeliest(rows, counts, n_nodes, tol)
    if found.gap <= tol and found.lowest >= -FLAT * counts.sum():
        return _centre(rows, counts, n_nodes, found, tol)
    return found


def _centre(
    rows: Likelihood, counts: NDArray, n_nodes: int, found: Maximiser, tol: float
) -> Maximiser:
    """Return the analytic centre of the maximisers, or `found` if that is less likely by `tol`.

    The centre has weight at every node. For counts of at most N trials its density over
    ``arcsin(sqrt(theta))`` is one over a polynomial of degree N. Maximisers agree on N moments;
    moment N + 1 and thereby posterior means range over intervals, and the centre is at their
    middle (its canonical moments are 1/2 from N + 1 on; Dette and Studden 1997, The Theory of
    Canonical Moments). A Gauss quadrature of few atoms then stands for it.
    """
    nodes = rows.nodes(n_nodes)
    cells = np.ones(len(nodes))
    cells[[0, -1]] = 0.5  # a trapezoidal rule
    at_nodes = rows.relative(nodes[:, None])
    mixture = rows.relative(found.atoms[:, None]) @ found.weights
    weights = analytic_centre(at_nodes, counts, mixture, cells, tol / counts.sum() / 100)
    if weights is None:
        return found
    atoms, weights = _fewest_atoms(rows, at_nodes, nodes, weights)
    rises = gradient(at_nodes, counts, rows.relative(atoms[:, None]) @ weights)
    gap = max(float(rises.max()), 0.0)
    return Maximiser(atoms, weights, gap, float(rises.min())) if gap <= tol else found


def _fewest_atoms(
    rows: Likelihood, at_nodes: NDArray, nodes: NDArray, weights: NDArray
) -> tuple[NDArray, NDArray]:
    """Return the smallest Gauss quadrature with the same marginals, posterior means and sds."""
    middle, half = (nodes[0] + nodes[-1]) / 2, (nodes[-1] - nodes[0]) / 2
    unit, powers = (nodes - middle) / half, np.arange(3)[:, None]
    mixture = (at_nodes @ weights)[:, None]
    moments = at_nodes @ (weights * unit**powers).T
    for places, shares in _gauss_quadratures(unit, weights):
        atoms = middle + half * places
        reached = rows.relative(atoms[:, None]) @ (shares * places**powers).T
        if (np.abs(reached - moments) <= 1e-10 * mixture).all():
            return atoms, shares
    return nodes, weights


def _gauss_quadratures(nodes: NDArray, weights: NDArray) -> Iterator[tuple[NDArray, NDArray]]:
    """Yield the Gauss quadratures of 1, 2, ... atoms of a discrete distribution on [-1, 1].

    Lanczos' recurrence, reorthogonalised; see Golub and Welsch (1969), Math. Comp. 23, 221-230.
    """
    from scipy.linalg import eigh_tridiagonal

    basis = [np.sqrt(weights)]
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(MOST_ATOMS, len(nodes))):
        following = nodes * basis[-1]
        diagonal.append(float(following @ basis[-1]))
        atoms, vectors = eigh_tridiagonal(diagonal, beside)
        yield atoms, vectors[0] ** 2
        for _ in range(2):
            following = following - np.array(basis).T @ (np.array(basis) @ following)
        length = float(np.linalg.norm(following))
        if length < 1e-12:
            return
        beside.append(length)
        basis.append(following / length)


def _likeliest(rows: Likelihood, counts: NDArray, n_nodes: int, tol: float) -> Maximiser:
    """Find one maximiser.

    It starts from the answer for a tenth of the clients where there are many, so that all of them
    are seen in a few steps only.
    """
    nodes = rows.nodes(n_nodes)
    favourites = np.clip(np.searchsorted(nodes, rows.local[:, 0]), 0, len(nodes) - 1)
    if len(rows) > MANY:
        few = np.argsort(rows.local[:, 0], kind="stable")[5::10]
        atoms, weights, *_ = _likeliest(rows.take(few), counts[few], n_nodes, tol / 10)
    else:
        atoms = nodes[np.unique(np.quantile(favourites, np.linspace(0, 1, 10), method="nearest"))]
        weights = np.full(len(atoms), 1 / len(atoms))
    # each client needs an atom that is not too unlikely
    lost = rows.relative(atoms[:, None]) @ weights < 1e-3
    if lost.any():
        near = np.setdiff1d(nodes[favourites[lost]], atoms)
        atoms = np.append(atoms, near)
        share = lost.mean()
        weights = np.append((1 - share) * weights, np.full(len(near), share / len(near)))
    found = _climb(rows, counts, nodes, atoms, weights, tol, 300)
    # Neighbours closer than the grid stand for one atom: keep one if that is as likely.
    merged = _merged(found.atoms, found.weights, nodes)
    possible = rows.relative(merged[0][:, None]) @ merged[1] > 1e-100  # next to none is none
    if len(merged[0]) < len(found.atoms) and possible.all():
        fewer = _climb(rows, counts, nodes, *merged, tol, 20)
        if fewer.gap <= tol and len(fewer.atoms) < len(found.atoms):
            return fewer
    return found


def _climb(
    rows: Likelihood,
    counts: NDArray,
    nodes: NDArray,
    atoms: NDArray,
    weights: NDArray,
    tol: float,
    steps: int,
) -> Maximiser:
    """Constrained Newton steps until nothing rises, or steps run out."""
    spacing = np.minimum(np.diff(nodes, append=np.inf), np.diff(nodes, prepend=-np.inf))
    at_atoms = rows.relative(atoms[:, None])
    for _ in range(3):  # EM, for atoms of a few clients only, to which quadratic models are blind
        weights = weights * ((counts / (at_atoms @ weights)) @ at_atoms) / counts.sum()
    for _ in range(steps):
        weights = newton(at_atoms, counts, weights)
        kept = weights > 0
        atoms, at_atoms, weights = atoms[kept], at_atoms[:, kept], weights[kept]
        masses = counts / (at_atoms @ weights)
        rises = rows.tally(masses, nodes)
        top = _peaks(rises)
        top = top[rises[top] > 0.99 * counts.sum()]
        peaks, width = nodes[top], spacing[top]
        sides = [rises[np.clip(top + side, 0, len(nodes) - 1)] for side in (-1, 0, 1)]
        for _ in range(2):
            peaks = np.clip(peaks + width * _vertex(*sides), nodes[0], nodes[-1])
            width = width / 8
            points = np.concatenate([peaks + side * width for side in (-1, 0, 1)])
            order = np.argsort(points)  # all in one pass over the clients
            around = np.empty(len(points))
            around[order] = rows.tally(masses, points[order])
            sides = np.split(around, 3)
        peaks = np.clip(peaks + width * _vertex(*sides), nodes[0], nodes[-1])
        at_peaks = rows.relative(peaks[:, None])
        gradient = masses @ at_peaks - counts.sum()
        gap = float(max(gradient.max(), 0.0))
        if gap <= tol:
            break
        rising = (gradient > 0) & ~np.isin(peaks, atoms)
        atoms = np.concatenate((atoms, peaks[rising]))
        at_atoms = np.hstack((at_atoms, at_peaks[:, rising]))
        weights = np.concatenate((weights, np.zeros(rising.sum())))
    kept = weights > 0
    return Maximiser(atoms[kept], weights[kept], gap, float(rises.min() - counts.sum()))


def _peaks(values: NDArray) -> NDArray:
    """Positions of the local maxima."""
    padded = np.concatenate(([-np.inf], values, [-np.inf]))
    return np.flatnonzero((padded[1:-1] >= padded[:-2]) & (padded[1:-1] > padded[2:]))


def _vertex(left: NDArray, here: NDArray, right: NDArray) -> NDArray:
    """Peak of the parabola through (-1, left), (0, here), (1, right), within [-1, 1]."""
    bend = 2 * here - left - right
    slope = right - left
    return np.where(bend > 0, np.clip(slope / np.where(bend > 0, 2 * bend, 1), -1, 1), 0.0)


def _merged(atoms: NDArray, weights: NDArray, nodes: NDArray) -> tuple[NDArray, NDArray]:
    """Replace runs of atoms closer than neighbouring nodes by their weighted mean."""
    order = np.argsort(atoms)
    atoms, weights = atoms[order], weights[order]
    place = np.clip(np.searchsorted(nodes, atoms[1:]), 1, len(nodes) - 1)
    run = np.concatenate(([0], np.cumsum(np.diff(atoms) > nodes[place] - nodes[place - 1])))
    total = np.bincount(run, weights)
    return np.bincount(run, weights * atoms) / total, total
