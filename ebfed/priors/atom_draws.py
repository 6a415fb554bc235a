"""Populations of k atoms that the messages leave plausible, drawn by a Gibbs sampler."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr, ndtri

from ebfed.likelihoods import Gaussian, Likelihood

__all__ = ["atom_draws"]

N_NODES = 120
BURN_IN, THINNING = 50, 5  # steps; the sampler starts at the fit


def atom_draws(
    rows: Likelihood, counts: NDArray, atoms: NDArray, weights: NDArray, size: int
) -> tuple[NDArray, NDArray]:
    """Draw places and weights of atoms from their posterior, always the same.

    Weights have a uniform prior on the simplex, and places a uniform prior on the range of the
    messages. A step gives each client an atom, then all atoms weights, and then each atom a place
    by the likelihood of its clients (Diebolt and Robert, 1994). Random numbers belong to clients by
    their order, so that draws are nearly the same where messages are: see `lasting_order`.

    Parameters
    ----------
    rows : Likelihood of n clients
    counts : ndarray of shape (n,)
        Clients of each row.
    atoms : ndarray of shape (k, d)
        Fitted places.
    weights : ndarray of shape (k,)
        Fitted weights.
    size : int

    Returns
    -------
    atoms : ndarray of shape (size, k, d)
    weights : ndarray of shape (size, k)

    References
    ----------
    Diebolt and Robert (1994), Estimation of finite mixture distributions through Bayesian
    sampling, J. R. Statist. Soc. B 56, 363-375.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> rows = Gaussian(np.repeat([[-5.0], [5.0]], 25, axis=0), np.ones((50, 1)))
    >>> atoms, weights = atom_draws(
    ...     rows, np.ones(50), np.array([[-5.0], [5.0]]), np.array([0.5, 0.5]), 500
    ... )
    >>> atoms.mean(axis=0).ravel().round(), atoms.std(axis=0).ravel().round(1)
    (array([-5.,  5.]), array([0.2, 0.2]))
    """
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(len(rows)), np.rint(counts).astype(np.int64))
    client = client[lasting_order(rows)[client].argsort(kind="stable")]
    table: _Normal | _Tabulated
    if isinstance(rows, Gaussian) and (rows.variances > 0).all():
        table = _Normal(rows)
    else:
        table = _Tabulated(rows)
    kept = []
    for step in range(BURN_IN + THINNING * size):
        with np.errstate(divide="ignore"):
            joint = table.log_likelihoods(atoms) + np.log(weights)
        below = np.cumsum(np.exp(joint - joint.max(axis=1, keepdims=True)), axis=1)
        uniform = rng.random(len(client))
        picked = (uniform[:, None] * below[client, -1:] > below[client]).sum(axis=1)
        code = client * len(atoms) + picked
        members = np.bincount(code, minlength=len(rows) * len(atoms)).reshape(len(rows), -1)
        members = members.astype(float)
        weights = drawn_weights(1 + members.sum(axis=0), rng)
        atoms = table.places(members, rng)
        if step >= BURN_IN and (step - BURN_IN) % THINNING == THINNING - 1:
            kept.append((atoms, weights))
    return np.array([one for one, _ in kept]), np.array([one for _, one in kept])


def lasting_order(rows: Likelihood) -> NDArray[np.float64]:
    """Number by which clients are ordered whatever the rounding of their messages, shape (n,).

    Two clients have about the same number only if they have about the same message.
    """
    columns = [rows.local]
    if isinstance(rows, Gaussian):
        columns.append(np.log(np.maximum(rows.variances, 1e-300)))
    total = np.zeros(len(rows))
    for place, column in enumerate(np.hstack(columns).T):
        finite = np.where(np.isfinite(column), column, 0.0)
        spread = np.ptp(finite)
        total += (finite - finite.min(initial=0.0)) / (spread or 1.0) / np.sqrt(place + 1.7)
    return total


def drawn_weights(shapes: NDArray, rng: np.random.Generator) -> NDArray:
    """Draw from a Dirichlet distribution, continuously in its shapes: one number for each."""
    draws = np.maximum(gammaincinv(shapes, rng.random(len(shapes))), 1e-300)
    return draws / draws.sum()


class _Normal:
    """Messages with normal errors, whose sums are all that the place of an atom depends on."""

    def __init__(self, rows: Gaussian):
        ends = [rows.column(j).nodes(N_NODES)[[0, -1]] for j in range(rows.n_features)]
        self.low, self.high = np.array(ends).T
        self.centre = self.low / 2 + self.high / 2
        self.precisions = np.broadcast_to(1 / rows.variances, rows.values.shape)  # 0 without data
        away = np.where(self.precisions > 0, rows.values - self.centre, 0.0)
        self.weighted = away * self.precisions

    def log_likelihoods(self, atoms: NDArray) -> NDArray:
        """Log-likelihood of each client at each atom, up to a number for each client."""
        away = atoms - self.centre
        return self.weighted @ away.T - 0.5 * self.precisions @ (away**2).T

    def places(self, members: NDArray, rng: np.random.Generator) -> NDArray:
        """Draw places of atoms from normal distributions, cut at the ends of the range."""
        precision = members.T @ self.precisions
        empty = precision == 0
        precision = np.where(empty, 1.0, precision)
        mean = self.centre + members.T @ self.weighted / precision
        sd = 1 / np.sqrt(precision)
        below, above = (ndtr((end - mean) / sd) for end in (self.low, self.high))
        share = rng.random(mean.shape)
        drawn = mean + sd * ndtri(below + share * (above - below))
        anywhere = self.low + share * (self.high - self.low)
        return np.where(empty, anywhere, np.clip(drawn, self.low, self.high))


class _Tabulated:
    """Messages of any other kind, by their log-likelihoods at nodes of each coordinate."""

    def __init__(self, rows: Likelihood):
        self.rows = rows
        self.tables = []
        for j in range(rows.n_features):
            column = rows.column(j)
            nodes = column.nodes(N_NODES)
            self.tables.append((nodes, np.maximum(column.logpdf(nodes[:, None]), -1e300)))

    def log_likelihoods(self, atoms: NDArray) -> NDArray:
        """Log-likelihood of each client at each atom."""
        return self.rows.logpdf(atoms)

    def places(self, members: NDArray, rng: np.random.Generator) -> NDArray:
        """Draw places of atoms, coordinate by coordinate."""
        return np.column_stack([_places(nodes, members.T @ at, rng) for nodes, at in self.tables])


def _places(nodes: NDArray, log_likelihoods: NDArray, rng: np.random.Generator) -> NDArray:
    """Draw a place for each row of log-likelihoods at nodes, shape (k, q).

    Where the likelihood is narrower than the nodes are apart, it is a normal one whose logarithm is
    the parabola through the highest three.
    """
    edges = np.concatenate((nodes[:1], (nodes[1:] + nodes[:-1]) / 2, nodes[-1:]))
    widths = np.diff(edges)
    below = np.cumsum(np.exp(log_likelihoods - log_likelihoods.max(axis=1)[:, None]) * widths, 1)
    picked = (rng.random((len(below), 1)) * below[:, -1:] > below).sum(axis=1)
    places = edges[picked] + rng.random(len(picked)) * widths[picked]
    best = np.clip(np.argmax(log_likelihoods, axis=1), 1, len(nodes) - 2)
    here = np.arange(len(best))
    heights = [log_likelihoods[here, best + side] for side in (-1, 0, 1)]
    gaps = [nodes[best + side] - nodes[best] for side in (-1, 1)]
    left, right = (height - heights[1] for height in (heights[0], heights[2]))
    narrow = (left < -0.5) & (right < -0.5)
    # height(gap) = slope * gap - bend * gap**2 / 2 through the two neighbours
    bend = 2 * (left * gaps[1] - right * gaps[0]) / (gaps[0] * gaps[1] * (gaps[1] - gaps[0]))
    slope = left / gaps[0] + bend * gaps[0] / 2
    precision = np.where(narrow, bend, 1.0)
    normal = nodes[best] + slope / precision + rng.standard_normal(len(best)) / np.sqrt(precision)
    return np.where(narrow, np.clip(normal, nodes[0], nodes[-1]), places)
