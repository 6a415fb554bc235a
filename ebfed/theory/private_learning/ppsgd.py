"""PPSGD: the account of its experiments, and that of samples of a fixed size."""

from __future__ import annotations

import math

import numpy as np

from ebfed.privacy import accountant, events, gaussian_delta
from ebfed.privacy.accountant import Relation, sensitivity_of
from ebfed.privacy.calibration import check_count, check_delta, check_positive
from ebfed.theory.private_learning.sampling import sampled

__all__ = ["ppsgd_claimed_epsilon", "ppsgd_joint_epsilon"]


def ppsgd_claimed_epsilon(
    noise_multiplier: float, delta: float, *, rounds: int, participants: int, n_clients: int
) -> float:
    """Give the epsilon that PPSGD's experiments report: by the moments accountant.

    They draw exactly Q of N clients without replacement and account for it as if each client was
    drawn independently with probability ``Q / N`` (Rényi divergences; one client added or removed).

    If clients are drawn independently, this account is right, also under joint privacy; the divisor
    must then be the expected number Q, not the number that was drawn.

    Parameters
    ----------
    noise_multiplier : float
        Of the sum over clients: sigma. Noise on the mean is ``sigma C / Q``.
    delta : float
    rounds : int
        T.
    participants : int
        Q.
    n_clients : int
        N.

    Returns
    -------
    float

    Raises
    ------
    ValueError

    References
    ----------
    Bietti et al. (2022), section 6 and Theorem 5.1; Abadi et al. (2016).

    See Also
    --------
    ppsgd_joint_epsilon : The exact account.

    Examples
    --------
    >>> ppsgd_claimed_epsilon(1.0, 1e-4, rounds=2000, participants=10, n_clients=500)
    5.39
    """
    release = sampled(n_clients, participants, "poisson", events.gaussian(noise_multiplier))
    # [P] Theorem 5.1
    return accountant.epsilon(
        events.repeated(release, rounds), delta, relation="add_or_remove", method="rdp"
    )


def ppsgd_joint_epsilon(
    noise_multiplier: float,
    delta: float,
    *,
    rounds: int,
    participants: int,
    n_clients: int,
    relation: Relation,
    times: int | None = None,
) -> float:
    r"""Compute the epsilon of PPSGD with samples of fixed size, under joint privacy.

    The other clients together know who took part, because Q of them did, or one less. Towards them
    a client that was drawn k times is protected by k Gaussian releases, equal to one with noise
    multiplier :math:`z / \sqrt k`; with :math:`\delta_z` the `gaussian_delta` (2 C for the
    sensitivity, if a client is replaced),

    .. math:: \delta(\varepsilon) = \mathbb{E}\,\delta_{z / \sqrt k}(\varepsilon),
        \qquad k \sim \mathrm{Binomial}(T, Q / N).

    This is exact, because k depends on no data. Clients that are drawn often are protected less.

    Parameters
    ----------
    noise_multiplier : float
        Of the sum over clients.
    delta : float
    rounds, participants, n_clients : int
        T, Q, N.
    relation : {"add_or_remove", "replace_one"}
        Whether the client's gradients are left out (replaced by zeros) or exchanged for any others.
        The paper's definition is the latter.
    times : int, optional
        Number k of times that the client was drawn; the average over k if None.

    Returns
    -------
    float

    Raises
    ------
    ValueError

    References
    ----------
    Bietti et al. (2022), Definition 3.2 and section 6; Balle and Wang (2018), Theorem 8.

    Examples
    --------
    A client that was drawn 40 times, the mean number, and one whose number is random:

    >>> for relation in ("add_or_remove", "replace_one"):
    ...     setting = dict(rounds=2000, participants=10, n_clients=500, relation=relation)
    ...     for times in (40, None):
    ...         epsilon = ppsgd_joint_epsilon(1.0, 1e-4, **setting, times=times)
    ...         print(relation, times, round(epsilon, 2))
    add_or_remove 40 42.74
    add_or_remove None 48.33
    replace_one 40 126.17
    replace_one None 153.43
    """
    from scipy.optimize import brentq
    from scipy.stats import binom

    multiplier = check_positive("noise_multiplier", noise_multiplier)
    delta, rounds = check_delta(delta), check_count("rounds", rounds)
    events.fixed_size(n_clients, participants, events.gaussian(multiplier))  # checks the counts
    sensitivity = sensitivity_of(relation)
    rate, rare = participants / n_clients, 1e-6 * delta
    if times is None:
        first = max(int(binom.ppf(rare, rounds, rate)), 1)
        counts = np.arange(first, int(binom.isf(rare, rounds, rate)) + 1)
        chances = binom.pmf(counts, rounds, rate)
        # the omitted tails, a millionth of delta each, count as if they gave the data away
        lost = 1 - binom.pmf(0, rounds, rate) - chances.sum()
    elif check_count("times", times) > rounds:
        raise ValueError(f"times must be at most rounds, {rounds}; got {times}.")
    else:
        counts, chances, lost = np.array([times]), np.ones(1), 0.0

    def excess(epsilon: float) -> float:
        deltas = [gaussian_delta(multiplier / math.sqrt(k), epsilon, sensitivity) for k in counts]
        return float(chances @ deltas) + max(lost, 0.0) - delta  # [P] Definition 3.2

    low, high = 1e-9, 1.0
    if excess(low) <= 0:
        return 0.0
    while excess(high) > 0:
        low, high = high, 2 * high
    return float(brentq(excess, low, high, xtol=1e-9))
