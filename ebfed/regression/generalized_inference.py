"""Degrees of freedom of a generalized linear model: what its fit says of nearby spreads.

See `ebfed.inference.spread_degrees`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ebfed.inference.degrees_of_freedom import FixedDegrees, Inference
from ebfed.inference.spread_degrees import NearbySpreads, SpreadDegrees
from ebfed.regression.generalized_profile import GeneralizedProfile

if TYPE_CHECKING:
    from ebfed.regression.generalized import GeneralizedEB
    from ebfed.regression.logistic import LogisticEB

__all__ = ["degrees_of_generalized"]


def degrees_of_generalized(fit: GeneralizedEB | LogisticEB) -> Inference:
    """Return standard errors and degrees of freedom of a fit by quadrature, or Laplace's method.

    Parameters
    ----------
    fit : GeneralizedEB or LogisticEB
        A fit with the rows of all groups.
    """
    result = fit._result
    if not len(result["node_weights"]):  # of many groups
        return FixedDegrees(fit.mean_, fit.mean_covariance_, np.inf)
    profile = GeneralizedProfile(fit)
    covariances = []
    for k, mean in enumerate(result["node_means"]):
        roots = [each[k] for each in result["node_roots"]]
        covariances.append(profile.covariance_given(mean, [root @ root.T for root in roots]))
    nearby = NearbySpreads(
        profile.covariance_given(fit.mean_, profile.covariances),
        result["node_weights"],
        result["node_parameters"],
        np.array(covariances),
        result["node_means"] - fit.mean_,
    )
    return SpreadDegrees(fit.mean_, nearby)
