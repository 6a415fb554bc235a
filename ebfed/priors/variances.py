"""Posteriors of variances, from those of their logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.priors.discrete_posterior import DiscretePosterior
from ebfed.priors.integrated import IntegratedPosterior
from ebfed.priors.inverse_gamma import LogVariancePosterior
from ebfed.priors.posterior import Posterior

__all__ = ["VariancePosterior"]


class VariancePosterior(Posterior):
    """Posterior of variances ``exp(theta)``.

    The estimate (`mean`) is ``1 / E(1 / variance)``, as in limma: the mean itself may be infinite.
    With an inverse gamma population it is ``(d0 s0**2 + d s**2) / (d0 + d)``. Where messages are
    reports of a channel, it is the average of this over the plausible populations. `sd` is the
    standard deviation of the logarithm times the estimate. Quantiles, intervals and probabilities
    are exact.

    Parameters
    ----------
    logs : Posterior
        Posterior of the logarithms.

    Examples
    --------
    >>> from ebfed.likelihoods import LogVariance
    >>> from ebfed.priors import InverseGamma
    >>> messages = LogVariance(np.array([[8.0], [40.0]]), np.array([4.0, 4.0]))
    >>> prior = InverseGamma(df=4.0, variance=4.0).fit(messages)
    >>> VariancePosterior(prior.posterior(messages)).mean.ravel()  # (16 + 8) / 8, (16 + 40) / 8
    array([3., 7.])
    """

    def __init__(self, logs: Posterior):
        self.logs = logs
        self._has_points, self.prior = logs._has_points, logs.prior
        local = {name: np.exp(logs._columns[name]) for name in ("local",) if name in logs._columns}
        self.labelled(logs._ids, {**logs._columns, **local}, logs._style, logs._terms)
        self.mean = _estimate(logs)
        self.weight = getattr(getattr(logs, "_fitted", logs), "own_share", None)

    @property
    def sd(self) -> NDArray:  # type: ignore[override]
        """Standard deviation of the logarithm times the estimate, shape (n, d)."""
        return self.mean * self.logs.sd

    def _quantile(self, q: float) -> NDArray:
        return np.exp(self.logs.quantile(q))

    def prob_below(self, threshold: ArrayLike) -> NDArray:
        """Probability that a variance is at most `threshold`, shape (n, d)."""
        return self.logs.prob_below(_log(threshold))

    def _prob_from(self, threshold: ArrayLike) -> NDArray:
        return self.logs._prob_from(_log(threshold))

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's variance, shape (size, n, d)."""
        return np.exp(self.logs.sample(size, random_state))


def _log(threshold: ArrayLike) -> NDArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(threshold, float) > 0, np.log(threshold), -np.inf)


def _estimate(logs: Posterior) -> NDArray:
    """``1 / E exp(-theta)`` under the fitted population, or averaged as estimates are.

    Of groups without rows the precision has no mean under the widest plausible populations.
    """
    if isinstance(logs, IntegratedPosterior):
        return logs.of_estimates(_estimate)
    if isinstance(logs, LogVariancePosterior):
        with np.errstate(divide="ignore"):
            return 1 / logs.mean_precision
    if isinstance(logs, DiscretePosterior):
        precisions = np.exp(-logs.atoms)
        return 1 / logs._rows(lambda weights: np.einsum("ij,jd->id", weights, precisions))
    raise TypeError(f"{type(logs).__name__} has no estimate of a variance.")
