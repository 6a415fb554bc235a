"""Every workload beside its peers, in one run; conftest.py prints the ratios.

A workload is a list of contenders, ours first. Each is a benchmark of its own, so that ``-k`` picks
some of them. Data are made once; every contender runs once before it is timed, since the first
call compiles.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import pytest
from numba import njit
from scipy.optimize import minimize
from scipy.special import betaln
from sklearn.preprocessing import TargetEncoder
from statsmodels.regression.mixed_linear_model import MixedLM

import ebfed as eb


@dataclass(frozen=True)
class Contender:
    """A function to time; `target` is the ratio, ours over this one, that is aimed at."""

    name: str
    run: Callable[[], object]
    target: float | None = None


# --- data ----------------------------------------------------------------------------------------


@cache
def rows(n_groups, per_group=10):
    """Rows of groups of very unequal size (geometric); labels unsorted integers."""
    rng = np.random.default_rng(n_groups)
    sizes = rng.geometric(1 / per_group, n_groups)
    sizes[np.argmax(sizes)] += max(0, per_group * n_groups - sizes.sum())
    groups = rng.permutation(np.repeat(np.arange(n_groups), sizes)[: per_group * n_groups])
    theta = rng.normal(5, 1, n_groups)
    return rng.normal(theta[groups], 2.0), groups


@cache
def words(n_groups):
    values, groups = rows(n_groups)
    return values, np.char.add("group ", groups.astype("U9")).astype(object)


@cache
def counts(n_groups):
    rng = np.random.default_rng(7)
    trials = rng.integers(1, 200, n_groups)
    return rng.binomial(trials, rng.beta(3, 5, n_groups)), trials


@cache
def estimates(n_groups):
    rng = np.random.default_rng(8)
    errors = rng.uniform(0.3, 1.0, n_groups)
    return rng.normal(rng.choice([-2.0, 0.0, 3.0], n_groups), errors), errors


# --- peers ---------------------------------------------------------------------------------------


@njit(nogil=True)
def plain_sums(values, codes, size):
    n, total, squares = np.zeros(size), np.zeros(size), np.zeros(size)
    for row in range(len(values)):
        n[codes[row]] += 1
        total[codes[row]] += values[row]
        squares[codes[row]] += values[row] ** 2
    return n, total, squares


def pandas_moments(values, groups):
    grouped = pd.Series(values).groupby(groups)
    return grouped.count(), grouped.mean(), grouped.var()


def mixed_model(n_groups):
    values, groups = rows(n_groups)
    model = MixedLM(values, np.ones(len(values)), groups=groups)
    # from the right answer, and told not to waste time: as fast as it can be
    return model.fit(reml=True, start_params=np.array([0.5]), method=["bfgs"])


def beta_binomial_by_scipy(n_groups):
    successes, trials = counts(n_groups)

    def loss(log_shape):
        alpha, beta = np.exp(log_shape)
        return -(betaln(alpha + successes, beta + trials - successes) - betaln(alpha, beta)).sum()

    return minimize(loss, [0.0, 0.0], method="L-BFGS-B")


def dense_em(n_groups, steps=100):
    """The usual NPMLE: weights on a fixed grid, by EM; far from its maximum after 100 steps."""
    values, errors = estimates(n_groups)
    grid = np.linspace(values.min(), values.max(), 300)
    density = np.exp(-0.5 * ((values[:, None] - grid) / errors[:, None]) ** 2)
    weights = np.full(len(grid), 1 / len(grid))
    for _ in range(steps):
        weights *= (1 / (density @ weights)) @ density / len(values)
    return weights


def target_encoder(n_groups):
    values, groups = rows(n_groups)
    encoder = TargetEncoder(target_type="continuous")
    return encoder.fit(groups[:, None], values).transform(groups[:, None])


def process(code):
    subprocess.run([sys.executable, "-c", code], check=True)


COLD = """
import numpy as np, ebfed
groups = np.random.default_rng(0).permutation(np.repeat(np.arange(1000), 5))
ebfed.GaussianEB().fit(np.random.default_rng(1).normal(size=5000), groups=groups)
"""


# --- workloads -----------------------------------------------------------------------------------


def fit(n_groups, per_group=10):
    values, groups = rows(n_groups, per_group)
    return eb.GaussianEB().fit(values, groups=groups)


def fit_and_predict(n_groups):
    values, groups = rows(n_groups)
    return eb.GaussianEB().fit_predict(values, groups=groups)


MILLION, FEW = 1_000_000, 3_000
FLOORS = [
    Contender("compiled sums, one pass", lambda: plain_sums(*rows(MILLION), MILLION), 3),
    Contender("pandas groupby, same moments", lambda: pandas_moments(*rows(MILLION)), 0.4),
    Contender("np.sum of values and labels", lambda: [each.sum() for each in rows(MILLION)]),
]
WORKLOADS = {
    "fit, 1e7 rows of 1e6 groups": [Contender("ebfed", lambda: fit(MILLION)), *FLOORS],
    "summaries, 1e7 rows of 1e6 groups": [
        Contender("ebfed", lambda: eb.Summary.from_rows(*rows(MILLION))),
        *FLOORS[1:],
    ],
    "summaries, 1e6 rows, string labels": [
        Contender("ebfed", lambda: eb.Summary.from_rows(*words(MILLION // 10))),
        Contender("pandas groupby", lambda: pandas_moments(*words(MILLION // 10))),
    ],
    "fit, 1e7 rows of 1e5 groups": [
        Contender("ebfed", lambda: fit(MILLION // 10, 100)),
        Contender("ebfed, 1e6 rows of 1e5 groups", lambda: fit(MILLION // 10), 11),
    ],
    # a table of 1e5 groups fits the cache and one of 1e6 does not, for everybody
    "fit, ten times rows and groups": [
        Contender("ebfed", lambda: fit(MILLION)),
        Contender("ebfed, 1e6 rows of 1e5 groups", lambda: fit(MILLION // 10), 11),
    ],
    "sums, ten times rows and groups": [
        Contender("compiled sums, one pass", lambda: plain_sums(*rows(MILLION), MILLION)),
        Contender(
            "the same, 1e6 rows of 1e5 groups",
            lambda: plain_sums(*rows(MILLION // 10), MILLION // 10),
        ),
    ],
    "fit and predict, 1e6 rows": [
        Contender("ebfed", lambda: fit_and_predict(MILLION // 10)),
        Contender("sklearn TargetEncoder", lambda: target_encoder(MILLION // 10)),
    ],
    "REML, 3,000 unequal groups": [
        Contender("ebfed", lambda: fit(FEW)),
        Contender("statsmodels MixedLM", lambda: mixed_model(FEW)),
    ],
    "beta-binomial ML, 1e5 groups": [
        Contender("ebfed", lambda: eb.BernoulliEB().fit(eb.Summary.from_counts(*counts(100_000)))),
        Contender("scipy minimize on betaln", lambda: beta_binomial_by_scipy(100_000)),
    ],
    "NPMLE, 1e5 estimates": [
        Contender("ebfed", lambda: eb.posterior_from(*estimates(100_000), "npmle")),
        Contender("dense EM on 300 points, 100 steps", lambda: dense_em(100_000)),
    ],
    "a cold process that fits": [
        Contender("ebfed", lambda: process(COLD)),
        Contender("import sklearn.mixture", lambda: process("import sklearn.mixture"), 2),
        Contender("import pandas", lambda: process("import pandas")),
    ],
}
CASES = [(workload, each) for workload, contenders in WORKLOADS.items() for each in contenders]


@pytest.mark.parametrize(
    ("workload", "contender"), CASES, ids=[f"{workload}-{each.name}" for workload, each in CASES]
)
def test_speed(benchmark, workload, contender):
    benchmark.group = workload
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "median" if "process" in workload else "min",
    }
    benchmark.pedantic(contender.run, rounds=5, warmup_rounds=1)
