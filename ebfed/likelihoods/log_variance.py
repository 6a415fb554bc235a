"""Messages on variances: sums of squares with degrees of freedom, exact or through a channel.

The parameter is the logarithm of a variance. On that scale a sample variance has errors of one law
for all groups with the same degrees of freedom, and populations may lie anywhere on the line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.base import Likelihood, PartsOfReports, between_scales
from ebfed.likelihoods.reported import ReportedNumbers, ReportLaw

__all__ = ["LogVariance", "ReportedLogVariances", "inverse_trigamma"]

# A variance of zero is drawn as this share of the median one; no estimate depends on it.
FLOOR = 1e-5


@dataclass(frozen=True)
class LogVariance(Likelihood):
    """Client i's message is ``squares[i, j] ~ exp(theta_i[j]) chi2(degrees[i])`` for each j.

    The density is that of the logarithm of the sum of squares. Where the sum is 0, it is known up
    to a factor without theta, which is left out.

    Parameters
    ----------
    squares : ndarray of shape (n, d)
        Sums of squared deviations.
    degrees : ndarray of shape (n,)
        Degrees of freedom. At 0 the message says nothing.
    floor : ndarray of shape (d,), optional
        Variance at which a sample variance of zero is drawn. If None, a small share of the median
        one, and NaN where all are zero: then they say nothing of their scale.

    Examples
    --------
    >>> messages = LogVariance(np.array([[6.0], [0.0]]), np.array([3.0, 0.0]))
    >>> messages.local.ravel(), messages.logpdf(np.array([[0.0]])).ravel().round(4)
    (array([0.6931,    nan]), array([-1.2314,  0.    ]))
    """

    squares: NDArray
    degrees: NDArray
    floor: NDArray | None = None

    support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    _of_clients = ("squares", "degrees")
    _of_coordinates = ("squares", "floor")

    def __post_init__(self) -> None:
        """Settle the floor, which parts of a batch share."""
        if self.floor is not None:
            return
        floor = np.full(self.n_features, np.nan)
        for j, squares in enumerate(self.squares.T):
            some = squares > 0
            if some.any():
                floor[j] = FLOOR * float(np.median(squares[some] / self.degrees[some]))
        object.__setattr__(self, "floor", floor)

    @property
    def _half(self) -> NDArray:
        """Half of the degrees of freedom, shape (n, 1)."""
        return np.asarray(self.degrees, float)[:, None] / 2

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-density of the logarithms of the sums of squares."""
        total = self._log_base()[:, None] - self._half * theta.sum(axis=-1)
        for squares, at in zip(self.squares.T, np.moveaxis(theta, -1, 0), strict=True):
            total -= 0.5 * squares[:, None] * np.exp(np.minimum(-at, 700.0))
        return total

    def _log_base(self) -> NDArray:
        """Part of the log-density without theta, shape (n,)."""
        from scipy.special import gammaln, xlogy

        half = self._half
        squares = np.where(self.squares > 0, self.squares, 2.0)
        base = xlogy(half, squares / 2) - np.where(half > 0, gammaln(np.maximum(half, 0.5)), 0.0)
        return base.sum(axis=1)

    @property
    def _columns_of_messages(self) -> list[NDArray]:
        return [*self.squares.T, self.degrees]

    @property
    def local(self) -> NDArray:
        """Logarithms of the sample variances; NaN without degrees of freedom, or if all are 0."""
        assert self.floor is not None
        degrees = np.where(self.degrees > 0, self.degrees, np.nan)[:, None]
        return np.log(np.maximum(self.squares / degrees, self.floor))

    def log_peak(self) -> NDArray:
        theta = np.nan_to_num(self.local)
        exponent = self._half * theta + 0.5 * self.squares * np.exp(-theta)
        return self._log_base() - exponent.sum(axis=1)

    def nodes(self, k: int) -> NDArray:
        """Cover the estimates and some errors beyond, with four nodes to a small error."""
        seen = np.isfinite(self.local[:, 0])
        if not seen.any():
            return np.linspace(-1.0, 1.0, k)
        local, error = self.local[seen, 0], self._errors()[seen]
        low, high = (local - 2 * error).min(), (local + 4 * error).max()
        k = int(max(k, min(4 * (high - low) / np.quantile(error, 0.05), 2000)))
        return np.linspace(low, high, k)

    def search(self, k: int) -> NDArray:
        """Nodes, and values about half an error apart around each estimate."""
        nodes, seen = self.nodes(k), np.isfinite(self.local[:, 0])
        more = between_scales(nodes, self.local[seen, 0], self._errors()[seen])
        return np.union1d(nodes, more)

    def _errors(self) -> NDArray:
        """Standard deviation of a log sample variance, shape (n,)."""
        from scipy.special import polygamma

        has_data = self.degrees > 0
        degrees, place = np.unique(np.where(has_data, self.degrees, 1.0), return_inverse=True)
        return np.where(has_data, np.sqrt(polygamma(1, degrees / 2))[place], np.inf)

    def resampled(self, theta: NDArray, rng: np.random.Generator) -> LogVariance:
        """Draw sums of squares on the same degrees of freedom."""
        has_data = self.degrees > 0
        draws = rng.chisquare(np.where(has_data, self.degrees, 1.0)[:, None], theta.shape)
        return LogVariance(np.exp(theta) * np.where(has_data[:, None], draws, 0.0), self.degrees)

    def combine(self, weights: NDArray) -> NDArray:
        """Logarithm of the weighted squares over weighted degrees of freedom."""
        assert self.floor is not None
        total = weights.T @ np.asarray(self.degrees, float)
        pooled = weights.T @ self.squares / np.where(total > 0, total, 1)[:, None]
        return np.log(np.maximum(pooled, self.floor))

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-density where theta is normal with these moments, shape (n,), by quadrature."""
        total = np.zeros(len(self))
        for j, (centre, spread) in enumerate(zip(mean, variance, strict=True)):
            total += self.column(j)._normal_marginal(float(centre), float(spread))
        return total

    def _normal_marginal(self, mean: float, variance: float) -> NDArray:
        """Adaptive Gauss-Hermite quadrature around the mode of each client."""
        from scipy.special import logsumexp

        if not variance > 0:
            return self.logpdf(np.array([[mean]]))[:, 0]
        half, squares = self._half[:, 0], self.squares[:, 0]
        mode = np.full(len(self), mean)
        for _ in range(60):
            pull = 0.5 * squares * np.exp(-mode)
            step = (pull - half - (mode - mean) / variance) / (pull + 1 / variance)
            mode = mode + np.clip(step, -2.0, 2.0)
            if np.abs(step).max(initial=0.0) < 1e-10:
                break
        width = 1 / np.sqrt(0.5 * squares * np.exp(-mode) + 1 / variance)
        nodes, weights = np.polynomial.hermite_e.hermegauss(41)
        at = mode[:, None] + width[:, None] * nodes
        density = -half[:, None] * at - 0.5 * squares[:, None] * np.exp(-at)
        density -= 0.5 * (at - mean) ** 2 / variance - 0.5 * nodes**2
        found = logsumexp(density, b=weights, axis=1) + np.log(width)
        return self._log_base() + found - 0.5 * np.log(2 * np.pi * variance)

    def sampling_variance(self, mean: float, variance: float) -> NDArray:
        """``trigamma(degrees / 2)``, whatever the population."""
        return self._errors() ** 2

    def _reported(self, law: ReportLaw, has_data: NDArray) -> PartsOfReports:
        if not law.hides:
            raise TypeError("Clip sends log variances as they are: use channels.Exact.")
        has_data = has_data & (self.degrees > 0)[:, None]
        return ReportedLogVariances, has_data, {"degrees": self.degrees}


@dataclass(frozen=True)
class ReportedLogVariances(ReportedNumbers):
    """Reports about log sample variances ``x_i``, on degrees of freedom that are public.

    Parameters
    ----------
    law, reports, has_data, sizes, centre, half, degrees :
        See `ReportedNumbers`.
    """

    support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)

    def _density(self, theta: NDArray, j: int) -> NDArray:
        from scipy.special import gammainc

        def below(edges: NDArray, degrees: float) -> NDArray:
            ratio = np.exp(np.clip(edges[:, None] - theta, -700, 700))
            return gammainc(degrees / 2, degrees / 2 * ratio)

        return self._mixed(below, len(theta), j)

    def _averaged(self, j: int, mean: float, variance: float) -> NDArray:
        """Average of the density of reports over a normal population, by quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(41 if variance > 0 else 1)
        density = self._density(mean + np.sqrt(max(variance, 0.0)) * nodes, j)
        return density @ weights / weights.sum()

    def inverse_gamma_marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-density of the reports where the variance is inverse gamma, shape (n,).

        Parameters
        ----------
        mean, variance : ndarray of shape (d,)
            Moments of theta, the logarithm of the variance.
        """
        moments = enumerate(zip(mean.tolist(), variance.tolist(), strict=True))
        return self._log(self._over_inverse_gammas(j, *each) for j, each in moments)

    def _over_inverse_gammas(self, j: int, mean: float, variance: float) -> NDArray:
        """Average of the density of reports on coordinate j over an inverse gamma population."""
        from scipy.special import betainc, psi

        if not variance > 0:
            return self._density(np.array([mean]), j)[:, 0]
        a = float(inverse_trigamma(np.array([variance]))[0])
        scale = mean - np.log(a) + psi(a)  # log of 1 / E(1 / variance)

        def below(edges: NDArray, degrees: float) -> NDArray:
            ratio = degrees / (2 * a) * np.exp(np.clip(edges - scale, -700, 700))
            return betainc(degrees / 2, a, ratio / (1 + ratio))[:, None]

        return self._mixed(below, 1, j)[:, 0]

    def nodes(self, k: int) -> NDArray:
        """Cover the range, and some errors beyond: past that all is clipped."""
        from scipy.special import polygamma

        degrees = self.degrees[self.has_data[:, 0]]
        errors = np.sqrt(polygamma(1, degrees / 2)) if len(degrees) else np.zeros(1)
        reach = float(np.median(errors))
        low = self.centre[0] - self.half[0] - 2 * reach
        high = self.centre[0] + self.half[0] + 4 * reach
        fine = max(float(np.quantile(errors, 0.05)), (high - low) / 500)
        return np.linspace(low, high, int(max(k, min(4 * (high - low) / fine, 2000))))


def inverse_trigamma(y: NDArray) -> NDArray:
    """Solve ``trigamma(x) = y`` for positive numbers of any shape.

    Examples
    --------
    >>> inverse_trigamma(np.array([1.6449340668, 1e-8])).round(3)
    array([1.e+00, 1.e+08])
    """
    from ebfed.kernels import inverse_trigamma

    y = np.asarray(y, float)
    return inverse_trigamma(np.ascontiguousarray(y.ravel())).reshape(y.shape)
