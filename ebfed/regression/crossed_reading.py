"""Rows with the labels of several factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.engines.supervised import check_size
from ebfed.regression.families import ResponseFamily, Responses
from ebfed.regression.families.base import check_rows
from ebfed.regression.numerics.crossed_model import MOST_LEVELS
from ebfed.tables.frames import Style
from ebfed.tables.labels import number_labels
from ebfed.tables.levels import split_levels
from ebfed.tables.numbers import column
from ebfed.tables.of_rows import are_shares, won_of_shares
from ebfed.tables.rows import Rows
from ebfed.tables.unseen import warn_of_mistyped

__all__ = ["CrossedRows", "check_factors"]


@dataclass(frozen=True)
class CrossedRows:
    """Rows, with the label of each factor.

    Attributes
    ----------
    X : float64 ndarray
        Rows without other columns.
    columns : list of str or None
        Names of these columns.
    y : array-like or None
    labels : list of ndarray
        Labels of each factor; none where these are not known.
    styles : list of Style
        Name of each factor, and type of its labels.
    names : list of str or None
        Columns that held the labels.
    of_rows : dict of ndarray
        Weights and offsets, where they are given.
    """

    X: NDArray[np.float64]
    columns: list[str] | None
    y: Any
    labels: list[NDArray]
    styles: list[Style]
    names: list[str] | None
    of_rows: dict[str, NDArray]

    @classmethod
    def read(
        cls,
        X: Any,
        y: Any,
        groups: Any,
        of_rows: Mapping[str, Any],
        aside: Sequence[str] = (),
    ) -> Self:
        """Read rows; columns `aside` of a frame are no features.

        Raises
        ------
        ValueError, TypeError
        """
        factors = [] if groups is None else split_levels(groups, X)
        if len(factors) == 1:
            raise ValueError(
                "groups must be of two factors or more, such as ['student', 'lecturer']; LinearEB "
                "fits one."
            )
        beside = {name: value for name, value in of_rows.items() if value is not None}
        offset = beside.get("offset")
        if offset is not None and not isinstance(offset, str) and np.size(offset) == 1:
            beside["offset"] = np.full(len(X), offset)
        rows = Rows.read(X, groups, y=y, beside=beside, aside=aside, numeric=True)
        styles = [*rows.style.above, replace(rows.style, above=())] if factors else []
        for j, each in enumerate(factors):
            if not isinstance(each, str) and not isinstance(getattr(each, "name", None), str):
                styles[j] = replace(styles[j], group=f"group{j + 1}")
        names = [each for each in factors if isinstance(each, str)]
        several = names if len(names) == len(factors) else None
        values = rows.X, rows.columns, rows.y, list(rows.levels)
        return cls(*values, styles, several, dict(rows.beside))

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.X)

    def offset(self) -> NDArray[np.float64]:
        """Offset of each row."""
        return self.of_rows.get("offset", np.zeros(len(self)))

    def responses(self, family: ResponseFamily | None) -> Responses:
        """Return the responses of rows, those of weight 0 too.

        Raises
        ------
        ValueError, TypeError
            If they are missing, infinite, no number for each row, or cannot be of the family.
        """
        if self.y is None:
            raise ValueError("y must be given, or be the name of a column of X.")
        values, n = column(self.y, "y", booleans=True), len(self)
        if values.shape != (n,):
            raise ValueError(f"y must be one number for each of {n} rows.")
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise ValueError(f"y must be finite; row {row} has {values[row]}.")
        check_size(values, "y")
        weight = self.of_rows.get("sample_weight", np.ones(n))
        trials = self.of_rows.get("trials")
        weighed = "sample_weight" in self.of_rows and trials is None
        weighed = weighed and family is not None and family.name == "binomial"
        if weighed and are_shares(values):  # of as many trials as the weight says, as in R
            trials, weight = weight, np.ones(n)
            values = won_of_shares(values, trials).astype(float)
        if trials is not None:
            if family is None or family.name != "binomial":
                raise ValueError("trials= is for family='binomial'.")
            check_rows(values > trials, values, "y must be at most trials")
            values, weight = values / np.maximum(trials, 1), weight * trials
        if family is not None:
            family.check(values, np.ones(n) if trials is None else trials)
        return Responses(values, weight, np.broadcast_to(self.offset(), n))

    def numbered(self, keep: NDArray[np.bool_]) -> list[tuple[NDArray, NDArray[np.int64]]]:
        """Number the labels of each factor by their sorted order, of the rows that are kept."""
        pairs = zip(self.styles, self.labels, strict=True)
        return [number_labels(own[keep], f"groups {style.group!r}") for style, own in pairs]

    def codes_among(self, known: Sequence[NDArray], order: Sequence[int]) -> NDArray[np.int64]:
        """Place of each label among those of the fit, shape (n_rows, n_factors); -1 where not."""
        import pandas as pd

        codes = np.empty((len(self), len(order)), np.int64)
        for j, (ids, number) in enumerate(zip(known, order, strict=True)):
            asked, own = number_labels(self.labels[number], "groups")
            warn_of_mistyped(asked, ids)
            index = pd.Index(ids, tupleize_cols=False)
            codes[:, j] = index.get_indexer(pd.Index(asked, tupleize_cols=False))[own]
        return codes


def check_factors(
    names: Sequence[str], sizes: Sequence[int], n_rows: int, alone: bool = False
) -> None:
    """Refuse factors whose variances rows cannot tell, or that are too large.

    A level of one row is enough where `alone`: the noise of a count is known.

    Raises
    ------
    ValueError
    """
    if not names:
        raise ValueError("groups must be of two factors or more, such as ['student', 'lecturer'].")
    if twice := {name for name in names if list(names).count(name) > 1}:
        raise ValueError(f"factors must have different names; {min(twice)!r} is there twice.")
    for name, size in zip(names, sizes, strict=True):
        if size < 2:
            raise ValueError(f"factor {name!r} must have two levels or more; it has {size}.")
        if size >= n_rows and not alone:
            raise ValueError(
                f"factor {name!r} has {size:,} levels for {n_rows:,} rows: its effects and the "
                "noise are the same."
            )
    others = sum(sizes) - max(sizes)
    if others > MOST_LEVELS:
        raise ValueError(
            f"the factors but the largest have {others:,} levels together; CrossedEB is exact, and "
            f"fits up to {MOST_LEVELS:,}."
        )
