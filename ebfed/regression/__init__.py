"""Coefficients for every group: one file per estimator."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.regression.adamix import AdaMix as AdaMix
    from ebfed.regression.adamix_classifier import AdaMixClassifier as AdaMixClassifier
    from ebfed.regression.crossed import CrossedEB as CrossedEB
    from ebfed.regression.generalized import GeneralizedEB as GeneralizedEB
    from ebfed.regression.linear import LinearEB as LinearEB
    from ebfed.regression.logistic import LogisticEB as LogisticEB
    from ebfed.regression.mixture_linear import MixtureLinearEB as MixtureLinearEB

__getattr__ = at_first_use(__name__)
