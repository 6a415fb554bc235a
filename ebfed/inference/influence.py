"""Influence of groups on the mean of a linear mixed model: each group is left out, exactly.

Let N be the sum over rows of ``C' V^-1 C``, ``C = [X, y - X beta]``, at the variances of the fit.
It is a sum over groups of the top level. Without one of them, the equations of beta are those of N
less the group's part; without a group of a lower level, the part of its parent is what its other
groups leave (`ebfed.inference.sums`). No row is read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.inference.sums import LinearMixedFit, whitening

__all__ = ["changes_without", "cooks_distances"]


def changes_without(fit: LinearMixedFit, level: int) -> NDArray[np.float64]:
    """Return how much the mean changes if a group is left out, at the variances of the fit.

    Parameters
    ----------
    fit : LinearMixedFit
    level : int
        Level of the groups, from the top.

    Returns
    -------
    ndarray of shape (n_groups, p)
        The mean less that without the group; NaN where the other groups do not identify it.
    """
    C, last = fit.columns, len(fit.owners) - 1
    inner = np.einsum("mri,mrj->mij", C, C) / fit.noise
    parts: list[NDArray] = []
    before: list[NDArray] = []  # of each level, without its own effects
    for each in range(last, -1, -1):
        before.insert(0, inner)
        inner = _within(inner, fit.maps[each], fit.covariances[each])
        parts.insert(0, inner)
        if each:
            out = np.zeros((len(fit.owners[each - 1]), *inner.shape[1:]))
            np.add.at(out, fit.owners[each], inner)
            inner = out
    total, without, kept = parts[0].sum(axis=0), -parts[level], fit.of_mean
    owner = np.arange(len(parts[level]))
    for each in range(level, 0, -1):
        owner = fit.owners[each][owner]
        left = before[each - 1][owner] + without
        new = _within(left, fit.maps[each - 1], fit.covariances[each - 1])
        without = new - parts[each - 1][owner]
    whole = (total + without)[:, kept[:, None], kept]
    changes = np.full((len(whole), len(kept) - 1), np.nan)
    for j, each in enumerate(whole):
        values = np.linalg.eigvalsh(each[:-1, :-1])
        if (values > 1e-10 * values.max(initial=0.0)).all():
            changes[j] = -np.linalg.solve(each[:-1, :-1], each[:-1, -1])
    return changes @ fit.basis[0].T


def _within(inner: NDArray, J: NDArray, G: NDArray) -> NDArray:
    """Products where groups have effects of their own."""
    if not len(G):
        return inner
    A = J.T @ inner @ J
    H = J @ np.linalg.solve(np.eye(len(G)) + G @ A, np.broadcast_to(G, A.shape)) @ J.T
    inner = inner - inner @ H @ inner
    return (inner + inner.swapaxes(1, 2)) / 2


def cooks_distances(changes: NDArray, covariance: NDArray) -> NDArray[np.float64]:
    """Return Cook's distances ``d' S^-1 d / p`` of changes d of p coefficients of covariance S.

    Examples
    --------
    >>> cooks_distances(np.array([[1.0, 2.0]]), np.eye(2))
    array([2.5])
    """
    white = changes @ whitening(covariance)[0].T
    return np.einsum("nk,nk->n", white, white) / max(white.shape[1], 1)
