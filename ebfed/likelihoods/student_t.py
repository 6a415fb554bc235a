"""Student-t messages: estimates whose standard errors are themselves estimated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import (
    student_log_density,
    student_normal,
    student_normals,
    student_sizes,
)
from ebfed.likelihoods.base import MANY, Likelihood, without_gaps
from ebfed.likelihoods.distinct import two_of_each_cell
from ebfed.likelihoods.gaussian import Gaussian
from ebfed.likelihoods.lattice import Lattice
from ebfed.tables.labels import number_integers

__all__ = ["StudentT"]

LOG_ROOT_2PI = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True)
class StudentT(Likelihood):
    r"""Client i's message is ``values[i] = theta_i + scale_i * T``, T a t variable.

    With :math:`\nu_i` degrees of freedom, the density of ``z = (values[i] - theta_i) / scale_i`` is

    .. math:: \frac{\Gamma((\nu_i + 1) / 2)}{\Gamma(\nu_i / 2) \sqrt{\pi \nu_i}}
              (1 + z^2 / \nu_i)^{-(\nu_i + 1) / 2}.

    It is the law of an estimate over its standard error, where that is computed from few rows. A t
    variable is normal given a gamma one; `normals` turns it into a short mixture of normals, so
    that a population with a closed form for normal errors has one for t errors.

    Parameters
    ----------
    values : ndarray of shape (n, 1)
    variances : ndarray of shape (n, 1)
        Squares of the scales. 0: theta_i is known; infinity: the message says nothing.
    degrees : ndarray of shape (n,)
        Degrees of freedom; infinite ones are those of normal errors.

    References
    ----------
    West (1987), On scale mixtures of normal distributions, Biometrika 74, 646-648.

    Examples
    --------
    >>> messages = StudentT(np.array([[0.0], [2.0]]), np.ones((2, 1)), np.array([1.0, np.inf]))
    >>> messages.logpdf(np.array([[0.0], [1.0]]))
    array([[-1.1447, -1.8379],
           [-2.9189, -1.4189]])
    """

    values: NDArray
    variances: NDArray
    degrees: NDArray

    support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    _of_clients = ("values", "variances", "degrees")

    @cached_property
    def _informed(self) -> NDArray:
        """Whether each message has noise and says something, shape (n,)."""
        return np.isfinite(self.variances[:, 0]) & (self.variances[:, 0] > 0)

    @cached_property
    def _safe(self) -> NDArray:
        """Variances, 1 where there is no noise or no message, shape (n,)."""
        return np.where(self._informed, self.variances[:, 0], 1.0)

    def logpdf(self, theta: NDArray) -> NDArray:
        logs = self._falls(theta)
        logs += self._peaks[:, None]
        if not self._informed.all():
            logs[~self._informed] = 0.0
        return logs

    def _falls(self, theta: NDArray) -> NDArray:
        """Log-density less that at the peak, ``-(df + 1) / 2 log(1 + z**2 / df)``, (n, k)."""
        normal = np.isinf(self.degrees)
        degrees = np.where(normal, 1.0, self.degrees)
        z2 = self.values - theta[..., 0]  # in place: this is what fits on grids take their time for
        z2 *= z2
        z2 /= (self._safe * degrees)[:, None]
        some = z2[normal]
        np.log1p(z2, out=z2)
        z2 *= -0.5 * (degrees[:, None] + 1)
        z2[normal] = -0.5 * some
        return z2

    def relative(self, theta: NDArray) -> NDArray:
        """Likelihood of each client at theta of shape (k, 1), over that at its value, (n, k)."""
        falls = self._falls(theta)
        falls[~self._informed] = 0.0
        return np.exp(falls, out=falls)

    @cached_property
    def _peaks(self) -> NDArray:
        at_peak = student_log_density(np.zeros(len(self)), self._safe, self.degrees)
        return at_peak - LOG_ROOT_2PI - 0.5 * np.log(self._safe)

    def log_peak(self) -> NDArray:
        """Log-density of the values at themselves."""
        return np.where(self._informed, self._peaks, 0.0)

    @property
    def exact(self) -> NDArray | None:
        """Values of scale zero."""
        known = self.variances == 0
        return np.where(known, self.values, np.nan) if known.any() else None

    @property
    def local(self) -> NDArray:
        """The values; NaN at an infinite scale."""
        return np.where(np.isfinite(self.variances), self.values, np.nan)

    def sampling_variance(self, mean: float, variance: float) -> NDArray:
        """Return one over Fisher's information on theta, whatever the population.

        The variance of a t variable is infinite with two degrees of freedom or fewer; a population
        weighs messages by their information.
        """
        return self.variances[:, 0] * (1 + 2 / (self.degrees + 1))

    def nodes(self, k: int) -> NDArray:
        """As for normal errors, and evenly in gaps: the tails of a t law reach over these."""
        return without_gaps(Gaussian(self.values, self.variances).nodes(k), k)

    def mirrored(self) -> tuple[Self, float]:
        """Messages with the other sign."""
        return type(self)(-self.values, self.variances, self.degrees), 0.0

    def search(self, k: int) -> NDArray:
        """As for normal errors: tails of a t law are convex too."""
        return np.union1d(self.nodes(k), Gaussian(self.values, self.variances).search(k))

    def resampled(self, theta: NDArray, rng: np.random.Generator) -> StudentT:
        """Draw values around the parameters.

        Examples
        --------
        >>> messages = StudentT(np.array([[3.0], [2.0]]), np.array([[0.0], [np.inf]]), np.ones(2))
        >>> messages.resampled(np.array([[5.0], [6.0]]), np.random.default_rng(0)).local
        array([[ 5.],
               [nan]])
        """
        finite = np.where(np.isinf(self.degrees), 1.0, self.degrees)
        squares = np.where(np.isinf(self.degrees), 1.0, rng.chisquare(finite) / finite)
        errors = np.sqrt(np.where(np.isfinite(self.variances), self.variances, 0.0))
        noise = rng.standard_normal(theta.shape) / np.sqrt(squares)[:, None]
        return StudentT(theta + errors * noise, self.variances, self.degrees)

    def compress(self) -> tuple[StudentT, NDArray]:
        """Merge equal messages; past 20,000, also those closer than a fiftieth of their scale.

        Merging moves a value by less than 1/100 of its scale, a variance and degrees of freedom by
        less than 1 %, all without bias over the messages merged.
        """
        rows = self.take(self._informed)
        if len(rows) <= MANY:
            return rows._merged([rows.values[:, 0], rows.variances[:, 0], rows.degrees])
        values, variances = rows.values[:, 0], rows.variances[:, 0]
        level = np.round(np.log(variances / variances.min()) / 0.02)
        width = 0.02 * np.sqrt(variances.min()) * np.exp(0.01 * level)
        freedom = np.round(np.log(np.minimum(rows.degrees, 1e9)) / 0.02)
        return rows._merged([np.round((values - values.min()) / width), level, freedom])

    def distinct(self) -> tuple[StudentT, NDArray]:
        rows = self.take(self._informed)
        return rows._merged([rows.values[:, 0], rows.variances[:, 0], rows.degrees])

    @cached_property
    def lattice(self) -> Lattice | None:
        """Estimates that figures of many clients can be interpolated between."""
        if self._informed.sum() <= MANY:
            return None
        rows = self.take(self._informed)
        return Lattice.of(rows.values[:, 0], rows.variances[:, 0], rows.degrees)

    @cached_property
    def at_lattice(self) -> StudentT | None:
        if self.lattice is None:
            return None
        values, variances = self.lattice.values[:, None], self.lattice.variances[:, None]
        return StudentT(values, variances, self.lattice.degrees)

    def summed(self) -> tuple[StudentT, NDArray]:
        """Nodes of the lattice of many clients, with their weights."""
        if self.lattice is None:
            return self.compress()
        return self.weighed(np.ones(len(self)))

    def weighed(self, counts: NDArray) -> tuple[StudentT, NDArray]:
        """Nodes of the lattice of many clients, with their weights; the rows, of few.

        Rows without information, or seen exactly, are left out where there is a lattice.
        """
        if self.lattice is None or self.at_lattice is None:
            return self, counts
        return self.at_lattice, self.lattice.weights(counts[self._informed])

    def condensed(self, counts: NDArray) -> tuple[StudentT, NDArray]:
        """Fewer rows: two for all of about one value, variance and number of degrees.

        Rows without information, or seen exactly, are left out.
        See `Gaussian.condensed`; one over the degrees has the mean of those of a cell.
        """
        if not self._informed.all():
            return self.take(self._informed).condensed(counts[self._informed])
        if len(self) <= MANY:
            return self, counts
        degrees = np.minimum(self.degrees, 1e9)
        values, variances, times, cells = two_of_each_cell(
            self.values, self.variances, counts, degrees
        )
        mean = np.bincount(cells, counts / self.degrees) / np.bincount(cells, counts)
        with np.errstate(divide="ignore"):
            degrees = np.tile(1 / mean, 2)
        return StudentT(values, variances, degrees), times

    def _merged(self, keys: list[NDArray]) -> tuple[StudentT, NDArray]:
        """Average messages that have the same keys."""
        if not len(self):
            return self, np.empty(0)
        code = np.zeros(len(self), np.int64)
        for key in keys:
            own, _ = number_integers(np.ascontiguousarray(key, float).view(np.int64))
            code, _ = number_integers(code * (own.max() + 1) + own)
        counts = np.bincount(code).astype(float)
        value, variance = (
            np.bincount(code, x[:, 0]) / counts for x in (self.values, self.variances)
        )
        degrees = np.bincount(code, self.degrees) / counts
        order = np.lexsort((degrees, variance, value))  # whatever the order of clients
        rows = StudentT(value[order, None], variance[order, None], degrees[order])
        return rows, counts[order]

    def normals(
        self, away: NDArray, variances: NDArray, lowest: float, highest: float
    ) -> tuple[NDArray, NDArray]:
        """Mixture of normals that stands for each t density.

        Parameters
        ----------
        away : ndarray of shape (n,)
            Values less the centre of the population.
        variances : ndarray of shape (n,)
            Squares of the scales, positive and finite.
        lowest, highest : float
            Variances between which those of the populations are; see `ebfed.kernels.student`.

        Returns
        -------
        logs, spreads : ndarray of shape (k, n)
            Log-weights and variances of the normals.
        """
        sizes = student_sizes(away, variances, self.degrees, lowest, highest)
        return student_normals(variances, self.degrees, sizes)

    def log_ratio(self, away: NDArray, variances: NDArray) -> NDArray:
        """Log-density of these errors, over the peak of normal ones of the same scale, (n,)."""
        return student_log_density(away, variances, self.degrees)

    def derivatives(self, away: NDArray, variance: float) -> NDArray:
        """Log-density and derivatives under a normal population; see `kernels.student_normal`.

        Every message must have noise and say something.
        """
        s2 = self.variances[:, 0]
        sizes = student_sizes(away, s2, self.degrees, variance, variance)
        return student_normal(away, s2, self.degrees, sizes, variance)

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-density of the values where theta is normal with these moments, shape (n,)."""
        from scipy.stats import norm

        away = np.broadcast_to(self.values - mean, self.values.shape)[:, 0]
        logs, rows = np.zeros(len(self)), self.take(self._informed)
        if len(rows):
            away = np.ascontiguousarray(away)
            logs[self._informed] = rows.derivatives(away[self._informed], float(variance[0]))[0]
        exact = self.variances[:, 0] == 0
        if exact.any():
            logs[exact] = norm.logpdf(away[exact], 0.0, np.sqrt(float(variance[0])))
        return logs
