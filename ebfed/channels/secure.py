"""Randomness for clients whose privacy is real: OpenDP's floating-point-safe samplers.

Each function draws one number. Arguments must be finite and clipped.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

__all__ = ["answer", "choose", "gaussian", "integer_gaussian", "laplace"]


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError:
        raise ImportError(
            'rng="secure" draws through OpenDP, which is not installed: '
            'pip install "ebfed[secure]".'
        ) from None
    dp.enable_features("contrib")
    return dp


def answer(bit: bool, epsilon: float) -> bool:
    """Answer with the truth, with odds ``e**epsilon`` (randomised response)."""
    return bool(_answer(1 / (1 + math.exp(-epsilon)))(bool(bit)))


@lru_cache
def _answer(truth: float) -> Any:
    return _opendp().m.make_randomized_response_bool(prob=truth)


def choose(value: int, count: int, truth: float) -> int:
    """Answer with the truth with that probability, otherwise with any other of `count` values."""
    return int(_choose(count, truth)(int(value)))


@lru_cache
def _choose(count: int, truth: float) -> Any:
    return _opendp().m.make_randomized_response(list(range(count)), prob=truth)


def gaussian(value: float, scale: float) -> float:
    """Add Gaussian noise."""
    return float(_noise("gaussian", float, scale)(float(value)))


def laplace(value: float, scale: float) -> float:
    """Add Laplace noise."""
    return float(_noise("laplace", float, scale)(float(value)))


def integer_gaussian(value: int, scale: float) -> int:
    """Add discrete Gaussian noise."""
    return int(_noise("gaussian", int, scale)(int(value)))


@lru_cache
def _noise(kind: str, number: type, scale: float) -> Any:
    dp = _opendp()
    domain = dp.atom_domain(T=float, nan=False) if number is float else dp.atom_domain(T=int)
    make = dp.m.make_gaussian if kind == "gaussian" else dp.m.make_laplace
    return make(domain, dp.absolute_distance(T=number), scale=scale)
