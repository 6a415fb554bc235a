"""The nonparametric maximum likelihood estimate of a population on the line.

A constrained Newton method (Wang 2007) finds a population that maximises the likelihood; of many
clients, with fewer rows that stand for them, so that all are seen in a few passes only. The
clients' marginal likelihoods f_i at the maximum are unique, as the log-likelihood is strictly
concave in them. Several populations can have the same f_i. They do where the gradient

    D(theta) = sum_i L_i(theta) / f_i - n

is zero for every theta: counts of few trials, or reports of few kinds, fix some moments of the
population and no more. Rounding would then decide which maximiser is found. The answer is their
analytic centre instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels.threads import one_thread
from ebfed.likelihoods import Likelihood
from ebfed.priors.weights import FLAT, analytic_centre, gradient, line_search, newton

__all__ = ["npmle"]

MOST_ATOMS = 100  # of a quadrature
STEPS = 100
CROWD = 100  # atoms beyond which they move by steps to peaks alone
ROUGH = 1e-3  # a gap per client that is far from the maximum
MOST_KEPT = 10_000_000  # likelihoods at nodes that are kept
BLOCK = 200_000  # likelihoods that are in memory at a time


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
    with one_thread():
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

    Of many clients, fewer rows that stand for them are fitted instead, with a linear term that
    makes their gradient that of all clients (a surrogate likelihood; Jordan, Lee and Yang 2019).
    Each pass over the clients takes the distance to the maximum down by as much as the curvatures
    of the two differ. The gap is that of all clients; sums over them may be by a `Lattice`.
    """
    nodes = rows.nodes(n_nodes)
    few, times = rows.condensed(counts)
    if len(few) == len(rows):
        return _directly(rows, counts, nodes, *_start(rows, counts, nodes), tol)
    of_all = rows.weighed(counts)
    no_tilt = np.zeros(len(nodes))
    whole, small = _Problem(*of_all, nodes, no_tilt), _Problem(few, times, nodes, no_tilt)
    if len(few) * len(nodes) <= MOST_KEPT and type(few).tally is Likelihood.tally:
        small = replace(small, at_nodes=few.relative(nodes[:, None]))
    atoms, weights = small.climb(*_start(few, times, nodes), tol)
    mixture, last = whole.mixture(atoms, weights), np.inf
    while True:
        rises = whole.rises(mixture)
        _, gains = whole.peaks(mixture, rises, counts.sum(), tol)
        gap = max(float(gains.max()), 0.0)
        if gap <= tol:
            return Maximiser(atoms, weights, gap, float(rises.min() - counts.sum()))
        if gap > last / 2:  # the fewer rows lead no further
            return _directly(rows, counts, nodes, atoms, weights, tol)
        last = gap
        surrogate = replace(small, tilt=rises - small.rises(small.mixture(atoms, weights)))
        found = surrogate.climb(atoms, weights, tol / 10)
        target = whole.mixture(*found)
        step = line_search(of_all[1], mixture, target)
        atoms, weights = _together(atoms, (1 - step) * weights, found[0], step * found[1])
        mixture = (1 - step) * mixture + step * target


def _start(rows: Likelihood, counts: NDArray, nodes: NDArray) -> tuple[NDArray, NDArray]:
    """Atoms at quantiles, and so many more that each client has one that is not too unlikely."""
    favourites = np.clip(np.searchsorted(nodes, rows.local[:, 0]), 0, len(nodes) - 1)
    atoms = nodes[np.unique(np.quantile(favourites, np.linspace(0, 1, 10), method="nearest"))]
    weights = np.full(len(atoms), 1 / len(atoms))
    lost = rows.relative(atoms[:, None]) @ weights < 1e-3
    if lost.any():
        near = np.setdiff1d(nodes[favourites[lost]], atoms)
        share = lost.mean()
        more = np.full(len(near), share / len(near))
        atoms, weights = np.append(atoms, near), np.append((1 - share) * weights, more)
    return atoms, weights


def _warmed(at_atoms: NDArray, counts: NDArray, weights: NDArray) -> NDArray:
    """Weights after EM, for atoms of a few clients only, to which quadratic models are blind."""
    for _ in range(3):
        weights = weights * ((counts / (at_atoms @ weights)) @ at_atoms) / counts.sum()
    return weights


