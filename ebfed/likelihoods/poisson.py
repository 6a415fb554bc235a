"""Poisson messages: events with exposures, as they are or through a channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.base import Likelihood, between_scales
from ebfed.likelihoods.counting import POISSON, log_masses, log_peaks
from ebfed.likelihoods.reported import MOST_ENTRIES, Reported, ReportedNumbers, ReportLaw

__all__ = ["Durations", "Poisson", "ReportedEvents", "ReportedRates", "negative_binomial_masses"]

# Clients whose reports are computed side by side; each costs the tables of all others in its block.
BLOCK = 16


@dataclass(frozen=True)
class Events(Likelihood):
    """Counts of events in exposures, whose mean is ``exposure[i] theta_i[j]``.

    Parameters
    ----------
    counts : int64 ndarray of shape (n, d)
    exposure : ndarray of shape (n,)
        Exposure of each client. At 0 the message says nothing.
    """

    counts: NDArray
    exposure: NDArray

    support: ClassVar[tuple[float, float]] = (0.0, np.inf)
    _of_clients: ClassVar[tuple[str, ...]] = ("counts", "exposure")
    _of_coordinates: ClassVar[tuple[str, ...]] = ("counts",)
    numbered = Likelihood._numbered

    @property
    def _columns_of_messages(self) -> list[NDArray]:
        more = [getattr(self, name) for name in self._of_clients[2:]]
        return [self.exposure, *(column for each in more for column in each.T), *self.counts.T]

    @property
    def local(self) -> NDArray:
        """Events over exposure; NaN without exposure."""
        return self.counts / np.where(self.exposure > 0, self.exposure, np.nan)[:, None]

    def search(self, k: int) -> NDArray:
        """Nodes, and values about half an error apart, in ``sqrt(theta)``."""
        nodes, seen = self.nodes(k), self.exposure > 0
        at, errors = np.sqrt(self.local[seen, 0]), self._root_errors()[seen]
        return np.union1d(nodes, between_scales(np.sqrt(nodes), at, errors) ** 2)

    def _root_errors(self) -> NDArray:
        """Standard error of the root of each client's rate, about, shape (n,)."""
        with np.errstate(divide="ignore"):
            return 0.5 / np.sqrt(self.exposure)

    def feasible(self, mean: float, variance: float) -> tuple[float, float]:
        """Keep the mean off 0."""
        return max(mean, 0.05 * float(np.sqrt(variance))), variance


