"""Discrete population: k atoms, or the nonparametric maximum likelihood estimate."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed.likelihoods import Likelihood
from ebfed.priors.base import Prior, relative_likelihoods
from ebfed.priors.discrete_posterior import DiscretePosterior
from ebfed.priors.gibbs import atom_draws, dirichlet_draws, enough, order_of
from ebfed.priors.identification import ONE_GROUP, IdentificationWarning
from ebfed.priors.mixture_em import log_sum
from ebfed.priors.n_components import RULES, choose, to_try
from ebfed.priors.weights import fit_weights, npmle
from ebfed.tables.values import numbers

__all__ = ["Discrete"]

N_DRAWS, N_NODES = 50, 120
# Of a number of atoms: draws times clients, and most draws.
DRAWS_OF_CLIENTS, MOST_DRAWS = 10_000, 200

Explore = tuple[Any, ...]
"""Method that finds what populations the messages leave plausible, and what it is given."""


@dataclass(eq=False, repr=False)
class Discrete(Prior):
    """Population of atoms, ``P(theta = atom_j) = weight_j``.

    Posterior means weigh the atoms by ``weight_j L_i(atom_j)`` (Ozkara et al. 2023, Theorem 6).
    With ``atoms="npmle"`` the population is the nonparametric maximum likelihood estimate of Kiefer
    and Wolfowitz, over all distributions on the line: a constrained Newton method (Wang 2007)
    adds atoms where the gradient

        D(theta) = sum_i L_i(theta) / f_i - n,   f_i = sum_j weight_j L_i(atom_j),

    peaks, solves for the weights and drops atoms of weight zero. ``max D`` bounds how far the
    log-likelihood is below its maximum; it is driven to `tol` times n, and `gap_` keeps it.

    The marginal likelihoods f_i at the maximum are unique (Lindsay 1983). Counts of few trials and
    reports of few kinds can leave the population itself open: D is zero everywhere, and all
    populations with the same f_i are equally likely. Then the analytic centre of these is returned
    (Boyd and Vandenberghe 2004, section 8.5.3), which depends on the data alone, not on the
    computer. For counts its posterior means are at the middle of what the maximisers allow. Its few
    atoms are a Gauss quadrature. Gaussian estimates need no such rule: D is not constant there, and
    for equal errors the population is unique (Lindsay and Roeder 1993).

    Peaks of D are searched for at the scale of the error of every estimate, so that D is at most
    ``gap_`` everywhere, however unequal errors are. Where errors have t distributions the
    definition is the same, with their density. The maximiser may then have atoms that stand for
    outliers of the error: with few degrees of freedom, ``"log_spline"`` or a parametric prior
    estimates better.

    Point estimates are excellent for any population. Intervals of the nonparametric fit are
    averages over populations on a grid, drawn under a mixture of Dirichlet processes of
    concentration ``2 log(1 + n)`` around bells of unknown place and width (Antoniak 1974), a fifth
    of it even, so they hold for continuous populations too. Those of k atoms average over places
    and weights of k atoms, under uniform priors: where the true population is continuous they are
    too short.

    ``uncertainty="bootstrap"`` averages over 50 fits to new messages instead, which are drawn from
    the fitted population (a parametric bootstrap; Laird and Louis 1987, J. Am. Statist. Assoc. 82,
    739-750). It assumes no prior. It costs 50 times the fit, and its intervals are shorter and
    cover less: see `ebfed.evaluation.coverage`. Reports of a channel that clips, rounds or
    randomises cannot be drawn anew.

    Parameters
    ----------
    atoms : "npmle", "bic", "heldout", int, or array-like of shape (k, d)
        A number: that many atoms, placed by EM. ``"bic"`` or ``"heldout"``: as many, of up to
        `max_atoms`, as have the least BIC or the largest likelihood of clients that were held out;
        see `ebfed.priors.n_components`. An array: known places.
    weights : array-like of shape (k,), optional
        Known weights, only with known atoms; estimated if None.
    max_atoms : int
    n_init : int
        Number of starts of EM (k-means++); the likeliest is kept.
    tol : float
        Largest duality gap, in units of log-likelihood per client. Posterior means are accurate to
        about its square root.
    uncertainty : {"draws", "bootstrap"}
        Where the populations come from that intervals average over: draws under the Dirichlet or
        uniform priors above, or fits to new messages. On a terminal, the bootstrap shows a progress
        bar.
    random_state : int, Generator or None
        Seed of the starts of EM.

    Attributes
    ----------
    atoms_ : ndarray of shape (k, d)
    weights_ : ndarray of shape (k,)
    gap_ : float or None
        The largest value of ``D(theta) = sum_i L_i(theta) / f_i - n``, over all theta for the
        npmle, over the given places for known ones. The log-likelihood is at most this much below
        its maximum. None where the atoms were placed by EM or weights were given. A warning and a
        note say if it is above ``tol n``.
    path_ : ndarray
        Log-likelihood before each step of EM, which never falls; if atoms were placed by EM.
    criterion_ : ndarray
        For each number of atoms that was tried: its BIC, or with ``"heldout"`` minus twice the
        log-likelihood of held-out clients.

    References
    ----------
    Kiefer and Wolfowitz (1956); Antoniak (1974), Ann. Statist. 2, 1152-1174; Lindsay (1983), Ann.
    Statist. 11, 86-94; Lindsay and Roeder (1993), Canad. J. Statist. 21, 139-147; Wang (2007), J.
    R. Statist. Soc. B 69, 185-198; Boyd and Vandenberghe (2004), Convex Optimization.

    Examples
    --------
    >>> from ebfed.likelihoods import Gaussian
    >>> messages = Gaussian(np.array([[-2.1], [-1.9], [1.9], [2.1]]), np.full((4, 1), 0.1))
    >>> prior = Discrete("npmle").fit(messages)
    >>> prior.atoms_.ravel().round(3), prior.weights_.round(3)
    (array([-2.,  2.]), array([0.5, 0.5]))

    One trial of each client identifies the mean of the rates only. The estimate after a success may
    be anything from 0.5 to 1:

    >>> from ebfed.likelihoods import Binomial
    >>> one_trial = Binomial(np.array([[0], [1]]), np.array([1, 1]))
    >>> Discrete("npmle").fit(one_trial).posterior(one_trial).mean.ravel().round(3)
    array([0.25, 0.75])
    """

    atoms: Literal["npmle", "bic", "heldout"] | int | ArrayLike = "npmle"
    weights: ArrayLike | None = None
    _: KW_ONLY
    max_atoms: int = 10
    n_init: int = 8
    tol: float = 1e-8
    uncertainty: Literal["draws", "bootstrap"] = "draws"
    random_state: Any = None

    couples_columns = True
    _by_column = ("atoms_",)

    @classmethod
    def known(cls, atoms: NDArray, weights: NDArray) -> Self:
        """Return a fitted population whose atoms (k, d) and weights (k,) are not estimates."""
        prior = cls(atoms, weights)
        prior.notes_, prior.noise_variance_, prior.gap_ = [], None, None
        prior._set(atoms, weights, free=0)
        return prior

    @property
    def centres_(self) -> NDArray:
        """Centres of the components, the atoms, shape (k, d)."""
        return self.atoms_

    @property
    def spreads_(self) -> NDArray:
        """Variances of the components, all zero, shape (k, d)."""
        return np.zeros_like(self.atoms_)

    @property
    def max_features(self) -> float:  # type: ignore[override]
        """Largest dimension of theta: 1 for the npmle."""
        return 1 if isinstance(self.atoms, str) and self.atoms == "npmle" else np.inf

    @property
    def estimates_spread(self) -> bool:
        """Whether atoms are not given."""
        return isinstance(self.atoms, str) or np.ndim(self.atoms) == 0

    def accepts(self, likelihood: Likelihood) -> bool:
        """Return whether there are few enough free coordinates; any support will do."""
        return likelihood.n_features <= self.max_features and not likelihood.adds_up

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-probability of theta of shape (k, d): -inf off the atoms."""
        same = (theta[:, None, :] == self.atoms_).all(axis=2)
        with np.errstate(divide="ignore"):
            return np.log(same @ self.weights_)

    def points(self) -> tuple[NDArray, NDArray]:
        """Places and weights of the atoms."""
        return self.atoms_[:, 0], self.weights_

    def _density(self, theta: NDArray) -> NDArray:
        raise ValueError("a discrete population has no density at parameters seen without noise.")

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        rng = np.random.default_rng(random_state)
        return self.atoms_[rng.choice(len(self.atoms_), size, p=self.weights_)]

    def _fit(self, likelihood: Likelihood) -> None:
        if self.uncertainty not in ("draws", "bootstrap"):
            raise ValueError(
                f"uncertainty must be 'draws' or 'bootstrap'; got {self.uncertainty!r}."
            )
        explore = self._find(likelihood)
        if explore is not None:
            if self.uncertainty == "bootstrap":
                self._bootstrap(likelihood)
            else:
                self._find_later(*explore)

    def _find(self, likelihood: Likelihood) -> Explore | None:
        """Fit the population; the result is None where nothing else is plausible."""
        explore = None
        rows, counts = self._settled(likelihood).compress()
        self.gap_: float | None = None
        if isinstance(self.atoms, str):
            if self.atoms not in ("npmle", *RULES):
                raise ValueError(
                    "atoms must be 'npmle', 'bic', 'heldout', a number or an array; "
                    f"got {self.atoms!r}."
                )
            if self.weights is not None:
                raise ValueError("weights can be given only with the atoms they belong to.")
        npmle = isinstance(self.atoms, str) and self.atoms == "npmle"
        if not npmle:
            self._add_note(
                "Intervals take the population to be of a few points. Where it is continuous, they "
                "are too short."
            )
        placed = not isinstance(self.atoms, str) and np.ndim(self.atoms) > 0
        seen = _seen(likelihood)
        if npmle and seen is not None:
            atoms, counts = np.unique(seen, axis=0, return_counts=True)
            self.gap_ = 0.0
            self._set(atoms, counts.astype(float), free=2 * len(atoms) - 1)
        elif placed:
            explore = self._known_atoms(rows, counts)
        elif not len(rows):
            self._add_note("No client has data: the population is unknown.", True)
            self._set(np.full((1, likelihood.n_features), self._middle(likelihood)), np.ones(1), 0)
        elif npmle:
            explore = self._npmle(*self._settled(likelihood).distinct())
        else:
            explore = self._em(rows, counts)
        if counts.sum() == 1 and not placed:
            self._add_note(ONE_GROUP, True)
        return explore

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

    def _known_atoms(self, rows: Likelihood, counts: NDArray) -> Explore | None:
        atoms = numbers(self.atoms, "atoms")
        atoms = atoms[:, None] if atoms.ndim == 1 else atoms
        if atoms.ndim != 2 or atoms.shape[1] != rows.n_features or not np.isfinite(atoms).all():
            raise ValueError(
                f"atoms must be finite, of shape (k, {rows.n_features}); got {self.atoms!r}."
            )
        if self.weights is not None:
            weights = numbers(self.weights, "weights")
            if weights.shape != (len(atoms),) or not (weights >= 0).all() or not weights.any():
                raise ValueError(
                    f"weights must be {len(atoms)} nonnegative numbers, not all zero; "
                    f"got {self.weights!r}."
                )
            self._explains(rows, atoms[weights > 0])
            self._set(atoms, weights, free=0)
            return None
        self._explains(rows, atoms)
        relative, _ = relative_likelihoods(rows.logpdf(atoms))
        start = np.full(len(atoms), 1 / len(atoms))
        tol = self.tol * counts.sum()
        weights, self.gap_ = fit_weights(relative, counts, start, tol)
        self._set(atoms, weights, free=len(atoms) - 1)
        return Discrete._draw_weights, rows, counts, atoms, start, np.ones(len(atoms)), atoms

    @staticmethod
    def _explains(rows: Likelihood, atoms: NDArray) -> None:
        lost = np.isneginf(rows.logpdf(atoms)).all(axis=1)
        if lost.any():
            raise ValueError(f"no atom makes the messages of {lost.sum()} clients possible.")

    def _npmle(self, rows: Likelihood, counts: NDArray) -> Explore:
        tol, sign, total = self.tol * counts.sum(), 1.0, 0.0
        mirrored = rows.mirrored()
        if mirrored is not None:
            # whatever the sign of the parameters, the longer tail is above
            away = rows.local[:, 0] - np.average(rows.local[:, 0], weights=counts)
            if counts @ away**3 < 0:
                (rows, total), sign = mirrored, -1.0
        atoms, weights, gap, _ = npmle(rows, counts, self.n_nodes, tol)
        if gap > tol:
            said = f"the NPMLE stopped with a duality gap of {gap:.2g}, above {tol:.2g}."
            self._add_note(said[0].upper() + said[1:])
            warnings.warn(said, ConvergenceWarning, stacklevel=6)
        self.gap_ = float(gap)
        self._set(total + sign * atoms[:, None], weights, free=2 * len(atoms) - 1)
        nodes = rows.nodes(N_NODES)
        # as the number of clusters of a Dirichlet process, which grows like the logarithm
        concentration = 2 * float(np.log1p(counts.sum()))
        start = np.full(len(nodes), 1 / len(nodes))
        places = total + sign * nodes[:, None]
        known = rows, counts, nodes[:, None], start, concentration
        return Discrete._draw_weights, *known, places

    def _bootstrap(self, likelihood: Likelihood) -> None:
        """Fit populations to new messages of the same clients."""
        from tqdm import tqdm

        rng, found = np.random.default_rng(0), []
        for _ in tqdm(range(N_DRAWS), desc="bootstrap", leave=False, disable=None, delay=1.0):
            again = likelihood.resampled(self.sample(len(likelihood), rng), rng)
            one = self.unfitted()
            one.notes_ = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IdentificationWarning)
                warnings.simplefilter("ignore", ConvergenceWarning)
                one._find(again)
            found.append(one)
        most = max(len(one.weights_) for one in found)
        lacking = [most - len(one.weights_) for one in found]
        pairs = list(zip(found, lacking, strict=True))
        atoms = [np.pad(one.atoms_, ((0, few), (0, 0)), mode="edge") for one, few in pairs]
        weights = [np.pad(one.weights_, (0, few)) for one, few in pairs]
        self._keep(np.array(atoms), np.array(weights))

    def _draw_weights(
        self,
        rows: Likelihood,
        counts: NDArray,
        atoms: NDArray,
        start: NDArray,
        shapes: NDArray | float,
        places: NDArray,
    ) -> None:
        """Draw weights of known atoms, kept as `places`, under a Dirichlet prior."""
        some = order_of(rows.local)[enough(len(rows))]
        relative = rows.take(some).relative(atoms)
        weights = dirichlet_draws(relative, counts[some], shapes, start, N_DRAWS)
        self._keep(np.broadcast_to(places, (N_DRAWS, *atoms.shape)), weights)

    def _keep(self, atoms: NDArray, weights: NDArray) -> None:
        """Keep draws of places, shape (K, k, d), and of weights, (K, k), as plausible."""
        even = np.full((len(weights), atoms.shape[2]), 1 / len(weights))
        self.plausible_ = {"atoms_": atoms, "weights_": weights, "weights": even}

    def _take(self, atoms_: NDArray, weights_: NDArray) -> None:
        self._set(atoms_[weights_ > 0], weights_[weights_ > 0], 0)

    def _em(self, rows: Likelihood, counts: NDArray) -> Explore:
        from sklearn.cluster import kmeans_plusplus

        if self.weights is not None:
            raise ValueError("weights can be given only with the atoms they belong to.")
        by_rule = isinstance(self.atoms, str)
        k = self.max_atoms if by_rule else self.atoms
        if not isinstance(k, int | np.integer) or k < 1:
            if by_rule:
                raise ValueError(f"max_atoms must be a number >= 1; got {k!r}.")
            raise ValueError(
                f"atoms must be 'npmle', 'bic', 'heldout', a number >= 1 or an array; got {k!r}."
            )
        local, d = rows.local, rows.n_features
        generator = np.random.default_rng(self.random_state)
        rng = np.random.RandomState(generator.integers(2**31))

        def fit(k: int, counts: NDArray) -> tuple[tuple[NDArray, NDArray], NDArray]:
            """Keep the likeliest of several short runs of EM, and go on until it hardly climbs."""
            sent = np.flatnonzero(counts)
            some, own, places = rows, counts, local
            if len(sent) < len(counts):
                some, own, places = rows.take(sent), counts[sent], local[sent]
            k, starts = min(k, len(sent)), []
            for _ in range(self.n_init if k > 1 else 1):
                atoms, _ = kmeans_plusplus(places, k, sample_weight=own, random_state=rng)
                starts.append(_em(some, own, atoms, np.full(k, 1 / k), 1e-10, steps=30))
            best, _ = max(starts, key=lambda run: run[1][-1])
            return _em(some, own, *best, 1e-7, steps=5000)

        def log_marginal(fit: tuple[NDArray, NDArray]) -> NDArray:
            with np.errstate(divide="ignore"):
                return log_sum(rows.logpdf(fit[0]) + np.log(fit[1]))

        numbers = to_try(self.atoms, self.max_atoms, local)
        best, _, self.criterion_ = choose(
            *numbers, fit, log_marginal, lambda k: k * (1 + d) - 1, counts, generator
        )
        (atoms, weights), self.path_ = _em(rows, counts, *best, 1e-10, steps=5000)
        if len(self.path_) == 5000:
            warnings.warn(
                "EM for Discrete stopped after 5000 steps, still gaining.",
                ConvergenceWarning,
                stacklevel=6,
            )
        self._set(atoms, weights, free=len(atoms) * (1 + d) - 1)

        return Discrete._draw_atoms, rows, counts, atoms, weights

    def _draw_atoms(
        self, rows: Likelihood, counts: NDArray, atoms: NDArray, weights: NDArray
    ) -> None:
        """Draw places and weights of as many atoms."""
        some = enough(len(rows))
        # few clients leave more open, and draws follow one another: their errors would be seen
        size = int(np.clip(DRAWS_OF_CLIENTS / counts[some].sum(), N_DRAWS, MOST_DRAWS))
        self._keep(*atom_draws(rows.take(some), counts[some], atoms, weights, size))

    def responsibilities(self, likelihood: Likelihood) -> NDArray:
        """Probability that each client's parameter is each atom, shape (n, k)."""
        result = np.zeros((len(likelihood), len(self.atoms_)))
        posterior = DiscretePosterior(*self._grid(likelihood), likelihood)
        result[:, self.weights_ > 0] = np.concatenate(list(posterior.weights()))
        return result


