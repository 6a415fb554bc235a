"""Student-t noise as a mixture of normals, and what it makes of normal and Laplace populations.

With ``w ~ Gamma(df / 2, df / 2)``, a t error is normal of variance ``s2 / w``. The trapezoidal rule
over ``log w`` turns the integral into a short sum, whose error falls exponentially with the number
of nodes. Nodes of an estimate reach from where noise alone explains it (w far below 1 for an
outlier) to where w is as large as it can be; `DEPTH` is the log of the precision.
"""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.slabs import _add, _laplace_slab, _normal_slab

DEPTH = 17.0
MOST = 4000  # nodes of one estimate; more are never needed
_LOG_2PI = math.log(2.0 * math.pi)


@jit
def _rise(x):
    """``exp(x) - 1 - x``, with all digits near 0."""
    if abs(x) < 0.05:
        return x * x * (0.5 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720)))))
    return math.expm1(x) - x


@jit
def _stirling(a):
    """``log Gamma(a)`` less ``(a - 1/2) log a - a + log(2 pi) / 2``."""
    if a < 10.0:
        return math.lgamma(a) - ((a - 0.5) * math.log(a) - a + 0.5 * _LOG_2PI)
    b = 1.0 / (a * a)
    return (1 / 12 - b * (1 / 360 - b * (1 / 1260 - b / 1680))) / a


@jit
def _step(shape):
    """Distance of nodes: the log of a gamma variable has the characteristic function exp(-DEPTH).

    ``log |Gamma(a + i T) / Gamma(a)|`` is about ``a log(1 + T**2 / a**2) / 2 - T atan(T / a)``.
    """
    turn = math.sqrt(2.0 * shape * DEPTH) + 2.0 * DEPTH / math.pi
    for _ in range(8):
        angle = math.atan(turn / shape)
        fall = turn * angle - 0.5 * shape * math.log1p((turn / shape) ** 2)
        turn += (DEPTH - fall) / angle
    return 2.0 * math.pi / turn


@jit
def _top(degrees):
    """Highest node: beyond it the gamma density of any estimate is negligible."""
    shape = 0.5 * degrees + 0.5
    depth = DEPTH / shape
    root = math.sqrt(2.0 * depth)
    return math.log1p(1.0 / degrees) + min(root, math.log1p(depth + root))


@jit
def _tail(depth):
    """Bound, near to it, on the x > 0 with ``exp(-x) - 1 + x = depth``."""
    return min(depth + 1.0, math.sqrt(2.0 * depth) + 0.5 * depth)


@jit
def _bottom(degrees, z2, low, high):
    """Lowest node, where populations have between `low` and `high` times the noise's variance."""
    shape = 0.5 * degrees + 0.5
    # beside a wide population, the lowest nodes have the largest posterior variance
    depth = DEPTH + 1.5 * math.log1p(high)
    bottom = -math.log((degrees + z2) / (degrees + 1.0)) - _tail(depth / shape)
    if low > 0.0:  # a population explains the estimate to a factor of exp(z2 / (2 low))
        bottom = max(bottom, -_tail((depth + 0.5 * z2 / low) / shape))
    return bottom


@jit
def _log_density(z2, degrees):
    """Log of the t density at ``z**2``, over the peak of the standard normal."""
    if degrees == np.inf:
        return -0.5 * z2
    a = 0.5 * degrees
    tail = -(a + 0.5) * math.log1p(z2 / degrees)
    gap = a * math.log1p(0.5 / a) - 0.5  # of ((a + 1/2) / a)**a from its limit
    return tail + gap + _stirling(a + 0.5) - _stirling(a)


# Of `_fill`: degrees of freedom of the last estimate, how many nodes there are, the highest node,
# and their distance.
_EMPTY = np.inf, 0, 0.0, 1.0


