"""Risks and bounds in closed form: the least error of each setting, to draw beside studies.

The formulas are those of Ozkara, Girgis, Data and Diggavi (2023), "the paper", corrected where its
constants or proofs fail. There are ``m >= 2`` clients with ``n >= 1`` observations each; a risk is
a mean squared error over population, data and channel. Arguments are numbers or arrays and
broadcast.

- Normal model: ``theta_i ~ N(mu, t)`` and ``xbar_i ~ N(theta_i, v)`` with ``t =
  population_variance >= 0`` and ``v = noise_variance / n > 0`` known and ``mu`` unknown, in each
  of ``d`` coordinates. A client sends a message of mean ``xbar_i`` and variance ``q =
  channel_variance >= 0`` per coordinate. Where ``q`` is an upper bound, so are the risks. Variances
  are in squared units of the data. Clipping is not covered: see `reporting_range`.
- Binomial model: ``p_i ~ Beta(alpha, beta)`` with mean ``mu`` and variance ``t``, ``n xbar_i ~
  Binomial(n, p_i)``, ``v = E p (1 - p) / n``. Only ``mu`` and ``t`` enter, so that any population
  on [0, 1] will do, with ``alpha = mu k``, ``beta = (1 - mu) k``, ``k = mu (1 - mu) / t - 1``.

If only ``K`` clients take part (the paper, Remark 7), use ``K`` for ``m``; the others have the
`nonparticipant_risk`.
"""

import numpy as np
from numpy.typing import NDArray

from ebfed.theory.domains import checked

__all__ = [
    "bayes_risk",
    "binomial_bayes_risk",
    "binomial_local_risk",
    "binomial_moment_weight",
    "binomial_risk",
    "binomial_risk_bound",
    "hybrid_variance",
    "laplace_variance",
    "leave_one_out_risk",
    "local_risk",
    "mean_risk",
    "nonparticipant_risk",
    "one_bit_variance",
    "piecewise_variance",
    "private_mean_bound",
    "quantizer_variance",
    "reporting_radius",
    "reporting_range",
    "shrinkage_weight",
]

# Normal model


@checked
def shrinkage_weight(
    population_variance, noise_variance, n, m=np.inf, channel_variance=0.0
) -> NDArray:
    """Weight ``a`` of a client's own mean in ``a xbar_i + (1 - a) mean_l q(xbar_l)``.

    ``a = (t + q/(m-1)) / (t + q/(m-1) + v)`` minimises the risk: the paper, Theorem 1 (``q = 0``)
    and Theorem 2 (whose "q / m - 1" is ``q / (m-1)``). With ``m = inf`` the mean is known.

    Examples
    --------
    >>> shrinkage_weight(0.01, 0.25, 15, m=101, channel_variance=[0.0, 1.0])
    array([0.375 , 0.54545455])
    """
    prior = population_variance + channel_variance / (m - 1)
    return prior / (prior + noise_variance / n)


@checked
def local_risk(noise_variance, n, d=1) -> NDArray:
    """Risk ``d v`` of a client's own mean (the paper, Remark 1).

    Examples
    --------
    >>> local_risk(0.25, [5, 10])
    array([0.05 , 0.025])
    """
    return d * noise_variance / n  # [E] Remark 1


@checked
def bayes_risk(population_variance, noise_variance, n, d=1) -> NDArray:
    """Risk ``d t v / (t + v)`` if the population is known: the least (the paper, equation 29).

    Examples
    --------
    >>> bayes_risk([0.0, 0.01, 1.0], 0.25, 15).round(5)
    array([0.     , 0.00625, 0.01639])
    """
    a = shrinkage_weight(population_variance, noise_variance, n)
    return d * noise_variance / n * a  # [E] Equation 29


@checked
def mean_risk(population_variance, noise_variance, n, m, channel_variance=0.0, d=1) -> NDArray:
    """Risk ``d v ((1 - a)/m + a)`` of shrinking to the mean message by `shrinkage_weight`.

    The paper, equation (5): printed as a bound, but exact. Minimax without a channel (Remark 2).

    Examples
    --------
    >>> mean_risk(0.01, 0.25, 15, [10, 10_000]).round(5)
    array([0.00729, 0.00625])
    """
    a = shrinkage_weight(population_variance, noise_variance, n, m, channel_variance)
    return d * noise_variance / n * ((1 - a) / m + a)  # [E] Equation 5


