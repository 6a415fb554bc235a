"""The trigamma function, and its inverse."""

import numpy as np

from ebfed.kernels._jit import jit

# From here on, seven terms of the asymptotic series are exact.
_FAR = 12.0


@jit
def inverse_trigamma(y):
    """Solve ``trigamma(x) = y`` by Newton's method for ``1 / trigamma``, which is nearly linear.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Positive.

    Returns
    -------
    ndarray of shape (n,)
    """
    found = np.empty(len(y))
    for i in range(len(y)):
        x = 0.5 + 1.0 / y[i]
        for _ in range(60):
            first, second = _derivatives(x)
            step = first * (1.0 - first / y[i]) / second
            x += step
            if abs(step) < 1e-13 * x:
                break
        found[i] = x
    return found


@jit
def _derivatives(x):
    """Return trigamma and its derivative: recurrence, then Stirling's series."""
    first, second = 0.0, 0.0
    while x < _FAR:
        inverse = 1.0 / x
        square = inverse * inverse
        first += square
        second -= 2.0 * square * inverse
        x += 1.0
    inverse = 1.0 / x
    square = inverse * inverse
    # Bernoulli numbers of order 2 to 14
    numbers = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
    rest, steep, power = 0.0, 0.0, square * inverse
    for k in range(len(numbers)):
        rest += numbers[k] * power
        steep -= (2 * k + 3) * numbers[k] * power * inverse
        power *= square
    return (
        first + inverse + 0.5 * square + rest,
        second - square - square * inverse + steep,
    )
