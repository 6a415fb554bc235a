"""Kernels of regressions against NumPy."""

import numpy as np
import pytest

from ebfed.kernels import (
    triangular_factors,
    whiten,
    with_column,
)
from ebfed.kernels.factors import BATCH

RNG = np.random.default_rng(11)


def rows_of(counts, p):
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return RNG.normal(size=(indptr[-1], p)), indptr


@pytest.mark.parametrize("p", [0, 1, 3])
def test_with_column(p):
    X, y = RNG.normal(size=(7, p)), RNG.normal(size=7)
    np.testing.assert_array_equal(with_column(X, y), np.column_stack([X, y]))


@pytest.mark.parametrize(
    "counts",
    [[4, 4, 4], [0, 1, 2], [3, 40, 0, 7, 200, 1], [33] * 9, [1000, 5], [32, 64, 96]],
    ids=str,
)
def test_triangular_factors_keep_the_products(counts):
    rows, indptr = rows_of(counts, 3)
    factors = triangular_factors(rows, indptr, min(3, max(counts)))
    for i, factor in enumerate(factors):
        mine = rows[indptr[i] : indptr[i + 1]]
        # a few roundings of the largest product
        np.testing.assert_allclose(factor.T @ factor, mine.T @ mine, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(factor, np.triu(factor))


def test_triangular_factors_of_hard_rows():
    """Columns of zeros, of one value, of units far apart; means that drown the spread."""
    rows = np.column_stack([np.zeros(50), np.full(50, 1e8), 1e8 + RNG.normal(size=50)])
    rows = np.column_stack([rows, 1e-30 * RNG.normal(size=50)])
    (factor,) = triangular_factors(rows, np.array([0, 50]), 4)
    assert np.isfinite(factor).all()
    # the spread around the mean survives, to the rounding of the values themselves
    inner = np.sqrt(np.sum((rows[:, 2] - rows[:, 2].mean()) ** 2))
    left = np.linalg.norm(factor[:, 2] - factor[:, 1] * rows[:, 2].mean() / 1e8)
    assert left == pytest.approx(inner, rel=1e-6)
    assert np.linalg.norm(factor[:, 3]) == pytest.approx(np.linalg.norm(rows[:, 3]), rel=1e-12)


@pytest.mark.parametrize("r", [1, 4, 5, 12])
@pytest.mark.parametrize("diagonal", [True, False])
def test_whiten(diagonal, r):
    p, n = 12, 2 * BATCH
    columns = np.array([0, 2, 3])
    root = np.tril(RNG.normal(size=(3, 3)))
    root = np.diag(np.diag(root)) if diagonal else root
    factors = np.triu(RNG.normal(size=(n, r, p))).transpose(2, 1, 0).copy()
    out = np.zeros_like(factors)
    total = whiten(factors, factors[columns], columns, root, out)
    expected = 0.0
    for i in range(n):
        A = factors[:, :, i].T
        V = np.eye(r) + (A[:, columns] @ root) @ (A[:, columns] @ root).T
        white = out[:, :, i].T
        np.testing.assert_array_equal(white, np.triu(white))
        products = A.T @ np.linalg.solve(V, A)
        np.testing.assert_allclose(white.T @ white, products, rtol=1e-10, atol=1e-10)
        expected += np.linalg.slogdet(V)[1]
    assert total == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 40])
def test_triangular_factors_of_columns_that_say_the_same(count):
    """What a few rows leave over is kept, though columns constant within a client use no row."""
    rows, indptr = rows_of([count] * 9, 3)
    ones, level = np.ones((len(rows), 1)), np.repeat(RNG.normal(size=9), count)[:, None]
    A = np.hstack([ones, level, 2 * level, np.zeros_like(ones), rows])
    size = min(A.shape[1], count)
    factors = triangular_factors(A, indptr, size)
    assert factors.shape == (9, size, A.shape[1])
    for i, factor in enumerate(factors):
        mine = A[indptr[i] : indptr[i + 1]]
        np.testing.assert_allclose(factor.T @ factor, mine.T @ mine, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(factor, np.triu(factor))


def test_triangular_factors_do_not_depend_on_neighbours():
    """To the last bit: alone, together, and in any order."""
    counts = [5, 1, 0, 33, 12, 70, 12, 11, 13, 40, 64, 3, 7, 100, 12, 31, 32]
    rows, indptr = rows_of(counts, 12)
    rows[:, 3] = np.repeat(np.arange(len(counts)), counts)  # constant within clients
    together = triangular_factors(rows, indptr, 12)
    for i, count in enumerate(counts):
        own = np.ascontiguousarray(rows[indptr[i] : indptr[i + 1]])
        alone = triangular_factors(own, np.array([0, count]), 12)
        np.testing.assert_array_equal(together[i], alone[0])
        products = own.T @ own
        np.testing.assert_allclose(alone[0].T @ alone[0], products, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 40])
@pytest.mark.parametrize("spread", [1.0, 1e-5, 1e-10])
def test_triangular_factors_of_columns_far_from_zero_have_no_more_rows(count, spread):
    """Of a few rows that are nearly alike, the last row of a triangle would be rounding."""
    counts = np.array([7, count, 1, count, 0, 60])
    p, indptr = 5, np.append(0, np.cumsum(counts))
    far = 1e5 + spread * RNG.normal(size=(indptr[-1], 2))
    A = np.column_stack([np.ones(indptr[-1]), far, RNG.normal(size=(indptr[-1], 2))])
    factors = triangular_factors(A, indptr, p)
    for i, factor in enumerate(factors):
        mine = A[indptr[i] : indptr[i + 1]]
        assert not factor[counts[i] :].any()
        size = np.linalg.norm(mine, axis=0)
        # each product keeps its digits, whatever the size of its columns
        away = np.abs(factor.T @ factor - mine.T @ mine)
        assert (away <= 1e-13 * np.outer(size, size)).all()
