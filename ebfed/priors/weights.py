"""Maximum likelihood of the weights of known components, and of any population on the line.

With known places it is a concave problem on the simplex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels.threads import one_thread
from ebfed.likelihoods import Likelihood

__all__ = [
    "FLAT",
    "analytic_centre",
    "climb",
    "cross_products",
    "fit_weights",
    "gradient",
    "line_search",
    "npmle",
]

BLOCK = 4096  # rows at a time: what fits the cache
MANY = 20_000  # rows beyond which some are used first
FLOOR = 1e-13  # curvature that is added, as a share of what there is
NONE = 1e-30  # curvature, as a share of the largest, of a column under which no row is possible
ENOUGH_GAIN = 1e-6  # of a model, as a share of the gain so far
SETTLED = 1e-11  # a gradient per client that is nothing but rounding
FLAT = 1e-5  # a gradient per client that is nowhere steeper vanishes everywhere


def fit_weights(
    likelihoods: NDArray, counts: NDArray, weights: NDArray, tol: float
) -> tuple[NDArray, float]:
    """Maximise ``sum_i counts_i log sum_j weights_j L_ij`` to a duality gap of `tol`.

    Where the gradient vanishes at every column and the columns depend on each other, there are
    several maximisers, and the answer is their analytic centre.

    Parameters
    ----------
    likelihoods : ndarray of shape (n, k)
        Each row up to a factor.
    counts : ndarray of shape (n,)
    weights : ndarray of shape (k,)
        A start, which makes every row possible.
    tol : float

    Returns
    -------
    weights : ndarray of shape (k,)
    gap : float
        The log-likelihood is at most this much below its maximum.

    Examples
    --------
    >>> weights, gap = fit_weights(np.eye(2), np.array([3.0, 1.0]), np.array([0.5, 0.5]), 1e-9)
    >>> weights.round(6)
    array([0.75, 0.25])
    """
    with one_thread():
        return _fitted(likelihoods, counts, weights, tol)


def _fitted(
    likelihoods: NDArray, counts: NDArray, weights: NDArray, tol: float
) -> tuple[NDArray, float]:
    if (
        len(likelihoods) > MANY and (counts > 0).all()
    ):  # a start from a tenth of the rows, unless it fails another
        rough, _ = _fitted(likelihoods[::10], counts[::10], weights, tol)
        weights = rough if (likelihoods @ rough > 0).all() else (rough + weights) / 2
    weights, rising = climb(likelihoods, counts, weights, tol)
    gap = max(float(rising.max()), 0.0)
    total = counts.sum()
    if gap <= tol and rising.min() >= -FLAT * total and (counts > 0).all():
        cells, width = np.ones(len(weights)), tol / total / 100
        centre = analytic_centre(likelihoods, counts, likelihoods @ weights, cells, width)
        if centre is not None:
            rise = max(float(gradient(likelihoods, counts, likelihoods @ centre).max()), 0.0)
            if rise <= tol:
                return centre, rise
    return weights, gap


def gradient(likelihoods: NDArray, counts: NDArray, mixture: NDArray) -> NDArray:
    """Return the gain in log-likelihood per unit of mass moved to each column."""
    return (counts / mixture) @ likelihoods - counts.sum()


def climb(
    likelihoods: NDArray,
    counts: NDArray,
    weights: NDArray,
    tol: float,
    tilt: NDArray | None = None,
    steps: int = 200,
) -> tuple[NDArray, NDArray]:
    """Newton steps for the weights of columns, up to a duality gap of `tol`.

    Parameters
    ----------
    likelihoods, counts, weights :
        See `fit_weights`.
    tol : float
    tilt : ndarray of shape (k,), optional
        Coefficients of a linear term ``tilt @ weights`` of the objective.
    steps : int
        Most steps.

    Returns
    -------
    weights : ndarray of shape (k,)
    rises : ndarray of shape (k,)
        What mass moved to each column gains, per unit.
    """
    tilt = np.zeros(len(weights)) if tilt is None else tilt
    for step in range(steps + 1):
        rises = gradient(likelihoods, counts, likelihoods @ weights) + tilt - tilt @ weights
        if step == steps or rises.max() <= tol:
            break
        active = (weights > 0) | (rises > 0)
        moved = np.zeros(len(weights))
        some = likelihoods[:, active], counts, weights[active]
        moved[active] = _newton(*some, tilt[active], tol)
        if (moved == weights).all():  # as far as rounding lets it
            break
        weights = moved
    return weights, rises


def _newton(
    likelihoods: NDArray, counts: NDArray, weights: NDArray, tilt: NDArray, tol: float
) -> NDArray:
    """One constrained Newton step for the weights, with a line search.

    The quadratic model of the log-likelihood per client at w, over the simplex, has the slope
    ``L' (c / f)`` and the curvature ``L' diag(c / f**2) L`` (Wang 2007, eq. 5).
    """
    mixture, total = likelihoods @ weights, counts.sum()
    bend = cross_products(likelihoods, counts / mixture**2) / total
    slope = ((counts / mixture) @ likelihoods + tilt) / total
    proposal = _likeliest_of_model(bend, slope, weights, max(0.1 * tol / total, SETTLED))
    gain = float(tilt @ (proposal - weights))
    step = line_search(counts, mixture, likelihoods @ proposal, gain)
    return (1 - step) * weights + step * proposal


def _likeliest_of_model(bend: NDArray, slope: NDArray, weights: NDArray, settled: float) -> NDArray:
    """Maximise ``slope @ d - d @ bend @ d / 2`` over weights v = w + d of a simplex.

    An active set method solves for the weights that may be positive, first for all. It drops what
    comes out negative and adds what would rise, or, where that does not raise the model, a quarter
    as many. A single one is added with care: up to where the first becomes negative, so that it
    always rises (Lawson and Hanson 1974).
    """
    # so little curvature keeps weights as they are, and columns of zeros apart from others
    bends = np.diag(bend)
    bend = bend + np.diag(FLOOR * np.maximum(bends, NONE * bends.max()))
    start = weights / weights.sum()
    best, height = start, -np.inf
    used, batch = np.ones(len(start), bool), len(start)
    for _ in range(10 * len(weights) + 50):
        found = _on_face(bend, slope, start, best, used, batch == 1)
        moved = found - start
        reached = float(slope @ moved - moved @ bend @ moved / 2)
        if reached > height * (1 + ENOUGH_GAIN):
            best, height, batch = found, reached, 2 * batch
        elif batch == 1:
            break
        else:
            batch = max(batch // 4, 1)
        used = best > 0
        rises = slope - bend @ (best - start)
        rises = np.where(used, -np.inf, rises - best @ rises)
        order = np.argsort(-rises)[:batch]
        order = order[rises[order] > (settled if height > 0 else SETTLED)]
        if not len(order) and (height > 0 or batch == 1):
            break
        used[order] = True
        batch = min(batch, max(len(order), 1))
    return best


def _on_face(
    bend: NDArray, slope: NDArray, start: NDArray, v: NDArray, used: NDArray, careful: bool
) -> NDArray:
    """Maximise the model of `_likeliest_of_model` over the columns in use, some of which it drops.

    From v, it goes straight to the maximum if that is `careful`, and stops at the first edge.
    """
    used = used.copy()
    while used.any():
        at = np.flatnonzero(used)
        if len(at) == 1:
            return used.astype(float)
        v = np.where(used, v, 0.0)
        v = v / v.sum() if v.any() else used / len(at)
        residual = (slope - bend @ (v - start))[at]
        solve = _cholesky(bend[np.ix_(at, at)])
        both = solve(np.column_stack([residual, np.ones(len(at))]))
        move = both[:, 0] - both[:, 0].sum() / both[:, 1].sum() * both[:, 1]
        target = v[at] + move
        negative = target < 0
        if not negative.any():
            v[at] = target
            return v / v.sum()
        if careful:
            room = np.full(len(at), np.inf)
            room[negative] = v[at][negative] / -move[negative]
            share = room.min()
            negative = room <= share
            v[at] = np.where(negative, 0.0, np.maximum(v[at] + share * move, 0.0))
        used[at[negative]] = False
    return start


def _cholesky(matrix: NDArray) -> Callable[[NDArray], NDArray]:
    """Solve systems with a matrix, and as much more on its diagonal as rounding takes."""
    from scipy.linalg.lapack import dpotrf, dpotrs

    scale, extra, failed = np.diag(matrix), 0.0, 1
    places = np.diag_indices(len(matrix))
    while failed:
        whole = np.array(matrix, order="F")
        whole[places] = (1 + extra) * scale
        factor, failed = dpotrf(whole, lower=1, overwrite_a=1, clean=0)
        extra = max(10 * extra, 1e-13)
    return lambda right: dpotrs(factor, right, lower=1)[0]


def line_search(counts: NDArray, mixture: NDArray, target: NDArray, tilt: float = 0.0) -> float:
    """How far to go from one mixture towards another, so that the log-likelihood climbs; 0 if not.

    Parameters
    ----------
    counts, mixture, target : ndarray of shape (n,)
    tilt : float
        What a linear term gains on the whole way.
    """
    before = counts @ np.log(mixture)
    # a client made all but impossible would rule the next step
    step = 1.0 if (target > 0.1 * mixture).all() else 0.9
    slope = (counts / mixture) @ (target - mixture) + tilt
    while step > 1e-10:
        after = counts @ np.log((1 - step) * mixture + step * target) + step * tilt
        if after >= before + 1e-4 * step * slope:
            return step
        step /= 2
    return 0.0


def analytic_centre(
    likelihoods: NDArray, counts: NDArray, mixture: NDArray, cells: NDArray, width: float
) -> NDArray | None:
    """Return the weights at the centre of those that maximise the likelihood.

    They maximise, over positive weights of sum one,

        sum_i counts_i log(f_i) / n  +  width sum_j cells_j log(weights_j),   f = L weights.

    That problem is strictly concave: its answer is unique and depends on the data alone. For
    ``width -> 0`` it is the analytic centre of the maximisers (Boyd and Vandenberghe 2004, section
    8.5.3); the duality gap is at most ``width * n``. Newton steps for f leave a problem whose dual
    has one unknown for each independent row of L (`_barrier`).

    Parameters
    ----------
    likelihoods : ndarray of shape (n, k)
        Each row up to a factor.
    counts : ndarray of shape (n,)
    mixture : ndarray of shape (n,)
        f of a maximiser. The gradient of the likelihood there is next to zero at every column.
    cells : ndarray of shape (k,)
        Measure of each column; scaled to sum one.
    width : float

    Returns
    -------
    ndarray of shape (k,) or None
        None where the columns of `likelihoods` are independent, so that the maximiser is unique,
        and where Newton's method does not settle.

    Examples
    --------
    >>> likelihoods = np.array([[1, 0.5, 0], [0, 0.5, 1]])  # a trial at rates 0, 1/2 and 1
    >>> centre = analytic_centre(likelihoods, np.ones(2), np.full(2, 0.5), np.ones(3), 1e-10)
    >>> centre.round(6)
    array([0.333333, 0.333333, 0.333333])
    """
    share = np.sqrt(counts / counts.sum())
    cells = cells / cells.sum()
    last = np.inf
    for _ in range(30):
        # log f has the model -|A w - 2 share|**2 / 2, as in `newton`
        system = (likelihoods * (share / mixture)[:, None]).T
        right, sizes, left = np.linalg.svd(system, full_matrices=False)
        rank = int((sizes > 1e-8 * sizes[0]).sum())
        if rank == len(cells):
            return None
        left, sizes, right = left[:rank], sizes[:rank], right[:, :rank].T
        middle = left @ share
        # one multiplier holds the sum of weights; A' u = 1 moves it into the square
        target = 2 * middle - right.sum(axis=1) / sizes
        weights = _barrier(sizes[:, None] * right, target, cells, width, middle)
        if weights is None:
            return None
        before, mixture = mixture, likelihoods @ weights
        moved = float(np.abs(mixture / before - 1).max())
        if moved < 1e-13 or last <= moved < 1e-9:  # as far as rounding lets it
            return weights / weights.sum()
        last = moved
    return None


def _barrier(
    system: NDArray, target: NDArray, cells: NDArray, width: float, start: NDArray
) -> NDArray | None:
    """Maximise ``cells @ log(w) - |system @ w - target|**2 / (2 width)`` by its dual.

    The answer is ``w = cells / (system.T @ x)`` where x minimises the convex function
    ``-cells @ log(system.T @ x) + target @ x + width |x|**2 / 2``; `start` has to be in its domain.
    Damped Newton steps; None if they do not end.
    """
    x, slack = start, start @ system
    if not (slack > 0).all():
        return None

    def value(x: NDArray, slack: NDArray) -> float:
        return float(target @ x + width / 2 * (x @ x) - cells @ np.log(slack))

    last = np.inf
    for _ in range(500):
        slope = target + width * x - system @ (cells / slack)
        bend = (system * (cells / slack**2)) @ system.T + width * np.eye(len(x))
        step = -np.linalg.solve(bend, slope)
        moves = step @ system
        fall = float(-slope @ step)
        if fall < 1e-12 and fall >= last:  # as far as rounding lets it
            return cells / slack
        size = 1.0
        while fall >= 1e-12:
            at = slack + size * moves
            if (at > 0).all() and value(x + size * step, at) <= value(x, slack) - size * fall / 10:
                break
            size /= 2
            if size < 1e-10:
                return None
        x = x + size * step
        slack, last = x @ system, fall
        if not (slack > 0).all():
            return None
    return None


def cross_products(likelihoods: NDArray, factors: NDArray) -> NDArray:
    """``sum_i factors_i L_ij L_ik``, a block of rows at a time."""
    total = np.zeros((likelihoods.shape[1],) * 2)
    for first in range(0, len(likelihoods), BLOCK):
        block = likelihoods[first : first + BLOCK]
        total += (block * factors[first : first + BLOCK, None]).T @ block
    return total


# Of places too: a constrained Newton method (Wang 2007) finds a population of maximal likelihood;
# of many clients, with fewer rows that stand for them, so that all are seen in a few passes only.
# The marginal likelihoods f_i at the maximum are unique. Several populations can have them: those
# for which the gradient ``sum_i L_i(theta) / f_i - n`` is zero for every theta. Rounding would
# then decide which is found. The answer is their analytic centre instead.

MOST_ATOMS = 100  # of a quadrature
STEPS = 100
CROWD = 100  # atoms beyond which they move by steps to peaks alone
INNER = 3  # steps of weights for given places
ROUNDS = 12  # of search between nodes, at most
NEAR = 0.8  # gradient of a node beside a peak, as a share of that at an atom
EARLY = 1e-5  # a gap per client up to which fewer rows are fitted at first
ROUGH = 1e-3  # a gap per client that is far from the maximum
CLOSE = 1e-4  # a gap per client from which Newton's method for atoms too may end the search
NEWTON = 6  # of its steps, at most
HALF_THE_DIGITS = 1e-7  # the step after one so small leaves rounding
SHORT = 1e-3  # distance of differences in atoms, in units of nodes
MOST_KEPT = 10_000_000  # likelihoods at nodes that are kept
AT_ONCE = 200_000  # likelihoods that are in memory at a time


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

    Of many clients, fewer rows that stand for them are fitted first, then with a linear term that
    makes their gradient that of all clients (a surrogate likelihood; Jordan, Lee and Yang 2019).
    Each pass over the clients takes the distance to the maximum down by as much as the curvatures
    of the two differ. The gap is that of all clients; sums over them may be by a `Lattice`.
    """
    nodes = rows.search(n_nodes)
    few, times = rows.condensed(counts)
    if len(few) == len(rows):
        return _Problem.of(rows, counts, nodes).climb(*_start(rows, counts, nodes), tol)
    of_all, small = rows.weighed(counts), _Problem.of(few, times, nodes)
    whole = _Problem(*of_all, nodes)
    start = _start(few, times, nodes)
    atoms, weights, *_ = small.climb(*start, max(tol, EARLY * counts.sum()))
    mixture, last = whole.mixture(atoms, weights), np.inf
    while True:
        rise = whole.rise(atoms, weights, mixture, tol)
        gap, close = rise.gap, CLOSE * counts.sum()
        if gap <= close and (settled := whole.settled(atoms, weights, rise, tol)) is not None:
            return settled
        if gap <= tol:
            return Maximiser(atoms, weights, gap, rise.lowest)
        if gap > last / 2:  # the fewer rows lead no further
            return _Problem.of(rows, counts, nodes).climb(atoms, weights, tol)
        last = gap
        tilt = rise.at_nodes - small.rises(small.mixture(atoms, weights))
        found = replace(small, tilt=tilt).climb(atoms, weights, max(tol, gap / 100) / 10)[:2]
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


