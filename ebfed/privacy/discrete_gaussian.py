r"""Calibration of discrete Gaussian noise: its delta, the noise for a guarantee, and that of sums.

Noise that several parties add up is accounted as Gaussian noise.

Each of m parties adds independent discrete Gaussian noise of parameter :math:`\sigma_1` to each of
d integers, and only the sum is seen. The sum of their noise is nearly discrete Gaussian, and
discrete Gaussian noise is nearly what can be made of Gaussian noise without seeing the data. Both
are true up to factors of probabilities so close to 1 that they do not count, so the release costs
what a release with continuous Gaussian noise costs, of a variance that is smaller by
:math:`b^2 = 4`:

.. math:: z = \frac{\sqrt{m \sigma_1^2 - b^2}}{\Delta},

with :math:`\Delta` the largest norm of one contribution. Any account of Gaussian releases holds,
sampling and composition included. On a fine grid :math:`b` does not count either.

*Proof.* Write :math:`\rho_s(x) = e^{-x^2 / 2 s^2}`. By Poisson summation, for every real c,

.. math:: \sum_{k} \rho_s(k - c) = s \sqrt{2\pi}\, (1 + \theta\kappa_s), \quad |\theta| \le 1,
    \quad \kappa_s = 2 \sum_{j \ge 1} e^{-2\pi^2 s^2 j^2}.

(1) *A sum of two.* The probability that noises of parameters s and t add up to k is, after
completing the square, :math:`\rho_{\sqrt{s^2 + t^2}}(k)` times a sum as above with
:math:`st / \sqrt{s^2 + t^2}` for s, over a constant. So it differs from the discrete Gaussian one
by a factor between :math:`e^{-\tau}` and :math:`e^\tau`, where
:math:`\tau \le 10 e^{-2\pi^2 s^2 t^2 / (s^2 + t^2)}`. Adding m noises one by one gives
:math:`\tau = 10 \sum_{k=1}^{m-1} e^{-2\pi^2 \sigma_1^2 k / (k+1)}`, that of Kairouz, Liu and
Steinke.

(2) *From Gaussian to discrete.* Let x be an integer and :math:`y = x + N(0, s^2 - b^2)`. Draw an
integer with probabilities in proportion to :math:`\rho_b(\cdot - y)`: this uses y alone. It is x
plus noise which has, by the same sums and the convolution of normal densities, the probabilities of
the discrete Gaussian of parameter s up to factors between :math:`e^{\pm 2 \kappa_b / (1 -
\kappa_b)}`.

(3) Let :math:`\eta = d\,(\tau + 2 \kappa_b / (1 - \kappa_b))`. All probabilities of a release are
within :math:`e^{\pm\eta}` of those of a function of a Gaussian release, for a random sample of
clients too. So T releases have epsilon and delta of T Gaussian ones, with :math:`2 T \eta` more
epsilon and :math:`e^{T\eta}` times delta. `distributed_multiplier` refuses noise with :math:`\eta`
above 1e-15, where that is less than the rounding of an accountant. More noise, of further parties,
is of no harm.

References
----------
Kairouz, Liu and Steinke (2021), The distributed discrete Gaussian mechanism for federated learning
with secure aggregation. Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential
privacy. Peikert (2010), An efficient and parallel Gaussian sampler for lattices, Theorem 3.1.
"""

from __future__ import annotations

import math

import numpy as np

from ebfed.privacy.calibration import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    gaussian_sigma,
    smallest_sigma,
)

__all__ = [
    "discrete_gaussian_delta",
    "discrete_gaussian_sigma",
    "distributed_multiplier",
    "distributed_sigma",
    "divergence_of_sum",
    "excess",
]

# The parameter b, and the largest eta that does not count.
SPARE = 2.0
NEGLIGIBLE = 1e-15


