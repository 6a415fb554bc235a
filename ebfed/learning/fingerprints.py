"""Texts that are the same for the same arguments, in any process, and differ for others.

The text of an object as it prints is not enough: functions print their names, and a module of
PyTorch prints its layers without their numbers.

Of what a function calls by a global name, functions of its own package are compared, and what these
call; of an installed package, those of its own module. Not compared are functions of other
packages, or of other files beside a script; what is reached through a module or a class, as in
``parts.error(x)``; and other global objects, such as numbers. The numbers of tensors that require
gradients are left out too: they are, as a rule, drawn anew in every process, and a fit that
continues has its own.
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

__all__ = ["fingerprint"]


def fingerprint(value: Any) -> str:
    """Return a text by which a value differs from others.

    Parameters
    ----------
    value : object
        Numbers, texts, arrays, tensors, functions, objects with attributes, and collections.

    Examples
    --------
    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 1)
    True
    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
    False
    """
    return hashlib.sha256(_text(value, {}).encode()).hexdigest()


def _text(value: Any, seen: dict[int, tuple[int, Any]]) -> str:
    """Return the whole text; what was `seen`, by where it lies, has its number."""
    if value is None or isinstance(value, str | bytes | int | float | complex):
        return repr(value)
    if not isinstance(value, tuple | CodeType):  # these may be one object in some processes only
        if id(value) in seen:
            return f"object {seen[id(value)][0]}"
        seen[id(value)] = len(seen), value

    def each(values: Any) -> str:
        return ", ".join(_text(one, seen) for one in values)

    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind != "O":
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"{value.dtype} {value.shape} {content}"
    if isinstance(value, type | ModuleType):
        return repr(value)
    if hasattr(value, "detach") and hasattr(value, "requires_grad"):
        numbers = "trained" if value.requires_grad else _text(_numbers(value), seen)
        return f"{value.dtype} {tuple(value.shape)} {numbers}"
    if isinstance(value, Mapping):
        return f"{type(value).__name__}({each(value.items())})"
    if isinstance(value, Set):
        return f"{type(value).__name__}({sorted(map(fingerprint, value))})"
    if isinstance(value, list | tuple | np.ndarray):
        return f"{type(value).__name__}({each(value)})"
    if isinstance(value, CodeType):
        return f"{value.co_code.hex()} {value.co_names} ({each(value.co_consts)})"
    if isinstance(value, FunctionType):
        held = [_content(cell) for cell in value.__closure__ or ()]
        parts = value.__code__, value.__defaults__, value.__kwdefaults__, held, _called(value)
        return f"{value.__qualname__}({each(parts)})"
    if isinstance(value, MethodType):
        return f"method({each((value.__func__, value.__self__))})"
    if isinstance(value, partial):
        return f"partial({each((value.func, value.args, value.keywords))})"
    state = _text(_state_of(value), seen)
    return f"{type(value).__module__}.{type(value).__qualname__}({state})"


def _state_of(value: Any) -> Any:
    """Return what makes up an object, without what it may have found out since it was made."""
    if isinstance(value, BaseEstimator):
        return value.get_params(deep=False)
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if hasattr(value, "__dict__"):
        return vars(value)
    try:  # as it would be pickled
        return value.__reduce_ex__(4)
    except TypeError:
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _numbers(tensor: Any) -> Any:
    """Return the numbers of a tensor as an array, in 64 bits where NumPy lacks its precision."""
    plain = tensor.detach().cpu()
    try:
        return plain.numpy()
    except TypeError:
        return plain.double().numpy()


def _content(cell: CellType) -> Any:
    """Return what a cell of a closure holds; its type, if the variable has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return CellType


def _called(function: FunctionType) -> list[Any]:
    """Return the functions of the same package that a function, or one inside it, names."""
    names = dict.fromkeys(name for code in _codes(function.__code__) for name in code.co_names)
    named = (function.__globals__.get(name) for name in names)
    return [each for each in named if isinstance(each, FunctionType) and _is_near(each, function)]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code, and that of functions and comprehensions inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _is_near(other: FunctionType, function: FunctionType) -> bool:
    """Whether another function is of the same module, or of a package that is not installed."""
    one, two = (str(each.__module__) for each in (other, function))
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    own = not other.__code__.co_filename.startswith(tuple(installed))
    return one == two or (own and one.partition(".")[0] == two.partition(".")[0])
