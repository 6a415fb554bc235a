"""The protocol of a fit: what an estimator does on each side, and what passes between the sides.

Every method is a loop of rounds. Clients `prepare` their rows and `describe` publicly what the
server must know to `start`. The server broadcasts its state; each block of clients runs `local` on
its own data, keeps `memory` to itself and returns a message; the server `update`s the state with
the messages of all clients, until the state says ``done``. With the last broadcast each client may
`finish`, and has its estimates. The loop itself is `ebfed.engines.rounds.converse`. One-round
estimation is the loop of one round.

Facts, broadcasts, states, memories and messages are dicts of arrays and numbers, so the same object
runs in this process and anywhere a cohort can carry a dict. Each wing declares their keys here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NotRequired, Protocol, Self, TypedDict, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.sums import Columns
from ebfed.privacy.odometer import Plan

__all__ = [
    "Changes",
    "Estimator",
    "Facts",
    "LearningFacts",
    "LearningMemory",
    "LearningMessage",
    "LearningSent",
    "LearningShared",
    "LearningState",
    "LocationFacts",
    "LocationMemory",
    "LocationResults",
    "LocationSent",
    "LocationState",
    "Message",
    "Named",
    "Rounds",
    "Sent",
    "State",
]

Named = dict[str, NDArray[np.float64]]
"""Parameters by name, or what belongs to them: changes, gradients, averages."""

Changes = Mapping[str, NDArray[np.float64] | Columns]
"""Changes of parameters by name, a row for each client."""


class Facts(TypedDict):
    """What a block of clients states publicly before the first round, in every wing."""

    n: NDArray[np.int64]
    """Numbers of rows, shape (n_clients,)."""
    n_features: NDArray[np.int64]
    """Number of columns, shape (1,)."""
    columns: NDArray[np.str_]
    """Names of the columns, one to a line, shape (1,)."""


class Sent(TypedDict):
    """What a server broadcasts, in every wing."""

    done: bool
    round: int


class State(TypedDict):
    """What a server keeps between rounds, in every wing."""

    round: int
    done: bool
    key: NDArray[np.uint64]
    """Key of what the server draws, shape (2,); see `ebfed.streams.Stream`."""
    turn: NDArray[np.int8]
    """The round in which each client is to answer, -1 for never, shape (n_clients,)."""
    n: NDArray[np.int64]
    n_features: int
    columns: str
    answering: NotRequired[NDArray[np.bool_]]
    """In a round of a federation: which clients are at nodes that answered, if not all are."""
    secure: NotRequired[bool]
    """Whether the server's noise is that of the operating system, as privacy is real."""


# Location: a parameter for every group, in one round ------------------------------------------

Message = dict[str, NDArray]
"""What a block of clients sends through one channel."""


class LocationFacts(Facts):
    """What clients of a location estimator state."""

    consent: NDArray[np.int8]
    """Number of the class of consent that each client chose."""
    covariates: NDArray[np.float64]
    """Covariates of the clients, row by row, shape (n_clients * k,)."""
    covariate_names: NDArray[np.str_]
    """Names of the covariates, one to a line, shape (1,)."""
    weight: NotRequired[NDArray[np.float64]]
    """Exposure of each client, of families that have one."""


class LocationResults(TypedDict):
    """What a server learns of a population, and broadcasts."""

    prior: NotRequired[dict[str, Any]]
    """Learned attributes of the population."""
    log_likelihood: NotRequired[float | None]
    """Of the reports; None where that is the clients' own to add up."""
    n_clients: NotRequired[int]
    centres: NotRequired[NDArray[np.float64]]
    """Of clustering in rounds: the centres so far, and their shares and noise."""
    shares: NotRequired[NDArray[np.float64]]
    noise: NotRequired[NDArray[np.float64]]
    history: NotRequired[dict[str, NDArray]]
    """Of mixtures: columns of the history."""
    theta: NotRequired[dict[str, Any]]
    """Of opting out: the weights of the average."""
    question: NotRequired[Any]
    """Of ``share="sums"``: which sums are asked for."""