@checked
def nonparticipant_risk(
    population_variance, noise_variance, n, participants, channel_variance=0.0, d=1
) -> NDArray:
    """Risk of a client that sends nothing and shrinks to the mean of ``K >= 1`` messages.

    ``d v a`` with ``a = (t + V) / (t + V + v)``, where ``V = (t + v + q) / K`` is the variance of
    that mean: the posterior mean under the population ``N(mu_hat, t + V)``. Exact.

    Examples
    --------
    >>> nonparticipant_risk(0.01, 0.25, 15, [1, 10, 1000]).round(5)
    array([0.01146, 0.0072 , 0.00626])
    """
    v = noise_variance / n
    # [E] Remark 7
    prior = population_variance + (population_variance + v + channel_variance) / participants
    return d * v * prior / (prior + v)


@checked
def leave_one_out_risk(
    population_variance, noise_variance, n, m, channel_variance=0.0, d=1
) -> NDArray:
    """Risk if each client puts its own exact mean in place of its own noisy message.

    Exact: the `nonparticipant_risk` of ``m - 1`` participants, least of all weightings of
    ``xbar_i`` and the other messages. Without a channel equal to `mean_risk`, with one below.

    Examples
    --------
    >>> leave_one_out_risk(0.01, 0.25, 15, 10, [0.0, 0.1]).round(5)
    array([0.00729, 0.00985])
    >>> mean_risk(0.01, 0.25, 15, 10, [0.0, 0.1]).round(5)
    array([0.00729, 0.01005])
    """
    return nonparticipant_risk(population_variance, noise_variance, n, m - 1, channel_variance, d)


@checked
def reporting_range(
    radius, population_variance, noise_variance, n, m, d=1, *, sure=False
) -> NDArray:
    """Half-width ``b`` of the interval in which means are reported, if all ``|mu_j| <= radius``.

    - The paper, Theorem 2: ``b = radius + (sqrt(t) + sqrt(v)) sqrt(log(m^2 n))``. That all means
      lie within ``b`` with probability ``1 - 2/(m n)`` is claimed from tails ``exp(-x^2)``, which
      a standard normal has not. What follows is ``1 - d m (m^2 n)^(-r/2)`` with ``r = (sqrt(t) +
      sqrt(v))^2 / (t + v)``: ``1 - d/(m n)`` if ``t = v``, but ``1 - d/sqrt(n)`` if ``t = 0``.
    - ``sure=True``: ``b = radius + sqrt(t + v) sqrt(2 log(2 d m^2 n))``. Each of the ``m d``
      numbers is ``N(mu_j, t + v)``, and ``P(|Z| > x) <= exp(-x^2/2)``: all lie within ``b`` with
      probability at least ``1 - 1/(2 m n)``.

    On that event clipping changes no message. The risk outside this event is not bounded.

    Examples
    --------
    >>> reporting_range(0.5, 0.01, 0.25, 15, [100, 10_000]).round(3)
    array([1.291, 1.553])
    >>> reporting_range(0.5, 0.01, 0.25, 15, [100, 10_000], sure=True).round(3)
    array([1.32 , 1.579])
    """
    v = noise_variance / n
    if sure:
        return radius + np.sqrt((population_variance + v) * 2 * np.log(2 * d * m**2 * n))
    # [E] Equation 27
    return radius + (np.sqrt(population_variance) + np.sqrt(v)) * np.sqrt(np.log(m**2 * n))


@checked
def reporting_radius(radius, noise_variance, n, m, d=1) -> NDArray:
    """Radius of the ball in which mean vectors are reported, if all ``|theta_i| <= radius``.

    ``radius + sqrt(v q)`` with q the quantile that chi-square on d degrees of freedom exceeds with
    probability ``1/(m^2 n)``: ``|xbar_i - theta_i|^2 / v`` has that law, so that all m means lie
    within with probability at least ``1 - 1/(m n)``. The paper, Lemma 3, claims the same of
    ``radius + 4 sqrt(d v) + 2 sqrt(v log(m^2 n))``, which is larger.

    Examples
    --------
    >>> reporting_radius(2.0, 1.0, 5, 500, [1, 10]).round(3)
    array([4.207, 5.079])
    """
    from scipy.stats import chi2

    return radius + np.sqrt(noise_variance / n * chi2.isf(1 / (m**2 * n), d))  # [E] Lemma 3


# Variances of unbiased messages about one number x in [-b, b], b = half_width. With d numbers
# they share one client's epsilon.


@checked
def quantizer_variance(half_width, bits, x=None) -> NDArray:
    """Variance of stochastic rounding to ``2^bits`` levels (the paper, equations 20 and 22).

    With steps ``s = 2 b / (2^bits - 1)`` and ``f`` the fractional part of ``(x + b) / s`` it is
    ``s^2 f (1 - f)``, at most ``s^2 / 4``, which is returned without `x`.

    Examples
    --------
    >>> quantizer_variance(1.5, 2), quantizer_variance(1.5, 2, x=[-1.5, -0.9, 0.0])
    (np.float64(0.25), array([0.  , 0.24, 0.25]))
    """
    step = 2 * half_width / (2**bits - 1)
    fraction = 0.5 if x is None else (x + half_width) / step % 1
    return step**2 * fraction * (1 - fraction)  # [E] Equation 22


