"""Threads of the library of linear algebra."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["one_thread"]


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread() -> Any:
    """Keep the library of linear algebra from starting threads for small matrices.

    They wait for one another; beside other work, that takes many times as long as the products.
    """
    return _controller().limit(limits=1, user_api="blas")
