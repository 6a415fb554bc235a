"""Rising factorials, the ingredient of beta-binomial probabilities, and their derivatives."""

import math

import numpy as np

from ebfed.kernels._jit import jit

# Terms that are added up one by one: beyond as many, Euler's and Maclaurin's formula is exact.
_FIRST = 16
# Counts from which the formula is faster.
_MANY = 64


@jit
def rising_sums(starts, counts, step):
    """Sums over ``j < counts[i]`` of functions of ``x = starts[i] + j * step``.

    Parameters
    ----------
    starts : ndarray of shape (n,)
        Positive.
    counts : int64 ndarray of shape (n,)
    step : float
        Not negative.

    Returns
    -------
    ndarray of shape (n, 4)
        Columns: sums of ``log x``, ``1 / x``, ``1 / x**2`` and ``j / x``.
    """
    sums = np.zeros((len(starts), 4))
    for i in range(len(starts)):
        first = counts[i] if counts[i] < _MANY else _FIRST
        log, inverse, square, weighted, product = 0.0, 0.0, 0.0, 0.0, 1.0
        for j in range(first):
            x = starts[i] + j * step
            product *= x
            if not 1e-200 < product < 1e200:  # one logarithm for many factors
                log += np.log(product)
                product = 1.0
            inverse += 1 / x
            square += 1 / (x * x)
            weighted += j / x
        log += np.log(product)
        if first < counts[i]:
            rest = _sums_far_out(starts[i] + first * step, counts[i] - first, step)
            log += rest[0]
            inverse += rest[1]
            square += rest[2]
            weighted += first * rest[1] + rest[3]
        sums[i, 0], sums[i, 1], sums[i, 2], sums[i, 3] = log, inverse, square, weighted
    return sums


@jit
def tallied_sums(start, step, exceeding, values, times, with_log):
    """Add up the sums of `rising_sums` over many counts that share a start.

    Parameters
    ----------
    start, step : float
        As in `rising_sums`.
    exceeding : ndarray of shape (k,)
        Number of counts that exceed 0, 1, ..., k - 1; k is 0 or at least 16.
    values, times : ndarray of shape (m,)
        Counts that exceed k, and how many there are of each.
    with_log : bool
        Whether the sum of logarithms is wanted; else it is 0.

    Returns
    -------
    tuple of four floats
        Sums of ``log x``, ``1 / x``, ``1 / x**2`` and ``j / x``.
    """
    log, inverse, square, weighted = 0.0, 0.0, 0.0, 0.0
    first = len(exceeding)
    for j in range(first):
        unit = 1.0 / (start + j * step)
        share = exceeding[j] * unit
        inverse += share
        square += share * unit
        weighted += j * share
    if with_log:
        for j in range(first):
            if exceeding[j] > 0.0:  # the start may be 0 where nothing does
                log += exceeding[j] * np.log(start + j * step)
    for i in range(len(values)):
        rest = _sums_far_out(start + first * step, values[i] - first, step)
        log += times[i] * rest[0]
        inverse += times[i] * rest[1]
        square += times[i] * rest[2]
        weighted += times[i] * (first * rest[1] + rest[3])
    return log, inverse, square, weighted


