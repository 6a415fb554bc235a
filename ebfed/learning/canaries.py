r"""Clients that make the audit of a private learner sharp, and one training with many of them.

*A canary* has features and a response so large that each of its gradients is clipped, whatever the
other clients do: the worst case of the account. Where the guarantee is about clients exchanged, its
response is far above or far below; otherwise it has rows or none.

*In one training* (`ebfed.privacy.audit_one_run`) the model is linear with a column for each canary,
so that every canary moves a parameter of its own, and spare columns, which move by noise alone. If
everyone is invited to every round, to one local step, a canary's response changes its sign from
round to round: noise that is used twice then cancels out.

*The attacker* sees the shared parameters after each round, or all messages where
``trust="none"``. Number x of a canary in a round is the move of its parameter, a if it is in and
invited, b if it is out (both from the same learner without noise), and s the noise as measured in
spare columns. Its score is the logarithm of the likelihood ratio

.. math:: \sum_t \log \frac{L_t(a)}{L_t(b)}, \qquad
    L_t(a) = 1 - q + q \exp\Big(\sum_k \frac{2 a_{tk} x_{tk} - a_{tk}^2}{2 s_{tk}^2}\Big)

over rounds t and parts k of a message, with q the share of clients invited. If noise in spare
columns is correlated between rounds, the score is that of normal laws with its covariance.

*Omitted.* Parts of a message that all canaries move together, such as the bits that move a clipping
norm, say little of each and are not scored. Owners of `JointDPSGD` have one user each, and no
parameters of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ebfed.engines import protocol
from ebfed.learning.base import Learner
from ebfed.learning.fed_avg import FedAvg
from ebfed.learning.feo2 import FeO2
from ebfed.learning.joint_dp import JointDPSGD
from ebfed.learning.privacy import PrivateExchange
from ebfed.models import Linear
from ebfed.privacy import events
from ebfed.privacy.curves import GAUSSIAN, Family, gaussian_curve, sampled
from ebfed.privacy.one_run import Played, play
from ebfed.streams import Stream, make_key
from ebfed.tables.clients import Clients

__all__ = [
    "FAR",
    "Federation",
    "advance",
    "message_of",
    "parts_of",
    "play_learner",
    "promise_of",
    "silenced",
]

FAR = 1e9  # the response of a canary whose gradients are always clipped
OTHERS = 10  # clients beside the canaries of one training
SPARE = 100  # columns of noise alone, at least
CORRELATED = 6.0  # standard errors from which noise counts as correlated


@dataclass(frozen=True)
class Federation:
    """Clients of a learner that is audited: canaries first, then others whose features are zero."""

    learner: Learner
    clients: Clients
    memory: protocol.LearningMemory
    facts: protocol.LearningFacts

    @classmethod
    def of(
        cls, learner: Learner, X: NDArray, y: NDArray, owner: NDArray, others: int
    ) -> Federation:
        """Give canaries these rows; of the others, every second is open if any can be.

        Parameters
        ----------
        learner : Learner
            With a linear model.
        X : ndarray of shape (n, d)
        y : ndarray of shape (n,)
        owner : int ndarray of shape (n,)
            Number of the canary that has a row, in order.
        others : int
        """
        m = int(owner.max()) + 1
        groups = np.append(owner, np.arange(m, m + others))
        X, y = np.vstack([X, np.zeros((others, X.shape[1]))]), np.append(y, np.zeros(others))
        choices: dict[str, Any] = {}
        if isinstance(learner, FeO2):
            if len(levels := learner.protocol().levels) > 1:
                raise ValueError(
                    f"privacy must have one level, as one is audited; got {', '.join(levels)}."
                )
            opened = (groups >= m) & (groups % 2 == 0)
            choices["consent"] = np.where(opened, "open", "private")
        rounds = learner.protocol()
        clients, memory = rounds.prepare(X, y, groups=groups, **choices)
        return cls(learner, clients, memory, rounds.describe(clients, memory))

    def without(self, absent: NDArray[np.bool_]) -> Federation:
        """Take the rows of some clients away; what is public remains."""
        left, kept = self.clients, np.repeat(~absent, self.clients.n)
        n = np.where(absent, 0, left.n)
        ends = np.concatenate(([0], np.cumsum(n)))
        rows = Clients(left.ids, ends, left.X[kept], np.asarray(left.y)[kept])
        return replace(self, clients=rows)

    def opposite(self, turned: NDArray[np.bool_]) -> Federation:
        """Change the signs of some clients' responses."""
        y = np.where(np.repeat(turned, self.clients.n), -1.0, 1.0) * np.asarray(self.clients.y)
        return replace(self, clients=replace(self.clients, y=y))

    def answer(
        self, sent: protocol.LearningSent, memory: protocol.LearningMemory, rng: Any
    ) -> tuple[protocol.LearningMessage, protocol.LearningMemory]:
        """Return the messages of all, and what they keep."""
        everyone = np.zeros(len(self.clients), np.int8)
        return self.learner.protocol().local(sent, memory | {"turn": everyone}, self.clients, rng)


