"""Images of the experiments: loaded once, dealt to clients by their classes; and networks."""

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ebfed.datasets import (
    fetch_fashion_mnist,
    fetch_mnist,
    load_digits,
    partition_classes,
    read_cifar,
    read_leaf,
    read_tff,
)
from ebfed.models import MLP, Torch
from ebfed.models.torch import lenet


def folder_of(name):
    """Return a folder of the folder that ``--data``, or EBFED_DATA, names."""
    given = os.environ.get("EBFED_DATA")
    if given is None:
        raise ValueError(f"give --data DIR: the folder that holds {name}")
    if not (Path(given) / name).is_dir():
        raise FileNotFoundError(f"{given} has no folder {name}")
    return Path(given) / name


def load_cifar(classes):
    """Load CIFAR from one of the folders that its archives unpack to."""
    names = [f"cifar-{classes}-batches-py", f"cifar-{classes}-batches-bin"]
    names = names if classes == 10 else ["cifar-100-python", "cifar-100-binary"]
    there = [name for name in names if (Path(os.environ.get("EBFED_DATA", ".")) / name).is_dir()]
    return read_cifar(folder_of((there or names)[0]), classes=classes)


def load_federated_emnist():
    """Load the files of TensorFlow Federated; those of digits alone, where there are no others."""
    folder = folder_of("fed_emnist")
    end = "" if (folder / "fed_emnist_train.h5").is_file() else "only_digits_"
    return read_tff(*(folder / f"fed_emnist_{end}{part}.h5" for part in ("train", "test")))


FETCH = {
    "mnist": fetch_mnist,
    "fashion-mnist": fetch_fashion_mnist,
    "digits": load_digits,
    "cifar-10": lambda: load_cifar(10),
    "cifar-100": lambda: load_cifar(100),
    "femnist": lambda: read_leaf(folder_of("femnist/data")),
    "fed-emnist": load_federated_emnist,
}


@cache
def load(name):
    """Load a collection by its name, in capitals or not.

    MNIST, Fashion-MNIST and digits are fetched; others are read from the folder of ``--data``.
    """
    return FETCH[name.lower()]()


def network(name, heads=1):
    """Return "CNN", the network of [E] and [J], which needs PyTorch, or "MLP-50" of 50 units."""
    if name == "CNN":
        return Torch(lenet(heads=heads), (1, 28, 28))
    return MLP(int(name.removeprefix("MLP-")), heads=heads)


def squares(images):
    """Return images of 28 x 28 pixels; digits of 8 x 8 are enlarged threefold.

    >>> squares(np.ones((2, 64))).sum(axis=1)
    array([576., 576.])
    """
    if images.shape[1] == 28 * 28:
        return images
    large = images.reshape(-1, 8, 8).repeat(3, axis=1).repeat(3, axis=2)
    return np.pad(large, ((0, 0), (2, 2), (2, 2))).reshape(len(images), -1)


class Dealt(NamedTuple):
    """Images dealt to clients: to learn from and to be tested on, with classes and clients."""

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    groups_test: np.ndarray


def deal_images(name, m, classes, rng, *, most=None, shape=None):
    """Deal images to m clients of some classes each, and test images of the same classes.

    Clients have as many to learn from, within one, of all or of `most` images, which a function may
    `shape` anew.

    >>> images = deal_images("digits", 10, 3, np.random.default_rng(0))
    >>> images.X.shape, np.unique(np.bincount(images.groups)).tolist()
    ((1442, 64), [144, 145])
    >>> held, tested = ({*y[g == 0].tolist()} for y, g in (images[1:3], images[4:]))
    >>> len(held), held == tested
    (3, True)
    """
    images = load(name)
    chosen = slice(None) if most is None else rng.permutation(len(images.target))[:most]
    y, y_test = images.target[chosen], images.target_test
    groups, held = partition_classes(y, m, classes, rows_per_client="equal", random_state=rng)
    tests, _ = partition_classes(y_test, m, classes, classes=held, random_state=rng)
    X, X_test = images.data[chosen], images.data_test
    if shape is not None:
        X, X_test = shape(X), shape(X_test)
    given = tests >= 0
    return Dealt(X, y, groups, X_test[given], y_test[given], tests[given])


def mean_over_clients(right, groups):
    """Return the mean, over clients with tests, of the share of their tests that are right."""
    count = np.bincount(groups)
    return float((np.bincount(groups, right)[count > 0] / count[count > 0]).mean())
