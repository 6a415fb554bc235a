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

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.datasets import (
    choose_opted_out,
    partition_classes,
    partition_single_class,
)
from ebfed.evaluation.study import (
    SIMULATED_NOISE,
    THICK,
    THIN,
    Study,
    average,
    legend_outside,
    print_row,
)
from ebfed.learning import ClientPrivacy, Ditto, FeO2
from ebfed.models import MLP
from ebfed.report import new_axes, plot_curves
from ebfed.report.plots import BLACK, BLUE, VERMILLION
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
    """Make the estimator of a method.

    Examples
    --------
    >>> learner = learner_of(FEDERATIONS["MNIST"], "FeO2", 0.01, 0.005)
    >>> learner.ratio, learner.regularization, learner.privacy.epsilon, learner.n_rounds
    (0.01, 0.005, 3.6, 500)
    """
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

# Tables 4 and 5: Acc_g, Acc_g,p, Acc_g,np, Acc_l,p and Acc_l,np, of a baseline or of FeO2 with a
# ratio, and for each lambda. The differences that the paper prints beside them are those of these
# figures except for rounding, an error of 0.2 (skewed, r = 0.5, lambda = 0.05) and one of the sign
# (skewed, r = 0.025, lambda = 0.25).
PUBLISHED: dict[tuple[str, str | float, float], tuple[float, ...]] = {
    (NON_IID, NON_PRIVATE, 0.005): (93.8, NAN, 93.75, NAN, 99.98),
    (NON_IID, NON_PRIVATE, 0.05): (93.81, NAN, 93.76, NAN, 99.93),
    (NON_IID, NON_PRIVATE, 0.25): (93.79, NAN, 93.75, NAN, 99.1),
    (NON_IID, DP_FEDAVG, 0.005): (88.75, 88.64, NAN, 99.97, NAN),
    (NON_IID, DP_FEDAVG, 0.05): (87.98, 87.97, NAN, 99.84, NAN),
    (NON_IID, DP_FEDAVG, 0.25): (88.26, 88.23, NAN, 98.23, NAN),
    (NON_IID, 0.0, 0.005): (90.7, 90.64, 91.72, 90.64, 99.94),
    (NON_IID, 0.0, 0.05): (91.0, 91.12, 92.08, 91.12, 99.76),
    (NON_IID, 0.0, 0.25): (90.42, 90.41, 91.41, 90.41, 98.06),
    (NON_IID, 0.001, 0.005): (91.74, 91.65, 92.61, 99.94, 99.95),
    (NON_IID, 0.001, 0.05): (92.15, 92.1, 92.88, 99.81, 99.78),
    (NON_IID, 0.001, 0.25): (92.18, 92.12, 92.85, 98.47, 98.08),
    (NON_IID, 0.01, 0.005): (92.48, 92.43, 93.3, 99.94, 99.94),
    (NON_IID, 0.01, 0.05): (92.45, 92.39, 93.26, 99.81, 99.78),
    (NON_IID, 0.01, 0.25): (92.41, 92.35, 93.19, 98.62, 98.33),
    (NON_IID, 0.025, 0.005): (92.36, 92.28, 92.96, 99.95, 99.91),
    (NON_IID, 0.025, 0.05): (92.14, 92.09, 93.01, 99.85, 99.8),
    (NON_IID, 0.025, 0.25): (92.5, 92.42, 93.19, 98.71, 98.41),
    (NON_IID, 0.1, 0.005): (90.7, 90.59, 91.31, 99.97, 99.95),
    (NON_IID, 0.1, 0.05): (90.7, 90.82, 91.55, 99.87, 99.8),
    (NON_IID, 0.1, 0.25): (91.17, 91.1, 91.94, 98.71, 98.6),
    (NON_IID, 1.0, 0.005): (87.71, 87.55, 88.35, 99.97, 99.93),
    (NON_IID, 1.0, 0.05): (89.64, 89.5, 90.55, 99.83, 99.84),
    (NON_IID, 1.0, 0.25): (88.27, 88.09, 89.08, 98.14, 98.13),
    (SKEWED, NON_PRIVATE, 0.005): (93.67, NAN, 93.62, NAN, 99.98),
    (SKEWED, NON_PRIVATE, 0.05): (93.67, NAN, 93.62, NAN, 99.93),
    (SKEWED, NON_PRIVATE, 0.25): (93.67, NAN, 93.62, NAN, 99.09),
    (SKEWED, DP_FEDAVG, 0.005): (88.93, 88.87, NAN, 99.98, NAN),
    (SKEWED, DP_FEDAVG, 0.05): (88.78, 88.7, NAN, 99.83, NAN),
    (SKEWED, DP_FEDAVG, 0.25): (87.78, 87.71, NAN, 98.15, NAN),
    (SKEWED, 0.0, 0.005): (10.27, 7.1, 100.0, 7.1, 100.0),
    (SKEWED, 0.0, 0.05): (10.28, 7.1, 100.0, 7.1, 100.0),
    (SKEWED, 0.0, 0.25): (10.27, 7.1, 100.0, 7.1, 100.0),
    (SKEWED, 0.025, 0.005): (87.11, 86.61, 98.16, 99.99, 99.91),
    (SKEWED, 0.025, 0.05): (87.92, 87.45, 98.1, 99.95, 99.75),
    (SKEWED, 0.025, 0.25): (87.51, 87.01, 98.49, 98.69, 99.09),
    (SKEWED, 0.1, 0.005): (90.36, 89.96, 97.45, 99.97, 99.76),
    (SKEWED, 0.1, 0.05): (88.98, 88.64, 96.18, 99.9, 99.47),
    (SKEWED, 0.1, 0.25): (89.05, 88.66, 96.8, 98.69, 98.55),
    (SKEWED, 0.5, 0.005): (88.44, 88.14, 93.36, 99.98, 99.93),
    (SKEWED, 0.5, 0.05): (88.22, 87.9, 93.43, 99.85, 99.42),
    (SKEWED, 0.5, 0.25): (88.18, 88.11, 93.43, 98.32, 97.8),
    (SKEWED, 0.75, 0.005): (89.14, 88.92, 92.43, 99.97, 99.93),
    (SKEWED, 0.75, 0.05): (88.56, 88.37, 91.33, 99.84, 99.52),
    (SKEWED, 0.75, 0.25): (87.96, 87.8, 92.58, 98.25, 97.5),
    (SKEWED, 0.9, 0.005): (87.96, 87.69, 92.97, 99.98, 99.96),
    (SKEWED, 0.9, 0.05): (89.19, 88.97, 92.24, 99.88, 99.58),
    (SKEWED, 0.9, 0.25): (88.26, 87.93, 91.67, 98.25, 97.68),
    (SKEWED, 1.0, 0.005): (88.25, 88.05, 89.98, 99.97, 99.85),
    (SKEWED, 1.0, 0.05): (88.33, 88.11, 91.67, 99.87, 99.61),
    (SKEWED, 1.0, 0.25): (89.4, 89.22, 92.01, 98.27, 97.62),
}