def discrete_gaussian_delta(sigma: float, epsilon: float, steps: int) -> float:
    r"""Compute the exact delta of discrete Gaussian noise on a whole number.

    The noise is y with probability :math:`P(y) \propto e^{-y^2 / 2\sigma^2}`, y a whole number. The
    likelihood ratio of two answers is monotone, so the sum of the definition is one over a tail:

    .. math:: \delta = \sum_y \max\{0, P(y) - e^\varepsilon P(y + k)\}
        = \sum_{y > \varepsilon\sigma^2/k - k/2} P(y) - e^\varepsilon P(y + k).

    Parameters
    ----------
    sigma : float
        Parameter of the noise; slightly above the standard deviation if it is small.
    epsilon : float
    steps : int
        Largest difference k between two neighbouring answers.

    Returns
    -------
    float

    Raises
    ------
    ValueError

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Theorem 7.

    Examples
    --------
    >>> discrete_gaussian_delta(sigma=1.0, epsilon=1.0, steps=1)
    0.14135
    >>> discrete_gaussian_delta(sigma=50.0, epsilon=1.0, steps=50)
    0.12692
    """
    sigma, epsilon = check_positive("sigma", sigma), check_epsilon(epsilon)
    steps = check_count("steps", steps)
    start = max(epsilon * sigma * (sigma / steps) - steps / 2, -15 * sigma - 1)
    if start > 40 * sigma + 1:  # P underflows
        return 0.0
    # the omitted terms are below e^-100 of the first term of the tail, or of the sum
    stop = math.sqrt(max(start, 0.0) ** 2 + 200 * sigma**2) + 2
    y = np.arange(math.floor(start), math.ceil(stop))
    loss = (steps / sigma) * ((y + steps / 2) / sigma)  # log P(y) / P(y + k)
    terms = np.exp(-0.5 * (y / sigma) ** 2) * -np.expm1(np.minimum(epsilon - loss, 0.0))
    return float(terms.sum() / _discrete_gaussian_mass(sigma))