def _seen(likelihood: Likelihood) -> NDArray | None:
    """Parameters of the clients with information, if messages show all exactly; else None."""
    exact, has_data = likelihood.exact, np.isfinite(likelihood.local).all(axis=1)
    if exact is None or not has_data.any() or np.isnan(exact[has_data]).any():
        return None
    return exact[has_data]


def _em(
    rows: Likelihood, counts: NDArray, atoms: NDArray, weights: NDArray, tol: float, steps: int
) -> tuple[tuple[NDArray, NDArray], NDArray]:
    """EM for places and weights of atoms; returns them and the log-likelihood path.

    It ends when a step gains less than `tol` of what the log-likelihood lacks to its peaks, which
    does not depend on units as the log-likelihood does.
    """
    path: list[float] = []
    low, high = rows.support
    peak = float(counts @ rows.log_peak())
    for _ in range(steps):
        # at 0 or 1, an atom could make a count impossible
        atoms = np.clip(atoms, low + 1e-12, high - 1e-12)
        with np.errstate(divide="ignore"):
            joint = rows.logpdf(atoms) + np.log(weights)
        parts, top = relative_likelihoods(joint)
        whole = parts.sum(axis=1)
        path.append(float(counts @ (top + np.log(whole))))
        if len(path) > 1 and path[-1] - path[-2] < tol * (1 + peak - path[-1]):
            break
        expected = parts * (counts / whole)[:, None]
        total = expected.sum(axis=0)
        weights = total / total.sum()
        atoms = np.where(total[:, None] > 0, rows.combine(expected), atoms)
    return (atoms, weights), np.array(path)
