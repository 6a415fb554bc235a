"""A parameter for every group, estimated in one round: one file per estimator."""

from ebfed.location.bernoulli import BernoulliEB
from ebfed.location.gaussian import GaussianEB
from ebfed.location.mixture import MixtureEB
from ebfed.location.opt_out import OptOutMean
from ebfed.location.poisson import PoissonEB
from ebfed.location.shrinkage import posterior_from

__all__ = ["BernoulliEB", "GaussianEB", "MixtureEB", "OptOutMean", "PoissonEB", "posterior_from"]
