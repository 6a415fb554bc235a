"""Expectation propagation of clients' logistic regressions, and averages of the logistic function.

Rows are those of one client after another, with ``P(success) = 1 / (1 + exp(-offset - x' eta))``
and a standard normal prior of the d coefficients eta; a population N(mu, L L') is brought to that
form by ``X L`` and ``X mu``.
"""

import math

import numpy as np

from ebfed.kernels._jit import jit

REACH = 8.0  # standard deviations on each side of the mode that integrals cover
# Steps of the trapezoidal rule, in standard deviations and in units of the logit (whose logistic
# function has its poles pi away from the line): errors are below 1e-6, and of the finer step 1e-12.
STEP, LOGIT_STEP, FINE_STEP = 0.7, 1.0, 0.5
MOST = 400  # nodes of an integral on each side
NEAR, FAR = 30.0, 600.0  # modes beyond which the logistic function is as good as 1, or no float
SMALLEST = 1e-3  # sd; what is narrower is integrated as if it had this one


@jit
def expectation_propagation(
    X, offset, y, weight, indptr, tolerance, max_sweeps, fresh, precision, shift, mean, evidence,
    push, pull, bend,
):  # fmt: skip
    """Match posteriors by Gaussians, row by row, until they agree (Minka, 2001).

    Each success, and each failure, of a row is stood in for by ``exp(shift * z - precision * z^2 /
    2)`` in its linear predictor ``z = x' eta``, so that the Gaussian posterior has mean and
    variance of z right were the others' stand-ins true. Those of one row are alike. The evidence is
    stationary in all stand-ins, which are thus constant in its slopes.

    Parameters
    ----------
    X : float64 ndarray of shape (n_rows, d)
    offset, y, weight : float64 ndarrays of shape (n_rows,)
        A row has ``weight`` trials, of which the share y are successes.
    indptr : int64 ndarray of shape (n_clients + 1,)
    tolerance : float
        A client is done when no row moves its posterior mean of z by more than this share of the
        standard deviation, or a variance by that share.
    max_sweeps : int
    fresh : bool
        Whether stand-ins to begin with are those of rows at `mean`; else they are given.
    precision, shift : float64 ndarrays of shape (n_rows, 2)
        Stand-ins of a success and of a failure of each row; those found are written to them.
    mean : float64 ndarray of shape (n_clients, d)
        Is overwritten with the means of posteriors.
    evidence : float64 ndarray of shape (n_clients,)
        Is overwritten with the logarithm of the marginal likelihood.
    push, bend : float64 ndarrays of shape (n_rows,)
    pull : float64 ndarray of shape (n_rows, d)
        Are overwritten with slopes of the evidence in offsets, precisions of stand-ins, and slopes
        in the entries of X.

    Returns
    -------
    int
        Number of clients that were not done in `max_sweeps`.
    """
    d = X.shape[1]
    a, V, sums, moments = np.empty(d), np.empty((d, d)), np.empty(3), np.empty(3)
    unfinished = 0
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        m = mean[i]
        if fresh:
            _begin(X, offset, y, weight, first, last, m, precision, shift)
        _include(X, y, weight, first, last, precision, shift, m, V, a)
        moved = np.inf
        for _ in range(max_sweeps):
            moved = _sweep(
                X, offset, y, weight, first, last, precision, shift, m, V, a, sums, moments
            )
            if moved <= tolerance:
                break
        unfinished += moved > tolerance
        # from the prior again, which removes the rounding errors of the updates
        evidence[i] = _include(X, y, weight, first, last, precision, shift, m, V, a)
        for row in range(first, last):
            z, v = _project(X[row], m, V, a)
            push[row], bend[row] = 0.0, 0.0
            for kind in range(2):
                times, power = _copies(y[row], weight[row], kind)
                if times == 0:
                    continue
                own, by = precision[row, kind], shift[row, kind]
                free = 1 - own * v
                centre, cavity = (z - v * by) / free, v / free
                sign = 1.0 - 2 * kind
                _tilted(centre + offset[row], cavity, sign, power, LOGIT_STEP, sums, moments)
                evidence[i] += times * (moments[0] - _weight(centre, cavity, own, by))
                bend[row] += times * own
                push[row] += times * (by - own * z)
            for j in range(d):
                pull[row, j] = push[row] * m[j] - bend[row] * a[j]
    return unfinished


