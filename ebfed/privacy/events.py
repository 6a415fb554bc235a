"""Releases as events of dp-accounting, which an accountant composes.

An event describes a release. Its epsilon depends on the neighbours (`ebfed.privacy.accountant`).
The noise multiplier of a Gaussian release is always the standard deviation of its noise divided by
the largest Euclidean norm C of one contribution. If one client may be exchanged for another, the
answer changes by up to 2 C.

dp-accounting is optional: the noise of one report, and of repeated sums without sampling, has a
closed form (`ebfed.privacy.calibration`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from ebfed.privacy.calibration import check_count, check_epsilon, check_positive

if TYPE_CHECKING:
    import dp_accounting

    Event: TypeAlias = dp_accounting.DpEvent

__all__ = [
    "accounting",
    "concentrated",
    "fixed_size",
    "from_dict",
    "gaussian",
    "joint_multiplier",
    "open_release",
    "poisson",
    "pure",
    "repeated",
    "split_multiplier",
    "to_dict",
]


def accounting() -> ModuleType:
    """Return the package dp-accounting.

    Raises
    ------
    ImportError
        If it is not installed; the message names the extra that has it.
    """
    try:
        import dp_accounting
    except ImportError as error:
        raise ImportError(
            "composing private releases, and accounts of sampled ones, need dp-accounting: "
            'pip install "ebfed[accounting]"'
        ) from error
    return dp_accounting


def pure(epsilon: float) -> Event:
    """Describe a report that is epsilon-private by itself, by any mechanism.

    It is accounted as randomised response with two answers and odds ``e^epsilon`` of the true one.
    Every epsilon-private mechanism can be made from these answers, so no composition of reports is
    worse than the same composition of these.

    Parameters
    ----------
    epsilon : float

    Returns
    -------
    dp_accounting.RandomizedResponseDpEvent
        Accounted under ``relation="replace_one"``: adding a client adds a visible report.

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
    dpa = accounting()
    odds = math.exp(-check_epsilon(epsilon))  # of the untrue answer
    return dpa.RandomizedResponseDpEvent(2 * odds / (1 + odds), 2)


def gaussian(noise_multiplier: float) -> Event:
    """Describe a sum of contributions released with Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the largest norm of one contribution; by b for
        one report of a value in [-b, b].

    Returns
    -------
    dp_accounting.GaussianDpEvent

    Raises
    ------
    ValueError
        If it is not a finite number above 0. For no noise, use `open_release`.

    Examples
    --------
    >>> gaussian(1.5)
    GaussianDpEvent(noise_multiplier=1.5)
    """
    dpa = accounting()
    return dpa.GaussianDpEvent(check_positive("noise_multiplier", noise_multiplier))


def joint_multiplier(multipliers: Iterable[float]) -> float:
    r"""Return the noise multiplier of several Gaussian releases of the same clients as one release.

    Parts divided by their noise are one vector with noise 1. A client contributes to it

    .. math:: \frac{1}{z} = \Big(\sum_k \frac{1}{z_k^2}\Big)^{1/2}.

    This is exact. For a sample of clients it is less than the composition of the parts, because the
    sample is drawn once for all parts.

    Parameters
    ----------
    multipliers : iterable of float
        Noise multipliers of the parts, at least one, each relative to its own contributions.

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
    r"""Return the noise multiplier of one part such that all parts together have `total`.

    .. math:: z_1 = \Big(\frac{1}{z^2} - \sum_{k > 1} \frac{1}{z_k^2}\Big)^{-1/2}

    Parameters
    ----------
    total : float
        Noise multiplier of all parts together (`joint_multiplier`).
    others : iterable of float
        Noise multipliers of the other parts; may be empty.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If one is not a finite number above 0, or the other parts alone use all of `total`. Bits
        minus 1/2 with noise of standard deviation ``s`` have multiplier ``2 s``; they need
        ``s > total / 2``.

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
            f"others must have a joint multiplier above total={total:g}; got "
            f"{joint_multiplier(others):g}. Add noise to the other parts."
        )
    return total / math.sqrt(left)


def poisson(rate: float, event: Event) -> Event:
    """Describe an event on a sample that each client joins independently.

    Parameters
    ----------
    rate : float
        Probability of joining, above 0 and at most 1.
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
    dpa = accounting()
    if check_positive("rate", rate) > 1:
        raise ValueError(f"rate must be a probability above 0, at most 1; got {rate!r}.")
    return dpa.PoissonSampledDpEvent(float(rate), event)


def fixed_size(total: int, sample: int, event: Event) -> Event:
    """Describe an event on a given number of clients, drawn without replacement.

    Parameters
    ----------
    total : int
        Number of clients.
    sample : int
        Number of drawn clients.
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
    dpa = accounting()
    total, sample = check_count("total", total), check_count("sample", sample)
    if sample > total:
        raise ValueError(f"sample must be at most total, {total}; got {sample}.")
    return dpa.SampledWithoutReplacementDpEvent(total, sample, event)


def repeated(event: Event, times: int) -> Event:
    """Describe an event that is repeated; each time may depend on the earlier ones.

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
    dpa = accounting()
    return dpa.SelfComposedDpEvent(event, check_count("times", times))


def concentrated(rho: float) -> Event:
    """Describe a rho-concentrated private release, such as one with discrete Gaussian noise.

    Parameters
    ----------
    rho : float
        Concentrated privacy loss: ``sensitivity**2 / (2 sigma**2)`` for Gaussian noise, discrete or
        not, with the sensitivity under the relation of the accounting.

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
    dpa = accounting()
    return dpa.ZCDpEvent(check_positive("rho", rho))


def open_release() -> Event:
    """Describe an exact release, without a guarantee: its epsilon is infinite.

    Returns
    -------
    dp_accounting.NonPrivateDpEvent

    Examples
    --------
    >>> open_release()
    NonPrivateDpEvent()
    """
    dpa = accounting()
    return dpa.NonPrivateDpEvent()


def to_dict(event: Event) -> dict[str, Any]:
    """Describe an event by names, numbers and lists, for a file.

    Examples
    --------
    >>> to_dict(poisson(0.05, gaussian(1.0)))["event"]
    {'kind': 'GaussianDpEvent', 'noise_multiplier': 1.0}
    """
    import attr  # of dp-accounting

    fields = {field.name: getattr(event, field.name) for field in attr.fields(type(event))}
    return {"kind": type(event).__name__} | {name: _plain(x) for name, x in fields.items()}


def from_dict(description: dict[str, Any]) -> Event:
    """Return the event that `to_dict` described.

    Raises
    ------
    ValueError
        If the description is of no event.

    Examples
    --------
    >>> from_dict(to_dict(repeated(gaussian(1.0), 10)))
    SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=1.0), count=10)
    """
    dpa = accounting()
    given = dict(description)
    kind = getattr(dpa, str(given.pop("kind", "")), None)
    if not (isinstance(kind, type) and issubclass(kind, dpa.DpEvent)):
        raise ValueError(f"kind must name an event of dp-accounting; got {description!r}.")
    try:
        return kind(**{name: _event(x) for name, x in given.items()})
    except TypeError as error:
        raise ValueError(f"{description!r} does not describe an event: {error}") from error


def _plain(x: Any) -> Any:
    dpa = accounting()
    if isinstance(x, dpa.DpEvent):
        return to_dict(x)
    return [_plain(each) for each in x] if isinstance(x, list | tuple) else x


def _event(x: Any) -> Any:
    if isinstance(x, dict):
        return from_dict(x)
    return [_event(each) for each in x] if isinstance(x, list) else x