class LocationSent(Sent, LocationResults):
    """What the server of a location estimator broadcasts."""

    settings: Any
    """How to report: arguments of channels by class; in the end, those of every round."""
    n_rows: NotRequired[int]
    """Number of rows of all clients, in the last broadcast."""
    n_private: NotRequired[dict[str, int]]
    """Of opting out: how many clients add noise."""


class LocationState(State, LocationResults):
    """What the server of a location estimator keeps."""

    n_rounds: int
    consent: NDArray[np.int8]
    covariates: NDArray[np.float64]
    """Shape (n_clients, k)."""
    covariate_names: str
    weight: NDArray[np.float64] | None
    messages: list[dict[str, Message]]
    """Of each round, by class of consent."""
    settings: list[dict[str, dict[str, Any]]]
    """How each round was to report."""
    answers: NotRequired[dict[str, NDArray]]
    """Of ``share="sums"``: sums so far, with the columns and ratios of each."""


class LocationMemory(TypedDict):
    """What clients of a location estimator keep, one entry each."""

    turn: NotRequired[NDArray[np.int8]]
    """The round in which the client is to answer, -1 for never."""
    consent: NDArray[np.int8]
    clipped: NotRequired[NDArray[np.bool_]]
    """Whether a channel clipped the client's mean; a server does not know it."""
    report: NDArray[np.float64]
    """What the client's message says its mean is, shape (n_clients, d); NaN before it is sent."""
    covariates: NDArray[np.float64]


# Learning ---------------------------------------------------------------------------------------


class LearningFacts(Facts):
    """What a block of clients states before a learner's first round."""

    classes: NotRequired[NDArray]
    """Classes of the response; missing where it is a number."""
    consent: NotRequired[NDArray[np.int8]]
    """Of a learner with opt-out: the level of privacy that each chose; the last is "open"."""
    users: NotRequired[NDArray[np.int64]]
    """Of a learner of owners: the number of users of each."""
    budget: NotRequired[NDArray[np.float64]]
    """Epsilon of each client, where they differ."""


class LearningShared(TypedDict):
    """What the server of a learner keeps, and broadcasts."""

    began: int
    """The round in which this fit began: 0, or a later one after a warm start."""
    classes: NDArray
    shared: Named
    """Shared parameters, each of shape (size,)."""
    own: Named
    """Own parameters that a client begins with, each of shape (size,)."""
    every: int
    """Number of rounds from one that is recorded to the next."""
    clip: NotRequired[float]
    """Largest norm of what a client sends; with privacy."""
    budget: NotRequired[NDArray[np.float64]]


class LearningSent(Sent, LearningShared):
    """What the server of a learner broadcasts."""

    n_features: int
    columns: str
    n_clients: int
    expected: float
    """What sums over clients are divided by."""
    largest: int
    """Number of rows of the largest client."""
    records: int
    """How many rounds have their losses recorded."""
    record: int
    """Place of this round in the records, -1 for none."""
    evaluate: int
    """Place of this round among evaluations, -1 for none."""
    evaluations: int
    """How many evaluations there are so far."""
    history: NotRequired[list[dict[str, float]]]
    """One row for each round; in the last broadcast."""
    chosen: NotRequired[NDArray[np.int64]]
    """Number of clients of each level of privacy, the last of those that opted out."""
    ratio: NotRequired[NDArray[np.float64]]
    """Weight of a client of each level of privacy beside 1 of one that opted out."""


class LearningState(State, LearningShared):
    """What the server of a learner keeps between rounds."""

    model: str
    held_back: float
    """Share of clients' rows that is held back."""
    evaluate_every: int | None
    history: list[dict[str, float]]
    converged: bool | None
    promise: NotRequired[str]
    """Arguments that the privacy account rests on, as text."""
    consent: NotRequired[NDArray[np.int8]]
    users: NotRequired[NDArray[np.int64]]
    mean: NotRequired[Named]
    """Averages over rounds of the shared parameters."""
    moments: NotRequired[Named]
    """Of average changes, which the server's optimizer keeps."""


