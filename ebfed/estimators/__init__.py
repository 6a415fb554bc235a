"""Estimators: one file per method."""

from ebfed.estimators.adamix import AdaMix
from ebfed.estimators.adamix_classifier import AdaMixClassifier
from ebfed.estimators.base import Estimator
from ebfed.estimators.bernoulli import BernoulliEB
from ebfed.estimators.gaussian import GaussianEB, posterior_from
from ebfed.estimators.linear import LinearEB
from ebfed.estimators.linear_posterior import CoefficientPosterior
from ebfed.estimators.logistic import LogisticEB
from ebfed.estimators.mixture import MixtureEB
from ebfed.estimators.mixture_linear import MixtureLinearEB
from ebfed.estimators.opt_out import OptOutMean

__all__ = [
    "AdaMix",
    "AdaMixClassifier",
    "BernoulliEB",
    "CoefficientPosterior",
    "Estimator",
    "GaussianEB",
    "LinearEB",
    "LogisticEB",
    "MixtureEB",
    "MixtureLinearEB",
    "OptOutMean",
    "posterior_from",
]
