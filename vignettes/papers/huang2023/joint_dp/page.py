"""Page of the study of joint differential privacy: its table, text and figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ebfed.evaluation.study import (
    SIMULATED_NOISE,
    THIN,
    SimulatedStudy,
    average,
    legend_outside,
    print_row,
)
from ebfed.report import new_axes, plot_curves
from ebfed.report.plots import BLACK, BLUE, GREEN, VERMILLION
from huang2023.joint_dp.settings import (
    ALONE,
    BLOCKS,
    DELTA,
    EPSILON,
    FULL,
    IMAGE_DELTA,
    JOINT,
    KEYS,
    METHODS,
    OPEN,
    OTHERS,
    OWNERS,
    UNITS,
    USERS_N,
)

__all__ = ["JointDPStudy", "crossover", "tabulate"]

# Table 1 at epsilon 1: per owner, without DP, full DP, joint DP.
PUBLISHED: dict[tuple[str, int], tuple[float, float, float, float]] = {
    ("MNIST", 4): (94.45, 96.02, 44.44, 46.58),
    ("MNIST", 16): (94.57, 94.68, 29.26, 32.07),
    ("MNIST", 64): (92.09, 94.02, 69.82, 76.51),
    ("MNIST", 128): (86.39, 93.76, 80.81, 81.69),
    ("MNIST", 256): (76.78, 91.96, 73.99, 78.35),
    ("MNIST", 512): (72.40, 93.26, 60.23, 74.23),
    ("Fashion-MNIST", 4): (88.88, 87.59, 45.60, 45.33),
    ("Fashion-MNIST", 16): (85.75, 83.01, 40.44, 42.05),
    ("Fashion-MNIST", 64): (84.98, 82.32, 53.54, 55.64),
    ("Fashion-MNIST", 128): (75.06, 76.76, 65.93, 67.19),
    ("Fashion-MNIST", 256): (64.89, 80.10, 67.49, 69.08),
    ("Fashion-MNIST", 512): (63.55, 82.42, 64.84, 66.67),
}
LOOKS: dict[str, dict[str, Any]] = {
    ALONE: {"color": VERMILLION, "marker": "^", "ls": "-."},
    OPEN: {"color": BLACK, "marker": "D", "ls": ":"},
    FULL: {"color": GREEN, "marker": "s", "ls": "--"},
    JOINT: {"color": BLUE, "marker": "o", "ls": "-"},
}


class JointDPStudy(SimulatedStudy):
    """Results of the study of joint differential privacy.

    Attributes
    ----------
    table : DataFrame
        A row for each kind of ``data``, number of owners ``n`` (1: each alone, whatever n is) and
        ``method``; which blocks of a network are ``personal``, and records ``per_user``. The excess
        ``loss`` of records, or the ``accuracy`` of images in per cent, a mean over owners, NaN
        otherwise, each with its standard error (``.._se``) and the standard deviation of one run
        (``.._sd``); the ``step`` of u, ``epsilon`` of the ledger, and the ``published`` figure of
        Table 1 of the paper.
    runs : DataFrame
        Loss or accuracy of each run and step.
    reps, seed : int
    """

    name: ClassVar[str] = "joint-dp"

    def title(self) -> str:
        """Return the first line of the page."""
        return "Joint differential privacy between owners"

    def lines(self) -> Iterator[str]:
        """Yield losses of records, then accuracies of images."""
        yield from _print_losses(self.table[self.table["data"] == "records"])
        yield ""
        images = self.table[self.table["data"] != "records"]
        for data, part in images.groupby("data", sort=False):
            yield from _print_accuracies(str(data), part)
            yield ""
        yield from _print_blocks(images)
        yield ""
        yield from _print_users(images)

    def notes(self) -> Iterator[str]:
        """Yield the notes at the end of the page."""
        at = crossover(self.table)
        where = f"at {at:.0f} owners" if np.isfinite(at) else "nowhere here"
        yield (
            f"Records: half the expected squared error above the least one; means over {self.reps} "
            "runs, in brackets the standard error; the step is the best on average, of a few. "
            f"Joint DP overtakes learning alone {where}. ε = {EPSILON:g}, δ = {DELTA:g} for one "
            "record more or less."
        )
        yield (
            f"Images: means over owners and runs ± the standard deviation of a run; ε = {EPSILON:g}"
            f", δ = {IMAGE_DELTA:g} for one user more or less. Paper: Table 1, with another "
            "network. Full and joint DP have the same rounds, sampling, learning rate and clipping "
            "norm, chosen on training images of MNIST alone, for a network of "
            f"{UNITS} units; without DP: FedAvg. Personal in Table 1: intercepts of the second "
            "output layer; in the paper a whole one."
        )
        yield SIMULATED_NOISE

    def figure(self) -> Any:
        """Draw losses and accuracies against the number of owners."""
        kinds = [str(data) for data in self.table["data"].unique()]
        axes = new_axes(len(kinds), (1.6 + 4.2 * len(kinds), 4.2))
        for ax, data in zip(axes, kinds, strict=True):
            part = _standard(self.table[self.table["data"] == data])
            y = "loss" if data == "records" else "accuracy"
            part = part.assign(x=part["n"].where(part["n"] > 1).astype(float), y=part[y])
            plot_curves(
                part.assign(band=2 * part[f"{y}_se"]),
                x="x",
                y="y",
                spread="band",
                looks=LOOKS,
                log_y=data == "records",
                legend=False,
                ax=ax,
            )
            ax.set_title(data, loc="left", fontsize="medium")
            ax.set(xlabel="owners", ylabel="excess loss" if y == "loss" else "accuracy, %")
        legend_outside(axes[-1])
        return axes[0].figure


def tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    """Average over runs; of records, keep the best step."""
    table = average(runs, [*KEYS, "step"], ["loss", "accuracy", "epsilon"])
    table = table.drop(columns=["epsilon_se", "epsilon_sd"])
    least = table.groupby(KEYS, sort=False)["loss"].transform("min")
    table = table[table["loss"].isna() | table["loss"].eq(least)].reset_index(drop=True)
    table.loc[table["method"] == ALONE, "epsilon"] = 0.0  # owners send nothing
    table["published"] = [_published(row) for row in table.itertuples()]
    return table


def crossover(table: pd.DataFrame) -> float:
    """Return the number of owners from which on joint DP is better than learning alone.

    Parameters
    ----------
    table : DataFrame
        ``data``, ``method``, ``n`` and ``loss``.

    Returns
    -------
    float
        Interpolated between logarithms; infinite if it never is.

    Examples
    --------
    >>> table = pd.DataFrame({
    ...     "data": "records",
    ...     "method": ["per owner", "joint DP", "joint DP"],
    ...     "n": [1, 4, 64],
    ...     "loss": [0.1, 0.4, 0.025],
    ... })
    >>> round(crossover(table))
    16
    """
    table = table[table["data"] == "records"]
    alone = float(table.loc[table["method"] == ALONE, "loss"].iloc[0])
    joint = table[table["method"] == JOINT].sort_values("n")
    gap, owners = np.log(joint["loss"].to_numpy() / alone), np.log(joint["n"].to_numpy())
    behind = np.flatnonzero(gap > 0)
    if not len(behind):
        return float(joint["n"].iloc[0])
    k = int(behind[-1])
    if k == len(gap) - 1:
        return float("inf")
    share = gap[k] / (gap[k] - gap[k + 1])
    return float(np.exp(owners[k] + share * (owners[k + 1] - owners[k])))


def _published(row: Any) -> float:
    """Return the figure of Table 1 of the paper for a row of the table."""
    standard = row.per_user == 1 and row.personal not in OTHERS
    figures = PUBLISHED.get((row.data, row.n)) if standard else None
    return np.nan if figures is None else figures[METHODS.index(row.method)]


def _standard(part: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of Table 1, in its order of methods."""
    rows = part[(part["per_user"] == 1) & ~part["personal"].isin(OTHERS)]
    order = rows["method"].map({method: k for k, method in enumerate(METHODS)})
    return rows.loc[order.sort_values(kind="stable").index]


