"""PPSGD: how personalisation changes the price of privacy.

Bietti, Wei, Dudik, Langford and Wu (2022), "Personalization improves privacy-accuracy tradeoffs in
federated learning", section 6. Client i predicts by w + theta_i; alpha is the factor of the steps
of w. *Local* is alpha = 0, where w stays 0; *global* is alpha infinite, where only w is learned.

*Figure 1a*: regressions of 1,000 clients that differ in the last five of 100 coefficients, ten
fresh rows of each in every round, all clients in all rounds. The paper states neither the noise of
its responses (here .01) nor its clipping norm (10). Half the squared error is minimised. The best
step is chosen for each number of rounds, as in the paper, from its grid, which is cut at 1.5: the
next one, 1.8, would make the global curve without noise seven times as low at 300 rounds, while
learning alone diverges with it.

*Figure 2*: accuracy against epsilon. Stack Overflow and federated EMNIST are not available; here
MNIST takes the place of EMNIST, dealt to 1,000 users with 60 images of five digits each, and
multinomial regression that of one-versus-all least squares. One pass over the images (the paper: 20
over EMNIST); ten users take part in a round.

*Figure 1d*: a network whose first layers all share, with an additive last one. The paper has four
convolutional layers; here one hidden layer takes their place, and accuracies are those after the
rounds of Figure 2. Learning alone has random first layers.

*Epsilon*. The paper draws exactly Q users and accounts for it as if each was drawn independently.
The others together know who was drawn, so that samples of a fixed size give no amplification (see
`theory.private_learning`). For users who are drawn independently, as here, the claimed epsilon is
right.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from crossing import crossing
from ebfed.datasets import make_additive_regression
from ebfed.evaluation.study import (
    SIMULATED_NOISE,
    WIDTH,
    Cell,
    Study,
    average,
    print_grid,
    print_row,
)
from ebfed.learning import PPSGD, ClientPrivacy
from ebfed.models import MLP, Linear, Softmax
from ebfed.privacy import accountant, events
from ebfed.tables.clients import Clients
from ebfed.theory.private_learning import ppsgd_claimed_epsilon, ppsgd_joint_epsilon
from images import deal_images, mean_over_clients

DELTA = 1e-4
LOCAL, GLOBAL, BEST = "local", "global", "best"
INF = float("inf")

# Figure 1a. Rows of each client in a round, and rounds that are drawn at once.
CLIENTS, ROWS, CHUNK, CLIP = 1000, 10, 25, 10.0
NOISE = 10.0
ROUNDS = tuple(range(50, 301, CHUNK))
PRINTED = (50, 100, 125, 150, 175, 200, 250, 300)
# (alpha Q, sigma): steps, of the paper's grid up to 1.5 those that were ever best in a first run.
CURVES: dict[tuple[float, float], tuple[float, ...]] = {
    (0.0, 0.0): (1.2,),
    (0.3, 0.0): (1.2,),
    (1.0, 0.0): (0.7, 1.0),
    (INF, 0.0): (1.5,),
    (0.3, NOISE): (1.0, 1.2),
    (1.0, NOISE): (0.4, 0.7, 1.0),
    (INF, NOISE): (0.7, 1.0, 1.2, 1.5),
}

# Figure 2.
MNIST: dict[str, Any] = {"images": "MNIST", "users": 1000, "drawn": 10, "rounds": 600}
DIGITS: dict[str, Any] = {"images": "digits", "users": 40, "drawn": 8, "rounds": 30}
CLASSES, BATCH, IMAGE_CLIP = 5, 10, 1.0
LEVELS = (0.3, 1.0, INF)
NOISES = (0.5, 1.0, 2.0, 4.0)
STEPS = (0.03, 0.1, 0.3)

# Figure 1d: the trunk, the additive head, noise.
TRUNK, HEAD, TRUNK_NOISES = MLP(50), ("output", "output_intercept"), (0.0, 2.0)
FIGURES_OF_IMAGES = ("2", "1d")

KEYS = ["figure", "method", "sigma", "rounds"]
ACCOUNTS = {
    "claimed": "ε as claimed",
    "poisson": "ε of independent draws",
    "left_out": "ε of fixed size, left out",
    "exchanged": "ε of fixed size, exchanged",
}


def _cells(quick: bool) -> list[dict[str, Any]]:
    """List all figures.

    The quick version has 60 clients and 100 rounds of Figure 1a, and digits in Figures 1d and 2.
    """
    images = DIGITS if quick else MNIST
    curves = [(0.0, 0.0)] + [(level, sigma) for level in LEVELS for sigma in (0.0, *NOISES)]
    return [
        {"figure": "1a", "m": 60, "last": 100}
        if quick
        else {"figure": "1a", "m": CLIENTS, "last": ROUNDS[-1]},
        *(
            {"figure": "2", "level": level, "noise": sigma, **images}
            for level, sigma in curves
            if not quick or sigma in (0.0, NOISES[-1])
        ),
        *(
            {"figure": "1d", "level": level, "noise": sigma, **images}
            for level, sigma in curves
            if sigma in TRUNK_NOISES
        ),
    ]


def _parts(cells: Sequence[Cell], reps: int) -> list[tuple[Sequence[Cell], int]]:
    """Run figures of images a third as often as Figure 1a."""
    first = [cell for cell in cells if cell["figure"] == "1a"]
    rest = [cell for cell in cells if cell["figure"] != "1a"]
    return [(some, n) for some, n in ((first, reps), (rest, _image_reps(reps))) if some]


def _tabulate(runs: pd.DataFrame) -> pd.DataFrame:
    m = int(runs["m"].dropna().iloc[0])
    of = next(each for each in (MNIST, DIGITS) if runs["images"].eq(each["images"]).any())
    table = average(runs, KEYS, ["risk", "accuracy"])
    table = pd.concat([table, _best(table)], ignore_index=True)
    table["images"] = table["figure"].map(dict.fromkeys(FIGURES_OF_IMAGES, of["images"]))
    accounts = [_account(row, m, of) for row in table.itertuples()]
    return pd.concat([table, pd.DataFrame(accounts)], axis=1)


def name_of(level: float) -> str:
    """Name a curve by alpha Q."""
    if level == 0:
        return LOCAL
    return GLOBAL if np.isinf(level) else f"αQ = {level:g}"


def crossover(risks: pd.DataFrame) -> float:
    """Find the rounds after which learning alone overtakes global learning with noise.

    >>> curves = {"local": (0.0, [9.0, 3.0, 1.0]), "global": (10.0, [1.0, 1.0, 3.0])}
    >>> crossover(pd.concat([
    ...     pd.DataFrame({"method": name, "sigma": sigma, "rounds": [50, 100, 150], "risk": risk})
    ...     for name, (sigma, risk) in curves.items()
    ... ]))
    125.0
    """
    alone = risks[risks["method"] == LOCAL].set_index("rounds")["risk"]
    noisy = risks[(risks["method"] == GLOBAL) & (risks["sigma"] > 0)]
    shared = noisy.set_index("rounds")["risk"].reindex(alone.index)
    return crossing(alone.index.to_numpy(float), np.log(alone / shared).to_numpy())


def _image_reps(reps: int) -> int:
    """Return the number of runs of Figure 2."""
    return max(2, reps // 3)


def _one_run(seed: tuple[int, int], figure: str, **cell: Any) -> list[dict[str, Any]]:
    """Risks of all curves of Figure 1a, or the accuracy of one place of Figure 1d or 2."""
    return _risks(seed, **cell) if figure == "1a" else _accuracies(seed, figure == "1d", **cell)


def _risks(seed: tuple[int, int], m: int, last: int) -> list[dict[str, Any]]:
    """Excess risks with the best steps, every 25 rounds."""
    rng = np.random.default_rng([*seed, 0])
    *_, truth = make_additive_regression(m, 1, random_state=rng)
    places = [(level, sigma, step) for (level, sigma), steps in CURVES.items() for step in steps]
    learners = [
        PPSGD(
            Linear(fit_intercept=False),
            alpha=level / m,
            # theta_i makes steps of learning_rate / m, and a global w those of learning_rate
            learning_rate=step if np.isinf(level) else step * m,
            privacy=ClientPrivacy(noise_multiplier=sigma, clip=CLIP, delta=DELTA),
            batch_size=ROWS,
            shuffle=False,
            warm_start=True,
            random_state=[*seed, 1, k],
        )
        for k, (level, sigma, step) in enumerate(places)
    ]
    found = []
    for rounds in range(CHUNK, last + 1, CHUNK):
        X, y, _ = truth.draw(CHUNK * ROWS, random_state=rng)
        clients = Clients(np.arange(m), np.arange(m + 1) * CHUNK * ROWS, X, y)
        for (level, sigma, step), learner in zip(places, learners, strict=True):
            learner.set_params(n_rounds=rounds).fit(clients)
            risk = truth.excess_risk(learner.parameters_)
            found.append((name_of(level), sigma, rounds, step, risk))
    table = pd.DataFrame(found, columns=["method", "sigma", "rounds", "step", "risk"])
    table = table[table["rounds"] >= ROUNDS[0]]
    best = table.loc[table.groupby(["method", "sigma", "rounds"], sort=False)["risk"].idxmin()]
    return [{**row, "accuracy": np.nan} for row in best.to_dict("records")]


def _accuracies(
    seed: tuple[int, int],
    trunk: bool,
    level: float,
    noise: float,
    images: str,
    users: int,
    drawn: int,
    rounds: int,
) -> list[dict[str, Any]]:
    """Accuracy with the best step: mean over users, in per cent."""
    data = deal_images(images, users, CLASSES, np.random.default_rng([*seed, 2]))
    order = np.argsort(data.groups, kind="stable")
    X, y, groups = data.X[order].astype(float), data.y[order], data.groups[order]
    found = []
    for step in STEPS:
        learner = PPSGD(
            TRUNK if trunk else Softmax(),
            personal=HEAD if trunk else None,
            alpha=level / drawn,
            learning_rate=step if np.isinf(level) else step * drawn,
            privacy=ClientPrivacy(noise_multiplier=noise, clip=IMAGE_CLIP, delta=DELTA),
            batch_size=BATCH,
            sample_rate=drawn / users,
            sampling="poisson",
            n_rounds=rounds,
            random_state=[*seed, 3],
        ).fit(X, y, groups=groups)
        right = learner.predict(data.X_test, groups=data.groups_test) == data.y_test
        found.append((100 * mean_over_clients(right, data.groups_test), step))
    accuracy, step = max(found)
    place = {"method": name_of(level), "sigma": noise}
    return [{**place, "step": step, "risk": np.nan, "accuracy": accuracy}]


def _best(table: pd.DataFrame) -> pd.DataFrame:
    """Return the best of all alpha at each noise of Figure 2."""
    paid = table[(table["figure"] == "2") & (table["sigma"] > 0)]
    alone = table[(table["figure"] == "2") & (table["method"] == LOCAL)]
    rows = []
    for sigma in np.unique(paid["sigma"]):
        all_ = pd.concat([paid[paid["sigma"] == sigma], alone])
        rows.append(
            all_.loc[all_["accuracy"].idxmax()].to_dict() | {"method": BEST, "sigma": sigma}
        )
    return pd.DataFrame(rows)


def _account(row: Any, m: int, of: dict[str, Any]) -> dict[str, float]:
    """Epsilons of a row of the table."""
    if row.method == LOCAL:
        return dict.fromkeys(ACCOUNTS, 0.0)
    if row.sigma == 0:
        return dict.fromkeys(ACCOUNTS, INF)
    of_images = row.figure in FIGURES_OF_IMAGES
    return _epsilons(
        row.sigma, row.rounds, of["drawn"] if of_images else m, of["users"] if of_images else m
    )


@lru_cache
def _epsilons(sigma: float, rounds: int, participants: int, n_clients: int) -> dict[str, float]:
    """Epsilons of so many rounds, by four accounts."""
    setting: dict[str, Any] = {
        "rounds": rounds,
        "participants": participants,
        "n_clients": n_clients,
    }
    release = events.gaussian(sigma)
    if participants < n_clients:
        release = events.poisson(participants / n_clients, release)
    drawn = events.repeated(release, rounds)
    return {
        "claimed": ppsgd_claimed_epsilon(sigma, DELTA, **setting),
        "poisson": accountant.epsilon(drawn, DELTA, relation="add_or_remove", interval=1e-3),
        "left_out": ppsgd_joint_epsilon(sigma, DELTA, **setting, relation="add_or_remove"),
        "exchanged": ppsgd_joint_epsilon(sigma, DELTA, **setting, relation="replace_one"),
    }


def _print_risks(sigma: float, part: pd.DataFrame) -> Iterator[str]:
    """Print excess risks of all curves with one noise."""
    rounds = [each for each in PRINTED if each in set(part["rounds"])]
    label = WIDTH - 10 * len(PRINTED)
    title = f"Figure 1a, σ = {sigma:g}: excess risk after so many rounds"
    below = {" ": lambda row: f"({_short(row.risk_sd)})"}
    options: dict[str, Any] = {"values": rounds, "title": title, "below": below}
    yield from print_grid(part, "rounds", lambda row: _short(row.risk), label, 10, **options)
    if sigma > 0:
        rows = part[part["method"] == GLOBAL].set_index("rounds").reindex(rounds)
        titles = {"claimed": "ε claimed", "left_out": "left out", "exchanged": "exchanged"}
        for name, title in titles.items():
            yield print_row(title, [f"{x:.2f}" for x in rows[name]], label, 10)


def _print_tradeoff(part: pd.DataFrame, figure: str) -> Iterator[str]:
    """Print accuracies by noise, and in Figure 2 the epsilons of the noise."""
    title = f"Figure {figure}: accuracy in per cent, by noise multiplier σ"
    sigmas = np.unique(part["sigma"]).tolist()
    cell, label = "{0.accuracy:.1f} ± {0.accuracy_sd:.1f}".format, "σ = {:g}".format
    yield from print_grid(part, "sigma", cell, 30, 11, label=label, values=sigmas, title=title)
    shared = part[part["method"] == GLOBAL].set_index("sigma").reindex(sigmas)
    if title.startswith("Figure 1d"):
        return
    for name, title in ACCOUNTS.items():
        cells = ["none" if np.isinf(value) else f"{value:.2f}" for value in shared[name]]
        yield print_row(title, cells, 30, 11)


def _short(value: float) -> str:
    """Print three digits.

    Examples
    --------
    >>> _short(117.24), _short(0.0012649), _short(2.5)
    ('117', '0.00126', '2.50')
    """
    if value >= 100:
        return f"{value:.0f}" if value < 1e6 else f"{value:.2g}"
    return (
        f"{value:.{max(2 - int(np.floor(np.log10(value))), 0)}f}"
        if value > 1e-5
        else f"{value:.1g}"
    )


class PPSGDStudy(Study, cells=_cells, one_run=_one_run, tabulate=_tabulate, parts=_parts):
    """The table has a row for each ``figure``, ``method``, noise multiplier ``sigma`` and number of
    ``rounds``: the excess ``risk`` (Figure 1a) or the ``accuracy`` in per cent, a mean over users
    (Figures 1d and 2), with standard error (``.._se``) and standard deviation of one run
    (``.._sd``), NaN where a figure has none. ``claimed``, ``poisson``, ``left_out`` and
    ``exchanged`` are epsilons: by the paper's account; exact, for independent draws; and exact
    under joint privacy, for samples of a fixed size, of a client who is left out or exchanged for
    another.
    """

    name, full = "ppsgd", 10
    heading = "PPSGD: how personalisation changes the price of privacy"
    # one process: each needs a gigabyte of memory
    n_jobs = 1
    hidden = ("m", "last", "level", "noise", "images", "users", "drawn")

    def lines(self) -> Iterator[str]:
        synthetic = self.table[self.table["figure"] == "1a"]
        for sigma, part in synthetic.groupby("sigma"):
            yield from _print_risks(float(sigma), part)
            yield ""
        yield from _print_tradeoff(self.table[self.table["figure"] == "1d"], "1d")
        yield ""
        yield from _print_tradeoff(self.table[self.table["figure"] == "2"], "2")

    def notes(self) -> Iterator[str]:
        risks = self.table[self.table["figure"] == "1a"]
        at = crossover(risks[risks["sigma"].isin([0.0, NOISE])])
        meet = f"after {at:.0f} rounds" if np.isfinite(at) else "nowhere here"
        yield (
            f"Figure 1a: means over {self.reps} runs, in brackets the standard deviation of one, "
            "each with new clients; in each the step is best for the number of rounds, from a grid "
            f"cut at 1.5. With σ = {NOISE:g} learning alone overtakes global learning {meet}."
        )
        of = MNIST if self.table["images"].eq("MNIST").any() else DIGITS
        yield (
            f"Figures 1d and 2: {of['images']} in place of EMNIST; {of['users']:,} users with "
            f"{CLASSES} of ten digits each, {of['rounds']} rounds with {of['drawn']} users "
            f"expected; means over {_image_reps(self.reps)} runs; the best step of "
            f"{', '.join(map(str, STEPS))}. Best: of all α, on average over runs."
        )
        yield (
            f"σ: noise on the sum over clients, in units of the clipping norm. ε at δ = {DELTA:g}: "
            "as claimed, by Rényi divergences; exact, for independent draws; and under joint "
            "privacy if exactly Q are drawn, for a client left out, or exchanged for another."
        )
        yield SIMULATED_NOISE

    def panels(self) -> Iterator[dict[str, Any]]:
        risks = self.table[self.table["figure"] == "1a"]
        common: dict[str, Any] = {"errors": 1}
        for sigma in (0.0, NOISE):
            part = risks[(risks["sigma"] == sigma) | (risks["method"] == LOCAL)]
            labels = {"title": f"Figure 1a: σ = {sigma:g}", "xlabel": "rounds"}
            labels |= {"ylabel": "excess risk"}
            scales = {"log_x": False, "log_y": True}
            yield {"table": part, "x": "rounds", "y": "risk"} | common | scales | labels
        accuracy = self.table[self.table["figure"] == "2"]
        paid = accuracy[(accuracy["sigma"] > 0) | (accuracy["method"] == LOCAL)]
        for name, title in (("claimed", "as claimed"), ("left_out", "if exactly Q take part")):
            at = paid[name].map(lambda value: float(f"{value:.2g}"))
            part = paid.assign(at=at.mask(paid["method"] == LOCAL))
            labels = {"title": f"Figure 2: accuracy and ε, {title}", "xlabel": f"ε {title}"}
            labels |= {"ylabel": "accuracy, %"}
            yield {"table": part, "x": "at", "y": "accuracy"} | common | labels
