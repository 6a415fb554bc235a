"""Randomness where privacy is real: OpenDP's floating-point-safe samplers.

Each function draws one number, but for `add_gaussian` and `add_integer_gaussian`. Arguments must be
finite and clipped.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "add_gaussian",
    "add_integer_gaussian",
    "answer",
    "check",
    "choose",
    "gaussian",
    "integer_gaussian",
    "laplace",
    "noise",
]

# What rounding may have added to a probability of the truth is taken off: by an epsilon of 37, 1.
DOWN = 1 - 2**-49


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


def noise(state: Any, *more: int) -> Any:
    """Return what a server's noise is drawn from: "secure", or a generator for a simulation.

    Parameters
    ----------
    state : dict
        State of the server, with its key.
    *more : int
        What names the numbers besides the key.

    """
    return "secure" if state.get("secure", False) else np.random.default_rng([*state["key"], *more])


def check(state: Any) -> None:
    """Raise ImportError, before clients are asked, if a server's noise needs OpenDP."""
    if state.get("secure", False):
        _opendp()


def add_gaussian(values: NDArray, scale: ArrayLike, rng: Any) -> NDArray[np.float64]:
    """Add Gaussian noise to an array.

    Parameters
    ----------
    values : ndarray
    scale : float, or array of the shape of `values`
        Standard deviation; 0 for none.
    rng : Generator or "secure"
        Generator for a simulation; ``"secure"`` draws from the operating system.
    """
    if not isinstance(rng, str):
        return values + scale * rng.standard_normal(values.shape)
    scales, noisy = np.broadcast_to(scale, values.shape), np.array(values, float)
    for sd in np.unique(scales[scales > 0]).tolist():
        noisy[scales == sd] = _vector_noise(sd)(noisy[scales == sd].tolist())
    return noisy


def add_integer_gaussian(values: NDArray[np.int64], scale: float, rng: Any) -> NDArray[np.int64]:
    """Add discrete Gaussian noise to integers, independent of each other.

    Parameters
    ----------
    values : int64 ndarray of shape (size,)
    scale : float
        Parameter of the noise, nearly its standard deviation; 0 for none.
    rng : Generator or "secure"
        Generator for a simulation; ``"secure"`` draws from the operating system.

    References
    ----------
    Canonne, Kamath and Steinke (2020), Algorithm 3.

    Examples
    --------
    >>> noisy = add_integer_gaussian(np.zeros(1000, np.int64), 5.0, np.random.default_rng(0))
    >>> noisy.dtype, float(noisy.std())
    (dtype('int64'), 5.03...)
    """
    if scale == 0:
        return values
    if isinstance(rng, str):
        drawn = _integer_vector_noise(float(scale))([0] * len(values))
        return values + np.array(drawn, np.int64)
    noise, missing = np.zeros(len(values), np.int64), np.arange(len(values))
    width = math.floor(scale) + 1
    while missing.size:  # about two of three draws are kept
        # the difference of two geometric numbers is discrete Laplace
        shares = rng.geometric(-math.expm1(-1 / width), (2, missing.size))
        noise[missing] = shares[0] - shares[1]
        away = (np.abs(noise[missing]) - scale * (scale / width)) / scale
        missing = missing[rng.random(missing.size) >= np.exp(-0.5 * away**2)]
    return values + noise


def answer(bit: bool, epsilon: float) -> bool:
    """Answer with the truth, with odds ``e**epsilon`` (randomised response)."""
    return bool(_answer(1 / (1 + math.exp(-epsilon)))(bool(bit)))


@lru_cache
def _answer(truth: float) -> Any:
    return _opendp().m.make_randomized_response_bool(prob=truth * DOWN)


def choose(value: int, count: int, truth: float) -> int:
    """Answer with the truth with that probability, otherwise with any other of `count` values."""
    return int(_choose(count, truth)(int(value)))


@lru_cache
def _choose(count: int, truth: float) -> Any:
    return _opendp().m.make_randomized_response(list(range(count)), prob=truth * DOWN)


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
def _vector_noise(scale: float) -> Any:
    dp = _opendp()  # a third of the time that numbers one by one take
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)


@lru_cache
def _integer_vector_noise(scale: float) -> Any:
    dp = _opendp()
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    return dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=scale)


@lru_cache
def _noise(kind: str, number: type, scale: float) -> Any:
    dp = _opendp()
    domain = dp.atom_domain(T=float, nan=False) if number is float else dp.atom_domain(T=int)
    make = dp.m.make_gaussian if kind == "gaussian" else dp.m.make_laplace
    return make(domain, dp.absolute_distance(T=number), scale=scale)
