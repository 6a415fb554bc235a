"""Degrees of freedom of a generalized linear model: what its fit says of nearby spreads.

See `ebfed.inference.spread_degrees`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ebfed.inference.degrees_of_freedom import FixedDegrees, Inference, Method
from ebfed.inference.spread_degrees import NearbySpreads, SpreadDegrees
from ebfed.regression.base import RegressionEstimator
from ebfed.regression.criteria import QuadratureCriterion
from ebfed.regression.inferring import check_rows_of_all, has_rows_of_all

__all__ = ["degrees_of_generalized"]


def degrees_of_generalized(self: Any, ddf: Method | None) -> Inference:
    """Return what `inference` does of a generalized linear model of groups."""
    if ddf not in (None, "satterthwaite", "asymptotic"):
        raise ValueError(
            f"ddf must be 'satterthwaite' or 'asymptotic' for {type(self).__name__}; got {ddf!r}."
        )
    if ddf == "satterthwaite":
        check_rows_of_all(self, f"ddf={ddf!r}")
    if ddf == "satterthwaite" and "node_weights" not in self._result:
        raise ValueError(
            f"ddf={ddf!r} needs a fit whose likelihood has a maximum, not that of "
            "method='gradient'; 'asymptotic' is for z tests."
        )
    known = has_rows_of_all(self) and "node_weights" in self._result
    if ddf == "asymptotic" or not known or not len(self._of_mean):
        return FixedDegrees(self.mean_, self.mean_covariance_, np.inf)
    return _degrees(self)


def _degrees(fit: RegressionEstimator) -> Inference:
    """Return standard errors and degrees of freedom of a fit with a finite maximum.

    Parameters
    ----------
    fit : GeneralizedEB or LogisticEB
        A fit with the rows of all groups.
    """
    result = fit._result
    if not len(result["node_weights"]):  # of many groups
        return FixedDegrees(fit.mean_, fit.mean_covariance_, np.inf)
    criterion = QuadratureCriterion(fit)
    above = result.get("above", ())
    covariances = []
    for k, mean in enumerate(result["node_means"]):
        roots = [each[k] for each in result["node_roots"]]
        covariances.append(criterion.covariance_given(mean, [root @ root.T for root in roots]))
    nearby = NearbySpreads(
        criterion.covariance_given(fit.mean_, [*above, result["covariance"]]),
        result["node_weights"],
        result["node_parameters"],
        np.array(covariances),
        result["node_means"] - fit.mean_,
    )
    return SpreadDegrees(fit.mean_, nearby)
