"""Mixed logistic models of 1,000 groups of 20 rows and 3 random coefficients.

The peer takes ten of Newton's steps to the mode of every group's coefficients, all groups at once,
with a population that is given: what a fit cannot do without, once. (glmer of lme4 with one node
took 2.3 s of processor time for such data on another machine.)
"""

from functools import cache

import numpy as np
import pytest
from test_speed import Contender

import ebfed as eb


@cache
def rows(m=1000, n=20, d=3):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, n, d))
    theta = rng.normal([-0.5, 1.0, 0.5], 0.8, (m, d))
    y = rng.random((m, n)) < 1 / (1 + np.exp(-np.einsum("mnd,md->mn", X, theta)))
    return X, y.astype(float), np.repeat(np.arange(m), n)


def ours(method):
    X, y, groups = rows()
    model = eb.LogisticEB(method=method, fit_intercept=False)
    return model.fit(X.reshape(-1, X.shape[2]), y.ravel(), groups=groups)


def ten_newton_steps():
    X, y, _ = rows()
    theta, mean, precision = np.zeros(X.shape[::2]), np.array([-0.5, 1.0, 0.5]), 1 / 0.64
    for _ in range(10):
        p = 1 / (1 + np.exp(-np.einsum("mnd,md->mn", X, theta)))
        slope = np.einsum("mnd,mn->md", X, y - p) - precision * (theta - mean)
        weighted = X * (p * (1 - p))[:, :, None]
        bend = weighted.swapaxes(1, 2) @ X + precision * np.eye(X.shape[2])
        theta = theta + np.linalg.solve(bend, slope[:, :, None])[:, :, 0]
    return theta


WORKLOADS = {
    f"logistic, {name}": [
        Contender("ebfed", lambda method=method: ours(method)),
        Contender("ten Newton steps", ten_newton_steps, target),
    ]
    for name, method, target in (
        ("Laplace", "laplace", 5),
        ("quadrature", "aghq", None),
        ("EP", "ep", None),
    )
}
CASES = [(workload, each) for workload, contenders in WORKLOADS.items() for each in contenders]


@pytest.mark.parametrize(
    ("workload", "contender"), CASES, ids=[f"{workload}-{each.name}" for workload, each in CASES]
)
def test_logistic(benchmark, workload, contender):
    benchmark.group = workload
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "min",
    }
    benchmark.pedantic(contender.run, rounds=5, warmup_rounds=1)
