"""Exact calibration: the noise that a guarantee needs, and the guarantee of a given noise.

A mechanism is (epsilon, delta)-private when no event is more than ``e^epsilon`` times, plus delta,
as probable on one input as on a neighbouring one. For one noisy report both directions have closed
forms: a *delta* function returns the delta of a noise level, a *sigma* function finds the smallest
noise level for a guarantee. Sigma functions round the last digit up, so the guarantee holds.

The *sensitivity* is the largest distance between the answers to two neighbouring inputs: 2 b for a
client that may replace its value in [-b, b] by any other.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = [
    "PrivacyWarning",
    "as_float",
    "check_count",
    "check_delta",
    "check_epsilon",
    "check_error",
    "check_positive",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "is_number",
    "paper_delta",
    "paper_sigma",
    "smallest_sigma",
]


class PrivacyWarning(UserWarning):
    """A guarantee of privacy is weaker than it seems."""


def is_number(value: Any) -> bool:
    """Whether an argument is one real number: not a boolean, and not a duration.

    Examples
    --------
    >>> is_number(2), is_number(True)
    (True, False)
    """
    # NumPy's durations are whole numbers of some unit
    return isinstance(value, Real) and not isinstance(value, bool | np.timedelta64)


def as_float(value: Any) -> float:
    """Return an argument as a float; NaN if it is not one real number, or beyond every float.

    Examples
    --------
    >>> as_float(2), as_float("2"), as_float(10**400)
    (2.0, nan, nan)
    """
    try:
        return float(value) if is_number(value) else math.nan
    except OverflowError:
        return math.nan


def check_positive(name: str, value: Any) -> float:
    """Return an argument that must be a finite number above 0.

    Parameters
    ----------
    name : str
        Name of the argument in errors.
    value : object

    Returns
    -------
    float

    Raises
    ------
    ValueError
        For anything else: a boolean, a string, NaN, an infinity, 0.

    Examples
    --------
    >>> check_positive("half_width", 2)
    2.0
    """
    if not 0 < as_float(value) < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, such as 1.0; got {value!r}.")
    return float(value)


def check_epsilon(epsilon: Any) -> float:
    """Return an epsilon: a finite number above 0.

    Parameters
    ----------
    epsilon : object

    Returns
    -------
    float

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_epsilon(1)
    1.0
    """
    return check_positive("epsilon", epsilon)


def check_delta(delta: Any) -> float:
    """Return a delta: a number between 0 and 1, both excluded.

    Parameters
    ----------
    delta : object

    Returns
    -------
    float

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_delta(1e-6)
    1e-06
    """
    if not (is_number(delta) and 0 < delta < 1):
        raise ValueError(f"delta must lie between 0 and 1, such as 1e-6; got {delta!r}.")
    return float(delta)


def check_error(error: Any) -> float:
    """Return the probability with which a lower bound may be wrong."""
    if not (is_number(error) and 1e-12 <= error < 1):
        raise ValueError(f"error must be at least 1e-12 and below 1; got {error!r}.")
    return float(error)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return an argument that must be a whole number.

    Parameters
    ----------
    name : str
        Name of the argument in errors.
    value : object
    least : int
        Smallest value.

    Returns
    -------
    int

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_count("steps", 15)
    15
    """
    if not isinstance(value, Integral) or not is_number(value) or value < least:
        raise ValueError(f"{name} must be a whole number from {least}; got {value!r}.")
    return int(value)


def gaussian_delta(sigma: float, epsilon: float, sensitivity: float = 1.0) -> float:
    r"""Compute the delta that Gaussian noise achieves, exactly.

    With :math:`t = \Delta / 2\sigma` and :math:`u = \varepsilon\sigma/\Delta`,

    .. math:: \delta = \Phi(t - u) - e^\varepsilon\, \Phi(-t - u).

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise.
    epsilon : float
    sensitivity : float
        Sensitivity, the Delta above, in the Euclidean norm.

    Returns
    -------
    float
        Accurate to about 12 digits, also if it is tiny.

    Raises
    ------
    ValueError
        If an argument is not a finite number above 0.

    References
    ----------
    Balle and Wang (2018), Improving the Gaussian mechanism for differential privacy, Theorem 8.

    Examples
    --------
    >>> gaussian_delta(sigma=1.0, epsilon=1.0)
    0.12694
    >>> f"{gaussian_delta(sigma=8.0, epsilon=4.0):.1e}"
    '1.6e-226'
    """
    from scipy.special import erfcx, log_ndtr, ndtr

    ratio = check_positive("sigma", sigma) / check_positive("sensitivity", sensitivity)
    epsilon = check_epsilon(epsilon)
    half, shift = 0.5 / ratio, epsilon * ratio  # t and u
    if half >= 0.5:
        return float(max(ndtr(half - shift) - np.exp(epsilon + log_ndtr(-half - shift)), 0.0))
    # Two nearly equal terms: with phi the normal density and m = (1 - Phi) / phi, delta is
    # phi(t - u) times the integral over (u - t, u + t) of -m'(x) = 1 - x m(x) > 0.
    nodes, weights = np.polynomial.legendre.leggauss(12)
    x = shift + half * nodes
    slope = 1 - x * math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
    density = math.exp(-0.5 * (half - shift) ** 2) / math.sqrt(2 * math.pi)
    return max(half * float(weights @ slope) * density, 0.0)


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Find the smallest Gaussian noise that is (epsilon, delta)-private.

    Parameters
    ----------
    epsilon : float
        Epsilon of any size, also above 1.
    delta : float
    sensitivity : float
        Largest Euclidean distance between two neighbouring answers.

    Returns
    -------
    float
        Standard deviation whose `gaussian_delta` is at most delta.

    Raises
    ------
    ValueError
        If epsilon or the sensitivity is not a finite number above 0, or delta not in (0, 1).

    References
    ----------
    Balle and Wang (2018), Algorithm 1 (analytic calibration).

    Examples
    --------
    >>> gaussian_sigma(epsilon=1.0, delta=1e-5)
    3.7306
    >>> gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=2.0)
    7.4613
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    sensitivity = check_positive("sensitivity", sensitivity)
    return sensitivity * _unit_sigma(epsilon, delta)


