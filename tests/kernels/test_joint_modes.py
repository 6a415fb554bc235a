"""Modes of rows that have some of their client's coefficients, and slopes of the approximation."""

import numpy as np
import pytest

from ebfed.kernels import joint_modes, laplace
from ebfed.kernels.responses import BINOMIAL, GAMMA, NEGATIVE_BINOMIAL, ORDINAL, POISSON

RNG = np.random.default_rng(0)
SIZES = [5, 0, 1, 7, 9]
INDPTR = np.concatenate(([0], np.cumsum(SIZES)))
N, M, K = INDPTR[-1], len(SIZES), 2
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


def found(kind, X, slot, starts, offset=OFFSET):
    number, y, shapes = KINDS[kind]
    squares = np.concatenate(([0], np.cumsum(np.diff(starts) ** 2)))
    out = np.empty(M), np.empty(N), np.empty(X.shape), np.empty(N), np.empty(squares[-1])
    mode = np.zeros(starts[-1])
    rows = X, slot, offset, y, WEIGHT, INDPTR, starts, squares, number, shapes, 100
    assert joint_modes(*rows, mode, *out) == 0
    return mode, *out


ALL = np.ascontiguousarray(np.broadcast_to(np.arange(K), (N, K)))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_laplace_where_rows_have_all_coefficients(kind):
    number, y, shapes = KINDS[kind]
    mode, evidence, _, _, _, spread = found(kind, X, ALL, K * np.arange(M + 1))
    place, cov, expected = np.zeros((M, K)), np.empty((M, K, K)), np.empty(M)
    laplace(X, OFFSET, y, WEIGHT, INDPTR, number, shapes, 1e-14, 100, place, cov, expected)
    np.testing.assert_allclose(evidence, expected, atol=1e-9)
    np.testing.assert_allclose(mode.reshape(M, K), place, atol=1e-6)
    np.testing.assert_allclose(spread.reshape(M, K, K), cov, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_are_differences(kind):
    """Of the last client one coefficient is that of all rows, and three are those of some."""
    starts = np.array([0, 2, 4, 6, 8, 12])
    slot = ALL.copy()
    slot[INDPTR[4] :, 1] = 1 + np.arange(SIZES[4]) % 3
    _, _, push, pull, _, _ = found(kind, X, slot, starts)
    step = 1e-5
    for row in (0, 5, INDPTR[4], N - 1):
        move = step * (np.arange(N) == row)
        ends = [found(kind, X, slot, starts, OFFSET + s * move)[1].sum() for s in (1, -1)]
        assert push[row] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)
        for j in range(K):
            turn = np.zeros((N, K))
            turn[row, j] = step
            ends = [found(kind, X + s * turn, slot, starts)[1].sum() for s in (1, -1)]
            assert pull[row, j] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)
