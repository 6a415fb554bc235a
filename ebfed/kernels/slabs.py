"""Log-likelihoods of spike-and-slab populations, with first and second derivatives."""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.posteriors import erfcx

_ROOT_2, _LOG_ROOT_2PI = math.sqrt(2.0), 0.5 * math.log(2.0 * math.pi)
_ROOT_HALF_PI = math.sqrt(0.5 * math.pi)
# Of t (log R)' in powers of 1 / t**2, R being Mills' ratio (Abramowitz and Stegun 26.2.12).
_SERIES = (-1.0, 2.0, -10.0, 74.0, -706.0, 8162.0, -110410.0)


@jit
def _normal_slab(u, s2, variance):
    """Density ``N(u; 0, s2 + variance)``, and derivatives of its log; see `_add`."""
    total = s2 + variance
    share = variance / total
    square = u * u / total
    return (
        -0.5 * square,
        math.sqrt(s2 / total),
        share * (square - 1.0),
        2.0 * share * (square - 1.0 - share * (2.0 * square - 1.0)),
        -u / total,
        2.0 * share * u / total,
        -1.0 / total,
    )


@jit
def _mills(t):
    """Mills' ratio R = Q / phi of t >= -5, its inverse, and the derivatives of its log."""
    ratio = _ROOT_HALF_PI * erfcx(t / _ROOT_2)
    inverse = 1.0 / ratio
    if t > 50.0:  # t - 1 / R loses its digits; the asymptotic series is exact to 1e-15
        x, power, slope, bend = 1.0 / (t * t), 1.0, 0.0, 0.0
        for j in range(len(_SERIES)):
            slope += _SERIES[j] * power
            bend -= (1 + 2 * j) * _SERIES[j] * power
            power *= x
        return ratio, inverse, slope / t, bend * x
    return ratio, inverse, t - inverse, 1.0 - inverse * (inverse - t)


@jit
def _laplace_slab(u, s2, variance):
    """Density of a Laplace of scale ``sqrt(variance)`` plus ``N(0, s2)``; see `_add`.

    It is ``(k / 2) (R(k - z) + R(k + z)) exp(-z**2 / 2)``, with R Mills' ratio, ``k = s / scale``
    and ``z = |u| / s``. Beyond -5 the square in ``log R(k - z)`` cancels that of z, which is left
    out of both.
    """
    s = math.sqrt(s2)
    k, z = s / math.sqrt(variance), abs(u) / s
    t = k - z
    far, _, far_k, far_kk = _mills(k + z)
    if t < -5.0:
        rest_of_log = math.log(0.5 * math.erfc(t / _ROOT_2)) + _LOG_ROOT_2PI
        inverse = math.exp(-rest_of_log - 0.5 * t * t)
        near_k, near_kk = t - inverse, 1.0 - inverse * (inverse - t)
        gap = far * inverse
        level = rest_of_log + k * (0.5 * k - z) + math.log(0.5 * k * (1.0 + gap))
        near_z, near_zz = inverse - k, -inverse * (inverse - t)
    else:
        near, inverse, near_k, near_kk = _mills(t)
        gap = far * inverse
        level = math.log(0.5 * k * near * (1.0 + gap)) - 0.5 * z * z
        near_z, near_zz = -near_k - z, near_kk - 1.0
    share = 1.0 / (1.0 + gap)
    rest = gap * share
    both = share * rest  # of what differs between the two, in the curvature of their sum
    in_k = share * near_k + rest * far_k
    in_z = share * near_z + rest * (far_k - z)
    apart_k, apart_z = near_k - far_k, -near_k - far_k
    in_kk = share * near_kk + rest * far_kk + both * apart_k * apart_k
    in_kz = -share * near_kk + rest * far_kk + both * apart_k * apart_z
    in_zz = share * near_zz + rest * (far_kk - 1.0) + both * apart_z * apart_z
    sign = 1.0 if u >= 0.0 else -1.0
    return (
        level,
        1.0,
        -(1.0 + k * in_k),
        k * in_k + k * k * in_kk,
        sign * in_z / s,
        -k * sign * in_kz / s,
        in_zz / s2,
    )


