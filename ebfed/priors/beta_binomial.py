"""Mean and overdispersion of counts ``z_i ~ BetaBinomial(n_i, mean, overdispersion)``.

And of counts of several categories, of which the beta-binomial has two.

Overdispersion is ``1 / (alpha + beta)``; zero means that all groups have one rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln, log_expit, logit, xlogy

from ebfed.kernels import dirichlet_profiles, dirichlet_values
from ebfed.likelihoods import Binomial, Multinomial
from ebfed.likelihoods.distinct import number_rows
from ebfed.priors.exploration import TILT, explore
from ebfed.priors.search import minimise, minimum_near
from ebfed.priors.two_moments import POINT_MASS

__all__ = [
    "Tables",
    "check_size",
    "leave_one_out",
    "maximise",
    "moments",
    "paper_moments",
    "plausible",
    "plausible_dispersions",
    "tally",
    "weigh",
]

# Beyond, proportions are as good as normal, and rounding of the sums begins to show.
MOST_TRIALS = 10_000_000
# Numbers that are exceeded are counted up to this one, even if few values are.
FEWEST = 64
# Where the likelihood is scanned.
OVERDISPERSIONS = np.append(0.0, np.geomspace(1e-9, 1e6, 60))


def check_size(rows: Binomial) -> None:
    """Refuse groups too large for the likelihood."""
    if np.max(rows.trials, initial=0) > MOST_TRIALS:
        raise ValueError(
            f"the beta-binomial likelihood is computed up to {MOST_TRIALS:,} trials of a group; "
            "with more, proportions are nearly Gaussian: use posterior_from."
        )


def plausible(rows: Binomial, counts: NDArray, dispersion: float) -> tuple[NDArray, NDArray]:
    """Find means and overdispersions that counts leave plausible, (K, 2), and their probabilities.

    The prior is flat in the mean and, times ``r**(1/5)``, in the square root of the intraclass
    correlation ``r = 1 / (1 + alpha + beta)``: given the mean, in the standard deviation of the
    population (Gelman, 2006). The search begins at the likeliest `dispersion`.
    """
    tables = _tables(rows, counts)

    def log_likelihood(mean: NDArray, dispersion: NDArray) -> NDArray:
        return tables.values(np.column_stack([mean, 1 - mean]), dispersion)

    events = tables.events
    return weigh(log_likelihood, float(events[0] + 0.5) / (events.sum() + 1), dispersion)


def weigh(
    log_likelihood: Callable[[NDArray, NDArray], NDArray], mean: float, dispersion: float
) -> tuple[NDArray, NDArray]:
    """Find means and overdispersions of high likelihood, (K, 2), and their probabilities.

    Parameters
    ----------
    log_likelihood : callable
        Function from means and overdispersions, shape (k,) each, to shape (k,).
    mean, dispersion : float
        Likely ones, with which the search begins.
    """

    def log_density(points: NDArray) -> NDArray:
        values = log_likelihood(expit(points[:, 0]), np.exp(points[:, 1]))
        # derivatives of the mean, and of the root of the correlation, by their logits
        return values + log_expit(points) @ [1.0, 0.5 + TILT] + log_expit(-points).sum(axis=1)

    start = [logit(mean), np.log(dispersion) if dispersion > 0 else -2.0]
    points, weights = explore(log_density, start)
    return np.column_stack([expit(points[:, 0]), np.exp(points[:, 1])]), weights


def maximise(rows: Binomial, counts: NDArray, near: float | None = None) -> tuple[float, float]:
    """Mean and overdispersion of greatest beta-binomial likelihood; see `Tables.maximise`."""
    trials = rows.trials
    pooled = float(counts @ rows.successes[:, 0] / (counts @ trials))
    if pooled in (0.0, 1.0) or trials.max() == 1 or counts.sum() == 1:
        return pooled, 0.0
    check_size(rows)
    shares, overdispersion = _tables(rows, counts).maximise(near)
    return float(shares[0]), overdispersion


def _tables(rows: Binomial, counts: NDArray) -> Tables:
    successes = rows.successes[:, 0]
    return Tables.of([successes, rows.trials - successes], rows.trials, counts)


@dataclass(frozen=True)
class Tables:
    """What a fit needs of counts: how many groups exceed each number, by category.

    Attributes
    ----------
    events : ndarray of shape (d,)
        Answers of each category.
    sizes, times : ndarray of shape (k,)
        Distinct numbers of answers of a group, and how many groups have each.
    tallies : list of tuple
        Of each category with answers, and of all together at the end; see `tally`.

    Examples
    --------
    >>> from ebfed.likelihoods import Multinomial
    >>> votes = Multinomial(np.array([[9, 1, 0], [2, 4, 4], [5, 0, 5], [1, 9, 0]]))
    >>> tables = Tables.of_categories(votes)
    >>> shares, overdispersion = tables.maximise()
    >>> shares.round(3), round(overdispersion, 3)
    (array([0.471, 0.324, 0.205]), 0.565)
    """

    events: NDArray
    sizes: NDArray
    times: NDArray
    tallies: list[tuple[NDArray, NDArray, NDArray]]

    @classmethod
    def of(cls, columns: Sequence[NDArray], totals: NDArray, times: NDArray) -> Tables:
        """Tabulate the answers of groups by category, (n,) each, and how many groups have each."""
        sizes, of_sizes = _distinct(totals, times)
        events = np.array([times @ column for column in columns])
        tallies = [tally(own, times) for own, n in zip(columns, events, strict=True) if n > 0]
        tallies.append(_tally(sizes, of_sizes))
        seen = sizes > 0
        return cls(events, sizes[seen], of_sizes[seen], tallies)

    @classmethod
    def of_categories(cls, counts: Multinomial) -> Tables:
        """Tabulate counts of several categories."""
        check_size(counts.column(0))
        return cls.of(list(counts.counts.T), counts.trials, np.ones(len(counts)))

    def __len__(self) -> int:
        """Count the groups that have answers."""
        return int(self.times.sum())

    @property
    def pooled(self) -> NDArray:
        """Shares of all answers, shape (d,)."""
        return self.events / self.events.sum()

    def maximise(self, near: float | None = None) -> tuple[NDArray, float]:
        """Shares and overdispersion of greatest likelihood.

        Given the overdispersion the log-likelihood is concave in the shares, which are profiled
        out; categories without answers have a share of zero. With the overdispersion `near` of
        similar data the search begins there; see `minimum_near`.
        """
        shares = self.pooled
        if shares.max() == 1 or self.sizes.max() == 1 or len(self) == 1:
            return shares, 0.0

        def criterion(overdispersion: Any) -> tuple[Any, Any]:
            _, value, slope = self.profile(overdispersion)
            return -value, -slope

        overdispersion = minimum_near(criterion, near, takes_arrays=False)
        if overdispersion is None:
            overdispersion = minimise(criterion, OVERDISPERSIONS, criterion)
        return self.profile(overdispersion)[0], overdispersion

    def profile(self, overdispersion: Any) -> tuple[NDArray, Any, Any]:
        """Best shares given an overdispersion, log-likelihood there, and slope of that.

        Or of each of several.
        """
        several = np.ndim(overdispersion) > 0
        each = overdispersion if several else np.array([overdispersion])
        found, values, slopes = dirichlet_profiles(each, self._start, *self._joined)
        shares = found
        if len(self._start) < len(self.events):
            shares = np.zeros((len(found), len(self.events)))
            shares[:, self.events > 0] = found
        return (shares, values, slopes) if several else (shares[0], values[0], slopes[0])

    def values(self, shares: NDArray, overdispersions: NDArray) -> NDArray:
        """Log-likelihood at shares, (k, d), and overdispersions, (k,), shape (k,)."""
        some = np.ascontiguousarray(shares[:, self.events > 0])
        return dirichlet_values(overdispersions, some, *self._joined)

    @cached_property
    def _start(self) -> NDArray:
        return self.pooled[self.events > 0]

    @cached_property
    def _joined(self) -> tuple[tuple[NDArray, ...], tuple[NDArray, ...]]:
        """Tallies of categories one after another, and of all, as the kernels take them."""
        *parts, all_ = self.tallies
        exceeding, values, times = (np.concatenate([part[i] for part in parts]) for i in range(3))
        edges, ends = (np.cumsum([0, *(len(part[i]) for part in parts)]) for i in (0, 1))
        return (exceeding, edges, values, times, ends), all_

    def information(self, overdispersion: float) -> float:
        """Number of independent answers that would say as much of the population's shares."""
        each = self.sizes * (1 + overdispersion) / (1 + self.sizes * overdispersion)
        return float(self.times @ each)

    def plausible(self, near: float) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Find overdispersions that counts leave plausible, with the shares given each.

        Given the overdispersion, shares have a Dirichlet distribution, as after as many
        independent answers as the counts are worth (`information`), with a flat prior.

        Parameters
        ----------
        near : float
            Likeliest overdispersion, with which the search begins.

        Returns
        -------
        overdispersions : ndarray of shape (K,)
        means, variances : ndarray of shape (K, d)
            Moments of the shares.
        weights : ndarray of shape (K,)
        """

        def height(overdispersion: float) -> float:
            shares, value, _ = self.profile(overdispersion)
            many = self.information(overdispersion)
            # the likelihood around the best shares, integrated over all shares
            value += gammaln(many * shares + 1).sum() - gammaln(many + len(shares))
            return float(value - many * xlogy(shares, shares).sum())

        overdispersions, weights = plausible_dispersions(height, near)
        many = np.array([[self.information(each)] for each in overdispersions])
        best = np.array([self.profile(each)[0] for each in overdispersions])
        total = many + len(self.events)
        means = (many * best + 1) / total
        return overdispersions, means, means * (1 - means) / (total + 1), weights


def plausible_dispersions(height: Callable[[float], float], near: float) -> tuple[NDArray, NDArray]:
    """Find overdispersions of high likelihood, shape (K,), and their probabilities.

    The prior is that of `plausible`. The search begins at the likeliest one.
    """

    def log_density(points: NDArray) -> NDArray:
        at = points[:, 0]
        # derivative of the root of the correlation by its logit
        prior = (0.5 + TILT) * log_expit(at) + log_expit(-at)
        return prior + np.array([height(float(each)) for each in np.exp(at)])

    points, weights = explore(log_density, [np.log(near) if near > 0 else -2.0])
    return np.exp(points[:, 0]), weights


def tally(values: NDArray, times: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Count what exceeds 0, 1, ..., k - 1, and list what exceeds k: arguments of `tallied_sums`.

    Examples
    --------
    >>> exceeding, large, times = tally(np.array([0, 2, 10**6]), np.array([5.0, 3.0, 1.0]))
    >>> exceeding[:3], len(exceeding), large, times
    (array([4., 4., 1.]), 64, array([1000000]), array([1.]))
    """
    if np.max(values, initial=0) > FEWEST:
        values, times = _distinct(values, times)
    return _tally(values, times)


