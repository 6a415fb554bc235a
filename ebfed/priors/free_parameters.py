"""Marginal likelihood of the parameters that a prior states to be free: its peak, and what is near.

A `Prior` without closed forms states which parameters are learned and how they lie (`Prior.free`).
Their likelihood is integrated over nodes of theta, or, where a population is too narrow for these,
over nodes of its own. Newton's method finds the peak where EM is slow, as where a spread is nearly
zero; a lattice around the peak has the populations that the messages leave plausible.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Likelihood
from ebfed.priors.exploration import explore, thinned
from ebfed.priors.search import maximise

__all__ = ["FreeParameters", "relative_likelihoods"]

# Plausible populations that are held.
MOST = 200
# Standard deviation of a population, in distances of nodes, below which it counts as a point, and
# below which it is integrated over nodes of its own.
POINT, COARSE = 0.05, 3.0
# Least spread, which is as good as none.
TINIEST = 1e-6


class FreeParameters:
    """Free parameters of a prior that was fitted to messages, or is nearly.

    Points are parameters on the scales on which they lie: the logarithm of a positive one.

    Parameters
    ----------
    prior : Prior
    rows : Likelihood of n different messages
    counts : ndarray of shape (n,)
        How many clients sent each.
    """

    def __init__(self, prior: Any, rows: Likelihood, counts: NDArray):
        self.prior, self.rows, self.counts = prior, rows, counts
        kinds = np.array([*prior.free.values()])
        if len(kinds) > 3 or not set(kinds) <= {"line", "positive", "spread"}:
            raise ValueError(
                "free must have at most three parameters, each on the 'line', 'positive' or a "
                f"'spread'; got {dict(prior.free)!r}."
            )
        self.positive, self.spreads = kinds == "positive", kinds == "spread"

    @cached_property
    def table(self) -> tuple[NDArray, NDArray, NDArray]:
        """Nodes, likelihoods there over the largest of each message, and logarithms of these."""
        atoms = self.prior._nodes(self.rows, *self.prior.support)
        return atoms, *relative_likelihoods(self.rows.logpdf(atoms))

    @property
    def point(self) -> NDArray:
        """The point where the prior is, shape (p,)."""
        values = [np.ravel(getattr(self.prior, f"{name}_"))[0] for name in self.prior.free]
        at = np.array(values, float)
        return np.where(self.positive, np.log(np.where(self.positive, at, 1.0)), at)

    def named(self, points: NDArray) -> dict[str, NDArray]:
        """Return the parameters of points, shape (..., p), by name."""
        values = np.where(self.positive, np.exp(points), points)
        return dict(zip(self.prior.free, np.moveaxis(values, -1, 0), strict=True))

    def log_density(self, points: NDArray) -> NDArray:
        """Log-likelihood of points, shape (k, p), up to a constant, shape (k,)."""
        return np.array([self._of(self.prior._like(self.named(point))) for point in points])

    def _of(self, one: Any) -> float:
        atoms, likelihoods, scale = self.table
        near = int(np.argmin(np.abs(atoms[:, 0] - one.mean_[0])))
        spread = np.sqrt(one.variance_[0]) / np.gradient(atoms[:, 0])[near]
        if spread < POINT:
            values = self.rows.logpdf(one.mean_[None])[:, 0] - scale
        elif spread < COARSE:
            values = one.log_marginal(self.rows) - scale
        else:
            values = np.log(likelihoods @ np.exp(one._log_masses_of_density(atoms)))
        return float(self.counts @ values)

    def likeliest(self) -> dict[str, NDArray]:
        """Return the parameters of greatest likelihood, from where the prior is."""
        unit = np.where(self.positive, 1.0, max(float(np.sqrt(self.prior.variance_[0])), TINIEST))
        low = np.where(self.spreads, TINIEST, -np.inf)
        high = np.full(len(low), np.inf)
        height = self.log_density
        point, _ = maximise(lambda x: float(height(x[None])[0]), self.point, low, high, unit=unit)
        return self.named(point)

    def plausible(self) -> dict[str, NDArray]:
        """Return plausible parameters, shape (K,) each, and "weights" of shape (K, 1)."""
        points, weights = explore(self.log_density, self.point, self.spreads)
        points, weights = thinned(points, weights, MOST)
        return self.named(points) | {"weights": weights[:, None]}


def relative_likelihoods(log_likelihoods: NDArray) -> tuple[NDArray, NDArray]:
    """Likelihoods with each row divided by its largest, and the log of that largest.

    Examples
    --------
    >>> relative_likelihoods(np.log([[1.0, 2.0]]))
    (array([[0.5, 1. ]]), array([0.69314718]))
    """
    scale = log_likelihoods.max(axis=1)
    return np.exp(log_likelihoods - scale[:, None]), scale
