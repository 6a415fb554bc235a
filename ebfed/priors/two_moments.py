"""Posteriors of smooth families whose members are given by mean and standard deviation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ebfed.priors.posterior import Posterior

__all__ = ["TwoMoments", "gamma_height"]

# Logits and logarithms beyond this are those of 0, of 1 or of infinity.
FURTHEST = 700.0
# Figures of mixtures that are in memory at a time.
BLOCK = 1_000_000
# Steps over so much of the probability of the smaller side are short: what a density adds over them
# is known to 12 digits by three nodes.
NEAR = 0.05
# Shapes of gammas from which two terms of Stirling's series are exact.
LARGE = 1e5


class TwoMoments(Posterior):
    """Posterior of a smooth family whose every coordinate is given by its mean and sd.

    A subclass maps its support to the line and back, by `_to_line` and `_from_line`.
    """

    @abstractmethod
    def _of(self, mean: NDArray, sd: NDArray) -> Self:
        """Return the posterior of this family with these means and sds, of any shape."""

    @abstractmethod
    def _to_line(self, x: NDArray) -> NDArray: ...

    @abstractmethod
    def _from_line(self, u: NDArray) -> NDArray: ...

    @abstractmethod
    def _density(self, u: NDArray) -> tuple[NDArray, NDArray]:
        """Density on the line at u, and its slope."""

    def _quantile_together(
        self, parts: Sequence[Posterior], weights: NDArray, q: float
    ) -> NDArray | None:
        """Quantiles of mixtures of members; None where some are points."""
        if not all((part.sd > 0).all() for part in parts):
            return None
        size = self.mean.size
        flat = [(part.mean.ravel(), part.sd.ravel()) for part in parts]
        shares = weights.reshape(len(parts), size)
        result = np.empty(size)
        for block in np.array_split(np.arange(size), 1 + size * len(parts) // BLOCK):
            mean, sd = (np.array([each[j][block] for each in flat]) for j in (0, 1))
            found = _quantiles(self, mean, sd, shares[:, block], q)
            if found is None:
                return None
            result[block] = found
        return result.reshape(self.mean.shape)


def _quantiles(
    family: TwoMoments, mean: NDArray, sd: NDArray, weights: NDArray, q: float
) -> NDArray | None:
    """Quantiles of mixtures of one smooth family, whose means and sds have shape (K, n).

    Halley's method for the logit of the probability, on the family's line, from the quantile of one
    member with the moments of the mixture. Densities are cheap beside probabilities. Mixtures that
    are the same are solved once. None where a mixture takes too many steps.
    """
    rows = np.concatenate([mean, sd, weights]).T.copy()
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, first, codes = np.unique(keys, return_index=True, return_inverse=True)
    mean, sd, weights = (each[:, first] for each in (mean, sd, weights))
    centre = (weights * mean).sum(axis=0)
    spread = np.sqrt((weights * (sd**2 + (mean - centre) ** 2)).sum(axis=0))
    with np.errstate(divide="ignore"):
        at = family._to_line(family._of(centre, spread)._quantile(q))
    at = np.clip(at, -FURTHEST, FURTHEST)
    low, high = np.full(at.shape, -np.inf), np.full(at.shape, np.inf)
    result, open_ = np.empty(at.shape), np.arange(len(at))
    probability = np.full(at.shape, np.nan)  # at these places, where it is known
    for _ in range(40):
        asked = open_[np.isnan(probability[open_])]
        if len(asked):
            parts = family._of(mean[:, asked], sd[:, asked])
            each = parts.prob_below(family._from_line(at[asked]))
            probability[asked] = (weights[:, asked] * each).sum(axis=0)
        share, parts = weights[:, open_], family._of(mean[:, open_], sd[:, open_])
        u, below = at[open_], probability[open_]
        height, slope = ((share * each).sum(axis=0) for each in parts._density(u))
        low[open_], high[open_] = (
            np.where(below < q, u, low[open_]),
            np.where(below < q, high[open_], u),
        )
        step = _halley(below, height, slope, q)
        # a step may be lost in the rounding of the place, which is then an end
        inside = (u + step >= low[open_]) & (u + step <= high[open_])
        near = np.isfinite(low[open_]) & np.isfinite(high[open_])
        far = np.where(below < q, 1.0, -1.0) * np.maximum(1, np.abs(u))
        step = np.where(inside, step, np.where(near, (low[open_] + high[open_]) / 2 - u, far))
        step = np.clip(u + step, -FURTHEST, FURTHEST) - u
        at[open_] = u + step
        # what the density adds between the two, by Gauss's rule
        added = sum(
            mass * (share * parts._density(u + (1 + node) / 2 * step)[0]).sum(axis=0)
            for node, mass in zip(*np.polynomial.legendre.leggauss(3), strict=True)
        )
        reached = below + step / 2 * added
        short = np.abs(below - q) < NEAR * q * (1 - q)
        done = (np.abs(reached - q) < 1e-11) & short
        probability[open_] = np.where(short, reached, np.nan)
        done |= step == 0
        result[open_[done]] = at[open_[done]]
        open_ = open_[~done]
        if not len(open_):
            return family._from_line(result)[codes]
    return None


def gamma_height(shape: NDArray, away: NDArray) -> NDArray:
    """Density of the logarithm of a gamma variable at a distance from that of its mean.

    Terms of a large shape would cancel: Stirling's series has their difference.

    Examples
    --------
    >>> gamma_height(np.array([1.0, 1e16]), np.zeros(2)).round(3).tolist()
    [0.368, 39894228.04]
    """
    from scipy.special import gammaln

    large = np.maximum(shape, LARGE)
    constant = np.where(
        shape < LARGE,
        shape * np.log(shape) - shape - gammaln(shape),
        np.log(large / (2 * np.pi)) / 2 - 1 / (12 * large),
    )
    with np.errstate(over="ignore"):
        return np.exp(constant - shape * (np.expm1(away) - away))


def _halley(below: NDArray, height: NDArray, slope: NDArray, q: float) -> NDArray:
    """Step towards the place where the logit of the probability `below` is that of q."""
    with np.errstate(all="ignore"):
        inner = below * (1 - below)
        excess = np.log(below / (1 - below)) - np.log(q / (1 - q))
        first = height / inner
        second = slope / inner - first**2 * (1 - 2 * below)
        return -2 * excess * first / (2 * first**2 - excess * second)
