"""EM for k points from noisy sums and counts: central differential privacy.

A server holds every client's mean, clipped to a ball: ``u_i`` with ``|u_i| <= 1`` in units of its
radius. In each round it releases, for every component l, a sum and a count

    A_l = sum_i p_i r_il u_i + sigma Z,   C_l = sum_i p_i r_il + sigma Z',

with ``r_i`` the client's responsibilities under the centres ``A_l / C_l`` released before, ``p_i``
in [0, 1] public, and Z, Z' standard normal. All other results are computed from these.

*Sensitivity.* Let one client have u, r instead of u', r', and let ``rho = <r, r'>``. The vector of
all sums and counts moves by at most p_i times the root of

    |r|**2 (|u|**2 + 1) + |r'|**2 (|u'|**2 + 1) - 2 rho (<u, u'> + 1).

As ``<u, u'> >= -1`` and ``rho >= 0``, the last term is never positive, and norms of r and u are at
most 1: it is at most the root of 4. So the counts, in units of the radius, come for free: 2 is the
sensitivity of a single sum.

*Composition.* Each round is a Gaussian mechanism of sensitivity 2, whose data dependence on the
earlier rounds is through what they released. T of them together are exactly as private as one of
sensitivity ``2 sqrt(T)`` (Dong, Roth and Su 2022, Corollary 3.3), to which the analytic Gaussian
mechanism calibrates sigma. Neighbours differ by the data of one client, not by its number of rows.

*Randomness.* In a federation without a seed, noise is drawn by OpenDP from the operating system. In
this process it comes from NumPy's generator, and the last digits of floats are not covered by the
proof. A fixed seed gives no privacy, and the ledger says so.

*Billboard.* A client's estimate depends on what was released and on its own data, so others learn
of a client's data only through what was released.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebfed.channels.secure import add_gaussian
from ebfed.likelihoods import Gaussian

__all__ = ["noisy_em", "release", "spread_out"]


def noisy_em(
    u: NDArray,
    variances: NDArray,
    weights: NDArray,
    centres: NDArray,
    n_rounds: int,
    sigma: float,
    rng: Any,
) -> tuple[NDArray, NDArray, NDArray]:
    """Fit weights and centres of k points to clipped means.

    Rounds of the second half count together: their sums and counts are added up, since noise is
    what they differ by.

    Parameters
    ----------
    u : ndarray of shape (m, d)
        Means in units of the ball.
    variances : ndarray of shape (m, d)
        Variances of the means around theta, in those units: public.
    weights : ndarray of shape (m,)
        ``p_i``: public.
    centres : ndarray of shape (k, d)
        Centres of the start, which must not depend on the data.
    n_rounds : int
    sigma : float
    rng : Generator, or "secure" for noise of the operating system

    Returns
    -------
    centres : ndarray of shape (k, d)
    shares : ndarray of shape (k,)
    moved : ndarray of shape (n_rounds,)
        Largest move of a centre, in each round.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u = rng.normal(rng.choice([-0.5, 0.5], 1000), 0.1)[:, None]
    >>> start = spread_out(2, 1, rng)
    >>> one = np.ones(1000)
    >>> centres, shares, _ = noisy_em(u, 0.01 * one[:, None], one, start, 4, 5.0, rng)
    >>> centres.ravel().round(1), shares.round(1)
    (array([-0.5,  0.5]), array([0.5, 0.5]))
    """
    u = u / np.maximum(np.sqrt((u**2).sum(axis=1, keepdims=True)), 1.0)  # the proof needs it
    likelihood = Gaussian(u, np.maximum(variances, 1e-12))
    shares = np.full(len(centres), 1 / len(centres))
    messages, times, moved = np.zeros((len(centres), u.shape[1] + 1)), 0, np.zeros(n_rounds)
    for round_ in range(n_rounds):
        released = release(likelihood, weights, centres, shares, sigma, rng)
        late = round_ > n_rounds // 2
        messages, times = released + messages * late, 1 + times * late
        centres, shares, moved[round_] = _step(messages, centres, sigma * np.sqrt(times))
    return centres, shares, moved


def release(
    likelihood: Gaussian,
    weights: NDArray,
    centres: NDArray,
    shares: NDArray,
    sigma: float,
    rng: Any,
) -> NDArray:
    """Sums and counts of one round, with noise, shape (k, d + 1): the only use of the data.

    Values of `likelihood` lie in the unit ball, `weights` in [0, 1].
    """
    from scipy.special import softmax

    r = weights[:, None] * softmax(likelihood.logpdf(centres) + np.log(shares), axis=1)
    sums = r.T @ np.column_stack([likelihood.values, np.ones(len(weights))])
    return add_gaussian(sums, sigma, rng)


def _step(messages: NDArray, centres: NDArray, noise: float) -> tuple[NDArray, NDArray, float]:
    """Centres and shares from sums and counts with that much noise."""
    sums, counts = messages[:, :-1], messages[:, -1]
    # a count within its noise says nothing of where the centre is
    has_data = counts > max(2 * noise, 1e-9)
    new = np.where(has_data[:, None], sums / np.where(has_data, counts, 1.0)[:, None], centres)
    new /= np.maximum(np.sqrt((new**2).sum(axis=1, keepdims=True)), 1.0)
    shares = np.maximum(counts, max(noise, 1e-9))
    return new, shares / shares.sum(), float(np.sqrt(((new - centres) ** 2).sum(axis=1)).max())


def spread_out(k: int, d: int, rng: np.random.Generator) -> NDArray:
    """Spread k centres over the unit ball, without looking at data, shape (k, d).

    Evenly on the line; in space, each as far from the others as a thousand random places allow.

    Examples
    --------
    >>> spread_out(3, 1, np.random.default_rng(0)).ravel().round(2)
    array([-0.67,  0.  ,  0.67])
    """
    if d == 1:
        return np.linspace(-1, 1, 2 * k + 1)[1::2, None]
    places = rng.standard_normal((1000, d))
    places *= rng.random((1000, 1)) ** (1 / d) / np.sqrt((places**2).sum(axis=1, keepdims=True))
    centres = places[:1]
    while len(centres) < k:
        away = ((places[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
        centres = np.vstack([centres, places[[np.argmax(away)]]])
    return centres
