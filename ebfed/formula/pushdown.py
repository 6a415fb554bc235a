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
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ebfed.designs.design import CONSTANT, Design
from ebfed.designs.grammar import column_name, plain_name
from ebfed.designs.terms import Terms, evaluated
from ebfed.formula.response import Response
from ebfed.tables.columns import Columns
from ebfed.tables.scans import in_memory

__all__ = ["NotPushedError", "Scan"]

# Rows in memory; most levels of a factor, and columns of terms, that an engine is asked for.
SAMPLE, LEVELS, COLUMNS = 500, 100, 50
# What stands for a quoted name, which may not be one of Python.
QUOTED = "quoted_column_"
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


class NotPushedError(Exception):
    """An expression that only rows in memory can have."""


@dataclass(frozen=True)
class Scan:
    """Rows of a lazy table, as a formula reads them.

    Attributes
    ----------
    whole, table : lazy tables of narwhals
        All rows, and those to fit: the complete ones, if others are to be left out.
    used : list of str
        Columns that the formula uses.
    sample : Columns
        A few complete rows in memory, with all levels of factors.
    missing : dict of Expr
        Whether a row lacks a value, by column.
    """

    whole: Any
    table: Any
    used: list[str]
    sample: Columns
    missing: dict[str, Any]

    @classmethod
    def of(cls, data: Any, used: list[str], texts: Sequence[str], drop: bool = False) -> Self:
        """Read a few rows of a table.

        Parameters
        ----------
        data : lazy table
        used : list of str
            Columns in use.
        texts : sequence of str
            Terms, of which some are factors.
        drop : bool
            Whether rows that lack a value are left out.

        Raises
        ------
        ValueError
            If no row is complete.
        NotPushedError
            If a factor has too many levels.
        """
        import narwhals as nw

        table = nw.from_native(data)
        schema = table.collect_schema()
        missing = {name: _is_missing(name, schema[name]) for name in used}
        complete = table.filter(~nw.any_horizontal(*missing.values(), ignore_nulls=True))
        complete = complete.select(*used)
        head = nw.from_native(in_memory(complete.head(SAMPLE)), eager_only=True)
        if not len(head):
            raise ValueError("there is no row without missing values.")
        factors = [*_factors(texts), *(x for x in _columns(texts) if not _is_number(schema.get(x)))]
        levels = {}
        for name in {*factors} & {*schema}:
            found = in_memory(complete.select(name).unique().head(LEVELS + 1))
            levels[name] = nw.from_native(found, eager_only=True)[name]
            if len(levels[name]) > LEVELS:
                raise NotPushedError(name)
        size = max(len(head), *map(len, levels.values())) if levels else len(head)
        rows = np.arange(size)
        sample = {
            name: levels.get(name, head[name])[(rows % len(levels.get(name, head))).tolist()]
            for name in used
        }
        native = nw.from_dict(sample, backend=head.implementation).to_native()
        return cls(table, complete if drop else table, used, Columns.of(native), missing)

    def lacking(self) -> ValueError | None:
        """Return the error of the first column that lacks values, if one does."""
        import narwhals as nw

        counts = [each.cast(nw.Int64).sum().alias(name) for name, each in self.missing.items()]
        found = nw.from_native(in_memory(self.whole.select(*counts)), eager_only=True)
        for name in self.missing:
            if count := int(found[name][0] or 0):
                return ValueError(
                    f"column {name!r} has {count} missing values; drop those rows, for example "
                    "with na_action='drop'."
                )
        return None

    def dropped(self) -> int:
        """Return how many rows are left out."""
        import narwhals as nw

        counts = [in_memory(each.select(n=nw.len()))["n"] for each in (self.whole, self.table)]
        return int(counts[0][0]) - int(counts[1][0])

    def columns(self, design: Design) -> dict[str, Any]:
        """Return the columns of a design as expressions of the engine, by name.

        Raises
        ------
        NotPushedError
            If the engine cannot compute one.
        """
        return expressions(design, self.sample, self.table.collect_schema())

    def response(self, response: Response) -> dict[str, Any]:
        """Return the response, trials and exposures as expressions of the engine.

        Raises
        ------
        NotPushedError
            If the engine cannot compute one.
        """
        import narwhals as nw

        model, context = response.model, response.context
        if response.kind == "events" and (name := column_name(model.response)) in self.used:
            event = nw.col(name) == response.levels[1]
            return {"response": event.cast(nw.Float64)}
        if response.kind != "numbers":
            raise NotPushedError(model.response)
        found = {"response": self._number(model.response, context)} | self.exposure(response)
        if model.counts:
            other = self._number(model.failures or model.trials, context)
            found["trials"] = other if model.trials else found["response"] + other
            won, trials = found["response"], found["trials"]
            whole = (won >= 0) & (won <= trials) & (won == won.floor()) & (other == other.floor())
            found["wrong"] = (~whole).cast(nw.Float64)
        return found

    def exposure(self, response: Response) -> dict[str, Any]:
        """Return the exposure as an expression of the engine, if there is an offset."""
        offset = response.model.offset
        return {"exposure": self._number(offset, response.context).exp()} if offset else {}

    def _number(self, text: str, context: Mapping[str, Any]) -> Any:
        import narwhals as nw

        schema = self.table.collect_schema()
        if (name := column_name(text)) in schema:
            if not _is_number(schema[name]):
                raise NotPushedError(text)
            return nw.col(name).cast(nw.Float64)
        design, values = Design.learn(evaluated(text), self.sample, context)
        if design.figures or values.shape[1] != 1:
            raise NotPushedError(text)
        found = _number(text, schema)
        _check(self.sample, {"value": found}, values)
        return found


