"""Posteriors of populations with atoms, or on a grid of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from ebfed.likelihoods import Likelihood
from ebfed.priors.posterior import Posterior

__all__ = ["DiscretePosterior", "SeveralDiscrete"]

LOST = 1e-6  # share of a squared mean below which the difference of squares is no variance


class DiscretePosterior(Posterior):
    """Posterior of a prior with k atoms, or of any prior on a fine grid of nodes.

    The weight of atom j for client i is proportional to ``exp(log_weights[j] + logpdf_i(atom_j))``
    (Ozkara et al. 2023, Theorem 6). Weights are formed a block of clients at a time, so memory
    stays bounded for millions of clients. Atoms and their weights are taken as known, so clients
    are drawn independently.

    Parameters
    ----------
    atoms : ndarray of shape (k, d)
    log_weights : ndarray of shape (k,)
    likelihood : Likelihood of n clients
    """

    _has_points = True

    def __init__(self, atoms: NDArray, log_weights: NDArray, likelihood: Likelihood):
        keep = np.isfinite(log_weights)
        self.atoms, self.log_weights = atoms[keep], log_weights[keep]
        self.likelihood = likelihood
        # around the atom nearest 0: from far away, rates of few events would lose their digits
        centre = np.take_along_axis(self.atoms, np.abs(self.atoms).argmin(axis=0)[None], 0)[0]
        away = self.atoms - centre
        # by einsum, a client's figures do not depend on who else is asked for, to the last digit
        powers = np.hstack([away, away**2])

        def moments(weights: NDArray) -> NDArray:
            found = np.einsum("ij,jd->id", weights, powers)
            shift, square = np.split(found, 2, axis=1)
            square -= shift**2
            for j, atoms in enumerate(away.T):  # far from the centre, squares lose their digits
                lost = np.flatnonzero(square[:, j] < LOST * shift[:, j] ** 2)
                around = (atoms - shift[lost, j, None]) ** 2
                square[lost, j] = np.einsum("ij,ij->i", weights[lost], around)
            return found

        shift, square = np.split(self._rows(moments), 2, axis=1)
        self.mean = self._unless_exact(centre + shift, lambda known: known)
        self.sd = self._unless_exact(np.sqrt(np.maximum(square, 0)), np.zeros_like)

    def weights(self) -> Iterator[NDArray]:
        """Posterior weights of the atoms, a block of clients at a time, shape (block, k)."""
        n_blocks = 1 + len(self.likelihood) * len(self.atoms) // 4_000_000
        for block in self.likelihood.split(n_blocks):
            joint = block.logpdf(self.atoms) + self.log_weights
            # a message that is impossible at all atoms has no information on them
            joint[np.isneginf(joint).all(axis=1)] = self.log_weights
            yield softmax(joint, axis=1)  # [E] Theorem 6

    def _rows(self, function: Callable[[NDArray], NDArray]) -> NDArray:
        return np.concatenate([function(weights) for weights in self.weights()])

    def _unless_exact(self, values: NDArray, exact: Callable[[NDArray], NDArray]) -> NDArray:
        """Replace the figures of clients whose message shows their parameter exactly."""
        known = self.likelihood.exact
        return values if known is None else np.where(np.isnan(known), values, exact(known))

    def _quantile(self, q: float) -> NDArray:
        """Smallest atom with at least probability `q` at or below it."""
        columns = []
        for atoms in self.atoms.T:
            order = np.argsort(atoms)

            def find(weights: NDArray, order: NDArray = order, atoms: NDArray = atoms) -> NDArray:
                reached = np.cumsum(weights[:, order], axis=1) >= q - 1e-12
                reached[:, -1] = True
                return atoms[order][np.argmax(reached, axis=1)]

            columns.append(self._rows(find))
        return self._unless_exact(np.stack(columns, axis=1), lambda known: known)

    def _prob_to(self, threshold: ArrayLike, sign: int = 1) -> NDArray:
        """Weight of the atoms at or below `threshold`, or at or above it, shape (n, d)."""
        compare = np.less_equal if sign > 0 else np.greater_equal
        if np.ndim(threshold) == 0:
            found = self._rows(lambda weights: weights @ compare(self.atoms, threshold))
            return self._unless_exact(found, lambda known: compare(known, threshold))
        threshold = np.broadcast_to(threshold, self.mean.shape)
        found, first = np.empty(self.mean.shape), 0
        for weights in self.weights():
            last = first + len(weights)
            for j, atoms in enumerate(self.atoms.T):
                reached = compare(atoms, threshold[first:last, j : j + 1])
                found[first:last, j] = (weights * reached).sum(axis=1)
            first = last
        return self._unless_exact(found, lambda known: compare(known, threshold))

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw atoms, shape (size, n, d)."""
        rng = np.random.default_rng(random_state)

        def draw(weights: NDArray) -> NDArray:
            uniform = rng.random((len(weights), size))
            rows = zip(np.cumsum(weights, axis=1), uniform, strict=True)
            picked = np.array([np.searchsorted(*row) for row in rows], int).reshape(uniform.shape)
            return self.atoms[np.minimum(picked, len(self.atoms) - 1)]

        return self._unless_exact(self._rows(draw).swapaxes(0, 1), lambda known: known)