@checked
def one_bit_variance(x, half_width, epsilon) -> NDArray:
    """Variance ``(b (e^eps + 1) / (e^eps - 1))^2 - x^2`` of one bit (Duchi et al. 2018).

    The paper's report of a proportion, equation (7), is this bit about 1/2 with ``b = 1/2``; its
    variance is ``p (1 - p) + e^eps / (e^eps - 1)^2``.

    Examples
    --------
    >>> one_bit_variance([0.0, 1.0], 1.0, epsilon=1.0).round(3)
    array([4.683, 3.683])
    >>> one_bit_variance(np.array([0.0, 0.5]) - 0.5, 0.5, epsilon=1.0).round(3)  # equation (7)
    array([0.921, 1.171])
    """
    return (half_width / np.tanh(epsilon / 2)) ** 2 - x**2


@checked
def piecewise_variance(x, half_width, epsilon) -> NDArray:
    """Variance ``x^2 / (E - 1) + b^2 (E + 3) / (3 (E - 1)^2)``, ``E = e^(eps/2)``.

    Piecewise mechanism (Wang et al. 2019).

    Examples
    --------
    >>> piecewise_variance([0.0, 1.0], 1.0, epsilon=4.0).round(3)
    array([0.085, 0.241])
    """
    odds = np.exp(-epsilon / 2) / -np.expm1(-epsilon / 2)  # 1 / (E - 1) without overflow
    return odds * (x**2 + half_width**2 * (1 + 4 * odds) / 3)


@checked
def private_mean_bound(noise_variance, n, m, epsilon, population_variance=0.0) -> NDArray:
    """Least variance ``pi/2 coth(eps/2)^2 (t + v) / m`` of the mean of a normal population.

    Cramér-Rao bound of m clients that each send one private report on their own mean, of known
    variance ``t + v``. The best report is the sign of ``xbar_i - mu`` by randomised response, up to
    epsilon of about 1; above, the formula is the bound of signs only. Since mu is not known, a
    first share of the clients finds it roughly, and the others report whether they are above:
    ``OneBit(epsilon, range="private")`` (Kalinin and Steinberger 2024).

    Examples
    --------
    >>> bound = private_mean_bound(0.25, 15, 10_000, [0.5, 1.0], population_variance=0.01)
    >>> (1e6 * bound).round(1)
    array([69.8, 19.6])
    """
    return np.pi / 2 / np.tanh(epsilon / 2) ** 2 * (population_variance + noise_variance / n) / m


@checked
def hybrid_variance(x, half_width, epsilon) -> NDArray:
    """Variance of the hybrid mechanism (Wang et al. 2019): piecewise, or one bit.

    Above ``eps* = 0.6094`` it is piecewise with probability ``1 - e^(-eps/2)``, and the variance
    is the same at all ``x``; up to there always one bit. At ``eps*`` the largest variances agree.

    Examples
    --------
    >>> hybrid_variance([0.0, 1.0], 1.0, epsilon=2.0).round(3)
    array([1.042, 1.042])
    """
    share = np.where(epsilon > 0.6093524930271883, np.exp(-epsilon / 2), 1.0)
    bit = one_bit_variance(x, half_width, epsilon)
    return share * bit + (1 - share) * piecewise_variance(x, half_width, epsilon)


@checked
def laplace_variance(half_width, epsilon) -> NDArray:
    """Variance ``8 b^2 / eps^2`` of Laplace noise of scale ``2 b / eps`` (Dwork et al. 2006).

    Examples
    --------
    >>> laplace_variance(1.0, [1.0, 4.0])
    array([8. , 0.5])
    """
    return 8 * (half_width / epsilon) ** 2


# Binomial model


def _moments(alpha, beta, n) -> tuple[NDArray, NDArray, NDArray]:
    """Return ``mu (1 - mu)``, ``t`` and ``v``."""
    k = alpha + beta
    bernoulli = alpha / k * (beta / k)
    return bernoulli, bernoulli / (k + 1), bernoulli * k / (k + 1) / n


def _message_variance(alpha, beta, n, epsilon) -> NDArray:
    """Return ``S`` of `binomial_risk`."""
    bernoulli, t, v = _moments(alpha, beta, n)
    return t + v if epsilon is None else bernoulli + one_bit_variance(0.5, 0.5, epsilon)


@checked
def binomial_local_risk(alpha, beta, n) -> NDArray:
    """Risk ``alpha beta / (n (alpha + beta) (alpha + beta + 1))`` of a proportion (Remark 5).

    Examples
    --------
    >>> binomial_local_risk(4, 4, [14, 140]).round(5)
    array([0.01587, 0.00159])
    """
    return _moments(alpha, beta, n)[2]  # [E] Remark 5


