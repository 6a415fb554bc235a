"""A_NSGD: its claimed noise, its releases, and the noise that its claim needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ebfed.privacy import accountant, events
from ebfed.privacy.calibration import check_count, check_delta, check_epsilon
from ebfed.theory.private_learning.sampling import Sampling, sampled

if TYPE_CHECKING:
    from ebfed.privacy.events import Event

__all__ = ["nsgd_claimed_multiplier", "nsgd_constant", "nsgd_event"]


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
        drawn = sampled(n_records, 1, sampling, release)
        return events.repeated(drawn, max(round(steps / n_owners), 1))
    return events.repeated(sampled(n_records * n_owners, 1, sampling, release), steps)


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