@jit
def dirichlet_profiles(dispersions, start, counts, both):
    """Best shares given each overdispersion, by Newton's method; their log-likelihood is concave.

    Second derivatives are a diagonal, and shares add up to 1, so that a step costs as much as the
    sums (Minka, 2000).

    Parameters
    ----------
    dispersions : ndarray of shape (m,)
        Not negative.
    start : ndarray of shape (k,)
        Positive shares that add up to 1, of categories that were counted, from which the first
        search starts; others start at those before.
    counts : tuple of five ndarrays
        Counts of all categories, one after another, as `tallied_sums` takes them: how many exceed
        each number, where those of each category begin, (k + 1,), counts beyond, how many there are
        of each, and where those of each category begin.
    both : tuple of three ndarrays
        Totals of all categories.

    Returns
    -------
    shares : ndarray of shape (m, k)
    values, slopes : ndarray of shape (m,)
        Log-likelihoods there, and their derivatives in the overdispersion.
    """
    m, k = len(dispersions), len(start)
    found, values, slopes = np.empty((m, k)), np.empty(m), np.empty(m)
    shares, gradient, inverse = start.copy(), np.empty(k), np.empty(k)
    for i in range(m):
        for _ in range(100):
            level, total = 0.0, 0.0
            for j in range(k):
                sums = _of_category(j, shares[j], dispersions[i], counts, False)
                gradient[j], inverse[j] = sums[1], 1.0 / sums[2]
                level += gradient[j] * inverse[j]
                total += inverse[j]
            size, largest = 1.0, 0.0
            for j in range(k):
                step = (gradient[j] - level / total) * inverse[j]
                while shares[j] + size * step <= 0.0:
                    size /= 2.0
                largest = max(largest, abs(step) / shares[j])
            for j in range(k):
                shares[j] += size * (gradient[j] - level / total) * inverse[j]
            if largest < 1e-14:
                break
        found[i] = shares
        values[i], slopes[i] = _dirichlet(dispersions[i], shares, counts, both)
    return found, values, slopes


@jit
def dirichlet_values(dispersions, shares, counts, both):
    """Log-likelihood of the counts of `dirichlet_profiles` at points, shape (m,) and (m, k)."""
    values = np.empty(len(dispersions))
    for i in range(len(dispersions)):
        values[i], _ = _dirichlet(dispersions[i], shares[i], counts, both)
    return values


@jit
def _dirichlet(dispersion, shares, counts, both):
    """Log-likelihood, and its derivative in the overdispersion."""
    all_ = tallied_sums(1.0, dispersion, both[0], both[1], both[2], True)
    value, slope = -all_[0], -all_[3]
    for j in range(len(shares)):
        sums = _of_category(j, shares[j], dispersion, counts, True)
        value += sums[0]
        slope += sums[3]
    return value, slope


@jit
def _of_category(j, share, dispersion, counts, with_log):
    """`tallied_sums` of one category."""
    exceeding, edges, values, times, ends = counts
    some, rest = slice(edges[j], edges[j + 1]), slice(ends[j], ends[j + 1])
    return tallied_sums(share, dispersion, exceeding[some], values[rest], times[rest], with_log)


@jit
def negative_binomial_profiles(dispersions, log_rate, counts, exposure, groups, events):
    """Best logarithm of the mean rate given each overdispersion, in which it is concave.

    Newton's method, within what the signs of slopes have shown.

    Parameters
    ----------
    dispersions : ndarray of shape (k,)
        Not negative.
    log_rate : float
        Where the first search starts; others start at the one before.
    counts : tuple of three ndarrays
        Events of each group, as `tallied_sums` takes them.
    exposure, groups, events : ndarray of shape (n,)
        Different exposures; how many groups have each, and their events.

    Returns
    -------
    ndarray of shape (3, k)
        Logarithms of the mean, log-likelihoods there up to a constant, and their derivatives in the
        overdispersion.
    """
    found, table = np.empty((3, len(dispersions))), (exposure, groups, events)
    for i in range(len(dispersions)):
        log_rate = _best_log_rate(dispersions[i], log_rate, *table)
        found[0, i] = log_rate
        found[1, i], found[2, i] = _negative_binomial(dispersions[i], log_rate, counts, *table)
    return found


@jit
def _best_log_rate(dispersion, log_rate, exposure, groups, events):
    low, high = -np.inf, np.inf
    for _ in range(200):
        rate, gain, bend = math.exp(log_rate), 0.0, 0.0
        for i in range(len(exposure)):
            mean = exposure[i] * rate
            share = 1.0 / (1.0 + dispersion * mean)
            gain += (events[i] - groups[i] * mean) * share
            bend += mean * (groups[i] + dispersion * events[i]) * share * share
        step = min(max(gain / bend, -5.0), 5.0)
        low, high = (log_rate, high) if gain > 0.0 else (low, log_rate)
        if abs(step) < 1e-14 * (1.0 + abs(log_rate)):
            break
        log_rate = log_rate + step if low < log_rate + step < high else 0.5 * (low + high)
    return log_rate


