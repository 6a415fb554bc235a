"""Modes of groups within groups, and slopes of Laplace's approximation: beside dense algebra."""

import numpy as np
import pytest

from ebfed.kernels import joint_modes, laplace
from ebfed.kernels.responses import BINOMIAL, GAMMA, NEGATIVE_BINOMIAL, ORDINAL, POISSON

RNG = np.random.default_rng(0)
SIZES = [5, 0, 1, 7, 9]
INDPTR = np.concatenate(([0], np.cumsum(SIZES)))
N, M, K = INDPTR[-1], len(SIZES), 3
X = RNG.normal(size=(N, K))
OFFSET, WEIGHT = RNG.normal(0, 0.5, N), RNG.uniform(0.5, 2.0, N)
COUNTS = RNG.poisson(2.0, N).astype(float)
KINDS = {
    "binomial": (BINOMIAL, (COUNTS > 1).astype(float), np.zeros(0)),
    "poisson": (POISSON, COUNTS, np.zeros(0)),
    "negative_binomial": (NEGATIVE_BINOMIAL, COUNTS, np.array([1.5])),
    "gamma": (GAMMA, COUNTS + 0.5, np.array([2.0])),
    "ordinal": (ORDINAL, np.minimum(1 + COUNTS, 4), np.exp([1.0, 2.5])),
}
# parents, levels, ends of the top, ends of levels, and the node of each group with rows
FLAT = np.full(M, -1), np.zeros(M, int), np.arange(M + 1), np.array([0, K]), np.arange(M)
# two groups of the top, of which one has two groups below, and three levels in all
TREE = (
    np.array([-1, 0, 1, 1, 0, 4, -1, 6, 7, 7]),
    np.array([0, 1, 2, 2, 1, 2, 0, 1, 2, 2]),
    np.array([0, 6, 10]),
    np.array([0, 1, 2, K]),
    np.array([2, 3, 5, 8, 9]),
)


def found(kind, X, tree=TREE, offset=OFFSET, turn=0.0):
    """Mode, evidence, push, pull, bend, and slopes in shapes, which are turned by factors."""
    number, y, shapes = KINDS[kind]
    shapes = shapes * np.exp(turn)
    parent, level, tops, ends, leaf = tree
    nodes = len(parent)
    rows = np.zeros(nodes, int)
    rows[leaf] = SIZES
    rows = np.concatenate(([0], np.cumsum(rows)))
    out = np.empty(len(tops) - 1), np.empty(N), np.empty(X.shape), np.empty(N)
    out = (*out, np.empty((N, len(shapes))))
    mode = np.zeros((nodes, K))
    of = rows, parent, level, tops, ends, number, shapes, 100
    assert joint_modes(X, offset, y, WEIGHT, *of, mode, *out) == 0
    return mode, *out


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_laplace_with_one_level(kind):
    number, y, shapes = KINDS[kind]
    mode, evidence, *_ = found(kind, X, FLAT)
    place, cov, expected = np.zeros((M, K)), np.empty((M, K, K)), np.empty(M)
    laplace(X, OFFSET, y, WEIGHT, INDPTR, number, shapes, 1e-14, 100, place, cov, expected)
    np.testing.assert_allclose(evidence, expected, atol=1e-9)
    np.testing.assert_allclose(mode, place, atol=1e-6)


def dense():
    """Rows with a column for each coefficient of all nodes, and the columns of each node's path."""
    parent, level, _, ends, leaf = TREE
    width = np.diff(ends)[level]
    start = np.concatenate(([0], np.cumsum(width)))
    paths = []
    for v in range(len(parent)):
        own = np.arange(start[v], start[v + 1])
        paths.append(own if parent[v] < 0 else np.concatenate([paths[parent[v]], own]))
    wide = np.zeros((N, start[-1]))
    for node, first, last in zip(leaf, INDPTR, INDPTR[1:], strict=False):
        wide[first:last, paths[node]] = X[first:last]
    return wide, paths


@pytest.mark.parametrize("kind", KINDS)
def test_levels_are_laplace_of_all_coefficients_together(kind):
    number, y, shapes = KINDS[kind]
    mode, evidence, *_ = found(kind, X)
    wide, paths = dense()
    D = wide.shape[1]
    place, cov, expected = np.zeros((1, D)), np.empty((1, D, D)), np.empty(1)
    whole = np.array([0, N])
    laplace(wide, OFFSET, y, WEIGHT, whole, number, shapes, 1e-14, 100, place, cov, expected)
    # `laplace` stops some 1e-7 from the mode
    assert evidence.sum() == pytest.approx(expected[0], abs=1e-7)
    for v, path in enumerate(paths):
        np.testing.assert_allclose(mode[v, : len(path)], place[0, path], atol=1e-6)


@pytest.mark.parametrize("tree", [FLAT, TREE], ids=["one_level", "levels"])
@pytest.mark.parametrize("kind", KINDS)
def test_slopes_are_differences(kind, tree):
    _, _, push, pull, *_ = found(kind, X, tree)
    step = 1e-5
    for row in (0, 5, INDPTR[4], N - 1):
        move = step * (np.arange(N) == row)
        ends = [found(kind, X, tree, OFFSET + s * move)[1].sum() for s in (1, -1)]
        assert push[row] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)
        for j in range(K):
            turn = np.zeros((N, K))
            turn[row, j] = step
            ends = [found(kind, X + s * turn, tree)[1].sum() for s in (1, -1)]
            assert pull[row, j] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)


@pytest.mark.parametrize("tree", [FLAT, TREE], ids=["one_level", "levels"])
@pytest.mark.parametrize("kind", ["negative_binomial", "gamma", "ordinal"])
def test_slopes_in_shapes_are_differences(kind, tree):
    slopes = found(kind, X, tree)[-1].sum(axis=0)
    # of negative binomial rows, slopes are in the logarithm of one over the size
    sign, step = -1 if kind == "negative_binomial" else 1, 1e-5
    for move, slope in zip(np.eye(len(slopes)), slopes, strict=True):
        ends = [found(kind, X, tree, turn=s * step * move)[1].sum() for s in (1, -1)]
        assert sign * slope == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)
