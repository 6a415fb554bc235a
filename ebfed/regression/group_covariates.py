"""Covariates of groups in a regression: how a fit reads them, and finds them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebfed.tables.covariates import read_covariates
from ebfed.tables.values import is_frame

__all__ = ["GroupCovariates"]


@dataclass(frozen=True)
class GroupCovariates:
    """Covariates of the groups of a fit.

    Attributes
    ----------
    names : list of k str
    ids : ndarray of shape (n_groups,)
        Labels of the groups.
    values : ndarray of shape (n_groups, k)
    """

    names: list[str] = field(default_factory=list)
    ids: NDArray = field(default_factory=lambda: np.empty(0, np.int64))
    values: NDArray = field(default_factory=lambda: np.empty((0, 0)))

    def learned(
        self, given: Any, X: Any, labels: NDArray | None, ids: NDArray, group: Sequence[str]
    ) -> GroupCovariates:
        """Return the covariates of the groups that are fitted, read from what was given."""
        values, names = read_covariates(given, X, labels, ids, group)
        return GroupCovariates(names, ids, values)

    def without_groups(self) -> GroupCovariates:
        """Return the names alone."""
        return GroupCovariates(self.names, values=self.values[:0])

    def of(
        self,
        ids: NDArray,
        X: Any,
        labels: NDArray | None,
        covariates: Any,
        group: Sequence[str],
        *,
        look_up: bool = True,
    ) -> NDArray[np.float64]:
        """Covariates of groups, shape (n, k).

        Parameters
        ----------
        ids : ndarray of shape (n,)
            Labels of the groups.
        X : data frame or array-like
            Rows, which may have the covariates as columns.
        labels : ndarray of shape (n_rows,) or None
            Label of each row.
        covariates : as in `LinearEB.fit`
        group : sequence of str
            Names of the columns of labels in a table of covariates, by level from the outermost.
        look_up : bool
            Whether groups of the fit get the values of the fit.
        """
        if not self.names:
            raise ValueError("covariates= was given, but the fit had no covariates.")
        place = np.full(len(ids), -1)
        if look_up:
            place = pd.Index(self.ids).get_indexer(pd.Index(ids))
        if covariates is None and np.any(place < 0):
            first = ids.tolist()[int(np.argmax(place < 0))]
            raise ValueError(
                f"group {first!r} was not in the fit: give its covariates as covariates=."
            )
        values = np.empty((len(ids), len(self.names)))
        # a table need not have groups of the fit; numbers are for all
        new = (place < 0) | (not is_frame(covariates))
        if covariates is not None and new.any():
            values[new] = read_covariates(covariates, X, labels, ids[new], group, self.names)[0]
        values[place >= 0] = self.values[place[place >= 0]]
        return values
