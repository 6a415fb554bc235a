"""Atoms of an NPMLE that stand for outliers of the error, and a smooth part in their place."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels.threads import one_thread
from ebfed.likelihoods import Likelihood
from ebfed.priors.weights import fit_weights

__all__ = ["LEVEL", "Fewer", "without_outlying"]

# Share of samples whose farthest error brings more than the price and a normal error together. In
# one of 50 to 70 it brings more than the price alone, and is taken for a parameter.
LEVEL = 0.001
SCALES = 2.0 ** np.arange(-3, 2, 0.25)  # of smooth parts, in distances between quartiles
LOGS = (  # of their densities
    lambda z: -2 * np.log1p(z**2 / 3),  # t, with as few degrees of freedom as give it a variance
    lambda z: -3 * np.log1p(z**2 / 5),
    lambda z: -np.sqrt(2) * np.abs(z),
    lambda z: -(z**2) / 2,
)
SHARES = (0.02, 0.1, 0.4, 0.8)  # that are tried
ROUGH = 0.01  # duality gap on the way


class Fewer(NamedTuple):
    """A population of which less stands for outliers.

    `atoms` and `weights` have shape (k,), `loss` is the log-likelihood that was given up, and
    `n_free` the number of parameters that were estimated.
    """

    atoms: NDArray
    weights: NDArray
    loss: float
    n_free: int


def without_outlying(
    rows: Likelihood,
    counts: NDArray,
    atoms: NDArray,
    weights: NDArray,
    nodes: NDArray,
    price: float,
    tol: float,
) -> Fewer:
    r"""Drop atoms that bring no more log-likelihood than an outlier of the error does.

    Errors with heavy tails are far from their parameter now and then. The likelihood is highest if
    such an estimate has an atom of its own, of weight near 1/n: it is taken for a parameter, with a
    squared error as large as it can be. How often parameters are far is better learnt from all: a
    smooth part of the population, normal, Laplace or t around the median, may take the place of
    atoms. Without atom j, the log-likelihood falls by

    .. math:: n \log(1 - w_j) - \sum_i \log(1 - w_j L_{ij} / f_i)

    if the others are rescaled, and by ``-sum_i log(1 + w_j (S_i - L_ij) / f_i)`` if the smooth part
    with likelihoods S_i has its weight. The atom of the smallest loss is left out if that is below
    the price, the weights of all others are fitted again, and so on. Some groups far from the
    others bring more than the price; so does a single estimate, if it is too far for an error
    (`StudentT.outlier_gain`).

    The scale of the smooth part is at first the likeliest alone, and then the likeliest beside the
    atoms that are left. There is a start for each shape with all atoms, with the heaviest and with
    none. Of the populations that are found from these, the one of the highest log-likelihood less
    the prices of its parts is returned.

    Parameters
    ----------
    rows : Likelihood of k messages
    counts : ndarray of shape (k,)
        Clients that each stands for.
    atoms, weights : ndarray of shape (j,)
        An NPMLE.
    nodes : ndarray of shape (g,)
        Increasing grid; the smooth part that is returned is atoms there.
    price : float
        Log-likelihood that an atom must bring.
    tol : float
        Duality gap of the weights.

    Examples
    --------
    Two of 400 estimates are 8 errors away. An error with three degrees of freedom is that large in
    one of 250 cases; one with 30 never is. The weight of parameters beyond 5:

    >>> from ebfed.likelihoods import StudentT
    >>> from ebfed.priors.npmle import npmle
    >>> x = np.append(np.random.default_rng(0).standard_normal(398), [8.0, -8.5])[:, None]
    >>> for df in (3.0, 30.0):
    ...     rows, ones = StudentT(x, np.ones((400, 1)), np.full(400, df)), np.ones(400)
    ...     found, nodes = npmle(rows, ones, 400, 1e-6), rows.nodes(400)
    ...     price = rows.outlier_gain(ones, LEVEL)
    ...     left = without_outlying(rows, ones, found.atoms, found.weights, nodes, price, 1e-6)
    ...     print(left.weights[np.abs(left.atoms) > 5].sum().round(4))
    0.0
    0.005
    """
    with one_thread():
        first = _Search(rows, counts, atoms, weights, nodes, price)
        found = [
            first.started(shape, some)
            for shape, alone in enumerate(first.alone)
            for some in (weights > 0, weights == weights.max(), weights < 0)
            if some.all() or np.isfinite(alone.max())
        ]
        best = max(found, key=lambda one: one.height - price * (len(one.atoms) + (one.share > 0)))
        return best.result(tol)


class _Search:
    """Atoms that are left, and the smooth part beside them."""

    def __init__(
        self,
        rows: Likelihood,
        counts: NDArray,
        atoms: NDArray,
        weights: NDArray,
        nodes: NDArray,
        price: float,
    ):
        self.counts, self.nodes, self.price = counts, nodes, price
        self.atoms, self.weights, self.share = atoms, weights, 0.0
        self.at_atoms = rows.relative(atoms[:, None])
        self.mixture = self.at_atoms @ weights
        self.highest = self.height
        self.parts = _smooth_parts(rows, counts, nodes)
        self.smooth = rows.relative(nodes[:, None]) @ self.parts.T
        with np.errstate(divide="ignore"):  # some parts are too narrow for an estimate
            self.alone = (counts @ np.log(self.smooth)).reshape(len(LOGS), -1)
        self.chosen = 0

    @property
    def height(self) -> float:
        """Log-likelihood."""
        return float(self.counts @ np.log(self.mixture))

    def started(self, shape: int, some: NDArray) -> _Search:
        """Choose the scale of a shape, drop atoms, and so on until neither changes."""
        one = copy(self)
        of_shape = slice(shape * len(SCALES), (shape + 1) * len(SCALES))
        one.parts, one.smooth = self.parts[of_shape], self.smooth[:, of_shape]
        one.chosen = int(np.argmax(self.alone[shape]))
        if not some.all():
            one.atoms, one.at_atoms = self.atoms[some], self.at_atoms[:, some]
            one.fit(np.full(some.sum(), 0.5), 0.5, ROUGH)
        changes = True
        while changes:
            while one.choose():
                pass
            changes = one.drop()
        return one

    def result(self, tol: float) -> Fewer:
        """Fit the weights of what is left to the end, with scales between those of the grid."""
        near = np.unique(np.clip(self.chosen + np.arange(-1, 2), 0, len(SCALES) - 1))
        near = near[: 3 * (self.share > 0)]
        columns = np.column_stack([self.at_atoms, self.smooth[:, near]])
        start = np.append(self.weights, np.full(len(near), self.share / max(len(near), 1)))
        fitted, _ = fit_weights(columns, self.counts, start / start.sum(), tol)
        loss = self.highest - float(self.counts @ np.log(columns @ fitted))
        k = len(self.atoms)
        part = fitted[k:] @ self.parts[near]
        kept, some = fitted[:k] > 0, part > 1e-12
        atoms = np.append(self.atoms[kept], self.nodes[some])
        weights = np.append(fitted[:k][kept], part[some])
        n_free = 2 * int(kept.sum()) - 1 + 3 * bool(some.any())
        return Fewer(atoms, weights, max(loss, 0.0), n_free)

    def drop(self) -> bool:
        """Leave out the atom of the smallest loss, while that is below the price."""
        before = len(self.atoms)
        while len(self.atoms) and self.weights.min() < 1:
            losses = self.losses()
            least = int(np.argmin(losses))
            if losses[least] >= self.price:
                break
            share = self.share + self.weights[least] / 2
            self.atoms, rest = np.delete(self.atoms, least), np.delete(self.weights, least)
            self.at_atoms = np.delete(self.at_atoms, least, axis=1)
            self.fit(rest, share, ROUGH)
        return len(self.atoms) < before

    def losses(self) -> NDArray:
        """Log-likelihood that is lost without each atom, at most."""
        each = np.minimum(self.at_atoms * (self.weights / self.mixture[:, None]), 1 - 1e-16)
        rescaled = self.counts.sum() * np.log1p(-self.weights) - self.counts @ np.log(1 - each)
        moved = self.weights * (self.smooth[:, self.chosen] / self.mixture)[:, None]
        return np.minimum(rescaled, -(self.counts @ np.log(1 - each + moved)))

    def fit(self, weights: NDArray, share: float, tol: float) -> None:
        """Fit the weights of atoms and smooth part, from a start."""
        columns = np.column_stack([self.at_atoms, self.smooth[:, self.chosen]])
        start = np.append(weights, share)
        fitted, _ = fit_weights(columns, self.counts, start / start.sum(), tol)
        kept = fitted[:-1] > 0
        self.atoms, self.at_atoms = self.atoms[kept], self.at_atoms[:, kept]
        self.weights, self.share = fitted[:-1][kept], float(fitted[-1])
        self.mixture = columns @ fitted

    def choose(self) -> bool:
        """Take another scale, if there is one with which the likelihood is higher."""
        if not len(self.atoms):
            return False
        others = (self.at_atoms @ self.weights / (1 - self.share))[:, None]
        with np.errstate(divide="ignore"):
            heights = np.array(
                [self.counts @ np.log((1 - x) * others + x * self.smooth) for x in SHARES]
            )
        at, chosen = np.unravel_index(np.argmax(heights), heights.shape)
        if chosen == self.chosen or heights[at, chosen] <= self.height + ROUGH:
            return False
        self.chosen = int(chosen)
        self.fit((1 - SHARES[at]) / (1 - self.share) * self.weights, SHARES[at], ROUGH)
        return True


def _smooth_parts(rows: Likelihood, counts: NDArray, nodes: NDArray) -> NDArray:
    """Masses of the smooth parts at the nodes, a row for each, with a sum of at most about 1."""
    local = rows.local[:, 0]
    order = np.argsort(local)
    ranks = np.maximum.accumulate(np.cumsum(counts[order])) / counts.sum()
    low, centre, high = np.interp([0.25, 0.5, 0.75], ranks, local[order])
    width = high - low or (nodes[-1] - nodes[0]) / 10
    gaps = np.diff(nodes)
    before, after = np.append(gaps[0], gaps), np.append(gaps, gaps[-1])
    z = (nodes - centre) / (width * SCALES[:, None])
    density = np.exp(np.concatenate([log(z) for log in LOGS]))
    # mass between nodes that are far apart is no node's: no estimate is there
    masses = density * np.minimum(before, after)
    return masses / (density @ (before + after) / 2)[:, None]
