"""Adaptive Gauss-Hermite quadrature of clients' generalized linear models.

Clients' rows are one after another; q coefficients eta are standard normal, and rows have the
linear predictor ``z = offset + x' eta`` (see `ebfed.kernels.responses`). With the mode m and the
inverse curvature R R' of a client's log-posterior, nodes t_i and weights w_i of the normal
distribution, and ``eta_i = m + R t_i``, the marginal likelihood is

    |R| sum_i w_i exp(|t_i|^2 / 2 - |eta_i|^2 / 2) p(y | eta_i)

(Liu and Pierce, 1994; Pinheiro and Bates, 1995). Posterior moments are sums over the same nodes.
"""

import math

import numpy as np

from ebfed.kernels._jit import jit
from ebfed.kernels.responses import (
    GAMMA,
    POISSON,
    _is_binary,
    _is_large,
    _large_poisson,
    _respond,
    _respond_shapes,
    _sign,
    _steepness,
    _tilt,
)
from ebfed.kernels.small import _cholesky

# Exponents are products of factors while none leaves the range of floats.
SAFE = 300.0
# Nodes of less posterior weight add nothing.
NOTHING = 1e-14


@jit
def quadrature_moments(
    X, offset, y, weight, indptr, kind, shapes, mode, cov, nodes, weights, sizes, limits, design,
    evidence, mean, spread, along,
):  # fmt: skip
    """Posterior moments of each client by adaptive Gauss-Hermite quadrature.

    Parameters
    ----------
    X : float64 ndarray of shape (n_rows, q)
    offset, y, weight : float64 ndarrays of shape (n_rows,)
    indptr : int64 ndarray of shape (n_clients + 1,)
    kind : int
    shapes : float64 ndarray of shape (n_shapes,)
        Family of the rows; see `ebfed.kernels.responses`.
    mode : float64 ndarray of shape (n_clients, q)
    cov : float64 ndarray of shape (n_clients, q, q)
        Mode of each log-posterior, and inverse of minus its second derivative; see `laplace`.
    nodes, weights : float64 ndarrays of shape (n_rules, most)
        Nodes t and ``log w + t**2 / 2`` of each rule.
    sizes : int64 ndarray of shape (n_rules,)
        Number of nodes of each rule, rising.
    limits : float64 ndarray of shape (n_rules,)
        Along an axis of a client's curvature on which the predictors of rows have standard
        deviations up to the limit of a rule, that rule is used: the first such, or the last.
    design : float64 ndarray of shape (n_rows, r)
        Columns with which linear predictors move.
    evidence : float64 ndarray of shape (n_clients,)
        Is overwritten with the logarithm of the marginal likelihood.
    mean : float64 ndarray of shape (n_clients, q)
    spread : float64 ndarray of shape (n_clients, q, q)
        Are overwritten with posterior mean and covariance of eta.
    along : float64 ndarray of shape (n_clients, q, r)
        Is overwritten with the slope of the mean in what multiplies `design` in the predictors: the
        covariance of eta and the score ``sum_rows design * slope``.
    """
    q, r = X.shape[1], design.shape[1]
    root, rule = np.empty((q, q)), np.empty(q, np.int64)
    space = np.empty((4 + q + r, sizes[-1] ** q))
    outer = np.empty(sizes[-1] ** max(q - 1, 0))
    table = np.empty((q, sizes[-1]))
    score, tilt = np.empty(r), np.empty(q + 1)
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        count = _lay_nodes(
            X, first, last, mode[i], cov[i], nodes, weights, sizes, limits, root, rule, space
        )
        value = _weigh_nodes(
            X, offset, y, weight, kind, shapes, first, last, design, mode[i], root, nodes, sizes,
            rule, count, space, outer, table, tilt,
        )  # fmt: skip
        evidence[i] = value
        share, eta, slope = space[0], space[4 : 4 + q], space[4 + q :]
        mean[i], spread[i], along[i], score[:] = 0.0, 0.0, 0.0, 0.0
        for k in range(count):
            for j in range(q):
                mean[i, j] += share[k] * eta[j, k]
            for a in range(r):
                score[a] += share[k] * slope[a, k]
        for k in range(count):
            if share[k] > NOTHING:
                for j in range(q):
                    away = share[k] * (eta[j, k] - mean[i, j])
                    for h in range(j + 1):
                        spread[i, j, h] += away * (eta[h, k] - mean[i, h])
                    for a in range(r):
                        along[i, j, a] += away * (slope[a, k] - score[a])
        for j in range(q):
            for h in range(j):
                spread[i, h, j] = spread[i, j, h]


