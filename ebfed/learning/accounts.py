"""What a round of private learning costs, and the noise that keeps a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ebfed.privacy import accountant, events
from ebfed.privacy.calibration import gaussian_epsilon, gaussian_sigma
from ebfed.privacy.ledger import LOCAL

__all__ = ["Round", "Trust"]

Trust = Literal["server", "none", "nobody"]
# Largest epsilon that is worth an account of samples, whose numbers overflow beyond.
MOST = 1e6
Account: TypeAlias = "tuple[accountant.Method, Callable[[float], events.Event]]"


@dataclass(frozen=True)
class Round:
    """One round of a private learner, as far as an account needs to know it.

    Attributes
    ----------
    rate : float
        Share of the clients that is invited.
    clients : int
        How many there are, where samples have a fixed size.
    sampling : {"poisson", "fixed"}
    trust : {"server", "none", "nobody"}
    """

    # Whether all that is released is a sum with Gaussian noise.
    gaussian: ClassVar[bool] = True

    rate: float
    clients: int
    sampling: str
    trust: Trust

    @property
    def relation(self) -> accountant.Relation:
        """Which inputs are neighbours."""
        sampled = self.trust == "server" and self.rate < 1 and self.sampling == "fixed"
        exchange = self.trust == "none" or sampled
        return "replace_one" if exchange else "add_or_remove"

    @property
    def promise(self) -> str:
        """Which inputs are neighbours, in words."""
        if self.trust == "none":
            return LOCAL
        if self.relation == "replace_one":
            return "one client exchanged for another"
        return "the rows of one client, or none"

    @property
    def unsampled(self) -> bool:
        """Whether nothing is amplified, so that there is a closed form."""
        return self.trust != "server" or self.rate == 1  # the server knows whom it invites

    @property
    def sensitivity(self) -> float:
        """By how much, in units of C, a sum changes between neighbours."""
        return 2.0 if self.relation == "replace_one" else 1.0

    @property
    def accounts(self) -> list[Account]:
        """Return bounds of what it costs, of which the least holds.

        The one account of samples of a fixed size is loose, and may be above that of no sampling.
        """
        if self.sampling == "fixed" and self.rate < 1 and self.trust == "server":
            return [("rdp", self.event), ("pld", events.gaussian)]
        return [("pld", self.event)]

    def most(self, multiplier: float, rounds: int, delta: float) -> float:
        """Epsilon of so many rounds with everyone, which samples do not exceed."""
        if not self.gaussian:
            return math.inf
        # T releases of multiplier z are one of z / root T
        return gaussian_epsilon(multiplier / math.sqrt(rounds), delta, self.sensitivity)

    def event(self, multiplier: float) -> events.Event:
        """Describe the release."""
        release = events.gaussian(multiplier)
        if self.unsampled:
            return release
        if self.sampling == "poisson":
            return events.poisson(self.rate, release)
        return events.fixed_size(self.clients, self.expected, release)

    @property
    def expected(self) -> int:
        """How many clients a round of a fixed size has."""
        return max(1, round(self.rate * self.clients))

    def whole(self, multiplier: float, rounds: int, delta: float) -> events.Event:
        """Describe so many rounds by the account that gives the least epsilon."""
        if multiplier == 0:
            return events.open_release()
        return events.repeated(_cheapest(self, multiplier, rounds, delta)[1](multiplier), rounds)

    def spent(self, multiplier: float, rounds: int, delta: float) -> NDArray[np.float64]:
        """Epsilon after one round, two, ..., that many: upper bounds."""
        return np.array(_spent(self, multiplier, rounds, delta))

    def epsilon(self, multiplier: float, rounds: int, delta: float) -> float:
        """Epsilon of so many rounds."""
        return _epsilon(self, multiplier, rounds, delta)

    def multiplier(self, epsilon: float, rounds: int, delta: float) -> float:
        """Noise multiplier with which so many rounds are worth epsilon."""
        return _multiplier(self, epsilon, rounds, delta)


@lru_cache(maxsize=256)
def _epsilon(round_: Round, multiplier: float, rounds: int, delta: float) -> float:
    if multiplier == 0:
        return math.inf
    most = round_.most(multiplier, rounds, delta)
    if round_.unsampled:
        return most
    account = _cheapest(round_, multiplier, rounds, delta)
    return min(_cost(round_, account, multiplier, rounds, delta), most)


@lru_cache(maxsize=256)
def _cheapest(round_: Round, multiplier: float, rounds: int, delta: float) -> Account:
    """Return the account that gives the least epsilon."""
    if len(round_.accounts) == 1:
        return round_.accounts[0]
    return min(round_.accounts, key=lambda each: _cost(round_, each, multiplier, rounds, delta))


def _cost(round_: Round, account: Account, multiplier: float, rounds: int, delta: float) -> float:
    """Epsilon of so many rounds by one account."""
    method, event = account
    sampled = events.repeated(round_.event(multiplier), rounds)
    rough = accountant.epsilon(sampled, delta, relation=round_.relation, method="rdp")
    if round_.gaussian and not rough <= MOST:
        return round_.most(multiplier, rounds, delta)
    return accountant.epsilon(
        events.repeated(event(multiplier), rounds),
        delta,
        relation=round_.relation,
        method=method,
        interval=accountant.step(rounds, rough),
    )


@lru_cache(maxsize=64)
def _spent(round_: Round, multiplier: float, rounds: int, delta: float) -> tuple[float, ...]:
    event = round_.event(multiplier)
    bounds = accountant.epsilons(event, rounds, delta, relation=round_.relation)
    return tuple(np.minimum(bounds, _epsilon(round_, multiplier, rounds, delta)).tolist())


@lru_cache(maxsize=256)
def _multiplier(round_: Round, epsilon: float, rounds: int, delta: float) -> float:
    most = math.inf
    if round_.gaussian:
        most = math.sqrt(rounds) * gaussian_sigma(epsilon, delta, round_.sensitivity)
        if round_.unsampled or epsilon > MOST:
            return most

    def enough(method: accountant.Method, event: Callable[[float], events.Event]) -> float:
        return accountant.noise_multiplier(
            lambda z: events.repeated(event(z), rounds),
            epsilon,
            delta,
            relation=round_.relation,
            method=method,
            interval=accountant.step(rounds, epsilon),
        )

    return min(most, *(enough(*account) for account in round_.accounts))
