"""Mean and overdispersion of counts ``z_i ~ BetaBinomial(n_i, mean, overdispersion)``.

Overdispersion is ``1 / (alpha + beta)``; zero means that all groups have one rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit

from ebfed.kernels import beta_binomial_profiles, beta_binomial_values
from ebfed.likelihoods import Binomial
from ebfed.likelihoods.distinct import number_rows
from ebfed.priors.exploration import TILT, explore
from ebfed.priors.search import minimise, minimum_near
from ebfed.priors.two_moments import POINT_MASS

__all__ = [
    "OVERDISPERSIONS",
    "check_size",
    "leave_one_out",
    "maximise",
    "moments",
    "paper_moments",
    "plausible",
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
    z, trials = rows.successes[:, 0], rows.trials
    tallies = [tally(x, counts) for x in (z, trials - z, trials)]

    def log_likelihood(mean: NDArray, dispersion: NDArray) -> NDArray:
        return beta_binomial_values(mean, dispersion, *tallies)

    events, all_ = float(counts @ z), float(counts @ trials)
    return weigh(log_likelihood, (events + 0.5) / (all_ + 1), dispersion)


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
    """Mean and overdispersion of greatest beta-binomial likelihood.

    The log-likelihood is a sum over j of the numbers of clients whose z, n - z and n exceed j. Sums
    over many j for few large groups are differences of log-gamma functions, in a form that keeps
    its digits: a step costs neither the longest group nor the number of groups. It is concave in
    the mean, which is profiled out. With the overdispersion `near` of similar data the search
    begins there; see `minimum_near`.
    """
    successes, trials = rows.successes[:, 0], rows.trials
    pooled = float(counts @ successes / (counts @ trials))
    if pooled in (0.0, 1.0) or trials.max() == 1 or counts.sum() == 1:
        return pooled, 0.0
    check_size(rows)
    tallies = [tally(x, counts) for x in (successes, trials - successes, trials)]

    def criterion(overdispersion: Any) -> tuple[Any, Any]:
        found = beta_binomial_profiles(np.atleast_1d(overdispersion), pooled, *tallies)
        _, values, slopes = found.reshape(3, *np.shape(overdispersion))
        return -values, -slopes

    overdispersion = minimum_near(criterion, near, takes_arrays=False)
    if overdispersion is None:
        overdispersion = minimise(criterion, OVERDISPERSIONS, criterion)
    found = beta_binomial_profiles(np.array([overdispersion]), pooled, *tallies)
    return float(found[0, 0]), overdispersion


def tally(values: NDArray, times: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Count what exceeds 0, 1, ..., k - 1, and list what exceeds k: arguments of `tallied_sums`.

    Examples
    --------
    >>> exceeding, large, times = tally(np.array([0, 2, 10**6]), np.array([5.0, 3.0, 1.0]))
    >>> exceeding[:3], len(exceeding), large, times
    (array([4., 4., 1.]), 64, array([1000000]), array([1.]))
    """
    codes, first, _ = number_rows([values])
    order = np.argsort(values[first])
    values, times = values[first][order], np.bincount(codes, times)[order]
    # a large value costs as much as some sixteen numbers that are exceeded
    few = np.maximum(np.append(0, values), FEWEST)
    few = int(few[np.argmin(few + 16 * np.arange(len(few))[::-1])])
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
