"""Risks in closed form where clients may opt out of privacy: server, Ditto, Bayes.

The formulas are those of Aldaghri, Mahdavifar and Beirami (2021), "FeO2: Federated Learning with
Opt-Out Differential Privacy", "the paper", corrected where it omits a client's own noise. The model
is the normal one of `ebfed.theory.location`, ``t = population_variance`` and ``v = noise_variance /
n``. The messages of ``n_private`` clients have ``q = channel_variance``; those of the ``n_open``
clients that opted out are exact. The server takes the mean of all messages, an exact one with
weight 1, a private one with weight ``r = ratio``.

In the paper's symbols ``t = tau^2``, ``v = alpha^2``, ``t + v = sigma_c^2``, ``q = N_p gamma^2``;
its losses are half of the risks here. Private clients hide in the sum of their messages, whose
noise has variance ``n_private q``: settings that agree in that are equally private.
"""

import numpy as np
from numpy.typing import NDArray

from ebfed.theory.domains import checked

__all__ = [
    "bayes_risk",
    "ditto_penalty",
    "ditto_risk",
    "fedavg_gap",
    "feo2_penalty",
    "optimal_ratio",
    "server_variance",
]


@checked
def optimal_ratio(population_variance, noise_variance, n, channel_variance) -> NDArray:
    """Weight ``r* = (t + v) / (t + v + q)`` of a private message, if that of an exact one is 1.

    The paper, Lemma 1: weights inverse to variances, which makes `server_variance` least.

    Examples
    --------
    >>> optimal_ratio(0.01, 1.0, 1, [0.0, 4.0]).round(4)
    array([1.    , 0.2016])
    """
    total = population_variance + noise_variance / n
    return total / (total + channel_variance)


@checked
def server_variance(
    population_variance, noise_variance, n, channel_variance, n_private, n_open, ratio=None
) -> NDArray:
    """Variance of the server's mean around ``mu``.

    ``(n_open (t + v) + n_private r^2 (t + v + q)) / (n_open + n_private r)^2``; with the
    `optimal_ratio`, if none is given, ``(t + v) / (n_open + n_private r*)`` (the paper, equation
    6). ``ratio=1`` is FedAvg (7).

    Examples
    --------
    >>> server_variance(0.01, 1.0, 1, 4.0, n_private=4, n_open=1, ratio=[0.0, 0.5, 1.0]).round(4)
    array([1.01  , 0.6689, 0.842 ])
    >>> server_variance(0.01, 1.0, 1, 4.0, n_private=4, n_open=1).round(4)
    np.float64(0.5592)
    """
    total = population_variance + noise_variance / n
    r, excess = _ratio(total, channel_variance, ratio)
    weights = _positive(n_open + n_private * r)
    return total / weights + n_private * r * excess / weights**2  # [O] Equation 6


@checked
def fedavg_gap(
    population_variance, noise_variance, n, channel_variance, n_private, n_open
) -> NDArray:
    """Gap between the `server_variance` of FedAvg and that of the optimal ratio.

    ``n_private n_open q^2 / (N^2 (N (t + v) + n_open q))`` with ``N = n_private + n_open``: the
    paper, equation (8), a comparison at equal privacy. The larger gap (9) is not: it is to
    DP-FedAvg with noise ``q`` from each of all ``N`` clients, so that their sum has ``N q`` instead
    of ``n_private q``. With that much, DP-FedAvg is as good as FedAvg, and (8) is the gap to both.

    Examples
    --------
    >>> fedavg_gap(0.01, 1.0, 1, 4.0, n_private=4, n_open=1).round(4)
    np.float64(0.2828)
    """
    clients = _positive(n_private + n_open)
    total = population_variance + noise_variance / n
    # [O] Lemma 2
    return (
        n_private
        * n_open
        * channel_variance**2
        / (clients**2 * (clients * total + n_open * channel_variance))
    )


@checked
def ditto_penalty(
    population_variance,
    noise_variance,
    n,
    channel_variance,
    n_private,
    n_open,
    private,
    ratio=None,
) -> NDArray:
    """Penalty ``lambda`` of least `ditto_risk`; `ratio` as in `server_variance`.

    ``(v - C) / (T - C)``, where ``T`` is the variance of the server's mean around the client's
    ``theta_j`` and ``C`` its covariance with ``xbar_j``: if the client's own message has the share
    ``h`` of all weights, ``C = h v`` and ``T = h^2 (v + q_j) + (1 - h)^2 (t + V)``, with ``V`` the
    variance of the mean of the others around ``mu``. It is infinite where ``T <= C``. With the
    `optimal_ratio` it is ``v / t`` for a client that opted out (the paper, equation 40); for a
    private one see `feo2_penalty`.

    Examples
    --------
    >>> ditto_penalty(0.01, 1.0, 1, 4.0, n_private=4, n_open=1, private=[True, False]).round(4)
    array([  1.9513, 100.    ])
    """
    t, v = population_variance, noise_variance / n
    own, others, noise, excess = _server(t + v, channel_variance, n_private, n_open, private, ratio)
    # (T - C) (own + others)^2: at the optimal ratio a sum of nonnegative terms
    apart = others * (t * (others + 1) + v * (1 - own)) + excess + own**2 * noise
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        best = np.where(apart > 0, v * others * (own + others) / apart, np.inf)  # [O] Lemma 3
    return np.where(others > 0, best, 0.0)