def expressions(design: Design, sample: Columns, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a design as expressions of an engine.

    Parameters
    ----------
    design : Design
    sample : Columns
        Rows in memory that have all levels of factors.
    schema : mapping of str to data type
        Columns of the table.

    Returns
    -------
    dict of Expr
        By name of the column.

    Raises
    ------
    NotPushedError
        If the engine cannot compute one.
    """
    import narwhals as nw

    if design.counts_constant:
        return {name: nw.lit(1.0) for name in design.names}
    if design.figures or len(design.names) > COLUMNS:
        raise NotPushedError(design.text)
    known: dict[str, dict[str, Any]] = {}
    found: dict[str, Any] = {}
    for term, names in design.columns_of_terms.items():
        for factor in term.factors:
            if (text := str(factor.expr)) not in known:
                known[text] = _columns_of_factor(factor, design, schema)
        for parts in itertools.product(*(known[str(each.expr)] for each in term.factors)):
            if (name := ":".join(parts)) in names:
                values = [known[str(f.expr)][p] for f, p in zip(term.factors, parts, strict=True)]
                found[name] = values[0]
                for each in values[1:]:
                    found[name] = found[name] * each
    found.pop(CONSTANT, None)
    if set(found) != set(design.names):
        raise NotPushedError(design.text)
    found = {name: found[name] for name in design.names}
    _check(sample, found, design.of(sample))
    return found


def _columns_of_factor(factor: Any, design: Design, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a factor, of levels for all ways to code them, by name."""
    import narwhals as nw
    import pandas as pd

    text = plain_name(str(factor.expr))
    kind = factor.eval_method.value
    if kind == "literal":
        if text != "1":
            raise NotPushedError(text)
        return {CONSTANT: nw.lit(1.0)}
    if str(factor.expr) not in design.factors:
        number = f"`{text}`" if kind == "lookup" else str(factor.expr)
        return {text: _number(number, schema)}
    name = text if kind == "lookup" else _column_of_levels(str(factor.expr))
    if name is None or name not in schema:
        raise NotPushedError(text)
    column = nw.col(name)
    if schema[name] in (nw.Categorical, nw.Enum):
        column = column.cast(nw.String)
    elif schema[name] not in (nw.String, nw.Boolean) and not schema[name].is_integer():
        raise NotPushedError(text)
    written = f"`{text}`" if kind == "lookup" else str(factor.expr)
    labels = design.factors[str(factor.expr)]
    levels = pd.DataFrame({name: pd.Categorical(labels, labels)})
    found = {}
    for constant in ("0", "1"):
        coded, columns = Design.learn(f"{constant} + {written}", levels, design.context)
        for j, each in enumerate(coded.names):
            pairs = zip(labels, columns[:, j].tolist(), strict=True)
            parts = [
                (column == label).cast(nw.Float64) * (1.0 if weight == 1.0 else weight)
                for label, weight in pairs
                if weight
            ]
            found[each] = sum(parts[1:], start=parts[0])
    return found


def _check(sample: Columns, found: Mapping[str, Any], expected: NDArray) -> None:
    """Refuse expressions that are not in memory what formulaic makes of them."""
    import narwhals as nw

    try:
        table = sample.table.select(nw.lit(0.0).alias(""), *(x.alias(n) for n, x in found.items()))
        values = table.drop("").to_numpy().astype(float)
    except Exception:
        raise NotPushedError(", ".join(found)) from None
    values = np.broadcast_to(values, expected.shape)
    if not np.allclose(values, expected, rtol=1e-12, atol=1e-300):
        raise NotPushedError(", ".join(found))


def _number(text: str, schema: Mapping[str, Any]) -> Any:
    """Return an expression of columns as one of the engine, a number."""
    import narwhals as nw

    quoted = re.findall("`([^`]*)`", text)
    numbers = iter(range(len(quoted)))
    plain = re.sub("`[^`]*`", lambda _: f"{QUOTED}{next(numbers)}", text)
    names = {f"{QUOTED}{j}": plain_name(name) for j, name in enumerate(quoted)}

    def of(node: ast.AST) -> Any:
        if isinstance(node, ast.Name):
            name = names.get(node.id, plain_name(node.id))
            if name not in schema:
                raise NotPushedError(name)
            column = nw.col(name)
            return column.cast(nw.Float64) if _is_number(schema[name]) else column
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -of(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            return BINARY[type(node.op)](of(node.left), of(node.right))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in BINARY:
            compared = BINARY[type(node.ops[0])](of(node.left), of(node.comparators[0]))
            return compared.cast(nw.Float64)
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
    return found if isinstance(found, nw.Expr) else nw.lit(float(found))


def _is_number(kind: Any) -> bool:
    import narwhals as nw

    return kind is not None and (kind.is_numeric() or kind == nw.Boolean)


def _is_missing(name: str, kind: Any) -> Any:
    import narwhals as nw

    column = nw.col(name)
    return column.is_null() | column.is_nan() if kind.is_float() else column.is_null()


def _column_of_levels(text: str) -> str | None:
    """Return the column of which ``C(…)`` has the levels."""
    found = re.match(r"C\(\s*(?:`([^`]+)`|([^\W\d]\w*))\s*[,)]", text)
    return plain_name(found[1] or found[2]) if found else None


def _factors(texts: Sequence[str]) -> list[str]:
    """Columns whose levels terms have as ``C(…)``."""
    each = (text for own in texts for _, factors in Terms.of(own).each for _, text in factors)
    return [name for text in each if (name := _column_of_levels(text)) is not None]


def _columns(texts: Sequence[str]) -> list[str]:
    """Columns that are terms, or factors of them, themselves."""
    each = (factor for own in texts for _, factors in Terms.of(own).each for factor in factors)
    return [plain_name(text) for kind, text in each if kind == "lookup"]
