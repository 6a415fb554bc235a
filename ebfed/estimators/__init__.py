"""Estimators: one file per method."""

from ebfed.estimators.adamix import AdaMix
from ebfed.estimators.adamix_classifier import AdaMixClassifier
from ebfed.estimators.adaped import AdaPeD
from ebfed.estimators.base import Estimator
from ebfed.estimators.bernoulli import BernoulliEB
from ebfed.estimators.ditto import Ditto
from ebfed.estimators.dp_adaped import DPAdaPeD
from ebfed.estimators.dp_fed_avg import DPFedAvg
from ebfed.estimators.fed_avg import FedAvg
from ebfed.estimators.fed_mutual import FedMutual
from ebfed.estimators.feo2 import FeO2
from ebfed.estimators.gaussian import GaussianEB
from ebfed.estimators.joint_dp import JointDPSGD
from ebfed.estimators.learner import Learner
from ebfed.estimators.linear import LinearEB
from ebfed.estimators.linear_posterior import CoefficientPosterior
from ebfed.estimators.local_only import LocalOnly
from ebfed.estimators.logistic import LogisticEB
from ebfed.estimators.mixture import MixtureEB
from ebfed.estimators.mixture_linear import MixtureLinearEB
from ebfed.estimators.opt_out import OptOutMean
from ebfed.estimators.per_fed_avg import PerFedAvg
from ebfed.estimators.pfedme import PFedMe
from ebfed.estimators.ppsgd import PPSGD
from ebfed.estimators.quped import QuPeD
from ebfed.estimators.shrinkage import posterior_from

__all__ = [
    "PPSGD",
    "AdaMix",
    "AdaMixClassifier",
    "AdaPeD",
    "BernoulliEB",
    "CoefficientPosterior",
    "DPAdaPeD",
    "DPFedAvg",
    "Ditto",
    "Estimator",
    "FeO2",
    "FedAvg",
    "FedMutual",
    "GaussianEB",
    "JointDPSGD",
    "Learner",
    "LinearEB",
    "LocalOnly",
    "LogisticEB",
    "MixtureEB",
    "MixtureLinearEB",
    "OptOutMean",
    "PFedMe",
    "PerFedAvg",
    "QuPeD",
    "posterior_from",
]
