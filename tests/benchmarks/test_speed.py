"""Every workload beside its peers, in one run; conftest.py prints the ratios.

A workload is a list of contenders, ours first. Each is a benchmark of its own, so that ``-k`` picks
some of them. Data are made once; every contender runs once before it is timed, since the first
call compiles.
"""

import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import pytest
from numba import njit
from scipy.optimize import minimize, minimize_scalar
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


@dataclass(frozen=True)
class Growth:
    """A workload at several sizes, whose times are compared: `of` is its name without the size."""

    of: str
    size: int


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
def rows_of_int32(n_groups):
    values, groups = rows(n_groups)
    return values, groups.astype(np.int32)


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


@njit(nogil=True)
def side_by_side_sums(values, codes, table):
    """As `plain_sums`, a group's figures beside each other: one cache miss a row, not three."""
    for row in range(len(values)):
        group = np.uint64(codes[row])
        table[group, 0] += 1
        table[group, 1] += values[row]
        table[group, 2] += values[row] ** 2
    return table


def reml_by_numpy(values, groups):
    """Fit a random intercept by REML from three bincounts, and estimate every group."""
    n = np.bincount(groups)
    total, squares = np.bincount(groups, values), np.bincount(groups, values * values)
    seen = n > 0
    n, total, squares = n[seen], total[seen], squares[seen]
    means, n_rows = total / n, len(values)
    within = (squares - total * means).sum()

    def best_mean(ratio):
        weights = n / (1 + n * ratio)
        return weights, (weights @ means) / weights.sum()

    def criterion(log_ratio):
        ratio = np.exp(log_ratio)
        weights, mean = best_mean(ratio)
        rest = within + (weights * (means - mean) ** 2).sum()
        value = (n_rows - 1) * np.log(rest) + np.log1p(n * ratio).sum()
        return value + np.log(weights.sum())

    ratio = np.exp(minimize_scalar(criterion, bounds=(-12, 6), method="bounded").x)
    weights, mean = best_mean(ratio)
    return mean + ratio * weights * (means - mean)


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


def process(code, cache=None):
    environment = os.environ if cache is None else os.environ | {"NUMBA_CACHE_DIR": cache}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def process_with_an_empty_cache(code):
    with tempfile.TemporaryDirectory() as folder:
        process(code, folder)


COLD = """
import numpy as np, ebfed
groups = np.random.default_rng(0).permutation(np.repeat(np.arange(1000), 5))
ebfed.GaussianEB().fit(np.random.default_rng(1).normal(size=5000), groups=groups)
"""
FLOOR = "import numba, sklearn.base"
COLD_FORMULA = """
import numpy as np, pandas as pd, ebfed
x, group, noise = np.arange(180.0) % 10, np.arange(180) // 10, np.random.default_rng(0)
frame = pd.DataFrame({"x": x, "group": group, "y": x + group + noise.normal(size=180)})
ebfed.from_formula("y ~ x + (1 + x | group)", frame)
"""
FLOOR_OF_FORMULAS = "import numpy, scipy.linalg, numba, sklearn.base, pandas"


# --- workloads -----------------------------------------------------------------------------------


def fit(n_groups, *per_group, data=rows):
    values, groups = data(n_groups, *per_group)
    return eb.GaussianEB().fit(values, groups=groups)


@cache
def slopes():
    """180 rows of 18 groups that differ in intercept and slope."""
    rng = np.random.default_rng(0)
    x, group = np.tile(np.arange(10.0), 18), np.repeat(np.arange(18), 10)
    theta = rng.normal([250.0, 10.0], [25.0, 6.0], (18, 2))[group]
    y = theta[:, 0] + theta[:, 1] * x + rng.normal(0, 25, 180)
    return pd.DataFrame({"x": x, "group": group, "y": y})


def formula_of_slopes():
    return eb.from_formula("y ~ x + (1 + x | group)", slopes())


def arrays_of_slopes(covariance):
    x, group, y = slopes().to_numpy().T
    return eb.LinearEB(covariance).fit(x[:, None], y, groups=group)


def mixed_model_of_slopes():
    x, group, y = slopes().to_numpy().T
    X = np.column_stack([np.ones(180), x])
    return MixedLM(y, X, groups=group, exog_re=X).fit(reml=True, method=["lbfgs"])


def fit_counts(n_groups):
    successes, trials = counts(n_groups)
    return eb.BernoulliEB().fit(eb.Summary.from_counts(successes, trials))


def fit_and_predict(n_groups):
    values, groups = rows(n_groups)
    return eb.GaussianEB().fit_predict(values, groups=groups)


@cache
def fitted(n_groups):
    return fit(n_groups)


def predict(n_groups):
    values, groups = rows(n_groups)
    return fitted(n_groups).predict(values, groups=groups)


def augment(n_groups):
    values, groups = rows(n_groups)
    return fitted(n_groups).augment(values, groups=groups)


MILLION, FEW = 1_000_000, 3_000
FLOORS = [
    Contender("compiled sums, side by side", lambda: one_pass(rows), 1.5),
    Contender("compiled sums, three arrays", lambda: plain_sums(*rows(MILLION), MILLION)),
    Contender("pandas groupby, same moments", lambda: pandas_moments(*rows(MILLION)), 0.4),
    Contender("np.sum of values and labels", lambda: [each.sum() for each in rows(MILLION)]),
]


