"""What passes between clients and server in a round of learning, where nothing is protected.

An exchange defines who is invited, what clients send, how the server averages it, and the rows of
the ledger. `PrivateExchange` in `ebfed.learning.privacy` is the exchange of a learner with privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.protocol import (
    LearningFacts,
    LearningMemory,
    LearningMessage,
    LearningSent,
    LearningState,
    Named,
)
from ebfed.engines.robust import shifts_of_means
from ebfed.engines.sums import MOST_ROWS, Columns, add_fixed, add_up, fixed_point, largest, total
from ebfed.learning.schedule import Schedule
from ebfed.privacy import ledger
from ebfed.privacy.odometer import Plan
from ebfed.tables.clients import LARGEST

__all__ = ["Exchange", "Senders", "Silence", "size_of"]

# How names of losses begin among the parts of a message.
LOSSES = "losses of "


class Senders(NamedTuple):
    """Clients of a block that send something in a round.

    Attributes
    ----------
    sent : dict
        What the server broadcast.
    memory : dict
        What the clients of the block keep, which is written to.
    members : ndarray of positions in the block
    rng : Stream, or "secure" for clients whose privacy is real
    """

    sent: LearningSent
    memory: LearningMemory
    members: NDArray[np.int64]
    rng: Any


@dataclass(frozen=True)
class Exchange:
    """Messages as they are.

    Parameters
    ----------
    schedule : Schedule
    n_clients : int
    totals : set of str
        Parts that are totals of all clients, those that do not take part included: sums are divided
        by the number that a round is expected to have, however many answer.
    """

    # Whether `average` needs only sums over clients, so that a block may send its own.
    needs_sums: ClassVar[bool] = True
    # Whether a block adds up a few clients after the others, which saves memory.
    adds_portions: ClassVar[bool] = True
    # Whether averages are over the clients that took part, rather than over an expected number.
    counts_clients: ClassVar[bool] = True
    # Whether clients send their losses too, for the history: where nothing is private.
    sends_losses: ClassVar[bool] = True

    schedule: Schedule
    n_clients: int
    totals: frozenset[str] = field(default=frozenset(), kw_only=True)

    @property
    def promises(self) -> bool:
        """Whether clients are protected by noise."""
        return False

    @property
    def server_adds_noise(self) -> bool:
        """Whether that noise is the server's."""
        return False

    @property
    def limit(self) -> float:
        """What each number of a message is below in size."""
        return LARGEST

    @property
    def sends_weights(self) -> bool:
        """Whether clients send by what their changes were multiplied."""
        return self.counts_clients and self.schedule.by_rows

    # Clients ----------------------------------------------------------------------------------

    def remember(self, memory: LearningMemory, m: int) -> LearningMemory:
        """Return what m clients keep, with a place for what this exchange writes."""
        return memory

    def send(self, changes: Named, who: Senders) -> LearningMessage:
        """Return what members of a block send.

        Parameters
        ----------
        changes : dict of ndarrays of shape (len(members), size)
            By which each would move the shared parameters.
        who : Senders
        """
        message: LearningMessage = {"changes": changes}
        sent, memory, members = who.sent, who.memory, who.members
        if names := self._recorded(sent):
            noted: Any = {name: dict(memory)[name] for name in names}
            noted = {name: np.float64(x[members, sent["record"]]) for name, x in noted.items()}
            known = ~np.isnan(noted["loss"])
            noted = {name: np.where(known, x, 0.0) for name, x in noted.items()}
            noted["clients"] = known.astype(np.float64)
            message["losses"] = {name: x[:, None] for name, x in noted.items()}
        if self._evaluated(sent):
            score = memory["validation"][members, sent["evaluate"]].astype(np.float64)[:, None]
            known = ~np.isnan(score)
            scores = {
                "validation": np.where(known, score, 0.0),
                "validated": known.astype(np.float64),
            }
            message["losses"] = message.get("losses", {}) | scores
        return message

    def _evaluated(self, sent: LearningSent) -> bool:
        """Whether clients send how well they predict rows that are held back."""
        return self.sends_losses and sent["evaluate"] >= 0

    def _recorded(self, sent: LearningSent) -> list[str]:
        """Return what clients send of how well they predicted in this round."""
        if not self.sends_losses or sent["record"] < 0:
            return []
        return ["loss", "score"] if len(sent["classes"]) else ["loss"]

    def losses(self, message: LearningMessage, sent: LearningSent) -> dict[str, float]:
        """Return mean losses over the clients of a round, as columns of the history."""
        if not self.sends_losses:
            return {}
        columns = {"loss": "loss"} | ({"accuracy": "score"} if len(sent["classes"]) else {})
        pairs = {column: (name, "clients") for column, name in columns.items()}
        if self.schedule.evaluate_every:
            pairs["validation"] = "validation", "validated"
        noted = message.get("losses", {})
        sums = {name: total(values)[0] for name, values in noted.items()}
        with np.errstate(invalid="ignore"):  # none took part
            return {
                column: float(sums[name] / sums[count]) if name in sums else np.nan
                for column, (name, count) in pairs.items()
            }

    def moved(self, sent: LearningSent) -> dict[str, float]:
        """Return the size of the largest number that each part of a message moves."""
        return {f"changes of {name}": largest(value) for name, value in sent["shared"].items()}

    def rounded(
        self,
        message: LearningMessage,
        sizes: dict[str, float],
        before: LearningMessage | None = None,
    ) -> LearningMessage:
        """Cut off digits, so that sums over clients are exact; see `ebfed.engines.sums`.

        Parameters
        ----------
        message : dict
            Its arrays are written to. Where it has Columns, sums are returned.
        sizes : dict
            What `moved` returns.
        before : dict, optional
            Message of other clients, rounded: the result is the sums over these and those.
        """
        m, start = self.n_clients, {} if before is None else dict(_leaves(self.add_up(before)))
        adds = bool(start) or any(isinstance(x, Columns) for _, x in _leaves(message))

        def each(name: str, x: NDArray) -> NDArray:
            if name.startswith(LOSSES):
                return add_up(x, start.get(name)) if adds else x
            if not adds:
                return fixed_point(x, m, sizes.get(name, 0.0), copy=False)
            return add_fixed(x, start.get(name), m, sizes.get(name, 0.0))

        whole = _mapped(message, each)
        if not adds:
            return whole
        clients = np.full((1, 1), float(_length(message)))
        return whole | {"clients": start.get("clients", 0.0) + clients}

    def add_up(self, message: LearningMessage) -> LearningMessage:
        """Return sums over the clients of a block; each client's row if these are needed."""
        if not self.needs_sums or "clients" in message:
            return message
        sums = _mapped(message, lambda _, x: add_up(x))
        return sums | {"clients": np.array([[float(_length(message))]])}

    def opened(self, memory: LearningMemory, m: int) -> NDArray[np.bool_]:
        """Return which of m clients are to send something that no noise protects."""
        return np.full(m, not self.promises)

    def plan(self, memory: LearningMemory, m: int) -> list[Plan]:
        """State all that a run may take from m clients."""
        return [Plan.exact("all clients", np.ones(m, bool), self.schedule.n_rounds)]

    def released(
        self, sent: LearningSent, memory: LearningMemory | None, m: int, rounds: int
    ) -> list[dict[str, Any]]:
        """Return the ledger of what so many rounds take from m clients.

        Parameters
        ----------
        memory : dict, optional
            What the clients keep; a server has None.
        """
        losses = (2 + bool(len(sent["classes"]))) / sent["every"]
        if self.schedule.evaluate_every:
            losses += 2 / self.schedule.evaluate_every
        numbers = size_of(sent) + losses + self.sends_weights
        bits = 64.0 * numbers * self.schedule.sample_rate * m * rounds
        held = " of training and of rows held back" if self.schedule.evaluate_every else ""
        what = f"changes of the shared parameters and losses{held}, as they are"
        return [ledger.disclosure(what, m, bits) | {"times": rounds}]

    # Server -----------------------------------------------------------------------------------

    def start(self, state: LearningState, facts: LearningFacts) -> LearningState:
        """Return the first state, with what this exchange keeps in it."""
        return state

    def invite(self, state: LearningState, rng: np.random.Generator) -> NDArray[np.int8]:
        """Draw who is invited to a round: 0, or -1 for who is not."""
        return self.schedule.invite(self.n_clients, rng)

    def broadcast(self, state: LearningState, sent: LearningSent) -> LearningSent:
        """Return what is broadcast, with what this exchange adds."""
        return sent

    def check(
        self, message: LearningMessage, facts: LearningFacts, sent: LearningSent, turn: NDArray
    ) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""
        c = int((turn == 0).sum())
        shapes, got = self.shapes(sent, c), dict(_leaves(message))
        if sums := self.needs_sums and "clients" in got:
            shapes |= {"clients": (1, 1)}
        if got.keys() != shapes.keys():
            raise ValueError(f"a message must have the parts {', '.join(shapes)}.")
        for name, shape in shapes.items():
            x = got[name]
            if sums and name != "clients" and np.ndim(x) == 2:
                shape = len(x), *shape[1:]
                if not min(c, 1) <= len(x) <= MOST_ROWS:
                    raise ValueError(f"{name} must be a sum of at most {MOST_ROWS} rows.")
            if not (isinstance(x, np.ndarray) and x.dtype == np.float64 and x.shape == shape):
                raise ValueError(f"{name} must be float64 numbers of shape {shape}.")
            if not (np.abs(x) < self.limit).all() and not name.startswith(LOSSES):
                raise ValueError(f"{name} must be finite, and below {self.limit:g} in size.")
        if sums and got["clients"][0, 0] != c:
            raise ValueError(f"clients must be the {c} that were invited.")
        if self.sends_weights:
            self._check_weights(total(got["weights"])[0], facts, sent, turn)

    def _check_weights(
        self, given: float, facts: LearningFacts, sent: LearningSent, turn: NDArray
    ) -> None:
        """Raise a ValueError if weights of clients are not those of the rows that were stated."""
        stated = self.schedule.weights(facts["n"][turn == 0], sent["largest"])
        if not math.isclose(given, float(stated.sum()), rel_tol=1e-9, abs_tol=1e-12):
            raise ValueError("weights must be those of the numbers of rows that were stated.")

    def shapes(self, sent: LearningSent, c: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each part of the message of c clients."""
        shapes: dict[str, tuple[int, ...]]
        shapes = {f"changes of {name}": (c, len(value)) for name, value in sent["shared"].items()}
        if self.sends_weights:
            shapes["weights"] = (c, 1)
        if recorded := self._recorded(sent):
            shapes |= {LOSSES + name: (c, 1) for name in (*recorded, "clients")}
        if self._evaluated(sent):
            shapes |= {LOSSES + name: (c, 1) for name in ("validation", "validated")}
        return shapes

    def average(
        self,
        state: LearningState,
        sent: LearningSent,
        message: LearningMessage,
        rng: Any,
    ) -> tuple[Named, LearningState]:
        """Average the changes of all clients; what none sends does not move.

        Parameters
        ----------
        state : dict
        sent : dict
            What the server had broadcast in this round.
        message : dict
        rng : Generator, or "secure" for noise of the operating system
            Of the server's noise.

        Returns
        -------
        average : dict of ndarrays of shape (size,)
        state : dict
        """
        averages = {
            name: total(x) / (sent["expected"] if name in self.totals else _weight(message, name))
            for name, x in message["changes"].items()
        }
        return unmoved(state) | averages, state

    def shifts(self, messages: Sequence[LearningMessage]) -> NDArray[np.float64]:
        """Return how far each node moves the average change; see `shifts_of_means`.

        NaN where the server adds noise: what it publishes must not depend on shifts, and clipping
        bounds what a client can do.
        """
        if self.server_adds_noise or not messages[0]["changes"]:
            return np.full(len(messages), np.nan)
        sums = [np.concatenate([total(x) for x in each["changes"].values()]) for each in messages]
        weights = [_weight(each, next(iter(each["changes"]))) for each in messages]
        return shifts_of_means(np.array(sums), np.array(weights))

    def note(
        self, state: LearningState, message: LearningMessage, row: dict[str, float]
    ) -> dict[str, float]:
        """Add columns to a round's row of the history.

        Parameters
        ----------
        state : dict
            After `average`.
        message : dict
            Of the clients that answered.
        row : dict
        """
        count = float((state["turn"] == 0).sum())
        if message["changes"]:  # of nodes of a federation some may not have answered
            count = float(message["clients"].sum() if "clients" in message else _length(message))
        return {"clients": count} | row

    def check_resume(
        self, state: LearningState, memory: LearningMemory, kept: LearningMemory
    ) -> None:
        """Raise a ValueError if a warm start may not go on.

        Parameters
        ----------
        state : dict
        memory : dict
            What clients bring to the new fit.
        kept : dict
            What clients kept of the last one.
        """
        if "promise" in state:
            raise ValueError("with warm_start, privacy must not be taken away.")

    def spent(self, n_rounds: int, rows: list[dict[str, Any]]) -> list[float] | None:
        """Return epsilon after one round, two, ..., given the ledger; None without privacy."""
        return None


@dataclass(frozen=True)
class Silence(Exchange):
    """Nothing is sent."""

    needs_sums: ClassVar[bool] = False
    sends_losses: ClassVar[bool] = False

    def send(self, changes: Named, who: Senders) -> LearningMessage:
        """Return an empty message."""
        return {"changes": {}}

    def opened(self, memory: LearningMemory, m: int) -> NDArray[np.bool_]:
        """Return that none are."""
        return np.zeros(m, bool)

    def plan(self, memory: LearningMemory, m: int) -> list[Plan]:
        """State that nothing is taken."""
        return []

    def released(
        self, sent: LearningSent, memory: LearningMemory | None, m: int, rounds: int
    ) -> list[dict[str, Any]]:
        """Return the ledger of nothing."""
        return [ledger.silence(m)]

    def shapes(self, sent: LearningSent, c: int) -> dict[str, tuple[int, ...]]:
        """Return no shape."""
        return {}


def unmoved(state: LearningState) -> Named:
    """Return changes that move nothing."""
    return {name: np.zeros_like(value) for name, value in state["shared"].items()}


def size_of(sent: LearningSent) -> int:
    """How many numbers are shared."""
    return sum(len(value) for value in sent["shared"].values())


def _weight(message: LearningMessage, name: str) -> float:
    """Sum of the weights of the clients that a message is of; their number, if they count alike."""
    if "weights" in message:
        return float(total(message["weights"])[0]) or 1.0
    if "clients" in message:
        return max(float(message["clients"].sum()), 1.0)
    return max(float(len(message["changes"][name])), 1.0)


def _length(message: LearningMessage) -> int:
    """How many clients the rows of a message are of."""
    return len(next((x for _, x in _leaves(message)), ()))


def _mapped(
    message: LearningMessage, function: Callable[[str, NDArray], NDArray]
) -> LearningMessage:
    """Return a message with a function of each name and array."""
    whole: dict[str, Any] = {**message}
    mapped: Any = {
        name: {inner: function(f"{name} of {inner}", x) for inner, x in part.items()}
        if isinstance(part, dict)
        else function(name, part)
        for name, part in whole.items()
    }
    return mapped


def _leaves(message: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and arrays of a message, which may be anything."""
    for name, part in message.items():
        if isinstance(part, dict):
            yield from ((f"{name} of {inner}", x) for inner, x in part.items())
        else:
            yield name, part
