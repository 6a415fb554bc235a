"""Messages of a channel that clips, rounds or randomises: what a report says about theta.

A client's local mean x varies around theta, and its report y varies around x; the report's
likelihood is

    L(theta) = integral p(y | x) p(x | theta) dx,

computed exactly: for `ReportedMeans`, x given theta is normal, and the channel's law has an average
over a normal x; where x has a list of values, as for `ReportedCounts` and `ReportedEvents`, the
integral is a sum. Clipping, rounding and noise are all in the law.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.base import Likelihood
from ebfed.likelihoods.distinct import number_rows

__all__ = ["ReportLaw", "Reported", "ReportedMeans", "ReportedNumbers"]

# With more rows than this, reports that are nearly the same count as one.
MOST_ROWS = 2000
MOST_ENTRIES = 200_000_000


class ReportLaw(Protocol):
    """Distribution of a report given a local value u, in units where the range is [-1, 1].

    Reports must be possible ones; values outside [-1, 1] are clipped first.
    """

    adds_noise: ClassVar[bool]
    hides: ClassVar[bool]

    def rounded(self, reports: NDArray) -> NDArray:
        """Reports without the digits that make no difference."""

    def density(self, reports: NDArray, u: NDArray, sizes: NDArray) -> NDArray:
        """Density of each report at each local value, shape (n, k).

        `sizes` are the numbers of rows of the clients that sent the reports, shape (n,).
        """

    def average(
        self, reports: NDArray, means: NDArray, variances: NDArray, sizes: NDArray
    ) -> NDArray:
        """Density of each report averaged over ``u ~ N(means[k], variances[i])``, shape (n, k)."""


@dataclass(frozen=True)
class Reported(Likelihood):
    """Reports of n clients about d coordinates.

    Parameters
    ----------
    law : ReportLaw
    reports : ndarray of shape (n, d) or (n, d, ...)
    has_data : bool ndarray of shape (n, d)
        Whether the client reported on that coordinate.
    sizes : int64 ndarray of shape (n,)
        Numbers of rows.
    centre, half : ndarray of shape (d,)
        Centre and half-width of the range of the reports.
    """

    is_noisy: ClassVar[bool] = True
    _of_clients: ClassVar[tuple[str, ...]] = ("has_data", "reports", "sizes")
    _of_coordinates: ClassVar[tuple[str, ...]] = ("has_data", "reports", "centre", "half")

    law: ReportLaw
    reports: NDArray
    has_data: NDArray
    sizes: NDArray
    centre: NDArray
    half: NDArray

    @property
    def adds_noise(self) -> bool:  # type: ignore[override]
        """Whether reports are clipped local means with noise that was added."""
        return self.law.adds_noise

    @abstractmethod
    def _density(self, theta: NDArray, j: int) -> NDArray:
        """Density of the reports on coordinate j at each value of theta_j, shape (n, k)."""

    def logpdf(self, theta: NDArray) -> NDArray:
        return self._log(self._density(at, j) for j, at in enumerate(theta.T))

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        moments = enumerate(zip(mean.tolist(), variance.tolist(), strict=True))
        return self._log(self._averaged(j, *each) for j, each in moments)

    def _averaged(self, j: int, mean: float, variance: float) -> NDArray:
        """Density of the reports on coordinate j, averaged over a conjugate population, (n,)."""
        raise NotImplementedError

    def _log(self, densities: Iterable[NDArray]) -> NDArray:
        """Sum of the logarithms of densities of all coordinates, of shape (n,) or (n, k) each."""
        total: Any = 0.0
        for has_data, density in zip(self.has_data.T, densities, strict=True):
            with np.errstate(divide="ignore"):
                logs = np.log(density)
            total = total + np.where(has_data if logs.ndim == 1 else has_data[:, None], logs, 0.0)
        return total

    @cached_property
    def _peaks(self) -> tuple[NDArray, NDArray]:
        """Place and height of each client's highest likelihood among the nodes, (n, d) each."""
        place, height = np.full(self.has_data.shape, np.nan), np.zeros(self.has_data.shape)
        for j in range(self.n_features):
            column = self.column(j)
            nodes = column.nodes(400)
            values = column.logpdf(nodes[:, None])
            best = np.argmax(values, axis=1)
            place[:, j] = np.where(self.has_data[:, j], nodes[best], np.nan)
            height[:, j] = values[np.arange(len(self)), best]
        return place, height

    @property
    def local(self) -> NDArray:
        """Likeliest of the nodes; NaN where nothing was reported."""
        return self._peaks[0]

    def log_peak(self) -> NDArray:
        """Log-likelihood at `local`."""
        return self._peaks[1].sum(axis=1)

    def compress(self) -> tuple[Self, NDArray]:
        """Merge clients with equal reports; of many numbers, nearly equal ones."""
        return self._compressed

    @cached_property
    def _compressed(self) -> tuple[Self, NDArray]:
        rows = self if self.has_data.all() else self.take(np.flatnonzero(self.has_data.any(axis=1)))
        if not len(rows):
            return rows, np.empty(0)
        if len(rows) > MOST_ROWS:
            rows = replace(rows, reports=rows._rounded())
        flat = rows.reports.reshape(len(rows), -1)
        # clients are merged that share all else too, which stands together
        more = [getattr(rows, name) for name in self._of_clients[len(Reported._of_clients) :]]
        more = [column for each in more for column in np.atleast_2d(each.T)]
        columns = (*flat.T, *rows.has_data.T, *more, rows.sizes)
        _, first, times = number_rows(columns[::-1])
        order = np.lexsort([each[first] for each in columns])  # whatever the order of clients
        return rows.take(first[order]), times[order].astype(float)

    def _rounded(self) -> NDArray:
        """Reports without the digits that make (almost) no difference."""
        return self.law.rounded(self.reports)