def one_pass(data):
    return side_by_side_sums(*data(MILLION), np.zeros((MILLION, 3)))


def random_intercepts(n_groups, target):
    return [
        Contender("ebfed", lambda: fit(n_groups)),
        Contender("NumPy REML from bincounts", lambda: reml_by_numpy(*rows(n_groups)), target),
    ]


WORKLOADS = {
    Growth("random intercept", 1_000): random_intercepts(1_000, 2),
    Growth("random intercept", 10_000): random_intercepts(10_000, None),
    Growth("random intercept", 100_000): random_intercepts(100_000, 1),
    Growth("random intercept", MILLION): random_intercepts(MILLION, 1),
    "fit, 1e7 rows of 1e6 groups": [Contender("ebfed", lambda: fit(MILLION)), *FLOORS],
    "the same, int32 labels": [
        Contender(
            "ebfed",
            lambda: eb.GaussianEB().fit(
                rows_of_int32(MILLION)[0], groups=rows_of_int32(MILLION)[1]
            ),
        ),
        Contender("compiled sums, side by side", lambda: one_pass(rows_of_int32), 1.5),
    ],
    "predict rows, 1e7 of 1e6 groups": [
        Contender("ebfed", lambda: predict(MILLION)),
        Contender("the fit", lambda: fit(MILLION), 0.5),
    ],
    "augment, 1e7 rows of 1e6 groups": [
        Contender("ebfed", lambda: augment(MILLION)),
        Contender("the fit", lambda: fit(MILLION), 1),
    ],
    "summaries, 1e7 rows of 1e6 groups": [
        Contender("ebfed", lambda: eb.Summary.from_rows(*rows(MILLION))),
        *FLOORS[2:],
    ],
    "summaries, 1e6 rows, string labels": [
        Contender("ebfed", lambda: eb.Summary.from_rows(*words(MILLION // 10))),
        Contender("pandas groupby", lambda: pandas_moments(*words(MILLION // 10))),
    ],
    "fit, 1e7 rows of 1e5 groups": [
        Contender("ebfed", lambda: fit(MILLION // 10, 100)),
        Contender("ebfed, 1e6 rows of 1e5 groups", lambda: fit(MILLION // 10), 11),
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
    "180 rows, slopes of 18 groups": [
        Contender("ebfed, a formula", formula_of_slopes),
        Contender("ebfed, arrays", lambda: arrays_of_slopes("full")),
        Contender("ebfed, arrays, not correlated", lambda: arrays_of_slopes("diag")),
        Contender("MixedLM", mixed_model_of_slopes, 0.1),
    ],
    "REML, 1,000 groups": random_intercepts(1000, 3),
    "beta-binomial, 1,000 counts": [
        Contender("ebfed", lambda: fit_counts(1000)),
        Contender("SciPy", lambda: beta_binomial_by_scipy(1000), 1),
    ],
    "a process that fits a formula": [
        Contender("ebfed", lambda: process(COLD_FORMULA)),
        Contender("its imports", lambda: process(FLOOR_OF_FORMULAS), 1.15),
    ],
    "a process that fits": [
        Contender("ebfed", lambda: process(COLD)),
        Contender("import numba, sklearn.base", lambda: process(FLOOR)),
        Contender("import sklearn.mixture", lambda: process("import sklearn.mixture"), 2),
        Contender("import pandas", lambda: process("import pandas")),
    ],
    "the first process, nothing compiled": [
        Contender("ebfed", lambda: process_with_an_empty_cache(COLD)),
        Contender("import numba, sklearn.base", lambda: process(FLOOR)),
    ],
}
CASES = [(workload, each) for workload, contenders in WORKLOADS.items() for each in contenders]


def name_of(workload):
    if isinstance(workload, str):
        return workload
    return f"{workload.of}, 1e{round(np.log10(workload.size))} groups"


@pytest.mark.parametrize(
    ("workload", "contender"),
    CASES,
    ids=[f"{name_of(workload)}-{each.name}" for workload, each in CASES],
)
def test_speed(benchmark, workload, contender):
    benchmark.group = name_of(workload)
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "median" if "process" in benchmark.group else "min",
    }
    if isinstance(workload, Growth):
        benchmark.extra_info |= {"of": workload.of, "size": workload.size}
    rounds = 50 if isinstance(workload, Growth) and workload.size <= 10_000 else 5
    benchmark.pedantic(contender.run, rounds=rounds, warmup_rounds=1)


@pytest.mark.parametrize(("task", "target"), [(fit_and_predict, 1.2), (augment, 2)])
def test_memory(benchmark, task, target):
    """Peak of what is allocated besides the rows and labels; time under the tracer says nothing."""
    values, groups = rows(MILLION)
    task(1_000), fitted(MILLION)
    benchmark.group = f"memory of {task.__name__}, 1e7 rows"
    benchmark.extra_info = {"contender": "", "target": None, "statistic": "min"}
    tracemalloc.start()
    benchmark.pedantic(task, args=(MILLION,), rounds=1)
    peak = tracemalloc.get_traced_memory()[1] / (values.nbytes + groups.nbytes)
    tracemalloc.stop()
    missed = " MISSED" * (peak > target)
    benchmark.extra_info["contender"] = f"{peak:.2f} of the input, aim {target}{missed}"
