"""Budgets of many levels: opting out where each client chooses its own noise.

A quarter of the clients each send their means with much, with some, with little noise, and as they
are; four rows of each have five columns with variance 1 around means that are N(2, 1/2). *Known*:
`OptOutMean` with all variances; *estimated*: with those of rows and of the population estimated;
*one weight*: FedAvg's, as if all messages were alike. *Likelihood*: `GaussianEB` with a channel for
each level, whose estimates are to be those of *known* up to rounding, as the weights of both are.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ebfed.channels import AddNoise, Exact
from ebfed.evaluation.study import Study, average, print_grid
from ebfed.location import GaussianEB, OptOutMean
from ebfed.priors import Normal

LEVELS = {"strict": 0.9, "middle": 0.2, "lax": 0.02}  # variances of noise on means of m / 4
ROWS, COLUMNS, SPREAD = 4, 5, 0.5
KNOWN, ESTIMATED, EQUAL, LIKELIHOOD = "known", "estimated", "one weight", "likelihood"


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List numbers of clients."""
    return [{"m": m} for m in ((100,) if quick else (100, 400, 1600))]


def _one_run(seed: tuple[int, int], m: int) -> list[dict[str, Any]]:
    """Errors of all methods with the same messages."""
    rng = np.random.default_rng([*seed, m])
    theta = rng.normal(2.0, np.sqrt(SPREAD), (m, COLUMNS))
    groups = np.repeat(np.arange(m), ROWS)
    X = theta[groups] + rng.normal(size=(m * ROWS, COLUMNS))
    consent = np.array([*LEVELS, "open"])[np.arange(m) % 4]
    common: dict[str, Any] = {"random_state": [*seed, m]}
    within = 1 / ROWS
    channels: dict[str, Any] = {
        name: AddNoise(np.sqrt(gamma2 * m / 4)) for name, gamma2 in LEVELS.items()
    }
    prior = Normal(variance=SPREAD)
    fits: dict[str, Any] = {
        KNOWN: OptOutMean(SPREAD, within, LEVELS, trust="none", **common),
        ESTIMATED: OptOutMean(None, None, LEVELS, trust="none", **common),
        EQUAL: OptOutMean(SPREAD, within, LEVELS, trust="none", ratio=1.0, **common),
        LIKELIHOOD: GaussianEB(1.0, prior=prior, channel=channels | {"open": Exact()}, **common),
    }
    for fit in fits.values():
        fit.fit(X, groups=groups, consent=consent[groups])
    best = fits[KNOWN].predict()
    return [
        {
            "method": name,
            "mse": float(((fit.predict() - theta) ** 2).mean()),
            "apart": float(abs(fit.predict() - best).max()),
        }
        for name, fit in fits.items()
    ]


class BudgetsStudy(Study, cells=_cells, one_run=_one_run):
    """The table has a row for each number of clients ``m`` and ``method``: ``mse`` with its
    standard error, how much larger it is than with variances known (``above``, in per cent), and
    how far estimates are ``apart`` from these at most, a mean over runs.
    """

    name, full = "budgets", 20
    heading = "Budgets of many levels: squared error x 1000, and per cent above variances known"

    @staticmethod
    def tabulate(runs: pd.DataFrame) -> pd.DataFrame:
        table = average(runs, ["m", "method"], ["mse", "apart"]).drop(columns=["apart_se"])
        best = table["m"].map(table[table["method"] == KNOWN].set_index("m")["mse"])
        return table.assign(above=100 * (table["mse"] / best - 1))

    def lines(self) -> Iterator[str]:
        cell = "{0.mse_1000:.2f} ({0.above:+.2f} %)".format
        table = self.table.assign(mse_1000=1000 * self.table["mse"])
        yield from print_grid(table, "m", cell, 16, 20, label="{} clients".format)

    def notes(self) -> Iterator[str]:
        apart = self.table.loc[self.table["method"] == LIKELIHOOD, "apart"].max()
        yield (
            f"Means over {self.reps} runs. Estimates by the likelihood of a channel for each level "
            f"are at most {apart:.1g} from those of OptOutMean."
        )

    def panels(self) -> Iterator[dict[str, Any]]:
        yield {"table": self.table, "x": "m", "y": "mse", "ylabel": "squared error", "log_y": True}