def _print_losses(part: pd.DataFrame) -> Iterator[str]:
    """Print excess losses by number of owners."""
    owners = [n for n in OWNERS if n in set(part["n"])]
    yield "Records: excess loss, by number of owners"
    yield THIN
    yield print_row("owners", owners, 16, 18)
    for method in METHODS:
        rows = part[part["method"] == method].set_index("n")
        cells = [
            f"{rows.loss[n]:.4f} ({rows.loss_se[n]:.4f})" if n in rows.index else ""
            for n in ([1] if method == ALONE else owners)
        ]
        yield print_row(method, cells, 16, 18)


def _print_accuracies(data: str, part: pd.DataFrame) -> Iterator[str]:
    """Print accuracies by number of owners, and beside each the paper's."""
    yield f"{data} (Table 1): accuracy in per cent"
    yield THIN
    paper = "" if part["published"].isna().all() else "paper"
    yield (f"{'owners':<10}" + "".join(f"{method:>13}{paper:>7}" for method in METHODS)).rstrip()
    rows = _standard(part).set_index(["n", "method"])
    for n in rows.index.unique("n"):
        line = f"{n:<10}"
        for method in METHODS:
            row = rows.loc[(n, method)]
            line += f"{f'{row.accuracy:.1f} ± {row.accuracy_sd:.1f}':>13}"
            line += f"{'' if np.isnan(row.published) else f'{row.published:.1f}':>7}"
        yield line.rstrip()


def _print_blocks(images: pd.DataFrame) -> Iterator[str]:
    """Print accuracies by what is personal."""
    first = images[images["personal"].isin(OTHERS)].iloc[0]
    rows = images[(images["data"] == first["data"]) & (images["n"] == first["n"])]
    rows = rows[(rows["per_user"] == 1) & rows["method"].isin([FULL, JOINT])]
    yield f"What is personal (Table 2): {first['data']}, {first['n']} owners, joint DP"
    yield THIN
    rows = rows.set_index("personal")
    for name in BLOCKS:
        row = rows.loc[name]
        yield f"{name:<30}{f'{row.accuracy:.1f} ± {row.accuracy_sd:.1f}':>13}"


def _print_users(images: pd.DataFrame) -> Iterator[str]:
    """Print accuracies by records of a user."""
    first = images["data"].iloc[0]
    rows = images[(images["data"] == first) & (images["n"] == USERS_N)]
    rows = rows[~rows["personal"].isin(OTHERS)]
    sizes: Sequence[int] = np.unique(rows["per_user"]).tolist()
    yield f"Records of a user (Table 4): {first}, {USERS_N} owners"
    yield THIN
    yield print_row("", sizes, 16, 14)
    for method in (FULL, JOINT):
        found = rows[rows["method"] == method].set_index("per_user")
        cells = [f"{found.accuracy[k]:.1f} ± {found.accuracy_sd[k]:.1f}" for k in sizes]
        yield print_row(method, cells, 16, 14)