@dataclass(frozen=True)
class ReportedMeans(Reported):
    """Reports about means ``x_i ~ N(theta_i, diag(variances[i]))``.

    Parameters
    ----------
    law, reports, has_data, sizes, centre, half :
        See `Reported`.
    variances : ndarray of shape (n, d)
        Variance of the local mean around theta.
    """

    variances: NDArray

    _of_clients: ClassVar[tuple[str, ...]] = (*Reported._of_clients, "variances")
    _of_coordinates: ClassVar[tuple[str, ...]] = (*Reported._of_coordinates, "variances")
    support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)

    def _density(self, theta: NDArray, j: int) -> NDArray:
        means = (theta - self.centre[j]) / self.half[j]
        # an error of a billionth of the range is none
        variances = np.maximum(self.variances[:, j] / self.half[j] ** 2, 1e-18)
        return self.law.average(self.reports[:, j], means, variances, self.sizes)

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-density of the reports where theta is normal, shape (n,): x is then normal too."""
        widened = replace(self, variances=self.variances + variance)
        return widened.logpdf(np.reshape(mean, (1, -1)))[:, 0]

    def nodes(self, k: int) -> NDArray:
        """Cover the range, and four errors of the local means beyond: past that all is clipped."""
        errors = np.sqrt(self.variances[self.has_data[:, 0], 0])
        reach = 4 * np.median(errors) if len(errors) else 0.0
        low, high = self.centre[0] - self.half[0] - reach, self.centre[0] + self.half[0] + reach
        fine = np.quantile(errors, 0.05) if len(errors) else 0.0
        length = high - low
        k = int(max(k, min(4 * length / max(fine, length / 500), 2000)))
        return np.linspace(low, high, k)


# Cells of the range over which the law of a report is averaged, and points in each: laws may jump.
CELLS, POINTS = 400, 8


@dataclass(frozen=True)
class ReportedNumbers(Reported):
    """Reports about values ``x_i`` whose law depends on theta and public degrees of freedom.

    The range is cut into cells. The density of a report is averaged within each, and weighed by the
    probability that the local value is there.

    Parameters
    ----------
    law, reports, has_data, sizes, centre, half :
        See `Reported`.
    degrees : ndarray of shape (n,)
    """

    degrees: NDArray

    _of_clients: ClassVar[tuple[str, ...]] = (*Reported._of_clients, "degrees")

    def _mixed(self, below: Callable[[NDArray, float], NDArray], k: int, j: int) -> NDArray:
        """Density of the reports where local values have k laws, shape (n, k).

        `below` is the distribution function of a local value on so many degrees of freedom.
        """
        density = np.ones((len(self), k))
        edges = self.centre[j] + self.half[j] * np.linspace(-1, 1, CELLS + 1)
        for degrees, clients, table in self._tables[j]:
            inside = below(edges, degrees)
            ends = np.zeros((1, inside.shape[1])), np.ones((1, inside.shape[1]))
            masses = np.diff(np.concatenate([ends[0], inside, ends[1]]), axis=0)
            # where no local value is, masses are below zero by rounding
            density[clients] = np.maximum(table @ masses, 0.0)
        return density

    @cached_property
    def _tables(self) -> list[list[tuple[float, NDArray, NDArray]]]:
        """For each coordinate: degrees, clients with them, and their reports' density by cell."""
        within = ((np.arange(POINTS) + 0.5) / POINTS)[:, None]
        inside = -1 + 2 * (np.arange(CELLS) + within) / CELLS
        ends = np.ones((POINTS, 1))  # to which values beyond are clipped
        u = np.hstack([-ends, inside, ends])
        tables = []
        for j in range(self.n_features):
            parts = []
            for degrees in np.unique(self.degrees[self.has_data[:, j]]):
                clients = np.flatnonzero(self.has_data[:, j] & (self.degrees == degrees))
                reports, sizes = self.reports[clients, j], self.sizes[clients]
                table = np.zeros((len(clients), CELLS + 2))
                for each in u:
                    table += self.law.density(reports, each, sizes) / POINTS
                parts.append((float(degrees), clients, table))
            tables.append(parts)
        return tables
