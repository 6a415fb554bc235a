"""Bits: the error of many means that are estimated together from reports of k bits.

The settings are those of the private means (`private_means`), without privacy: a client
sends its mean, clipped to ``±b`` of Theorem 2 of Ozkara, Girgis, Data and Diggavi (2023) and
rounded at random to one of ``2**k`` even steps. The formula is the risk of Theorem 2,
`theory.mean_risk`, with ``b**2 / (2**k - 1)**2``, which bounds the variance of a report.

Theorem 2 takes the variance of the population as known. With at least two bits it can be estimated
too, from the exact law of the rounded reports.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ebfed import theory
from ebfed.channels import Exact, Quantizer
from ebfed.evaluation.study import Study, average
from ebfed.priors import Normal
from ozkara2023.doubts import doubts
from ozkara2023.private_means import (
    LOCAL,
    NOISE,
    OPEN,
    RADIUS,
    SETTINGS,
    SPREAD,
    estimate,
    panels_of,
    print_errors,
    simulate,
)

BITS = tuple(range(1, 9))
KNOWN, LEARNED = "variances known", "spread estimated"
FORMULA = "Theorem 2"


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List settings and numbers of bits; the quick version has the smallest setting and three."""
    settings = {"3b": SETTINGS["3b"]} if quick else SETTINGS
    return [
        {"figure": figure, "m": m, "n": n, "bits": bits}
        for figure, (m, n) in settings.items()
        for bits in (np.nan, *((1, 2, 4) if quick else BITS))
    ]


def _tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    table = average(runs, ["figure", "m", "n", "method", "bits"], ["mse"])
    table["formula"] = [_formula(row.method, row.m, row.n, row.bits) for row in table.itertuples()]
    table["apart"] = (table["mse"] - table["formula"]) / table["mse_se"]
    table["doubt"] = doubts(table, "bits")
    return table


def _one_run(
    seed: tuple[int, int], figure: str, m: int, n: int, bits: float
) -> list[dict[str, Any]]:
    """Errors of every method with that many bits, or of those without a limit."""
    summary, theta = simulate(m, n, np.random.default_rng([*seed, m]))  # the same for all bits
    if np.isnan(bits):
        rng = np.random.default_rng(seed)
        estimates = {LOCAL: summary.mean[:, 0], OPEN: estimate(summary, Exact(), rng)}
    else:
        priors = {KNOWN: Normal(variance=SPREAD**2)}
        if bits > 1:
            priors[LEARNED] = Normal()
        estimates = {
            method: estimate(
                summary,
                Quantizer(int(bits)),
                np.random.default_rng([*seed, m, int(bits)]),  # the same reports for both
                prior,
            )
            for method, prior in priors.items()
        }
    return [
        {"method": method, "mse": float(np.mean((each - theta) ** 2))}
        for method, each in estimates.items()
    ]


def _formula(method: str, m: int, n: int, bits: float) -> float:
    """Risk of Theorem 2; nothing where the spread is estimated."""
    t, noise = SPREAD**2, NOISE**2
    if method == LOCAL:
        return float(theory.local_risk(noise, n))
    if method == LEARNED:
        return np.nan
    b = theory.reporting_range(RADIUS, t, noise, n, m)
    variance = 0.0 if np.isnan(bits) else theory.quantizer_variance(b, bits)
    return float(theory.mean_risk(t, noise, n, m, variance))


class BitsStudy(Study, cells=_cells, one_run=_one_run, tabulate=_tabulate):
    """The table has a row for each setting (``figure``, ``m``, ``n``), ``method`` and number of
    ``bits`` (NaN: no limit): ``mse``, its standard error ``mse_se`` and the standard deviation of
    one run ``mse_sd``; the ``formula``, and by how many standard errors the simulation lies above
    it (``apart``); and a ``doubt``, where an error cannot be right.
    """

    name, full, quick = "bits", 50, 4
    heading = "Bits: mean squared error x 1000 of personalised estimates"

    def lines(self) -> Iterator[str]:
        yield from print_errors(self.table.assign(keeps=True), "bits")

    def notes(self) -> Iterator[str]:
        yield (
            f"Means over {self.reps} runs; below each, in brackets, its standard error. All "
            "methods see the same clients. Formula: the risk of Theorem 2, for known variances, "
            "with the bound on the variance of a report, so that the simulation may lie below; "
            "apart: by how many standard errors it lies above. Non-private: means sent as they "
            "are, variances known."
        )

    def panels(self) -> Iterator[dict[str, Any]]:
        theorem = self.table[self.table["method"] == KNOWN].assign(method=FORMULA, mse_se=0.0)
        theorem["mse"] = theorem["formula"]
        points = pd.concat([self.table, theorem], ignore_index=True)
        yield from panels_of(points, "bits", log_x=False, xlabel="bits of a report")
