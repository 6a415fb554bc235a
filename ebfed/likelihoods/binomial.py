"""Binomial messages: successes out of trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.kernels import rising_sums
from ebfed.likelihoods.base import Likelihood, PartsOfReports, between_scales
from ebfed.likelihoods.distinct import number_rows
from ebfed.likelihoods.reported import MOST_ENTRIES, MOST_ROWS, Reported, ReportLaw

__all__ = ["Binomial", "ReportedCounts", "beta_binomial_masses", "log_rising"]

# Logarithms that are added up one by one.
MOST_LOGS = 1000
# Probabilities of counts that are in memory at a time.
MOST_MASSES = 2_000_000


@dataclass(frozen=True)
class Binomial(Likelihood):
    """Client i's message is ``successes[i, j] ~ Binomial(trials[i], theta_i[j])`` for each j.

    Parameters
    ----------
    successes : int64 ndarray of shape (n, d)
    trials : int64 ndarray of shape (n,)

    Examples
    --------
    >>> Binomial(np.array([[1]]), np.array([2])).logpdf(np.array([[0.0], [0.5]]))
    array([[   -inf, -0.6931]])
    """

    successes: NDArray
    trials: NDArray

    support: ClassVar[tuple[float, float]] = (0.0, 1.0)
    counts_rows: ClassVar[bool] = True
    _of_clients = ("successes", "trials")
    _of_coordinates = ("successes",)
    numbered = Likelihood._numbered

    @property
    def row_counts(self) -> int:  # type: ignore[override]
        """Trials of the first client."""
        return int(self.trials[0])

    def logpdf(self, theta: NDArray) -> NDArray:
        """Log-probability of the counts, binomial coefficients included."""
        from scipy.special import xlog1py, xlogy

        total = self.log_coefficient()[:, None]
        for successes, rate in zip(self.successes.T, np.moveaxis(theta, -1, 0), strict=True):
            failures = self.trials - successes
            total = total + xlogy(successes[:, None], rate) + xlog1py(failures[:, None], -rate)
        return total

    def log_coefficient(self) -> NDArray:
        """``log C(n_i, z_i)``, shape (n,): the log-number of orders of the rows of a count."""
        from scipy.special import gammaln

        failures = self.trials[:, None] - self.successes
        coefficients = gammaln(self.successes + 1) + gammaln(failures + 1)
        return self.n_features * gammaln(self.trials + 1) - coefficients.sum(axis=1)

    def log_peak(self) -> NDArray:
        """Log-probability of the counts at their own proportions."""
        from scipy.special import xlog1py, xlogy

        rate, trials = np.nan_to_num(self.local), self.trials[:, None]
        terms = xlogy(self.successes, rate) + xlog1py(trials - self.successes, -rate)
        return self.log_coefficient() + terms.sum(axis=1)

    @property
    def _columns_of_messages(self) -> list[NDArray]:
        return [self.trials, *self.successes.T]

    @property
    def local(self) -> NDArray:
        """Proportions; NaN without trials."""
        return self.successes / np.where(self.trials > 0, self.trials, np.nan)[:, None]

    def nodes(self, k: int) -> NDArray:
        """``sin(t)**2`` for even t: a count is equally informative everywhere on that scale."""
        k = int(max(k, min(4 * np.sqrt(np.max(self.trials, initial=0)) * np.pi, 2000)))
        even = np.sin(np.linspace(0, np.pi / 2, k)) ** 2
        # proportions known more sharply than the grid are nodes themselves
        sharp = self.local[self.trials > (k / np.pi) ** 2, 0]
        if len(sharp) > 1000:
            sharp = np.quantile(sharp, np.linspace(0, 1, 1000), method="nearest")
        # off 0 and 1 by less than matters: no count is impossible anywhere
        return np.unique(np.clip(np.append(even, sharp), 1e-12, 1 - 1e-12))

    def mirrored(self) -> tuple[Self, float]:
        """Count failures."""
        return type(self)(self.trials[:, None] - self.successes, self.trials), 1.0

    def search(self, k: int) -> NDArray:
        """Nodes, and values about half an error apart, in ``arcsin(sqrt(theta))``."""
        nodes, tried = self.nodes(k), self.trials > 0
        angles, at = np.arcsin(np.sqrt(nodes)), np.arcsin(np.sqrt(self.local[tried, 0]))
        more = between_scales(angles, at, 0.5 / np.sqrt(self.trials[tried]))
        return np.union1d(nodes, np.sin(more) ** 2)

    def resampled(self, theta: NDArray, rng: np.random.Generator) -> Binomial:
        """Draw counts of as many trials.

        Examples
        --------
        >>> counts = Binomial(np.array([[1], [0]]), np.array([3, 0]))
        >>> counts.resampled(np.array([[1.0], [1.0]]), np.random.default_rng(0)).successes
        array([[3],
               [0]])
        """
        return Binomial(rng.binomial(self.trials[:, None], theta), self.trials)

    def combine(self, weights: NDArray) -> NDArray:
        """Weighted successes over weighted trials."""
        total = weights.T @ self.trials.astype(float)
        return weights.T @ self.successes.astype(float) / np.where(total > 0, total, 1)[:, None]

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-probability of the counts where theta is beta with these moments, shape (n,)."""
        total = self.log_coefficient()
        for z, centre, spread in zip(self.successes.T, mean.T, variance.T, strict=True):
            step = float(np.max(overdispersion_of(centre, spread), initial=0.0))
            total += log_rising(centre, z, step) + log_rising(1 - centre, self.trials - z, step)
            total -= log_rising(1.0, self.trials, step)
        return total

    def marginals(self, means: NDArray, variances: NDArray) -> NDArray:
        """Log-probabilities of the counts under k beta populations, shape (n, k)."""
        most = int(self.trials.max(initial=0))
        if self.n_features > 1 or most > MOST_LOGS:
            return super().marginals(means, variances)
        centres, z = means[:, 0], self.successes[:, 0]
        steps = overdispersion_of(centres, variances[:, 0])
        starts = centres, 1 - centres, np.ones(len(centres))
        up, down, both = (log_risings(start, most, steps) for start in starts)
        found = up[z] + down[self.trials - z] - both[self.trials]
        return found + self.log_coefficient()[:, None]

    def sampling_variance(self, mean: float, variance: float) -> NDArray:
        """``E theta (1 - theta) / n``."""
        return (mean * (1 - mean) - variance) / np.maximum(self.trials.astype(float), 1.0)

    def feasible(self, mean: float, variance: float) -> tuple[float, float]:
        """Keep the mean off 0 and 1, and the variance below half of what the mean allows."""
        mean = float(np.clip(mean, 0.02, 0.98))
        return mean, min(variance, 0.5 * mean * (1 - mean))

    def _reported(self, law: ReportLaw, has_data: NDArray) -> PartsOfReports:
        return ReportedCounts, has_data & (self.trials > 0)[:, None], {"sizes": self.trials}


