"""Blocks of a long array: what is computed from one block fits the processor's cache."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["blocks"]


def blocks(length: int, size: int = 2**16) -> Iterator[slice]:
    """Cut an array of this length into slices of at most `size` entries.

    Examples
    --------
    >>> list(blocks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for first in range(0, length, size):
        yield slice(first, min(first + size, length))