@jit
def _copies(y, weight, kind):
    """Number of successes of a row, or of failures, and their power: 1, or their share of one."""
    times = weight * (y if kind == 0 else 1 - y)
    return (1.0, times) if 0 < times < 1 else (times, 1.0)


@jit
def _begin(X, offset, y, weight, first, last, m, precision, shift):
    """Stand-ins that have the slopes and curvatures of rows at m."""
    for row in range(first, last):
        z = 0.0
        for j in range(len(m)):
            z += X[row, j] * m[j]
        p = _logistic(z + offset[row])
        for kind in range(2):
            _, power = _copies(y[row], weight[row], kind)
            precision[row, kind] = power * p * (1 - p)
            shift[row, kind] = power * ((1 - kind) - p) + precision[row, kind] * z


@jit
def _sweep(X, offset, y, weight, first, last, precision, shift, m, V, a, sums, moments):
    """Match the stand-ins of each row once; the largest move, in standard deviations."""
    moved = 0.0
    for row in range(first, last):
        for kind in range(2):
            times, power = _copies(y[row], weight[row], kind)
            if times == 0:
                continue
            own, by = precision[row, kind], shift[row, kind]
            z, v = _project(X[row], m, V, a)
            free = 1 - own * v
            cavity, centre = v / free, (z - v * by) / free
            sign = 1.0 - 2 * kind
            _tilted(centre + offset[row], cavity, sign, power, LOGIT_STEP, sums, moments)
            left = 1 - cavity * moments[2]
            precision[row, kind] = moments[2] / left
            shift[row, kind] = (moments[1] + centre * moments[2]) / left
            more = times * (precision[row, kind] - own)
            push = (times * (shift[row, kind] - by) - more * z) / (1 + more * v)
            _move(m, V, a, more / (1 + more * v), push)
            moved = max(moved, abs(more * v), abs(push) * math.sqrt(v))
    return moved


@jit
def log_logistic_normal(mean, variance, out):
    """Logarithm of the average of the logistic function over normals.

    Parameters
    ----------
    mean, variance : float64 ndarrays of shape (n,)
    out : float64 ndarray of shape (n,)
        Is overwritten with ``log E 1 / (1 + exp(-z))``, ``z ~ N(mean, variance)``.
    """
    sums, moments = np.empty(3), np.empty(3)
    for k in range(len(out)):
        _tilted(mean[k], variance[k], 1.0, 1.0, FINE_STEP, sums, moments)
        out[k] = moments[0]