class _Rise(NamedTuple):
    """The gradient at a population, up to a constant.

    Its average over the population is `level`; `at_nodes` are its values at the nodes; its `peaks`
    are `gains` above the level.
    """

    level: float
    at_nodes: NDArray
    peaks: NDArray
    gains: NDArray

    @property
    def gap(self) -> float:
        """By how much the log-likelihood is below its maximum, at most."""
        return max(float(self.gains.max()), 0.0)

    @property
    def lowest(self) -> float:
        """Least gradient at a node, over its average."""
        return float(self.at_nodes.min() - self.level)


@dataclass(frozen=True)
class _Problem:
    """Maximise ``sum_i counts_i log f_i + sum_j weight_j tilt(atom_j)`` over populations.

    `tilt` has values at the nodes. Between them it is the polynomial through the nearest six.
    `at_nodes` are likelihoods of the rows at the nodes, kept where that is faster.
    """

    rows: Likelihood
    counts: NDArray
    nodes: NDArray
    tilt: NDArray | None = None
    at_nodes: NDArray | None = None

    @classmethod
    def of(cls, rows: Likelihood, counts: NDArray, nodes: NDArray) -> _Problem:
        """Keep likelihoods at nodes where they are few and their sums have no kernel."""
        kept = len(rows) * len(nodes) <= MOST_KEPT and type(rows).tally is Likelihood.tally
        return cls(rows, counts, nodes, None, rows.relative(nodes[:, None]) if kept else None)

    @cached_property
    def spacing(self) -> NDArray:
        """Distance of each node to the nearest other."""
        gaps = np.concatenate(([np.inf], np.diff(self.nodes), [np.inf]))
        return np.minimum(gaps[1:], gaps[:-1])

    def tilted(self, at: NDArray) -> NDArray:
        """Interpolate the tilt by Neville's recurrence."""
        if self.tilt is None:
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
        blocks = self.rows.split(1 + len(self.rows) * len(atoms) // AT_ONCE)
        return np.concatenate([block.relative(atoms[:, None]) @ weights for block in blocks])

    def height(self, mixture: NDArray, atoms: NDArray, weights: NDArray) -> float:
        """Objective."""
        return float(self.counts @ np.log(mixture) + self.tilted(atoms) @ weights)

    def rises(self, mixture: NDArray) -> NDArray:
        """Gradient at the nodes, up to a constant."""
        masses = self.counts / mixture
        if self.at_nodes is not None:
            sums = masses @ self.at_nodes
        else:
            sums = self.rows.tally(masses, self.nodes)
        return sums if self.tilt is None else sums + self.tilt

    def peaks(
        self, mixture: NDArray, rises: NDArray, level: float, tol: float
    ) -> tuple[NDArray, NDArray]:
        """Peaks of the gradient, between nodes too, and by how much they are above a level."""
        masses, top = self.counts / mixture, _peaks(rises)
        top = top[rises[top] > NEAR * level]

        def height(points: NDArray) -> NDArray:
            order = np.argsort(points)  # all in one pass over the clients
            at, found = points[order], np.empty(len(points))
            found[order] = self.rows.tally(masses, at) + self.tilted(at)
            return found

        peaks, heights = _between(self.nodes, rises, top, height, level, tol)
        return peaks, heights - level

    def climb(self, atoms: NDArray, weights: NDArray, tol: float) -> Maximiser:
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
        ready = CLOSE * counts.sum()
        for step in range(STEPS + 1):
            rise = self.rise(atoms, weights, mixture, tol)
            gap = rise.gap
            if gap <= max(ready, tol):
                ready = gap / 10
                if (settled := self.settled(atoms, weights, rise, tol)) is not None:
                    return settled
            if gap <= tol or step == STEPS:
                break
            apart = scale * self.spacing[self._nearest(atoms)]
            lattice = np.concatenate((atoms - apart, atoms + apart))
            if gap > ROUGH * rise.level or len(atoms) > CROWD:
                lattice = lattice[:0]
            places = np.unique(np.concatenate((atoms, lattice, rise.peaks[rise.gains > 0])))
            places = places[(places >= nodes[0]) & (places <= nodes[-1])]
            shares = np.zeros(len(places))
            shares[np.searchsorted(places, atoms)] = weights
            at_places = rows.relative(places[:, None])
            shares, _ = climb(at_places, counts, shares, gap / 10, self.tilted(places), INNER)
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
        return Maximiser(atoms, weights, gap, rise.lowest)

    def rise(self, atoms: NDArray, weights: NDArray, mixture: NDArray, tol: float) -> _Rise:
        """Gradient at a population."""
        level = self.counts.sum() + float(self.tilted(atoms) @ weights)
        at_nodes = self.rises(mixture)
        return _Rise(level, at_nodes, *self.peaks(mixture, at_nodes, level, tol))

    def settled(
        self, atoms: NDArray, weights: NDArray, rise: _Rise, tol: float
    ) -> Maximiser | None:
        """End a search by Newton steps for atoms and weights together, to the last digits.

        From one atom at each peak of the gradient, and else from the atoms as they are. None unless
        the gap is then at most `tol`, and far less than before.
        """
        if rise.lowest >= -FLAT * self.counts.sum():  # there are other maximisers
            return None
        own = np.abs(atoms[:, None] - rise.peaks).argmin(axis=1)
        total, moment = (np.bincount(own, each) for each in (weights, weights * atoms))
        few = moment[total > 0] / total[total > 0], total[total > 0]
        for start in (few, (atoms, weights))[: 1 + (len(few[0]) < len(atoms))]:
            if (found := self.newton(*start)) is not None:
                after = self.rise(*found, self.mixture(*found), tol)
                if after.gap <= min(tol, max(rise.gap / 10, tol / 100)):
                    return Maximiser(*found, after.gap, after.lowest)
        return None

    def newton(self, atoms: NDArray, weights: NDArray) -> tuple[NDArray, NDArray] | None:
        """Maximise the likelihood of these atoms and their weights by Newton's method.

        Climbing by places on both sides of atoms comes closer by a factor at each step; here the
        digits double. Derivatives in atoms are differences over a small part of the distance of
        nodes, which moves with the data and their units. Atoms at the ends stay. None if a step
        would leave a weight that is not positive, or an atom outside its node.
        """
        unit, k = self.spacing[self._nearest(atoms)], len(atoms)
        short = SHORT * unit
        free = (atoms - short > self.nodes[0]) & (atoms + short < self.nodes[-1])
        moving = np.concatenate((np.full(k, True), free))
        sums = np.concatenate((np.ones(k), np.zeros(k)))
        for _ in range(NEWTON):
            slope, bend = self.derivatives(atoms, weights, short)
            bend, sides = bend[np.ix_(moving, moving)], np.column_stack((slope, sums))[moving]
            try:
                to_top, to_sum = np.linalg.solve(bend, sides).T
            except np.linalg.LinAlgError:
                return None
            step = np.zeros(2 * k)
            step[moving] = to_sum * (to_top[:k].sum() / to_sum[:k].sum()) - to_top
            weights, atoms = weights + step[:k], atoms + unit * step[k:]
            if not ((weights > 0).all() and (np.abs(step[k:]) < 1).all()):
                return None
            if np.abs(step).max() < HALF_THE_DIGITS:
                return atoms, weights / weights.sum()
        return None

    def derivatives(
        self, atoms: NDArray, weights: NDArray, short: NDArray
    ) -> tuple[NDArray, NDArray]:
        """Gradient and Hessian of the objective in the weights and in the atoms.

        Atoms are in units of nodes, of which `short` is a small part.
        """
        places, k = np.concatenate((atoms, atoms + short, atoms - short)), len(atoms)
        here, above, below = np.hsplit(self.rows.relative(places[:, None]), 3)
        tilt, more, less = np.split(self.tilted(places), 3)
        mixture = here @ weights
        masses, slopes = self.counts / mixture, (above - below) / (2 * SHORT)
        across = masses @ slopes + (more - less) / (2 * SHORT)
        bends = (masses @ (above - 2 * here + below) + more - 2 * tilt + less) / SHORT**2
        slope = np.concatenate((masses @ here + tilt, weights * across))
        bend = -cross_products(np.hstack((here, weights * slopes)), masses / mixture)
        first, second = np.arange(k), np.arange(k, 2 * k)
        bend[first, second] += across
        bend[second, first] += across
        bend[second, second] += weights * bends
        return slope, bend

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
    rises: NDArray,
    top: NDArray,
    height: Callable[[NDArray], NDArray],
    level: float,
    tol: float,
) -> tuple[NDArray, NDArray]:
    """Peaks beside the nodes `top`, and their heights.

    Parabolas of logarithms, which are exact for a single normal error, between three points that
    enclose each peak; until one is clearly more than `tol` above the level, or none still rises.
    """

    def log(heights: NDArray) -> NDArray:
        return np.log(np.maximum(heights, 1e-3 * level))

    around = np.clip(top + np.array([[-1], [0], [1]]), 0, len(nodes) - 1)
    places, logs = nodes[around], log(rises[around])
    open_ = np.arange(len(top))  # peaks that still rise
    for step in range(ROUNDS):
        some, values = places[:, open_], logs[:, open_]
        (before, after), (fall, drop) = np.diff(some, axis=0), np.diff(values, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            left, right = fall / before, -drop / after
            move = 0.5 * (after * left - before * right) / (left + right)
        halfway = np.where(after > before, 0.38 * after, -0.38 * before)
        move = np.clip(np.where(np.isfinite(move), move, halfway), -0.9 * before, 0.9 * after)
        some = np.vstack((some, some[1] + move))
        values = np.vstack((values, log(height(some[3]))))
        risen = np.abs(values[3] - values[1]) * level > tol / 20
        order = np.argsort(some, axis=0, kind="stable")
        some, values = (np.take_along_axis(x, order, axis=0) for x in (some, values))
        # the highest but the ends, with its neighbours
        first = (values[2] > values[1]).astype(int) + np.arange(3)[:, None]
        places[:, open_], logs[:, open_] = (
            np.take_along_axis(x, first, axis=0) for x in (some, values)
        )
        open_ = open_[risen]
        far = level * np.expm1(logs[1] - np.log(level)).max(initial=0.0) > 10 * tol
        if not len(open_) or (far and step >= 2):
            break
    return places[1], level * np.exp(logs[1] - np.log(level))
