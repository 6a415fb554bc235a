"""Objects with arguments, as of scikit-learn, which are read once for each class."""

from __future__ import annotations

from functools import cache
from typing import Any

from sklearn.base import BaseEstimator

__all__ = ["WithArguments"]


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


@cache
def _names(cls: Any) -> list[str]:
    return BaseEstimator._get_param_names.__func__(cls)