@checked
def binomial_bayes_risk(alpha, beta, n) -> NDArray:
    """Risk of ``(alpha + n xbar_i) / (alpha + beta + n)``, the posterior mean under a known Beta.

    ``alpha beta / ((alpha + beta) (alpha + beta + 1) (alpha + beta + n))``: the paper, Appendix
    C.1. Least of all estimators under a Beta, of linear ones under other populations.

    Examples
    --------
    >>> binomial_bayes_risk(4, 4, [14, 140]).round(5)
    array([0.0101, 0.0015])
    """
    return _moments(alpha, beta, n)[2] * n / (alpha + beta + n)  # [E] Appendix C.1


@checked
def binomial_risk(weight, alpha, beta, n, m=np.inf, epsilon=None) -> NDArray:
    """Risk of ``w xbar_i + (1 - w) mu_i``, ``mu_i`` the mean of the other ``m - 1`` messages.

    ``w^2 v + (1 - w)^2 (t + S/(m-1))``, exact for a weight fixed in advance. ``S`` is the variance
    of a message: ``t + v`` for the proportion itself, ``mu (1 - mu) + e^eps / (e^eps - 1)^2`` for
    its report by the paper's equation (7). If a weight in [0, 1] is learned from the messages of
    the others, the risk is at most ``E[w^2] v + E[(1 - w)^2] t + S/(m-1)``.

    Examples
    --------
    >>> w = binomial_moment_weight(4, 4, 14)
    >>> risks = binomial_risk(w, 4, 4, 14, m=10_000), binomial_bayes_risk(4, 4, 14)
    >>> (1 - np.array(risks) / binomial_local_risk(4, 4, 14)).round(3)  # gains
    array([0.33 , 0.364])
    """
    _, t, v = _moments(alpha, beta, n)
    error = _message_variance(alpha, beta, n, epsilon) / (m - 1)
    return weight**2 * v + (1 - weight) ** 2 * (t + error)


@checked
def binomial_moment_weight(alpha, beta, n, epsilon=None) -> NDArray:
    """Limit for many clients of the weight that the paper gives a client's own proportion.

    ``n / (mu (1 - mu)/S - 1 + n)`` for equation (6) and, printed without -1, ``n / (mu (1 - mu)/S
    + n)`` for Theorem 4, with ``S`` of `binomial_risk`. The best is the first with ``t`` for ``S``.
    Both shrink too little: by (7) ``S`` does not depend on ``t``, and the weight is at least ``n /
    (n + 1)``.

    Examples
    --------
    >>> [f"{binomial_moment_weight(4, 4, 14, eps):.3f}" for eps in (None, 1.0)]  # best: 0.636
    ['0.748', '0.985']
    """
    ratio = _moments(alpha, beta, n)[0] / _message_variance(alpha, beta, n, epsilon)
    return n / (ratio + n - (1 if epsilon is None else 0))


@checked
def binomial_risk_bound(weight, alpha, beta, n, m, epsilon=None) -> NDArray:
    """Upper bound on each client's risk given the messages of the others.

    This is the corrected form of the paper's Theorem 3 and, given `epsilon`, Theorem 4. For weights
    ``w_i`` computed from the messages of others, with probability at least ``1 - 1/(m n)`` for all
    i,

        E[(p_hat_i - p_i)^2 | others] <= w_i^2 v + (1 - w_i)^2 (t + R^2 log(2 m^2 n) / (2 (m-1)))

    by Hoeffding's inequality for the m means ``mu_i`` of messages of range ``R``: 1, or ``(e^eps +
    1) / (e^eps - 1)`` for equation (7). A bound, never an estimate: that is `binomial_risk`.

    As printed, the last term is ``3 log(4 m^2 n) / (m-1)`` in Theorem 3, more than needed, and
    ``R^2 log(4 m^2 n) / (3 (m-1))`` in Theorem 4, from a 3 in (35) where Hoeffding has 2. Appendix
    C.2 takes the sample variance of the proportions to be near ``t``, but it tends to ``S``. So
    the weights do not tend to the best ones, and no bound without ``w`` is given. Nor can a mean
    squared error, an expectation, hold "with probability": the statement is conditional.

    Examples
    --------
    >>> binomial_risk_bound(0.75, 4, 4, 14, m=10_000, epsilon=[1.0, 4.0]).round(4)
    array([0.011 , 0.0107])
    """
    _, t, v = _moments(alpha, beta, n)
    width = 1 if epsilon is None else 1 / np.tanh(epsilon / 2)
    error = width**2 * np.log(2 * m**2 * n) / (2 * (m - 1))  # [E] Equation 35
    return weight**2 * v + (1 - weight) ** 2 * (t + error)
