"""Limits of formulas: what one may ask of a machine, known before it is computed.

A formula is a short text that may stand for more terms than can ever be listed, or for more columns
than a machine has memory for. Numbers of terms are counted from the operators, numbers of columns
from the factors, and arguments such as ``df=`` are checked where a function is called.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Any

import numpy as np

from ebfed.blocks import memory
from ebfed.designs.words import MAKE_FACTORS, words

__all__ = [
    "check_cells",
    "check_labels",
    "check_terms",
    "check_text",
    "known_functions",
    "materialized",
    "shortened",
]

# No formula that a person or a program has reason to write is near one of these.
CHARACTERS, DEPTH, TERMS, EXPANDED, FACTORS, COLUMNS = 50_000, 100, 2_000, 200_000, 7, 10_000
# Columns of labels, and of levels.
LABELS = 100
# Arguments of transformations that say how many columns there are, and the most of each.
SIZES = {"df": 1_000, "degree": 1_000, "levels": COLUMNS}


def check_text(text: str, what: str = "a formula") -> None:
    """Refuse a text that is too long to be read, or has too deep brackets or an empty name.

    Examples
    --------
    >>> check_text("(" * 101 + "x" + ")" * 101)
    Traceback (most recent call last):
    ValueError: a formula has brackets in 100 brackets at most; got 101.
    """
    if len(text) > CHARACTERS:
        raise ValueError(f"{what} has at most {CHARACTERS:,} characters; got {len(text):,}.")
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > DEPTH:
        raise ValueError(f"{what} has brackets in {DEPTH} brackets at most; got {deepest}.")
    if "``" in text:
        raise ValueError(
            f"{what} has an empty name, '``', or one with a backtick in it; rename such a column."
        )


def check_labels(text: str) -> None:
    """Refuse more columns of labels than groups can have levels.

    Examples
    --------
    >>> check_labels("/".join(f"g{i}" for i in range(101)))
    Traceback (most recent call last):
    ValueError: a formula has at most 100 columns of labels; got 101.
    """
    if (count := len(re.findall("[/:]", text)) + 1) > LABELS:
        raise ValueError(f"a formula has at most {LABELS} columns of labels; got {count}.")


def check_terms(text: str) -> None:
    """Refuse a text that stands for too many terms, before they are listed.

    Equal terms count as often as they are made: ``(a + b)**3`` makes 8.

    Examples
    --------
    >>> check_terms("(" + " + ".join(f"x{i}" for i in range(39)) + ")**3")
    Traceback (most recent call last):
    ValueError: a formula has at most 2,000 terms; '(x0 + ... has 9,920.
    """
    from formulaic.parser import DefaultFormulaParser

    tree = DefaultFormulaParser().get_ast(text)
    counts: dict[int, int] = {}
    todo = [tree]
    while todo:  # not by recursion: the tree of a sum is as deep as the sum is long
        node = todo[-1]
        parts = list(getattr(node, "args", ()))
        if waiting := [part for part in parts if id(part) not in counts]:
            todo += waiting
            continue
        counts[id(todo.pop())] = _count(node, [counts[id(part)] for part in parts], text)
    if counts[id(tree)] > TERMS:
        raise ValueError(
            f"a formula has at most {TERMS:,} terms; {shortened(text)!r} has {counts[id(tree)]:,}."
        )


def _count(node: Any, counts: list[int], text: str) -> int:
    """Return how many terms an operator makes of those of its arguments, at most."""
    if not hasattr(node, "operator"):
        return 1
    sign, made = node.operator.symbol, 0
    if sign == "**":
        power = str(node.args[1])
        if not power.isdecimal():  # formulaic says so
            return 1
        times = int(power) if len(power) < 10 else 10**9
        made = _power(max(counts[0], 2), times)
        if made <= EXPANDED:
            return min(made, sum(math.comb(counts[0], i) for i in range(1, times + 1)))
    elif sign in (":", "*") and len(counts) == 2:
        made = counts[0] * counts[1]
    if made > EXPANDED:
        raise ValueError(
            f"a formula makes at most {EXPANDED:,} products of terms; {shortened(text)!r} makes "
            f"{f'{made:,}' if made < 10**15 else 'more than 1e15'}."
        )
    return made + (0 if sign == ":" else sum(counts))


def _power(count: int, times: int) -> int:
    """Return how many products a power of so many terms makes; 10**15 for more."""
    return 10**15 if times * math.log10(count) >= 15 else count**times


def shortened(text: str, most: int = 60) -> str:
    """Return the beginning of a long text.

    Examples
    --------
    >>> shortened("a + b + c", 5)
    'a + b…'
    """
    return text if len(text) <= most else f"{text[:most].rstrip()}…"


def check_cells(n_rows: int, n_columns: float, what: str, most: int = COLUMNS) -> None:
    """Refuse a number of columns that no model has, or that the machine has no memory for.

    Examples
    --------
    >>> check_cells(10, 5e7, "bs(x, df=5e7)")
    Traceback (most recent call last):
    ValueError: a formula has at most 10,000 columns; bs(x, df=5e7) has 50,000,000.
    """
    if not n_columns <= most:
        shown = f"{n_columns:,.0f}" if n_columns < 1e15 else f"{n_columns:.3g}"
        whole = "a formula" if most == COLUMNS else "a function"
        raise ValueError(f"{whole} has at most {most:,} columns; {what} has {shown}.")
    if (needed := 8 * n_rows * n_columns) > memory():
        raise ValueError(
            f"{what} needs {needed / 2**30:,.0f} GiB; this machine has {memory() / 2**30:,.0f} GiB."
        )


@lru_cache
def known_functions() -> Mapping[str, Any]:
    """Return what formulas know besides NumPy: formulaic's transformations, and words of R."""
    from formulaic.transforms import TRANSFORMS

    return TRANSFORMS | words()


