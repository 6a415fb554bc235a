"""Regression: linear models of many clients with fewer rows than coefficients.

The setting is that of Ozkara, Girgis, Data and Diggavi (2023), appendix K.2: m = 10,000 clients
with n = 10 rows each, coefficients ``theta_i ~ N(mu, .01 I)`` around a mean drawn from ``N(0, .1**2
I)``, rows ``x ~ N(0, .05 I)``, ``y = x' theta_i + e`` with ``e ~ N(0, .05)``. The paper has d = 50
and 100 coefficients.

The fit by restricted maximum likelihood is compared with the estimate for known mean and variances
(Theorem 7), whose risk is exact; each client's least-squares coefficients of least norm; one
regression on all rows; and Algorithm 4, a descent on coefficients and variances together, whose
result depends on the last step.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed.evaluation.study import THIN, Study, average, draw_panel, print_row
from ebfed.regression import LinearEB
from ebfed.regression.posteriors.linear import CoefficientPosterior
from ebfed.report import new_axes
from ebfed.report.plots import BLACK, BLUE, GREEN, PURPLE, VERMILLION
from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factors

M, N = 10_000, 10
SPREAD, NOISE, DESIGN, CENTRE = 0.01, 0.05, 0.05, 0.1
DIMENSIONS = (10, 20, 50, 100)
# What the paper prints: gain over local and over FedAvg, and loss against known variances, in %.
PUBLISHED = {50: (8.0, 14.8, 1.0), 100: (9.2, 12.3, 4.7)}

LOCAL, POOLED, DESCENT = "local", "pooled", "Algorithm 4"
FITTED, KNOWN = "REML", "known"
LOOKS = {
    LOCAL: {"color": PURPLE, "marker": "D", "ls": ":"},
    POOLED: {"color": GREEN, "marker": "^", "ls": "--"},
    DESCENT: {"color": VERMILLION, "marker": "s", "ls": "--"},
    FITTED: {"color": BLUE, "marker": "o", "ls": "-"},
    KNOWN: {"color": BLACK, "marker": "", "ls": ":"},
}
STEPS, RATE = 1000, 0.0005


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List dimensions; the quick version has 500 clients, and 10 and 20 coefficients."""
    return [{"d": d, "m": 500 if quick else M} for d in (DIMENSIONS[:2] if quick else DIMENSIONS)]


def _tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    table = average(runs, ["d", "method"], ["mse", "formula"])
    table = table.drop(columns=["formula_se", "formula_sd"])
    known = table[table["method"] == KNOWN].set_index("d")["mse"]
    table["above"] = 100 * (table["mse"] / table["d"].map(known) - 1)
    return table


def _one_run(seed: tuple[int, int], d: int, m: int) -> list[dict[str, Any]]:
    """Errors of every method on the clients of one run."""
    rng = np.random.default_rng([*seed, d])
    mu = CENTRE * rng.standard_normal(d)
    theta = mu + np.sqrt(SPREAD) * rng.standard_normal((m, d))
    X = np.sqrt(DESIGN) * rng.standard_normal((m, N, d))
    y = np.einsum("mnd,md->mn", X, theta) + np.sqrt(NOISE) * rng.standard_normal((m, N))
    clients = Clients(np.arange(m), np.arange(0, m * N + 1, N), X.reshape(-1, d), y.ravel())
    factors = Factors.of(clients)
    nothing = np.zeros((d, d))
    known = CoefficientPosterior(factors, mu, nothing, SPREAD * np.eye(d), NOISE)
    fitted = LinearEB("spherical", fit_intercept=False).fit(clients)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        descent = LinearEB(
            "spherical", fit_intercept=False, solver="gradient", learning_rate=RATE, n_steps=STEPS
        ).fit(clients)
    estimates = {
        LOCAL: np.einsum("mdn,mn->md", np.linalg.pinv(X), y),
        POOLED: np.broadcast_to(np.linalg.lstsq(clients.X, y.ravel())[0], theta.shape),
        DESCENT: descent.posterior().mean,
        FITTED: fitted.posterior().mean,
        KNOWN: known.mean,
    }
    return [
        {
            "method": method,
            "mse": _error(each, theta),
            "formula": float(np.mean(np.sum(known.sd**2, axis=1))) if method == KNOWN else np.nan,
            "spread": fitted.covariance_[0, 0] if method == FITTED else np.nan,
            "noise": fitted.noise_variance_ if method == FITTED else np.nan,
        }
        for method, each in estimates.items()
    ]