@dataclass(frozen=True)
class Poisson(Events):
    """Client i's message is ``counts[i, j] ~ Poisson(exposure[i] theta_i[j])`` for each j.

    Parameters
    ----------
    counts : int64 ndarray of shape (n, d)
    exposure : ndarray of shape (n,)
        Exposure of each client. At 0 the message says nothing.

    Examples
    --------
    >>> Poisson(np.array([[2]]), np.array([4.0])).logpdf(np.array([[0.0], [0.5]]))
    array([[   -inf, -1.3069]])
    """

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-probability of the counts: that at their own rates, and how much less it is."""
        from scipy.special import xlogy

        total = self.log_peak()[:, None]
        exposure = self.exposure[:, None]
        for counts, rate in zip(self.counts.T, theta.T, strict=True):
            y, each = counts[:, None], np.maximum(counts, 1)[:, None]
            total = total + xlogy(y, exposure / each * rate) + (y - exposure * rate)
        return total

    def log_coefficient(self) -> NDArray:
        """``sum_j (y_j log E - log y_j!)``, shape (n,): the part without theta."""
        from scipy.special import gammaln, xlogy

        return (xlogy(self.counts, self.exposure[:, None]) - gammaln(self.counts + 1.0)).sum(axis=1)

    def log_peak(self) -> NDArray:
        """Log-probability of the counts at their own rates."""
        return log_peaks(self.counts, np.full(self.counts.shape, POISSON)).sum(axis=1)

    def nodes(self, k: int) -> NDArray:
        """``t**2`` for even t: a count is about equally informative everywhere on that scale."""
        has_data = self.exposure > 0
        if not has_data.any():
            return np.linspace(0.0, 2.0, k + 1)[1:]
        exposure, counts = self.exposure[has_data], self.counts[has_data, 0]
        error = 0.5 / np.sqrt(exposure)  # of the root of a rate
        root = np.sqrt(counts / exposure)
        low, high = np.maximum(root - 8 * error, 0.0).min(), (root + 8 * error).max()
        k = int(max(k, min(4 * (high - low) / np.quantile(error, 0.05), 2000)))
        even = np.linspace(low, high, k) ** 2
        # rates known more sharply than the grid are nodes themselves
        sharp = (counts / exposure)[error < 2 * (high - low) / k]
        if len(sharp) > 1000:
            sharp = np.quantile(sharp, np.linspace(0, 1, 1000), method="nearest")
        # off 0 by less than matters: no count is impossible anywhere
        return np.unique(np.maximum(np.append(even, sharp), 1e-12 * high**2))

    def resampled(self, theta: NDArray, rng: np.random.Generator) -> Poisson:
        """Draw counts of the same exposures.

        Examples
        --------
        >>> events = Poisson(np.array([[2], [0]]), np.array([4.0, 0.0]))
        >>> events.resampled(np.array([[0.0], [1.0]]), np.random.default_rng(0)).counts
        array([[0],
               [0]])
        """
        return Poisson(rng.poisson(self.exposure[:, None] * theta), self.exposure)

    def combine(self, weights: NDArray) -> NDArray:
        """Weighted events over weighted exposure."""
        total = weights.T @ self.exposure
        return weights.T @ self.counts.astype(float) / np.where(total > 0, total, 1)[:, None]

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-probability of the counts where theta is gamma with these moments, shape (n,)."""
        total = np.zeros(len(self))
        for counts, *moments in zip(self.counts.T, mean.T, variance.T, strict=True):
            total += _log_masses(counts, self.exposure, *moments)
        return total

    def marginals(self, means: NDArray, variances: NDArray) -> NDArray:
        """Log-probabilities of the counts under k gamma populations, shape (n, k)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shapes = np.minimum(means**2 / variances, POISSON)
        if self.n_features > 1 or not np.ptp(shapes) <= 1e-12 * np.max(shapes, initial=0.0):
            return super().marginals(means, variances)
        sizes = np.full(len(self), float(shapes[0, 0]))
        return log_masses(self.counts[:, 0], sizes, self.exposure[:, None] * means[:, 0])

    def sampling_variance(self, mean: float, variance: float) -> NDArray:
        """``E theta / exposure``."""
        return mean / self.exposure

    def through(
        self, law: ReportLaw, reports: NDArray, has_data: NDArray, centre: NDArray, half: NDArray
    ) -> ReportedEvents:
        """Likelihood of reports about these clients' events over exposure; see `Reported`."""
        has_data = has_data & (self.exposure > 0)[:, None]
        sizes = np.zeros(len(self), np.int64)  # no report is a count of rows
        return ReportedEvents(law, reports, has_data, sizes, centre, half, self.exposure)


