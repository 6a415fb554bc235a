"""What the rows of a group are: one family per file.

Estimators, channels, plots, comparisons, formulas and the command line all use a family.
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.families.base import Family, Link
    from ebfed.families.binomial import Binomial
    from ebfed.families.categorical import Categorical
    from ebfed.families.duration import Duration, EndedDuration
    from ebfed.families.gaussian import Gaussian
    from ebfed.families.negative_binomial import NegativeBinomial
    from ebfed.families.poisson import Poisson
    from ebfed.families.variance import Variance

__all__ = [
    "Binomial",
    "Categorical",
    "Duration",
    "EndedDuration",
    "Family",
    "Gaussian",
    "Link",
    "NegativeBinomial",
    "Poisson",
    "Variance",
]

__getattr__ = at_first_use(__name__)
