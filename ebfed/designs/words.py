"""Functions that R users know by these names, beside formulaic's and those of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MAKE_FACTORS", "natural_spline", "words"]

# What makes a factor.
MAKE_FACTORS = ("C", "factor")


@lru_cache
def words() -> dict[str, Callable[..., Any]]:
    """Return the functions by their names; what the caller or a column calls so goes before.

    Examples
    --------
    >>> sorted(words())
    ['ceiling', 'expm1', 'factor', 'floor', 'log1p', 'ns', 'sqrt']
    """
    from formulaic.transforms import TRANSFORMS
    from formulaic.utils.stateful_transforms import stateful_transform

    @stateful_transform
    def ns(
        x: Any, df: int | None = None, knots: Any = None, _state: dict[str, Any] | None = None
    ) -> dict[str, NDArray]:
        x, state = np.asarray(x, float).reshape(-1), {} if _state is None else _state
        if "knots" not in state:
            state["knots"] = _knots(x, df, knots)
        columns = natural_spline(x, state["knots"]).T
        return {str(j): column for j, column in enumerate(columns, start=1)}

    of_numpy = {name: getattr(np, name) for name in ("sqrt", "log1p", "expm1", "floor")}
    return of_numpy | {"ceiling": np.ceil, "factor": TRANSFORMS["C"], "ns": ns}


def _knots(x: NDArray, df: int | None, knots: Sequence[float] | None) -> list[float]:
    """Knots within at quantiles, as R's ``ns`` has them, and the ends of the range."""
    if (df is None) == (knots is None):
        raise ValueError("ns(x, …) needs either df or knots")
    if knots is None:
        if not isinstance(df, int | np.integer) or df < 1:
            raise ValueError(f"ns(x, df) needs a whole number of at least 1 as df; got {df!r}")
        knots = np.quantile(x, np.linspace(0, 1, df + 1)[1:-1]).tolist()
    found = sorted({float(x.min()), *map(float, knots), float(x.max())})
    if len(found) < 2:
        raise ValueError("ns(x, …) needs values of x that differ")
    return found


def natural_spline(x: ArrayLike, knots: Sequence[float]) -> NDArray[np.float64]:
    r"""Return cubic splines that are linear beyond the first and the last knot, shape (n, K - 1).

    With K knots and x between 0 and 1 from the first to the last, they are x and

    .. math:: d_k(x) - d_{K-1}(x), \quad d_k(x) =
              \frac{(x - \xi_k)_+^3 - (x - \xi_K)_+^3}{\xi_K - \xi_k}, \quad k = 1, \dots, K - 2.

    Beside a constant they span what ``ns(x, knots=…)`` of R does.

    Parameters
    ----------
    x : array-like of shape (n,)
    knots : sequence of K numbers
        Increasing, those at the ends too.

    References
    ----------
    Hastie, Tibshirani, Friedman (2009), The Elements of Statistical Learning, eq. (5.4), (5.5).

    Examples
    --------
    >>> natural_spline([0.0, 1.0, 2.0, 3.0, 4.0], [0, 1, 3])[:, 1].round(3)
    array([0.   , 0.037, 0.241, 0.556, 0.889])
    """
    scale = knots[-1] - knots[0]
    x, at = (np.asarray(x, float) - knots[0]) / scale, (np.array(knots) - knots[0]) / scale
    cubes = np.maximum(x[:, None] - at, 0.0) ** 3
    d = (cubes[:, :-1] - cubes[:, -1:]) / (at[-1] - at[:-1])
    return np.column_stack([x, d[:, :-1] - d[:, -1:]])
