"""Ten million clients through a channel, beside NumPy's mere drawing of as many numbers."""

from functools import cache

import numpy as np
import pytest
from test_speed import Contender

from ebfed import Summary
from ebfed.channels import Gaussian, OneBit

N = 10**7
RNG = np.random.default_rng(0)


@cache
def clients():
    means = np.random.default_rng(1).normal(size=(N, 1))
    return Summary(np.arange(N), np.full(N, 5), means, np.zeros((N, 1)))


WORKLOADS = {
    "1e7 clients through OneBit": [
        Contender("ebfed", lambda: OneBit(1.0, (-2, 2)).encode(clients(), 0)),
        Contender("numpy random()", lambda: RNG.random(N), 2.0),
    ],
    "1e7 clients through Gaussian": [
        Contender("ebfed", lambda: Gaussian(1.0, 1e-6, (-2, 2)).encode(clients(), 0)),
        Contender("numpy standard_normal()", lambda: RNG.standard_normal(N), 2.0),
    ],
}
CASES = [(workload, each) for workload, contenders in WORKLOADS.items() for each in contenders]


@pytest.mark.parametrize(
    ("workload", "contender"), CASES, ids=[f"{workload}-{each.name}" for workload, each in CASES]
)
def test_channels(benchmark, workload, contender):
    benchmark.group = workload
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "median",
    }
    benchmark.pedantic(contender.run, rounds=9, warmup_rounds=1)
