"""Posteriors of clients' logistic regressions under a normal population."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ebfed import kernels
from ebfed.kernels.responses import BINOMIAL
from ebfed.regression.numerics.normal_population import NormalPopulation
from ebfed.regression.posteriors.linear import CoefficientPosterior
from ebfed.regression.posteriors.predictive import averaged_variance, variance_of_mean
from ebfed.tables.clients import Clients

__all__ = [
    "MOST_CORRECTED",
    "Approximation",
    "NormalCoefficients",
    "WhiteRows",
    "log_probabilities",
]

# A client's iteration ends when nothing moves by more than this share of its standard deviation
# (or, for a mode, of the log-posterior).
TOLERANCE = 1e-8
MOST_SWEEPS = 200
# For more coefficients, the noise of so few points would outweigh what they correct.
MOST_CORRECTED = 4
# Half the points of importance sampling: a power of two.
HALF = 256


# "corrected" is expectation propagation with importance sampling after it.
Approximation = Literal["corrected", "ep", "laplace"]


@cache
def _points(p: int) -> tuple[NDArray, float]:
    """Points of importance sampling, and by how much they are spread out.

    Widths leave half of the points' weight or more where the posterior is normal, and cover the
    tails of skewed posteriors of few coefficients.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    half = ndtri(qmc.Sobol(p, rng=0).random(HALF))
    return np.concatenate([half, -half]), float(np.sqrt(1 + 2 / p**0.75))


