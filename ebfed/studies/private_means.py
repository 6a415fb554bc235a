"""Private means: what estimating many means together costs where every report is private.

The settings are those of Ozkara, Girgis, Data and Diggavi (2023), Figures 1a, 3a and 3b: client i
has ``n`` rows ``x_ij ~ N(theta_i, .5**2)`` with ``theta_i ~ N(mu, .1**2)``. Both variances are
known; mu is only known to lie in [-.5, .5], where each run draws it anew. A client reports once on
its own mean, locally private, and the personalised estimates are those of Theorem 2.

The paper's client adds Gaussian noise to a mean clipped to ``±b`` of Theorem 2. Beside it stand the
noise that (epsilon, delta) really asks for, one bit, and the hybrid mechanism, each on that range
and on one that the first clients' reports find out for the others. Where the paper's noise breaks
its promise its points are marked: they are not private to that epsilon and delta.

Beside Gaussian reports on the fixed range stands the risk of Theorem 2 with the variance of their
noise, `theory.mean_risk`. It is exact for the theorem's fixed weight on the mean report. The fit
learns its weight from the reports: where noise carries their mean to an end of the range, beyond
which reports tell nothing, clients keep to their own means. That happens where few clients share a
small epsilon, and the errors lie a little below the formula there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed import theory
from ebfed.channels import Channel, Exact, Gaussian, Guess, Hybrid, OneBit
from ebfed.location import GaussianEB
from ebfed.priors import Normal
from ebfed.privacy.calibration import PrivacyWarning, gaussian_sigma, paper_sigma
from ebfed.report import new_axes, plot_curves
from ebfed.report.plots import BLUE, GREEN, PURPLE, VERMILLION
from ebfed.report.summary import Text
from ebfed.studies.simulation import WIDTH, SimulatedStudy, average, print_errors, replicate, wrap
from ebfed.tables.clients import Summary

__all__ = ["LOCAL", "OPEN", "SETTINGS", "PrivateMeansStudy", "estimate", "run", "simulate"]

# What is public: |mu| <= RADIUS, and both standard deviations.
RADIUS, SPREAD, NOISE = 0.5, 0.1, 0.5
GUESS = Guess(mean=(-RADIUS, RADIUS), spread=SPREAD)
DELTA = 1e-4
# Figures of the paper: numbers of clients, and of rows of each.
SETTINGS = {"1a": (10_000, 15), "3a": (1000, 5), "3b": (500, 5)}
EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0)

LOCAL, OPEN = "local", "non-private"
PAPER, EXACT = "Gaussian, paper's noise", "Gaussian, exact noise"
CHANNELS: dict[str, Callable[[float], Channel]] = {
    PAPER: lambda epsilon: Gaussian(epsilon, DELTA, calibration="paper"),
    EXACT: lambda epsilon: Gaussian(epsilon, DELTA),
    "one bit": lambda epsilon: OneBit(epsilon),
    "hybrid": lambda epsilon: Hybrid(epsilon),
    "Gaussian, learned range": lambda epsilon: Gaussian(epsilon, DELTA, range="private"),
    "one bit, learned range": lambda epsilon: OneBit(epsilon, range="private"),
    "hybrid, learned range": lambda epsilon: Hybrid(epsilon, range="private"),
}
LOOKS = dict(
    zip(
        CHANNELS,
        [
            {"color": PURPLE, "marker": "D", "ls": ":"},
            {"color": BLUE, "marker": "o", "ls": "--"},
            {"color": VERMILLION, "marker": "s", "ls": "--"},
            {"color": GREEN, "marker": "^", "ls": "--"},
            {"color": BLUE, "marker": "o", "ls": "-"},
            {"color": VERMILLION, "marker": "s", "ls": "-"},
            {"color": GREEN, "marker": "^", "ls": "-"},
        ],
        strict=True,
    )
)


@dataclass(frozen=True)
class PrivateMeansStudy(SimulatedStudy):
    """Results of the study of private means.

    Attributes
    ----------
    table : DataFrame
        A row for each setting (``figure``, ``m``, ``n``), ``method`` and ``epsilon`` (NaN: no
        privacy): ``mse``, its standard error ``mse_se`` and the standard deviation of one run
        ``mse_sd``; the ``formula`` for it, if there is one, and by how many standard errors the
        simulation lies above it (``apart``); the true ``delta`` of a report, and whether it ``keeps
        the promise``.
    runs : DataFrame
        The mean squared error over clients of each run.
    reps, seed : int
    """

    name: ClassVar[str] = "private-means"

    def to_text(self) -> Text:
        """Return the results as a printed page."""
        lines = [
            f"Private means: mean squared error x 1000 of personalised estimates, delta {DELTA:g}",
            "=" * WIDTH,
            *print_errors(self.table, "epsilon"),
            "=" * WIDTH,
        ]
        return Text("\n".join(lines + wrap(self._notes())))

    def _notes(self) -> Iterator[str]:
        yield (
            f"Means over {self.reps} runs; below each, in brackets, its standard error. All "
            "methods see the same clients. Formula: the risk of Theorem 2 with the variance of "
            "the noise; apart: by how many standard errors the simulation lies above it. Where few "
            "clients share a small epsilon it lies below: noise may carry the mean report to an "
            "end of the range, and the fit then keeps to the clients' own means."
        )
        broken = self.table.loc[~self.table["keeps"], ["epsilon", "delta"]].drop_duplicates()
        for epsilon, delta in broken.itertuples(index=False):
            yield (
                f"* Not private as promised: at epsilon {epsilon:g} the paper's noise has delta "
                f"{delta:.2g}, not {DELTA:g}."
            )
        for (figure, epsilon), best in self.best().groupby(["figure", "epsilon"], sort=False):
            if epsilon == 1:
                (row,) = best.itertuples()
                yield (
                    f"Best at epsilon 1 in Figure {figure}: {row.method}, {1000 * row.mse:.2f} ± "
                    f"{1000 * row.mse_se:.2f}; non-private {1000 * row.open:.2f} ± "
                    f"{1000 * row.open_se:.2f}."
                )

    def best(self) -> pd.DataFrame:
        """Return the private method of least error for each setting and epsilon.

        Returns
        -------
        DataFrame
            Rows of `table`, with error and standard error without privacy as ``open`` and
            ``open_se``.
        """
        private = self.table[self.table["epsilon"].notna() & self.table["keeps"]]
        least = private.groupby(["figure", "epsilon"], sort=False)["mse"].idxmin()
        without = self.table[self.table["method"] == OPEN].set_index("figure")[["mse", "mse_se"]]
        without = without.set_axis(["open", "open_se"], axis=1)
        return self.table.loc[least].join(without, on="figure").reset_index(drop=True)

    def figure(self) -> Any:
        """Draw error against epsilon, a panel for each setting."""
        settings = list(self.table.groupby(["figure", "m", "n"], sort=False))
        axes = new_axes(len(settings), (2.3 + 3.4 * len(settings), 4.2))
        for ax, ((figure, m, n), part) in zip(axes, settings, strict=True):
            points = part.assign(band=2 * part["mse_se"], valid=part["keeps"])
            plot_curves(
                points,
                x="epsilon",
                y="mse",
                spread="band",
                looks=LOOKS,
                log_y=True,
                legend=ax is axes[-1],
                ax=ax,
            )
            ax.set_title(f"Figure {figure}: m = {m:,}, n = {n}", loc="left", fontsize="medium")
            ax.set_ylabel("")
            if not part["keeps"].all():
                ax.set_xlabel("epsilon  (hollow: promise not kept)")
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
) -> PrivateMeansStudy:
    """Run the study: every setting, epsilon and channel.

    Parameters
    ----------
    reps : int, optional
        Runs, each with new clients; 50 if None, 4 if `quick`.
    seed : int
    quick : bool
        Only the smallest setting, and two values of epsilon.
    n_jobs : int, optional
        Processes; one for each core if None, one if `quick`.
    progress : bool, optional
        Whether to show a progress bar on stderr; if that is a terminal, by default.
    keep : str or Path, optional
        A folder for finished runs: a study that was interrupted goes on from what is there.

    Returns
    -------
    PrivateMeansStudy
    """
    settings = {"3b": SETTINGS["3b"]} if quick else SETTINGS
    epsilons = (1.0, 10.0) if quick else EPSILONS
    reps = (4 if quick else 50) if reps is None else reps
    runs = replicate(
        _one_run,
        [
            {"figure": figure, "m": m, "n": n, "epsilon": epsilon}
            for figure, (m, n) in settings.items()
            for epsilon in (np.nan, *epsilons)
        ],
        reps=reps,
        seed=seed,
        n_jobs=(1 if quick else -1) if n_jobs is None else n_jobs,
        progress=progress,
        label="private means",
        keep=keep,
    )
    table = average(runs, ["figure", "m", "n", "method", "epsilon"], ["mse"])
    table["formula"] = [
        _formula(row.method, row.m, row.n, row.epsilon) for row in table.itertuples()
    ]
    table["apart"] = (table["mse"] - table["formula"]) / table["mse_se"]
    table["delta"] = [_delta(row.method, row.epsilon) for row in table.itertuples()]
    table["keeps"] = ~(table["delta"] > DELTA)
    return PrivateMeansStudy(table, runs, reps, seed)


def simulate(m: int, n: int, rng: np.random.Generator) -> tuple[Summary, NDArray]:
    """Draw clients of the paper's population, by the law of their means.

    Parameters
    ----------
    m, n : int
        Clients, and rows of each.
    rng : Generator

    Returns
    -------
    summary : Summary
        Of scatter 0: the noise is known, so that nobody looks at it.
    theta : ndarray of shape (m,)
    """
    theta = rng.normal(rng.uniform(-RADIUS, RADIUS), SPREAD, m)
    mean = rng.normal(theta, NOISE / np.sqrt(n))
    return Summary(np.arange(m), np.full(m, n), mean[:, None], np.zeros((m, 1))), theta


def estimate(
    summary: Summary, channel: Channel, rng: np.random.Generator, prior: Normal | None = None
) -> NDArray:
    """Estimate every client's mean from its own and what leaves the others through a channel."""
    learner = GaussianEB(
        variances=NOISE**2,
        prior=Normal(variance=SPREAD**2) if prior is None else prior,
        channel=channel,
        guess=GUESS,
        random_state=rng,
    )
    return learner.fit(summary).predict()


