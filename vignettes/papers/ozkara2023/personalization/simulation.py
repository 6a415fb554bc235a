"""One run of the study of personalised learning: its data, its learner, accuracies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.datasets import fetch_fashion_mnist, fetch_mnist, load_digits, partition_classes
from ebfed.learning.adaped import AdaPeD
from ebfed.learning.privacy import ClientPrivacy
from ebfed.models import MLP, Model, Torch
from ebfed.models.torch import lenet
from ebfed.tables.clients import Clients
from ozkara2023.personalization.pricing import price
from ozkara2023.personalization.settings import (
    BATCH,
    CLASSES,
    DELTA,
    EPOCH,
    METHODS,
    RATE,
    ROUNDS,
    SHARED,
    STEPS,
    TUNED,
    Collection,
)

__all__ = ["DealtImages", "deal_images", "one_run"]

FETCH = {"mnist": fetch_mnist, "fashion-mnist": fetch_fashion_mnist, "digits": load_digits}


@dataclass(frozen=True)
class DealtImages:
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
) -> DealtImages:
    """Deal images to clients with three classes each: rows to learn from, and rows to be tested on.

    Parameters
    ----------
    data : {"mnist", "fashion-mnist", "digits"}
    m : int
        Number of clients; each has the same number of rows to learn from.
    seed : int, Generator or None
    validation : bool
        Whether a fifth of the rows takes the place of the test images, which are then not used;
        settings were chosen in this way.

    Returns
    -------
    DealtImages

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
        return DealtImages(*rows, *tests)
    of_tests, _ = partition_classes(
        images.target_test, m, CLASSES, classes=classes, random_state=rng
    )
    given = of_tests >= 0
    tests = images.data_test[given], images.target_test[given], of_tests[given]
    return DealtImages(images.data, images.target, groups, *tests)


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
    right = learner.predict(images.X_test, groups=asked) == images.y_test
    return float(np.mean(np.bincount(groups, right) / np.bincount(groups)))


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
