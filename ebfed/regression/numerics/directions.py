"""Directions in which the coefficients of a logistic regression matter alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.estimable import null_of

__all__ = ["find_directions"]


def find_directions(
    within: NDArray, centres: NDArray, share: NDArray, intercept: bool
) -> tuple[NDArray, NDArray]:
    """Find the directions in which coefficients matter, and matter alike.

    Parameters
    ----------
    within : ndarray of shape (p, p)
        Average of products of rows about their clients' mean.
    centres : ndarray of shape (n, p)
        These means.
    share : ndarray of shape (n,)
        Share of the rows of each client.
    intercept : bool
        Whether the first column is all ones.

    Returns
    -------
    ways : ndarray of shape (p, rank)
        ``X ways`` has unit mean square and no correlation.
    null : ndarray of shape (p, p - rank)
        Combinations of columns that are zero in all rows.
    """
    p = len(within)
    if not p:
        return np.zeros((0, 0)), np.zeros((0, 0))
    centre = share @ centres if intercept else np.zeros(p)
    if intercept:
        centre[0] = 0.0
    away = centres - centre
    products = within + (share[:, None] * away).T @ away
    size = np.sqrt(np.diag(products))
    size = np.where(size > 1e-13 * np.abs(centre), size, 0.0)  # of what is constant, rounding
    scale = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(
        products / np.outer(scale, scale) * np.outer(size > 0, size > 0)
    )
    known = values > 1e-11 * max(values[-1], 1e-300)
    ways = vectors[:, known] / np.sqrt(values[known])
    if known.all():  # the root that depends on no order of columns
        ways = ways @ vectors.T
    ways = ways / scale[:, None]
    if intercept:  # of centred columns, to that of columns as they are
        ways[0] -= centre @ ways
    return ways, null_of(vectors[:, ~known], scale, centre)
