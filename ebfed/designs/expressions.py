"""Expressions that a formula may contain: arithmetic, comparisons, and calls of known functions.

Formulaic evaluates expressions as Python, which could do anything. A formula may be anybody's, by a
command line or a request, so all else is refused before anything is evaluated.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ebfed.designs.limits import check_text, shortened

__all__ = [
    "check_names",
    "functions_of",
    "in_words",
    "is_comparison",
    "multiplied",
    "names_of",
]

# What stands for a quoted name, which may not be one of Python.
QUOTED = "quoted_column"
ALLOWED = (
    *(ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Constant, ast.Load),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop),
    *(ast.cmpop, ast.Tuple, ast.List),
)
# Functions of NumPy that treat each row alike, beside its ufuncs.
ROWWISE = {"clip", "nan_to_num", "round", "where"}
BUILTINS = {"abs"}


def in_words(text: str) -> tuple[str, dict[str, str]]:
    """Write words for names in backticks; returns what each stands for.

    Examples
    --------
    >>> in_words("log(`a b`) + x")
    ('log(quoted_column0) + x', {'quoted_column0': 'a b'})
    """
    names = {f"{QUOTED}{j}": name for j, name in enumerate(re.findall("`([^`]*)`", text))}
    words = iter(names)
    return re.sub("`[^`]*`", lambda _: next(words), text), names


def names_of(text: str) -> set[str]:
    """Return names in an expression; refuse what formulas may not contain.

    Raises
    ------
    ValueError
        If there is anything but arithmetic, comparisons, lists and calls, such as an attribute, a
        subscript or a power of constants.

    Examples
    --------
    >>> sorted(names_of("np.log(x + 1) * `number of rows`"))
    ['np', 'number of rows', 'x']
    >>> names_of("x.__class__")
    Traceback (most recent call last):
    ValueError: 'x.__class__': attributes cannot be used in formulas; a function must have a name.
    """
    check_text(text)
    plain, names = in_words(text)
    try:
        tree = ast.parse(plain, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{shortened(text, 200)!r} cannot be read.") from None
    for node in ast.walk(tree):
        if reason := _reason(node):
            raise ValueError(f"{text!r}: {reason}.")
    return {names.get(node.id, node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)}


def functions_of(text: str) -> set[str]:
    """Return names of functions that an expression calls, and of modules that have them.

    Examples
    --------
    >>> sorted(functions_of("np.log(center(x)) + log"))
    ['center', 'np']
    """
    try:
        tree = ast.parse(in_words(text)[0], mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    owners = [
        node.func if isinstance(node, ast.Call) else node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.Attribute)
    ]
    return {node.id for node in owners if isinstance(node, ast.Name)}


def multiplied(text: str) -> set[str]:
    """Return names of what an expression multiplies, or divides with a remainder.

    Of text that is no arithmetic: Python repeats it, or fills it in.

    Examples
    --------
    >>> sorted(multiplied("I(kind * 3) + x + (sex == 'f') * age"))
    ['age', 'kind']
    """
    plain, names = in_words(text)
    found: set[str] = set()
    for node in ast.walk(ast.parse(plain, mode="eval")):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Mod):
            parts: list[ast.AST] = [node.left, node.right]
            while parts:  # what is compared is true or false
                part = parts.pop()
                found |= {part.id} if isinstance(part, ast.Name) else set()
                parts += [] if isinstance(part, ast.Compare) else ast.iter_child_nodes(part)
    return {names.get(name, name) for name in found}


def is_comparison(text: str) -> bool:
    """Whether an expression compares values; naming an argument, as ``df=4``, does not.

    Examples
    --------
    >>> is_comparison("I(day > '2020-05-01')"), is_comparison("poly(day, degree=2)")
    (True, False)
    """
    return any(isinstance(node, ast.Compare) for node in ast.walk(ast.parse(in_words(text)[0])))


def check_names(names: set[str], context: Mapping[str, Any]) -> None:
    """Refuse Python's own functions, and another ``np`` than NumPy.

    Parameters
    ----------
    names : set of str
        Names in expressions that are not columns of the data.
    context : mapping
        What the caller passes.
    """
    for name in sorted(names - set(context) - BUILTINS):
        if name.startswith("__") or (hasattr(builtins, name) and name not in _transforms()):
            raise ValueError(
                f"{name!r} is not a column of data, and cannot be used in formulas. These may use "
                "columns, formulaic's transformations, NumPy's functions of single numbers, and "
                "what is passed by context=."
            )
    meanings = {"np": np, "numpy": np, "contr": _transforms()["contr"]}
    for name in sorted(names & set(context) & set(meanings)):
        if context[name] is not meanings[name]:
            raise ValueError(f"{name!r} has another meaning in formulas; rename it in context.")


def _reason(node: ast.AST) -> str:
    """Why an element may not be in a formula; empty if it may."""
    if not isinstance(node, ALLOWED):
        return f"{type(node).__name__} cannot be used in formulas"
    if isinstance(node, ast.Attribute) and not _is_known(node):
        return "attributes cannot be used in formulas; a function must have a name"
    if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name | ast.Attribute):
        return "only a function with a name can be called"
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.BitXor):
            return "a power is written **, as in I(x**2)"
        sides = node.left, node.right
        if any(isinstance(side, ast.List | ast.Tuple) or _is_text(side) for side in sides):
            return "arithmetic is for numbers"
        if isinstance(node.op, ast.LShift | ast.RShift | ast.MatMult):
            return "arithmetic is + - * / // % **"
        called = {id(part.func) for part in ast.walk(node.left) if isinstance(part, ast.Call)}
        names = (part for part in ast.walk(node.left) if isinstance(part, ast.Name))
        of_column = any(id(name) not in called for name in names)
        if isinstance(node.op, ast.Pow) and not of_column:  # I(9)**9**9 would never end
            return "a power must be of a column"
    return ""


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _is_known(node: ast.Attribute) -> bool:
    """Whether an attribute is a row-wise function or a constant of NumPy, or a contrast."""
    if not isinstance(node.value, ast.Name):
        return False
    if node.value.id == "contr":
        return not node.attr.startswith("_") and hasattr(_transforms()["contr"], node.attr)
    if node.value.id not in ("np", "numpy"):
        return False
    value = getattr(np, node.attr, None)
    return isinstance(value, np.ufunc | float) or node.attr in ROWWISE


def _transforms() -> Mapping[str, Any]:
    from formulaic.transforms import TRANSFORMS

    return TRANSFORMS
