"""Scaling vectors down to a norm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["project", "shorten"]


def shorten(change: NDArray, limit: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scale vectors down to a norm; what is not finite becomes zero.

    Parameters
    ----------
    change : ndarray of shape (c, size)
    limit : float

    Returns
    -------
    shortened : ndarray of shape (c, size)
    norm : ndarray of shape (c,)
        Before; infinite where it was not finite.

    Examples
    --------
    >>> shorten(np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 0.0]]), 1.0)
    (array([[0.6, 0.8],
           [0.3, 0.4],
           [0. , 0. ]]), array([5. , 0.5, inf]))
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norm = np.sqrt(np.einsum("ij,ij->i", change, change))
        norm = np.where(np.isfinite(norm), norm, np.inf)
        short = change * np.minimum(1.0, limit / np.maximum(norm, max(limit, 1e-300)))[:, None]
    return np.where(np.isfinite(norm)[:, None], short, 0.0), norm


def project(vectors: NDArray, radius: float | None) -> NDArray[np.float64]:
    """Project vectors, shape (m, size), to a ball.

    Examples
    --------
    >>> project(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    return vectors if radius is None else shorten(vectors, radius)[0]
