"""The rounds of a regression: what clients compute, and what the server makes of it.

An estimator makes such an object from its arguments, on the clients' side and on the server's. It
holds nothing of a fit: what passes between rounds is in states, messages and memories, whose keys
are in `ebfed.engines.protocol`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.robust import pair
from ebfed.engines.sums import LARGEST_SUM
from ebfed.privacy import ledger
from ebfed.privacy.odometer import Plan
from ebfed.regression.protocol import (
    RegressionFacts,
    RegressionMemory,
    RegressionSent,
    RegressionState,
)
from ebfed.regression.reading import repeated
from ebfed.tables.clients import Clients

__all__ = [
    "ROUNDING",
    "Rounds",
    "check_parts",
    "check_products",
    "check_shapes",
    "mixture_population",
    "rows_shown",
]

# What rounding may do to products of columns of unit size.
ROUNDING = 1e-9

StateT = TypeVar("StateT", bound=RegressionState)
SentT = TypeVar("SentT", bound=RegressionSent)
MemoryT = TypeVar("MemoryT", bound=RegressionMemory)
MessageT = TypeVar("MessageT")


class Rounds(ABC, Generic[StateT, SentT, MemoryT, MessageT]):
    """Both sides of a method, without the rows."""

    # What the ledger says clients send.
    sends: ClassVar[str]

    fit_intercept: bool

    def expected_rounds(self) -> int | None:
        """Return the number of rounds, if that is fixed."""
        return None

    def promises(self) -> bool:
        """Whether the privacy of clients is protected."""
        return False

    # Clients ----------------------------------------------------------------------------------

    def block(self, clients: Clients, weight: NDArray[np.float64] | None = None) -> Any:
        """Return what is kept of clients' rows: a block with `ids`, `n`, `split` and `merge`.

        Weights of rows are precisions of numbers, and frequencies of classes.
        """
        return clients if weight is None else repeated(clients, weight)

    @abstractmethod
    def local(
        self, sent: SentT, memory: MemoryT, clients: Any, rng: Any
    ) -> tuple[MessageT, MemoryT]:
        """Compute the messages of a block of clients, and what they keep."""

    @abstractmethod
    def bits(self, sent: SentT, clients: Any) -> float:
        """Bits of the messages of a block of clients in one round."""

    def plan(self, sent: SentT, memory: MemoryT, clients: Any) -> list[Plan]:
        """State all that a run may take from a block of clients."""
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

    # Server -----------------------------------------------------------------------------------

    @abstractmethod
    def start(self, state: RegressionState, facts: RegressionFacts) -> StateT:
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

    @abstractmethod
    def check_message(self, message: MessageT, facts: RegressionFacts, sent: SentT) -> None:
        """Raise a ValueError if clients that stated these facts cannot have sent this."""

    @abstractmethod
    def update(self, state: StateT, messages: MessageT) -> StateT:
        """Return the next state, with ``result`` if it is ``done``."""

    @abstractmethod
    def fitted_parameters(self, state: StateT) -> dict[str, tuple[NDArray, NDArray]]:
        """Return the parameters of the last state by name, with standard errors, NaN if unknown."""

    def shifts(self, before: StateT, after: StateT, messages: Any) -> NDArray[np.float64] | None:
        """Return how far each node moves the fit; None: see `update` without each node."""
        return None


def rows_shown(
    estimator: Any, clients: Any, memory: Any
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the numbers of rows of clients, and that figures of all have no guarantee, or have."""
    return clients.n.astype(float), np.full(len(clients), not estimator._rounds().promises())


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


def check_parts(message: Any, n_clients: int) -> None:
    """Raise a ValueError if a message has no finite numbers for each client."""
    for name, part in message.items():
        if not (isinstance(part, np.ndarray) and part.ndim and len(part) == n_clients):
            raise ValueError(f"{name} must have an entry for each of {n_clients} clients.")
        _check_size(name, part)


def check_shapes(message: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise a ValueError if a message does not have finite numbers of these shapes."""
    if not isinstance(message, dict) or message.keys() != shapes.keys():
        raise ValueError(f"a message must have the parts {', '.join(shapes)}.")
    for name, shape in shapes.items():
        part: NDArray = message[name]
        if not (isinstance(part, np.ndarray) and part.dtype.kind in "if" and part.shape == shape):
            raise ValueError(f"{name} must be numbers of shape {shape}.")
        _check_size(name, part)


def check_products(name: str, products: NDArray) -> None:
    """Raise a ValueError if matrices of shape (m, p, p) are no sums of squares and products."""
    sizes = np.sqrt(np.maximum(np.einsum("ijj->ij", products), 0.0))
    units = np.where(sizes > 0, sizes, 1.0)
    scaled = products / units[:, :, None] / units[:, None, :]
    alike = np.abs(scaled - scaled.swapaxes(1, 2)).max(initial=0.0) < ROUNDING
    if not alike or np.linalg.eigvalsh(scaled).min(initial=0.0) < -ROUNDING * products.shape[1]:
        raise ValueError(f"{name} must be sums of squares and products of columns.")


def _check_size(name: str, part: NDArray) -> None:
    if part.dtype.kind not in "if" or not (np.abs(part) < LARGEST_SUM).all():
        raise ValueError(f"{name} must be finite numbers, below {LARGEST_SUM:g} in size.")