def _one_run(
    seed: tuple[int, int], figure: str, m: int, n: int, epsilon: float
) -> list[dict[str, Any]]:
    """Errors of every method at one epsilon, or of those without one."""
    summary, theta = simulate(m, n, np.random.default_rng([*seed, m]))  # the same at every epsilon
    if np.isnan(epsilon):
        rng = np.random.default_rng(seed)
        estimates = {LOCAL: summary.mean[:, 0], OPEN: estimate(summary, Exact(), rng)}
    else:
        estimates = {}
        for k, (method, channel) in enumerate(CHANNELS.items()):
            rng = np.random.default_rng([*seed, m, round(1000 * epsilon), k])
            estimates[method] = _quietly(estimate, summary, channel(epsilon), rng)
    return [
        {"method": method, "mse": float(np.mean((each - theta) ** 2))}
        for method, each in estimates.items()
    ]


def _formula(method: str, m: int, n: int, epsilon: float) -> float:
    """Exact risk, where there is a formula for it."""
    t, noise = SPREAD**2, NOISE**2
    if method == LOCAL:
        return float(theory.local_risk(noise, n))
    b = float(theory.reporting_range(RADIUS, t, noise, n, m))
    if method == OPEN:
        sigma = 0.0
    elif method == PAPER:
        sigma = _quietly(paper_sigma, epsilon, DELTA, b)
    elif method == EXACT:
        sigma = gaussian_sigma(epsilon, DELTA, 2 * b)
    else:
        return np.nan
    return float(theory.mean_risk(t, noise, n, m, sigma**2))


def _delta(method: str, epsilon: float) -> float:
    """Delta that a report really has."""
    if np.isnan(epsilon):
        return np.nan
    return float(_quietly(CHANNELS[method](epsilon).guarantee)[1])


def _quietly(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call without the warning of a broken promise: table and figure mark those points."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return function(*arguments)
