"""The whole work of a channel beside NumPy's mere drawing; conftest.py prints the ratios."""

from functools import cache

import numpy as np
import pytest
from test_speed import Contender

from ebfed.streams import Stream, make_key

N_DRAWS = 10**7
KEY = make_key(0)
RNG = np.random.default_rng(0)


@cache
def probabilities():
    return np.random.default_rng(1).random(N_DRAWS)


@cache
def values():
    return np.random.default_rng(2).normal(size=N_DRAWS)


def clip_and_add():
    return np.clip(values(), -2, 2) + 1.5 * RNG.standard_normal(N_DRAWS)


UNIFORM = Contender("numpy random()", lambda: RNG.random(N_DRAWS), 1.4)
NORMAL = Contender("numpy standard_normal()", lambda: RNG.standard_normal(N_DRAWS), 1.5)
WORKLOADS = {
    "1e7 bits of given probabilities": [
        Contender("ebfed", lambda: Stream(KEY, 0).bernoulli(probabilities())),
        UNIFORM,
        Contender("numpy random() < p", lambda: RNG.random(N_DRAWS) < probabilities()),
    ],
    "1e7 values clipped plus noise": [
        Contender("ebfed", lambda: Stream(KEY, 0).add_normals(values(), 1.5, -2, 2)),
        NORMAL,
        Contender("numpy clip + scale * normal", clip_and_add),
    ],
    "1e7 uniforms": [Contender("ebfed", lambda: Stream(KEY, 0).uniforms(N_DRAWS)), UNIFORM],
    "1e7 normals": [Contender("ebfed", lambda: Stream(KEY, 0).normals(N_DRAWS)), NORMAL],
}
CASES = [(workload, each) for workload, contenders in WORKLOADS.items() for each in contenders]


@pytest.mark.parametrize(
    ("workload", "contender"), CASES, ids=[f"{workload}-{each.name}" for workload, each in CASES]
)
def test_streams(benchmark, workload, contender):
    benchmark.group = workload
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "median",
    }
    benchmark.pedantic(contender.run, rounds=9, warmup_rounds=1)
