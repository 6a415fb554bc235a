"""Linear predictors of the rows of a lazy table, and averages over them, as expressions."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ebfed.kernels.logistic import MOST, SMALLEST
from ebfed.tables.scans import Beside, where

__all__ = ["LazyPredictors"]

# Reach and step of the trapezoidal rule, in standard deviations, or in units of a wider logit:
# engines are slow to read long expressions.
REACH, STEP = 8.0, 0.6


class LazyPredictors:
    """Linear predictors of rows, normal with a centre and a variance that an engine computes.

    Parameters
    ----------
    rows : Beside
    centre, variance : Expr

    Examples
    --------
    >>> import narwhals as nw, polars as pl
    >>> table = pl.LazyFrame({"g": ["a"], "m": [1.0], "v": [0.5]})
    >>> rows = Beside.of(table, "g", np.array(["a"]), np.zeros((1, 1)), [0.0])
    >>> predictors = LazyPredictors(rows, nw.col("m"), nw.col("v"))
    >>> predictors.fitted({"p": predictors.logistic()}).collect()["p"].round(9).to_list()
    [0.711573168]
    """

    def __init__(self, rows: Beside, centre: Any, variance: Any):
        self._rows, (self.centre, self.variance) = rows.computed(
            {"centre": centre, "variance": variance}
        )

    @cached_property
    def _widest(self) -> float:
        """Largest standard deviation of a row: this reads the rows."""
        return float(np.sqrt(self._rows.largest(self.variance)))

    def logistic(self, threshold: float = 0.0) -> Any:
        """Return the average of ``1 / (1 + e^(t - z))``, a column.

        By the trapezoidal rule around the mode, like `kernels.log_logistic_normal`, with as many
        nodes as the row of the largest variance needs: errors are below 1e-12.
        """
        count = min(int(np.ceil(REACH / STEP * max(1.0, self._widest))), MOST)
        step, number = REACH / count, f"{threshold}_"
        deviation = self.variance.sqrt()
        deviation = where(deviation > SMALLEST, deviation, SMALLEST)
        m, s = self._computed(number, mean=self.centre - threshold, deviation=deviation)
        # near the mode, which is between m and m + v, within 0.6 deviations of zero if that is
        below = where(m + s * s < 0, m + s * s, 0.0)
        (mode,) = self._computed(number, mode=where(m > 0, m, below))
        away, odds, wide = self._computed(
            number, away=(mode - m) / s, odds=0.0 - mode, wide=s * step
        )
        terms = [
            (-0.5 * node * node - away * node - away * away * 0.5).exp()
            / (1.0 + (odds - wide * k).exp())
            for k, node in ((k, k * step) for k in range(-count, count + 1))
        ]
        (found,) = self._computed(number, logistic=_sum(terms))
        return found * (step / np.sqrt(2 * np.pi))

    def _computed(self, prefix: str, **columns: Any) -> list[Any]:
        named = {f"{prefix}{name}".replace(".", "_"): each for name, each in columns.items()}
        self._rows, found = self._rows.computed(named)
        return found

    def fitted(self, new: Any) -> Any:
        """Return the table with new columns; see `Beside.fitted`."""
        return self._rows.fitted(new)


def _sum(terms: list[Any]) -> Any:
    """Add up expressions in pairs: chains of many are too deep for engines."""
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [one + other for one, other in pairs] + terms[len(terms) // 2 * 2 :]
    return terms[0]
