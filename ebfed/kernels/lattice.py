"""Polynomial interpolation in three directions between nodes of cells, and sums by its transpose.

The points of a cell are written as combinations of its nodes, with Lagrange's polynomials as
weights. A point can be a node itself (`place`). The nodes of a cell are those of its three
directions, the last one moving fastest.
"""

import numpy as np

from ebfed.kernels._jit import jit


@jit
def _lagrange(at, nodes, factors, size, out):
    """Lagrange's polynomials at a place, by the second barycentric form."""
    for j in range(size):
        if at == nodes[j]:
            out[:size] = 0.0
            out[j] = 1.0
            return
    total = 0.0
    for j in range(size):
        out[j] = factors[j] / (at - nodes[j])
        total += out[j]
    for j in range(size):
        out[j] /= total


@jit
def _shares(i, q, points, which, nodes, factors, sizes, parts):
    """Write Lagrange's polynomials of the three directions at point i of cell q."""
    for axis in range(3):
        place = which[axis, q]
        _lagrange(
            points[axis, i], nodes[axis, place], factors[axis, place], sizes[axis, place],
            parts[axis],
        )  # fmt: skip


@jit
def lattice_sums(weights, place, cells, first, points, which, nodes, factors, sizes, size):
    """Weights of nodes, under which sums over them are those over all points.

    Parameters
    ----------
    weights : ndarray of shape (n,)
    place : int64 ndarray of shape (n,)
        The node that a point is; -1 where it is none.
    cells : int64 ndarray of shape (n,)
    first : int64 ndarray of shape (m,)
        First node of each cell.
    points : ndarray of shape (3, n)
        Coordinates of the points.
    which : int64 ndarray of shape (3, m)
        Which nodes each cell has in each direction.
    nodes, factors : ndarray of shape (3, c, order)
        Nodes and their barycentric weights.
    sizes : int64 ndarray of shape (3, c)
        Number of nodes.
    size : int
        Number of all nodes.

    Returns
    -------
    ndarray of shape (size,)
    """
    out, parts = np.zeros(size), np.empty((3, nodes.shape[2]))
    for i in range(len(place)):
        if place[i] >= 0:
            out[place[i]] += weights[i]
            continue
        q = cells[i]
        _shares(i, q, points, which, nodes, factors, sizes, parts)
        at = first[q]
        k = sizes[2, which[2, q]]
        for a in range(sizes[0, which[0, q]]):
            for b in range(sizes[1, which[1, q]]):
                both = weights[i] * parts[0, a] * parts[1, b]
                if both != 0.0:
                    for c in range(k):
                        out[at + c] += both * parts[2, c]
                at += k
    return out


@jit
def lattice_values(figures, place, cells, first, points, which, nodes, factors, sizes):
    """Interpolate figures of the nodes, shape (size, r), to all points, shape (n, r).

    For the other parameters see `lattice_sums`.
    """
    r = figures.shape[1]
    out, parts = np.zeros((len(place), r)), np.empty((3, nodes.shape[2]))
    for i in range(len(place)):
        if place[i] >= 0:
            out[i] = figures[place[i]]
            continue
        q = cells[i]
        _shares(i, q, points, which, nodes, factors, sizes, parts)
        at = first[q]
        k = sizes[2, which[2, q]]
        for a in range(sizes[0, which[0, q]]):
            for b in range(sizes[1, which[1, q]]):
                both = parts[0, a] * parts[1, b]
                if both != 0.0:
                    for c in range(k):
                        share = both * parts[2, c]
                        for j in range(r):
                            out[i, j] += share * figures[at + c, j]
                at += k
    return out


@jit
def _pairs(figures, start, stride, size, ends, worst):
    """Raise `worst` to the last two Chebyshev coefficients of a line, and to the two before."""
    for pair in range(2):
        total = 0.0
        for k in range(2 * pair, 2 * pair + 2):
            coefficient = 0.0
            for c in range(size):
                coefficient += ends[k, c] * figures[start + c * stride]
            total += abs(coefficient)
        worst[pair] = max(worst[pair], total)


@jit
def lattice_errors(figures, first, which, sizes, ends):
    """Sizes of what interpolation leaves out in each cell.

    They are those of the next two Chebyshev coefficients along each direction, if two and two fall
    geometrically.

    Parameters
    ----------
    figures : ndarray of shape (r, size)
    first, which, sizes
        See `lattice_sums`; -1 as the first node marks a cell without nodes.
    ends : ndarray of shape (3, c, 4, order)
        What values at nodes are multiplied by for the last four coefficients, the last first; 0
        where interpolation is exact.

    Returns
    -------
    ndarray of shape (m, r)
    """
    m, r = len(first), len(figures)
    out = np.zeros((m, r))
    strides, worst = np.ones(3, np.int64), np.empty(2)
    for q in range(m):
        if first[q] < 0:
            continue
        for axis in range(2, 0, -1):
            strides[axis - 1] = strides[axis] * sizes[axis, which[axis, q]]
        whole = strides[0] * sizes[0, which[0, q]]
        for j in range(r):
            for axis in range(3):
                size, stride = sizes[axis, which[axis, q]], strides[axis]
                worst[:] = 0.0
                for line in range(whole // size):
                    start = first[q] + line // stride * stride * size + line % stride
                    _pairs(figures[j], start, stride, size, ends[axis, which[axis, q]], worst)
                if worst[0] > 0.0:
                    out[q, j] += worst[0] * min(worst[0] / worst[1], 1.0)
    return out
