"""Sums over the rows of crossed factors against dense matrices."""

import numpy as np
import pytest

from ebfed.regression.numerics.crossed_sums import CrossedDesign

RNG = np.random.default_rng(11)
SIZES = (9, 5, 3)


def design(widths, n=60):
    """Rows of three factors, in which not all levels meet, and some columns are zero."""
    codes = [RNG.integers(0, size, n) for size in SIZES]
    bases = [RNG.normal(size=(n, p)) * (RNG.random((n, p)) < 0.8) for p in widths]
    return CrossedDesign(codes, np.array(SIZES), bases)


def whole(rows, factor):
    """Columns of all coefficients of a factor."""
    own = rows.codes[factor][:, None] == np.arange(SIZES[factor])
    return (own[:, :, None] * rows.bases[factor][:, None, :]).reshape(len(own), -1)


@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 1, 3), (1, 2, 1)])
@pytest.mark.parametrize("c", [0, 2])
def test_sums_are_products_of_columns(widths, c):
    rows = design(widths)
    weight, columns = RNG.uniform(0.5, 2, 60), RNG.normal(size=(60, c))
    sums = rows.sums(weight, columns)
    first, others = whole(rows, 0), np.hstack([whole(rows, 1), whole(rows, 2), columns])
    products = first.T @ (weight[:, None] * first)
    p, q = widths[0], sums.q
    blocks = products.reshape(9, p, 9, p)[np.arange(9), :, np.arange(9)]
    np.testing.assert_allclose(sums.blocks, blocks, atol=1e-13)
    beside = first.T @ (weight[:, None] * others)
    np.testing.assert_allclose(sums.table.matrix.toarray(), beside[:, :q], atol=1e-13)
    np.testing.assert_allclose(sums.outer, beside[:, q:], atol=1e-13)
    inner = others.T @ (weight[:, None] * others)
    np.testing.assert_allclose(sums.pattern.whole(sums.among), inner[:q, :q], atol=1e-13)
    np.testing.assert_allclose(sums.below, inner[:q, q:], atol=1e-13)
    np.testing.assert_allclose(sums.whole, inner[q:, q:], atol=1e-13)
    for i in range(9):  # the rows of a level have the same entries, in order
        own = [sums.table.matrix[i * p + a].indices.tolist() for a in range(p)]
        assert own == [sorted(own[0])] * p


def test_totals_and_predictors_are_products_with_all_columns():
    rows = design((2, 1, 3))
    every = [whole(rows, k) for k in range(3)]
    values = RNG.normal(size=(60, 2))
    first, others = rows.totals(values)
    np.testing.assert_allclose(first, every[0].T @ values, atol=1e-13)
    np.testing.assert_allclose(others, np.hstack(every[1:]).T @ values, atol=1e-13)
    effects = [RNG.normal(size=(m, p)) for m, p in zip(SIZES, rows.widths, strict=True)]
    expected = sum(Z @ u.ravel() for Z, u in zip(every, effects, strict=True))
    np.testing.assert_allclose(rows.predictor(effects), expected, atol=1e-13)


def test_matrices_have_none_of_levels_that_are_not_there():
    rows = design((2, 1, 3))
    some = CrossedDesign([np.where(c == 0, -1, c) for c in rows.codes], rows.sizes, rows.bases)
    first, others = some.matrices
    expected = np.hstack([whole(rows, k) * (rows.codes[k] > 0)[:, None] for k in range(3)])
    np.testing.assert_array_equal(np.hstack([first.toarray(), others.toarray()]), expected)
