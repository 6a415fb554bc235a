"""Sums that do not depend on the order of their terms."""

import math

import numpy as np

from ebfed.kernels._jit import jit

# Of floats of 64 and of 32 bits: digits behind the exponent, and the exponent of infinity.
_DOUBLE, _SINGLE = (52, 2047), (23, 255)
_TILE = 1024  # columns that are added up at once: few enough to stay in a first-level cache


@jit
def _unit_of(digits, sign, kind, bits, least):
    """Return what the numbers of a row are to be multiples of; 0 if they stay as they are."""
    top = sign ^ sign  # floats without sign are ordered as their digits are
    for j in range(len(digits)):
        top = max(top, digits[j] & ~sign)
    mantissa, infinite = kind
    exponent = np.int64(top) >> mantissa
    if exponent == infinite:  # or no number
        return 0.0
    power = exponent - infinite // 2 + 1
    if exponent == 0 and infinite == 255:  # a small number of 32 bits is no small one of 64
        power = math.frexp(math.ldexp(float(top), -149))[1]
    unit = max(math.ldexp(1.0, int(power) - bits), least)
    return unit if 1e-290 < unit < 1e290 else 0.0  # its inverse must be a number


@jit
def shorten_digits(values, bits, least):
    """Cut the digits of each row off, towards zero, where they are too small beside its largest.

    A row of largest entry below ``2**e`` becomes multiples of ``max(2**(e - bits), least)``.

    Parameters
    ----------
    values : float64 ndarray of shape (n, size)
        Written to. Rows that are not finite stay as they are.
    bits : int
    least : float
        A power of two, or 0.
    """
    digits = values.view(np.int64)
    for i in range(len(values)):
        unit = _unit_of(digits[i], np.int64(-(2**63)), _DOUBLE, bits, least)
        if unit == 0:
            continue
        inverse = 1.0 / unit
        for j in range(values.shape[1]):
            values[i, j] = np.trunc(values[i, j] * inverse) * unit


@jit
def add_shortened(values, digits, sign, bits, least, start, out):
    """Add up rows as `shorten_digits` would leave them; see `column_sums`.

    Parameters
    ----------
    values : float64 or float32 ndarray of shape (n, size)
    digits : int64 or int32 ndarray of shape (n, size)
        The same memory.
    sign : int64 or int32
        The bit of the sign alone.
    bits, least
        As in `shorten_digits`.
    start, out : float64 ndarrays of shape (size,)
        Sums to begin with, and array for the sums.

    Returns
    -------
    bool
        Whether the sums are exact.
    """
    units = np.empty(len(values))
    for i in range(len(values)):
        kind = _DOUBLE if values.itemsize == 8 else _SINGLE
        units[i] = _unit_of(digits[i], sign, kind, bits, least)
    # sums below 2**53 of the smallest unit are exact, and no row exceeds 2**bits of its own
    if len(units) > 0 and 0 < units.sum() <= units.min() * 2.0 ** (53 - bits):
        return _add_short(values, units, start, out)
    return _add(values, units, start, out)


@jit
def column_sums(values, start, out):
    """Add up the rows of an array, and say whether nothing was rounded.

    Parameters
    ----------
    values : ndarray of shape (n, size)
    start : ndarray of shape (size,)
        Sums to begin with.
    out : ndarray of shape (size,)
        Array for the sums.

    Returns
    -------
    bool
        Whether the sums are exact; they are not if they are not finite.
    """
    return _add(values, np.zeros(len(values)), start, out)


@jit
def _add(values, units, start, out):
    """Add up rows, of which each is cut to multiples of its unit, if that is above 0."""
    n, size = values.shape
    exact, terms = True, np.empty(_TILE)
    for first in range(0, size, _TILE):
        last = min(first + _TILE, size)
        sums, before, wrong = out[first:last], start[first:last], 0
        if n == 0:
            sums[:] = before
        for i in range(n):
            row, unit = values[i, first:last], units[i]
            inverse = 1.0 / unit if unit > 0 else 1.0
            if unit > 0:
                for j in range(last - first):
                    terms[j] = np.trunc(row[j] * inverse) * unit
            else:
                for j in range(last - first):
                    terms[j] = row[j]
            if i == 0:
                for j in range(last - first):
                    sums[j] = before[j] + terms[j]
                    wrong |= _error(before[j], terms[j], sums[j]) != 0.0
            else:
                for j in range(last - first):
                    whole = sums[j] + terms[j]
                    wrong |= _error(sums[j], terms[j], whole) != 0.0
                    sums[j] = whole
        exact &= wrong == 0
    return exact


@jit
def _add_short(values, units, start, out):
    """Add up rows whose sums are exact, and then a start."""
    n, size = values.shape
    exact = True
    for first in range(0, size, _TILE):
        last = min(first + _TILE, size)
        sums, before, wrong = out[first:last], start[first:last], 0
        sums[:] = 0.0
        for i in range(n):
            row, unit = values[i, first:last], units[i]
            inverse = 1.0 / unit
            for j in range(last - first):
                sums[j] += np.trunc(row[j] * inverse) * unit
        for j in range(last - first):
            whole = before[j] + sums[j]
            wrong |= _error(before[j], sums[j], whole) != 0.0
            sums[j] = whole
        exact &= wrong == 0
    return exact


@jit
def _error(before, term, after):
    """Return Knuth's error of a sum."""
    part = after - before
    return (before - (after - part)) + (term - part)
