"""Gaussian approximations to the posteriors of clients' logistic regressions.

All kernels take clients' rows one client after another, a standard normal prior of the d
coefficients eta, and ``P(sign = 1) = 1 / (1 + exp(-offset - x' eta))``; a population N(mu, L L') is
brought to that form by ``X L`` and ``X mu``. Modes are in `ebfed.kernels.modes`, for all families.
"""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.small import _cholesky

REACH = 8.0  # standard deviations on each side of the mode that integrals cover
# Steps of the trapezoidal rule, in standard deviations and in units of the logit (whose logistic
# function has its poles pi away from the line): errors are below 1e-6, and of the finer step 1e-12.
STEP, LOGIT_STEP, FINE_STEP = 0.7, 1.0, 0.5
MOST = 400  # nodes of an integral on each side
NEAR, FAR = 30.0, 600.0  # modes beyond which the logistic function is as good as 1, or no float
FAINT = 0.01  # share of the prior variance that rows take away
TRUSTED = 0.1  # share of the points that must count
MOST_FACTORS = 1000  # numbers between 1 and 2 whose product is a float
ROUND = 6755399441055744.0  # 1.5 * 2^52: floats of this size are whole numbers
SMALLEST = 1e-3  # sd; what is narrower is integrated as if it had this one


@jit
def expectation_propagation(
    X, offset, signs, indptr, precision, shift, tolerance, max_sweeps, mean, cov, evidence
):
    """Match posteriors by Gaussians, row by row, until they agree (Minka, 2001).

    A row's likelihood is stood in for by ``exp(shift * z - precision * z^2 / 2)`` in its linear
    predictor ``z = x' eta``, so that the Gaussian posterior has mean and variance of z right were
    the others' stand-ins true.

    Parameters
    ----------
    X : float64 ndarray of shape (n_rows, d)
    offset, signs : float64 ndarrays of shape (n_rows,)
    indptr : int64 ndarray of shape (n_clients + 1,)
    precision, shift : float64 ndarrays of shape (n_rows,)
        Stand-ins to begin with, zeros if none are known; those found are written to them.
    tolerance : float
        A client is done when no row moves its posterior mean of z by more than this share of the
        standard deviation, or a variance by that share.
    max_sweeps : int
    mean : float64 ndarray of shape (n_clients, d)
        Is overwritten.
    cov : float64 ndarray of shape (n_clients, d, d)
        Is overwritten.
    evidence : float64 ndarray of shape (n_clients,)
        Is overwritten with the logarithm of the marginal likelihood.

    Returns
    -------
    int
        Number of clients that were not done in `max_sweeps`.
    """
    d = X.shape[1]
    a, sums, moments = np.empty(d), np.empty(3), np.empty(3)
    unfinished = 0
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        m, V = mean[i], cov[i]
        _include(X, first, last, precision, shift, m, V, a)
        moved = np.inf
        for _ in range(max_sweeps):
            moved = 0.0
            for row in range(first, last):
                z, v = _project(X[row], m, V, a)
                free = 1 - precision[row] * v
                cavity = v / free
                centre = (z - v * shift[row]) / free
                _tilted(centre + offset[row], cavity, signs[row], LOGIT_STEP, sums, moments)
                left = 1 - cavity * moments[2]
                new_precision = moments[2] / left
                new_shift = (moments[1] + centre * moments[2]) / left
                more = new_precision - precision[row]
                push = (new_shift - shift[row] - more * z) / (1 + more * v)
                _move(m, V, a, more / (1 + more * v), push)
                moved = max(moved, abs(more * v), abs(push) * math.sqrt(v))
                precision[row], shift[row] = new_precision, new_shift
            if moved <= tolerance:
                break
        unfinished += moved > tolerance
        # from the prior again, which removes the rounding errors of the updates
        evidence[i] = _include(X, first, last, precision, shift, m, V, a)
        for row in range(first, last):
            z, v = _project(X[row], m, V, a)
            free = 1 - precision[row] * v
            centre, cavity = (z - v * shift[row]) / free, v / free
            _tilted(centre + offset[row], cavity, signs[row], LOGIT_STEP, sums, moments)
            evidence[i] += moments[0] - _weight(centre, cavity, precision[row], shift[row])
    return unfinished


