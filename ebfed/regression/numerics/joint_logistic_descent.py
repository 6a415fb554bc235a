"""Gradient descent on logistic coefficients, mean and variance together, for replication.

As in the linear case (see `joint_descent`), the objective is unbounded below.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ebfed import kernels
from ebfed.regression.protocol import LogisticMessage
from ebfed.tables.clients import Clients

__all__ = ["joint_step", "sums_of_clients"]


def sums_of_clients(values: NDArray, clients: Clients) -> NDArray[np.float64]:
    """Sum the rows of each client, one after the other: blocks make no difference."""
    return kernels.sums_of_clients(np.require(values, float, ["C", "W"]), clients.indptr)


def joint_step(
    clients: Clients,
    second: Any,
    mean: NDArray,
    variance: float,
    theta: NDArray,
    learning_rate: float,
) -> tuple[NDArray[np.float64], LogisticMessage]:
    """Take the clients' part of a round of gradient descent.

    The prior's pull on theta is ``(theta - mean) / variance``, which the paper has with the other
    sign.

    Parameters
    ----------
    clients : Clients
    second : label
        Label of the second class.
    mean : ndarray of shape (p,)
    variance : float
    theta : ndarray of shape (n_clients, p)
    learning_rate : float

    Returns
    -------
    theta : ndarray of shape (n_clients, p)
    message : dict
        What each client would make of the mean and the log-variance.
    """
    # [E] Algorithm 5
    away = (theta - mean) / variance
    signs = np.where(np.asarray(clients.y) == second, 1.0, -1.0)
    logit = np.einsum("np,np->n", clients.X, np.repeat(theta, clients.n, axis=0))
    # [E] Equation 55
    slope = sums_of_clients(clients.X * (-signs * expit(-signs * logit))[:, None], clients)
    by_log_variance = theta.shape[1] / 2 - 0.5 * variance * (away**2).sum(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):  # the server checks whether descent diverged
        message: LogisticMessage = {
            "mean": mean + learning_rate * away,
            "log_variance": np.log(variance) - learning_rate * by_log_variance,
        }
        return theta - learning_rate * (slope + away), message
