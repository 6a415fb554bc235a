"""Poisson counts of 10,000 groups of 10 rows, with a random intercept.

mixedlm (lme4 in Rust) maximises Laplace's approximation; ours, and `glmer.R`, which prints its
seconds for the same rows, integrate by quadrature. `python test_counts.py counts.csv` writes them.
"""

import sys
from functools import cache

import numpy as np
import pandas as pd
import pytest

import ebfed as eb


@cache
def rows(m=10_000, n=10):
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(m), n), rng.normal(size=m * n)
    z = 0.5 + 0.3 * x + rng.normal(0, 0.5, m)[groups]
    return pd.DataFrame({"g": groups, "x": x, "y": rng.poisson(np.exp(z)).astype(float)})


def ours():
    table = rows()
    fit = eb.GeneralizedEB("poisson", varying=["intercept"])
    return fit.fit(table[["x"]].to_numpy(), table["y"].to_numpy(), groups=table["g"].to_numpy())


def theirs():
    mixedlm = pytest.importorskip("mixedlm")
    return mixedlm.glmer("y ~ x + (1 | g)", rows(), family=mixedlm.families.Poisson())


@pytest.mark.parametrize(
    ("name", "run", "target"), [("ebfed", ours, None), ("mixedlm", theirs, 0.1)]
)
def test_counts(benchmark, name, run, target):
    benchmark.group = "counts, 1e4 groups of 10"
    benchmark.extra_info = {"contender": name, "target": target, "statistic": "min"}
    benchmark.pedantic(run, rounds=5, warmup_rounds=1)


if __name__ == "__main__":
    rows().to_csv(sys.argv[1], index=False)
