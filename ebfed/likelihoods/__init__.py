"""What a message says about a client's parameter: one file per law."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.likelihoods.base import Likelihood
    from ebfed.likelihoods.binomial import Binomial, ReportedCounts
    from ebfed.likelihoods.durations import Durations, ReportedRates
    from ebfed.likelihoods.gaussian import Gaussian
    from ebfed.likelihoods.joined import Joined, join
    from ebfed.likelihoods.log_variance import LogVariance, ReportedLogVariances
    from ebfed.likelihoods.multinomial import Multinomial
    from ebfed.likelihoods.negative_binomial import NegativeBinomial, ReportedOverdispersed
    from ebfed.likelihoods.poisson import Poisson, ReportedEvents
    from ebfed.likelihoods.reported import Reported, ReportedMeans
    from ebfed.likelihoods.reported_categories import ReportedCategories
    from ebfed.likelihoods.student_t import StudentT

__all__ = [
    "Binomial",
    "Durations",
    "Gaussian",
    "Joined",
    "Likelihood",
    "LogVariance",
    "Multinomial",
    "NegativeBinomial",
    "Poisson",
    "Reported",
    "ReportedCategories",
    "ReportedCounts",
    "ReportedEvents",
    "ReportedLogVariances",
    "ReportedMeans",
    "ReportedOverdispersed",
    "ReportedRates",
    "StudentT",
    "join",
]

__getattr__ = at_first_use(__name__)
