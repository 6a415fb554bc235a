"""Families of generalized linear models: what a row's response says of its linear predictor.

One file per family. (The families of `ebfed.families` are of rows whose groups have one parameter
each, which is estimated without covariates of rows.)
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.regression.families.base import ResponseFamily, Responses
    from ebfed.regression.families.binomial import Binomial
    from ebfed.regression.families.gamma import Gamma
    from ebfed.regression.families.named import FAMILIES, family_named
    from ebfed.regression.families.negative_binomial import NegativeBinomial
    from ebfed.regression.families.ordinal import Ordinal
    from ebfed.regression.families.poisson import Poisson

__all__ = [
    "FAMILIES",
    "Binomial",
    "Gamma",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "ResponseFamily",
    "Responses",
    "family_named",
]

__getattr__ = at_first_use(__name__)