@jit
def importance(X, offset, signs, indptr, points, widening, mean, cov, evidence):
    """Correct normal approximations by importance sampling at given points.

    Points are weighted once for the posterior and once for its approximation, and what differs is
    added to the approximation's moments: where it is exact, nothing is. What is added to a
    coordinate j is multiplied by ``A^2 / (A^2 + FAINT^2)``, ``A = 1 - cov_jj``: where rows say
    almost nothing, it would be noise. Clients for which a few points outweigh all others keep the
    approximation.

    Parameters
    ----------
    X : float64 ndarray of shape (n_rows, d)
    offset, signs : float64 ndarrays of shape (n_rows,)
    indptr : int64 ndarray of shape (n_clients + 1,)
    points : float64 ndarray of shape (n_points, d)
        Points that stand for draws from the standard normal.
    widening : float
        Factor of the standard deviations of the approximation, for draws from it.
    mean : float64 ndarray of shape (n_clients, d)
    cov : float64 ndarray of shape (n_clients, d, d)
    evidence : float64 ndarray of shape (n_clients,)
        Approximations, which are written to.
    """
    n_points, d = points.shape
    root, away = np.empty((d, d)), np.empty((d, n_points))
    posterior, normal = np.empty(n_points), np.empty(n_points)
    z, product = np.empty(n_points), np.empty(n_points)
    shift, share, spread = np.empty(d), np.empty(d), np.empty((d, d))
    for i in range(len(indptr) - 1):
        m, V = mean[i], cov[i]
        root[:] = V
        _cholesky(root)
        volume = d * math.log(widening)
        for j in range(d):
            volume += math.log(root[j, j])
        for k in range(n_points):
            square, outer = 0.0, 0.0
            for j in range(d):
                total = 0.0
                for h in range(j + 1):
                    total += root[j, h] * points[k, h]
                away[j, k] = widening * total
                square += points[k, j] * points[k, j]
                outer += (m[j] + away[j, k]) ** 2
            # logarithms of densities over that of the points
            normal[k] = 0.5 * (1 - widening * widening) * square
            posterior[k] = volume + 0.5 * square - 0.5 * outer
        _add_log_likelihoods(
            X, offset, signs, indptr[i], indptr[i + 1], m, away, z, product, posterior
        )
        top = posterior.max()
        total, base, squares = 0.0, 0.0, 0.0
        for k in range(n_points):
            posterior[k] = math.exp(posterior[k] - top)
            normal[k] = math.exp(normal[k])
            total += posterior[k]
            base += normal[k]
            squares += posterior[k] * posterior[k]
        if total * total < TRUSTED * n_points * squares:
            continue
        shift[:], spread[:] = 0.0, 0.0
        for k in range(n_points):
            more = posterior[k] / total - normal[k] / base
            for j in range(d):
                shift[j] += more * away[j, k]
                for h in range(j + 1):
                    spread[j, h] += more * away[j, k] * away[h, k]
        for j in range(d):
            has_data = (1 - V[j, j]) ** 2
            share[j] = has_data / (has_data + FAINT * FAINT)
        for j in range(d):
            for h in range(j + 1):
                more = spread[j, h] - shift[j] * shift[h]
                root[j, h] = V[j, h] + share[j] * share[h] * more
        spread[:] = root
        if not _cholesky(root):
            continue
        evidence[i] = top + math.log(total / base) - d * math.log(widening)
        for j in range(d):
            m[j] += share[j] * shift[j]
            for h in range(j + 1):
                V[j, h] = V[h, j] = spread[j, h]


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
        _tilted(mean[k], variance[k], 1.0, FINE_STEP, sums, moments)
        out[k] = moments[0]


