"""The noise of Theorem 5: its claimed epsilon, and the true one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from ebfed.privacy import accountant
from ebfed.theory.private_learning import adaped_claimed_epsilon, adaped_event
from ozkara2023.personalization.settings import DELTA, STEPS

__all__ = ["Price", "price"]


@dataclass(frozen=True)
class Price:
    """Claimed and true epsilon of noise in rounds of all clients.

    Attributes
    ----------
    claimed : float
        Epsilon by Theorem 5 as printed.
    multiplier : float
        Noise multiplier of all releases of a round.
    epsilon, exchanged : float
        True epsilon, with one client more or less, and with one client exchanged for another.
    """

    claimed: float
    multiplier: float
    epsilon: float
    exchanged: float


@cache
def price(claimed: float, *, rounds: int, m: int, delta: float = DELTA) -> Price:
    """Find the noise for which Theorem 5 claims an epsilon, and its true epsilon.

    The gradients of mu and of psi get noise in the same proportion to their norms.

    Parameters
    ----------
    claimed : float
        Epsilon by Theorem 5 as printed.
    rounds : int
        Number of rounds of ten local steps each.
    m : int
        Number of clients, who all take part in all rounds.
    delta : float

    Returns
    -------
    Price

    References
    ----------
    Ozkara, Girgis, Data and Diggavi (2023), Theorem 5, which loses a factor: see
    `theory.private_learning.adaped_claimed_epsilon`.

    Examples
    --------
    >>> of_table = price(3.35, rounds=60, m=50)
    >>> of_table.multiplier, of_table.epsilon, of_table.exchanged
    (10.2..., 2.7..., 6.2...)
    """
    from scipy.optimize import brentq

    everyone: dict[str, Any] = {"rounds": rounds, "participants": m, "n_clients": m}

    def excess(logarithm: float) -> float:
        u = math.exp(logarithm)
        return adaped_claimed_epsilon([u, u], delta, **everyone) - claimed

    u = math.exp(brentq(excess, math.log(1e-3), math.log(1e5), xtol=1e-10))
    event = adaped_event([u, u], local_steps=STEPS, **everyone)
    true, exchanged = (
        accountant.epsilon(event, delta, relation=relation, interval=1e-3)
        for relation in ("add_or_remove", "replace_one")
    )
    return Price(claimed, event.event.noise_multiplier, true, exchanged)
