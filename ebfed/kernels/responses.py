"""Log-likelihoods of single rows of generalized linear models, and their derivatives.

A row has a response y, a weight w by which its log-likelihood is multiplied, and a linear predictor
z. Families are numbered, so that one compiled kernel does for all of them. What does
not depend on z is left out here; `ebfed.regression.families` has it, and the formulas. Of counts
above `LARGE`, ``y z`` would leave no digits: values of Poisson ones are 0 at a mean of y, and those
of negative binomial ones have ``y log s`` less, with s the size.

Shapes are parameters of a family besides z: for negative binomial rows the size (one over the
dispersion), for gamma rows the shape. Derivatives are in the logarithm of the dispersion, and of
the shape. Binomial rows have a logit, or other links: ``P(success)`` is the normal distribution
function at z (probit), or ``1 - e^(-e^z)`` (cloglog), where all is in the part that is not linear.
Ordinal rows are of classes 1, 2, …, K; with thresholds t_1 = 0 < t_2 < …, ``P(y <= k) =
1 / (1 + e^(z - t_k))``. Shapes are exponentials of t_2, …, and derivatives are in these thresholds.
"""

import math

from ebfed.kernels._jit import jit

BINOMIAL, POISSON, NEGATIVE_BINOMIAL, GAMMA, ORDINAL, PROBIT, CLOGLOG = range(7)

# Linear predictors beyond which exponentials do not grow: their squares are floats.
FARTHEST = 300.0
# Counts beyond which values are taken otherwise.
LARGE = 1e5
# Standard deviations beyond which ratios of normal tails are continued fractions, and their terms.
TAIL, TERMS = -4.0, 60
LOG_ROOT_2_PI = 0.5 * math.log(2 * math.pi)
# Rates below which ratios have their series, and beyond which a success is certain.
RARE, CERTAIN = 1e-3, 500.0


@jit
def _is_binary(kind, y, weight):
    """Whether a row is one trial, whose likelihood takes no logarithm at each node."""
    return kind == BINOMIAL and weight == 1.0 and (y == 0.0 or y == 1.0)


@jit
def _sign(kind, y, weight):
    """The sign s for which nodes have ``exp(-s z)`` of a row."""
    if _is_binary(kind, y, weight):
        return 1.0 if y == 1.0 else -1.0
    return 1.0 if kind in (GAMMA, ORDINAL) else -1.0


@jit
def _tilt(kind, y, weight, shapes):
    """The coefficient of z in the part of the log-likelihood that is linear in z."""
    if kind == GAMMA:
        return -weight * shapes[0]
    if kind == ORDINAL:
        return -weight if y < len(shapes) + 2 else 0.0
    return 0.0 if kind in (PROBIT, CLOGLOG) else weight * y


@jit
def _ends(y, shapes):
    """Exponentials of the thresholds above and below a class; zero where there is none."""
    k = int(y)
    above = 0.0 if k > len(shapes) + 1 else (1.0 if k == 1 else shapes[k - 2])
    below = 0.0 if k == 1 else (1.0 if k == 2 else shapes[k - 3])
    return above, below


@jit
def _steepness(kind, y, weight, shapes):
    """Slope, but for its sign, of what is not linear in z, where exponentials do not grow.

    It is that of ``log(1 + e^z)``, which is z there. Exponentials themselves are large enough.
    """
    if kind == NEGATIVE_BINOMIAL:
        return weight * (y + shapes[0])
    if kind == ORDINAL:
        return weight if y == 1 or y > len(shapes) + 1 else 2 * weight
    return weight if kind == BINOMIAL else 0.0


@jit
def _is_large(kind, y):
    """Whether a row is a count whose terms of ``y z`` would leave no digits."""
    return y > LARGE and kind in (POISSON, NEGATIVE_BINOMIAL)


@jit
def _large_poisson(y, z):
    """Log-likelihood at z of a large count, less that at a mean of y."""
    d = min(max(z - math.log(y), -FARTHEST), FARTHEST)
    return y * (d - math.expm1(d))


@jit
def _large_negative_binomial(y, e, size):
    """Log-likelihood, from ``e^z``, of a large count, without what there is besides z."""
    return -size * math.log1p(e / size) - y * math.log1p(size / e)


@jit
def _normal_tail(z):
    """Log of the normal distribution function, its slope, minus its second, and its third one."""
    if z < TAIL:
        more = 0.0
        for k in range(TERMS, 0, -1):
            more = k / (-z + more)
        ratio = more - z
        value = -0.5 * z * z - LOG_ROOT_2_PI - math.log(ratio)
    else:
        below = 0.5 * math.erfc(-z / math.sqrt(2.0))
        value = math.log1p(-0.5 * math.erfc(z / math.sqrt(2.0))) if z > 0 else math.log(below)
        ratio = math.exp(-0.5 * z * z - LOG_ROOT_2_PI - value)
        more = ratio + z
    bend = ratio * more
    return value, ratio, bend, ratio * (more * more + bend - 1)


