"""Gradient descent on coefficients, mean and variances together, for replication.

The objective of Ozkara et al. (2023), eq. (54), per client,

    n log(s_x**2) / 2 + |y_i - X_i theta_i|**2 / (2 s_x**2)
    + d log(s_t**2) / 2 + |theta_i - mu|**2 / (2 s_t**2),

is unbounded below: it falls for ever as all theta_i go to mu and s_t**2 to zero. The result of
descent depends on its start and on the number of steps. (The marginal likelihood, where the theta_i
are integrated out, has a maximum; see `mixed_model`.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Descent", "descend_jointly"]


class Descent(NamedTuple):
    """Result of gradient descent.

    Attributes
    ----------
    mean : ndarray of shape (p,)
    variance, noise_variance : float
        s_t**2 and s_x**2.
    path : list of float
        Objective per client before each step.
    """

    mean: NDArray
    variance: float
    noise_variance: float
    path: list[float]


def descend_jointly(
    rows: NDArray, n: NDArray[np.int64], learning_rate: float, n_steps: int
) -> Descent:
    """Run Algorithm 4 of Ozkara et al. (2023), on the logarithms of the variances.

    Its clients' steps need no more of their rows than the factors, and its server averages, so
    that it is run where the factors are. Coefficients start at zero, variances at the mean square
    of y.

    Parameters
    ----------
    rows : ndarray of shape (n_clients, r, p + 1)
        Factors of ``[X_i y_i]``; see `Factors`.
    n : ndarray of shape (n_clients,)
    learning_rate : float
    n_steps : int
    """
    X, y = np.ascontiguousarray(rows[:, :, :-1]), rows[:, :, -1]
    m, p = len(rows), X.shape[2]
    theta, mu = np.zeros((m, p)), np.zeros(p)
    start = max(float((y**2).sum() / max(n.sum(), 1)), 1e-300)
    log_noise = log_spread = np.log(start)
    path = []
    for _ in range(n_steps):
        noise, spread = np.exp([log_noise, log_spread])
        left = y - np.einsum("mrp,mp->mr", X, theta)
        away = mu - theta
        squares, distances = (left**2).sum(axis=1), (away**2).sum(axis=1)
        # [E] Equation 54
        each = n * log_noise + squares / noise + p * log_spread + distances / spread
        path.append(float(each.mean() / 2))
        # [E] Algorithm 4
        theta = theta + learning_rate * (np.einsum("mrp,mr->mp", X, left) / noise + away / spread)
        mu = mu - learning_rate * away.mean(axis=0) / spread
        log_noise -= learning_rate * float((n / 2 - squares / (2 * noise)).mean())
        log_spread -= learning_rate * float((p / 2 - distances / (2 * spread)).mean())
        if not np.isfinite([log_noise, log_spread]).all() or not np.isfinite(theta).all():
            raise ValueError(
                f"gradient descent diverged after {len(path)} steps; lower learning_rate from "
                f"{learning_rate:g}."
            )
    return Descent(mu, float(np.exp(log_spread)), float(np.exp(log_noise)), path)
