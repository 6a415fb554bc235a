"""Threads of the library of linear algebra, and our own in their place."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from functools import cache, cached_property
from typing import Any, TypeVar

__all__ = ["in_parts", "one_thread", "threads_for"]

Result = TypeVar("Result")

# Rows of a matrix that is factorised in about as much time by one thread as by a few.
ALONE = 2_000


@cache
def _libraries() -> list[Any]:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers


class _Threads:
    """A number of threads, which start when they are first needed."""

    def __init__(self, number: int):
        self.number = number

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.number - 1)

    def end(self) -> None:
        if "pool" in self.__dict__:
            self.pool.shutdown()


# What `in_parts` may use: nothing in threads of an engine, or of its own.
_threads: ContextVar[_Threads | None] = ContextVar("threads", default=None)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the library of linear algebra from starting threads for small matrices.

    They wait for one another; beside other work, that takes many times as long as the products.
    `in_parts` may use as many threads in their place.
    """
    many = [(each, number) for each in _libraries() if (number := each.num_threads) != 1]
    for library, _ in many:
        library.set_num_threads(1)
    threads = _Threads(max(number for _, number in many)) if many else _threads.get()
    token = _threads.set(threads)
    try:
        yield
    finally:
        _threads.reset(token)
        if many and threads is not None:
            threads.end()
        for library, number in many:
            library.set_num_threads(number)


def in_parts(work: Callable[[int, int], Result], size: int, least: int = 1) -> list[Result]:
    """Cut a range in parts, and work on each in a thread of its own.

    Within `one_thread` there are as many parts as the library of linear algebra had threads before;
    outside, and within a part, there is one.

    Parameters
    ----------
    work : callable
        Function of the first number of a part and the one behind its last.
    size : int
        The range is that of the numbers from 0 to below `size`.
    least : int
        Least size of a part, for which a thread is worth its while.

    Returns
    -------
    list
        What it returned of each part, in order.

    Examples
    --------
    >>> in_parts(range, 5)
    [range(0, 5)]
    """
    threads = _threads.get()
    number = 1 if threads is None else max(min(threads.number, size // least), 1)
    if threads is None or number == 1:
        return [work(0, size)]
    edges = [size * i // number for i in range(number + 1)]
    others = [
        threads.pool.submit(copy_context().run, _alone, work, first, last)
        for first, last in itertools.pairwise(edges[1:])
    ]
    begin = copy_context().run(_alone, work, 0, edges[1])
    return [begin, *(each.result() for each in others)]


def _alone(work: Callable[[int, int], Result], first: int, last: int) -> Result:
    _threads.set(None)
    return work(first, last)


def threads_for(size: int) -> Any:
    """Let the library start threads for matrices of so many rows, if these are more than 2,000."""
    return one_thread() if size <= ALONE else nullcontext()
