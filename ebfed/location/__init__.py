"""A parameter for every group, estimated in one round: one file per estimator."""

from ebfed.location.bernoulli import BernoulliEB
from ebfed.location.categorical import CategoricalEB
from ebfed.location.duration import DurationEB
from ebfed.location.effect_sizes import effect_sizes
from ebfed.location.encoder import GroupEncoder
from ebfed.location.fay_herriot import FayHerriot, fay_herriot
from ebfed.location.gaussian import GaussianEB
from ebfed.location.meta_analysis import MetaAnalysis, meta_analysis
from ebfed.location.mixture import MixtureEB
from ebfed.location.moderated import ModeratedT, moderated_t
from ebfed.location.negative_binomial import NegativeBinomialEB
from ebfed.location.nulls import TwoGroups, two_groups
from ebfed.location.opt_out import OptOutMean
from ebfed.location.poisson import PoissonEB
from ebfed.location.precision import dependence
from ebfed.location.rounds import LocationRounds
from ebfed.location.shrinkage import posterior_from
from ebfed.location.variance import VarianceEB

__all__ = [
    "BernoulliEB",
    "CategoricalEB",
    "DurationEB",
    "FayHerriot",
    "GaussianEB",
    "GroupEncoder",
    "LocationRounds",
    "MetaAnalysis",
    "MixtureEB",
    "ModeratedT",
    "NegativeBinomialEB",
    "OptOutMean",
    "PoissonEB",
    "TwoGroups",
    "VarianceEB",
    "dependence",
    "effect_sizes",
    "fay_herriot",
    "meta_analysis",
    "moderated_t",
    "posterior_from",
    "two_groups",
]
