"""What a message says about a client's parameter: one file per law."""

from ebfed.likelihoods.base import Likelihood
from ebfed.likelihoods.binomial import Binomial
from ebfed.likelihoods.gaussian import Gaussian

__all__ = ["Binomial", "Gaussian", "Likelihood"]
