"""Data sets: elections, images, groups simulated from known populations, and partitions.

The loaders read what the package and its dependencies ship and need no network; the functions
named ``fetch_...`` may ask for it, and those named ``read_...`` read files that others published.
The simulators return plain arrays: the rows of all groups side by side, the group of each row, and
the parameters that made them, so that an estimate can be compared with the truth. The partitions
deal labelled rows to clients.
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.datasets.counties import fetch_county_returns as fetch_county_returns
    from ebfed.datasets.counties import load_county_outcomes as load_county_outcomes
    from ebfed.datasets.counties import load_county_patterns as load_county_patterns
    from ebfed.datasets.counties import load_county_patterns_2024 as load_county_patterns_2024
    from ebfed.datasets.counties import tidy_county_returns as tidy_county_returns
    from ebfed.datasets.groups import make_bernoulli_groups as make_bernoulli_groups
    from ebfed.datasets.groups import make_gaussian_groups as make_gaussian_groups
    from ebfed.datasets.images import fetch_fashion_mnist as fetch_fashion_mnist
    from ebfed.datasets.images import fetch_mnist as fetch_mnist
    from ebfed.datasets.images import load_digits as load_digits
    from ebfed.datasets.learning import AdditiveRegression as AdditiveRegression
    from ebfed.datasets.learning import make_additive_regression as make_additive_regression
    from ebfed.datasets.partitions import choose_opted_out as choose_opted_out
    from ebfed.datasets.partitions import partition_classes as partition_classes
    from ebfed.datasets.partitions import partition_dirichlet as partition_dirichlet
    from ebfed.datasets.partitions import partition_single_class as partition_single_class
    from ebfed.datasets.published import read_cifar as read_cifar
    from ebfed.datasets.published import read_idx as read_idx
    from ebfed.datasets.published import read_leaf as read_leaf
    from ebfed.datasets.published import read_tff as read_tff
    from ebfed.datasets.shapes import fetch_county_shapes as fetch_county_shapes
    from ebfed.datasets.shipped import load_batting as load_batting

__getattr__ = at_first_use(__name__)
