"""Populations that parameters are drawn from: one file per family.

Where a prior is an argument, it is fitted to the data unless it is fitted already: then it is used
as it is. ``GaussianEB(prior=past.prior_).fit(X, groups=groups)`` shrinks new groups to the
population of the past, with the populations that the past left plausible and, if no other is given,
with its noise variance. So does ``posterior_from(estimates, std_errors, prior=past.prior_)``. A
clone of a fitted prior is fitted, and so is the prior of a cloned estimator. `Prior.unfitted`
returns a prior with the same arguments that is to be fitted; after `Prior.set_params` with other
arguments a prior is to be fitted, too.
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.priors.base import Prior as Prior
    from ebfed.priors.beta import Beta as Beta
    from ebfed.priors.dirichlet import Dirichlet as Dirichlet
    from ebfed.priors.dirichlet_mixture import DirichletMixture as DirichletMixture
    from ebfed.priors.discrete import Discrete as Discrete
    from ebfed.priors.gamma import Gamma as Gamma
    from ebfed.priors.gaussian_mixture import GaussianMixture as GaussianMixture
    from ebfed.priors.identification import IdentificationWarning as IdentificationWarning
    from ebfed.priors.inverse_gamma import InverseGamma as InverseGamma
    from ebfed.priors.location_scale import LocationScale as LocationScale
    from ebfed.priors.log_spline import LogSpline as LogSpline
    from ebfed.priors.normal import Normal as Normal
    from ebfed.priors.posterior import Posterior as Posterior
    from ebfed.priors.spike_and_slab import Laplace as Laplace
    from ebfed.priors.spike_and_slab import PointLaplace as PointLaplace
    from ebfed.priors.spike_and_slab import PointNormal as PointNormal
    from ebfed.priors.symmetric import ScaleMixture as ScaleMixture

__getattr__ = at_first_use(__name__)
