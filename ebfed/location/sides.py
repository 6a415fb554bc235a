"""An estimator whose two sides are objects: a client and a server do the protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ebfed.engines.cloning import cloned
from ebfed.engines.protocol import (
    LocationFacts,
    LocationMemory,
    LocationSent,
    LocationState,
    Message,
)
from ebfed.engines.publishing import deep_copied, pickled, published, shallow_copied
from ebfed.engines.rounds import converse_here, without_messages
from ebfed.engines.sums import no_secure_sums, unsummed
from ebfed.location import matching
from ebfed.location.client import Client
from ebfed.location.cross_fitting import check_no_regressor
from ebfed.location.files import LocationFile
from ebfed.location.learned import Learned
from ebfed.location.server import Server, population_of
from ebfed.privacy.odometer import Plan
from ebfed.privacy.promises import simulated
from ebfed.streams import is_fixed
from ebfed.tables.clients import Summary
from ebfed.tables.of_rows import OfRows

__all__ = ["TwoSided"]

# What belongs to rows reaches methods where scikit-learn's metadata routing is enabled.
ROUTED = dict.fromkeys(("groups", *sorted(OfRows.__optional_keys__)), True)


class TwoSided(ABC):
    """The protocol `ebfed.engines.Estimator`, by a `Client` and a `Server` built from arguments.

    A subclass defines `client_side` and `server_side`, and keeps what depends on rows: `prepare`,
    `finish`, `conclude` and `estimates`.
    """

    answers_every_round: ClassVar[bool] = False

    @property
    def begins_again(self) -> bool:
        """Whether a fit without a node that misses the first round begins with other facts."""
        return getattr(self, "share", "groups") == "sums"

    random_state: Any

    # Whether the pickle of a private fit has the figures of its clients.
    keep_rows: bool = False
    # What a file has of the fit.
    _file: ClassVar = LocationFile()
    # What a server would keep of the fit.
    _kept: dict[str, Any] | None = None
    # Notes of who held the fit, on nodes and their labels.
    _remarks: tuple[str, ...] = ()
    # Whether noise was drawn from a fixed seed.
    _simulated: bool = False
    # Numbers of groups and rows, where the groups are not known.
    _totals: tuple[int, int] | None = None
    __copy__, __deepcopy__, __sklearn_clone__ = shallow_copied, deep_copied, cloned

    __metadata_request__fit: ClassVar = ROUTED
    __metadata_request__partial_fit: ClassVar = ROUTED
    __metadata_request__predict: ClassVar = ROUTED
    __metadata_request__transform: ClassVar = ROUTED
    __metadata_request__score: ClassVar = ROUTED

    @abstractmethod
    def client_side(self) -> Client:
        """Return what clients do, built from the arguments and the names of columns."""

    @abstractmethod
    def server_side(self) -> Server:
        """Return what the server does, built from the arguments."""

    def protocol(self) -> Any:
        """Return what clients and server do."""
        return self

    @property
    def estimator(self) -> Any:
        """The estimator."""
        return self

    def describe(self, clients: Summary, memory: LocationMemory) -> LocationFacts:
        """State what is public of a block of clients; see `Client.describe`."""
        check_no_regressor(self)
        return self.client_side().describe(clients, memory)

    def local(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary, rng: Any
    ) -> tuple[dict[str, Message], LocationMemory]:
        """Send the summaries of the clients whose turn it is; see `Client.local`."""
        return self.client_side().local(sent, memory, clients, rng)

    add_up = staticmethod(unsummed)
    secure_sums = staticmethod(no_secure_sums)

    def rows_shown(
        self, clients: Summary, memory: LocationMemory
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the numbers of rows of clients, and whether their channel gives no guarantee."""
        side = self.client_side()
        exact = np.array([not side.protects(name) for name in side.channels])
        return clients.n.astype(float), exact[memory["consent"]]

    def plan(self, sent: LocationSent, memory: LocationMemory, clients: Summary) -> list[Plan]:
        """State all that a run may take from clients; see `Client.plan`."""
        return self.client_side().plan(sent, memory, clients)

    def releases(
        self, sent: LocationSent, memory: LocationMemory, clients: Summary
    ) -> list[dict[str, Any]]:
        """List what clients send in a round; see `Client.releases`."""
        return self.client_side().releases(sent, memory, clients)

    def check_facts(self, facts: LocationFacts) -> None:
        """Raise a ValueError if that is not what clients may state."""
        self.server_side().check_facts(facts)

    def check_message(
        self, message: dict[str, Message], facts: LocationFacts, sent: LocationSent, turn: NDArray
    ) -> None:
        """Raise a ValueError if that is not an answer of the clients that stated these facts."""
        self.server_side().check_message(message, facts, sent, turn)

    def start(self, facts: LocationFacts, key: NDArray) -> LocationState:
        """Return the state before the first round; see `Server.start`."""
        return self.server_side().start(facts, key)

    def broadcast(self, state: LocationState) -> LocationSent:
        """Return what clients need of the state; see `Server.broadcast`."""
        return self.server_side().broadcast(state)

    def update(self, state: LocationState, messages: dict[str, Message]) -> LocationState:
        """Return the state after one more round; see `Server.update`."""
        return self.server_side().update(state, messages)

    def fitted_parameters(self, state: LocationState) -> dict[str, tuple[NDArray, NDArray]]:
        """Return the parameters of the population, with standard errors; see `population_of`."""
        return population_of(state)

    def shifts(
        self, before: LocationState, after: LocationState, messages: Sequence[Any]
    ) -> NDArray[np.float64] | None:
        """Return how far each node moves a round, of methods by sums; see `SumsServer.shifts`."""
        return self.server_side().shifts(before, after, messages)

    # The same group at two nodes --------------------------------------------------------------

    @property
    def matches(self) -> bool:
        """Whether messages can be merged: exact summaries, of all clients."""
        return self.server_side().merges

    def merge_facts(
        self, facts: Sequence[LocationFacts], codes: Sequence[NDArray[np.int64]]
    ) -> LocationFacts:
        """Return the facts of all groups; see `matching.merged_facts`."""
        return matching.merged_facts(facts, codes)

    def merge(
        self, messages: Sequence[dict[str, Message]], codes: Sequence[NDArray[np.int64]]
    ) -> dict[str, Message]:
        """Merge exact messages about groups with these numbers."""
        (name,) = messages[0]
        family = self.server_side().family
        return {name: matching.merged([message[name] for message in messages], codes, family)}

    def with_merged(
        self, message: dict[str, Message], clients: Summary, memory: LocationMemory
    ) -> tuple[Summary, LocationMemory]:
        """Return clients and memory as if all rows of these groups were here."""
        (part,) = message.values()
        merged = matching.checked_part(part, clients)
        return merged, memory | {"report": merged.mean}

    def keep(self, state: LocationState) -> dict[str, Any]:
        """Return what is to be kept of the last state: neither messages nor the key of noise."""
        return without_messages(state)

    def expected_rounds(self) -> int | None:
        """Return None: how many rounds there are follows from the channels."""
        return None

    # A fit here, and what is left of it -------------------------------------------------------

    def hold_rounds(
        self, clients: Summary, memory: LocationMemory
    ) -> tuple[LocationState, LocationMemory]:
        """Hold the rounds with clients of this process; returns the last state, and their memory.

        What a server would keep of the fit is kept, to be published.
        """
        private = self.client_side().promises()
        state, memory = converse_here(self.protocol(), clients, memory, private=private)
        self._kept = self.keep(state)
        return state, memory

    def entered(self, learned: Learned) -> list[dict[str, Any]]:
        """Return the ledger of what clients sent; simulated noise is said to be that."""
        client = self.client_side()
        rows = client.ledger(learned.settings, learned.memory, learned.summaries)
        by_server = learned.is_server and client.server_adds_noise and is_fixed(self.random_state)
        return simulated(rows) if self._simulated or by_server else rows

    def published(self) -> Self:
        """Return a copy with nothing in it that did not leave the clients: that of a server.

        It estimates any group from given rows, and numbers the groups of the fit. It has no rows,
        no estimates of groups, and no key of noise. A private fit is pickled like this, unless
        ``fit.keep_rows = True`` was set before.
        """
        check_is_fitted(self, "prior_")
        return published(self)

    def __getstate__(self) -> dict[str, Any]:
        learned: Learned | None = vars(self).get("_learned")
        ledger = () if learned is None else learned.ledger
        return pickled(self, cast(Any, super()).__getstate__(), ledger)
