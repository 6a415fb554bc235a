"""What the rows of a group are: one family per file.

A family is an object that everything else asks: estimators, channels that choose what to ask,
plots, comparisons, formulas and the command line.
"""

from ebfed.families.base import Family, Link
from ebfed.families.binomial import Binomial
from ebfed.families.gaussian import Gaussian
from ebfed.families.poisson import Poisson

__all__ = ["Binomial", "Family", "Gaussian", "Link", "Poisson"]
