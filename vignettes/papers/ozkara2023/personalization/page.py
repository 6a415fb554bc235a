"""Page of the study of personalised learning: its table, text and figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ebfed.evaluation.study import SIMULATED_NOISE, THIN, SimulatedStudy, average
from ebfed.report import new_axes, plot_curves
from ebfed.report.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION
from ozkara2023.personalization.pricing import price
from ozkara2023.personalization.settings import (
    ALWAYS_ALONE,
    BATCH,
    CLASSES,
    COMPARISON,
    DELTA,
    DP_ADAPED,
    DP_SHARED,
    INVITED,
    PRIVACY,
    RATE,
    ROUNDS,
    STEPS,
    TITLES,
    families,
)

__all__ = ["PersonalizationStudy", "tabulate"]

# Accuracy of DP-FedAvg and DP-AdaPeD in Table 2 of the paper, per cent.
PUBLISHED = {3.35: (11.73, 93.32), 13.16: (29.91, 98.51), 27.30: (55.79, 99.01)}


class PersonalizationStudy(SimulatedStudy):
    """Results of the study of personalised learning.

    Attributes
    ----------
    table : DataFrame
        A row for each ``part`` (comparison, privacy; rounds: after some of the rounds),
        ``data``, ``m``, ``model``, number of ``rounds``, ``claimed`` epsilon, ``method`` and
        ``round``: the ``accuracy``, its standard error ``accuracy_se`` and standard deviation over
        runs ``accuracy_sd``, the same of ``psi``; the ``epsilon`` of the ledger (one client more or
        less) and ``exchanged`` (one client exchanged for another); by how much the method is
        ``ahead`` of AdaPeD, and its standard error ``ahead_se``. NaN where a method has none.
    runs : DataFrame
    reps, seed : int
    """

    name: ClassVar[str] = "personalization"

    def title(self) -> str:
        """Return the first line of the page."""
        return "Personalised learning: test accuracy, %, mean over clients"

    def lines(self) -> Iterator[str]:
        """Yield comparison, privacy and rounds, those that were run."""
        parts = (self._print_comparison(), self._print_privacy(), self._print_rounds())
        for k, part in enumerate(filter(None, parts)):
            yield from [""] * (k > 0) + part

    def _part(self, name: str) -> pd.DataFrame:
        return self.table[self.table["part"] == name]

    def _print_comparison(self) -> list[str]:
        part = self._part(COMPARISON)
        if part.empty:
            return []
        heads, cells = [], {}
        for data, rows in part.groupby("data", sort=False):
            first = rows.iloc[0]
            heads.append(f"{TITLES[data]}, {first['model']}, {first['rounds']} rounds")
            rows = rows.set_index("method")
            for family in families(part):
                best = rows.loc[list(family), "accuracy"].idxmax()
                for method in family:
                    row, star = rows.loc[method], "*" if method == best else " "
                    cells[data, method] = _spread(row["accuracy"], row["accuracy_sd"]) + star
        lines = []
        titles = f"Working when invited, q = {RATE:g}", "Working in every round"
        for family, title in zip(families(part), titles, strict=False):
            lines += [f"{title:<34}" + "".join(f"{head:>30} " for head in heads), THIN]
            for method in family:
                of_method = [cells[data, method] for data in part["data"].unique()]
                lines.append(f"{method:<34}" + "".join(f"{cell:>31}" for cell in of_method))
            heads = [""] * len(heads)
        return [line.rstrip() for line in lines]

    def _print_privacy(self) -> list[str]:
        part = self._part(PRIVACY)
        if part.empty:
            return []
        first = part.iloc[0]
        published = PUBLISHED if first["data"] == "mnist" else {}
        methods = f"{DP_SHARED:>15} {DP_ADAPED:>15}"
        lines = [
            f"Privacy: {TITLES[first['data']]}, {first['model']}, {first['rounds']} rounds of all "
            f"{first['m']} clients, delta = {DELTA:g}",
            f"{'claimed':>10}{'epsilon':>12}{'exchanged':>12}{methods}"
            + (f"{'the paper:':>13}{'FedAvg':>8}{'AdaPeD':>8}" if published else ""),
            THIN,
        ]
        for claimed, rows in part.dropna(subset=["claimed"]).groupby("claimed", sort=False):
            rows = rows.set_index("method")
            row = rows.iloc[0]
            line = f"{claimed:>10.2f}{row['epsilon']:>12.2f}{row['exchanged']:>12.2f}"
            accuracies = rows.loc[[DP_SHARED, DP_ADAPED], ["accuracy", "accuracy_sd"]]
            cells = [_spread(mean, sd) for mean, sd in accuracies.to_numpy()]
            line += f"{cells[0]:>15} {cells[1]:>15}"
            if published:
                line += f"{'':>13}" + "".join(f"{value:>8.2f}" for value in published[claimed])
            lines.append(line)
        (alone,) = part[part["method"] == ALWAYS_ALONE].itertuples()
        cell = _spread(alone.accuracy, alone.accuracy_sd)
        return [*lines, f"{ALWAYS_ALONE:<22}{'(nothing is sent)':<28}{cell:>15}"]

    def _print_rounds(self) -> list[str]:
        lines = []
        groups = self._part(ROUNDS).groupby(["data", "model", "rounds"], sort=False)
        for (data, model, _), rows in groups:
            head = f"{TITLES[data]}, {model}, round"
            lines += [_row(head, rows["round"].unique(), "{}"), THIN]
            by = ["method", "claimed"]
            for (method, claimed), line in rows.groupby(by, sort=False, dropna=False):
                named = method if math.isnan(claimed) else f"{method}, {claimed:g}"
                if math.isnan(claimed):
                    lines.append(_row(named, 100 * line["accuracy"], "{:.2f}"))
                    named = ""
                lines.append(_row(f"{named}  psi", line["psi"], "{:.2f}"))
            lines.append("")
        return lines[:-1]

    def notes(self) -> Iterator[str]:
        """Yield the notes at the end of the page."""
        yield (
            f"Means ± standard deviations over {self.reps} runs, each with new clients, who hold "
            f"{CLASSES} classes each and are tested on these. All methods see the same clients and "
            f"start alike; {STEPS} steps in a round, on batches of {BATCH} rows. *: the best."
        )
        yield (
            "Settings were chosen on rows of MNIST with the convolutional network, from few "
            "candidates, and from more for AdaPeD than for others. The paper has 300 rounds."
        )
        part = self._part(COMPARISON)
        for data, rows in part.groupby("data", sort=False):
            for family in families(part):
                yield f"{TITLES[data]}: " + _say_who_is_ahead(rows, family)
        part = self._part(PRIVACY)
        if part.empty:
            return
        yield (
            "Claimed: by Theorem 5 of the paper, as printed. Epsilon: of the ledger, for one "
            "client more or less. Exchanged: for one client exchanged for another, which is what "
            "the theorem is about. Both methods have the same noise multiplier in a round."
        )
        if part["data"].eq("mnist").all():
            yield "The paper's figures (Table 2) are of its convolutional network."
        if not part["model"].eq("CNN").all():
            yield "The network of the table of privacy is not the paper's: it has one hidden layer."
        yield _say_what_privacy_buys(part)
        yield SIMULATED_NOISE

    def figure(self) -> Any:
        """Draw accuracies, accuracy against epsilon, and accuracy during training."""
        axes = new_axes(2, (11.4, 8.6), n_rows=2)
        _draw_comparison(axes[0], self._part(COMPARISON))
        _draw_privacy(axes[1], self._part(PRIVACY))
        _draw_rounds(axes[2], axes[3], self._part(ROUNDS))
        return axes[0].figure


def tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    """Average over runs; add what privacy costs, and who is ahead of AdaPeD."""
    by = ["part", "data", "m", "model", "rounds", "claimed", "method", "round"]
    table = average(runs, by, ["accuracy", "psi", "epsilon"])
    table = table.drop(columns=["psi_se", "epsilon_se", "epsilon_sd"])
    prices = [
        math.nan
        if math.isnan(row.claimed)
        else price(row.claimed, rounds=row.rounds, m=row.m).exchanged
        for row in table.itertuples()
    ]
    return table.assign(exchanged=prices).merge(_lead(runs), "left", ["part", "data", "method"])


def _lead(runs: pd.DataFrame) -> pd.DataFrame:
    """By how much a method is ahead of AdaPeD where clients work as often, run by run."""
    rows = []
    for data, part in runs[runs["part"] == COMPARISON].groupby("data", sort=False):
        accuracy = part.pivot(index="run", columns="method", values="accuracy")
        for family in families(part):
            ahead = accuracy[list(family[:-1])].sub(accuracy[family[-1]], axis=0)
            se = ahead.std() / math.sqrt(len(ahead))
            rows += [
                {"part": COMPARISON, "data": data, "method": method}
                | {"ahead": ahead[method].mean(), "ahead_se": se[method]}
                for method in family[:-1]
            ]
    columns = ["part", "data", "method", "ahead", "ahead_se"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[3:], float))


def _row(name: str, values: Iterable[float], form: str) -> str:
    """Print a name and numbers."""
    return f"{name:<32}" + "".join(f"{form.format(value):>6}" for value in values)


def _spread(mean: float, sd: float) -> str:
    return f"{100 * mean:.2f} ± {100 * sd:.2f}"


def _say_who_is_ahead(rows: pd.DataFrame, family: Sequence[str]) -> str:
    """Say which methods of a family beat its last, an AdaPeD, and by how much."""
    rows = rows[rows["method"].isin(family[:-1])]
    better = rows[rows["ahead"] > 0].sort_values("ahead", ascending=False)
    if better.empty:
        worse = rows.sort_values("ahead").iloc[-1]
        return (
            f"{family[-1]} is above {'every other method' if len(rows) > 1 else family[0]}, by "
            f"{-100 * worse['ahead']:.2f} ± {100 * worse['ahead_se']:.2f} points or more (next: "
            f"{worse['method']}; ±: standard error)."
        )
    who = ", ".join(
        f"{row.method} by {100 * row.ahead:.2f} ± {100 * row.ahead_se:.2f}"
        for row in better.itertuples()
    )
    return f"ahead of {family[-1]} is {who} points (±: standard error); no other method is."


def _say_what_privacy_buys(part: pd.DataFrame) -> str:
    """Compare DP-AdaPeD with DP-FedAvg and with training alone."""
    accuracy = part.pivot(index="claimed", columns="method", values="accuracy")
    alone = accuracy[ALWAYS_ALONE].dropna().iloc[0]
    levels = accuracy.dropna(subset=[DP_ADAPED])
    above = 100 * (levels[DP_ADAPED] - levels[DP_SHARED])
    beyond = 100 * (levels[DP_ADAPED] - alone)
    return (
        f"{DP_ADAPED} is above {DP_SHARED} by "
        + ", ".join(f"{value:.1f}" for value in above)
        + " points, and above training alone, which costs no privacy, by "
        + ", ".join(f"{value:+.2f}" for value in beyond)
        + "."
    )


def _draw_comparison(ax: Any, part: pd.DataFrame) -> None:
    """Draw a dot with an error bar for each method and collection."""
    methods = [method for family in families(part) for method in family]
    shown = part["data"].unique()
    for k, (data, rows) in enumerate(part.groupby("data", sort=False)):
        rows = rows.set_index("method").loc[methods]
        ax.errorbar(
            100 * rows["accuracy"],
            np.arange(len(methods)) + 0.18 * (2 * k - len(shown) + 1),
            xerr=100 * rows["accuracy_sd"],
            color=(BLUE, VERMILLION, GREEN)[k],
            marker="os^"[k],
            ls="",
            ms=5,
            capsize=2,
            label=f"{TITLES[data]} ({rows['model'].iloc[0]})",
        )
    if len(methods) > len(INVITED):
        ax.axhline(len(INVITED) - 0.5, color=GREY, lw=1, ls=":")
    ax.set_yticks(range(len(methods)), methods)
    ax.invert_yaxis()
    if methods:
        ax.legend(frameon=False, fontsize="small")
    ax.set_xlabel("test accuracy, %  (bars: ± sd)")
    ax.spines[["top", "right"]].set_visible(False)


def _draw_privacy(ax: Any, part: pd.DataFrame) -> None:
    """Draw accuracy against the true epsilon."""
    ax.set(xlabel="epsilon of the ledger", ylabel="test accuracy, %")
    if part.empty:
        return
    curves = part.assign(value=100 * part["accuracy"], band=200 * part["accuracy_se"])
    curves.loc[curves["method"] == ALWAYS_ALONE, "epsilon"] = math.nan
    looks = {
        DP_ADAPED: {"color": BLUE, "marker": "o", "ls": "-"},
        DP_SHARED: {"color": VERMILLION, "marker": "s", "ls": "--"},
    }
    plot_curves(
        curves.round({"epsilon": 2}), x="epsilon", y="value", spread="band", looks=looks, ax=ax
    )
    first = part.iloc[0]
    ax.set(xlabel=f"epsilon of the ledger  (delta = {DELTA:g})", ylabel="test accuracy, %")
    ax.set_ylim(0, 102)
    ax.set_title(f"{TITLES[first['data']]}, {first['model']}", loc="left", fontsize="medium")


def _draw_rounds(left: Any, right: Any, part: pd.DataFrame) -> None:
    """Draw accuracy and psi over rounds."""
    colours = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, BLACK, GREY)
    lines = part.groupby(["data", "model", "method", "claimed"], sort=False, dropna=False)
    for k, ((data, _, method, claimed), rows) in enumerate(lines):
        private = not math.isnan(claimed)
        label = f"{method}, claimed {claimed:g}" if private else f"{method}, {TITLES[data]}"
        look = {"color": colours[k % 7], "ls": "--" if private else "-", "marker": "osv^DPX"[k % 7]}
        for ax, value, factor in ((left, "accuracy", 100), (right, "psi", 1)):
            if rows[value].notna().sum() > 1:  # of private methods only the end was tested
                ax.plot(rows["round"], factor * rows[value], ms=4, lw=1.4, label=label, **look)
    for ax, label in ((left, "test accuracy, %"), (right, "psi")):
        ax.set(xlabel="round", ylabel=label)
        ax.set_xlim(left=0)
        ax.spines[["top", "right"]].set_visible(False)
        if ax.lines:
            ax.legend(frameon=False, fontsize="small")
