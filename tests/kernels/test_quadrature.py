"""Adaptive quadrature against sums over dense grids, and against differences."""

import itertools

import numpy as np
import pytest
from scipy.special import expit

from ebfed.kernels import laplace, quadrature_derivatives, quadrature_moments
from ebfed.kernels.responses import BINOMIAL

RNG = np.random.default_rng(0)
# A grid of spacing 0.05 is exact; 25 nodes leave this for logits as below.
NEAR = 1e-6


def rows(sizes, q, scale=1.0):
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    X = scale * RNG.normal(size=(indptr[-1], q))
    offset = 0.5 * RNG.normal(size=len(X))
    return X, offset, np.where(RNG.random(len(X)) < 0.7, 1.0, -1.0), indptr


def rules(*sizes):
    nodes, weights = np.zeros((2, len(sizes), max(sizes)))
    for j, size in enumerate(sizes):
        t, w = np.polynomial.hermite_e.hermegauss(size)
        nodes[j, :size], weights[j, :size] = t, np.log(w / w.sum()) + t**2 / 2
    return nodes, weights, np.array(sizes, np.int64)


def observed(block):
    """Rows as kernels take them: one trial each, a success where the sign is 1."""
    X, offset, signs, indptr = block
    return X, offset, (signs + 1) / 2, np.ones(len(X)), indptr, BINOMIAL, np.zeros(0)


def laid(block):
    X, _, _, indptr = block
    m, q = len(indptr) - 1, X.shape[1]
    mode, cov = np.zeros((m, q)), np.empty((m, q, q))
    laplace(*observed(block), 1e-10, 100, mode, cov, np.empty(m))
    return mode, cov


def moments(block, design, *sizes, limits=(np.inf,)):
    m, q = len(block[-1]) - 1, block[0].shape[1]
    out = np.empty(m), np.empty((m, q)), np.empty((m, q, q)), np.empty((m, q, design.shape[1]))
    quadrature_moments(
        *observed(block), *laid(block), *rules(*sizes), np.array(limits), design, *out
    )
    return out


def derivatives(block, design, column, factor, size=25):
    m, d = len(block[-1]) - 1, len(column)
    out = np.empty(m), np.empty((m, d)), np.empty((m, d * (d + 1) // 2))
    parameters = np.array(column, np.int64), np.array(factor, np.int64)
    limits = np.array([np.inf])
    quadrature_derivatives(
        *observed(block), *laid(block), *rules(size), limits, design, *parameters, *out
    )
    return out


def on_grid(X, offset, signs, design):
    q = X.shape[1]
    t = np.linspace(-8, 8, 321)
    eta = np.array(list(itertools.product(t, repeat=q)))
    z = offset + eta @ X.T
    height = -0.5 * (eta**2).sum(axis=1) - np.logaddexp(0, -signs * z).sum(axis=1)
    weight = np.exp(height - height.max())
    volume = ((t[1] - t[0]) / np.sqrt(2 * np.pi)) ** q
    evidence = np.log(weight.sum() * volume) + height.max()
    weight /= weight.sum()
    score = (signs * expit(-signs * z)) @ design
    mean = weight @ eta
    away = weight[:, None] * (eta - mean)
    return evidence, mean, away.T @ (eta - mean), away.T @ (score - weight @ score)


@pytest.mark.parametrize("q", [1, 2])
def test_moments_are_those_of_a_grid(q):
    block = rows([0, 1, 3, 8, 20], q)
    X, offset, signs, indptr = block
    design = RNG.normal(size=(len(X), 3))
    found = moments(block, design, 25)
    for i, (first, last) in enumerate(itertools.pairwise(indptr)):
        some = slice(first, last)
        expected = on_grid(X[some], offset[some], signs[some], design[some])
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours[i], theirs, atol=20 * NEAR)
        assert found[0][i] == pytest.approx(expected[0], abs=NEAR)


def test_large_exponents():
    """Beyond the range of floats logits are exact one by one, and are so before."""
    X, _, signs, indptr = rows([12, 12], 2)
    far = (X, np.where(np.arange(24) < 12, 400.0, 0.1) * signs, signs, indptr)
    evidence, mean, spread, _ = moments(far, X, 11)
    # rows that are certain say nothing
    assert evidence[0] == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(mean[0], 0, atol=1e-10)
    np.testing.assert_allclose(spread[0], np.eye(2), atol=1e-10)
    wrong = (X, -1000.0 * signs, signs, indptr)
    np.testing.assert_allclose(
        moments(wrong, X, 11)[0],
        [-12_000 + 0.5 * ((signs[:, None] * X)[s].sum(axis=0) ** 2).sum()
         for s in (slice(0, 12), slice(12, 24))],
        rtol=1e-10,
    )  # fmt: skip


def test_rules_are_chosen_by_the_width_of_logits():
    block = rows([4, 4], 1)
    X, _, _, indptr = block
    _, cov = laid(block)
    width = np.abs(X[:, 0] * np.sqrt(np.repeat(cov[:, 0, 0], np.diff(indptr))))
    width = width.reshape(2, 4).max(axis=1)
    few, many = moments(block, X, 3)[0], moments(block, X, 25)[0]
    narrow = np.argmin(width)
    both = moments(block, X, 3, 25, limits=(width.mean(), np.inf))[0]
    assert both[narrow] == few[narrow]
    assert both[1 - narrow] == many[1 - narrow]
    assert few[narrow] != many[narrow]
    np.testing.assert_array_equal(moments(block, X, 3, 25, limits=(9.0, np.inf))[0], few)


@pytest.mark.parametrize("q", [0, 1, 2])
def test_derivatives_are_those_of_differences(q):
    """Of a mean of three columns, of which q vary, and the lower triangle of a root."""
    design = RNG.normal(size=(14, 3))
    _, _, signs, indptr = rows([5, 9], 1)
    places, columns = np.tril_indices(q)
    root = np.tril(0.5 + 0.3 * RNG.normal(size=(q, q)))
    mean = np.array([0.3, -0.5, 0.2])
    point = np.concatenate([mean, root[places, columns]])
    factor = np.concatenate([[-1, -1, -1], columns])
    column = np.concatenate([[0, 1, 2], places])

    def at(point):
        turned = np.zeros((q, q))
        turned[places, columns] = point[3:]
        X = np.ascontiguousarray(design[:, :q] @ turned)
        return derivatives((X, design @ point[:3], signs, indptr), design, column, factor)

    _, score, curvature = at(point)
    rows_, columns_ = np.tril_indices(len(point))
    h = 1e-5
    for a in range(len(point)):
        step = h * np.eye(len(point))[a]
        up, down = at(point + step), at(point - step)
        np.testing.assert_allclose(score[:, a], (up[0] - down[0]) / (2 * h), atol=1e-5)
        for b in range(a + 1):
            here = np.flatnonzero((rows_ == a) & (columns_ == b))[0]
            slope = (up[1][:, b] - down[1][:, b]) / (2 * h)
            np.testing.assert_allclose(curvature[:, here], slope, atol=1e-5)
