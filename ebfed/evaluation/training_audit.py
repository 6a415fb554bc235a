r"""The audit of training: lower bounds on the epsilon of private learners, over all rounds.

A small federation is trained thousands of times with a canary and without it, and an attacker
guesses from what is published which it was. The share of right guesses bounds epsilon from below
(`ebfed.privacy.audit.bound_from_scores`). The learner itself runs, by its `start`, `local` and
`update`: it clips, samples, adds noise, averages, and moves as it does in a fit.

*The canary.* All its features are 1 and its response is so large that each of its gradients is
clipped, in the same direction in every round: the worst case of the account. It has this row or
none; where the guarantee is about clients exchanged, its response is far above or far below.
``canary="within"`` has changes a little shorter than the clipping norm, so that the bit that says
whether they were clipped is the other one. Other clients have features of zero and change nothing,
and the attacker uses this.

*The attacker* sees the shared parameters after each round, and the clipping norm if it is moved. It
takes differences of consecutive ones, subtracts the moves of others, and divides by the distance
between the moves of the two inputs (both from `update` of the same learner at
``noise_multiplier=0``). This gives numbers x, which the canary moves by a with the first input and
by b with the second. Their score is the logarithm of the likelihood ratio

.. math:: \sum_t \log \frac{L_t(a)}{L_t(b)}, \qquad
    L_t(a) = 1 - q + q \exp\Big(\sum_k \frac{2 a_{tk} x_{tk} - a_{tk}^2}{2 s_k^2}\Big)

over rounds t and parts k of a message, with q the share of clients invited and s the noise as
measured in a first few trainings, not the claimed noise. The attacker knows which other clients
take part, unless samples have a fixed size: a guarantee by sampling hides the canary from readers
with any other knowledge. A history that counted clients would show whether the canary was invited,
and the score would use it. Where each client adds noise itself, the attacker sees all messages of
the canary.

*Omitted.* The canary's message is the same in all trainings unless the clipping norm is moved, so
it is computed once by the learner's `local`. The bound is as sharp as its events are common: claims
are tested at a delta of 0.1, where the bound reaches about 60 per cent of epsilon. Where samples
have a fixed size it is 10 to 20 per cent, because their account is an upper bound far from sharp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ebfed.engines import protocol
from ebfed.learning import ClientPrivacy, Learner
from ebfed.learning.canaries import (
    FAR,
    Federation,
    advance,
    message_of,
    parts_of,
    promise_of,
    silenced,
)
from ebfed.learning.privacy import PrivateExchange
from ebfed.models import Linear
from ebfed.privacy.audit import FEWEST, Audit, bound_from_scores, largest_bound
from ebfed.privacy.calibration import check_count
from ebfed.report.view import view_of
from ebfed.streams import Stream, make_key

__all__ = ["Canary", "audit_training"]

Canary = Literal["beyond", "within"]

WITHIN = 0.9  # of the norm to clip to


def audit_training(
    learner: Learner,
    *,
    claim: tuple[float, float] | None = None,
    others: int = 9,
    canary: Canary = "beyond",
    simulations: int = 4000,
    error: float = 1e-6,
    rng: Any = 0,
) -> Audit:
    """Bound the epsilon of a private learner's training from below.

    Parameters
    ----------
    learner : Learner
        Learner with `privacy`. Its model is replaced by a linear one of two parameters.
    claim : (float, float), optional
        Epsilon and delta to test; those of the learner's ledger if None.
    others : int
        Number of clients besides the canary. If each client adds noise, none is needed.
    canary : {"beyond", "within"}
        Whether its changes are longer than the clipping norm, or a little shorter.
    simulations : int
        Number of trainings with each of two inputs, at least 1,000.
    error : float
        Probability that the bound exceeds the true epsilon, so that a correct learner fails.
    rng : int, Generator or None
        Seed of all random numbers.

    Returns
    -------
    Audit

    Raises
    ------
    TypeError
        If `learner` is no learner with `privacy`.
    ValueError
        If the learner gives no guarantee, or one that no audit of this size could refute, or an
        argument is out of range.

    References
    ----------
    Nasr, Songi, Thakurta, Papernot and Carlini (2021), Adversary instantiation: lower bounds for
    differentially private machine learning.

    Examples
    --------
    >>> from ebfed.learning import ClientPrivacy, DPFedAvg
    >>> privacy = ClientPrivacy(epsilon=3.0, delta=0.1)
    >>> found = audit_training(DPFedAvg(n_rounds=2, privacy=privacy), simulations=1000)
    >>> found.passed, found.lower > 1
    (True, True)
    """
    if not (isinstance(learner, Learner) and learner.privacy is not None):
        raise TypeError(
            "learner must be a learner with privacy, such as "
            f"FedAvg(privacy=ClientPrivacy(epsilon=1.0)); got {learner!r}."
        )
    if canary not in get_args(Canary):
        raise ValueError(f"canary must be one of {get_args(Canary)}; got {canary!r}.")
    if check_count("simulations", simulations) < FEWEST:
        raise ValueError(f"simulations must be at least {FEWEST:,}; got {simulations}.")
    learner = clone(learner).set_params(model=Linear(fit_intercept=False), random_state=None)
    draw = np.random.default_rng(rng)
    assert learner.privacy is not None
    attack = _on_messages if learner.privacy.trust == "none" else _on_parameters
    trained, relation, views = attack(
        learner, _response(learner, canary), check_count("others", others), simulations, draw
    )
    epsilon, delta = promise_of(view_of(trained).ledger, trained) if claim is None else claim
    total = simulations - simulations // 4
    if epsilon >= (most := largest_bound(total, delta, error)):
        raise ValueError(
            f"epsilon={epsilon:g} cannot be refuted by {simulations:,} simulations, which show at "
            f"most {most:.3g}: passing would mean nothing."
        )
    names = ("far above", "far below") if relation == "replace_one" else ("present", "absent")
    shown = bound_from_scores(*views, delta=delta, error=error)
    first, second = names[::-1] if shown.swapped else names
    return Audit(
        channel=" ".join(repr(learner).split()),
        n_features=2,
        epsilon=float(epsilon),
        delta=float(delta),
        lower=shown.lower,
        first=first,
        second=second,
        p=shown.p,
        q=shown.q,
        simulations=int(simulations),
        error=error,
    )


# The federation -----------------------------------------------------------------------------


def _federation(learner: Learner, responses: list[float], others: int) -> Federation:
    """Give canaries these responses."""
    m = len(responses)
    return Federation.of(learner, np.ones((m, 2)), np.array(responses), np.arange(m), others)


def _response(learner: Learner, canary: Canary) -> float:
    """Return the canary's response; the changes of a linear predictor at zero are linear in it."""
    if canary == "beyond":
        return FAR
    small = 1e-9 * _privacy(learner).clip
    alone = _federation(silenced(learner), [small], 0)
    rounds = alone.learner.protocol()
    sent = rounds.broadcast(rounds.start(alone.facts, make_key(0)))
    messages, _ = alone.answer(sent, alone.memory, Stream(make_key(0), 0))
    (name,) = sent["shared"]  # a learner whose norm is moved sends one part, and a bit
    size = float(np.linalg.norm(messages["changes"][name]))
    return WITHIN * _privacy(learner).clip * small / size


