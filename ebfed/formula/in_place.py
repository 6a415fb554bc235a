"""Formulas of lazy tables: fitted to sums, and predicted beside the rows, by the table's engine.

What an engine cannot do is a `NotPushedError`: such a fit reads the columns of the formula.

What a formula learns of its columns, their levels and what the response is, it learns from a few
rows in memory that have all levels. The columns are then expressions of the engine: of numbers,
factors, products, powers and functions such as the logarithm. They are what formulaic makes of
the rows in memory, which is checked; a formula with other terms needs all rows.
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.designs.design import CONSTANT, Design
from ebfed.designs.expressions import in_words
from ebfed.designs.grammar import FormulaTerms, column_name, plain_name
from ebfed.designs.terms import Terms, evaluated, required
from ebfed.formula.choice import is_a, other_population
from ebfed.formula.response import Response
from ebfed.formula.rows import ORDERS, WEIGHTS, CompleteRows, Condition, used_columns
from ebfed.regression.beside import predicted_beside, responses_beside
from ebfed.tables.clients import Summary
from ebfed.tables.frames import frame
from ebfed.tables.lazy import COUNTED, Cells, column_names, counted, statistics, summarise
from ebfed.tables.of_rows import NOTHING, Predicted, wants_rate
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

__all__ = [
    "CountedRows",
    "LazyRows",
    "chosen_in_place",
    "columns_of",
    "offset_of",
    "predicted_in_place",
    "sums_of",
]

# Most columns of terms that an engine is asked for.
COLUMNS = 50
# What is the same number in every engine.
ARITHMETIC = (
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.UnaryOp,
    ast.USub,
)
BINARY: dict[type, Callable[[Any, Any], Any]] = ORDERS | {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "I": lambda x: x,
    "abs": lambda x: x.abs(),
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "log10": lambda x: x.log(10),
    "log1p": lambda x: (x + 1.0).log(),
    "log2": lambda x: x.log(2),
    "sqrt": lambda x: x.sqrt(),
    "square": lambda x: x * x,
}


@dataclass
class LazyRows(CompleteRows):
    """Complete rows of a lazy table, of which `data` has a few in memory.

    Attributes
    ----------
    scan : Scan
    """

    scan: Scan | None = None

    @classmethod
    def read(cls, model: FormulaTerms, data: Any, context: Mapping[str, Any], **given: Any) -> Self:
        """Read a few rows of a lazy table; see `CompleteRows.read`.

        Raises
        ------
        NotPushedError
            If all rows are needed in memory.
        """
        named = {name: given.pop(name) for name in ("consent", "weights")}
        na_action, others = given.pop("na_action"), [*given.values(), *model.above, *model.factors]
        if any(each is not None for each in others) or not isinstance(named["weights"], str | None):
            raise NotPushedError(model.text)
        there = column_names(data)
        scan = scan_of(data, *used_columns(model, there, named), na_action)
        known = cls.of(model, scan.sample, na_action=na_action, **named)
        known.there, known.scan = there, scan
        return known

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Ask all rows for what a few cannot tell, such as the spread of a column."""
        try:
            yield
        except ValueError:
            if any("scale" in text for text in self.model.texts):
                raise NotPushedError(self.model.text) from None
            raise

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


class Side(NamedTuple):
    """A side of a comparison, as an expression of an engine.

    Attributes
    ----------
    column : Expr
    kind : {"number", "text", "truth"}
    sure : bool
        Whether it is a number in every row that has its columns.
    """

    column: Any
    kind: str
    sure: bool = True


