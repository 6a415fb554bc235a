"""Kernels of the linear mixed model against NumPy."""

import numpy as np
import pytest

from ebfed.kernels import (
    curvature_in_covariance,
    least_squares,
    slope_in_covariance,
    whitened_products,
)
from ebfed.kernels.factors import BATCH

RNG = np.random.default_rng(12)
COLUMNS, SHARE, SHIFT = np.array([0, 2, 5]), np.array([1.5, 0.7, 2.0]), np.array([0.0, 0.0, 0.3])


def triangles(n, p=6, r=4):
    return np.triu(RNG.normal(size=(n, r, p))).transpose(2, 1, 0).copy()


def effects_of(white):
    Z = white[COLUMNS] * SHARE[:, None, None]
    Z[:, 0] += SHIFT[:, None] * white[0, 0]
    return Z


@pytest.mark.parametrize("size", [0.0, 0.5])
def test_whitened_products(size):
    rows = triangles(2 * BATCH)
    Z, root, white = effects_of(rows), size * np.eye(3), np.zeros_like(rows)
    log_det, products = whitened_products(rows, Z, COLUMNS, root, white)
    V = np.eye(4) + size**2 * np.einsum("qin,qjn->nij", Z, Z)
    assert log_det == pytest.approx(np.linalg.slogdet(V)[1].sum(), rel=1e-12, abs=1e-12)
    expected = np.einsum("ain,nij,bjn->ab", rows, np.linalg.inv(V), rows)
    np.testing.assert_allclose(products, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(products, np.einsum("ain,bin->ab", white, white), rtol=1e-12)


@pytest.mark.parametrize("rank", [0, 2, 3])
def test_least_squares(rank):
    rows, basis = RNG.normal(size=(9, 4)), RNG.normal(size=(3, rank))
    basis = np.eye(3) if rank == 3 else basis
    half, beta, quadratic, log_det = least_squares(rows.T @ rows, basis)
    X, y = rows[:, :-1] @ basis, rows[:, -1]
    expected = basis @ np.linalg.pinv(X) @ y
    np.testing.assert_allclose(beta, expected, rtol=1e-10, atol=1e-12)
    assert quadratic == pytest.approx(np.sum((y - rows[:, :-1] @ expected) ** 2), rel=1e-10)
    assert log_det == pytest.approx(np.linalg.slogdet(X.T @ X)[1], rel=1e-10, abs=1e-12)
    inverse = basis @ np.linalg.inv(X.T @ X) @ basis.T
    np.testing.assert_allclose(half.T @ half, inverse, rtol=1e-10, atol=1e-12)


def test_least_squares_of_collinear_columns():
    assert np.isnan(least_squares(np.ones((3, 3)), np.eye(2))[3])


@pytest.mark.parametrize("n", [BATCH, 3 * BATCH])
@pytest.mark.parametrize("rank", [0, 2])
def test_slope_in_covariance(n, rank):
    white, half, beta = triangles(n), RNG.normal(size=(rank, 5)), RNG.normal(size=5)
    maps = np.vstack([np.hstack([half, np.zeros((rank, 1))]), np.append(-beta, 1.0)])
    Z = effects_of(white)
    K = np.einsum("qin,win,kw->nqk", Z, white, maps)
    expected = np.einsum("qin,din->qd", Z, Z)
    expected -= np.einsum("nqk,ndk,k->qd", K, K, np.append(np.ones(rank), 1.7))
    found = slope_in_covariance(white, COLUMNS, SHARE, SHIFT, half, beta, 1.7)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [BATCH, 3 * BATCH])
def test_curvature_in_covariance(n):
    white = triangles(n)
    Z = effects_of(white)
    K = np.einsum("qin,din->nqd", Z, Z)
    shared = K.sum(axis=0).ravel()
    whole = np.einsum("nab,nde->adbe", K, K).reshape(9, 9) - np.outer(shared, shared) / 50
    given = white, COLUMNS, SHARE, SHIFT, 50
    np.testing.assert_allclose(curvature_in_covariance(*given, True), whole, rtol=1e-10)
    diagonal = whole[::4, ::4]
    np.testing.assert_allclose(curvature_in_covariance(*given, False), diagonal, rtol=1e-10)
