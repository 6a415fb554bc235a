"""In this process, block after block or several at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        How many blocks are computed at a time.

    Examples
    --------
    >>> Local(2).map(pow, [(2, 3), (3, 2)])
    [8, 9]
    """

    def __init__(self, n_blocks: int | None = None, *, threads: int = 1):
        for name, value in (("n_blocks", n_blocks), ("threads", threads)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value!r}.")
        self.n_blocks = threads if n_blocks is None else n_blocks
        self.threads = threads

    def map(self, function: Callable[..., Any], blocks: Sequence[tuple]) -> list:
        """Return the results in the order of the blocks."""
        if self.threads == 1:
            return [function(*block) for block in blocks]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(lambda block: function(*block), blocks))
