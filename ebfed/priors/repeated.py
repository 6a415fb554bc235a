"""Posteriors of many clients, computed for fewer: distinct ones, or between which others are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.likelihoods import Likelihood, StudentT, join
from ebfed.likelihoods.lattice import Lattice
from ebfed.priors.posterior import Posterior

__all__ = ["InterpolatedPosterior", "RepeatedPosterior", "of_distinct"]

# Fewer clients are as fast one by one.
FEWEST = 10_000
# Errors of interpolation, in standard errors.
PRECISION = 1e-5


def of_distinct(posterior: Callable[[Likelihood], Posterior], likelihood: Likelihood) -> Posterior:
    """Compute posteriors of clients, for fewer than all if that is worth it.

    Of those that have the same data it is once; of many estimates with t errors, at nodes.

    Parameters
    ----------
    posterior : callable
        Function from a likelihood to posteriors, of each client by itself.
    likelihood : Likelihood of n clients

    Returns
    -------
    Posterior of n clients
    """
    if isinstance(likelihood, StudentT) and likelihood.lattice is not None:
        return InterpolatedPosterior(posterior, likelihood, likelihood.lattice)
    numbered = likelihood.numbered() if len(likelihood) >= FEWEST else None
    if numbered is None or 2 * len(numbered[0]) > len(likelihood):
        return posterior(likelihood)
    return RepeatedPosterior(posterior, likelihood, *numbered)


class FewerPosterior(Posterior):
    """Base of posteriors of clients that are known from those of fewer ones.

    Parameters
    ----------
    posterior : callable
        Function from a likelihood to posteriors, of each client by itself.
    likelihood : Likelihood of n clients
    fewer : Posterior
    """

    def __init__(
        self, posterior: Callable[[Likelihood], Posterior], likelihood: Any, fewer: Posterior
    ):
        self._posterior, self.likelihood, self._fewer = posterior, likelihood, fewer
        self._has_points = fewer._has_points
        self.mean = self._of(lambda some: some.mean)

    @abstractmethod
    def _of(self, figures: Callable[[Posterior], NDArray], unit: float | None = None) -> NDArray:
        """Figures of all clients; `unit` is that of errors, a standard error if None."""

    @abstractmethod
    def _needs_all(self, threshold: ArrayLike = 0.0) -> bool:
        """Whether quantiles, or probabilities below thresholds, are those of each client alone."""

    @cached_property
    def _whole(self) -> Posterior:
        """The same, of each client by itself."""
        return self._posterior(self.likelihood)

    @cached_property
    def sd(self) -> NDArray:  # type: ignore[override]
        """Standard deviation of each client, shape (n, d)."""
        return np.maximum(self._of(lambda some: some.sd), 0.0)

    @cached_property
    def expectation(self) -> NDArray:
        return self._of(lambda some: some.expectation)

    def _quantile(self, q: float) -> NDArray:
        return self._whole.quantile(q) if self._needs_all() else self._of(lambda x: x.quantile(q))

    def prob_below(self, threshold: ArrayLike) -> NDArray:
        if self._needs_all(threshold):
            return self._whole.prob_below(threshold)
        return np.clip(self._of(lambda some: some.prob_below(threshold), 1.0), 0.0, 1.0)

    def _prob_from(self, threshold: ArrayLike) -> NDArray:
        if self._needs_all(threshold):
            return self._whole._prob_from(threshold)
        return np.clip(self._of(lambda some: some._prob_from(threshold), 1.0), 0.0, 1.0)

    def sample(self, size: int, random_state: Any = None) -> NDArray:
        return self._whole.sample(size, random_state)


class RepeatedPosterior(FewerPosterior):
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
        self._codes = codes
        super().__init__(posterior, likelihood, posterior(distinct))

    def _spread(self, figures: NDArray) -> NDArray:
        """Figures of each client, from those of the distinct ones."""
        return np.take(figures, self._codes, axis=0)

    def _of(self, figures: Callable[[Posterior], NDArray], unit: float | None = None) -> NDArray:
        return self._spread(figures(self._fewer))

    def _needs_all(self, threshold: ArrayLike = 0.0) -> bool:
        return np.ndim(threshold) > 1  # each client's own

    @cached_property
    def weight(self) -> NDArray | None:  # type: ignore[override]
        """Share of the client's own estimate in its posterior mean, where it is linear."""
        weight = self._fewer.weight
        if weight is None:
            return None
        return self._spread(np.broadcast_to(weight, (len(self._fewer), weight.shape[1])))

    def interval(
        self, level: float = 0.95, kind: Literal["eb", "robust"] = "eb"
    ) -> tuple[NDArray, NDArray]:
        """Interval that holds the parameter with probability `level`; see `Posterior.interval`."""
        lower, upper = self._fewer.interval(level, kind)
        return self._spread(lower), self._spread(upper)


class InterpolatedPosterior(FewerPosterior):
    """Posterior of many estimates, interpolated between the nodes of their `Lattice`.

    Where the last coefficients of the interpolating polynomials say that a figure may be off by
    more than 1e-5 standard errors (a probability by 1e-5), it is computed for each client.
    Quantiles and probabilities of populations with points are always computed for each.

    Parameters
    ----------
    posterior : callable
        Function from a likelihood to posteriors, of each client by itself.
    likelihood : StudentT of n clients
    lattice : Lattice
        Lattice of these.

    Examples
    --------
    >>> from ebfed.priors import Normal
    >>> x = np.random.default_rng(0).normal(0, 2, (30_000, 1))
    >>> messages = StudentT(x, np.ones((30_000, 1)), np.full(30_000, 5.0))
    >>> prior = Normal(0.0, 3.0).fit(messages)
    >>> found = InterpolatedPosterior(prior._posterior, messages, messages.lattice)
    >>> bool(abs(found.mean - prior._posterior(messages).mean).max() < 1e-5)
    True
    """

    def __init__(
        self,
        posterior: Callable[[Likelihood], Posterior],
        likelihood: StudentT,
        lattice: Lattice,
    ):
        self._lattice, variances = lattice, likelihood.variances[:, 0]
        self._between = np.isfinite(variances) & (variances > 0)
        at_lattice, others = likelihood.at_lattice, likelihood.take(~self._between)
        assert at_lattice is not None
        nodes = posterior(join([at_lattice, others]))
        super().__init__(posterior, likelihood, nodes)

    def _of(self, figures: Callable[[Posterior], NDArray], unit: float | None = None) -> NDArray:
        lattice, between = self._lattice, self._between
        at_nodes, others = np.split(figures(self._fewer), [len(lattice)])
        if not np.isfinite(at_nodes).all():
            return figures(self._whole)
        found = np.empty((len(between), at_nodes.shape[1]))
        found[between], found[~between] = lattice.interpolate(at_nodes), others
        units = np.sqrt(self.likelihood.variances[between]) if unit is None else unit
        alone = np.zeros(len(between), bool)
        alone[between] = (lattice.errors(at_nodes) > PRECISION * units).any(axis=1)
        if alone.any():
            found[alone] = figures(self._posterior(self.likelihood.take(alone)))
        return found

    def _needs_all(self, threshold: ArrayLike = 0.0) -> bool:
        return self._has_points or np.ndim(threshold) > 0

    def interval(
        self, level: float = 0.95, kind: Literal["eb", "robust"] = "eb"
    ) -> tuple[NDArray, NDArray]:
        """Interval that holds the parameter with probability `level`; see `Posterior.interval`."""
        if kind == "eb" and not self._has_points:
            return super().interval(level)
        return self._whole.interval(level, kind)
