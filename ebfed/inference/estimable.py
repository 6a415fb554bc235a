"""Which combinations of coefficients the rows of a fit identify.

Where columns of X are collinear, ``X n = 0`` for some n: coefficients may move along n, and no row
shows it. ``c' beta`` is estimable if c lies in the row space of X, that is if
``c' n = 0`` for all such n (Searle 1971, Linear models, section 5.4). Predictions, margins,
contrasts and tests of others have no value.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ebfed.priors.identification import IdentificationWarning

__all__ = ["Estimable", "collinear_note", "null_of"]

# Share of the sum of its terms below which ``c' n`` is rounding.
ROUNDING = 1e-7
# Entry of n, as a share of the largest, that is rounding.
SMALL = 1e-8
# The same of the constant, against the products of the others with their centres. Rows of the fit
# that are small in the others would be off the plane without a constant that is not rounding.
SMALL_CONSTANT = 1e-10


@dataclass(frozen=True)
class Estimable:
    """Combinations of coefficients that rows identify.

    Attributes
    ----------
    null : ndarray of shape (p, k)
        Coefficients whose combination of columns is zero in all rows of the fit.
    terms : sequence of p str
        Names of the coefficients.

    Examples
    --------
    >>> known = Estimable(np.array([[1.0], [2.0], [-1.0]]), ["intercept", "x", "2 x + 1"])
    >>> known.of(np.array([[1.0, 1.0, 3.0], [1.0, 1.0, 30.0]]))
    array([ True, False])
    >>> known.columns
    ['intercept', 'x', '2 x + 1']
    """

    null: NDArray
    terms: Sequence[str]

    def of(self, contrasts: NDArray) -> NDArray[np.bool_]:
        """Whether each of these combinations is estimable, shape (n,)."""
        if not self.null.shape[1]:
            return np.ones(len(contrasts), bool)
        whole = np.abs(contrasts) @ np.abs(self.null)
        return (np.abs(contrasts @ self.null) <= ROUNDING * whole).all(axis=1)

    @cached_property
    def coefficients(self) -> NDArray[np.bool_]:
        """Whether each coefficient by itself is estimable, shape (p,)."""
        return self.of(np.eye(len(self.null)))

    @property
    def columns(self) -> list[str]:
        """Names of columns that others imply, or that are zero, in the rows of the fit."""
        return [
            term for term, known in zip(self.terms, self.coefficients, strict=True) if not known
        ]

    def masked(self, rows: NDArray, what: str) -> NDArray:
        """Return combinations, NaN where they are not estimable, with a warning.

        Parameters
        ----------
        rows : ndarray of shape (n, p)
        what : str
            What they are, for the warning.
        """
        known = self.of(rows)
        if known.all():
            return rows
        warnings.warn(
            f"{int((~known).sum())} of {len(known)} {what} are not identified, and NaN: the "
            f"columns {listed(self.columns)} were collinear in the fit, and are not as there.",
            IdentificationWarning,
            stacklevel=4,
        )
        return np.where(known[:, None], rows, np.nan)

    def part_of(self, contrasts: NDArray) -> NDArray:
        """Return combinations of these contrasts that are estimable, as many as there are."""
        if self.of(contrasts).all():
            return contrasts
        along = contrasts @ (self.null / np.linalg.norm(self.null, axis=0))
        axes, sizes, _ = np.linalg.svd(along)
        rank = int((sizes > ROUNDING * np.abs(contrasts).max(initial=0.0)).sum())
        return axes[:, rank:].T @ contrasts


def null_of(vectors: NDArray, units: NDArray, centre: NDArray) -> NDArray[np.float64]:
    """Return combinations of columns that are zero, from those of centred columns in their units.

    Parameters
    ----------
    vectors : ndarray of shape (p, k)
        Of columns less `centre`, divided by `units`.
    units, centre : ndarray of shape (p,)
        The first column is that of ones where any centre is not zero.
    """
    largest = np.abs(vectors).max(axis=0, initial=0.0)
    null = np.where(np.abs(vectors) > SMALL * largest, vectors, 0.0) / units[:, None]
    whole = np.abs(null[0]) + np.abs(centre) @ np.abs(null)
    null[0] -= centre @ null
    null[0] = np.where(np.abs(null[0]) > SMALL_CONSTANT * whole, null[0], 0.0)
    return null


def listed(names: Sequence[str], most: int = 8) -> str:
    """Name columns, the first of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def collinear_note(known: Estimable) -> str:
    """Say which columns are collinear."""
    p, k = known.null.shape
    return (
        f"Columns of X are collinear ({listed(known.columns)}): of {p} mean coefficients only "
        f"{p - k} combinations are identified. Those of these columns, and predictions, margins "
        "and tests that need them, are NaN."
    )
