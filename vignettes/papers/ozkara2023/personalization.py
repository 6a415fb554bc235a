"""Personalised learning: AdaPeD against other methods, and the price of its privacy.

Fifty clients hold images of three classes each (Ozkara, Girgis, Data and Diggavi, 2023, section 4
and Appendix K), and classify test images of the same classes. A client makes ten steps in a round,
on batches of 20 of its 1,200 rows, so that an epoch is 60 steps; a tenth of the clients is invited
to each round.

*Comparison* (Table 1): the mean over clients of the accuracy of their personal predictors. Methods
in which clients work only when they are invited are compared with one another, and so are those in
which everyone works in every round, because they do ten times as much.

*Privacy* (Table 2): DP-FedAvg and DP-AdaPeD where all clients take part in all rounds. The noise is
that for which Theorem 5, as printed, gives the table's epsilon; the ledger has its true epsilon.
Both methods get the same noise. Training alone, which costs no privacy, is shown beside them.

*Rounds* (Figure 2): test accuracy and psi during training.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.datasets import partition_classes
from ebfed.evaluation.study import SIMULATED_NOISE, THIN, Study, average, draw_panel, print_grid
from ebfed.learning.adaped import AdaPeD
from ebfed.learning.base import Learner
from ebfed.learning.ditto import Ditto
from ebfed.learning.dp_adaped import DPAdaPeD
from ebfed.learning.dp_fed_avg import DPFedAvg
from ebfed.learning.fed_avg import FedAvg
from ebfed.learning.fed_mutual import FedMutual
from ebfed.learning.local_only import LocalOnly
from ebfed.learning.per_fed_avg import PerFedAvg
from ebfed.learning.pfedme import PFedMe
from ebfed.learning.privacy import ClientPrivacy
from ebfed.learning.quped import QuPeD
from ebfed.models import MLP, Model, Torch
from ebfed.models.torch import lenet
from ebfed.privacy import accountant
from ebfed.report import new_axes
from ebfed.report.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION
from ebfed.tables.clients import Clients
from ebfed.theory.private_learning import adaped_claimed_epsilon, adaped_event
from images import FETCH, load, mean_over_clients

Collection = Literal["mnist", "fashion-mnist", "digits"]

CLIENTS, CLASSES, RATE = 50, 3, 0.1
STEPS, BATCH, EPOCH = 10, 20, 60  # of a round; rows of a step; steps of an epoch
CLAIMS = (3.35, 13.16, 27.30)
DELTA = 1e-4  # the paper does not say
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "digits (8 x 8)"}

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
PAPER: dict[str, Any] = {"variant": "paper"}
METHODS: dict[str, tuple[type[Learner], dict[str, Any]]] = {
    ALONE: (LocalOnly, {"learning_rate": 0.2}),
    TUNED: (FedAvg, {"learning_rate": 0.2, "fine_tune": EPOCH}),
    "pFedMe": (PFedMe, {"learning_rate": 2.0, "own_learning_rate": 0.2}),
    "Per-FedAvg": (PerFedAvg, {"learning_rate": 0.075, "own_learning_rate": 0.001}),
    "QuPeD": (QuPeD, {"learning_rate": 0.2}),
    "FedMutual": (FedMutual, {"learning_rate": 0.2, "own_weight": 0.25, "shared_weight": 0.25}),
    "Ditto": (Ditto, {"learning_rate": 0.2}),
    ADAPED: (AdaPeD, PAPER | {"learning_rate": 0.2, "psi_weight": 5.0}),
    ALWAYS_ALONE: (LocalOnly, {"learning_rate": 0.1, "sample_rate": 1.0}),
    ALWAYS_ADAPED: (AdaPeD, PAPER | {"learning_rate": 0.2, "psi_weight": 5.0, "unsampled": True}),
    DP_SHARED: (DPFedAvg, {"learning_rate": 0.1, "clip": 0.1}),
    DP_ADAPED: (DPAdaPeD, PAPER | {"learning_rate": 0.1, "clip": 0.01, "psi_clip": 0.1}),
}


def list_cells(
    quick: bool,
    *,
    rounds: int | None = None,
    private_rounds: int | None = None,
    data: Sequence[Collection] | None = None,
    cnn: bool | None = None,
    always: bool = True,
    private_cnn: bool = False,
) -> list[dict[str, Any]]:
    """List what is run, the settings of methods included, so that kept runs are of these.

    Parameters
    ----------
    quick : bool
        Whether to have ten clients with digits, a small network and few rounds.
    rounds : int, optional
        Rounds of the comparison; 300 if None, as in the paper, 20 if `quick`.
    private_rounds : int, optional
        Rounds of Table 2; 60 if None, 10 if `quick`. The paper's 300 take five times as long. 0
        leaves Table 2 out.
    data : sequence of {"mnist", "fashion-mnist", "digits"}, optional
        Images of the comparison: MNIST and Fashion-MNIST if None. Table 2 takes the first, or
        MNIST.
    cnn : bool, optional
        Whether the comparison trains the paper's convolutional network, which needs PyTorch, rather
        than one hidden layer of 50 units; if None, whether PyTorch is installed.
    always : bool
        Whether the comparison has the methods in which all clients work in all rounds, which is
        ten times the work.
    private_cnn : bool
        Whether Table 2 trains the convolutional network; all clients work in all its rounds, which
        takes long.
    """
    if cnn is None:
        cnn = not quick and importlib.util.find_spec("torch") is not None
    small = "MLP-16" if quick else "MLP-50"
    data = (("digits",) if quick else ("mnist", "fashion-mnist")) if data is None else data
    rounds = (20 if quick else 300) if rounds is None else rounds
    private_rounds = (10 if quick else 60) if private_rounds is None else private_rounds
    cells: list[dict[str, Any]] = [
        {"part": COMPARISON, "data": each, "model": "CNN" if cnn else small, "rounds": rounds}
        | {"claimed": math.nan, "method": method}
        for each in (data if rounds else ())
        for method in (*INVITED, *(ALWAYS if always else ()))
        if method != SHARED  # which is what is fine-tuned
    ]
    private = [(math.nan, ALWAYS_ALONE)]
    for claimed in CLAIMS[1:2] if quick else CLAIMS:
        private += [(claimed, method) for method in (DP_SHARED, DP_ADAPED)]
    model = "CNN" if private_cnn else small
    cells += [
        {"part": PRIVACY, "data": (*data, "mnist")[0], "model": model, "rounds": private_rounds}
        | {"claimed": claimed, "method": method}
        for claimed, method in (private if private_rounds else ())
    ]
    m = 10 if quick else CLIENTS
    return [cell | {"m": m, "settings": _in_words(cell["method"])} for cell in cells]


def _in_words(method: str) -> str:
    """Print the settings of a method."""
    return ", ".join(f"{name}={value}" for name, value in METHODS[method][1].items())


def families(part: pd.DataFrame) -> list[tuple[str, ...]]:
    """Methods that are compared with one another, AdaPeD last."""
    return [family for family in (INVITED, ALWAYS) if family[-1] in set(part["method"])]


@dataclass(frozen=True)
class Price:
    """Claimed and true epsilon of noise in rounds of all clients."""

    claimed: float  # by Theorem 5 as printed
    multiplier: float  # noise multiplier of all releases of a round
    epsilon: float  # true, for one client more or less
    exchanged: float  # true, for one client exchanged for another


@cache
def price(claimed: float, *, rounds: int, m: int, delta: float = DELTA) -> Price:
    """Find the noise for which Theorem 5 claims an epsilon, and its true epsilon.

    Rounds are of ten local steps each, and all m clients take part in all of them. The gradients of
    mu and of psi get noise in the same proportion to their norms. The theorem loses a factor: see
    `theory.private_learning.adaped_claimed_epsilon`.

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