class LearningMemory(TypedDict):
    """What the clients of a learner keep to themselves, one entry each."""

    turn: NotRequired[NDArray[np.int8]]
    """0 for a client that is invited to this round, -1 for another."""
    uncounted: NotRequired[NDArray[np.bool_]]
    """Whether a client had no part in the last answer of its node, or the answer was not used."""
    own: NotRequired[Named]
    """Own parameters, each of shape (m, size)."""
    trained: NotRequired[NDArray[np.bool_]]
    """Whether a client has trained on its rows in any round."""
    loss: NotRequired[NDArray[np.float32]]
    """Loss of the first batch of each recorded round, shape (m, records)."""
    score: NotRequired[NDArray[np.float32]]
    validation: NotRequired[NDArray[np.float32]]
    """Metric on rows held back, of each evaluation, shape (m, evaluations)."""
    clipped: NotRequired[NDArray[np.bool_]]
    """Whether a client's message was ever scaled down."""
    answered: NotRequired[NDArray[np.int64]]
    """In how many rounds a client took part."""
    consent: NotRequired[NDArray[np.int8]]
    budget: NotRequired[NDArray[np.float64]]


class LearningMessage(TypedDict):
    """What the clients of a learner send in a round: one row each, or sums over a block."""

    changes: Named
    """By which each would move the shared parameters, each of shape (c, size)."""
    losses: NotRequired[Named]
    """Loss and score of each before the round, and whether it had rows, each of shape (c, 1)."""
    bit: NotRequired[NDArray[np.float64]]
    """Whether the change was shorter than the clip: a half, minus a half, or 0; (c, 1)."""
    weights: NotRequired[NDArray[np.float64]]
    """By which the changes were multiplied, (c, 1), where clients count by rows."""
    nodes: NotRequired[NDArray[np.float64]]
    """Of a secure sum, noise included: of how many nodes, shape (1, 1)."""
    clients: NotRequired[NDArray[np.float64]]
    """Of sums over the clients of a block: how many they are, shape (1, 1)."""


