"""What the numbers of groups within groups identify, for rounds of regressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["names_in", "open_levels", "sizes_of_levels"]

ONE_PARENT = (
    "Level {level!r} has one group with rows: its variance is not identified, and taken to be zero."
)
ALONE = (
    "Every {parent} has one group of level {level!r}: their variances are not identified apart, "
    "and taken to be that of the {parent} alone."
)
ONE_ROW = (
    "No group of level {level!r} has two rows: noise and spread between them are not identified "
    "apart. The spread is taken to be zero."
)


def open_levels(
    sizes: Sequence[int],
    n_rows: int,
    levels: Sequence[str],
    varying: Sequence[NDArray],
    alone: bool = False,
) -> list[str]:
    """Note what the numbers of groups do not identify of each level; empty if nothing.

    Parameters
    ----------
    sizes : sequence of int
        Number of groups with rows of each level, from the top.
    n_rows : int
    levels : sequence of str
    varying : sequence of ndarray
    alone : bool
        Whether one row of a group is enough, as a count, whose noise is known.

    Examples
    --------
    >>> one = [np.arange(1)] * 2
    >>> open_levels([8, 30], 120, ["lea", "school"], one)
    ['', '']
    >>> print(open_levels([8, 8], 120, ["lea", "school"], one)[1])
    Every lea has one group of level 'school': their variances are not identified apart, and taken \
to be that of the lea alone.
    """
    notes = []
    for j, (level, places) in enumerate(zip(levels, varying, strict=True)):
        note = ""
        if sizes[j] < 2:
            note = ONE_PARENT.format(level=level)
        elif sizes[j] >= n_rows and not alone:
            note = ONE_ROW.format(level=level)
        elif j and sizes[j] <= sizes[j - 1] and len(varying[j - 1]):
            note = ALONE.format(level=level, parent=levels[j - 1])
        notes.append(note if len(places) else "")
    return notes


def sizes_of_levels(parents: Sequence[NDArray], n: NDArray) -> list[int]:
    """Return the number of groups with rows of each level, from the top.

    Parameters
    ----------
    parents : sequence of ndarray
        Place of each group's parent, from the second level; see `numbered`.
    n : ndarray of shape (n_groups,)
        Number of rows of each group of the lowest level.

    Examples
    --------
    >>> sizes_of_levels([np.array([0, 1, 1])], np.array([3, 0, 2]))
    [2, 2]
    """
    places = [np.flatnonzero(n > 0)]
    for each in reversed(parents):
        places.insert(0, each[places[0]])
    return [int(np.count_nonzero(np.bincount(each))) for each in places]


def names_in(facts: Any) -> str:
    """Return the names of levels that all clients state, one to a line; empty where there is one.

    Raises
    ------
    ValueError
        If clients state different levels.
    """
    levels = sorted(set(facts["levels"].tolist())) if "levels" in facts else [""]
    if len(levels) > 1:
        raise ValueError(f"clients have different levels of groups: {levels}.")
    return levels[0]
