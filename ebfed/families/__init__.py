"""What the rows of a group are: one family per file.

Estimators, channels, plots, comparisons, formulas and the command line all use a family.
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.families.base import Family as Family
    from ebfed.families.base import Link as Link
    from ebfed.families.binomial import Binomial as Binomial
    from ebfed.families.categorical import Categorical as Categorical
    from ebfed.families.duration import Duration as Duration
    from ebfed.families.duration import EndedDuration as EndedDuration
    from ebfed.families.gaussian import Gaussian as Gaussian
    from ebfed.families.negative_binomial import NegativeBinomial as NegativeBinomial
    from ebfed.families.poisson import Poisson as Poisson
    from ebfed.families.variance import Variance as Variance

__getattr__ = at_first_use(__name__)