class EngineCondition(Condition):
    """A condition of rows as an expression of the engine of a lazy table.

    Missing values are what `Condition` makes of them, in engines that compare with them too.

    Examples
    --------
    >>> import polars as pl
    >>> scan = Scan.few(pl.LazyFrame({"x": [1.0, None, float("nan"), 3.0]}), ["x"])
    >>> scan.in_sample({"chosen": EngineCondition("x > 2", scan, {}).rows()}).ravel()
    array([0., 0., 0., 1.])
    """

    def __init__(self, text: str, scan: Scan, context: Mapping[str, Any]):
        super().__init__(text, scan.sample, context)
        self.scan = scan

    def _truth(self, node: ast.AST) -> tuple[Any, Any]:
        found, known = self._values(node)
        if not isinstance(found, Side) or found.kind != "truth":
            raise NotPushedError(self.text)
        return (found.column & known).fill_null(False), known

    def _compared(self, op: type, left: Any, right: Any, known: Any) -> Any:
        self._check_sign(op)
        some = op in (ast.In, ast.NotIn)
        each = list(right) if some and isinstance(right, list | tuple) else [right]
        kinds = {_kind_of(x) for x in (left, *each)}
        sides = [x for x in (left, *each) if isinstance(x, Side)]
        if not sides or kinds not in ({"number"}, {"text"}):
            raise NotPushedError(self.text)
        if "text" in kinds and op not in (ast.Eq, ast.NotEq, ast.In, ast.NotIn):
            raise NotPushedError(self.text)
        if some and (not isinstance(left, Side) or len(sides) > 1):
            raise NotPushedError(self.text)
        one, other = self._number_of(left), self._number_of(right)
        if some:
            if any(isinstance(x, float) for x in each):
                one, each = self.scan.as_number(one), [float(x) for x in each]
            found = one.is_in(each)
            found = found if op is ast.In else ~found
        else:
            found = ORDERS[op](one, other)
        for x in sides:
            if not x.sure:  # NaN is not equal to anything, nor less
                number = ~x.column.is_nan()
                found = found | ~number if op in (ast.NotEq, ast.NotIn) else found & number
        return (found & known).fill_null(False)

    def _number_of(self, side: Any) -> Any:
        if not isinstance(side, Side):
            return int(side) if isinstance(side, bool) else side
        return self.scan.as_number(side.column) if side.kind == "truth" else side.column

    def _values(self, node: ast.AST) -> tuple[Any, Any]:
        try:
            return ast.literal_eval(node), True
        except ValueError:
            pass
        text, used = self._used(node)
        if not used:
            return self._of_context(text), True
        known = reduce(operator.and_, (~self.scan.is_missing(name) for name in used))
        sides = {name: Side(*self.scan.compared(name)) for name in used}
        if isinstance(node, ast.Name):
            return sides[used[0]], known
        whole = all(isinstance(x, ARITHMETIC) for x in ast.walk(node))
        if not whole or any(each.kind == "text" for each in sides.values()):
            raise NotPushedError(text)
        return Side(_number(self.scan, text), "number", sure=False), known


def _kind_of(side: Any) -> str:
    """Kind of a side of a comparison: "number", which true and false are too, "text" or neither."""
    if isinstance(side, Side):
        return "text" if side.kind == "text" else "number"
    if isinstance(side, int | float):
        return "number"
    return "text" if isinstance(side, str) else "other"


def chosen_in_place(data: Any, subset: str, context: Mapping[str, Any]) -> Any:
    """Return the rows of a lazy table for which an expression is true, as a lazy table.

    Raises
    ------
    NotPushedError
        If the engine cannot tell.
    ValueError
        As of `chosen_rows`.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.LazyFrame({"x": [1.0, 2.0, None], "kind": ["a", "b", "b"]})
    >>> chosen_in_place(rows, "!(x > 1) | kind == 'b'", {}).collect().rows()
    [(1.0, 'a'), (2.0, 'b'), (None, 'b')]
    """
    used = named_in(data, [subset])
    if not used or not len((scan := Scan.few(data, used)).sample):
        raise NotPushedError(subset)
    expected = Condition(subset, scan.sample, context).rows()
    try:
        chosen = EngineCondition(subset, scan, context).rows()
        same = scan.in_sample({"chosen": chosen})[:, 0] == expected
    except (TypeError, AttributeError):
        raise NotPushedError(subset) from None
    if not same.all():
        raise NotPushedError(subset)
    return scan.filtered(chosen)


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
    if model.counts and rows.weighed is not None:  # of frequencies, numbers of equal rows
        raise NotPushedError(model.text)
    values = response_of(scan, response)
    learn_figures(scan, design)
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
    type : {"response", "rate", "link"}
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
            wants_rate(type, False, "gaussian", has_predictor=True)
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


