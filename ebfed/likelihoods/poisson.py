"""Poisson messages: events with exposures, as they are or through a channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.base import Likelihood, PartsOfReports, between_scales
from ebfed.likelihoods.counting import POISSON, log_masses, log_peaks, log_ways
from ebfed.likelihoods.reported import MOST_ENTRIES, Reported, ReportedNumbers, ReportLaw

__all__ = [
    "Durations",
    "NegativeBinomial",
    "Poisson",
    "ReportedEvents",
    "ReportedOverdispersed",
    "ReportedRates",
    "negative_binomial_masses",
]

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
        for counts, rate in zip(self.counts.T, np.moveaxis(theta, -1, 0), strict=True):
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

    def _reported(self, law: ReportLaw, has_data: NDArray) -> PartsOfReports:
        public = {"exposure": self.exposure}
        return ReportedEvents, has_data & (self.exposure > 0)[:, None], public


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

    def _reported(self, law: ReportLaw, has_data: NDArray) -> PartsOfReports:
        if not law.hides:
            raise TypeError("Clip sends rates as they are: use channels.Exact.")
        number = self.counts[:, 0]
        return ReportedRates, has_data & (number > 0)[:, None], {"degrees": number}


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


# Nodes between 0 and any root, where a few clients have far more events than others.
FEWEST = 256
# Clients, of those whose rates are known more sharply, that have nodes of their own.
MOST_SHARP = 40
# Densities of reports that are held at once.
MOST_NODES = 50_000_000


@dataclass(frozen=True)
class NegativeBinomial(Events):
    """Client i's message is ``counts[i, j] ~ NB(mean M, variance M + M**2 / sizes[i, j])``.

    The mean is ``M = exposure[i] theta_i[j]``. The sum of n rows of the same exposure, each with a
    variance of ``m + dispersion m**2`` at a mean of m, has the size ``n / dispersion``.

    Parameters
    ----------
    counts : int64 ndarray of shape (n, d)
    exposure : ndarray of shape (n,)
        Exposure of each client. At 0 the message says nothing.
    sizes : ndarray of shape (n, d)

    Examples
    --------
    >>> counts = NegativeBinomial(np.array([[2]]), np.array([4.0]), np.array([[3.0]]))
    >>> counts.logpdf(np.array([[0.5]])).round(4)  # log(6 * .6**3 * .4**2)
    array([[-1.5733]])
    """

    sizes: NDArray

    _of_clients: ClassVar[tuple[str, ...]] = (*Events._of_clients, "sizes")
    _of_coordinates: ClassVar[tuple[str, ...]] = (*Events._of_coordinates, "sizes")

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-probability of the counts."""
        total = np.zeros((len(self), theta.shape[-2]))
        columns = zip(self.counts.T, self._finite.T, np.moveaxis(theta, -1, 0), strict=True)
        for counts, sizes, rate in columns:
            mean = self.exposure[:, None] * rate
            total += log_masses(counts, sizes, mean)
        return total

    @property
    def _finite(self) -> NDArray:
        return np.where(self.exposure[:, None] > 0, np.minimum(self.sizes, POISSON), 1.0)

    def log_coefficient(self) -> NDArray:
        """``sum_j log(size (size + 1) ... (size + y - 1) / y!)``, shape (n,)."""
        return log_ways(self.counts, self._finite).sum(axis=1)

    def log_peak(self) -> NDArray:
        """Log-probability of the counts at their own rates."""
        return log_peaks(self.counts, self._finite).sum(axis=1)

    def nodes(self, k: int) -> NDArray:
        """``t**2`` for even t from 0, wide enough for the noise of rows.

        Steps and ends are powers of two, so that batches of similar clients have the same nodes.
        Where a few clients have so many events that all others would share some nodes, steps are
        finer towards 0.
        """
        has_data = self.exposure > 0
        if not has_data.any():
            return np.linspace(0.0, 2.0, k + 1)[1:]
        exposure, counts = self.exposure[has_data], self.counts[has_data, 0]
        error = self._root_errors()[has_data]
        high = 2.0 ** np.ceil(np.log2((np.sqrt(counts / exposure) + 12 * error).max()))
        wanted = np.quantile(error, 0.05) / 4
        step = 2.0 ** np.floor(np.log2(min(max(high / 2000, wanted), high / k)))
        roots = np.arange(round(high / step)) * step
        while step > wanted:
            high /= 2
            finer = 2.0 ** np.floor(np.log2(max(high / FEWEST, wanted)))
            if finer < step:
                step = finer
                roots = np.append(np.arange(round(high / step)) * step, roots[roots >= high])
        # rates known more sharply than that have nodes of their own
        own = np.sqrt(counts / exposure)
        place = np.clip(np.searchsorted(roots, own), 1, len(roots) - 1)
        sharp = np.flatnonzero(error < roots[place] - roots[place - 1])
        if len(sharp) > MOST_SHARP:
            order = sharp[np.argsort(own[sharp])]
            sharp = order[np.linspace(0, len(order) - 1, MOST_SHARP).round().astype(int)]
        around = own[sharp, None] + error[sharp, None] * np.linspace(-6, 6, 25)
        roots = np.union1d(roots, around[around > 0])
        # off 0 by less than matters: no count is impossible anywhere
        return np.maximum(roots, 1e-6 * step) ** 2

    def _root_errors(self) -> NDArray:
        more = np.sqrt(1 + (self.counts[:, 0] + 1) / self._finite[:, 0])
        return more * super()._root_errors()

    def resampled(self, theta: NDArray, rng: np.random.Generator) -> NegativeBinomial:
        """Draw counts of the same exposures and sizes.

        Examples
        --------
        >>> events = NegativeBinomial(np.array([[2]]), np.array([4.0]), np.array([[3.0]]))
        >>> events.resampled(np.array([[0.0]]), np.random.default_rng(0)).counts
        array([[0]])
        """
        mean = rng.gamma(self._finite, self.exposure[:, None] * theta / self._finite)
        return NegativeBinomial(rng.poisson(mean), self.exposure, self.sizes)

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-probability of the counts where theta is gamma with these moments, shape (n,)."""
        columns = [self.column(j) for j in range(self.n_features)]
        moments = zip(columns, mean, variance, strict=True)
        return sum(
            (each.gamma_marginal(one, spread / one**2) for each, one, spread in moments),
            np.zeros(len(self)),
        )

    def gamma_marginal(
        self, mean: float, dispersion: float, integrals: NDArray | None = None
    ) -> NDArray:
        """Log-probability of counts of one coordinate where theta is gamma, shape (n,).

        Parameters
        ----------
        mean, dispersion : float
            Mean of theta, and its variance over the squared mean.
        integrals : ndarray of shape (n, 6), optional
            What `gamma_integrals` returns; computed if None.
        """
        from scipy.special import gammaln

        if not dispersion > 0:
            return self.logpdf(np.array([[mean]]))[:, 0]
        shape = 1 / dispersion
        if shape < 1e3:
            scale = shape * np.log(shape) - shape - gammaln(shape)
        else:  # Stirling's series: the terms above would cancel
            scale = 0.5 * np.log(shape / (2 * np.pi)) - 1 / (12 * shape) + 1 / (360 * shape**3)
        if integrals is None:
            integrals = self.gamma_integrals(mean, dispersion)
        return self.log_peak() + integrals[:, 0] + scale

    def gamma_integrals(self, mean: float, dispersion: float, finest: float = 0.5) -> NDArray:
        """Integrals over theta of `kernels.negative_binomial_gamma`, shape (n, 6)."""
        from ebfed.kernels import negative_binomial_gamma

        sizes = self._finite[:, 0]
        ratios = self.exposure * mean / sizes
        counts = self.counts[:, 0].astype(float)
        return negative_binomial_gamma(counts, ratios, sizes, 1 / dispersion, finest)

    def sampling_variance(self, mean: float, variance: float) -> NDArray:
        """``E theta / exposure + E theta**2 / size``."""
        return mean / self.exposure + (mean**2 + variance) / self._finite[:, 0]

    def _reported(self, law: ReportLaw, has_data: NDArray) -> PartsOfReports:
        public = {"exposure": self.exposure, "scatter": self._finite}
        return ReportedOverdispersed, has_data & (self.exposure > 0)[:, None], public


@dataclass(frozen=True)
class ReportedOverdispersed(ReportedEvents):
    """Reports about rates x_i, where ``exposure_i x_i`` is as of `NegativeBinomial`.

    Parameters
    ----------
    law, reports, has_data, sizes, centre, half, exposure :
        See `ReportedEvents`.
    scatter : ndarray of shape (n, d)
        Sizes of the negative binomial counts.
    """

    scatter: NDArray

    _of_clients: ClassVar[tuple[str, ...]] = (*ReportedEvents._of_clients, "scatter")
    _of_coordinates: ClassVar[tuple[str, ...]] = (*ReportedEvents._of_coordinates, "scatter")

    def _masses(self, theta: NDArray, j: int, y: NDArray, owner: NDArray, last: NDArray) -> NDArray:
        """Probability of counts, as of `ReportedEvents`."""
        from scipy.special import betainc, xlogy

        size = self.scatter[owner, j]
        ratio = (self.exposure[owner] / size)[:, None] * theta
        base, many = log_ways(y, size), (y + size)[:, None]
        below = np.exp(base[:, None] + xlogy(y[:, None], ratio) - many * np.log1p(ratio))
        share = ratio[last] / (1 + ratio[last])
        below[last] = betainc(y[last][:, None], size[last][:, None], share)
        return below

    def _averaged(self, j: int, mean: float, variance: float) -> NDArray:
        """Average of the density of reports over a gamma.

        Between nodes, some ten of them within the error of a rate, densities of reports are
        straight lines in theta, of which the gamma has averages in closed form.
        """
        nodes, density = self._on_grid[j]
        return density @ gamma_weights(nodes, mean, variance)

    @cached_property
    def _on_grid(self) -> list[tuple[NDArray, NDArray]]:
        """Nodes of each coordinate, and the density of the reports there."""
        tables = []
        for j in range(self.n_features):
            one = self.column(j)
            nodes = one.nodes(400)
            fine = min(4 * len(nodes), 3000, max(400, MOST_NODES // max(len(self), 1)))
            roots = np.linspace(np.sqrt(nodes[0]), np.sqrt(nodes[-1]), fine)
            tables.append((roots**2, one._density(roots**2, 0)))
        return tables

    def _errors(self, rate: float) -> NDArray:
        return super()._errors(rate) * np.sqrt(1 + self.exposure * rate / self.scatter[:, 0])


def gamma_weights(nodes: NDArray, mean: float, variance: float) -> NDArray:
    """Weights of the nodes in the average of a function over a gamma distribution, shape (k,).

    The function is a straight line between nodes, and constant beyond them.

    Examples
    --------
    >>> nodes = np.linspace(0.0, 40.0, 400)
    >>> weights = gamma_weights(nodes, 2.0, 3.0)
    >>> weights.sum().round(9), (weights @ nodes).round(9), (weights @ nodes**2).round(2)
    (np.float64(1.0), np.float64(2.0), np.float64(7.0))
    """
    from scipy.special import gammainc

    if not variance > 1e-14 * mean**2:
        at = np.clip(mean, nodes[0], nodes[-1])
        right = np.clip(np.searchsorted(nodes, at), 1, len(nodes) - 1)
        share = (at - nodes[right - 1]) / (nodes[right] - nodes[right - 1])
        weights = np.zeros(len(nodes))
        weights[right - 1], weights[right] = 1 - share, share
        return weights
    shape = mean**2 / variance
    below = gammainc(shape, shape * nodes / mean)
    masses, widths = np.diff(below), np.diff(nodes)
    sums = mean * np.diff(gammainc(shape + 1, shape * nodes / mean))
    right = np.clip((sums - nodes[:-1] * masses) / widths, 0.0, masses)
    weights = np.append(masses - right, 1 - below[-1])
    weights[1:] += right
    weights[0] += below[0]
    return weights