def discrete_gaussian_sigma(epsilon: float, delta: float, steps: int, n_features: int = 1) -> float:
    r"""Find the smallest discrete Gaussian noise that is (epsilon, delta)-private.

    For one number, by its exact delta. For a vector whose d coordinates may each change by k, by
    concentrated privacy, :math:`\rho = k^2 d / 2\sigma^2`, with the best order of

    .. math:: \varepsilon = \alpha\rho + \log(1 - 1/\alpha)
        - \frac{\log(\alpha\delta)}{\alpha - 1}.

    Parameters
    ----------
    epsilon, delta : float
    steps : int
        Largest difference k between two neighbouring answers, in each coordinate.
    n_features : int
        Number d of coordinates.

    Returns
    -------
    float
        Parameter of the noise, for each coordinate independently. It gives the guarantee. A larger
        one may not if the noise is finer than a step, because there delta is not quite monotone
        (one step, sigma below 1: it rises by a hundredth at epsilon 1, and may rise tenfold at
        epsilon 5).

    Raises
    ------
    ValueError

    References
    ----------
    Canonne, Kamath and Steinke (2020), Theorems 7 and 14, Proposition 12.

    Examples
    --------
    >>> discrete_gaussian_sigma(epsilon=1.0, delta=1e-5, steps=15)
    55.9597
    >>> discrete_gaussian_sigma(epsilon=1.0, delta=1e-5, steps=15, n_features=4)
    121.35
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    steps = check_count("steps", steps)
    if check_count("n_features", n_features) > 1:
        return steps * math.sqrt(n_features / (2 * _largest_rho(epsilon, delta)))
    return smallest_sigma(
        lambda sigma: discrete_gaussian_delta(sigma, epsilon, steps),
        delta,
        gaussian_sigma(epsilon, delta, steps),
    )


def _discrete_gaussian_mass(sigma: float) -> float:
    """Sum exp(-y² / 2 sigma²) over the whole numbers."""
    if sigma > 2:  # the sum is the integral, to the last digit (Poisson summation)
        return sigma * math.sqrt(2 * math.pi)
    return float(np.exp(-0.5 * (np.arange(-40, 41) / sigma) ** 2).sum())


def _largest_rho(epsilon: float, delta: float) -> float:
    """Find the largest rho that implies (epsilon, delta); any order is valid."""
    from scipy.optimize import minimize_scalar

    def negative(log_excess: float) -> float:  # of the order over 1
        excess = math.exp(log_excess)
        order = 1 + excess
        gain = math.log(order / excess) + (math.log(order) + math.log(delta)) / excess
        return -(epsilon + gain) / order

    grid = np.linspace(-25, 60, 171)
    best = grid[np.argmin([negative(point) for point in grid])]
    fit = minimize_scalar(
        negative, bounds=(best - 0.5, best + 0.5), method="bounded", options={"xatol": 1e-9}
    )
    return -float(fit.fun)


def divergence_of_sum(sigma: float, parties: int) -> float:
    r"""Bound how far a sum of discrete Gaussian noises is from discrete Gaussian noise.

    Parameters
    ----------
    sigma : float
        Parameter of each noise, on the integers; at least a half.
    parties : int
        Number of noises.

    Returns
    -------
    float
        The bound :math:`\tau` of the logarithm of the ratio of probabilities, of every integer.

    Raises
    ------
    ValueError

    References
    ----------
    Kairouz, Liu and Steinke (2021), Theorem 1.

    Examples
    --------
    >>> divergence_of_sum(1.0, 5)
    0.00054
    >>> divergence_of_sum(1.0, 1)
    0.0
    """
    if check_positive("sigma", sigma) < 0.5:
        raise ValueError(f"sigma must be at least 0.5, steps of the integers; got {sigma!r}.")
    k = np.arange(1, check_count("parties", parties))
    return float(10 * np.exp(-2 * (math.pi * min(sigma, 1e3)) ** 2 * k / (k + 1)).sum())


def excess(sigma: float, parties: int, n_features: int) -> float:
    r"""Bound :math:`\eta` of one release: how far it is from a function of a Gaussian release.

    Parameters
    ----------
    sigma : float
        Parameter of the noise of each party, on the integers.
    parties : int
        Number of parties.
    n_features : int
        Number d of integers that are released.

    Returns
    -------
    float

    Examples
    --------
    >>> excess(3.0, parties=5, n_features=10**6) < 1e-15
    True
    """
    smoothing = 2.01 * math.exp(-2 * (math.pi * SPARE) ** 2)
    each = divergence_of_sum(sigma, parties) + 2 * smoothing / (1 - smoothing)
    return check_count("n_features", n_features) * each


def distributed_multiplier(
    sigma: float, parties: int, sensitivity: float, n_features: int = 1
) -> float:
    r"""Return the noise multiplier of the Gaussian release that costs as much.

    Parameters
    ----------
    sigma : float
        Parameter :math:`\sigma_1` of the noise of each party, on the integers.
    parties : int
        Number m of parties that are honest and stay to the end, at least.
    sensitivity : float
        Largest norm :math:`\Delta` of one contribution, on the integers.
    n_features : int
        Number d of integers that are released.

    Returns
    -------
    float
        The z of `ebfed.privacy.events.gaussian`.

    Raises
    ------
    ValueError
        If an argument is invalid, or the noise of each party is so small that the sum is not nearly
        discrete Gaussian.

    Examples
    --------
    Five parties on a fine grid: z is the standard deviation of the sum by the sensitivity.

    >>> distributed_multiplier(sigma=1000.0, parties=4, sensitivity=2000.0)
    0.9999995
    """
    sensitivity = check_positive("sensitivity", sensitivity)
    if (far := excess(sigma, parties, n_features)) > NEGLIGIBLE:
        raise ValueError(
            f"sigma must be at least about 2.5, steps of the integers, so that the sum of "
            f"{parties} noises is nearly discrete Gaussian; {sigma!r} has an excess of {far:.2g}. "
            "Take a finer grid."
        )
    return math.sqrt(parties) * sigma * math.sqrt(1 - SPARE**2 / (parties * sigma**2)) / sensitivity


def distributed_sigma(multiplier: float, parties: int, sensitivity: float) -> float:
    """Return the noise of each party for a noise multiplier; the inverse of the above.

    Parameters
    ----------
    multiplier : float
        The z of a Gaussian release.
    parties : int
        Number m of parties that are honest and stay to the end, at least.
    sensitivity : float
        Largest norm of one contribution, on the integers.

    Returns
    -------
    float
        Parameter of the noise, on the integers.

    Examples
    --------
    >>> sigma = distributed_sigma(1.0, parties=4, sensitivity=2000.0)
    >>> sigma, distributed_multiplier(sigma, 4, 2000.0)
    (1000.0005, 1.0)
    """
    total = check_positive("multiplier", multiplier) * check_positive("sensitivity", sensitivity)
    return math.hypot(total, SPARE) / math.sqrt(check_count("parties", parties))
