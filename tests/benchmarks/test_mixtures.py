"""Mixtures of Gaussians beside scikit-learn's, at three sizes; conftest.py prints the ratios.

scikit-learn's `GaussianMixture` is fitted to the messages as if they had no noise; where that is
the same for all, its variances are ours plus the noise. It begins once, by k-means, and stops at a
gain of 1e-3 of a row's log-likelihood, far from the maximum where clusters overlap; we begin eight
times and stop at 1e-10. That ours is at least as likely is tested.

What a step costs is told in products of matrices: the densities of all rows need one, and the sums
of the maximum another.
"""

import time
from functools import cache

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture
from test_speed import Contender

import ebfed as eb
from ebfed.priors import mixture_em
from ebfed.priors.mixture_em import Mixture, SortedMessages

K, NOISE = 5, 0.5
SIZES = {1000: 50, 100_000: 50, 1_000_000: 5}  # messages, and their columns
# distances between centres, in standard deviations of a column
APART, OVERLAPPING = 0.5, 0.17


@cache
def messages(m, gap):
    rng = np.random.default_rng(3)
    d = SIZES[m]
    centres = gap * rng.normal(size=(K, d)) * np.sqrt(50 / d)
    theta = centres[rng.integers(0, K, m)] + 0.5 * rng.normal(size=(m, d))
    return theta + NOISE * rng.normal(size=(m, d)), centres


def ours(m, gap):
    X, _ = messages(m, gap)
    variances = np.full(X.shape[1], NOISE**2)
    return eb.MixtureEB(K, components="spherical", variances=variances, random_state=0).fit(X)


def peer(m, gap):
    X, _ = messages(m, gap)
    return GaussianMixture(K, covariance_type="spherical", random_state=0).fit(X)


WORKLOADS = {
    f"{K} clusters {name}, {m:,} x {d}": [
        Contender("ebfed", lambda m=m, gap=gap: ours(m, gap)),
        Contender("scikit-learn, spherical", lambda m=m, gap=gap: peer(m, gap), 1),
    ]
    for m, d in SIZES.items()
    for name, gap in {"apart": APART, "overlapping": OVERLAPPING}.items()
}
CASES = [(workload, each) for workload, contenders in WORKLOADS.items() for each in contenders]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_at_least_as_likely(workload):
    fit, other = (contender.run() for contender in WORKLOADS[workload])
    m = int(workload.split(", ")[1].split(" x ")[0].replace(",", ""))
    X, _ = messages(m, OVERLAPPING if "overlapping" in workload else APART)
    assert fit.prior_.path_[-1] >= other.score(X) * m - 1e-3


@pytest.mark.parametrize(
    ("workload", "contender"), CASES, ids=[f"{workload}-{each.name}" for workload, each in CASES]
)
def test_whole_fit(benchmark, workload, contender):
    benchmark.group = workload
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "min",
    }
    benchmark.pedantic(contender.run, rounds=3, warmup_rounds=1)


def seconds(function):
    function()
    times = []
    for _ in range(5):
        began = time.process_time()
        function()
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.parametrize("m", SIZES)
def test_steps(m, capsys):
    X, centres = messages(m, OVERLAPPING)
    table = SortedMessages.of(X, np.full(X.shape, NOISE**2), np.ones(m), True)
    mixture = Mixture(np.full(K, 1 / K), centres, np.full(centres.shape, 0.25))

    def step():
        _, sums = mixture_em._expected(table, mixture)
        return mixture_em._maximised(table, mixture, sums, True, np.zeros(X.shape[1]))

    products = seconds(lambda: (X @ centres.T).T @ X)
    ratio, n_steps = seconds(step) / products, len(ours(m, OVERLAPPING).prior_.path_)
    with capsys.disabled():
        print(f"\n{m:,} x {X.shape[1]}: {n_steps} steps, each {ratio:.2f} times the products")
