"""Bits: what estimating many means together costs where every report has k bits.

The settings are those of the private means (`studies.private_means`), without privacy: a client
sends its mean, clipped to ``±b`` of Theorem 2 of Ozkara, Girgis, Data and Diggavi (2023) and
rounded at random to one of ``2**k`` even steps. The formula is the risk of Theorem 2,
`theory.mean_risk`, with ``b**2 / (2**k - 1)**2``, which bounds the variance of a report.

Theorem 2 knows the variance of the population. Where it is estimated too, which takes at least two
bits, the rounded reports are read by their exact law.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ebfed import theory
from ebfed.channels import Exact, Quantizer
from ebfed.priors import Normal
from ebfed.report import new_axes, plot_curves
from ebfed.report.plots import BLACK, BLUE, VERMILLION
from ebfed.report.summary import Text
from ebfed.studies.private_means import (
    LOCAL,
    NOISE,
    OPEN,
    RADIUS,
    SETTINGS,
    SPREAD,
    estimate,
    simulate,
)
from ebfed.studies.simulation import WIDTH, SimulatedStudy, average, print_errors, replicate, wrap

__all__ = ["BitsStudy", "run"]

BITS = tuple(range(1, 9))
KNOWN, LEARNED = "variances known", "spread estimated"
FORMULA = "Theorem 2"
LOOKS = {
    FORMULA: {"color": BLACK, "marker": "", "ls": ":"},
    KNOWN: {"color": BLUE, "marker": "o", "ls": "-"},
    LEARNED: {"color": VERMILLION, "marker": "s", "ls": "--"},
}


@dataclass(frozen=True)
class BitsStudy(SimulatedStudy):
    """Results of the study of bits.

    Attributes
    ----------
    table : DataFrame
        A row for each setting (``figure``, ``m``, ``n``), ``method`` and number of ``bits`` (NaN:
        as many as it takes): ``mse``, its standard error ``mse_se`` and the standard deviation of
        one run ``mse_sd``; the ``formula``, and by how many standard errors the simulation lies
        above it (``apart``).
    runs : DataFrame
        The mean squared error over clients of each run.
    reps, seed : int
    """

    name: ClassVar[str] = "bits"

    def to_text(self) -> Text:
        """Return the results as a printed page."""
        lines = [
            "Bits: mean squared error x 1000 of personalised estimates",
            "=" * WIDTH,
            *print_errors(self.table.assign(keeps=True), "bits"),
            "=" * WIDTH,
        ]
        return Text("\n".join(lines + wrap(self._notes())))

    def _notes(self) -> Iterator[str]:
        yield (
            f"Means over {self.reps} runs; below each, in brackets, its standard error. All "
            "methods see the same clients. Formula: the risk of Theorem 2, for known variances, "
            "with the bound on the variance of a report, so that the simulation may lie below; "
            "apart: by how many standard errors it lies above. Non-private: means sent as they "
            "are, variances known."
        )

    def figure(self) -> Any:
        """Draw error against bits, a panel for each setting."""
        settings = list(self.table.groupby(["figure", "m", "n"], sort=False))
        axes = new_axes(len(settings), (2.0 + 3.2 * len(settings), 4.0))
        for ax, ((figure, m, n), part) in zip(axes, settings, strict=True):
            points = part.assign(band=2 * part["mse_se"])
            theorem = part[part["method"] == KNOWN].assign(method=FORMULA, band=0.0)
            theorem["mse"] = theorem["formula"]
            plot_curves(
                pd.concat([points, theorem], ignore_index=True),
                x="bits",
                y="mse",
                spread="band",
                looks=LOOKS,
                log_x=False,
                log_y=True,
                legend=ax is axes[-1],
                ax=ax,
            )
            ax.set_title(f"Figure {figure}: m = {m:,}, n = {n}", loc="left", fontsize="medium")
            ax.set(xlabel="bits of a report", ylabel="")
        axes[0].set_ylabel("mean squared error  (bands: ± 2 standard errors)")
        axes[-1].legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.02, 1))
        return axes[0].figure


def run(
    reps: int | None = None,
    seed: int = 0,
    *,
    quick: bool = False,
    n_jobs: int | None = None,
    progress: bool | None = None,
    keep: str | Path | None = None,
) -> BitsStudy:
    """Run the study: every setting and number of bits.

    Parameters
    ----------
    reps : int, optional
        Runs, each with new clients; 50 if None, 4 if `quick`.
    seed : int
    quick : bool
        Only the smallest setting, and 1, 2 and 4 bits.
    n_jobs : int, optional
        Processes; one for each core if None, one if `quick`.
    progress : bool, optional
        Whether to show a progress bar on stderr; if that is a terminal, by default.
    keep : str or Path, optional
        A folder for finished runs: a study that was interrupted goes on from what is there.

    Returns
    -------
    BitsStudy
    """
    settings = {"3b": SETTINGS["3b"]} if quick else SETTINGS
    reps = (4 if quick else 50) if reps is None else reps
    runs = replicate(
        _one_run,
        [
            {"figure": figure, "m": m, "n": n, "bits": bits}
            for figure, (m, n) in settings.items()
            for bits in (np.nan, *((1, 2, 4) if quick else BITS))
        ],
        reps=reps,
        seed=seed,
        n_jobs=(1 if quick else -1) if n_jobs is None else n_jobs,
        progress=progress,
        label="bits",
        keep=keep,
    )
    table = average(runs, ["figure", "m", "n", "method", "bits"], ["mse"])
    table["formula"] = [_formula(row.method, row.m, row.n, row.bits) for row in table.itertuples()]
    table["apart"] = (table["mse"] - table["formula"]) / table["mse_se"]
    return BitsStudy(table, runs, reps, seed)


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
