"""Personalised learning: AdaPeD against what else there is, and what its privacy is worth.

Fifty clients hold images of three classes each (Ozkara, Girgis, Data and Diggavi, 2023, section 4
and Appendix K), and classify test images of the same classes. A client makes ten steps in a round,
on batches of 20 of its 1,200 rows, so that an epoch is 60 steps; a tenth of the clients is invited
to each round.

*Comparison* (Table 1): the mean over clients of the accuracy of their personal predictors. Methods
in which clients work only when they are invited are compared with one another, and so are those in
which everyone works in every round, because they do ten times as much.

*Privacy* (Table 2): DP-FedAvg and DP-AdaPeD where all clients take part in all rounds. The noise is
the one to which Theorem 5, as printed, would give the table's epsilon; what it is worth, the ledger
says, and both methods get the same. Beside them stands training alone, which costs no privacy.

*Rounds* (Figure 2): test accuracy and psi on the way.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.datasets import fetch_fashion_mnist, fetch_mnist, load_digits, partition_classes
from ebfed.learning.adaped import AdaPeD
from ebfed.learning.ditto import Ditto
from ebfed.learning.dp_adaped import DPAdaPeD
from ebfed.learning.dp_fed_avg import DPFedAvg
from ebfed.learning.fed_avg import FedAvg
from ebfed.learning.fed_mutual import FedMutual
from ebfed.learning.local_only import LocalOnly
from ebfed.learning.local_training import LocalTraining
from ebfed.learning.per_fed_avg import PerFedAvg
from ebfed.learning.pfedme import PFedMe
from ebfed.learning.quped import QuPeD
from ebfed.models import MLP, Model, Torch
from ebfed.models.torch import lenet
from ebfed.privacy import accountant
from ebfed.report import new_axes, plot_curves
from ebfed.report.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION
from ebfed.report.summary import Text
from ebfed.studies.simulation import WIDTH, SimulatedStudy, average, replicate, wrap
from ebfed.tables.clients import Clients
from ebfed.theory.private_learning import adaped_claimed_epsilon, adaped_event

__all__ = ["Federation", "PersonalizationStudy", "deal_images", "price", "run"]

Collection = Literal["mnist", "fashion-mnist", "digits"]

CLIENTS, CLASSES, RATE = 50, 3, 0.1
STEPS, BATCH, EPOCH = 10, 20, 60  # of a round; rows of a step; steps of an epoch
CLAIMS = (3.35, 13.16, 27.30)
DELTA = 1e-4  # the paper does not say
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "digits (8 x 8)"}
FETCH = {"mnist": fetch_mnist, "fashion-mnist": fetch_fashion_mnist, "digits": load_digits}

COMPARISON, PRIVACY, ROUNDS = "comparison", "privacy", "rounds"  # parts of the table

SHARED, TUNED = "FedAvg", "FedAvg, fine-tuned"
ALONE, ALWAYS_ALONE = "alone", "alone, always"
ADAPED, ALWAYS_ADAPED = "AdaPeD", "AdaPeD, always"
DP_SHARED, DP_ADAPED = "DP-FedAvg", "DP-AdaPeD"
# Who works only when invited, and who in every round.
INVITED = (ALONE, SHARED, TUNED, "pFedMe", "Per-FedAvg", "QuPeD", "FedMutual", "Ditto", ADAPED)
ALWAYS = (ALWAYS_ALONE, ALWAYS_ADAPED)

# Chosen by the accuracy on a fifth of the rows of MNIST that clients learn from (`deal_images` with
# `validation`), convolutional network, 50 rounds, one run. Learning rates: .2 was the best of .1,
# .2 and .3 for AdaPeD and QuPeD, of .1 and .2 for FedAvg, of .2 and .3 for training alone; it is
# taken for FedMutual and Ditto too, untried. `psi_weight`: 5 for AdaPeD (not 1). pFedMe: eta lambda
# is 1 (the paper: .1), the only choice that was tried. Per-FedAvg: a learning rate of .2 and an own
# step of .1, untried, failed in the study itself (one run 10 %, one not finite), so that it has the
# paper's. Private methods: one hidden layer, 60 rounds, claimed 3.35; `clip` of .03, .1, .3 and 1
# for DP-FedAvg, of .01 and .1 for DP-AdaPeD. All else is the paper's, or the default.
METHODS: dict[str, tuple[type[LocalTraining], dict[str, Any]]] = {
    ALONE: (LocalOnly, {"learning_rate": 0.2}),
    TUNED: (FedAvg, {"learning_rate": 0.2, "fine_tune": EPOCH}),
    "pFedMe": (PFedMe, {"learning_rate": 2.0, "own_learning_rate": 0.2}),
    "Per-FedAvg": (PerFedAvg, {"learning_rate": 0.075, "own_learning_rate": 0.001}),
    "QuPeD": (QuPeD, {"learning_rate": 0.2}),
    "FedMutual": (FedMutual, {"learning_rate": 0.2, "own_weight": 0.25, "shared_weight": 0.25}),
    "Ditto": (Ditto, {"learning_rate": 0.2}),
    ADAPED: (AdaPeD, {"learning_rate": 0.2, "psi_weight": 5.0}),
    ALWAYS_ALONE: (LocalOnly, {"learning_rate": 0.1, "sample_rate": 1.0}),
    ALWAYS_ADAPED: (AdaPeD, {"learning_rate": 0.2, "psi_weight": 5.0, "unsampled": True}),
    DP_SHARED: (DPFedAvg, {"learning_rate": 0.1, "clip": 0.1}),
    DP_ADAPED: (DPAdaPeD, {"learning_rate": 0.1, "clip": 0.01, "psi_clip": 0.1}),
}

# Accuracy of DP-FedAvg and DP-AdaPeD in Table 2 of the paper, per cent.
PUBLISHED = {3.35: (11.73, 93.32), 13.16: (29.91, 98.51), 27.30: (55.79, 99.01)}


@dataclass(frozen=True)
class PersonalizationStudy(SimulatedStudy):
    """Results of the study of personalised learning.

    Attributes
    ----------
    table : DataFrame
        A row for each ``part`` (comparison, privacy; rounds: what was reached after some of them),
        ``data``, ``m``, ``model``, number of ``rounds``, ``claimed`` epsilon, ``method`` and
        ``round``: the ``accuracy``, its standard error ``accuracy_se`` and standard deviation over
        runs ``accuracy_sd``, the same of ``psi``; the ``epsilon`` of the ledger (one client more or
        less) and ``exchanged`` (one client exchanged for another); by how much the method is
        ``ahead`` of AdaPeD, and its standard error ``ahead_se``. NaN where there is no such thing.
    runs : DataFrame
    reps, seed : int
    """

    name: ClassVar[str] = "personalization"

    def to_text(self) -> Text:
        """Return the results as a printed page."""
        lines = ["Personalised learning: test accuracy, %, mean over clients", "=" * WIDTH]
        for part in (self._print_comparison(), self._print_privacy(), self._print_rounds()):
            lines += [*part, ""] if part else []
        return Text("\n".join([*lines[:-1], "=" * WIDTH, *wrap(self._notes())]))

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
            for family in _families(part):
                best = rows.loc[list(family), "accuracy"].idxmax()
                for method in family:
                    row, star = rows.loc[method], "*" if method == best else " "
                    cells[data, method] = _spread(row["accuracy"], row["accuracy_sd"]) + star
        lines = []
        titles = f"Working when invited, q = {RATE:g}", "Working in every round"
        for family, title in zip(_families(part), titles, strict=False):
            lines += [f"{title:<34}" + "".join(f"{head:>30} " for head in heads), "-" * WIDTH]
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
            "-" * WIDTH,
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
            lines += [_row(head, rows["round"].unique(), "{}"), "-" * WIDTH]
            by = ["method", "claimed"]
            for (method, claimed), line in rows.groupby(by, sort=False, dropna=False):
                named = method if math.isnan(claimed) else f"{method}, {claimed:g}"
                if math.isnan(claimed):
                    lines.append(_row(named, 100 * line["accuracy"], "{:.2f}"))
                    named = ""
                lines.append(_row(f"{named}  psi", line["psi"], "{:.2f}"))
            lines.append("")
        return lines[:-1]

    def _notes(self) -> Iterator[str]:
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
            for family in _families(part):
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

    def figure(self) -> Any:
        """Draw accuracies, accuracy against epsilon, and what was reached on the way."""
        axes = new_axes(2, (11.4, 8.6), n_rows=2)
        _draw_comparison(axes[0], self._part(COMPARISON))
        _draw_privacy(axes[1], self._part(PRIVACY))
        _draw_rounds(axes[2], axes[3], self._part(ROUNDS))
        return axes[0].figure


def _families(part: pd.DataFrame) -> list[tuple[str, ...]]:
    """Methods that are compared with one another, AdaPeD last."""
    return [family for family in (INVITED, ALWAYS) if family[-1] in set(part["method"])]


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
    return f"ahead of {family[-1]} is {who} points (±: standard error); nobody else is."


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
    methods = [method for family in _families(part) for method in family]
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


@dataclass(frozen=True)
class Federation:
    """Images dealt to clients.

    Attributes
    ----------
    X, X_test : float32 ndarrays of shapes (n, d), (n_test, d)
    y, y_test : int ndarrays of shapes (n,), (n_test,)
    groups, groups_test : int ndarrays of shapes (n,), (n_test,)
        Client of each row.
    """

    X: NDArray
    y: NDArray
    groups: NDArray
    X_test: NDArray
    y_test: NDArray
    groups_test: NDArray


def deal_images(
    data: Collection, m: int, seed: Any = None, *, validation: bool = False
) -> Federation:
    """Deal images to clients with three classes each: rows to learn from, and rows to be tested on.

    Parameters
    ----------
    data : {"mnist", "fashion-mnist", "digits"}
    m : int
        Number of clients; each has the same number of rows to learn from.
    seed : int, Generator or None
    validation : bool
        Whether the test images are left alone, and a fifth of the rows tests in their place. So
        were settings chosen.

    Returns
    -------
    Federation

    Examples
    --------
    >>> images = deal_images("digits", 10, 0)
    >>> images.X.shape, np.unique(np.bincount(images.groups)).tolist()
    ((1442, 64), [144, 145])
    >>> of_first = [np.unique(y[g == 0]) for y, g in ((images.y, images.groups),
    ...                                               (images.y_test, images.groups_test))]
    >>> len(of_first[0]), bool((of_first[0] == of_first[1]).all())
    (3, True)
    """
    images, rng = _images(data), np.random.default_rng(seed)
    groups, classes = partition_classes(
        images.target, m, CLASSES, rows_per_client="equal", random_state=rng
    )
    if validation:
        held = rng.random(len(groups)) < 0.2
        rows, tests = (
            (images.data[part], images.target[part], groups[part]) for part in (~held, held)
        )
        return Federation(*rows, *tests)
    of_tests, _ = partition_classes(
        images.target_test, m, CLASSES, classes=classes, random_state=rng
    )
    has_data = of_tests >= 0
    tests = images.data_test[has_data], images.target_test[has_data], of_tests[has_data]
    return Federation(images.data, images.target, groups, *tests)


@cache
def _images(data: Collection) -> Any:
    return FETCH[data]()


def _model(model: str) -> Model:
    """Return the model of a name: the paper's network, or one with so many hidden units."""
    return Torch(lenet(), (1, 28, 28)) if model == "CNN" else MLP(int(model.partition("-")[2]))


