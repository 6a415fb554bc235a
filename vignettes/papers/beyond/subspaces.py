"""Personal subspaces: principal components of clients with few rows, around shared ones.

Client i has ``N`` rows ``x = U_i z + noise`` in ``D`` dimensions, and U_i is an orthonormal basis
of ``RANK`` directions near a shared one, V: that of V plus normal numbers of a given spread.
*Local* and *pooled* are the exact components of a client's own rows and of all rows.
*HierarchicalEB* learns in federated rounds how near personal subspaces are to the shared one, as
ADEPT-PCA does (Ozkara, Huang, Zhou and Diggavi, 2024), here with weights of several strengths;
*FedAvg* has the shared subspace alone. The error is half the squared distance between the
projections on the estimated and on the true subspace, 0 to RANK.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.evaluation.study import Study, average, print_grid
from ebfed.learning import FedAvg, HierarchicalEB
from ebfed.models import Subspace

D, RANK, N, NOISE, CLIENTS = 20, 2, 20, 0.4, 100
SPREADS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
LOCAL, POOLED, SHARED, LEARNED = "local", "pooled", "FedAvg", "HierarchicalEB"


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List numbers of clients and spreads."""
    spreads = (0.0, 0.5, 4.0) if quick else SPREADS
    return [{"m": 30 if quick else CLIENTS, "spread": spread} for spread in spreads]


def simulate(m: int, spread: float, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Draw rows, shape (m, N, D), and true bases, (m, D, RANK)."""
    shared = _basis(rng.normal(size=(D, RANK)))
    bases = _basis(shared + spread * rng.normal(size=(m, D, RANK)) / np.sqrt(D))
    inside = rng.normal(size=(m, N, RANK)) @ bases.swapaxes(1, 2)
    return inside + NOISE * rng.normal(size=(m, N, D)), bases


def _basis(columns: NDArray) -> NDArray:
    return np.linalg.qr(columns)[0]


def _components(rows: NDArray) -> NDArray:
    """Return the first principal components of each client's rows around 0."""
    return np.linalg.eigh(rows.swapaxes(-1, -2) @ rows)[1][..., -RANK:]


def _error(bases: NDArray, true: NDArray) -> float:
    """Return the mean squared distance of projections, halved: RANK less the squared cosines."""
    return float(RANK - np.mean(((bases.swapaxes(-1, -2) @ true) ** 2).sum(axis=(1, 2))))


def _one_run(seed: tuple[int, int], m: int, spread: float) -> list[dict[str, Any]]:
    """Errors of all methods."""
    rows, true = simulate(m, spread, np.random.default_rng([*seed, round(1000 * spread)]))
    X, groups = rows.reshape(-1, D), np.repeat(np.arange(m), N)
    common: dict[str, Any] = {"learning_rate": 0.1, "local_steps": 3, "random_state": [*seed]}
    estimates = {LOCAL: _components(rows), POOLED: _components(X)}
    for name, learner in (
        (SHARED, FedAvg(Subspace(RANK), n_rounds=50, **common)),
        (LEARNED, HierarchicalEB(Subspace(RANK), n_rounds=60, **common)),
    ):
        fit = learner.fit(X, np.zeros(len(X)), groups=groups)
        estimates[name] = _basis(fit.parameters_.reshape(m, D, RANK))
    return [{"method": method, "error": _error(each, true)} for method, each in estimates.items()]


class SubspacesStudy(Study, cells=_cells, one_run=_one_run):
    """The table has a row for each number of clients ``m``, ``spread`` and ``method``: ``error``,
    with ``error_se``.
    """

    name, full, quick = "subspaces", 10, 2

    @staticmethod
    def tabulate(runs: pd.DataFrame) -> pd.DataFrame:
        return average(runs, ["m", "spread", "method"], ["error"])

    def title(self) -> str:
        m = self.table["m"].iloc[0]
        return f"Personal subspaces: error x 1000 of {m} clients with {N} rows each, by spread"

    def lines(self) -> Iterator[str]:
        for part in np.array_split(self.table["spread"].unique(), len(self.table) // 20 + 1):
            some = self.table[self.table["spread"].isin(part)]
            yield from print_grid(
                some,
                "spread",
                lambda row: f"{1000 * row.error:.0f} ({1000 * row.error_se:.0f})",
                16,
                14,
                head="spread",
            )

    def notes(self) -> Iterator[str]:
        yield (
            f"Means over {self.reps} runs, with standard errors; {RANK} of {D} dimensions. Local "
            "and pooled are exact; the others learn in rounds, FedAvg one subspace for all."
        )

    def panels(self) -> Iterator[dict[str, Any]]:
        yield {"table": self.table, "x": "spread", "y": "error", "xlabel": "spread", "log_x": False}