def _directly(
    rows: Likelihood,
    counts: NDArray,
    nodes: NDArray,
    atoms: NDArray,
    weights: NDArray,
    tol: float,
) -> Maximiser:
    """Climb from a start with all rows, and keep as few atoms as are as likely."""
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
    weights = _warmed(at_atoms, counts, weights)
    for _ in range(steps):
        weights = newton(at_atoms, counts, weights)
        kept = weights > 0
        atoms, at_atoms, weights = atoms[kept], at_atoms[:, kept], weights[kept]
        masses = counts / (at_atoms @ weights)
        rises = rows.tally(masses, nodes)
        top = _peaks(rises)
        top = top[rises[top] > 0.99 * counts.sum()]
        peaks = _between(nodes, spacing, rises, top, partial(rows.tally, masses))
        at_peaks = rows.relative(peaks[:, None])
        gradient = masses @ at_peaks - counts.sum()
        gap = float(gradient.max(initial=0.0))
        if gap <= tol:
            break
        rising = (gradient > 0) & ~np.isin(peaks, atoms)
        atoms = np.concatenate((atoms, peaks[rising]))
        at_atoms = np.hstack((at_atoms, at_peaks[:, rising]))
        weights = np.concatenate((weights, np.zeros(rising.sum())))
    kept = weights > 0
    return Maximiser(atoms[kept], weights[kept], gap, float(rises.min() - counts.sum()))


