"""What a message says about a client's parameter: one file per law."""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.likelihoods.base import Joined as Joined
    from ebfed.likelihoods.base import Likelihood as Likelihood
    from ebfed.likelihoods.base import join as join
    from ebfed.likelihoods.binomial import Binomial as Binomial
    from ebfed.likelihoods.binomial import ReportedCounts as ReportedCounts
    from ebfed.likelihoods.gaussian import Gaussian as Gaussian
    from ebfed.likelihoods.log_variance import LogVariance as LogVariance
    from ebfed.likelihoods.log_variance import ReportedLogVariances as ReportedLogVariances
    from ebfed.likelihoods.multinomial import Multinomial as Multinomial
    from ebfed.likelihoods.multinomial import ReportedCategories as ReportedCategories
    from ebfed.likelihoods.poisson import Durations as Durations
    from ebfed.likelihoods.poisson import NegativeBinomial as NegativeBinomial
    from ebfed.likelihoods.poisson import Poisson as Poisson
    from ebfed.likelihoods.poisson import ReportedEvents as ReportedEvents
    from ebfed.likelihoods.poisson import ReportedOverdispersed as ReportedOverdispersed
    from ebfed.likelihoods.poisson import ReportedRates as ReportedRates
    from ebfed.likelihoods.reported import Reported as Reported
    from ebfed.likelihoods.reported import ReportedMeans as ReportedMeans
    from ebfed.likelihoods.student_t import StudentT as StudentT

__getattr__ = at_first_use(__name__)
