r"""Bounds on the excess loss of private learning where a part of each model is a client's own.

The setting of Bietti, Wei, Dudík, Langford and Wu (2022), `ppsgd_risk_bound` and `ppsgd_threshold`:
N clients minimise the mean of convex losses :math:`f_i(w, \theta_i)` by steps with fresh rows, the
steps of the shared w being alpha times those of a client's own :math:`\theta_i`. And that of Huang,
Jiang, Liu, Mahdian, Mao and Mirrokni (2023), `joint_dp_rates`: n owners of m records each, L-
Lipschitz losses. `joint_dp_rates` are up to constants; other bounds, as `joint_dp_stability`, have
all of them.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from ebfed.privacy.accountant import Relation, sensitivity_of
from ebfed.privacy.calibration import (
    as_float,
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    gaussian_sigma,
)

__all__ = ["joint_dp_rates", "joint_dp_stability", "ppsgd_risk_bound", "ppsgd_threshold"]

Objective = Literal["clients", "rows"]


def ppsgd_risk_bound(
    *,
    rounds: int,
    n_clients: int,
    alpha: float,
    shared_norm: float,
    own_norm: float,
    smoothness: float,
    shared_variance: ArrayLike,
    own_variance: ArrayLike,
    noise_variance: float = 0.0,
    n_shared: int = 1,
    rows: ArrayLike = 1,
    rate: float = 1.0,
    slopes: ArrayLike = 0.0,
    objective: Objective = "clients",
) -> float:
    r"""Bound the excess risk of PPSGD, of the average of its iterates from 0 with the best step.

    With T rounds, :math:`z^* = (w^*, \theta^*)` and :math:`\|z^*\|_\alpha^2 = |w^*|^2 / \alpha +
    \sum_i |\theta_i^*|^2`,

    .. math:: \mathbb E f(\bar z) - f(z^*) \le \frac{4 L_\alpha \|z^*\|_\alpha^2}{T}
        + \frac{3\, s\, \|z^*\|_\alpha}{\sqrt T}, \qquad
        s^2 = \frac{\alpha (\bar\sigma_w^2 + \tilde\sigma_w^2) + \bar\sigma_\theta^2}{q M}
        + \alpha\, d\, \sigma_\zeta^2,

    .. math:: L_\alpha = L \max\Big(\alpha + \alpha (1 - q) \frac{m_{\max}}{q M},
        \frac{m_{\max}}{q M}\Big),

    :math:`M = \sum_i m_i`; bars are means over clients with weights :math:`m_i`, and
    :math:`\tilde\sigma_w^2 = \frac1M \sum_i (1 - q)\, m_i^2\, |\nabla_w f_i(z^*)|^2`. That is the
    objective "rows". For "clients", the mean over clients of batches' means, put 1 for
    :math:`m_i` and the variances over :math:`m_i`. If all take part with one row each, it is
    Theorem 4.5.

    Parameters
    ----------
    rounds, n_clients : int
        T, N.
    alpha : float
        Of the paper: a step of w over one of theta. Learning alone is 0, with ``shared_norm=0``;
        global learning is the limit of large alpha, with ``own_norm=0``.
    shared_norm, own_norm : float
        :math:`|w^*|^2` and :math:`\sum_i |\theta_i^*|^2` of any minimiser.
    smoothness : float
        L, of each loss in both arguments; of half squared errors of ``(w + theta)'x`` twice the
        largest ``|x|^2``.
    shared_variance, own_variance : float or array-like of shape (N,)
        :math:`\sigma_{w,i}^2` and :math:`\sigma_{\theta,i}^2`, mean squared length of the gradients
        of one row at the minimiser (around the client's mean gradient, for w).
    noise_variance : float
        :math:`\sigma_\zeta^2` of a coordinate of the average gradient.
    n_shared : int
        d, the length of w.
    rows : int or array-like of shape (N,)
        Rows of a client in a round.
    rate : float
        q, probability of taking part in a round.
    slopes : float or array-like of shape (N,)
        :math:`|\nabla_w f_i(z^*)|^2`; 0 for the additive model.
    objective : {"clients", "rows"}
        As of `ebfed.learning.PPSGD`.

    Returns
    -------
    float

    Raises
    ------
    ValueError

    Notes
    -----
    The paper's Theorem 5.2 and B.4 lack the q in :math:`m_{\max} / (q M)`, which Lemma B.3 has, and
    have :math:`q (1 - q)` for :math:`1 - q`. No gradient is clipped.

    References
    ----------
    Bietti et al. (2022), Theorems 4.5, 5.2 and B.4.

    Examples
    --------
    A shared coefficient vector of length 1, learned alone and together, without noise:

    >>> setting = dict(rounds=10_000, n_clients=100, smoothness=2.0)
    >>> setting |= dict(shared_variance=0.01, own_variance=0.01)
    >>> ppsgd_risk_bound(alpha=0.0, shared_norm=0.0, own_norm=100.0, **setting)
    0.0038
    >>> ppsgd_risk_bound(alpha=1.0, shared_norm=1.0, own_norm=0.0, **setting)
    0.00122
    """
    total, m = check_count("rounds", rounds), check_count("n_clients", n_clients)
    smooth, noise = (
        check_positive("smoothness", smoothness),
        _check("noise_variance", noise_variance),
    )
    given = {"alpha": alpha, "shared_norm": shared_norm, "own_norm": own_norm}
    alpha, shared, own = (_check(name, value) for name, value in given.items())
    q = check_positive("rate", rate)
    if q > 1:
        raise ValueError(f"rate must be at most 1; got {rate!r}.")
    if alpha == 0 and shared > 0:
        raise ValueError("alpha of 0 learns no w: shared_norm must be 0 then; got a larger one.")
    if objective not in get_args(Objective):
        raise ValueError(f"objective must be one of {get_args(Objective)}; got {objective!r}.")
    arrays = {"shared_variance": shared_variance, "own_variance": own_variance, "slopes": slopes}
    of_w, of_theta, steep = (_per_client(name, value, m) for name, value in arrays.items())
    counts = _per_client("rows", rows, m)
    if (counts < 1).any():
        raise ValueError(f"rows must be at least 1; got {rows!r}.")
    if objective == "clients":
        of_w, of_theta, counts = of_w / counts, of_theta / counts, np.ones(m)
    size = q * counts.sum()
    largest = counts.max() / size
    # [P] Equation 13
    spread = (1 - q) * (counts**2 @ steep)
    sampled = (alpha * (counts @ of_w + spread) + counts @ of_theta) / counts.sum() / size
    variance = sampled + alpha * check_count("n_shared", n_shared) * noise
    steepest = smooth * max(alpha * (1 + (1 - q) * largest), largest)
    norm = own + (shared / alpha if shared > 0 else 0.0)
    # [P] Theorem 5.2
    return float(4 * steepest * norm / total + 3 * math.sqrt(variance * norm / total))


def ppsgd_threshold(
    epsilon: float,
    delta: float,
    *,
    n_clients: int,
    gradient_variance: float,
    clip: float,
    n_shared: int,
    relation: Relation = "replace_one",
) -> float:
    r"""Give the number of rows of a client from which on privacy favours learning alone.

    N clients with the same coefficients learn an additive model by PPSGD, a row in each of n
    rounds. The variance term of `ppsgd_risk_bound`, with noise for (epsilon, delta), falls with
    alpha for n below the threshold and grows with it above:

    .. math:: n^* = \frac{N (N - 1)\, \sigma^2}{d\, C^2 z^2},

    z being the noise multiplier with which one Gaussian release is (epsilon, delta)-private: n
    releases together need :math:`z \sqrt n`. Above it a client that learns alone pays nothing for
    privacy and loses nothing in this term; where clients differ, the threshold is lower.

    Parameters
    ----------
    epsilon, delta : float
        Of the whole run, under joint privacy, all clients taking part in all rounds.
    n_clients : int
        N.
    gradient_variance : float
        :math:`\sigma^2`, mean squared length of the gradient of one row at the minimiser.
    clip : float
        C, the largest length of a client's gradient.
    n_shared : int
        d, the length of w.
    relation : {"add_or_remove", "replace_one"}
        Whether a client is left out or, as in the paper, exchanged for another.

    Returns
    -------
    float

    Raises
    ------
    ValueError

    Notes
    -----
    The paper has :math:`\log(1/\delta) / \varepsilon^2` up to a constant for :math:`z^2`.

    References
    ----------
    Bietti et al. (2022), Lemma 4.6 and equation (10).

    Examples
    --------
    >>> setting = dict(n_clients=1000, gradient_variance=0.01, clip=1.0, n_shared=100)
    >>> [round(ppsgd_threshold(epsilon, 1e-4, **setting), 1) for epsilon in (0.5, 1.0, 4.0)]
    [0.7, 2.5, 27.2]
    """
    m, variance = (
        check_count("n_clients", n_clients),
        check_positive("gradient_variance", gradient_variance),
    )
    noise = check_positive("clip", clip) * gaussian_sigma(epsilon, delta, sensitivity_of(relation))
    # [P] Equation 10
    return m * (m - 1) * variance / (check_count("n_shared", n_shared) * noise**2)


def joint_dp_rates(
    epsilon: float,
    delta: float,
    *,
    n_owners: int,
    n_records: int,
    own_diameter: float,
    shared_diameter: float,
    n_own: int,
    n_shared: int,
    lipschitz: float = 1.0,
    n_users: int | None = None,
) -> dict[str, float]:
    r"""Give the rates of excess loss of owners who learn alone or together, without constants.

    With :math:`R = \sqrt{n D_x^2 + D_u^2}`, user-level privacy of r users with m/r records each,

    .. math:: \text{alone}\ L (D_x + D_u) / \sqrt m, \quad \text{open}\ L R / \sqrt{mn}, \quad
        \text{joint}\ L R \Big(\frac1{\sqrt{mn}}
        + \frac{\sqrt{\ell \log(m / (r \delta))}}{\varepsilon n r}\Big), \quad
        \text{full}: nk + \ell\ \text{for}\ \ell,

    and for smooth losses, without logarithms, :math:`L R\,(1 / \sqrt{mn} + \ell / (\varepsilon n
    \sqrt{m r}))`. They say how errors grow, and nothing of their size; what noise is needed is the
    accountant's business (`ebfed.theory.private_learning.nsgd_event`).

    Parameters
    ----------
    epsilon, delta : float
    n_owners, n_records : int
        n, m.
    own_diameter, shared_diameter : float
        :math:`D_x` and :math:`D_u`, of the sets of own and of shared parameters.
    n_own, n_shared : int
        k and l, numbers of own and of shared parameters.
    lipschitz : float
        L.
    n_users : int, optional
        r of each owner; m, a record each, if None.

    Returns
    -------
    dict
        ``alone``, ``open``, ``full``, ``joint``, ``smooth``.

    Raises
    ------
    ValueError

    References
    ----------
    Huang et al. (2023), Theorems 1.1, 3.1 and B.1, section 3.2 and Appendix A.

    Examples
    --------
    >>> setting = dict(n_records=100, own_diameter=0.1, shared_diameter=1.0, n_own=5, n_shared=50)
    >>> for n in (4, 64):
    ...     rates = joint_dp_rates(1.0, 1e-5, n_owners=n, **setting)
    ...     print(n, {name: round(rate, 3) for name, rate in rates.items()})
    4 {'alone': 0.11, 'open': 0.051, 'full': 0.123, 'joint': 0.112, 'smooth': 0.178}
    64 {'alone': 0.11, 'open': 0.016, 'full': 0.029, 'joint': 0.021, 'smooth': 0.026}
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    n, m = check_count("n_owners", n_owners), check_count("n_records", n_records)
    k, length = check_count("n_own", n_own), check_count("n_shared", n_shared)
    users = m if n_users is None else check_count("n_users", n_users)
    if users > m:
        raise ValueError(f"n_users must be at most n_records, {m}; got {users}.")
    of_x, of_u = (
        _check(name, value)
        for name, value in {
            "own_diameter": own_diameter,
            "shared_diameter": shared_diameter,
        }.items()
    )
    scale = check_positive("lipschitz", lipschitz) * math.sqrt(n * of_x**2 + of_u**2)
    together, log = 1 / math.sqrt(m * n), math.log(m / (users * delta))

    def private(dimensions: int) -> float:
        return scale * (together + math.sqrt(dimensions * log) / (epsilon * n * users))

    return {
        "alone": lipschitz * (of_x + of_u) / math.sqrt(m),  # [J] Appendix A.1
        "open": scale * together,  # [J] Appendix A.2
        "full": private(n * k + length),  # [J] Appendix A.3
        "joint": private(length),  # [J] Theorem 1.1
        # [J] Theorem B.1
        "smooth": scale * (together + length / (epsilon * n * math.sqrt(m * users))),
    }


def joint_dp_stability(
    *,
    rounds: int,
    step: float,
    n_owners: int,
    n_records: int,
    own_diameter: float,
    shared_diameter: float,
    lipschitz: float = 1.0,
) -> float:
    r"""Bound how far the result of SGD moves, on average, if one record is exchanged.

    In each of T steps of size :math:`\eta` a record of an owner is drawn with replacement. The
    losses are convex and L-Lipschitz, but need not be smooth. With R as in `joint_dp_rates`,

    .. math:: \min\Big\{R,\ 4 L \eta \Big(\sqrt T + \frac{T}{m n}\Big)\Big\}.

    L times it bounds how much more the loss is for new records than for those learned from.

    Parameters
    ----------
    rounds : int
        T.
    step : float
        :math:`\eta`, the same in all rounds.
    n_owners, n_records, own_diameter, shared_diameter, lipschitz
        As in `joint_dp_rates`.

    Returns
    -------
    float

    Raises
    ------
    ValueError

    References
    ----------
    Huang et al. (2023), Lemma 3.5; Bassily, Feldman, Guzmán and Talwar (2020), Stability of
    stochastic gradient descent on nonsmooth convex losses, Theorem 3.3.

    Examples
    --------
    >>> setting = dict(step=1e-3, n_owners=10, n_records=100, own_diameter=0.1, shared_diameter=1.0)
    >>> [round(joint_dp_stability(rounds=t, **setting), 3) for t in (100, 10_000, 1_000_000)]
    [0.04, 0.44, 1.049]
    """
    total, size = check_count("rounds", rounds), check_positive("step", step)
    n, m = check_count("n_owners", n_owners), check_count("n_records", n_records)
    of_x, of_u = _check("own_diameter", own_diameter), _check("shared_diameter", shared_diameter)
    moved = 4 * check_positive("lipschitz", lipschitz) * size * (math.sqrt(total) + total / (m * n))
    # [J] Lemma 3.5
    return min(math.sqrt(n * of_x**2 + of_u**2), moved)


def _check(name: str, value: float) -> float:
    """Check that a number is finite and not negative."""
    number = as_float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be nonnegative and finite; got {value!r}.")
    return number


def _per_client(name: str, value: ArrayLike, m: int) -> np.ndarray:
    """One number for every client."""
    numbers = np.asarray(value, float)
    if numbers.shape not in ((), (m,)) or not np.all((numbers >= 0) & np.isfinite(numbers)):
        raise ValueError(
            f"{name} must be nonnegative, one number or {m}, one of each client; got {value!r}."
        )
    return np.broadcast_to(numbers, (m,))