# Looks of the shared network; personal ones have a colour and marker for each kind of client, and a
# line for each penalty.
SERVER, PRIVATE, OPEN = "server's test", "private clients", "open clients"
LOOKS = {
    SERVER: {"color": BLACK, "marker": "D", "ls": ":"},
    PRIVATE: {"color": BLUE, "marker": "o", "ls": "-"},
    OPEN: {"color": VERMILLION, "marker": "s", "ls": "--"},
}
LINES = ("-", "--", ":")


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
    curve = row.method if np.isnan(row.ratio) else row.ratio
    found = PUBLISHED[row.setting, curve, row.penalty] if row.images == "MNIST" else (NAN,) * 5
    server, shared_private, shared_open, private, opened = found
    values = (
        *(server, shared_private, shared_open, shared_open - shared_private),
        *(private, opened, opened - private),
    )
    return {f"{name}_published": value for name, value in zip(MEASURES, values, strict=True)}


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


def _shared_curves(part: pd.DataFrame) -> pd.DataFrame:
    """Places of the curves of the shared network, which is the same for all penalties."""
    part = part[part["penalty"] == part["penalty"].iloc[0]]
    curves = [part.assign(y=part["server"], band=part["server_sd"])]
    curves[0]["method"] = part["method"].replace({FEO2: SERVER})
    feo2 = part[part["method"] == FEO2]
    for name, label in (("global_private", PRIVATE), ("global_open", OPEN)):
        curves.append(feo2.assign(method=label, y=feo2[name], band=feo2[f"{name}_sd"]))
    return pd.concat(curves, ignore_index=True)


