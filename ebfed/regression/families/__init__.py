"""Families of generalized linear models: what a row's response says of its linear predictor.

One file per family. (The families of `ebfed.families` are of rows whose groups have one parameter
each, which is estimated without covariates of rows.)
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.regression.families.base import ResponseFamily as ResponseFamily
    from ebfed.regression.families.base import Responses as Responses
    from ebfed.regression.families.binomial import Binomial as Binomial
    from ebfed.regression.families.binomial import BinomialLink as BinomialLink
    from ebfed.regression.families.gamma import Gamma as Gamma
    from ebfed.regression.families.named import FAMILIES as FAMILIES
    from ebfed.regression.families.named import family_named as family_named
    from ebfed.regression.families.negative_binomial import NegativeBinomial as NegativeBinomial
    from ebfed.regression.families.ordinal import Ordinal as Ordinal
    from ebfed.regression.families.poisson import Poisson as Poisson

__getattr__ = at_first_use(__name__)