@dataclass(frozen=True)
class DealtImages:
    """Images dealt to clients: of each row to learn from or to be tested on, class and client."""

    X: NDArray
    y: NDArray
    groups: NDArray
    X_test: NDArray
    y_test: NDArray
    groups_test: NDArray


def deal_images(
    data: Collection, m: int, seed: Any = None, *, validation: bool = False
) -> DealtImages:
    """Deal images to clients with three classes each: rows to learn from, and rows to be tested on.

    Clients have as many rows to learn from. With `validation` a fifth of these takes the place of
    the test images, which are then not used; settings were chosen in this way.

    >>> images = deal_images("digits", 10, 0)
    >>> images.X.shape, np.unique(np.bincount(images.groups)).tolist()
    ((1442, 64), [144, 145])
    >>> of_first = [np.unique(y[g == 0]) for y, g in ((images.y, images.groups),
    ...                                               (images.y_test, images.groups_test))]
    >>> len(of_first[0]), bool((of_first[0] == of_first[1]).all())
    (3, True)
    """
    images, rng = load(data), np.random.default_rng(seed)
    groups, classes = partition_classes(
        images.target, m, CLASSES, rows_per_client="equal", random_state=rng
    )
    if validation:
        held = rng.random(len(groups)) < 0.2
        rows, tests = (
            (images.data[part], images.target[part], groups[part]) for part in (~held, held)
        )
        return DealtImages(*rows, *tests)
    of_tests, _ = partition_classes(
        images.target_test, m, CLASSES, classes=classes, random_state=rng
    )
    given = of_tests >= 0
    tests = images.data_test[given], images.target_test[given], of_tests[given]
    return DealtImages(images.data, images.target, groups, *tests)


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
    settings = common | settings | more
    names = ClientPrivacy().get_params().keys() & settings.keys()
    if names:
        settings["privacy"] = ClientPrivacy(**{name: settings.pop(name) for name in names})
    return of_method(_model(model), **settings)


