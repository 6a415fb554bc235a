"""Opting out of privacy while a network learns: Tables 4 and 5 of FeO2 on MNIST.

Aldaghri, Mahdavifar and Beirami (2021), "FeO2: Federated Learning with Opt-Out Differential
Privacy": 2,000 clients hold 30 images of one digit each, and 5 % of them opt out of privacy; in the
*skewed* setting all of these hold the digit 7. The server averages changes, with weight 1 for open
clients and r for private ones, whose sum gets the noise of DP-FedAvg. Beside it every client trains
a network of its own by Ditto, which the penalty lambda draws towards the shared one.

The paper's "1-layer NN" is taken to be one hidden layer, of 50 units: a linear model is less
accurate than the paper's figures. Unlike in the paper's Algorithm 1, sums are divided by expected
numbers of clients, because the actual ones are private; the bits that say who was clipped are
centred, and counted in the same budget; clients join by independent draws, as the account assumes.

No message depends on lambda, so that the shared network is the same for every lambda. The paper
trained it again for each: the differences between these figures show their error. In the non-IID
setting of the paper, the shared network is better for open clients by 0.7 to 1.1 points at every r,
also at r = 1, where all have the same weight. This is chance: the open clients are 100 with some
five test images each, whose mean has a standard error of a point.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.datasets import (
    choose_opted_out,
    partition_classes,
    partition_single_class,
)
from ebfed.evaluation.study import SIMULATED_NOISE, THICK, THIN, Study, average, print_row
from ebfed.learning import ClientPrivacy, Ditto, FeO2
from ebfed.models import MLP
from images import load

EPSILON, DELTA = 3.6, 1e-4
OPTED_OUT, DIGIT = 0.05, 7
RATE, UNITS = 0.5, 50
CLIP: dict[str, Any] = {"clip": 1.0, "clip_quantile": 0.5, "clip_step": 0.2}
PENALTIES = (0.005, 0.05, 0.25)

NON_IID, SKEWED = "non-IID", "skewed"
NON_PRIVATE, DP_FEDAVG, FEO2 = "non-private", "DP-FedAvg", "FeO2"
RATIOS = {
    NON_IID: (0.0, 0.001, 0.01, 0.025, 0.1, 1.0),
    SKEWED: (0.0, 0.025, 0.1, 0.5, 0.75, 0.9, 1.0),
}
NAN = float("nan")
KEYS = ["images", "setting", "method", "ratio", "penalty"]


class Federation(NamedTuple):
    """Clients, images and rounds of a federation."""

    images: str  # their name
    clients: int
    rows: int  # images of each client
    rounds: int
    sample_rate: float  # probability q that a client joins a round


FEDERATIONS = {
    "MNIST": Federation("mnist", 2000, 30, 500, 0.05),
    "digits": Federation("digits", 100, 14, 40, 0.25),
}


def list_cells(quick: bool) -> list[dict[str, Any]]:
    """List settings, methods, ratios and penalties.

    Where nobody opts out, or everyone, the settings do not differ: one of them is run. The quick
    version has 100 clients with 14 digits each, 40 rounds, and few ratios.
    """
    images, penalties = ("digits", PENALTIES[1:2]) if quick else ("MNIST", PENALTIES)
    ratios = dict.fromkeys(RATIOS, (0.0, 0.1, 1.0)) if quick else RATIOS
    curves = [(NON_IID, method, NAN) for method in (NON_PRIVATE, DP_FEDAVG)]
    curves += [(setting, FEO2, ratio) for setting in ratios for ratio in ratios[setting]]
    return [
        dict(zip(KEYS, (images, *curve, penalty), strict=True))
        for curve in curves
        for penalty in penalties
    ]


def deal(federation: Federation, seed: Any = None) -> tuple[NDArray, NDArray, NDArray]:
    """Deal images to clients who hold one digit each.

    Returns the client of each training and test image, -1 for an image without a client, and the
    digit of each client.

    >>> from ebfed.datasets import load_digits
    >>> groups, test_groups, digits = deal(FEDERATIONS["digits"], 0)
    >>> np.bincount(groups[groups >= 0]).tolist() == [14] * 100, len(test_groups)
    (True, 355)
    >>> bool((load_digits().target_test == digits[test_groups]).all())
    True
    """
    images, m = load(federation.images), federation.clients
    rng = np.random.default_rng(seed)
    groups, held = partition_single_class(
        images.target, m, rows_per_client=federation.rows, random_state=rng
    )
    test_groups, _ = partition_classes(images.target_test, m, 1, classes=held, random_state=rng)
    return groups, test_groups, held[:, 0]


def learner_of(
    federation: Federation, method: str, ratio: float, penalty: float, random_state: Any = None
) -> Ditto:
    """Make the estimator of a method."""
    settings: dict[str, Any] = {
        "n_rounds": federation.rounds,
        "learning_rate": RATE,
        "sample_rate": federation.sample_rate,
        "sampling": "poisson",
        "regularization": penalty,
        "random_state": random_state,
    }
    if method == NON_PRIVATE:
        return Ditto(MLP(UNITS), **settings)
    weight = 1.0 if np.isnan(ratio) else ratio
    privacy = ClientPrivacy(epsilon=EPSILON, delta=DELTA, **CLIP)
    return FeO2(MLP(UNITS), privacy=privacy, ratio=weight, **settings)


def one_run(
    seed: tuple[int, int], images: str, setting: str, method: str, ratio: float, penalty: float
) -> list[dict[str, Any]]:
    """Accuracies of one method, in per cent."""
    from threadpoolctl import threadpool_limits

    federation = FEDERATIONS[images]
    data = load(federation.images)
    groups, test_groups, digits = deal(federation, [*seed, 0])
    given = groups >= 0
    X, y, groups = data.data[given], data.target[given], groups[given]
    learner = learner_of(federation, method, ratio, penalty, [*seed, 1])
    with threadpool_limits(1):  # matrices are small: threads would only wait for one another
        if method == FEO2:
            opened = choose_opted_out(
                digits,
                OPTED_OUT,
                skewed_to=DIGIT if setting == SKEWED else None,
                random_state=np.random.default_rng([*seed, 2]),
            )
            consent = np.where(opened, "open", "private")[groups]
            cast(FeO2, learner).fit(X, y, groups=groups, consent=consent)
        else:
            opened = np.full(federation.clients, method == NON_PRIVATE)
            learner.fit(X, y, groups=groups)
        right = learner.predict(data.data_test) == data.target_test
        alone = learner.predict(data.data_test, groups=test_groups) == data.target_test
    shared, personal = (_by_choice(each, test_groups, opened) for each in (right, alone))
    ledger = learner.privacy_.set_index("who")["epsilon"].rename({"all clients": "open"})
    return [
        {
            "server": 100 * float(right.mean()),
            "global_private": shared["private"],
            "global_open": shared["open"],
            "global_gain": shared["open"] - shared["private"],
            "personal_private": personal["private"],
            "personal_open": personal["open"],
            "personal_gain": personal["open"] - personal["private"],
            "epsilon_private": float(ledger.get("private", NAN)),
            "epsilon_open": float(ledger.get("open", NAN)),
        }
    ]


def _by_choice(right: NDArray, groups: NDArray, opened: NDArray) -> dict[str, float]:
    """Mean over private and over open clients of the share of rows that are right, in per cent."""
    share = 100 * np.bincount(groups, right, len(opened)) / np.bincount(groups)
    return {
        name: float(share[chosen].mean()) if chosen.any() else NAN
        for name, chosen in (("private", ~opened), ("open", opened))
    }


TITLES = {
    NON_IID: "Non-IID: clients of all digits opted out",
    SKEWED: f"Skewed: all who opted out hold the digit {DIGIT}",
}
GLOBAL = {
    "server": "server's test",
    "global_private": "private",
    "global_open": "open",
    "global_gain": "gain",
}
PERSONAL = {"personal_private": "private", "personal_open": "open", "personal_gain": "gain"}
MEASURES = [*GLOBAL, *PERSONAL]

# Tables 4 and 5 of the paper, of a baseline or of FeO2 with a ratio, and for each lambda. The
# differences that the paper prints beside them are those of these figures except for rounding, an
# error of 0.2 (skewed, r = 0.5, lambda = 0.05) and one of the sign (skewed, r = 0.025, lambda =
# 0.25).
PUBLISHED = pd.read_csv(Path(__file__).with_name("published.csv"))
PUBLISHED = PUBLISHED.set_index(["setting", "curve", "penalty"])


def tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    """Average over runs, and put the published figures beside the means."""
    # the baselines are those of both settings; they come first in each
    baselines = runs[runs["ratio"].isna()].assign(setting=SKEWED)
    first = runs["setting"] == NON_IID
    everything = pd.concat([runs[first], baselines, runs[~first]], ignore_index=True)
    table = average(everything, KEYS, MEASURES)
    parts = everything.groupby(KEYS, sort=False, dropna=False)
    epsilons = parts[["epsilon_private", "epsilon_open"]].first().reset_index()
    table = table.merge(epsilons, on=KEYS, validate="one_to_one")
    published = pd.DataFrame([_published(row) for row in table.itertuples()])
    return pd.concat([table, published], axis=1)


def _published(row: Any) -> dict[str, float]:
    """Return the figures of the paper for a row of the table."""
    if row.images != "MNIST":
        return dict.fromkeys((f"{name}_published" for name in MEASURES), NAN)
    curve = row.method if np.isnan(row.ratio) else f"{row.ratio:g}"
    found = PUBLISHED.loc[(row.setting, curve, row.penalty)].to_dict()
    for kind in ("global", "personal"):
        found[f"{kind}_gain"] = found[f"{kind}_open"] - found[f"{kind}_private"]
    return {f"{name}_published": found[name] for name in MEASURES}


def _limit(epsilon: float) -> str:
    """Print an epsilon of the ledger."""
    if np.isnan(epsilon):
        return "-"
    return "no limit" if np.isinf(epsilon) else f"{epsilon:.3f}"


def _print_measures(title: str, rows: pd.DataFrame, measures: Mapping[str, str]) -> Iterator[str]:
    """Print accuracies, and beside each the paper's."""
    yield f"{title:<16}" + "".join(f"{label:>14}{'paper':>6}" for label in measures.values())
    yield THIN
    for row in rows.to_dict("records"):
        method, ratio = row["method"], row["ratio"]
        line = f"{method if np.isnan(ratio) else f'{method}, r = {ratio:g}':<16}"
        for name in measures:
            found, sd, paper = (row[f"{name}{part}"] for part in ("", "_sd", "_published"))
            line += f"{'-' if np.isnan(found) else f'{found:.2f} ± {sd:.2f}':>14}"
            line += f"{'' if np.isnan(paper) else f'{paper:.2f}':>6}"
        yield line.rstrip()


