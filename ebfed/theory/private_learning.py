r"""Privacy of four algorithms of private learning: the claims of papers, and exact accounts.

For each, a ``..._claimed_...`` function gives the paper's figure, for replication, and another
describes the releases, for `ebfed.privacy.accountant`. The figures:

- DP-AdaPeD, 10 local steps, one client replaced: claimed 3.23, accounted 5.98
- PPSGD, 10 of 500 clients in each of 2000 rounds: claimed 5.39, accounted 48.3 (42.7 if drawn 40
  times)
- FeO2, clipping bits 0 or 1: claimed 3.60, accounted 3.85 with noise 5, 10.8 with noise 1
- A_NSGD, 4 owners of 20 records: claimed 1, accounted 1.25 as a whole
- A_NSGD with this corrected, towards 3, 15 and 63 others: claimed 1, accounted 2.15, 4.69 and 10.6

Unless stated, one client (or record) is added or removed, the most favourable choice for the
papers; their definitions exchange one for another. The first two accounts are exact, the others by
Rényi divergences, as in the papers; exactly, the last row is 1.99; 4.33; 9.86.

A noise multiplier is the standard deviation of noise over the largest norm C of one contribution
(`ebfed.privacy.events`); ``rounds`` counts releases.

Sampling protects from readers who do not know whether the client was drawn. Under *joint* privacy
the adversary is all other clients together, who know when they took part themselves. If the size of
the sample is fixed, they also know whether the last client did: there is no amplification.

References
----------
Aldaghri, Mahdavifar and Beirami (2021), FeO2: Federated learning with opt-out differential privacy.
Bietti, Wei, Dudík, Langford and Wu (2022), Personalization improves privacy-accuracy tradeoffs in
federated learning (PPSGD).
Huang, Jiang, Liu, Mahdian, Mao and Mirrokni (2023), Learning across data owners with joint
differential privacy (A_NSGD).
Ozkara, Girgis, Data and Diggavi (2023), A statistical framework for personalized federated learning
and estimation: theory, algorithms, and privacy (DP-AdaPeD).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from ebfed.privacy import accountant, events, gaussian_delta
from ebfed.privacy.accountant import Relation, sensitivity_of
from ebfed.privacy.calibration import check_count, check_delta, check_epsilon, check_positive

if TYPE_CHECKING:
    from ebfed.privacy.events import Event

__all__ = [
    "Sampling",
    "adaped_claimed_epsilon",
    "adaped_event",
    "feo2_claimed_epsilon",
    "feo2_event",
    "nsgd_claimed_multiplier",
    "nsgd_constant",
    "nsgd_event",
    "ppsgd_claimed_epsilon",
    "ppsgd_joint_epsilon",
]

Sampling: TypeAlias = Literal["poisson", "fixed_size"]


def _sampled(total: int, sample: int, sampling: Sampling, event: Event) -> Event:
    """Describe an event on `sample` of `total` clients, in expectation or exactly; or on all."""
    if sampling not in get_args(Sampling):
        raise ValueError(f"sampling must be one of {get_args(Sampling)}; got {sampling!r}.")
    drawn = events.fixed_size(total, sample, event)  # checks the counts
    if sample == total:
        return event
    return drawn if sampling == "fixed_size" else events.poisson(sample / total, event)


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
    return events.repeated(_sampled(n_clients, participants, sampling, release), rounds)


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


def nsgd_claimed_multiplier(
    epsilon: float, delta: float, *, steps: int, n_owners: int, n_records: int
) -> float:
    r"""Give the noise multiplier with which A_NSGD claims (epsilon, delta).

    .. math:: \frac{\sigma}{L} = \frac{\sqrt{T \log(1 / \delta)}}{\varepsilon\, m n}

    Parameters
    ----------
    epsilon, delta : float
    steps : int
        T, of one record each; the theorem takes ``(m n)^2``.
    n_owners : int
        n.
    n_records : int
        m, of each owner.

    Returns
    -------
    float
        Standard deviation of the noise over L, the largest norm of a gradient.

    Raises
    ------
    ValueError

    References
    ----------
    Huang et al. (2023), Algorithm 1, line 2, and Theorem 3.1. Lemma 3.2 has a constant in front,
    which Algorithm 1 sets to 1: see `nsgd_constant`.

    Examples
    --------
    >>> z = nsgd_claimed_multiplier(1.0, 1e-5, steps=6400, n_owners=4, n_records=20)
    >>> z
    3.393
    >>> event = nsgd_event(z, steps=6400, n_owners=4, n_records=20, joint=False)
    >>> accountant.epsilon(event, 1e-5, relation="add_or_remove", method="rdp")
    1.25
    """
    records = check_count("n_owners", n_owners) * check_count("n_records", n_records)
    scale = check_epsilon(epsilon) * records
    log = math.log(1 / check_delta(delta))
    return math.sqrt(check_count("steps", steps) * log) / scale  # [J] Theorem 3.1


def nsgd_event(
    noise_multiplier: float,
    *,
    steps: int,
    n_owners: int,
    n_records: int,
    joint: bool = True,
    sampling: Sampling = "poisson",
) -> Event:
    """Describe the releases of A_NSGD about one record.

    A step draws one of all m n records. Seen from outside, a record is drawn with probability ``1 /
    (m n)`` in each of T steps. The other owners together know when they were not drawn themselves:
    towards them it is drawn with probability ``1 / m`` in about ``T / n`` steps.

    Parameters
    ----------
    noise_multiplier : float
        Noise over the largest norm L of a gradient.
    steps, n_owners, n_records : int
        T, n, m.
    joint : bool
        Whether the adversary is the other owners (joint privacy, the claim) or someone outside.
    sampling : {"poisson", "fixed_size"}
        Sampling of records. "fixed_size" is that of the paper, with a loose account by
        ``method="rdp", relation="replace_one"`` only. With "poisson", every record joins
        independently, as it should be. With ``relation="add_or_remove"`` it is also an exact
        account of one case of the paper's sampling: one record has gradient L or 0, all others 0. A
        claim below this account is false.

    Returns
    -------
    dp_accounting.SelfComposedDpEvent
        Under joint privacy of ``T / n`` steps, rounded: their number is random, and its spread is
        left out.

    Raises
    ------
    ValueError

    References
    ----------
    Huang et al. (2023), Algorithm 1 and the proof of Lemma 3.2.

    Examples
    --------
    >>> event = nsgd_event(4.0, steps=6400, n_owners=4, n_records=20)
    >>> event.count, event.event.sampling_probability
    (1600, 0.05)
    """
    steps, n_owners = check_count("steps", steps), check_count("n_owners", n_owners)
    release, n_records = events.gaussian(noise_multiplier), check_count("n_records", n_records)
    if joint:
        drawn = _sampled(n_records, 1, sampling, release)
        return events.repeated(drawn, max(round(steps / n_owners), 1))
    return events.repeated(_sampled(n_records * n_owners, 1, sampling, release), steps)


def nsgd_constant(
    epsilon: float,
    delta: float,
    *,
    steps: int,
    n_owners: int,
    n_records: int,
    joint: bool = True,
) -> float:
    """Find the factor by which A_NSGD's noise variance must grow to make its claim true.

    Parameters
    ----------
    epsilon, delta, steps, n_owners, n_records
        As for `nsgd_claimed_multiplier`.
    joint : bool
        As for `nsgd_event`.

    Returns
    -------
    float
        By Rényi divergences, records joining independently, one added or removed. Exactly, it is
        less, from outside about 1.25 instead of 1.47.

    Raises
    ------
    ValueError

    Examples
    --------
    Outside, a constant; towards the other owners it grows with them:

    >>> for n in (4, 64):
    ...     setting = dict(steps=(20 * n) ** 2, n_owners=n, n_records=20)
    ...     outside = nsgd_constant(1.0, 1e-5, **setting, joint=False)
    ...     print(n, round(outside, 2), round(nsgd_constant(1.0, 1e-5, **setting), 2))
    4 1.48 5.8
    64 1.47 91.08
    """
    claimed = nsgd_claimed_multiplier(
        epsilon, delta, steps=steps, n_owners=n_owners, n_records=n_records
    )

    def released(multiplier: float) -> Event:
        return nsgd_event(
            multiplier, steps=steps, n_owners=n_owners, n_records=n_records, joint=joint
        )

    needed = accountant.noise_multiplier(
        released, epsilon, delta, relation="add_or_remove", method="rdp"
    )
    return (needed / claimed) ** 2  # [J] Lemma 3.2


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
    release = _sampled(n_clients, participants, "poisson", events.gaussian(noise_multiplier))
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