def _learner(method: str, model: str, rounds: int, seed: Sequence[int], **more: Any) -> Any:
    """Return a method as the paper sets it up."""
    of_method, settings = METHODS[method]
    common: dict[str, Any] = {
        "n_rounds": rounds,
        "local_steps": STEPS,
        "batch_size": BATCH,
        "decay": 0.99 ** (STEPS / EPOCH),  # of a round; .99 in an epoch
        "weight_decay": 1e-4,
        "sample_rate": RATE,
        "random_state": int(np.random.SeedSequence(seed).generate_state(1)[0]),
    }
    return of_method(_model(model), **common | settings | more)


def _accuracy(learner: Any, images: Federation, *, shared: bool = False) -> float:
    """Mean over clients of the share of their test images whose class is found.

    With `shared`, by the shared predictor, which is that of a client of which nothing is known.
    """
    groups = images.groups_test
    asked = groups + groups.max() + 1 if shared else groups
    right = learner.predict(images.X_test, groups=asked) == images.y_test
    return float(np.mean(np.bincount(groups, right) / np.bincount(groups)))


@dataclass(frozen=True)
class Price:
    """What noise costs in so many rounds of all clients.

    Attributes
    ----------
    claimed : float
        Epsilon by Theorem 5 as printed.
    multiplier : float
        Noise multiplier of all that is released in a round.
    epsilon, exchanged : float
        What it is: with one client more or less, and with one client exchanged for another.
    """

    claimed: float
    multiplier: float
    epsilon: float
    exchanged: float


