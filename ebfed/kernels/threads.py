"""Threads of the library of linear algebra."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any

__all__ = ["one_thread", "threads_for"]

# Rows of a matrix that is factorised in about as much time by one thread as by a few.
ALONE = 2_000


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread() -> Any:
    """Keep the library of linear algebra from starting threads for small matrices.

    They wait for one another; beside other work, that takes many times as long as the products.
    """
    return _controller().limit(limits=1, user_api="blas")


def threads_for(size: int) -> Any:
    """Let the library start threads for matrices of so many rows, if these are more than 2,000."""
    return one_thread() if size <= ALONE else nullcontext()
