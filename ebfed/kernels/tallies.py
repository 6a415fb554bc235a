"""Sums over clients: of likelihoods at many values, and of clients in components."""

import math

import numpy as np

from ebfed.kernels._jit import jit

_RESTART = 64  # nodes between two exponentials: rounding grows as the square of the steps
_MANY = 30  # factors that take longer than four of log-gamma


@jit
def _search(nodes, starts, at):
    """First node that is at least `at`; `starts` are those of even cells from end to end."""
    cells = len(starts) - 1
    low, high = nodes[0], nodes[-1]
    if not at > low:
        return 0
    if at > high:
        return len(nodes)
    cell = min(int((at - low) / (high - low) * cells), cells - 1)
    # rounding may choose a neighbour
    first, last = starts[max(cell - 1, 0)], starts[min(cell + 2, cells)]
    while first < last:
        middle = (first + last) // 2
        if nodes[middle] < at:
            first = middle + 1
        else:
            last = middle
    return first


@jit
def gaussian_tally(masses, values, errors, nodes):
    """``sum_i masses_i exp(-((values_i - node) / errors_i)**2 / 2)`` at each node.

    Over equidistant nodes, exponentials follow from their predecessors by products, in four chains
    that do not wait for one another; terms below 1e-16 are left out.

    Parameters
    ----------
    masses, values, errors : ndarray of shape (n,)
        Masses and errors positive.
    nodes : increasing ndarray of shape (k,)

    Returns
    -------
    ndarray of shape (k,)
    """
    k = len(nodes)
    if k == 0:
        return np.zeros(0)
    ends = np.full(k, k - 1)  # of the equidistant stretch that starts at each node
    for j in range(k - 3, -1, -1):
        gap = nodes[j + 1] - nodes[j]
        even = abs(nodes[j + 2] - nodes[j + 1] - gap) <= 1e-11 * gap
        ends[j] = ends[j + 1] if even else j + 1
    edges = np.linspace(nodes[0], nodes[k - 1], 2 * k + 1)
    starts = np.searchsorted(nodes, edges)
    out = np.zeros(k)
    for i in range(len(values)):
        x, mass, precision = values[i], masses[i], 1.0 / errors[i]
        reach = errors[i] * math.sqrt(2.0 * (37.0 + max(math.log(mass), 0.0)))
        first, last = _search(nodes, starts, x - reach), _search(nodes, starts, x + reach)
        gap, step, bend = 0.0, 0.0, 1.0
        while first < last:
            stop = min(ends[first] + 1, last, first + _RESTART)
            z = (nodes[first] - x) * precision
            a = mass * math.exp(-0.5 * z * z)
            if stop == first + 1:
                out[first] += a
                first = stop
                continue
            if nodes[first + 1] - nodes[first] != gap:
                gap = nodes[first + 1] - nodes[first]
                step = gap * precision
                bend = math.exp(-step * step)
            ratio = math.exp(-step * (z + 0.5 * step))
            if stop - first < 8:
                for j in range(first, stop):
                    out[j] += a
                    a *= ratio
                    ratio *= bend
                first = stop
                continue
            # terms of four nodes, and of each the ratio to that four nodes on
            p = ratio * ratio
            p *= p * bend * bend * bend
            square = bend * bend
            p *= square * bend
            b = a * ratio
            ratio *= bend
            c = b * ratio
            ratio *= bend
            d = c * ratio
            square *= square
            q = p * square
            r = q * square
            s = r * square
            square *= square
            square *= square
            whole = stop - (stop - first) % 4
            for j in range(first, whole, 4):
                out[j] += a
                out[j + 1] += b
                out[j + 2] += c
                out[j + 3] += d
                a *= p
                b *= q
                c *= r
                d *= s
                p *= square
                q *= square
                r *= square
                s *= square
            if whole < stop:
                out[whole] += a
            if whole + 1 < stop:
                out[whole + 1] += b
            if whole + 2 < stop:
                out[whole + 2] += c
            first = stop
    return out


@jit
def pick_members(likelihoods, weights, rows, uniforms):
    """Give each client a component at random.

    Client i, whose messages are in row ``r = rows_i``, is in component j with probability
    ``weights_j L_jr / sum_l weights_l L_lr``.

    Parameters
    ----------
    likelihoods : C-contiguous ndarray of shape (k, n)
        L, each row of messages up to a factor.
    weights : ndarray of shape (k,)
    rows : int64 ndarray of shape (m,)
    uniforms : ndarray of shape (m,)
        Numbers between 0 and 1 that decide.

    Returns
    -------
    int64 ndarray of shape (m,)
    """
    k, n = likelihoods.shape
    below, total = np.empty((k, n)), np.zeros(n)
    for j in range(k):
        for r in range(n):
            total[r] += weights[j] * likelihoods[j, r]
            below[j, r] = total[r]
    members = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        r, first, last = rows[i], 0, k - 1
        sought = uniforms[i] * total[r]
        while first < last:
            middle = (first + last) // 2
            if below[middle, r] > sought:
                last = middle
            else:
                first = middle + 1
        members[i] = first
    return members


@jit
def bell_shapes(numbers, shapes, place, width, total, freedom, even):
    """Shapes of a Dirichlet prior along a bell, and how much likelier they make members.

    Parameters
    ----------
    numbers : int64 ndarray of shape (k,)
        Members of each component.
    shapes : ndarray of shape (k,)
        Other shapes, with which these are compared.
    place, width : float
        Of the bell, the density of a t distribution, as shares of an even grid of k components.
    total, freedom, even : float
        Sum of the shapes, degrees of freedom, and the share of the sum that is even.

    Returns
    -------
    tried : ndarray of shape (k,)
    gain : float
        Log-likelihood of the numbers, above that under the other shapes.
    """
    k = len(numbers)
    tried, power = np.empty(k), -(freedom + 1) / 2
    for j in range(k):
        away = ((j + 0.5) / k - place) / width
        tried[j] = (1 + away * away / freedom) ** power
    tried *= total * (1 - even) / tried.sum()
    tried += total * even / k
    gain, ratio = 0.0, 1.0
    for j in range(k):
        if numbers[j] > _MANY:
            n = numbers[j]
            gain += math.lgamma(tried[j] + n) - math.lgamma(tried[j])
            gain -= math.lgamma(shapes[j] + n) - math.lgamma(shapes[j])
            continue
        for member in range(numbers[j]):
            ratio *= (tried[j] + member) / (shapes[j] + member)
            if not 1e-200 < ratio < 1e200:  # one logarithm for many factors
                gain += np.log(ratio)
                ratio = 1.0
    return tried, gain + np.log(ratio)
