"""Formulas of lazy tables: fitted to sums, and predicted beside the rows, by the table's engine.

What an engine cannot do is a `NotPushedError`: such a fit reads the columns of the formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ebfed.designs.design import Design
from ebfed.designs.grammar import FormulaTerms, column_name
from ebfed.designs.terms import evaluated, required
from ebfed.formula.choice import is_a, other_population
from ebfed.formula.pushdown import (
    cells_of,
    columns_of,
    exposure_of,
    offset_of,
    response_of,
    scan_of,
)
from ebfed.formula.response import Response
from ebfed.formula.rows import WEIGHTS, CompleteRows, used_columns
from ebfed.regression.beside import predicted_beside, responses_beside
from ebfed.tables.clients import Summary
from ebfed.tables.frames import frame
from ebfed.tables.lazy import COUNTED, column_names, counted, summarise
from ebfed.tables.of_rows import Predicted, wants_rate
from ebfed.tables.scans import (
    FITTED,
    Beside,
    NotPushedError,
    Scan,
    columns_of_classes,
    lacking,
    named_in,
    repeated_rows,
)

__all__ = ["CountedRows", "LazyRows", "predicted_in_place", "sums_of"]


@dataclass
class LazyRows(CompleteRows):
    """Complete rows of a lazy table, of which `data` has a few in memory.

    Attributes
    ----------
    scan : Scan
    """

    scan: Scan | None = None

    @classmethod
    def read(
        cls,
        model: FormulaTerms,
        data: Any,
        context: Mapping[str, Any],
        *,
        na_values: Any = None,
        weights: Any = None,
        subset: Any = None,
        dispersion: Any = None,
        consent: str | None = None,
        na_action: str = "raise",
    ) -> Self:
        """Read a few rows of a lazy table; see `CompleteRows.read`.

        Raises
        ------
        NotPushedError
            If all rows are needed in memory.
        """
        of_rows = na_values, subset, dispersion, *model.above, *model.factors
        if any(each is not None for each in of_rows) or not isinstance(weights, str | None):
            raise NotPushedError(model.text)
        there = column_names(data)
        used, texts = used_columns(model, there, {"consent": consent, "weights": weights})
        scan = scan_of(data, used, texts, na_action)
        known = cls.of(model, scan.sample, consent, na_action, weights)
        known.there, known.scan = there, scan
        return known

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Let an error of sums be that of the rows which lack values, if some do."""
        assert self.scan is not None
        try:
            yield
        except ValueError as error:
            raise lacking(self.scan.whole, self.scan.used) or error from None

    def kept(self) -> CompleteRows:
        """Return what a fit keeps: no rows."""
        assert self.scan is not None
        known = self.scan.used, self.backend, self.scan.dropped()
        return CompleteRows.none(self.model, *known, weighed=self.weighed)


@dataclass
class CountedRows(CompleteRows):
    """Complete rows of a lazy table that differ, with the numbers of equal ones."""

    counted = COUNTED

    @classmethod
    def read(cls, model: FormulaTerms, data: Any, context: Mapping[str, Any], **given: Any) -> Self:
        """Let the engine count equal rows; see `CompleteRows.read`.

        Raises
        ------
        NotPushedError
            If most rows differ from the others of their group.
        """
        texts = [model.text, *(each for each in given.values() if isinstance(each, str))]
        names = named_in(data, texts)
        if model.factors or model.group not in names or not repeated_rows(data, names, model.group):
            raise NotPushedError(model.text)
        try:
            first = [model.group, *(name for name in names if name != model.group)]
            return super().read(model, counted(data, first), context, **given)
        except ValueError as error:
            raise lacking(data, names) or error from None

    def kept(self) -> CompleteRows:
        """Return what a fit keeps: no rows."""
        used = [name for name in self.data.names if name != COUNTED]
        return CompleteRows.none(
            self.model, used, self.backend, self.dropped, self.by, self.weighed
        )