@jit
def _tilted(mean, variance, sign, power, logit_step, sums, out):
    """Logarithm of ``E s(sign z)^power``, z normal, its slope in the mean, and minus its curvature.

    By the trapezoidal rule around the mode; s is the logistic function, and the power at most 1.
    """
    m, sd = sign * mean, max(math.sqrt(variance), SMALLEST)
    v = sd * sd
    w = power * v
    low, high = m, m + w  # where the mode is
    mode = m + w * _logistic(-m) / (1 + w * _logistic(m) * _logistic(-m))
    for _ in range(20):
        p = _logistic(-mode)
        slope = m + w * p - mode
        if slope > 0:
            low = mode
        else:
            high = mode
        change = slope / (1 + w * p * (1 - p))
        mode += change
        if not low < mode < high:
            mode = 0.5 * (low + high)
        if abs(change) < 0.1 * sd:
            break
    if abs(mode) > FAR:  # there the function is exp(z), or 1
        tail = mode < 0
        out[0] = power * (m + 0.5 * w) if tail else 0.0
        out[1] = sign * power if tail else 0.0
        out[2] = 0.0
        return
    shift = (mode - m) / sd
    step = max(min(STEP, logit_step / sd), REACH / MOST)
    count = int(REACH / step)
    top = (1 + math.exp(-mode)) ** -power
    sums[0], sums[1], sums[2] = top, 0.0, 0.0
    # weights times logistic function, by products of what changes from node to node
    fall, bend = math.exp(-sd * step), math.exp(-step * step)
    _add_side(step, count, shift, math.exp(-mode), fall, bend, 1.0, power, sums)
    if mode < NEAR:  # as exp(z) / (1 + exp(z)): no factor leaves the range of floats
        e = math.exp(mode)
        _add_side(-step, count, power * sd - shift, e, fall, bend, e**power, power, sums)
    else:
        _add_side(-step, count, -shift, math.exp(-mode), 1 / fall, bend, 1.0, power, sums)
    total, first = sums[0], sums[1] / sums[0]
    spread = sums[2] / total - first * first
    out[0] = math.log(total * step / math.sqrt(2 * math.pi)) - 0.5 * shift * shift
    out[1] = sign * (shift + first) / sd
    out[2] = max(1 - spread, 0.0) / v


@jit
def _add_side(step, count, slope, e, factor, bend, top, power, sums):
    """Add ``top exp(-|t| slope - t^2 / 2) / (1 + e factor^k)^power`` at ``t = k step``, k >= 1."""
    size = abs(step)
    weight, ratio = top, math.exp(-size * (slope + 0.5 * size))
    for k in range(1, count + 1):
        weight *= ratio
        ratio *= bend
        e *= factor
        t = k * step
        value = weight / (1 + e) if power == 1 else weight * (1 + e) ** -power
        sums[0] += value
        value *= t
        sums[1] += value
        sums[2] += value * t


@jit
def _logistic(z):
    if z >= 0:
        return 1 / (1 + math.exp(-z))
    e = math.exp(z)
    return e / (1 + e)


@jit
def _include(X, y, weight, first, last, precision, shift, m, V, a):
    """Posterior under stand-ins of the rows, from the prior; the logarithm of their integral."""
    _reset(V)
    m[:] = 0.0
    total = 0.0
    for row in range(first, last):
        z, v = _project(X[row], m, V, a)
        own, by = 0.0, 0.0
        for kind in range(2):
            times, _ = _copies(y[row], weight[row], kind)
            own += times * precision[row, kind]
            by += times * shift[row, kind]
        total += _weight(z, v, own, by)
        more = 1 + own * v
        _move(m, V, a, own / more, (by - own * z) / more)
    return total


@jit
def _weight(z, v, precision, shift):
    """Logarithm of ``E exp(shift u - precision u^2 / 2)``, ``u ~ N(z, v)``."""
    more = 1 + precision * v
    square = (2 * z * shift + v * shift * shift - precision * z * z) / more
    return 0.5 * (square - math.log(more))


@jit
def _project(x, m, V, a):
    """Mean and variance of x' eta; ``a = V x``."""
    a[:] = 0.0
    for k in range(len(x)):
        for j in range(len(x)):
            a[j] += x[k] * V[k, j]
    z, v = 0.0, 0.0
    for j in range(len(x)):
        z += x[j] * m[j]
        v += x[j] * a[j]
    return z, v


@jit
def _move(m, V, a, shrink, push):
    """Add `push` times a to the mean, take `shrink` times a a' from the covariance."""
    for j in range(len(m)):
        m[j] += push * a[j]
        for k in range(len(m)):
            V[j, k] -= shrink * a[j] * a[k]


@jit
def _reset(V):
    V[:] = 0.0
    for j in range(len(V)):
        V[j, j] = 1.0
