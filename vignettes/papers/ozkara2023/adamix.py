"""AdaMix: linear models of two kinds, from fewer rows than coefficients.

The setting is Table 3 of Ozkara, Girgis, Data and Diggavi (2023): 1000 clients, theta_i drawn from
``N(mu, .001 I)`` or ``N(-mu, .001 I)`` in 50 dimensions with ``|mu|**2 = 50``, and n rows ``y_ij ~
N(x_ij' theta_i, .1)`` with ``x_ij ~ N(0, I)``. Errors are ``|theta_i^ - theta_i|**2``, on average
over clients. Local estimates are least squares of least norm, whose error ``50 (1 - n / 50)`` is
what the paper prints.

Gradient descent is the paper's Algorithm 1 with step .001, from draws of ``N(0, I / 50)``. Its
objective is unbounded below: components shrink at a steady pace, ``2 d`` times the step in each
round, until they vanish. The result therefore depends on the last round; the paper's figures are
those of an intermediate one. Algorithm 6 clusters the local estimates once and changes nothing
afterwards. Maximum likelihood integrates the coefficients out. With variances (`AdaMix`) its error
is a few per cent above the Bayes risk, that of the posterior mean under the true population.
Without variances (`MixtureLinearEB`) the error is at least the spread of a component, .05.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.engines import Blocks, Local, converse
from ebfed.evaluation.study import THIN, Study, average, print_grid, print_row
from ebfed.regression import AdaMix, MixtureLinearEB
from ebfed.regression.numerics.evidence import MixturePopulation, rotate, weigh
from ebfed.regression.posteriors.component import ComponentPosterior
from ebfed.regression.schemes import least_squares
from ebfed.streams import make_key
from ebfed.tables.clients import Clients
from ebfed.tables.factors import Factors

CLIENTS, FEATURES, ROWS = 1000, 50, (10, 20, 30)
SQUARE, SPREAD, NOISE = 50.0, 0.001, 0.1
STEP = 1e-3
ROUNDS = (1, 26, 51, 101, 151, 201, 251, 301, 351)

LOCAL, BAYES = "local", "Bayes"
DESCENT, CLUSTERING = "gradient descent", "clustering (Algorithm 6)"
MIXTURE, POINTS = "AdaMix", "MixtureLinearEB"
# Table 3 as printed: local training, AdaMix.
PRINTED = {10: (39.93, 10.42), 20: (30.02, 3.12), 30: (19.97, 2.55)}


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List numbers of rows; the quick version has 100 clients of 10 rows, and 50 steps."""
    m, last = (100, 51) if quick else (CLIENTS, ROUNDS[-1])
    return [{"m": m, "n": n, "last": last} for n in (ROWS[:1] if quick else ROWS)]


def _tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    by = ["m", "n", "method", "round"]
    rounds = runs.groupby(by, sort=False, dropna=False)["rounds"].mean()
    return average(runs, by, ["mse"]).assign(rounds=rounds.to_numpy())


def simulate(m: int, n: int, rng: np.random.Generator) -> tuple[Clients, NDArray, NDArray]:
    """Draw m clients of Table 3 with n rows each; returns also theta, (m, 50), and mu, (50,)."""
    mu = rng.normal(size=FEATURES)
    mu *= np.sqrt(SQUARE) / np.linalg.norm(mu)
    theta = rng.choice([-1.0, 1.0], m)[:, None] * mu
    theta += np.sqrt(SPREAD) * rng.normal(size=(m, FEATURES))
    X = rng.normal(size=(m, n, FEATURES))
    y = (X @ theta[:, :, None])[:, :, 0] + np.sqrt(NOISE) * rng.normal(size=(m, n))
    clients = Clients(np.arange(m), n * np.arange(m + 1), X.reshape(-1, FEATURES), y.ravel())
    return clients, theta, mu


def _one_run(seed: tuple[int, int], m: int, n: int, last: int) -> list[dict[str, Any]]:
    """Errors of every method on the same clients."""
    clients, theta, mu = simulate(m, n, np.random.default_rng([*seed, n]))
    start = int(np.random.default_rng([*seed, n, 1]).integers(2**31))

    def row(method: str, estimates: NDArray, round_: float = np.nan, **more: float) -> dict:
        mse = float(((estimates - theta) ** 2).sum(axis=1).mean())
        return {"method": method, "round": round_, "mse": mse} | more

    path = _descend(clients, last, start)
    factors = Factors.of(clients)
    rows = [row(LOCAL, least_squares(rotate(factors.rows, factors.n)))]
    rows += [row(DESCENT, each, round_) for round_, each in path.items()]
    arguments: dict[str, Any] = {"fit_intercept": False, "random_state": start}
    for method, learner in (
        (CLUSTERING, MixtureLinearEB(2, solver="clustering", noise_variance=NOISE, **arguments)),
        (POINTS, MixtureLinearEB(2, **arguments)),
        (MIXTURE, AdaMix(2, **arguments)),
    ):
        estimates = learner.fit(clients).posterior().mean
        rows.append(row(method, estimates, rounds=float(learner.n_iter_)))
    known = MixturePopulation(np.full(2, 0.5), np.stack([mu, -mu]), np.full((2, 1), SPREAD), NOISE)
    nothing = np.zeros((2, FEATURES, FEATURES))
    bayes = ComponentPosterior(factors, _weigh, known, nothing)
    return [*rows, row(BAYES, bayes.mean)]