@jit
def _some_event(z):
    """Log of ``1 - e^(-e^z)``, its slope in z, minus its second derivative, and its third one."""
    m = math.exp(min(z, FARTHEST))
    if m > CERTAIN:
        return 0.0, 0.0, 0.0, 0.0
    if m < RARE:
        value = z - m / 2 + m * m / 24
        ratio = 1 - m / 2 + m * m / 12
        more = m / 2 + m * m / 12
    else:
        none = math.exp(-m)
        value = math.log1p(-none) if none < 0.5 else math.log(-math.expm1(-m))
        ratio = m / math.expm1(m)
        more = m + ratio - 1
    bend = ratio * more
    return value, ratio, bend, bend * more - ratio * (m - bend)


@jit
def _linked(kind, y, weight, z):
    """Log-likelihood of a row of another link, its slope, minus its second, and its third one."""
    value, slope, bend, third = 0.0, 0.0, 0.0, 0.0
    won, lost = weight * y, weight * (1 - y)
    if won > 0:
        v, s, b, t = _normal_tail(z) if kind == PROBIT else _some_event(z)
        value, slope, bend, third = won * v, won * s, won * b, won * t
    if lost > 0:
        if kind == PROBIT:
            v, s, b, t = _normal_tail(-z)
            return value + lost * v, slope - lost * s, bend + lost * b, third - lost * t
        m = lost * math.exp(min(z, FARTHEST))
        return value - m, slope - m, bend + m, third - m
    return value, slope, bend, third


@jit
def _row(kind, y, weight, z, shapes):
    """Log-likelihood of a row, its slope in z, and minus its second derivative."""
    if kind in (PROBIT, CLOGLOG):
        value, slope, bend, _ = _linked(kind, y, weight, z)
        return value, slope, bend
    far = -z if kind in (GAMMA, ORDINAL) else z
    e = math.exp(min(max(far, -FARTHEST), FARTHEST))
    linear = _tilt(kind, y, weight, shapes)
    value = linear * z
    if far > FARTHEST:
        value -= _steepness(kind, y, weight, shapes) * (far - FARTHEST)
    if kind == POISSON:
        m = weight * e
        value = weight * _large_poisson(y, z) if _is_large(kind, y) else value - m
        return value, linear - m, m
    if kind == GAMMA:
        m = weight * shapes[0] * y * e
        return value - m, linear + m, m
    if kind == NEGATIVE_BINOMIAL:
        total, p = weight * (y + shapes[0]), e / (shapes[0] + e)
        if _is_large(kind, y):
            value = weight * _large_negative_binomial(y, e, shapes[0])
        else:
            value -= total * math.log1p(e / shapes[0])
        return value, linear - total * p, total * p * (1 - p)
    if kind == ORDINAL:
        above, below = _ends(y, shapes)
        p, q = above * e / (1 + above * e), below * e / (1 + below * e)
        value -= weight * (math.log1p(above * e) + math.log1p(below * e))
        return value, linear + weight * (p + q), weight * (p * (1 - p) + q * (1 - q))
    p = e / (1 + e)
    return value - weight * math.log1p(e), linear - weight * p, weight * p * (1 - p)


@jit
def _twist(kind, y, weight, z, shapes, bend):
    """Slope in z of minus the second derivative of a row."""
    if kind == POISSON:
        return bend
    if kind == GAMMA:
        return -bend
    if kind in (PROBIT, CLOGLOG):
        return -_linked(kind, y, weight, z)[3]
    e = math.exp(min(max(-z if kind == ORDINAL else z, -FARTHEST), FARTHEST))
    if kind == ORDINAL:
        above, below = _ends(y, shapes)
        p, q = above * e / (1 + above * e), below * e / (1 + below * e)
        return -weight * (p * (1 - p) * (1 - 2 * p) + q * (1 - q) * (1 - 2 * q))
    if kind == NEGATIVE_BINOMIAL:
        return bend * (1 - 2 * e / (shapes[0] + e))
    return bend * (1 - 2 * e / (1 + e))