def silenced(learner: Learner) -> Learner:
    """Return the same learner without noise."""
    silent: Any = {"privacy__epsilon": None, "privacy__noise_multiplier": 0.0}
    return clone(learner).set_params(**silent)


def parts_of(message: protocol.LearningMessage) -> dict[str, NDArray]:
    """Return all parts of a message side by side."""
    others: Any = {name: values for name, values in message.items() if name != "changes"}
    return message["changes"] | others


def message_of(
    message: protocol.LearningMessage, parts: dict[str, NDArray]
) -> protocol.LearningMessage:
    """Return a message like that one, of these parts."""
    changes = {name: parts[name] for name in message["changes"]}
    others = {name: parts[name] for name in message if name != "changes"}
    return protocol.LearningMessage(changes=changes, **others)  # type: ignore[typeddict-item]


def advance(
    learner: Learner,
    state: protocol.LearningState,
    messages: protocol.LearningMessage,
    turn: NDArray,
) -> protocol.LearningState:
    """Update the server with the messages of those whose turn it is."""
    received = {name: values[turn == 0] for name, values in parts_of(messages).items()}
    return learner.protocol().update(state | {"turn": turn}, message_of(messages, received))


def promise_of(ledger: Sequence[dict[str, Any]], learner: Learner) -> tuple[float, float]:
    """Return what a ledger says of private clients.

    Raises
    ------
    ValueError
        If it has no guarantee.
    """
    rows = [row for row in ledger if 0 < row["epsilon"] < math.inf]
    if not rows:
        raise ValueError(f"{learner!r} gives no guarantee: there is nothing to refute.")
    return rows[0]["epsilon"], rows[0]["delta"]


# One training -------------------------------------------------------------------------------


@play.register
def play_learner(
    learner: Learner, coins: NDArray[np.bool_], rng: np.random.Generator, progress: bool | None
) -> Played:
    """Train a learner once with canaries, and score each from what is published.

    Parameters
    ----------
    learner : Learner
        Learner with `privacy`.
    coins : bool ndarray of shape (m,)
        Which canaries are in.
    rng : Generator
    progress : bool or None

    Returns
    -------
    Played

    Raises
    ------
    TypeError
        If it has no `privacy`.
    ValueError
        If it gives no guarantee, or sends something that no canary can move by itself.
    """
    from tqdm import tqdm

    learner = _ready(learner)
    game = _Game.of(learner, coins)
    key = rng.integers(0, 2**64, size=2, dtype=np.uint64)
    state = learner.protocol().start(game.actual.facts, key)
    memories = [each.memory for each in (game.actual, game.inside, game.outside)]
    rounds = []
    hidden = None if progress is None else not progress
    count = {"unit": " rounds", "total": learner.n_rounds}
    with tqdm(desc="audit", leave=False, disable=hidden, **count) as bar:
        while not state["done"]:
            sent, stream = learner.protocol().broadcast(state), Stream(key, state["round"])
            quiet = Stream(make_key(0), state["round"])
            invited = memories[0] | {"turn": state["turn"]}
            message, memories[0] = learner.protocol().local(
                sent, invited, game.actual.clients, stream
            )
            inside, memories[1] = game.inside.answer(sent, memories[1], quiet)
            outside, memories[2] = game.outside.answer(sent, memories[2], quiet)
            after = learner.protocol().update(state, message)
            rounds.append(game.seen(state, after, message, inside, outside))
            state = after
            bar.update()
    sent = learner.protocol().broadcast(state)
    exchange = game.exchange
    ledger = exchange.released(sent, memories[0], len(game.actual.clients), learner.n_rounds)
    epsilon, delta = promise_of(ledger, learner)
    # where clients add noise, it is seen who is invited; users of owners are drawn in secret
    rate = exchange.round.rate if exchange.round.trust == "server" else 1.0
    return Played(
        _scores(rounds, rate),
        epsilon,
        delta,
        _family(exchange, learner.n_rounds),
        game.actual.clients.X.shape[1],
    )


