"""Robust empirical Bayes intervals: coverage whatever the shape of the population.

A linear estimator shrinks the estimate of group ``i`` towards the population mean,

    theta_hat_i = mean + a_i (Y_i - mean),

and the interval is ``theta_hat_i`` plus or minus a half-width. Taken from a fitted prior, the
half-width has the right coverage only if the family of the prior is right. Here it comes from
two moments of the population alone: it is the smallest one whose coverage, averaged over the
groups, is at least ``level`` for *every* population with those moments. The moments are taken
not to depend on the precision of the group.

- ``Y_i | theta_i ~ N(theta_i, s_i^2)``: `gaussian_moments`, `gaussian_critical_value`. The bias
  of ``theta_hat_i`` in units of its standard deviation is ``b_i = (1 - 1/a_i) (theta_i - mean) /
  s_i``, so the half-width is ``a_i s_i`` times the critical value at ``E b_i^2 = (1/a_i - 1)^2
  variance / s_i^2``.
- ``Z_i | p_i ~ Binomial(n_i, p_i)``, ``Y_i = Z_i / n_i``: `binomial_moments`,
  `binomial_half_width`, without any normal approximation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, ndtr, ndtri

from ebfed.arguments import check_level

if TYPE_CHECKING:
    from ebfed.likelihoods import Binomial, Gaussian, Multinomial

__all__ = [
    "LinearShrinkage",
    "binomial_half_width",
    "binomial_moments",
    "gaussian_critical_value",
    "gaussian_moments",
    "half_widths",
    "moments_around",
    "moments_of",
    "moments_of_counts",
]

GAUSSIAN_NODES = 256
BINOMIAL_NODES = 24


def gaussian_moments(
    deviations: ArrayLike, variances: ArrayLike, margin: float = 0.0
) -> tuple[float, float]:
    r"""Variance and kurtosis of the population behind noisy estimates.

    With ``e_i = Y_i - mean``, noise variances ``s_i^2`` and weights ``w_i`` that sum to one,

    .. math::

        \mu_2 &= \max\Bigl\{\sum_i w_i (e_i^2 - s_i^2),
            \; \frac{2 \sum_i w_i^2 s_i^4}{\sum_i w_i s_i^2}\Bigr\},

        \kappa &= \max\Bigl\{\frac{\sum_i w_i (e_i^4 - 6 s_i^2 e_i^2 + 3 s_i^4)}{\mu_2^2},
            \; 1 + \frac{32 \sum_i w_i^2 s_i^8}{\mu_2^2 \sum_i w_i s_i^4}\Bigr\}.

    The first sums are unbiased for the second and fourth moments. The second terms keep a noisy
    sample from shrinking everything to the mean: they are roughly the posterior means under a
    flat prior on ``mu_2 >= 0`` and ``kappa >= 1`` when the first ones lie as low as they can.

    Any weights are consistent; equal ones and ``1/s_i^2`` are the usual choices. With very
    unequal groups the former leave the fourth moment to the noisiest groups and the latter all
    to the few largest, so the weights here are ``(t + s_i^2)^-2``, for a normal population those
    of the most precise ``mu_2``. ``t`` is a pilot variance, the single root of ``sum_i e_i^2 /
    (t + s_i^2) = n`` (Paule and Mandel), but at least ``2 / sum_i s_i^-2``.

    Parameters
    ----------
    deviations : array of shape (n_clients,)
        Estimates minus the fitted population mean.
    variances : array of shape (n_clients,)
        Sampling variances of the estimates, finite and positive.
    margin : float
        Raise both moments by so many of their standard errors. Coverage loses more where they are
        estimated too low than it gains where too high; with one, it is kept at a thousand groups.

    Returns
    -------
    variance, kurtosis : float
        ``mu_2 > 0`` and ``kappa >= 1``.

    Raises
    ------
    ValueError
        If the arrays are empty, differ in shape, or hold values outside their ranges.

    References
    ----------
    T. B. Armstrong, M. Kolesár and M. Plagborg-Møller (2022), Robust empirical Bayes confidence
    intervals, Econometrica 90, 2567-2602, section 3 (baseline implementation).

    R. C. Paule and J. Mandel (1982), Consensus values and weighting factors, Journal of
    Research of the National Bureau of Standards 87, 377-385.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> variances = rng.uniform(0.2, 2.0, 5000)
    >>> theta = rng.choice([-1.0, 1.0], 5000)  # variance 1, kurtosis 1
    >>> variance, kurtosis = gaussian_moments(
    ...     theta + np.sqrt(variances) * rng.standard_normal(5000), variances
    ... )
    >>> round(variance, 1), round(kurtosis)
    (1.0, 1)
    """
    deviations = np.asarray(deviations, dtype=float)
    variances = np.asarray(variances, dtype=float)
    if deviations.ndim != 1 or deviations.shape != variances.shape or not deviations.size:
        raise ValueError(
            "deviations and variances must be one-dimensional, of equal length and not empty; "
            f"got shapes {deviations.shape} and {variances.shape}"
        )
    if not np.all(np.isfinite(deviations)):
        raise ValueError("deviations must be finite")
    if not np.all(np.isfinite(variances) & (variances > 0)):
        raise ValueError("variances must be finite and positive")
    squares = deviations**2
    weights = _efficient_weights(squares, variances)
    second = _raised_mean(weights, squares - variances, margin)
    fourth = _raised_mean(weights, squares**2 - 6 * variances * squares + 3 * variances**2, margin)
    variance = float(max(second, _least_moment(weights, variances, 2)))
    least = variance**2 + _least_moment(weights, variances, 4)
    return variance, float(max(fourth, least) / variance**2)


def _raised_mean(weights: NDArray, values: NDArray, margin: float) -> float:
    """Weighted mean plus `margin` of its standard errors."""
    mean = float(weights @ values)
    return mean + margin * math.sqrt(float(weights**2 @ (values - mean) ** 2))


def _efficient_weights(
    squares: NDArray, variances: NDArray, times: NDArray | None = None
) -> NDArray:
    """Weights ``(t + s_i^2)^-2``, at the Paule-Mandel variance ``t``.

    They sum to one over all groups, of which ``times[i]`` have this estimate and variance.
    """
    times = np.ones(len(squares)) if times is None else times
    shares = times / times.sum()
    pilot = float(2 / np.sum(times / variances))
    for _ in range(50):
        total = pilot + variances
        ratios = squares / total
        mean = float(shares @ ratios)
        if mean < 1 + 1e-3:  # weights need no more
            break
        # Newton's method for 1 / mean = 1, which is concave in t, and linear if errors are equal
        pilot += mean * (mean - 1) / float(shares @ (ratios / total))
    weights = (total.min() / total) ** 2
    return weights / np.sum(times * weights)


def _least_moment(
    weights: NDArray, variances: NDArray, order: int, times: NDArray | float = 1.0
) -> float:
    """Least variance, or least excess of the fourth moment over the squared variance."""
    noise = weights * variances ** (order // 2)
    return {2: 2, 4: 32}[order] * np.sum(times * noise**2) / np.sum(times * noise)


def gaussian_critical_value(
    second_moment: ArrayLike, kurtosis: float, level: float
) -> NDArray[np.float64]:
    r"""Critical value of the robust interval, the paper's ``cva``.

    The smallest ``chi`` with

    .. math::

        \sup_F \Pr(|b + Z| > \chi) \le 1 - \text{level},
        \quad Z \sim N(0, 1),\; b \sim F,\; E b^2 = m_2,\; E b^4 \le \kappa m_2^2.

    The worst ``b^2`` takes at most two values. Given the upper one, ``m_2 + d``, the lower one
    is as high as the kurtosis allows, ``max(0, m_2 - (kappa - 1) m_2^2 / d)``, and ``E b^2 =
    m_2`` fixes the probabilities. What is left is a search along one line: the supremum over
    ``d > 0`` of the critical value of that law. It is done to about 1e-8 for up to 256 distinct
    second moments; beyond, at 256 points equally spaced in ``log m_2``, joined by a monotone
    cubic in logarithms (relative error below 1e-4 over sixteen decades, 4e-4 at level 0.9999).

    Parameters
    ----------
    second_moment : float or array of any shape
        ``m_2 >= 0``, second moment of the bias in units of the standard deviation. Zero gives
        the normal quantile.
    kurtosis : float
        ``kappa >= 1``; ``inf`` constrains the second moment only.
    level : float
        Coverage, in (0, 1).

    Returns
    -------
    array of the shape of `second_moment`
        Critical values; a float for a float.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    T. B. Armstrong, M. Kolesár and M. Plagborg-Møller (2022), Robust empirical Bayes confidence
    intervals, Econometrica 90, 2567-2602, section 3 and appendix B.

    Examples
    --------
    >>> import numpy as np
    >>> gaussian_critical_value([0, 4], kurtosis=np.inf, level=0.95).round(3)
    array([1.96 , 7.216])
    >>> float(gaussian_critical_value(4, kurtosis=3, level=0.95).round(3))
    4.62
    """
    from scipy.interpolate import PchipInterpolator

    second_moment = np.asarray(second_moment, dtype=float)
    if not np.all(np.isfinite(second_moment) & (second_moment >= 0)):
        raise ValueError("second_moment must be finite and not negative")
    if not kurtosis >= 1:
        raise ValueError(f"kurtosis must be at least 1, got {kurtosis}")
    check_level(level)
    distinct, inverse = np.unique(second_moment, return_inverse=True)
    if len(distinct) <= GAUSSIAN_NODES:
        values = _gaussian_supremum(distinct, kurtosis, 1 - level)
    else:
        # Below 1e-8 the critical value is the normal quantile to eight digits.
        lowest = max(distinct[0], 1e-8)
        nodes = np.geomspace(lowest, max(distinct[-1], 2 * lowest), GAUSSIAN_NODES)
        curve = PchipInterpolator(
            np.log(nodes), np.log(_gaussian_supremum(nodes, kurtosis, 1 - level))
        )
        values = np.exp(curve(np.log(np.maximum(distinct, lowest))))
    return values[inverse].reshape(second_moment.shape)[()]


def _gaussian_supremum(second_moment: NDArray, kurtosis: float, alpha: float) -> NDArray:
    """Largest critical value over the two-point laws of ``b^2``, for each second moment."""
    moment = np.maximum(second_moment, 1e-300)[:, None]  # keeps inf * 0 away
    # Chebyshev's inequality on b + Z. An upper point more than a few units above the critical
    # value only wastes second moment.
    ceiling = np.sqrt((moment + 1) / alpha)
    start = np.log(1e-6 * np.maximum(moment, 1))
    stop = np.log((ceiling + 8) ** 2 - moment)
    # The first pass brackets the maximum, the others zoom in on it.
    for size in (129, *[17] * 8):
        distance = start + (stop - start) * np.linspace(0, 1, size)
        values = _two_point_critical_value(np.exp(distance), moment, kurtosis, alpha, ceiling)
        best = np.argmax(values, axis=1)[:, None]
        start = np.take_along_axis(distance, np.maximum(best - 1, 0), axis=1)
        stop = np.take_along_axis(distance, np.minimum(best + 1, size - 1), axis=1)
    return values.max(axis=1)


def _two_point_critical_value(
    distance: NDArray, moment: NDArray, kurtosis: float, alpha: float, ceiling: NDArray
) -> NDArray:
    """Critical value when ``b^2`` is ``moment + distance`` or the matching lower point."""
    lower = np.maximum(0, moment - (kurtosis - 1) * moment * (moment / distance))
    upper = moment + distance
    share = (moment - lower) / (upper - lower)
    small, large = np.sqrt(lower), np.sqrt(upper)
    low = np.full(upper.shape, ndtri(1 - alpha / 2))  # no bias at all
    high = np.broadcast_to(ceiling, upper.shape)
    for _ in range(45):
        middle = (low + high) / 2
        noncoverage = (1 - share) * (ndtr(small - middle) + ndtr(-small - middle)) + share * (
            ndtr(large - middle) + ndtr(-large - middle)
        )
        short = noncoverage > alpha
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


def binomial_moments(
    successes: ArrayLike, trials: ArrayLike, mean: float, times: ArrayLike = 1.0
) -> tuple[float, float]:
    r"""Second and fourth central moments of the proportions behind binomial counts.

    The factorial moments ``E[Z (Z-1) ... (Z-r+1)] / (n (n-1) ... (n-r+1)) = p^r`` give each
    group with ``n >= r`` an unbiased estimate of ``(p - mean)^r``. They are pooled with the
    weights and the least values of `gaussian_moments` at ``s_i^2 = mean (1 - mean) / n_i``, and
    held within what a population on [0, 1] can have,

    .. math::

        v \le \mu (1 - \mu), \qquad
        \kappa_{\min} v^2 \le f \le v \max(\mu, 1 - \mu)^2,

    where ``kappa_min = 1``, or more when 0 or 1 lies within a standard deviation of the mean.

    Parameters
    ----------
    successes : array of int, shape (n_clients,)
        Counts ``Z_i``, between 0 and ``n_i``.
    trials : array of int, shape (n_clients,)
        Numbers of trials ``n_i``. Groups with one trial say nothing about the variance, groups
        with fewer than four nothing about the fourth moment.
    mean : float
        Fitted population mean, in (0, 1).
    times : array of shape (n_clients,), optional
        How many groups have these counts; one if not given.

    Returns
    -------
    variance, fourth_moment : float
        ``v > 0`` and ``f``. Without a group of four trials ``f`` is its upper bound.

    Raises
    ------
    ValueError
        If the arrays differ in shape or hold impossible counts, if `mean` is outside (0, 1), or
        if no group has two trials.

    References
    ----------
    K. Tian, W. Kong and G. Valiant (2017), Learning populations of parameters, Advances in
    Neural Information Processing Systems 30 (moments from factorial moments).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> trials = rng.integers(1, 60, 5000)
    >>> rates = rng.uniform(0, 1, 5000)  # variance 0.0833, fourth moment 0.0125
    >>> variance, fourth = binomial_moments(rng.binomial(trials, rates), trials, mean=0.5)
    >>> round(variance, 3), round(fourth, 3)
    (0.083, 0.012)
    """
    successes = np.asarray(successes, dtype=float)
    trials = np.asarray(trials, dtype=float)
    if trials.ndim != 1 or successes.shape != trials.shape:
        raise ValueError(
            "successes and trials must be one-dimensional and of equal length; "
            f"got shapes {successes.shape} and {trials.shape}"
        )
    if not np.all((successes >= 0) & (successes <= trials) & (successes == np.floor(successes))):
        raise ValueError("successes must be whole numbers between 0 and trials")
    if not 0 < mean < 1:
        raise ValueError(f"mean must be between 0 and 1, got {mean}")
    if not np.any(trials >= 2):
        raise ValueError("no group has two trials, so the variance cannot be estimated")

    times = np.broadcast_to(np.asarray(times, dtype=float), trials.shape)

    def pooled(order):
        """Pooled estimate of a central moment, and the least value that goes with it."""
        enough = trials >= order
        hits, size, many = successes[enough], trials[enough], times[enough]
        noise = mean * (1 - mean) / size
        weights = _efficient_weights((hits / size - mean) ** 2, noise, many)
        power = np.ones(len(hits))  # unbiased for p^r
        moment = np.full(len(hits), (-mean) ** order)
        for r in range(1, order + 1):
            power *= (hits - r + 1) / (size - r + 1)
            moment += math.comb(order, r) * (-mean) ** (order - r) * power
        return (many * weights) @ moment, _least_moment(weights, noise, order, many)

    estimate, least = pooled(2)
    variance = min(max(estimate, least), mean * (1 - mean))
    fourth_moment = np.inf
    if np.any(trials >= 4):
        estimate, least = pooled(4)
        fourth_moment = max(estimate, variance**2 + least)
    return float(variance), _feasible_fourth_moment(mean, variance, fourth_moment)


def moments_of_counts(
    likelihood: Binomial | Multinomial, means: NDArray
) -> tuple[NDArray, NDArray]:
    """Second and fourth central moments of the proportions of each column, shape (d,).

    Parameters
    ----------
    likelihood : Binomial or Multinomial of n groups
    means : ndarray of shape (d,)
        Fitted population means, in [0, 1].
    """
    moments = []
    for j, mean in enumerate(means.tolist()):
        rows, times = likelihood.column(j).compress()
        spread = mean * (1 - mean)
        if spread > 0 and rows.trials.max() > 1:
            moments.append(binomial_moments(rows.successes[:, 0], rows.trials, mean, times))
        else:  # nothing is known of the spread: as wide as it can be
            moments.append((spread, spread * max(mean, 1 - mean) ** 2))
    second, fourth = np.array(moments).T
    return second, fourth


def _feasible_fourth_moment(mean: float, variance: float, fourth_moment: float) -> float:
    """Nearest fourth moment that a population on [0, 1] with this mean and variance can have."""
    # The population of least kurtosis has two points: one standard deviation either side or,
    # where that leaves the unit interval, the nearer end of it and the matching point.
    reach = min(1.0, min(mean, 1 - mean) / math.sqrt(variance)) ** 2
    least = (reach + 1 / reach - 1) * variance**2
    return float(max(min(fourth_moment, variance * max(mean, 1 - mean) ** 2), least))


def binomial_half_width(
    trials: ArrayLike,
    weights: ArrayLike,
    mean: float,
    variance: float,
    fourth_moment: float,
    level: float,
) -> NDArray[np.float64]:
    r"""Half-width of the robust interval for a binomial proportion.

    For ``Z ~ Binomial(n, p)`` and ``p_hat = (1 - a) mean + a Z / n`` the smallest ``h`` with

    .. math::

        \sup_F \Pr(|\hat p(Z) - p| > h) \le 1 - \text{level},
        \quad p \sim F \text{ on } [0, 1],

        E p = \mu,\; E (p - \mu)^2 = v,\; E (p - \mu)^4 \le f.

    The supremum is a linear program over a grid of ``p``; ``h`` is found by bisection to 5e-4
    of the root mean squared error, and rounded up. The probability of missing jumps in ``p``
    where ``|p_hat(z) - p| = h``, so the grid of each ``h`` contains those points, each with the
    larger of its one-sided limits.

    With more than 24 different ``(n, a)`` the smooth bound of `_binomial_noncoverage` is solved
    at 24 of them, and ``h`` over the root mean squared error is interpolated in ``log n``. The
    bound exceeds the exact half-width by at most ``a / n``: on average by one or two percent,
    by five for populations of two sharp values.

    Parameters
    ----------
    trials : array of int, shape (n_clients,)
        Numbers of trials ``n``; 0 is allowed with weight 0.
    weights : array of shape (n_clients,)
        Weights ``a`` of the group's own proportion, in [0, 1]. With more than 24 different
        pairs they must be a function of `trials`.
    mean, variance, fourth_moment : float
        Population mean in (0, 1) and central moments, as from `binomial_moments`. Moments that
        no population on [0, 1] has are replaced by the nearest that one has.
    level : float
        Coverage, in (0, 1).

    Returns
    -------
    array of shape (n_clients,)
        Half-widths.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the weights are no function of the trials where
        they must be.

    References
    ----------
    T. B. Armstrong, M. Kolesár and M. Plagborg-Møller (2022), Robust empirical Bayes confidence
    intervals, Econometrica 90, 2567-2602, section 3: the same program for a normal likelihood.

    Examples
    --------
    Proportions from a uniform population, as estimated by the best linear estimator:

    >>> import numpy as np
    >>> trials = np.array([0, 10, 1000])
    >>> weights = trials / (trials + 2)
    >>> binomial_half_width(trials, weights, 0.5, 1 / 12, 1 / 80, level=0.95).round(2)
    array([0.5 , 0.28, 0.03])
    """
    from scipy.interpolate import PchipInterpolator

    trials = np.asarray(trials, dtype=float)
    weights = np.asarray(weights, dtype=float)
    if trials.ndim != 1 or trials.shape != weights.shape:
        raise ValueError(
            "trials and weights must be one-dimensional and of equal length; "
            f"got shapes {trials.shape} and {weights.shape}"
        )
    if not np.all((trials >= 0) & (trials == np.floor(trials)) & np.isfinite(trials)):
        raise ValueError("trials must be whole numbers, not negative")
    if not np.all((weights >= 0) & (weights <= 1)):
        raise ValueError("weights must lie between 0 and 1")
    if np.any(weights[trials == 0] > 0):
        raise ValueError("a group without trials must have weight 0")
    if not 0 < mean < 1:
        raise ValueError(f"mean must be between 0 and 1, got {mean}")
    if not (variance >= 0 and fourth_moment >= 0):
        raise ValueError("variance and fourth_moment must not be negative")
    check_level(level)
    # Strictly inside the possible range, where every estimator has some error, and so far that
    # the coefficients of the linear program differ by factors that it can solve.
    mean = min(max(mean, 1e-7), 1 - 1e-7)
    variance = min(max(variance, 1e-12), mean * (1 - mean) * (1 - 1e-9))
    fourth_moment = _feasible_fourth_moment(mean, variance, fourth_moment)
    grid = _proportion_grid(mean, variance)

    def solve(size, weight, smooth):
        """Smallest half-width of one group: each bisection step is one linear program."""
        step = weight / size if size else 0.0
        low, high = 0.0, risk(size, weight) / math.sqrt(1 - level) + (step if smooth else 0)
        for _ in range(math.ceil(math.log2(2000 / math.sqrt(1 - level)))):
            middle = (low + high) / 2
            points, noncoverage = _binomial_noncoverage(grid, size, weight, mean, middle, smooth)
            if _worst_mean(points, noncoverage, mean, variance, fourth_moment) > 1 - level:
                low = middle
            else:
                high = middle
        return high

    def risk(size, weight):
        """Root mean squared error of the estimator, the same for all these populations."""
        noise = (mean * (1 - mean) - variance) / np.maximum(size, 1)
        return np.sqrt((1 - weight) ** 2 * variance + weight**2 * noise)

    # Trials without weight are no trials. As complex numbers the pairs sort by trials.
    pairs, inverse = np.unique(np.where(weights > 0, trials, 0) + 1j * weights, return_inverse=True)
    sizes, shares = pairs.real, pairs.imag
    half_widths = np.empty(len(pairs))
    exact = (sizes == 0) | (len(pairs) <= BINOMIAL_NODES)
    for i in np.flatnonzero(exact):
        half_widths[i] = solve(sizes[i], shares[i], smooth=False)
    if not np.all(exact):
        sizes, shares = sizes[~exact], shares[~exact]
        if np.any(np.diff(sizes) == 0):
            raise ValueError(
                f"with more than {BINOMIAL_NODES} different pairs of trials and weights, equal "
                "trials must have equal weights"
            )
        spread = np.geomspace(sizes[0], sizes[-1], BINOMIAL_NODES)
        nodes = np.unique(np.searchsorted(sizes, spread).clip(max=len(sizes) - 1))
        ratio = [
            solve(n, a, smooth=True) / risk(n, a)
            for n, a in zip(sizes[nodes], shares[nodes], strict=True)
        ]
        curve = PchipInterpolator(np.log(sizes[nodes]), ratio)
        half_widths[~exact] = curve(np.log(sizes)) * risk(sizes, shares)
    return half_widths[inverse]


def _proportion_grid(mean: float, variance: float) -> NDArray:
    """Support of the linear program: both the unit interval and the population resolved."""
    deviation = math.sqrt(variance)
    around = deviation * np.geomspace(1 / 8, 8, 97)  # the middle one is the deviation
    points = np.concatenate(
        [
            np.sin(np.linspace(0, np.pi / 2, 101)) ** 2,  # finer where binomials are narrower
            mean - around,
            [mean],
            mean + around,
            [mean - variance / (1 - mean), mean + variance / mean],  # partners of 1 and of 0
        ]
    )
    return np.unique(points[(points >= 0) & (points <= 1)])


def _binomial_noncoverage(
    grid: NDArray, size: float, weight: float, mean: float, half_width: float, smooth: bool
) -> tuple[NDArray, NDArray]:
    """Probabilities that the interval misses ``p``, and the points ``p`` they belong to.

    In units of the spacing ``a / n`` of the estimates, ``p`` is covered by the counts in a
    window ``[x, x + length]`` that moves with ``p``. The smooth bound keeps the counts of the
    shorter ``(x, x + length - 1]``, which is inside whatever the lattice, and continues the
    distribution function of the count between the integers.
    """
    spacing = weight / size if size else 1.0
    centre = (1 - weight) * mean
    length = 2 * half_width / spacing
    # Where the bias (1 - a) (p - mean) comes near the half-width, the noncoverage climbs from
    # the noise level to one within a few standard deviations of the estimate.
    noise = weight * math.sqrt(mean * (1 - mean) / max(size, 1))
    climb = (half_width + noise * np.linspace(-4, 4, 33)) / max(1 - weight, 1e-9)
    grid = np.concatenate([grid, mean - climb, mean + climb])
    grid = grid[(grid >= 0) & (grid <= 1)]
    lower = (grid - half_width - centre) / spacing
    # Just above p_hat(z) + h the count z is lost, just below p_hat(z) - h as well.
    lost_below = np.unique(np.clip(np.round(lower), 0, size))
    lost_above = np.unique(np.clip(np.round(lower + length), 0, size))
    points = np.concatenate(
        [
            grid,
            centre + spacing * lost_below + half_width,
            centre + spacing * lost_above - half_width,
        ]
    )
    if smooth:
        after = (points - half_width - centre) / spacing
        last = np.maximum(after, after + length - 1)
    else:
        count = np.floor(length)  # the fewest lattice points a window can hold
        after = np.concatenate([np.ceil(lower) - 1, lost_below, lost_above - count - 1])
        last = np.concatenate([np.floor(lower + length), lost_below + count, lost_above - 1])
    inside = (points >= 0) & (points <= 1)
    p, after, last = points[inside], after[inside], last[inside]
    return p, 1 - _binomial_cdf(last, size, p) + _binomial_cdf(after, size, p)


def _binomial_cdf(count: NDArray, size: float, p: NDArray) -> NDArray:
    """Binomial distribution function, continued between the integers by the beta integral."""
    inside = (count > -1) & (count < size)
    k = np.where(inside, count, 0)
    return np.where(inside, betainc(np.maximum(size - k, 1e-300), k + 1, 1 - p), count >= size)


def _worst_mean(
    points: NDArray, values: NDArray, mean: float, variance: float, fourth_moment: float
) -> float:
    """Largest mean of `values` over the laws on `points` with the given moments."""
    from scipy.optimize import linprog

    x = (points - mean) / math.sqrt(variance)
    tail = x**4 * (variance**2 / fourth_moment)
    # Far points have large moments and little mass. As unknowns take the mass times 1 + tail,
    # which sums to two at most, so that the solver's tolerances mean the same everywhere.
    scale = 1 / (1 + tail)
    room = 1e-6  # moments at the edge of the possible ones leave a single law
    for method in ("highs", "highs-ipm"):  # the simplex method may stall on columns this alike
        solution = linprog(
            -values * scale,
            A_eq=scale * np.array([np.ones_like(x), x]),
            b_eq=[1, 0],
            A_ub=scale * np.array([x**2, -(x**2), tail]),
            b_ub=[1, room - 1, 1 + room],
            method=method,
        )
        if solution.status == 0:
            return float(values @ (scale * np.asarray(solution.x)))
    raise RuntimeError(f"the linear program of the worst case failed: {solution.message}")


def moments_of(likelihood: Gaussian) -> dict[str, NDArray] | None:
    """Learn the moments of a population from messages, each column alone.

    The mean is weighted by ``1 / (t + s_i**2)``, with t of Paule and Mandel: the sum of the squared
    deviations so weighted is its expectation n - 1.

    Returns
    -------
    dict of ndarray of shape (d,), or None
        Mean, ``mean_variance`` (the sampling variance of the mean), ``second`` central moment and
        ``kurtosis``. None where a column has no message with an error that is neither zero nor
        infinite.

    References
    ----------
    R. C. Paule and J. Mandel (1982), Consensus values and weighting factors, Journal of Research of
    the National Bureau of Standards 87, 377-385.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> theta = rng.choice([1.0, 5.0], (5000, 1))  # variance 4, kurtosis 1
    >>> from ebfed.likelihoods import Gaussian
    >>> messages = Gaussian(theta + rng.standard_normal((5000, 1)), np.ones((5000, 1)))
    >>> {name: round(x.item(), 1) for name, x in moments_of(messages).items()}
    {'mean': 3.0, 'mean_variance': 0.0, 'second': 4.0, 'kurtosis': 1.0}
    """
    variances = np.broadcast_to(likelihood.variances, likelihood.values.shape)
    columns = []
    both = (np.ascontiguousarray(each.T) for each in (likelihood.values, variances))
    for values, variance in zip(*both, strict=True):
        has_data = np.isfinite(variance) & (variance > 0)
        if not has_data.any():
            return None
        if not has_data.all():
            values, variance = values[has_data], variance[has_data]
        mean, weights = _centre(values, variance)
        second, kurtosis = moments_around(values - mean, variance)
        columns.append((mean, weights**2 @ (second + variance), second, kurtosis))
    names = ("mean", "mean_variance", "second", "kurtosis")
    return dict(zip(names, np.array(columns).T, strict=True))


def _centre(values: NDArray, variances: NDArray) -> tuple[float, NDArray]:
    """Weighted mean of values, and the weights, which sum to one."""
    spread, n = 0.0, len(values)
    for _ in range(50):
        weights = 1 / (spread + variances)
        total = float(weights.sum())
        mean = float(weights @ values) / total
        ratios = weights * (values - mean) ** 2
        excess = float(ratios.sum()) / max(n - 1, 1)
        if excess < 1 + 1e-3:
            break
        # Newton's method for 1 / excess = 1, as in `_efficient_weights`
        spread += excess * (excess - 1) * (n - 1) / float(ratios @ weights)
    return mean, weights / total


def moments_around(deviations: NDArray, variances: NDArray) -> tuple[float, float]:
    """Second moment and kurtosis of a population, each raised by its standard error."""
    unit = variances.max()  # keeps fourth powers within range
    second, kurtosis = gaussian_moments(deviations / np.sqrt(unit), variances / unit, margin=1.0)
    return float(unit * second), kurtosis


def half_widths(
    own: NDArray, away: NDArray, moments: dict[str, NDArray], level: float
) -> NDArray[np.float64]:
    """Half-widths ``s cva((1 - a)**2 mu_2 / s**2, kappa)`` of robust intervals, shape (n, d).

    Parameters
    ----------
    own : ndarray of shape (n, d)
        Variance ``a**2 s_i**2`` of the own estimate's part.
    away : ndarray of shape (n, d)
        Weight ``1 - a`` of the mean.
    moments : dict
        As of `moments_of`; ``mean_variance`` may have shape (n, d).
    level : float
    """
    bias = away**2 * moments["second"]
    # the floor keeps the ratio finite where the estimate is all mean
    variance = np.maximum(own + away**2 * moments["mean_variance"], 1e-6 * bias)
    ratio = np.divide(bias, variance, out=np.zeros_like(bias), where=variance > 0)
    critical = [
        gaussian_critical_value(column, kurtosis, level)
        for column, kurtosis in zip(ratio.T, moments["kurtosis"], strict=True)
    ]
    return np.sqrt(variance) * np.stack(critical, axis=1)


# Every fitted population goes with a straight line ``theta_hat_i = mean + a_i (x_i - mean)``,
# ``a_i = mu_2 / (mu_2 + s_i**2)``, where the mean and the moments around it are those that the
# messages show. Robust intervals hold for it, and not for the curve that a posterior mean may be.


@dataclass(frozen=True)
class LinearShrinkage:
    """Estimates shrunk along a line.

    Parameters
    ----------
    moments : dict
        Moments of the population, as of `moments_of`.
    likelihood : Gaussian
        Estimates of n clients. A variance of 0 returns the value, an infinite one the mean.
    """

    moments: dict[str, NDArray]
    likelihood: Gaussian

    def interval(self, level: float) -> tuple[NDArray, NDArray]:
        """Interval that covers a share `level` of clients from any population of these moments.

        Returns
        -------
        lower, upper : ndarray of shape (n, d)

        References
        ----------
        T. B. Armstrong, M. Kolesár and M. Plagborg-Møller (2022), Robust empirical Bayes confidence
        intervals, Econometrica 90, 2567-2602, section 3.

        Examples
        --------
        >>> exact = {"mean": 0.0, "mean_variance": 0.0, "second": 1.0, "kurtosis": 3.0}
        >>> exact = {name: np.array([x]) for name, x in exact.items()}
        >>> from ebfed.likelihoods import Gaussian
        >>> x = Gaussian(np.array([[2.0], [2.0]]), np.array([[1.0], [0.0]]))
        >>> lower, upper = LinearShrinkage(exact, x).interval(0.95)
        >>> lower.ravel().round(2), upper.ravel().round(2)
        (array([-0.41,  2.  ]), array([2.41, 2.  ]))
        """
        values, mean = self.likelihood.values, self.moments["mean"]
        variances = np.broadcast_to(self.likelihood.variances, values.shape)
        has_data = np.isfinite(variances)
        finite = np.where(has_data, variances, 0.0)
        away = np.where(has_data, finite / (finite + self.moments["second"]), 1.0)
        centre = np.where(has_data, values, mean)
        centre = centre - away * (centre - mean)
        half = half_widths((1 - away) ** 2 * finite, away, self.moments, level)
        return centre - half, centre + half