def scan_of(
    data: Any,
    used: Sequence[str],
    texts: Sequence[str],
    na_action: str = "raise",
) -> Scan:
    """Return a lazy table of which a few rows are in memory, with all levels that terms have.

    Parameters
    ----------
    data : lazy table
    used : sequence of str
        Columns in use.
    texts : sequence of str
        Terms.
    na_action : {"raise", "drop", "exclude"}
        Treatment of rows that lack a value.

    Raises
    ------
    ValueError
        If no row is complete.
    NotPushedError
        If a factor has too many levels.
    """
    each = [factor for own in texts for _, factors in Terms.of(own).each for factor in factors]
    labels = [_column_of_levels(text) for _, text in each]
    columns = [plain_name(text) for kind, text in each if kind == "lookup"]
    return Scan.of(data, used, columns, [name for name in labels if name is not None], na_action)


def response_of(scan: Scan, response: Response) -> dict[str, Any]:
    """Return the response, trials and exposures as expressions of the engine.

    Raises
    ------
    NotPushedError
        If the engine cannot compute one.
    """
    model = response.model
    if response.kind == "events" and (name := column_name(model.response)) in scan.used:
        return {"response": scan.is_level(name, response.levels[1])}
    if response.kind != "numbers":
        raise NotPushedError(model.response)
    found = {"response": _value(scan, model.response, response)} | exposure_of(scan, response)
    if model.counts:
        other = _value(scan, model.failures or model.trials, response)
        found["trials"] = other if model.trials else found["response"] + other
        won, trials = found["response"], found["trials"]
        whole = (won >= 0) & (won <= trials) & (won == won.floor()) & (other == other.floor())
        found["wrong"] = scan.as_number(~whole)
    return found


def exposure_of(scan: Scan, response: Response) -> dict[str, Any]:
    """Return the exposure as an expression of the engine, if there is an offset."""
    return {"exposure": offset_of(scan, response).exp()} if response.model.offset else {}


def offset_of(scan: Scan, response: Response) -> Any:
    """Return the offset as an expression of the engine, 0 if there is none."""
    offset = response.model.offset
    return _value(scan, offset, response) if offset else 0.0


def _value(scan: Scan, text: str, response: Response) -> Any:
    if (name := column_name(text)) in scan.used:
        return scan.number(name)
    design, _ = Design.learn(evaluated(text), scan.sample, response.context)
    found = columns_of(scan, design)
    if len(found) != 1 or design.figures:  # those of a few rows
        raise NotPushedError(text)
    return found.popitem()[1]


def learn_figures(scan: Scan, design: Design) -> None:
    """Let the engine compute the means and spreads of ``scale(x)`` and ``center(x)``.

    Parameters
    ----------
    scan : Scan
    design : Design
        It has those of a few rows, in place of which it gets these.

    Raises
    ------
    NotPushedError
        If terms keep other figures, or a column has no spread.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.LazyFrame({"x": [1.0, 2.0, 6.0]})
    >>> design, _ = Design.learn("center(x)", pl.DataFrame({"x": [1.0, 2.0]}), {})
    >>> learn_figures(scan_of(rows, ["x"], ["center(x)"]), design)
    >>> design.of(pl.DataFrame({"x": [1.0]})).item()
    -2.0
    """
    texts = list(dict.fromkeys(text for text, _ in design.states))
    if not texts:
        return
    calls = {_unquoted(text): _centred(text) for text in texts}
    numbers = {f"ebfed_{j}": _number(scan, own) for j, own in enumerate(calls.values())}
    table = scan.select([], {"ebfed_all": scan.constant(0.0)} | numbers)
    try:
        found = statistics(table, ["ebfed_all"], list(numbers))
    except ValueError:  # of all rows in memory there is a better explanation
        raise NotPushedError(design.text) from None
    for text, state in design.states:
        j = texts.index(text)
        if state["center"] is not None:
            state["center"] = found.mean[0, j]
        if state["scale"] is not None:
            if not found.scatter[0, j] > 0 or found.n[0] <= state["ddof"]:
                raise NotPushedError(text)
            state["scale"] = np.sqrt(found.scatter[0, j] / (found.n[0] - state["ddof"]))


