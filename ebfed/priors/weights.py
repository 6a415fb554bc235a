"""Maximum likelihood of the weights of known components: a concave problem on the simplex."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["fit_weights", "gradient", "newton"]

BLOCK = 4096  # rows at a time: what fits the cache
MANY = 20_000  # rows beyond which some are looked at first


def fit_weights(
    likelihoods: NDArray, counts: NDArray, weights: NDArray, tol: float
) -> tuple[NDArray, float]:
    """Maximise ``sum_i counts_i log sum_j weights_j L_ij`` to a duality gap of `tol`.

    Parameters
    ----------
    likelihoods : ndarray of shape (n, k)
        Each row up to a factor.
    counts : ndarray of shape (n,)
    weights : ndarray of shape (k,)
        A start, which makes every row possible.
    tol : float

    Returns
    -------
    weights : ndarray of shape (k,)
    gap : float
        The log-likelihood is at most this much below its maximum.

    Examples
    --------
    >>> weights, gap = fit_weights(np.eye(2), np.array([3.0, 1.0]), np.array([0.5, 0.5]), 1e-9)
    >>> weights.round(6)
    array([0.75, 0.25])
    """
    if len(likelihoods) > MANY:  # a start from a tenth of the rows, unless it fails another
        rough, _ = fit_weights(likelihoods[::10], counts[::10], weights, tol)
        weights = rough if (likelihoods @ rough > 0).all() else (rough + weights) / 2
    gap = np.inf
    for _ in range(200):
        rising = gradient(likelihoods, counts, likelihoods @ weights)
        gap = max(float(rising.max()), 0.0)
        if gap <= tol:
            break
        active = (weights > 0) | (rising > 0)
        weights = weights.copy()
        weights[active] = newton(likelihoods[:, active], counts, weights[active])
    return weights, gap


def gradient(likelihoods: NDArray, counts: NDArray, mixture: NDArray) -> NDArray:
    """Return the gain in log-likelihood per unit of mass moved to each column."""
    return (counts / mixture) @ likelihoods - counts.sum()


def newton(likelihoods: NDArray, counts: NDArray, weights: NDArray) -> NDArray:
    """One constrained Newton step for the weights, with a line search.

    With S = L / f the quadratic model of the log-likelihood over the simplex is
    ``-|S w - 2|**2 / 2`` (Wang 2007, eq. 5), a nonnegative least squares problem in k unknowns.
    """
    from scipy.optimize import nnls

    mixture = likelihoods @ weights
    total = counts.sum()
    first = (counts / mixture) @ likelihoods
    second = _cross_products(likelihoods, np.sqrt(counts) / mixture)
    # |(S - 2) w|**2, as the weights sum to one
    bend = (second - 2 * (first + first[:, None]) + 4 * total) / total
    sizes, axes = np.linalg.eigh(bend)
    system = np.vstack((np.sqrt(np.maximum(sizes, 0))[:, None] * axes.T, np.ones(len(weights))))
    proposal, _ = nnls(system, np.append(np.zeros(len(weights)), 1.0), maxiter=50 * len(weights))
    proposal /= proposal.sum()
    before = counts @ np.log(mixture)
    target = likelihoods @ proposal
    # a client made all but impossible would rule the next step
    step = 1.0 if (target > 0.1 * mixture).all() else 0.9
    slope = (counts / mixture) @ (target - mixture)
    while step > 1e-10:
        after = counts @ np.log((1 - step) * mixture + step * target)
        if after >= before + 1e-4 * step * slope:
            return (1 - step) * weights + step * proposal
        step /= 2
    return weights


def _cross_products(likelihoods: NDArray, factors: NDArray) -> NDArray:
    """``sum_i factors_i**2 L_ij L_ik``, a block of rows at a time."""
    total = np.zeros((likelihoods.shape[1],) * 2)
    for first in range(0, len(likelihoods), BLOCK):
        block = likelihoods[first : first + BLOCK] * factors[first : first + BLOCK, None]
        total += block.T @ block
    return total
