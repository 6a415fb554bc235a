"""Steps of small networks in one pass are those of NumPy in several."""

import numpy as np
import pytest

from ebfed.kernels import cross_entropy, gate, move_down, rectify, step_down

RNG = np.random.default_rng(0)
# rounding of a few operations on numbers near 1
NEAR = {"float64": {"rtol": 1e-13, "atol": 1e-15}, "float32": {"rtol": 1e-5, "atol": 1e-6}}


def normals(dtype, *shape):
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("clients", [1, 3])
def test_units(dtype, clients):
    units, intercept = normals(dtype, 3, 5, 4), normals(dtype, clients, 1, 4)
    expected = np.maximum(units + intercept, 0)
    rectify(units, intercept)
    np.testing.assert_array_equal(units, expected)


@pytest.mark.parametrize("dtype", NEAR)
def test_slopes_of_units(dtype):
    slope, units = normals(dtype, 3, 5, 4), np.maximum(normals(dtype, 3, 5, 4), 0)
    whole = np.zeros((3, 9), dtype)  # the sums are a part of a longer vector
    total, expected = whole[:, 2:6].reshape(3, 1, 4), slope * (units > 0)
    gate(slope, units, total)
    np.testing.assert_array_equal(slope, expected)
    np.testing.assert_allclose(total, expected.sum(axis=1, keepdims=True), **NEAR[dtype])
    assert whole.any()


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_the_loss_of_classes(dtype, size):
    outputs, weight = size * normals(dtype, 3, 5, 4), RNG.random((3, 5)).astype(dtype)
    y = RNG.integers(0, 4, (3, 5))
    loss, slope = np.empty(3, dtype), np.empty_like(outputs)
    cross_entropy(outputs, y, weight, loss, slope)
    exact = outputs.astype(np.float64)
    log_p = exact - exact.max(axis=2, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(axis=2, keepdims=True))
    right = np.arange(4) == y[:, :, None]
    near = NEAR[dtype]
    np.testing.assert_allclose(loss, -(log_p * right * weight[:, :, None]).sum((1, 2)), **near)
    expected = (np.exp(log_p) - right) * weight[:, :, None]
    np.testing.assert_allclose(slope, expected, rtol=near["rtol"], atol=10 * near["atol"])
    assert (loss.dtype, slope.dtype) == (dtype, dtype)


def test_a_loss_far_below_rounding_has_its_slope():
    loss, slope = np.empty(1), np.empty((1, 1, 2))
    cross_entropy(np.array([[[0.0, 50.0]]]), np.ones((1, 1), int), np.ones((1, 1)), loss, slope)
    np.testing.assert_allclose(slope[0, 0], [np.exp(-50.0), -np.exp(-50.0)], rtol=1e-12)
    np.testing.assert_allclose(loss, np.exp(-50.0), rtol=1e-12)


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("clients", [1, 3])
def test_steps_down_gradients(dtype, clients):
    theta, gradient, start = (normals(dtype, n, 7) for n in (clients, 3, 1))
    rate, after, moved = np.dtype(dtype).type(0.3), gradient.copy(), gradient.copy()
    step_down(theta, after, rate)
    np.testing.assert_allclose(after, theta - rate * gradient, **NEAR[dtype])
    move_down(theta, moved, rate, start)
    np.testing.assert_allclose(moved, theta - rate * gradient - start, **NEAR[dtype])
