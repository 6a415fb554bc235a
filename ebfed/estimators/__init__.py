"""Estimators: one file per method."""

from ebfed.estimators.base import Estimator
from ebfed.estimators.bernoulli import BernoulliEB
from ebfed.estimators.gaussian import GaussianEB, posterior_from
from ebfed.estimators.opt_out import OptOutMean

__all__ = ["BernoulliEB", "Estimator", "GaussianEB", "OptOutMean", "posterior_from"]
