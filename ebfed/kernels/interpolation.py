"""Few points that stand for many, in sums of smooth functions."""

import math

import numpy as np

from ebfed.kernels._jit import jit


@jit
def interpolating_weights(at, first, second, low, width, n_cells, order):
    """Weights of Chebyshev's nodes, under which sums over them are those over all points.

    ``sum_k W_k f(node_k) = sum_i w_i f(at_i)`` for polynomials f of a degree below `order` in each
    cell, and for functions that are smooth there up to the error of their interpolation.

    Parameters
    ----------
    at : ndarray of shape (n,)
    first, second : ndarray of shape (n,)
        Two weights of each point.
    low, width : float
        Start of the first cell, and width of each; all points are between its start and the end of
        the last.
    n_cells, order : int
        Number of cells, and of nodes in each.

    Returns
    -------
    nodes : ndarray of shape (k,)
        Those of cells with points.
    first, second : ndarray of shape (k,)
        Their weights.
    """
    sums = np.zeros((n_cells, 2 * order))  # of Chebyshev's polynomials over the points of a cell
    for i in range(len(at)):
        place = (at[i] - low) / width
        cell = min(max(int(place), 0), n_cells - 1)
        u = 2.0 * (place - cell) - 1.0
        before, now = u, 1.0
        for k in range(order):
            sums[cell, 2 * k] += first[i] * now
            sums[cell, 2 * k + 1] += second[i] * now
            before, now = now, 2.0 * u * now - before
    known, counted = np.zeros(n_cells, np.bool_), 0
    for i in range(len(at)):
        known[min(max(int((at[i] - low) / width), 0), n_cells - 1)] = True
    polynomials, unit = np.empty((order, order)), np.empty(order)
    for j in range(order):
        angle = (j + 0.5) * math.pi / order
        unit[j] = math.cos(angle)
        for k in range(order):
            polynomials[j, k] = (2.0 if k else 1.0) / order * math.cos(k * angle)
    size = order * known.sum()
    nodes, one, two = np.empty(size), np.zeros(size), np.zeros(size)
    for cell in range(n_cells):
        if not known[cell]:
            continue
        for j in range(order):
            nodes[counted] = low + width * (cell + 0.5 * (1.0 + unit[j]))
            for k in range(order):
                one[counted] += polynomials[j, k] * sums[cell, 2 * k]
                two[counted] += polynomials[j, k] * sums[cell, 2 * k + 1]
            counted += 1
    return nodes, one, two
