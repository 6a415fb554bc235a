"""The fit of a population, made again with other figures or another method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from sklearn.base import clone

from ebfed.location.learned import Learned
from ebfed.tables.clients import Summary
from ebfed.tables.levels import names_of_parents

__all__ = ["Refit"]


@dataclass(frozen=True)
class Refit:
    """A fit that can be made again, with the covariates of its groups.

    Attributes
    ----------
    estimator : LocationEstimator
        The fitted estimator.
    learned : Learned
    """

    estimator: Any
    learned: Learned

    def means(self, summary: Summary, **settings: Any) -> NDArray:
        """Posterior means of a fit to this summary, with other arguments by name."""
        return self._again(summary, settings).posterior().mean

    def maximum(self) -> float:
        """Log marginal likelihood of the same rows, fitted by maximum likelihood."""
        learned = self.learned
        settings = {
            "prior": clone(learned.prior).set_params(method="ml"),
            "channel": None,
            "engine": None,
            "participation": learned.memory["turn"] >= 0,
        }
        return self._again(learned.summaries, settings).log_likelihood_

    def _again(self, summary: Summary, settings: dict[str, Any]) -> Any:
        covariates = self.learned.memory["covariates"]
        parents = names_of_parents(self.learned.covariate_names)  # labels of groups tell them
        given = covariates if covariates.shape[1] and not parents else None
        again = clone(self.estimator).set_params(**settings)
        if again.mean_model is not None:  # covariates are its predictions
            again.set_params(mean_model=None)
        return again.fit(summary, covariates=given)
