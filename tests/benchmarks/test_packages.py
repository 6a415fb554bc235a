"""Packages of PyPI that fit the same models, on small tables: the extra `bench` installs them.

Each does what it does by default, so that answers are near each other and not equal; a peer that
does more than ours (standard errors by the delta method, a table of tests) is not charged less.
"""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest

import ebfed as eb

peer = pytest.importorskip  # contests with a package that is not installed are skipped


@cache
def rows(n_groups):
    rng = np.random.default_rng(n_groups)
    groups = np.repeat(np.arange(n_groups), 10)
    theta = rng.normal(5.0, 1.0, n_groups)
    return pd.DataFrame({"y": rng.normal(theta[groups], 2.0), "g": groups})


@cache
def estimates(n_groups):
    rng = np.random.default_rng(n_groups)
    errors = rng.uniform(0.3, 1.0, n_groups)
    theta = np.where(rng.random(n_groups) < 0.7, 0.0, rng.normal(0.0, 2.0, n_groups))
    return rng.normal(theta, errors), errors


@cache
def choices(n_groups):
    rng = np.random.default_rng(n_groups)
    groups = np.repeat(np.arange(n_groups), 20)
    x = rng.standard_normal((len(groups), 2))
    logit = -0.5 + x @ [1.0, -0.5] + rng.normal(0, 1.0, n_groups)[groups]
    y = (rng.random(len(groups)) < 1 / (1 + np.exp(-logit))).astype(int)
    return pd.DataFrame({"y": y, "a": x[:, 0], "b": x[:, 1], "g": groups})


def by_gpboost(data, likelihood):
    model = peer("gpboost").GPModel(group_data=data["g"].to_numpy(), likelihood=likelihood)
    others = data.drop(columns=["y", "g"])
    X = np.column_stack([np.ones(len(data)), others])
    model.fit(y=data["y"].to_numpy(float), X=X, params={"trace": False})
    return model


INTERCEPT, LOGISTIC = "y ~ 1 + (1 | g)", "y ~ a + b + (1 | g)"
WORKLOADS = {
    "random intercept": (
        [1_000, 10_000],
        {
            "ebfed": lambda m: eb.GaussianEB().fit(rows(m)[["y"]], groups=rows(m)["g"]),
            "mixedlm": lambda m: peer("mixedlm").lmer(INTERCEPT, rows(m)),
            "gpboost": lambda m: by_gpboost(rows(m), "gaussian"),
            "interlace-lme": lambda m: peer("interlace").fit("y ~ 1", rows(m), groups="g"),
        },
    ),
    "adaptive shrinkage": (
        [1_000],
        {
            "ebfed": lambda m: eb.posterior_from(*estimates(m), prior="scale_mixture"),
            "ashrink": lambda m: peer("ashrink").fit(*estimates(m)),
        },
    ),
    "t errors": (
        [1_000],
        {
            "ebfed": lambda m: eb.posterior_from(*estimates(m), prior="scale_mixture", df=5),
            "ashrink": lambda m: peer("ashrink").fit(*estimates(m), df=5),
        },
    ),
    "logistic intercepts": (
        [1_000],
        {
            "ebfed": lambda m: eb.from_formula(LOGISTIC, choices(m), family="binomial"),
            "mixedlm": lambda m: peer("mixedlm").glmer(
                LOGISTIC, choices(m), family=peer("mixedlm").families.Binomial()
            ),
            "gpboost": lambda m: by_gpboost(choices(m), "bernoulli_logit"),
        },
    ),
}
CASES = [
    (workload, size, name)
    for workload, (sizes, contenders) in WORKLOADS.items()
    for size in sizes
    for name in contenders
]


@pytest.mark.parametrize(("workload", "size", "name"), CASES)
def test_packages(benchmark, workload, size, name):
    run = WORKLOADS[workload][1][name]
    benchmark.group = f"{workload}, 1e{round(np.log10(size))} groups, packages"
    benchmark.extra_info = {"contender": name, "target": None, "statistic": "min"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        benchmark.pedantic(run, args=(size,), rounds=3, warmup_rounds=1)
