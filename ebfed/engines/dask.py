"""On a Dask cluster: blocks of clients are sent to workers once, and stay there."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ebfed.engines.base import Engine

__all__ = ["Dask"]

# Seconds between two looks at whether a worker that has not answered is still there.
PATIENCE = 5.0


class Dask(Engine):
    """Keep blocks of clients on the workers of a Dask cluster.

    A fit sends each block to a worker once, with what its clients keep. A round sends the server's
    broadcast to each block, and each block's message back. In the end, what the clients keep is
    sent back too. The blocks are Dask actors: they stay in the memory of their worker.

    Parameters
    ----------
    client : distributed.Client
        Needs ``pip install "ebfed[dask]"``. Workers need ebfed too, in the same version. If workers
        can be reached from here, ``Client(..., direct_to_workers=True)`` halves the traffic: else
        all passes through the scheduler.
    n_blocks : int, optional
        Into how many blocks the clients are cut; one for each thread of the workers if None.

    Notes
    -----
    A fit raises a RuntimeError if the cluster has no workers, or if a worker is lost: what its
    clients kept is lost too, so that the fit cannot go on. Blocks are not sent again. A learner
    with ``checkpoint=`` goes on from its last checkpoint when it is fitted again.

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

    def place(self, blocks: Sequence[Any]) -> list:
        """Send each block to a worker; workers get blocks in proportion to their threads."""
        threads = self.client.nthreads()
        slots = [address for address, count in threads.items() for _ in range(count)]
        if not slots:
            raise RuntimeError(
                "the Dask cluster has no workers: scale it, and call client.wait_for_workers(n)."
            )
        sent = []
        for number, block in enumerate(blocks):
            address = slots[number * len(slots) // len(blocks)]
            # no hash: equal blocks are not shared, as each keeps a memory of its own
            (data,) = self.client.scatter([block], workers=[address], hash=False)
            actor = self.client.submit(_Actor, data, workers=[address], actor=True, pure=False)
            sent.append((address, actor))
        placed = [_Placed(*each, self._wait(*each, each[1])) for each in sent]
        for each in placed:
            weakref.finalize(each, _forget, self.client, each.future).atexit = False
        return placed

    def call(self, placed: Sequence[Any], method: str, arguments: Sequence[tuple]) -> list:
        """Return the results in the order of the blocks."""
        answers = []
        for each, own in zip(placed, arguments, strict=True):
            if each.future.status != "finished":
                raise RuntimeError(_lost(each.address))
            answers.append(each.actor.call(method, *own))
        return [
            self._wait(each.address, each.future, answer)
            for each, answer in zip(placed, answers, strict=True)
        ]

    def _wait(self, address: str, future: Any, answer: Any) -> Any:
        """Wait for an answer of the block at an address, but not for one of a worker that is gone.

        Dask may wait for that for ever.
        """
        while True:
            try:
                return answer.result(timeout=PATIENCE)
            except TimeoutError:
                if answer.done():  # the block itself has raised it
                    raise
                gone = future.status not in ("pending", "finished")
                if gone or address not in self.client.nthreads():
                    raise RuntimeError(_lost(address)) from None
            except OSError as error:  # the worker cannot be reached
                raise RuntimeError(_lost(address)) from error


@dataclass(frozen=True)
class _Placed:
    """A block on a worker, which holds it until this is forgotten."""

    address: str
    future: Any
    actor: Any


class _Actor:
    """A block in the memory of a worker."""

    def __init__(self, block: Any):
        self._block = block

    async def call(self, method: str, *arguments: Any) -> Any:
        # plain methods of all actors of a worker share one thread
        return await asyncio.to_thread(getattr(self._block, method), *arguments)


def _forget(client: Any, future: Any) -> None:
    """Let a worker free a block at once; Python finds the handle late, as it is in a cycle."""
    if client.status == "running":
        cancel = partial(client.cancel, [future], asynchronous=True, force=True)
        client.loop.add_callback(cancel)


def _lost(address: str) -> str:
    return (
        f"the Dask worker {address} is lost, and with it what its clients kept: fit again. A "
        "learner with checkpoint= then goes on from its last checkpoint."
    )