@cache
def price(claimed: float, *, rounds: int, m: int, delta: float = DELTA) -> Price:
    """Find the noise to which Theorem 5 gives an epsilon, and say what it is worth.

    The gradients of mu and of psi get noise in the same proportion to their norms.

    Parameters
    ----------
    claimed : float
    rounds : int
        Of ten local steps each.
    m : int
        Number of clients, who all take part in all rounds.
    delta : float

    Returns
    -------
    Price

    References
    ----------
    Ozkara, Girgis, Data and Diggavi (2023), Theorem 5, which loses a factor: see
    `theory.private_learning.adaped_claimed_epsilon`.

    Examples
    --------
    >>> of_table = price(3.35, rounds=60, m=50)
    >>> of_table.multiplier, of_table.epsilon, of_table.exchanged
    (10.2..., 2.7..., 6.2...)
    """
    from scipy.optimize import brentq

    everyone: dict[str, Any] = {"rounds": rounds, "participants": m, "n_clients": m}

    def excess(logarithm: float) -> float:
        u = math.exp(logarithm)
        return adaped_claimed_epsilon([u, u], delta, **everyone) - claimed

    u = math.exp(brentq(excess, math.log(1e-3), math.log(1e5), xtol=1e-10))
    event = adaped_event([u, u], local_steps=STEPS, **everyone)
    true, exchanged = (
        accountant.epsilon(event, delta, relation=relation, interval=1e-3)
        for relation in ("add_or_remove", "replace_one")
    )
    return Price(claimed, event.event.noise_multiplier, true, exchanged)


