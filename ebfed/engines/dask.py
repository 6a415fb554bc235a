"""On a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ebfed.engines.base import Engine

__all__ = ["Dask"]


class Dask(Engine):
    """Run blocks of clients on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        Needs ``pip install "ebfed[dask]"``. Workers need ebfed too.
    n_blocks : int, optional
        Into how many blocks the clients are cut; one for each thread of the workers if None.

    Examples
    --------
    >>> from distributed import Client  # doctest: +SKIP
    >>> Dask(Client("scheduler:8786"))  # doctest: +SKIP
    """

    def __init__(self, client: Any, n_blocks: int | None = None):
        if not hasattr(client, "gather"):
            raise TypeError(
                f'client must be a distributed.Client (pip install "ebfed[dask]"); got {client!r}.'
            )
        if n_blocks is not None and n_blocks < 1:
            raise ValueError(f"n_blocks must be at least 1; got {n_blocks!r}.")
        self.client = client
        self._wanted = n_blocks

    @property
    def n_blocks(self) -> int:  # type: ignore[override]
        """Number of blocks."""
        return self._wanted or max(sum(self.client.nthreads().values()), 1)

    def map(self, function: Callable[..., Any], blocks: Sequence[tuple]) -> list:
        """Return the results in the order of the blocks."""
        # every block is sent once and computed once: equal blocks of other fits are not reused
        futures = [self.client.submit(function, *block, pure=False) for block in blocks]
        return self.client.gather(futures)