def _family(exchange: PrivateExchange, rounds: int) -> Family:
    """Return the mechanisms of the account, with noise divided by any number."""
    round_, z = exchange.round, exchange.multiplier
    if round_.unsampled:
        return GAUSSIAN

    def epsilon(t: float, delta: float) -> float:
        return round_.epsilon(z / t, rounds, delta)

    if round_.sampling == "fixed":  # its curve is not known, but is above that of no sampling
        mu = round_.sensitivity * math.sqrt(rounds) / z
        return Family(lambda t: gaussian_curve(mu * t), epsilon, 1.02)
    return sampled(lambda t: events.repeated(round_.event(z / t), rounds), epsilon, round_.relation)


def _ready(learner: Learner) -> Learner:
    """Return a learner of a linear model, whose clients see their rows in order."""
    if learner.privacy is None:
        raise TypeError(
            "estimator must be a learner with privacy, such as "
            f"FedAvg(privacy=ClientPrivacy(epsilon=1.0)); got {learner!r}."
        )
    if isinstance(learner, JointDPSGD) and learner.private_mean == "winsorized":
        raise ValueError(
            "private_mean must be 'gaussian': winsorized means of single users cannot be audited."
        )
    changed: dict[str, Any] = {"model": Linear(fit_intercept=False), "random_state": None}
    changed |= {"classes": None, "weight_decay": 0.0}
    if "shared_model" in learner.get_params(deep=False):
        changed["shared_model"] = None
    if "personal" in learner.get_params(deep=False):  # which names columns or blocks of others
        changed["personal"] = ()
    if _alternates(learner):
        changed |= {"batch_size": 1, "shuffle": False}
    return clone(learner).set_params(**changed)


def _alternates(learner: Learner) -> bool:
    """Whether rows can be in an order that changes the sign of every message.

    In samples, signs would depend on how often a canary was invited; and in several local steps the
    own parameters of a client follow too slowly.
    """
    followed = learner.local_steps == 1 or isinstance(learner, FedAvg)
    return learner.sample_rate == 1 and followed and not isinstance(learner, JointDPSGD)


@dataclass(frozen=True)
class _Round:
    """What an attacker knows of the canaries after a round, for parts k of what is published.

    Attributes
    ----------
    x : ndarray of shape (k, m)
        Moves of their parameters.
    a, b : ndarrays of shape (k, m)
        Moves without noise of a canary that is invited: in, and out.
    noise : ndarray of shape (k, n)
        Moves of parameters that no canary moves.
    """

    x: NDArray[np.float64]
    a: NDArray[np.float64]
    b: NDArray[np.float64]
    noise: NDArray[np.float64]


@dataclass(frozen=True)
class _Game:
    """Federations that differ in who is in.

    Attributes
    ----------
    actual : Federation
        Canaries as coins say.
    inside, outside : Federation
        All canaries in, and all out; without noise, and everyone takes part.
    exchange : PrivateExchange
    silent : Learner
        Without noise, to see what messages do to the server.
    columns : int
        One for each canary, then spare ones.
    """

    actual: Federation
    inside: Federation
    outside: Federation
    exchange: PrivateExchange
    silent: Learner
    columns: int

    @classmethod
    def of(cls, learner: Learner, coins: NDArray[np.bool_]) -> _Game:
        m, d = len(coins), len(coins) + max(SPARE, 2 * learner.n_rounds)
        half = 0
        if _alternates(learner):  # the largest power of 2 in the steps of a round
            half = learner.local_steps & -learner.local_steps
        signs = np.repeat([1.0, -1.0], half) if half else np.ones(1)
        owner = np.repeat(np.arange(m), len(signs))
        X = np.zeros((len(owner), d))
        X[np.arange(len(owner)), owner] = 1.0
        everyone = Federation.of(learner, X, FAR * np.tile(signs, m), owner, OTHERS)
        exchange = learner.protocol().exchange(m + OTHERS)
        assert isinstance(exchange, PrivateExchange)
        silent = silenced(learner)
        # users of owners are drawn by the owners themselves
        certain = clone(silent).set_params(sample_rate=1.0)
        out = np.append(~coins, np.zeros(OTHERS, bool))
        canaries = np.arange(m + OTHERS) < m
        differ = Federation.opposite if exchange.round.sensitivity == 2 else Federation.without
        inside = replace(everyone, learner=certain)
        return cls(differ(everyone, out), inside, differ(inside, canaries), exchange, silent, d)

    @property
    def local(self) -> bool:
        """Whether all messages are seen, because clients add the noise."""
        return self.exchange.privacy.trust == "none"

    @property
    def count(self) -> int:
        """Return the number of canaries."""
        return len(self.actual.clients) - OTHERS

    def seen(
        self,
        state: protocol.LearningState,
        after: protocol.LearningState,
        message: protocol.LearningMessage,
        inside: protocol.LearningMessage,
        outside: protocol.LearningMessage,
    ) -> _Round:
        """Return what is known of the canaries after a round."""
        first, second = inside["changes"], outside["changes"]
        if not self.local:
            everyone = np.zeros(len(self.actual.clients), np.int8)
            none, ins, outs = (
                advance(self.silent, state, each, turn)["shared"]
                for each, turn in ((inside, everyone - 1), (inside, everyone), (outside, everyone))
            )
        m, parts = self.count, []
        for name, value in first.items():
            if value.shape[1] != self.columns:
                continue
            if self.local:
                sent = message["changes"][name]
                parts.append(_of_messages(sent, value, second[name], state["turn"][:m]))
            else:
                moved = after["shared"][name] - none[name]
                a, b = (each[name][:m] - none[name][:m] for each in (ins, outs))
                parts.append((moved[:m], a, b, moved[m:]))
        if not parts:
            raise ValueError(
                f"{type(self.actual.learner).__name__} sends nothing that a canary moves by itself."
            )
        return _Round(*(np.array(each) for each in zip(*parts, strict=True)))


