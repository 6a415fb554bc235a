"""Rows of the study of coverage: how the groups of each likelihood are drawn.

What is drawn is a summary of groups, whose parameters and numbers of rows are given. An oracle
reads it through the likelihood that drew it. Of some rows this is not that of the estimator: the
oracle knows the dispersion of counts, and reads one category, of which the others say nothing.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ebfed.families import NegativeBinomial
from ebfed.likelihoods import Binomial, Likelihood, StudentT
from ebfed.location import posterior_from
from ebfed.priors import Posterior
from ebfed.tables.clients import Summary

__all__ = [
    "ROW_VARIANCE",
    "EstimatesEB",
    "draw_answers",
    "draw_durations",
    "draw_estimates",
    "draw_events",
    "draw_means",
    "draw_rates",
    "draw_scattered_events",
    "draw_scatters",
    "known_dispersion",
    "one_category",
    "student_t",
]

# Variance of a row, so that an average number of rows has a standard error near 1.
ROW_VARIANCE = 4.0
# Time at which durations are censored.
LONGEST = 1.0
DISPERSION = 0.5
# Parameters of the categories but the first, of a Dirichlet population.
OTHERS = (3.0, 2.0)


def draw_means(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw means of normal rows of a known variance."""
    errors = np.sqrt(ROW_VARIANCE / sizes) * rng.standard_normal(len(theta))
    return _with_means(theta + errors, sizes)


def draw_rates(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw numbers of successes."""
    return Summary.from_counts(rng.binomial(sizes, theta), sizes)


def draw_events(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw numbers of events in rows of exposure 1."""
    return _with_means(rng.poisson(sizes * theta) / sizes, sizes)


def draw_scatters(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw sums of squares of normal rows of variance ``exp(theta)``."""
    scatter = np.exp(theta) * rng.chisquare(sizes - 1)
    return Summary(np.arange(len(theta)), sizes, np.zeros((len(theta), 1)), scatter[:, None])


def draw_durations(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw exponential durations, of which the longest are censored."""
    owner = np.repeat(np.arange(len(theta)), sizes)
    lengths = rng.exponential(1 / theta[owner])
    events = np.bincount(owner, lengths < LONGEST, len(theta))
    time = np.bincount(owner, np.minimum(lengths, LONGEST), len(theta)).astype(float)
    rate, nothing = (events / time)[:, None], np.zeros((len(theta), 1))
    return Summary(np.arange(len(theta)), sizes, rate, nothing, weight=time)


def draw_answers(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw answers of three categories; theta is the share of the first."""
    others = (1 - theta[:, None]) * rng.dirichlet(OTHERS, len(theta))
    counts = rng.multinomial(sizes, np.column_stack([theta, others]))
    shares = counts / sizes[:, None]
    return Summary(np.arange(len(theta)), sizes, shares, sizes[:, None] * shares * (1 - shares))


def draw_scattered_events(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw negative binomial counts, row by row."""
    owner = np.repeat(np.arange(len(theta)), sizes)
    rate = theta[owner] * rng.gamma(1 / DISPERSION, DISPERSION, len(owner))
    return NegativeBinomial().summarise(rng.poisson(rate).astype(float)[:, None], owner)


def draw_estimates(theta: NDArray, sizes: NDArray, rng: np.random.Generator) -> Summary:
    """Draw estimates whose errors over their standard errors have t distributions."""
    scale = np.sqrt(ROW_VARIANCE / sizes)
    mean = theta + scale * rng.standard_t(sizes - 1)
    scatter = scale**2 * sizes * (sizes - 1)
    return Summary(np.arange(len(theta)), sizes, mean[:, None], scatter[:, None])


def _with_means(mean: NDArray, sizes: NDArray) -> Summary:
    return Summary(np.arange(len(mean)), sizes, mean[:, None], np.zeros((len(mean), 1)))


def one_category(summary: Summary) -> Likelihood:
    """Likelihood of the share of the first category: others say nothing of it."""
    counts = np.rint(summary.mean[:, :1] * summary.n[:, None]).astype(np.int64)
    return Binomial(counts, summary.n)


def known_dispersion(summary: Summary) -> Likelihood:
    """Likelihood of rates, where the dispersion is known."""
    family = NegativeBinomial(DISPERSION)
    return family.likelihood(family.figures(summary))


def student_t(summary: Summary) -> StudentT:
    """Likelihood of means with standard errors from the scatter of their rows."""
    degrees = (summary.n - 1).astype(float)
    return StudentT(summary.mean, summary.scatter / (summary.n * degrees)[:, None], degrees)


class EstimatesEB(BaseEstimator):
    """`posterior_from`, with a standard error and degrees of freedom from each group's rows.

    Parameters
    ----------
    prior : str or Prior
    channel, random_state : ignored
    """

    def __init__(self, prior: Any = "normal", *, channel: Any = None, random_state: Any = None):
        self.prior = prior
        self.channel = channel
        self.random_state = random_state

    def fit(self, summary: Summary) -> Self:
        """Fit the population to the means of groups."""
        self.groups_, self._messages = summary.ids, student_t(summary)
        errors = np.sqrt(self._messages.variances[:, 0])
        degrees = self._messages.degrees
        self.prior_ = posterior_from(summary.mean[:, 0], errors, self.prior, df=degrees).prior
        return self

    def posterior(self, groups: NDArray) -> Posterior:
        """Posterior of some groups, of which those that were not in the fit have no data."""
        known, at = groups < len(self.groups_), np.minimum(groups, len(self.groups_) - 1)
        given = self._messages
        variances = np.where(known[:, None], given.variances[at], np.inf)
        return self.prior_.posterior(StudentT(given.values[at], variances, given.degrees[at]))

    def confint(self, level: float) -> list[Any]:
        """Return no intervals: `posterior_from` has none of the population's mean."""
        return []