def _weigh(block: Factors, population: MixturePopulation) -> Any:
    return weigh(rotate(block.rows, block.n), population)


def _descend(clients: Clients, last: int, seed: int) -> dict[int, NDArray]:
    """Coefficients of all clients after some rounds of Algorithm 1."""
    learner = AdaMix(
        2,
        fit_intercept=False,
        solver="gradient",
        learning_rate=STEP,
        noise_variance=NOISE,
        n_rounds=last,
        random_state=seed,
    )
    protocol = learner.protocol()
    block, memory = protocol.prepare(clients)
    key = make_key(seed)
    cohort = _Watched(Local(), protocol, protocol, block, memory, key)
    converse(protocol, cohort, key)
    return cohort.seen


class _Watched(Blocks):
    """Clients whose coefficients are noted in some rounds, which only a simulation can do."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.seen: dict[int, NDArray] = {}

    def ask(self, sent: dict, round_: int, turn: NDArray[np.int8]) -> list[dict]:
        """Ask, and note the coefficients of clients in some rounds."""
        messages = super().ask(sent, round_, turn)
        if round_ + 1 in ROUNDS:
            self.seen[round_ + 1] = self.memory["theta"].copy()
        return messages


class AdaMixStudy(Study, cells=_cells, one_run=_one_run, tabulate=_tabulate):
    """The table has a row for each number of rows ``n``, ``method`` and last ``round`` (NaN: the
    method has no rounds, or stops by itself): the squared error ``mse``, its standard error
    ``mse_se`` and the standard deviation of one run ``mse_sd``; and how many ``rounds`` the fit
    took.
    """

    name, full = "adamix", 5
    heading = "AdaMix: squared error of the coefficients of a client"

    def lines(self) -> Iterator[str]:
        sizes = sorted(self.table["n"].unique())
        steps = [f", {x - 1:.0f} steps" if x > 0 else "" for x in self.table["round"]]
        yield from print_grid(
            self.table.assign(name=self.table["method"] + steps),
            *("n", "{0.mse:.4g} ({0.mse_se:.2g})".format, 36, 20),
            head="rows of a client",
            by="name",
            values=sizes,
        )
        for j, name in enumerate(("local", "AdaMix")):
            cells = [f"{PRINTED[n][j]:.2f}" for n in sizes]
            yield print_row("printed in the paper: " + name, cells, 36, 20)
        yield THIN
        for method in (MIXTURE, POINTS):
            rows = self.table[self.table["method"] == method].set_index("n").reindex(sizes)
            yield print_row(f"{method}, rounds", [f"{x:.1f}" for x in rows["rounds"]], 36, 20)

    def notes(self) -> Iterator[str]:
        yield (
            f"Means over {self.reps} runs, in brackets their standard errors. All methods see the "
            "same clients."
        )
        last = int(self.table["round"].max())
        if last < ROUNDS[-1]:
            yield (
                f"Quick: gradient descent is stopped after {last - 1} steps, of "
                f"{ROUNDS[-1] - 1} in the full study, before it reaches the figure printed for "
                "AdaMix."
            )
        for n, step in self.passes().items():
            if np.isfinite(step):
                yield (
                    f"At n = {n} gradient descent passes the figure printed for AdaMix, "
                    f"{PRINTED[n][1]:.2f}, after {step:.0f} steps."
                )
        best = self.table[self.table["method"].isin([MIXTURE, BAYES])]
        best = best.pivot_table(index="n", columns="method", values="mse")
        share = (best[MIXTURE] / best[BAYES] - 1).map("{:.1%}".format)
        shares = ", ".join(f"{each} (n = {n})" for n, each in share.items())
        yield f"AdaMix lies above the Bayes risk by {shares}."

    def passes(self) -> dict[int, float]:
        """Return the step at which gradient descent passes the printed figure, by interpolation."""
        steps = {}
        for n, rows in self.table[self.table["method"] == DESCENT].groupby("n"):
            at, mse = rows["round"].to_numpy() - 1, rows["mse"].to_numpy()
            below = np.flatnonzero(mse <= PRINTED[n][1])
            j = below[0] if len(below) else 0
            share = (mse[j - 1] - PRINTED[n][1]) / (mse[j - 1] - mse[j]) if j else np.nan
            steps[n] = float(at[j - 1] + share * (at[j] - at[j - 1])) if j else np.nan
        return steps

    def panels(self) -> Iterator[dict[str, Any]]:
        for n, rows in self.table[self.table["method"] != CLUSTERING].groupby("n"):
            # methods that stop by themselves are points at their last round; round 1 is no step
            at = (rows["round"] - 1).fillna(rows["rounds"])
            yield {"table": rows.assign(at=at), "x": "at", "y": "mse"} | {
                **{"log_x": False, "log_y": True, "level": PRINTED[n][1]},
                **{"title": f"{n} rows; grey: printed", "ylabel": "squared error of a client"},
                "xlabel": "steps  (points: rounds to the end)",
            }
