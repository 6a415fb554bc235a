"""Groups within groups as nodes of trees, each before those within it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ebfed.tables.labels import number_labels, number_tuples, parents_among
from ebfed.tables.values import check_labels

__all__ = ["Tree", "starts_of_tops"]


@dataclass(frozen=True)
class Tree:
    """Groups of all levels: the nodes within a group of the top follow it.

    Attributes
    ----------
    parent : int64 ndarray of shape (n_nodes,)
        Node that each is within; -1 for those of the top.
    level : int64 ndarray of shape (n_nodes,)
        Level of each node, 0 for the top.
    tops : int64 ndarray of shape (n_tops + 1,)
        Ends, in nodes, of the groups of the top with all within them.
    leaf : int64 ndarray of shape (n_clients,)
        Node of each client: a group of the lowest level.
    first : int64 ndarray of shape (n_nodes,)
        First client within each node.
    """

    parent: NDArray[np.int64]
    level: NDArray[np.int64]
    tops: NDArray[np.int64]
    leaf: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def of(cls, ids: NDArray, n_levels: int) -> Self:
        """Return the tree of clients with these sorted labels.

        Clients without labels of several levels have parents of their own.

        Raises
        ------
        ValueError
            If clients of one parent are not one after another.

        Examples
        --------
        >>> tree = Tree.of(np.fromiter([("r", 1), ("s", 1), ("s", 2)], object), 2)
        >>> tree.parent.tolist(), tree.leaf.tolist(), tree.tops.tolist()
        ([-1, 0, -1, 2, 2], [1, 3, 4], [0, 2, 5])
        """
        begins = _first_new(ids, n_levels)
        count = n_levels - begins
        ends = np.cumsum(count)
        first = np.repeat(np.arange(len(ids)), count)
        level = begins[first] + np.arange(len(first)) - (ends - count)[first]
        parent = np.full(len(level), -1)
        for own in range(1, n_levels):
            above = np.flatnonzero(level == own - 1)
            nodes = np.flatnonzero(level == own)
            parent[nodes] = above[np.searchsorted(above, nodes) - 1]
        tops = np.append(np.flatnonzero(level == 0), len(level))
        return cls(parent, level, tops, ends - 1, first)

    def nodes(self, level: int) -> NDArray[np.int64]:
        """Nodes of a level."""
        return np.flatnonzero(self.level == level)


def starts_of_tops(ids: NDArray) -> NDArray[np.int64]:
    """Places of the first client of each group of the outermost level, and the number of clients.

    Examples
    --------
    >>> starts_of_tops(np.fromiter([("r", 1), ("s", 1), ("s", 2)], object)).tolist()
    [0, 1, 3]
    >>> starts_of_tops(np.array(["a", "b"])).tolist()
    [0, 1, 2]
    """
    begins = _first_new(ids, parents_among(ids) + 1)
    return np.append(np.flatnonzero(begins == 0), len(ids))


def _first_new(ids: NDArray, n_levels: int) -> NDArray[np.int64]:
    """Outermost level at which each client's group is another than that of the client before."""
    begins = np.zeros(len(ids), np.int64)
    if not parents_among(ids):
        return begins
    begins[1:] = n_levels - 1
    columns = [number_labels(check_labels(list(part)))[1] for part in zip(*ids, strict=True)]
    for level in range(n_levels - 2, -1, -1):
        codes = number_tuples(columns[: level + 1]) if level else columns[0]
        new = codes[1:] != codes[:-1]
        begins[1:][new] = level
        if 1 + new.sum() != len(np.unique(codes)):
            raise ValueError("clients of one parent must be one after another.")
    return begins
