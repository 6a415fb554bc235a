"""How sure clients' predictions are: temperatures, learned from rows that clients hold back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

__all__ = ["GRID", "N_POPULATIONS", "evidence", "held_likelihoods", "own_temperatures"]

# Temperatures that are compared.
GRID = np.exp(np.linspace(-1.5, 1.5, 21))
# Spreads of log-temperatures between clients; their means are those of the grid.
SPREADS = (0.05, 0.2, 0.5)
# Means are normal around 0, with this spread: a few rows say too little to be followed.
BELIEF = 0.3
N_POPULATIONS = len(GRID) * len(SPREADS)
_LOGS = np.log(GRID)
_LAWS = np.concatenate([-((_LOGS - _LOGS[:, None]) ** 2) / (2 * tau**2) for tau in SPREADS])
_LAWS -= logsumexp(_LAWS, axis=1, keepdims=True)
_PRIOR = np.tile(-(_LOGS**2) / (2 * BELIEF**2), len(SPREADS))


def evidence(scores: NDArray) -> NDArray[np.float64]:
    r"""Return how well each population explains clients, less its mean over populations.

    .. math:: \ell_i(\mu, \tau) = \log \sum_T N(\log T; \mu, \tau^2)\, e^{L_i(T)}

    Parameters
    ----------
    scores : ndarray of shape (c, len(GRID))
        Log-likelihoods L_i(T) of rows that were held back.

    Returns
    -------
    ndarray of shape (c, N_POPULATIONS)

    Examples
    --------
    >>> evidence(np.zeros((1, len(GRID)))).round(6).any()
    np.False_
    """
    found = logsumexp(scores[:, None, :] + _LAWS, axis=2)
    return found - found.mean(axis=1, keepdims=True)


def own_temperatures(scores: NDArray, population: NDArray, n_clients: float) -> NDArray[np.float64]:
    r"""Return :math:`\exp E(\log T_i)` of each client.

    .. math:: E(\log T_i) = \sum_{\mu, \tau} p(\mu, \tau)\, E(\log T_i \mid \mu, \tau), \qquad
        p(\mu, \tau) \propto N(\mu; 0, 0.3^2)\, e^{m \bar\ell(\mu, \tau)}

    Parameters
    ----------
    scores : ndarray of shape (c, len(GRID))
    population : ndarray of shape (N_POPULATIONS,)
        Mean evidence.
    n_clients : float
        Number of clients m that the mean is of.

    Returns
    -------
    ndarray of shape (c,)

    Examples
    --------
    A client that holds nothing back has the temperature of the population:

    >>> scores = np.array([np.zeros(21), -8 * (np.log(GRID) - 0.6) ** 2])
    >>> own_temperatures(scores, evidence(scores[1:])[0], n_clients=50).round(1)
    array([1.8, 1.8])
    """
    likely = softmax(n_clients * population + _PRIOR)
    given = softmax(scores[:, None, :] + _LAWS, axis=2) @ _LOGS
    return np.exp(given @ likely)


def held_likelihoods(training: Any, members: NDArray[np.int64], theta: NDArray) -> NDArray:
    """Return log-likelihoods of the rows that members hold back, shape (len(members), len(GRID)).

    Parameters
    ----------
    training : LocalTraining
    members : ndarray of positions of clients
    theta : ndarray of shape (len(members), p)
        Parameters that were trained on the other rows.
    """
    scores, net = np.zeros((len(members), len(GRID))), training.net
    for some, rows in training.held_back(members, total=True):
        batch = rows.all()
        outputs = net.outputs(theta[some], batch.X)
        for k, temperature in enumerate(GRID):
            loss = net.loss.of(outputs / temperature, batch.y, batch.weight)[0]
            scores[some, k] = np.where(rows.n > 0, -loss, 0.0)
    return np.where(np.isfinite(scores).all(axis=1, keepdims=True), scores, 0.0)
