"""Joint differential privacy: what owners gain by learning together, and its price.

Huang, Jiang, Liu, Mahdian, Mao and Mirrokni (2023), "Learning across data owners with joint
differential privacy". Owner j predicts by shared parameters u and its own x_j; only u gets noise,
because no other owner ever receives x_j. *Per owner*: each owner alone; *no DP*: together, without
noise; *full DP*: noise on all parameters; *joint DP*: noise on u only.

*Convex*: squared loss of ``y = u'z + x_j'v + N(0, .12^2)`` with (z, v) uniform on a sphere, 20 and
2 dimensions of 22, 20 records of each owner. The paper has no such experiment; its bounds say that
the error of joint DP falls faster with the number of owners than that of learning alone.

*Images* (Tables 1, 2 and 4, Figure 1): 10,000 images are dealt evenly to n owners with 8 of 10
classes each. The paper's network has two convolutional layers and two output layers that are
averaged, one of them personal. Here pixels are averaged over 2 x 2, there is one hidden layer, and
of the second output layer only the intercepts are personal, because most owners have few images.

Unlike in the paper's Algorithm 1, records join each step by independent draws, and an accountant
computes the noise: the constant of the paper is too small, and its amplification by sampling does
not hold towards the other owners (see `theory.private_learning`).
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crossing import crossing
from ebfed.evaluation.study import (
    SIMULATED_NOISE,
    Study,
    average,
    number,
    print_grid,
)
from ebfed.learning import ClientPrivacy, FedAvg, JointDPSGD, Learner, LocalOnly
from ebfed.models import Linear
from images import deal_images, mean_over_clients, network, squares

ALONE, OPEN, FULL, JOINT = "per owner", "no DP", "full DP", "joint DP"
METHODS = (ALONE, OPEN, FULL, JOINT)
EPSILON, OWNERS = 1.0, (4, 16, 64, 256)

# Convex: dimensions of u and x_j, their lengths, rows of an owner, noise; steps, rate, clipping.
SHARED, OWN, U, X_OWN, ROWS, NOISE = 22, 2, 4.5, 0.6, 20, 0.12
STEPS, RATE, CLIP, DELTA = 2000, 0.1, 1.25, 1e-5
# So many problems of a size count as one run; learning alone does not depend on n.
PROBLEMS = {1: 16, 4: 4, 16: 2, 64: 1, 256: 1}
# eta of u, n times that of x_j: what was best in a search of .00625 * 2**i, and what was close.
ETAS: dict[tuple[str, int], tuple[float, ...]] = {
    (ALONE, 1): (1.6,),
    (OPEN, 4): (3.2,),
    (OPEN, 16): (6.4,),
    (OPEN, 64): (25.6,),
    (OPEN, 256): (25.6,),
    (FULL, 4): (0.0125, 0.05),
    (FULL, 16): (0.05,),
    (FULL, 64): (0.2,),
    (FULL, 256): (1.6,),
    (JOINT, 4): (0.0125, 0.05),
    (JOINT, 16): (0.05,),
    (JOINT, 64): (0.2,),
    (JOINT, 256): (3.2,),
}

# Images. Settings were chosen for MNIST with 16 and 256 owners, on training images alone.
IMAGES, CLASSES, UNITS, IMAGE_DELTA = 10_000, 8, 50, 1e-4
PRIVATE: dict[str, Any] = {"n_rounds": 100, "sample_rate": 0.05, "learning_rate": 4.0}
# What is personal, and the learning rate of that. Guides stay where they begin: they would learn
# little but noise.
STANDARD = "intercept"
BLOCKS: dict[str, tuple[tuple[str, ...], float]] = {
    "nothing": ((), 1.0),
    STANDARD: (("output_2_intercept",), 5.0),
    "output": (("output_2", "output_2_intercept"), 0.4),
    "hidden": (("hidden", "hidden_intercept"), 0.4),
}
# The same blocks of the convolutional network, and its learning rate, which was not tuned.
LAYERS = {
    "output_2_intercept": "output_2.bias",
    "output_2": "output_2.weight",
    "hidden": "trunk.0.weight",
    "hidden_intercept": "trunk.0.bias",
}
CNN_RATE = 1.0
# What owners make on their own images, or between averages of FedAvg. Of rates of .1, .2, .5, 1 and
# 2, that of 1 had the most right of held out training images, or nearly; at 2 few owners alone
# diverge. The rate of the convolutional network was not tuned.
PASSES, BATCH, FEWEST, LEARNING_RATE, LEARNING_RATE_OF_CNN = 40, 20, 5, 1.0, 0.1
IMAGE_OWNERS = (4, 16, 64, 128, 256, 512)
OTHERS = ("output", "hidden")
BLOCKS_N, USERS_N, PER_USER, USER_BUDGETS = 128, 4, (1, 2, 5, 10), (1.0, 3.0, 8.0)
# Figure 1: owners, and epsilons beside that of Table 1.
BUDGET_N, BUDGETS = (16, 256), (2.0, 5.0, 10.0, 100.0)

KEYS = ["data", "n", "method", "personal", "per_user", "budget"]


def list_cells(quick: bool, *, model: str | None = None) -> list[dict[str, Any]]:
    """List records and images.

    The quick version has records of 4 and 16 owners in 60 steps, and digits in 10. With the `model`
    "cnn" there are images alone, and the paper's network, which needs PyTorch.
    """
    rounds = 10 if quick else PRIVATE["n_rounds"]
    owners = (1, *OWNERS[:2]) if quick else (1, *OWNERS)
    steps = 60 if quick else STEPS
    places: list[tuple[str, int, str, str, int, float, int]] = [
        ("records", n, method, "nothing" if method == FULL else "x", 1, EPSILON, steps)
        for n in owners
        for method in (METHODS[:1] if n == 1 else METHODS[1:])
    ]
    for data in ("digits",) if quick else ("MNIST", "Fashion-MNIST"):
        for n in (4, 16) if quick else IMAGE_OWNERS:
            for method in METHODS:
                personal = {ALONE: "all", JOINT: STANDARD}.get(method, "nothing")
                places.append((data, n, method, personal, 1, EPSILON, rounds))
    first, blocks_n, per_user = ("digits", 16, (5,)) if quick else ("MNIST", BLOCKS_N, PER_USER[1:])
    for personal in OTHERS:
        places.append((first, blocks_n, JOINT, personal, 1, EPSILON, rounds))
    both = (FULL, "nothing"), (JOINT, STANDARD)
    for n, budget in product(BUDGET_N[:1] if quick else BUDGET_N, BUDGETS):
        places += [(first, n, *each, 1, budget, rounds) for each in both]
    for rows, budget in product((1, *per_user), USER_BUDGETS):
        if (rows, budget) != (1, EPSILON):  # of Table 1
            places += [(first, USERS_N, *each, rows, budget, rounds) for each in both]
    cells = [dict(zip([*KEYS, "steps"], place, strict=True)) for place in places]
    if model is None:
        return cells
    return [cell | {"model": model.upper()} for cell in cells if cell["data"] != "records"]


def make_records(
    n: int, seed: Any = None
) -> tuple[NDArray, NDArray, NDArray, NDArray[np.float64], NDArray[np.float64]]:
    """Draw 20 records of each of n owners.

    Returns X, (20 n, 24), uniform on the unit sphere; y and groups; u, (22,), uniform on the sphere
    of radius 4.5; and x, (n, 2), each uniform on the circle of radius .6.

    >>> X, y, groups, u, x = make_records(3, 0)
    >>> X.shape, u.shape, np.linalg.norm(x, axis=1)
    ((60, 24), (22,), array([0.6, 0.6, 0.6]))
    """
    rng = np.random.default_rng(seed)
    X = _on_sphere(rng, (n * ROWS, SHARED + OWN))
    u, x = U * _on_sphere(rng, (SHARED,)), X_OWN * _on_sphere(rng, (n, OWN))
    groups = np.repeat(np.arange(n), ROWS)
    mean = X[:, :SHARED] @ u + np.einsum("ij,ij->i", X[:, SHARED:], x[groups])
    return X, mean + NOISE * rng.standard_normal(n * ROWS), groups, u, x


def _on_sphere(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw from the unit sphere."""
    normal = rng.standard_normal(shape)
    return normal / np.linalg.norm(normal, axis=-1, keepdims=True)