@jit
def _fill(degrees, size, state, logs, factors):
    """Write `size` nodes: log-weights, and the factors ``1 / w`` of the noise's variance.

    Those of the last estimate stay, if this one has its degrees of freedom. Returns the new state.
    """
    last, filled, top, step = state
    if degrees == np.inf:
        logs[0], factors[0] = 0.0, 1.0
        return degrees, 1, top, step
    if degrees != last:
        filled, top, step = 0, _top(degrees), _step(0.5 * degrees + 0.5)
    a = 0.5 * degrees
    level = 0.5 * (math.log(a) - _LOG_2PI) - _stirling(a) + math.log(step)
    for k in range(filled, size):
        at = top - k * step
        logs[k] = level - a * _rise(at)
        factors[k] = math.exp(-at)
    return degrees, size, top, step


@jit
def student_log_density(away, variances, degrees):
    """Log of each t density at `away`, over the peak of a normal one with these variances.

    Parameters
    ----------
    away, variances, degrees : ndarray of shape (n,)

    Returns
    -------
    ndarray of shape (n,)
    """
    out = np.empty(len(away))
    for i in range(len(away)):
        out[i] = _log_density(away[i] * away[i] / variances[i], degrees[i])
    return out


@jit
def student_sizes(away, variances, degrees, lowest, highest):
    """Number of normals that stand for the t density of each error.

    Parameters
    ----------
    away, variances, degrees : ndarray of shape (n,)
        Estimates less the centre of the population, squares of the scale of their noise, and
        degrees of freedom; infinite ones are of one normal.
    lowest, highest : float
        Variances between which those of populations are that will be added to the noise's.

    Returns
    -------
    int64 ndarray of shape (n,)
    """
    sizes = np.ones(len(away), np.int64)
    last, top, step = np.inf, 0.0, 1.0
    for i in range(len(away)):
        df, s2 = degrees[i], variances[i]
        if df == np.inf:
            continue
        if df != last:
            last, top, step = df, _top(df), _step(0.5 * df + 0.5)
        bottom = _bottom(df, away[i] * away[i] / s2, lowest / s2, highest / s2)
        sizes[i] = min(int((top - bottom) / step) + 2, MOST)
    return sizes


@jit
def student_normals(variances, degrees, sizes):
    """Log-weights and variances of the normals that stand for each t density.

    Parameters
    ----------
    variances, degrees : ndarray of shape (n,)
    sizes : int64 ndarray of shape (n,)
        From `student_sizes`.

    Returns
    -------
    logs, spreads : ndarray of shape (k, n)
        k is the largest size; what is beyond that of an error has the log-weight -inf.
    """
    k = sizes.max()
    logs, spreads = np.full((k, len(sizes)), -np.inf), np.ones((k, len(sizes)))
    weights, factors = np.empty(k), np.empty(k)
    state = _EMPTY
    for i in range(len(sizes)):
        df, s2 = degrees[i], variances[i]
        if df == np.inf:
            logs[0, i] = 0.0
            for j in range(k):
                spreads[j, i] = s2
            continue
        if df != state[0] or sizes[i] > state[1]:
            state = _fill(df, sizes[i], state, weights, factors)
        for j in range(sizes[i]):
            logs[j, i] = weights[j]
            spreads[j, i] = s2 * factors[j]
        for j in range(sizes[i], k):
            spreads[j, i] = s2
    return logs, spreads


