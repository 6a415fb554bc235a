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

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ebfed.evaluation.study import Study, average, number, print_grid, print_row
from ebfed.regression import LinearEB
from ebfed.regression.posteriors.linear import CoefficientPosterior
from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factors

M, N = 10_000, 10
SPREAD, NOISE, DESIGN, CENTRE = 0.01, 0.05, 0.05, 0.1
DIMENSIONS = (10, 20, 50, 100)
# What the paper prints: gain over local and over FedAvg, and loss against known variances, in %.
PUBLISHED = {50: (8.0, 14.8, 1.0), 100: (9.2, 12.3, 4.7)}

LOCAL, POOLED, DESCENT = "local", "pooled", "Algorithm 4"
FITTED, KNOWN = "REML", "known"
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


def _error(estimates: NDArray, theta: NDArray) -> float:
    return float(np.mean(np.sum((estimates - theta) ** 2, axis=1)))


class RegressionStudy(Study, cells=_cells, one_run=_one_run, tabulate=_tabulate):
    """The table has a row for each number of coefficients ``d`` and ``method``: ``mse`` (squared
    error of a client's coefficients, added up over them), its standard error ``mse_se`` and the
    standard deviation of one run ``mse_sd``; for ``known`` the exact risk, ``formula``; and
    ``above``, how far the error lies above that with everything known, in per cent.
    """

    name, full = "regression", 5
    # one process: a fit needs much memory and uses all cores
    n_jobs = 1

    def title(self) -> str:
        clients = self.runs["m"].iloc[0]
        return f"Regression: squared error of coefficients, {clients:,} clients with {N} rows each"

    def lines(self) -> Iterator[str]:
        exact = {"  exact risk": lambda row: number(row.formula, ".4f") + 9 * " "}
        yield from print_grid(
            self.table,
            "d",
            lambda row: "{0:{2}} ({1:{2}})".format(
                row.mse, row.mse_se, ".4f" if row.mse < 100 else ".2g"
            ),
            *(16, 18),
            label="d = {}".format,
            below=exact,
        )
        fits = self.runs[self.runs["method"] == FITTED].groupby("d")[["spread", "noise"]].mean()
        for name, text in (("spread", "s_t**2 fitted"), ("noise", "s_x**2 fitted")):
            yield print_row(text, [f"{value:.5f}         " for value in fits[name]], 16, 18)

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

    def panels(self) -> Iterator[dict[str, Any]]:
        # least squares explodes where there are as many coefficients as rows
        most = 20 * self.table.loc[self.table["method"] == POOLED, "mse"].max()
        yield {"table": self.table[self.table["mse"] < most], "x": "d", "y": "mse"} | {
            **{"log_y": True, "title": f"{N} rows of each client"},
            **{"xlabel": "coefficients of a client", "ylabel": "squared error of its coefficients"},
        }
