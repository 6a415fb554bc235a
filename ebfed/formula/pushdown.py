"""Formulas of tables larger than memory: the engine of the table computes the columns of terms.

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
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebfed.designs.design import CONSTANT, Design
from ebfed.designs.expressions import in_words
from ebfed.designs.grammar import column_name, plain_name
from ebfed.designs.terms import Terms, evaluated
from ebfed.formula.response import Response
from ebfed.tables.lazy import Cells
from ebfed.tables.of_rows import NOTHING
from ebfed.tables.scans import NotPushedError, Scan

__all__ = ["cells_of", "columns_of", "exposure_of", "offset_of", "response_of", "scan_of"]

# Most columns of terms that an engine is asked for.
COLUMNS = 50
BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
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
    if len(found) != 1:
        raise NotPushedError(text)
    return found.popitem()[1]


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
    if design.figures or len(design.names) > COLUMNS:
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
        return {text: Part(_number(scan, written), text)}
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


def _number(scan: Scan, text: str) -> Any:
    """Return an expression of columns as one of the engine, a number."""
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
