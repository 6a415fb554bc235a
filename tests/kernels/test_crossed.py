"""Kernels of crossed effects against dense matrices."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from ebfed.kernels import (
    block_products,
    level_inverses,
    predictor_rows,
    row_products,
    shape_rows,
    subtract_products,
    table_times,
    table_totals,
    twist_rows,
)
from ebfed.kernels.responses import BINOMIAL, GAMMA, NEGATIVE_BINOMIAL, ORDINAL, POISSON

RNG = np.random.default_rng(3)
TABLE = csr_matrix(np.where(RNG.random((9, 5)) < 0.5, RNG.normal(size=(9, 5)), 0.0))


def levels_of(width):
    """A table of 9 / width levels, whose rows have the same entries."""
    entries = [np.sort(RNG.permutation(5)[: RNG.integers(0, 5)]) for _ in range(9 // width)]
    places = np.concatenate([np.tile(each, width) for each in entries])
    ends = np.cumsum([0, *np.repeat([len(each) for each in entries], width)])
    return csr_matrix((RNG.normal(size=len(places)), places, ends), (9, 5))


@pytest.mark.parametrize("width", [1, 3])
def test_products_of_a_sparse_table(width):
    """Above the diagonal nothing is written."""
    table, share = levels_of(width), RNG.normal(size=(9 // width, width, width))
    share = share + share.swapaxes(1, 2)
    found, dense = np.zeros((6, 6)), table.toarray().reshape(-1, width, 5)
    subtract_products(table.indptr, table.indices, table.data, share, found)
    expected = np.einsum("iae,iab,ibf->ef", dense, share, dense)
    np.testing.assert_allclose(found[:5, :5], -np.tril(expected), atol=1e-13)
    assert not found[5].any()


def test_products_with_a_sparse_table():
    own = TABLE.indptr, TABLE.indices, TABLE.data
    ahead, below = RNG.normal(size=(5, 3)), RNG.normal(size=(9, 3))
    np.testing.assert_allclose(table_times(*own, ahead), TABLE @ ahead, atol=1e-13)
    np.testing.assert_allclose(table_totals(*own, below, 5), TABLE.T @ below, atol=1e-13)


@pytest.mark.parametrize(("start", "n", "width"), [(0, 8, 1), (2, 3, 2), (0, 2, 2), (5, 3, 1)])
def test_blocks_of_a_product(start, n, width):
    """The upper triangle of the first is not read."""
    one, other = RNG.normal(size=(2, 8, 8))
    one, other = one + one.T, other + other.T
    lower = np.tril(one) + np.triu(np.full((8, 8), np.nan), 1)
    found, product = np.zeros((n, width, width)), one @ other
    block_products(lower, other, start, found)
    own = [slice(start + i * width, start + (i + 1) * width) for i in range(n)]
    np.testing.assert_allclose(found, [product[each, each] for each in own], atol=1e-12)


@pytest.mark.parametrize("width", [1, 3])
def test_inverses_of_levels(width):
    blocks, root = RNG.normal(size=(4, width, width)), RNG.normal(size=(width, width))
    blocks, inverses = blocks @ blocks.swapaxes(1, 2), np.empty((4, width, width))
    matrices = np.eye(width) + root.T @ blocks @ root
    found = level_inverses(blocks, root, inverses)
    assert found == pytest.approx(np.linalg.slogdet(matrices)[1].sum(), rel=1e-12)
    np.testing.assert_allclose(inverses, np.linalg.inv(matrices), rtol=1e-8, atol=1e-12)
    assert np.isnan(level_inverses(-1e9 * np.eye(width)[None], np.eye(width), inverses))


def test_products_of_a_matrix_and_sparse_rows():
    """The upper triangle is not read."""
    square, dense = RNG.normal(size=(5, 5)), TABLE.toarray()
    square = square + square.T
    lower = np.tril(square) + np.triu(np.full((5, 5), np.nan), 1)
    found = row_products(TABLE.indptr, TABLE.indices, TABLE.data, lower)
    rows = np.repeat(np.arange(9), np.diff(TABLE.indptr))
    np.testing.assert_allclose(found, (dense @ square)[rows, TABLE.indices], atol=1e-12)


@pytest.mark.parametrize("kind", [BINOMIAL, POISSON, NEGATIVE_BINOMIAL, GAMMA, ORDINAL])
def test_derivatives_of_rows_are_those_of_differences(kind):
    """In predictors three times, and in shapes of each of these; steps lose eight digits."""
    shapes = {ORDINAL: [3.0, 8.0], NEGATIVE_BINOMIAL: [1.7], GAMMA: [1.7]}.get(kind, [])
    shapes, z, w = np.array(shapes), RNG.normal(size=12), RNG.uniform(0.5, 3, 12)
    y = RNG.random(12) if kind in (BINOMIAL, GAMMA) else 1.0 + np.arange(12) % 4
    step = 1e-5

    def at(z, shapes):
        found, value = np.empty((3, 12)), np.empty(12)
        for i in range(12):
            one, part = slice(i, i + 1), np.empty((2, 1))
            value[i] = predictor_rows(kind, y[one], w[one], z[one], shapes, part)
            found[:2, i] = part[:, 0]
        found[2] = twist_rows(kind, y, w, z, shapes, found[1])
        return np.vstack([value, found])

    here, up, down = at(z, shapes), at(z + step, shapes), at(z - step, shapes)
    slopes = (up - down)[:3] / (2 * step)
    np.testing.assert_allclose(slopes, [here[1], -here[2], here[3]], rtol=1e-6, atol=1e-8)
    found = np.empty((3, 12, len(shapes)))
    shape_rows(kind, y, w, z, shapes, found)
    for t, scale in enumerate(shapes):  # in logarithms: of a threshold, one over the size, a shape
        sign = -1 if kind == NEGATIVE_BINOMIAL else 1
        ends = []
        for way in (1, -1):
            moved = shapes.copy()
            moved[t] = scale * np.exp(sign * way * step)
            ends.append(at(z, moved)[:3])
        slopes = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(found[..., t], slopes, rtol=1e-6, atol=1e-8)


def test_no_row_is_likelier_than_certain():
    """Also where exponentials would overflow."""
    y, found = np.array([1.0, 1.0, 0.0]), np.empty((2, 3))
    z = np.array([250.0, 5e3, 5e3])
    assert predictor_rows(BINOMIAL, y, np.full(3, 2.0), z, np.zeros(0), found) == -1e4
    np.testing.assert_array_equal(found[0], [0.0, 0.0, -2.0])
    assert not found[1:].any()
