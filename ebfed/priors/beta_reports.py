"""Reports of rates that contradict every beta population."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebfed.likelihoods import Likelihood
from ebfed.priors.weights import dirichlet_draws, fit_weights

__all__ = ["CONTRADICTED", "is_contradicted", "of_any_shape"]

CONTRADICTED = (
    "Reports contradict every beta population. Estimates and intervals use betas with means and "
    "variances of nonparametric fits; prior='npmle' or 'log_spline' may serve better."
)

# Twice the gain in log-likelihood of the nonparametric fit, beyond which a beta is contradicted.
# Where the population was a beta, it was below 10 in 72 fits (eight levels, 5000 clients).
CONTRADICTION = 12.0

N_NODES, N_DRAWS = 120, 50


def is_contradicted(rows: Likelihood, counts: NDArray, best: float) -> bool:
    """Whether some population explains reports far better than the likeliest beta.

    Parameters
    ----------
    rows : Likelihood of n different reports on one coordinate
    counts : ndarray of shape (n,)
    best : float
        Log-likelihood of that beta.
    """
    _, relative, weights = _nonparametric(rows, counts)
    free = counts @ (np.log(relative @ weights) + rows.log_peak())
    return bool(2 * (free - best) > CONTRADICTION)


def _nonparametric(rows: Likelihood, counts: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Nodes, relative likelihoods at them, and their likeliest weights."""
    nodes = rows.nodes(N_NODES)
    relative = rows.relative(nodes[:, None])
    weights, _ = fit_weights(relative, counts, np.full(len(nodes), 1 / len(nodes)), 0.01)
    return nodes, relative, weights


def of_any_shape(rows: Likelihood, counts: NDArray) -> tuple[NDArray, NDArray]:
    """Find means and overdispersions, (K, 2), of plausible populations of any shape, and weights.

    A beta with the right mean and variance gives the best estimates that are linear in proportions.
    """
    nodes, relative, weights = _nonparametric(rows, counts)
    shapes = np.full(len(nodes), np.log1p(counts.sum()) / 2 / len(nodes))
    start = 0.999 * weights + 0.001 / len(nodes)
    draws = dirichlet_draws(relative, counts, shapes, start, N_DRAWS)
    mean = draws @ nodes
    correlation = (draws @ nodes**2 - mean**2) / (mean * (1 - mean))
    correlation = np.clip(correlation, 1e-6, 1 - 1e-6)
    points = np.column_stack([mean, correlation / (1 - correlation)])
    return points, np.full(N_DRAWS, 1 / N_DRAWS)
