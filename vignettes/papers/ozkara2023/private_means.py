"""Private means: the error of many means that are estimated together from private reports.

The settings are those of Ozkara, Girgis, Data and Diggavi (2023), Figures 1a, 3a and 3b: client i
has ``n`` rows ``x_ij ~ N(theta_i, .5**2)`` with ``theta_i ~ N(mu, .1**2)``. Both variances are
known; mu is only known to lie in [-.5, .5], where each run draws it anew. A client reports once on
its own mean, locally private, and the personalised estimates are those of Theorem 2.

The paper's client adds Gaussian noise to a mean clipped to ``±b`` of Theorem 2. It is compared with
the noise that (epsilon, delta) needs, one bit, and the hybrid mechanism, each on that range and on
one that is learned from the reports of the first clients. Where the paper's noise is too small, its
points are marked: they are not private to that epsilon and delta.

Gaussian reports on the fixed range are compared with the risk of Theorem 2 with the variance of
their noise, `theory.mean_risk`. It is exact for the theorem's fixed weight on the mean report. The
fit learns its weight from the reports: where noise moves their mean to an end of the range, reports
carry no information, and clients keep their own means. That happens where few clients have a small
epsilon, and the errors lie a little below the formula there.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed import theory
from ebfed.channels import Channel, Exact, Gaussian, Guess, Hybrid, OneBit, TwoBit
from ebfed.evaluation.study import SIMULATED_NOISE, WIDTH, Study, average, number, print_grid
from ebfed.location import GaussianEB
from ebfed.priors import Normal
from ebfed.privacy.calibration import PrivacyWarning, gaussian_sigma, paper_sigma
from ebfed.streams import make_key
from ebfed.tables.clients import Summary
from ozkara2023.doubts import doubts

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
    "two bits, learned range": lambda epsilon: TwoBit(epsilon, range="private"),
}


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List settings and values of epsilon; the quick version has the smallest setting and two."""
    settings = {"3b": SETTINGS["3b"]} if quick else SETTINGS
    epsilons = (1.0, 10.0) if quick else EPSILONS
    return [
        {"figure": figure, "m": m, "n": n, "epsilon": epsilon}
        for figure, (m, n) in settings.items()
        for epsilon in (np.nan, *epsilons)
    ]


def _tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    table = average(runs, ["figure", "m", "n", "method", "epsilon"], ["mse", "excess"])
    table["formula"] = [
        _formula(row.method, row.m, row.n, row.epsilon) for row in table.itertuples()
    ]
    table["apart"] = (table["mse"] - table["formula"]) / table["mse_se"]
    table["delta"] = [_delta(row.method, row.epsilon) for row in table.itertuples()]
    table["keeps"] = ~(table["delta"] > DELTA)
    table["doubt"] = doubts(table, "epsilon")
    return table


def simulate(m: int, n: int, rng: np.random.Generator) -> tuple[Summary, NDArray]:
    """Draw clients of the paper's population, by the law of their means.

    Returns a summary, whose scatter 0 is not used (the noise is known), and the true means.
    """
    theta = rng.normal(rng.uniform(-RADIUS, RADIUS), SPREAD, m)
    mean = rng.normal(theta, NOISE / np.sqrt(n))
    return Summary(np.arange(m), np.full(m, n), mean[:, None], np.zeros((m, 1))), theta


def estimate(
    summary: Summary, channel: Channel, rng: np.random.Generator, prior: Normal | None = None
) -> NDArray:
    """Estimate every client's mean from its own rows and the reports of the others."""
    return fitted(summary, channel, rng, prior).predict()


def fitted(
    summary: Summary, channel: Channel, rng: np.random.Generator, prior: Normal | None = None
) -> GaussianEB:
    """Fit the population to reports."""
    return GaussianEB(
        variances=NOISE**2,
        prior=Normal(variance=SPREAD**2) if prior is None else prior,
        channel=channel,
        guess=GUESS,
        random_state=make_key(rng),
    ).fit(summary)


def _one_run(
    seed: tuple[int, int], figure: str, m: int, n: int, epsilon: float
) -> list[dict[str, Any]]:
    """Errors of every method at one epsilon, or of those without one."""
    summary, theta = simulate(m, n, np.random.default_rng([*seed, m]))  # the same at every epsilon
    if np.isnan(epsilon):
        rng = np.random.default_rng(seed)
        estimates = {LOCAL: summary.mean[:, 0], OPEN: estimate(summary, Exact(), rng)}
        return [_row(method, each, theta, np.nan) for method, each in estimates.items()]
    rows, bound = [], theory.private_mean_bound(NOISE**2, n, m, epsilon, SPREAD**2)
    for k, (method, channel) in enumerate(CHANNELS.items()):
        rng = np.random.default_rng([*seed, m, round(1000 * epsilon), k])
        fit = _quietly(fitted, summary, channel(epsilon), rng)
        rows.append(_row(method, fit.predict(), theta, fit.prior_.mean_variance_.item() / bound))
    return rows


