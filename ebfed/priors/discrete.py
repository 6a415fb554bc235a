"""Discrete population: k atoms, or as many as the likeliest population of all needs."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed.likelihoods import Likelihood
from ebfed.priors.base import Prior, relative_likelihoods

__all__ = ["Discrete"]


class Discrete(Prior):
    """Population of atoms, ``P(theta = atom_j) = weight_j``.

    Posterior means weigh the atoms by ``weight_j L_i(atom_j)`` (Ozkara et al. 2023, Theorem 6).
    With ``atoms="npmle"`` the population is the nonparametric maximum likelihood estimate of Kiefer
    and Wolfowitz, over all distributions on the line: a constrained Newton method (Wang 2007)
    adds atoms where the gradient

        D(theta) = sum_i L_i(theta) / f_i - n,   f_i = sum_j weight_j L_i(atom_j),

    peaks, solves for the weights and drops atoms of weight zero. ``max D`` bounds how far the
    log-likelihood is below its maximum; it is driven to `tol` and kept as `duality_gap_`.

    Point estimates are excellent for any population. Intervals hold only the atoms: where the true
    population is continuous they are too short, and a normal or beta prior with robust intervals is
    the honest choice.

    Parameters
    ----------
    atoms : "npmle", int, or array-like of shape (k, d)
        A number: that many atoms, placed by EM. An array: known places.
    weights : array-like of shape (k,), optional
        Known weights, only with known atoms; estimated if None.
    n_init : int
        Starts of EM (k-means++), of which the likeliest is kept.
    tol : float
        Largest duality gap, in units of log-likelihood.
    random_state : int, Generator or None
        Of the starts of EM.

    Attributes
    ----------
    atoms_ : ndarray of shape (k, d)
    weights_ : ndarray of shape (k,)
    duality_gap_ : float or None
        None where the atoms were placed by EM or weights were given.

    References
    ----------
    Kiefer and Wolfowitz (1956); Wang (2007), J. R. Statist. Soc. B 69, 185-198.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> messages = Gaussian(np.array([[-2.1], [-1.9], [1.9], [2.1]]), np.full((4, 1), 0.1))
    >>> prior = Discrete("npmle").fit(messages)
    >>> prior.atoms_.ravel().round(3), prior.weights_.round(3)
    (array([-2.,  2.]), array([0.5, 0.5]))
    """

    def __init__(
        self,
        atoms: Literal["npmle"] | int | ArrayLike = "npmle",
        weights: ArrayLike | None = None,
        *,
        n_init: int = 8,
        tol: float = 1e-6,
        random_state: Any = None,
    ):
        self.atoms = atoms
        self.weights = weights
        self.n_init = n_init
        self.tol = tol
        self.random_state = random_state

    @property
    def max_features(self) -> float:  # type: ignore[override]
        """The npmle is found on the line only."""
        return 1 if isinstance(self.atoms, str) else np.inf

    @property
    def estimates_spread(self) -> bool:
        """Unless atoms and weights are given."""
        return self.weights is None

    def accepts(self, likelihood: Likelihood) -> bool:
        """Atoms may lie anywhere."""
        return likelihood.n_features <= self.max_features

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-probability of theta of shape (k, d): -inf off the atoms."""
        same = (theta[:, None, :] == self.atoms_).all(axis=2)
        with np.errstate(divide="ignore"):
            return np.log(same @ self.weights_)

    def _density(self, theta: NDArray) -> NDArray:
        raise ValueError("a discrete population has no density at parameters seen without noise.")

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw from the population, shape (size, d)."""
        rng = np.random.default_rng(random_state)
        return self.atoms_[rng.choice(len(self.atoms_), size, p=self.weights_)]

    def _fit(self, likelihood: Likelihood) -> None:
        rows, counts = self._settled(likelihood).compress()
        self.duality_gap_: float | None = None
        self._say(
            "Intervals of a discrete population hold only its atoms and take it as known; where "
            "the true population is continuous they are too short."
        )
        if isinstance(self.atoms, str):
            if self.atoms != "npmle":
                raise ValueError(
                    f"atoms must be 'npmle', a number or an array; {self.atoms!r} came."
                )
            if self.weights is not None:
                raise ValueError("weights can be given only with the atoms they belong to.")
        placed = not isinstance(self.atoms, str) and np.ndim(self.atoms) > 0
        seen = _seen(likelihood)
        if isinstance(self.atoms, str) and seen is not None:
            atoms, counts = np.unique(seen, axis=0, return_counts=True)
            self.duality_gap_ = 0.0
            self._set(atoms, counts.astype(float), free=2 * len(atoms) - 1)
        elif placed:
            self._known_atoms(rows, counts)
        elif not len(rows):
            self._say("No client has data: the population is unknown.", True)
            self._set(np.full((1, likelihood.n_features), self._middle(likelihood)), np.ones(1), 0)
        elif isinstance(self.atoms, str):
            self._npmle(rows, counts)
        else:
            self._em(rows, counts)

    @staticmethod
    def _middle(likelihood: Likelihood) -> float:
        return 0.5 if np.isfinite(likelihood.support).all() else 0.0

    def _set(self, atoms: NDArray, weights: NDArray, free: int) -> None:
        order = np.lexsort(atoms.T[::-1])
        self.atoms_, self.weights_ = atoms[order], weights[order] / weights.sum()
        self.mean_ = self.weights_ @ self.atoms_
        self.variance_ = self.weights_ @ (self.atoms_ - self.mean_) ** 2
        self.n_parameters_ = free

    def _grid(self, likelihood: Likelihood) -> tuple[NDArray, NDArray]:
        with np.errstate(divide="ignore"):
            return self.atoms_, np.log(self.weights_)

    def _known_atoms(self, rows: Likelihood, counts: NDArray) -> None:
        atoms = np.asarray(self.atoms, float)
        atoms = atoms[:, None] if atoms.ndim == 1 else atoms
        if atoms.ndim != 2 or atoms.shape[1] != rows.n_features or not np.isfinite(atoms).all():
            raise ValueError(
                f"atoms must be finite, of shape (k, {rows.n_features}); {self.atoms!r} came."
            )
        if self.weights is not None:
            weights = np.asarray(self.weights, float)
            if weights.shape != (len(atoms),) or not (weights >= 0).all() or not weights.any():
                raise ValueError(
                    f"weights must be {len(atoms)} nonnegative numbers, not all zero; "
                    f"{self.weights!r} came."
                )
            self._explains(rows, atoms[weights > 0])
            self._set(atoms, weights, free=0)
            return
        self._explains(rows, atoms)
        relative, _ = relative_likelihoods(rows.logpdf(atoms))
        weights = np.full(len(atoms), 1 / len(atoms))
        for _ in range(200):
            weights = _newton(relative, counts, weights)
            gradient = _gradient(relative, counts, relative @ weights)
            self.duality_gap_ = gap = float(gradient.max())
            if gap <= self.tol:
                break
        self._set(atoms, weights, free=len(atoms) - 1)

    @staticmethod
    def _explains(rows: Likelihood, atoms: NDArray) -> None:
        lost = np.isneginf(rows.logpdf(atoms)).all(axis=1)
        if lost.any():
            raise ValueError(f"no atom makes the messages of {lost.sum()} clients possible.")

    def _npmle(self, rows: Likelihood, counts: NDArray) -> None:
        nodes = rows.nodes(self.n_nodes)
        scale = rows.log_peak()[:, None]
        spacing = np.minimum(np.diff(nodes, append=np.inf), np.diff(nodes, prepend=-np.inf))

        def at(atoms: NDArray) -> NDArray:
            return np.exp(rows.logpdf(atoms[:, None]) - scale)

        on_grid = at(nodes)

        def solve(atoms: NDArray, weights: NDArray, steps: int) -> tuple[NDArray, NDArray, float]:
            """Constrained Newton steps until nothing rises, or steps run out."""
            at_atoms = at(atoms)
            for _ in range(steps):
                weights = _newton(at_atoms, counts, weights)
                kept = weights > 0
                atoms, at_atoms, weights = atoms[kept], at_atoms[:, kept], weights[kept]
                mixture = at_atoms @ weights
                top = _peaks(_gradient(on_grid, counts, mixture))
                peaks, width = nodes[top], spacing[top]
                for _ in range(6):
                    sides = [_gradient(at(peaks + s * width), counts, mixture) for s in (-1, 0, 1)]
                    peaks = np.clip(peaks + width * _vertex(*sides), nodes[0], nodes[-1])
                    width = width / 3
                at_peaks = at(peaks)
                gradient = _gradient(at_peaks, counts, mixture)
                gap = float(max(gradient.max(), 0.0))
                if gap <= self.tol:
                    break
                rising = (gradient > 0) & ~np.isin(peaks, atoms)
                atoms = np.concatenate((atoms, peaks[rising]))
                at_atoms = np.hstack((at_atoms, at_peaks[:, rising]))
                weights = np.concatenate((weights, np.zeros(rising.sum())))
            kept = weights > 0
            return atoms[kept], weights[kept], gap

        start = nodes[self._first_atoms(on_grid)]
        atoms, weights, gap = solve(start, np.full(len(start), 1 / len(start)), 300)
        if gap > self.tol:
            warnings.warn(
                f"the NPMLE stopped with a duality gap of {gap:.2g}, above tol={self.tol:g}.",
                ConvergenceWarning,
                stacklevel=5,
            )
        # Neighbours closer than the grid stand for one atom: keep one if that is as likely.
        merged = _merged(atoms, weights, nodes)
        if len(merged[0]) < len(atoms) and (at(merged[0]) @ merged[1] > 0).all():
            fewer = solve(*merged, 20)
            if fewer[2] <= self.tol and len(fewer[0]) < len(atoms):
                atoms, weights, gap = fewer
        self.duality_gap_ = gap
        self._set(atoms[:, None], weights, free=2 * len(atoms) - 1)

    @staticmethod
    def _first_atoms(on_grid: NDArray) -> NDArray:
        """Some nodes, spread so that every client finds one of them not impossible."""
        favourite = np.argmax(on_grid, axis=1)
        start = np.unique(np.quantile(favourite, np.linspace(0, 1, 10), method="nearest"))
        lost = on_grid[:, start].max(axis=1) < 1e-30
        return np.union1d(start, favourite[lost])

    def _em(self, rows: Likelihood, counts: NDArray) -> None:
        from sklearn.cluster import kmeans_plusplus

        k = self.atoms
        if not isinstance(k, int | np.integer) or k < 1:
            raise ValueError(f"atoms must be 'npmle', a number >= 1 or an array; {k!r} came.")
        if self.weights is not None:
            raise ValueError("weights can be given only with the atoms they belong to.")
        local = rows.local
        k = min(k, len(np.unique(local, axis=0)))
        rng = np.random.RandomState(np.random.default_rng(self.random_state).integers(2**31))
        starts = []
        for _ in range(self.n_init if k > 1 else 1):
            atoms, _ = kmeans_plusplus(local, k, sample_weight=counts, random_state=rng)
            starts.append(_em(rows, counts, atoms, np.full(k, 1 / k), steps=30))
        best = max(starts, key=lambda run: run[2][-1])
        atoms, weights, path = _em(rows, counts, *best[:2], steps=5000)
        self.path_ = path
        if len(path) == 5000:
            warnings.warn(
                "EM for Discrete stopped after 5000 steps, still gaining.",
                ConvergenceWarning,
                stacklevel=5,
            )
        self._set(atoms, weights, free=len(atoms) * (1 + rows.n_features) - 1)

    def _start(self, rows: Likelihood, counts: NDArray) -> None:
        raise TypeError("Discrete is fitted by its own methods.")

    def _m_step(self, atoms: NDArray, masses: NDArray) -> None:
        raise TypeError("Discrete is fitted by its own methods.")


def _seen(likelihood: Likelihood) -> NDArray | None:
    """Parameters of the clients that said something, where all gave them away; else None."""
    exact, told = likelihood.exact, np.isfinite(likelihood.local).all(axis=1)
    if exact is None or not told.any() or np.isnan(exact[told]).any():
        return None
    return exact[told]


def _gradient(likelihoods: NDArray, counts: NDArray, mixture: NDArray) -> NDArray:
    """``D`` at each column: the gain in log-likelihood per unit of mass moved there."""
    return (counts / mixture) @ likelihoods - counts.sum()


def _newton(likelihoods: NDArray, counts: NDArray, weights: NDArray) -> NDArray:
    """One constrained Newton step for the weights, with a line search.

    With S = L / f the quadratic model of the log-likelihood over the simplex is
    ``-|S w - 2|**2 / 2`` (Wang 2007, eq. 5), a nonnegative least squares problem.
    """
    from scipy.optimize import nnls

    mixture = likelihoods @ weights
    root = np.sqrt(counts)[:, None]
    scaled = root * (likelihoods / mixture[:, None] - 2.0)
    # |scaled w|**2 on the simplex: its triangular factor has at most k rows
    triangle = np.linalg.qr(scaled, mode="r") / np.sqrt(counts.sum())
    system = np.vstack((triangle, np.ones(len(weights))))
    proposal, _ = nnls(system, np.append(np.zeros(len(triangle)), 1.0), maxiter=50 * len(weights))
    proposal /= proposal.sum()
    before, step = counts @ np.log(mixture), 1.0
    slope = (counts / mixture) @ (likelihoods @ (proposal - weights))
    while step > 1e-10:
        candidate = (1 - step) * weights + step * proposal
        with np.errstate(divide="ignore"):  # a full step may make a client impossible
            after = counts @ np.log(likelihoods @ candidate)
        if after >= before + 1e-4 * step * slope:
            return candidate
        step /= 2
    return weights


def _peaks(values: NDArray) -> NDArray:
    """Positions of the local maxima."""
    padded = np.concatenate(([-np.inf], values, [-np.inf]))
    return np.flatnonzero((padded[1:-1] >= padded[:-2]) & (padded[1:-1] > padded[2:]))


def _vertex(left: NDArray, here: NDArray, right: NDArray) -> NDArray:
    """Where the parabola through (-1, left), (0, here), (1, right) peaks, within [-1, 1]."""
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


def _em(
    rows: Likelihood, counts: NDArray, atoms: NDArray, weights: NDArray, steps: int
) -> tuple[NDArray, NDArray, NDArray]:
    """EM for places and weights of atoms; returns them and the log-likelihood path."""
    from scipy.special import logsumexp

    path: list[float] = []
    low, high = rows.support
    for _ in range(steps):
        # at 0 or 1, an atom could make a count impossible
        atoms = np.clip(atoms, low + 1e-12, high - 1e-12)
        with np.errstate(divide="ignore"):
            joint = rows.logpdf(atoms) + np.log(weights)
        evidence = logsumexp(joint, axis=1, keepdims=True)
        path.append(float(counts @ evidence[:, 0]))
        if len(path) > 1 and path[-1] - path[-2] < 1e-10 * (1 + abs(path[-1])):
            break
        expected = counts[:, None] * np.exp(joint - evidence)
        total = expected.sum(axis=0)
        weights = total / total.sum()
        atoms = np.where(total[:, None] > 0, rows.combine(expected), atoms)
    return atoms, weights, np.array(path)
