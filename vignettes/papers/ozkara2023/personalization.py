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

import importlib.util
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import pandas as pd

from ebfed import learning as fl
from ebfed.evaluation.study import (
    SIMULATED_NOISE,
    Study,
    average,
    number,
    print_grid,
    print_row,
)
from ebfed.privacy import accountant
from ebfed.tables.clients import Clients
from ebfed.theory.private_learning import adaped_claimed_epsilon, adaped_event
from images import FETCH, Dealt, deal_images, mean_over_clients, network, squares

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

# Chosen by the accuracy on a fifth of the rows of MNIST that clients would learn from, with the
# convolutional network, 50 rounds, one run. Learning rates: .2 was the best of .1, .2 and .3 for
# AdaPeD and QuPeD, of .1 and .2 for FedAvg, of .2 and .3 for training alone; it is taken for
# FedMutual and Ditto too, untried. `psi_weight`: 5 for AdaPeD (not 1). pFedMe: eta lambda is 1 (the
# paper: .1), the only choice that was tried. Per-FedAvg has the paper's: a rate of .2 and an own
# step of .1, untried, failed in the study itself. Private methods: one hidden layer, 60 rounds,
# claimed 3.35; `clip` of .03, .1, .3 and 1 for DP-FedAvg, of .01 and .1 for DP-AdaPeD. All else is
# the paper's, or the default.
PAPER: dict[str, Any] = {"variant": "paper"}
METHODS: dict[str, tuple[type[fl.Learner], dict[str, Any]]] = {
    ALONE: (fl.LocalOnly, {"learning_rate": 0.2}),
    TUNED: (fl.FedAvg, {"learning_rate": 0.2, "fine_tune": EPOCH}),
    "pFedMe": (fl.PFedMe, {"learning_rate": 2.0, "own_learning_rate": 0.2}),
    "Per-FedAvg": (fl.PerFedAvg, {"learning_rate": 0.075, "own_learning_rate": 0.001}),
    "QuPeD": (fl.QuPeD, {"learning_rate": 0.2}),
    "FedMutual": (
        fl.FedMutual,
        {"learning_rate": 0.2, "own_weight": 0.25, "shared_weight": 0.25},
    ),
    "Ditto": (fl.Ditto, {"learning_rate": 0.2}),
    ADAPED: (fl.AdaPeD, PAPER | {"learning_rate": 0.2, "psi_weight": 5.0}),
    ALWAYS_ALONE: (fl.LocalOnly, {"learning_rate": 0.1, "sample_rate": 1.0}),
    ALWAYS_ADAPED: (
        fl.AdaPeD,
        PAPER | {"learning_rate": 0.2, "psi_weight": 5.0, "unsampled": True},
    ),
    DP_SHARED: (fl.DPFedAvg, {"learning_rate": 0.1, "clip": 0.1}),
    DP_ADAPED: (fl.DPAdaPeD, PAPER | {"learning_rate": 0.1, "clip": 0.01, "psi_clip": 0.1}),
}


