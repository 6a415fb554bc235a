"""In this process, block after block or several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ebfed.engines.base import Engine

__all__ = ["Local"]


class Local(Engine):
    """Run in this process.

    Parameters
    ----------
    n_blocks : int, optional
        Cut the clients into that many blocks, to bound what a block needs at once; one for each
        thread if None.
    threads : int
        How many blocks are computed at a time. Learners need no more than 1: with one block, their
        large products and sums take as many threads as NumPy's linear algebra would.

    Examples
    --------
    >>> here = Local(2)
    >>> placed = here.place(["north", "south"])
    >>> here.call(placed, "count", [("o",), ("t",)])
    [1, 1]
    """

    def __init__(self, n_blocks: int | None = None, *, threads: int = 1):
        for name, value in (("n_blocks", n_blocks), ("threads", threads)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value!r}.")
        self.n_blocks = threads if n_blocks is None else n_blocks
        self.threads = threads

    def place(self, blocks: Sequence[Any]) -> list:
        """Leave the blocks where they are."""
        return list(blocks)

    def call(self, placed: Sequence[Any], method: str, arguments: Sequence[tuple]) -> list:
        """Return the results in the order of the blocks."""
        calls = [
            (getattr(block, method), own) for block, own in zip(placed, arguments, strict=True)
        ]
        if self.threads == 1:
            return [function(*own) for function, own in calls]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(lambda call: call[0](*call[1]), calls))
