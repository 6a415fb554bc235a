"""Rising factorials, the ingredient of beta-binomial probabilities, and their derivatives."""

import numpy as np

from ebfed.kernels._jit import jit


@jit
def rising_sums(starts, counts, step):
    """Sums over ``j < counts[i]`` of functions of ``x = starts[i] + j * step``.

    Parameters
    ----------
    starts : ndarray of shape (n,)
        Positive.
    counts : int64 ndarray of shape (n,)
    step : float
        Not negative.

    Returns
    -------
    ndarray of shape (n, 4)
        Columns: sums of ``log x``, ``1 / x``, ``1 / x**2`` and ``j / x``.
    """
    sums = np.zeros((len(starts), 4))
    for i in range(len(starts)):
        log, inverse, square, weighted, product = 0.0, 0.0, 0.0, 0.0, 1.0
        for j in range(counts[i]):
            x = starts[i] + j * step
            product *= x
            if not 1e-200 < product < 1e200:  # one logarithm for many factors
                log += np.log(product)
                product = 1.0
            inverse += 1 / x
            square += 1 / (x * x)
            weighted += j / x
        sums[i, 0] = log + np.log(product)
        sums[i, 1], sums[i, 2], sums[i, 3] = inverse, square, weighted
    return sums