@dataclass(frozen=True)
class WhiteRows:
    """Rows in coordinates in which the population is standard normal.

    ``theta = mean + root eta``, so that ``x' theta = offset + (root' x)' eta``.

    Attributes
    ----------
    X : ndarray of shape (n_rows, p)
        ``X root``.
    offset : ndarray of shape (n_rows,)
        ``X mean``.
    signs : ndarray of shape (n_rows,)
        1 for the second class, -1 for the first.
    indptr : int64 ndarray of shape (n_clients + 1,)
    """

    X: NDArray
    offset: NDArray
    signs: NDArray
    indptr: NDArray

    @classmethod
    def of(cls, clients: Clients, population: NormalPopulation, second: Any) -> Self:
        """Bring clients' rows into these coordinates."""
        # einsum: products of matrices round differently for blocks of different lengths
        X = np.ascontiguousarray(np.einsum("np,pq->nq", clients.X, population.root))
        offset = np.einsum("np,p->n", clients.X, population.mean)
        signs = np.where(np.asarray(clients.y) == second, 1.0, -1.0)
        return cls(X, offset, signs, clients.indptr)

    def _empty(self) -> tuple[NDArray, NDArray, NDArray]:
        n, p = len(self.indptr) - 1, self.X.shape[1]
        return np.zeros((n, p)), np.empty((n, p, p)), np.empty(n)

    def approximate(
        self,
        how: Approximation,
        *,
        start: NDArray | None = None,
        tolerance: float = TOLERANCE,
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Mean, covariance and log marginal likelihood of each client, by an approximation.

        Parameters
        ----------
        how : {"corrected", "ep", "laplace"}
        start : ndarray of shape (n, p), optional
            Where the search of a mode begins; at zero if None.
        tolerance : float
            What may be left to move; see `TOLERANCE`.

        Returns
        -------
        mean : ndarray of shape (n, p)
        covariance : ndarray of shape (n, p, p)
        evidence : ndarray of shape (n,)
        """
        found = self._empty()
        rows = self.X, self.offset, self.signs, self.indptr
        if how == "laplace":
            found[0][:] = 0.0 if start is None else start
            ones = np.ones(len(self.signs))
            observed = self.X, self.offset, (self.signs + 1) / 2, ones, self.indptr
            kernels.laplace(*observed, BINOMIAL, np.zeros(0), tolerance, MOST_SWEEPS, *found)
            return found
        stand_ins = np.zeros(len(self.X)), np.zeros(len(self.X))
        kernels.expectation_propagation(*rows, *stand_ins, tolerance, MOST_SWEEPS, *found)
        if how == "corrected":
            kernels.importance(*rows, *_points(self.X.shape[1]), *found)
        return found


class NormalCoefficients(CoefficientPosterior):
    """Normal posteriors, what not knowing the population's mean adds included.

    Parameters
    ----------
    mean : ndarray of shape (n, p)
    own : ndarray of shape (n, p, p)
        Covariance if the population were known.
    away : ndarray of shape (n, p, p)
        Slope of the mean in the population's.
    mean_covariance : ndarray of shape (p, p)
    parents : tuple, optional
        Posterior of the parents of clients, and the place of each client's. `own` is then the
        covariance given the coefficients of the parent, and `away` the slope in these.
    """

    def __init__(
        self,
        mean: NDArray,
        own: NDArray,
        away: NDArray,
        mean_covariance: NDArray,
        parents: tuple[CoefficientPosterior, NDArray[np.int64]] | None = None,
    ):
        self._mean_covariance, self._parents = mean_covariance, parents
        self._of_parents = None if parents is None else parents[0].covariance
        self.mean, self._own, self._away = mean, own, away
        self.sd = np.sqrt(np.maximum(np.einsum("npp->np", self.covariance), 0))

    @classmethod
    def of_white(
        cls,
        population: NormalPopulation,
        mean: NDArray,
        covariance: NDArray,
        mean_covariance: NDArray,
    ) -> Self:
        """Return posteriors with these moments where the population is standard normal.

        The slope of ``E theta_i`` in the population's mean is ``root V_i root^-1``, with V_i the
        covariance in coordinates where the population is standard normal.
        """
        return cls(
            population.mean + mean @ population.root.T,
            population.root @ covariance @ population.root.T,
            _slopes(population.root, covariance),
            mean_covariance,
        )

    def take(self, places: NDArray) -> NormalCoefficients:
        """Keep the clients in these places."""
        parts = self.mean[places], self._own[places], self._away[places], self._mean_covariance
        parents = None if self._parents is None else (self._parents[0], self._parents[1][places])
        return NormalCoefficients(*parts, parents)

    def widened(
        self,
        others: Sequence[NormalCoefficients],
        weights: NDArray,
        shifts: Sequence[NDArray],
        parents: CoefficientPosterior | None = None,
    ) -> NormalCoefficients:
        """Return the posteriors with what not knowing the population's spread adds.

        The mean stays. The covariance is the average of that of posteriors under other spreads, and
        of squares of the distance of their means from this one's, but for what their populations'
        means explain of that.

        Parameters
        ----------
        others : sequence of k NormalCoefficients
        weights : ndarray of shape (k,)
        shifts : sequence of k ndarray of shape (p,) or (n, p)
            By how much the population's mean, or that of parents, differs.
        parents : CoefficientPosterior, optional
            Posterior of the parents of clients, widened.
        """
        own = self._own.copy()
        for other, weight, shift in zip(others, weights, shifts, strict=True):
            each = np.broadcast_to(shift, self.mean.shape)
            moved = other.mean - self.mean - np.einsum("npq,nq->np", self._away, each)
            own += weight * (other._own - self._own + moved[:, :, None] * moved[:, None, :])
        known = None if self._parents is None or parents is None else (parents, self._parents[1])
        return NormalCoefficients(self.mean, own, self._away, self._mean_covariance, known)

    def parents_moved(self, by: NDArray) -> NDArray[np.float64]:
        """Figures of parents, shape (n_parents, p), for each client."""
        return by if self._parents is None else by[self._parents[1]]

    def _parts(self) -> Iterator[tuple[NDArray, NDArray, NDArray]]:
        yield self.mean, self._own, self._away


def _slopes(root: NDArray, covariance: NDArray) -> NDArray:
    """Slopes of clients' means in the population's, 1 where this does not vary, (n, p, p)."""
    inverse = np.linalg.pinv(root)
    return root @ covariance @ inverse + np.eye(len(root)) - root @ inverse


def log_probabilities(
    posterior: NormalCoefficients,
    rows: NDArray,
    codes: NDArray,
    mean_covariance: NDArray,
) -> NDArray:
    """Logarithm of the probability of either class, averaged over posteriors.

    Parameters
    ----------
    posterior : NormalCoefficients of n clients
    rows : ndarray of shape (n_rows, p)
    codes : ndarray of shape (n_rows,)
        The client of each row.
    mean_covariance : ndarray of shape (p, p)
        As `variance_of_mean` takes it.

    Returns
    -------
    ndarray of shape (n_rows, 2)
    """
    out = np.full((2, len(rows)), -np.inf)
    mean = np.einsum("np,np->n", rows, posterior.mean[codes])
    own = variance_of_mean(rows, mean_covariance)
    variance = averaged_variance(posterior.variance_along(rows, codes), own)
    for sign, total in zip((-1, 1), out, strict=True):
        kernels.log_logistic_normal(sign * mean, variance, total)
    with np.errstate(invalid="ignore"):  # rows that are not identified are NaN
        return (out - np.logaddexp(*out)).T  # the last digits of two integrals
