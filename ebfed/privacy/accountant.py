"""Composition of releases: (epsilon, delta) of an event, and the noise for a target.

Two choices have no default.

*Neighbours.* Under ``relation="add_or_remove"`` two inputs differ by the presence of one
client, as usual for noisy sums of a server. Under ``relation="replace_one"`` one client is
exchanged for another. That is the relation of local privacy, where every client reports, and of
samples of fixed size. The two epsilons of a release differ, often by a factor of two.

*Unit of the noise.* It is C, the largest norm of one contribution (`events.gaussian`): adding a
client changes a sum by C, replacing one by 2 C. dp-accounting's PLD accountant uses this unit. Its
RDP accountant takes C as the sensitivity under both relations, so noise multipliers are halved here
before RDP accounting under "replace_one". An event then has the same meaning for both.

``method="pld"`` composes the distribution of the privacy loss numerically. It rounds upwards and is
exact up to `interval`. ``method="rdp"`` composes Rényi divergences. It is an upper bound, loose for
epsilon below 0.1, and the only method for samples of fixed size.

All functions need ``pip install "ebfed[accounting]"``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ebfed.privacy.calibration import check_count, check_delta, check_epsilon, check_positive
from ebfed.privacy.events import accounting

if TYPE_CHECKING:
    from ebfed.privacy.events import Event

__all__ = [
    "Method",
    "Relation",
    "delta",
    "epsilon",
    "epsilons",
    "joint_epsilon",
    "noise_multiplier",
    "sensitivity_of",
    "step",
]

Relation: TypeAlias = Literal["add_or_remove", "replace_one"]
Method: TypeAlias = Literal["pld", "rdp"]


def sensitivity_of(relation: Relation) -> float:
    """Return how far neighbouring inputs move a sum of vectors of length 1 at most.

    Parameters
    ----------
    relation : {"add_or_remove", "replace_one"}

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If there is no such relation.

    Examples
    --------
    >>> sensitivity_of("add_or_remove"), sensitivity_of("replace_one")
    (1.0, 2.0)
    """
    if relation not in get_args(Relation):
        raise ValueError(f"relation must be one of {get_args(Relation)}; got {relation!r}.")
    return 2.0 if relation == "replace_one" else 1.0


def epsilon(
    event: Event,
    delta: float,
    *,
    relation: Relation,
    method: Method = "pld",
    interval: float = 1e-4,
) -> float:
    """Compute the epsilon of an event at a given delta.

    Parameters
    ----------
    event : dp_accounting.DpEvent
        See `ebfed.privacy.events`.
    delta : float
    relation : {"add_or_remove", "replace_one"}
        Relation between neighbouring inputs.
    method : {"pld", "rdp"}
    interval : float
        Step of the discretised privacy loss, for PLD. A large step overstates epsilon and a small
        one takes time. A thousandth of epsilon is enough, except for thousands of events.

    Returns
    -------
    float
        Infinite if the event has no guarantee at that delta.

    Raises
    ------
    ValueError
        If an argument is invalid, or the method cannot account for the event under the relation;
        the message names those that can.

    References
    ----------
    Koskela, Jälkö and Honkela (2020); Doroshenko et al. (2022), Connect the dots (PLD).
    Mironov (2017); Canonne, Kamath and Steinke (2020), Proposition 12 (RDP).

    Examples
    --------
    >>> from ebfed.privacy import events
    >>> training = events.repeated(events.poisson(0.05, events.gaussian(1.0)), 500)
    >>> epsilon(training, 1e-4, relation="add_or_remove", interval=1e-3)
    6.48
    >>> epsilon(training, 1e-4, relation="replace_one", interval=1e-3)
    10.78
    """
    check_delta(delta)
    return float(_account(event, relation, method, interval).get_epsilon(delta))


def joint_epsilon(
    releases: Sequence[tuple[Event, Relation]],
    delta: float,
    *,
    method: Method = "pld",
    interval: float = 1e-4,
) -> float:
    """Compute the epsilon of several events, each with neighbours of its own.

    The data of one client are compared with no data of it. A release that hides which of two data
    sets a client has also hides whether it has one, so its cost under "replace_one" holds here. If
    every relation is "replace_one", any two data sets are compared.

    Parameters
    ----------
    releases : sequence of (dp_accounting.DpEvent, {"add_or_remove", "replace_one"})
        At least one.
    delta, method, interval
        As for `epsilon`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        As for `epsilon`.

    Examples
    --------
    A report of each of ten days, and a training:

    >>> from ebfed.privacy import events
    >>> reports = events.repeated(events.pure(0.1), 10)
    >>> training = events.repeated(events.poisson(0.05, events.gaussian(2.0)), 100)
    >>> releases = [(reports, "replace_one"), (training, "add_or_remove")]
    >>> joint_epsilon(releases, 1e-5, interval=1e-3)
    1.61
    """
    check_delta(delta)
    if not releases:
        raise ValueError("releases must hold at least one event; got none.")
    accountants = [_account(event, relation, method, interval) for event, relation in releases]
    if method == "pld":
        whole = accountants[0]._pld
        for each in accountants[1:]:
            whole = whole.compose(each._pld)
        return float(whole.get_epsilon_for_delta(delta))
    from dp_accounting.rdp import compute_epsilon

    with _quietly():
        divergences = np.sum([each._rdp for each in accountants], axis=0)
        return float(compute_epsilon(accountants[0]._orders, divergences, delta)[0])


def step(times: int, rough: float) -> float:
    """Return a step of the privacy loss for so many events worth about epsilon `rough`.

    Every step gives a valid epsilon. A large one needs no small step.
    """
    return (1e-3 if times < 1000 else 1e-4) * max(1.0, rough / 10)


def epsilons(event: Event, times: int, delta: float, *, relation: Relation) -> NDArray:
    r"""Bound the epsilon of an event after it happened once, twice, ..., `times` times.

    The Rényi divergences of one event, at all orders, are computed once; t events have t times
    those, and the best order of

    .. math:: \varepsilon_t = t \rho_\alpha + \log(1 - 1/\alpha)
        - \frac{\log(\alpha\delta)}{\alpha - 1}.

    Parameters
    ----------
    event : dp_accounting.DpEvent
        Event of one round.
    times : int
        Number of rounds.
    delta : float
    relation : {"add_or_remove", "replace_one"}
        Relation between neighbouring inputs.

    Returns
    -------
    ndarray, shape (times,)
        Entry t - 1 is the `epsilon` of ``events.repeated(event, t)`` by ``method="rdp"``, an upper
        bound. It does not depend on data, so the last round within a budget is known in advance.

    Raises
    ------
    ValueError
        If an argument is invalid, or Rényi divergences cannot account for the event under the
        relation; the message names methods that can.

    References
    ----------
    Mironov (2017), Proposition 1; Canonne, Kamath and Steinke (2020), Proposition 12.

    Examples
    --------
    >>> from ebfed.privacy import events
    >>> spent = epsilons(
    ...     events.poisson(0.05, events.gaussian(1.0)), 500, 1e-4, relation="add_or_remove"
    ... )
    >>> spent[[0, 9, 99, 499]].round(2)
    array([1.22, 1.69, 3.39, 7.26])
    """
    check_delta(delta)
    rounds = np.arange(1, check_count("times", times) + 1)
    accountant = _account(event, relation, "rdp", 1.0)
    spent = np.full(times, np.inf)
    for order, divergence in zip(accountant._orders, accountant._rdp, strict=True):
        total = rounds * divergence
        bound = total + np.log1p(-1 / order) - np.log(delta * order) / (order - 1)
        # total variation is at most sqrt(1 - e^-total): delta alone may cover it
        spent = np.minimum(spent, np.where(-np.expm1(-total) < delta**2, 0.0, bound))
    return np.maximum(spent, 0.0)


def delta(
    event: Event,
    epsilon: float,
    *,
    relation: Relation,
    method: Method = "pld",
    interval: float = 1e-4,
) -> float:
    """Compute the delta of an event at a given epsilon.

    Parameters
    ----------
    event : dp_accounting.DpEvent
    epsilon : float
    relation, method, interval
        As for `epsilon`.

    Returns
    -------
    float
        1 if the event has no guarantee.

    Raises
    ------
    ValueError
        As for `epsilon`.

    Examples
    --------
    >>> from ebfed.privacy import events, gaussian_delta
    >>> delta(events.gaussian(2.0), 1.0, relation="replace_one")
    0.12694
    >>> gaussian_delta(sigma=2.0, epsilon=1.0, sensitivity=2.0)
    0.12694
    """
    check_epsilon(epsilon)
    return float(_account(event, relation, method, interval).get_delta(epsilon))


def noise_multiplier(
    make_event: Callable[[float], Event],
    epsilon: float,
    delta: float,
    *,
    relation: Relation,
    method: Method = "pld",
    interval: float = 1e-4,
) -> float:
    """Find the smallest noise multiplier with which an event is (epsilon, delta)-private.

    The search uses a coarse step; the answer is verified at `interval`.

    Parameters
    ----------
    make_event : callable
        Function from a noise multiplier to the event; more noise must give more privacy.
    epsilon, delta : float
        Target guarantee.
    relation, method, interval
        As for `epsilon`.

    Returns
    -------
    float
        Smallest noise multiplier up to a relative 1e-4, rounded up. The search stops near 0.1 if
        that is enough because a client is rarely drawn. The noise has standard deviation
        ``noise_multiplier * C``, where C is the largest norm of one contribution, under both
        relations.

    Raises
    ------
    ValueError
        As for `epsilon`; or if no noise multiplier is enough.

    Examples
    --------
    >>> from ebfed.privacy import events
    >>> noise_multiplier(
    ...     lambda z: events.repeated(events.poisson(0.05, events.gaussian(z)), 500),
    ...     epsilon=3.6, delta=1e-4, relation="add_or_remove",
    ... )
    1.40
    """
    dpa = accounting()
    check_epsilon(epsilon)
    check_delta(delta)
    check_positive("interval", interval)
    coarse = max(interval, min(1e-3, 2e-4 * epsilon))

    def spent(multiplier: float, interval: float = coarse) -> float:
        return _account(make_event(multiplier), relation, method, interval).get_epsilon(delta)

    high = 1.0
    while spent(high) > epsilon:
        if high > 2**20:
            raise ValueError(
                f"no noise multiplier up to {high:.0f} makes {make_event(high)} private with "
                f"epsilon={epsilon} and delta={delta}; part of it does not depend on the noise."
            )
        high *= 2
    low = high / 2
    # with this noise a drawn client loses 2 (epsilon + 40): only sampling protects it
    least = 0.5 / (epsilon + 40) ** 0.5
    while spent(low) <= epsilon:
        if low <= least:
            return low
        high, low = low, low / 2
    multiplier = dpa.calibrate_dp_mechanism(
        lambda: _fresh(relation, method, coarse),
        lambda z: _adapted(make_event(z), relation, method),
        epsilon,
        delta,
        bracket_interval=dpa.ExplicitBracketInterval(low, high),
        tol=1e-4 * low,
    )
    while spent(multiplier, interval) > epsilon:
        multiplier *= 1 + 1e-4
    return float(multiplier)


def _account(event: Event, relation: Relation, method: Method, interval: float) -> Any:
    """Return the dp-accounting accountant after the event."""
    for name, value, known in (("relation", relation, Relation), ("method", method, Method)):
        if value not in get_args(known):
            raise ValueError(f"{name} must be one of {get_args(known)}; got {value!r}.")
    check_positive("interval", interval)
    accountant = _fresh(relation, method, interval)
    if not accountant.supports(event):
        able = [
            f"method={other!r} with relation={neighbours!r}"
            for neighbours in get_args(Relation)
            for other in get_args(Method)
            if _fresh(neighbours, other, interval).supports(event)
        ]
        raise ValueError(
            f"method={method!r} cannot account for {event!r} with relation={relation!r}; "
            + (f"use {', '.join(able)}." if able else "no other method can either.")
        )
    with _quietly():
        return accountant.compose(_adapted(event, relation, method))


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence dp-accounting on omitted orders, which only make epsilon larger."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _fresh(relation: Relation, method: Method, interval: float) -> Any:
    """Return an accountant without events."""
    dpa = accounting()
    from dp_accounting import pld, rdp

    class PLDAccountant(pld.PLDAccountant):
        _pld: Any

        # dp-accounting 0.6 counts a repeated randomised response once
        def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
            if not (isinstance(event, dpa.RandomizedResponseDpEvent) and do_compose and count > 1):
                return super()._maybe_compose(event, count, do_compose)
            before = self._pld
            self._pld = pld.privacy_loss_distribution.identity(interval)
            super()._maybe_compose(event, 1, True)
            self._pld = before.compose(self._pld.self_compose(count))
            return None

    neighbours = {
        "add_or_remove": dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace_one": dpa.NeighboringRelation.REPLACE_ONE,
    }[relation]
    if method == "pld":
        return PLDAccountant(neighbours, value_discretization_interval=interval)
    return rdp.RdpAccountant(neighboring_relation=neighbours)


def _adapted(event: Event, relation: Relation, method: Method) -> Event:
    """Return the event in the unit of the accountant, as described in the module."""
    return _halved(event) if (relation, method) == ("replace_one", "rdp") else event


def _halved(event: Any) -> Any:
    """Return the event with every noise multiplier in it halved."""
    import attr

    if hasattr(event, "noise_multiplier"):
        return attr.evolve(event, noise_multiplier=event.noise_multiplier / 2)
    if hasattr(event, "event"):
        return attr.evolve(event, event=_halved(event.event))
    if hasattr(event, "events"):
        return attr.evolve(event, events=[_halved(part) for part in event.events])
    return event
