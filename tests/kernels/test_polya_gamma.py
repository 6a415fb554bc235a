"""Pólya-Gamma draws against closed forms, and the Gibbs sampler against quadrature."""

import numpy as np
import pytest
from numba import config
from scipy.special import expit

from ebfed.kernels import gibbs_logistic
from ebfed.kernels.polya_gamma import fill_polya_gamma
from ebfed.kernels.small import _cholesky, _invert, _solve_lower, _solve_upper

SIZE = 100_000 if config.DISABLE_JIT == 0 else 2_000
NAME = np.uint64(11), np.uint64(3), np.uint64(0)
STRIDE = np.uint64(2**20)
# Five standard errors: a false alarm in 2e6 for each figure.
ERRORS = 5


def draws(tilt, size=SIZE):
    out = np.empty(size)
    fill_polya_gamma(np.full(size, float(tilt)), out, *NAME, STRIDE)
    return out


@pytest.mark.parametrize("tilt", [0.0, 1e-3, 0.5, 1.0, 3.0, 3.2, 8.0, 30.0, 200.0])
def test_moments(tilt):
    """E = tanh(c/2) / 2c, Var = (sinh c - c) sech^2(c/2) / 4c^3 (Polson et al., 2013)."""
    x = draws(tilt)
    assert (x > 0).all()
    if tilt < 0.01:
        mean, variance = 1 / 4, 1 / 24
    else:
        mean = np.tanh(tilt / 2) / (2 * tilt)
        tail = np.exp(-tilt)  # sinh(c) / cosh(c/2)^2 without large numbers
        ratio = (2 * (1 - tail**2) - 4 * tilt * tail) / (1 + tail) ** 2
        variance = ratio / (4 * tilt**3)
    assert abs(x.mean() - mean) < ERRORS * np.sqrt(variance / SIZE)
    squares = (x - mean) ** 2
    assert abs(squares.mean() - variance) < ERRORS * squares.std() / np.sqrt(SIZE)


@pytest.mark.parametrize("tilt", [0.0, 2.0, 6.0])
@pytest.mark.parametrize("s", [0.3, 2.0, 15.0])
def test_laplace_transform(tilt, s):
    """E exp(-s x) = cosh(c/2) / cosh(sqrt(c^2/4 + s/2))."""
    values = np.exp(-s * draws(tilt))
    exact = np.cosh(tilt / 2) / np.cosh(np.sqrt(tilt**2 / 4 + s / 2))
    assert abs(values.mean() - exact) < ERRORS * values.std() / np.sqrt(SIZE)


def test_sign_of_the_tilt_makes_no_difference():
    np.testing.assert_array_equal(draws(-2.0, 50), draws(2.0, 50))


def test_draws_are_functions_of_their_numbers():
    tilts = np.linspace(0, 5, 40)
    whole, part = np.empty(40), np.empty(15)
    fill_polya_gamma(tilts, whole, *NAME, STRIDE)
    key, tag, _ = NAME
    fill_polya_gamma(tilts[25:], part, key, tag, np.uint64(25) * STRIDE, STRIDE)
    np.testing.assert_array_equal(part, whole[25:])


def test_gibbs_draws_from_the_posterior():
    rng = np.random.default_rng(2)
    X, offset = rng.normal(size=(9, 1)), np.full(9, 0.3)
    signs = np.where(rng.random(9) < 0.6, 1.0, -1.0)
    size = SIZE // 10
    draws, mean, cov = np.empty((size, 1, 1)), np.empty((1, 1)), np.empty((1, 1, 1))
    indptr, state = np.array([0, 9]), np.zeros((1, 1))
    gibbs_logistic(X, offset, signs, indptr, state, 20, size, draws, mean, cov, (*NAME, STRIDE))
    t = np.linspace(-7, 7, 2001)
    weight = np.exp(-0.5 * t**2) * expit(signs * (offset + t[:, None] * X[:, 0])).prod(axis=1)
    weight /= weight.sum()
    exact = weight @ t
    variance = weight @ (t - exact) ** 2
    # neighbouring draws are correlated: at most a third of them count
    error = ERRORS * np.sqrt(3 / size)
    for ours in (draws.mean(), mean[0, 0]):
        assert abs(ours - exact) < error * np.sqrt(variance)
    for ours in (draws.var(), cov[0, 0, 0]):
        assert abs(ours / variance - 1) < error * np.sqrt(2)
    np.testing.assert_array_equal(state[0], draws[-1, 0])
    below = np.cumsum(weight)[np.searchsorted(t, 0.5)]
    assert abs(np.mean(draws <= 0.5) - below) < error / 2 + 0.01


def test_small_matrices():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5, 5))
    A = A @ A.T + np.eye(5)
    b = rng.normal(size=5)
    L = A.copy()
    assert _cholesky(L)
    np.testing.assert_allclose(np.tril(L), np.linalg.cholesky(A), rtol=1e-12)
    x = b.copy()
    _solve_lower(L, x)
    _solve_upper(L, x)
    np.testing.assert_allclose(x, np.linalg.solve(A, b), rtol=1e-10)
    _invert(L)
    np.testing.assert_allclose(np.tril(L), np.tril(np.linalg.inv(A)), rtol=1e-10)
    assert not _cholesky(-np.eye(2))