def _privacy(learner: Learner) -> ClientPrivacy:
    assert learner.privacy is not None
    return learner.privacy


def _exchange(learner: Learner, n_clients: int) -> PrivateExchange:
    exchange = learner.protocol().exchange(n_clients)
    assert isinstance(exchange, PrivateExchange)
    return exchange


# Everyone trusts the server -----------------------------------------------------------------


@dataclass(frozen=True)
class _Moves:
    """What a round without noise does, for every part that is published.

    Attributes
    ----------
    messages : dict
        Of every client.
    none : dict of arrays of shape (size,)
        The move if nobody answers.
    each : dict of arrays of shape (clients, size)
        By which each client's message changes it.
    """

    messages: protocol.LearningMessage
    none: dict[str, NDArray]
    each: dict[str, NDArray]


def _on_parameters(
    learner: Learner, response: float, others: int, simulations: int, rng: Any
) -> tuple[Learner, str, tuple[NDArray, NDArray]]:
    """Train with two inputs, see what is published, and return scores of both, (2, n) each."""
    present = _federation(learner, [response], others)
    m, relation = others + 1, _exchange(learner, others + 1).round.relation
    if relation == "replace_one":
        federations = [present, _federation(learner, [-response], others)]
    else:
        federations = [present, present.without(np.arange(m) == 0)]
    (above, trained), (below, _) = map(_rehearse, federations)
    units = _units(above, below)
    views = []
    for federation, moves in zip(federations, (above, below), strict=True):
        keys = rng.integers(0, 2**64, size=(simulations, 2), dtype=np.uint64)
        runs = [_published(federation, moves, key) for key in keys]
        views.append(_View.of(learner, runs, above, units))
    signals = [_signal(above, units), _signal(below, units)]
    spread = views[1].spread(signals[1], simulations // 4)
    rate = learner.sample_rate
    if learner.protocol().schedule.sampling == "fixed":
        rate = max(1, round(rate * m)) / m
    rates: list[Any] = [[float(rate)] * 2]
    if all(np.isin(view.count, (0, 1)).all() for view in views):  # it is known who was invited
        rates.append([view.count for view in views])
    first, second = (
        np.array([view.ratio(signals, spread, each[k]) for each in rates])
        for k, view in enumerate(views)
    )
    return trained, relation, (first, second)


def _rehearse(federation: Federation) -> tuple[list[_Moves], Learner]:
    """Train once with everybody; return what each client does in each round, and the ledger."""
    learner, silent = federation.learner, silenced(federation.learner)
    key, memory, everyone = make_key(0), federation.memory, np.zeros(len(federation.clients), "i1")
    state, moves = learner.protocol().start(federation.facts, key), []
    while not state["done"]:
        sent = learner.protocol().broadcast(state)
        messages, memory = federation.answer(sent, memory, Stream(key, state["round"]))
        none, *each = (
            _moved(state, advance(silent, state, messages, turn))
            for turn in (everyone - 1, *(np.eye(len(everyone), dtype="i1") - 1))
        )
        responses = {name: np.array([x[name] for x in each]) - none[name] for name in none}
        moves.append(_Moves(messages, none, responses))
        state = advance(learner, state, messages, everyone)
    return moves, learner.protocol().finish(
        learner.protocol().broadcast(state), memory, federation.clients
    )


def _moved(before: protocol.LearningState, after: protocol.LearningState) -> dict[str, NDArray]:
    """Return by how much each published part moved."""
    moved = {name: value - before["shared"][name] for name, value in after["shared"].items()}
    return moved | {"clip": np.array([math.log(after["clip"] / before["clip"])])}


def _published(
    federation: Federation, moves: list[_Moves], key: NDArray
) -> tuple[list[dict[str, NDArray]], NDArray, list[dict]]:
    """Train once; return the moves of all rounds, who was invited, and the history."""
    learner, memory = federation.learner, federation.memory
    state, seen = learner.protocol().start(federation.facts, key), []
    turns = np.empty((len(moves), len(federation.clients)), np.int8)
    for k, move in enumerate(moves):
        turn, messages = state["turn"], move.messages
        # a norm that is moved changes the message of who has a row
        if turn[0] == 0 and _privacy(learner).clip_quantile is not None and federation.clients.n[0]:
            only = np.where(np.arange(len(turn)) == 0, turn, -1).astype(np.int8)
            fresh, memory = learner.protocol().local(
                learner.protocol().broadcast(state),
                memory | {"turn": only},
                federation.clients,
                Stream(key, state["round"]),
            )
            new = parts_of(fresh)
            mixed = {name: np.vstack([new[name], x[1:]]) for name, x in parts_of(messages).items()}
            messages = message_of(messages, mixed)
        after = advance(learner, state, messages, turn)
        seen.append(_moved(state, after))
        turns[k], state = turn, after
    return seen, turns, learner.protocol().broadcast(state)["history"]


@dataclass(frozen=True)
class _View:
    """What an attacker sees of n trainings of T rounds.

    Attributes
    ----------
    x : ndarray of shape (n, T, parts)
        Moves less what is known of them, in units of what the two inputs move apart.
    invited : bool ndarray of shape (n, T)
        Whether the canary was, which the attacker does not see.
    count : ndarray of shape (n, T)
        Clients that the history counts, less the others that took part; NaN if it counts none.
    """

    x: NDArray[np.float64]
    invited: NDArray[np.bool_]
    count: NDArray[np.float64]

    @classmethod
    def of(
        cls, learner: Learner, runs: list, moves: list[_Moves], units: dict[str, NDArray]
    ) -> _View:
        """Take off the moves of the others, or where samples are of a fixed size their mean."""
        turns = np.array([turns for _, turns, _ in runs]) == 0
        known = turns[:, :, 1:].astype(np.float64)
        if learner.protocol().schedule.sampling == "fixed" and learner.sample_rate < 1:
            known[:] = learner.sample_rate
        x = np.empty((*turns.shape[:2], len(units)))
        for t, move in enumerate(moves):
            for k, (name, unit) in enumerate(units.items()):
                seen = np.array([run[t][name] for run, _, _ in runs])
                rest = seen - move.none[name] - known[:, t] @ move.each[name][1:]
                x[:, t, k] = rest @ unit[t]
        has_data = [[row.get("clients", math.nan) for row in history] for _, _, history in runs]
        count = np.array(has_data) - turns[:, :, 1:].sum(axis=2)
        return cls(x, turns[:, :, 0], count)

    def spread(self, signal: NDArray, first: int) -> NDArray[np.float64]:
        """Estimate the noise in each part from the first so many trainings."""
        rest = self.x[:first] - self.invited[:first, :, None] * signal
        return np.maximum(np.sqrt(np.mean(rest**2, axis=(0, 1))), 1e-6)

    def ratio(
        self, signals: list[NDArray], spread: NDArray, rate: float | NDArray
    ) -> NDArray[np.float64]:
        """Logarithms of how much likelier the first input seems than the second, shape (n,)."""
        total = np.zeros(len(self.x))
        for sign, signal in zip((1, -1), signals, strict=True):
            log = ((self.x * signal - signal**2 / 2) / spread**2).sum(axis=2)
            with np.errstate(divide="ignore"):
                log = np.logaddexp(np.log(1 - rate), np.log(rate) + log)
            total += sign * log.sum(axis=1)
        return total


def _units(above: list[_Moves], below: list[_Moves]) -> dict[str, NDArray[np.float64]]:
    """Return, for each part that the canary moves, what turns moves into numbers, (T, size)."""
    units = {}
    for name in above[0].none:
        apart = np.array(
            [
                one.each[name][0] - other.each[name][0]
                for one, other in zip(above, below, strict=True)
            ]
        )
        square = (apart**2).sum(axis=1, keepdims=True)
        if square.all():
            units[name] = apart / square
    return units


def _signal(moves: list[_Moves], units: dict[str, NDArray]) -> NDArray[np.float64]:
    """Numbers of a canary without noise, shape (T, parts)."""
    return np.array(
        [
            [move.each[name][0] @ unit[t] for name, unit in units.items()]
            for t, move in enumerate(moves)
        ]
    )


# Nobody is trusted --------------------------------------------------------------------------


def _on_messages(
    learner: Learner, response: float, others: int, simulations: int, rng: Any
) -> tuple[Learner, str, tuple[NDArray, NDArray]]:
    """Train canaries of both kinds together, and score the messages of each, (n,) each."""
    canaries = _federation(learner, np.repeat([response, -response], simulations).tolist(), 0)
    silent = _federation(silenced(learner), [response, -response], 0)
    key = rng.integers(0, 2**64, size=2, dtype=np.uint64)
    memory, exact = canaries.memory, silent.memory
    kind = np.repeat([0, 1], simulations)
    known = np.arange(2 * simulations) % simulations < simulations // 4
    scores, state = np.zeros(2 * simulations), learner.protocol().start(canaries.facts, key)
    while not state["done"]:
        sent, stream, turn = (
            learner.protocol().broadcast(state),
            Stream(key, state["round"]),
            state["turn"],
        )
        messages, memory = learner.protocol().local(
            sent, memory | {"turn": turn}, canaries.clients, stream
        )
        answers, exact = silent.answer(sent, exact, stream)
        there, pure = turn == 0, parts_of(answers)
        for name, values in parts_of(messages).items():
            if np.array_equal(*pure[name]):  # it is the same for both
                continue
            rest = (values - pure[name][kind[there]])[known[there]]
            spread = max(float(np.sqrt(np.mean(rest**2))), 1e-6 * float(np.abs(pure[name]).max()))
            above, below = pure[name]
            scores[there] += (values - (above + below) / 2) @ (above - below) / spread**2
        state = learner.protocol().update(state, messages)
    trained = learner.protocol().finish(
        learner.protocol().broadcast(state), memory, canaries.clients
    )
    return trained, "replace_one", (scores[:simulations], scores[simulations:])