@jit
def student_normal(away, variances, degrees, sizes, variance):
    """Log-density of estimates with t errors under a normal population, and derivatives.

    Parameters
    ----------
    away, variances, degrees : ndarray of shape (n,)
        Estimates less their population mean, squares of the scale of their noise, degrees of
        freedom.
    sizes : int64 ndarray of shape (n,)
        From `student_sizes`, for this variance.
    variance : float
        Variance of the population.

    Returns
    -------
    ndarray of shape (6, n)
        Log-density; the first four derivatives of the density in the mean, over the density (that
        in the variance is half of the second); mean of one over the variance of the normals.
    """
    n = len(away)
    out = np.empty((6, n))
    k = sizes.max()
    weights, factors = np.zeros(k), np.ones(k)
    levels, inverses = np.empty(k), np.empty(k)
    state = _EMPTY
    for i in range(n):
        df, s2, d = degrees[i], variances[i], away[i]
        size = sizes[i]
        if df != state[0] or size > state[1]:
            state = _fill(df, size, state, weights, factors)
        square = -0.5 * d * d
        highest = -np.inf
        for j in range(size):
            inverse = 1.0 / (variance + s2 * factors[j])
            inverses[j] = inverse
            levels[j] = weights[j] + square * inverse
            highest = max(highest, levels[j])
        total = second = third = fourth = precision = 0.0
        d2 = d * d
        for j in range(size):
            if levels[j] < highest - 45.0:
                continue
            p = inverses[j]
            mass = math.exp(levels[j] - highest) * math.sqrt(p)
            e2 = d2 * p
            total += mass
            mass *= p
            precision += mass
            second += mass * (e2 - 1.0)
            mass *= p
            third += mass * (e2 - 3.0)
            fourth += mass * (e2 * (e2 - 6.0) + 3.0)
        out[0, i] = highest + math.log(total) - 0.5 * _LOG_2PI
        out[1, i] = d * precision / total
        out[2, i] = second / total
        out[3, i] = d * third / total
        out[4, i] = fourth / total
        out[5, i] = precision / total
    return out


@jit
def student_moments(away, variances, degrees, sizes, variance, errors, doubt):
    """Posterior moments under a normal population and t errors.

    Parameters
    ----------
    away, variances, degrees : ndarray of shape (n,)
        Estimates less their population mean, squares of the scale of their noise, degrees of
        freedom.
    sizes : int64 ndarray of shape (n,)
        From `student_sizes`, for this variance.
    variance : float
        Variance of the population.
    errors : ndarray of shape (n,)
        Sampling variances of the population means.
    doubt : float
        Sampling variance of `variance`.

    Returns
    -------
    ndarray of shape (2, n)
        Posterior means less the population means, and posterior variances; see
        `priors.normal.StudentPosterior`.
    """
    n = len(away)
    out = np.empty((2, n))
    k = sizes.max()
    weights, factors = np.zeros(k), np.ones(k)
    levels, inverses = np.empty(k), np.empty(k)
    state = _EMPTY
    for i in range(n):
        df, s2, d = degrees[i], variances[i], away[i]
        size = sizes[i]
        if df != state[0] or size > state[1]:
            state = _fill(df, size, state, weights, factors)
        highest = -np.inf
        for j in range(size):
            inverse = 1.0 / (variance + s2 * factors[j])
            inverses[j] = inverse
            levels[j] = weights[j] - 0.5 * d * d * inverse
            highest = max(highest, levels[j])
        total = share = square = spread = 0.0
        for j in range(size):
            if levels[j] < highest - 45.0:
                continue
            p = inverses[j]
            mass = math.exp(levels[j] - highest) * math.sqrt(p)
            own = variance * p
            rest = s2 * factors[j] * p
            total += mass
            share += mass * own
            square += mass * own * own
            spread += mass * (variance * rest + rest * rest * (errors[i] + 2.0 * doubt * p))
        share /= total
        out[0, i] = share * d
        out[1, i] = spread / total + d * d * max(square / total - share * share, 0.0)
    return out


