"""Rows at which a fit is looked at: all levels of factors, and numbers at their means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.formula.design import Design
from ebfed.formula.expressions import names_of
from ebfed.formula.names import plain_name
from ebfed.formula.terms import Terms, required
from ebfed.tables.columns import Columns, days_of

__all__ = ["ReferenceGrid"]

# Of the range of a column: by how much it is moved for a slope.
STEP = 1e-3


class ReferenceGrid:
    """All combinations of the levels of a formula's factors, with its numbers at their means.

    Parameters
    ----------
    design : Design
    data : Columns
        Rows whose levels, means and frequencies count.
    at : mapping of str to value or sequence
        Values of columns in place of these.

    Raises
    ------
    ValueError
        If `at` has a column that the formula does not use.
    """

    def __init__(self, design: Design, data: Columns, at: Mapping[str, Any]):
        self._design, self._data = design, data
        self.columns = required([design.text], data.names)
        if unknown := [name for name in at if name not in self.columns]:
            raise ValueError(self._unknown(unknown[0]))
        self.factors = _levels_of_columns(design, self.columns)
        self.values: dict[str, list[Any]] = {}
        for name in self.columns:
            if name in at:
                self.values[name] = _as_list(at[name])
            elif name in self.factors:
                self.values[name] = self.factors[name]
            else:
                self.values[name] = [float(np.mean(self._numbers(name)))]

    def _unknown(self, name: str) -> str:
        shown = ", ".join(map(repr, self.columns)) or "none"
        return f"{name!r} is not a column of the terms of all groups, which are of {shown}."

    def _numbers(self, name: str) -> NDArray:
        values = days_of(self._data.values(name))
        if values.dtype.kind not in "iufb":
            raise ValueError(f"column {name!r} has no mean; give its value in at.")
        return values.astype(float)

    def contrasts(
        self, terms: Sequence[str], weights: str, slope: str | None
    ) -> tuple[dict[str, NDArray], NDArray[np.float64]]:
        """Return the combinations of coefficients that are the means, or the slopes, at `terms`.

        Parameters
        ----------
        terms : sequence of str
            Columns; the other factors are averaged over.
        weights : {"equal", "proportional"}
            Weights of the levels that are averaged over: equal, or as often as rows have them.
        slope : str or None
            Column, by which the predictor is differentiated.

        Returns
        -------
        labels : dict of ndarray of shape (n,)
            Values of each column of `terms`.
        contrasts : ndarray of shape (n, p)
        """
        for name in [*terms, *([] if slope is None else [slope])]:
            if name not in self.columns:
                raise ValueError(self._unknown(name))
        if slope in self.factors:
            raise ValueError(f"{slope!r} is a factor and has no slope; compare its levels.")
        others = [name for name in self.columns if name not in terms]
        cells = list(product(*(self.values[name] for name in terms)))
        within = list(product(*(self.values[name] for name in others)))
        share = self._shares(others, within) if weights == "proportional" else None
        rows = [cell + each for cell in cells for each in within]
        names = [*terms, *others]
        table = {name: [row[j] for row in rows] for j, name in enumerate(names)}
        found = self._rows(table) if slope is None else self._slopes(table, slope)
        apart = found.reshape(len(cells), len(within), -1)
        averaged = np.average(apart, axis=1, weights=share)
        labels = {
            name: np.array([cell[j] for cell in cells], None if cells else object)
            for j, name in enumerate(terms)
        }
        return labels, averaged

    def _rows(self, table: Mapping[str, Sequence[Any]]) -> NDArray[np.float64]:
        """Columns of the mean at these values, that of the constant first."""
        import pandas as pd

        n = len(next(iter(table.values()))) if table else 1
        if not table:
            return np.ones((1, 1))
        columns = self._design.of(pd.DataFrame(dict(table)))
        return np.column_stack([np.ones(n), columns]) if self._design.constant else columns

    def _slopes(self, table: dict[str, list[Any]], slope: str) -> NDArray[np.float64]:
        """Central differences, exact for terms up to squares."""
        values = self._numbers(slope)
        step = STEP * (float(np.ptp(values)) or 1.0)
        ahead, back = (
            self._rows(table | {slope: [x + sign * step for x in table[slope]]})
            for sign in (1.0, -1.0)
        )
        return (ahead - back) / (2 * step)

    def _shares(self, others: Sequence[str], within: Sequence[tuple]) -> NDArray[np.float64]:
        """Share of rows that have the levels of each combination."""
        averaged = [j for j, name in enumerate(others) if len(self.values[name]) > 1]
        if wrong := [others[j] for j in averaged if others[j] not in self.factors]:
            raise ValueError(
                f"weights='proportional' needs levels; {wrong[0]!r} has several values in at."
            )
        columns = [self._data.values(others[j]).tolist() for j in averaged]
        observed = list(zip(*columns, strict=True))
        counts = [observed.count(tuple(each[j] for j in averaged)) for each in within]
        return np.array(counts, float) if averaged else np.ones(len(within))


def _levels_of_columns(design: Design, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Levels of the columns that are factors as they are, or in ``C(…)``."""
    found = {}
    for _, factors in Terms.of(design.text).each:
        for _, expression in factors:
            if plain_name(expression) in columns:
                names = {plain_name(expression)}
            else:
                names = (
                    names_of(expression) & set(columns) if expression.startswith("C(") else set()
                )
            if len(names) == 1 and expression in design.factors:
                found[names.pop()] = design.factors[expression]
    return found


def _as_list(values: Any) -> list[Any]:
    """Return values as a list; one value is a list of one."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        return [values]
    return list(values)
