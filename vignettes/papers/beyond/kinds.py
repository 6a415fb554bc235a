"""Kinds of clients: how often their number is found, and what not knowing it costs.

150 clients are of three kinds, whose centres are eight or more from each other. *Points* and
*spherical*: means of four rows with noise 1, where clients of a kind have the same mean, or means
that differ by .5 in each of d dimensions. *Lines*: regressions on d columns, whose coefficients
differ like this. The number of kinds is chosen from 1 to 4 by the least BIC, or by the likelihood
of clients that were held out; the risk is that of who knows the number, times a ratio.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.evaluation.study import Study, average, print_grid
from ebfed.location import MixtureEB
from ebfed.regression import AdaMix

KINDS, CLIENTS, MOST = 3, 150, 4
RULES = {"bic": "least BIC", "heldout": "held out"}
DATA = ("points", "spherical", "lines")


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List kinds of data, and numbers of dimensions; the quick version leaves the largest out."""
    return [{"data": data, "d": d} for data in DATA for d in ((1, 10) if quick else (1, 10, 50))]


def simulate(d: int, seed: int, spread: float = 0.5) -> tuple[NDArray, np.random.Generator]:
    """Draw the parameters of clients, (150, d); returns also what their rows are drawn by."""
    rng = np.random.default_rng([seed, d])
    centres = 8 * np.eye(KINDS, d) if d >= KINDS else 8.0 * np.arange(KINDS)[:, None]
    theta = centres[rng.integers(KINDS, size=CLIENTS)]
    return theta + spread * rng.normal(size=(CLIENTS, d)), rng


def draw_means(d: int, seed: int, spread: float) -> tuple[tuple[NDArray, NDArray], NDArray]:
    """Draw four rows of each client; returns these with their groups, and the parameters."""
    theta, rng = simulate(d, seed, spread)
    groups = np.repeat(np.arange(CLIENTS), 4)
    return (theta[groups] + rng.normal(size=(len(groups), d)), groups), theta


def draw_lines(
    d: int, seed: int, spread: float = 0.5
) -> tuple[tuple[NDArray, NDArray, NDArray], NDArray]:
    """Draw regressions: 5 to 11 rows of each client, and half as many more as columns."""
    theta, rng = simulate(d, seed, spread)
    groups = np.repeat(np.arange(CLIENTS), rng.integers(5, 12, CLIENTS) + d // 2)
    X = rng.normal(size=(len(groups), d))
    y = (X * theta[groups]).sum(axis=1) + rng.normal(size=len(groups))
    return (X, y, groups), theta


def fitted(data: Any, d: int, seed: int, n_components: Any) -> tuple[int, float]:
    """Return the number of components of a fit, and its risk."""
    choice: dict[str, Any] = {"max_components": MOST, "n_init": 4, "random_state": 0}
    if data == "lines":
        (X, y, groups), theta = draw_lines(d, seed)
        fit: Any = AdaMix(n_components, fit_intercept=False, **choice).fit(X, y, groups=groups)
    else:
        (X, groups), theta = draw_means(d, seed, 0.5 * (data == "spherical"))
        fit = MixtureEB(n_components, components=data, **choice).fit(X, groups=groups)
    error = fit.posterior().mean.reshape(theta.shape) - theta
    return fit.n_components_, float((error**2).sum(axis=1).mean())


def _one_run(seed: tuple[int, int], data: str, d: int) -> list[dict[str, Any]]:
    """Tell of each rule whether it found the number, and its risk relative to who knows that."""
    place = 1000 * seed[0] + seed[1]
    _, known = fitted(data, d, place, KINDS)
    found = {name: fitted(data, d, place, rule) for rule, name in RULES.items()}
    return [
        {"method": name, "right": float(k == KINDS), "risk": risk / known}
        for name, (k, risk) in found.items()
    ]


class KindsStudy(Study, cells=_cells, one_run=_one_run):
    """The table has a row for each kind of ``data``, number of dimensions ``d`` and ``method``: the
    share of runs in which the number of kinds was ``right``, and the ``risk`` relative to that of
    who knows the number, with its standard error ``risk_se``.
    """

    name, full, quick = "kinds", 20, 4
    heading = f"Kinds: runs in which their number is right, and relative risk; {CLIENTS} clients"

    @staticmethod
    def tabulate(runs: pd.DataFrame) -> pd.DataFrame:
        return average(runs, ["data", "d", "method"], ["right", "risk"])

    def lines(self) -> Iterator[str]:
        for k, (data, part) in enumerate(self.table.groupby("data", sort=False)):
            yield from [""] * (k > 0)
            yield from print_grid(part, "d", self._cell, 16, 18, head=data, label="d = {}".format)

    def _cell(self, row: Any) -> str:
        return f"{row.right * self.reps:.0f} of {self.reps}, {row.risk:.3f}"

    def notes(self) -> Iterator[str]:
        yield f"{KINDS} kinds, of 1 to {MOST} that were tried. Risk: over that of the true one."

    def panels(self) -> Iterator[dict[str, Any]]:
        for data, part in self.table.groupby("data", sort=False):
            labels = {"title": data, "xlabel": "d", "ylabel": "relative risk", "level": 1.0}
            yield {"table": part, "x": "d", "y": "risk"} | labels
