"""Clustering by k-means."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["kmeans"]

LLOYD = 300  # steps of k-means, at most


def kmeans(values: NDArray, k: int, rng: Any) -> tuple[NDArray, NDArray]:
    """Cluster rows: k-means++ (Arthur and Vassilvitskii 2007) and Lloyd's steps.

    Returns
    -------
    labels : int ndarray of shape (n,)
    centres : ndarray of shape (k, d)
    """
    from sklearn.cluster import kmeans_plusplus

    centre = values.mean(axis=0)  # around which squares lose no digits
    values = values - centre
    centres, _ = kmeans_plusplus(values, k, random_state=rng)
    labels = np.full(len(values), -1)
    for _ in range(LLOYD):
        nearest = np.argmin((centres**2).sum(axis=1) - 2 * values @ centres.T, axis=1)
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        members = labels[:, None] == np.arange(k)
        count = members.sum(axis=0)
        # a cluster that lost all its rows keeps its centre
        means = members.T.astype(float) @ values / np.maximum(count, 1)[:, None]
        centres = np.where(count[:, None] > 0, means, centres)
    return labels, centre + centres
