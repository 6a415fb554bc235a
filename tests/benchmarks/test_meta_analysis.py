"""Meta-analyses of few and of many studies beside pimeta, a port of metafor to NumPy.

Both fit tau^2 by REML, and have mean, Q and I^2 at hand afterwards. Ours also reads and checks what
was given, a series with an index or any array; intervals of tau^2 and posteriors of studies are
computed when they are asked for, in both.
"""

from functools import cache

import numpy as np
import pytest

import ebfed as eb

peer = pytest.importorskip  # contests with a package that is not installed are skipped


@cache
def studies(n_studies):
    rng = np.random.default_rng(n_studies)
    errors = rng.uniform(0.1, 0.6, n_studies)
    return rng.normal(rng.normal(-0.7, 0.5, n_studies), errors), errors


def by_ebfed(n_studies):
    found = eb.meta_analysis(*studies(n_studies))
    return found.interval, found.q_p_value, found.i2


def by_pimeta(n_studies):
    estimates, errors = studies(n_studies)
    found = peer("pimeta").rma(yi=estimates, vi=errors**2, method="REML")
    return found.b, found.QEp, found.I2


CONTENDERS = {"ebfed": by_ebfed, "pimeta": by_pimeta}


@pytest.mark.parametrize("name", CONTENDERS)
@pytest.mark.parametrize("n_studies", [13, 1_000])
def test_meta_analysis(benchmark, n_studies, name):
    benchmark.group = f"meta-analysis, {n_studies:,} studies"
    benchmark.extra_info = {"contender": name, "target": None, "statistic": "min"}
    benchmark.pedantic(CONTENDERS[name], args=(n_studies,), rounds=5, warmup_rounds=1)