def _accuracy(learner: Any, images: DealtImages, *, shared: bool = False) -> float:
    """Mean over clients of the share of their test images whose class is found.

    With `shared`, by the shared predictor, which is that of a client of which nothing is known.
    """
    groups = images.groups_test
    asked = groups + groups.max() + 1 if shared else groups
    return mean_over_clients(learner.predict(images.X_test, groups=asked) == images.y_test, groups)


def one_run(
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
    """Return the accuracy of a method after all rounds, and during training."""
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


# Accuracy of DP-FedAvg and DP-AdaPeD in Table 2 of the paper, per cent.
PUBLISHED = {3.35: (11.73, 93.32), 13.16: (29.91, 98.51), 27.30: (55.79, 99.01)}


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


def _starred(row: Any) -> str:
    return _spread(row.accuracy, row.accuracy_sd) + row.star


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
    curves = part.assign(value=100 * part["accuracy"], value_se=100 * part["accuracy_se"])
    curves.loc[curves["method"] == ALWAYS_ALONE, "epsilon"] = math.nan
    looks = {
        DP_ADAPED: {"color": BLUE, "marker": "o", "ls": "-"},
        DP_SHARED: {"color": VERMILLION, "marker": "s", "ls": "--"},
    }
    first = part.iloc[0]
    labels: dict[str, Any] = {
        "title": f"{TITLES[first['data']]}, {first['model']}",
        "xlabel": f"epsilon of the ledger  (delta = {DELTA:g})",
        "ylabel": "test accuracy, %",
    }
    draw_panel(ax, curves.round({"epsilon": 2}), "epsilon", "value", looks=looks, **labels)
    ax.set_ylim(0, 102)


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


class PersonalizationStudy(Study):
    """The table has a row for each ``part`` (comparison, privacy; rounds: after some of the
    rounds), ``data``, ``m``, ``model``, number of ``rounds``, ``claimed`` epsilon, ``method`` and
    ``round``: the ``accuracy``, its standard error ``accuracy_se`` and standard deviation over runs
    ``accuracy_sd``, the same of ``psi``; the ``epsilon`` of the ledger (one client more or less)
    and ``exchanged`` (one client exchanged for another); by how much the method is ``ahead`` of
    AdaPeD, and its standard error ``ahead_se``. NaN where a method has none.
    """

    # a hundred rounds of the comparison with the convolutional network take about fifteen minutes
    # of one core, for each run and collection
    name, full = "personalization", 3
    cells = staticmethod(list_cells)
    one_run = staticmethod(one_run)
    tabulate = staticmethod(tabulate)

    def title(self) -> str:
        return "Personalised learning: test accuracy, %, mean over clients"

    def lines(self) -> Iterator[str]:
        parts = (self._print_comparison(), self._print_privacy(), self._print_rounds())
        for k, part in enumerate(filter(None, parts)):
            yield from [""] * (k > 0) + part

    def _part(self, name: str) -> pd.DataFrame:
        return self.table[self.table["part"] == name]

    def _print_comparison(self) -> list[str]:
        part = self._part(COMPARISON)
        lines: list[str] = []
        heads = {
            row.data: f"{TITLES[row.data]}, {row.model}, {row.rounds} rounds "
            for row in part.drop_duplicates("data").itertuples()
        }
        titles = f"Working when invited, q = {RATE:g}", "Working in every round"
        for family, title in zip(families(part), titles, strict=False):
            rows = part[part["method"].isin(family)]
            best = rows.groupby("data")["accuracy"].idxmax()
            rows = rows.assign(star=np.where(rows.index.isin(best), "*", " "))
            shown: dict[str, Any] = {"head": title, "label": heads.__getitem__}
            lines += print_grid(rows, "data", _starred, 34, 31, **shown)
            heads = dict.fromkeys(heads, "")
        return lines

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
        axes = new_axes(2, (11.4, 8.6), n_rows=2)
        _draw_comparison(axes[0], self._part(COMPARISON))
        _draw_privacy(axes[1], self._part(PRIVACY))
        _draw_rounds(axes[2], axes[3], self._part(ROUNDS))
        return axes[0].figure


run = PersonalizationStudy.run
