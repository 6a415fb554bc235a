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

from typing import Any, ClassVar, Protocol, Self, TypedDict, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Estimator", "Facts", "Sent", "State"]


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


@runtime_checkable
class Estimator(Protocol):
    """A method that learns from clients in rounds."""

    engine: Any
    random_state: Any

    answers_every_round: ClassVar[bool]
    """Whether a client answers in every round, rather than in one."""

    # Clients ----------------------------------------------------------------------------------

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

    def describe(self, clients: Any, memory: Any) -> Any:
        """State what is public of a block of clients before the first round."""

    def local(self, sent: Any, memory: Any, clients: Any, rng: Any) -> tuple[Any, Any]:
        """Compute the messages of a block of clients, and what they keep.

        Parameters
        ----------
        sent : dict
            What the server broadcast.
        memory : dict of arrays
            With ``"turn"``: the round in which each client is to answer, -1 for never.
        clients : block of clients
        rng : Stream, or "secure" for clients whose privacy is real
        """

    def releases(self, sent: Any, memory: Any, clients: Any) -> list[dict[str, Any]]:
        """List what a round takes from a block of clients: rows of a ledger."""

    def finish(self, sent: Any, memory: Any, clients: Any) -> Self:
        """Set the learned attributes of these clients' own copy, from the last broadcast."""

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: Any) -> None:
        """Raise a ValueError if that is not what clients may state."""

    def check_message(self, message: Any, facts: Any, sent: Any, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""

    def start(self, facts: Any, key: NDArray) -> Any:
        """Return the state before the first round.

        Parameters
        ----------
        facts : dict of arrays
            What all clients stated, joined.
        key : ndarray of shape (2,)
            Of what the server draws; see `Stream`.
        """

    def broadcast(self, state: Any) -> Any:
        """Return the part of the state that clients need."""

    def update(self, state: Any, messages: Any) -> Any:
        """Return the next state, ``done`` if it is the last."""

    def conclude(self, state: Any) -> Self:
        """Set the learned attributes of the server's own copy, which holds no client's rows."""

    def keep(self, state: Any) -> dict[str, Any]:
        """Return what is to be kept of the last state: neither messages nor the key of noise."""

    def expected_rounds(self) -> int | None:
        """Return the most rounds there can be, if that is known."""

    # Users ------------------------------------------------------------------------------------

    def estimates(self, backend: str | None = None) -> Any:
        """Return what was learned of each client: a frame, a row or more for each.

        Parameters
        ----------
        backend : str, optional
            The library of the frame; that of the frame that was fitted if None.
        """