@dataclass(frozen=True)
class ReportedEvents(Reported):
    """Reports about rates: x_i with ``exposure_i x_i ~ Poisson(exposure_i theta_i)``.

    Rates beyond the range are clipped to its end, so that the sum over counts is finite: all counts
    from the end of the range on are one outcome.

    Parameters
    ----------
    law, reports, has_data, sizes, centre, half :
        See `Reported`.
    exposure : ndarray of shape (n,)
    """

    exposure: NDArray

    _of_clients: ClassVar[tuple[str, ...]] = (*Reported._of_clients, "exposure")
    support: ClassVar[tuple[float, float]] = (0.0, np.inf)

    def _density(self, theta: NDArray, j: int) -> NDArray:
        return self._mixed(partial(self._masses, theta, j), len(theta), j)

    def _masses(self, theta: NDArray, j: int, y: NDArray, owner: NDArray, last: NDArray) -> NDArray:
        """Probability of counts of these clients at k rates, shape (n, k); of `last`, of more too.

        All counts of a client, from 0 on, are given one after another.
        """
        from scipy.special import gammainc, gammaln, xlogy

        mean = self.exposure[owner][:, None] * theta
        below = np.exp(xlogy(y[:, None], mean) - mean - gammaln(y + 1.0)[:, None])
        below[last] = gammainc(y[last][:, None], mean[last])
        return below

    def _averaged(self, j: int, mean: float, variance: float) -> NDArray:
        def masses(y: NDArray, owner: NDArray, last: NDArray) -> NDArray:
            exposure = self.exposure[owner]
            below = negative_binomial_masses(y, exposure, mean, variance)
            below[last] = _upper_masses(y[last], exposure[last], mean, variance)
            return below[:, None]

        return self._mixed(masses, 1, j)[:, 0]

    def _mixed(self, masses: Callable[..., NDArray], k: int, j: int) -> NDArray:
        """Density of the reports where counts have k laws: shape (n, k)."""
        density = np.ones((len(self), k))
        clients, starts, y, table = self._tables[j]
        step = max(1, 2_000_000 // max(k, 1))
        first = 0
        while first < len(clients):  # some clients at a time, to bound memory
            stop = int(np.searchsorted(starts, starts[first] + step, side="right")) - 1
            stop = min(max(stop, first + 1), len(clients))
            part = slice(int(starts[first]), int(starts[stop]))
            local = starts[first:stop] - starts[first]
            last = np.zeros(part.stop - part.start, bool)
            last[np.append(local[1:], len(last)) - 1] = True
            owner = np.repeat(clients[first:stop], np.diff(np.append(local, len(last))))
            joint = masses(y[part], owner, last)
            joint *= table[part][:, None]
            density[clients[first:stop]] = np.add.reduceat(joint, local, axis=0)
            first = stop
        return density

    @cached_property
    def _tables(self) -> list[tuple[NDArray, NDArray, NDArray, NDArray]]:
        """For each coordinate: clients, start of their part, counts, and report's density."""
        tables = []
        for j in range(self.n_features):
            clients = np.flatnonzero(self.has_data[:, j])
            clients = clients[np.argsort(self.exposure[clients], kind="stable")]
            exposure = self.exposure[clients]
            highest = max(self.centre[j] + self.half[j], 0.0)
            most = np.maximum(np.ceil(exposure * highest * (1 - 1e-12)), 1.0)
            if most.sum() > MOST_ENTRIES / 4:
                raise ValueError(
                    f"reports on rates up to {highest:g} with {len(clients):,} exposures up to "
                    f"{exposure.max():g} are more than the exact likelihood can hold; with so many "
                    "events rates are nearly Gaussian: use GaussianEB."
                )
            length = most.astype(np.int64) + 1
            starts = np.concatenate(([0], np.cumsum(length)))
            owner = np.repeat(np.arange(len(clients)), length)
            y = np.arange(starts[-1]) - starts[owner]
            u = (y / exposure[owner] - self.centre[j]) / self.half[j]
            table = np.empty(len(y))
            for first in range(0, len(clients), BLOCK):
                block = clients[first : first + BLOCK]
                part = slice(starts[first], starts[first + len(block)])
                # the last count stands for all beyond the range, which are clipped to its end
                both = self.law.density(self.reports[block, j], u[part], self.sizes[block])
                table[part] = both[owner[part] - first, np.arange(part.stop - part.start)]
            tables.append((clients, starts, y, table))
        return tables

    def nodes(self, k: int) -> NDArray:
        """``t**2`` for even t, to the end of the range and four errors beyond."""
        high = max(self.centre[0] + self.half[0], 0.0)
        errors = self._errors(high)[self.has_data[:, 0]]
        error = float(np.median(errors)) if len(errors) else 0.0
        top = np.sqrt(high) + 4 * error
        sharp = float(np.quantile(errors, 0.05)) if len(errors) else top
        k = int(max(k, min(4 * top / sharp, 2000)))
        return np.linspace(1e-6 * top, top, k) ** 2

    def _errors(self, rate: float) -> NDArray:
        """Standard error of the root of each client's rate, about, where that is so large."""
        with np.errstate(divide="ignore"):
            return 0.5 / np.sqrt(self.exposure)


def negative_binomial_masses(
    y: NDArray, exposure: NDArray, mean: float, variance: float
) -> NDArray:
    """Probability of y events where the rate is gamma with these moments, shape (n,).

    With ``a = mean**2 / variance`` and ``M = exposure * mean`` it is ``Gamma(a + y) / (Gamma(a) y!)
    (a / (a + M))**a (M / (a + M))**y``; Poisson at a variance of zero.

    Examples
    --------
    >>> negative_binomial_masses(np.arange(3), np.ones(3), 1.0, 1.0)  # geometric
    array([0.5  , 0.25 , 0.125])
    """
    return np.exp(_log_masses(y, exposure, mean, variance))


def _log_masses(
    y: NDArray, exposure: NDArray, mean: float | NDArray, variance: float | NDArray
) -> NDArray:
    """Logarithms of `negative_binomial_masses`, which may be below the least number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shape = np.where(np.asarray(variance) > 0, np.square(mean) / variance, POISSON)
    sizes = np.broadcast_to(np.minimum(shape, POISSON), y.shape)
    return log_masses(y, sizes, (exposure * mean)[:, None])[:, 0]


def _upper_masses(y: NDArray, exposure: NDArray, mean: float, variance: float) -> NDArray:
    """Probability of at least y >= 1 events where the rate is gamma with these moments."""
    from scipy.special import betainc, gammainc

    expected = exposure * mean
    shape = mean**2 / variance if variance > 0 else np.inf
    if not shape < 1e12:
        return gammainc(y, expected)
    return betainc(y, shape, expected / (expected + shape))


@dataclass(frozen=True)
class Durations(Poisson):
    """Client i's message is a total time ``exposure[i] ~ Gamma(counts[i], rate theta_i)``.

    That is the sum of ``counts[i]`` exponential durations. Its likelihood is that of a Poisson
    number of events in this time; draws and reports are of the time, as the number is public.

    Examples
    --------
    >>> messages = Durations(np.array([[2], [1]]), np.array([4.0, 0.5]))
    >>> messages.local.ravel()
    array([0.5, 2. ])
    """

    def resampled(self, theta: NDArray, rng: np.random.Generator) -> Durations:
        """Draw total times of the same numbers of durations.

        Examples
        --------
        >>> events = Durations(np.array([[10**6], [0]]), np.ones(2))
        >>> again = events.resampled(np.array([[2.0], [1.0]]), np.random.default_rng(0))
        >>> again.local.ravel().round(1)
        array([ 2., nan])
        """
        number = self.counts[:, 0]
        time = rng.standard_gamma(np.maximum(number, 1)) / theta[:, 0]
        return Durations(self.counts, np.where(number > 0, time, 0.0))

    def sampling_variance(self, mean: float, variance: float) -> NDArray:
        """``E theta**2 / n``, of many durations."""
        with np.errstate(divide="ignore"):
            return (mean**2 + variance) / self.counts[:, 0]

    def through(  # type: ignore[override]
        self, law: ReportLaw, reports: NDArray, has_data: NDArray, centre: NDArray, half: NDArray
    ) -> ReportedRates:
        """Likelihood of reports about these clients' rates ``counts / exposure``.

        Raises
        ------
        TypeError
            If reports are the values themselves.
        """
        if not law.hides:
            raise TypeError("Clip sends rates as they are: use channels.Exact.")
        number = self.counts[:, 0]
        has_data = has_data & (number > 0)[:, None]
        sizes = np.zeros(len(self), np.int64)  # no report is a count of rows
        return ReportedRates(law, reports, has_data, sizes, centre, half, number)


@dataclass(frozen=True)
class ReportedRates(ReportedNumbers):
    """Reports about rates ``x_i = n_i / T_i``, with ``theta_i T_i ~ Gamma(n_i, 1)``.

    Parameters
    ----------
    law, reports, has_data, sizes, centre, half :
        See `Reported`.
    degrees : int64 ndarray of shape (n,)
        Numbers ``n_i`` of durations, which are public.
    """

    support: ClassVar[tuple[float, float]] = (0.0, np.inf)

    def _density(self, theta: NDArray, j: int) -> NDArray:
        from scipy.special import gammaincc

        def below(edges: NDArray, number: float) -> NDArray:
            rate = np.maximum(edges, 0.0)[:, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                time = np.where(rate > 0, number * theta / rate, np.inf)
            return gammaincc(number, time)

        return self._mixed(below, len(theta), j)

    def _averaged(self, j: int, mean: float, variance: float) -> NDArray:
        """Average of the density of reports over a gamma of shape a.

        ``T theta`` over ``theta`` in units of its mean is a ratio of gammas: ``P(T mean <= t)`` is
        the regularised incomplete beta function of ``t / (a + t)``.
        """
        from scipy.special import betainc

        a = mean**2 / variance if variance > 0 else np.inf
        if not a < 1e12:
            return self._density(np.array([mean]), j)[:, 0]

        def below(edges: NDArray, number: float) -> NDArray:
            at = np.maximum(edges, 0.0)
            share = a * at / (a * at + number * mean)  # one less the argument for T
            return betainc(a, number, share)[:, None]

        return self._mixed(below, 1, j)[:, 0]

    def nodes(self, k: int) -> NDArray:
        """``t**2`` for even t, to the end of the range and some errors beyond."""
        high = max(float(self.centre[0] + self.half[0]), 0.0)
        number = self.degrees[self.has_data[:, 0]]
        relative = 1 / np.sqrt(number) if len(number) else np.ones(1)  # error of a rate
        top = np.sqrt(high * (1 + 4 * float(np.median(relative))))
        fine = max(float(np.quantile(relative, 0.05)) * np.sqrt(high) / 2, top / 500)
        k = int(max(k, min(4 * top / fine, 2000)))
        return np.linspace(1e-6 * top, top, k) ** 2