@jit
def quadrature_derivatives(
    X, offset, y, weight, indptr, kind, shapes, mode, cov, nodes, weights, sizes, limits, design,
    column, factor, evidence, score, curvature,
):  # fmt: skip
    """Log marginal likelihood of each client, its slopes and second derivatives.

    Parameter a moves the predictor of a row by ``design[:, column[a]]``, times eta of ``factor[a]``
    if that is not negative; a column beyond those of the design is a shape of the family. With g
    and H the first and second derivatives of ``log p(y | eta)`` in the parameters, slopes are ``E
    g``, and second derivatives ``E H + Cov g``, over the posterior of eta (Fisher; Louis, 1982).

    Parameters
    ----------
    X, offset, y, weight, indptr, kind, shapes, mode, cov, nodes, weights, sizes, limits, design :
        As in `quadrature_moments`.
    column, factor : int64 ndarrays of shape (d,)
    evidence : float64 ndarray of shape (n_clients,)
        Is overwritten with the logarithm of the marginal likelihood.
    score : float64 ndarray of shape (n_clients, d)
        Is overwritten with its slopes.
    curvature : float64 ndarray of shape (n_clients, d * (d + 1) // 2)
        Is overwritten with the lower half of its second derivatives, row by row.
    """
    q, d, n_shapes = X.shape[1], len(column), len(shapes)
    r = design.shape[1] + n_shapes
    root, rule = np.empty((q, q)), np.empty(q, np.int64)
    space = np.empty((4 + q + r + r * (r + 1) // 2, sizes[-1] ** q))
    outer = np.empty(sizes[-1] ** max(q - 1, 0))
    table = np.empty((q, sizes[-1]))
    bends, tilt = np.empty((d, d), np.int64), np.empty(q + 1)
    # which product belongs to a pair of factors: none and one, and then of two
    products = np.empty(((q + 1) * (q + 2) // 2, sizes[-1] ** q))
    pairs = np.empty((q + 1, q + 1), np.int64)
    number = q + 1
    for c in range(q + 1):
        pairs[c, 0] = pairs[0, c] = c
        for e in range(1, c + 1):
            pairs[c, e] = pairs[e, c] = number
            number += 1
    for a in range(d):
        for b in range(d):
            low, high = min(column[a], column[b]), max(column[a], column[b])
            bends[a, b] = high * (high + 1) // 2 + low
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        count = _lay_nodes(
            X, first, last, mode[i], cov[i], nodes, weights, sizes, limits, root, rule, space
        )
        evidence[i] = _weigh_nodes(
            X, offset, y, weight, kind, shapes, first, last, design, mode[i], root, nodes, sizes,
            rule, count, space, outer, table, tilt,
        )  # fmt: skip
        share, eta = space[0], space[4 : 4 + q]
        slopes, bend = space[4 + q : 4 + q + r], space[4 + q + r :]
        total, second, one = score[i], curvature[i], space[1]
        one[:count] = 1.0
        # products of a pair of factors and the posterior weights
        for c in range(q + 1):
            _multiply(products[c], share, eta[c - 1] if c else one, count)
            for e in range(1, c + 1):
                _multiply(products[pairs[c, e]], products[c], eta[e - 1], count)
        for a in range(d):
            total[a] = _dot(slopes[column[a]], products[factor[a] + 1], count)
        for c in range(r):
            for e in range(c + 1):
                place = c * (c + 1) // 2 + e
                _square(slopes[c], slopes[e], bend[place], count)
        place = 0
        for a in range(d):
            for b in range(a + 1):
                which = pairs[factor[a] + 1, factor[b] + 1]
                second[place] = _dot(bend[bends[a, b]], products[which], count)
                second[place] -= total[a] * total[b]
                place += 1


@jit
def _multiply(out, x, y, count):
    for k in range(count):
        out[k] = x[k] * y[k]


@jit
def _square(x, y, out, count):
    for k in range(count):
        out[k] = x[k] * y[k] - out[k]


@jit
def _dot(x, y, count):
    """Sum of products: four sums at once, which do not wait for one another."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = count - count % 4
    for k in range(0, whole, 4):
        a += x[k] * y[k]
        b += x[k + 1] * y[k + 1]
        c += x[k + 2] * y[k + 2]
        d += x[k + 3] * y[k + 3]
    for k in range(whole, count):
        a += x[k] * y[k]
    return (a + b) + (c + d)


@jit
def _add(out, x, y, count):
    for k in range(count):
        out[k] += x * y[k]


@jit
def _lay_nodes(X, first, last, mode, cov, nodes, weights, sizes, limits, root, rule, space):
    """Choose rules, and write log weights and places of a client's nodes; their number."""
    q = X.shape[1]
    root[:] = cov
    _cholesky(root)
    volume, count = 0.0, 1
    for j in range(q):
        volume += math.log(root[j, j])
        widest = 0.0
        for row in range(first, last):
            along = 0.0
            for h in range(j, q):
                along += X[row, h] * root[h, j]
            widest = max(widest, abs(along))
        rule[j] = 0
        while rule[j] < len(sizes) - 1 and widest > limits[rule[j]]:
            rule[j] += 1
        count *= sizes[rule[j]]
    height = space[0]
    height[:count] = volume
    for j in range(q):
        space[4 + j, :count] = mode[j]
    stride = count
    for j in range(q):  # the last axis moves first
        size = sizes[rule[j]]
        stride //= size
        for k in range(count):
            at = (k // stride) % size
            height[k] += weights[rule[j], at]
            for h in range(j, q):
                space[4 + h, k] += root[h, j] * nodes[rule[j], at]
    for j in range(q):
        for k in range(count):
            height[k] -= 0.5 * space[4 + j, k] * space[4 + j, k]
    return count


@jit
def _weigh_nodes(
    X, offset, y, weight, kind, shapes, first, last, design, mode, root, nodes, sizes, rule, count,
    space, outer, table, tilt,
):  # fmt: skip
    """Write posterior weights of nodes, and scores there; return the log marginal likelihood.

    ``space[0]`` has log weights, and gets the posterior weights; then come workspace, eta, scores
    and, where there is space for them, minus second derivatives; those of shapes last. What is
    linear in predictors is added up in `tilt`: in front of one, and of each eta.
    """
    bends = len(space) > 4 + X.shape[1] + design.shape[1]
    n_shapes = len(shapes) if bends else 0
    q, r = X.shape[1], design.shape[1] + n_shapes
    height, product, error, bend = space[0], space[1], space[2], space[3]
    eta = space[4 : 4 + q]
    product[:count] = 1.0
    space[4 + q : 4 + q + r, :count] = 0.0
    if bends:
        space[4 + q + r :, :count] = 0.0
    inner = sizes[rule[q - 1]] if q else 1
    load, tilted = 0.0, False
    tilt[:] = 0.0
    for row in range(first, last):
        sign = _sign(kind, y[row], weight[row])
        binary, large = _is_binary(kind, y[row], weight[row]), _is_large(kind, y[row])
        if not binary and not large:
            tilted, linear = True, _tilt(kind, y[row], weight[row], shapes)
            tilt[0] += linear * offset[row]
            for j in range(q):
                tilt[j + 1] += linear * X[row, j]
        centre = offset[row]
        for j in range(q):
            centre += X[row, j] * mode[j]
        far = abs(centre)
        for j in range(q):
            along = 0.0
            for h in range(j, q):
                along += X[row, h] * root[h, j]
            size = sizes[rule[j]]
            far += abs(along * nodes[rule[j], size - 1])
            for k in range(size):
                table[j, k] = -sign * along * nodes[rule[j], k]
        if far < SAFE:
            if binary:
                load += far + 1
            if load > 2 * SAFE:
                for k in range(count):
                    height[k] -= math.log(product[k])
                product[:count] = 1.0
                load = far + 1
            # exp(-sign z) at all nodes, from one exponential for each node of an axis
            outer[0], length = math.exp(-sign * centre), 1
            for j in range(q - 1):
                size = sizes[rule[j]]
                for k in range(size):
                    table[j, k] = math.exp(table[j, k])
                for o in range(length - 1, -1, -1):
                    base = outer[o]
                    for k in range(size):
                        outer[o * size + k] = base * table[j, k]
                length *= size
            if q:
                for k in range(inner):
                    table[q - 1, k] = math.exp(table[q - 1, k])
            for o in range(length):
                for k in range(inner):
                    error[o * inner + k] = outer[o] * table[q - 1, k] if q else outer[o]
            if binary:
                _answer(error, product, bend, sign, count)
        elif binary:
            for k in range(count):
                z = -sign * _predictor(X, offset, row, eta, k)
                e = math.exp(-abs(z))
                height[k] -= max(z, 0.0) + math.log1p(e)
                wrong = 1 / (1 + e) if z > 0 else e / (1 + e)
                error[k] = sign * wrong
                bend[k] = e / ((1 + e) * (1 + e))
        else:
            for k in range(count):
                z = -sign * _predictor(X, offset, row, eta, k)
                error[k] = math.exp(min(max(z, -SAFE), SAFE))
                if z > SAFE and not large:
                    height[k] -= _steepness(kind, y[row], weight[row], shapes) * (z - SAFE)
        if not binary:
            if n_shapes:
                last_bend = 4 + q + r + r * (r + 1) // 2
                _respond_shapes(
                    kind, y[row], weight[row], shapes, error,
                    space[4 + q + r - n_shapes : 4 + q + r], space[4 + q + r : last_bend], bend,
                    design[row], count,
                )  # fmt: skip
            _respond(kind, y[row], weight[row], shapes, error, height, bend, count)
            if large and kind == POISSON:
                for k in range(count):
                    z = _predictor(X, offset, row, eta, k)
                    height[k] += weight[row] * _large_poisson(y[row], z)
        place = 4 + q + r
        for a in range(r - n_shapes):
            x = design[row, a]
            _add(space[4 + q + a], x, space[2], count)
            if bends:
                for b in range(a + 1):
                    both = x * design[row, b]
                    if both != 0:
                        _add(space[place], both, space[3], count)
                    place += 1
    if tilted:
        for k in range(count):
            linear = tilt[0]
            for j in range(q):
                linear += tilt[j + 1] * space[4 + j, k]
            height[k] += linear
            if n_shapes and kind == GAMMA:  # where the shape multiplies it
                space[4 + q + r - 1, k] += linear
                space[4 + q + r + r * (r + 1) // 2 - 1, k] -= linear
    top = -np.inf
    for k in range(count):
        height[k] -= math.log(product[k])
        top = max(top, height[k])
    total = 0.0
    for k in range(count):
        height[k] = math.exp(height[k] - top)
        total += height[k]
    for k in range(count):
        height[k] /= total
    return top + math.log(total)


@jit
def _predictor(X, offset, row, eta, k):
    """Linear predictor of a row at a node."""
    z = offset[row]
    for j in range(X.shape[1]):
        z += X[row, j] * eta[j, k]
    return z


@jit
def _answer(odds, product, bend, sign, count):
    """Of odds against the answer, the derivatives of its log probability; odds become slopes."""
    for k in range(count):
        one = 1 + odds[k]
        product[k] *= one
        right = 1 / one  # a division takes as long as all else
        wrong = odds[k] * right
        bend[k] = wrong * right
        odds[k] = sign * wrong
