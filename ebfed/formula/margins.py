"""Estimated marginal means and slopes of a formula's fit, and their contrasts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ebfed.arguments import check_level
from ebfed.designs.design import Design
from ebfed.designs.expressions import names_of
from ebfed.designs.grammar import plain_name
from ebfed.designs.terms import Terms, required
from ebfed.families.base import Link
from ebfed.inference.contrasts import (
    Adjustment,
    adjusted_p_values,
    check_adjustment,
    contrast_tests,
    critical_values,
)
from ebfed.inference.degrees_of_freedom import Inference
from ebfed.tables.columns import Columns, days_of
from ebfed.tables.frames import Style, frame

__all__ = ["Margins", "ReferenceGrid"]

# Of the range of a column: by how much it is moved for a slope.
STEP = 1e-3


@dataclass(frozen=True, repr=False)
class Margins:
    """Estimated marginal means, or slopes, of a population: see `FormulaFit.margins`.

    Attributes
    ----------
    labels : dict of ndarray of shape (n,)
        Value of each column at which the means are.
    contrasts : ndarray of shape (n, p)
        Combinations of the coefficients of the mean.
    """

    labels: dict[str, NDArray]
    contrasts: NDArray
    _inference: Inference
    _link: Link
    _spread: NDArray | None
    _style: Style

    def frame(self, level: float = 0.95, *, scale: Literal["link", "response"] = "link") -> Any:
        """Return the means with intervals.

        Parameters
        ----------
        level : float
            Probability that an interval holds its mean.
        scale : {"link", "response"}
            Scale of the linear predictor; or that of the response, to which estimates and ends of
            intervals are taken, and standard errors by the slope of the link.

        Returns
        -------
        DataFrame
            The columns of `labels`, ``estimate``, ``std.error``, ``df``, ``conf.low``,
            ``conf.high``.
        """
        found = self._with_intervals(self.contrasts, level, "none", len(self.contrasts))
        del found["statistic"], found["p.value"]
        if scale == "response":
            found = self._responses(found)
        elif scale != "link":
            raise ValueError(f"scale must be 'link' or 'response'; got {scale!r}.")
        return frame(self.labels | found, self._style)

    def pairs(self, adjust: Adjustment = "tukey", level: float = 0.95) -> Any:
        """Compare all pairs of the means, on the scale of the link.

        Parameters
        ----------
        adjust : {"tukey", "holm", "bonferroni", "none"}
            How p-values and intervals allow for the number of pairs. Tukey's needs the means of
            balanced groups to be exact; it is conservative for others (Kramer 1956).
        level : float

        Returns
        -------
        DataFrame
            ``contrast``, ``estimate``, ``std.error``, ``df``, ``statistic``, ``p.value``,
            ``conf.low``, ``conf.high``.
        """
        names = self._names()
        places = list(combinations(range(len(names)), 2))
        weights = np.zeros((len(places), len(names)))
        for row, (i, j) in enumerate(places):
            weights[row, i], weights[row, j] = 1.0, -1.0
        labels = [f"{names[i]} - {names[j]}" for i, j in places]
        return self._compared(labels, weights, adjust, level)

    def contrast(
        self,
        weights: Mapping[str, Sequence[float]],
        adjust: Adjustment = "none",
        level: float = 0.95,
    ) -> Any:
        """Test weighted sums of the means, on the scale of the link.

        Parameters
        ----------
        weights : mapping of str to sequence of n floats
            Weight of each mean, by the name of the contrast.
        adjust : {"none", "holm", "bonferroni"}
        level : float

        Returns
        -------
        DataFrame
            As `pairs`.
        """
        n = len(self.contrasts)
        table = {name: np.asarray(each, float) for name, each in weights.items()}
        for name, each in table.items():
            if each.shape != (n,) or not np.isfinite(each).all():
                raise ValueError(f"weights of {name!r} must be {n} numbers, one of each mean.")
        if adjust == "tukey":
            raise ValueError("adjust='tukey' is of all pairs; use 'holm' or 'bonferroni'.")
        return self._compared(list(weights), np.array([*table.values()]), adjust, level)

    def _compared(
        self, labels: list[str], weights: NDArray, adjust: Adjustment, level: float
    ) -> Any:
        check_adjustment(adjust)
        contrasts = weights.reshape(len(labels), len(self.contrasts)) @ self.contrasts
        found = self._with_intervals(contrasts, level, adjust, len(self.contrasts))
        return frame({"contrast": np.array(labels, object)} | found, self._style)

    def _with_intervals(
        self, contrasts: NDArray, level: float, adjust: Adjustment, n_means: int
    ) -> dict[str, NDArray]:
        check_level(level)
        found = contrast_tests(self._inference, contrasts)
        if self._spread is not None:
            between = np.einsum("np,pq,nq->n", contrasts, self._spread, contrasts)
            found["std.error"] = np.sqrt(found["std.error"] ** 2 + between)
            found["statistic"] = found["p.value"] = np.full(len(contrasts), np.nan)
        found["p.value"] = adjusted_p_values(
            found["statistic"], found["df"], found["p.value"], adjust, n_means
        )
        half = critical_values(found["df"], level, adjust, n_means) * found["std.error"]
        found["conf.low"], found["conf.high"] = found["estimate"] - half, found["estimate"] + half
        return found

    def _responses(self, found: dict[str, NDArray]) -> dict[str, NDArray]:
        ends = {name: self._link.from_line(found[name]) for name in ("conf.low", "conf.high")}
        estimate = self._link.from_line(found["estimate"])
        error = found["std.error"] / np.abs(self._link.slope(estimate))
        return found | {"estimate": estimate, "std.error": error} | ends

    def _names(self) -> list[str]:
        """Name of each mean: the values of its columns."""
        columns = [values.tolist() for values in self.labels.values()]
        return [" ".join(map(str, each)) for each in zip(*columns, strict=True)]

    def __repr__(self) -> str:
        return repr(self.frame())


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
        self.columns = required(design.texts, data.names)
        if unknown := [name for name in at if name not in self.columns]:
            raise ValueError(self._unknown(unknown[0]))
        self.factors = _levels_of_columns(design, self.columns)
        for name in self.columns:  # truths are numbers to the design, and have no mean that is one
            if name not in self.factors and data.values(name).dtype.kind == "b":
                self.factors[name] = np.unique(data.values(name)).tolist()
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
        if weights not in ("equal", "proportional"):
            raise ValueError(f"weights must be 'equal' or 'proportional'; got {weights!r}.")
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
        """Differences within the range of the rows, exact for terms up to squares.

        They are about a value, and at an end of the range, beyond which a spline has no value,
        about one that is a step from it.
        """
        values = self._numbers(slope)
        step = STEP * (float(np.ptp(values)) or 1.0)
        low, high = float(values.min()), float(values.max())
        asked = np.array([*map(float, table[slope])])
        within = (asked >= low) & (asked <= high) & (high - low > 3 * step)
        edge = 1.01 * step  # a step from there is within the range, rounded
        about = np.where(within, np.clip(asked, low + edge, high - edge), asked)
        ahead, back = (
            self._rows(table | {slope: (about + sign * step).tolist()}) for sign in (1.0, -1.0)
        )
        found = (ahead - back) / (2 * step)
        if (away := (asked - about) / step).any():
            bend = ahead - 2 * self._rows(table | {slope: about.tolist()}) + back
            found += away[:, None] * bend / step
        return found

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
    """Levels of the columns that are factors as they are, or in ``C(…)`` or ``factor(…)``."""
    found = {}
    for _, factors in [each for text in design.texts for each in Terms.of(text).each]:
        for _, expression in factors:
            if plain_name(expression) in columns:
                names = {plain_name(expression)}
            else:
                coded = expression.startswith(("C(", "factor("))
                names = names_of(expression) & set(columns) if coded else set()
            if len(names) == 1 and expression in design.factors:
                found[names.pop()] = design.factors[expression]
    return found


def _as_list(values: Any) -> list[Any]:
    """Return values as a list; one value is a list of one."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        return [values]
    return list(values)
