"""Posteriors of many clients, computed once for all that have the same data."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.likelihoods import Likelihood
from ebfed.priors.posterior import Posterior

__all__ = ["RepeatedPosterior", "of_distinct"]

# Fewer clients are as fast one by one.
FEWEST = 10_000


def of_distinct(posterior: Callable[[Likelihood], Posterior], likelihood: Likelihood) -> Posterior:
    """Compute posteriors of clients, once for all that have the same data if that is worth it.

    Parameters
    ----------
    posterior : callable
        Function from a likelihood to posteriors, of each client by itself.
    likelihood : Likelihood of n clients

    Returns
    -------
    Posterior of n clients
    """
    numbered = likelihood.numbered() if len(likelihood) >= FEWEST else None
    if numbered is None or 2 * len(numbered[0]) > len(likelihood):
        return posterior(likelihood)
    return RepeatedPosterior(posterior, likelihood, *numbered)


class RepeatedPosterior(Posterior):
    """Posterior of clients of whom many have the same data.

    Parameters
    ----------
    posterior : callable
        Function from a likelihood to posteriors, of each client by itself.
    likelihood : Likelihood of n clients
    distinct : Likelihood of k clients
        Those whose data differ.
    codes : int64 ndarray of shape (n,)
        Which of them each client is like.

    Examples
    --------
    >>> from ebfed.likelihoods import Binomial
    >>> from ebfed.priors import Beta
    >>> counts = Binomial(np.array([[1], [4], [1]]), np.array([10, 10, 10]))
    >>> prior = Beta(2.0, 2.0).fit(counts)
    >>> RepeatedPosterior(prior.posterior, counts, *counts.numbered()).mean.ravel().round(3)
    array([0.214, 0.429, 0.214])
    """

    def __init__(
        self,
        posterior: Callable[[Likelihood], Posterior],
        likelihood: Likelihood,
        distinct: Likelihood,
        codes: NDArray,
    ):
        self._posterior, self.likelihood = posterior, likelihood
        self._distinct, self._codes = posterior(distinct), codes
        self._has_points = self._distinct._has_points
        self.mean = self._spread(self._distinct.mean)

    def _spread(self, figures: NDArray) -> NDArray:
        """Figures of each client, from those of the distinct ones."""
        return np.take(figures, self._codes, axis=0)

    @cached_property
    def _whole(self) -> Posterior:
        """The same, of each client by itself."""
        return self._posterior(self.likelihood)

    def __len__(self) -> int:
        """Count the clients."""
        return len(self._codes)

    @cached_property
    def sd(self) -> NDArray:  # type: ignore[override]
        """Standard deviation of each client, shape (n, d)."""
        return self._spread(self._distinct.sd)

    @cached_property
    def weight(self) -> NDArray | None:  # type: ignore[override]
        """Share of the client's own estimate in its posterior mean, where it is linear."""
        weight = self._distinct.weight
        if weight is None:
            return None
        return self._spread(np.broadcast_to(weight, (len(self._distinct), weight.shape[1])))

    @property
    def expectation(self) -> NDArray:
        """Mean of the posterior, shape (n, d)."""
        return self._spread(self._distinct.expectation)

    def _quantile(self, q: float) -> NDArray:
        return self._spread(self._distinct.quantile(q))

    def prob_below(self, threshold: ArrayLike) -> NDArray:
        """Probability that a coordinate is at most `threshold`, shape (n, d)."""
        if np.ndim(threshold) > 1:  # each client's own
            return self._whole.prob_below(threshold)
        return self._spread(self._distinct.prob_below(threshold))

    def _prob_from(self, threshold: ArrayLike) -> NDArray:
        if np.ndim(threshold) > 1:
            return self._whole._prob_from(threshold)
        return self._spread(self._distinct._prob_from(threshold))

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        """Draw `size` values of each client's parameter, shape (size, n, d)."""
        return self._whole.sample(size, random_state)

    def interval(
        self, level: float = 0.95, kind: Literal["eb", "robust"] = "eb"
    ) -> tuple[NDArray, NDArray]:
        """Interval that holds the parameter with probability `level`; see `Posterior.interval`."""
        lower, upper = self._distinct.interval(level, kind)
        return self._spread(lower), self._spread(upper)
