"""Quadrature of clients whose counts have a rate of their own each.

Rows are Poisson with linear predictors ``z = offset + d' mean + x eta``, where x is the same for
all rows of a client and eta is standard normal. Then ``e^z`` is a product, and sums over the rows
of a client say all that they say: with ``T = e^(x eta)``, the log-likelihood is ``Y x eta - E T``
and what does not depend on eta; Y and E are sums of counts and of expected counts at eta of zero.
So the work at each node does not grow with rows or columns. Nodes and derivatives are those of
`ebfed.kernels.quadrature`.
"""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.responses import FARTHEST, LARGE, POISSON, _is_large, _row

# Squared length of Newton's last step to a mode, in standard deviations, and most steps.
CLOSE, MOST_STEPS = 1e-12, 100
# Largest change of a log rate in one step.
CAUTIOUS = 2.0


@jit
def rate_derivatives(
    X, y, weight, offset, indptr, frame, mean, place, sd, nodes, weights, sizes, limits, mode,
    evidence, score, curvature,
):  # fmt: skip
    """Log marginal likelihood of each client, its slopes and second derivatives.

    Parameters
    ----------
    X : float64 ndarray of shape (n_rows, p)
    y, weight, offset : float64 ndarrays of shape (n_rows,)
        Count, weight and offset of each row.
    indptr : int64 ndarray of shape (n_clients + 1,)
    frame : float64 ndarray of shape (p, r)
        Rows have the design ``d = X @ frame``.
    mean : float64 ndarray of shape (r,)
    place : int
        Column of the design that eta multiplies.
    sd : float
        Number that multiplies it besides.
    nodes, weights, sizes, limits :
        Rules; see `quadrature_moments`.
    mode : float64 ndarray of shape (n_clients, 1)
        Start of the search for modes, or zero where that is better; is overwritten with these.
    evidence : float64 ndarray of shape (n_clients,)
        Is overwritten with the logarithm of the marginal likelihood.
    score : float64 ndarray of shape (n_clients, r + 1)
        Is overwritten with its slopes in the mean and in `sd`.
    curvature : float64 ndarray of shape (n_clients, (r + 1) * (r + 2) // 2)
        Is overwritten with the lower half of its second derivatives, row by row.

    Returns
    -------
    bool
        Whether the column is constant in all clients; if not, nothing is to be read.
    """
    p, r = frame.shape
    d, tilted, expected = np.empty(r), np.empty(r), np.empty(r)
    bent = np.empty(r * (r + 1) // 2)
    most = sizes[-1]
    share, eta, rise, slope = np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    for i in range(len(indptr) - 1):
        count, total, value, x, large = 0.0, 0.0, 0.0, 0.0, False
        tilted[:], expected[:], bent[:] = 0.0, 0.0, 0.0
        for row in range(indptr[i], indptr[i + 1]):
            z = offset[row]
            for a in range(r):
                d[a] = 0.0
                for j in range(p):
                    d[a] += X[row, j] * frame[j, a]
                z += d[a] * mean[a]
            if row > indptr[i] and d[place] != x:
                return False
            x, large = d[place], large or _is_large(POISSON, y[row])
            e = weight[row] * math.exp(min(max(z, -FARTHEST), FARTHEST))
            events = weight[row] * y[row]
            value += events * z
            count += events
            total += e
            at = 0
            for a in range(r):
                tilted[a] += events * d[a]
                part = e * d[a]
                expected[a] += part
                for b in range(a + 1):
                    bent[at] += part * d[b]
                    at += 1
        x *= sd
        m = mode[i, 0]
        rate = total * math.exp(min(max(x * m, -FARTHEST), FARTHEST))
        if not x * count * m - rate - 0.5 * m * m > -total:  # zero is better
            m = 0.0
        for _ in range(MOST_STEPS):
            rate = total * math.exp(min(max(x * m, -FARTHEST), FARTHEST))
            bend = 1 + x * x * rate
            step = (x * (count - rate) - m) / bend
            if abs(x * step) > CAUTIOUS:
                step = math.copysign(CAUTIOUS / abs(x), step)
            m += step
            if step * step * bend < CLOSE:
                break
        mode[i, 0] = m
        times = math.exp(min(max(x * m, -FARTHEST), FARTHEST))
        rate = total * times
        width = 1 / math.sqrt(1 + x * x * rate)
        rule = 0
        while rule < len(sizes) - 1 and abs(x) * width > limits[rule]:
            rule += 1
        size = sizes[rule]
        value += x * count * m - rate
        if large:
            value = _at_mode(X, y, weight, offset, indptr[i], indptr[i + 1], frame, mean, x * m)
        whole, middle = 0.0, 0.0
        for k in range(size):  # T is as many times that at the mode, and `rise` times more
            away = width * nodes[rule, k]
            eta[k] = m + away
            u = min(max(x * away, -FARTHEST), FARTHEST)
            rise[k] = math.expm1(u) if rate > LARGE else math.exp(u) - 1  # in less time
            height = x * (count - rate) * away - rate * _beyond(u, rise[k])
            height -= away * (m + 0.5 * away)
            share[k] = math.exp(weights[rule, k] + height)
            whole += share[k]
            middle += share[k] * rise[k]
        middle /= whole
        evidence[i] = value - 0.5 * m * m + math.log(whole * width)
        for a in range(r):
            expected[a] *= times
        for at in range(len(bent)):
            bent[at] *= times
        # of the slope in sd, and of T about its mean
        push, pull = tilted[place] - expected[place] * (1 + middle), expected[place]
        centre, once, twice = 0.0, 0.0, 0.0
        for k in range(size):
            share[k] /= whole
            slope[k] = eta[k] * (push - pull * (rise[k] - middle))
            part = share[k] * eta[k] * (1 + rise[k])
            centre += share[k] * slope[k]
            once += part
            twice += part * eta[k]
        spread, both, own = 0.0, 0.0, 0.0
        for k in range(size):
            away, off = rise[k] - middle, slope[k] - centre
            spread += share[k] * away * away
            both += share[k] * away * off
            own += share[k] * off * off
        at = 0
        for a in range(r):
            score[i, a] = tilted[a] - expected[a] * (1 + middle)
            part = expected[a] * spread
            for b in range(a + 1):
                curvature[i, at] = part * expected[b] - bent[at] * (1 + middle)
                at += 1
        score[i, r] = centre
        for a in range(r):
            low, high = min(a, place), max(a, place)
            pair = bent[high * (high + 1) // 2 + low]
            curvature[i, at + a] = -expected[a] * both - pair * once
        curvature[i, at + r] = own - bent[place * (place + 1) // 2 + place] * twice
    return True


@jit
def _beyond(u, rise):
    """``e^u - 1 - u``, from ``e^u - 1``."""
    if abs(u) > 1e-3:
        return rise - u
    return u * u * (1 / 2 + u * (1 / 6 + u * (1 / 24 + u / 120)))


@jit
def _at_mode(X, y, weight, offset, first, last, frame, mean, moved):
    """Log-likelihood of a client's rows, each of which is moved by as much."""
    value, shapes = 0.0, np.zeros(0)
    for row in range(first, last):
        z = offset[row] + moved
        for a in range(frame.shape[1]):
            for j in range(frame.shape[0]):
                z += X[row, j] * frame[j, a] * mean[a]
        value += _row(POISSON, y[row], weight[row], z, shapes)[0]
    return value
