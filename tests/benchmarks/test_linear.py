"""The linear mixed model beside its peers; conftest.py prints the ratios.

`mixedlm` is lme4 in Rust; it takes a formula and a frame, of which it makes matrices in some 6 ms
of what is timed. We and statsmodels' MixedLM are given arrays, and beside stands what we take from
a frame. MixedLM gets groups few enough to wait for: at a thousand it takes a quarter of a minute.
All reach the same criterion, which is tested.

With fewer rows than columns in a group, the strongest peer is a few lines of NumPy: eigenvectors of
each group's kernel, and a search for the one ratio of variances.
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from statsmodels.regression.mixed_linear_model import MixedLM, MixedLMParams
from test_speed import Contender

import ebfed as eb

peer = pytest.importorskip  # contests with a package that is not installed are skipped

MANY, FEW = 1000, 100
NAMES = [f"x{j}" for j in range(1, 6)]
SUM = " + ".join(NAMES)


@cache
def rows(n_groups, per_group=30):
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(n_groups), per_group)
    X = rng.normal(size=(len(groups), len(NAMES)))
    spread = [1.0, 0.3, 0.4, 0.5, 0.6, 0.7]
    theta = rng.normal([1.0, 0.5, -0.5, 1.0, 0.0, 2.0], spread, (n_groups, 6))[groups]
    noise = rng.normal(0, 1.5, len(groups))
    y = theta[:, 0] + np.einsum("nd,nd->n", X, theta[:, 1:]) + noise
    return pd.DataFrame(X, columns=NAMES).assign(y=y, g=groups)


@cache
def arrays(n_groups):
    table = rows(n_groups)
    X = np.column_stack([np.ones(len(table)), table[NAMES]])
    return table["y"].to_numpy(), X, table["g"].to_numpy()


def ours(n_groups, covariance="diag"):
    y, X, groups = arrays(n_groups)
    return eb.LinearEB(covariance).fit(X[:, 1:], y, groups=groups)


def ours_from_a_frame(n_groups):
    return eb.LinearEB().fit(rows(n_groups), "y", groups="g")


def lmer(n_groups, bar="||"):
    return peer("mixedlm").lmer(f"y ~ {SUM} + (1 + {SUM} {bar} g)", rows(n_groups))


def mixed_model(n_groups):
    y, X, groups = arrays(n_groups)
    q = X.shape[1]
    diagonal = MixedLMParams.from_components(fe_params=np.ones(q), cov_re=np.eye(q))
    model = MixedLM(y, X, groups=groups, exog_re=X)
    return model.fit(reml=True, free=diagonal, method=["lbfgs"])  # the faster of its two usual ones


@cache
def wide(n_groups, per_group=10, d=50):
    """Groups with fewer rows than columns, whose coefficients share a variance."""
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(n_groups), per_group)
    X = rng.normal(size=(len(groups), d))
    theta = rng.normal(size=d) + 0.5 * rng.normal(size=(n_groups, d))
    return np.einsum("nd,nd->n", X, theta[groups]) + rng.normal(size=len(groups)), X, groups


def ours_wide(n_groups):
    y, X, groups = wide(n_groups)
    return eb.LinearEB("spherical", fit_intercept=False).fit(X, y, groups=groups)


def kernels_and_a_search(n_groups):
    y, X, _ = wide(n_groups)
    (N, d), A = X.shape, X.reshape(n_groups, -1, X.shape[1])
    values, vectors = np.linalg.eigh(A @ A.swapaxes(1, 2))
    turn = vectors.swapaxes(1, 2)
    A, b = (turn @ A).reshape(N, d), (turn @ y.reshape(n_groups, -1, 1)).ravel()
    values, dof = values.ravel(), N - d

    def deviance(log_ratio):
        V = 1 + np.exp(log_ratio) * values
        weighted = A / V[:, None]
        root = np.linalg.cholesky(weighted.T @ A)
        right = np.linalg.solve(root, weighted.T @ b)
        quadratic = (b**2 / V).sum() - right @ right
        log_det = np.log(V).sum() + 2 * np.log(np.diag(root)).sum()
        return log_det + dof * (1 + np.log(2 * np.pi * quadratic / dof))

    return SimpleNamespace(deviance=minimize_scalar(deviance, bracket=(-3, 0)).fun)


def criterion(fit):
    if isinstance(fit, eb.LinearEB):
        return fit.criterion_
    return fit.deviance if hasattr(fit, "deviance") else -2 * fit.llf


WORKLOADS = {
    "(1 + 5 slopes || g), 1000 groups": [
        Contender("ebfed", lambda: ours(MANY)),
        Contender("mixedlm", lambda: lmer(MANY), 0.1),
        Contender("ebfed from a frame", lambda: ours_from_a_frame(MANY)),
    ],
    "(1 + 5 slopes | g), 1000 groups": [
        Contender("ebfed", lambda: ours(MANY, "full")),
        Contender("mixedlm", lambda: lmer(MANY, "|"), 1),
    ],
    "(1 + 5 slopes || g), 100 groups": [
        Contender("ebfed", lambda: ours(FEW)),
        Contender("mixedlm", lambda: lmer(FEW), 1),
        Contender("statsmodels MixedLM", lambda: mixed_model(FEW)),
    ],
    "10 rows, 50 columns, 1000 groups": [
        Contender("ebfed", lambda: ours_wide(1000)),
        Contender("NumPy eigh and a search", lambda: kernels_and_a_search(1000), 1),
    ],
    "10 rows, 50 columns, 10,000 groups": [
        Contender("ebfed", lambda: ours_wide(10_000)),
        Contender("NumPy eigh and a search", lambda: kernels_and_a_search(10_000), 1),
    ],
}
CASES = [(workload, each) for workload, contenders in WORKLOADS.items() for each in contenders]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_same_criterion(workload):
    values = [criterion(contender.run()) for contender in WORKLOADS[workload]]
    # Each stops where the next step gains less than its own tolerance, all below 1e-5 here.
    assert values == pytest.approx([values[0]] * len(values), rel=0, abs=1e-4)


@pytest.mark.parametrize(
    ("workload", "contender"), CASES, ids=[f"{workload}-{each.name}" for workload, each in CASES]
)
def test_linear(benchmark, workload, contender):
    benchmark.group = workload
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "min",
    }
    benchmark.pedantic(contender.run, rounds=10, warmup_rounds=1)