class SeveralDiscrete(DiscretePosterior):
    """Posterior where the population is one of several discrete ones, with known probabilities.

    Parameters
    ----------
    populations : sequence of K pairs
        Atoms of shape (k, d) and their log-weights of shape (k,).
    shares : ndarray of shape (K,) or (K, n)
        Probability of each population, for all clients or for each.
    likelihood : Likelihood of n clients

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> x = Gaussian(np.array([[1.0]]), np.array([[1.0]]))
    >>> low, high = ((np.full((1, 1), at), np.zeros(1)) for at in (0.0, 2.0))
    >>> SeveralDiscrete([low, high], np.array([0.25, 0.75]), x).mean
    array([[1.5]])
    """

    def __init__(
        self,
        populations: Sequence[tuple[NDArray, NDArray]],
        shares: NDArray,
        likelihood: Likelihood,
    ):
        self._shares, self._weights = shares, None
        first, _ = populations[0]
        if all(np.array_equal(atoms, first) for atoms, _ in populations):
            self._weights = np.exp([logs for _, logs in populations])
            super().__init__(first, np.zeros(len(first)), likelihood)
            return
        kept = [(atoms[np.isfinite(logs)], logs[np.isfinite(logs)]) for atoms, logs in populations]
        self._starts = np.cumsum([0] + [len(logs) for _, logs in kept])[:-1]
        self._sizes = np.array([len(logs) for _, logs in kept])
        atoms, logs = (np.concatenate(each) for each in zip(*kept, strict=True))
        super().__init__(atoms, logs, likelihood)

    def weights(self) -> Iterator[NDArray]:
        n_blocks, first = 1 + len(self.likelihood) * len(self.atoms) // 4_000_000, 0
        for block in self.likelihood.split(n_blocks):
            last = first + len(block)
            shares = self._shares if self._shares.ndim == 1 else self._shares[:, first:last].T
            first = last
            yield (self._of_different if self._weights is None else self._of_same)(block, shares)

    def _of_same(self, block: Likelihood, shares: NDArray) -> NDArray:
        """Weights of atoms that all populations have."""
        assert self._weights is not None
        joint = block.logpdf(self.atoms)
        joint[np.isneginf(joint).all(axis=1)] = 0.0
        joint = np.exp(joint - joint.max(axis=1, keepdims=True))
        total = joint @ self._weights.T
        scale = np.where(total > 0, shares, 0.0) / np.where(total > 0, total, 1.0)
        joint *= scale @ self._weights
        return joint / joint.sum(axis=1, keepdims=True)

    def _of_different(self, block: Likelihood, shares: NDArray) -> NDArray:
        """Weights of the atoms of each population, one population after the other."""
        joint = block.logpdf(self.atoms) + self.log_weights
        joint[np.isneginf(joint).all(axis=1)] = self.log_weights
        peak = np.maximum.reduceat(joint, self._starts, axis=1)
        # of a population under which the message is impossible, nothing is left
        peak = np.where(np.isfinite(peak), peak, 0.0)
        joint = np.exp(joint - np.repeat(peak, self._sizes, axis=1))
        total = np.add.reduceat(joint, self._starts, axis=1)
        scale = np.where(total > 0, shares, 0.0) / np.where(total > 0, total, 1.0)
        scale /= (scale * total).sum(axis=1, keepdims=True)
        return joint * np.repeat(scale, self._sizes, axis=1)
