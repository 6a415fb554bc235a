"""Estimators: one file per method."""

from ebfed.estimators.base import Estimator
from ebfed.estimators.bernoulli import BernoulliEB
from ebfed.estimators.gaussian import GaussianEB, posterior_from

__all__ = ["BernoulliEB", "Estimator", "GaussianEB", "posterior_from"]
