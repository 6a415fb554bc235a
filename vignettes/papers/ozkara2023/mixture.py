"""Mixture: means of three kinds, and the error of clustering estimates.

The setting is appendix D of Ozkara, Girgis, Data and Diggavi (2023): client i has 5 rows ``x_ij ~
N(theta_i, 1)``, and theta_i is -2, 0 or 2 with equal probability, so that neighbouring centres lie
4.5 standard deviations of a client's mean apart. Errors are relative to those of the clients' own
means.

Algorithm 3 alternates the clients' posterior means with k-means on these means. EM fits the same
population by maximum likelihood, in one round. Theorem 6 uses the true centres and weights: no
method can do better on average.

With privacy, the server holds the means, clipped to the ball of `theory.reporting_radius`, and
releases noisy sums and counts of three points, `ROUNDS_OF_EM` times, at an epsilon for all of these
together (`location.noisy_em`).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed import theory
from ebfed.channels import Clip
from ebfed.evaluation.study import SIMULATED_NOISE, Study, average, print_grid
from ebfed.likelihoods import Gaussian
from ebfed.location import MixtureEB
from ebfed.priors import Discrete
from ebfed.tables.clients import Summary
from ozkara2023.doubts import doubts

CENTRES, NOISE, ROWS = np.array([-2.0, 0.0, 2.0]), 1.0, 5
ROUNDS = (1, 2, 3, 5, 10, 20, 30)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
ROUNDS_OF_EM = 3
CLIENTS, MORE_CLIENTS = 500, 5000

CLUSTERING, EM, BIC = "clustering", "EM", "EM, k by BIC"
PRIVATE, KNOWN = "EM, private", "Theorem 6"


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List rounds and values of epsilon; the quick version has 500 clients and few of both."""
    rounds = (1, 3, 10) if quick else ROUNDS
    epsilons = (1.0, 8.0) if quick else EPSILONS
    cells = [{"m": CLIENTS, "rounds": r, "epsilon": np.nan} for r in (*rounds, np.nan)]
    for m in (CLIENTS,) if quick else (CLIENTS, MORE_CLIENTS):
        cells += [{"m": m, "rounds": np.nan, "epsilon": epsilon} for epsilon in epsilons]
    if not quick:
        cells += [{"m": MORE_CLIENTS, "rounds": np.nan, "epsilon": np.nan}]
    return cells


def _tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    by = ["m", "method", "rounds", "epsilon"]
    right = runs.groupby(by, sort=False, dropna=False)["right"].mean()
    table = average(runs, by, ["mse"]).assign(right=right.to_numpy())
    # errors are relative to those of local means
    return table.assign(doubt=doubts(table, "epsilon", pd.Series(1.0, table.index)))


def simulate(m: int, rng: np.random.Generator) -> tuple[Summary, NDArray]:
    """Draw m clients, by the law of their means.

    Returns a summary, whose scatter 0 is not used (the noise is known), and the true means.
    """
    theta = rng.choice(CENTRES, m)
    mean = rng.normal(theta, np.sqrt(NOISE / ROWS))
    return Summary(np.arange(m), np.full(m, ROWS), mean[:, None], np.zeros((m, 1))), theta


