r"""Curves of privacy: how rare an event can be with one input if it is common with another.

A curve g(y) is the least probability with one input of an event that has probability y with a
neighbouring one (f-differential privacy has f(x) = 1 - g^{-1}(x)). It says more than epsilon at one
delta. Curves here are convex, increasing, and the same for both orders of the inputs.

A `Family` has a curve for each strength t: the larger t, the less private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ebfed.privacy.accountant import Relation
from ebfed.privacy.calibration import gaussian_epsilon
from ebfed.privacy.events import accounting

if TYPE_CHECKING:
    from ebfed.privacy.events import Event

__all__ = ["GAUSSIAN", "Curve", "Family", "approximate_curve", "gaussian_curve", "sampled"]

Curve: TypeAlias = Callable[[float], float]

LARGEST = 32.0  # strength that is looked for, and its inverse
# epsilons of the tangents of a curve that an accountant finds
LOSSES = np.concatenate([np.arange(0, 10, 0.1), np.geomspace(10, 300, 60)])


def gaussian_curve(mu: float) -> Curve:
    r"""Return :math:`g(y) = \Phi(\Phi^{-1}(y) - \mu)`, of a number with normal noise.

    Parameters
    ----------
    mu : float
        Largest distance of the means, in standard deviations of the noise.

    References
    ----------
    Dong, Roth and Su (2022), Gaussian differential privacy.

    Examples
    --------
    >>> gaussian_curve(1.0)(0.5)
    0.1586...
    """
    from scipy.special import ndtr, ndtri

    return lambda y: float(ndtr(ndtri(min(y, 1.0)) - mu))


def approximate_curve(epsilon: float, delta: float) -> Curve:
    r"""Return the smallest curve that (epsilon, delta) permits.

    .. math:: g(y) = \max\{0,\; e^{-\varepsilon}(y - \delta),\;
        1 - \delta - e^\varepsilon (1 - y)\}

    Examples
    --------
    >>> approximate_curve(1.0, 0.0)(0.5)
    0.1839...
    """
    odds = math.exp(epsilon)
    return lambda y: max(0.0, (y - delta) / odds, 1 - delta - odds * (1 - y))


@dataclass(frozen=True)
class Family:
    """Mechanisms that differ in one number.

    Attributes
    ----------
    curve : callable
        From a strength t to the curve.
    epsilon : callable
        From a strength and delta to epsilon.
    step : float
        Ratio of neighbouring strengths that are looked at.
    """

    curve: Callable[[float], Curve]
    epsilon: Callable[[float, float], float]
    step: float = 1 + 1e-5

    def strongest(self, refuted: Callable[[Curve], bool]) -> float:
        """Return the largest strength whose curve is refuted, rounded down; 0 if none is.

        Parameters
        ----------
        refuted : callable
            True for a curve implies True for all curves of smaller strengths.
        """
        # strengths are powers of one number, so that curves can be kept
        most = round(math.log(LARGEST) / math.log(self.step))
        low, high = -most - 1, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if refuted(self.curve(self.step**middle)) else (low, middle)
        return self.step**low if low >= -most else 0.0


def _epsilon_of_normal(mu: float, delta: float) -> float:
    return gaussian_epsilon(1 / mu, delta)


GAUSSIAN = Family(gaussian_curve, _epsilon_of_normal)


def sampled(
    event: Callable[[float], Event],
    epsilon: Callable[[float, float], float],
    relation: Relation,
) -> Family:
    """Return the family of a composed event, whose curves are found by PLD.

    Parameters
    ----------
    event : callable
        From a strength to the event, such as all rounds of a training with noise divided by it.
    epsilon : callable
        From a strength and delta to epsilon.
    relation : {"add_or_remove", "replace_one"}

    Returns
    -------
    Family
        Its curves are rounded towards less privacy, by steps of 3 per cent in the strength.

    Examples
    --------
    >>> from ebfed.privacy import events
    >>> def release(t):
    ...     return events.poisson(1.0, events.gaussian(1 / t))
    >>> family = sampled(release, GAUSSIAN.epsilon, "add_or_remove")
    >>> family.curve(1.0)(0.5), GAUSSIAN.curve(1.0)(0.5)
    (0.158..., 0.158...)
    """
    relations = accounting().NeighboringRelation
    from dp_accounting import pld

    exchange = relation == "replace_one"
    neighbours = getattr(relations, "REPLACE_ONE" if exchange else "ADD_OR_REMOVE_ONE")

    @lru_cache(maxsize=64)
    def curve(strength: float) -> Curve:
        interval = 5e-3 * max(1.0, strength) ** 2  # losses grow with its square
        composed = pld.PLDAccountant(neighbours, interval).compose(event(strength))
        return _of_deltas(LOSSES, np.array([composed.get_delta(each) for each in LOSSES]))

    return Family(curve, epsilon, 1.03)


def _of_deltas(epsilons: NDArray[np.float64], deltas: NDArray[np.float64]) -> Curve:
    """Return the largest of the curves of several pairs of epsilon and delta."""
    odds = np.exp(epsilons)

    def curve(y: float) -> float:
        near = np.max((y - deltas) / odds)
        return float(max(0.0, near, np.max(1 - deltas - odds * (1 - y))))

    return curve