def _centred(text: str) -> str:
    """Return of what a call is the centre and spread.

    Raises
    ------
    NotPushedError
        If it is another call.

    Examples
    --------
    >>> _centred("scale(np.log(x), ddof=0)")
    'np.log(x)'
    """
    node = ast.parse(_unquoted(text), mode="eval").body
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        known = node.func.id in ("scale", "center")
        if known and all(each.arg == "ddof" for each in node.keywords):
            return ast.unparse(node.args[0])
    raise NotPushedError(text)


def _unquoted(text: str) -> str:
    """Return an expression as Python writes it; of quoted names engines know no figures."""
    if "`" in text:
        raise NotPushedError(text)
    try:
        return ast.unparse(ast.parse(text.strip(), mode="eval"))
    except SyntaxError:
        raise NotPushedError(text) from None


class Part(NamedTuple):
    """A column of a design, or of a factor of a term: a number times what levels say.

    Attributes
    ----------
    number : Expr or None
        None: 1.
    text : str
        What the number is of; different numbers have different texts.
    levels : mapping of str to mapping
        By column of levels, the weights of these; those of others are 0.
    """

    number: Any
    text: str = ""
    levels: Mapping[str, Mapping[Any, float]] = NOTHING

    def times(self, other: Part) -> Part:
        """Return the product of two."""
        levels = dict(self.levels)
        for name, own in other.levels.items():
            known = levels.get(name)
            levels[name] = own if known is None else {x: w * known[x] for x, w in own.items()}
        if self.number is None or other.number is None:
            one = other if self.number is None else self
            return Part(one.number, one.text, levels)
        return Part(self.number * other.number, f"{self.text}:{other.text}", levels)

    def expression(self, scan: Scan) -> Any:
        """Return the column as one expression."""
        found = self.number
        for name, own in self.levels.items():
            parts = [scan.is_level(name, x) * weight for x, weight in own.items() if weight]
            each = sum(parts[1:], start=parts[0]) if parts else scan.constant(0.0)
            found = each if found is None else found * each
        return scan.constant(1.0) if found is None else found


def columns_of(scan: Scan, design: Design) -> dict[str, Any]:
    """Return the columns of a design as expressions of an engine; see `parts_of`."""
    return {name: each.expression(scan) for name, each in parts_of(scan, design).items()}


def cells_of(scan: Scan, design: Design) -> tuple[dict[str, Any], dict[str, Any], Cells]:
    """Return the factors of a design and its numbers, as expressions, and its columns of these.

    Raises
    ------
    NotPushedError
        As of `parts_of`.
    """
    parts = parts_of(scan, design)
    factors = {name for each in parts.values() for name in each.levels}
    own = {name: f"ebfed_factor_{j}" for j, name in enumerate(sorted(factors))}
    texts = list(dict.fromkeys(each.text for each in parts.values() if each.number is not None))
    named = {text: f"ebfed_number_{j}" for j, text in enumerate(texts)}
    numbers = {named[x.text]: x.number for x in parts.values() if x.number is not None}
    columns = {
        name: (
            None if each.number is None else named[each.text],
            {own[x]: weights for x, weights in each.levels.items()},
        )
        for name, each in parts.items()
    }
    return {own[name]: scan.factor(name) for name in own}, numbers, columns


