"""Rates of many groups beside what they must cost: from counts, from rows, and after the fit.

The strongest peer is a histogram of the counts, on which Newton's method for the two parameters of
the beta costs the number of distinct pairs, and posterior means by index. It checks nothing, has no
labels and no scan for other optima.
"""

from functools import cache

import numpy as np
import pytest
from scipy.special import polygamma, psi
from test_speed import Contender, Growth, name_of

import ebfed as eb
from ebfed.channels import Gaussian, TwoBit

MOST = 30  # rows of a group of the tables of counts


# --- data ----------------------------------------------------------------------------------------


@cache
def counts(n_groups, largest=0):
    """Successes and trials; the trials of one group may be many."""
    rng = np.random.default_rng(7)
    trials = rng.integers(1, MOST, n_groups)
    trials[n_groups // 2] = max(largest, trials[n_groups // 2])
    return rng.binomial(trials, rng.beta(3, 5, n_groups)), trials


@cache
def summary(n_groups, largest=0):
    return eb.Summary.from_counts(*counts(n_groups, largest))


@cache
def rows(n_groups):
    """Ten rows of 0 and 1 for each group, on average, unsorted."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, n_groups, 10 * n_groups)
    rate = rng.beta(3, 5, n_groups)
    return (rng.random(len(groups)) < rate[groups]).astype(float), groups


@cache
def events(n_groups):
    rng = np.random.default_rng(1)
    exposure = rng.integers(1, MOST, n_groups).astype(float)
    return rng.poisson(exposure * rng.gamma(3, 0.5, n_groups)), exposure


@cache
def means(n_groups):
    """Summary of means, of unequal numbers of rows with a variance of 4."""
    rng = np.random.default_rng(2)
    n = rng.integers(1, MOST, n_groups)
    mean = rng.normal(rng.normal(0, 1, n_groups), 2 / np.sqrt(n))
    scatter = np.where(n > 1, 4 * rng.chisquare(np.maximum(n - 1, 1)), 0.0)
    return eb.Summary(np.arange(n_groups), n, mean[:, None], scatter[:, None])


@cache
def fitted(n_groups):
    return eb.BernoulliEB().fit(summary(n_groups))


@cache
def fitted_events(n_groups):
    y, exposure = events(n_groups)
    return eb.PoissonEB().fit(y, groups=np.arange(n_groups), exposure=exposure)


# --- peers ---------------------------------------------------------------------------------------


def histogram_newton(z, n):
    """Beta-binomial by Newton's method on distinct counts, and posterior means."""
    width = n.max() + 1
    table = np.bincount(n * width + z)
    at = np.flatnonzero(table)
    times, (trials, hits) = table[at], np.divmod(at, width)
    parts = (hits, trials - hits, trials)
    rate = times @ hits / (times @ trials)
    shape = 4 * np.array([rate, 1 - rate])
    for _ in range(100):
        ends = (*shape, shape.sum())
        pairs = list(zip(parts, ends, strict=True))
        slope = [times @ (psi(x + a) - psi(a)) for x, a in pairs]
        bend = [times @ (polygamma(1, x + a) - polygamma(1, a)) for x, a in pairs]
        gradient = np.array(slope[:2]) - slope[2]
        step = np.linalg.solve(np.diag(bend[:2]) - bend[2], gradient)
        while np.any(shape - step <= 0):
            step /= 2
        shape -= step
        if np.all(np.abs(step) < 1e-10 * shape):
            break
    estimates = np.zeros(len(table))
    estimates[at] = (hits + shape[0]) / (trials + shape.sum())
    return shape, estimates[n * width + z]


def two_bincounts(values, groups):
    return np.bincount(groups), np.bincount(groups, values)


# --- workloads -----------------------------------------------------------------------------------


def from_counts(n_groups):
    return eb.BernoulliEB().fit(eb.Summary.from_counts(*counts(n_groups)))


def from_summary(n_groups, largest=0):
    return eb.BernoulliEB().fit(summary(n_groups, largest))


def through(channel, n_groups):
    if isinstance(channel, TwoBit):
        return eb.BernoulliEB(channel=channel, random_state=0).fit(summary(n_groups))
    return eb.GaussianEB(4.0, channel=channel, random_state=0).fit(means(n_groups))


def frame(estimator):
    return estimator.posterior().to_frame()


QUESTIONS = TwoBit(2.0, range=(0, 1))
NOISE = Gaussian(6.0, 1e-6, range=(-3, 3))
WORKLOADS = {}
for size, aims in ((10**3, (None, None)), (10**5, (3, 2)), (10**6, (3, 2))):
    peer = Contender("histogram Newton and means", lambda m=size: histogram_newton(*counts(m)))
    for what, fit, aim in zip(
        ("counts", "summary"), (from_counts, from_summary), aims, strict=True
    ):
        WORKLOADS[Growth(f"beta-binomial from {what}", size)] = [
            Contender("ebfed", lambda m=size, fit=fit: fit(m)),
            Contender(peer.name, peer.run, aim),
        ]
    WORKLOADS[Growth("frame of rates", size)] = [
        Contender("ebfed", lambda m=size: frame(fitted(m))),
        Contender(
            "ebfed, the fit from counts", lambda m=size: from_counts(m), 1 if aims[0] else None
        ),
    ]
    WORKLOADS[Growth("frame of rates of events", size)] = [
        Contender("ebfed", lambda m=size: frame(fitted_events(m))),
        Contender("ebfed, the fit", lambda m=size: eb.PoissonEB().fit(fitted_events(m).summaries_)),
    ]
    WORKLOADS[Growth("TwoBit", size)] = [
        Contender("ebfed", lambda m=size: through(QUESTIONS, m)),
        Contender("ebfed, exact", lambda m=size: from_summary(m), 3 if aims[0] else None),
    ]
    WORKLOADS[Growth("Gaussian reports", size)] = [
        Contender("ebfed", lambda m=size: through(NOISE, m)),
        Contender(
            "ebfed, exact",
            lambda m=size: eb.GaussianEB(4.0).fit(means(m)),
            1.5 if aims[0] else None,
        ),
    ]
for size in (10**3, 10**5, 10**6):
    WORKLOADS[Growth("beta-binomial, 10 rows each", size)] = [
        Contender("ebfed", lambda m=size: eb.BernoulliEB().fit(*rows(m)[:1], groups=rows(m)[1])),
        Contender("two bincounts", lambda m=size: two_bincounts(*rows(m)), 1.5),
    ]
for largest in (10**4, 10**6, 3 * 10**6):
    WORKLOADS[f"2,000 groups, one of {largest:.0e} rows"] = [
        Contender("ebfed", lambda k=largest: from_summary(2000, k)),
        Contender("ebfed, without it", lambda: from_summary(2000), 1.5),
    ]
CASES = [(workload, each) for workload, contenders in WORKLOADS.items() for each in contenders]


@pytest.mark.parametrize(
    ("workload", "contender"),
    CASES,
    ids=[f"{name_of(workload)}-{each.name}" for workload, each in CASES],
)
def test_rates(benchmark, workload, contender):
    benchmark.group = name_of(workload)
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "min",
    }
    if isinstance(workload, Growth):
        benchmark.extra_info |= {"of": workload.of, "size": workload.size}
    benchmark.pedantic(contender.run, rounds=5, warmup_rounds=1)
