"""DP-AdaPeD: the claim of Theorem 5, and its releases."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ebfed.privacy import events
from ebfed.privacy.calibration import check_count, check_delta
from ebfed.theory.private_learning.sampling import Sampling, sampled

if TYPE_CHECKING:
    from ebfed.privacy.events import Event

__all__ = ["adaped_claimed_epsilon", "adaped_event"]


def adaped_claimed_epsilon(
    multipliers: Iterable[float],
    delta: float,
    *,
    rounds: int,
    participants: int,
    n_clients: int,
) -> float:
    r"""Give the epsilon that Theorem 5 claims for DP-AdaPeD.

    .. math:: \varepsilon(\alpha) = \Big(\frac{K}{m}\Big)^2 \frac{6 T}{\tau}\, \alpha
        \Big(\frac{C_1^2}{K \sigma_1^2} + \frac{C_2^2}{K \sigma_2^2}\Big),

    converted at delta by its best order (Lemma 1 of the paper; Canonne, Kamath and Steinke 2020).

    The proof takes :math:`\tau C^2` for the squared norm of a sum of tau clipped gradients
    (equation 59). It is up to :math:`\tau^2 C^2`, so that a factor tau is lost: the claim falls
    like 1/tau when the same T steps are sent in fewer rounds, but what they reveal does not. With
    all clients in all rounds, the divergences are larger than claimed if ``tau > 3`` where clients
    are replaced, and if ``tau > 12`` where they are added or removed. With a sample, the factor ``6
    (K/m)^2`` holds for small K/m and some orders only.

    Parameters
    ----------
    multipliers : iterable of float
        ``sigma_1 / C_1`` and ``sigma_2 / C_2``: noise of one local step of one client over the
        clipping norm, of each released part.
    delta : float
    rounds : int
        ``T / tau`` synchronisations.
    participants : int
        K, of each round.
    n_clients : int
        m.

    Returns
    -------
    float

    Raises
    ------
    ValueError

    References
    ----------
    Ozkara et al. (2023), Theorem 5 and Appendix I.

    See Also
    --------
    adaped_event : What is released.

    Examples
    --------
    >>> from ebfed.privacy import accountant
    >>> setting = dict(rounds=60, participants=50, n_clients=50)
    >>> adaped_claimed_epsilon([7.5, 7.5], 1e-5, **setting)
    3.23
    >>> event = adaped_event([7.5, 7.5], local_steps=10, **setting)
    >>> accountant.epsilon(event, 1e-5, relation="replace_one", interval=1e-3)
    5.98
    """
    check_delta(delta)
    part = 1 / events.joint_multiplier(multipliers) ** 2
    rate = check_count("participants", participants) / check_count("n_clients", n_clients)
    rho = rate**2 * 6 * check_count("rounds", rounds) * part / participants  # [E] Theorem 5
    excess = np.logspace(-6, 9, 20_001)  # of the order over 1
    order = 1 + excess
    bound = rho * order + np.log(excess / order) - np.log(order * delta) / excess  # [E] Lemma 1
    return max(float(bound.min()), 0.0)


def adaped_event(
    multipliers: Iterable[float],
    *,
    rounds: int,
    local_steps: int,
    participants: int,
    n_clients: int,
    sampling: Sampling = "fixed_size",
) -> Event:
    r"""Describe the releases of DP-AdaPeD.

    In a round, each of K clients adds up tau clipped gradients, of norm at most :math:`\tau C`, and
    tau noises; the sum over clients has noise of variance :math:`\tau K \sigma^2`. The noise
    multiplier is :math:`\sqrt{K / \tau}\,\sigma / C` for each part, the joint one for both.

    Parameters
    ----------
    multipliers : iterable of float
        ``sigma / C`` of one local step of one client, of each released part: of mu and, where it is
        learned, of psi.
    rounds : int
        Number of synchronisations.
    local_steps : int
        Number of local steps, tau.
    participants : int
        K.
    n_clients : int
        m. If K is m, nobody is sampled.
    sampling : {"fixed_size", "poisson"}
        How K of m are drawn. With "poisson", K is an expectation; the noise then must not depend on
        the number that was drawn, as it does where clients add it.

    Returns
    -------
    dp_accounting.SelfComposedDpEvent
        It is about readers of the sums. For a reader of single messages, such as a server without
        secure aggregation, only the noise of one client counts: ``participants=1, n_clients=1``.

    Raises
    ------
    ValueError

    References
    ----------
    Ozkara et al. (2023), section 3.3 and Algorithm 2, lines 13 and 15.

    Examples
    --------
    >>> adaped_event([8.0], rounds=60, local_steps=4, participants=16, n_clients=16)
    SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=16.0), count=60)
    """
    ratio = check_count("participants", participants) / check_count("local_steps", local_steps)
    # [E] Equation 59
    release = events.gaussian(math.sqrt(ratio) * events.joint_multiplier(multipliers))
    return events.repeated(sampled(n_clients, participants, sampling, release), rounds)