def _of_messages(
    sent: NDArray, a: NDArray, b: NDArray, turn: NDArray
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Return moves of canaries in their own messages; zeros for who sends none."""
    m, who = len(turn), np.flatnonzero(turn == 0)
    rows, x = sent[: len(who)], np.zeros(m)
    x[who] = rows[np.arange(len(who)), who]
    ins, outs = (np.where(turn == 0, np.diagonal(each[:m, :m]), 0.0) for each in (a, b))
    noise = rows[:SPARE, m:].ravel() if len(who) else np.zeros(1)
    return x, ins, outs, noise


# Scores -------------------------------------------------------------------------------------


def _scores(rounds: list[_Round], rate: float) -> NDArray[np.float64]:
    """Logarithms of how much likelier it seems that a canary is in than out, shape (m,)."""
    x, a, b = (np.array([getattr(each, name) for each in rounds]) for name in "xab")  # (T, k, m)
    spread = np.array([np.sqrt(np.mean(each.noise**2, axis=1)) for each in rounds])  # (T, k)
    # there may be no noise, and in a round nobody
    spread = np.maximum(spread, 1e-9 * np.abs(a - b).max(axis=2) + 1e-100)[:, :, None]
    if len({each.noise.shape for each in rounds}) == 1:
        noise = np.array([each.noise for each in rounds]) / spread
        if _correlated(noise):
            return _discriminant(x / spread, a / spread, b / spread, noise, rate)
    total = np.zeros(x.shape[2])
    for sign, mean in ((1, a), (-1, b)):
        log = ((x * mean - mean**2 / 2) / spread**2).sum(axis=1)  # (T, m)
        with np.errstate(divide="ignore"):
            total += sign * np.logaddexp(np.log(1 - rate), np.log(rate) + log).sum(axis=0)
    return total


def _correlated(noise: NDArray) -> bool:
    """Whether noise, shape (T, k, n), is correlated between rounds."""
    return any(
        np.abs(np.triu(part @ part.T / part.shape[1], 1)).max() > CORRELATED / part.shape[1] ** 0.5
        for part in np.moveaxis(noise, 1, 0)
    )


def _discriminant(
    x: NDArray, a: NDArray, b: NDArray, noise: NDArray, rate: float
) -> NDArray[np.float64]:
    """Score moves x, shape (T, k, m), by normal laws with the covariance of the noise."""
    total = np.zeros(x.shape[2])
    for k in range(x.shape[1]):
        covariance = noise[:, k] @ noise[:, k].T / noise.shape[2]
        for sign, mean in ((1, a[:, k]), (-1, b[:, k])):
            # invitations are noise, too
            invited = rate * (1 - rate) * (mean**2).mean(axis=1)
            whole = covariance + np.diag(invited + 1e-9)
            rest = x[:, k] - rate * mean
            square = (rest * np.linalg.solve(whole, rest)).sum(axis=0)
            total -= sign * (square + np.linalg.slogdet(whole)[1]) / 2
    return total
