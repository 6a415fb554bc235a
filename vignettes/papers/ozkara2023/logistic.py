"""Personalised logistic regression: how to learn a population from binary rows.

1,000 clients with ten coefficients each, which come from N(1/2, 1/4) one by one, and 10, 20 or 50
rows of standard normal features: too few for a client to learn alone. The error is the squared
distance of a client's estimate from its coefficients, over all ten: 2.5 for the mean of the
population as the estimate.

*Pooled* is one regression for all; *alone* a ridge regression for each. Maximising jointly over
coefficients, mean and variance (Ozkara, Girgis, Data and Diggavi, 2023, Algorithm 5, its signs
corrected) has no solution: the variance depends on the last step of the descent. The marginal
likelihood has one. Laplace's approximation to it underestimates the variance; expectation
propagation does not. No method can do better on average than the posterior means under the true
population.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.evaluation.study import Study, average, print_grid
from ebfed.priors import IdentificationWarning
from ebfed.regression import LogisticEB
from ebfed.regression.families import Binomial, Responses
from ebfed.regression.posteriors import quadrature
from ebfed.tables.clients import Clients
from ozkara2023.doubts import doubts

CLIENTS, FEATURES, MEAN, VARIANCE = 1000, 10, 0.5, 0.25
ROWS = (10, 20, 50)
ORACLE = "known population"
LEARNERS: dict[str, dict[str, Any]] = {
    "joint (Algorithm 5)": {"method": "gradient", "learning_rate": 0.02},
    "Laplace": {"method": "laplace"},
    "expectation propagation": {"method": "ep"},
}


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List numbers of rows; the quick version has 100 clients of 10 rows."""
    return [{"n": n, "m": 100 if quick else CLIENTS} for n in (ROWS[:1] if quick else ROWS)]


def _tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    table = average(runs, ["n", "method"], ["mse", "variance", "coverage"])
    # pooled coefficients may well be worse than those of each client alone
    return table.assign(doubt=doubts(table, "n", pd.Series(np.inf, table.index)))


def simulate(m: int, n: int, seed: Any = None) -> tuple[Clients, NDArray]:
    """Draw clients' rows, and return their coefficients too."""
    rng = np.random.default_rng(seed)
    theta = MEAN + np.sqrt(VARIANCE) * rng.standard_normal((m, FEATURES))
    X = rng.standard_normal((m * n, FEATURES))
    logit = np.einsum("np,np->n", X, np.repeat(theta, n, axis=0))
    y = (rng.random(m * n) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    return Clients(np.arange(m), np.arange(m + 1) * n, X, y), theta


def _one_run(seed: tuple[int, int], n: int, m: int) -> list[dict[str, Any]]:
    """Errors of every method on the same clients."""
    from sklearn.linear_model import LogisticRegression

    clients, theta = simulate(m, n, [*seed, n])
    pooled = LogisticRegression(C=1e6, fit_intercept=False).fit(clients.X, clients.y).coef_
    estimates = {
        "pooled": np.broadcast_to(pooled, theta.shape),
        "alone": _centres(clients, 0.0, 1.0, "laplace"),
    }
    rows = [
        {"method": method, "mse": _error(each, theta), "variance": np.nan, "coverage": np.nan}
        for method, each in estimates.items()
    ]
    for method, settings in LEARNERS.items():
        learner = LogisticEB("spherical", fit_intercept=False, random_state=seed[1], **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentificationWarning)  # of Algorithm 5
            posterior = learner.fit(clients).posterior()
        lower, upper = posterior.interval()
        rows.append(
            {
                "method": method,
                "mse": _error(posterior.mean, theta),
                "variance": learner.covariance_[0, 0],
                "coverage": float(np.mean((lower <= theta) & (theta <= upper))),
            }
        )
    best = _centres(clients, MEAN, np.sqrt(VARIANCE), "ep")
    last = {"method": ORACLE, "mse": _error(best, theta), "variance": np.nan, "coverage": np.nan}
    return [*rows, last]


def _centres(clients: Clients, mean: float, sd: float, method: quadrature.Used) -> NDArray:
    """Modes or means of clients' coefficients under a known population."""
    rows, family, none = Responses.of(clients, np.arange(2)), Binomial(), np.zeros(0)
    at = np.full(FEATURES, mean), [sd * np.eye(FEATURES)], np.zeros((FEATURES, FEATURES))
    return quadrature.posteriors(clients, rows, family, none, *at, method)[0].mean


def _error(estimates: NDArray, theta: NDArray) -> float:
    return float(((estimates - theta) ** 2).sum(axis=1).mean())


def _error_of(row: Any) -> str:
    return f"{row.mse:.3f} ± {row.mse_sd:.3f}" + "!" * bool(row.doubt)


def _fit_of(row: Any) -> str:
    return f"{row.variance:.3f}" + f"{f'{100 * row.coverage:.1f} %':>11}"


class LogisticStudy(Study, cells=_cells, one_run=_one_run, tabulate=_tabulate):
    """The table has a row for each number of rows ``n`` and ``method``: squared error ``mse``, its
    standard error ``mse_se`` and standard deviation over runs ``mse_sd``; the same of the fitted
    ``variance`` and of the share ``coverage`` of coefficients in their 95 % intervals (NaN where a
    method has none); and a ``doubt``, where an error cannot be right.
    """

    name, full = "logistic", 5
    heading = f"Logistic regression: squared error of {FEATURES} coefficients; {CLIENTS:,} clients"

    def lines(self) -> Iterator[str]:
        yield from print_grid(self.table, "n", _error_of, 26, 23, label="{} rows each".format)
        yield ""
        fitted = self.table.dropna(subset="variance")
        head = f"Variance of a coefficient (true: {VARIANCE:g}) and coverage at 95 %"
        yield from print_grid(fitted, "n", _fit_of, 26, 23, head=head, label=lambda n: "")

    def notes(self) -> Iterator[str]:
        yield (
            f"Means ± standard deviations over {self.reps} runs, each with new clients; all "
            f"methods see the same. Coefficients are N({MEAN:g}, {VARIANCE:g}), features standard "
            "normal, no intercept; the fitted population is spherical."
        )
        yield (
            "Alone: ridge regression towards zero, penalty half the squared length. Known "
            "population: posterior means by expectation propagation."
        )
        yield "Joint: 200 rounds; it has no maximum, and its figures depend on when it stops."

    def panels(self) -> Iterator[dict[str, Any]]:
        common: Any = {"x": "n", "xlabel": "rows of each client", "spread": "sd", "errors": 1}
        yield {"table": self.table, "y": "mse", "ylabel": "squared error"} | common
        fitted = self.table.dropna(subset=["variance"])
        labels = {"ylabel": "fitted variance", "level": VARIANCE}
        yield {"table": fitted, "y": "variance"} | labels | common