def list_cells(quick: bool, *, model: str | None = None) -> list[dict[str, Any]]:
    """List what is run, the settings of methods included, so that kept runs are of these.

    The quick version has ten clients with digits, a small network and few rounds; the full one the
    paper's 300 rounds, but for Table 2, which has 60. With the `model` "cnn" all train the paper's
    convolutional network, which needs PyTorch; if None, the comparison does in the full version
    where PyTorch is installed.
    """
    small = "MLP-16" if quick else "MLP-50"
    torch = not quick and importlib.util.find_spec("torch") is not None
    private_model = "CNN" if model == "cnn" else small
    compared_model = "CNN" if torch and model is None else private_model
    data = ("digits",) if quick else ("mnist", "fashion-mnist")
    rounds, private_rounds = (20, 10) if quick else (300, 60)
    cells: list[dict[str, Any]] = [
        {"part": COMPARISON, "data": each, "model": compared_model, "rounds": rounds}
        | {"claimed": math.nan, "method": method}
        for each in data
        for method in (*INVITED, *ALWAYS)
        if method != SHARED  # which is what is fine-tuned
    ]
    private = [(math.nan, ALWAYS_ALONE)]
    for claimed in CLAIMS[1:2] if quick else CLAIMS:
        private += [(claimed, method) for method in (DP_SHARED, DP_ADAPED)]
    cells += [
        {"part": PRIVACY, "data": data[0], "model": private_model, "rounds": private_rounds}
        | {"claimed": claimed, "method": method}
        for claimed, method in private
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
    names = fl.ClientPrivacy().get_params().keys() & settings.keys()
    if names:
        settings["privacy"] = fl.ClientPrivacy(**{name: settings.pop(name) for name in names})
    return of_method(network(model), **settings)


def _accuracy(learner: Any, images: Dealt, *, shared: bool = False) -> float:
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
    shape, rng = squares if model == "CNN" else None, np.random.default_rng(own_seed)
    images = deal_images(data, m, CLASSES, rng, shape=shape)
    more: dict[str, Any] = {"warm_start": True}
    if not math.isnan(claimed):
        epsilon = price(claimed, rounds=rounds, m=m).epsilon
        more = {"sample_rate": 1.0, "epsilon": epsilon, "delta": DELTA}
    learner = _learner(method, model, rounds, own_seed, **more)
    clients = Clients.from_rows(images.X.astype(float), images.groups, images.y)
    marks = np.unique(np.ceil(np.linspace(0, rounds, 11)[1:]).astype(int)).tolist()
    seen: dict[int, float] = {}
    for mark in marks if isinstance(learner, fl.AdaPeD) and math.isnan(claimed) else [rounds]:
        learner.set_params(n_rounds=mark).fit(clients)
        seen[mark] = _accuracy(learner, images)
    last = {"round": rounds, "accuracy": seen[rounds], "psi": math.nan}
    last["epsilon"] = float(learner.privacy_["epsilon"].sum())
    rows: list[dict[str, Any]] = [last]
    if method == TUNED:
        shared = _accuracy(learner, images, shared=True)
        rows = [last | {"method": SHARED, "accuracy": shared}, last]
    if isinstance(learner, fl.AdaPeD):
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


def _spread(mean: float, sd: float) -> str:
    return f"{100 * mean:.2f} ± {100 * sd:.2f}"


def _starred(row: Any) -> str:
    return _spread(row.accuracy, row.accuracy_sd) + getattr(row, "star", "")


def _say_who_is_ahead(rows: pd.DataFrame, family: Sequence[str]) -> str:
    """Say by how much each method of a family is ahead of its last, an AdaPeD, or behind."""
    rows = rows[rows["method"].isin(family[:-1])].sort_values("ahead", ascending=False)
    leads = [
        f"{row.method} {100 * row.ahead:+.2f} ± {100 * row.ahead_se:.2f}"
        for row in rows.itertuples()
    ]
    return f"points ahead of {family[-1]} (±: standard error): {', '.join(leads)}."


class PersonalizationStudy(Study, cells=list_cells, one_run=one_run, tabulate=tabulate):
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
    heading = "Personalised learning: test accuracy, %, mean over clients"

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
        title = (
            f"Privacy: {TITLES[first['data']]}, {first['model']}, {first['rounds']} rounds of all "
            f"{first['m']} clients, delta = {DELTA:g}"
        )
        lines = list(
            print_grid(part, "claimed", _starred, 34, 15, label="claimed {:g}".format, title=title)
        )
        levels = part[part["method"] == DP_ADAPED]
        rows = {name: levels[name].tolist() for name in ("epsilon", "exchanged")}
        if first["data"] == "mnist":
            told = np.array([PUBLISHED[claimed] for claimed in levels["claimed"]]).T
            rows |= {"printed in the paper: FedAvg": told[0], "printed: AdaPeD": told[1]}
        return lines + [
            print_row(name, [f"{value:.2f}" for value in values], 34, 15)
            for name, values in rows.items()
        ]

    def _print_rounds(self) -> list[str]:
        part = self._part(ROUNDS).fillna({"claimed": 0.0})
        names = part["method"] + part["claimed"].map(", claimed {:g}".format).mask(
            part["claimed"] == 0, ""
        )
        lines: list[str] = []
        for (data, model, _), rows in part.assign(name=names).groupby(
            ["data", "model", "rounds"], sort=False
        ):
            below = {"  psi": lambda row: number(row.psi, ".2f")}
            options: dict[str, Any] = {"by": "name", "below": below}
            options["head"] = f"{TITLES[data]}, {model}, round"
            cell = lambda row: number(100 * row.accuracy, ".2f")  # noqa: E731
            lines += [*print_grid(rows, "round", cell, 32, 6, **options), ""]
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
        yield SIMULATED_NOISE

    def panels(self) -> Iterator[dict[str, Any]]:
        private = self._part(PRIVACY)
        if len(private):
            at = private["epsilon"].round(2).mask(private["method"] == ALWAYS_ALONE)
            labels = {"title": "Table 2", "xlabel": f"epsilon of the ledger  (delta = {DELTA:g})"}
            labels |= {"ylabel": "test accuracy"}
            shown = {"table": private.assign(at=at), "x": "at", "y": "accuracy"}
            yield shown | labels
        rounds = self._part(ROUNDS)
        for value in ("accuracy", "psi"):
            rows = rounds.dropna(subset=[value]).assign(psi_se=0.0)
            names = rows["data"].map(TITLES).mask(rows["claimed"].notna(), rows["claimed"])
            rows = rows.assign(method=rows["method"] + ", " + names.astype(str))
            rows = rows[rows["claimed"].isna() | (value == "psi")]
            labels = {"title": "Figure 2", "xlabel": "round", "ylabel": value}
            if len(rows):
                yield {"table": rows, "x": "round", "y": value, "log_x": False} | labels
