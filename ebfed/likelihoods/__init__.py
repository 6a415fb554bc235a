"""What a message says about a client's parameter: one file per law."""

from ebfed.likelihoods.base import Likelihood
from ebfed.likelihoods.binomial import Binomial
from ebfed.likelihoods.gaussian import Gaussian
from ebfed.likelihoods.joined import Joined, join
from ebfed.likelihoods.reported import Reported, ReportedCounts, ReportedMeans

__all__ = [
    "Binomial",
    "Gaussian",
    "Joined",
    "Likelihood",
    "Reported",
    "ReportedCounts",
    "ReportedMeans",
    "join",
]
