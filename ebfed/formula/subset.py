"""The rows of a frame that a model is fitted to: an expression of its columns.

Signs are those of R and of pandas' `query`: ``&``, ``|``, ``!`` and ``~`` bind less than
comparisons, as ``and``, ``or`` and ``not`` do. A comparison with a missing value is neither true
nor false, as in R, and a row for which the expression is not true is left out.
"""

from __future__ import annotations

import ast
import io
import operator
import re
import tokenize
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.designs.design import values_of
from ebfed.designs.expressions import names_of
from ebfed.designs.limits import check_text, shortened
from ebfed.tables.alignment import aligned
from ebfed.tables.columns import Columns

__all__ = ["chosen_rows"]

# What stands for a quoted name, which may not be one of Python.
QUOTED = "quoted_column_"
WORDS = {"&": "and", "|": "or", "~": "not", "!": "not"}
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda x, some: np.isin(x, some),
    ast.NotIn: lambda x, some: ~np.isin(x, some),
}


def chosen_rows(
    data: Any, subset: str | ArrayLike, context: Mapping[str, Any] | None = None
) -> NDArray[np.bool_]:
    """Return which rows of a frame are chosen.

    Parameters
    ----------
    data : data frame
    subset : str, or array-like of bool of shape (n_rows,)
        Expression of columns, or whether each row is chosen.
    context : mapping, optional
        Names that are not columns.

    Raises
    ------
    ValueError
        If the expression cannot be read, has what formulas may not contain, or is not true or false
        of each row; or no row is chosen.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"x": [1.0, 2.0, None, 4.0], "kind": list("abab")})
    >>> chosen_rows(rows, "x > 1 & kind != 'a'")
    array([False,  True, False,  True])
    >>> chosen_rows(rows, "!(x > 1) | kind in ['b']")
    array([ True,  True, False,  True])
    """
    data = Columns.of(data)
    if isinstance(subset, str):
        chosen = _Expression(subset, data, context or {}).rows()
    else:
        chosen = np.asarray(aligned({"data": data.native, "subset": subset})["subset"])
        if chosen.dtype != bool or chosen.shape != (len(data),):
            raise ValueError(
                f"subset must be an expression, or true or false for each of {len(data)} rows; got "
                f"{chosen.dtype} of shape {chosen.shape}."
            )
    if not chosen.any():
        raise ValueError(
            f"subset={subset!r} chooses no row."
            if isinstance(subset, str)
            else "subset chooses no row."
        )
    return chosen


class _Expression:
    """An expression of the columns of a frame, of which each part is known or not in each row."""

    def __init__(self, text: str, data: Columns, context: Mapping[str, Any]):
        check_text(text, "subset=")
        self.text, self.data, self.context = text, data, context
        self.quoted = re.findall("`([^`]*)`", text)
        numbers = iter(range(len(self.quoted)))
        self.plain = re.sub("`[^`]*`", lambda _: f"{QUOTED}{next(numbers)}", text)
        self.names = data.names

    def rows(self) -> NDArray[np.bool_]:
        """Rows of which it is true."""
        try:
            tokens = tokenize.generate_tokens(io.StringIO(self.plain.strip()).readline)
            words = " ".join(WORDS.get(each.string, each.string) for each in tokens)
            tree = ast.parse(words.strip(), mode="eval").body
            plain = ast.unparse(tree)
        except (SyntaxError, ValueError, tokenize.TokenError, RecursionError, MemoryError):
            raise ValueError(f"subset={shortened(self.text, 200)!r} cannot be read.") from None
        names_of(plain)
        return self._true(tree)[0]

    def _true(self, node: ast.AST) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Rows of which a part is true, and of which it is true or false."""
        if isinstance(node, ast.BoolOp):
            both = isinstance(node.op, ast.And)
            true, known = self._true(node.values[0])
            for each in node.values[1:]:
                also, sure = self._true(each)
                decided = (known & ~true) | (sure & ~also) if both else true | also
                true = true & also if both else true | also
                known = (known & sure) | decided
            return true, known
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            true, known = self._true(node.operand)
            return known & ~true, known
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            values = [self._values(each) for each in parts]
            known = np.logical_and.reduce([sure for _, sure in values])
            true = known.copy()
            for j, op in enumerate(node.ops):
                true &= self._compared(type(op), values[j][0], values[j + 1][0], known)
            return true, known
        found, known = self._values(node)
        if not isinstance(found, np.ndarray) or found.dtype != bool:
            raise ValueError(
                f"subset={self.text!r} must be true or false of each row, as a comparison is."
            )
        return found & known, known

    def _compared(self, op: type, left: Any, right: Any, known: NDArray) -> NDArray[np.bool_]:
        """Compare in the rows in which both sides are known."""
        if op not in COMPARISONS:
            raise ValueError(f"subset={self.text!r}: compare by ==, !=, <, <=, >, >=, in, not in.")
        out = np.zeros(len(known), bool)
        sides = [x[known] if isinstance(x, np.ndarray) else x for x in (left, right)]
        try:
            out[known] = COMPARISONS[op](*sides)
        except TypeError as error:
            raise ValueError(f"subset={self.text!r}: {error}.") from None
        return out

    def _values(self, node: ast.AST) -> tuple[Any, NDArray[np.bool_]]:
        """Values of a part, one number or one for each row, and where they are known."""
        n = len(self.data)
        try:
            return ast.literal_eval(node), np.ones(n, bool)
        except ValueError:
            pass
        text = ast.unparse(node)
        for j, name in enumerate(self.quoted):
            text = text.replace(f"{QUOTED}{j}", f"`{name}`")
        used = [name for name in self.names if name in names_of(text)]
        if not used:
            return self._of_context(text), np.ones(n, bool)
        known = np.logical_and.reduce([self.data.known(name) for name in used])
        if isinstance(node, ast.Name) and not known.any():
            return np.zeros(n), known
        found, _ = values_of(text, self.data.take(known, used), self.context)
        out = np.zeros(n, found.dtype)
        out[known] = found
        return out, known

    def _of_context(self, text: str) -> Any:
        """Return a number, text or list that is no column."""
        value = self.context.get(text)
        if not isinstance(value, int | float | str | list | tuple | np.generic):
            shown = ", ".join(map(repr, self.names))
            raise ValueError(
                f"subset={self.text!r}: {text!r} is not a column of data, which has {shown}."
            )
        return value
