"""In this process, block after block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ebfed.engines.base import Engine

__all__ = ["Local"]


class Local(Engine):
    """Run in this process.

    Parameters
    ----------
    n_blocks : int
        Cut the clients into that many blocks, to bound what a block needs at once.

    Examples
    --------
    >>> Local(2).map(pow, [(2, 3), (3, 2)])
    [8, 9]
    """

    def __init__(self, n_blocks: int = 1):
        if n_blocks < 1:
            raise ValueError(f"n_blocks must be at least 1; {n_blocks!r} came.")
        self.n_blocks = n_blocks

    def map(self, function: Callable[..., Any], blocks: Sequence[tuple]) -> list:
        """Return the results in the order of the blocks."""
        return [function(*block) for block in blocks]
