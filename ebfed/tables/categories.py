"""Categories of columns, numbered: text, numbers, dates or categories of any library of frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.tables.unseen import warn_of_mistyped
from ebfed.tables.values import plain

__all__ = ["Categories", "NestedCategories"]


@dataclass(frozen=True)
class Categories:
    """The distinct values of a column, in the order of their first appearance.

    Missing values (None, NaN, NaT, NA) are one category, the last.

    Attributes
    ----------
    known : pandas Index
        The values that are not missing.
    has_missing : bool
        Whether missing values are a category.

    Examples
    --------
    >>> categories, codes = Categories.of(np.array(["b", None, "a", "b"], dtype=object))
    >>> categories.labels.tolist(), codes.tolist()
    (['b', 'a', nan], [0, 2, 1, 0])
    >>> categories.codes_of(np.array(["a", "c"], dtype=object)).tolist()
    [1, -1]
    """

    known: pd.Index
    has_missing: bool

    @classmethod
    def of(cls, values: Any) -> tuple[Self, NDArray[np.int64]]:
        """Number the values of a column, an array or a series of pandas.

        Raises
        ------
        TypeError
            If values cannot be compared, such as lists.
        """
        dtype = getattr(values, "dtype", None)
        if isinstance(dtype, pd.CategoricalDtype):
            codes, known = np.asarray(pd.Categorical(values).codes), dtype.categories
        else:
            codes, known = pd.factorize(_native(values))
            known = pd.Index(known)
        codes = codes.astype(np.int64, copy=False)
        absent = codes < 0
        has_missing = bool(absent.any())
        if has_missing:
            codes = np.where(absent, len(known), codes)
        return cls(known, has_missing), codes

    def codes_of(self, values: Any) -> NDArray[np.int64]:
        """Return the number of each value, -1 if it is unknown; warn of text that a number is."""
        if isinstance(getattr(values, "dtype", None), pd.CategoricalDtype):
            column = pd.Categorical(values)
            numbers = np.append(self.known.get_indexer(column.categories), -1)
            codes = numbers[column.codes]
        else:
            # its own type: older pandas guess another for objects
            values = _native(values)
            dtype = values.dtype if isinstance(values, pd.Series) else None
            codes = self.known.get_indexer(pd.Index(values, dtype=dtype))
        absent = pd.isna(values)
        if self.has_missing:
            codes = np.where(absent, len(self.known), codes)
        unknown = (codes < 0) & ~absent
        if unknown.any():
            distinct = pd.unique(pd.Series(np.asarray(values)[unknown], dtype=object))
            warn_of_mistyped(distinct, self.known.to_numpy())
        return np.asarray(codes, np.int64)

    def __len__(self) -> int:
        return len(self.known) + self.has_missing

    @property
    def labels(self) -> NDArray:
        """The categories in the order of their numbers; the missing one is NaN."""
        known = self.known.to_numpy()
        if not self.has_missing:
            return known
        return np.append(known.astype(object), np.nan)


def _native(values: Any) -> Any:
    """Return numbers of another byte order or size as pandas has them, and others as they are."""
    dtype = getattr(values, "dtype", None)
    return plain(values) if isinstance(dtype, np.dtype) and dtype.kind in "iufM" else values


@dataclass(frozen=True)
class NestedCategories:
    """Categories of a chain of columns, each within those of the column before it.

    Level 0 has the categories of the first column. Level l has the pairs of a category of level
    l - 1 and one of column l: the county Lake of Indiana is not that of Ohio.

    Attributes
    ----------
    columns : list of Categories
        Of each column by itself.
    keys : list of pandas Index
        Pairs of the levels from 1 on, as one number each.
    parents : list of int64 ndarrays
        For each pair of the levels from 1 on, its category in the level above.

    Examples
    --------
    >>> state, county = np.array(["IN", "OH", "IN"]), np.array(["Lake", "Lake", "Allen"])
    >>> chain, nodes = NestedCategories.of([state, county])
    >>> [each.tolist() for each in nodes], chain.parents[0].tolist()
    ([[0, 1, 0], [0, 1, 2]], [0, 1, 0])
    >>> [each.tolist() for each in chain.nodes_of([np.array(["OH"]), np.array(["Allen"])])]
    [[1], [-1]]
    """

    columns: list[Categories]
    keys: list[pd.Index]
    parents: list[NDArray[np.int64]]

    @classmethod
    def of(cls, values: Sequence[Any]) -> tuple[Self, list[NDArray[np.int64]]]:
        """Number the values of columns, the outermost first; of each level as well."""
        pairs = [Categories.of(column) for column in values]
        columns, codes = [each for each, _ in pairs], [each for _, each in pairs]
        keys, parents, nodes = [], [], codes[:1]
        for categories, own in zip(columns[1:], codes[1:], strict=True):
            numbers, distinct = pd.factorize(nodes[-1] * len(categories) + own)
            keys.append(pd.Index(distinct))
            parents.append(distinct // len(categories))
            nodes.append(numbers.astype(np.int64, copy=False))
        return cls(columns, keys, parents), nodes

    def nodes_of(self, values: Sequence[Any]) -> list[NDArray[np.int64]]:
        """Number the values of columns in each level, -1 where unknown."""
        nodes: list[NDArray[np.int64]] = []
        for level, (categories, column) in enumerate(zip(self.columns, values, strict=True)):
            codes = categories.codes_of(column)
            if level:
                known = (nodes[-1] >= 0) & (codes >= 0)
                key = nodes[-1] * len(categories) + codes
                codes = np.where(known, self.keys[level - 1].get_indexer(key), -1)
            nodes.append(codes)
        return nodes

    def sizes(self) -> list[int]:
        """Return the number of categories of each level."""
        return [len(self.columns[0]), *map(len, self.keys)]

    def labels(self, level: int) -> list[Any]:
        """Return the categories of a level; tuples from level 1 on."""
        own = self.columns[level].labels.tolist()
        if not level:
            return own
        above = self.labels(level - 1)
        above = above if level > 1 else [(each,) for each in above]
        keys = (self.keys[level - 1].to_numpy() % len(own)).tolist()
        parents = self.parents[level - 1].tolist()
        return [(*above[i], own[j]) for i, j in zip(parents, keys, strict=True)]
