"""Rows that count events."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, pdtr, xlogy

from ebfed.kernels.responses import LARGE, POISSON
from ebfed.likelihoods.counting import POISSON as SIZE
from ebfed.likelihoods.counting import log_peaks
from ebfed.regression.families.base import Base, LogLink, Responses, check_rows

__all__ = ["Poisson", "check_counts"]


# Largest count of which a search finds a maximum: slopes are differences of counts and means.
LARGEST = 1e11


class Poisson(LogLink):
    """Rows ``y ~ Poisson(e^z)``: ``l = y z - e^z - log y!``.

    Examples
    --------
    >>> rows = Responses(np.array([0.0, 3.0]), np.ones(2), np.zeros(2))
    >>> Poisson().base(rows, np.zeros(0))[0].round(3)
    array([-0.   , -1.792])
    """

    name: ClassVar[str] = "poisson"
    kind: ClassVar[int] = POISSON
    n_figures: ClassVar[int] = 2
    adds: ClassVar[bool] = True

    def check(self, y: NDArray, weight: NDArray) -> None:
        """Refuse what is no count, and counts of which floats have too few digits."""
        check_counts(y)
        check_rows(
            y > LARGEST,
            y,
            f"y must be counts up to {LARGEST:g} for family='poisson', of which the likelihood of "
            "larger ones leaves too few digits; family='negative_binomial' has no such limit",
        )

    def alone(self, rows: Responses) -> bool:
        """A count varies as a Poisson one, and more where rates differ."""
        return True

    def base(self, rows: Responses, shapes: NDArray) -> Base:
        """``-log y!``, of large counts the log-probability at a mean of y."""
        n, large, value = len(rows.y), rows.y > LARGE, -gammaln(rows.y + 1)
        value[large] = log_peaks(rows.y[large], np.array(SIZE))
        return rows.weight * value, np.zeros((n, 0)), np.zeros((n, 0))

    def bounds(self, X: NDArray, rows: Responses) -> NDArray[np.float64]:
        """Return bounds: from above of all rows, from below of those with events."""
        return np.concatenate([X[rows.y > 0], -X])

    def figures(self, rows: Responses) -> NDArray[np.float64]:
        """Events, and exposures."""
        return np.column_stack([rows.y, np.exp(rows.offset)]) * rows.weight[:, None]

    def begin(self, figures: NDArray) -> tuple[float, NDArray[np.float64]]:
        """Logarithm of the rate of all rows together."""
        if figures[0] == 0:
            raise ValueError(
                "y is 0 in every row: the likelihood has no maximum, as it rises while the rate "
                "falls. Add rows with events."
            )
        return float(np.log(figures[0] / figures[1])), np.zeros(0)

    def draw(
        self, z: NDArray, weight: NDArray, shapes: NDArray, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw a count of each row; means above 2**53, which floats do not count to, are that."""
        return rng.poisson(np.minimum(np.exp(z), 2.0**53)).astype(float)

    def below(self, y: NDArray, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """Probability of at most y events."""
        return np.where(y < 0, 0.0, pdtr(np.maximum(y, 0), np.exp(z)))

    def spread(self, z: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """``e^z``."""
        return np.exp(z)

    def deviance(self, y: NDArray, mean: NDArray, shapes: NDArray) -> NDArray[np.float64]:
        """``2 (y log(y / m) - y + m)``."""
        return 2 * np.maximum(xlogy(y, y) - xlogy(y, mean) - y + mean, 0)


def check_counts(y: NDArray) -> None:
    """Refuse what is no count."""
    wrong = (y < 0) | (y > 2**53) | (y != np.floor(y))
    check_rows(wrong, y, "y must be counts: whole numbers from 0 to 2**53")
