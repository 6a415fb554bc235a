"""Values of a parameter near enough to each other for likelihoods of very unequal precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["between_scales"]

# Ratio of the widths of two classes, distance of values in units of the smallest width of a class,
# and how many there are on each side of a centre.
RATIO, STEP, REACH = np.sqrt(2.0), 0.6, 6


def between_scales(nodes: NDArray, centres: NDArray, widths: NDArray) -> NDArray:
    """Values that a grid lacks for a sum of bells of these centres and widths to show its peaks.

    Beyond its points of inflection a bell is convex, so that a peak of the sum is within one width
    of some centre. Each centre has values about half a width apart, up to three widths away, but
    for those near which there is a node, or a value for a narrower bell.

    Parameters
    ----------
    nodes : increasing ndarray of shape (k,)
        Values outside of their range are left out.
    centres, widths : ndarray of shape (n,)
        Widths positive.

    Returns
    -------
    increasing ndarray

    Examples
    --------
    >>> between_scales(np.linspace(-5, 5, 11), np.array([0.0, 1.0]), np.array([2.0, 0.1])).round(2)
    array([0.64, 0.7 , 0.76, 0.82, 0.88, 0.94, 1.06, 1.12, 1.18, 1.24, 1.3 , 1.36])
    """
    low, high, smallest = nodes[0], nodes[-1], widths.min(initial=np.inf)
    classes = np.floor(np.log(widths / smallest) / np.log(RATIO) + 1e-9).astype(np.int64)
    offsets, points = np.arange(-REACH, REACH + 1), nodes
    for each in np.unique(classes):
        step = STEP * smallest * RATIO**each
        own = centres[classes == each]
        cells = np.rint((own - own.min()) / step)
        found = own.min() + np.unique(cells[:, None] + offsets) * step
        found = found[(found > low) & (found < high)]
        place = np.searchsorted(points, found)
        before, after = points[np.maximum(place - 1, 0)], points[np.minimum(place, len(points) - 1)]
        apart = np.minimum(np.abs(found - before), np.abs(after - found)) > step / 2
        points = np.union1d(points, found[apart])
    return np.setdiff1d(points, nodes, assume_unique=True)