def _cell(value: float, error: float) -> str:
    form = ".4f" if value < 100 else ".2g"
    return f"{value:{form}} ({error:{form}})"


def _print_values(label: str, values: Iterable[float], form: str) -> str:
    """Print numbers below those of `_cell`, whose errors in brackets they lack."""
    return print_row(label, [f"{value:{form}}         " for value in values], 16, 18)


def _error(estimates: NDArray, theta: NDArray) -> float:
    return float(np.mean(np.sum((estimates - theta) ** 2, axis=1)))


class RegressionStudy(Study):
    """The table has a row for each number of coefficients ``d`` and ``method``: ``mse`` (squared
    error of a client's coefficients, added up over them), its standard error ``mse_se`` and the
    standard deviation of one run ``mse_sd``; for ``known`` the exact risk, ``formula``; and
    ``above``, how far the error lies above that with everything known, in per cent.
    """

    name, full = "regression", 5
    # one process: a fit needs much memory and uses all cores
    n_jobs = 1
    cells = staticmethod(_cells)
    one_run = staticmethod(_one_run)
    tabulate = staticmethod(_tabulate)

    def title(self) -> str:
        clients = self.runs["m"].iloc[0]
        return f"Regression: squared error of coefficients, {clients:,} clients with {N} rows each"

    def lines(self) -> Iterator[str]:
        yield print_row("", [f"d = {d:g}" for d in self.table["d"].unique()], 16, 18)
        yield THIN
        for method, rows in self.table.groupby("method", sort=False):
            cells = [_cell(row.mse, row.mse_se) for row in rows.itertuples()]
            yield print_row(method, cells, 16, 18)
            if rows["formula"].notna().any():
                yield _print_values("  exact risk", rows["formula"], ".4f")
        fits = self.runs[self.runs["method"] == FITTED].groupby("d")[["spread", "noise"]].mean()
        yield _print_values("s_t**2 fitted", fits["spread"], ".5f")
        yield _print_values("s_x**2 fitted", fits["noise"], ".5f")

    def notes(self) -> Iterator[str]:
        yield (
            f"Means over {self.reps} runs, standard errors in brackets. All methods see the same "
            f"clients. True s_t**2 {SPREAD:g}, s_x**2 {NOISE:g}. Algorithm 4: after {STEPS} steps "
            f"of {RATE:g}."
        )
        errors = self.table.set_index(["d", "method"])["mse"]
        for d, (local, pooled, loss) in PUBLISHED.items():
            if d in errors.index.get_level_values("d"):
                gains = [100 * (1 - errors[d, FITTED] / errors[d, m]) for m in (LOCAL, POOLED)]
                above = 100 * (errors[d, FITTED] / errors[d, KNOWN] - 1)
                yield (
                    f"d = {d}: REML gains {gains[0]:.1f} % over local, {gains[1]:.1f} % over "
                    f"pooled (published: {local:g} and {pooled:g}), {above:.2f} % above known "
                    f"variances (published: {loss:g})."
                )
        yield (
            "A client's rows determine n of its d directions: at most a share n / d of the spread "
            "can be gained over the population's mean. Least squares of least norm is zero in the "
            "other directions; with as many coefficients as rows its error explodes."
        )

    def figure(self) -> Any:
        (ax,) = new_axes(1, (6.4, 4.2))
        table = self.table
        # least squares explodes where there are as many coefficients as rows
        seen = table["mse"] < 20 * table.loc[table["method"] == POOLED, "mse"].max()
        draw_panel(ax, table[seen], "d", "mse", looks=LOOKS, log_y=True)
        ax.set(
            xlabel="coefficients of a client",
            ylabel="squared error of its coefficients",
            title=f"{N} rows of each client",
        )
        return ax.figure


run = RegressionStudy.run
