"""One run of the study of joint differential privacy: its data, its learners, its errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.datasets import fetch_fashion_mnist, fetch_mnist, load_digits, partition_classes
from ebfed.learning.base import Learner
from ebfed.learning.fed_avg import FedAvg
from ebfed.learning.joint_dp import JointDPSGD
from ebfed.learning.local_only import LocalOnly
from ebfed.learning.privacy import ClientPrivacy
from ebfed.models import MLP, Linear
from huang2023.joint_dp.settings import (
    ALONE,
    BATCH,
    BLOCKS,
    CLASSES,
    CLIP,
    DELTA,
    EPSILON,
    ETAS,
    FEWEST,
    FULL,
    IMAGE_DELTA,
    IMAGES,
    JOINT,
    LEARNING_RATE,
    NOISE,
    OPEN,
    OWN,
    PASSES,
    PRIVATE,
    PROBLEMS,
    RATE,
    ROWS,
    SHARED,
    UNITS,
    X_OWN,
    U,
)

__all__ = ["deal_images", "make_records", "one_run"]

LOAD: dict[str, Callable[[], Any]] = {
    "MNIST": lru_cache(fetch_mnist),
    "Fashion-MNIST": lru_cache(fetch_fashion_mnist),
    "digits": lru_cache(load_digits),
}


def make_records(
    n: int, seed: Any = None
) -> tuple[NDArray, NDArray, NDArray, NDArray[np.float64], NDArray[np.float64]]:
    """Draw records of owners.

    Parameters
    ----------
    n : int
        Number of owners, of 20 records each.
    seed : int, Generator or None

    Returns
    -------
    X : ndarray of shape (20 n, 24)
        Uniform on the unit sphere.
    y, groups : ndarrays of shape (20 n,)
    u : ndarray of shape (22,)
        Uniform on the sphere of radius 4.5.
    x : ndarray of shape (n, 2)
        Each uniform on the circle of radius .6.

    Examples
    --------
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


def deal_images(
    data: str, n: int, seed: Any = None
) -> tuple[NDArray, NDArray, NDArray, NDArray, NDArray, NDArray]:
    """Deal images to owners who hold eight of ten classes each.

    Parameters
    ----------
    data : {"MNIST", "Fashion-MNIST", "digits"}
    n : int
        Number of owners.
    seed : int, Generator or None

    Returns
    -------
    X, y, groups : ndarrays
        10,000 training images, or as many as there are; owners have the same number, within one.
    X_test, y_test, groups_test : ndarrays
        Test images, of the same classes.

    Examples
    --------
    >>> X, y, groups, *tests = deal_images("digits", 16, 0)
    >>> X.shape, np.unique(np.bincount(groups)).tolist(), tests[0].shape
    ((1442, 64), [90, 91], (355, 64))
    """
    images, rng = LOAD[data](), np.random.default_rng(seed)
    chosen = rng.permutation(len(images.target))[:IMAGES]
    y = images.target[chosen]
    groups, classes = partition_classes(y, n, CLASSES, rows_per_client="equal", random_state=rng)
    of_tests, _ = partition_classes(
        images.target_test, n, CLASSES, classes=classes, random_state=rng
    )
    X, X_test = (_pool(each) for each in (images.data[chosen], images.data_test))
    return X, y, groups, X_test, images.target_test, of_tests


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
) -> list[dict[str, Any]]:
    """Excess losses with all steps, or the accuracy."""
    if data == "records":
        return _losses(seed, n, method, steps)
    X, y, groups, *tests = deal_images(data, n, [*seed, n])
    learner = _image_learner(method, n, personal, steps, len(X) // n)
    learner.set_params(random_state=[*seed, n, 1])
    if isinstance(learner, JointDPSGD):
        learner.fit(X, y, groups=groups, users=_users(groups, per_user))
    else:
        learner.fit(X, y, groups=groups)
    X_test, y_test, of_tests = tests
    right = learner.predict(X_test, groups=of_tests) == y_test
    count = np.bincount(of_tests, minlength=n)
    share = np.bincount(of_tests, right, n)[count > 0] / count[count > 0]
    return [
        {
            "step": learner.learning_rate,
            "loss": np.nan,
            "accuracy": 100 * float(share.mean()),
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


def _image_learner(method: str, n: int, personal: str, steps: int, rows: int) -> Learner:
    """Make the estimator for images; `rows` are those of an owner."""
    model = MLP(UNITS, heads=2)
    if method in (ALONE, OPEN):
        local: dict[str, Any] = {
            "n_rounds": PASSES if steps == PRIVATE["n_rounds"] else steps,
            "local_steps": max(FEWEST, rows // BATCH),
            "batch_size": BATCH,
            "learning_rate": LEARNING_RATE,
        }
        return LocalOnly(model, **local) if method == ALONE else FedAvg(model, **local)
    return JointDPSGD(
        model,
        personal=BLOCKS[personal][0],
        own_learning_rate=BLOCKS[personal][1],
        guide_learning_rate=0.0,
        privacy=ClientPrivacy(epsilon=EPSILON, delta=IMAGE_DELTA, clip=1.0),
        **PRIVATE | {"n_rounds": steps},
    )


def _users(groups: NDArray, per_user: int) -> NDArray[np.int64]:
    """Give each owner's rows to users who have so many each, but perhaps one."""
    order = np.argsort(groups, kind="stable")
    size = np.bincount(groups)
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - np.repeat(np.cumsum(size) - size, size)
    return groups * len(groups) + rank // per_user
