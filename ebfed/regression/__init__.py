"""Coefficients for every group: one file per estimator."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.regression.adamix import AdaMix
    from ebfed.regression.adamix_classifier import AdaMixClassifier
    from ebfed.regression.crossed import CrossedEB
    from ebfed.regression.generalized import GeneralizedEB
    from ebfed.regression.linear import LinearEB
    from ebfed.regression.logistic import LogisticEB
    from ebfed.regression.mixture_linear import MixtureLinearEB

__all__ = [
    "AdaMix",
    "AdaMixClassifier",
    "CrossedEB",
    "GeneralizedEB",
    "LinearEB",
    "LogisticEB",
    "MixtureLinearEB",
]

__getattr__ = at_first_use(__name__)