@checked
def feo2_penalty(
    population_variance, noise_variance, n, channel_variance, n_private, n_open, private
) -> NDArray:
    """Penalty that the paper, equations (40) and (53), gives beside the optimal ratio.

    For a client that opted out it is ``v / t``, the best. For a private one, with ``U = t/v``, ``G
    = q/v`` and ``N = n_private + n_open``, it is

        (N (1 + U) + G n_open) / (U (1 + U) N + U G (n_open + 1) + G).

    That is the best, and reaches the `bayes_risk`, if the client removes its own noise from the
    server's mean. With the noise in it, the best is `ditto_penalty`,

        ((N-1) (1 + U) + G n_open) / (U ((N-1) (1 + U) + G n_open) + (1 + U) G).

    Of the paper's limits two change: ``N / (U N + G)`` for ``n_open = 0`` to ``(N-1) / (U (N-1) +
    G)``, and ``N/G + n_open`` for ``t = 0`` to ``(N-1)/G + n_open``. Both penalties tend to ``v/t``
    for ``q -> 0`` and to 0 for ``v -> 0``.

    Examples
    --------
    >>> feo2_penalty(0.01, 1.0, 1, 4.0, n_private=4, n_open=1, private=[True, False]).round(4)
    array([  2.191, 100.   ])
    """
    t, v, q = population_variance, noise_variance / n, channel_variance
    clients = n_private + n_open
    _others(n_private, n_open, private)
    with np.errstate(divide="ignore"):
        return np.where(
            private,
            v  # [O] Equation 53
            * (clients * (t + v) + q * n_open)
            / (t * (t + v) * clients + t * q * (n_open + 1) + q * v),
            v / t,  # [O] Equation 40
        )


@checked
def ditto_risk(
    penalty,
    population_variance,
    noise_variance,
    n,
    channel_variance,
    n_private,
    n_open,
    private,
    ratio=None,
) -> NDArray:
    """Risk of ``(xbar_j + lambda theta) / (1 + lambda)``, ``theta`` being the server's mean.

    Ditto (Li et al. 2021) of client ``j``, `private` or not, itself counted in ``n_private`` or
    ``n_open``: the paper, equation (38). With ``a = 1 / (1 + lambda)`` and the symbols of
    `ditto_penalty` the risk is ``a^2 v + 2 a (1 - a) C + (1 - a)^2 T``. Exact.

    Examples
    --------
    >>> clients = dict(n_private=4, n_open=1, private=True)
    >>> ditto_risk([0.0, 1.9513, 2.191, np.inf], 0.01, 1.0, 1, 4.0, **clients).round(5)
    array([1.     , 0.41262, 0.4135 , 0.5669 ])
    >>> bayes_risk(0.01, 1.0, 1, 4.0, **clients).round(5)
    np.float64(0.39001)
    """
    t, v = population_variance, noise_variance / n
    own, others, noise, excess = _server(t + v, channel_variance, n_private, n_open, private, ratio)
    a, h = 1 / (1 + penalty), own / (own + others)
    apart = (others**2 * t + others * (t + v) + excess) / (own + others) ** 2  # (1 - h)^2 (t + V)
    return (a + (1 - a) * h) ** 2 * v + (1 - a) ** 2 * (h**2 * noise + apart)  # [O] Equation 38


@checked
def bayes_risk(
    population_variance, noise_variance, n, channel_variance, n_private, n_open, private
) -> NDArray:
    """Risk given the client's own exact mean and the messages of all others: the least.

    ``D v / (D + v)`` with ``D = t + V`` and ``V`` the `server_variance` of the others with the
    `optimal_ratio` (the paper, equation 36; ``mu`` has a flat prior). A client that opted out
    reaches it by Ditto. A private one does not, because its own noise is in the server's mean,
    unless it removes that noise, or its whole message.

    Examples
    --------
    >>> bayes_risk(0.01, 1.0, 1, 4.0, 4, 1, private=[True, False]).round(5)
    array([0.39001, 0.55801])
    """
    t, v = population_variance, noise_variance / n
    others = _others(n_private, n_open, private)
    weights = others[1] + others[0] * optimal_ratio(t, v, 1, channel_variance)
    prior = t + (t + v) / _positive(weights)
    return prior * v / (prior + v)  # [O] Equation 36


def _ratio(total, q, ratio) -> tuple[NDArray, NDArray | float]:
    """Return ``r`` and ``r (t + v + q) - (t + v)``, which vanishes at the optimal ratio."""
    if ratio is None:
        return total / (total + q), 0.0
    return ratio, ratio * (total + q) - total


def _others(n_private, n_open, private) -> tuple[NDArray, NDArray]:
    """Numbers of private and of opted-out clients without client ``j``, which is one of them."""
    others = n_private - private, n_open - (1 - private)
    if any(np.any(count < 0) for count in others):
        raise ValueError(
            "the client must be counted too: in n_private if it is private, else in n_open."
        )
    return others


def _server(total, q, n_private, n_open, private, ratio) -> tuple[NDArray, ...]:
    """Weights of client ``j`` and of all others, ``q_j``, and a part of the others' variance.

    If ``w_i`` are the weights of the others and ``s_i`` the variances of their messages, then
    ``sum w_i^2 s_i = (t + v) sum w_i + excess``.
    """
    r, excess = _ratio(total, q, ratio)
    others_private, others_open = _others(n_private, n_open, private)
    own, others = np.where(private, r, 1.0), others_open + others_private * r
    _positive(own + others)
    return own, others, private * q, others_private * r * excess


def _positive(weights) -> NDArray:
    """Return the weights, if they are positive."""
    if not np.all(weights > 0):
        raise ValueError("n_private * ratio + n_open must be positive: no message has a weight.")
    return weights
