"""Empirical Bayes on federated and private data.

Many groups, little data in each, data that stays where it is: estimate every group as well as if
the population were known. What is used most is here, the rest in modules: learners are in
`ebfed.learning`, channels in `ebfed.channels`. Names are imported when they are first used, so that
importing the package loads nothing heavy, and a fit what it needs.
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

# Modules of what is rarely used have a name too, and are not listed.
if TYPE_CHECKING:
    from ebfed import channels as channels
    from ebfed import datasets as datasets
    from ebfed import engines as engines
    from ebfed import evaluation, formula, location, regression, tables, theory
    from ebfed import families as families
    from ebfed import learning as learning
    from ebfed import likelihoods as likelihoods
    from ebfed import models as models
    from ebfed import priors as priors
    from ebfed import privacy as privacy
    from ebfed import report as report
    from ebfed import testing as testing
    from ebfed.evaluation import anova as anova
    from ebfed.evaluation import compare as compare
    from ebfed.evaluation import price_of_privacy as price_of_privacy
    from ebfed.formula import from_formula as from_formula
    from ebfed.learning import ClientPrivacy as ClientPrivacy
    from ebfed.loading import load_fit as load_fit
    from ebfed.location import BernoulliEB as BernoulliEB
    from ebfed.location import CategoricalEB as CategoricalEB
    from ebfed.location import DurationEB as DurationEB
    from ebfed.location import GaussianEB as GaussianEB
    from ebfed.location import GroupEncoder as GroupEncoder
    from ebfed.location import MixtureEB as MixtureEB
    from ebfed.location import NegativeBinomialEB as NegativeBinomialEB
    from ebfed.location import OptOutMean as OptOutMean
    from ebfed.location import PoissonEB as PoissonEB
    from ebfed.location import VarianceEB as VarianceEB
    from ebfed.location import moderated_t as moderated_t
    from ebfed.location import posterior_from as posterior_from
    from ebfed.location import two_groups as two_groups
    from ebfed.location.small_areas import fay_herriot as fay_herriot
    from ebfed.location.studies import effect_sizes as effect_sizes
    from ebfed.location.studies import meta_analysis as meta_analysis
    from ebfed.priors import IdentificationWarning as IdentificationWarning
    from ebfed.regression import AdaMix as AdaMix
    from ebfed.regression import AdaMixClassifier as AdaMixClassifier
    from ebfed.regression import CrossedEB as CrossedEB
    from ebfed.regression import GeneralizedEB as GeneralizedEB
    from ebfed.regression import LinearEB as LinearEB
    from ebfed.regression import LogisticEB as LogisticEB
    from ebfed.regression import MixtureLinearEB as MixtureLinearEB
    from ebfed.tables import Summary as Summary
    from ebfed.tables.unseen import UnseenGroupWarning as UnseenGroupWarning

__version__ = "0.2.0"

__getattr__ = at_first_use(__name__)


def __dir__() -> list[str]:
    return [*__getattr__("__all__"), "__version__"]
