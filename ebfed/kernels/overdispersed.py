"""Integrals of negative binomial likelihoods over gamma populations of rates."""

import math

import numpy as np

from ebfed.kernels._jit import jit

# Terms below this share of the largest are left out.
_NOTHING = 1e-18
# Widest step, where integrands are wider than what makes them smooth.
_STEP = 0.25
# Sizes, counts and shapes of so many lose no digits that matter where 1 is subtracted or added.
_MILD = 1000.0


@jit
def negative_binomial_gamma(counts, ratios, sizes, shape, finest):
    """Integrate over ``x``, the ratio of a rate to its mean, which is gamma of mean 1.

    The trapezoidal rule in ``w = log x``, whose error falls exponentially with the number of nodes.

    Parameters
    ----------
    counts : ndarray of shape (n,)
    ratios : ndarray of shape (n,)
        Expected counts over sizes, positive.
    sizes : ndarray of shape (n,)
        Sizes of the negative binomial.
    shape : float
        Shape of the gamma.
    finest : float
        Steps, in widths of the integrand: errors are about 1e-13 at a half, 1e-3 at 3 halves.

    Returns
    -------
    ndarray of shape (n, 6)
        Logarithm of the integral of ``(ratio x)**y / (1 + ratio x)**(y + size)``, over the largest
        value that it has for any x, times ``exp(-shape v)``, over w, with ``v = x - 1 - w``, and
        under the density that it is of: means of ``x - 1`` and v, their variances, and, last, their
        covariance.
    """
    found = np.empty((len(counts), 6))
    for i in range(len(counts)):
        y, ratio, size = counts[i], ratios[i], sizes[i]
        total = y + size
        w, bend, inside, share = math.log((shape + y) / (shape + ratio * size)), 1.0, 1.0, 0.5
        for _ in range(60):
            inside = ratio * math.exp(w)
            share, prior = inside / (1.0 + inside), shape * math.exp(w)
            bend = prior + total * share / (1.0 + inside)
            step = ((y - size * inside) / (1.0 + inside) - shape * math.expm1(w)) / bend
            w += min(max(step, -2.0), 2.0)
            if abs(step) * math.sqrt(bend) < 1e-3:
                break
        inside = ratio * math.exp(w)
        share, rest = inside / (1.0 + inside), 1.0 / (1.0 + inside)
        step = min(finest / math.sqrt(bend), 2.0 * finest * _STEP)
        top, away, beyond = math.exp(w), math.expm1(w), math.expm1(w) - w
        mean = size * inside
        if y == 0.0:
            peak = -size * math.log1p(inside)
        elif y < size:
            peak = y * math.log(mean / y) - total * math.log1p((mean - y) / total)
        else:
            peak = -size * math.log(mean / y) - total * math.log1p(size / total * (y / mean - 1.0))
        peak -= shape * beyond
        is_mild = total + shape < _MILD  # digits of log1p and expm1 do not matter
        mass, one, two, squares, others, products = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for side in (-step, step):
            d, growth, factor = 0.0, 1.0, math.exp(side)
            while True:  # all is relative to the mode: differences of large terms lose digits
                d += side
                growth *= factor
                if is_mild:
                    gain = growth - 1.0
                    fall = y * d - total * math.log(rest + share * growth)
                elif share < rest:
                    gain = math.expm1(d)
                    fall = y * d - total * math.log1p(share * gain)
                else:
                    gain = math.expm1(d)
                    fall = -size * d - total * math.log1p(-rest * gain / growth)
                x = top * gain
                v = x - d
                height = math.exp(fall - shape * v)
                mass += height
                one += height * x
                two += height * v
                squares += height * x * x
                others += height * v * v
                products += height * x * v
                if height < _NOTHING:
                    break
                if max(1.0, ratio) * top * growth < _NOTHING:
                    # from here on down heights are powers, and x is 0
                    down = math.exp(-(y + shape) * step)
                    first = height * down / (1.0 - down)
                    second = first * step / (1.0 - down)
                    third = second * step * (1.0 + down) / (1.0 - down)
                    mass += first
                    one += first * x
                    two += first * v + second
                    squares += first * x * x
                    others += first * v * v + 2.0 * second * v + third
                    products += (first * v + second) * x
                    break
        one, two = one / mass, two / mass
        found[i, 0] = peak + math.log(step * mass)
        found[i, 1], found[i, 2] = away + one, beyond + two
        found[i, 3], found[i, 4] = squares / mass - one * one, others / mass - two * two
        found[i, 5] = products / mass - one * two
    return found