def _distinct(values: NDArray, times: NDArray) -> tuple[NDArray, NDArray]:
    """Distinct numbers, and how often each occurs."""
    codes, first, _ = number_rows([values])
    return values[first], np.bincount(codes, times)


def _tally(values: NDArray, times: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Tally values that are distinct or at most `FEWEST`."""
    few = FEWEST
    if np.max(values, initial=0) > few:
        order = np.argsort(values)
        values, times = values[order], times[order]
        # a large value costs as much as some sixteen numbers that are exceeded
        numbers = np.maximum(np.append(0, values), FEWEST)
        few = int(numbers[np.argmin(numbers + 16 * np.arange(len(numbers))[::-1])])
    exceeding = np.bincount(np.minimum(values, few), times, minlength=few + 1)
    exceeding = np.ascontiguousarray(exceeding[::-1].cumsum()[::-1][1:])
    large = values > few
    return exceeding, values[large], times[large]


def moments(rows: Binomial, counts: NDArray) -> tuple[float, float]:
    """Mean and overdispersion by moments, sampling noise removed (Kleinman 1973, two steps)."""
    trials = rows.trials
    proportions = rows.local[:, 0]
    correlation = 0.0
    for _ in range(2):
        weights = trials / (1 + (trials - 1) * correlation)
        total = counts @ weights
        mean = float(counts @ (weights * proportions) / total)
        between = counts @ (weights * (proportions - mean) ** 2)
        kept = weights * (1 - weights / total)
        sampling, full = counts @ (kept / trials), counts @ kept
        if mean in (0.0, 1.0) or full <= sampling * (1 + 1e-12):
            return mean, 0.0
        excess = between / (mean * (1 - mean)) - sampling
        correlation = float(np.clip(excess / (full - sampling), 0, 1 - 1e-6))
    return mean, correlation / (1 - correlation)


def paper_moments(rows: Binomial, counts: NDArray) -> tuple[float, float]:
    """Mean and overdispersion from the raw variance of the proportions, eq. (6)."""
    proportions = rows.local[:, 0]
    m = counts.sum()
    mean = float(counts @ proportions / m)
    variance = float(counts @ (proportions - mean) ** 2) / max(m - 1, 1)
    return mean, float(1 / concentration_from(np.array(mean), np.array(variance)))


def concentration_from(mean: NDArray, variance: NDArray, less: float = 1.0) -> NDArray:
    """``mean (1 - mean) / variance - less``, kept positive and finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        concentration = mean * (1 - mean) / variance - less
    concentration = np.where(variance > 0, concentration, POINT_MASS)
    return np.clip(concentration, 1e-6, POINT_MASS)


def leave_one_out(
    own: NDArray, n_reporting: int, centre: NDArray, scatter: NDArray, less: float = 1.0
) -> tuple[NDArray, NDArray]:
    """Mean and concentration of the proportions of all other clients, eq. (6).

    Parameters
    ----------
    own : ndarray of shape (n, d)
        Each client's proportions, or reports that estimate them.
    n_reporting : int
        Number of clients that report, at least 3.
    centre, scatter : ndarray of shape (d,)
        Mean of all clients' proportions, and sum of squared deviations from it.
    less : float
        Number subtracted: 1 as in eq. (6), 0 as in Theorem 4.

    Returns
    -------
    mean, concentration : ndarray of shape (n, d)

    References
    ----------
    Ozkara, Girgis, Data, Diggavi (2023), eq. (6) of the main text (with its -1).

    Examples
    --------
    >>> own = np.array([[0.2], [0.4], [0.6], [0.8]])
    >>> mean, concentration = leave_one_out(own, 4, np.array([0.5]), np.array([0.2]))
    >>> mean.ravel()
    array([0.6   , 0.5333, 0.4667, 0.4   ])
    """
    # [E] Equation 6
    deviations = own - centre
    mean = centre - deviations / (n_reporting - 1)
    scatter = scatter - deviations**2 * n_reporting / (n_reporting - 1)
    return mean, concentration_from(mean, np.maximum(scatter, 0) / (n_reporting - 2), less)