@jit
def negative_binomial_values(log_rates, dispersions, counts, exposure, groups, events):
    """Log-likelihood of the counts of `negative_binomial_profiles` at some points.

    Parameters
    ----------
    log_rates, dispersions : ndarray of shape (k,)
    counts, exposure, groups, events : see `negative_binomial_profiles`

    Returns
    -------
    ndarray of shape (k,)
    """
    values = np.empty(len(log_rates))
    for i in range(len(log_rates)):
        values[i], _ = _negative_binomial(
            dispersions[i], log_rates[i], counts, exposure, groups, events
        )
    return values


@jit
def _negative_binomial(dispersion, log_rate, counts, exposure, groups, events):
    """Log-likelihood up to a constant, and its derivative in the overdispersion."""
    rising = tallied_sums(1.0, dispersion, counts[0], counts[1], counts[2], True)
    rate, value, slope = math.exp(log_rate), rising[0], rising[3]
    for i in range(len(exposure)):
        mean = exposure[i] * rate
        x = dispersion * mean
        log = math.log1p(x)
        over = log / x if x > 1e-8 else 1.0 - 0.5 * x
        bent = (x / (1.0 + x) - log) / (x * x) if x > 1e-4 else -0.5 + x * (2.0 / 3.0 - 0.75 * x)
        value -= groups[i] * mean * over
        if events[i] != 0.0:  # the exposure may be any where there are none
            value += events[i] * (math.log(exposure[i]) + log_rate - log)
        slope -= events[i] * mean / (1.0 + x) + groups[i] * mean * mean * bent
    return value, slope


@jit
def _sums_far_out(start, count, step):
    """Return what `rising_sums` does, for a start of at least 16 steps, in constant time.

    By Euler's and Maclaurin's formula: integrals from start to end, half the ends, and odd
    derivatives there, whose terms fall like ``(step / start)**2``; of the first that is left out
    (the sixth), 1e-14 of the largest term remains. Nothing is divided by the step, which may be 0.
    """
    end = start + count * step
    ratio = count * step / start
    growth = math.log1p(ratio)
    by_log, by_weight = 0.0, 0.0
    by_inverse = growth / ratio if ratio > 0.0 else 1.0
    if ratio > 0.03:
        by_log = (1.0 + ratio) * by_inverse - 1.0
        by_weight = (1.0 - by_inverse) / ratio
    else:  # these cancel: their series, from the last term to the first
        for k in range(13, 1, -1):
            by_log = ratio * (1.0 / (k * (k - 1)) - by_log)
            by_weight = 1.0 / k - ratio * by_weight
    low, high = _corrections(step / start), _corrections(step / end)
    log = count * (math.log(start) + by_log) - 0.5 * growth + high[0] - low[0]
    inverse = count / start * by_inverse + (0.5 + low[1]) / start - (0.5 + high[1]) / end
    square = count / start / end + (0.5 + low[2]) / start**2 - (0.5 + high[2]) / end**2
    weighted = count * (count / start) * by_weight - 0.5 * count / end
    weighted += start / end * high[3] / end - low[3] / start
    return log, inverse, square, weighted


@jit
def _corrections(q):
    """Bernoulli's numbers with odd derivatives of ``log x``, ``1 / x``, ``1 / x**2``, ``j / x``.

    In units of 1, -1 / x, -1 / x**2, and start / x**2; q is the step over x.
    """
    s = q * q
    log = q * (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188))))
    weighted = 1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s / 132)))
    square = q * (1 / 6 - s * (1 / 30 - s * (1 / 42 - s * (1 / 30 - s * 5 / 66))))
    return log, q * weighted, square, weighted
