"""Fits of estimates of unequal precision, beside NumPy, SciPy and R's optimisers.

R's times are those that ``tests/reference/npmle.R`` printed, processor seconds on another day; the
NumPy pass, ``exp`` of the likelihood matrix on 200 atoms, is timed here and tells how fast the
machine is. `ml` and `constrained_newton` are the strongest peers in Python: they give the
population alone, ours the posterior too. conftest.py prints the ratios.
"""

import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize, nnls

import ebfed as eb
from ebfed.likelihoods import Gaussian

FOLDER = Path(__file__).parents[1] / "reference"
REFERENCE = pd.read_csv(FOLDER / "npmle.csv").set_index(["prior", "quantity"])["value"]
SCRIPT = runpy.run_path(str(FOLDER / "npmle.py"))


@cache
def data(m=100_000):
    return SCRIPT["data"](m)


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


def ml(x, s):
    """Maximum likelihood of mean and variance, by SciPy's BFGS with derivatives."""
    s2 = s * s

    def value(point):
        total = s2 + np.exp(point[1])
        away = (x - point[0]) / total
        slope = np.array([-2 * away.sum(), np.exp(point[1]) * (1 / total - away * away).sum()])
        return (np.log(total) + away * away * total).sum() / len(x), slope / len(x)

    return minimize(value, [x.mean(), np.log(x.var())], jac=True, method="BFGS", tol=1e-9).x


def constrained_newton(x, s, gap=0.01, block=4096):
    """NPMLE on 200 atoms: least squares for the weights of those that rise, to a gap of .01."""
    atoms = SCRIPT["grid"](x)
    z = (x[:, None] - atoms) / s[:, None]
    likelihoods = np.exp(-0.5 * z * z)
    weights = np.full(len(atoms), 1 / len(atoms))
    for _ in range(100):
        mixture = likelihoods @ weights
        rises = (1 / mixture) @ likelihoods - len(x)
        if rises.max() <= gap:
            break
        peaks = np.r_[False, (rises[1:-1] >= rises[:-2]) & (rises[1:-1] > rises[2:]), False]
        active = np.flatnonzero((weights > 1e-4) | (peaks & (rises > 0)))
        square = np.zeros((len(active),) * 2)
        for first in range(0, len(x), block):
            part = likelihoods[first : first + block, active] / mixture[first : first + block, None]
            square += part.T @ part
        slope = rises[active] + len(x)
        bend = square - 2 * (slope + slope[:, None]) + 4 * len(x)
        sizes, axes = np.linalg.eigh(bend / len(x))
        system = np.vstack((np.sqrt(np.maximum(sizes, 0))[:, None] * axes.T, np.ones(len(active))))
        target = np.zeros(len(atoms))
        target[active] = nnls(system, np.append(np.zeros(len(active)), 1.0))[0]
        target /= target.sum()
        to, step, height = likelihoods @ target, 1.0, np.log(mixture).sum()
        while np.log((1 - step) * mixture + step * to).sum() < height and step > 1e-6:
            step /= 2
        weights = (1 - step) * weights + step * target
    return atoms, weights


PEERS = {"normal": (ml, 1.0), "npmle": (constrained_newton, 0.5)}


@pytest.mark.parametrize("df", [None, 5.0], ids=["normal errors", "t errors"])
def test_t_errors(benchmark, df):
    """Estimates with t errors, which take a sum over normals; beside those with normal errors."""
    benchmark.group = "posterior_from, normal with t errors, 1e5"
    contender = "ebfed" if df else "normal errors"
    benchmark.extra_info = {"contender": contender, "target": None, "statistic": "min"}
    x, s = data()
    benchmark.pedantic(lambda: eb.posterior_from(x, s, df=df).sd, rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("m", [1000, 100_000, 1_000_000])
@pytest.mark.parametrize("prior", PEERS)
@pytest.mark.parametrize("who", ["ebfed", "peer"])
def test_beside_python(benchmark, prior, m, who):
    benchmark.group = f"posterior_from, {prior}, 1e{round(np.log10(m))} alone"
    peer, target = PEERS[prior]
    if who == "peer" and (prior, m) == ("npmle", 1_000_000):
        pytest.skip("its matrix of 1.6 GB is no peer's")
    names = {"ebfed": "ebfed", "peer": peer.__doc__.split(":")[0].split(",")[0]}
    aim = target if who == "peer" else None
    benchmark.extra_info = {"contender": names[who], "target": aim, "statistic": "min"}
    benchmark.extra_info |= {"of": f"posterior_from, {prior}", "size": m}
    x, s = data(m)
    run = {"ebfed": lambda: eb.posterior_from(x, s, prior=prior), "peer": lambda: peer(x, s)}[who]
    benchmark.pedantic(run, rounds=1 if m > 100_000 else 3, warmup_rounds=int(m <= 100_000))