@jit
def _tilted(mean, variance, sign, logit_step, sums, out):
    """Logarithm of ``E s(sign z)``, z normal, its slope in the mean, and minus its curvature.

    By the trapezoidal rule around the mode; s is the logistic function.
    """
    m, sd = sign * mean, max(math.sqrt(variance), SMALLEST)
    v = sd * sd
    low, high = m, m + v  # where the mode is
    mode = m + v * _logistic(-m) / (1 + v * _logistic(m) * _logistic(-m))
    for _ in range(20):
        p = _logistic(-mode)
        slope = m + v * p - mode
        if slope > 0:
            low = mode
        else:
            high = mode
        change = slope / (1 + v * p * (1 - p))
        mode += change
        if not low < mode < high:
            mode = 0.5 * (low + high)
        if abs(change) < 0.1 * sd:
            break
    if abs(mode) > FAR:  # there the function is exp(z), or 1
        tail = mode < 0
        out[0] = m + 0.5 * v if tail else 0.0
        out[1] = sign if tail else 0.0
        out[2] = 0.0
        return
    shift = (mode - m) / sd
    step = max(min(STEP, logit_step / sd), REACH / MOST)
    count = int(REACH / step)
    top = 1 / (1 + math.exp(-mode))
    sums[0], sums[1], sums[2] = top, 0.0, 0.0
    # weights times logistic function, by products of what changes from node to node
    fall, bend = math.exp(-sd * step), math.exp(-step * step)
    _add_side(step, count, shift, math.exp(-mode), fall, bend, 1.0, sums)
    if mode < NEAR:  # as exp(z) / (1 + exp(z)): no factor leaves the range of floats
        e = math.exp(mode)
        _add_side(-step, count, sd - shift, e, fall, bend, e, sums)
    else:
        _add_side(-step, count, -shift, math.exp(-mode), 1 / fall, bend, 1.0, sums)
    total, first = sums[0], sums[1] / sums[0]
    spread = sums[2] / total - first * first
    out[0] = math.log(total * step / math.sqrt(2 * math.pi)) - 0.5 * shift * shift
    out[1] = sign * (shift + first) / sd
    out[2] = max(1 - spread, 0.0) / v


@jit
def _add_side(step, count, slope, e, factor, bend, top, sums):
    """Add ``top exp(-|t| slope - t^2 / 2) / (1 + e factor^k)`` at ``t = k step``, k = 1, 2, ...."""
    size = abs(step)
    weight, ratio = top, math.exp(-size * (slope + 0.5 * size))
    for k in range(1, count + 1):
        weight *= ratio
        ratio *= bend
        e *= factor
        t = k * step
        value = weight / (1 + e)
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
def _include(X, first, last, precision, shift, m, V, a):
    """Posterior under stand-ins of the rows, from the prior; the logarithm of their integral."""
    _reset(V)
    m[:] = 0.0
    total = 0.0
    for row in range(first, last):
        z, v = _project(X[row], m, V, a)
        total += _weight(z, v, precision[row], shift[row])
        more = 1 + precision[row] * v
        _move(m, V, a, precision[row] / more, (shift[row] - precision[row] * z) / more)
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


@jit
def _add_log_likelihoods(X, offset, signs, first, last, m, away, z, product, out):
    """Add the log-likelihood at each of many points ``m + away``, point by point side by side."""
    product[:] = 1.0
    for row in range(first, last):
        centre = offset[row]
        for j in range(len(m)):
            centre += X[row, j] * m[j]
        z[:] = signs[row] * centre
        for j in range(len(m)):
            _add(z, signs[row] * X[row, j], away[j])
        _answer(z, product, out)
        if (row - first) % MOST_FACTORS == MOST_FACTORS - 1:
            out -= np.log(product)
            product[:] = 1.0
    out -= np.log(product)


@jit
def _add(out, x, y):
    for k in range(len(out)):
        out[k] += x * y[k]


@jit
def _answer(z, product, out):
    """Add the part of ``log s(z)`` that has no bound; multiply `product` by the exp of the rest."""
    for k in range(len(z)):
        out[k] += min(z[k], 0.0)
        product[k] *= 1 + _exp(-abs(z[k]))


@jit
def _exp(x):
    """The exponential of a number that is not positive, in operations that work side by side.

    ``exp(x) = 2^n exp(r)``, ``|r| <= log(2) / 2``; adding `ROUND` leaves n in the lowest bits. What
    would be less than ``exp(-700)`` is that. The error is about one unit in the last place.
    """
    x = max(x, -700.0)
    shifted = x * 1.4426950408889634 + ROUND
    n = shifted - ROUND
    r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10
    value = 1.6059043836821613e-10 * r + 2.08767569878681e-09
    value = value * r + 2.505210838544172e-08
    value = value * r + 2.755731922398589e-07
    value = value * r + 2.7557319223985893e-06
    value = value * r + 2.48015873015873e-05
    value = value * r + 0.0001984126984126984
    value = value * r + 0.001388888888888889
    value = value * r + 0.008333333333333333
    value = value * r + 0.041666666666666664
    value = value * r + 0.16666666666666666
    value = (value * r + 0.5) * (r * r) + r + 1.0
    power = (np.float64(shifted).view(np.int64) + 1023) << 52
    return value * np.int64(power).view(np.float64)
