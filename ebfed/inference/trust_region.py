"""Newton's method within a region where its quadratic is trusted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["climb", "uncertainty"]

# Curvatures of less than this share of what they are the sum of are rounding; and eigenvalues of
# less than this share of the largest.
FLAT, ROUNDING = 1e-11, 1e-15
# Share of the radius by which a step may be too long, and steps in which it is sought.
PRECISE, MOST_STEPS = 1e-10, 100


def climb(slope: NDArray, curvature: NDArray, radius: float) -> tuple[NDArray, float]:
    """Find the step of length `radius` or less that climbs a quadratic most.

    With ``I = -curvature`` it is ``(I + u)^-1 slope``, with the smallest u from 0 for which that is
    positive definite and the step short enough (Moré and Sorensen, 1983). Where nothing slopes but
    the quadratic bends up, it goes along that bend.

    Parameters
    ----------
    slope : ndarray of shape (d,)
    curvature : ndarray of shape (d, d)
    radius : float

    Returns
    -------
    step : ndarray of shape (d,)
    gain : float
        What the quadratic climbs.

    Examples
    --------
    >>> climb(np.array([3.0, 0.0]), np.diag([-1.0, 1.0]), 5.0)[0].round(6).tolist()
    [1.5, 4.769696]
    """
    values, vectors = np.linalg.eigh(-curvature)
    along = vectors.T @ slope
    size = (np.abs(vectors.T) @ np.sqrt(np.abs(np.diag(curvature)))) ** 2
    rounding = np.maximum(FLAT * size, ROUNDING * np.abs(values).max(initial=1e-296))
    flat = np.abs(values) <= rounding
    along = np.where(flat & (np.abs(along) <= np.sqrt(rounding)), 0.0, along)
    values = np.where(flat, 0.0, values)

    least = max(0.0, -values.min(initial=0.0))
    above = values + least  # zero in the lowest direction, with no digits lost

    def step(more: float) -> NDArray:
        total = above + more
        return np.where(total > 0, along / np.where(total > 0, total, 1.0), 0.0)

    stuck = (above <= 0) & (along != 0)
    if stuck.any() or np.linalg.norm(step(0.0)) > radius:
        # the length falls in what is added, and Newton's method for its inverse never goes too far
        more = 1e-12 * float(np.linalg.norm(along)) / radius
        for _ in range(MOST_STEPS):
            move = step(more)
            length = float(np.linalg.norm(move))
            if length <= (1 + PRECISE) * radius:
                break
            more += (length / radius - 1) * length**2 / float((move**2 / (above + more)).sum())
    else:
        move = step(0.0)
        if least > 0:
            move[0] += np.sqrt(max(radius**2 - move @ move, 0.0))
    return vectors @ move, float(along @ move - 0.5 * values @ move**2)


def uncertainty(curvature: NDArray) -> NDArray:
    """Invert minus the second derivatives in the directions that bend down; zero in the others."""
    size = np.sqrt(np.abs(np.diag(curvature)))
    size = np.where(size > 1e-140, size, 1.0)
    values, vectors = np.linalg.eigh(-curvature / np.outer(size, size))
    known = values > 1e-9
    return (vectors[:, known] / values[known]) @ vectors[:, known].T / np.outer(size, size)