def _pool(images: NDArray) -> NDArray[np.float64]:
    """Average over 2 x 2 pixels, unless images are small."""
    if images.shape[1] < 28 * 28:
        return images.astype(float)
    squares = images.reshape(len(images), 14, 2, 14, 2)
    return squares.mean(axis=(2, 4), dtype=float).reshape(len(images), -1)


def one_run(
    seed: tuple[int, int],
    data: str,
    n: int,
    method: str,
    personal: str,
    per_user: int,
    steps: int,
    budget: float = EPSILON,
    model: str = f"MLP-{UNITS}",
) -> list[dict[str, Any]]:
    """Excess losses with all steps, or the accuracy."""
    if data == "records":
        return _losses(seed, n, method, steps)
    shape, rng = squares if model == "CNN" else _pool, np.random.default_rng([*seed, n])
    X, y, groups, *tests = deal_images(data, n, CLASSES, rng, most=IMAGES, shape=shape)
    learner = _image_learner(method, n, personal, steps, len(X) // n, budget, model)
    learner.set_params(random_state=[*seed, n, 1])
    if isinstance(learner, JointDPSGD):
        learner.fit(X, y, groups=groups, users=_users(groups, per_user))
    else:
        learner.fit(X, y, groups=groups)
    X_test, y_test, of_tests = tests
    right = learner.predict(X_test, groups=of_tests) == y_test
    return [
        {
            "step": learner.learning_rate,
            "loss": np.nan,
            "accuracy": 100 * mean_over_clients(right, of_tests),
            "epsilon": float(learner.privacy_["epsilon"].max()),
        }
    ]


def _losses(seed: tuple[int, int], n: int, method: str, steps: int) -> list[dict[str, Any]]:
    """Excess losses with each step: means over problems."""
    rows = []
    for step in ETAS[method, n]:
        losses, epsilon = [], np.nan
        for problem in range(PROBLEMS[n]):
            X, y, groups, u, x = make_records(n, [*seed, n, problem])
            learner = _record_learner(method, n, step, steps)
            learner.set_params(random_state=[*seed, n, problem, 1])
            learner.fit(X, y, groups=groups)
            away = learner.parameters_ - np.column_stack([np.tile(u, (n, 1)), x])
            losses.append(0.5 * float((away**2).sum(axis=1).mean()) / (SHARED + OWN))
            epsilon = float(learner.privacy_["epsilon"].max())
        loss = float(np.mean(losses))
        rows.append({"step": step, "loss": loss, "accuracy": np.nan, "epsilon": epsilon})
    return rows


def _record_learner(method: str, n: int, step: float, steps: int) -> JointDPSGD:
    """Make the estimator for records."""
    private = method in (FULL, JOINT)
    privacy = ClientPrivacy(noise_multiplier=0.0, clip=1e6, delta=DELTA)
    if private:
        privacy = ClientPrivacy(epsilon=EPSILON, clip=CLIP, delta=DELTA)
    return JointDPSGD(
        Linear(fit_intercept=False),
        personal=[f"x{j}" for j in range(SHARED, SHARED + OWN)],
        protect="all" if method == FULL else "shared",
        n_rounds=steps,
        sample_rate=1.0 if method == ALONE else RATE,
        learning_rate=step,
        own_learning_rate=step / n,  # one step for all, as in the paper
        radius=U,
        own_radius=X_OWN,
        average=True,
        privacy=privacy,
    )


def _image_learner(
    method: str,
    n: int,
    personal: str,
    steps: int,
    rows: int,
    budget: float = EPSILON,
    name: str = f"MLP-{UNITS}",
) -> Learner:
    """Make the estimator for images; `rows` are those of an owner."""
    model = network(name, heads=2)
    private = PRIVATE | {"n_rounds": steps}
    if name == "CNN":
        private["learning_rate"] = CNN_RATE
    if method in (ALONE, OPEN):
        local: dict[str, Any] = {
            "n_rounds": PASSES if steps == PRIVATE["n_rounds"] else steps,
            "local_steps": max(FEWEST, rows // BATCH),
            "batch_size": BATCH,
            "learning_rate": LEARNING_RATE_OF_CNN if name == "CNN" else LEARNING_RATE,
        }
        return LocalOnly(model, **local) if method == ALONE else FedAvg(model, **local)
    return JointDPSGD(
        model,
        personal=tuple(LAYERS[block] if name == "CNN" else block for block in BLOCKS[personal][0]),
        own_learning_rate=BLOCKS[personal][1],
        guide_learning_rate=0.0,
        privacy=ClientPrivacy(epsilon=budget, delta=IMAGE_DELTA, clip=1.0),
        **private,
    )


def _users(groups: NDArray, per_user: int) -> NDArray[np.int64]:
    """Give each owner's rows to users who have so many each, but perhaps one."""
    order = np.argsort(groups, kind="stable")
    size = np.bincount(groups)
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - np.repeat(np.cumsum(size) - size, size)
    return groups * len(groups) + rank // per_user


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
    return float(np.exp(crossing(owners, gap)))


def _published(row: Any) -> float:
    """Return the figure of Table 1 of the paper for a row of the table."""
    standard = row.per_user == 1 and row.personal not in OTHERS and row.budget == EPSILON
    figures = PUBLISHED.get((row.data, row.n)) if standard else None
    return np.nan if figures is None else figures[METHODS.index(row.method)]


def _standard(part: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of Table 1, in its order of methods."""
    rows = part[(part["per_user"] == 1) & ~part["personal"].isin(OTHERS)]
    rows = rows[rows["budget"] == EPSILON]
    order = rows["method"].map({method: k for k, method in enumerate(METHODS)})
    return rows.loc[order.sort_values(kind="stable").index]


def _accuracy_of(row: Any) -> str:
    return f"{row.accuracy:.1f} ± {row.accuracy_sd:.1f}"


def _print_losses(part: pd.DataFrame) -> Iterator[str]:
    """Print excess losses by number of owners."""
    part = part.assign(n=part["n"].where(part["n"] > 1).astype(float))  # alone, of any n
    titles: Any = {"title": "Records: excess loss, by number of owners", "head": "owners"}
    cell = "{0.loss:.4f} ({0.loss_se:.4f})".format
    yield from print_grid(part, "n", cell, 16, 18, label="{:g}".format, **titles)


def _print_accuracies(data: str, part: pd.DataFrame) -> Iterator[str]:
    """Print accuracies by number of owners, and below each the paper's."""
    options: dict[str, Any] = {"title": f"{data} (Table 1): accuracy in per cent", "head": "owners"}
    options["below"] = {"  paper": lambda row: number(row.published, ".1f") + 6 * " "}
    yield from print_grid(_standard(part), "method", _accuracy_of, 10, 18, by="n", **options)


def _private(images: pd.DataFrame) -> pd.DataFrame:
    """Return the private methods with the images that are looked at closely."""
    return images[(images["data"] == images["data"].iloc[0]) & images["method"].isin([FULL, JOINT])]


def _print_blocks(images: pd.DataFrame) -> Iterator[str]:
    """Print accuracies by what is personal."""
    rows = _private(images)
    rows = rows[(rows["per_user"] == 1) & (rows["budget"] == EPSILON)]
    rows = rows[rows["n"].isin(rows["n"][rows["personal"].isin(OTHERS)])]
    title = "What is personal (Table 2): joint DP"
    order = rows["personal"].map({name: k for k, name in enumerate(BLOCKS)})
    rows = rows.loc[order.sort_values(kind="stable").index]
    options: dict[str, Any] = {"label": "{} owners".format, "title": title, "by": "personal"}
    yield from print_grid(rows, "n", _accuracy_of, 30, 13, **options) if len(rows) else ()


def _print_users(images: pd.DataFrame) -> Iterator[str]:
    """Print accuracies by records of a user and epsilon."""
    rows = _private(images)
    rows = rows[(rows["n"] == USERS_N) & ~rows["personal"].isin(OTHERS)]
    rows = rows[rows["budget"].isin(USER_BUDGETS)]
    rows = rows.assign(name=rows["method"] + [f", ε = {x:g}" for x in rows["budget"]])
    rows = rows.sort_values("budget", kind="stable")
    title = f"Records of a user (Table 4): {USERS_N} owners"
    if rows["per_user"].gt(1).any():
        yield from print_grid(rows, "per_user", _accuracy_of, 22, 14, title=title, by="name")


def _print_budgets(images: pd.DataFrame) -> Iterator[str]:
    """Print accuracies by epsilon."""
    rows = _private(images)
    rows = rows[(rows["per_user"] == 1) & ~rows["personal"].isin(OTHERS)]
    for n in BUDGET_N:
        part, label = rows[rows["n"] == n], "ε = {:g}".format
        if part["budget"].isin(BUDGETS).any():
            title = f"By ε (Figure 1): {n} owners"
            yield from print_grid(part, "budget", _accuracy_of, 16, 14, label=label, title=title)


class JointDPStudy(Study, cells=list_cells, one_run=one_run, tabulate=tabulate):
    """The table has a row for each kind of ``data``, number of owners ``n`` (1: each alone,
    whatever n is) and ``method``; which blocks of a network are ``personal``, and records
    ``per_user``. The excess ``loss`` of records, or the ``accuracy`` of images in per cent, a mean
    over owners, NaN otherwise, each with its standard error (``.._se``) and the standard deviation
    of one run (``.._sd``); the ``step`` of u, ``epsilon`` of the ledger, and the ``published``
    figure of Table 1 of the paper. ``budget`` is the epsilon that was asked for.
    """

    name, full = "joint-dp", 3
    heading = "Joint differential privacy between owners"
    n_jobs = 1
    hidden = ("steps", "model")

    def lines(self) -> Iterator[str]:
        records = self.table["data"] == "records"
        images = self.table[~records]
        parts = [_print_losses(self.table[records])] if records.any() else []
        for data, part in images.groupby("data", sort=False):
            parts.append(_print_accuracies(str(data), part))
        parts += [each(images) for each in (_print_blocks, _print_users, _print_budgets)]
        for k, part in enumerate(filter(None, map(list, parts))):
            yield from [""] * (k > 0) + part

    def notes(self) -> Iterator[str]:
        if (self.table["data"] == "records").any():
            yield from self._say_of_records()
        yield (
            "Images: means over owners and runs ± the standard deviation of a run; ε = "
            f"{EPSILON:g} if none is named, δ = {IMAGE_DELTA:g} for one user more or less. Paper: "
            "Table 1. Settings were chosen on training images of MNIST alone, for a network of "
            f"{UNITS} units. Personal in Table 1: intercepts of the second output layer."
        )
        yield SIMULATED_NOISE

    def _say_of_records(self) -> Iterator[str]:
        at = crossover(self.table)
        where = f"at {at:.0f} owners" if np.isfinite(at) else "nowhere here"
        yield (
            f"Records: half the expected squared error above the least one; means over {self.reps} "
            "runs, in brackets the standard error; the step is the best on average, of a few. "
            f"Joint DP overtakes learning alone {where}. ε = {EPSILON:g}, δ = {DELTA:g} for one "
            "record more or less."
        )

    def panels(self) -> Iterator[dict[str, Any]]:
        for data, rows in self.table.groupby("data", sort=False):
            part = _standard(rows)
            y = "loss" if data == "records" else "accuracy"
            part = part.assign(x=part["n"].where(part["n"] > 1).astype(float))
            labels: dict[str, Any] = {"title": data, "xlabel": "owners"}
            labels["ylabel"] = "excess loss" if y == "loss" else "accuracy, %"
            yield {"table": part, "x": "x", "y": y, "log_y": y == "loss"} | labels
