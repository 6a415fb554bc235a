"""Sums over clients: of likelihoods at many values, and of clients in components."""

import math

import numpy as np

from ebfed.kernels._jit import jit

_RESTART = 32  # steps of the recurrence between two exponentials: rounding grows as their square


@jit
def gaussian_tally(masses, values, errors, nodes):
    """``sum_i masses_i exp(-((values_i - node) / errors_i)**2 / 2)`` at each node.

    Over equidistant nodes, exponentials follow from their predecessors by two products; terms
    below 1e-16 are left out.

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
    ends = np.full(k, k - 1)  # of the equidistant stretch that starts at each node
    for j in range(k - 3, -1, -1):
        gap = nodes[j + 1] - nodes[j]
        even = abs(nodes[j + 2] - nodes[j + 1] - gap) <= 1e-11 * gap
        ends[j] = ends[j + 1] if even else j + 1
    out = np.zeros(k)
    for i in range(len(values)):
        x, mass, precision = values[i], masses[i], 1.0 / errors[i]
        reach = errors[i] * math.sqrt(2.0 * (37.0 + max(math.log(mass), 0.0)))
        first = np.searchsorted(nodes, x - reach)
        last = np.searchsorted(nodes, x + reach)
        gap, bend = 0.0, 1.0
        while first < last:
            stop = min(ends[first] + 1, last, first + _RESTART)
            z = (nodes[first] - x) * precision
            term, ratio = mass * math.exp(-0.5 * z * z), 0.0
            if stop > first + 1:
                if nodes[first + 1] - nodes[first] != gap:
                    gap = nodes[first + 1] - nodes[first]
                    bend = math.exp(-((gap * precision) ** 2))
                ratio = math.exp(-gap * precision * (z + 0.5 * gap * precision))
            for j in range(first, stop):
                out[j] += term
                term *= ratio
                ratio *= bend
            first = stop
    return out


@jit
def count_members(likelihoods, weights, uniforms):
    """Give each client a component at random, and count the clients of each component.

    Client i is in component j with probability ``weights_j L_ij / sum_l weights_l L_il``.

    Parameters
    ----------
    likelihoods : C-contiguous ndarray of shape (n, k)
        Each row up to a factor.
    weights : ndarray of shape (k,)
    uniforms : ndarray of shape (n,)
        Numbers between 0 and 1 that decide.

    Returns
    -------
    int64 ndarray of shape (k,)
    """
    n, k = likelihoods.shape
    counts = np.zeros(k, np.int64)
    shares = np.empty(k)
    for i in range(n):
        total = 0.0
        for j in range(k):
            total += likelihoods[i, j] * weights[j]
            shares[j] = total
        counts[min(np.searchsorted(shares, uniforms[i] * total, side="right"), k - 1)] += 1
    return counts