def _one_run(seed: tuple[int, int], m: int, rounds: float, epsilon: float) -> list[dict[str, Any]]:
    """Errors of clustering, of private EM, or of the methods that have neither."""
    summary, theta = simulate(m, np.random.default_rng([*seed, m]))  # the same for all
    more: dict[str, Any] = {"variances": NOISE, "random_state": np.random.default_rng([*seed, 1])}
    k = len(CENTRES)
    learners = {EM: MixtureEB(k, **more), BIC: MixtureEB(**more)}
    if m > CLIENTS:
        del learners[BIC]
    if np.isfinite(rounds):
        learner = MixtureEB(k, solver="clustering", n_rounds=int(rounds), **more)
        learners = {CLUSTERING: learner}
    elif np.isfinite(epsilon):
        radius = float(theory.reporting_radius(CENTRES.max(), NOISE, ROWS, m))
        private: dict[str, Any] = {"trust": "server", "epsilon": epsilon, "delta": DELTA}
        learner = MixtureEB(
            k,
            channel=Clip(radius=radius),
            n_rounds=ROUNDS_OF_EM,
            **private,
            **more | {"random_state": [*seed, 1]},
        )
        learners = {PRIVATE: learner}
    fits = {method: learner.fit(summary) for method, learner in learners.items()}
    rows = [(method, fit.predict(), fit.n_components_) for method, fit in fits.items()]
    if EM in learners:
        known = Discrete.known(CENTRES[:, None], np.full(k, 1 / k))
        own = Gaussian(summary.mean, np.full((m, 1), NOISE / ROWS))
        rows.append((KNOWN, known.posterior(own).mean[:, 0], k))
    local = NOISE / ROWS
    return [
        {"method": method, "mse": float(np.mean((each - theta) ** 2)) / local, "right": found == k}
        for method, each, found in rows
    ]


def _error_of(row: Any) -> str:
    return f"{row.mse:.3f}{'!' if row.doubt else ' '}"


class MixtureStudy(Study, cells=_cells, one_run=_one_run, tabulate=_tabulate):
    """The table has a row for each number of clients ``m``, ``method``, number of ``rounds`` of
    clustering and ``epsilon`` (NaN where there is none): mean squared error relative to that of the
    clients' own means, ``mse``, its standard error ``mse_se`` and the standard deviation of one run
    ``mse_sd``; in which share of the runs there were three components, ``right``; and a ``doubt``,
    where an error cannot be right.
    """

    name, full, quick = "mixture", 50, 4
    heading = "Mixture: mean squared error of personalised estimates, relative to local means"

    def lines(self) -> Iterator[str]:
        below = {" ": lambda row: f"({row.mse_se:.3f})"}
        label: Any = "{:g} ".format
        for k, (m, part) in enumerate(self.table.groupby("m", sort=False)):
            yield from [""] * (k > 0)
            yield f"{m:,} clients, {ROWS} rows each"
            for x in ("rounds", "epsilon"):
                rows = part[part[x].notna()]
                if len(rows):
                    yield from print_grid(
                        rows, x, _error_of, 16, 10, head=x, label=label, below=below
                    )
            for row in part[part["rounds"].isna() & part["epsilon"].isna()].itertuples():
                yield f"{row.method:<16}{row.mse:>9.3f} ({row.mse_se:.3f})"

    def notes(self) -> Iterator[str]:
        yield (
            f"Means over {self.reps} runs, in brackets their standard errors. All methods see the "
            f"same clients. Private: epsilon at delta {DELTA:g} for {ROUNDS_OF_EM} releases "
            "together, against readers of these; the server is trusted."
        )
        yield SIMULATED_NOISE
        (bic,) = self.table[self.table["method"] == BIC].itertuples()
        yield f"BIC found three components in {bic.right:.0%} of the runs."

    def panels(self) -> Iterator[dict[str, Any]]:
        few = self.table[self.table["m"] == CLIENTS]
        common = {"y": "mse", "log_y": True, "ylabel": "error relative to local means"}
        clustering = few[few["method"].isin([CLUSTERING, EM, KNOWN]) & few["epsilon"].isna()]
        labels = {"title": f"clustering, m = {CLIENTS}", "xlabel": "rounds of clustering"}
        yield {"table": clustering, "x": "rounds"} | labels | common
        for m, part in self.table.groupby("m"):
            private = part[part["method"].isin([PRIVATE, KNOWN])]
            labels = {"title": f"{PRIVATE}, m = {m:,}", "xlabel": "epsilon"}
            yield {"table": private, "x": "epsilon"} | labels | common