@dataclass(frozen=True)
class ReportedCounts(Reported):
    """Reports about proportions: x_i with ``sizes_i x_i ~ Binomial(sizes_i, theta_i)``.

    Parameters
    ----------
    law, reports, has_data, sizes, centre, half :
        See `Reported`.
    """

    support: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def _density(self, theta: NDArray, j: int) -> NDArray:
        from scipy.special import xlog1py, xlogy

        def masses(z: NDArray, trials: NDArray, part: slice) -> NDArray:
            return xlogy(z, theta[part]) + xlog1py(trials - z, -theta[part])

        return self._mixed(masses, len(theta), j)

    def marginal(self, mean: NDArray, variance: NDArray) -> NDArray:
        """Log-density of the reports where theta is beta with these moments, shape (n,)."""
        return self.marginals(mean[None], variance[None])[:, 0]

    def marginals(self, means: NDArray, variances: NDArray) -> NDArray:
        moments = enumerate(zip(means.T, variances.T, strict=True))
        return self._log(self._over_betas(j, *each) for j, each in moments)

    def _over_betas(self, j: int, mean: NDArray, variance: NDArray) -> NDArray:
        """Density of the reports on coordinate j under k beta populations, shape (n, k)."""
        step = overdispersion_of(mean, variance)

        def masses(z: NDArray, trials: NDArray, part: slice) -> NDArray:
            up, down, both = (
                log_risings(start, np.max(trials, initial=0), step[part])
                for start in (mean[part], 1 - mean[part], np.ones(len(mean[part])))
            )
            return up[z[:, 0]] + down[(trials - z)[:, 0]] - both[trials[:, 0]]

        return self._mixed(masses, len(mean), j)

    def _mixed(
        self, log_masses: Callable[[NDArray, NDArray, slice], NDArray], k: int, j: int
    ) -> NDArray:
        """Density of the reports where counts have k laws: shape (n, k).

        ``log_masses(z, trials, part)`` are the logarithms of some of these laws, without binomial
        coefficients, shape (len(z), :); z and trials have shape (:, 1).
        """
        density = np.ones((len(self), k))
        for block in self._blocks:
            one = len(self._blocks) == 1
            z, trials, log_coefficient = (
                self._counts if one else _possible_counts(self._trials[block])
            )
            ends = np.cumsum(self._trials[block] + 1)
            own = [
                slice(end - n - 1, end) for n, end in zip(self._trials[block], ends, strict=True)
            ]
            step = max(1, MOST_MASSES // max(1, len(z)))
            for start in range(0, k, step):  # some laws at a time, to bound memory
                part = slice(start, start + step)
                masses = np.exp(log_coefficient + log_masses(z, trials, part))
                for (at, table), cells in zip(self._tables[j][block], own, strict=True):
                    density[at, part] = table @ masses[cells]
        return density

    @cached_property
    def _trials(self) -> NDArray:
        """Different numbers of trials."""
        return np.unique(self.sizes)

    @cached_property
    def _blocks(self) -> list[slice]:
        """Numbers of trials whose counts are in memory at a time, by their place."""
        place = np.cumsum(self._trials + 1) // MOST_MASSES
        edges = np.flatnonzero(np.diff(place)) + 1
        return [slice(*pair) for pair in pairwise([0, *edges.tolist(), len(place)])]

    @cached_property
    def _counts(self) -> tuple[NDArray, NDArray, NDArray]:
        """Possible counts, where there is one block."""
        return _possible_counts(self._trials)

    @cached_property
    def _tables(self) -> list[list[tuple[NDArray, NDArray]]]:
        """For each coordinate and number of trials: its clients, density at every count."""
        tables: list[list[tuple[NDArray, NDArray]]] = []
        for j in range(self.n_features):
            tables.append([])
            for trials in self._trials:
                at = np.flatnonzero(self.sizes == trials)
                if len(at) * (trials + 1.0) > MOST_ENTRIES:
                    raise ValueError(
                        f"{len(at):,} different reports about {trials:,} rows each are more than "
                        "the exact likelihood can hold; with so many rows, proportions are nearly "
                        "Gaussian: use GaussianEB."
                    )
                rates = np.arange(trials + 1) / max(trials, 1)
                u = (rates - self.centre[j]) / self.half[j]
                density = self.law.density(self.reports[at, j], u, self.sizes[at])
                tables[j].append((at, density))
        return tables

    def _rounded(self) -> NDArray:
        """Give one report to all that are as probable at every count, if these are few enough."""
        reports = self.reports.copy()
        for j in range(self.n_features):
            # of symbols there are few, whose law is computed once
            symbols = reports[:, j].reshape(len(self), -1).T if reports.dtype.kind != "f" else None
            numbers = None if symbols is None else number_rows([self.sizes, *symbols])
            own = self.column(j) if numbers is None else self.column(j).take(numbers[1])
            rounded = own._merged_exactly()
            if rounded is None:
                return super()._rounded()
            reports[:, j] = rounded if numbers is None else rounded[numbers[0]]
        return reports

    def _merged_exactly(self) -> NDArray | None:
        """Reports of one coordinate, as `_rounded` gives them; None if it cannot."""
        if len(self) * (self.sizes.max() + 1.0) > MOST_ENTRIES / 4:
            return None
        reports, n_classes = self.reports[:, 0].copy(), 0
        for at, table in self._tables[0]:
            codes, first, _ = number_rows([*table.T])
            least = self.reports[at[first], 0]
            np.minimum.at(least, codes, self.reports[at, 0])
            reports[at] = least[codes]
            n_classes += len(first)
        return None if n_classes > MOST_ROWS else reports

    def nodes(self, k: int) -> NDArray:
        """``sin(t)**2`` for even t, as for counts."""
        k = int(max(k, min(4 * np.sqrt(np.max(self.sizes, initial=0)) * np.pi, 2000)))
        return np.clip(np.sin(np.linspace(0, np.pi / 2, k)) ** 2, 1e-12, 1 - 1e-12)


def _possible_counts(trials: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Counts 0, ..., n of each n one after another, the n, and the coefficients: (:, 1) each."""
    from scipy.special import gammaln

    n = np.repeat(trials, trials + 1)[:, None]
    z = np.concatenate([np.arange(0), *(np.arange(each + 1) for each in trials)])[:, None]
    return z, n, gammaln(n + 1) - gammaln(z + 1) - gammaln(n - z + 1)


def log_rising(start: float | NDArray, counts: NDArray, step: float) -> NDArray:
    """``sum_{j < counts[i]} log(start + j * step)``, shape (n,), in bounded time each.

    Starts are one for all, or each count's own.

    Examples
    --------
    >>> np.exp(log_rising(1.0, np.array([0, 1, 2, 3]), 1.0))  # factorials
    array([1., 1., 2., 6.])
    """
    if np.ndim(start):
        starts, counts = np.ascontiguousarray(start), np.ascontiguousarray(counts)
        return rising_sums(starts, counts, step)[:, 0]
    few = min(int(np.max(counts, initial=0)), MOST_LOGS)
    with np.errstate(divide="ignore"):
        logs = np.log(start + np.arange(few) * step)
    sums = np.concatenate(([0.0], np.cumsum(logs)))
    total = sums[np.minimum(counts, few)]
    many = np.flatnonzero(counts > few)
    if len(many) and np.isfinite(sums[-1]):
        starts = np.full(len(many), start + few * step)
        total[many] += rising_sums(starts, counts[many] - few, step)[:, 0]
    return total


def log_risings(starts: NDArray, most: int, steps: NDArray) -> NDArray:
    """``sum_{j < y} log(starts[k] + j * steps[k])`` for y = 0, ..., most, shape (most + 1, k)."""
    with np.errstate(divide="ignore"):
        logs = np.log(starts + np.arange(most)[:, None] * steps)
    return np.concatenate([np.zeros((1, len(starts))), np.cumsum(logs, axis=0)])


def overdispersion_of(mean: NDArray | float, variance: NDArray | float) -> NDArray:
    """``1 / (alpha + beta)`` of the beta distribution with these moments; 0 at a variance of 0.

    Examples
    --------
    >>> overdispersion_of(0.5, np.array([1 / 12, 0.0]))  # of the uniform distribution, of a point
    array([0.5, 0. ])
    """
    positive = np.asarray(variance) > 0
    rest = np.where(positive, mean * (1 - np.asarray(mean)) - variance, 1.0)
    return np.where(positive, variance, 0.0) / rest


def beta_binomial_masses(trials: int, mean: float, variance: float) -> NDArray:
    """Probabilities of 0, ..., n successes where the rate is beta with these moments, (n + 1,).

    With ``phi = 1 / (alpha + beta)`` they are ``C(n, z) prod_{j<z} (mean + j phi) prod_{j<n-z}
    (1 - mean + j phi) / prod_{j<n} (1 + j phi)``, exact down to a variance of zero.

    Examples
    --------
    >>> beta_binomial_masses(2, 0.5, 1 / 12)  # a uniform rate
    array([0.3333, 0.3333, 0.3333])
    """
    z, n = np.arange(trials + 1)[:, None], np.full(trials + 1, trials)
    return np.exp(Binomial(z, n).marginal(np.array([mean]), np.array([variance])))
