"""Rows that are one of several categories, with the shares of these for every group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ebfed.families.base import Figures
from ebfed.families.binomial import Binomial
from ebfed.likelihoods import Multinomial
from ebfed.tables.clients import Summary
from ebfed.tables.labels import numbered_rows
from ebfed.tables.of_rows import NOTHING, check_whole

__all__ = ["Categorical"]


@dataclass(frozen=True)
class Categorical(Binomial):
    """Rows with a column for each category: numbers of answers, or a single 1 among zeros.

    A group is summarised by its number of answers and by their shares. By itself, an answer is of
    one category or of another: each coordinate is that of a `Binomial` family.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [2.0, 5.0, 0.0]])
    >>> summary = Categorical().summarise(rows, np.array(["a", "a", "b"]))
    >>> summary.n, Categorical().likelihood(Categorical.figures(summary)).counts
    (array([2, 7]), array([[1, 0, 1],
           [2, 5, 0]]))
    """

    n_categories: int | None = None

    name: ClassVar[str] = "categorical"
    parameter: ClassVar[str] = "share"
    conjugate: ClassVar[str] = "Dirichlet"
    adds_up: ClassVar[bool] = True
    needs_values: ClassVar[bool] = True
    exact_only: ClassVar[str] = (
        "a report on the local mean is about one share, and says nothing of the others"
    )

    def check_rows(self, values: NDArray) -> NDArray:
        """Refuse rows that are not whole numbers from 0 on."""
        other = ~((values >= 0) & (values == np.floor(values)) & (values <= 2**53)).all(axis=1)
        if other.any():
            row = int(np.argmax(other))
            raise ValueError(
                "X must hold one column of labels, or counts of each category, whole numbers from "
                f"0; row {row} has {values[row].tolist()}."
            )
        return values

    def check_summary(self, summary: Summary) -> None:
        """Refuse summaries of other rows than answers."""
        counts = summary.mean * summary.n[:, None]
        whole = (np.abs(counts - np.rint(counts)) < 1e-6 * (1 + counts)).all(axis=1)
        all_ = np.abs(counts.sum(axis=1) - summary.n) < 1e-6 * (1 + summary.n)
        if not (whole & all_ & (summary.mean >= 0).all(axis=1)).all():
            raise ValueError(
                "X must summarise answers, in shares that add up to 1; got other numbers."
            )

    def summarise(
        self,
        values: NDArray,
        labels: NDArray | None,
        of_rows: Mapping[str, NDArray] = NOTHING,
    ) -> Summary:
        """Count answers of each group, n of them in all."""
        ids, codes = numbered_rows(labels, len(values))
        rows = np.bincount(codes, minlength=len(ids))
        weight = of_rows.get("sample_weight")
        if weight is not None:
            check_whole(weight, self.name)
        if values.shape[1] == 1 and self.n_categories is not None:
            k = self.n_categories
            cells = codes * k + values[:, 0].astype(np.int64)
            values = np.bincount(cells, weight, minlength=len(ids) * k).reshape(-1, k)
        else:
            values = values if weight is None else weight[:, None] * values
            if labels is not None:
                columns = [np.bincount(codes, column, minlength=len(ids)) for column in values.T]
                values = np.stack(columns, axis=1)
        if not rows.all():
            some = np.flatnonzero(rows)
            ids, values = ids[some], values[some]
        n = values.sum(axis=1).astype(np.int64)
        shares = values / np.maximum(n, 1)[:, None]
        return Summary(ids, n, shares, n[:, None] * shares * (1 - shares))

    def responses(
        self, values: NDArray, of_rows: Mapping[str, NDArray]
    ) -> tuple[NDArray, NDArray | None]:
        """Return answers of each category, and of all: a row may have several."""
        return values, values.sum(axis=1)

    def likelihood(self, figures: Figures) -> Multinomial:  # type: ignore[override]
        """``z_i ~ Multinomial(n_i, theta_i)``."""
        return Multinomial(np.rint(figures["mean"] * figures["n"][:, None]).astype(np.int64))
