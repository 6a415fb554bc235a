"""The privacy odometer: what each group has spent, over rounds, runs and methods.

A `Plan` states all that a run may take from some groups: a mechanism, not an epsilon. The
odometer keeps the mechanisms of every plan and composes them, so that a hundred small releases cost
what they cost together, which is much less than the sum of their epsilons.

A plan is charged as a whole before the first round. The guarantee is therefore that of a fixed
composition: it holds if nobody chooses the noise of a later run because of what an earlier one
showed. What is estimated, and from which rows, may depend on everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.privacy import accountant, events
from ebfed.privacy.accountant import Relation

__all__ = ["Charge", "Odometer", "Plan", "compose"]


@dataclass(frozen=True)
class Plan:
    """All that a run may take from some groups.

    Parameters
    ----------
    who : str
        Name of the class of groups, such as "private" or "open".
    members : bool ndarray of shape (n_groups,)
        Which groups of a block.
    event : dp_accounting.DpEvent
        All releases of the run, of one group; see `ebfed.privacy.events`.
    relation : {"add_or_remove", "replace_one"}
        Neighbours for which the event is stated.
    epsilon, delta : float
        Guarantee of the run, as the estimator's ledger states it.
    rounds : int, optional
        Number of rounds in which a group may be asked; None if a group answers once, whenever that
        is, or if no guarantee depends on it.
    noise : float, optional
        Standard deviation of the noise that each group adds itself, in units of half the range, if
        its guarantee depends on a number that the server states.
    trusts_server : bool
        Whether the guarantee holds against readers of the result alone, since the server sees
        messages with less noise.
    of_sum : bool
        Whether the noise is in a sum over groups, which moves with each group of a person.
    """

    who: str
    members: NDArray[np.bool_]
    event: events.Event
    relation: Relation
    epsilon: float
    delta: float
    rounds: int | None = None
    noise: float | None = None
    trusts_server: bool = False
    of_sum: bool = False

    @classmethod
    def exact(cls, who: str, members: NDArray[np.bool_], rounds: int | None = None) -> Self:
        """Return the plan of releases without a guarantee."""
        return cls(who, members, events.open_release(), "replace_one", math.inf, 0.0, rounds)

    @property
    def charge(self) -> Charge:
        """What it costs a group."""
        return Charge(self.event, self.relation, self.epsilon, self.delta)


@dataclass(frozen=True)
class Charge:
    """A mechanism, with the guarantee that was stated of it.

    Parameters
    ----------
    event : dp_accounting.DpEvent
    relation : {"add_or_remove", "replace_one"}
    epsilon, delta : float

    Examples
    --------
    >>> charge = Charge(events.pure(0.5), "replace_one", 0.5, 0.0)
    >>> Charge.from_dict(charge.to_dict()) == charge
    True
    """

    event: events.Event
    relation: Relation
    epsilon: float
    delta: float

    def to_dict(self) -> dict[str, Any]:
        """Describe it for a file; an infinite epsilon is None."""
        epsilon = self.epsilon if math.isfinite(self.epsilon) else None
        return {
            "event": events.to_dict(self.event),
            "relation": self.relation,
            "epsilon": epsilon,
            "delta": self.delta,
        }

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """Return what `to_dict` described."""
        epsilon = description["epsilon"]
        return cls(
            events.from_dict(description["event"]),
            description["relation"],
            math.inf if epsilon is None else float(epsilon),
            float(description["delta"]),
        )


@dataclass
class Odometer:
    """Charges of groups.

    Examples
    --------
    >>> report = Charge(events.gaussian(5.0), "replace_one", 1.0, 1e-3)
    >>> odometer = Odometer()
    >>> for _ in range(10):
    ...     odometer.add(report, ["Ward 1", "Ward 2"])
    >>> odometer.add(report, ["Ward 2"])
    >>> odometer.spent(1e-5)
    {'Ward 1': 5.76, 'Ward 2': 6.09}
    """

    charges: list[Charge] = field(default_factory=list)
    _of: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def add(self, charge: Charge, groups: Iterable[str]) -> None:
        """Charge groups."""
        self.charges.append(charge)
        for group in groups:
            self._of[group] = (*self._of.get(group, ()), len(self.charges) - 1)

    def charges_of(self, group: str) -> list[Charge]:
        """Return the charges of a group, none if it is not known."""
        return [self.charges[i] for i in self._of.get(group, ())]

    def spent(self, delta: float, groups: Iterable[str] | None = None) -> dict[str, float]:
        """Return the epsilon of each group at a delta, 0 for a group without charges.

        Parameters
        ----------
        delta : float
        groups : iterable of str, optional
            All groups that were charged, by default.
        """
        known: dict[tuple[int, ...], float] = {(): 0.0}
        spent = {}
        for group in self._of if groups is None else groups:
            which = self._of.get(group, ())
            if which not in known:
                known[which] = compose([self.charges[i] for i in which], delta)
            spent[group] = known[which]
        return spent


def compose(charges: Sequence[Charge], delta: float) -> float:
    """Compute the epsilon of several charges of one group at a delta.

    It is the least of two bounds. One adds up the stated epsilons, if their deltas add up to no
    more than `delta`. The other composes the mechanisms, by the distribution of the privacy loss,
    or by Rényi divergences where a mechanism has no such distribution.

    Parameters
    ----------
    charges : sequence of Charge
    delta : float

    Returns
    -------
    float
        Infinite if a charge has no guarantee.

    References
    ----------
    Koskela, Jälkö and Honkela (2020); Doroshenko et al. (2022), Connect the dots; Mironov (2017).

    Examples
    --------
    Twenty reports at epsilon 0.1 each:

    >>> compose([Charge(events.pure(0.1), "replace_one", 0.1, 0.0)] * 20, 1e-5)
    1.62
    """
    if not charges:
        return 0.0
    total = math.fsum(charge.epsilon for charge in charges)
    if not math.isfinite(total):
        return math.inf
    fits = math.fsum(charge.delta for charge in charges) <= delta * (1 + 1e-9)
    stated = total if fits else math.inf
    if len(charges) == 1 and fits:
        return stated
    parts = _merged(charges)
    bound = accountant.joint_epsilon(parts, delta, method="rdp")
    try:
        interval = accountant.step(len(charges), min(bound, stated))
        bound = accountant.joint_epsilon(parts, delta, method="pld", interval=interval)
    except ValueError:  # a mechanism without a distribution of the privacy loss
        pass
    return min(bound, stated)


def _merged(charges: Sequence[Charge]) -> list[tuple[events.Event, Relation]]:
    """Return the distinct events, each repeated as often as it was charged."""
    counts: list[tuple[events.Event, Relation, int]] = []
    for charge in charges:
        for i, (event, relation, times) in enumerate(counts):
            if (event, relation) == (charge.event, charge.relation):
                counts[i] = event, relation, times + 1
                break
        else:
            counts.append((charge.event, charge.relation, 1))
    return [(events.repeated(event, times), relation) for event, relation, times in counts]
