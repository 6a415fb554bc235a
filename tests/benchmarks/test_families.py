"""Every family of one parameter at 1e5 groups: beside the beta-binomial fit, and beside peers.

The beta-binomial fit is of rows where ours is of rows, ten of each group on average, and of a table
of groups where ours is. Peers: ashrink (t errors), pylimma (variances), and glm.nb of R's MASS,
which fits a gamma population of Poisson rates; it runs in an R that has its rows.
"""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from r_session import r
from scipy.stats import t as student_t
from test_speed import Contender

import ebfed as eb

M = 100_000


# --- data ----------------------------------------------------------------------------------------


@cache
def owners(n_groups=M):
    """Ten rows of each group on average, unsorted."""
    return np.random.default_rng(0).integers(0, n_groups, 10 * n_groups)


def seeded(kind):
    return np.random.default_rng(list(kind.encode()))


@cache
def rows(kind, n_groups=M):
    """Rows of a family, each with a group, and what `fit` takes besides."""
    rng, of = seeded(kind), owners(n_groups)
    if kind == "binomial":
        return (rng.random(len(of)) < rng.beta(3, 5, n_groups)[of]).astype(float), {}
    if kind == "variance":
        return rng.normal(0, np.sqrt(4 / rng.gamma(4, 1, n_groups))[of]), {}
    rate = rng.gamma(3, 0.5, n_groups)[of]
    if kind == "duration":
        time = rng.exponential(1 / rate)
        return np.minimum(time, 3.0), {"observed": time < 3.0}
    scatter = rng.gamma(2, 0.5, len(of)) if kind == "negative_binomial" else 1.0
    return rng.poisson(rate * scatter).astype(float), {}


ESTIMATORS = {
    "binomial": lambda: eb.BernoulliEB(),
    "poisson": lambda: eb.PoissonEB(),
    "duration": lambda: eb.DurationEB(),
    "variance": lambda: eb.VarianceEB(),
    "negative_binomial": lambda: eb.NegativeBinomialEB(),
    "negative_binomial, known": lambda: eb.NegativeBinomialEB(dispersion=0.5),
}


def from_rows(name):
    values, of_rows = rows(name.split(",")[0])
    return ESTIMATORS[name]().fit(values, groups=owners(), **of_rows)


@cache
def table(name):
    """Groups as a table: what the rows of each add up to."""
    return from_rows(name).summaries_


def from_table(name):
    return ESTIMATORS[name]().fit(table(name))


@cache
def events(n_groups=M):
    """One count of each group, with an exposure of its own."""
    rng = seeded("events")
    exposure = rng.uniform(1, 30, n_groups)
    return rng.poisson(exposure * rng.gamma(3, 0.5, n_groups)), exposure


@cache
def estimates(n_groups=M):
    rng = seeded("estimates")
    errors = rng.uniform(0.3, 1.0, n_groups)
    theta = np.where(rng.random(n_groups) < 0.7, 0.0, rng.normal(0.0, 2.0, n_groups))
    return theta + errors * rng.standard_t(5, n_groups), errors


@cache
def means(n_groups=M):
    return seeded("means").normal(0, 1, n_groups)


@cache
def sample_variances(n_groups=M):
    rng = seeded("sample variances")
    df = rng.integers(2, 20, n_groups)
    return 4 / rng.gamma(4, 1, n_groups) * rng.chisquare(df) / df, df


# --- contenders ----------------------------------------------------------------------------------


def rates_of_events(n_groups=M):
    y, exposure = events(n_groups)
    return eb.PoissonEB().fit(y, groups=np.arange(n_groups), exposure=exposure)


def by_glm_nb(n_groups=M):
    y, exposure = events(n_groups)
    session = r("MASS")
    session.give(f"events{n_groups}", pd.DataFrame({"y": y, "e": exposure}))
    shown = session.run(
        f"fit <- glm.nb(y ~ 1 + offset(log(e)), events{n_groups});"
        "cat(format(as.numeric(logLik(fit)), digits = 15))"
    )
    return float(shown)


def with_t_errors(prior, n_groups=M):
    return eb.posterior_from(*estimates(n_groups), prior=prior, df=5)


def by_ashrink(n_groups):
    return pytest.importorskip("ashrink").fit(*estimates(n_groups), df=5)


def moderated(n_groups=M):
    """Moderated t, and variances of all groups; standard errors are those of means of ten."""
    s2, df = sample_variances(n_groups)
    return eb.moderated_t(means(n_groups), np.sqrt(s2 / 10), df)


def by_pylimma(n_groups=M):
    s2, df = sample_variances(n_groups)
    found = pytest.importorskip("pylimma").squeeze_var(s2, df)
    t = means(n_groups) / np.sqrt(found["var_post"] / 10)
    return t, 2 * student_t.sf(np.abs(t), df + found["df_prior"])


AIM = 3
WORKLOADS = {}
for each in ESTIMATORS:
    if each == "binomial":
        continue
    peers = [("rows", from_rows), ("table", from_table)]
    for what, fit in peers:
        WORKLOADS[f"{each}, {what}, 1e5"] = [
            Contender("ebfed", lambda each=each, fit=fit: fit(each)),
            Contender(f"beta-binomial, {what}", lambda fit=fit: fit("binomial"), AIM),
        ]
WORKLOADS["rates of events, 1e5"] = [
    Contender("ebfed", rates_of_events),
    Contender("MASS glm.nb", by_glm_nb),
]
for prior in ("normal", "scale_mixture", "log_spline", "npmle"):
    WORKLOADS[f"t errors, {prior}, 1e5"] = [
        Contender("ebfed", lambda prior=prior: with_t_errors(prior))
    ]
WORKLOADS["t errors, scale_mixture, 1e3"] = [
    Contender("ebfed", lambda: with_t_errors("scale_mixture", 1000)),
    Contender("ashrink", lambda: by_ashrink(1000)),
]
WORKLOADS["moderated t, 1e5"] = [
    Contender("ebfed", moderated),
    Contender("pylimma", by_pylimma),
]
CASES = [(workload, each) for workload, contenders in WORKLOADS.items() for each in contenders]


@pytest.mark.parametrize(
    ("workload", "contender"), CASES, ids=[f"{workload}-{each.name}" for workload, each in CASES]
)
def test_families(benchmark, workload, contender):
    benchmark.group = workload
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "min",
    }
    slow = contender.name == "ashrink"  # more than a minute
    benchmark.pedantic(contender.run, rounds=1 if slow else 5, warmup_rounds=0 if slow else 1)