def _curves(part: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Return points of FeO2 for some columns, at ratios that are evenly spaced."""
    feo2 = part[part["method"] == FEO2]
    place = {ratio: k for k, ratio in enumerate(np.unique(feo2["ratio"]))}
    points = [
        feo2.assign(method=label, y=feo2[name], y_sd=feo2[f"{name}_sd"])
        for name, label in names.items()
    ]
    return pd.concat(points, ignore_index=True).assign(place=lambda rows: rows["ratio"].map(place))


class OptOutLearningStudy(Study, cells=list_cells, one_run=one_run, tabulate=tabulate):
    """The table has a row for each ``setting``, ``method``, ``ratio`` (NaN: of a baseline) and
    ``penalty``. Accuracies in per cent: on the server's test images (``server``, Acc_g of the
    paper); means over private and over open clients, on their own test images, of the shared
    network (``global_private``, ``global_open``: Acc_g,p and Acc_g,np) and of personal ones
    (``personal_private``, ``personal_open``); and differences of open and private clients
    (``global_gain``, ``personal_gain``), each with the paper's figure (``.._published``).
    ``epsilon_private`` and ``epsilon_open`` are from the ledger.
    """

    name, full = "opt-out-learning", 3
    heading = "Opting out of privacy while a network learns: accuracy in per cent"
    # one process: each needs four gigabytes of memory; a run of the full study trains 45 times for
    # about a minute
    n_jobs = 1

    def lines(self) -> Iterator[str]:
        for setting, part in self.table.groupby("setting", sort=False):
            shared = part.groupby(["method", "ratio"], sort=False, dropna=False)
            mean = shared.mean(numeric_only=True).reset_index()
            yield TITLES[str(setting)]
            yield ""
            yield from _print_measures("Shared network", mean, GLOBAL)
            for penalty, rows in part.groupby("penalty", sort=False):
                yield ""
                yield from _print_measures(f"Own, λ = {penalty:g}", rows, PERSONAL)
            yield THICK
        yield from self._ledger()

    def _ledger(self) -> Iterator[str]:
        yield print_row(f"Epsilon at delta = {DELTA:g}", ["private", "open"], 26, 14)
        yield THIN
        silent = self.table["ratio"].eq(0).map({True: ", r = 0", False: ""})
        for method, rows in self.table.groupby(self.table["method"] + silent, sort=False):
            cells = [rows[name].max() for name in ("epsilon_private", "epsilon_open")]
            yield print_row(method, map(_limit, cells), 26, 14)

    def notes(self) -> Iterator[str]:
        images = self.table["images"].iloc[0]
        of = FEDERATIONS[images]
        yield (
            f"{of.clients:,} clients with {of.rows} images of {images} each, of one digit; "
            f"{of.rounds} rounds, which a client joins with probability {of.sample_rate:g}; "
            f"{100 * OPTED_OUT:g} % of the clients opted out."
        )
        yield (
            f"Means ± standard deviations over {self.reps} runs, each with new clients, which all "
            "methods share; to the right of each, the figure of Table 4 or 5 of the paper: for the "
            "shared network, which does not depend on λ, the mean of the paper's three runs. "
            "Private, open: means over clients of the accuracy on their own test images; gain: of "
            "open over private. Own: personal networks; private clients have none if r = 0."
        )
        yield (
            "Non-private: Ditto, nobody private, whose shared network is that of FedAvg without "
            "clipping. DP-FedAvg: FeO2, nobody opted out. Both are the same in either setting."
        )
        yield SIMULATED_NOISE

    def panels(self) -> Iterator[dict[str, Any]]:
        shared, personal = {"server": "server's test"}, {}
        for name, label in (("private", "private clients"), ("open", "open clients")):
            shared[f"global_{name}"] = personal[f"personal_{name}"] = label
        first = self.table[self.table["penalty"] == self.table["penalty"].iloc[0]]
        for names, whose in ((shared, "shared network"), (personal, "personal networks")):
            for setting, part in first.groupby("setting", sort=False):
                ratios = np.unique(part["ratio"].dropna())
                labels: dict[str, Any] = {"title": TITLES[str(setting)], "xlabel": "ratio r"}
                labels |= {"ylabel": f"accuracy of the {whose}, %", "spread": "sd", "errors": 1}
                labels |= {"ticks": [f"{ratio:g}" for ratio in ratios], "log_x": False}
                yield {"table": _curves(part, names), "x": "place", "y": "y"} | labels
