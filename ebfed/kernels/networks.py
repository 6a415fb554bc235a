"""What learning does between the matrix products of small networks, each in one pass."""

import math

from ebfed.kernels._jit import jit


@jit
def rectify(units, intercept):
    """Add intercepts, and replace what is negative by zero.

    Parameters
    ----------
    units : ndarray of shape (c, n, h)
        Written to.
    intercept : ndarray of shape (c, 1, h) or (1, 1, h)
    """
    for i in range(units.shape[0]):
        own, add = units[i], intercept[i if len(intercept) > 1 else 0, 0]
        for j in range(own.shape[0]):
            for k in range(own.shape[1]):
                own[j, k] = max(own[j, k] + add[k], 0)


@jit
def gate(slope, units, total):
    """Keep slopes where rectified units are positive, and add them up over rows.

    Parameters
    ----------
    slope : ndarray of shape (c, n, h)
        Written to.
    units : ndarray of shape (c, n, h)
    total : ndarray of shape (c, 1, h)
        Array for the sums.
    """
    for i in range(slope.shape[0]):
        own, at, add = slope[i], units[i], total[i, 0]
        add[:] = 0
        for j in range(own.shape[0]):
            for k in range(own.shape[1]):
                own[j, k] = own[j, k] if at[j, k] > 0 else own[j, k] * 0
                add[k] += own[j, k]


@jit
def cross_entropy(outputs, y, weight, loss, slope):
    """Weighted multinomial logistic loss of each client, and its slope in the outputs.

    Parameters
    ----------
    outputs : ndarray of shape (c, n, k)
    y : int64 ndarray of shape (c, n)
        Numbers of classes, below k.
    weight : ndarray of shape (c, n)
    loss : ndarray of shape (c,)
        Array for the losses.
    slope : ndarray of shape (c, n, k)
        Array for the slopes.
    """
    loss[:] = 0
    for i in range(outputs.shape[0]):
        for j in range(outputs.shape[1]):
            own, out, w, right = outputs[i, j], slope[i, j], weight[i, j], y[i, j]
            top = own[0]
            for k in range(1, len(own)):
                top = max(top, own[k])
            rest = own[0] * 0  # of the classes that are not right
            for k in range(len(own)):
                out[k] = math.exp(own[k] - top)
                rest += out[k] if k != right else 0
            whole = rest + out[right]
            if own[right] == top:  # digits of small losses are kept
                loss[i] += w * math.log1p(rest)
            else:
                loss[i] += w * (top - own[right] + math.log(whole))
            for k in range(len(own)):
                out[k] *= w / whole
            out[right] = -w * rest / whole


@jit
def scatter_rows(rows, places, out):
    """Add rows of each client to those at given places.

    Parameters
    ----------
    rows : ndarray of shape (c, b, h)
    places : int64 ndarray of shape (c, b)
    out : ndarray of shape (c, n, h)
        Written to.
    """
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            to, own = out[i, places[i, j]], rows[i, j]
            for k in range(len(own)):
                to[k] += own[k]


@jit
def step_down(theta, gradient, rate):
    """Replace gradients by the parameters after a step down them.

    Parameters
    ----------
    theta : ndarray of shape (c, p) or (1, p)
    gradient : ndarray of shape (c, p)
        Written to.
    rate : number of the same type
    """
    for i in range(len(gradient)):
        at, own = theta[i if len(theta) > 1 else 0], gradient[i]
        for j in range(len(own)):
            own[j] = at[j] - rate * own[j]


@jit
def move_down(theta, gradient, rate, start):
    """Replace gradients by how far parameters are from a start after a step down them.

    Parameters
    ----------
    theta, gradient, rate
        As in `step_down`.
    start : ndarray of shape (1, p)
    """
    for i in range(len(gradient)):
        at, own, origin = theta[i if len(theta) > 1 else 0], gradient[i], start[0]
        for j in range(len(own)):
            own[j] = (at[j] - origin[j]) - rate * own[j]
