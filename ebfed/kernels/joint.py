"""Laplace's approximation of generalized linear models of groups within groups, and its slopes.

The groups of all levels are nodes: each comes before those within it, and all within one group of
the top before the next. A node has coefficients e, standard normal; a row has those of its *path*,
from the top to its own group, as ``z = offset + x' e`` (see `ebfed.kernels.responses`). With one
level each group is a node of the top.

With the mode, and H the curvature there of minus the log-posterior of a group of the top and all
within it, the approximation is the log-posterior less half of ``log det H``. Its slopes hold the
movement of the mode: with W minus the second derivative of a row, W' its slope in z, ``s = x' H^-1
x`` and ``c = H^-1 sum x W' s``, it rises in z of a row by ``l' - W' s / 2 + W x' c / 2``, and in a
shape of the family, with the row's slopes in it of l, l' and W, by ``l_t - W_t s / 2 - l'_t x' c /
2``.

Groups within a node are independent given its path. H is thus factored from the lowest groups
upwards, each eliminated from the curvature of its path: work grows with the number of nodes.
"""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.modes import FAR
from ebfed.kernels.responses import _row, _row_by_shape, _twist
from ebfed.kernels.small import _cholesky, _invert, _solve_lower, _solve_upper

# Squared length of Newton's last step, in standard deviations: slopes err by its root. And that of
# steps which end the search once they do not become much shorter: large counts leave fewer digits.
CLOSE, NEAR = 1e-20, 1e-8


@jit
def joint_modes(
    X, offset, y, weight, rows, parent, level, tops, ends, kind, shapes, max_steps, mode, evidence,
    push, pull, bend, by_shape,
):  # fmt: skip
    """Modes of nodes' coefficients, Laplace's approximation, and its slopes by rows.

    Parameters
    ----------
    X : float64 ndarray of shape (n_rows, K)
        What multiplies the coefficients of a row's path, those of the top first.
    offset, y, weight : float64 ndarrays of shape (n_rows,)
    rows : int64 ndarray of shape (n_nodes + 1,)
        Ends of nodes in rows; a node above the lowest level has none.
    parent : int64 ndarray of shape (n_nodes,)
        Node that each is within; -1 for those of the top.
    level : int64 ndarray of shape (n_nodes,)
        Level of each node, 0 for the top.
    tops : int64 ndarray of shape (n_tops + 1,)
        Ends, in nodes, of the groups of the top with all within them.
    ends : int64 ndarray of shape (n_levels + 1,)
        Ends of levels in the coefficients of a path.
    kind : int
    shapes : float64 ndarray of shape (n_shapes,)
        Family of the rows; see `ebfed.kernels.responses`.
    max_steps : int
    mode : float64 ndarray of shape (n_nodes, K)
        Coefficients of the path to each node, where the search starts, or zero where that is
        better; is overwritten with the modes.
    evidence : float64 ndarray of shape (n_tops,)
        Is overwritten with the approximation.
    push : float64 ndarray of shape (n_rows,)
        Is overwritten with its slopes in the predictors of rows, as by columns that do not vary.
    pull : float64 ndarray of shape (n_rows, K)
        Is overwritten with what the entry of a root, column j, changes it by for each unit that
        the row has of that: slopes in the entries of X.
    bend : float64 ndarray of shape (n_rows,)
        Is overwritten with minus the second derivative of each row at the mode.
    by_shape : float64 ndarray of shape (n_rows, n_shapes)
        Is overwritten with what each row adds to slopes in the shapes, as in
        `ebfed.kernels.responses`.

    Returns
    -------
    int
        Number of groups of the top that were not done in `max_steps`.
    """
    K = X.shape[1]
    nodes, n_shapes = len(parent), by_shape.shape[1]
    wide = np.empty(len(y))
    slope, step, before = np.empty((nodes, K)), np.empty((nodes, K)), np.empty((nodes, K))
    factor, spread = np.empty((nodes, K, K)), np.empty((nodes, K, K))
    unfinished = 0
    for top in range(len(tops) - 1):
        first, last = tops[top], tops[top + 1]
        for v in range(first, last):
            _inherit(mode, parent, level, ends, v)
        height = _posterior(
            X, offset, y, weight, kind, shapes, rows, parent, level, ends, first, last, mode,
            factor, slope, push, bend,
        )  # fmt: skip
        half = _factorise(factor, parent, level, ends, first, last)
        done, gain = False, np.inf
        for turn in range(max_steps):
            last_gain = gain
            gain = _solve(factor, parent, level, ends, first, last, slope)
            step[first:last] = slope[first:last]
            before[first:last] = mode[first:last]
            share, new = 1.0, -np.inf
            if turn == 0 and not gain < 2 * FAR:  # zero may be nearer
                mode[first:last] = 0.0
                new = _posterior(
                    X, offset, y, weight, kind, shapes, rows, parent, level, ends, first, last,
                    mode, factor, slope, push, bend,
                )  # fmt: skip
                if not new <= height:
                    height = new
                    half = _factorise(factor, parent, level, ends, first, last)
                    continue
                new = -np.inf
            while not new >= height - 1e-12 * abs(height) and share > 1e-9:
                for v in range(first, last):
                    for j in range(ends[level[v] + 1]):
                        mode[v, j] = before[v, j] + share * step[v, j]
                new = _posterior(
                    X, offset, y, weight, kind, shapes, rows, parent, level, ends, first, last,
                    mode, factor, slope, push, bend,
                )  # fmt: skip
                share *= 0.5
                if gain < NEAR:  # what it loses may be rounding
                    break
            height = new
            half = _factorise(factor, parent, level, ends, first, last)
            if gain < CLOSE or 0.25 * last_gain < gain < NEAR:
                done = True
                break
        unfinished += not done
        evidence[top] = height - half
        _covariances(factor, parent, level, ends, first, last, spread)
        # c, in place of the slope
        slope[first:last] = 0.0
        for v in range(first, last):
            Z, own = spread[v], mode[v]
            for row in range(rows[v], rows[v + 1]):
                tilt, z = 0.0, offset[row]
                for j in range(K):
                    z += X[row, j] * own[j]
                    for h in range(K):
                        tilt += X[row, j] * X[row, h] * Z[j, h]
                wide[row] = tilt
                tilt *= _twist(kind, y[row], weight[row], z, shapes, bend[row])
                for j in range(K):
                    slope[v, j] += tilt * X[row, j]
                pull[row, 0] = tilt
        _solve(factor, parent, level, ends, first, last, slope)
        for v in range(first, last):
            Z, own, c = spread[v], mode[v], slope[v]
            for row in range(rows[v], rows[v + 1]):
                tilt, rise, along, z = pull[row, 0], push[row], 0.0, offset[row]
                for j in range(K):
                    along += X[row, j] * c[j]
                    z += X[row, j] * own[j]
                for t in range(n_shapes):
                    moved = _row_by_shape(kind, y[row], weight[row], z, shapes, t)
                    by_shape[row, t] = moved[0] - 0.5 * (moved[2] * wide[row] + moved[1] * along)
                push[row] = rise - 0.5 * tilt + 0.5 * bend[row] * along
                for j in range(K):
                    part = 0.0
                    for h in range(K):
                        part += Z[j, h] * X[row, h]
                    pull[row, j] = own[j] * push[row] - 0.5 * c[j] * rise - bend[row] * part
    return unfinished


