"""Engines: where the clients' part of a round is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Engine"]


class Engine(ABC):
    """Runs one function on every block of clients.

    Attributes
    ----------
    n_blocks : int
        Into how many blocks the clients are to be cut. Results never depend on it.
    """

    n_blocks: int = 1

    @abstractmethod
    def map(self, function: Callable[..., Any], blocks: Sequence[tuple]) -> list:
        """Return ``[function(*block) for block in blocks]``, in that order."""