@jit
def student_blurred(away, variances, degrees, scales, laplace):
    """Log-density of estimates with t errors under slabs, over the peak of normal errors.

    Parameters
    ----------
    away, variances, degrees : ndarray of shape (n,)
        Estimates less the mode, squares of the scale of their noise, degrees of freedom.
    scales : ndarray of shape (k,)
        Positive scales of the slabs.
    laplace : bool
        Whether slabs are Laplace; else they are normal.

    Returns
    -------
    ndarray of shape (k, n)
    """
    n = len(away)
    out = np.empty((len(scales), n))
    for row in range(len(scales)):
        square = scales[row] * scales[row]
        sizes = student_sizes(away, variances, degrees, square, square)
        k = sizes.max()
        weights, factors, levels = np.zeros(k), np.ones(k), np.empty(k)
        state = _EMPTY
        for i in range(n):
            df, size = degrees[i], sizes[i]
            if df != state[0] or size > state[1]:
                state = _fill(df, size, state, weights, factors)
            highest = -np.inf
            for j in range(size):
                spread = variances[i] * factors[j]
                if laplace:
                    level, root, _, _, _, _, _ = _laplace_slab(away[i], spread, square)
                else:
                    level, root, _, _, _, _, _ = _normal_slab(away[i], spread, square)
                levels[j] = level + weights[j] + math.log(root) - 0.5 * math.log(factors[j])
                highest = max(highest, levels[j])
            total = 0.0
            for j in range(size):
                total += math.exp(levels[j] - highest)
            out[row, i] = highest + math.log(total)
    return out


@jit
def student_slab(values, variances, degrees, sizes, counts, weight, scale, mode, laplace):
    """Log-likelihood of a point and a slab under t errors; see `point_and_slab`.

    Parameters
    ----------
    values, variances, degrees : ndarray of shape (n,)
    sizes : int64 ndarray of shape (n,)
        From `student_sizes`, for the square of the scale.
    counts : ndarray of shape (n,)
        What each estimate counts in the sums.
    weight, scale, mode : float
        Parameters of the population; the weight of the slab must be positive.
    laplace : bool
        Whether the slab is Laplace; else it is normal.

    Returns
    -------
    ndarray of shape (10,)
        Value; slopes in weight, log scale, mode; second derivatives in the order of an upper
        triangle.
    """
    out, each = np.zeros(10), np.empty(10)
    k = sizes.max()
    weights, factors, levels = np.zeros(k), np.ones(k), np.empty(k)
    parts = np.empty((k, 5))
    state = _EMPTY
    for i in range(len(values)):
        u, s2, df = values[i] - mode, variances[i], degrees[i]
        size = sizes[i]
        if df != state[0] or size > state[1]:
            state = _fill(df, size, state, weights, factors)
        highest = -np.inf
        for j in range(size):
            spread = s2 * factors[j]
            if laplace:
                level, root, a, aa, by_u, au, uu = _laplace_slab(u, spread, scale * scale)
            else:
                level, root, a, aa, by_u, au, uu = _normal_slab(u, spread, scale * scale)
            # densities are over the peak of their own normal
            levels[j] = level + weights[j] + math.log(root) - 0.5 * math.log(factors[j])
            highest = max(highest, levels[j])
            part = parts[j]
            part[0], part[1], part[2], part[3], part[4] = a, aa, by_u, au, uu
        total = a = aa = by_u = au = uu = 0.0
        for j in range(size):
            mass = math.exp(levels[j] - highest)
            part = parts[j]
            total += mass
            a += mass * part[0]
            aa += mass * (part[1] + part[0] * part[0])
            by_u += mass * part[2]
            au += mass * (part[3] + part[0] * part[2])
            uu += mass * (part[4] + part[2] * part[2])
        a, by_u = a / total, by_u / total
        aa, au, uu = aa / total - a * a, au / total - a * by_u, uu / total - by_u * by_u
        z2 = u * u / s2
        pull, bend = u / s2, 1.0 / s2
        if df != np.inf:
            tail = df + z2
            pull *= (df + 1.0) / tail
            bend *= (df + 1.0) * (df - z2) / (tail * tail)
        slab = (highest + math.log(total), 1.0, a, aa, by_u, au, uu)
        each[:] = 0.0
        _add(each, weight, slab, (_log_density(z2, df), pull, bend))
        for j in range(10):
            out[j] += counts[i] * each[j]
    return out
