"""The rounds of a regression: what clients compute, and what the server makes of it.

An estimator makes such an object from its arguments, on the clients' side and on the server's. It
holds nothing of a fit: what passes between rounds is in states, messages and memories, whose keys
are in `ebfed.regression.protocol`. In the end it sets what was learned on the estimator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.robust import pair
from ebfed.engines.sums import LARGEST_SUM
from ebfed.engines.supervised import SupervisedRounds
from ebfed.privacy import ledger
from ebfed.privacy.ledger import simulated
from ebfed.privacy.odometer import Plan
from ebfed.regression.protocol import (
    RegressionFacts,
    RegressionMemory,
    RegressionSent,
    RegressionState,
)
from ebfed.tables.clients import Clients

__all__ = [
    "ROUNDING",
    "RegressionRounds",
    "check_products",
    "check_shapes",
    "mixture_population",
]

# What rounding may do to products of columns of unit size.
ROUNDING = 1e-9

StateT = TypeVar("StateT", bound=RegressionState)
SentT = TypeVar("SentT", bound=RegressionSent)
MemoryT = TypeVar("MemoryT", bound=RegressionMemory)
MessageT = TypeVar("MessageT")


@dataclass(frozen=True)
class RegressionRounds(SupervisedRounds, ABC, Generic[StateT, SentT, MemoryT, MessageT]):
    """The protocol of a regression; see `ebfed.engines.protocol.Rounds`.

    Parameters
    ----------
    estimator : RegressionEstimator
        Reads rows, and has what was learned set on it.
    """

    begins_again: ClassVar[bool] = True
    # What the ledger says clients send.
    sends: ClassVar[str]

    estimator: Any = field(kw_only=True, repr=False, compare=False)

    def promises(self) -> bool:
        """Whether the privacy of clients is protected."""
        return False

    # Clients ----------------------------------------------------------------------------------

    def prepare(
        self, X: Any, y: Any = None, *, groups: Any = None, consent: Any = None, **of_rows: Any
    ) -> tuple[Any, dict[str, NDArray]]:
        if consent is not None:
            raise ValueError(f"{type(self.estimator).__name__} has no classes of consent.")
        return self.estimator._read_block(X, y, groups, True, **of_rows)[0], {}

    @abstractmethod
    def block(self, clients: Clients, weight: NDArray[np.float64] | None = None) -> Any:
        """Return what is kept of clients' rows: a block with `ids`, `n`, `split` and `merge`.

        Weights of rows are precisions of numbers, and frequencies of classes.
        """

    def rows_shown(
        self, clients: Any, memory: MemoryT
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the numbers of rows of clients, and whether figures have no guarantee."""
        return clients.totals().astype(float), np.full(len(clients), not self.promises())

    def describe(self, clients: Any, memory: Any) -> Any:
        """State numbers of rows, columns, and labels of the response where it is a class."""
        facts = super().describe(clients, memory)
        if getattr(clients, "log_weight", None) is not None:
            facts |= {"log_weight": clients.log_weight}
        if self.estimator._numeric:
            return facts
        # with those that `partial_fit` was given
        known = getattr(self.estimator, "classes_", [])
        classes = np.unique(np.asarray(clients.y))
        return facts | {"classes": np.union1d(classes, known) if len(known) else classes}

    @abstractmethod
    def local(
        self, sent: SentT, memory: MemoryT, clients: Any, rng: Any
    ) -> tuple[MessageT, MemoryT]:
        """Compute the messages of a block of clients, and what they keep."""

    @abstractmethod
    def bits(self, sent: SentT, clients: Any) -> float:
        """Bits of the messages of a block of clients in one round."""

    def plan(self, sent: SentT, memory: MemoryT, clients: Any) -> list[Plan]:
        return [Plan.exact("all clients", np.ones(len(clients), bool), self.expected_rounds())]

    def releases(self, sent: SentT, memory: MemoryT, clients: Any) -> list[dict[str, Any]]:
        """List what a block of clients sends in a round: rows of a ledger."""
        return [ledger.disclosure(self.sends, len(clients), self.bits(sent, clients))]

    def ledger(self, sent: SentT, memory: MemoryT, clients: Any) -> list[dict[str, Any]]:
        """List what a block of clients sent in all rounds together."""
        rows = self.releases(sent, memory, clients)
        return [row | {"times": sent["round"]} for row in rows]

    def kept(self, memory: MemoryT) -> dict[str, Any]:
        """Return what clients keep after the last round."""
        return {}

    def finish(self, sent: SentT, memory: MemoryT, clients: Any) -> Any:
        """Return the estimator, these clients' own copy, with its learned attributes."""
        return self._taken(sent, self.kept(memory), clients)

    def _taken(self, sent: Any, memory: Any, clients: Any) -> Any:
        fit = self.estimator
        fit._take(sent, memory, clients)
        rows = self.ledger(sent, memory, fit.clients_)
        fit._ledger = simulated(rows) if fit._simulated else rows
        return fit

    # Server -----------------------------------------------------------------------------------

    def check_facts(self, facts: Any) -> None:
        """Raise a ValueError if clients cannot have stated this."""
        super().check_facts(facts)
        logs = facts.get("log_weight", np.zeros(len(facts["n"])))
        sound = isinstance(logs, np.ndarray) and logs.dtype == np.float64
        if not (sound and logs.shape == facts["n"].shape and np.isfinite(logs).all()):
            raise ValueError("facts may have a sum of the logarithms of weights for each client.")
        classes = facts.get("classes")
        labelled = isinstance(classes, np.ndarray) and classes.ndim == 1
        if not self.estimator._numeric and not labelled:
            raise ValueError("facts must have the labels of y.")

    def start(self, facts: RegressionFacts, key: NDArray) -> StateT:
        return self.begin(self.first_state(facts, key), facts)

    @abstractmethod
    def begin(self, state: RegressionState, facts: RegressionFacts) -> StateT:
        """Check the arguments, and return the state before the first round.

        Parameters
        ----------
        state : dict
            State that all methods have in common.
        facts : dict
            Facts that clients stated.
        """

    @abstractmethod
    def ask(self, state: StateT) -> SentT:
        """Return what is broadcast before a round that is not the last."""

    def broadcast(self, state: Any) -> Any:
        """Return which round it is and what clients need for it; in the end, what was learned."""
        if not state["done"]:
            return self.ask(state)
        return {
            "done": True,
            "round": state["round"],
            "n_clients": state.get("n_clients", len(state["n"])),
            "n_rows": int(state["n"].sum()),
            "history": state["history"],
            "log_likelihood": state["log_likelihood"],
            "converged": state["converged"],
            "result": state["result"],
        }

    def conclude(self, state: Any) -> Any:
        self.estimator._become_server(state, self.keep(state))
        return self._taken(self.broadcast(state), {}, None)


