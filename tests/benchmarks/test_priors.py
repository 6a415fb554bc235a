"""Fits of 100,000 estimates of unequal precision, beside R's optimisers and one NumPy pass.

R's times are those that ``tests/reference/npmle.R`` printed, processor seconds on another day; the
NumPy pass, ``exp`` of the likelihood matrix on 200 atoms, is timed here and tells how fast the
machine is. conftest.py prints the ratios.
"""

import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.likelihoods import Gaussian

FOLDER = Path(__file__).parents[1] / "reference"
REFERENCE = pd.read_csv(FOLDER / "npmle.csv").set_index(["prior", "quantity"])["value"]
SCRIPT = runpy.run_path(str(FOLDER / "npmle.py"))


@cache
def data():
    return SCRIPT["data"]()


def matrix():
    """One pass over the likelihood matrix of m = 1e5 clients and 200 atoms."""
    x, s = data()
    z = (x[:, None] - SCRIPT["grid"](x)) / s[:, None]
    return np.exp(-0.5 * z * z)


@pytest.mark.parametrize(
    ("prior", "peer"),
    [
        ("normal", "optim BFGS"),
        ("point_normal", "optim BFGS"),
        ("laplace", None),
        ("point_laplace", None),
        ("scale_mixture", "mixsqp"),
        ("npmle", "mixsqp, 200 atoms"),
    ],
)
def test_posterior_from(benchmark, prior, peer):
    benchmark.group = f"posterior_from, {prior}, 1e5"
    benchmark.extra_info = {"contender": "ebfed", "target": None, "statistic": "min"}
    x, s = data()
    posterior = benchmark.pedantic(
        lambda: eb.posterior_from(x, s, prior=prior), rounds=3, warmup_rounds=1
    )
    ours = benchmark.stats.stats.min
    if peer:
        theirs = REFERENCE[prior]["cpu_seconds"]
        print(f"\n{prior}: {ours:.3f} s, R {peer} {theirs:.3f} s, ratio {ours / theirs:.3f}")
    likelihood = Gaussian(x[:, None], s[:, None] ** 2)
    print(f"\n{prior}: log-likelihood {posterior.prior.log_marginal(likelihood).sum():.6f}")


@pytest.mark.parametrize(
    "prior", ["normal", "point_normal", "laplace", "point_laplace", "scale_mixture", "npmle"]
)
def test_one_pass(benchmark, prior):
    benchmark.group = f"posterior_from, {prior}, 1e5"
    benchmark.extra_info = {
        "contender": "NumPy: exp of the 1e5 x 200 matrix",
        "target": None,
        "statistic": "min",
    }
    benchmark.pedantic(matrix, rounds=3, warmup_rounds=1)
