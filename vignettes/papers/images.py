"""Images of the experiments: loaded once, dealt to clients by their classes, and accuracies."""

from functools import cache

import numpy as np

from ebfed.datasets import fetch_fashion_mnist, fetch_mnist, load_digits, partition_classes

FETCH = {"mnist": fetch_mnist, "fashion-mnist": fetch_fashion_mnist, "digits": load_digits}


@cache
def load(name):
    """Load a collection by its name, in capitals or not."""
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