def mixture_population(state: Any) -> dict[str, tuple[NDArray, NDArray]]:
    """Return the parameters of a mixture of regressions: its moments, of which none has errors.

    Components have no order, so that those of two fits do not correspond.
    """
    result = state["result"]
    weights, means = result["weights"], result["means"]
    mean = weights @ means
    variance = weights @ (result["variances"] + (means - mean) ** 2)
    return {
        "mean": pair(mean),
        "variance": pair(variance),
        "noise variance": pair(result["noise_variance"]),
    }


def check_shapes(message: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise a ValueError if a message does not have finite numbers of these shapes."""
    if not isinstance(message, dict) or message.keys() != shapes.keys():
        raise ValueError(f"a message must have the parts {', '.join(shapes)}.")
    for name, shape in shapes.items():
        part: NDArray = message[name]
        if not (isinstance(part, np.ndarray) and part.dtype.kind in "if" and part.shape == shape):
            raise ValueError(f"{name} must be numbers of shape {shape}.")
        if not (np.abs(part) < LARGEST_SUM).all():
            raise ValueError(f"{name} must be finite numbers, below {LARGEST_SUM:g} in size.")


def check_products(name: str, products: NDArray) -> None:
    """Raise a ValueError if matrices of shape (m, p, p) are no sums of squares and products."""
    sizes = np.sqrt(np.maximum(np.einsum("ijj->ij", products), 0.0))
    units = np.where(sizes > 0, sizes, 1.0)
    scaled = products / units[:, :, None] / units[:, None, :]
    alike = np.abs(scaled - scaled.swapaxes(1, 2)).max(initial=0.0) < ROUNDING
    if not alike or np.linalg.eigvalsh(scaled).min(initial=0.0) < -ROUNDING * products.shape[1]:
        raise ValueError(f"{name} must be sums of squares and products of columns.")
