"""Kernels of matrices with few entries against dense ones."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from ebfed.kernels import (
    count_fill,
    entry_places,
    factor_entries,
    fill_rows,
    inverse_entries,
    multiply_entries,
    products_among,
    solve_backward,
    solve_forward,
    subtract_among,
)

N = 30


def drawn(seed, share=0.08):
    """A positive definite matrix with few entries, an order of elimination, and its entries."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((N, N)) < share, rng.normal(size=(N, N)), 0.0)
    dense = dense @ dense.T + np.eye(N)
    graph, order = csr_matrix(dense), rng.permutation(N)
    ends, columns = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    counts, parent = count_fill(ends, columns, order, np.inf)
    starts, rows = fill_rows(ends, columns, order, counts, parent)
    moved = dense[order][:, order]
    values = moved[rows, np.repeat(np.arange(N), np.diff(starts))]
    return rng, moved, (ends, columns, order), (starts, rows), values


def spread(starts, rows, values):
    """A lower triangle with these entries."""
    lower = np.zeros((N, N))
    lower[rows, np.repeat(np.arange(N), np.diff(starts))] = values
    return lower


@pytest.mark.parametrize("seed", range(4))
def test_factors_solutions_and_entries_of_inverses(seed):
    rng, matrix, _, (starts, rows), values = drawn(seed)
    np.testing.assert_array_equal(spread(starts, rows, values), np.tril(matrix))
    right = rng.normal(size=(N, 3))
    found = multiply_entries(starts, rows, values, right)
    np.testing.assert_allclose(found, matrix @ right, atol=1e-12)
    assert factor_entries(starts, rows, values) == pytest.approx(np.linalg.slogdet(matrix)[1])
    L, inverse = np.linalg.cholesky(matrix), np.linalg.inv(matrix)
    np.testing.assert_allclose(spread(starts, rows, values), L, atol=1e-12)
    forward, backward = right.copy(), right.copy()
    solve_forward(starts, rows, values, forward)
    solve_backward(starts, rows, values, backward)
    np.testing.assert_allclose(forward, np.linalg.solve(L, right), atol=1e-12)
    np.testing.assert_allclose(backward, np.linalg.solve(L.T, right), atol=1e-12)
    columns = np.repeat(np.arange(N), np.diff(starts))
    of_inverse = inverse_entries(starts, rows, values)
    np.testing.assert_allclose(of_inverse, inverse[rows, columns], atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_entries_are_those_that_elimination_fills(seed):
    """A zero of the factor that is no entry stays one for any numbers."""
    _, matrix, graph, (starts, rows), _ = drawn(seed)
    filled = np.tril(matrix != 0)
    for j in range(N):
        below = np.flatnonzero(filled[:, j] & (np.arange(N) > j))
        filled[np.ix_(below, below)] |= below[:, None] >= below
    np.testing.assert_array_equal(spread(starts, rows, True) != 0, filled)
    total = float((filled.sum(axis=0) ** 2).sum())
    assert len(count_fill(*graph, total)[0]) == N
    assert len(count_fill(*graph, total - 1)[0]) == 0
    places = np.argwhere(np.ones((N, N)))
    found = entry_places(starts, rows, *places.T.copy())
    known = np.where(filled | filled.T, 1, -1).ravel()
    np.testing.assert_array_equal(np.sign(found + 0.5), known)
    one, other = np.maximum(*places.T), np.minimum(*places.T)
    columns = np.repeat(np.arange(N), np.diff(starts))
    np.testing.assert_array_equal(rows[found[known > 0]], one[known > 0])
    np.testing.assert_array_equal(columns[found[known > 0]], other[known > 0])


def test_a_matrix_that_is_not_positive_definite_has_no_factor():
    _, _, _, (starts, rows), values = drawn(0)
    values[starts[N - 1]] = -1.0
    assert np.isnan(factor_entries(starts, rows, values))


@pytest.mark.parametrize("width", [1, 2])
def test_products_of_the_rows_of_a_table(width):
    """Of rows whose pairs are no entries, products are NaN."""
    rng, matrix, _, (starts, rows), values = drawn(5)
    columns = np.repeat(np.arange(N), np.diff(starts))
    pairs = np.flatnonzero(rows > columns)[: 6 * 2 : 2]
    places = np.stack([columns[pairs], rows[pairs]], axis=1)
    table = np.zeros((6, width, N))
    for own, each in zip(table, places, strict=True):
        own[:, each] = rng.normal(size=(width, 2))
    table = csr_matrix(table.reshape(-1, N))
    own = table.indptr.astype(np.int64), table.indices.astype(np.int64), table.data
    share = rng.normal(size=(6, width, width))
    share = share + share.swapaxes(1, 2)
    found, dense = values.copy(), table.toarray().reshape(6, width, N)
    subtract_among(own, share, starts, rows, found)
    expected = matrix - np.einsum("iae,iab,ibf->ef", dense, share, dense)
    np.testing.assert_allclose(found, expected[rows, columns], atol=1e-12)
    products = products_among(own, starts, rows, values)
    at = np.repeat(np.arange(len(dense) * width), np.diff(table.indptr))
    np.testing.assert_allclose(products, (table @ matrix)[at, table.indices], atol=1e-12)
    absent = np.argwhere(np.tril(spread(starts, rows, 1.0) == 0))[:1]
    new = csr_matrix((np.ones(2), absent[0], [0, 2]), (1, N))
    own = new.indptr.astype(np.int64), new.indices.astype(np.int64), new.data
    assert np.isnan(products_among(own, starts, rows, values)).all()
