"""Threads of the library of linear algebra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

__all__ = ["one_thread", "threads_for"]

# Rows of a matrix that is factorised in about as much time by one thread as by a few.
ALONE = 2_000


@cache
def _libraries() -> list[Any]:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the library of linear algebra from starting threads for small matrices.

    They wait for one another; beside other work, that takes many times as long as the products.
    """
    many = [(each, number) for each in _libraries() if (number := each.num_threads) != 1]
    for library, _ in many:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, number in many:
            library.set_num_threads(number)


def threads_for(size: int) -> Any:
    """Let the library start threads for matrices of so many rows, if these are more than 2,000."""
    return one_thread() if size <= ALONE else nullcontext()
