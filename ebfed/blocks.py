"""Blocks of a long array, which fit the processor's cache, and the memory of the machine."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

__all__ = ["blocks", "memory"]


def blocks(length: int, size: int = 2**16) -> Iterator[slice]:
    """Cut an array of this length into slices of at most `size` entries.

    Examples
    --------
    >>> list(blocks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for first in range(0, length, size):
        yield slice(first, min(first + size, length))


def memory() -> float:
    """Return the bytes of memory of this machine, infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return math.inf
