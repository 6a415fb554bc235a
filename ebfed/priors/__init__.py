"""Populations that parameters are drawn from: one file per family."""

from ebfed.priors.base import IdentificationWarning, Prior
from ebfed.priors.beta import Beta
from ebfed.priors.dirichlet import Dirichlet
from ebfed.priors.discrete import Discrete
from ebfed.priors.gamma import Gamma
from ebfed.priors.gaussian_mixture import GaussianMixture
from ebfed.priors.inverse_gamma import InverseGamma
from ebfed.priors.laplace import Laplace
from ebfed.priors.log_spline import LogSpline
from ebfed.priors.normal import Normal
from ebfed.priors.point_laplace import PointLaplace
from ebfed.priors.point_normal import PointNormal
from ebfed.priors.posterior import Posterior
from ebfed.priors.scale_mixture import ScaleMixture

__all__ = [
    "Beta",
    "Dirichlet",
    "Discrete",
    "Gamma",
    "GaussianMixture",
    "IdentificationWarning",
    "InverseGamma",
    "Laplace",
    "LogSpline",
    "Normal",
    "PointLaplace",
    "PointNormal",
    "Posterior",
    "Prior",
    "ScaleMixture",
]