def sums_of(
    rows: LazyRows, design: Design, response: Response, estimator: Any
) -> tuple[Any, dict[str, Any]]:
    """Return a lazy table with the columns of an estimator, and its other arguments.

    Raises
    ------
    NotPushedError
        If the estimator needs rows, or the engine cannot compute a column.
    ValueError
        If a covariate of groups varies within a group, or counts are no counts.
    """
    scan, model = rows.scan, rows.model
    if scan is None or not is_a(estimator, "LinearEB", "LocationEstimator"):
        raise NotPushedError(model.text)
    values = response_of(scan, response)
    columns = {} if is_a(estimator, "LinearEB") else columns_of(scan, design)
    options: dict[str, Any] = {"groups": model.group}
    if rows.consent is not None:
        options["consent"] = rows.consent
    keys = list(options.values())
    name = column_name(model.response)
    name = "(response)" if name in {*keys, *design.names} else name
    used = {name: values["response"]}
    if rows.weighed is not None:
        options["sample_weight"] = WEIGHTS
        used[WEIGHTS] = scan.number(rows.weighed)
    if is_a(estimator, "LinearEB"):
        if model.offset:
            used[name] = used[name] - offset_of(scan, response)
        factors, numbers, cells = cells_of(scan, design)
        table = scan.select(keys, factors | numbers | used)
        weights = {"sample_weight": WEIGHTS} if rows.weighed is not None else {}
        every = {**cells, name: (name, {})}
        found = summarise(table, model.group, cross=True, of_rows=weights, cells=every)
        return found, {"y": name}
    if columns:
        options["covariates"] = _covariates(scan, model, columns, other_population(estimator))
    if "exposure" in values:
        options["exposure"] = "(exposure)"
        used["(exposure)"] = values["exposure"]
    if "trials" not in values:
        return scan.select(keys, used), options
    new = {"(trials)": values["trials"], "(wrong)": values["wrong"]}
    del options["groups"]
    return _counts(scan.select(keys, {name: used[name]} | new), rows), options


def _covariates(scan: Scan, model: FormulaTerms, columns: Mapping[str, Any], other: str) -> Any:
    """Return the covariates of groups, from those of their rows."""
    found = summarise(scan.select([model.group], columns), model.group)
    if (wrong := found.summary.scatter > 0).any():
        row, j = np.argwhere(wrong)[0]
        raise ValueError(
            f"in {model.text!r}: covariate {found.columns[j]!r} must be the same in all rows of a "
            f"group; {found.summary.ids[row]!r} has different ones.{other}"
        )
    of_groups = dict(zip(found.columns, found.summary.mean.T, strict=True))
    return frame({model.group: found.summary.ids} | of_groups, found.style)


def _counts(table: Any, rows: LazyRows) -> Any:
    """Add up successes and trials of groups."""
    found = summarise(table, rows.model.group, rows.consent)
    counts = np.rint(found.summary.mean * found.summary.n[:, None]).astype(np.int64)
    won, trials, wrong = counts.T
    if wrong.any():
        raise ValueError(
            f"{rows.model.response!r} must be counts, whole numbers from 0 to the number of "
            f"trials; {int(wrong.sum())} rows have others."
        )
    counted = Summary.from_counts(won, trials, found.summary.ids)
    return found._replace(summary=counted, columns=found.columns[:1])


def predicted_in_place(
    data: Any,
    type: Predicted,
    design: Design,
    response: Response,
    estimator: Any,
    classes: Sequence[Any] | None = None,
) -> Any:
    """Return a lazy table with predictions as columns.

    Parameters
    ----------
    data : lazy table
    type : {"response", "rate"}
    design, response, estimator
        Those of a fit.
    classes : sequence, optional
        Labels whose probabilities are asked for, each in a column; else the mean is in one.

    Raises
    ------
    ValueError
        If the predictions need rows in memory.
    """
    model, there = response.model, column_names(data)
    texts = [*design.texts, *([evaluated(model.offset, there)] if model.offset else [])]
    try:
        if model.above or model.factors or model.group not in there:
            raise NotPushedError
        scan = scan_of(data, list({*required(texts, there), model.group}), texts)
        columns = columns_of(scan, design)
        if is_a(estimator, "LocationEstimator"):
            return _estimates(data, type, scan, columns, response, estimator, classes)
        if is_a(estimator, "LinearEB"):
            wants_rate(type, False, "gaussian")
            moved = offset_of(scan, response)
            return predicted_beside(estimator, data, model.group, columns, moved)
        if not is_a(estimator, "LogisticEB", "GeneralizedEB"):
            raise NotPushedError
        offset = 0.0 if type == "rate" else offset_of(scan, response)
        given = model.group, columns, offset, type, classes
        return responses_beside(estimator, data, *given)
    except NotPushedError:
        raise ValueError(
            f"predictions of {model.text!r} need the rows of data in memory; collect them."
        ) from None


def _estimates(
    data: Any,
    type: Predicted,
    scan: Scan,
    columns: Mapping[str, Any],
    response: Response,
    estimator: Any,
    classes: Sequence[Any] | None,
) -> Any:
    """Put the estimates of groups beside their rows, times exposures."""
    family, prior = estimator.protocol().family, estimator.prior_
    rate, times = wants_rate(type, family.has_rates, family.name), None
    if columns or np.size(prior.mean_) > 1:
        raise NotPushedError
    if is_a(estimator, "DurationEB"):
        times = response_of(scan, response)["response"]
    times = exposure_of(scan, response).get("exposure", times)
    known = estimator.posterior().mean
    rows = Beside.of(data, response.model.group, estimator.groups_, known, prior.mean_)
    found = rows.total([None if rate else times])
    if classes is None:
        return rows.fitted({FITTED: found})
    return rows.fitted(columns_of_classes(classes, [1.0 - found, found]))