def _row(method: str, estimates: NDArray, theta: NDArray, excess: float) -> dict[str, Any]:
    return {
        "method": method,
        "mse": float(np.mean((estimates - theta) ** 2)),
        "excess": float(excess),
    }


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
    """Return the true delta of a report."""
    if np.isnan(epsilon):
        return np.nan
    return float(_quietly(CHANNELS[method](epsilon).guarantee)[1])


def _quietly(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call without the warning that noise is too small: table and figure mark those points."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return function(*arguments)


# The page, also of the study of bits ----------------------------------------------------------


def print_errors(table: pd.DataFrame, x: str) -> Iterator[str]:
    """Print mean squared errors of settings and methods against x, in thousandths.

    The table has ``figure``, ``m``, ``n``, ``method``, x (NaN where a method has none), ``mse``,
    ``mse_se``, ``formula`` and ``apart`` (NaN where there is none), and ``keeps``: False gets a
    star. With a ``doubt`` the error is marked too.
    """

    def error_of(row: Any) -> str:
        return f"{1000 * row.mse:.2f}" + ("!" if row.doubt else " " if row.keeps else "*")

    below = {
        " ": lambda row: f"({1000 * row.mse_se:.2f})",
        "  formula": lambda row: number(1000 * row.formula, ".2f") + " ",
        "  apart": lambda row: number(row.apart, "+.1f") + " ",
    }
    left = min(26, WIDTH - 10 * table[x].nunique())
    for k, ((figure, m, n), part) in enumerate(table.groupby(["figure", "m", "n"], sort=False)):
        yield from [""] * (k > 0)
        title = f"Figure {figure}: {m:,} clients, {n} rows each"
        label: Any = "{:g} ".format
        options: dict[str, Any] = {"head": x, "label": label, "title": title, "below": below}
        yield from print_grid(part, x, error_of, left, 10, **options)


def panels_of(table: pd.DataFrame, x: str, **options: Any) -> Iterator[dict[str, Any]]:
    """Draw mean squared errors of methods against x, a panel for each setting."""
    for (figure, m, n), part in table.groupby(["figure", "m", "n"], sort=False):
        labels = {"title": f"Figure {figure}: m = {m:,}, n = {n}", "ylabel": "mean squared error"}
        yield {"table": part, "x": x, "y": "mse", "log_y": True} | labels | options


class PrivateMeansStudy(Study, cells=_cells, one_run=_one_run, tabulate=_tabulate):
    """The table has a row for each setting (``figure``, ``m``, ``n``), ``method`` and ``epsilon``
    (NaN: no privacy): ``mse``, its standard error ``mse_se`` and the standard deviation of one run
    ``mse_sd``; the ``excess``, the variance of the mean of the population over the least; the
    ``formula`` for ``mse``, if there is one, and by how many standard errors the simulation lies
    above it (``apart``); the true ``delta`` of a report, and whether it ``keeps`` the claimed one;
    and a ``doubt``, where an error cannot be right.
    """

    name, full, quick = "private-means", 50, 4
    heading = f"Private means: mean squared error x 1000 of personalised estimates, delta {DELTA:g}"

    def lines(self) -> Iterator[str]:
        yield from print_errors(self.table, "epsilon")

    def notes(self) -> Iterator[str]:
        yield (
            f"Means over {self.reps} runs; below each, in brackets, its standard error. All "
            "methods see the same clients. Formula: the risk of Theorem 2 with the variance of "
            "the noise; apart: by how many standard errors the simulation lies above it. Where few "
            "clients have a small epsilon it lies below: noise may move the mean report to an end "
            "of the range, and the clients then keep their own means."
        )
        pure = self.table[self.table["method"].str.contains("bit|hybrid, learned", regex=True)]
        for epsilon, part in pure[pure["epsilon"] <= 1].groupby("epsilon"):
            excess = part.groupby("method", sort=False)["excess"].agg(["min", "max"])
            said = [f"{name} {low:.2f} to {high:.2f}" for name, low, high in excess.itertuples()]
            yield (
                f"Variance of the mean of the population at epsilon {epsilon:g}, over the least of "
                f"any private reports (`theory.private_mean_bound`): {', '.join(said)}."
            )
        yield SIMULATED_NOISE
        broken = self.table.loc[~self.table["keeps"], ["epsilon", "delta"]].drop_duplicates()
        for epsilon, delta in broken.itertuples(index=False):
            yield (
                f"* Not private as claimed: at epsilon {epsilon:g} the paper's noise has delta "
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
        """Return rows of the private methods of least error, beside ``open`` errors."""
        private = self.table[self.table["epsilon"].notna() & self.table["keeps"]]
        least = private.groupby(["figure", "epsilon"], sort=False)["mse"].idxmin()
        without = self.table[self.table["method"] == OPEN].set_index("figure")[["mse", "mse_se"]]
        without = without.set_axis(["open", "open_se"], axis=1)
        return self.table.loc[least].join(without, on="figure").reset_index(drop=True)

    def panels(self) -> Iterator[dict[str, Any]]:
        hollow = "epsilon  (hollow: promise not kept)"
        table = self.table.assign(valid=self.table["keeps"])
        yield from panels_of(table, "epsilon", xlabel=hollow)
