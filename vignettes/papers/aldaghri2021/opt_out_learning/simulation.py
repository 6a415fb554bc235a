"""One run of the study of opting out while a network learns: its data, its learner, accuracies."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from aldaghri2021.opt_out_learning.settings import (
    CLIP,
    DELTA,
    DIGIT,
    EPSILON,
    FEDERATIONS,
    FEO2,
    NAN,
    NON_PRIVATE,
    OPTED_OUT,
    RATE,
    SKEWED,
    UNITS,
    Federation,
)
from ebfed.datasets import choose_opted_out, partition_classes, partition_single_class
from ebfed.learning import ClientPrivacy, Ditto, FeO2
from ebfed.models import MLP

__all__ = ["deal", "learner_of", "one_run"]


def deal(federation: Federation, seed: Any = None) -> tuple[NDArray, NDArray, NDArray]:
    """Deal images to clients who hold one digit each.

    Parameters
    ----------
    federation : Federation
    seed : int or sequence of int, optional

    Returns
    -------
    groups, test_groups : int ndarrays
        Client of each training and test image, -1 for an image without a client.
    digits : int ndarray of shape (clients,)
        Digit of each client.

    Examples
    --------
    >>> from ebfed.datasets import load_digits
    >>> groups, test_groups, digits = deal(FEDERATIONS["digits"], 0)
    >>> np.bincount(groups[groups >= 0]).tolist() == [14] * 100, len(test_groups)
    (True, 355)
    >>> bool((load_digits().target_test == digits[test_groups]).all())
    True
    """
    images, m = federation.load(), federation.clients
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
    data = federation.load()
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