@lru_cache
def _bounded_functions() -> Mapping[str, Callable[..., Any]]:
    """Return words of R, and transformations of which arguments say how many columns there are."""
    return words() | {
        name: _bounded(name, function)
        for name, function in known_functions().items()
        if inspect.isfunction(function)
        and SIZES.keys() & set(inspect.signature(function).parameters)
        if name not in MAKE_FACTORS  # whose levels are a list
    }


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        own = {key: x for key, x in kwargs.items() if key in signature.parameters}
        given: dict[str, Any] = signature.bind_partial(*args, **own).arguments
        for size, most in SIZES.items():
            value: float | None = given.get(size)
            if isinstance(value, int | float | np.number):
                what = f"{name}(…, {size}={value:g})"
                check_cells(np.size(args[0]), abs(value), what, most)
        return function(*args, **kwargs)

    return bounded


def materialized(spec: Any, data: Any, context: Mapping[str, Any]) -> Any:
    """Make the columns of terms, as `get_model_matrix` of formulaic, if they are not too many."""
    return _materializer()(data, {**_bounded_functions(), **context}).get_model_matrix(
        spec, na_action="raise"
    )


@lru_cache
def _materializer() -> type:
    import pandas as pd
    from formulaic.materializers import PandasMaterializer
    from interface_meta import override

    class Bounded(PandasMaterializer):
        @override
        def _build_model_matrix(self, spec: Any, drop_rows: Any) -> Any:
            total, self._made = 0, 0
            for term in spec.formula:
                if (count := len(term.factors)) > FACTORS:
                    raise ValueError(
                        f"a term has at most {FACTORS} factors; {shortened(str(term))!r} has "
                        f"{count}."
                    )
                total += math.prod(self._width(factor.expr) for factor in term.factors)
                check_cells(self.nrows, total, shortened(str(term)))
            return super()._build_model_matrix(spec, drop_rows)

        def _width(self, factor: str) -> int:
            """Return how many columns a factor has, or at least has."""
            found = self.factor_cache[factor]
            values = getattr(found.values, "__wrapped__", found.values)
            if found.metadata.kind.value == "categorical":
                # two at least, as terms of two factors are compared with those of each one
                return max(pd.Series(np.asarray(values).ravel()).nunique(), 2)
            if isinstance(values, dict):
                return sum(not str(name).startswith("__") for name in values)
            return values.shape[1] if np.ndim(values) == 2 else 1

        @override
        def _get_columns_for_term(self, factors: Any, spec: Any, scale: float = 1) -> Any:
            self._made += math.prod(map(len, factors))
            names = ":".join(next(iter(factor), "") for factor in factors)
            check_cells(self.nrows, self._made, shortened(names))
            return super()._get_columns_for_term(factors, spec, scale)

        @override
        def _combine_columns(self, cols: Any, spec: Any, drop_rows: Any) -> Any:
            columns = [np.asarray(values) for _, values in cols]
            return np.column_stack(columns) if columns else np.empty((self.nrows, 0))

    return Bounded
