"""Estimators: scikit-learn objects whose fit is a conversation between clients and a server.

Every method is a loop of rounds. Clients `prepare` their rows and `describe` publicly what the
server must know to `start`. The server broadcasts its state; each block of clients runs `local` on
its own data, keeps `memory` to itself and returns messages; the server `update`s the state with the
messages of all, until the state says ``done``. With the last broadcast each client may `finish`,
and has its estimates. State, memory and messages are plain dicts of arrays and numbers, so the same
object runs in this process and anywhere a cohort can carry a dict. One-round estimation is the loop
of one round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from ebfed.engines import Blocks, Cohort, Engine, Local, join
from ebfed.streams import make_key

__all__ = ["Estimator"]


class Estimator(BaseEstimator, ABC):
    """A method that learns from clients in rounds."""

    engine: Engine | None
    random_state: Any

    # Whether a client answers in every round, rather than in one.
    answers_every_round: ClassVar[bool] = False

    # Clients ----------------------------------------------------------------------------------

    @abstractmethod
    def prepare(
        self, X: Any, y: Any = None, *, groups: Any = None, consent: Any = None
    ) -> tuple[Any, dict[str, NDArray]]:
        """Read rows, as in `fit`.

        Returns
        -------
        clients : block of clients
        memory : dict of arrays
            What the clients keep to themselves, one entry each.
        """

    @abstractmethod
    def describe(self, clients: Any, memory: dict) -> dict[str, NDArray]:
        """State what is public of a block of clients before the first round."""

    @abstractmethod
    def local(self, sent: dict, memory: dict, clients: Any, rng: Any) -> tuple[dict, dict]:
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

    @abstractmethod
    def releases(self, sent: dict, memory: dict, clients: Any) -> list[dict[str, Any]]:
        """List what a round takes from a block of clients: rows of a ledger."""

    @abstractmethod
    def finish(self, sent: dict, memory: dict, clients: Any) -> Self:
        """Set the learned attributes of these clients' own copy, from the last broadcast."""

    # Server -----------------------------------------------------------------------------------

    @abstractmethod
    def check_facts(self, facts: dict) -> None:
        """Raise a ValueError if that is not what clients may state."""

    @abstractmethod
    def check_message(self, message: dict, facts: dict, sent: dict, turn: NDArray) -> None:
        """Raise a ValueError if that is no answer of the clients that stated these facts."""

    @abstractmethod
    def start(self, facts: dict, key: NDArray) -> dict:
        """Return the state before the first round.

        Parameters
        ----------
        facts : dict of arrays
            What all clients stated, joined.
        key : ndarray of shape (2,)
            Of what the server draws; see `Stream`.
        """

    @abstractmethod
    def broadcast(self, state: dict) -> dict:
        """Return the part of the state that clients need."""

    @abstractmethod
    def update(self, state: dict, messages: dict) -> dict:
        """Return the next state, ``done`` if it is the last."""

    @abstractmethod
    def conclude(self, state: dict) -> Self:
        """Set the learned attributes of the server's own copy, which holds no client's rows."""

    @abstractmethod
    def estimates(self, backend: str | None = None) -> Any:
        """Return what was learned of each client: a frame, a row or more for each.

        Parameters
        ----------
        backend : str, optional
            The library of the frame; that of the frame that was fitted if None.
        """

    def keep(self, state: dict) -> dict:
        """Return what is to be kept of the last state: neither messages nor the key of noise."""
        return {name: x for name, x in state.items() if name not in ("heard", "key")}

    def converse(
        self, cohort: Cohort, key: NDArray | None = None, state: dict | None = None
    ) -> dict:
        """Hold the conversation with clients, wherever they are; returns the last state.

        Parameters
        ----------
        cohort : Cohort
        key : ndarray of shape (2,), optional
            Of what the server draws; of `random_state` if None.
        state : dict, optional
            To go on from.
        """
        from tqdm import tqdm

        if state is None:
            key = make_key(self.random_state) if key is None else key
            state = self.start(join(cohort.facts), key)
        with tqdm(
            desc=type(self).__name__,
            unit=" rounds",
            total=self._n_rounds(),
            initial=state["round"],
            leave=False,
            disable=not getattr(self, "verbose", 0),
        ) as bar:
            while not state["done"]:
                sent = self.broadcast(state)
                self._before(state)
                messages = cohort.ask(sent, state["round"], state["turn"])
                state = self.update(state, join(messages))
                self._after(state, cohort)
                bar.update()
        return state

    def _before(self, state: dict) -> None:
        """Do what must be done before clients are asked."""

    def _after(self, state: dict, cohort: Cohort) -> None:
        """Do what must be done when a round is over."""

    def _n_rounds(self) -> int | None:
        """Return the most rounds there can be, if that is known."""
        return None

    def _converse_here(
        self, clients: Any, memory: dict, state: dict | None = None
    ) -> tuple[dict, dict]:
        """Hold it with clients of this process; returns the last state, and what they keep."""
        engine = Local() if self.engine is None else self.engine
        if not isinstance(engine, Engine):
            raise TypeError(f"engine must be an ebfed.engines.Engine; {engine!r} came.")
        self.__dict__.pop("_formula", None)  # of an earlier fit
        # what computes elsewhere carries neither the engine nor an earlier fit
        worker = clone(self).set_params(engine=None, random_state=None)
        key = make_key(self.random_state) if state is None else state["key"]
        cohort = Blocks(engine, self, worker, clients, memory, key)
        return self.converse(cohort, key, state), cohort.memory
