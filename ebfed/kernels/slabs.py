"""Log-likelihoods of spike-and-slab populations, with first and second derivatives."""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.posteriors import erfcx

_ROOT_2, _LOG_ROOT_2PI = math.sqrt(2.0), 0.5 * math.log(2.0 * math.pi)


@jit
def _normal_slab(u, s2, variance):
    """``N(u; 0, s2 + variance) / N(u; 0, s2)`` and derivatives of its log (see `_add`)."""
    total = s2 + variance
    share = variance / total
    square, pull = u * u / total, u / s2
    return (
        0.5 * share * u * pull,
        math.sqrt(s2 / total),
        share * (square - 1.0),
        2.0 * share * (square - 1.0 - share * (2.0 * square - 1.0)),
        share * pull,
        2.0 * share * u / total,
        share / s2,
    )


@jit
def _mills(t):
    """Log of Mills' ratio R = Q / phi, with R' / R."""
    if t < -5.0:
        log_ratio = math.log(0.5 * math.erfc(t / _ROOT_2)) + 0.5 * t * t + _LOG_ROOT_2PI
        return log_ratio, t - math.exp(-log_ratio)
    ratio = math.sqrt(0.5 * math.pi) * erfcx(t / _ROOT_2)
    return math.log(ratio), t - 1.0 / ratio


@jit
def _laplace_slab(u, s2, variance):
    """Ratio to ``N(u; 0, s2)`` of its convolution with a Laplace of scale ``sqrt(variance)``."""
    s = math.sqrt(s2)
    k, z = s / math.sqrt(variance), abs(u) / s
    near, near_slope = _mills(k - z)
    far, far_slope = _mills(k + z)
    gap = math.exp(far - near)
    d = math.log(0.5 * k * (1.0 + gap)) + near
    rise = max(d, 0.0)
    share = 1.0 / (1.0 + gap)
    near_slope, near_bend = share * near_slope, share * (1.0 + (k - z) * near_slope)
    share = 1.0 - share
    far_slope, far_bend = share * far_slope, share * (1.0 + (k + z) * far_slope)
    in_k, in_z = near_slope + far_slope, far_slope - near_slope
    slope_k = 1.0 / k + in_k
    bend = near_bend + far_bend
    bend_k = bend - in_k * in_k - 1.0 / (k * k)
    sign = 1.0 if u >= 0.0 else -1.0
    return (
        rise,
        math.exp(d - rise),
        -k * slope_k,
        k * slope_k + k * k * bend_k,
        sign * in_z / s,
        -k * sign * (far_bend - near_bend - in_k * in_z) / s,
        (bend - in_z * in_z) / s2,
    )


@jit
def _add(out, u, s2, weight, slab):
    """Add one client's log-likelihood and derivatives to those of the others.

    `slab` holds the ratio of slab to spike as (rise, root), ``root exp(rise)`` with a rise that is
    not negative, so that nothing overflows; then the derivatives of its log in a, aa, u, au, uu, a
    being the log of the slab's scale.
    """
    rise, root, a, aa, by_u, au, uu = slab
    small = math.exp(-rise)
    over = 1.0 / ((1.0 - weight) * small + weight * root)
    share, by_weight = weight * root * over, (root - small) * over
    turn = small * root * over * over  # of the slab's share, in its weight
    bend = share * (1.0 - share)
    out[0] += rise - math.log(over) - 0.5 * u * u / s2
    out[1] += by_weight
    out[2] += share * a
    out[3] += u / s2 - share * by_u
    out[4] -= by_weight * by_weight
    out[5] += turn * a
    out[6] -= turn * by_u
    out[7] += bend * a * a + share * aa
    out[8] -= bend * a * by_u + share * au
    out[9] += bend * by_u * by_u + share * uu - 1.0 / s2


@jit
def normal_slab(values, variances, weight, scale, mode):
    """Log-likelihood of ``x ~ (1 - weight) N(mode, s2) + weight N(mode, s2 + scale**2)``.

    Less the constant ``-sum log(2 pi s2) / 2``.

    Parameters
    ----------
    values, variances : ndarray of shape (n,)
    weight, scale, mode : float
        Parameters of the population; the weight must be positive.

    Returns
    -------
    ndarray of shape (10,)
        Value; slopes in weight, log scale, mode; second derivatives in the order of an upper
        triangle.
    """
    out = np.zeros(10)
    for i in range(len(values)):
        u, s2 = values[i] - mode, variances[i]
        _add(out, u, s2, weight, _normal_slab(u, s2, scale * scale))
    return out


@jit
def laplace_slab(values, variances, weight, scale, mode):
    """Log-likelihood, as `normal_slab`'s, of a Laplace slab ``exp(-|theta| / scale)``.

    Parameters
    ----------
    values, variances : ndarray of shape (n,)
    weight, scale, mode : float

    Returns
    -------
    ndarray of shape (10,)
    """
    out = np.zeros(10)
    for i in range(len(values)):
        u, s2 = values[i] - mode, variances[i]
        _add(out, u, s2, weight, _laplace_slab(u, s2, scale * scale))
    return out