# --- runs ----------------------------------------------------------------------------------------


def run(
    reps: int | None = None,
    seed: int = 0,
    *,
    quick: bool = False,
    n_jobs: int | None = None,
    progress: bool | None = None,
    keep: str | Path | None = None,
    rounds: int | None = None,
    private_rounds: int | None = None,
    data: Sequence[Collection] | None = None,
    cnn: bool | None = None,
    always: bool = True,
    private_cnn: bool = False,
) -> PersonalizationStudy:
    """Run the study: every method on every collection of images, and Table 2.

    Parameters
    ----------
    reps : int, optional
        Runs, each with new clients; 3 if None, 2 if `quick`.
    seed : int
    quick : bool
        Ten clients with the digits of scikit-learn, a small network and few rounds.
    n_jobs : int, optional
        Processes; one for each core if None, one if `quick`.
    progress : bool, optional
        Whether to show a progress bar on stderr; if that is a terminal, by default.
    keep : str or Path, optional
        A folder for finished runs: a study that was interrupted goes on from what is there.
    rounds : int, optional
        Of the comparison; 300 if None, as in the paper, 20 if `quick`.
    private_rounds : int, optional
        Of Table 2; 60 if None, 10 if `quick`. The paper's 300 take five times as long. 0 leaves
        Table 2 out.
    data : sequence of {"mnist", "fashion-mnist", "digits"}, optional
        Of the comparison: MNIST and Fashion-MNIST if None. Table 2 takes the first, or MNIST.
    cnn : bool, optional
        Whether the comparison trains the paper's convolutional network, which needs PyTorch, rather
        than one hidden layer of 50 units; whether PyTorch is there, if None.
    always : bool
        Whether the comparison has the methods in which all clients work in all rounds, which is
        ten times the work.
    private_cnn : bool
        What `cnn` says, of Table 2. All clients work in all its rounds, which takes long.

    Returns
    -------
    PersonalizationStudy

    Notes
    -----
    A hundred rounds of the comparison with the convolutional network take about fifteen minutes of
    one core for each run and collection.
    """
    if cnn is None:
        cnn = not quick and importlib.util.find_spec("torch") is not None
    small = "MLP-16" if quick else "MLP-50"
    data = (("digits",) if quick else ("mnist", "fashion-mnist")) if data is None else data
    rounds = (20 if quick else 300) if rounds is None else rounds
    private_rounds = (10 if quick else 60) if private_rounds is None else private_rounds
    cells = _cells(
        tuple(data) or ("mnist",),
        m=10 if quick else CLIENTS,
        models=("CNN" if cnn else small, "CNN" if private_cnn else small),
        rounds=(rounds if data else 0, private_rounds),
        methods=[*INVITED, *(ALWAYS if always else ())],
        claims=CLAIMS[1:2] if quick else CLAIMS,
    )
    reps = (2 if quick else 3) if reps is None else reps
    runs = replicate(
        _one_run,
        cells,
        reps=reps,
        seed=seed,
        n_jobs=(1 if quick else -1) if n_jobs is None else n_jobs,
        progress=progress,
        label="personalization",
        keep=keep,
    )
    by = ["part", "data", "m", "model", "rounds", "claimed", "method", "round"]
    table = average(runs, by, ["accuracy", "psi", "epsilon"])
    table = table.drop(columns=["psi_se", "epsilon_se", "epsilon_sd"])
    prices = [
        math.nan
        if math.isnan(row.claimed)
        else price(row.claimed, rounds=row.rounds, m=row.m).exchanged
        for row in table.itertuples()
    ]
    table = table.assign(exchanged=prices)
    table = table.merge(_lead(runs), "left", ["part", "data", "method"])
    return PersonalizationStudy(table, runs, reps, seed)


