"""One pass over the rows of a table: numbering of labels, and per-group summaries."""

import numpy as np

from ebfed.kernels._jit import jit


@jit
def summarise_rows(values, codes, offset, size):
    """Number, mean and centred sum of squares of the values of each group (Welford's update).

    A group's three figures lie side by side, so that a row of an unsorted table costs one cache
    miss rather than three; centring as it goes keeps every digit when means are large.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
    codes : int64 ndarray of shape (n_rows,)
        The group of each row, between `offset` and `offset + size - 1`.
    offset, size : int

    Returns
    -------
    ndarray of shape (size, 3)
        Columns: number of rows, mean, centred sum of squares.
    """
    table = np.zeros((size, 3))
    for row in range(len(values)):
        group = np.uint64(codes[row] - offset)  # unsigned: no wrap-around test on each access
        deviation = values[row] - table[group, 1]
        count = table[group, 0] + 1.0
        mean = table[group, 1] + deviation / count
        table[group, 0] = count
        table[group, 1] = mean
        table[group, 2] += deviation * (values[row] - mean)
    return table


@jit
def number_integers(keys):
    """Number distinct integers 0, 1, … in order of first appearance (open addressing).

    Parameters
    ----------
    keys : int64 ndarray of shape (n,)

    Returns
    -------
    codes : int64 ndarray of shape (n,)
    first : int64 ndarray of shape (n_distinct,)
        Where each number first appears.
    """
    # Fibonacci hashing: the top bits of a product spread neighbouring keys over the table
    hashes = keys.view(np.uint64) * np.uint64(11400714819323198485)
    bits = 10
    slots = np.zeros((1 << bits, 2), np.int64)  # key, code + 1 (0: empty)
    codes = np.empty(len(keys), np.int64)
    first = np.empty(1 << bits, np.int64)
    distinct = 0
    for row in range(len(keys)):
        place = _slot(slots, keys[row], hashes[row], bits)
        if slots[place, 1] == 0:
            first[distinct] = row
            distinct += 1
            slots[place, 0] = keys[row]
            slots[place, 1] = distinct
            codes[row] = distinct - 1
            if 2 * distinct == len(slots):  # half full
                bits += 2
                slots = np.zeros((1 << bits, 2), np.int64)
                for code in range(distinct):
                    place = _slot(slots, keys[first[code]], hashes[first[code]], bits)
                    slots[place, 0] = keys[first[code]]
                    slots[place, 1] = code + 1
                first = np.concatenate((first[:distinct], np.empty(1 << bits, np.int64)))
        else:
            codes[row] = slots[place, 1] - 1
    return codes, first[:distinct].copy()


@jit
def _slot(slots, key, hash_, bits):
    """Where `key` lies in the table, or the empty place where it belongs."""
    place = np.uint64(hash_ >> np.uint64(64 - bits))
    while slots[place, 1] != 0 and slots[place, 0] != key:
        place = np.uint64((place + np.uint64(1)) & np.uint64(len(slots) - 1))
    return place
