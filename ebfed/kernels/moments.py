"""Weighted moments of messages, for many between-group variances in one pass."""

import math

import numpy as np

from ebfed.kernels._jit import jit

# Number of totals whose product's logarithm is taken at once, where they are not further apart.
_BLOCK, _APART = 8, 1e30


@jit
def weighted_moments(ratios, variances, counts, means, scatters, mean):
    """Mean, squares and their slopes of messages with the variances ``t_ij = ratio_j + v_i``.

    Parameters
    ----------
    ratios : float64 ndarray of shape (k,)
    variances, counts, means, scatters : float64 ndarrays of shape (n,)
        Variances v_i; number, mean and scatter of the messages of each.
    mean : float
        Mean of all; NaN: the weighted one.

    Returns
    -------
    ndarray of shape (6, k)
        With weights ``w_ij = counts_i / t_ij`` and squares ``q_ij = (scatters_i + counts_i (means_i
        - mean_j)**2) / t_ij``, sums over i: of w, the mean, and sums of q, ``counts log t``, ``w /
        t`` and ``q / t``. The mean is zero where no weight is left.
    """
    k, n = len(ratios), len(variances)
    found = np.zeros((6, k))
    weight, centre, square, log_det = found[0], found[1], found[2], found[3]
    slope, slope_square = found[4], found[5]
    low, high, size = math.inf, 0.0, 0.0
    for i in range(n):
        v, c, m = variances[i], counts[i], means[i]
        low, high, size = min(low, v), max(high, v), size + c
        for j in range(k):
            inverse = 1.0 / (v + ratios[j])
            weight[j] += c * inverse
            centre[j] += c * inverse * m
            slope[j] += c * inverse * inverse
    unit, product, block = np.ones(k), np.ones(k), _BLOCK if high < _APART * low else 1
    for j in range(k):
        centre[j] = centre[j] / weight[j] if weight[j] != 0.0 else 0.0
        if not math.isnan(mean):
            centre[j] = mean
        if n and low + ratios[j] > 0.0:
            unit[j] = 1.0 / (low + ratios[j])
    waiting = 0
    for i in range(n):
        v, c, m, s = variances[i], counts[i], means[i], scatters[i]
        for j in range(k):
            total = v + ratios[j]
            inverse = 1.0 / total
            q = (s + c * (m - centre[j]) ** 2) * inverse
            square[j] += q
            slope_square[j] += q * inverse
        if c == 1.0:
            for j in range(k):
                product[j] *= (v + ratios[j]) * unit[j]
            waiting += 1
        elif c != 0.0:
            for j in range(k):
                log_det[j] += c * math.log((v + ratios[j]) * unit[j])
        if waiting == block or i == n - 1:
            for j in range(k):
                log_det[j] += math.log(product[j])
                product[j] = 1.0
            waiting = 0
    for j in range(k):
        log_det[j] -= size * math.log(unit[j])
    return found
