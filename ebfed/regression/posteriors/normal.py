"""Normal posteriors of coefficients, with what not knowing their population adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ebfed.regression.posteriors.linear import CoefficientPosterior

__all__ = ["NormalCoefficients"]


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

        The mean stays. The covariance is the average of that of posteriors under other spreads, of
        which the population's mean is less known or better, and of squares of the distance of their
        means from this one's, but for what their populations' means explain of that.

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
            if self._parents is None:
                own += weight * (other._of_mean - self._of_mean)
        known = None if self._parents is None or parents is None else (parents, self._parents[1])
        return NormalCoefficients(self.mean, own, self._away, self._mean_covariance, known)

    @property
    def _of_mean(self) -> NDArray:
        """What not knowing the population's mean adds to covariances, shape (n, p, p)."""
        return self._away @ self._mean_covariance @ self._away.swapaxes(1, 2)

    def parents_moved(self, by: NDArray) -> NDArray[np.float64]:
        """Figures of parents, shape (n_parents, p), for each client."""
        return by if self._parents is None else by[self._parents[1]]

    def _parts(self) -> Iterator[tuple[NDArray, NDArray, NDArray]]:
        yield self.mean, self._own, self._away
