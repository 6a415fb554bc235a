"""What was released, as dp-accounting describes it: an account adds these up.

An event says what was done, not what it is worth; that depends on who counts as a neighbour
(`ebfed.privacy.accountant`). The noise multiplier of a Gaussian release is always the standard
deviation of its noise divided by the largest Euclidean norm C of one contribution, however it is
accounted: where one client may be exchanged for another, the answer moves by up to 2 C.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from ebfed.privacy.calibration import check_count, check_epsilon, check_positive

if TYPE_CHECKING:
    import dp_accounting

    Event: TypeAlias = dp_accounting.DpEvent

__all__ = [
    "concentrated",
    "fixed_size",
    "gaussian",
    "joint_multiplier",
    "open_release",
    "poisson",
    "pure",
    "repeated",
    "split_multiplier",
]


def pure(epsilon: float) -> Event:
    """Describe a report that is epsilon-private in itself, whatever its mechanism.

    It is accounted as the two-answer randomised response that tells the truth with odds
    ``e^epsilon``: every epsilon-private mechanism can be made from its answers, so no composition
    of reports is worse than the same composition of these.

    Parameters
    ----------
    epsilon : float

    Returns
    -------
    dp_accounting.RandomizedResponseDpEvent
        Accounted under ``relation="replace_one"``: adding a client adds a report, which shows.

    Raises
    ------
    ValueError

    References
    ----------
    Kairouz, Oh and Viswanath (2015), The composition theorem for differential privacy.

    Examples
    --------
    >>> pure(1.0)
    RandomizedResponseDpEvent(noise_parameter=0.5378..., num_buckets=2)
    """
    import dp_accounting as dpa

    odds = math.exp(-check_epsilon(epsilon))  # of the untrue answer
    return dpa.RandomizedResponseDpEvent(2 * odds / (1 + odds), 2)


def gaussian(noise_multiplier: float) -> Event:
    """Describe a sum of contributions released with Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the largest norm of one contribution; for one report
        of a value in [-b, b], over b.

    Returns
    -------
    dp_accounting.GaussianDpEvent

    Raises
    ------
    ValueError
        If it is not a finite number above 0; without noise, see `open_release`.

    Examples
    --------
    >>> gaussian(1.5)
    GaussianDpEvent(noise_multiplier=1.5)
    """
    import dp_accounting as dpa

    return dpa.GaussianDpEvent(check_positive("noise_multiplier", noise_multiplier))


def joint_multiplier(multipliers: Iterable[float]) -> float:
    r"""Give the noise multiplier of several Gaussian releases of the same clients, taken as one.

    Parts that are divided by their noise are one vector with noise 1, to which a client contributes

    .. math:: \frac{1}{z} = \Big(\sum_k \frac{1}{z_k^2}\Big)^{1/2}.

    This is exact, and where the clients are a sample it is less than the parts composed: they are
    drawn once, for all parts.

    Parameters
    ----------
    multipliers : iterable of float
        Noise multipliers of the parts, each by its own largest contribution; at least one.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If there is none, or one is not a finite number above 0.

    See Also
    --------
    split_multiplier : The inverse.

    Examples
    --------
    Sums of clipped gradients and of bits 0 or 1, whose noise has standard deviation 5; and of bits
    minus 1/2, which contribute half as much:

    >>> joint_multiplier([1.5, 5.0]), joint_multiplier([1.5, 5.0 / 0.5])
    (1.4367, 1.4834)
    """
    parts = [check_positive("multipliers", multiplier) for multiplier in multipliers]
    if not parts:
        raise ValueError("multipliers must hold at least one noise multiplier; got none.")
    return 1 / math.hypot(*(1 / part for part in parts))


def split_multiplier(total: float, others: Iterable[float]) -> float:
    r"""Give the noise multiplier of one part so that it and the others together have `total`.

    .. math:: z_1 = \Big(\frac{1}{z^2} - \sum_{k > 1} \frac{1}{z_k^2}\Big)^{-1/2}

    Parameters
    ----------
    total : float
        The `joint_multiplier` of all parts.
    others : iterable of float
        Noise multipliers of the other parts; possibly none.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If one is not a finite number above 0, or the others alone reveal as much as all may. Bits
        minus 1/2 with noise of standard deviation ``s`` have multiplier ``2 s``: what is needed
        then is ``s > total / 2``.

    References
    ----------
    Andrew, Thakkar, McMahan and Ramaswamy (2021), Differentially private learning with adaptive
    clipping, Theorem 1.

    Examples
    --------
    >>> split_multiplier(1.5, [2 * 5.0])
    1.5171
    >>> joint_multiplier([1.5171, 2 * 5.0])
    1.5000
    """
    total = check_positive("total", total)
    others = [check_positive("others", multiplier) for multiplier in others]
    left = 1 - math.fsum((total / multiplier) ** 2 for multiplier in others)
    if left <= 0:
        raise ValueError(
            f"others must leave something of total={total:g}, but alone they have the joint "
            f"multiplier {joint_multiplier(others):g}; more noise on them, above {total:g}, would."
        )
    return total / math.sqrt(left)


def poisson(rate: float, event: Event) -> Event:
    """Describe an event on a sample that every client joins independently of the others.

    Parameters
    ----------
    rate : float
        The probability of joining, above 0 and at most 1.
    event : dp_accounting.DpEvent

    Returns
    -------
    dp_accounting.PoissonSampledDpEvent

    Raises
    ------
    ValueError

    Examples
    --------
    >>> poisson(0.05, gaussian(1.0)).sampling_probability
    0.05
    """
    import dp_accounting as dpa

    if check_positive("rate", rate) > 1:
        raise ValueError(f"rate must be a probability above 0, at most 1; got {rate!r}.")
    return dpa.PoissonSampledDpEvent(float(rate), event)


def fixed_size(total: int, sample: int, event: Event) -> Event:
    """Describe an event on a given number of clients, drawn without replacement.

    Parameters
    ----------
    total : int
        How many clients there are.
    sample : int
        How many are drawn.
    event : dp_accounting.DpEvent

    Returns
    -------
    dp_accounting.SampledWithoutReplacementDpEvent
        Accounted by ``method="rdp", relation="replace_one"`` only.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> fixed_size(2000, 100, gaussian(1.0)).sample_size
    100
    """
    import dp_accounting as dpa

    total, sample = check_count("total", total), check_count("sample", sample)
    if sample > total:
        raise ValueError(f"sample must be at most total, {total}; got {sample}.")
    return dpa.SampledWithoutReplacementDpEvent(total, sample, event)


def repeated(event: Event, times: int) -> Event:
    """Describe an event that happens several times, each free to depend on what came before.

    Parameters
    ----------
    event : dp_accounting.DpEvent
    times : int

    Returns
    -------
    dp_accounting.SelfComposedDpEvent

    Raises
    ------
    ValueError

    Examples
    --------
    >>> repeated(gaussian(1.0), 10)
    SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=1.0), count=10)
    """
    import dp_accounting as dpa

    return dpa.SelfComposedDpEvent(event, check_count("times", times))


def concentrated(rho: float) -> Event:
    """Describe a rho-concentrated private release, such as one with discrete Gaussian noise.

    Parameters
    ----------
    rho : float
        ``sensitivity**2 / (2 sigma**2)`` for Gaussian noise, discrete or not; the sensitivity under
        the neighbouring relation that it will be accounted by.

    Returns
    -------
    dp_accounting.ZCDpEvent
        Accounted by ``method="rdp"``.

    Raises
    ------
    ValueError

    References
    ----------
    Bun and Steinke (2016), Concentrated differential privacy; Canonne, Kamath and Steinke (2020),
    Theorem 4.

    Examples
    --------
    >>> concentrated(0.5)
    ZCDpEvent(rho=0.5, xi=0.0)
    """
    import dp_accounting as dpa

    return dpa.ZCDpEvent(check_positive("rho", rho))


def open_release() -> Event:
    """Describe an exact release: nothing is promised about it, and its epsilon is infinite.

    Returns
    -------
    dp_accounting.NonPrivateDpEvent

    Examples
    --------
    >>> open_release()
    NonPrivateDpEvent()
    """
    import dp_accounting as dpa

    return dpa.NonPrivateDpEvent()
