"""Objects with arguments, as of scikit-learn, which are read once for each class."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from functools import cache
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

__all__ = ["WithArguments", "check_choice", "check_level", "check_single"]


class WithArguments(BaseEstimator):
    """An object whose arguments are attributes of the same names.

    scikit-learn reads the signature of a class anew for each clone, and to print it; that would
    take a fifth of a small fit.

    Examples
    --------
    >>> class Scaled(WithArguments):
    ...     def __init__(self, scale=1.0):
    ...         self.scale = scale
    >>> Scaled(2.0), WithArguments()
    (Scaled(scale=2.0), WithArguments())
    """

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return _names(cls)  # type: ignore[arg-type]

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        if not self._get_param_names():
            return f"{type(self).__name__}()"
        return super().__repr__(N_CHAR_MAX)


def check_single(estimator: Any) -> None:
    """Refuse values of arguments that are of another kind than the default.

    Arguments that have arguments are looked into.

    Where the default is True or False, these are the only values. Where it is a number or text, a
    value may be a number, text, None, or an object with arguments of its own, but no array.

    Parameters
    ----------
    estimator : object
        Its arguments are attributes of the same names, as in scikit-learn.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> from ebfed.models import Softmax
    >>> check_single(Softmax(fit_intercept=7))
    Traceback (most recent call last):
    ...
    ValueError: fit_intercept must be True or False; got 7.
    """
    kind: Any = type(estimator)
    for name, argument in _arguments(kind):
        value, default = getattr(estimator, name, None), argument.default
        if value is default and isinstance(default, bool | int | float | str):
            continue
        for part in value.values() if isinstance(value, dict) else [value]:
            if hasattr(part, "get_params") and not isinstance(part, type):
                check_single(part)
        if isinstance(default, bool):
            if not isinstance(value, bool | np.bool_):
                raise ValueError(f"{name} must be True or False; got {value!r}.")
        elif isinstance(default, int | float | str) and "Array" not in str(argument.annotation):
            known = value is None or hasattr(value, "get_params") or isinstance(value, str | Real)
            known = known and not isinstance(value, np.timedelta64)  # a whole number, to NumPy
            words = isinstance(default, str) or "Literal" in str(argument.annotation)
            if not known or (isinstance(value, str) and not words):
                what = "text or a number" if isinstance(default, str) else "a number"
                raise ValueError(f"{name} must be {what}, such as {default!r}; got {value!r}.")


def check_choice(name: str, value: Any, known: Collection[str]) -> None:
    """Raise a ValueError if an argument is not one of the words that it may be.

    Examples
    --------
    >>> check_choice("method", "rem", ("reml", "ml"))
    Traceback (most recent call last):
    ValueError: method must be one of 'reml', 'ml'; got 'rem'.
    """
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}.")


def check_level(level: Any) -> None:
    """Refuse what is no level of an interval."""
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < float(level) < 1:
        raise ValueError(f"a level must lie between 0 and 1; got {level!r}.")


@cache
def _names(cls: Any) -> list[str]:
    return BaseEstimator._get_param_names.__func__(cls)


@cache
def _arguments(kind: type) -> list[tuple[str, inspect.Parameter]]:
    """Return the arguments of a class, and what is known of them."""
    return list(inspect.signature(kind).parameters.items())
