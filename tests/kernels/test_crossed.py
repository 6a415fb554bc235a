"""Kernels of crossed effects against dense matrices."""

import numpy as np
from scipy.sparse import csr_matrix

from ebfed.kernels import canonical_rows, combination_variances, row_products, subtract_products
from ebfed.kernels.responses import BINOMIAL, POISSON

RNG = np.random.default_rng(3)
TABLE = csr_matrix(np.where(RNG.random((9, 5)) < 0.5, RNG.normal(size=(9, 5)), 0.0))


def test_products_of_a_sparse_table():
    share = RNG.random(9)
    found, dense = np.zeros((6, 6)), TABLE.toarray()
    subtract_products(TABLE.indptr, TABLE.indices, TABLE.data, share, found)
    expected = np.tril(dense.T @ (share[:, None] * dense))
    np.testing.assert_allclose(found[:5, :5], -expected, atol=1e-14)
    assert not found[5].any()


def test_products_of_a_matrix_and_sparse_rows():
    """The upper triangle is not read."""
    square, dense = RNG.normal(size=(5, 5)), TABLE.toarray()
    square = square + square.T
    lower = np.tril(square) + np.triu(np.full((5, 5), np.nan), 1)
    found = row_products(TABLE.indptr, TABLE.indices, TABLE.data, lower)
    rows = np.repeat(np.arange(9), np.diff(TABLE.indptr))
    np.testing.assert_allclose(found, (dense @ square)[rows, TABLE.indices], atol=1e-12)


def test_variances_are_those_of_the_whole_inverse():
    """Of a positive definite matrix whose first block is diagonal."""
    outer, pivots = RNG.normal(size=(9, 2)), RNG.random(9) + 1
    border = np.column_stack([TABLE.toarray(), outer])
    schur = np.eye(7) + np.ones((7, 7))
    whole = np.block(
        [
            [np.diag(pivots), border],
            [border.T, schur + border.T @ (border / pivots[:, None])],
        ]
    )
    rows, own = np.array([0, 8, -1, 3]), np.array([1.0, 0.5, 1.0, 2.0])
    places, entries = np.array([[1, 4], [-1, -1], [0, -1], [2, 2]]), RNG.normal(size=(4, 2))
    dense = RNG.normal(size=(4, 2))
    combinations = np.zeros((4, 16))
    for r in range(4):
        if rows[r] >= 0:
            combinations[r, rows[r]] = own[r]
        for place, entry in zip(places[r], entries[r], strict=True):
            if place >= 0:
                combinations[r, 9 + place] += entry
        combinations[r, 14:] = dense[r]
    expected = np.einsum("ra,ab,rb->r", combinations, np.linalg.inv(whole), combinations)
    table = (TABLE.indptr, TABLE.indices, TABLE.data)
    found = combination_variances(
        rows, own, (places, entries), dense, np.linalg.inv(schur), pivots, 1 / pivots, table, outer
    )
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_rows_of_canonical_links():
    z, w = RNG.normal(size=12), RNG.uniform(0.5, 3, 12)
    p, m = 1 / (1 + np.exp(-z)), np.exp(z)
    for kind, y in ((BINOMIAL, RNG.random(12)), (POISSON, RNG.poisson(2, 12).astype(float))):
        found = np.empty((3, 12))
        total = canonical_rows(kind, y, w, z, found)
        if kind == BINOMIAL:
            value, mean, bend = y * z + np.log(1 - p), p, p * (1 - p)
            third = bend * (1 - 2 * p)
        else:
            value, mean, bend, third = y * z - m, m, m, m
        assert abs(total - np.sum(w * value)) < 1e-12
        np.testing.assert_allclose(
            found, w * np.array([y - mean, bend, third]), rtol=1e-9, atol=1e-13
        )


def test_no_row_is_likelier_than_certain():
    """Also where exponentials would overflow."""
    y, found = np.array([1.0, 1.0, 0.0]), np.empty((3, 3))
    z = np.array([250.0, 5e3, 5e3])
    assert canonical_rows(BINOMIAL, y, np.full(3, 2.0), z, found) == -1e4
    np.testing.assert_array_equal(found[0], [0.0, 0.0, -2.0])
    assert not found[1:].any()
