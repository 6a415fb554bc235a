"""What clients send in rounds that exchange coefficients, and how the server clusters it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Gaussian
from ebfed.priors import GaussianMixture
from ebfed.priors.mixture_em import kmeans
from ebfed.regression.numerics.evidence import (
    MixturePopulation,
    RotatedRows,
    responsibilities,
    weigh,
)
from ebfed.streams import Stream
from ebfed.tables.clients import LARGEST

__all__ = ["CoefficientScheme", "Draws", "GradientSteps", "PosteriorMeans", "draw", "least_squares"]


class CoefficientScheme(ABC):
    """What clients send, round by round, and what population the server fits to it."""

    def first(self, rows: RotatedRows, rng: Any) -> NDArray[np.float64]:
        """Return what clients send in the first round: least-squares coefficients."""
        return least_squares(rows)

    @abstractmethod
    def next(
        self, rows: RotatedRows, theta: NDArray, population: MixturePopulation, rng: Any
    ) -> NDArray[np.float64]:
        """Return what clients send in a later round.

        Parameters
        ----------
        rows : RotatedRows
        theta : ndarray of shape (n, p)
            Coefficients that they sent before.
        population : MixturePopulation
            Population that the server fitted to those.
        rng : Stream, or "secure" for numbers that cannot be repeated
        """

    @abstractmethod
    def cluster(self, values: NDArray, variances: NDArray, seed: int) -> MixturePopulation:
        """Fit components to coefficients (n, p) that have noise of these variances."""


@dataclass(frozen=True)
class PosteriorMeans(CoefficientScheme):
    """Averages of a few coefficient vectors, which the server clusters by k-means.

    Parameters
    ----------
    n_components : int
    noise_variance : float
    """

    n_components: int
    noise_variance: float

    def next(
        self, rows: RotatedRows, theta: NDArray, population: MixturePopulation, rng: Any
    ) -> NDArray[np.float64]:
        """Average the coefficient vectors."""
        # [E] Algorithm 6
        share = responsibilities(weigh(rows, population).log, population.weights)[1]
        return share @ population.means

    def cluster(self, values: NDArray, variances: NDArray, seed: int) -> MixturePopulation:
        """Cluster by k-means."""
        k = min(self.n_components, len(np.unique(values, axis=0)))
        labels, centres = kmeans(values, k, np.random.RandomState(seed))
        order = np.lexsort(centres.T[::-1])
        shares = np.bincount(labels, minlength=k)[order] / len(labels)
        noise = float(self.noise_variance)
        return MixturePopulation(shares, centres[order], np.zeros((k, 1)), noise)


@dataclass(frozen=True)
class Draws(CoefficientScheme):
    """Draws from posteriors, to which the server fits a Gaussian mixture.

    Parameters
    ----------
    n_components : int
    covariance : {"spherical", "diag"}
    noise_variance : float
    """

    n_components: int
    covariance: Literal["spherical", "diag"]
    noise_variance: float

    def next(
        self, rows: RotatedRows, theta: NDArray, population: MixturePopulation, rng: Any
    ) -> NDArray[np.float64]:
        """Draw from the posterior."""
        return draw(rows, population, rng)

    def cluster(self, values: NDArray, variances: NDArray, seed: int) -> MixturePopulation:
        """Fit a Gaussian mixture."""
        prior = self._fitted(values, variances, seed)
        noise = float(self.noise_variance)
        return MixturePopulation(prior.weights_, prior.means_, prior.variances_, noise)

    def _fitted(self, values: NDArray, variances: NDArray, seed: int) -> GaussianMixture:
        k = min(self.n_components, len(values))
        prior = GaussianMixture(k, self.covariance, n_init=1, n_plausible=0, random_state=seed)
        return prior.fit(Gaussian(values, np.broadcast_to(variances, values.shape)))


@dataclass(frozen=True)
class GradientSteps(Draws):
    """Steps of gradient descent, to which the server fits a Gaussian mixture.

    Parameters
    ----------
    n_components, covariance, noise_variance : as in `Draws`
    learning_rate : float
    """

    learning_rate: float

    def first(self, rows: RotatedRows, rng: Any) -> NDArray[np.float64]:
        """Return draws of expected square one."""
        n, _, p = rows.design.shape
        if isinstance(rng, Stream):
            return rng.normals(n, p) / np.sqrt(p)
        return np.random.default_rng().standard_normal((n, p)) / np.sqrt(p)

    def next(
        self, rows: RotatedRows, theta: NDArray, population: MixturePopulation, rng: Any
    ) -> NDArray[np.float64]:
        """Take a step of gradient descent."""
        away = rows.response - (rows.design @ theta[:, :, None])[:, :, 0]
        slope = -(rows.design.swapaxes(1, 2) @ away[:, :, None])[:, :, 0] / population.noise
        from_means = theta[:, None] - population.means
        # [E] Equation 10
        log = -0.5 * (from_means**2 / population.variances + np.log(population.variances))
        share = responsibilities(log.sum(axis=2), population.weights)[1]
        slope += (share[:, :, None] * from_means / population.variances).sum(axis=1)
        # [E] Algorithm 1
        theta = theta - self.learning_rate * slope
        if not np.abs(theta).max(initial=0.0) < LARGEST:
            raise ValueError(
                f"gradient descent diverged: learning_rate={self.learning_rate!r} is too large."
            )
        return theta

    def cluster(self, values: NDArray, variances: NDArray, seed: int) -> MixturePopulation:
        """Fit a Gaussian mixture whose variances a step can divide by."""
        prior = self._fitted(values, variances, seed)
        least = 1e-12 * max(float(prior.variance_.max()), 1e-300)
        noise = float(self.noise_variance)
        own = np.maximum(prior.variances_, least)
        return MixturePopulation(prior.weights_, prior.means_, own, noise)


def least_squares(rows: RotatedRows) -> NDArray:
    """Least-squares coefficients of each client, of least norm, shape (n, p)."""
    # [E] Equation 52
    least = 1e-20 * rows.squares.max(axis=1, initial=0.0)[:, None]
    known = rows.squares > least
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(known, rows.response / rows.squares, 0.0)
    return (rows.design.swapaxes(1, 2) @ share[:, :, None])[:, :, 0]


def draw(rows: RotatedRows, population: MixturePopulation, rng: Any) -> NDArray:
    """Draw coefficients of each client from their posterior, shape (n, p).

    Coefficients and rows are drawn from the component, and the coefficients then moved by what the
    rows of the client are away from those drawn (Matheron's rule).

    Parameters
    ----------
    rows : RotatedRows
    population : MixturePopulation
    rng : Stream, or "secure" for numbers that cannot be repeated
    """
    (n, q, p), noise = rows.design.shape, population.noise
    if isinstance(rng, Stream):
        normals, uniforms = rng.normals(n, p + q), rng.uniforms(n)
    else:
        own = np.random.default_rng()
        normals, uniforms = own.standard_normal((n, p + q)), own.random((n, 1))
    share = responsibilities(weigh(rows, population).log, population.weights)[1]
    picked = (uniforms > np.cumsum(share, axis=1)[:, :-1]).sum(axis=1)
    theta = np.empty((n, p))
    for j, (mean, variance) in enumerate(zip(population.means, population.variances, strict=True)):
        drawn = np.sqrt(variance) * normals[:, :p]
        error = np.sqrt(noise) * normals[:, p:]
        response = rows.response - (rows.design @ drawn[:, :, None])[:, :, 0] - error
        one = MixturePopulation(np.ones(1), mean[None], variance[None], noise)
        slope = weigh(rows._replace(response=response), one).mean[:, 0]
        theta = np.where((picked == j)[:, None], mean + drawn + variance * slope, theta)
    return theta