class Rounds(ABC):
    """What a method does on each side, as `Estimator.protocol` returns it: engines drive it."""

    answers_every_round: ClassVar[bool] = True
    """Whether a client answers in every round, rather than in one."""

    begins_again: ClassVar[bool] = False
    """Whether a fit without a node that misses the first round begins with the others' facts."""

    forgets: ClassVar[tuple[str, ...]] = ("messages", "key", "secure")
    """Keys of the last state that are not kept: messages, and what noise is drawn from."""

    estimator: Any
    """The estimator whose arguments these are; in the end, its learned attributes are set."""

    # Clients ----------------------------------------------------------------------------------

    @abstractmethod
    def prepare(
        self, X: Any, y: Any = None, *, groups: Any = None, consent: Any = None
    ) -> tuple[Any, Any]:
        """Read rows, as in `fit`.

        Returns
        -------
        clients : block of clients
        memory : dict of arrays
            What the clients keep to themselves, one entry each.
        """

    @abstractmethod
    def rows_shown(
        self, clients: Any, memory: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return how many rows of each client a figure is of, and whether it has no guarantee."""

    @abstractmethod
    def describe(self, clients: Any, memory: Any) -> Any:
        """State what is public of a block of clients before the first round."""

    @abstractmethod
    def local(self, sent: Any, memory: Any, clients: Any, rng: Any) -> tuple[Any, Any]:
        """Compute the messages of a block of clients, and what they keep.

        Parameters
        ----------
        sent : dict
            What the server broadcast.
        memory : dict of arrays
            With ``"turn"``: the round in which each client is to answer, -1 for never. At a node of
            a federation also ``"uncounted"``: which clients had no part in its last answer, or all,
            if that was lost or too late.
        clients : block of clients
        rng : Stream, or "secure" for clients whose privacy is real
        """

    def add_up(self, message: Any) -> Any:
        """Return the sums over a block that the server needs of a message, if it needs no more.

        A block on another machine sends them in place of what `local` returned. The state after a
        round is the same, to the last bit. Here, as of a method that needs each client's part, it
        is the message as it is.
        """
        return message

    def secure_sums(self, sent: Any, *, nodes: int, rows: int, survivors: int) -> Any:
        """Return how a node encodes its message where nobody is trusted; None if somebody is."""
        return None

    @abstractmethod
    def plan(self, sent: Any, memory: Any, clients: Any) -> list[Plan]:
        """State all that a run may take from a block of clients, before its first round."""

    @abstractmethod
    def releases(self, sent: Any, memory: Any, clients: Any) -> list[dict[str, Any]]:
        """List what a round takes from a block of clients: rows of a ledger."""

    @abstractmethod
    def finish(self, sent: Any, memory: Any, clients: Any) -> Any:
        """Return the estimator, these clients' own copy, with what the last broadcast says."""

    def estimates(self, backend: str | None = None) -> Any:
        """Return what was learned of each client, a frame: here, the posterior of each group.

        Parameters
        ----------
        backend : str, optional
            The library of the frame; that of the frame that was fitted if None.
        """
        posterior = self.estimator.posterior()
        return (posterior if backend is None else posterior.using(backend)).to_frame()

    # Server -----------------------------------------------------------------------------------

    @abstractmethod
    def check_facts(self, facts: Any) -> None:
        """Raise a ValueError if that is not what clients may state."""

    @abstractmethod
    def check_message(self, message: Any, facts: Any, sent: Any, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""

    @abstractmethod
    def start(self, facts: Any, key: NDArray) -> Any:
        """Return the state before the first round.

        Parameters
        ----------
        facts : dict of arrays
            What all clients stated, joined.
        key : ndarray of shape (2,)
            Of what the server draws; see `Stream`.
        """

    @abstractmethod
    def broadcast(self, state: Any) -> Any:
        """Return the part of the state that clients need."""

    @abstractmethod
    def update(self, state: Any, messages: Any) -> Any:
        """Return the next state, ``done`` if it is the last."""

    @abstractmethod
    def fitted_parameters(self, state: Any) -> dict[str, tuple[NDArray, NDArray]]:
        """Return the parameters of the last state by name, which are finite, with their errors.

        Standard errors are NaN where the method has none, and 0 of what is given.
        """

    def shifts(self, before: Any, after: Any, messages: Any) -> NDArray[np.float64] | None:
        """Return how far each node moves a round, in standard errors of the round without it.

        Parameters
        ----------
        before, after : dict
            The states before and after the round.
        messages : list of dict
            The message of each node.

        Returns
        -------
        ndarray of shape (n_nodes,) or None
            NaN where it is not known; None if it is found from `update` without each node, in the
            last round.
        """
        return None

    @abstractmethod
    def conclude(self, state: Any) -> Any:
        """Return the estimator, fitted as the server's own copy, which holds no client's rows."""

    def keep(self, state: Any) -> dict[str, Any]:
        """Return what is to be kept of the last state: neither messages nor the key of noise."""
        return {name: x for name, x in state.items() if name not in self.forgets}

    def expected_rounds(self) -> int | None:
        """Return the most rounds there can be, if that is known."""
        return None

    # The same group at two nodes --------------------------------------------------------------

    @property
    def matches(self) -> bool:
        """Whether messages of one group can be merged, by the three methods that follow."""
        return False

    def merge_facts(self, facts: Any, codes: Any) -> Any:
        """Return the facts of all groups, of which each node has those with these numbers."""
        raise NotImplementedError

    def merge(self, messages: Any, codes: Any) -> Any:
        """Return one message for each group that has answered, in the order of their numbers."""
        raise NotImplementedError

    def with_merged(self, message: Any, clients: Any, memory: Any) -> tuple[Any, Any]:
        """Return clients and memory as if all rows of a node's groups were at this node.

        Raises
        ------
        ValueError
            If the message cannot be that.
        """
        raise NotImplementedError


@runtime_checkable
class Estimator(Protocol):
    """A method that learns from clients in rounds."""

    engine: Any
    random_state: Any

    def protocol(self) -> Rounds:
        """Return what clients and server do, by these arguments."""

    def published(self) -> Self:
        """Return a copy with nothing in it that did not leave the clients."""