def gaussian_epsilon(sigma: float, delta: float, sensitivity: float = 1.0) -> float:
    """Find the epsilon of Gaussian noise at a given delta.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise.
    delta : float
    sensitivity : float
        Largest Euclidean distance between two neighbouring answers.

    Returns
    -------
    float
        Epsilon whose `gaussian_delta` is at most delta; 0 if that holds for every epsilon.

    Raises
    ------
    ValueError

    References
    ----------
    Balle and Wang (2018), Theorem 8.

    Examples
    --------
    >>> gaussian_epsilon(sigma=3.7306, delta=1e-5)
    1.0000
    """
    from scipy.optimize import brentq

    ratio = check_positive("sigma", sigma) / check_positive("sensitivity", sensitivity)
    check_delta(delta)

    def excess(log_epsilon: float) -> float:
        found = gaussian_delta(ratio, math.exp(log_epsilon))
        return math.log(max(found, 5e-324)) - math.log(delta)

    low, high = math.log(1e-12), math.log(1e-2)
    if excess(low) <= 0:
        return 0.0
    while excess(high) > 0:
        high += 1.0
    epsilon = math.exp(brentq(excess, low, high, xtol=1e-13, rtol=1e-14))
    while gaussian_delta(ratio, epsilon) > delta:
        epsilon *= 1 + 1e-12
    return epsilon


@lru_cache(maxsize=1024)
def _unit_sigma(epsilon: float, delta: float) -> float:
    """Solve for sensitivity 1; channels call this for every message."""
    return smallest_sigma(lambda sigma: gaussian_delta(sigma, epsilon), delta, 1.0)


def paper_delta(epsilon: float, delta: float, n_features: int = 1) -> float:
    """Compute the true delta of `paper_sigma` where `delta` is claimed.

    Parameters
    ----------
    epsilon, delta : float
        Claimed guarantee.
    n_features : int
        Number of coordinates of a client's vector, each reported with that noise.

    Returns
    -------
    float
        The claim is true if this is at most `delta`.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> paper_delta(1.0, 1e-4) < 1e-4
    True
    >>> paper_delta(1.0, 1e-4, n_features=50)
    0.3555
    """
    sigma = math.sqrt(8 * math.log(2 / check_delta(delta))) / check_epsilon(epsilon)
    return gaussian_delta(sigma, epsilon, 2 * math.sqrt(check_count("n_features", n_features)))


def paper_sigma(epsilon: float, delta: float, half_width: float, n_features: int = 1) -> float:
    r"""Return the noise of the paper's Gaussian reports of values in [-b, b], for replication.

    .. math:: \sigma = \frac{b}{\varepsilon} \sqrt{8 \log(2 / \delta)}

    For one number the sensitivity is 2 b: the noise is more than needed at small epsilon, and too
    small for the claim at large epsilon (from about 9 at delta 1e-4). For a vector reported
    coordinate by coordinate the sensitivity is 2 b √d, which the formula ignores. `gaussian_sigma`
    is correct everywhere.

    Parameters
    ----------
    epsilon, delta : float
        Claimed guarantee.
    half_width : float
        Half-width b of the range of each coordinate.
    n_features : int
        Number d of coordinates. It does not change the noise, only whether the claim is true.

    Returns
    -------
    float

    Raises
    ------
    ValueError

    Warns
    -----
    PrivacyWarning
        If the claim is false, with the true delta (`paper_delta`).

    References
    ----------
    Ozkara, Girgis, Data and Diggavi (2023), Theorem 2.

    Examples
    --------
    >>> paper_sigma(1.0, 1e-4, half_width=0.5)
    4.4505
    >>> gaussian_sigma(1.0, 1e-4, sensitivity=1.0)
    3.1857
    """
    half_width = check_positive("half_width", half_width)
    true = paper_delta(epsilon, delta, n_features)
    if true > delta:
        warnings.warn(
            f"The paper's noise for epsilon={epsilon:g} and delta={delta:g} has delta={true:.3g} "
            f"(n_features={n_features}); gaussian_sigma gives the noise that is needed.",
            PrivacyWarning,
            stacklevel=2,
        )
    return half_width / float(epsilon) * math.sqrt(8 * math.log(2 / delta))


def smallest_sigma(delta_of: Callable[[float], float], delta: float, guess: float) -> float:
    """Find the smallest sigma at which a decreasing function is at most `delta`."""
    from scipy.optimize import brentq

    def excess(log_sigma: float) -> float:
        return math.log(max(delta_of(math.exp(log_sigma)), 5e-324)) - math.log(delta)

    low = high = math.log(guess)
    width = 0.01  # the guess may be close
    while excess(low) <= 0:
        low, width = low - width, 2 * width
    while excess(high) > 0:
        high, width = high + width, 2 * width
    sigma = math.exp(brentq(excess, low, high, xtol=1e-15, rtol=1e-15))
    nudge = 2.0**-52
    while delta_of(sigma) > delta:
        sigma, nudge = sigma * (1 + nudge), 2 * nudge
    return sigma
