"""Data sets: elections, images, groups simulated from known populations, and partitions.

The loaders read what the package and its dependencies ship and need no network; the functions
named ``fetch_...`` may ask for it, and those named ``read_...`` read files that others published.
The simulators return plain arrays: the rows of all groups side by side, the group of each row, and
the parameters that made them, so that an estimate can be compared with the truth. The partitions
deal labelled rows to clients.
"""

from ebfed.datasets.batting import load_batting
from ebfed.datasets.counties import (
    fetch_county_returns,
    load_county_outcomes,
    load_county_patterns,
    load_county_patterns_2024,
    tidy_county_returns,
)
from ebfed.datasets.groups import make_bernoulli_groups, make_gaussian_groups
from ebfed.datasets.images import fetch_fashion_mnist, fetch_mnist, load_digits
from ebfed.datasets.learning import AdditiveRegression, make_additive_regression
from ebfed.datasets.partitions import (
    choose_opted_out,
    partition_classes,
    partition_dirichlet,
    partition_single_class,
)
from ebfed.datasets.published import read_cifar, read_idx, read_leaf, read_tff
from ebfed.datasets.shapes import fetch_county_shapes

__all__ = [
    "AdditiveRegression",
    "choose_opted_out",
    "fetch_county_returns",
    "fetch_county_shapes",
    "fetch_fashion_mnist",
    "fetch_mnist",
    "load_batting",
    "load_county_outcomes",
    "load_county_patterns",
    "load_county_patterns_2024",
    "load_digits",
    "make_additive_regression",
    "make_bernoulli_groups",
    "make_gaussian_groups",
    "partition_classes",
    "partition_dirichlet",
    "partition_single_class",
    "read_cifar",
    "read_idx",
    "read_leaf",
    "read_tff",
    "tidy_county_returns",
]
