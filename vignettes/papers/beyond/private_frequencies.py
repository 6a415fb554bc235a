"""Private frequencies: shares of categories of many clients, which come in a few kinds.

Client i has ``n`` answers in ``D`` categories with probabilities theta_i, and theta_i is drawn from
one of ``KINDS`` Dirichlets: each kind has a favourite category. The population is fitted to exact
counts, or to what clients send within epsilon each: all some of their answers, randomised, or half
of the clients that and the other half one bit, whether two answers are alike. Every client then
estimates its own shares from its own answers and the population.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.channels import Exact, RandomizedCategory
from ebfed.evaluation.study import SIMULATED_NOISE, Study, average, print_grid
from ebfed.location import CategoricalEB
from ebfed.priors import Dirichlet, DirichletMixture
from ebfed.streams import make_key

D, KINDS, CONCENTRATION, ANSWERS = 5, 3, 10.0, 5
CENTRES = np.full((KINDS, D), 0.5 / D) + 0.5 * np.eye(D)[:KINDS]
ONE, MIXED, BITS = "one Dirichlet", "mixture", "mixture, half one bit"
METHODS = ("local", "pooled", ONE, MIXED, BITS, "population known")


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List numbers of clients and of answers, and values of epsilon (NaN: counts as they are)."""
    m, n = (500, 10) if quick else (10_000, 10)
    return [
        {"m": m, "n": n, "epsilon": x} for x in ((np.nan, 8.0) if quick else (np.nan, 4, 8, 16))
    ]


def simulate(m: int, n: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Draw counts and true shares, (m, D) each."""
    kinds = rng.integers(KINDS, size=m)
    theta = np.array([rng.dirichlet(CONCENTRATION * CENTRES[kind]) for kind in kinds])
    return rng.multinomial(n, theta), theta


def known() -> DirichletMixture:
    """Return the true population."""
    alpha = CONCENTRATION * CENTRES
    return DirichletMixture.known(np.full(KINDS, 1 / KINDS), alpha)


def _one_run(seed: tuple[int, int], m: int, n: int, epsilon: float) -> list[dict[str, Any]]:
    """Errors of all methods."""
    counts, theta = simulate(m, n, np.random.default_rng([*seed, m]))
    rng = np.random.default_rng([*seed, m, 0 if np.isnan(epsilon) else round(epsilon)])
    answers: Any = RandomizedCategory(epsilon, answers=ANSWERS, compare=0.0)
    half: Any = {"answers": answers, "bit": RandomizedCategory(epsilon, compare=1 - 1e-9)}
    if np.isnan(epsilon):
        answers, half = Exact(), None
    mixture = DirichletMixture(max_components=KINDS + 1, random_state=make_key(rng))
    asked = {ONE: (Dirichlet(), answers), MIXED: (mixture, answers), BITS: (mixture, half)}
    asked["population known"] = known(), Exact()
    rows = [("local", counts / n, np.nan)]
    for method, (prior, channel) in asked.items():
        if channel is None:
            continue
        consent = ["bit" if i % 2 else "answers" for i in range(m)] if channel is half else None
        fit = CategoricalEB(prior=prior, channel=channel, random_state=make_key(rng))
        fit.fit(counts, consent=consent)
        if method == ONE:
            rows.append(("pooled", np.broadcast_to(fit.prior_.mean_, (m, D)), np.nan))
        rows.append((method, fit.predict(), getattr(fit.prior_, "n_components_", np.nan)))
    return [
        {"method": method, "mse": float(((each - theta) ** 2).sum(axis=1).mean()), "kinds": kinds}
        for method, each, kinds in rows
    ]


class PrivateFrequenciesStudy(Study, cells=_cells, one_run=_one_run):
    """The table has a row for each ``m``, ``n``, ``epsilon`` (NaN: no privacy) and ``method``:
    ``mse``, the squared error summed over categories, with ``mse_se``, and the number of ``kinds``
    that the least BIC chose, a mean over runs.
    """

    name, full, quick = "private-frequencies", 5, 2

    @staticmethod
    def tabulate(runs: pd.DataFrame) -> pd.DataFrame:
        return average(runs, ["m", "n", "epsilon", "method"], ["mse", "kinds"])

    def title(self) -> str:
        m, n = self.table[["m", "n"]].iloc[0]
        return f"Private frequencies: squared error x 1000 of {m:,} clients with {n} answers each"

    def lines(self) -> Iterator[str]:
        yield from print_grid(
            self.table.assign(epsilon=self.table["epsilon"].fillna(np.inf)),
            "epsilon",
            lambda row: f"{1000 * row.mse:.2f} ({1000 * row.mse_se:.2f})",
            24,
            16,
            head="epsilon",
        )

    def notes(self) -> Iterator[str]:
        yield (
            f"Means over {self.reps} runs, with standard errors; epsilon inf: counts as they are. "
            f"Categories: {D}, of {KINDS} kinds of clients. Clients that send answers send "
            f"{ANSWERS}, with a fifth of epsilon each."
        )
        mixed = self.table[self.table["method"] == MIXED]
        chosen = [f"{row.kinds:.1f} ({row.epsilon:g})" for row in mixed.fillna(np.inf).itertuples()]
        yield f"Kinds that the least BIC chose, on average, by epsilon: {', '.join(chosen)}."
        yield SIMULATED_NOISE

    def panels(self) -> Iterator[dict[str, Any]]:
        shown = self.table[self.table["epsilon"].notna()]
        yield {"table": shown, "x": "epsilon", "y": "mse", "ylabel": "squared error"}
