"""A parameter for every group, estimated in one round: one file per estimator."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.location.bernoulli import BernoulliEB as BernoulliEB
    from ebfed.location.categorical import CategoricalEB as CategoricalEB
    from ebfed.location.duration import DurationEB as DurationEB
    from ebfed.location.encoder import GroupEncoder as GroupEncoder
    from ebfed.location.gaussian import GaussianEB as GaussianEB
    from ebfed.location.mixture import MixtureEB as MixtureEB
    from ebfed.location.moderated import ModeratedT as ModeratedT
    from ebfed.location.moderated import moderated_t as moderated_t
    from ebfed.location.negative_binomial import NegativeBinomialEB as NegativeBinomialEB
    from ebfed.location.nulls import TwoGroups as TwoGroups
    from ebfed.location.nulls import two_groups as two_groups
    from ebfed.location.opt_out import OptOutMean as OptOutMean
    from ebfed.location.poisson import PoissonEB as PoissonEB
    from ebfed.location.precision import dependence as dependence
    from ebfed.location.rounds import LocationRounds as LocationRounds
    from ebfed.location.shrinkage import posterior_from as posterior_from
    from ebfed.location.small_areas import FayHerriot as FayHerriot
    from ebfed.location.small_areas import fay_herriot as fay_herriot
    from ebfed.location.studies import MetaAnalysis as MetaAnalysis
    from ebfed.location.studies import effect_sizes as effect_sizes
    from ebfed.location.studies import meta_analysis as meta_analysis
    from ebfed.location.variance import VarianceEB as VarianceEB

__getattr__ = at_first_use(__name__)
