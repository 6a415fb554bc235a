"""Images of the experiments: loaded once, dealt to clients by their classes, and accuracies."""

import os
from functools import cache
from pathlib import Path

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


def deal_classes(target, target_test, m, classes, rng, rows="equal"):
    """Deal images to m clients of some classes each; those to be tested on are of the same classes.

    Returns the client of each image to learn from and of each to be tested on, -1 for an image
    without a client, and the classes of each client.
    """
    groups, held = partition_classes(target, m, classes, rows_per_client=rows, random_state=rng)
    tests, _ = partition_classes(target_test, m, classes, classes=held, random_state=rng)
    return groups, tests, held


def mean_over_clients(right, groups):
    """Return the mean, over clients with tests, of the share of their tests that are right."""
    count = np.bincount(groups)
    return float((np.bincount(groups, right)[count > 0] / count[count > 0]).mean())
