"""Populations that parameters are drawn from: one file per family."""

from ebfed.priors.base import IdentificationWarning, Prior
from ebfed.priors.beta import Beta
from ebfed.priors.discrete import Discrete
from ebfed.priors.normal import Normal
from ebfed.priors.posterior import Posterior

__all__ = ["Beta", "Discrete", "IdentificationWarning", "Normal", "Posterior", "Prior"]