@jit
def _inherit(values, parent, level, ends, v):
    """Copy to a path what the path of its parent has."""
    for j in range(ends[level[v]]):
        values[v, j] = values[parent[v], j]


@jit
def _posterior(
    X, offset, y, weight, kind, shapes, rows, parent, level, ends, first, last, mode, factor,
    slope, push, bend,
):  # fmt: skip
    """Log-posterior; write its slope, minus its second derivative, and those of rows.

    Of each node: what its own rows and its own prior add to those of its path.
    """
    total = 0.0
    for v in range(first, last):
        above, K = ends[level[v]], ends[level[v] + 1]
        own, H, gradient = mode[v], factor[v], slope[v]
        H[:] = 0.0
        gradient[:] = 0.0
        for j in range(above, K):
            total -= 0.5 * own[j] * own[j]
            gradient[j] = -own[j]
            H[j, j] = 1.0
        for row in range(rows[v], rows[v + 1]):
            z = offset[row]
            for j in range(K):
                z += X[row, j] * own[j]
            value, rise, bent = _row(kind, y[row], weight[row], z, shapes)
            total += value
            push[row], bend[row] = rise, bent
            for j in range(K):
                gradient[j] += rise * X[row, j]
                part = bent * X[row, j]
                for h in range(j + 1):
                    H[j, h] += part * X[row, h]
    return total


@jit
def _factorise(factor, parent, level, ends, first, last):
    """Eliminate nodes, the lowest first; return half of the logarithm of the determinant.

    The lower half of a node's block becomes L, with ``L L'`` its own curvature given its path; to
    the left of that is V with ``L V`` that between the node and its path.
    """
    half = 0.0
    for v in range(last - 1, first - 1, -1):
        above, K, H = ends[level[v]], ends[level[v] + 1], factor[v]
        L = H[above:K, above:K]
        _cholesky(L)
        for j in range(above, K):
            half += math.log(H[j, j])
        for h in range(above):
            _solve_lower(L, H[above:K, h])
        for j in range(above):
            for h in range(j + 1):
                total = H[j, h]
                for k in range(above, K):
                    total -= H[k, j] * H[k, h]
                factor[parent[v], j, h] += total
    return half


@jit
def _solve(factor, parent, level, ends, first, last, b):
    """Replace sums of nodes by the solution along their paths; return its squared length.

    The length is that in the norm of the curvature.
    """
    squares = 0.0
    for v in range(last - 1, first - 1, -1):
        above, K, H = ends[level[v]], ends[level[v] + 1], factor[v]
        _solve_lower(H[above:K, above:K], b[v, above:K])
        for k in range(above, K):
            squares += b[v, k] * b[v, k]
        for j in range(above):
            total = b[v, j]
            for k in range(above, K):
                total -= H[k, j] * b[v, k]
            b[parent[v], j] += total
    for v in range(first, last):
        above, K, H = ends[level[v]], ends[level[v] + 1], factor[v]
        _inherit(b, parent, level, ends, v)
        for k in range(above, K):
            for j in range(above):
                b[v, k] -= H[k, j] * b[v, j]
        _solve_upper(H[above:K, above:K], b[v, above:K])
    return squares


@jit
def _covariances(factor, parent, level, ends, first, last, spread):
    """Write the covariance of the coefficients of each node's path: blocks of the inverse."""
    U = np.empty(factor.shape[1:])
    for v in range(first, last):
        above, K, Z = ends[level[v]], ends[level[v] + 1], spread[v]
        U[:K, :K] = factor[v, :K, :K]
        L = U[above:K, above:K]
        for h in range(above):
            _solve_upper(L, U[above:K, h])
        _invert(L)
        for j in range(above):
            for h in range(above):
                Z[j, h] = spread[parent[v], j, h]
        for j in range(above, K):
            for h in range(above):
                total = 0.0
                for k in range(above):
                    total -= U[j, k] * Z[k, h]
                Z[j, h] = Z[h, j] = total
            for h in range(above, j + 1):
                total = U[j, h]
                for k in range(above):
                    total -= Z[j, k] * U[h, k]
                Z[j, h] = Z[h, j] = total
