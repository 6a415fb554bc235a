"""One pass over the rows of a table: numbering of labels, and per-group summaries."""

import numpy as np

from ebfed.kernels._jit import jit

# Groups whose sums are at hand at once.
_BLOCK = 64
_MULTIPLIER = np.uint64(11400714819323198485)  # 2**64 over the golden ratio


@jit
def summarise_rows(values, codes, offset, size):
    """Number, mean and centred sum of squares of the values of each group.

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
    table = np.zeros((size, 4))
    add_rows(table, values, codes, offset)
    for group in range(size):
        table[group, 1] += table[group, 2]
        table[group, 2] = table[group, 3]
    return table[:, :3]


@jit
def add_rows(table, values, codes, offset):
    """Bring a table of summaries up to date with more rows (Welford's update).

    A group's figures lie side by side, so that a row of an unsorted table costs one cache miss. The
    mean is kept as its distance from the group's first value, which centres as well as any other
    value of the group: no digit is lost however large means are, and however far apart.

    Parameters
    ----------
    table : ndarray of shape (size, 4)
        Columns: number of rows, first value, mean less the first value, centred sum of squares;
        zeros where a group has no rows yet. Written to.
    values : ndarray of shape (n_rows,)
    codes : int64 ndarray of shape (n_rows,)
        The group of each row, between `offset` and `offset + size - 1`.
    offset : int
    """
    for row in range(len(values)):
        group = np.uint64(codes[row] - offset)  # unsigned: no wrap-around test on each access
        count = table[group, 0] + 1.0
        table[group, 0] = count
        if count == 1.0:
            table[group, 1] = values[row]
            continue
        value = values[row] - table[group, 1]
        deviation = value - table[group, 2]
        mean = table[group, 2] + deviation / count
        table[group, 2] = mean
        table[group, 3] += deviation * (value - mean)


@jit
def add_entries(codes, places, times, table, sums):
    """Add up rows of a table by group.

    Rows are sorted by group first: sums of many columns are then added up where they are at hand.

    Parameters
    ----------
    codes : int64 ndarray of shape (n_rows,)
        The group of each row, from 0 to ``size - 1``.
    places : int64 ndarray of shape (n_rows,)
        Its row of the table.
    times : ndarray of shape (n_rows,) or (0,)
        What this is multiplied by; 1, if empty.
    table : ndarray of shape (m, k)
    sums : ndarray of shape (k, size)
        Written to.
    """
    (k, size), weighed = sums.shape, len(times) > 0
    ends = np.zeros(size + 1, np.int64)
    for row in range(len(codes)):
        ends[codes[row] + 1] += 1
    for group in range(size):
        ends[group + 1] += ends[group]
    at = ends[:-1].copy()
    own = np.empty(len(codes), np.int64)
    for row in range(len(codes)):
        code = np.uint64(codes[row])
        own[np.uint64(at[code])] = row if weighed else places[row]
        at[code] += 1
    block = np.empty((_BLOCK, k))
    for first in range(0, size, _BLOCK):
        last = min(first + _BLOCK, size)
        for group in range(first, last):
            total = block[group - first]
            total[:] = 0.0
            for i in range(ends[group], ends[group + 1]):
                if weighed:
                    weight, entry = times[own[i]], table[places[own[i]]]
                    for j in range(k):
                        total[j] += weight * entry[j]
                else:
                    entry = table[np.uint64(own[i])]
                    for j in range(k):
                        total[j] += entry[j]
        for j in range(k):
            for group in range(first, last):
                sums[j, group] = block[group - first, j]


@jit
def sums_of_clients(values, indptr):
    """Sum the rows of each client, one after the other: blocks make no difference.

    Parameters
    ----------
    values : ndarray of shape (n_rows, k)
    indptr : int64 ndarray of shape (n_clients + 1,)
        Client i owns rows ``indptr[i]:indptr[i + 1]``.

    Returns
    -------
    ndarray of shape (n_clients, k)
    """
    sums = np.zeros((len(indptr) - 1, values.shape[1]))
    for i in range(len(sums)):
        for row in range(indptr[i], indptr[i + 1]):
            for j in range(values.shape[1]):
                sums[i, j] += values[row, j]
    return sums


@jit
def products_of_clients(values, indptr, centre):
    """Sum the products of the columns of each client's rows, less its centre.

    Parameters
    ----------
    values : ndarray of shape (n_rows, p)
    indptr : int64 ndarray of shape (n_clients + 1,)
        Client i owns rows ``indptr[i]:indptr[i + 1]``.
    centre : ndarray of shape (n_clients, p)

    Returns
    -------
    ndarray of shape (n_clients, p, p)
    """
    p = values.shape[1]
    sums, away = np.zeros((len(centre), p, p)), np.empty(p)
    for i in range(len(centre)):
        for row in range(indptr[i], indptr[i + 1]):
            for j in range(p):
                away[j] = values[row, j] - centre[i, j]
                for k in range(j + 1):
                    sums[i, j, k] += away[j] * away[k]
        for j in range(p):
            for k in range(j):
                sums[i, k, j] = sums[i, j, k]
    return sums


@jit
def number_below(keys, size):
    """Number distinct integers from 0 to ``size - 1`` in order of first appearance.

    By a table with a place for each possible key.

    Parameters
    ----------
    keys : int64 ndarray of shape (n,)
    size : int

    Returns
    -------
    codes : int64 ndarray of shape (n,)
    first : int64 ndarray of shape (n_distinct,)
        Where each number first appears.
    counts : int64 ndarray of shape (n_distinct,)
        How often.
    """
    numbers = np.full(size, -1, np.int64)
    codes = np.empty(len(keys), np.int64)
    first, counts = np.empty(size, np.int64), np.zeros(size, np.int64)
    distinct = 0
    for row in range(len(keys)):
        number = numbers[keys[row]]
        if number < 0:
            number = distinct
            numbers[keys[row]], first[number] = number, row
            distinct += 1
        codes[row] = number
        counts[number] += 1
    return codes, first[:distinct].copy(), counts[:distinct].copy()


@jit
def number_more(slots, distinct, keys):
    """Number distinct integers in order of first appearance, on from where other keys ended.

    By open addressing.

    Parameters
    ----------
    slots : int64 ndarray of shape (2**bits, 2)
        Numbers given before: key, and number + 1 (0: empty). To begin, 2**10 rows of zeros.
        Written to.
    distinct : int
        Number of these numbers.
    keys : int64 ndarray of shape (n,)

    Returns
    -------
    slots : int64 ndarray
        For the next block.
    codes : int64 ndarray of shape (n,)
    first : int64 ndarray of shape (n_new,)
        Where each new number first appears in `keys`.
    """
    # Fibonacci hashing: the top bits of a product spread neighbouring keys over the table
    hashes = keys.view(np.uint64) * _MULTIPLIER
    codes, first = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    row = new = 0
    while True:
        row, new = _number_until_full(slots, distinct, keys, hashes, codes, first, row, new)
        if row == len(keys):
            return slots, codes, first[:new].copy()
        slots = _spread(slots)


@jit
def order_distinct(keys, others, low, shift, n_buckets, most):
    """Order distinct rows of non-negative integers, by buckets of similar keys.

    Parameters
    ----------
    keys : int64 ndarray of shape (n,)
    others : int64 ndarray of shape (n, k)
        By which rows of equal keys are ordered.
    low, shift, n_buckets : int
        Bucket ``(key - low) >> shift`` of each key, of those from 0 to ``n_buckets - 1``.
    most : int
        Rows that a bucket may have.

    Returns
    -------
    first : int64 ndarray of shape (n_distinct,)
        Where each distinct row first appears; empty if a bucket has more than `most`.
    counts : int64 ndarray of shape (n_distinct,)
        How often.
    """
    n = len(keys)
    ends = np.zeros(n_buckets + 1, np.int64)
    for row in range(n):
        ends[((keys[row] - low) >> shift) + 1] += 1
    order, counts = np.empty(n, np.int64), np.empty(n, np.int64)
    for bucket in range(n_buckets):
        if ends[bucket + 1] > most:
            return order[:0].copy(), counts[:0].copy()
        ends[bucket + 1] += ends[bucket]
    places = ends[:-1].copy()
    for row in range(n):
        bucket = (keys[row] - low) >> shift
        order[places[bucket]] = row
        places[bucket] += 1
    distinct = 0  # never more than the rows that were read
    for bucket in range(n_buckets):
        start, end = ends[bucket], ends[bucket + 1]
        for place in range(start + 1, end):
            row, at = order[place], place
            while at > start and _compare(keys, others, row, order[at - 1]) < 0:
                order[at] = order[at - 1]
                at -= 1
            order[at] = row
        begun = distinct
        for place in range(start, end):
            row = order[place]
            if distinct > begun and _compare(keys, others, row, order[distinct - 1]) == 0:
                counts[distinct - 1] += 1
            else:
                order[distinct], counts[distinct] = row, 1
                distinct += 1
    return order[:distinct].copy(), counts[:distinct].copy()


@jit
def _compare(keys, others, one, two):
    """Return less than 0 if a row comes before another, and 0 if they are equal."""
    if keys[one] != keys[two]:
        return -1 if keys[one] < keys[two] else 1
    for j in range(others.shape[1]):
        if others[one, j] != others[two, j]:
            return -1 if others[one, j] < others[two, j] else 1
    return 0


@jit
def _number_until_full(slots, distinct, keys, hashes, codes, first, row, new):
    """Number keys from `row` on until the table is half full."""
    shift = _shift(slots)
    for each in range(row, len(keys)):
        place = _slot(slots, keys[each], hashes[each], shift)
        if slots[place, 1] == 0:
            if 2 * (distinct + new) >= len(slots):
                return each, new
            first[new] = each
            new += 1
            slots[place, 0] = keys[each]
            slots[place, 1] = distinct + new
        codes[each] = slots[place, 1] - 1
    return len(keys), new


@jit
def _spread(slots):
    """Give every key its place in a table four times as large."""
    wider = np.zeros((4 * len(slots), 2), np.int64)
    hashes = slots[:, 0].copy().view(np.uint64) * _MULTIPLIER
    shift = _shift(wider)
    for old in range(len(slots)):
        if slots[old, 1] != 0:
            place = _slot(wider, slots[old, 0], hashes[old], shift)
            # one by one: the compiler takes seconds for the assignment of a row
            wider[place, 0] = slots[old, 0]
            wider[place, 1] = slots[old, 1]
    return wider


@jit
def _shift(slots):
    """Number of bits by which a hash is shifted, so that its top bits number the slots."""
    shift = 64
    while 1 << (64 - shift) < len(slots):
        shift -= 1
    return np.uint64(shift)


@jit
def _slot(slots, key, hash_, shift):
    """Place of `key` in the table, or the empty place for it."""
    place = np.uint64(hash_ >> shift)
    while slots[place, 1] != 0 and slots[place, 0] != key:
        place = np.uint64((place + np.uint64(1)) & np.uint64(len(slots) - 1))
    return place


@jit
def add_cells(codes, size, mean, scatter, coefficients, place, total, centre, apart):
    """Add up columns of cells of groups: numbers of the cells, each times a coefficient.

    Moments are merged as Chan, Golub and LeVeque (1983) do: a column that is the same in all cells
    has no scatter.

    Parameters
    ----------
    codes : int64 ndarray of shape (n_cells,)
        The group of each cell.
    size : ndarray of shape (n_cells,)
        Number of rows of each, or sum of their weights.
    mean : ndarray of shape (n_cells, k)
    scatter : ndarray of shape (n_cells, k, k)
        Of the numbers, within each cell.
    coefficients : ndarray of shape (n_cells, d)
    place : int64 ndarray of shape (d,)
        Which number a column is of; -1: of 1.
    total : ndarray of shape (n_groups,)
    centre : ndarray of shape (n_groups, d)
    apart : ndarray of shape (n_groups, d, d)
        Sizes, means and scatters of groups, to which are added those of cells. Written to.
    """
    d = len(place)
    away = np.empty(d)
    for cell in range(len(codes)):
        if size[cell] == 0.0:
            continue
        group, factor = codes[cell], coefficients[cell]
        share = size[cell] / (total[group] + size[cell])
        for j in range(d):
            value = factor[j]
            if place[j] >= 0:
                value *= mean[cell, place[j]]
            away[j] = value - centre[group, j]
            centre[group, j] += share * away[j]
        between = total[group] * share
        total[group] += size[cell]
        for j in range(d):
            for k in range(d):
                found = between * away[j] * away[k]
                if place[j] >= 0 and place[k] >= 0:
                    found += factor[j] * factor[k] * scatter[cell, place[j], place[k]]
                apart[group, j, k] += found
