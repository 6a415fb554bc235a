"""Distribution functions of mixtures of points, normals and half-line normals, and their roots."""

import math

import numpy as np

from ebfed.kernels._jit import jit

_ROOT_2, _ROOT_2PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)


@jit
def erfcx(y):
    """Scaled complementary error function ``exp(y**2) erfc(y)``; infinite below -26.6.

    Beyond 10 by its asymptotic series (Abramowitz and Stegun 7.1.23), there exact to 1e-15.
    """
    if y < 10.0:
        return math.exp(y * y) * math.erfc(y)
    term, total, square = 1.0, 1.0, -0.5 / (y * y)
    for j in range(1, 16, 2):
        term *= j * square
        total += term
    return total / (y * math.sqrt(math.pi))


@jit
def _beyond(distance, start):
    """Survival function, its complement and density of ``Z - start | Z > start``, Z normal."""
    if distance < 0.0:
        return 1.0, 0.0, 0.0
    if start < 0.0:
        whole = math.erfc(start / _ROOT_2)
        reached = start + distance
        density = 2.0 / _ROOT_2PI * math.exp(-0.5 * reached * reached) / whole
        survival = math.erfc(reached / _ROOT_2) / whole
        if reached < 0.0:  # where the complement may be tiny
            within = (math.erfc(-reached / _ROOT_2) - math.erfc(-start / _ROOT_2)) / whole
            return survival, within, density
        return survival, 1.0 - survival, density
    fall = math.exp(-distance * (start + 0.5 * distance))
    whole = erfcx(start / _ROOT_2)
    density = 2.0 / _ROOT_2PI * fall / whole
    survival = fall * erfcx((start + distance) / _ROOT_2) / whole
    return survival, 1.0 - survival, density


@jit
def _below(t, i, weights, anchors, scales, starts, sides):
    """Probability that mixture i gives to values at or below t, and its density there."""
    total, density = 0.0, 0.0
    for k in range(len(weights)):
        weight, scale = weights[k, i], scales[k, i]
        if weight == 0.0:
            continue
        if scale == 0.0:
            if t >= anchors[k, i]:
                total += weight
            continue
        z = (t - anchors[k, i]) / scale
        if sides[k] == 0:
            total += 0.5 * weight * math.erfc(-z / _ROOT_2)
            density += weight * math.exp(-0.5 * z * z) / (_ROOT_2PI * scale)
        else:
            survival, within, slope = _beyond(sides[k] * z, starts[k, i])
            total += weight * (survival if sides[k] < 0 else within)
            density += weight * slope / scale
    return total, density


@jit
def mixture_below(thresholds, weights, anchors, scales, starts, sides):
    """Probability that each of n mixtures gives to values at or below its threshold.

    Component k of mixture i is ``anchors + scales * U``. U is standard normal where ``sides[k]`` is
    0, else ``sides[k] * (Z - starts[k, i])`` given ``Z > starts[k, i]``; a scale of zero makes it a
    point.

    Parameters
    ----------
    thresholds : ndarray of shape (n,)
    weights, anchors, scales, starts : ndarray of shape (k, n)
    sides : int64 ndarray of shape (k,)

    Returns
    -------
    ndarray of shape (n,)
    """
    out = np.empty(len(thresholds))
    for i in range(len(thresholds)):
        out[i], _ = _below(thresholds[i], i, weights, anchors, scales, starts, sides)
    return out


@jit
def mixture_quantiles(q, means, sds, weights, anchors, scales, starts, sides):
    """Smallest value with at least probability q at or below it, for each of n mixtures.

    Newton steps within a bracket that Cantelli's inequality gives from mean and sd.

    Parameters
    ----------
    q : float in (0, 1)
    means, sds : ndarray of shape (n,)
        Means and standard deviations of the mixtures.
    weights, anchors, scales, starts : ndarray of shape (k, n)
        Components as in `mixture_below`.
    sides : int64 ndarray of shape (k,)

    Returns
    -------
    ndarray of shape (n,)
    """
    out = np.empty(len(means))
    for i in range(len(means)):
        mean, sd = means[i], sds[i]
        if sd == 0.0:
            out[i] = mean
            continue
        slack = 1e-6 * sd
        low = mean - sd * math.sqrt((1.0 - q) / q) - slack
        high = mean + sd * math.sqrt(q / (1.0 - q)) + slack
        point, mass, one = 0.0, 0.0, True
        for k in range(sides.shape[0]):
            if scales[k, i] == 0.0 and weights[k, i] > 0.0:
                one = one and (mass == 0.0 or anchors[k, i] == point)
                point = anchors[k, i]
                mass += weights[k, i]
        if mass > 0.0 and one:
            reached, _ = _below(point, i, weights, anchors, scales, starts, sides)
            if reached < q:
                low = max(low, point)
            elif reached - mass < q:
                out[i] = point
                continue
            else:
                high = min(high, point)
        t = min(max(mean, low), high)
        for _ in range(300):
            reached, density = _below(t, i, weights, anchors, scales, starts, sides)
            if reached < q:
                low = t
            else:
                high = t
            step = (q - reached) / density if density > 0.0 else np.inf
            new = t + step
            if not low < new < high:
                new = 0.5 * (low + high)
            move = abs(new - t)
            t = new
            if move <= 1e-14 * (sd + abs(t)):
                break
        if mass > 0.0 and not one and high - t <= 1e-12 * (sd + abs(t)):
            t = high  # just below one of several points
        out[i] = t
    return out
