"""Texts that are the same for the same arguments, in any process, and differ for others.

The text of an object as it prints is not enough: functions print their names, and a module of
PyTorch prints its layers without their numbers. Two things are left out: functions of other modules
that a function calls, and the numbers of tensors that require gradients. These are, as a rule,
drawn anew in every process, and a fit that continues has its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
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
        held = [cell.cell_contents for cell in value.__closure__ or ()]
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


def _called(function: FunctionType) -> list[Any]:
    """Return the functions of the same module that a function names."""
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    return [
        each
        for each in named
        if isinstance(each, FunctionType) and each.__module__ == function.__module__
    ]
