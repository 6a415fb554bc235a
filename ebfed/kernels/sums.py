"""Sums that do not depend on the order of their terms."""

import math

import numpy as np

from ebfed.kernels._jit import jit

# Of floats of 64 and of 32 bits: digits behind the exponent, and the exponent of infinity.
_DOUBLE, _SINGLE = (52, 2047), (23, 255)
PIECE = 1024  # columns that are added up at once: few enough to stay in a first-level cache


@jit
def _unit_of(digits, sign, kind, bits, least):
    """Return what the numbers of a piece are to be multiples of; 0 if they stay as they are."""
    mantissa, infinite = kind
    top = largest_size(digits, sign)
    exponent = np.int64(top) >> mantissa
    if exponent == infinite:  # or no number
        return 0.0
    power = exponent - infinite // 2 + 1
    if exponent == 0 and infinite == 255:  # a small number of 32 bits is no small one of 64
        power = math.frexp(math.ldexp(float(top), -149))[1]
    unit = max(math.ldexp(1.0, int(power) - bits), least)
    return unit if 1e-290 < unit < 1e290 else 0.0  # its inverse must be a number


@jit
def largest_size(digits, sign):
    """Return the digits of the largest number, without its sign; those of NaN are above all.

    Parameters
    ----------
    digits : int64 or int32 ndarray of shape (size,)
        Memory of floats.
    sign : int64 or int32
        The bit of the sign alone.
    """
    # floats without sign are ordered as their digits are; NumPy's functions keep 32 bits
    top, others = np.bitwise_xor(sign, sign), np.invert(sign)
    for j in range(len(digits)):
        top = max(top, np.bitwise_and(digits[j], others))
    return top


@jit
def shorten_digits(values, bits, least):
    """Cut the digits of each row off, towards zero, where they are too small beside its largest.

    Rows are cut in pieces of `PIECE` columns. One of largest entry below ``2**e`` becomes multiples
    of ``max(2**(e - bits), least)``.

    Parameters
    ----------
    values : float64 ndarray of shape (n, size)
        Written to. Pieces that are not finite stay as they are.
    bits : int
    least : float
        A power of two, or 0.
    """
    digits, size = values.view(np.int64), values.shape[1]
    for i in range(len(values)):
        for first in range(0, size, PIECE):
            last = min(first + PIECE, size)
            unit = _unit_of(digits[i, first:last], np.int64(-(2**63)), _DOUBLE, bits, least)
            if unit == 0:
                continue
            inverse = 1.0 / unit
            for j in range(first, last):
                values[i, j] = np.trunc(values[i, j] * inverse) * unit


@jit
def add_shortened(values, digits, sign, bits, least, skip, start, out):
    """Add up rows as `shorten_digits` would leave them; see `column_sums`.

    Parameters
    ----------
    values : float64 or float32 ndarray of shape (n, k)
    digits : int64 or int32 ndarray of shape (n, k)
        The same memory.
    sign : int64 or int32
        The bit of the sign alone.
    bits, least
        As in `shorten_digits`.
    skip : int
        The column of `values` that `start` and `out` begin with.
    start : float64 ndarray of shape (size,) or (0,)
        Sums to begin with, if there are any.
    out : float64 ndarray of shape (size,)
        Array for the sums.

    Returns
    -------
    bool
        Whether the sums are exact.
    """
    double = values.itemsize == 8
    kind, smallest = (_DOUBLE, 1e-300) if double else (_SINGLE, 1e-30)  # units that are numbers
    units, exact, size = np.empty(len(values)), True, len(out)
    for first in range(0, size, PIECE):
        last = min(first + PIECE, size)
        begin, end = skip + first, skip + last
        for i in range(len(values)):
            units[i] = _unit_of(digits[i, begin:end], sign, kind, bits, least)
        # sums below 2**53 of the smallest unit are exact, and no row exceeds 2**bits of its own
        short = len(units) > 0 and 0 < units.sum() <= units.min() * 2.0 ** (53 - bits)
        if short and smallest < units.min() and units.max() < 1 / smallest:
            own = units.astype(values.dtype)
            exact &= _add_short(values, begin, own, start[first:last], out[first:last])
        else:
            exact &= _add(values, begin, units, start[first:last], out[first:last])
    return exact


@jit
def column_sums(values, start, out):
    """Add up the rows of an array, and say whether nothing was rounded.

    Parameters
    ----------
    values : ndarray of shape (n, size)
    start : ndarray of shape (size,) or (0,)
        Sums to begin with, if there are any.
    out : ndarray of shape (size,)
        Array for the sums.

    Returns
    -------
    bool
        Whether the sums are exact; they are not if they are not finite.
    """
    units, exact, size = np.zeros(len(values)), True, len(out)
    for first in range(0, size, PIECE):
        last = min(first + PIECE, size)
        exact &= _add(values, first, units, start[first:last], out[first:last])
    return exact


@jit
def _add(values, begin, units, start, out):
    """Add up a piece of each row, cut to multiples of its unit if that is above 0."""
    terms, wrong, size = np.empty(len(out)), 0, len(out)
    out[:] = 0.0
    if len(start) > 0:
        out[:] = start
    for i in range(len(values)):
        row, unit = values[i, begin : begin + size], units[i]
        if unit > 0:
            inverse = 1.0 / unit
            for j in range(size):
                terms[j] = np.trunc(row[j] * inverse) * unit
            wrong += _add_row(terms, out)
        else:
            wrong += _add_row(row, out)
    return wrong == 0


@jit
def _add_row(row, out):
    """Add a row to sums, and count those that are rounded, or not finite."""
    wrong = 0
    for j in range(len(out)):
        whole = out[j] + row[j]
        wrong += _error(out[j], row[j], whole) != 0.0
        out[j] = whole
    return wrong


@jit
def _add_short(values, begin, units, start, out):
    """Add up a piece of each row, where these sums are exact, and then a start."""
    size, out[:] = len(out), 0.0
    for i in range(len(values)):
        row, unit = values[i, begin : begin + size], units[i]
        inverse = np.reciprocal(unit)  # of the same precision
        for j in range(size):
            out[j] += np.trunc(row[j] * inverse) * unit
    return len(start) == 0 or _add_row(start, out) == 0


@jit
def _error(before, term, after):
    """Return Knuth's error of a sum."""
    part = after - before
    return (before - (after - part)) + (term - part)