def parts_of(scan: Scan, design: Design) -> dict[str, Part]:
    """Return the columns of a design as numbers that an engine computes, and weights of levels.

    Parameters
    ----------
    scan : Scan
        Its rows in memory have all levels of factors.
    design : Design

    Returns
    -------
    dict of Part
        By name of the column.

    Raises
    ------
    NotPushedError
        If the engine cannot compute one.
    """
    if len(design.names) > COLUMNS or any(not _centred(text) for text in design.figures):
        raise NotPushedError(design.text)
    known: dict[str, dict[str, Part]] = {}
    found: dict[str, Part] = {}
    for term, names in design.columns_of_terms.items():
        for factor in term.factors:
            if (text := str(factor.expr)) not in known:
                known[text] = _columns_of_factor(scan, factor, design)
        for parts in itertools.product(*(known[str(each.expr)] for each in term.factors)):
            if (name := ":".join(parts)) in names:
                values = [known[str(f.expr)][p] for f, p in zip(term.factors, parts, strict=True)]
                found[name] = reduce(Part.times, values)
    if not set(design.names) <= set(found):
        raise NotPushedError(design.text)
    found = {name: found[name] for name in design.names}
    if found:
        _check(scan, found, design.of(scan.sample))
    return found


def _columns_of_factor(scan: Scan, factor: Any, design: Design) -> dict[str, Part]:
    """Return the columns of a factor, of levels for all ways to code them, by name."""
    import pandas as pd

    marked, kind = str(factor.expr), factor.eval_method.value
    text = plain_name(marked)
    if kind == "literal":
        if text != "1":
            raise NotPushedError(text)
        return {CONSTANT: Part(None)}
    written = f"`{text}`" if kind == "lookup" else marked
    if marked not in design.factors:
        states = {_unquoted(own): state for own, state in design.states}
        return {text: Part(_number(scan, written, states), text)}
    name = text if kind == "lookup" else _column_of_levels(marked)
    if name not in scan.used:
        raise NotPushedError(text)
    labels = design.factors[marked]
    levels = pd.DataFrame({name: pd.Categorical(labels, labels)})
    found = {}
    for constant in ("0", "1"):
        coded, columns = Design.learn(f"{constant} + {written}", levels, design.context)
        for each, weights in zip(coded.names, columns.T.tolist(), strict=True):
            found[each] = Part(None, levels={name: dict(zip(labels, weights, strict=True))})
    return found


def _check(scan: Scan, found: Mapping[str, Part], expected: NDArray) -> None:
    """Refuse expressions that are not in memory what formulaic makes of them."""
    try:
        values = scan.in_sample({name: each.expression(scan) for name, each in found.items()})
    except Exception:
        raise NotPushedError(", ".join(found)) from None
    if not np.allclose(values, expected, rtol=1e-12, atol=1e-300):
        raise NotPushedError(", ".join(found))


def _number(scan: Scan, text: str, states: Mapping[str, Mapping[str, Any]] = NOTHING) -> Any:
    """Return an expression of columns as one of the engine, a number; calls have states."""
    plain, names = in_words(text)

    def of(node: ast.AST) -> Any:
        if isinstance(node, ast.Name):
            return scan.value(plain_name(names.get(node.id, node.id)))
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return 0 - of(node.operand)  # older versions of narwhals have no minus sign
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            return BINARY[type(node.op)](of(node.left), of(node.right))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in BINARY:
            compared = BINARY[type(node.ops[0])](of(node.left), of(node.comparators[0]))
            return scan.as_number(compared)
        if isinstance(node, ast.Call) and (state := states.get(ast.unparse(node))) is not None:
            found = of(node.args[0])
            if state["center"] is not None:
                found = found - float(state["center"])
            return found if state["scale"] is None else found / float(state["scale"])
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            called = called.id if isinstance(called, ast.Name) else called
            if called in FUNCTIONS:
                return FUNCTIONS[called](of(node.args[0]))
        raise NotPushedError(text)

    try:
        found = of(ast.parse(plain.strip(), mode="eval").body)
    except (SyntaxError, TypeError, AttributeError):
        raise NotPushedError(text) from None
    return scan.constant(found) if isinstance(found, int | float) else found


def _column_of_levels(text: str) -> str | None:
    """Return the column of which ``C(…)`` or ``factor(…)`` has the levels."""
    found = re.match(r"(?:C|factor)\(\s*(?:`([^`]+)`|([^\W\d]\w*))\s*[,)]", text)
    return plain_name(found[1] or found[2]) if found else None
