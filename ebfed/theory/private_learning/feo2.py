"""FeO2: the account of its gradients, and its releases with clipping bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebfed.privacy import accountant, events
from ebfed.privacy.calibration import check_positive

if TYPE_CHECKING:
    from ebfed.privacy.events import Event

__all__ = ["feo2_claimed_epsilon", "feo2_event"]


def feo2_claimed_epsilon(
    noise_multiplier: float, delta: float, *, rate: float, rounds: int
) -> float:
    """Give the epsilon that is claimed for FeO2: that of its gradients, by Rényi divergences.

    Parameters
    ----------
    noise_multiplier : float
        z, of the sum of clipped updates.
    delta : float
    rate : float
        q, the probability of taking part in a round.
    rounds : int
        T.

    Returns
    -------
    float

    Raises
    ------
    ValueError

    References
    ----------
    Aldaghri et al. (2021), Algorithm 1 and section 5.

    See Also
    --------
    feo2_event : With the bits that the clipping norm is learned from.

    Examples
    --------
    >>> feo2_claimed_epsilon(1.502, 1e-4, rate=0.05, rounds=500)
    3.60
    """
    training = events.repeated(events.poisson(rate, events.gaussian(noise_multiplier)), rounds)
    return accountant.epsilon(training, delta, relation="add_or_remove", method="rdp")


def feo2_event(
    noise_multiplier: float, bit_noise: float, *, rate: float, rounds: int, centred: bool = False
) -> Event:
    """Describe the releases of FeO2: clipped updates, and bits that say whether they were clipped.

    A bit is 0 or 1 in Algorithm 1 and contributes 1; minus 1/2, it contributes 1/2. Noise for a
    given total is found by `ebfed.privacy.events.split_multiplier`.

    Parameters
    ----------
    noise_multiplier : float
        z.
    bit_noise : float
        Standard deviation of the noise on the *sum* of the bits. Algorithm 1 prints ``z_b^2 / N``
        for the variance on their mean, which is ``z_b sqrt(N)`` here; ``z_b`` if ``1 / N^2`` is
        meant, as for the updates.
    rate : float
        q, the probability of taking part in a round: independently, with sums divided by expected
        numbers.
    rounds : int
        T.
    centred : bool
        Whether 1/2 is subtracted from the bits, as it should be.

    Returns
    -------
    dp_accounting.SelfComposedDpEvent
        For ``relation="add_or_remove"``. By "replace_one" bits 0 or 1 are overrated, as if they
        could move by 2.

    Raises
    ------
    ValueError

    References
    ----------
    Aldaghri et al. (2021), Algorithm 1; Andrew et al. (2021), Theorem 1.

    Examples
    --------
    >>> for noise in (5.0, 1.0):
    ...     for centred in (False, True):
    ...         event = feo2_event(1.502, noise, rate=0.05, rounds=500, centred=centred)
    ...         spent = accountant.epsilon(event, 1e-4, relation="add_or_remove", method="rdp")
    ...         print(noise, centred, round(spent, 2))
    5.0 False 3.85
    5.0 True 3.66
    1.0 False 10.76
    1.0 True 5.17
    """
    norm = 0.5 if centred else 1.0
    bits = check_positive("bit_noise", bit_noise) / norm
    release = events.gaussian(events.joint_multiplier([noise_multiplier, bits]))
    return events.repeated(events.poisson(rate, release), rounds)