def _cells(
    data: Sequence[Collection],
    m: int,
    models: tuple[str, str],
    rounds: tuple[int, int],
    methods: Sequence[str],
    claims: Sequence[float],
) -> list[dict[str, Any]]:
    """List what is run, the settings of methods included, so that kept runs are of these."""
    (model, private_model), (n, private_n) = models, rounds
    compared: list[dict[str, Any]] = [
        {"part": COMPARISON, "data": each, "model": model, "rounds": n}
        | {"claimed": math.nan, "method": method}
        for each in (data if n else ())
        for method in methods
        if method != SHARED  # which is what is fine-tuned
    ]
    private = [(math.nan, ALWAYS_ALONE)]
    private += [(claimed, method) for claimed in claims for method in (DP_SHARED, DP_ADAPED)]
    compared += [
        {"part": PRIVACY, "data": data[0], "model": private_model, "rounds": private_n}
        | {"claimed": claimed, "method": method}
        for claimed, method in (private if private_n else ())
    ]
    return [cell | {"m": m, "settings": _in_words(cell["method"])} for cell in compared]


def _in_words(method: str) -> str:
    """Print the settings of a method."""
    return ", ".join(f"{name}={value}" for name, value in METHODS[method][1].items())


def _one_run(
    seed: tuple[int, int],
    part: str,
    data: Collection,
    m: int,
    model: str,
    rounds: int,
    claimed: float,
    method: str,
    settings: str,
) -> list[dict[str, Any]]:
    """Accuracy of a method in the end, and what it reached on the way."""
    own_seed = [*seed, list(FETCH).index(data)]  # the same clients and start for all methods
    images = deal_images(data, m, own_seed)
    more: dict[str, Any] = {"warm_start": True}
    if not math.isnan(claimed):
        epsilon = price(claimed, rounds=rounds, m=m).epsilon
        more = {"sample_rate": 1.0, "epsilon": epsilon, "delta": DELTA}
    learner = _learner(method, model, rounds, own_seed, **more)
    clients = Clients.from_rows(images.X.astype(float), images.groups, images.y)
    marks = np.unique(np.ceil(np.linspace(0, rounds, 11)[1:]).astype(int)).tolist()
    seen: dict[int, float] = {}
    for mark in marks if isinstance(learner, AdaPeD) and math.isnan(claimed) else [rounds]:
        learner.set_params(n_rounds=mark).fit(clients)
        seen[mark] = _accuracy(learner, images)
    last = {"round": rounds, "accuracy": seen[rounds], "psi": math.nan}
    last["epsilon"] = float(learner.privacy_["epsilon"].sum())
    rows: list[dict[str, Any]] = [last]
    if method == TUNED:
        shared = _accuracy(learner, images, shared=True)
        rows = [last | {"method": SHARED, "accuracy": shared}, last]
    if isinstance(learner, AdaPeD):
        psi = learner.history_["psi"].to_numpy()
        last["psi"] = float(psi[-1])
        rows += [
            {"part": ROUNDS, "round": mark, "accuracy": seen.get(mark, math.nan)}
            | {"psi": float(psi[mark - 1]), "epsilon": math.nan}
            for mark in marks
        ]
    return rows


def _lead(runs: pd.DataFrame) -> pd.DataFrame:
    """By how much a method is ahead of AdaPeD where clients work as often, run by run."""
    rows = []
    for data, part in runs[runs["part"] == COMPARISON].groupby("data", sort=False):
        accuracy = part.pivot(index="run", columns="method", values="accuracy")
        for family in _families(part):
            ahead = accuracy[list(family[:-1])].sub(accuracy[family[-1]], axis=0)
            se = ahead.std() / math.sqrt(len(ahead))
            rows += [
                {"part": COMPARISON, "data": data, "method": method}
                | {"ahead": ahead[method].mean(), "ahead_se": se[method]}
                for method in family[:-1]
            ]
    columns = ["part", "data", "method", "ahead", "ahead_se"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[3:], float))