@jit
def _row_by_shape(kind, y, weight, z, shapes, t):
    """Slopes in shape t of a row's log-likelihood, of its slope, and of minus its second one."""
    e = math.exp(min(max(-z if kind in (GAMMA, ORDINAL) else z, -FARTHEST), FARTHEST))
    if kind == GAMMA:
        m = weight * shapes[0] * y * e
        return -weight * shapes[0] * z - m, m - weight * shapes[0], m
    if kind == NEGATIVE_BINOMIAL:
        size, total = shapes[0], weight * (y + shapes[0])
        p = e / (size + e)
        value = weight * size * math.log1p(e / size) - total * p
        value += weight * y if _is_large(kind, y) else 0.0
        both = p * (1 - p)
        return value, weight * size * p - total * both, both * (total * (1 - 2 * p) - weight * size)
    if not int(y) - 3 <= t < int(y) - 1:  # a threshold of neither end of an ordinal row's class
        return 0.0, 0.0, 0.0
    p = shapes[t] * e / (1 + shapes[t] * e)
    both = weight * p * (1 - p)
    return -weight * p, both, both * (1 - 2 * p)


@jit
def _respond(kind, y, weight, shapes, e, height, bend, count):
    """Derivatives of a row in z at nodes, from exponentials there, which become slopes.

    From `height` the part of the log-likelihood is taken that is not linear in z. Of large counts
    it gets all, if they are negative binomial, and nothing if they are Poisson.
    """
    linear, large = _tilt(kind, y, weight, shapes), _is_large(kind, y)
    if kind == POISSON:
        for k in range(count):
            m = weight * e[k]
            height[k] -= 0.0 if large else m
            bend[k] = m
            e[k] = linear - m
    elif kind == GAMMA:
        scale = weight * shapes[0] * y
        for k in range(count):
            m = scale * e[k]
            height[k] -= m
            bend[k] = m
            e[k] = linear + m
    elif kind == NEGATIVE_BINOMIAL:
        size, total = shapes[0], weight * (y + shapes[0])
        for k in range(count):
            p = e[k] / (size + e[k])
            if large:
                height[k] += weight * _large_negative_binomial(y, e[k], size)
            else:
                height[k] -= total * math.log1p(e[k] / size)
            bend[k] = total * p * (1 - p)
            e[k] = linear - total * p
    elif kind == ORDINAL:
        above, below = _ends(y, shapes)
        for k in range(count):
            p, q = above * e[k] / (1 + above * e[k]), below * e[k] / (1 + below * e[k])
            height[k] -= weight * (math.log1p(above * e[k]) + math.log1p(below * e[k]))
            bend[k] = weight * (p * (1 - p) + q * (1 - q))
            e[k] = linear + weight * (p + q)
    elif kind in (PROBIT, CLOGLOG):
        for k in range(count):
            value, e[k], bend[k], _ = _linked(kind, y, weight, math.log(e[k]))
            height[k] += value
    else:
        for k in range(count):
            p = e[k] / (1 + e[k])
            height[k] -= weight * math.log1p(e[k])
            bend[k] = weight * p * (1 - p)
            e[k] = linear - weight * p


@jit
def _respond_shapes(kind, y, weight, shapes, e, slopes, bends, mixed, row, count):
    """Add a row's derivatives in shapes at nodes, from exponentials there.

    ``slopes[t]`` gets that in shape t, and of large counts y more; bends, of which the first are of
    pairs of columns of a design of `r` columns, minus the second ones. `mixed` is workspace, `row`
    the row's design.
    """
    r = len(row)
    own = r * (r + 1) // 2
    if kind == ORDINAL:
        for t in range(max(int(y) - 3, 0), min(int(y) - 1, len(shapes))):
            own = (r + t) * (r + t + 1) // 2
            for k in range(count):
                p = shapes[t] * e[k] / (1 + shapes[t] * e[k])
                mixed[k] = weight * p * (1 - p)
                slopes[t, k] -= weight * p
                bends[own + r + t, k] += mixed[k]
            for c in range(r):
                for k in range(count):
                    bends[own + c, k] -= row[c] * mixed[k]
        return
    if kind == NEGATIVE_BINOMIAL:
        size, total = shapes[0], weight * (y + shapes[0])
        more = weight * y if _is_large(kind, y) else 0.0
        for k in range(count):
            p = e[k] / (size + e[k])
            log = weight * size * math.log1p(e[k] / size)
            bend = total * p * (1 - p)
            slopes[0, k] += log + (more - total * p)
            bends[own + r, k] += log - 2 * weight * size * p + bend
            mixed[k] = bend - weight * size * p
    elif kind == GAMMA:
        scale = weight * shapes[0] * y
        for k in range(count):
            m = scale * e[k]
            slopes[0, k] -= m
            bends[own + r, k] += m
            mixed[k] = weight * shapes[0] - m
    for c in range(r):
        for k in range(count):
            bends[own + c, k] += row[c] * mixed[k]