@dataclass(frozen=True)
class _Problem:
    """Maximise ``sum_i counts_i log f_i + sum_j weight_j tilt(atom_j)`` over populations.

    `tilt` has values at the nodes. Between them it is the polynomial through the nearest six.
    `at_nodes` are likelihoods of the rows at the nodes, kept where that is faster.
    """

    rows: Likelihood
    counts: NDArray
    nodes: NDArray
    tilt: NDArray
    at_nodes: NDArray | None = None

    @cached_property
    def spacing(self) -> NDArray:
        """Distance of each node to the nearest other."""
        gaps = np.concatenate(([np.inf], np.diff(self.nodes), [np.inf]))
        return np.minimum(gaps[1:], gaps[:-1])

    def tilted(self, at: NDArray) -> NDArray:
        """Interpolate the tilt by Neville's recurrence."""
        if not self.tilt.any():
            return np.zeros(len(at))
        size = min(6, len(self.nodes))
        first = np.clip(np.searchsorted(self.nodes, at) - size // 2, 0, len(self.nodes) - size)
        window = first[:, None] + np.arange(size)
        places, values, at = self.nodes[window], self.tilt[window], at[:, None]
        for gap in range(1, size):
            left, right = places[:, :-gap], places[:, gap:]
            values = ((at - right) * values[:, :-1] - (at - left) * values[:, 1:]) / (left - right)
        return values[:, 0]

    def mixture(self, atoms: NDArray, weights: NDArray) -> NDArray:
        """Likelihood f of each client, a block of them at a time."""
        blocks = self.rows.split(1 + len(self.rows) * len(atoms) // BLOCK)
        return np.concatenate([block.relative(atoms[:, None]) @ weights for block in blocks])

    def height(self, mixture: NDArray, atoms: NDArray, weights: NDArray) -> float:
        """Objective."""
        return float(self.counts @ np.log(mixture) + self.tilted(atoms) @ weights)

    def rises(self, mixture: NDArray) -> NDArray:
        """Gradient at the nodes, up to a constant."""
        if self.at_nodes is not None:
            return (self.counts / mixture) @ self.at_nodes + self.tilt
        return self.rows.tally(self.counts / mixture, self.nodes) + self.tilt

    def peaks(
        self, mixture: NDArray, rises: NDArray, level: float, tol: float
    ) -> tuple[NDArray, NDArray]:
        """Peaks of the gradient, between nodes too, and by how much they are above a level.

        They are exact where none is clearly more than `tol`.
        """
        nodes, masses = self.nodes, self.counts / mixture
        top = _peaks(rises)
        top = top[rises[top] > 0.99 * level]
        if rises[top].max() > level + 10 * tol:
            places = np.concatenate((nodes[top], _between(nodes, self.spacing, rises, top)))
            return places, np.tile(rises[top] - level, 2)

        def height(points: NDArray) -> NDArray:
            return self.rows.tally(masses, points) + self.tilted(points)

        peaks = np.unique(_between(nodes, self.spacing, rises, top, height))
        return peaks, height(peaks) - level

    def climb(self, atoms: NDArray, weights: NDArray, tol: float) -> tuple[NDArray, NDArray]:
        """Constrained Newton steps until nothing rises, or steps run out.

        A step is for the weights of atoms, of peaks of the gradient and of places on both sides of
        each atom, to which it moves. What is then closer than these becomes one atom at its mean,
        unless that is less likely than before the step. The distance shrinks as moves do.
        """
        rows, counts, nodes, scale = self.rows, self.counts, self.nodes, 0.5
        weights = _warmed(rows.relative(atoms[:, None]), counts, weights)
        order = np.argsort(atoms)
        order = order[weights[order] > 0]
        atoms, weights = atoms[order], weights[order]
        mixture = self.mixture(atoms, weights)
        for _ in range(STEPS):
            level = counts.sum() + float(self.tilted(atoms) @ weights)
            rises = self.rises(mixture)
            crowded = len(atoms) > CROWD
            peaks, gains = self.peaks(mixture, rises, level, np.inf if crowded else tol)
            gap = max(float(gains.max()), 0.0)
            if gap <= tol:
                break
            apart = scale * self.spacing[self._nearest(atoms)]
            lattice = np.concatenate((atoms - apart, atoms + apart))
            if gap > ROUGH * level or crowded:
                lattice = lattice[:0]
            places = np.unique(np.concatenate((atoms, lattice, peaks[gains > 0])))
            places = places[(places >= nodes[0]) & (places <= nodes[-1])]
            shares = np.zeros(len(places))
            shares[np.searchsorted(places, atoms)] = weights
            at_places = rows.relative(places[:, None])
            shares = newton(at_places, counts, shares, self.tilted(places))
            kept = shares > 0
            found = places[kept], shares[kept]
            before = self.height(mixture, atoms, weights)
            mixture = at_places[:, kept] @ shares[kept]
            after = self.height(mixture, *found)
            fewer = self.fewer(*found, mixture, 1.5 * scale)
            if fewer is not None:
                of_fewer = self.mixture(*fewer)
                height = self.height(of_fewer, *fewer)
                if height >= before + 0.1 * (after - before):
                    found, mixture = fewer, of_fewer
            moves = np.abs(found[0][:, None] - atoms).min(axis=1)
            moves /= self.spacing[self._nearest(found[0])]
            scale = min(scale, max(scale / 8, float(moves.max())))
            atoms, weights = found
        return atoms, weights

    def _nearest(self, atoms: NDArray) -> NDArray:
        return np.clip(np.searchsorted(self.nodes, atoms), 0, len(self.nodes) - 1)

    def fewer(
        self, atoms: NDArray, weights: NDArray, mixture: NDArray, scale: float
    ) -> tuple[NDArray, NDArray] | None:
        """Replace runs of atoms that are close, in units of nodes, by their mean.

        A run that a client needs, whose estimate is too precise for the mean, is left; None if all
        are.
        """
        apart = np.diff(atoms) > scale * self.spacing[self._nearest(atoms)][1:]
        while not apart.all():
            run = np.concatenate(([0], np.cumsum(apart)))
            total = np.bincount(run, weights)
            means = np.bincount(run, weights * atoms) / total
            means = np.clip(means, self.nodes[0], self.nodes[-1])
            lost = self.mixture(means, total) < 0.5 * mixture
            if not lost.any():
                return means, total
            ends = np.searchsorted(means, self.rows.local[lost, 0])
            needed = np.unique(np.clip(np.concatenate((ends - 1, ends)), 0, len(means) - 1))
            kept = apart | np.isin(run[1:], needed)
            if (kept == apart).all():
                return None
            apart = kept
        return None


def _together(
    atoms: NDArray, weights: NDArray, more: NDArray, of_more: NDArray
) -> tuple[NDArray, NDArray]:
    """Atoms of two populations that share the weight, increasing."""
    places, where = np.unique(np.concatenate((atoms, more)), return_inverse=True)
    shares = np.bincount(where, np.concatenate((weights, of_more)))
    return places[shares > 0], shares[shares > 0]


def _peaks(values: NDArray) -> NDArray:
    """Positions of the local maxima."""
    padded = np.concatenate(([-np.inf], values, [-np.inf]))
    return np.flatnonzero((padded[1:-1] >= padded[:-2]) & (padded[1:-1] > padded[2:]))


def _between(
    nodes: NDArray,
    spacing: NDArray,
    rises: NDArray,
    top: NDArray,
    height: Callable[[NDArray], NDArray] | None = None,
) -> NDArray:
    """Peaks beside the nodes `top`, by parabolas; by narrower ones twice more, given `height`."""
    peaks, width = nodes[top], spacing[top]
    sides = [rises[np.clip(top + side, 0, len(nodes) - 1)] for side in (-1, 0, 1)]
    for _ in range(2):
        if height is None:
            break
        peaks = np.clip(peaks + width * _vertex(*sides), nodes[0], nodes[-1])
        width = width / 8
        points = np.concatenate([peaks + side * width for side in (-1, 0, 1)])
        order = np.argsort(points)  # all in one pass over the clients
        around = np.empty(len(points))
        around[order] = height(points[order])
        sides = np.split(around, 3)
    return np.clip(peaks + width * _vertex(*sides), nodes[0], nodes[-1])


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
