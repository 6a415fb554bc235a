"""Negative binomial messages: events whose rows scatter more than Poisson counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods.counting import POISSON, log_masses, log_peaks, log_ways
from ebfed.likelihoods.poisson import Events, ReportedEvents
from ebfed.likelihoods.reported import ReportLaw

__all__ = ["NegativeBinomial", "ReportedOverdispersed"]

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
        total = np.zeros((len(self), len(theta)))
        columns = zip(self.counts.T, self._finite.T, theta.T, strict=True)
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

    def through(
        self, law: ReportLaw, reports: NDArray, has_data: NDArray, centre: NDArray, half: NDArray
    ) -> ReportedOverdispersed:
        """Likelihood of reports about these clients' events over exposure; see `Reported`."""
        has_data = has_data & (self.exposure > 0)[:, None]
        no_rows = np.zeros(len(self), np.int64)  # no report is a count of rows
        public = self.exposure, self._finite
        return ReportedOverdispersed(law, reports, has_data, no_rows, centre, half, *public)


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
