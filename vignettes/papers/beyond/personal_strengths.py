"""How much to personalise: `HierarchicalEB`, which is not tuned, beside methods that are.

Clients hold n images each and classify others of the same kind. In the settings they differ in
different ways, or not at all: by their classes, by the correctness of their labels, by what labels
mean (one of five permutations), by how images are rotated. In each setting another strength of
personalisation is best.

*Fair tuning.* Each rival has six configurations: three of its own, each without and with weight
decay. The one is taken that is most accurate in a draw of other clients, tested on images that are
left over for it. `HierarchicalEB` has one configuration in all settings, and is shown a second time
with a tenth of the rows held back to learn how sure predictions are. All methods have the same
rounds, invitations, batches and network, in single precision; `LocalOnly`, which sends nothing,
works in every round.

*Privacy.* With a finite epsilon all messages are clipped and have noise for that epsilon of the
whole training; what clients do for themselves is free.

*Errors of calibration* are those of the largest probability, in 15 bins. Right probabilities also
have some, since tests are few: the error expected of them is the *floor*. Where labels are wrong,
errors are those in tests with right labels, and also in tests with labels as wrong as the client's:
these are what a client can learn from.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from ebfed.evaluation.study import SIMULATED_NOISE, THIN, Study, average, print_row
from ebfed.learning import AdaPeD, ClientPrivacy, Ditto, FedAvg, HierarchicalEB, Learner, LocalOnly
from ebfed.models import MLP
from ebfed.tables.clients import Clients
from images import load

TESTS = 100  # images each client is tested on
MEASURES = ["accuracy", "calibration", "recorded", "floor", "log_likelihood"]
SHARED, TUNED, DITTO, ADAPED, ALONE = (
    "FedAvg",
    "FedAvg + fine-tuning",
    "Ditto",
    "AdaPeD",
    "LocalOnly",
)
RIVALS = (TUNED, DITTO, ADAPED, ALONE)
LEARNED, HELD_BACK = "HierarchicalEB", "HierarchicalEB, rows held back"
UNTUNED = (LEARNED, HELD_BACK)
HEADS = {TUNED: "FedAvg+FT", LEARNED: "EB", HELD_BACK: "EB held"}
COMMON = {
    "learning_rate": 0.3,
    "local_steps": 10,
    "batch_size": 20,
    "sample_rate": 0.2,
    "dtype": "float32",
}
CLIP, DELTA = 0.3, 1e-5
ADAPTED = 0.1  # learning rate of steps of a client's own
OWN: dict[str, list[dict[str, Any]]] = {
    TUNED: [{"fine_tune": steps} for steps in (20, 60, 200)],
    DITTO: [
        {"regularization": strength, "own_learning_rate": ADAPTED} for strength in (0.01, 0.1, 1.0)
    ],
    ADAPED: [{"variant": "paper"}, {"psi": 1.0, "psi_floor": 1.0}, {"psi": 1.0, "psi_floor": 0.15}],
    ALONE: [{"n_rounds": rounds, "learning_rate": 0.3} for rounds in (5, 20, 80)],
}
CONFIGURATIONS = {
    name: [{"weight_decay": decay} | more for decay in (0.0, 1e-3) for more in own]
    for name, own in OWN.items()
}
CONFIGURATIONS |= {
    LEARNED: [{"weight_decay": 1e-3, "fine_tune_rate": ADAPTED}],
    HELD_BACK: [{"weight_decay": 1e-3, "fine_tune_rate": ADAPTED, "validation_fraction": 0.1}],
}


@dataclass(frozen=True)
class Setting:
    """How clients differ."""

    title: str
    n: int  # rows of a client
    data: str = "mnist"
    classes: int = 10  # of a client, out of ten
    wrong: float = 0.0  # share of labels drawn at random, of every second client
    permutations: int = 1  # of labels
    rotations: int = 1  # of images


SETTINGS = {
    "three200": Setting("3 classes, n=200", 200, classes=3),
    "three20": Setting("3 classes, n=20", 20, classes=3),
    "noisy": Setting("half of the clients with half of the labels wrong", 60, classes=3, wrong=0.5),
    "permuted": Setting("5 permutations of labels", 60, permutations=5),
    "rotated": Setting("4 rotations", 60, rotations=4),
    "alike": Setting("alike, n=20", 20),
    "fashion3": Setting("Fashion-MNIST, 3 classes", 60, "fashion-mnist", classes=3),
    "fashion-permuted": Setting(
        "Fashion-MNIST, 5 permutations", 60, "fashion-mnist", permutations=5
    ),
    "three60": Setting("3 classes, n=60", 60, classes=3),
    "quick": Setting("digits, 3 classes", 20, "digits", classes=3),
}


@dataclass(frozen=True)
class Dealt:
    """Images of clients."""

    clients: Clients  # to learn from
    X: NDArray[np.float64]  # to be tested on, shape (m, TESTS, d)
    y: NDArray[np.int64]  # shape (m, TESTS)
    recorded: NDArray[np.int64]  # labels of tests, as wrong as the client's


def deal(name: str, m: int, seed: Sequence[int], *, validation: bool = False) -> Dealt:
    """Deal images to m clients.

    With `validation` the tests are of the training part, a fifth of it that no client learns from.

    >>> dealt = deal("quick", 4, [0])
    >>> len(dealt.clients), dealt.X.shape
    (4, (4, 100, 64))
    """
    setting, rng = SETTINGS[name], np.random.default_rng([*seed, validation])
    images = load(setting.data)
    order = rng.permutation(len(images.target))
    held = order[: len(order) // 5] if validation else np.zeros(0, np.int64)
    first = _by_class(images.target, order[len(held) :])
    source = images.data if validation else images.data_test
    target = images.target if validation else images.target_test
    other = _by_class(target, held if validation else rng.permutation(len(target)))
    meanings = [rng.permutation(10) for _ in range(setting.permutations)]
    parts: list[tuple[NDArray, NDArray]] = []
    tests: list[tuple[NDArray, NDArray]] = []
    recorded: list[NDArray] = []
    for i in range(m):
        classes = rng.permutation(10)[: setting.classes]
        for data, labels, by, size, out in (
            (images.data, images.target, first, setting.n, parts),
            (source, target, other, TESTS, tests),
        ):
            rows = np.array([by[k][rng.integers(len(by[k]))] for k in rng.choice(classes, size)])
            X, y = data[rows].astype(float), labels[rows]
            if i % setting.rotations:
                side = math.isqrt(X.shape[1])
                turned = np.rot90(X.reshape(-1, side, side), i % setting.rotations, (1, 2))
                X = turned.reshape(X.shape)
            out.append((X, meanings[i % setting.permutations][y] if len(meanings) > 1 else y))
        share = setting.wrong * (i % 2)
        X, y = parts[-1]
        parts[-1] = X, _mislabelled(y, share, rng)
        recorded.append(_mislabelled(tests[-1][1], share, rng))
    X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    clients = Clients(np.arange(m), setting.n * np.arange(m + 1), X, y)
    X, y = (np.stack(each) for each in zip(*tests, strict=True))
    return Dealt(clients, X, y, np.stack(recorded))


def _mislabelled(y: NDArray, share: float, rng: np.random.Generator) -> NDArray:
    """Return labels of which a share is drawn at random."""
    if not share:
        return y
    return np.where(rng.random(len(y)) < share, rng.integers(10, size=len(y)), y)


def _by_class(target: NDArray, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [rows[target[rows] == k] for k in range(10)]


def _fits(
    method: str,
    dealt: Dealt,
    hidden: int,
    rounds: int,
    epsilon: float,
    which: Sequence[int],
    start: int = 0,
) -> Iterator[tuple[dict[str, Any], Learner]]:
    """Yield configurations of a method, and the method fitted with them."""
    common: dict[str, Any] = COMMON | {
        "n_rounds": rounds,
        "random_state": start,
        "classes": range(10),
    }
    if math.isfinite(epsilon) and method != ALONE:
        common["privacy"] = ClientPrivacy(epsilon, DELTA, clip=CLIP)
    last: tuple[float, Any] = math.nan, None
    for k in which:
        more = CONFIGURATIONS[method][k]
        if method == TUNED:  # configurations with the same shared parameters are trained once
            if more["weight_decay"] != last[0]:
                decay = {"weight_decay": more["weight_decay"]}
                shared = FedAvg(MLP(hidden), **common, **decay, warm_start=True)
                last = more["weight_decay"], shared.fit(dealt.clients)
            tuned = last[1].set_params(fine_tune=more["fine_tune"], learning_rate=ADAPTED)
            yield more, tuned.fit(dealt.clients)
        elif method == ALONE:
            settings = common | more | {"sample_rate": 1.0}
            yield more, LocalOnly(MLP(hidden), **settings).fit(dealt.clients)
        else:
            kind = {DITTO: Ditto, ADAPED: AdaPeD}.get(method, HierarchicalEB)
            yield more, kind(MLP(hidden), **common, **more).fit(dealt.clients)


def _measure(learner: Learner, dealt: Dealt, *, shared: bool = False) -> dict[str, float]:
    """Return accuracy, errors of calibration, and mean log-likelihood, all in tests."""
    m = len(dealt.y)
    groups = np.repeat(np.arange(m), TESTS) + (m if shared else 0)
    p = learner.predict_proba(dealt.X.reshape(m * TESTS, -1), groups=groups)
    y, recorded = dealt.y.ravel(), dealt.recorded.ravel()
    error, floor = _calibration(p, y)
    likelihood = np.log(np.maximum(p[np.arange(len(y)), y], 1e-300)).mean()
    return {
        "accuracy": float((p.argmax(axis=1) == y).mean()),
        "calibration": error,
        "recorded": _calibration(p, recorded)[0],
        "floor": floor,
        "log_likelihood": float(likelihood),
    }


def _calibration(p: NDArray[np.float64], y: NDArray[np.int64]) -> tuple[float, float]:
    """Return the error of calibration, and the one expected of right probabilities.

    The number of successes of a bin is taken as normal, so that its mean absolute error is
    sqrt(2 v / pi), v being its variance.
    """
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.minimum((sure * 15).astype(int), 14)
    gaps = np.bincount(bins, sure - right, minlength=15)
    chance = np.sqrt(2 / np.pi * np.bincount(bins, sure * (1 - sure), minlength=15))
    return float(np.abs(gaps).sum() / len(y)), float(chance.sum() / len(y))


@cache
def _best(method: str, setting: str, m: int, hidden: int, rounds: int, epsilon: float) -> int:
    """Return which configuration is most accurate in the draw for validation."""
    every = range(len(CONFIGURATIONS[method]))
    if len(every) == 1:
        return 0
    dealt = deal(setting, m, [0], validation=True)
    fits = _fits(method, dealt, hidden, rounds, epsilon, every)
    return int(np.argmax([_measure(learner, dealt)["accuracy"] for _, learner in fits]))


def _one_run(
    seed: tuple[int, int],
    setting: str,
    m: int,
    hidden: int,
    rounds: int,
    epsilon: float,
    method: str,
) -> list[dict[str, Any]]:
    """Return how good a method is, in the configuration that was best in other clients."""
    dealt = deal(setting, m, seed)
    best = _best(method, setting, m, hidden, rounds, epsilon)
    ((chosen, learner),) = _fits(method, dealt, hidden, rounds, epsilon, [best], seed[1])
    words = ", ".join(f"{name}={value}" for name, value in chosen.items())
    rows = [{"chosen": words} | _measure(learner, dealt)]
    if method == TUNED:
        decay = f"weight_decay={chosen['weight_decay']:g}"
        rows.append({"method": SHARED, "chosen": decay} | _measure(learner, dealt, shared=True))
    return rows


def _cells(
    quick: bool,
    *,
    settings: Sequence[str] | None = None,
    m: int | None = None,
    rounds: int | None = None,
    epsilon: float = math.inf,
) -> list[dict[str, Any]]:
    """List what is run.

    Parameters
    ----------
    quick : bool
        Whether to have ten clients with digits, a small network and few rounds.
    settings : sequence of str, optional
        Keys of `SETTINGS`; all but "three60" and "quick" if None.
    m : int, optional
        Number of clients; 50 if None.
    rounds : int, optional
        100 if None.
    epsilon : float
        Of the whole training.
    """
    if settings is None:
        settings = ["quick"] if quick else [x for x in SETTINGS if x not in ("three60", "quick")]
    common = {"m": m or (10 if quick else 50), "hidden": 8 if quick else 64}
    common["rounds"] = rounds or (20 if quick else 100)
    return [
        {"setting": setting, **common, "epsilon": float(epsilon), "method": method}
        for setting in settings
        for method in (*RIVALS, *UNTUNED)
    ]


def _tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    """Average over runs; add by how much a method is ahead of the best rival, run by run."""
    by = ["setting", "m", "hidden", "rounds", "epsilon", "method", "chosen"]
    table = average(runs, by, MEASURES)
    leads = []
    for _, rows in runs.groupby(by[:-2], sort=False):
        accuracy = rows.pivot(index="run", columns="method", values="accuracy")
        best = accuracy.drop(columns=[*UNTUNED], errors="ignore").mean().idxmax()
        lead = accuracy.sub(accuracy[best], axis=0)
        half = stdtrit(len(lead) - 1, 0.975) * lead.std() / math.sqrt(len(lead))
        here = rows.drop_duplicates("method")[by]
        ahead, half = here["method"].map(lead.mean()), here["method"].map(half)
        leads.append(here.assign(ahead=ahead, ahead_lower=ahead - half, ahead_upper=ahead + half))
    return table.merge(pd.concat(leads), on=by)


def _name(setting: str, epsilon: float) -> str:
    """Name a setting and its budget."""
    return setting if math.isinf(epsilon) else f"{setting}, epsilon {epsilon:g}"


def _say_lead(row: Any) -> str:
    """Print a difference with its interval."""
    lower, upper = 100 * row.ahead_lower, 100 * row.ahead_upper
    where = _name(row.setting, row.epsilon)
    return f"{100 * row.ahead:+.1f} [{lower:+.1f}, {upper:+.1f}] ({where})"


class PersonalStrengthsStudy(Study, cells=_cells, one_run=_one_run, tabulate=_tabulate):
    """The table has a row for each ``setting``, ``epsilon`` and ``method``: the options ``chosen``;
    ``accuracy``; ``calibration``, the expected error of calibration; ``recorded``, that error in
    tests with labels as wrong as the clients'; its ``floor``; and ``log_likelihood`` of tests, with
    standard errors. The method is ``ahead`` of the best rival of the setting, with a 95 % interval
    from ``ahead_lower`` to ``ahead_upper``.
    """

    name, full = "personal-strengths", 3
    n_jobs = 1

    def title(self) -> str:
        first = self.table.iloc[0]
        return (
            f"How much to personalise: {first['m']} clients, MLP of {first['hidden']}, "
            f"{first['rounds']} rounds, q = {COMMON['sample_rate']:g}"
        )

    def lines(self) -> Iterator[str]:
        there = set(self.table["method"])
        methods = [name for name in (SHARED, *RIVALS, *UNTUNED) if name in there]
        heads = [HEADS.get(name, name) for name in methods]
        for title, value in (
            ("Accuracy, %", "accuracy"),
            ("Calibration, %", "calibration"),
            ("as recorded, %", "recorded"),
        ):
            settings = [
                (name, rows)
                for name, rows in self._settings()
                if value != "recorded" or SETTINGS[name[0]].wrong
            ]
            if not settings:
                continue
            yield print_row(title, heads, 19, 11)
            yield THIN
            for (setting, epsilon), rows in settings:
                rows = rows.set_index("method").reindex(methods)
                name = _name(setting, epsilon)
                best = rows[value].idxmax() if value == "accuracy" else rows[value].idxmin()
                cells = [
                    f"{100 * row[value]:.1f}±{100 * row[f'{value}_se']:.1f}"
                    + ("*" if method == best else " ")
                    for method, row in rows.iterrows()
                ]
                yield print_row(name, cells, 19, 11).rstrip()
            yield ""

    def notes(self) -> Iterator[str]:
        yield (
            f"Means ± standard errors over {self.reps} runs, each with new clients. *: the best of "
            "the row. FedAvg+FT: FedAvg + fine-tuning. EB: HierarchicalEB. EB held: "
            "HierarchicalEB, rows held back, a tenth of them. Rivals have the best of six "
            "configurations in other clients; HierarchicalEB has one in all settings."
        )
        floor = 100 * self.table["floor"]
        yield (
            "Calibration: expected error of the largest probability. Right probabilities have an "
            f"error of {floor.min():.1f} to {floor.max():.1f} in as many tests. As recorded: in "
            "tests with labels as wrong as the client's."
        )
        names = self.table["setting"].unique()
        yield "; ".join(f"{name}: {SETTINGS[name].title}" for name in names) + "."
        learned = self.table[self.table["method"] == LEARNED]
        yield (
            "HierarchicalEB is ahead of the best rival, in points (95 % intervals of paired runs, "
            "by Student's t), by "
            + "; ".join(_say_lead(row) for row in learned.itertuples())
            + f"; in the mean of settings by {100 * learned['ahead'].mean():+.1f}."
        )
        for (setting, epsilon), rows in self._settings():
            rivals = rows[rows["method"].isin(RIVALS)]
            yield f"Chosen in {_name(setting, epsilon)}: " + "; ".join(
                rivals["method"] + ", " + rivals["chosen"]
            )
        if np.isfinite(self.table["epsilon"]).any():
            yield SIMULATED_NOISE

    def _settings(self) -> Iterator[tuple[Any, pd.DataFrame]]:
        yield from self.table.groupby(["setting", "epsilon"], sort=False)

    def panels(self) -> Iterator[dict[str, Any]]:
        names = [_name(*place) for place, _ in self._settings()]
        at = [names.index(_name(row.setting, row.epsilon)) for row in self.table.itertuples()]
        for value in ("accuracy", "calibration"):
            options = {"ticks": names, "log_x": False, "ylabel": value}
            yield {"table": self.table.assign(at=at), "x": "at", "y": value} | options