@jit
def _add(out, weight, slab, spike):
    """Add one client's log-likelihood and derivatives to those of the others.

    `slab` holds its density, over ``1 / sqrt(2 pi s2)``, as (level, root), ``root exp(level)``;
    then the derivatives of its log in a, aa, u, au, uu, a being the log of the slab's scale. It is
    not divided by the density of the spike: many errors away, that quotient loses its digits.
    `spike` holds the log of that, in the same unit, and minus its derivatives in u and uu.
    """
    level, root, a, aa, by_u, au, uu = slab
    log_spike, pull, bend = spike
    top = max(level, log_spike)
    small, large = math.exp(log_spike - top), root * math.exp(level - top)
    mixture = (1.0 - weight) * small + weight * large
    share, rest = weight * large / mixture, (1.0 - weight) * small / mixture
    by_weight = (large - small) / mixture
    turn = small * large / (mixture * mixture)  # of the slab's share, in its weight
    both, apart = share * rest, by_u + pull
    out[0] += top + math.log(mixture)
    out[1] += by_weight
    out[2] += share * a
    out[3] += rest * pull - share * by_u
    out[4] -= by_weight * by_weight
    out[5] += turn * a
    out[6] -= turn * apart
    out[7] += both * a * a + share * aa
    out[8] -= both * a * apart + share * au
    out[9] += both * apart * apart + share * uu - rest * bend


@jit
def _normal_spike(u, s2):
    """Log-density of ``N(0, s2)``, and minus its derivatives; see `_add`."""
    return -0.5 * u * u / s2, u / s2, 1.0 / s2


@jit
def point_and_slab(values, variances, weight, scale, mode, laplace):
    """Log-likelihood of ``x ~ (1 - weight) N(mode, s2) + weight N(mode, s2 + scale**2)``.

    Less the constant ``-sum log(2 pi s2) / 2``. Or the slab is that of a Laplace distribution of
    the parameter, ``exp(-|theta| / scale)``.

    Parameters
    ----------
    values, variances : ndarray of shape (n,)
    weight, scale, mode : float
        Parameters of the population; the weight must be positive.
    laplace : bool
        Whether the slab is Laplace; else it is normal.

    Returns
    -------
    ndarray of shape (10,)
        Value; slopes in weight, log scale, mode; second derivatives in the order of an upper
        triangle.
    """
    out = np.zeros(10)
    for i in range(len(values)):
        u, s2 = values[i] - mode, variances[i]
        if laplace:
            _add(out, weight, _laplace_slab(u, s2, scale * scale), _normal_spike(u, s2))
        else:
            _add(out, weight, _normal_slab(u, s2, scale * scale), _normal_spike(u, s2))
    return out


@jit
def gains_of_weights(gains, counts, weights):
    """Log-likelihood of populations with a slab, less that of the point alone.

    Parameters
    ----------
    gains : ndarray of shape (n,)
        Likelihood under the slab over that under the point, less 1: at most 1e261.
    counts : ndarray of shape (n,)
        How often each is counted.
    weights : ndarray of shape (k,)
        Those of the slab.

    Returns
    -------
    ndarray of shape (k,)
        ``sum counts log(1 + weight gains)``; logarithms of products, of as many as there is room
        for, are an eighth of the time of those of factors.
    """
    out = np.empty(len(weights))
    for k in range(len(weights)):
        weight, total, product = weights[k], 0.0, 1.0
        for i in range(len(gains)):
            factor = 1.0 + weight * gains[i]
            if counts[i] != 1.0:
                total += counts[i] * np.log(factor)
                continue
            product *= factor
            if not 1e-40 < product < 1e40:
                total += np.log(product)
                product = 1.0
        out[k] = total + np.log(product)
    return out
