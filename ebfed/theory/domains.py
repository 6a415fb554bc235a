"""Domains of the arguments of formulas."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec

import numpy as np
from numpy.typing import NDArray

__all__ = ["checked"]

_P = ParamSpec("_P")
_POSITIVE = ("positive and finite", lambda x: (x > 0) & np.isfinite(x))
_NONNEGATIVE = ("nonnegative and finite", lambda x: (x >= 0) & np.isfinite(x))
_DOMAINS: dict[str, tuple[str, Callable[[NDArray], NDArray]]] = {
    **dict.fromkeys(("noise_variance", "half_width", "alpha", "beta"), _POSITIVE),
    **dict.fromkeys(("population_variance", "channel_variance", "radius"), _NONNEGATIVE),
    **dict.fromkeys(("n_private", "n_open", "ratio"), _NONNEGATIVE),
    "private": ("True or False", lambda x: (x == 0) | (x == 1)),
    "penalty": ("nonnegative", lambda x: x >= 0),
    **dict.fromkeys(("n", "d", "participants", "bits"), ("at least 1", lambda x: x >= 1)),
    "m": ("at least 2", lambda x: x >= 2),
    "epsilon": ("positive", lambda x: x > 0),
    **dict.fromkeys(("weight", "x"), ("finite", np.isfinite)),
}


def checked(formula: Callable[_P, NDArray]) -> Callable[_P, NDArray]:
    """Turn arguments of a formula into arrays of floats, and check their domains (NaN fails)."""
    signature = inspect.signature(formula)

    @functools.wraps(formula)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> NDArray:
        bound = signature.bind(*args, **kwargs)
        given = {k: v for k, v in bound.arguments.items() if k in _DOMAINS and v is not None}
        for name, value in given.items():
            given[name] = np.asarray(value, dtype=float)
            words, holds = _DOMAINS[name]
            if not np.all(holds(given[name])):
                raise ValueError(f"{name} must be {words}; got {value!r}.")
        if "x" in given and np.any(np.abs(given["x"]) > given["half_width"]):
            raise ValueError("x must lie in [-half_width, half_width]; clip it first.")
        bound.arguments.update(given)
        return formula(*bound.args, **bound.kwargs)

    return call
