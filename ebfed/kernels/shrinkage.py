"""Estimates that are shrunk to the mean of a normal population."""

import math

from ebfed.kernels._jit import jit


@jit
def shrink(
    values, variances, mean, mean_variance, own, noise, share, weight, spread, spread_variance,
    weights, estimates, own_variances, sds,
):  # fmt: skip
    """Weights, posterior means and standard deviations; see `priors.normal.NormalPosterior`.

    Parameters
    ----------
    values, variances : float64 ndarrays of shape (n,)
        Messages x and their variances v; infinite: nothing is known.
    mean, mean_variance : float64 ndarrays of shape (n,)
        Mean of the population, and its sampling variance.
    own : float64 ndarray of shape (n,)
        Variance q that the channel added to what a client sent; infinite where it sent nothing.
    noise, share, weight : float64 ndarrays of shape (n,)
        Noise of the channel that a client knows; share h of its message in the mean; weight a of
        the value. Where they are NaN, the noise is not known, and the share and weight are best.
    spread, spread_variance : float64 ndarrays of shape (n,)
        Variance t of the population, and its sampling variance.
    weights, estimates, own_variances, sds : float64 ndarrays of shape (n,)
        Are overwritten with the weights, means, variances of the part of the own value, and sds.
    """
    for place in range(len(values)):
        v, t, uncertain, centre = variances[place], spread[place], mean_variance[place], mean[place]
        silent = math.isinf(v) or math.isinf(own[place])
        added, finite = 0.0 if silent else own[place], 0.0 if math.isinf(v) else v
        whole, h, excess = t + finite + added, 0.0, uncertain
        if not silent:
            h, excess = share[place], 0.0
            if math.isnan(h):
                h = uncertain / whole
                h = 0.0 if math.isnan(h) else min(max(h, 0.0), 1.0)
            else:
                excess = uncertain - h * whole
        rest = max(1 - h, 1e-9)  # 0 for a single client
        left = h / rest
        if not (silent or math.isnan(noise[place])):
            centre, left = centre - h * noise[place], h
        s = t + left * added + excess / rest
        a = 0.0 if math.isinf(v) else 1.0 if v == 0 else s / (s + v)
        if not (silent or math.isnan(weight[place])):
            a = weight[place]
        more = 2 * (1 - a) ** 2 * spread_variance[place] / (s + v if a < 1 else 1.0)
        between = (1 - a) ** 2 * rest * s + (1 - a**2) * h * finite
        weights[place], estimates[place] = a, a * values[place] + (1 - a) * centre
        own_variances[place] = a**2 * finite
        sds[place] = math.sqrt(own_variances[place] + between + more)
