"""Sums that do not depend on the order of their terms."""

import math

import numpy as np

from ebfed.kernels._jit import jit

_SIZE = np.int64(0x7FFFFFFFFFFFFFFF)  # all digits of a float but its sign


@jit
def shorten_digits(values, bits, least):
    """Cut the digits of each row off, towards zero, where they are too small beside its largest.

    A row of largest entry below ``2**e`` becomes multiples of ``max(2**(e - bits), least)``.

    Parameters
    ----------
    values : ndarray of shape (n, size)
        Written to. Rows that are not finite stay as they are.
    bits : int
    least : float
        A power of two, or 0.
    """
    digits = values.view(np.int64)
    for i in range(len(values)):
        top = np.int64(0)  # floats without sign are ordered as their digits are
        for j in range(values.shape[1]):
            top = max(top, digits[i, j] & _SIZE)
        exponent = top >> np.int64(52)
        if exponent == 2047:  # infinite, or no number
            continue
        # the exponents of floats begin at -1022
        unit = max(math.ldexp(1.0, int(exponent) - 1022 - bits), least)
        if not 1e-290 < unit < 1e290:  # its inverse must be a number
            continue
        inverse = 1.0 / unit
        for j in range(values.shape[1]):
            values[i, j] = np.float64(np.int64(values[i, j] * inverse)) * unit


@jit
def column_sums(values):
    """Add up the rows of an array, and say whether anything was rounded.

    Parameters
    ----------
    values : ndarray of shape (n, size)

    Returns
    -------
    sums : ndarray of shape (size,)
    lost : float
        0 if the sums are exact; NaN if they are not finite.
    """
    sums, lost = np.zeros(values.shape[1]), 0.0
    for i in range(len(values)):
        for j in range(values.shape[1]):
            before, term = sums[j], values[i, j]
            after = before + term
            part = after - before
            lost += abs((before - (after - part)) + (term - part))  # Knuth's error of a sum
            sums[j] = after
    return sums, lost