def _personal_curves(part: pd.DataFrame) -> pd.DataFrame:
    """Places of the curves of the personal networks, which private clients lack where r = 0."""
    feo2 = part[part["method"] == FEO2].copy()
    feo2.loc[feo2["ratio"] == 0, "personal_private"] = NAN
    return pd.concat(
        [
            rows.assign(method=f"{label}, λ = {penalty:g}", y=rows[name], band=rows[f"{name}_sd"])
            for penalty, rows in feo2.groupby("penalty", sort=False)
            for name, label in (("personal_private", PRIVATE), ("personal_open", OPEN))
        ],
        ignore_index=True,
    )


def _personal_looks(part: pd.DataFrame) -> dict[str, dict[str, Any]]:
    return {
        f"{label}, λ = {penalty:g}": LOOKS[label] | {"ls": line}
        for penalty, line in zip(part["penalty"].unique(), LINES, strict=False)
        for label in (PRIVATE, OPEN)
    }


def _draw(curves: pd.DataFrame, looks: Mapping[str, Mapping[str, Any]], ax: Any) -> None:
    """Draw curves against ratios, evenly spaced: most are too small for a scale with 0 on it."""
    ratios = np.unique(curves["ratio"].dropna())
    places = curves["ratio"].map({ratio: place for place, ratio in enumerate(ratios)})
    plot_curves(
        curves.assign(place=places),
        x="place",
        y="y",
        spread="band",
        looks=looks,
        log_x=False,
        legend=False,
        ax=ax,
    )
    ax.set_xticks(range(len(ratios)), [f"{ratio:g}" for ratio in ratios])
    ax.set(xlabel="", ylabel="")
    # without messages of private clients, accuracies may be far below all others
    low, high = curves.loc[curves["ratio"] != 0, "y"].min(), curves["y"].max()
    room = 0.08 * (high - low) + 0.05
    ax.set_ylim(low - room, high + room)


class OptOutLearningStudy(Study):
    """The table has a row for each ``setting``, ``method``, ``ratio`` (NaN: of a baseline) and
    ``penalty``, of clients who hold ``images``. Accuracies in per cent: on the server's test images
    (``server``, Acc_g of the paper); means over private and over open clients, on their own test
    images, of the shared network (``global_private``, ``global_open``: Acc_g,p and Acc_g,np) and of
    personal ones (``personal_private``, ``personal_open``: Acc_l,p and Acc_l,np); and the
    differences of open and private clients (``global_gain``, ``personal_gain``: Delta_g and
    Delta_l). Each with its standard error (``.._se``), the standard deviation of one run
    (``.._sd``), and the paper's figure (``.._published``). ``epsilon_private`` and ``epsilon_open``
    are from the ledger. NaN: there are no such clients, or the paper has no such figure.
    """

    name, full = "opt-out-learning", 3
    # one process: each needs four gigabytes of memory; a run of the full study trains 45 times for
    # about a minute
    n_jobs = 1
    cells = staticmethod(list_cells)
    one_run = staticmethod(one_run)
    tabulate = staticmethod(tabulate)

    def title(self) -> str:
        return "Opting out of privacy while a network learns: accuracy in per cent"

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
            "methods share; to the right of each, the figure of Table 4 or 5 of the paper. For the "
            "shared network, which does not depend on λ, it is the mean of the paper's three runs. "
            "Own: personal networks."
        )
        yield (
            "Private, open: means over clients of the accuracy on their own test images; gain: of "
            "open clients over private ones. Non-private: Ditto, nobody private; its shared "
            "network is that of FedAvg, without clipping. DP-FedAvg: FeO2, nobody opted out. Both "
            "are the same in either setting."
        )
        yield (
            "With r = 0 private clients send nothing and train no network of their own: they use "
            "the shared one. With r = 1 open clients have the same weight as private ones, and the "
            "shared network is that of DP-FedAvg."
        )
        yield SIMULATED_NOISE

    def figure(self) -> Any:
        settings = list(self.table.groupby("setting", sort=False))
        n = len(settings)
        axes = new_axes(n, (2.4 + 4.2 * n, 7.4), n_rows=2)
        for column, (setting, part) in enumerate(settings):
            _draw(_shared_curves(part), LOOKS, axes[column])
            _draw(_personal_curves(part), _personal_looks(part), axes[n + column])
            axes[column].set_title(TITLES[str(setting)], loc="left", fontsize="medium")
            axes[n + column].set_xlabel("ratio r")
        for first, label in ((0, "shared network"), (n, "personal networks")):
            axes[first].set_ylabel(f"accuracy of the {label}, %")
            legend_outside(axes[first + n - 1])
        return axes[0].figure


run = OptOutLearningStudy.run
